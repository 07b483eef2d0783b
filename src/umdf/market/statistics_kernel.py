"""The newest row of every key, folded in wire order; and the hash that finds an instrument's keys.

A slot is one key of one instrument. Slots of an instrument hang together in a chain that starts at its head slot, so
that everything of it can be deleted together. Rows and deletions are merged in wire order: only
the last row of a key matters, and is copied at the end.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import inlined, kernel, load_i8, load_i16, load_i32, load_i64, load_u8, store_i32, store_i64

# Slots of the table of arguments. The first are shared with the tape.
SLOTS, SLOT_COUNT, SLOT_CAPACITY, SLOT_SIZE, HASH, HASH_MASK = 0, 1, 2, 3, 4, 5
ROWS, ROW, IDS, ORDER, ACTIONS = 6, 7, 8, 9, 10  # ROW: the next one; ACTIONS: 0 where nothing is ever deleted
OPS, OP_COUNT, OP = 11, 12, 13  # OP: the next one
KEYS, KEYS_2, MASKS, COLUMNS, COLUMN_COUNT, TOUCHED, TOUCHED_COUNT = 14, 15, 16, 17, 18, 19, 20
LOG, LOG_COUNT, LOG_CAPACITY = 21, 22, 23  # of the tape
ARGUMENTS = 24

# A slot, as int64s. S_ROW: 0 nothing happened in this batch, else the row + 1 that set it last, or FORGOTTEN.
S_ID, S_KEY, S_KEY_2, S_NEXT, S_ROW, S_PRESENT, S_VALUES = 0, 1, 2, 3, 4, 5, 6
HEAD = -1  # the key of an instrument's head slot: no other key is negative
NO_SLOT = -1
CLEARED = -1

# What to do between rows, as int64s; what of it a fold forgets stands in its MASKS, by kind.
O_ORDER, O_ID, O_KIND, O_VENUE, O_PRICE, O_SIZE, O_TS, O_TRADE_ID, O_BUYER, O_SELLER, O_CONDITIONS = range(11)
OPERATION = 11
NEW_SESSION, AUCTION_ENDS, RESET_ALL, INSTRUMENT_DELETED, SET_LAST_PRICE, CLEAR_LAST_PRICE = range(6)
KINDS = 6
ALL_INSTRUMENTS = -(1 << 63)  # instead of an instrument: all of them

# A column to copy, as int64s: its address (0: absent throughout), how it is stored, what absent is; of a text the
# offsets' address and the content's length.
C_ADDRESS, C_KIND, C_NULL, C_OFFSETS, C_LENGTH = 0, 1, 2, 3, 4
COLUMN = 5
I64, I32, I16, I8, U8, TEXT_8 = range(6)  # TEXT_8: the first eight bytes, as a number

DELETED = 67  # C


@inlined
def get(base, index):
    """The int64 in this slot of a table."""
    return load_i64(base, 8 * index)


@inlined
def put(base, index, value):
    store_i64(base, 8 * index, np.int64(value))


@inlined
def slot_at(t, number):
    return get(t, SLOTS) + 8 * get(t, SLOT_SIZE) * number


@inlined
def _first_bucket(t, instrument_id, key, key_2):
    """Where the search for a key starts."""
    hashed = np.uint64(instrument_id) * np.uint64(0x9E3779B97F4A7C15)
    hashed ^= (np.uint64(key) + np.uint64(key_2)) * np.uint64(0xC2B2AE3D27D4EB4F)
    hashed ^= hashed >> np.uint64(29)
    hashed *= np.uint64(0xBF58476D1CE4E5B9)
    return np.int64(hashed >> np.uint64(32)) & get(t, HASH_MASK)


@inlined
def find(t, instrument_id, key, key_2):
    """The slot of a key, or NO_SLOT."""
    table, mask, bucket = get(t, HASH), get(t, HASH_MASK), _first_bucket(t, instrument_id, key, key_2)
    while True:
        number = np.int64(load_i32(table, 4 * bucket)) - 1
        if number < 0:
            return np.int64(NO_SLOT)
        s = slot_at(t, number)
        if get(s, S_ID) == instrument_id and get(s, S_KEY) == key and get(s, S_KEY_2) == key_2:
            return number
        bucket = (bucket + 1) & mask


@inlined
def _insert_hash(t, number, instrument_id, key, key_2):
    """Write a slot into the hash. It is never full: there are two entries for each slot."""
    table, mask, bucket = get(t, HASH), get(t, HASH_MASK), _first_bucket(t, instrument_id, key, key_2)
    while load_i32(table, 4 * bucket) != 0:
        bucket = (bucket + 1) & mask
    store_i32(table, 4 * bucket, np.int32(number + 1))


@inlined
def _new_slot(t, instrument_id, key, key_2):
    number = get(t, SLOT_COUNT)
    put(t, SLOT_COUNT, number + 1)
    s = slot_at(t, number)
    for i in range(get(t, SLOT_SIZE)):
        put(s, i, 0)
    put(s, S_ID, instrument_id)
    put(s, S_KEY, key)
    put(s, S_KEY_2, key_2)
    put(s, S_NEXT, NO_SLOT)
    _insert_hash(t, number, instrument_id, key, key_2)
    return number


@inlined
def find_or_add(t, instrument_id, key, key_2):
    """The slot of a key, new at the front of the instrument's chain; NO_SLOT when there is no memory for it."""
    number = find(t, instrument_id, key, key_2)
    if number == NO_SLOT and get(t, SLOT_COUNT) + 2 <= get(t, SLOT_CAPACITY):
        head = find(t, instrument_id, np.int64(HEAD), np.int64(0))
        if head == NO_SLOT:
            head = _new_slot(t, instrument_id, np.int64(HEAD), np.int64(0))
        number = _new_slot(t, instrument_id, key, key_2)
        put(slot_at(t, number), S_NEXT, get(slot_at(t, head), S_NEXT))
        put(slot_at(t, head), S_NEXT, number)
    return number


