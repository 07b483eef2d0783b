"""Statistics for display and as tables: names instead of keys, exact decimals as text, absent values left out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from umdf.market.arrow import numbers_array
from umdf.market.families import LAST_PRICE, PRICE_EXPONENT, STATISTICS, VOLUME_EXPONENT, Column
from umdf.market.latest_rows import LatestRows, unpack_text_8
from umdf.market.statistics import KEY_COLUMNS, Statistics
from umdf.market.statistics_kernel import S_ID, S_VALUES
from umdf.market.tape import LastPrice, TradeTotals
from umdf.units import fix_decimal

PRICE_BAND_TYPES = {1: "hard", 2: "auction", 3: "rejection", 4: "static"}
_EXPONENTS = {"price": PRICE_EXPONENT, "volume": VOLUME_EXPONENT}


def describe_statistics(statistics: Statistics, instrument_id: int) -> dict[str, dict[str, Any]]:
    """The current values of an instrument, by name; a venue follows an @."""
    found: dict[str, dict[str, Any]] = {}
    for name, current in statistics.latest.items():
        for key, values in current.values_of(instrument_id):
            if name == "statistics" and key >> 8 & 0xFFFF == LAST_PRICE:
                continue  # the tape has it, or a later trade
            found[_LABELS[name](key, values)] = _describe_values(current.columns, values)
    for venue, (last, count) in sorted(statistics.tape.venues_of(instrument_id).items()):
        if last is not None:
            found[_at_venue("last trade" if last.is_trade else "last price published", venue)] = _describe_last_price(
                last
            )
        found[_at_venue("trades seen", venue)] = _describe_totals(count)
    return found


def mark_trades_seen(described: dict[str, dict[str, Any]], *, incomplete: bool) -> dict[str, dict[str, Any]]:
    """Mark whether trades of the session may be missing from the totals of those seen."""
    for name, values in described.items():
        if name.startswith("trades seen"):
            values["incomplete"] = incomplete
    if incomplete:
        described.setdefault("trades seen", {"incomplete": True})
    return described


def statistics_tables(statistics: Statistics) -> dict[str, pa.Table]:
    """The current values, sorted by instrument: `statistics`, `imbalance`, `price_band`, `last` and `trades_seen`."""
    tables = {name: _latest_table(current) for name, current in statistics.latest.items()}
    lasts, counts = [], []
    for instrument_id, venue, last, count in statistics.tape.all_venues():
        key = {"instrument_id": instrument_id, "venue": chr(venue) if venue else None}
        if last is not None:
            lasts.append(key | _field_values(last))
        if count.trades or count.busts or count.unknown_busts:
            counts.append(key | _field_values(count) | {"vwap": count.vwap})
    tables["last"] = pa.Table.from_pylist(lasts, LAST_SCHEMA)
    tables["trades_seen"] = pa.Table.from_pylist(counts, TRADES_SEEN_SCHEMA)
    return tables


def _at_venue(name: str, venue: int) -> str:
    return f"{name} @{chr(venue)}" if venue else name


def _statistic_label(key: int, values: dict[str, int]) -> str:
    stat_type = key >> 8 & 0xFFFF
    name = STATISTICS.get(stat_type, f"statistic {stat_type}")
    parts = [str(values.get(column, "-")) for column in KEY_COLUMNS.get(stat_type, ())]
    return _at_venue(" ".join([name, "/".join(parts)]).strip(), key & 0xFF)


def _band_label(key: int, values: dict[str, int]) -> str:
    if key & 0xFF == ord("h"):
        return "quantity band"
    band = values.get("price_band_type")
    return "reference price" if band is None else f"price band {PRICE_BAND_TYPES.get(band, band)}"


_LABELS = {"statistics": _statistic_label, "imbalance": lambda key, values: "imbalance", "price_band": _band_label}


def _describe_values(columns: tuple[Column, ...], values: dict[str, int]) -> dict[str, Any]:
    described: dict[str, Any] = {}
    for column in columns:
        value = values.get(column.name)
        if value is None or (column.is_text and value == 0):
            continue
        if column.type in _EXPONENTS:
            described[column.name] = fix_decimal(value, _EXPONENTS[column.type])
        else:
            described[column.name] = (
                unpack_text_8(value) if column.is_text else chr(value) if column.type == "char" else value
            )
    return described


def _field_values(item: LastPrice | TradeTotals) -> dict[str, Any]:
    return {name: getattr(item, name) for name in item.__dataclass_fields__}


def _describe_last_price(last: LastPrice) -> dict[str, Any]:
    return _field_values(last) | {"price": fix_decimal(last.price, PRICE_EXPONENT)}


def _describe_totals(count: TradeTotals) -> dict[str, Any]:
    prices = {
        "notional": count.notional,
        "first": count.first,
        "high": count.high,
        "low": count.low,
        "vwap": count.vwap,
    }
    texts = {name: None if p is None else fix_decimal(p, PRICE_EXPONENT) for name, p in prices.items()}
    return _field_values(count) | texts


_KEY_FIELDS = [("instrument_id", pa.int64()), ("venue", pa.utf8())]
LAST_SCHEMA = pa.schema(
    _KEY_FIELDS
    + [(name, pa.int64()) for name in ("price", "size", "ts_event", "trade_id", "buyer", "seller", "conditions")]
    + [("is_trade", pa.bool_()), ("is_busted", pa.bool_())]
)
TRADES_SEEN_SCHEMA = pa.schema(
    _KEY_FIELDS
    + [("trades", pa.int64()), ("quantity", pa.int64()), ("notional", pa.decimal128(38, 0))]
    + [(name, pa.int64()) for name in ("first", "high", "low", "busts", "unknown_busts", "vwap")]
)


def _latest_table(current: LatestRows) -> pa.Table:
    slots = current.present_slots()
    arrays, names = [pa.array(slots[:, S_ID])], ["instrument_id"]
    for c, column in enumerate(current.columns):
        values = slots[:, S_VALUES + c]
        names.append(column.name)
        if column.is_text:
            arrays.append(pa.array([unpack_text_8(word) or None for word in values.tolist()], pa.utf8()))
        else:
            arrays.append(numbers_array(column, values.astype(column.dtype)))
    return pa.table(arrays, names=names)
