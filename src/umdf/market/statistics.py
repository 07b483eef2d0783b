"""Statistics of each instrument and venue, as the exchange publishes them, and the events that clear them.

Invariant: a key decides which values are separate. 1500 separates venues (10 IMPORTANT); a settlement price is
identified by 286 and 731 together (10.6), a closing price by 286 (10.5), a composite underlying by its underlying
(10.10), a price band by its type (10.9). RESET_RULES lists the types that an event clears.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from umdf.market import families as e
from umdf.market.families import FAMILIES, NULL, Family
from umdf.market.latest_rows import LatestRows, Operations
from umdf.market.rows import Events, Numbers, Rows
from umdf.market.statistics_kernel import (
    AUCTION_ENDS,
    CLEAR_LAST_PRICE,
    INSTRUMENT_DELETED,
    NEW_SESSION,
    O_BUYER,
    O_CONDITIONS,
    O_ID,
    O_KIND,
    O_ORDER,
    O_PRICE,
    O_SELLER,
    O_SIZE,
    O_TRADE_ID,
    O_TS,
    O_VENUE,
    OPERATION,
    RESET_ALL,
    SET_LAST_PRICE,
)
from umdf.market.tape import Tape

ALL_TYPES = -1
NO_TYPES = 0


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
# The types that each kind of operation clears, by family. AUCTION_ENDS: 10.7 NOTE. RESET_ALL: a snapshot of the
# instrument begins, or the channel was reset (4.2.9: "emptying their books and statistics"). An Empty Book of one
# instrument is not here: 4.2.9 empties its book only. INSTRUMENT_DELETED: 7.3.
RESET_RULES: dict[str, dict[int, int]] = {
    "statistics": {
        NEW_SESSION: type_mask(*RESET_TYPES),
        AUCTION_ENDS: type_mask(e.THEORETICAL_OPENING),
        RESET_ALL: ALL_TYPES,
        INSTRUMENT_DELETED: ALL_TYPES,
    },
    "imbalance": {NEW_SESSION: NO_TYPES, AUCTION_ENDS: ALL_TYPES, RESET_ALL: ALL_TYPES, INSTRUMENT_DELETED: ALL_TYPES},
    "price_band": {NEW_SESSION: NO_TYPES, AUCTION_ENDS: NO_TYPES, RESET_ALL: ALL_TYPES, INSTRUMENT_DELETED: ALL_TYPES},
}
# The keys that identify a type, besides its venue.
KEY_COLUMNS: dict[int, tuple[str, ...]] = {
    e.SETTLEMENT_PRICE: ("open_close_settl_flag", "settl_price_type"),
    e.CLOSING_PRICE: ("open_close_settl_flag",),
    e.COMPOSITE_UNDERLYING: ("underlying_id",),
}
_COMMON_COLUMNS = tuple(column for column in e.COMMON if column.name in ("ts_event", "flags"))
_DROPPED_COLUMNS = {"action"}
_MAX_TYPES = 1 << 16


def _is_keyed_by(name: str) -> Numbers:
    """For every type (as 16 bits) whether it is keyed by a column."""
    found = np.zeros(_MAX_TYPES, np.int64)
    found[[stat_type for stat_type, names in KEY_COLUMNS.items() if name in names]] = -1
    return found


_BY_FLAG, _BY_SETTL, _BY_UNDERLYING = (
    _is_keyed_by("open_close_settl_flag"),
    _is_keyed_by("settl_price_type"),
    _is_keyed_by("underlying_id"),
)


def _statistics_keys(rows: Rows) -> tuple[Numbers, Numbers | None]:
    """Bits 0-7 the venue, 8-23 the type, 24-31 286, 32-39 731; the second key is the underlying."""
    kinds = rows.column("stat_type").view(np.uint16)
    keys = rows.column("venue") | kinds.astype(np.int64) << 8
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


_KEY_FUNCTIONS: dict[str, Callable[[Rows], tuple[Numbers, Numbers | None]]] = {
    "statistics": _statistics_keys,
    "imbalance": _imbalance_keys,
    "price_band": _band_keys,
}


@dataclass(frozen=True, slots=True)
class StatisticReset:
    """Statistics to clear: of one instrument, or of all (None), from this position in wire order on."""

    order: int
    instrument_id: int | None
    kind: int


class Statistics:
    """Everything that is published about instruments besides their books; and the tape."""

    def __init__(self) -> None:
        self.latest = {name: _latest_rows(FAMILIES[name]) for name in _KEY_FUNCTIONS}
        self.tape = Tape()

    def apply(self, events: Events, resets: list[StatisticReset]) -> None:
        """Apply a batch: its statistics, bands, imbalances and trades, and clear what is to be cleared between them."""
        if not resets and not any(name in events.families for name in (*self.latest, "trades")):
            return
        last = last_price_operations(events.rows("statistics"))
        ops = _merge_operations(resets, last)
        for name, current in self.latest.items():
            rows = events.rows(name)
            if len(rows) or resets:
                keys, keys_2 = _KEY_FUNCTIONS[name](rows)
                current.apply(rows, keys, keys_2, ops)
        trades = events.rows("trades")
        if len(trades) or len(ops):
            self.tape.apply(trades, ops)

    def with_auction_values(self) -> set[int]:
        """The instruments with a theoretical price or an imbalance, which the end of an auction deletes (10.7)."""
        ids, keys = self.latest["statistics"].present_keys()
        theoretical = ids[keys >> 8 & (_MAX_TYPES - 1) == e.THEORETICAL_OPENING]
        return {*theoretical.tolist(), *self.latest["imbalance"].present_keys()[0].tolist()}

    def has_auction_values(self, instrument_id: int) -> bool:
        keys = (key for key, _ in self.latest["statistics"].values_of(instrument_id))
        is_theoretical = any(key >> 8 & (_MAX_TYPES - 1) == e.THEORETICAL_OPENING for key in keys)
        return is_theoretical or bool(self.latest["imbalance"].values_of(instrument_id))

    def export(self) -> dict[str, Numbers]:
        state = {name: current.export() for name, current in self.latest.items()}
        return state | {f"tape.{name}": part for name, part in self.tape.export().items()}

    def restore(self, state: dict[str, Numbers]) -> None:
        for name, current in self.latest.items():
            current.restore(state[name])
        self.tape.restore(
            {name.removeprefix("tape."): part for name, part in state.items() if name.startswith("tape.")}
        )


def _latest_rows(family: Family) -> LatestRows:
    columns = (*_COMMON_COLUMNS, *(column for column in family.columns if column.name not in _DROPPED_COLUMNS))
    return LatestRows(family, columns, RESET_RULES[family.name])


def last_price_operations(rows: Rows) -> Operations:
    """The published last prices of a batch (277=U, LastTradePrice_27, 269=2 in a snapshot), for the tape."""
    selected = np.flatnonzero(rows.column("stat_type") == e.LAST_PRICE)
    ops = np.full((len(selected), OPERATION), NULL, np.int64)
    if not len(selected):
        return ops
    deleted = rows.column("action")[selected] == ord("C")
    ops[:, O_KIND] = np.where(deleted, CLEAR_LAST_PRICE, SET_LAST_PRICE)
    ops[:, O_ORDER] = rows.wire_order[selected]
    names = {O_ID: "instrument_id", O_VENUE: "venue", O_PRICE: "price", O_SIZE: "size", O_TS: "ts_event",
             O_TRADE_ID: "trade_id", O_BUYER: "buyer", O_SELLER: "seller", O_CONDITIONS: "conditions"}  # fmt: skip
    for word, name in names.items():
        ops[:, word] = rows.column(name)[selected]
    return ops


def _merge_operations(resets: list[StatisticReset], last: Operations) -> Operations:
    """All operations in wire order; at the same position, clearing comes first."""
    resets = [forget for forget in resets if forget.instrument_id != NULL]  # bad data: of no instrument, not of all
    if not resets:
        return last
    ops = np.full((len(resets), OPERATION), NULL, np.int64)
    ops[:, O_ORDER] = [forget.order for forget in resets]
    ops[:, O_ID] = [NULL if forget.instrument_id is None else forget.instrument_id for forget in resets]
    ops[:, O_KIND] = [forget.kind for forget in resets]
    ops = np.concatenate([ops, last])
    return ops[np.argsort(ops[:, O_ORDER], kind="stable")]
