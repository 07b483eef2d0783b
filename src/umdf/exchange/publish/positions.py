"""The journal as books by position have it: orders deleted at the top in one event are one Delete From (legacy 9.4)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.publish.price_levels import DerivedRecords

Records = NDArray[np.int64]


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
    merged[first[is_matched | several], k.SIZE] = k.NULL
    rows = first[several]
    merged[rows, k.KIND], merged[rows, k.POSITION] = k.DELETE_FROM, run[several]
    merged[rows, k.FLAGS], merged[rows, k.PRICE], merged[rows, k.ID] = flags[last[several]], k.NULL, k.NULL
    return DerivedRecords(merged[kept], row[kept])
