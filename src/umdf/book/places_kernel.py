"""Books whose entries have places: orders by position (legacy 9), prices by price or position (9.3), top of book (9.4).

They are small or old, so nothing here is inlined into the hot path. As everywhere, a function returns what the row
came to and the rank it touched: here BEST for any change, because `rows_kernel` compares what it shows.
"""

from __future__ import annotations

import numpy as np

from umdf.book import tables_kernel as k
from umdf.book.arena_kernel import (
    A_LEVELS,
    A_ORDERS,
    find_place,
    free_level,
    free_order,
    insert_entry,
    key_of,
    keys_of,
    new_level,
    new_order,
    remove_entry,
    side_of,
    slots_of,
)
from umdf.book.orders_kernel import keep_cold
from umdf.book.row_kernel import (
    ACTION,
    FIRM,
    FLAGS,
    ORDER_COUNT,
    ORDER_ID,
    POSITION,
    PREV_SIZE,
    PRICE,
    SIZE,
    TS_INSERT,
    UPDATE_ACTION,
    fail,
)
from umdf.kernels import inlined, load_i32, load_i64, outlined, store_i32, store_i64, store_u32


@inlined
def _count_of(s):
    return np.int64(load_i32(s, k.S_COUNT))


@inlined
def _slot_at(a, s, place):
    keys = keys_of(a, s)
    return np.int64(load_i32(slots_of(keys, s), 4 * place))


# Orders by position.


@outlined
def _drop_orders(t, a, s, count):
    """Take the best `count` orders out."""
    left = _count_of(s) - count
    for place in range(left, left + count):
        free_order(t, a, _slot_at(a, s, place))
    store_i32(s, k.S_COUNT, np.int32(left))


@outlined
def order_by_position(t, a, b, number, r, row, side):
    s, position = side_of(b, side), r[POSITION]
    count, keys = _count_of(s), keys_of(a, s)
    adds = r[ACTION] == k.ACTION_ADD and r[UPDATE_ACTION] != k.DELETE_FROM
    if position < 1 or position > count + adds:
        return fail(b, k.BAD_POSITION, row, position, count), np.int64(k.UNSEEN)
    if adds:
        if r[SIZE] < 0:
            return fail(b, k.BAD_SIZE, row, r[SIZE], position), np.int64(k.UNSEEN)
        key, place = key_of(side, r[PRICE]), count + 1 - position
        order = new_order(t, a)
        o = a[A_ORDERS] + k.ORDER_BYTES * order
        store_i64(o, k.O_SIZE, r[SIZE])
        store_i64(o, k.O_ID, r[ORDER_ID])
        store_i32(o, k.O_LEVEL, np.int32(-1))
        store_u32(o, k.O_OWNER, np.uint32(number << 2 | side << 1 | (r[FLAGS] >> 8) & 1))
        keep_cold(t, order, r[FIRM], r[TS_INSERT])
        insert_entry(a, s, place, key, order)
        return k.ADDED, np.int64(k.BEST)
    place = count - position
    key, order = load_i64(keys, 8 * place), _slot_at(a, s, place)
    if r[UPDATE_ACTION] == k.DELETE_FROM:  # legacy 9.4: from there to the top
        _drop_orders(t, a, s, position)
        return k.DELETED, np.int64(k.BEST)
    if r[PRICE] != k.NULL and key_of(side, r[PRICE]) != key:
        return fail(b, k.OTHER_PRICE, row, r[PRICE], position), np.int64(k.UNSEEN)
    if r[ACTION] == k.ACTION_CANCEL:
        remove_entry(a, s, place)
        free_order(t, a, order)
        return k.DELETED, np.int64(k.BEST)
    o = a[A_ORDERS] + k.ORDER_BYTES * order
    stored = load_i64(o, k.O_SIZE)
    if r[SIZE] < 0:
        return fail(b, k.BAD_SIZE, row, r[SIZE], position), np.int64(k.UNSEEN)
    if r[PREV_SIZE] != k.NULL and r[PREV_SIZE] != stored:
        return fail(b, k.OTHER_SIZE, row, r[PREV_SIZE], stored), np.int64(k.UNSEEN)
    store_i64(o, k.O_SIZE, r[SIZE])
    if r[ORDER_ID] != k.NULL:  # the position alone says which order is meant (legacy 9.1, "important")
        store_i64(o, k.O_ID, r[ORDER_ID])
    return k.CHANGED, np.int64(k.BEST)


# Prices. An entry leads to a level without orders.


@inlined
def _set_level(v, key, size, count):
    store_i64(v, k.L_KEY, key)
    store_i64(v, k.L_SIZE, size)
    store_i32(v, k.L_COUNT, np.int32(count))


@outlined
def drop_level(t, a, s, place):
    """Take one level of a price-depth side out."""
    free_level(t, a, _slot_at(a, s, place))
    remove_entry(a, s, place)


