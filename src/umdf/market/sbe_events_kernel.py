"""Decoded Binary columns → columns of events: a small machine that runs over a table of instructions.

An instruction moves one column of one template into one column of one family, row by row to the places that the rows
have in the order of the wire. `sbe_plan` writes the instructions and sizes every buffer, so that places are always
inside: row 0 of a column takes what is thrown away, rows that count start at FIRST_ROW.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import (
    inlined,
    kernel,
    load_i8,
    load_i16,
    load_i32,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    outlined,
    store_i32,
    store_i64,
    store_u8,
    store_u16,
    store_u32,
)

# An instruction, as int64s. First its addresses, then what the plan knows.
SOURCE, SECOND, TARGET, PLACES, EXTRA, FLAGS = 0, 1, 2, 3, 4, 5
ADDRESSES = 6
OP, COUNT, KIND, SIZE, NULL, ABSENT, LOW, HIGH, FACTOR, TABLE, SHIFT = 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16
MASK = 17  # of a look-up: the bits that count; of other moves: whether there is a null value
INSTRUCTION = 18

# Operations that find places.
SLOTS, ZERO, MARK, MARK_IF, MARK_GROUP, PREFIX, PLACE, PLACE_GROUP, IDENTITY, FIRST = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
# Operations that move columns: the quick ones, then the general ones.
CONSTANT, COPY_8, COPY_4, COPY_2, NULL_8, WIDEN_4, SCALE_8 = 20, 21, 22, 23, 24, 25, 26
TABLE_1, TABLE_4, OR_4 = 27, 28, 29
MOVE, LOOK_UP, SPREAD, ENTRY_INDEX = 30, 31, 32, 33

U8, U16, U32, I64, I8, I16, I32 = 0, 1, 2, 3, 4, 5, 6  # kinds of sources; 64 bits keep their bits
FIRST_ROW = 64  # keeps every column aligned
OTHER_CODE, ABSENT_CODE, CODES = 256, 257, 258  # the last entries of a table of codes, and its length
NO_FIT = 1 << 40  # in a table of codes: the value does not fit, and this much is to be said in the flags
OUT_OF_RANGE = 1 << 10  # as in `events`
NOTHING = -(1 << 63)


@inlined
def _at(base, index):
    return load_i64(base, 8 * index)


@inlined
def _place(places, i):
    return np.int64(load_u32(places, 4 * i))


@inlined
def _load(kind, source, i):
    if kind == I64:
        return load_i64(source, 8 * i)
    if kind == U8:
        return np.int64(load_u8(source, i))
    if kind == U32:
        return np.int64(load_u32(source, 4 * i))
    if kind == U16:
        return np.int64(load_u16(source, 2 * i))
    if kind == I32:
        return np.int64(load_i32(source, 4 * i))
    if kind == I16:
        return np.int64(load_i16(source, 2 * i))
    return np.int64(load_i8(source, i))


@inlined
def _store(size, target, row, value):
    if size == 8:
        store_i64(target, 8 * row, value)
    elif size == 4:
        store_i32(target, 4 * row, np.int32(value))
    elif size == 2:
        store_u16(target, 2 * row, np.uint16(value))
    else:
        store_u8(target, row, np.uint8(value))


@inlined
def _is_there(bitmap, i):
    return bitmap == 0 or (np.int64(load_u8(bitmap, i >> 3)) >> (i & 7)) & 1 != 0


@outlined
def _does_not_fit(flags, row):
    store_i32(flags, 4 * row, load_i32(flags, 4 * row) | np.int32(OUT_OF_RANGE))


@outlined
def _find_places(p, op):
    """The operations that say where rows go: a count for each message, summed up, looked up by each row."""
    source, second, target, places = _at(p, SOURCE), _at(p, SECOND), _at(p, TARGET), _at(p, PLACES)
    count = _at(p, COUNT)
    if op == SLOTS:
        for i in range(count):
            first = _place(places, np.int64(load_u32(source, 4 * i)))
            store_u32(target, 4 * i, np.uint32(first + np.int64(load_u16(second, 2 * i))))
    elif op == ZERO:
        for i in range(count + 1):
            store_u32(target, 4 * i, np.uint32(0))
    elif op == MARK:
        for i in range(count):
            store_u32(target, 4 * _place(places, i), np.uint32(1))
    elif op == MARK_IF:
        null, kind = _at(p, NULL), _at(p, KIND)
        for i in range(count):
            store_u32(target, 4 * _place(places, i), np.uint32(_load(kind, source, i) != null))
    elif op == MARK_GROUP:
        for i in range(count):
            entries = load_i32(source, 4 * i + 4) - load_i32(source, 4 * i)
            store_u32(target, 4 * _place(places, i), np.uint32(entries))
    elif op == PREFIX:
        total = np.int64(FIRST_ROW)
        for i in range(count):
            here = _place(target, i)
            store_u32(target, 4 * i, np.uint32(total))
            total += here
        store_u32(target, 4 * count, np.uint32(total))
        store_i64(second, 0, total - FIRST_ROW)
    elif op == PLACE:
        for i in range(count):
            slot = _place(places, i)
            here = _place(source, slot)
            store_u32(target, 4 * i, np.uint32(here if _place(source, slot + 1) != here else 0))
    elif op == PLACE_GROUP:
        parents = _at(p, EXTRA)
        for i in range(count):
            here = _place(source, _place(places, i))
            first, last = np.int64(load_i32(second, 4 * i)), np.int64(load_i32(second, 4 * i + 4))
            for j in range(first, last):
                store_u32(target, 4 * j, np.uint32(here + j - first))
                store_u32(parents, 4 * j, np.uint32(i))
    elif op == IDENTITY:
        for i in range(count):
            store_u32(target, 4 * i, np.uint32(FIRST_ROW + i))
    else:  # FIRST: of each packet, its first message among all
        messages = np.int64(0)
        for i in range(count):
            store_u32(target, 4 * i, np.uint32(messages))
            messages += np.int64(load_u16(source, 2 * i))


@inlined
def _constant(target, places, count, size, value):
    if size == 8:
        for i in range(count):
            store_i64(target, 8 * _place(places, i), value)
    elif size == 4:
        for i in range(count):
            store_i32(target, 4 * _place(places, i), np.int32(value))
    elif size == 2:
        for i in range(count):
            store_u16(target, 2 * _place(places, i), np.uint16(value))
    else:
        for i in range(count):
            store_u8(target, _place(places, i), np.uint8(value))


@inlined
def _null_8(source, target, places, count, null, nullable, flags):
    for i in range(count):
        value, row = load_i64(source, 8 * i), _place(places, i)
        if nullable != 0 and value == null:
            value = np.int64(NOTHING)
        elif value == NOTHING:
            _does_not_fit(flags, row)
        store_i64(target, 8 * row, value)


@inlined
def _widen_4(source, target, places, count, null):
    for i in range(count):
        value = np.int64(load_u32(source, 4 * i))
        store_i64(target, 8 * _place(places, i), np.int64(NOTHING) if value == null else value)


@inlined
def _scale_8(p, source, target, places, count):
    null, low, high, factor, flags = _at(p, NULL), _at(p, LOW), _at(p, HIGH), _at(p, FACTOR), _at(p, FLAGS)
    nullable = _at(p, MASK)
    for i in range(count):
        value, row = load_i64(source, 8 * i), _place(places, i)
        scaled = value * factor
        if value < low or value > high:
            scaled = np.int64(NOTHING)
            if nullable == 0 or value != null:
                _does_not_fit(flags, row)
        elif nullable != 0 and value == null:
            scaled = np.int64(NOTHING)
        store_i64(target, 8 * row, scaled)


@inlined
def _table_1(source, target, places, count, table, flags):
    for i in range(count):
        entry, row = _at(table, np.int64(load_u8(source, i))), _place(places, i)
        store_u8(target, row, np.uint8(entry))
        if entry >= NO_FIT:
            _does_not_fit(flags, row)


@inlined
def _table_4(source, target, places, count, table):
    for i in range(count):
        store_i32(target, 4 * _place(places, i), np.int32(_at(table, np.int64(load_u8(source, i)))))


@inlined
def _or_4(source, target, places, count, table):
    for i in range(count):
        at = 4 * _place(places, i)
        store_i32(target, at, load_i32(target, at) | np.int32(_at(table, np.int64(load_u8(source, i)))))


@outlined
def _move(p):
    """Any number into any column: absent, out of range, or multiplied."""
    source, bitmap, target, places = _at(p, SOURCE), _at(p, SECOND), _at(p, TARGET), _at(p, PLACES)
    flags = _at(p, FLAGS)
    kind, size, null, absent = _at(p, KIND), _at(p, SIZE), _at(p, NULL), _at(p, ABSENT)
    low, high, factor, nullable = _at(p, LOW), _at(p, HIGH), _at(p, FACTOR), _at(p, MASK)
    for i in range(_at(p, COUNT)):
        value, row = _load(kind, source, i), _place(places, i)
        if not _is_there(bitmap, i) or (nullable != 0 and value == null):
            _store(size, target, row, absent)
        elif value < low or value > high:
            _store(size, target, row, absent)
            _does_not_fit(flags, row)
        else:
            _store(size, target, row, value * factor)


@outlined
def _look_up(p):
    """Any code by a table. A mask of 0 asks for the whole code, else for these bits of it; ABSENT says to add bits."""
    source, bitmap, target, places = _at(p, SOURCE), _at(p, SECOND), _at(p, TARGET), _at(p, PLACES)
    flags = _at(p, FLAGS)
    kind, size, null, nullable = _at(p, KIND), _at(p, SIZE), _at(p, NULL), _at(p, LOW)
    table, shift, mask, adds = _at(p, TABLE), _at(p, SHIFT), _at(p, MASK), _at(p, ABSENT)
    for i in range(_at(p, COUNT)):
        value, row = _load(kind, source, i), _place(places, i)
        if not _is_there(bitmap, i) or (nullable != 0 and value == null):
            index = np.int64(ABSENT_CODE)
        else:
            index = value >> shift
            if mask != 0:
                index = index & mask
            if index < 0 or index > 255:
                index = np.int64(OTHER_CODE)
        entry = _at(table, index)
        if adds != 0:
            store_i32(target, 4 * row, load_i32(target, 4 * row) | np.int32(entry))
        else:
            _store(size, target, row, entry)
            if entry >= NO_FIT:
                _does_not_fit(flags, row)


@outlined
def _spread(p):
    """A column of messages, for each entry of their groups."""
    source, target, places, bitmap = _at(p, SOURCE), _at(p, TARGET), _at(p, PLACES), _at(p, SECOND)
    kind, size, null, nullable, parents = _at(p, KIND), _at(p, SIZE), _at(p, NULL), _at(p, MASK), _at(p, EXTRA)
    for j in range(_at(p, COUNT)):
        i = _place(parents, j)
        value = _load(kind, source, i)
        if not _is_there(bitmap, i) or (nullable != 0 and value == null):
            value = _at(p, ABSENT)
        _store(size, target, _place(places, j), value)


@outlined
def _entry_index(p):
    offsets, parents, target, places = _at(p, SOURCE), _at(p, SECOND), _at(p, TARGET), _at(p, PLACES)
    for j in range(_at(p, COUNT)):
        first = np.int64(load_i32(offsets, 4 * _place(parents, j)))
        store_u16(target, 2 * _place(places, j), np.uint16(j - first))


@kernel
def run(program, instructions):
    """Run a program of so many instructions."""
    for number in range(instructions):
        p = program + 8 * INSTRUCTION * number
        op, count = _at(p, OP), _at(p, COUNT)
        if count == 0:
            continue
        if op < CONSTANT:
            _find_places(p, op)
            continue
        source, target, places = _at(p, SOURCE), _at(p, TARGET), _at(p, PLACES)
        if op == CONSTANT:
            _constant(target, places, count, _at(p, SIZE), _at(p, ABSENT))
        elif op == COPY_8:
            for i in range(count):
                store_i64(target, 8 * _place(places, i), load_i64(source, 8 * i))
        elif op == COPY_4:
            for i in range(count):
                store_u32(target, 4 * _place(places, i), load_u32(source, 4 * i))
        elif op == COPY_2:
            for i in range(count):
                store_u16(target, 2 * _place(places, i), load_u16(source, 2 * i))
        elif op == NULL_8:
            _null_8(source, target, places, count, _at(p, NULL), _at(p, MASK), _at(p, FLAGS))
        elif op == WIDEN_4:
            _widen_4(source, target, places, count, _at(p, NULL))
        elif op == SCALE_8:
            _scale_8(p, source, target, places, count)
        elif op == TABLE_1:
            _table_1(source, target, places, count, _at(p, TABLE), _at(p, FLAGS))
        elif op == TABLE_4:
            _table_4(source, target, places, count, _at(p, TABLE))
        elif op == OR_4:
            _or_4(source, target, places, count, _at(p, TABLE))
        elif op == MOVE:
            _move(p)
        elif op == LOOK_UP:
            _look_up(p)
        elif op == SPREAD:
            _spread(p)
        elif op == ENTRY_INDEX:
            _entry_index(p)
    return 0
