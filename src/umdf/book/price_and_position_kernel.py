"""Books by price or position: orders by position (legacy 9), prices by price or position (9.3), top of book (9.4).

They are small or old, so nothing here is inlined into the hot path. As everywhere, a function returns the row's
outcome and the rank it touched: here BEST for any change, because `ladder_rows_kernel` compares the ladders.
"""

from __future__ import annotations

import numpy as np

from umdf.book import memory_layout_kernel as k
from umdf.book.arena_kernel import (
    A_LEVELS,
    A_ORDERS,
    find_key,
    free_level,
    free_order,
    insert_entry,
    key_of,
    keys_of,
    new_level,
    new_order,
    price_of,
    remove_entry,
    side_of,
    slots_of,
)
from umdf.book.input_row_kernel import (
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
    mark_stale,
    note_removed,
)
from umdf.book.orders_kernel import store_cold_fields
from umdf.kernels import inlined, load_i32, load_i64, outlined, store_i32, store_i64, store_u32


@inlined
def _count_of(s):
    return np.int64(load_i32(s, k.S_COUNT))


@inlined
def _slot_at(a, s, index):
    keys = keys_of(a, s)
    return np.int64(load_i32(slots_of(keys, s), 4 * index))


# Orders by position.


@outlined
def _delete_top_orders(t, a, s, count):
    """Take the best `count` orders out."""
    left = _count_of(s) - count
    for index in range(left, left + count):
        free_order(t, a, _slot_at(a, s, index))
    store_i32(s, k.S_COUNT, np.int32(left))


@outlined
def apply_position_order(t, a, b, number, r, row, side):
    s, position = side_of(b, side), r[POSITION]
    count, keys = _count_of(s), keys_of(a, s)
    is_add = r[ACTION] == k.ACTION_ADD and r[UPDATE_ACTION] != k.DELETE_FROM
    if position < 1 or position > count + is_add:
        return mark_stale(b, k.BAD_POSITION, row, position, count), np.int64(k.OUTSIDE_DEPTH)
    if is_add:
        if r[SIZE] < 0:
            return mark_stale(b, k.BAD_SIZE, row, r[SIZE], position), np.int64(k.OUTSIDE_DEPTH)
        key, index = key_of(side, r[PRICE]), count + 1 - position
        order = new_order(t, a)
        o = a[A_ORDERS] + k.ORDER_BYTES * order
        store_i64(o, k.O_SIZE, r[SIZE])
        store_i64(o, k.O_ID, r[ORDER_ID])
        store_i32(o, k.O_LEVEL, np.int32(-1))
        store_u32(o, k.O_OWNER, np.uint32(number << 2 | side << 1 | (r[FLAGS] >> 8) & 1))
        store_cold_fields(t, order, r[FIRM], r[TS_INSERT])
        insert_entry(a, s, index, key, order)
        return k.ADDED, np.int64(k.BEST)
    index = count - position
    key, order = load_i64(keys, 8 * index), _slot_at(a, s, index)
    if r[UPDATE_ACTION] == k.DELETE_FROM:  # legacy 9.4: from there to the top
        _delete_top_orders(t, a, s, position)
        return k.DELETED, np.int64(k.BEST)
    if r[PRICE] != k.NULL and key_of(side, r[PRICE]) != key:
        return mark_stale(b, k.PRICE_MISMATCH, row, r[PRICE], position), np.int64(k.OUTSIDE_DEPTH)
    if r[ACTION] == k.ACTION_CANCEL:
        if r[PRICE] == k.NULL:
            note_removed(t, row, price_of(side, key), load_i64(a[A_ORDERS] + k.ORDER_BYTES * order, k.O_SIZE))
        remove_entry(a, s, index)
        free_order(t, a, order)
        return k.DELETED, np.int64(k.BEST)
    o = a[A_ORDERS] + k.ORDER_BYTES * order
    stored = load_i64(o, k.O_SIZE)
    if r[SIZE] < 0:
        return mark_stale(b, k.BAD_SIZE, row, r[SIZE], position), np.int64(k.OUTSIDE_DEPTH)
    if r[PREV_SIZE] != k.NULL and r[PREV_SIZE] != stored:
        return mark_stale(b, k.SIZE_MISMATCH, row, r[PREV_SIZE], stored), np.int64(k.OUTSIDE_DEPTH)
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
def delete_level(t, a, s, index):
    """Take one level of a price-depth side out."""
    free_level(t, a, _slot_at(a, s, index))
    remove_entry(a, s, index)


@outlined
def _insert_level(t, a, b, s, index, key, r):
    """Shift the others down; what is then beyond the depth is removed without a message (9.3.1)."""
    count, depth = _count_of(s), np.int64(load_i32(b, k.B_DEPTH))
    if count >= depth and index == 0:
        return np.int64(k.NO_CHANGE)
    level = new_level(t, a, key)
    _set_level(a[A_LEVELS] + k.LEVEL_BYTES * level, key, r[SIZE], r[ORDER_COUNT])
    insert_entry(a, s, index, key, level)
    if count >= depth:
        delete_level(t, a, s, 0)
    return np.int64(k.ADDED)


