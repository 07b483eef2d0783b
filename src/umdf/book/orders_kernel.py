"""Books of orders by price and order id (9.1, 9.2): the hot path of every channel today.

Each function returns the row's outcome and the rank of the level that it touched, 0 the best, UNSEEN where
the best `depth` levels did not change. An order is found by instrument and order id; price and side, where
given, must agree (9.2).
"""

from __future__ import annotations

import numpy as np

from umdf.book import memory_layout_kernel as k
from umdf.book.arena_kernel import (
    A_LEVELS,
    A_ORDERS,
    delete_slot,
    find_key,
    find_order,
    free_level,
    free_order,
    insert_entry,
    key_of,
    keys_of,
    new_level,
    new_order,
    order_in_slot,
    price_of,
    remove_entry,
    set_slot,
    side_of,
    slots_of,
)
from umdf.book.input_row_kernel import (
    FIRM,
    FLAGS,
    ORDER_ID,
    PREV_SIZE,
    PRICE,
    SIZE,
    TS_INSERT,
    i32_in,
    i64_in,
    load_row,
    mark_stale,
    note_removed,
)
from umdf.book.memory_layout_kernel import get
from umdf.kernels import inlined, load_i32, load_i64, load_u32, outlined, store_i32, store_i64, store_u32


@inlined
def store_cold_fields(t, order, firm, ts_insert):
    cold = get(t, k.COLD_ORDERS) + k.COLD_BYTES * order
    store_i64(cold, k.O_FIRM, firm)
    store_i64(cold, k.O_TS_INSERT, ts_insert)


@inlined
def _has_priority(o, implied, order_id):
    """Whether an order has priority over a new one at the same price: implied last, then the smaller id (9.1, 14)."""
    stands_implied = np.int64(load_u32(o, k.O_OWNER)) & 1
    return stands_implied < implied or (stands_implied == implied and load_i64(o, k.O_ID) < order_id)


@inlined
def add_order(t, a, b, number, side, key, size, order_id, implied, slot, x):
    """Put an order that is not there into its level and into the (empty) slot of the hash; returns its number and the
    rank of the level."""
    order, orders, s = new_order(t, a), a[A_ORDERS], side_of(b, side)
    set_slot(a, slot, x, order)
    keys, count = keys_of(a, s), np.int64(load_i32(s, k.S_COUNT))
    index = find_key(keys, count, key)
    rank = count - index
    if index < count and load_i64(keys, 8 * index) == key:
        level = np.int64(load_i32(slots_of(keys, s), 4 * index))
        rank -= 1
    else:
        level = new_level(t, a, key)
        insert_entry(a, s, index, key, level)
    v, o = a[A_LEVELS] + k.LEVEL_BYTES * level, orders + k.ORDER_BYTES * order
    store_i64(v, k.L_SIZE, load_i64(v, k.L_SIZE) + size)
    store_i32(v, k.L_COUNT, np.int32(load_i32(v, k.L_COUNT) + 1))
    store_i64(o, k.O_SIZE, size)
    store_i64(o, k.O_ID, order_id)
    store_i32(o, k.O_LEVEL, np.int32(level))
    store_u32(o, k.O_OWNER, np.uint32(number << 2 | side << 1 | implied))
    before, after = np.int64(load_i32(v, k.L_TAIL)), np.int64(-1)
    # Ids grow, so an order is nearly always the last of its level; known without a look at the one that was.
    if order_id > load_i64(b, k.B_MAX_ORDER_ID) and implied == 0:
        store_i64(b, k.B_MAX_ORDER_ID, order_id)
        search = load_i32(v, k.L_IMPLIED) != 0
    else:
        search = True
    if search:
        store_i32(v, k.L_IMPLIED, np.int32(load_i32(v, k.L_IMPLIED) + implied))
        while before >= 0 and not _has_priority(orders + k.ORDER_BYTES * before, implied, order_id):
            after, before = before, np.int64(load_i32(orders + k.ORDER_BYTES * before, k.O_PREV))
    store_i32(o, k.O_PREV, np.int32(before))
    store_i32(o, k.O_NEXT, np.int32(after))
    if before >= 0:
        store_i32(orders + k.ORDER_BYTES * before, k.O_NEXT, np.int32(order))
    else:
        store_i32(v, k.L_HEAD, np.int32(order))
    if after >= 0:
        store_i32(orders + k.ORDER_BYTES * after, k.O_PREV, np.int32(order))
    else:
        store_i32(v, k.L_TAIL, np.int32(order))
    return order, rank


@inlined
def _visible_rank(a, s, key, depth):
    """The rank of a level that is there, as far as it is in the ladder."""
    count = np.int64(load_i32(s, k.S_COUNT))
    seen = count < depth or key >= load_i64(keys_of(a, s), 8 * (count - depth))
    return np.int64(k.BEST if seen else k.OUTSIDE_DEPTH)


