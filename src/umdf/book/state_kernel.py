"""Books as lists of entries and back; their checksum; and what is declared about a book from outside.

An entry is an order, or a level of a price-depth book. They stand bids first, then asks, the best first.
"""

from __future__ import annotations

import numpy as np

from umdf.book import memory_layout_kernel as k
from umdf.book.apply_kernel import clear_side
from umdf.book.arena_kernel import (
    A_BOOKS,
    A_LEVELS,
    A_ORDERS,
    add_book,
    arenas,
    ensure_capacity,
    find_book,
    find_order,
    free_block,
    insert_entry,
    key_of,
    keys_of,
    new_level,
    new_order,
    order_hash,
    price_of,
    side_of,
    slots_of,
)
from umdf.book.memory_layout_kernel import get, invalidate_ladders, put
from umdf.book.orders_kernel import add_order, store_cold_fields
from umdf.book.price_and_position_kernel import delete_level
from umdf.kernels import (
    inlined,
    kernel,
    load_i32,
    load_i64,
    load_u8,
    load_u32,
    store_i32,
    store_i64,
    store_u32,
)

E_PRICE, E_SIZE, E_ORDER_ID, E_FIRM, E_TS_INSERT, E_COUNT, E_SIDE, E_IMPLIED = 0, 8, 16, 24, 32, 40, 44, 45
ENTRY_BYTES = 48
SEED, FACTOR, HALF = np.uint64(0x243F6A8885A308D3), np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


@kernel
def book_number(t, instrument, lending):
    """The number of a book, -1 if there is none."""
    return find_book(t, instrument, lending)


@kernel
def ensure_book(t, instrument, lending):
    """The number of a book, which is made if it is not there; -1 if Python must grow."""
    number = find_book(t, instrument, lending)
    return number if number >= 0 else add_book(t, instrument, lending)


@kernel
def ensure_books(t, instruments, lending, first, rows, numbers):
    """The numbers of many books, which are made if they are not there. How many are done: fewer if Python must grow."""
    for row in range(first, rows):
        instrument, is_lending = load_i64(instruments, 8 * row), load_i64(lending, 8 * row)
        number = find_book(t, instrument, is_lending)
        if number < 0:
            number = add_book(t, instrument, is_lending)
        if number < 0:
            return row
        store_i64(numbers, 8 * row, number)
    return rows


@kernel
def declare_depth(t, number, depth):
    """Declare the depth of a book, from a snapshot (264) or a definition; 0 for orders."""
    a = arenas(t)
    b = a[A_BOOKS] + k.BOOK_BYTES * number
    invalidate_ladders(t)
    store_i32(b, k.B_DECLARED_DEPTH, np.int32(depth))
    if depth > 0 and load_i32(b, k.B_BOOK_TYPE) & k.AGGREGATED != 0:
        store_i32(b, k.B_DEPTH, np.int32(depth))
        for side in range(2):
            while load_i32(side_of(b, side), k.S_COUNT) > depth:
                delete_level(t, a, side_of(b, side), 0)


@kernel
def delete_book(t, number):
    """A book is gone, and its number free. The book hash has to be built again."""
    b = get(t, k.BOOKS) + k.BOOK_BYTES * number
    invalidate_ladders(t)
    for side in range(2):
        clear_side(t, b, side)
        free_block(t, side_of(b, side))
    store_i32(b, k.B_ALIVE, np.int32(0))
    store_i32(b, k.B_CHANGED_SIDES, np.int32(0))
    store_i64(b, k.B_RPT_SEQ, get(t, k.BOOK_FREE_LIST))
    put(t, k.BOOK_FREE_LIST, number)
    put(t, k.BOOKS_AVAILABLE, get(t, k.BOOKS_AVAILABLE) + 1)


@kernel
def count_entries(t, number):
    a = arenas(t)
    b, total = a[A_BOOKS] + k.BOOK_BYTES * number, 0
    for side in range(2):
        s = side_of(b, side)
        keys, count = keys_of(a, s), np.int64(load_i32(s, k.S_COUNT))
        if load_i32(b, k.B_BOOK_TYPE) == k.ORDERS_BY_PRICE:
            for index in range(count):
                level = np.int64(load_i32(slots_of(keys, s), 4 * index))
                total += load_i32(a[A_LEVELS] + k.LEVEL_BYTES * level, k.L_COUNT)
        else:
            total += count
    return total


@kernel
def count_all_entries(t, numbers, rows, counts):
    """How many entries each of these books has; and all of them."""
    total = 0
    for row in range(rows):
        count = count_entries(t, load_i64(numbers, 8 * row))
        store_i64(counts, 8 * row, count)
        total += count
    return total


@inlined
def _write_order(t, a, e, side, price, order):
    o, cold = a[A_ORDERS] + k.ORDER_BYTES * order, get(t, k.COLD_ORDERS) + k.COLD_BYTES * order
    store_i64(e, E_PRICE, price)
    store_i64(e, E_SIZE, load_i64(o, k.O_SIZE))
    store_i64(e, E_ORDER_ID, load_i64(o, k.O_ID))
    store_i64(e, E_FIRM, load_i64(cold, k.O_FIRM))
    store_i64(e, E_TS_INSERT, load_i64(cold, k.O_TS_INSERT))
    store_i32(e, E_COUNT, np.int32(1))
    store_u32(e, E_SIDE, np.uint32(side | (np.int64(load_u32(o, k.O_OWNER)) & 1) << 8))
    return e + ENTRY_BYTES


