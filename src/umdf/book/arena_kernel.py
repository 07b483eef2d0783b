"""Where orders, levels, books and sides come from and go back to, and the two hash tables that find them.

Invariant: no arena is ever full here. The caller has called `ensure_capacity` before it changed anything.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from umdf.book import memory_layout_kernel as k
from umdf.book.memory_layout_kernel import get, put
from umdf.kernels import (
    inlined,
    kernel,
    load_i32,
    load_i64,
    load_u32,
    load_u64,
    outlined,
    prefetch,
    store_i32,
    store_i64,
    store_u64,
)

ORDER_FACTOR, INSTRUMENT_FACTOR = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
HALF, LOW_HALF = np.uint64(32), np.uint64(0xFFFFFFFF)
EMPTY = np.uint64(0)
LINEAR_SEARCH_KEYS = 64  # from the best, that are looked at one after the other


def _libc_function(name: str) -> Any:
    @intrinsic
    def call(typingctx: Any, target: Any, source: Any, nbytes: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer, word = ir.IntType(8).as_pointer(), ir.IntType(64)
            kind = ir.FunctionType(pointer, [pointer, pointer, word])
            function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
            builder.call(function, [builder.inttoptr(args[0], pointer), builder.inttoptr(args[1], pointer), args[2]])
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), codegen

    return call


memmove = _libc_function("memmove")
memcpy = _libc_function("memcpy")


def _count_greater() -> Any:
    @intrinsic
    def count(typingctx: Any, base: Any, offset: Any, key: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            word, byte = ir.IntType(64), ir.IntType(8)
            some = ir.VectorType(word, k.SLACK)
            pointer = builder.gep(builder.inttoptr(args[0], byte.as_pointer()), [args[1]])
            keys = builder.load(builder.bitcast(pointer, some.as_pointer()))
            keys.align = 8
            one = builder.insert_element(ir.Constant(some, ir.Undefined), args[2], ir.IntType(32)(0))
            alike = ir.Constant(ir.VectorType(ir.IntType(32), k.SLACK), [0] * k.SLACK)
            greater = builder.icmp_signed(">", keys, builder.shuffle_vector(one, one, alike))
            return builder.zext(builder.ctpop(builder.bitcast(greater, byte)), word)

        return types.int64(types.int64, types.int64, types.int64), codegen

    return count


count_greater = _count_greater()  # of the SLACK int64s at base + offset, those greater than a key


@inlined
def arenas(t):
    """What the hot path needs of the table, once per call: orders, hash, shift, mask, levels, blocks, books."""
    return (
        get(t, k.ORDERS), get(t, k.HASH), get(t, k.HASH_SHIFT), get(t, k.HASH_MASK), get(t, k.LEVELS), get(t, k.BLOCKS),
        get(t, k.BOOKS),
    )  # fmt: skip


A_ORDERS, A_HASH, A_SHIFT, A_MASK, A_LEVELS, A_BLOCKS, A_BOOKS = range(7)


@inlined
def order_hash(instrument, order_id):
    """Of the row's own columns, so that a row's slot can be prefetched long before its turn."""
    x = np.uint64(order_id) * ORDER_FACTOR + np.uint64(instrument) * INSTRUMENT_FACTOR
    return (x ^ (x >> HALF)) * ORDER_FACTOR


@inlined
def find_order(a, x, number, order_id):
    """The slot of an order of this book, or ~slot where it would go."""
    tag, slot = x >> HALF, np.int64(x >> np.uint64(a[A_SHIFT]))
    while True:
        word = load_u64(a[A_HASH], 8 * slot)
        if word == EMPTY:
            return ~slot
        if word >> HALF == tag:
            o = a[A_ORDERS] + k.ORDER_BYTES * (np.int64(word & LOW_HALF) - 1)
            if load_i64(o, k.O_ID) == order_id and np.int64(load_u32(o, k.O_OWNER)) >> 2 == number:
                return slot
        slot = (slot + 1) & a[A_MASK]


@inlined
def order_in_slot(a, slot):
    return np.int64(load_u64(a[A_HASH], 8 * slot) & LOW_HALF) - 1


@inlined
def set_slot(a, slot, x, order):
    store_u64(a[A_HASH], 8 * slot, (x >> HALF) << HALF | np.uint64(order + 1))


@inlined
def delete_slot(a, slot):
    """Backward shift: what was pushed past this slot moves up, so that there are no tombstones to search over."""
    hashes, shift, mask = a[A_HASH], np.uint64(a[A_SHIFT]), a[A_MASK]
    next_slot = slot
    while True:
        next_slot = (next_slot + 1) & mask
        word = load_u64(hashes, 8 * next_slot)
        if word == EMPTY:
            break
        home = np.int64(word >> shift)
        if (next_slot - home) & mask >= (next_slot - slot) & mask:
            store_u64(hashes, 8 * slot, word)
            slot = next_slot
    store_u64(hashes, 8 * slot, EMPTY)


@inlined
def new_order(t, a):
    put(t, k.ORDERS_AVAILABLE, get(t, k.ORDERS_AVAILABLE) - 1)
    order = get(t, k.ORDER_FREE_LIST)
    if order >= 0:
        following = np.int64(load_i32(a[A_ORDERS] + k.ORDER_BYTES * order, k.O_NEXT))
        put(t, k.ORDER_FREE_LIST, following)
        prefetch(get(t, k.COLD_ORDERS), k.COLD_BYTES * following)  # nothing has read it since it was written
        return order
    order = get(t, k.ORDER_HIGH_WATER)
    put(t, k.ORDER_HIGH_WATER, order + 1)
    return order


@inlined
def free_order(t, a, order):
    store_i32(a[A_ORDERS] + k.ORDER_BYTES * order, k.O_NEXT, np.int32(get(t, k.ORDER_FREE_LIST)))
    put(t, k.ORDER_FREE_LIST, order)
    put(t, k.ORDERS_AVAILABLE, get(t, k.ORDERS_AVAILABLE) + 1)


@inlined
def new_level(t, a, key):
    put(t, k.LEVELS_AVAILABLE, get(t, k.LEVELS_AVAILABLE) - 1)
    level = get(t, k.LEVEL_FREE_LIST)
    if level >= 0:
        put(t, k.LEVEL_FREE_LIST, load_i32(a[A_LEVELS] + k.LEVEL_BYTES * level, k.L_HEAD))
    else:
        level = get(t, k.LEVEL_HIGH_WATER)
        put(t, k.LEVEL_HIGH_WATER, level + 1)
    v = a[A_LEVELS] + k.LEVEL_BYTES * level
    store_i64(v, k.L_KEY, key)
    store_i64(v, k.L_SIZE, 0)
    store_i32(v, k.L_COUNT, np.int32(0))
    store_i32(v, k.L_HEAD, np.int32(-1))
    store_i32(v, k.L_TAIL, np.int32(-1))
    store_i32(v, k.L_IMPLIED, np.int32(0))
    return level


@inlined
def free_level(t, a, level):
    store_i32(a[A_LEVELS] + k.LEVEL_BYTES * level, k.L_HEAD, np.int32(get(t, k.LEVEL_FREE_LIST)))
    put(t, k.LEVEL_FREE_LIST, level)
    put(t, k.LEVELS_AVAILABLE, get(t, k.LEVELS_AVAILABLE) + 1)


# A side: keys and, behind the keys' capacity, slots. Positions count from the best, indices from the worst.


@inlined
def side_of(b, side):
    return b + k.B_SIDES + k.SIDE_BYTES * side


@inlined
def keys_of(a, s):
    return a[A_BLOCKS] + load_i64(s, k.S_BLOCK)


@inlined
def slots_of(keys, s):
    return keys + 8 * np.int64(load_i32(s, k.S_CAPACITY))


@inlined
def key_of(side, price):
    """Greater is better; wrapping, so that NULL (no price) becomes the greatest on both sides."""
    return (price ^ -side) - (1 - side)


@inlined
def price_of(side, key):
    return (key + (1 - side)) ^ -side


@inlined
def find_key(keys, count, key):
    """The index of a key among ascending ones, or where it would go.

    Nearly everything happens close to the best: a few keys are compared at once, without a branch, and the
    next few if need be; only what is far away is found by halves.
    """
    low, high, linear_end = np.int64(0), count, count - LINEAR_SEARCH_KEYS
    while high >= k.SLACK and high > linear_end:
        index = high - count_greater(keys, 8 * (high - k.SLACK), key)
        if index > high - k.SLACK:
            there = load_i64(keys, 8 * (index - 1)) == key
            return index - 1 if there else index
        high = index
    while low < high:
        middle = (low + high) >> 1
        if load_i64(keys, 8 * middle) < key:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def insert_entry(a, s, index, key, slot):
    keys, count = keys_of(a, s), np.int64(load_i32(s, k.S_COUNT))
    slots, moved = slots_of(keys, s), count - index
    if moved <= k.SLACK:
        memmove(keys + 8 * (index + 1), keys + 8 * index, 8 * k.SLACK)
        memmove(slots + 4 * (index + 1), slots + 4 * index, 4 * k.SLACK)
    else:
        memmove(keys + 8 * (index + 1), keys + 8 * index, 8 * moved)
        memmove(slots + 4 * (index + 1), slots + 4 * index, 4 * moved)
    store_i64(keys, 8 * index, key)
    store_i32(slots, 4 * index, np.int32(slot))
    store_i32(s, k.S_COUNT, np.int32(count + 1))


@inlined
def remove_entry(a, s, index):
    keys, count = keys_of(a, s), np.int64(load_i32(s, k.S_COUNT)) - 1
    slots, moved = slots_of(keys, s), count - index
    if moved < k.SLACK:
        memmove(keys + 8 * index, keys + 8 * (index + 1), 8 * (k.SLACK - 1))
        memmove(slots + 4 * index, slots + 4 * (index + 1), 4 * (k.SLACK - 1))
    else:
        memmove(keys + 8 * index, keys + 8 * (index + 1), 8 * moved)
        memmove(slots + 4 * index, slots + 4 * (index + 1), 4 * moved)
    store_i32(s, k.S_COUNT, np.int32(count))


@inlined
def _block_power(capacity):
    power = k.MIN_BLOCK_POWER
    while 1 << power < capacity:
        power += 1
    return power


@outlined
def free_block(t, s):
    """Give the block of an empty side back."""
    capacity = np.int64(load_i32(s, k.S_CAPACITY))
    if capacity > 0:
        block, free = load_i64(s, k.S_BLOCK), k.BLOCK_FREE_LISTS + _block_power(capacity)
        store_i64(get(t, k.BLOCKS), block, get(t, free))
        put(t, free, block + 1)
        store_i32(s, k.S_CAPACITY, np.int32(0))
        store_i64(s, k.S_BLOCK, 0)


@outlined
def ensure_capacity(t, s):
    """Memory for one order, one level and one more entry of this side; False (and FULL is what) if Python must grow."""
    if get(t, k.ORDERS_AVAILABLE) < 1:
        put(t, k.FULL, k.ORDERS_FULL)
        return False
    if get(t, k.LEVELS_AVAILABLE) < 1:
        put(t, k.FULL, k.LEVELS_FULL)
        return False
    count, capacity = np.int64(load_i32(s, k.S_COUNT)), np.int64(load_i32(s, k.S_CAPACITY))
    if count + k.SLACK < capacity:
        return True
    power = _block_power(capacity + 1)
    free, blocks, wider = k.BLOCK_FREE_LISTS + power, get(t, k.BLOCKS), np.int64(1) << power
    if get(t, free) > 0:
        block = get(t, free) - 1
        put(t, free, load_i64(blocks, block))
    else:
        block = get(t, k.BLOCKS_USED)
        if block + k.ENTRY_BYTES * wider > get(t, k.BLOCKS_CAPACITY):
            put(t, k.FULL, k.BLOCKS_FULL)
            return False
        put(t, k.BLOCKS_USED, block + k.ENTRY_BYTES * wider)
    old = blocks + load_i64(s, k.S_BLOCK)
    memcpy(blocks + block, old, 8 * count)
    memcpy(blocks + block + 8 * wider, old + 8 * capacity, 4 * count)
    free_block(t, s)
    store_i64(s, k.S_BLOCK, block)
    store_i32(s, k.S_CAPACITY, np.int32(wider))
    return True


# The books.


@inlined
def find_book(t, instrument, lending):
    """The number of a book, or -1."""
    books, mask = get(t, k.BOOK_HASH), get(t, k.BOOK_HASH_MASK)
    slot = np.int64((np.uint64(instrument) * INSTRUMENT_FACTOR) >> np.uint64(get(t, k.BOOK_HASH_SHIFT)))
    while True:
        value = load_i64(books, k.BOOK_SLOT_BYTES * slot + 8)
        if value == 0:
            return np.int64(-1)
        if load_i64(books, k.BOOK_SLOT_BYTES * slot) == instrument and value & 1 == lending:
            return (value >> 1) - 1
        slot = (slot + 1) & mask


@outlined
def insert_book_hash(t, instrument, lending, number):
    """Enter a book that is not there yet into the book hash."""
    books, mask = get(t, k.BOOK_HASH), get(t, k.BOOK_HASH_MASK)
    slot = np.int64((np.uint64(instrument) * INSTRUMENT_FACTOR) >> np.uint64(get(t, k.BOOK_HASH_SHIFT)))
    while load_i64(books, k.BOOK_SLOT_BYTES * slot + 8) != 0:
        slot = (slot + 1) & mask
    store_i64(books, k.BOOK_SLOT_BYTES * slot, instrument)
    store_i64(books, k.BOOK_SLOT_BYTES * slot + 8, (number + 1) << 1 | lending)


@outlined
def add_book(t, instrument, lending):
    """The number of a new, empty book; -1 (with FULL set) if Python must grow."""
    if get(t, k.BOOKS_AVAILABLE) < 1:
        put(t, k.FULL, k.BOOKS_FULL)
        return np.int64(-1)
    put(t, k.BOOKS_AVAILABLE, get(t, k.BOOKS_AVAILABLE) - 1)
    number = get(t, k.BOOK_FREE_LIST)
    if number >= 0:
        put(t, k.BOOK_FREE_LIST, load_i64(get(t, k.BOOKS) + k.BOOK_BYTES * number, k.B_RPT_SEQ))
    else:
        number = get(t, k.BOOK_HIGH_WATER)
        put(t, k.BOOK_HIGH_WATER, number + 1)
    b = get(t, k.BOOKS) + k.BOOK_BYTES * number
    for offset in range(0, k.BOOK_BYTES, 8):
        store_i64(b, offset, 0)
    store_i64(b, k.B_INSTRUMENT, instrument)
    store_i64(b, k.B_MAX_ORDER_ID, np.int64(k.NULL))
    store_i64(b, k.B_RPT_SEQ, get(t, k.FIRST_RPT_SEQ))
    store_i32(b, k.B_BOOK_TYPE, np.int32(k.UNDECIDED))
    store_i32(b, k.B_DEPTH, np.int32(k.DEFAULT_DEPTH))
    store_i32(b, k.B_DECLARED_DEPTH, np.int32(k.UNDECLARED))
    store_i32(b, k.B_LENDING, np.int32(lending))
    store_i32(b, k.B_ALIVE, np.int32(1))
    insert_book_hash(t, instrument, lending, number)
    return number


# After an arena has moved to larger memory.


@kernel
def rehash_orders(t, old, slots):
    """Enter what is in the old hash into the new one; a word carries enough of its own hash."""
    a = arenas(t)
    for old_slot in range(slots):
        word = load_u64(old, 8 * old_slot)
        if word != EMPTY:
            slot = np.int64(word >> np.uint64(a[A_SHIFT]))
            while load_u64(a[A_HASH], 8 * slot) != EMPTY:
                slot = (slot + 1) & a[A_MASK]
            store_u64(a[A_HASH], 8 * slot, word)


@kernel
def rehash_books(t):
    """Enter every book into an empty book hash."""
    for number in range(get(t, k.BOOK_HIGH_WATER)):
        b = get(t, k.BOOKS) + k.BOOK_BYTES * number
        if load_i32(b, k.B_ALIVE) != 0:
            insert_book_hash(t, load_i64(b, k.B_INSTRUMENT), np.int64(load_i32(b, k.B_LENDING)), number)
