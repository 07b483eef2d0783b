"""Statistics of each instrument and venue, as the exchange publishes them, and what makes them go away.

The one rule: what is kept apart is said by a key. 1500 keeps venues apart (10 IMPORTANT); a settlement price is known
by 286 and 731 together (10.6), a closing price by 286 (10.5), a composite underlying by its underlying (10.10), a price
band by its type (10.9). Which types an event forgets stands in FORGETS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from umdf.market import events as e
from umdf.market.current import Current, Operations
from umdf.market.events import FAMILIES, NULL, Family
from umdf.market.rows import Events, Numbers, Rows
from umdf.market.statistics_kernel import (
    AUCTION_ENDS,
    DROP,
    NEW_SESSION,
    NO_LAST,
    O_BUYER,
    O_CONDITIONS,
    O_ID,
    O_KIND,
    O_ORDER,
    O_PRICE,
    O_SELLER,
    O_SIZE,
    O_STREAM,
    O_TRADE_ID,
    O_TS,
    OPERATION,
    SET_LAST,
    START_AGAIN,
)
from umdf.market.tape import Tape

EVERYTHING = -1
NOTHING = 0


def type_mask(*stat_types: int) -> int:
    """The bits of some types, as the kernel numbers them."""
    return sum(1 << (stat_type if stat_type < 32 else stat_type - 68) for stat_type in stat_types)


# 11.3: exactly these entry types are reset by 1174=4 (269 = 2, 3, 4, 4 with 286=5, 7, 8, 9, B).
RESET_TYPES = (
    e.LAST_PRICE,
    e.INDEX_VALUE,
    e.OPENING_PRICE,
    e.THEORETICAL_OPENING,
    e.SESSION_HIGH,
    e.SESSION_LOW,
    e.VWAP,
    e.TRADE_VOLUME,
)
# What each kind of operation forgets, by family. AUCTION_ENDS: 10.7 NOTE. START_AGAIN: a snapshot of the instrument
# begins, or the channel was reset (4.2.9: "emptying their books and statistics"). An Empty Book of one instrument is
# not here: 4.2.9 empties its book only. DROP: the instrument is gone (7.3).
FORGETS: dict[str, dict[int, int]] = {
    "statistics": {
        NEW_SESSION: type_mask(*RESET_TYPES),
        AUCTION_ENDS: type_mask(e.THEORETICAL_OPENING),
        START_AGAIN: EVERYTHING,
        DROP: EVERYTHING,
    },
    "imbalance": {NEW_SESSION: NOTHING, AUCTION_ENDS: EVERYTHING, START_AGAIN: EVERYTHING, DROP: EVERYTHING},
    "price_band": {NEW_SESSION: NOTHING, AUCTION_ENDS: NOTHING, START_AGAIN: EVERYTHING, DROP: EVERYTHING},
}
# By which of these a type is known, besides its venue.
KEYED_BY: dict[int, tuple[str, ...]] = {
    e.SETTLEMENT_PRICE: ("open_close_settl_flag", "settl_price_type"),
    e.CLOSING_PRICE: ("open_close_settl_flag",),
    e.COMPOSITE_UNDERLYING: ("underlying_id",),
}
_STAMPS = tuple(column for column in e.COMMON if column.name in ("ts_event", "flags"))
_NOT_KEPT = {"action"}
_MOST_TYPES = 1 << 16


def _by(name: str) -> Numbers:
    """For every type (as 16 bits) whether it is keyed by a column."""
    found = np.zeros(_MOST_TYPES, np.int64)
    found[[stat_type for stat_type, names in KEYED_BY.items() if name in names]] = -1
    return found


_BY_FLAG, _BY_SETTL, _BY_UNDERLYING = (
    _by("open_close_settl_flag"),
    _by("settl_price_type"),
    _by("underlying_id"),
)


def _statistics_keys(rows: Rows) -> tuple[Numbers, Numbers | None]:
    """Bits 0-7 the venue, 8-23 the type, 24-31 286, 32-39 731; the second key is the underlying."""
    kinds = rows.column("stat_type").view(np.uint16)
    keys = rows.column("stream") | kinds.astype(np.int64) << 8
    if (_BY_FLAG[kinds]).any():
        keys |= _BY_FLAG[kinds] & rows.column("open_close_settl_flag").view(np.uint8).astype(np.int64) << 24
        keys |= _BY_SETTL[kinds] & rows.column("settl_price_type").view(np.uint8).astype(np.int64) << 32
    underlying = _BY_UNDERLYING[kinds]
    return keys, underlying & rows.column("underlying_id") if underlying.any() else None


def _band_keys(rows: Rows) -> tuple[Numbers, None]:
    """Bits 0-7 269 (g or h), 24-31 the type of band; a reference price has none."""
    band = rows.column("price_band_type").view(np.uint8).astype(np.int64)
    return rows.column("entry_type") | band << 24, None


def _imbalance_keys(rows: Rows) -> tuple[Numbers, None]:
    return np.zeros(len(rows), np.int64), None


_KEYS: dict[str, Callable[[Rows], tuple[Numbers, Numbers | None]]] = {
    "statistics": _statistics_keys,
    "imbalance": _imbalance_keys,
    "price_band": _band_keys,
}


@dataclass(frozen=True, slots=True)
class Forget:
    """Something to forget: of one instrument, or of all (None), from this place in the wire on."""

    order: int
    instrument_id: int | None
    kind: int


class Statistics:
    """Everything that is published about instruments besides their books; and the tape."""

    def __init__(self) -> None:
        self.current = {name: _current(FAMILIES[name]) for name in _KEYS}
        self.tape = Tape()

    def apply(self, events: Events, forgets: list[Forget]) -> None:
        """Apply a batch: its statistics, bands, imbalances and trades, with what is to be forgotten between them."""
        last = last_price_operations(events.rows("statistics"))
        ops = _merged(forgets, last)
        for name, current in self.current.items():
            rows = events.rows(name)
            if len(rows) or forgets:
                keys, keys_2 = _KEYS[name](rows)
                current.apply(rows, keys, keys_2, ops)
        trades = events.rows("trades")
        if len(trades) or len(ops):
            self.tape.apply(trades, ops)

    def export(self) -> dict[str, Numbers]:
        state = {name: current.export() for name, current in self.current.items()}
        return state | {f"tape.{name}": part for name, part in self.tape.export().items()}

    def restore(self, state: dict[str, Numbers]) -> None:
        for name, current in self.current.items():
            current.restore(state[name])
        self.tape.restore(
            {name.removeprefix("tape."): part for name, part in state.items() if name.startswith("tape.")}
        )


def _current(family: Family) -> Current:
    columns = (*_STAMPS, *(column for column in family.columns if column.name not in _NOT_KEPT))
    return Current(family, columns, FORGETS[family.name])


def last_price_operations(rows: Rows) -> Operations:
    """The published last prices of a batch (277=U, LastTradePrice_27, 269=2 in a snapshot), for the tape."""
    chosen = np.flatnonzero(rows.column("stat_type") == e.LAST_PRICE)
    ops = np.full((len(chosen), OPERATION), NULL, np.int64)
    if not len(chosen):
        return ops
    deleted = rows.column("action")[chosen] == ord("C")
    ops[:, O_KIND] = np.where(deleted, NO_LAST, SET_LAST)
    ops[:, O_ORDER] = rows.order[chosen]
    names = {O_ID: "instrument_id", O_STREAM: "stream", O_PRICE: "price", O_SIZE: "size", O_TS: "ts_event",
             O_TRADE_ID: "trade_id", O_BUYER: "buyer", O_SELLER: "seller", O_CONDITIONS: "conditions"}  # fmt: skip
    for place, name in names.items():
        ops[:, place] = rows.column(name)[chosen]
    return ops


def _merged(forgets: list[Forget], last: Operations) -> Operations:
    """All operations in the order of the wire; of two at the same place, forgetting comes first."""
    forgets = [forget for forget in forgets if forget.instrument_id != NULL]  # bad data: of no instrument, not of all
    if not forgets:
        return last
    ops = np.full((len(forgets), OPERATION), NULL, np.int64)
    ops[:, O_ORDER] = [forget.order for forget in forgets]
    ops[:, O_ID] = [NULL if forget.instrument_id is None else forget.instrument_id for forget in forgets]
    ops[:, O_KIND] = [forget.kind for forget in forgets]
    ops = np.concatenate([ops, last])
    return ops[np.argsort(ops[:, O_ORDER], kind="stable")]