@outlined
def _insert_level(t, a, b, s, place, key, r):
    """Shift the others down; what is then beyond the depth is gone without a word (9.3.1)."""
    count, depth = _count_of(s), np.int64(load_i32(b, k.B_DEPTH))
    if count >= depth and place == 0:
        return np.int64(k.NOTHING)
    level = new_level(t, a, key)
    _set_level(a[A_LEVELS] + k.LEVEL_BYTES * level, key, r[SIZE], r[ORDER_COUNT])
    insert_entry(a, s, place, key, level)
    if count >= depth:
        drop_level(t, a, s, 0)
    return np.int64(k.ADDED)


@inlined
def _bad_numbers(r):
    return r[SIZE] < 0 or (r[ORDER_COUNT] < 0 and r[ORDER_COUNT] != k.NULL_I32)


@outlined
def price_row(t, a, b, r, row, side):
    s, position, action = side_of(b, side), r[POSITION], r[ACTION]
    count, keys, key = _count_of(s), keys_of(a, s), key_of(side, r[PRICE])
    by_position = position > 0
    overlay, delete_from = r[UPDATE_ACTION] == k.OVERLAY, r[UPDATE_ACTION] == k.DELETE_FROM
    adds = action == k.ACTION_ADD and not overlay and not delete_from
    alone = load_i32(b, k.B_DEPTH) == k.TOP_OF_BOOK
    unknown = np.int64(k.BAD_POSITION)
    if alone:  # whatever names the level, there is only one
        if not by_position:
            unknown = np.int64(k.UNKNOWN_PRICE)
            if not adds:
                by_position, position = True, np.int64(1)
    elif load_i32(b, k.B_KIND) & k.BY_POSITION != 0:
        if not by_position:
            return fail(b, k.BAD_POSITION, row, position, count), np.int64(k.UNSEEN)
    elif by_position:
        return fail(b, k.OTHER_GENERATION, row, position, count), np.int64(k.UNSEEN)
    elif delete_from:
        return fail(b, k.BAD_POSITION, row, position, count), np.int64(k.UNSEEN)
    else:
        unknown = np.int64(k.UNKNOWN_PRICE)
    got = position if unknown == k.BAD_POSITION else r[PRICE]

    if overlay and r[PRICE] == k.NULL and r[SIZE] == k.NULL:  # 9.7: the level is to go
        if by_position:
            place = count - position
        elif count > 1:
            return fail(b, k.UNNAMED_LEVEL, row, count, 0), np.int64(k.UNSEEN)
        else:
            place = count - 1
        if place < 0:
            return k.NOTHING, np.int64(k.UNSEEN)
        drop_level(t, a, s, place)
        return k.DELETED, np.int64(k.BEST)

    if by_position:
        place = count - position
        there = place >= 0
        if adds or (overlay and not there):
            there = False
            place += 1
            if place < 0:
                return fail(b, unknown, row, got, count), np.int64(k.UNSEEN)
    else:
        place = find_place(keys, count, key)
        there = place < count and load_i64(keys, 8 * place) == key
    if not there:
        if not adds and not overlay:
            return fail(b, unknown, row, got, count), np.int64(k.UNSEEN)
        if _bad_numbers(r):
            return fail(b, k.BAD_SIZE, row, r[SIZE], r[ORDER_COUNT]), np.int64(k.UNSEEN)
        return _insert_level(t, a, b, s, place, key, r), np.int64(k.BEST)

    v = a[A_LEVELS] + k.LEVEL_BYTES * _slot_at(a, s, place)
    old = load_i64(v, k.L_KEY)
    if delete_from:
        for _ in range(position):
            drop_level(t, a, s, _count_of(s) - 1)
        return k.DELETED, np.int64(k.BEST)
    if adds or overlay:
        if _bad_numbers(r):
            return fail(b, k.BAD_SIZE, row, r[SIZE], r[ORDER_COUNT]), np.int64(k.UNSEEN)
        if adds and r[FLAGS] & k.F_RECOVERY == 0:
            return fail(b, k.DUPLICATE_PRICE, row, r[PRICE], load_i64(v, k.L_SIZE)), np.int64(k.UNSEEN)
        store_i64(keys, 8 * place, key)
        _set_level(v, key, r[SIZE], r[ORDER_COUNT])
        return k.REPLACED, np.int64(k.BEST)
    if r[PRICE] != k.NULL and key != old:
        return fail(b, k.OTHER_PRICE, row, r[PRICE], position), np.int64(k.UNSEEN)
    if action == k.ACTION_CANCEL:
        drop_level(t, a, s, place)
        return k.DELETED, np.int64(k.BEST)
    if _bad_numbers(r):
        return fail(b, k.BAD_SIZE, row, r[SIZE], r[ORDER_COUNT]), np.int64(k.UNSEEN)
    stored = load_i64(v, k.L_SIZE)
    if r[PREV_SIZE] != k.NULL and r[PREV_SIZE] != stored:
        return fail(b, k.OTHER_SIZE, row, r[PREV_SIZE], stored), np.int64(k.UNSEEN)
    orders = np.int64(load_i32(v, k.L_COUNT)) if r[ORDER_COUNT] == k.NULL_I32 else r[ORDER_COUNT]
    _set_level(v, old, r[SIZE], orders)
    return k.CHANGED, np.int64(k.BEST)
