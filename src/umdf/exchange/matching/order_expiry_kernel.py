"""Expiries of orders, in two binary heaps. Most orders live for milliseconds, and their heap fits the cache.

An order that left the book before its expiry leaves its entry behind: after `pop_expiry`, check that it still exists.
"""

from __future__ import annotations

import numpy as np

from umdf.exchange.matching.memory_layout_kernel import (
    E_BOOK_SIDE,
    E_ID,
    E_KEY,
    E_TS,
    EXPIRY_BYTES,
    EXPIRY_CAPACITY,
    FAR_COUNT,
    FAR_EXPIRIES,
    NEAR_COUNT,
    NEAR_EXPIRIES,
    NEAR_NS,
)
from umdf.kernels import inlined, load_i64, outlined, store_i64

NEVER = np.int64((1 << 63) - 1)


@inlined
def copy_entry(target, source):
    store_i64(target, E_TS, load_i64(source, E_TS))
    store_i64(target, E_BOOK_SIDE, load_i64(source, E_BOOK_SIDE))
    store_i64(target, E_KEY, load_i64(source, E_KEY))
    store_i64(target, E_ID, load_i64(source, E_ID))


@outlined
def push_expiry(t, now, ts, book_side, key, order_id):
    """Let an order expire at ts; `book_side` is 2 * its instrument's index + its side. A full heap drops the expiry."""
    heap, count_offset = (NEAR_EXPIRIES, NEAR_COUNT) if ts - now < NEAR_NS else (FAR_EXPIRIES, FAR_COUNT)
    base, count = load_i64(t, heap * 8), load_i64(t, count_offset * 8)
    if count == load_i64(t, EXPIRY_CAPACITY * 8):
        return
    store_i64(t, count_offset * 8, count + 1)
    index = count
    while index > 0:
        parent = (index - 1) >> 1
        if load_i64(base, parent * EXPIRY_BYTES + E_TS) <= ts:
            break
        copy_entry(base + index * EXPIRY_BYTES, base + parent * EXPIRY_BYTES)
        index = parent
    entry = base + index * EXPIRY_BYTES
    store_i64(entry, E_TS, ts)
    store_i64(entry, E_BOOK_SIDE, book_side)
    store_i64(entry, E_KEY, key)
    store_i64(entry, E_ID, order_id)


@inlined
def next_expiry(t, heap, count_offset):
    """The time of the next expiry of a heap."""
    return load_i64(load_i64(t, heap * 8), E_TS) if load_i64(t, count_offset * 8) > 0 else NEVER


@outlined
def pop_expiry(t, heap, count_offset, entry):
    """Move the next expiry of a heap to `entry`."""
    base, count = load_i64(t, heap * 8), load_i64(t, count_offset * 8) - 1
    copy_entry(entry, base)
    store_i64(t, count_offset * 8, count)
    moved = base + count * EXPIRY_BYTES
    ts, index = load_i64(moved, E_TS), np.int64(0)
    while True:
        child = 2 * index + 1
        if child >= count:
            break
        if child + 1 < count and (
            load_i64(base, (child + 1) * EXPIRY_BYTES + E_TS) < load_i64(base, child * EXPIRY_BYTES + E_TS)
        ):
            child += 1
        if load_i64(base, child * EXPIRY_BYTES + E_TS) >= ts:
            break
        copy_entry(base + index * EXPIRY_BYTES, base + child * EXPIRY_BYTES)
        index = child
    copy_entry(base + index * EXPIRY_BYTES, moved)
