"""The journal of orders as a journal of price levels: what a price-depth or top-of-book channel publishes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.publish import price_levels_kernel as p

Records = NDArray[np.int64]
FIRST_CAPACITY = 8  # levels of a side; it doubles when a side is full


@dataclass(frozen=True)
class DerivedRecords:
    """Records that a channel publishes instead of those of the journal, and the row that each comes from."""

    records: Records
    source: NDArray[np.int64]


class PriceLevels:
    """The levels of all instruments of a channel, and the journal expressed by them. The journal must say every order
    on its own, with its size: no Delete From."""

    def __init__(self, instruments: int, depth: int, is_overlay: bool) -> None:
        self._depth, self._is_overlay = depth, is_overlay
        self._table = np.zeros(p.ARGUMENT_COUNT, np.int64)
        self._levels = np.zeros((0, p.LEVEL_WORDS), np.int64)
        self._used = 0  # levels of the memory that belong to a side
        self._sides = np.zeros((2 * instruments, p.SIDE_WORDS), np.int64)
        self._sides[:, p.S_CAPACITY] = FIRST_CAPACITY
        self._sides[:, p.S_OFFSET] = self._take(2 * instruments * FIRST_CAPACITY)
        self._sides[:, p.S_OFFSET] += FIRST_CAPACITY * np.arange(2 * instruments)
        self._table[p.P_DEPTH], self._table[p.P_IS_OVERLAY] = depth, is_overlay
        self._table[p.P_SIDES], self._table[p.P_INSTRUMENTS] = self._sides.ctypes.data, instruments

    def derive(self, records: Records) -> DerivedRecords:
        records = np.ascontiguousarray(records)
        capacity = p.MAX_OUT_ROWS * len(records)
        out, source = np.empty((capacity, k.RECORD_COLUMNS), np.int64), np.empty(capacity, np.int64)
        table = self._table
        table[p.P_RECORDS], table[p.P_ROWS], table[p.P_FIRST] = records.ctypes.data, len(records), 0
        table[p.P_OUT], table[p.P_SOURCE], table[p.P_OUT_ROWS] = out.ctypes.data, source.ctypes.data, 0
        table[p.P_EVENT_ROW] = 0
        while p.derive_levels(table.ctypes.data) == p.SIDE_FULL:
            self._grow(int(table[p.P_FULL_SIDE]))
        rows = int(table[p.P_OUT_ROWS])
        return DerivedRecords(out[:rows], source[:rows])

    def snapshots(self, records: Records) -> Records:
        """Snapshots of books of orders as snapshots of these books."""
        is_order = records[:, k.KIND] == k.SNAPSHOT_ORDER
        rows = np.flatnonzero(is_order)
        orders = records[rows]
        keys = orders[:, [k.INSTRUMENT, k.SIDE, k.PRICE]]
        starts_level = np.ones(len(rows), bool)
        starts_level[1:] = (keys[1:] != keys[:-1]).any(axis=1)
        starts_side = np.ones(len(rows), bool)
        starts_side[1:] = (keys[1:, :2] != keys[:-1, :2]).any(axis=1)
        first = np.flatnonzero(starts_level)
        levels = orders[first]
        if len(first):
            levels[:, k.SIZE] = np.add.reduceat(orders[:, k.SIZE], first)
            levels[:, k.CODE] = np.diff(np.append(first, len(rows)))
            number = np.arange(len(first))
            levels[:, k.POSITION] = number - np.maximum.accumulate(np.where(starts_side[first], number, 0)) + 1
            levels[:, [k.ID, k.FIRM, k.OTHER, k.INSERT]] = k.NULL
            levels[:, k.FLAGS] &= ~k.IMPLIED
        kept = ~is_order
        result = records.copy()
        result[rows[first]] = levels
        kept[rows[first]] = levels[:, k.POSITION] <= self._depth
        return result[kept]

    def _take(self, levels: int) -> int:
        """The first of so many new levels."""
        first = self._used
        self._used += levels
        if self._used > len(self._levels):
            grown = np.zeros((max(2 * len(self._levels), self._used), p.LEVEL_WORDS), np.int64)
            grown[: len(self._levels)] = self._levels
            self._levels = grown
            self._table[p.P_LEVELS] = grown.ctypes.data
        return first

    def _grow(self, number: int) -> None:
        """Move a side to memory twice as large."""
        side = self._sides[number]
        count, capacity, offset = side.tolist()
        first = self._take(2 * capacity)
        self._levels[first : first + count] = self._levels[offset : offset + count]
        side[p.S_CAPACITY], side[p.S_OFFSET] = 2 * capacity, first