@kernel
def rebuild_hash(t):
    """Write every slot into an empty hash, after it has grown."""
    for number in range(get(t, SLOT_COUNT)):
        s = slot_at(t, number)
        _insert_hash(t, number, get(s, S_ID), get(s, S_KEY), get(s, S_KEY_2))


@kernel
def find_heads(t):
    """The head slot of each of IDS, into TOUCHED."""
    ids, numbers = get(t, IDS), get(t, TOUCHED)
    for row in range(get(t, ROWS)):
        put(numbers, row, find(t, get(ids, row), np.int64(HEAD), np.int64(0)))


@inlined
def _touch(t, number, row):
    s = slot_at(t, number)
    if get(s, S_ROW) == 0:
        put(get(t, TOUCHED), get(t, TOUCHED_COUNT), number)
        put(t, TOUCHED_COUNT, get(t, TOUCHED_COUNT) + 1)
    put(s, S_ROW, row)


@inlined
def type_bit(key):
    """The bit of a key's statistics type in a mask; all unknown types share one."""
    kind = (key >> 8) & 0xFFFF
    if kind < 32:
        return np.int64(1) << kind
    if kind >= 100 and kind < 128:
        return np.int64(1) << (kind - 68)
    return np.int64(1) << 62


@inlined
def _clear_slot(t, number, mask):
    key = get(slot_at(t, number), S_KEY)
    if key != HEAD and type_bit(key) & mask != 0:
        _touch(t, number, np.int64(CLEARED))


@inlined
def _apply_operation(t, op):
    kind = get(op, O_KIND)
    mask = get(get(t, MASKS), kind) if kind >= 0 and kind < KINDS else np.int64(0)
    if mask == 0:
        return
    if get(op, O_ID) == ALL_INSTRUMENTS:
        for number in range(get(t, SLOT_COUNT)):
            _clear_slot(t, number, mask)
        return
    number = find(t, get(op, O_ID), np.int64(HEAD), np.int64(0))
    while number != NO_SLOT:
        _clear_slot(t, number, mask)
        number = get(slot_at(t, number), S_NEXT)


@inlined
def _value(c, row):
    """A column's value at a row, as int64."""
    base, kind = get(c, C_ADDRESS), get(c, C_KIND)
    if base == 0:
        return get(c, C_NULL)
    if kind == I64:
        return load_i64(base, 8 * row)
    if kind == I32:
        return np.int64(load_i32(base, 4 * row))
    if kind == I16:
        return np.int64(load_i16(base, 2 * row))
    if kind == I8:
        return np.int64(load_i8(base, row))
    if kind == U8:
        return np.int64(load_u8(base, row))
    first = max(np.int64(load_i32(get(c, C_OFFSETS), 4 * row)), np.int64(0))
    last = min(np.int64(load_i32(get(c, C_OFFSETS), 4 * row + 4)), get(c, C_LENGTH), first + 8)
    word = np.int64(0)
    for i in range(last - first):
        word |= np.int64(load_u8(base, first + i)) << (8 * i)
    return word


@inlined
def _copy_touched_rows(t):
    """Copy the last row of every key that changed, and forget which they were."""
    columns, count = get(t, COLUMNS), get(t, COLUMN_COUNT)
    for i in range(get(t, TOUCHED_COUNT)):
        s = slot_at(t, get(get(t, TOUCHED), i))
        row = get(s, S_ROW) - 1
        put(s, S_ROW, 0)
        put(s, S_PRESENT, 1 if row >= 0 else 0)
        if row >= 0:
            for c in range(count):
                put(s, S_VALUES + c, _value(columns + 8 * COLUMN * c, row))
    put(t, TOUCHED_COUNT, 0)


@kernel
def fold_rows(t):
    """Fold rows ROW … and operations OP … into the slots; returns 0 when the slots are full (call again), else 1."""
    rows, ids, order, actions = get(t, ROWS), get(t, IDS), get(t, ORDER), get(t, ACTIONS)
    keys, keys_2, ops, op_count = get(t, KEYS), get(t, KEYS_2), get(t, OPS), get(t, OP_COUNT)
    row, op = get(t, ROW), get(t, OP)
    full = False
    while not full and (row < rows or op < op_count):
        if op < op_count and (row == rows or get(ops, OPERATION * op + O_ORDER) <= get(order, row)):
            _apply_operation(t, ops + 8 * OPERATION * op)
            op += 1
            continue
        key_2 = get(keys_2, row) if keys_2 != 0 else np.int64(0)
        if actions != 0 and load_u8(actions, row) == DELETED:
            number = find(t, get(ids, row), get(keys, row), key_2)  # what is not there needs no slot to be deleted
            if number != NO_SLOT:
                _touch(t, number, np.int64(CLEARED))
        else:
            number = find_or_add(t, get(ids, row), get(keys, row), key_2)
            if number == NO_SLOT:
                full = True
                continue
            _touch(t, number, row + 1)
        row += 1
    put(t, ROW, row)
    put(t, OP, op)
    _copy_touched_rows(
        t
    )  # rows stay where they are until the batch is done, but what is settled need not be kept in mind
    return 0 if full else 1
