"""Specs → rows of the family `definition`: what a SecurityList or a SecurityDefinition says of an instrument."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.instruments.instrument_spec import UNIT, InstrumentSpec
from umdf.exchange.instruments.maturities import EPOCH
from umdf.market.families import DEFINITION
from umdf.market.rows import RepeatingGroup, Rows, text_column

Numbers = NDArray[np.int64]
FEW_ROWS = 64  # are built from their specs, more are taken from a table of all
DAY_NS = 86_400_000_000_000
DEFAULT_AGE_DAYS, DEFAULT_VALIDITY_DAYS = 400, 90
MAX_LOTS = 100_000  # of an order
SBE_BYTES = {"message": 12, "group": 3, "leg": 38, "underlying": 28, "attribute": 2, "text": 2}

NumberOf = Callable[[InstrumentSpec], int | None]
NUMBERS: dict[str, NumberOf] = {
    "instrument_id": lambda s: s.security_id,
    "security_sub_type": lambda s: s.sub_type,
    "product": lambda s: s.product,
    "tick": lambda s: s.tick,
    "tick_denominator": lambda s: s.decimals,
    "strike_price": lambda s: s.strike,
    "contract_multiplier": lambda s: s.multiplier,
    "price_divisor": lambda s: s.divisor,
    "maturity_date": lambda s: days_of(s.maturity),
    "maturity_month_year": lambda s: s.maturity_code,
    "contract_settl_month": lambda s: s.settl_month,
    "start_date": lambda s: days_of(s.start_date),
    "end_date": lambda s: days_of(s.end_date),
    "settl_type": lambda s: s.settl_days,
    "exercise_style": lambda s: s.exercise_style,
    "put_or_call": lambda s: s.put_or_call,
    "price_type": lambda s: s.price_type,
    "market_segment_id": lambda s: s.segment,
    "governance_indicator": lambda s: s.governance,
    "security_match_type": lambda s: s.match_type,
    "implied_market_indicator": lambda s: int(s.is_implied),
    "multi_leg_model": lambda s: s.multi_leg_model,
    "multi_leg_price_method": lambda s: s.price_method,
    "lot_type": lambda s: s.lot_type or None,
    "min_lot_size": lambda s: s.lot if s.lot_type else None,
    "min_trade_vol": lambda s: s.lot,
    "min_order_qty": lambda s: s.lot,
    "max_order_qty": lambda s: s.lot * MAX_LOTS,
    "min_cross_qty": lambda s: s.min_cross_qty,
    "shares_issued": lambda s: s.shares_issued,
    "corporate_action_event_id": lambda s: s.corporate_action,
}
TEXTS: dict[str, Callable[[InstrumentSpec], str]] = {
    "symbol": lambda s: s.symbol,
    "security_exchange": lambda s: "BVMF",
    "security_group": lambda s: s.group,
    "asset": lambda s: s.asset,
    "security_type": lambda s: s.security_type,
    "isin": lambda s: s.isin,
    "cfi_code": lambda s: s.cfi_code,
    "description": lambda s: s.description,
    "currency": lambda s: s.currency,
    "strike_currency": lambda s: s.strike_currency,
    "settl_currency": lambda s: s.settl_currency or s.currency,
    "country": lambda s: "BR",
    "strategy_type": lambda s: s.strategy_type,
}


def days_of(day: date | None) -> int | None:
    return None if day is None else (day - EPOCH).days


class Definitions:
    """Every definition that an instrument has had, by number; a published one refers to its number."""

    def __init__(self, trading_date: int, spec_of: Callable[[str], InstrumentSpec]) -> None:
        """`trading_date` is in days since 1970; `spec_of` finds the legs and underlyings."""
        self.specs: list[InstrumentSpec] = []
        self._trading_date, self._spec_of = trading_date, spec_of
        self._all: Rows | None = None

    def add(self, spec: InstrumentSpec) -> int:
        """The number of a new definition."""
        self.specs.append(spec)
        return len(self.specs) - 1

    def rows(self, numbers: Numbers) -> Rows:
        """Definitions by number: `columns`, `texts` and `lists`."""
        if len(numbers) <= FEW_ROWS:
            return self._build([self.specs[number] for number in numbers.tolist()])
        if self._all is None or len(self._all) != len(self.specs):
            self._all = self._build(self.specs)
        return self._all.take(numbers)

    def sbe_bytes(self, numbers: Numbers, block: int) -> Numbers:
        """The bytes of each as a Binary message with a block of `block` bytes."""
        size = SBE_BYTES
        fixed = size["message"] + block + 3 * size["group"] + size["text"]
        specs = [self.specs[number] for number in numbers.tolist()]
        return np.array(
            [
                fixed
                + len(spec.description.encode())
                + len(spec.legs) * size["leg"]
                + len(spec.underlyings) * size["underlying"]
                + len(spec.attributes) * size["attribute"]
                for spec in specs
            ],
            np.int64,
        )

    def _build(self, specs: Sequence[InstrumentSpec]) -> Rows:
        columns = {name: _column(name, map(number_of, specs)) for name, number_of in NUMBERS.items()}
        age, validity = self._trading_date - DEFAULT_AGE_DAYS, self._trading_date + DEFAULT_VALIDITY_DAYS
        issued = (days_of(spec.issue_date) for spec in specs)
        columns["issue_date"] = _column("issue_date", (age if day is None else day for day in issued))
        last_day = (validity if spec.maturity is None else days_of(spec.maturity) for spec in specs)
        columns["ts_validity"] = np.array([day * DAY_NS for day in last_day if day is not None], np.int64)
        texts = {name: text_column([text_of(spec) for spec in specs]) for name, text_of in TEXTS.items()}
        index = np.zeros(len(specs), np.uint16)
        rows = Rows(DEFINITION, np.zeros(len(specs), np.uint32), index, index, columns, texts)
        rows.lists.update(self._lists(specs))
        return rows

    def _lists(self, specs: Sequence[InstrumentSpec]) -> dict[str, RepeatingGroup]:
        legs = [(leg, self._spec_of(leg.symbol)) for spec in specs for leg in spec.legs]
        underlyings = [(item, self._spec_of(item.symbol)) for spec in specs for item in spec.underlyings]
        attributes = [attribute for spec in specs for attribute in spec.attributes]
        with_lots = [spec for spec in specs if spec.lot_type]
        return {
            "legs": _group(
                "legs",
                [len(spec.legs) for spec in specs],
                {
                    "leg_id": [spec.security_id for _, spec in legs],
                    "leg_ratio": [leg.ratio for leg, _ in legs],
                    "leg_side": [leg.side for leg, _ in legs],
                },
                {
                    "leg_symbol": [leg.symbol for leg, _ in legs],
                    "leg_security_type": [spec.security_type for _, spec in legs],
                },
            ),
            "underlyings": _group(
                "underlyings",
                [len(spec.underlyings) for spec in specs],
                {
                    "underlying_id": [spec.security_id for _, spec in underlyings],
                    "index_pct": [item.percent for item, _ in underlyings],
                    "index_theoretical_qty": [item.quantity for item, _ in underlyings],
                },
                {"underlying_symbol": [item.symbol for item, _ in underlyings]},
            ),
            "attributes": _group(
                "attributes",
                [len(spec.attributes) for spec in specs],
                {"attribute_type": [kind for kind, _ in attributes], "attribute_value": [v for _, v in attributes]},
            ),
            "lots": _group(
                "lots",
                [int(spec.lot_type > 0) for spec in specs],
                {
                    "lot_type": [spec.lot_type for spec in with_lots],
                    "min_lot_size": [spec.lot for spec in with_lots],
                },
            ),
        }


def _column(name: str, values: Iterable[int | bool | None]) -> NDArray[Any]:
    column = DEFINITION.column(name)
    return np.array([column.null if value is None else value for value in values], column.dtype)


def _group(
    name: str,
    sizes: Sequence[int],
    numbers: dict[str, list[int | None]] | dict[str, list[int]],
    texts: dict[str, list[str]] | None = None,
) -> RepeatingGroup:
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    types = {column.name: column for column in DEFINITION.lists[name]}
    columns = {
        key: np.array([types[key].null if v is None else v for v in values], types[key].dtype)
        for key, values in numbers.items()
    }
    return RepeatingGroup(offsets, columns, {key: text_column(list(value)) for key, value in (texts or {}).items()})


def whole_units(quantity: int | None) -> int:
    """A quantity in 1e-9 as a number."""
    return 0 if quantity is None else quantity // UNIT
