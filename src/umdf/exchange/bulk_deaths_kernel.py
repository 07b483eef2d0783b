"""When orders end: two binary heaps. Most orders live for milliseconds, and theirs is small enough for the cache.

An order that has gone before its end leaves its line behind: whoever takes it looks whether the order is still there.
"""

from __future__ import annotations

import numpy as np

from umdf.exchange.bulk_places_kernel import (
    D_ID,
    D_KEY,
    D_PLACE,
    D_TS,
    DEATH_BYTES,
    DEATHS_CAPACITY,
    FAR,
    FAR_ROWS,
    NEAR,
    NEAR_NS,
    NEAR_ROWS,
)
from umdf.kernels import inlined, load_i64, outlined, store_i64

NEVER = np.int64((1 << 63) - 1)


@inlined
def copy(target, source):
    store_i64(target, D_TS, load_i64(source, D_TS))
    store_i64(target, D_PLACE, load_i64(source, D_PLACE))
    store_i64(target, D_KEY, load_i64(source, D_KEY))
    store_i64(target, D_ID, load_i64(source, D_ID))


@outlined
def push(t, now, ts, place, key, order_id):
    """An order (place is its instrument and side) ends at ts. Where there is no room, it stays."""
    heap, rows_at = (NEAR, NEAR_ROWS) if ts - now < NEAR_NS else (FAR, FAR_ROWS)
    base, rows = load_i64(t, heap * 8), load_i64(t, rows_at * 8)
    if rows == load_i64(t, DEATHS_CAPACITY * 8):
        return
    store_i64(t, rows_at * 8, rows + 1)
    at = rows
    while at > 0:
        above = (at - 1) >> 1
        if load_i64(base, above * DEATH_BYTES + D_TS) <= ts:
            break
        copy(base + at * DEATH_BYTES, base + above * DEATH_BYTES)
        at = above
    line = base + at * DEATH_BYTES
    store_i64(line, D_TS, ts)
    store_i64(line, D_PLACE, place)
    store_i64(line, D_KEY, key)
    store_i64(line, D_ID, order_id)


@inlined
def first(t, heap, rows_at):
    """When the next one of a heap ends."""
    return load_i64(load_i64(t, heap * 8), D_TS) if load_i64(t, rows_at * 8) > 0 else NEVER


@outlined
def pop(t, heap, rows_at, line):
    """Take the first one of a heap, into `line`."""
    base, rows = load_i64(t, heap * 8), load_i64(t, rows_at * 8) - 1
    copy(line, base)
    store_i64(t, rows_at * 8, rows)
    moved = base + rows * DEATH_BYTES
    ts, at = load_i64(moved, D_TS), np.int64(0)
    while True:
        below = 2 * at + 1
        if below >= rows:
            break
        if below + 1 < rows and (
            load_i64(base, (below + 1) * DEATH_BYTES + D_TS) < load_i64(base, below * DEATH_BYTES + D_TS)
        ):
            below += 1
        if load_i64(base, below * DEATH_BYTES + D_TS) >= ts:
            break
        copy(base + at * DEATH_BYTES, base + below * DEATH_BYTES)
        at = below
    copy(base + at * DEATH_BYTES, moved)
