"""Records that a channel makes for itself: heartbeats, sequence resets, and what follows a channel reset."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.matching import memory_layout_kernel as k
from umdf.market import families as e

KEPT_FLAGS = k.IMPLIED | e.BTB_LIMITED | e.BTB_ALL_OR_NONE  # of an order that is sent again
Records = NDArray[np.int64]
Numbers = NDArray[np.int64]


def control_records(kind: int, times: Any) -> Records:
    """Records of a kind that concerns no instrument."""
    records = np.full((np.size(times), k.RECORD_COLUMNS), k.NULL, np.int64)
    records[:, k.KIND], records[:, k.SIDE], records[:, k.FLAGS], records[:, k.TS] = kind, k.NO_SIDE, 0, times
    return records


def silences(times: Numbers, last_ns: int, now_ns: int, interval_ns: int) -> tuple[Numbers, Numbers]:
    """The times of the heartbeats that are due up to now, and before which of `times` each is sent: one after every
    interval without a record since the last."""
    end_ns = int(times[-1]) if len(times) else last_ns
    if max(end_ns, now_ns) - last_ns < interval_ns:
        return times[:0], times[:0]
    points = np.concatenate([[last_ns], np.maximum.accumulate(np.maximum(times, last_ns)), [max(now_ns, end_ns) + 1]])
    counts = np.maximum(np.diff(points) - 1, 0) // interval_ns
    before = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(before)) - np.repeat(np.cumsum(counts) - counts, counts) + 1
    return points[before] + number * interval_ns, before


def resent_records(snapshots: Records, ts_ns: int) -> Records:
    """A channel reset, then what snapshots contain as records of the incremental stream (4.2.9, 13.9): Empty Book and
    orders of every instrument that has some, statistics, and the states of all."""
    kind = snapshots[:, k.KIND]
    header, order, state = kind == k.SNAPSHOT_HEADER, kind == k.SNAPSHOT_ORDER, kind == k.STATE
    has_book = header & (snapshots[:, k.SIZE] + snapshots[:, k.OTHER] > 0)
    book, others = snapshots[has_book | order].copy(), snapshots[~(header | order | state)].copy()
    is_empty = book[:, k.KIND] == k.SNAPSHOT_HEADER
    book[:, k.FLAGS] = book[:, k.FLAGS] & KEPT_FLAGS | k.RECOVERY
    book[np.append(is_empty[1:], True)[: len(book)], k.FLAGS] |= k.LAST  # the end of a book is before the next one
    book[:, k.KIND] = np.where(is_empty, k.EMPTY_BOOK, k.ADD)
    book[is_empty, k.PRICE :] = k.NULL
    states = snapshots[state].copy()
    states[:, k.OTHER] = k.NULL
    for part in (others, states):
        part[:, k.FLAGS] = k.LAST
    reset = control_records(k.CHANNEL_RESET, [ts_ns])
    reset[:, k.FLAGS] = k.RECOVERY | k.LAST
    records = np.concatenate([reset, book, others, states])
    records[:, k.TS] = ts_ns
    return records
