"""The newest row of every key, folded in the order of the wire; and the hash that finds an instrument's keys.

A slot is one key of one instrument. Slots of an instrument hang together in a chain that starts at its head slot, so
that everything of it can be forgotten at once. Rows and orders to forget are merged by their order in the wire: only
the last row of a key matters, and is copied at the end.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import inlined, kernel, load_i8, load_i16, load_i32, load_i64, load_u8, store_i32, store_i64

# Places in the table of arguments. The first are shared with the tape.
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
FORGOTTEN = -1

# What to do between rows, as int64s; what of it a fold forgets stands in its MASKS, by kind.
O_ORDER, O_ID, O_KIND, O_STREAM, O_PRICE, O_SIZE, O_TS, O_TRADE_ID, O_BUYER, O_SELLER, O_CONDITIONS = range(11)
OPERATION = 11
NEW_SESSION, AUCTION_ENDS, START_AGAIN, DROP, SET_LAST, NO_LAST = range(6)
KINDS = 6
EVERY = -(1 << 63)  # instead of an instrument: all of them

# A column to copy, as int64s: its address (0: absent throughout), how it is stored, what absent is; of a text the
# offsets' address and the content's length.
C_ADDRESS, C_KIND, C_NULL, C_OFFSETS, C_LENGTH = 0, 1, 2, 3, 4
COLUMN = 5
I64, I32, I16, I8, U8, TEXT_8 = range(6)  # TEXT_8: the first eight bytes, as a number

DELETED = 67  # C


@inlined
def at(base, index):
    """The int64 at this place of a table."""
    return load_i64(base, 8 * index)


@inlined
def put(base, index, value):
    store_i64(base, 8 * index, np.int64(value))


@inlined
def slot_at(t, number):
    return at(t, SLOTS) + 8 * at(t, SLOT_SIZE) * number


@inlined
def _place(t, instrument_id, key, key_2):
    """Where the search for a key starts."""
    mixed = np.uint64(instrument_id) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= (np.uint64(key) + np.uint64(key_2)) * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return np.int64(mixed >> np.uint64(32)) & at(t, HASH_MASK)


@inlined
def find(t, instrument_id, key, key_2):
    """The slot of a key, or NO_SLOT."""
    table, mask, place = at(t, HASH), at(t, HASH_MASK), _place(t, instrument_id, key, key_2)
    while True:
        number = np.int64(load_i32(table, 4 * place)) - 1
        if number < 0:
            return np.int64(NO_SLOT)
        s = slot_at(t, number)
        if at(s, S_ID) == instrument_id and at(s, S_KEY) == key and at(s, S_KEY_2) == key_2:
            return number
        place = (place + 1) & mask


@inlined
def _enter(t, number, instrument_id, key, key_2):
    """Write a slot into the hash. It is never full: there are two places for each slot."""
    table, mask, place = at(t, HASH), at(t, HASH_MASK), _place(t, instrument_id, key, key_2)
    while load_i32(table, 4 * place) != 0:
        place = (place + 1) & mask
    store_i32(table, 4 * place, np.int32(number + 1))


@inlined
def _new_slot(t, instrument_id, key, key_2):
    number = at(t, SLOT_COUNT)
    put(t, SLOT_COUNT, number + 1)
    s = slot_at(t, number)
    for i in range(at(t, SLOT_SIZE)):
        put(s, i, 0)
    put(s, S_ID, instrument_id)
    put(s, S_KEY, key)
    put(s, S_KEY_2, key_2)
    put(s, S_NEXT, NO_SLOT)
    _enter(t, number, instrument_id, key, key_2)
    return number


@inlined
def find_or_add(t, instrument_id, key, key_2):
    """The slot of a key, new at the front of the instrument's chain; NO_SLOT when there is no memory for it."""
    number = find(t, instrument_id, key, key_2)
    if number == NO_SLOT and at(t, SLOT_COUNT) + 2 <= at(t, SLOT_CAPACITY):
        head = find(t, instrument_id, np.int64(HEAD), np.int64(0))
        if head == NO_SLOT:
            head = _new_slot(t, instrument_id, np.int64(HEAD), np.int64(0))
        number = _new_slot(t, instrument_id, key, key_2)
        put(slot_at(t, number), S_NEXT, at(slot_at(t, head), S_NEXT))
        put(slot_at(t, head), S_NEXT, number)
    return number


@kernel
def enter_all(t):
    """Write every slot into an empty hash, after it has grown."""
    for number in range(at(t, SLOT_COUNT)):
        s = slot_at(t, number)
        _enter(t, number, at(s, S_ID), at(s, S_KEY), at(s, S_KEY_2))