@inlined
def remove_order(t, a, b, side, slot, order, depth):
    """Take an order out of its level and out of the hash; returns the level's rank (until now, if that was all)."""
    orders = a[A_ORDERS]
    o = orders + k.ORDER_BYTES * order
    level = np.int64(load_i32(o, k.O_LEVEL))
    v = a[A_LEVELS] + k.LEVEL_BYTES * level
    key, left = load_i64(v, k.L_KEY), load_i32(v, k.L_COUNT) - 1
    store_i64(v, k.L_SIZE, load_i64(v, k.L_SIZE) - load_i64(o, k.O_SIZE))
    store_i32(v, k.L_COUNT, np.int32(left))
    before, after = load_i32(o, k.O_PREV), load_i32(o, k.O_NEXT)
    if before >= 0:
        store_i32(orders + k.ORDER_BYTES * np.int64(before), k.O_NEXT, after)
    else:
        store_i32(v, k.L_HEAD, after)
    if after >= 0:
        store_i32(orders + k.ORDER_BYTES * np.int64(after), k.O_PREV, before)
    else:
        store_i32(v, k.L_TAIL, before)
    store_i32(v, k.L_IMPLIED, np.int32(load_i32(v, k.L_IMPLIED) - np.int32(load_u32(o, k.O_OWNER) & np.uint32(1))))
    free_order(t, a, order)
    delete_slot(a, slot)
    s = side_of(b, side)
    if left > 0:
        return _visible_rank(a, s, key, depth)
    count = np.int64(load_i32(s, k.S_COUNT))
    index = find_key(keys_of(a, s), count, key)
    remove_entry(a, s, index)
    free_level(t, a, level)
    return count - 1 - index


@outlined
def _replace_order(t, a, b, number, i, row, side, slot, x, depth):
    """A NEW of an order that is there: impossible, unless it was sent again during a recovery (276=R)."""
    r = load_row(t, i)
    order, order_id = order_in_slot(a, slot), r[ORDER_ID]
    o = a[A_ORDERS] + k.ORDER_BYTES * order
    if r[FLAGS] & k.F_RECOVERY == 0:
        return mark_stale(b, k.DUPLICATE_ORDER, row, order_id, load_i64(o, k.O_SIZE)), np.int64(k.OUTSIDE_DEPTH)
    stored_side = (np.int64(load_u32(o, k.O_OWNER)) >> 1) & 1
    if stored_side != side:
        return mark_stale(b, k.SIDE_MISMATCH, row, side, stored_side), np.int64(k.OUTSIDE_DEPTH)
    key, size, implied = key_of(side, r[PRICE]), load_i64(o, k.O_SIZE), (r[FLAGS] >> 8) & 1
    old = load_i64(a[A_LEVELS] + k.LEVEL_BYTES * np.int64(load_i32(o, k.O_LEVEL)), k.L_KEY)
    left = remove_order(t, a, b, side, slot, order, depth)
    slot = ~find_order(a, x, number, order_id)
    order, rank = add_order(t, a, b, number, side, key, r[SIZE], order_id, implied, slot, x)
    store_cold_fields(t, order, r[FIRM], r[TS_INSERT])
    if old == key and size == r[SIZE]:
        return k.REPLACED, np.int64(k.OUTSIDE_DEPTH)
    return k.REPLACED, min(left, rank)


@inlined
def apply_order(t, a, c, b, number, i, row, action, side, x, depth):
    """NEW, CHANGE or DELETE of one order."""
    order_id, none = i64_in(c, ORDER_ID, i), np.int64(k.OUTSIDE_DEPTH)
    if side < k.BID or side > k.ASK:
        return mark_stale(b, k.BAD_SIDE, row, side, 0), none
    if order_id == k.NULL:
        return mark_stale(b, k.NO_ORDER_ID, row, i64_in(c, PRICE, i), 0), none
    slot = find_order(a, x, number, order_id)
    price = i64_in(c, PRICE, i)
    if action == k.ACTION_ADD:
        size = i64_in(c, SIZE, i)
        if size < 0:
            return mark_stale(b, k.BAD_SIZE, row, size, 0), none
        if slot >= 0:
            return _replace_order(t, a, b, number, i, row, side, slot, x, depth)
        key, implied = key_of(side, price), (i32_in(c, FLAGS, i) >> 8) & 1
        order, rank = add_order(t, a, b, number, side, key, size, order_id, implied, ~slot, x)
        store_cold_fields(t, order, i64_in(c, FIRM, i), i64_in(c, TS_INSERT, i))
        return k.ADDED, rank
    if slot < 0:
        return mark_stale(b, k.UNKNOWN_ORDER, row, order_id, 0), none
    order = order_in_slot(a, slot)
    o = a[A_ORDERS] + k.ORDER_BYTES * order
    if (np.int64(load_u32(o, k.O_OWNER)) >> 1) & 1 != side:
        return mark_stale(b, k.SIDE_MISMATCH, row, side, 1 - side), none
    v = a[A_LEVELS] + k.LEVEL_BYTES * np.int64(load_i32(o, k.O_LEVEL))
    key = load_i64(v, k.L_KEY)
    if price != k.NULL and key_of(side, price) != key:
        return mark_stale(b, k.PRICE_MISMATCH, row, price, order_id), none
    if action == k.ACTION_CANCEL:
        if price == k.NULL:
            note_removed(t, row, price_of(side, key), load_i64(o, k.O_SIZE))
        return k.DELETED, remove_order(t, a, b, side, slot, order, depth)
    size, prev_size, stored = i64_in(c, SIZE, i), i64_in(c, PREV_SIZE, i), load_i64(o, k.O_SIZE)
    if size < 0:
        return mark_stale(b, k.BAD_SIZE, row, size, order_id), none
    if prev_size != k.NULL and prev_size != stored:  # 9.2.1
        return mark_stale(b, k.SIZE_MISMATCH, row, prev_size, stored), none
    store_i64(o, k.O_SIZE, size)
    store_i64(v, k.L_SIZE, load_i64(v, k.L_SIZE) + size - stored)
    return k.CHANGED, _visible_rank(a, side_of(b, side), key, depth) if size != stored else none