@inlined
def _write_level(e, side, price, v):
    store_i64(e, E_PRICE, price)
    store_i64(e, E_SIZE, load_i64(v, k.L_SIZE))
    store_i64(e, E_ORDER_ID, np.int64(k.NULL))
    store_i64(e, E_FIRM, np.int64(k.NULL))
    store_i64(e, E_TS_INSERT, np.int64(k.NULL))
    store_i32(e, E_COUNT, load_i32(v, k.L_COUNT))
    store_u32(e, E_SIDE, np.uint32(side))
    return e + ENTRY_BYTES


@kernel
def write_entries(t, number, e):
    """Write the entries of a book at e; there are `count_entries` of them."""
    a = arenas(t)
    b = a[A_BOOKS] + k.BOOK_BYTES * number
    kind = load_i32(b, k.B_BOOK_TYPE)
    for side in range(2):
        s = side_of(b, side)
        keys = keys_of(a, s)
        slots = slots_of(keys, s)
        for index in range(np.int64(load_i32(s, k.S_COUNT)) - 1, -1, -1):
            slot, price = np.int64(load_i32(slots, 4 * index)), price_of(side, load_i64(keys, 8 * index))
            if kind == k.BY_POSITION:
                e = _write_order(t, a, e, side, price, slot)
                continue
            v = a[A_LEVELS] + k.LEVEL_BYTES * slot
            if kind != k.ORDERS_BY_PRICE:
                e = _write_level(e, side, price, v)
                continue
            order = np.int64(load_i32(v, k.L_HEAD))
            while order >= 0:
                e = _write_order(t, a, e, side, price, order)
                order = np.int64(load_i32(a[A_ORDERS] + k.ORDER_BYTES * order, k.O_NEXT))


@kernel
def write_all_entries(t, numbers, rows, counts, e):
    """Write the entries of many books at e, one book after the other."""
    for row in range(rows):
        write_entries(t, load_i64(numbers, 8 * row), e)
        e += ENTRY_BYTES * load_i64(counts, 8 * row)


@kernel
def load_entries(t, number, entries, count):
    """Put entries, as `write_entries` wrote them, into an empty book of the right type; the orders have memory.

    The worst levels go first, so that every one is put on top. Returns how many entries are left because FULL.
    """
    a = arenas(t)
    b = a[A_BOOKS] + k.BOOK_BYTES * number
    kind, instrument = load_i32(b, k.B_BOOK_TYPE), load_i64(b, k.B_INSTRUMENT)
    while count > 0:
        e = entries + ENTRY_BYTES * (count - 1)
        side, price, first = np.int64(load_u8(e, E_SIDE)), load_i64(e, E_PRICE), count - 1
        s, key = side_of(b, side), key_of(side, price)
        if not ensure_capacity(t, s):
            return count
        if kind == k.ORDERS_BY_PRICE:
            while first > 0:
                other = entries + ENTRY_BYTES * (first - 1)
                if np.int64(load_u8(other, E_SIDE)) != side or load_i64(other, E_PRICE) != price:
                    break
                first -= 1
        index = np.int64(load_i32(s, k.S_COUNT))
        for i in range(first, count):
            e = entries + ENTRY_BYTES * i
            size, order_id, implied = load_i64(e, E_SIZE), load_i64(e, E_ORDER_ID), np.int64(load_u8(e, E_IMPLIED))
            if kind & k.AGGREGATED != 0:
                level = new_level(t, a, key)
                store_i64(a[A_LEVELS] + k.LEVEL_BYTES * level, k.L_SIZE, size)
                store_i32(a[A_LEVELS] + k.LEVEL_BYTES * level, k.L_COUNT, load_i32(e, E_COUNT))
                insert_entry(a, s, index, key, level)
                continue
            if kind == k.ORDERS_BY_PRICE:
                x = order_hash(instrument, order_id)
                slot = ~find_order(a, x, number, order_id)
                order, _ = add_order(t, a, b, number, side, key, size, order_id, implied, slot, x)
            else:
                order = new_order(t, a)
                o = a[A_ORDERS] + k.ORDER_BYTES * order
                store_i64(o, k.O_SIZE, size)
                store_i64(o, k.O_ID, order_id)
                store_i32(o, k.O_LEVEL, np.int32(-1))
                store_u32(o, k.O_OWNER, np.uint32(number << 2 | side << 1 | implied))
                insert_entry(a, s, index, key, order)
            store_cold_fields(t, order, load_i64(e, E_FIRM), load_i64(e, E_TS_INSERT))
        count = first
    return np.int64(0)


@kernel
def load_all_entries(t, numbers, first, rows, starts, counts, entries):
    """`load_entries` of many books, from the first on; each has `counts` entries from `starts` on. Returns how many
    books are done, fewer if FULL: the count of the next one is then what is left of it."""
    for row in range(first, rows):
        e, count = entries + ENTRY_BYTES * load_i64(starts, 8 * row), load_i64(counts, 8 * row)
        left = load_entries(t, load_i64(numbers, 8 * row), e, count)
        if left > 0:
            store_i64(counts, 8 * row, left)
            return row
    return rows


@inlined
def _mix(h, word):
    h = (h ^ np.uint64(word)) * FACTOR
    return h ^ (h >> HALF)


@kernel
def checksum_entries(entries, count, aggregated):
    """Over each entry: side, price, then order id, size and firm of an order, size and number of orders of a level."""
    h = SEED
    for i in range(count):
        e = entries + ENTRY_BYTES * i
        h = _mix(_mix(h, np.int64(load_u8(e, E_SIDE))), load_i64(e, E_PRICE))
        if aggregated != 0:
            h = _mix(_mix(h, load_i64(e, E_SIZE)), np.int64(load_i32(e, E_COUNT)))
        else:
            h = _mix(_mix(_mix(h, load_i64(e, E_ORDER_ID)), load_i64(e, E_SIZE)), load_i64(e, E_FIRM))
    return np.int64(h)