@kernel
def find_all(t):
    """The head slot of each of IDS, into TOUCHED."""
    ids, numbers = at(t, IDS), at(t, TOUCHED)
    for row in range(at(t, ROWS)):
        put(numbers, row, find(t, at(ids, row), np.int64(HEAD), np.int64(0)))


@inlined
def _touch(t, number, row):
    s = slot_at(t, number)
    if at(s, S_ROW) == 0:
        put(at(t, TOUCHED), at(t, TOUCHED_COUNT), number)
        put(t, TOUCHED_COUNT, at(t, TOUCHED_COUNT) + 1)
    put(s, S_ROW, row)


@inlined
def type_bit(key):
    """The bit of a key's statistics type in a mask; all types that nobody knows share one."""
    kind = (key >> 8) & 0xFFFF
    if kind < 32:
        return np.int64(1) << kind
    if kind >= 100 and kind < 128:
        return np.int64(1) << (kind - 68)
    return np.int64(1) << 62


@inlined
def _forget(t, number, mask):
    key = at(slot_at(t, number), S_KEY)
    if key != HEAD and type_bit(key) & mask != 0:
        _touch(t, number, np.int64(FORGOTTEN))


@inlined
def _operate(t, op):
    kind = at(op, O_KIND)
    mask = at(at(t, MASKS), kind) if kind >= 0 and kind < KINDS else np.int64(0)
    if mask == 0:
        return
    if at(op, O_ID) == EVERY:
        for number in range(at(t, SLOT_COUNT)):
            _forget(t, number, mask)
        return
    number = find(t, at(op, O_ID), np.int64(HEAD), np.int64(0))
    while number != NO_SLOT:
        _forget(t, number, mask)
        number = at(slot_at(t, number), S_NEXT)


@inlined
def _value(c, row):
    """A column's value at a row, as int64."""
    base, kind = at(c, C_ADDRESS), at(c, C_KIND)
    if base == 0:
        return at(c, C_NULL)
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
    first = max(np.int64(load_i32(at(c, C_OFFSETS), 4 * row)), np.int64(0))
    last = min(np.int64(load_i32(at(c, C_OFFSETS), 4 * row + 4)), at(c, C_LENGTH), first + 8)
    word = np.int64(0)
    for i in range(last - first):
        word |= np.int64(load_u8(base, first + i)) << (8 * i)
    return word


@inlined
def _settle(t):
    """Copy the last row of every key that changed, and forget which they were."""
    columns, count = at(t, COLUMNS), at(t, COLUMN_COUNT)
    for i in range(at(t, TOUCHED_COUNT)):
        s = slot_at(t, at(at(t, TOUCHED), i))
        row = at(s, S_ROW) - 1
        put(s, S_ROW, 0)
        put(s, S_PRESENT, 1 if row >= 0 else 0)
        if row >= 0:
            for c in range(count):
                put(s, S_VALUES + c, _value(columns + 8 * COLUMN * c, row))
    put(t, TOUCHED_COUNT, 0)


@kernel
def fold(t):
    """Fold rows ROW … and operations OP … into the slots; returns 0 when the slots are full (call again), else 1."""
    rows, ids, order, actions = at(t, ROWS), at(t, IDS), at(t, ORDER), at(t, ACTIONS)
    keys, keys_2, ops, op_count = at(t, KEYS), at(t, KEYS_2), at(t, OPS), at(t, OP_COUNT)
    row, op = at(t, ROW), at(t, OP)
    full = False
    while not full and (row < rows or op < op_count):
        if op < op_count and (row == rows or at(ops, OPERATION * op + O_ORDER) <= at(order, row)):
            _operate(t, ops + 8 * OPERATION * op)
            op += 1
            continue
        key_2 = at(keys_2, row) if keys_2 != 0 else np.int64(0)
        if actions != 0 and load_u8(actions, row) == DELETED:
            number = find(t, at(ids, row), at(keys, row), key_2)  # what is not there needs no slot to be deleted
            if number != NO_SLOT:
                _touch(t, number, np.int64(FORGOTTEN))
        else:
            number = find_or_add(t, at(ids, row), at(keys, row), key_2)
            if number == NO_SLOT:
                full = True
                continue
            _touch(t, number, row + 1)
        row += 1
    put(t, ROW, row)
    put(t, OP, op)
    _settle(t)  # rows stay where they are until the batch is done, but what is settled need not be kept in mind
    return 0 if full else 1
