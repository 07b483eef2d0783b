"""What there is to see of a book: the best levels of its sides, and whether a row has changed them."""

from __future__ import annotations

import numpy as np

from umdf.book import tables_kernel as k
from umdf.book.arena_kernel import A_LEVELS, A_ORDERS, keys_of, price_of, side_of, slots_of
from umdf.book.tables_kernel import at, put
from umdf.kernels import inlined, load_i32, load_i64, outlined, store_i32, store_i64

# A body: prices, sizes and numbers of orders, of bids then asks each.
BODY_BYTES = 40  # for each level of depth


@inlined
def put_level(body, depth, side, rank, price, size, count):
    place = side * depth + rank
    store_i64(body, 8 * place, price)
    store_i64(body, 16 * depth + 8 * place, size)
    store_i32(body, 32 * depth + 4 * place, np.int32(count))


@outlined
def _show_orders(a, b, side, depth, body):
    """The levels of a side of orders by position: runs of one price. Returns how many."""
    s = side_of(b, side)
    keys, place = keys_of(a, s), np.int64(load_i32(s, k.S_COUNT)) - 1
    slots, rank = slots_of(keys, s), 0
    while place >= 0 and rank < depth:
        key, size, count = load_i64(keys, 8 * place), np.int64(0), 0
        while place >= 0 and load_i64(keys, 8 * place) == key:
            size += load_i64(a[A_ORDERS] + k.ORDER_BYTES * np.int64(load_i32(slots, 4 * place)), k.O_SIZE)
            count += 1
            place -= 1
        put_level(body, depth, side, rank, price_of(side, key), size, count)
        rank += 1
    return rank


@inlined
def show_side(a, b, side, depth, body):
    s = side_of(b, side)
    if load_i32(b, k.B_KIND) == k.BY_POSITION:
        shown = _show_orders(a, b, side, depth, body)
    else:
        keys, count = keys_of(a, s), np.int64(load_i32(s, k.S_COUNT))
        slots, shown = slots_of(keys, s), min(count, depth)
        for rank in range(shown):
            place = count - 1 - rank
            v = a[A_LEVELS] + k.LEVEL_BYTES * np.int64(load_i32(slots, 4 * place))
            price = price_of(side, load_i64(keys, 8 * place))
            put_level(body, depth, side, rank, price, load_i64(v, k.L_SIZE), load_i32(v, k.L_COUNT))
    for rank in range(shown, depth):
        put_level(body, depth, side, rank, np.int64(k.NULL), np.int64(k.NULL), np.int64(k.NULL_I32))


@outlined
def note(t, a, b, row):
    """Keep what there is to see of a book before a row, if anybody looks."""
    if at(t, k.DEPTH) == 0:
        return
    for side in range(2):
        show_side(a, b, side, at(t, k.DEPTH), at(t, k.NOTED))
    put(t, k.NOTED_ROW, row)


@outlined
def differs(t, a, b, depth):
    """Whether there is now something else to see than was noted."""
    noted = at(t, k.NOTED)
    body, other = noted + BODY_BYTES * depth, False
    for side in range(2):
        show_side(a, b, side, depth, body)
    for place in range(0, BODY_BYTES * depth, 8):
        other |= load_i64(noted, place) != load_i64(body, place)
    return other
