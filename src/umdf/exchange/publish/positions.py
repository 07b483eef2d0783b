"""The journal as books by position have it: orders deleted at the top in one event are one Delete From (legacy 9.4)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.publish.price_levels import DerivedRecords

Records = NDArray[np.int64]


def restate_implied(records: Records) -> Records:
    """What is left of an implied order that has traded is deleted with what has traded, and stated again in an event of
    its own (14.3, in the wording of books by position)."""
    kind, flags = records[:, k.KIND], records[:, k.FLAGS]
    is_changed = (kind == k.CHANGE) & (flags & k.IMPLIED != 0)
    if not is_changed.any():
        return records
    ends = np.flatnonzero(flags & k.LAST)
    event = np.searchsorted(ends, np.arange(len(records)))
    traded = set(zip(event[kind == k.TRADE].tolist(), records[kind == k.TRADE, k.INSTRUMENT].tolist(), strict=True))
    rows = [row for row in np.flatnonzero(is_changed) if (event[row], records[row, k.INSTRUMENT]) in traded]
    deleted, stated = records.copy(), records[rows]
    deleted[rows, k.KIND], deleted[rows, k.SIZE] = k.DELETE, stated[:, k.OTHER]
    for column in (k.FIRM, k.OTHER, k.INSERT):
        deleted[rows, column] = k.NULL
    stated[:, k.KIND], stated[:, k.OTHER], stated[:, k.POSITION] = k.ADD, k.NULL, 1
    stated[:, k.FLAGS] |= k.LAST
    return np.insert(deleted, ends[event[rows]] + 1, stated, axis=0)


def merge_matched(records: Records) -> DerivedRecords:
    """Orders that an event deletes at the top of a side: several are one Delete From, as when they are matched or the
    instrument closes (script B2.11). One that was matched is a deletion without a size; one that was cancelled keeps
    its size and its own record."""
    kind, flags = records[:, k.KIND], records[:, k.FLAGS]
    is_deleted = (kind == k.DELETE) & (records[:, k.POSITION] == 1)
    row = np.arange(len(records))
    if not is_deleted.any():
        return DerivedRecords(records, row)
    is_trade = kind == k.TRADE
    starts = np.maximum.accumulate(np.where(np.append(True, flags[:-1] & k.LAST != 0), row, 0))  # of each event
    trades = np.cumsum(is_trade)
    same = np.zeros(len(records), bool)  # as the record before
    keys = records[:, [k.INSTRUMENT, k.SIDE]]
    same[1:] = is_deleted[1:] & is_deleted[:-1] & (keys[1:] == keys[:-1]).all(axis=1) & (starts[1:] == starts[:-1])
    first = np.flatnonzero(is_deleted & ~same)
    kept = ~same
    merged = records.copy()
    run = np.add.reduceat(is_deleted.astype(np.int64), first)  # deleted records from each first one up to the next
    last = first + run - 1
    several = run > 1
    is_matched = trades[first] > (trades - is_trade)[starts[first]]
    is_implied = flags[last] & k.IMPLIED != 0  # the last at its price
    sizes = np.add.reduceat(np.where(is_deleted, records[:, k.SIZE], 0), first)
    states_size = ~several & ~is_matched | several & is_implied  # a cancelled order; what 14.3 prints
    merged[first, k.SIZE] = np.where(states_size, sizes, k.NULL)
    rows = first[several]
    merged[rows, k.KIND], merged[rows, k.POSITION] = k.DELETE_FROM, run[several]
    merged[rows, k.FLAGS] = flags[last[several]] & ~k.IMPLIED
    merged[rows, k.PRICE], merged[rows, k.ID] = k.NULL, k.NULL
    return DerivedRecords(merged[kept], row[kept])
