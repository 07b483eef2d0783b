"""The ladder of a book: the best levels of its sides, and whether a row has changed them."""

from __future__ import annotations

import numpy as np

from umdf.book import memory_layout_kernel as k
from umdf.book.arena_kernel import A_LEVELS, A_ORDERS, keys_of, price_of, side_of, slots_of
from umdf.book.memory_layout_kernel import get, put
from umdf.kernels import inlined, load_i32, load_i64, outlined, store_i32, store_i64

# A body: prices, sizes and numbers of orders, of bids then asks each.
BODY_BYTES = 40  # for each level of depth


@inlined
def store_level(body, depth, side, rank, price, size, count):
    index = side * depth + rank
    store_i64(body, 8 * index, price)
    store_i64(body, 16 * depth + 8 * index, size)
    store_i32(body, 32 * depth + 4 * index, np.int32(count))


@outlined
def _write_position_side(a, b, side, depth, body):
    """The levels of a side of orders by position: runs of one price. Returns how many."""
    s = side_of(b, side)
    keys, index = keys_of(a, s), np.int64(load_i32(s, k.S_COUNT)) - 1
    slots, rank = slots_of(keys, s), 0
    while index >= 0 and rank < depth:
        key, size, count = load_i64(keys, 8 * index), np.int64(0), 0
        while index >= 0 and load_i64(keys, 8 * index) == key:
            size += load_i64(a[A_ORDERS] + k.ORDER_BYTES * np.int64(load_i32(slots, 4 * index)), k.O_SIZE)
            count += 1
            index -= 1
        store_level(body, depth, side, rank, price_of(side, key), size, count)
        rank += 1
    return rank


@inlined
def write_side(a, b, side, depth, body):
    s = side_of(b, side)
    if load_i32(b, k.B_BOOK_TYPE) == k.BY_POSITION:
        written = _write_position_side(a, b, side, depth, body)
    else:
        keys, count = keys_of(a, s), np.int64(load_i32(s, k.S_COUNT))
        slots, written = slots_of(keys, s), min(count, depth)
        for rank in range(written):
            index = count - 1 - rank
            v = a[A_LEVELS] + k.LEVEL_BYTES * np.int64(load_i32(slots, 4 * index))
            price = price_of(side, load_i64(keys, 8 * index))
            store_level(body, depth, side, rank, price, load_i64(v, k.L_SIZE), load_i32(v, k.L_COUNT))
    for rank in range(written, depth):
        store_level(body, depth, side, rank, np.int64(k.NULL), np.int64(k.NULL), np.int64(k.NULL_I32))


@outlined
def save_ladder(t, a, b, row):
    """Keep the ladder of a book before a row, if ladders are written."""
    if get(t, k.DEPTH) == 0:
        return
    for side in range(2):
        write_side(a, b, side, get(t, k.DEPTH), get(t, k.SAVED_LADDER))
    put(t, k.SAVED_LADDER_ROW, row)


@outlined
def is_ladder_changed(t, a, b, depth):
    """Whether the ladder differs from the one that was kept."""
    saved = get(t, k.SAVED_LADDER)
    body, is_changed = saved + BODY_BYTES * depth, False
    for side in range(2):
        write_side(a, b, side, depth, body)
    for offset in range(0, BODY_BYTES * depth, 8):
        is_changed |= load_i64(saved, offset) != load_i64(body, offset)
    return is_changed