@inlined
def _has_bad_size(r):
    return r[SIZE] < 0 or (r[ORDER_COUNT] < 0 and r[ORDER_COUNT] != k.NULL_I32)


@outlined
def apply_price_level(t, a, b, r, row, side):
    s, position, action = side_of(b, side), r[POSITION], r[ACTION]
    count, keys, key = _count_of(s), keys_of(a, s), key_of(side, r[PRICE])
    by_position = position > 0
    overlay, delete_from = r[UPDATE_ACTION] == k.OVERLAY, r[UPDATE_ACTION] == k.DELETE_FROM
    is_add = action == k.ACTION_ADD and not overlay and not delete_from
    is_top_of_book = load_i32(b, k.B_DEPTH) == k.TOP_OF_BOOK
    unknown_reason = np.int64(k.BAD_POSITION)
    if is_top_of_book:  # whatever names the level, there is only one
        if not by_position:
            unknown_reason = np.int64(k.UNKNOWN_PRICE)
            if not is_add:
                by_position, position = True, np.int64(1)
    elif load_i32(b, k.B_BOOK_TYPE) & k.BY_POSITION != 0:
        if not by_position:
            return mark_stale(b, k.BAD_POSITION, row, position, count), np.int64(k.OUTSIDE_DEPTH)
    elif by_position:
        return mark_stale(b, k.GENERATION_MISMATCH, row, position, count), np.int64(k.OUTSIDE_DEPTH)
    elif delete_from:
        return mark_stale(b, k.BAD_POSITION, row, position, count), np.int64(k.OUTSIDE_DEPTH)
    else:
        unknown_reason = np.int64(k.UNKNOWN_PRICE)
    received = position if unknown_reason == k.BAD_POSITION else r[PRICE]

    if overlay and r[PRICE] == k.NULL and r[SIZE] == k.NULL:  # 9.7: the level is to go
        if by_position:
            index = count - position
        elif count > 1:
            return mark_stale(b, k.AMBIGUOUS_LEVEL, row, count, 0), np.int64(k.OUTSIDE_DEPTH)
        else:
            index = count - 1
        if index < 0:
            return k.NO_CHANGE, np.int64(k.OUTSIDE_DEPTH)
        delete_level(t, a, s, index)
        return k.DELETED, np.int64(k.BEST)

    if by_position:
        index = count - position
        exists = index >= 0
        if is_add or (overlay and not exists):
            exists = False
            index += 1
            if index < 0:
                return mark_stale(b, unknown_reason, row, received, count), np.int64(k.OUTSIDE_DEPTH)
    else:
        index = find_key(keys, count, key)
        exists = index < count and load_i64(keys, 8 * index) == key
    if not exists:
        if not is_add and not overlay:
            return mark_stale(b, unknown_reason, row, received, count), np.int64(k.OUTSIDE_DEPTH)
        if _has_bad_size(r):
            return mark_stale(b, k.BAD_SIZE, row, r[SIZE], r[ORDER_COUNT]), np.int64(k.OUTSIDE_DEPTH)
        return _insert_level(t, a, b, s, index, key, r), np.int64(k.BEST)

    v = a[A_LEVELS] + k.LEVEL_BYTES * _slot_at(a, s, index)
    old = load_i64(v, k.L_KEY)
    if delete_from:
        for _ in range(position):
            delete_level(t, a, s, _count_of(s) - 1)
        return k.DELETED, np.int64(k.BEST)
    if is_add or overlay:
        if _has_bad_size(r):
            return mark_stale(b, k.BAD_SIZE, row, r[SIZE], r[ORDER_COUNT]), np.int64(k.OUTSIDE_DEPTH)
        if is_add and r[FLAGS] & k.F_RECOVERY == 0:
            return mark_stale(b, k.DUPLICATE_PRICE, row, r[PRICE], load_i64(v, k.L_SIZE)), np.int64(k.OUTSIDE_DEPTH)
        store_i64(keys, 8 * index, key)
        _set_level(v, key, r[SIZE], r[ORDER_COUNT])
        return k.REPLACED, np.int64(k.BEST)
    if r[PRICE] != k.NULL and key != old:
        return mark_stale(b, k.PRICE_MISMATCH, row, r[PRICE], position), np.int64(k.OUTSIDE_DEPTH)
    if action == k.ACTION_CANCEL:
        delete_level(t, a, s, index)
        return k.DELETED, np.int64(k.BEST)
    if _has_bad_size(r):
        return mark_stale(b, k.BAD_SIZE, row, r[SIZE], r[ORDER_COUNT]), np.int64(k.OUTSIDE_DEPTH)
    stored = load_i64(v, k.L_SIZE)
    if r[PREV_SIZE] != k.NULL and r[PREV_SIZE] != stored:
        return mark_stale(b, k.SIZE_MISMATCH, row, r[PREV_SIZE], stored), np.int64(k.OUTSIDE_DEPTH)
    orders = np.int64(load_i32(v, k.L_COUNT)) if r[ORDER_COUNT] == k.NULL_I32 else r[ORDER_COUNT]
    _set_level(v, old, r[SIZE], orders)
    return k.CHANGED, np.int64(k.BEST)
