"""Definitions → Nautilus instruments, with the classes of nautilus_trader.

Invariant: a type without a Nautilus class is an error, never another class. Values without a field are kept in the
instrument's `info`, as strings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from importlib import import_module
from typing import Any

from umdf.errors import UmdfError
from umdf.lake.export.definitions import OPTION_TYPES, STRATEGY
from umdf.lake.export.instrument_days import Instrument, percent_encode
from umdf.units import EPOCH, fix_decimal

PACKAGE = "nautilus_trader"
VENUE = "BVMF"  # 207, also if a definition lacks it
EQUITY_TYPES = frozenset({"CS", "PS", "ETF"})
FUTURE_TYPES = frozenset({"FUT", "FORWARD", "SPOT", "DTERM"})
PUT = 0
DAY_NS = 86_400 * 10**9
SUPPORTED = (*sorted(EQUITY_TYPES), *sorted(FUTURE_TYPES), *sorted(OPTION_TYPES), STRATEGY)
# 460 → AssetClass; all others (strategies, rates of the exchange) are ALTERNATIVE.
ASSET_CLASSES = {2: "COMMODITY", 3: "DEBT", 4: "FX", 5: "EQUITY", 6: "DEBT", 7: "INDEX", 9: "DEBT"}


class UnsupportedTypeError(UmdfError):
    """An instrument of a type that Nautilus does not support."""


def nautilus_module(module: str) -> Any:
    """A module of nautilus_trader.model, imported only when needed."""
    return import_module(f"{PACKAGE}.model.{module}")


def decimal_places(*values: int | None) -> int:
    """How many decimal places these numbers of 1e-9 need."""
    return max((len(text.partition(".")[2]) for text in (fix_decimal(v, -9) for v in values if v)), default=0)


def price_precision(rows: Sequence[Mapping[str, Any]]) -> int:
    """Decimal places of an instrument's prices, from all its definitions: those of the tick, or 5151."""
    stated_precisions = [row["tick_denominator"] for row in rows if row["tick_denominator"] is not None]
    return max(
        [decimal_places(*(row["tick"] for row in rows)), *(digits for digits in stated_precisions if 0 <= digits <= 9)]
    )


def catalog_symbol(listed_instrument: Instrument) -> str:
    """The symbol of an InstrumentId. A catalog uses it for directory names, without slashes, so that instruments could
    collide, and for SQL table names, which besides letters and digits allow only `. - ^` and blanks: X/Y becomes
    X^2FY."""
    return listed_instrument.file_name.translate({ord("%"): "^", ord("="): "^_", ord("~"): "^7E"})


def to_instrument(listed_instrument: Instrument, row: Mapping[str, Any], precision: int) -> Any:
    """The instrument of a row of `definition`; `precision`: decimal places of its prices."""
    kind = row["security_type"]
    make = next((make for kinds, make in INSTRUMENT_MAKERS if kind in kinds), None)
    if make is None:
        hint = f"exclude this instrument (supported: {', '.join(SUPPORTED)})"
        raise UnsupportedTypeError(f"{listed_instrument}: Nautilus does not support type {kind}", hint)
    return make(row, _common_fields(listed_instrument, row, precision))


def _common_fields(listed_instrument: Instrument, row: Mapping[str, Any], precision: int) -> dict[str, Any]:

    identifiers, objects = nautilus_module("identifiers"), nautilus_module("objects")
    tick = row["tick"] or 10 ** (9 - precision)
    lot = row["round_lot"] or row["min_lot_size"] or row["min_trade_vol"] or 1
    return {
        "instrument_id": identifiers.InstrumentId(
            identifiers.Symbol(catalog_symbol(listed_instrument)),
            identifiers.Venue(percent_encode(row["security_exchange"] or VENUE)),
        ),
        "raw_symbol": identifiers.Symbol(listed_instrument.symbol or catalog_symbol(listed_instrument)),
        "currency": objects.Currency.from_str(row["currency"] or "BRL"),
        "price_precision": precision,
        "price_increment": objects.Price.from_str(format_fixed(tick, precision)),
        "lot_size": objects.Quantity.from_int(lot),
        "ts_event": row["ts_recv"],
        "ts_init": row["ts_recv"],
        "info": {name: str(value) for name, value in row.items() if value not in (None, [])},
    }


def format_fixed(value: int, precision: int) -> str:
    """A number of 1e-9 with `precision` decimal places."""
    whole, _, behind = fix_decimal(value, -9).partition(".")
    assert len(behind) <= precision
    return f"{whole}.{behind.ljust(precision, '0')}" if precision else whole


def _make_equity(row: Mapping[str, Any], common: dict[str, Any]) -> Any:

    return nautilus_module("instruments").Equity(**common, isin=row["isin"] or None)


def _contract_fields(row: Mapping[str, Any]) -> dict[str, Any]:

    underlying = (row["underlyings"] or [{}])[0].get("underlying_symbol")
    return {
        "asset_class": getattr(nautilus_module("enums").AssetClass, ASSET_CLASSES.get(row["product"], "ALTERNATIVE")),
        "multiplier": nautilus_module("objects").Quantity.from_str(
            fix_decimal(row["contract_multiplier"] or 10**9, -9)
        ),
        "underlying": underlying or row["asset"] or str(row["symbol"]),
        "activation_ns": _date_ns(row["issue_date"]),
        "expiration_ns": _date_ns(row["maturity_date"]),
        "exchange": row["security_exchange"] or VENUE,
    }


def _make_future(row: Mapping[str, Any], common: dict[str, Any]) -> Any:

    return nautilus_module("instruments").FuturesContract(**common, **_contract_fields(row))


def _make_option(row: Mapping[str, Any], common: dict[str, Any]) -> Any:

    if row["put_or_call"] is None or row["strike_price"] is None:
        raise UmdfError(f"{row['symbol']}: option without a strike price or put/call indicator", "exclude it")
    kind = (
        nautilus_module("enums").OptionKind.PUT
        if row["put_or_call"] == PUT
        else nautilus_module("enums").OptionKind.CALL
    )
    strike = nautilus_module("objects").Price.from_str(fix_decimal(row["strike_price"], -9))
    return nautilus_module("instruments").OptionContract(
        **common, **_contract_fields(row), option_kind=kind, strike_price=strike
    )


def _make_spread(row: Mapping[str, Any], common: dict[str, Any]) -> Any:

    types = {leg["leg_security_type"] for leg in row["legs"] or []}
    make = (
        nautilus_module("instruments").OptionSpread
        if types and types <= OPTION_TYPES
        else nautilus_module("instruments").FuturesSpread
    )
    return make(**common, **_contract_fields(row), strategy_type=row["strategy_type"] or STRATEGY)


INSTRUMENT_MAKERS: tuple[tuple[frozenset[str], Callable[[Mapping[str, Any], dict[str, Any]], Any]], ...] = (
    (EQUITY_TYPES, _make_equity),
    (FUTURE_TYPES, _make_future),
    (OPTION_TYPES, _make_option),
    (frozenset({STRATEGY}), _make_spread),
)


def _date_ns(day: date | None) -> int:
    return 0 if day is None else (day - EPOCH).days * DAY_NS
