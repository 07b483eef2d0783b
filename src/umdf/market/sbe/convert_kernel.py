"""Decoded Binary columns → columns of events: a small machine that runs over a table of instructions.

An instruction moves one column of one template into one column of one family, row by row to the index that the row
has in wire order. `conversion_plan` writes the instructions and sizes every buffer, so that indices are always
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
from umdf.wire.sbe.tables_kernel import N_ROWS, NODE

# An instruction, as int64s. First its addresses, then what the plan knows.
SOURCE, SECOND, TARGET, POSITIONS, EXTRA, FLAGS = 0, 1, 2, 3, 4, 5
ADDRESSES = 6
OP, COUNT, KIND, SIZE, NULL, ABSENT, LOW, HIGH, FACTOR, TABLE, SHIFT = 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16
MASK = 17  # of a look-up: the bits that count; of other moves: whether there is a null value
INSTRUCTION = 18

LOOKED_UP = -1  # instead of strides: the address is in a table, at this offset from its base

# The table of arguments of `run_program`. Of each address its base, offset and strides; of each list its base and the
# count that gives its length. Counts: rows by node, then all messages and packets.
INSTRUCTIONS, INSTRUCTION_COUNT, INSTRUCTION_ADDRESSES, COUNT_NUMBERS, BASES, STRIDES = 0, 1, 2, 3, 4, 5
LISTS, LIST_COUNT, COUNTS, NODE_COUNT, TOTALS, FAMILY_COUNT = 6, 7, 8, 9, 10, 11
SCRATCH, SCRATCH_SIZE, NODE_TABLE, MESSAGE_COUNTS, PACKETS = 12, 13, 14, 15, 16
ARGUMENTS = 17

# Operations that find row indices.
MESSAGE_SLOTS, ZERO, MARK, MARK_IF, MARK_GROUP = 0, 1, 2, 3, 4
PREFIX, POSITION, POSITION_GROUP, IDENTITY, FIRST_MESSAGES = 5, 6, 7, 8, 9
# Operations that move columns: the quick ones, then the general ones.
CONSTANT, COPY_8, COPY_4, COPY_2, NULL_8, WIDEN_4, SCALE_8 = 20, 21, 22, 23, 24, 25, 26
TABLE_1, TABLE_4, OR_4 = 27, 28, 29
MOVE, LOOK_UP, REPEAT, ENTRY_INDEX = 30, 31, 32, 33

U8, U16, U32, I64, I8, I16, I32 = 0, 1, 2, 3, 4, 5, 6  # kinds of sources; 64 bits keep their bits
FIRST_ROW = 64  # keeps every column aligned
OTHER_CODE, ABSENT_CODE, CODES = 256, 257, 258  # the last entries of a table of codes, and its length
OUT_OF_RANGE_CODE = 1 << 40  # in a table of codes: the value does not fit, and this much is to be said in the flags
OUT_OF_RANGE = 1 << 10  # as in `families`
NULL_I64 = -(1 << 63)


@inlined
def _get(base, index):
    return load_i64(base, 8 * index)


@inlined
def _load_position(positions, i):
    return np.int64(load_u32(positions, 4 * i))


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
def _is_present(bitmap, i):
    return bitmap == 0 or (np.int64(load_u8(bitmap, i >> 3)) >> (i & 7)) & 1 != 0


@outlined
def _flag_out_of_range(flags, row):
    store_i32(flags, 4 * row, load_i32(flags, 4 * row) | np.int32(OUT_OF_RANGE))


@outlined
def _find_positions(p, op):
    """The operations that compute where rows go: a count for each message, summed up, looked up by each row."""
    source, second, target, positions = _get(p, SOURCE), _get(p, SECOND), _get(p, TARGET), _get(p, POSITIONS)
    count = _get(p, COUNT)
    if op == MESSAGE_SLOTS:
        for i in range(count):
            first = _load_position(positions, np.int64(load_u32(source, 4 * i)))
            store_u32(target, 4 * i, np.uint32(first + np.int64(load_u16(second, 2 * i))))
    elif op == ZERO:
        for i in range(count + 1):
            store_u32(target, 4 * i, np.uint32(0))
    elif op == MARK:
        for i in range(count):
            store_u32(target, 4 * _load_position(positions, i), np.uint32(1))
    elif op == MARK_IF:
        null, kind = _get(p, NULL), _get(p, KIND)
        for i in range(count):
            store_u32(target, 4 * _load_position(positions, i), np.uint32(_load(kind, source, i) != null))
    elif op == MARK_GROUP:
        for i in range(count):
            entries = load_i32(source, 4 * i + 4) - load_i32(source, 4 * i)
            store_u32(target, 4 * _load_position(positions, i), np.uint32(entries))
    elif op == PREFIX:
        total = np.int64(FIRST_ROW)
        for i in range(count):
            here = _load_position(target, i)
            store_u32(target, 4 * i, np.uint32(total))
            total += here
        store_u32(target, 4 * count, np.uint32(total))
        store_i64(second, 0, total - FIRST_ROW)
    elif op == POSITION:
        for i in range(count):
            slot = _load_position(positions, i)
            here = _load_position(source, slot)
            store_u32(target, 4 * i, np.uint32(here if _load_position(source, slot + 1) != here else 0))
    elif op == POSITION_GROUP:
        parents = _get(p, EXTRA)
        for i in range(count):
            here = _load_position(source, _load_position(positions, i))
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
def _constant(target, positions, count, size, value):
    if size == 8:
        for i in range(count):
            store_i64(target, 8 * _load_position(positions, i), value)
    elif size == 4:
        for i in range(count):
            store_i32(target, 4 * _load_position(positions, i), np.int32(value))
    elif size == 2:
        for i in range(count):
            store_u16(target, 2 * _load_position(positions, i), np.uint16(value))
    else:
        for i in range(count):
            store_u8(target, _load_position(positions, i), np.uint8(value))


@inlined
def _null_8(source, target, positions, count, null, nullable, flags):
    for i in range(count):
        value, row = load_i64(source, 8 * i), _load_position(positions, i)
        if nullable != 0 and value == null:
            value = np.int64(NULL_I64)
        elif value == NULL_I64:
            _flag_out_of_range(flags, row)
        store_i64(target, 8 * row, value)


@inlined
def _widen_4(source, target, positions, count, null):
    for i in range(count):
        value = np.int64(load_u32(source, 4 * i))
        store_i64(target, 8 * _load_position(positions, i), np.int64(NULL_I64) if value == null else value)


@inlined
def _scale_8(p, source, target, positions, count):
    null, low, high, factor, flags = _get(p, NULL), _get(p, LOW), _get(p, HIGH), _get(p, FACTOR), _get(p, FLAGS)
    nullable = _get(p, MASK)
    for i in range(count):
        value, row = load_i64(source, 8 * i), _load_position(positions, i)
        scaled = value * factor
        if value < low or value > high:
            scaled = np.int64(NULL_I64)
            if nullable == 0 or value != null:
                _flag_out_of_range(flags, row)
        elif nullable != 0 and value == null:
            scaled = np.int64(NULL_I64)
        store_i64(target, 8 * row, scaled)


@inlined
def _table_1(source, target, positions, count, table, flags):
    for i in range(count):
        entry, row = _get(table, np.int64(load_u8(source, i))), _load_position(positions, i)
        store_u8(target, row, np.uint8(entry))
        if entry >= OUT_OF_RANGE_CODE:
            _flag_out_of_range(flags, row)


@inlined
def _table_4(source, target, positions, count, table):
    for i in range(count):
        store_i32(target, 4 * _load_position(positions, i), np.int32(_get(table, np.int64(load_u8(source, i)))))


@inlined
def _or_4(source, target, positions, count, table):
    for i in range(count):
        at = 4 * _load_position(positions, i)
        store_i32(target, at, load_i32(target, at) | np.int32(_get(table, np.int64(load_u8(source, i)))))


@outlined
def _move(p):
    """Any number into any column: absent, out of range, or multiplied."""
    source, bitmap, target, positions = _get(p, SOURCE), _get(p, SECOND), _get(p, TARGET), _get(p, POSITIONS)
    flags = _get(p, FLAGS)
    kind, size, null, absent = _get(p, KIND), _get(p, SIZE), _get(p, NULL), _get(p, ABSENT)
    low, high, factor, nullable = _get(p, LOW), _get(p, HIGH), _get(p, FACTOR), _get(p, MASK)
    for i in range(_get(p, COUNT)):
        value, row = _load(kind, source, i), _load_position(positions, i)
        if not _is_present(bitmap, i) or (nullable != 0 and value == null):
            _store(size, target, row, absent)
        elif value < low or value > high:
            _store(size, target, row, absent)
            _flag_out_of_range(flags, row)
        else:
            _store(size, target, row, value * factor)


@outlined
def _look_up(p):
    """Any code by a table. A mask of 0 asks for the whole code, else for these bits of it; ABSENT says to add bits."""
    source, bitmap, target, positions = _get(p, SOURCE), _get(p, SECOND), _get(p, TARGET), _get(p, POSITIONS)
    flags = _get(p, FLAGS)
    kind, size, null, nullable = _get(p, KIND), _get(p, SIZE), _get(p, NULL), _get(p, LOW)
    table, shift, mask, or_bits = _get(p, TABLE), _get(p, SHIFT), _get(p, MASK), _get(p, ABSENT)
    for i in range(_get(p, COUNT)):
        value, row = _load(kind, source, i), _load_position(positions, i)
        if not _is_present(bitmap, i) or (nullable != 0 and value == null):
            index = np.int64(ABSENT_CODE)
        else:
            index = value >> shift
            if mask != 0:
                index = index & mask
            if index < 0 or index > 255:
                index = np.int64(OTHER_CODE)
        entry = _get(table, index)
        if or_bits != 0:
            store_i32(target, 4 * row, load_i32(target, 4 * row) | np.int32(entry))
        else:
            _store(size, target, row, entry)
            if entry >= OUT_OF_RANGE_CODE:
                _flag_out_of_range(flags, row)


@outlined
def _repeat(p):
    """A column of messages, for each entry of their groups."""
    source, target, positions, bitmap = _get(p, SOURCE), _get(p, TARGET), _get(p, POSITIONS), _get(p, SECOND)
    kind, size, null, nullable, parents = _get(p, KIND), _get(p, SIZE), _get(p, NULL), _get(p, MASK), _get(p, EXTRA)
    for j in range(_get(p, COUNT)):
        i = _load_position(parents, j)
        value = _load(kind, source, i)
        if not _is_present(bitmap, i) or (nullable != 0 and value == null):
            value = _get(p, ABSENT)
        _store(size, target, _load_position(positions, j), value)


@outlined
def _entry_index(p):
    offsets, parents, target, positions = _get(p, SOURCE), _get(p, SECOND), _get(p, TARGET), _get(p, POSITIONS)
    for j in range(_get(p, COUNT)):
        first = np.int64(load_i32(offsets, 4 * _load_position(parents, j)))
        store_u16(target, 2 * _load_position(positions, j), np.uint16(j - first))


@outlined
def _set_counts(t):
    """Rows of each node, messages and packets of the batch."""
    counts, nodes, packets = _get(t, COUNTS), _get(t, NODE_COUNT), _get(t, PACKETS)
    for node in range(nodes):
        store_i64(counts, 8 * node, _get(_get(t, NODE_TABLE), NODE * node + N_ROWS))
    messages = np.int64(0)
    for packet in range(packets):
        messages += np.int64(load_u16(_get(t, MESSAGE_COUNTS), 2 * packet))
    store_i64(counts, 8 * nodes, messages)
    store_i64(counts, 8 * nodes + 8, packets)
    for family in range(_get(t, FAMILY_COUNT)):
        store_i64(_get(t, TOTALS), 8 * family, np.int64(0))


@outlined
def _place_lists(t):
    """Put the lists of indices one after the other; returns the bytes that they take."""
    used = (8 - _get(t, SCRATCH) % 8) % 8
    for number in range(_get(t, LIST_COUNT)):
        entry = _get(t, LISTS) + 16 * number
        store_i64(_get(t, BASES), 8 * _get(entry, 0), _get(t, SCRATCH) + used)
        used += 8 * ((_get(_get(t, COUNTS), _get(entry, 1)) + 3) >> 1)  # u32, two more than the count
    return used


@outlined
def _set_addresses(t, p, number):
    """The addresses and the count of an instruction."""
    addresses, bases = _get(t, INSTRUCTION_ADDRESSES) + 24 * ADDRESSES * number, _get(t, BASES)
    for word in range(ADDRESSES):
        base, offset, strides = _get(addresses, 3 * word), _get(addresses, 3 * word + 1), _get(addresses, 3 * word + 2)
        if strides == LOOKED_UP:
            address = load_i64(_get(bases, base), offset)
        else:
            address = _get(bases, base) + offset + strides * _get(_get(t, STRIDES), base)
        store_i64(p, 8 * word, address)
    store_i64(p, 8 * COUNT, _get(_get(t, COUNTS), _get(_get(t, COUNT_NUMBERS), number)))


@kernel
def run_program(t):
    """Run a program on a batch; returns 0, or how many bytes of scratch memory it needs."""
    _set_counts(t)
    needed = _place_lists(t)
    if needed > _get(t, SCRATCH_SIZE):
        return needed
    for number in range(_get(t, INSTRUCTION_COUNT)):
        p = _get(t, INSTRUCTIONS) + 8 * INSTRUCTION * number
        _set_addresses(t, p, number)
        op, count = _get(p, OP), _get(p, COUNT)
        if count == 0:
            continue
        if op < CONSTANT:
            _find_positions(p, op)
            continue
        source, target, positions = _get(p, SOURCE), _get(p, TARGET), _get(p, POSITIONS)
        if op == CONSTANT:
            _constant(target, positions, count, _get(p, SIZE), _get(p, ABSENT))
        elif op == COPY_8:
            for i in range(count):
                store_i64(target, 8 * _load_position(positions, i), load_i64(source, 8 * i))
        elif op == COPY_4:
            for i in range(count):
                store_u32(target, 4 * _load_position(positions, i), load_u32(source, 4 * i))
        elif op == COPY_2:
            for i in range(count):
                store_u16(target, 2 * _load_position(positions, i), load_u16(source, 2 * i))
        elif op == NULL_8:
            _null_8(source, target, positions, count, _get(p, NULL), _get(p, MASK), _get(p, FLAGS))
        elif op == WIDEN_4:
            _widen_4(source, target, positions, count, _get(p, NULL))
        elif op == SCALE_8:
            _scale_8(p, source, target, positions, count)
        elif op == TABLE_1:
            _table_1(source, target, positions, count, _get(p, TABLE), _get(p, FLAGS))
        elif op == TABLE_4:
            _table_4(source, target, positions, count, _get(p, TABLE))
        elif op == OR_4:
            _or_4(source, target, positions, count, _get(p, TABLE))
        elif op == MOVE:
            _move(p)
        elif op == LOOK_UP:
            _look_up(p)
        elif op == REPEAT:
            _repeat(p)
        elif op == ENTRY_INDEX:
            _entry_index(p)
    return np.int64(0)
