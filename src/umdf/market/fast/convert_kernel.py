"""Decoded FAST columns → columns of events. An instruction for each: where values come from, what they become.

A value that is absent becomes ABSENT, or stays as it was (KEEP); one that its column cannot hold exactly becomes NULL
and its row gets the flag OUT_OF_RANGE. Rows take the source row that INDEX says; -1 is none.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import (
    inlined,
    kernel,
    load_i32,
    load_i64,
    load_u8,
    load_u32,
    outlined,
    store_i32,
    store_i64,
    store_u8,
    store_u16,
)
from umdf.market.fast.values_kernel import (
    DAY_NS,
    INT64_MIN,
    INVALID,
    NO_VALUE,
    VALID,
    days_from_date,
    lookup_word,
    normalize_timestamp,
    ns_from_time,
    parse_decimal,
    parse_number,
    scale_decimal,
    timestamp_ns,
)

# An instruction.
(
    OP,
    INDEX,
    KINDS,
    KIND_MASK,
    KEEP_PREVIOUS,
    TARGET,
    WIDTH,
    ABSENT,
    NULL,
    SOURCE,
    SECOND_SOURCE,
    BITMAP,
    TYPE,
    PARAM,
    COUNT,
    FLAGS,
    SOURCE_NUMBER,
    TARGET_NUMBER,
    GROUP_NUMBER,
    LINKED_WORD,
    LINKED_COLUMN,
) = range(21)
INSTRUCTION = 21
# The table of arguments of `convert_columns`. Of each tag its group and the offsets of its values, of its second column
# and of its bitmap within the memory of that group (-1: none). Of each group the address of that memory (0: no
# rows) and of the index of rows.
INSTRUCTIONS, INSTRUCTION_COUNT, TAGS, GROUP_MEMORY, GROUP_INDEX, FLAGS_COLUMN = range(6)
ROWS, MEMORY, STRIDE, ROW_KINDS, ROW_FLAGS, SENT = range(6, 12)
ARGUMENTS = 12
TAG_GROUP, TAG_VALUES, TAG_SECOND, TAG_BITMAP = range(4)
TAG = 4
NO_TAG, EVERY_KIND = -1, -1
NO_COLUMN, SENT_COLUMN = -1, -2  # LINKED_COLUMN: none, or the send times of the messages
NOT_SENT = -(1 << 31) + 1  # a date that DAY_OF may still give
# What is done. A clock is added to the days that stand at PARAM; NOTHING is absent throughout.
NUMBER, DECIMAL, CHAR, DATE, TIMESTAMP, TIME_OF_DAY, WORDS, CODES, FILL, DAY_OF, ALL_ABSENT = range(11)
# Types of a source. MORE: of a text its bytes, of numbers their exponents (or 0).
INT32, UINT32, INT64, UINT64, TEXT = range(5)
TYPES = {"int32": INT32, "uInt32": UINT32, "int64": INT64, "uInt64": UINT64}
OUT_OF_RANGE = 1 << 10  # of `families.FLAGS`


@inlined
def _load_value(instruction, row, skip_separators, trailing_only):
    """The number in a row of the source, its status, and the digits of a text (0 of a number)."""
    kind, source = load_i64(instruction, 8 * TYPE), load_i64(instruction, 8 * SOURCE)
    if kind == UINT32:
        return np.int64(load_u32(source, 4 * row)), VALID, np.int64(0)
    if kind == INT32:
        return np.int64(load_i32(source, 4 * row)), VALID, np.int64(0)
    if kind == TEXT:
        start = np.int64(load_i32(source, 4 * row))
        size = np.int64(load_i32(source, 4 * row + 4)) - start
        return parse_number(load_i64(instruction, 8 * SECOND_SOURCE) + start, size, skip_separators, trailing_only)
    return load_i64(source, 8 * row), VALID, np.int64(0)  # unsigned ones are bit-cast


@inlined
def _load_decimal(instruction, row):
    more, scale = load_i64(instruction, 8 * SECOND_SOURCE), load_i64(instruction, 8 * PARAM)
    if load_i64(instruction, 8 * TYPE) == TEXT:
        start = np.int64(load_i32(load_i64(instruction, 8 * SOURCE), 4 * row))
        size = np.int64(load_i32(load_i64(instruction, 8 * SOURCE), 4 * row + 4)) - start
        mantissa, exponent, status = parse_decimal(more + start, size)
        if status != VALID:
            return np.int64(0), status
        return scale_decimal(mantissa, exponent + scale)
    mantissa, _, _ = _load_value(instruction, row, 0, 0)
    if load_i64(instruction, 8 * TYPE) == UINT64 and mantissa < 0:
        return np.int64(0), INVALID
    exponent = np.int64(load_i32(more, 4 * row)) if more != 0 else np.int64(0)
    return scale_decimal(mantissa, exponent + scale)


@outlined
def _load_word_bits(instruction, row):
    """The bits of space-separated words; what is no word of the table has the bit of its first line."""
    table, count = load_i64(instruction, 8 * PARAM), load_i64(instruction, 8 * COUNT)
    source, content = load_i64(instruction, 8 * SOURCE), load_i64(instruction, 8 * SECOND_SOURCE)
    at, end = np.int64(load_i32(source, 4 * row)), np.int64(load_i32(source, 4 * row + 4))
    bits = np.int64(0)
    while at < end:
        start = at
        while at < end and load_u8(content, at) != 32:
            at += 1
        if at > start:
            found = lookup_word(table + 16, count - 1, content + start, at - start)
            bits |= found if found >= 0 else load_i64(table, 8)
        at += 1
    return bits


@inlined
def _text_row(instruction, row):
    start = np.int64(load_i32(load_i64(instruction, 8 * SOURCE), 4 * row))
    return load_i64(instruction, 8 * SECOND_SOURCE) + start, np.int64(
        load_i32(load_i64(instruction, 8 * SOURCE), 4 * row + 4)
    ) - start


@outlined
def _load_char(instruction, row):
    """The only character of a text or the only digit of a number, and its status."""
    if load_i64(instruction, 8 * TYPE) == TEXT:
        text, size = _text_row(instruction, row)
        if size == 0:
            return np.int64(0), NO_VALUE
        return np.int64(load_u8(text, 0)), VALID if size == 1 else INVALID
    value, _, _ = _load_value(instruction, row, 0, 0)
    return value + 48, VALID if value >= 0 and value <= 9 else INVALID


@outlined
def _load_code(instruction, row):
    """What a text stands for: by the table, else as a number."""
    if load_i64(instruction, 8 * TYPE) == TEXT:
        text, size = _text_row(instruction, row)
        found = lookup_word(load_i64(instruction, 8 * PARAM), load_i64(instruction, 8 * COUNT), text, size)
        if found >= 0:
            return found, VALID
    value, status, _ = _load_value(instruction, row, 0, 0)
    return value, status


@inlined
def _convert_value(instruction, op, source_row, row, previous, previous_result):
    """The value of a row, its status, and what was seen last and what it meant: dates and times hardly change."""
    if op == NUMBER:
        value, status, _ = _load_value(instruction, source_row, 0, load_i64(instruction, 8 * PARAM))
        return value, status, previous, previous_result
    if op == DECIMAL:
        value, status = _load_decimal(instruction, source_row)
        return value, status, previous, previous_result
    if op == DATE:
        date, status, _ = _load_value(instruction, source_row, 1, 0)
        if date != previous:
            previous, previous_result = date, days_from_date(date)
        return (
            previous_result,
            INVALID if status == VALID and previous_result == INT64_MIN else status,
            previous,
            previous_result,
        )
    if op == TIMESTAMP:
        stamp, status, digits = _load_value(instruction, source_row, 1, 0)
        stamp = normalize_timestamp(stamp, digits)
        date = stamp // 1_000_000_000
        if date != previous:
            previous, previous_result = date, days_from_date(date)
        value = timestamp_ns(previous_result, ns_from_time(stamp - date * 1_000_000_000))
        return value, INVALID if status == VALID and value == INT64_MIN else status, previous, previous_result
    if op == TIME_OF_DAY:
        time, status, digits = _load_value(instruction, source_row, 1, 0)
        time = time * 1000 if digits == 6 else time
        if time != previous:
            previous, previous_result = time, ns_from_time(time)
        value = timestamp_ns(np.int64(load_i32(load_i64(instruction, 8 * PARAM), 4 * row)), previous_result)
        return value, INVALID if status == VALID and value == INT64_MIN else status, previous, previous_result
    if op == CHAR:
        value, status = _load_char(instruction, source_row)
        return value, status, previous, previous_result
    if op == WORDS:
        return _load_word_bits(instruction, source_row), VALID, previous, previous_result
    if op == CODES:
        value, status = _load_code(instruction, source_row)
        return value, status, previous, previous_result
    return load_i64(instruction, 8 * PARAM), VALID, previous, previous_result


@inlined
def _store_value(target, width, row, value):
    if width == 8:
        store_i64(target, 8 * row, value)
    elif width == 4:
        store_i32(target, 4 * row, np.int32(value))
    elif width == 1:
        store_u8(target, row, np.uint8(value & 255))
    else:
        store_u16(target, 2 * row, np.uint16(value & 65535))


@inlined
def _all_absent(bitmap, rows):
    found = np.uint8(0)
    for byte in range((rows + 7) >> 3):
        found |= load_u8(bitmap, byte)
    return found == 0


@inlined
def _fill_missing_days(instruction, rows):
    """The day of a time, for dates that were not sent."""
    index, target, source = (
        load_i64(instruction, 8 * INDEX),
        load_i64(instruction, 8 * TARGET),
        load_i64(instruction, 8 * SOURCE),
    )
    for row in range(rows):
        if load_i32(target, 4 * row) == NOT_SENT:
            at = np.int64(load_i32(index, 4 * row)) if index != 0 else np.int64(row)
            if at >= 0 and load_i64(source, 8 * at) != INT64_MIN:
                store_i32(target, 4 * row, np.int32(load_i64(source, 8 * at) // DAY_NS))


@inlined
def _convert_column(instruction, op, rows):
    index, kinds, kind_mask = (
        load_i64(instruction, 8 * INDEX),
        load_i64(instruction, 8 * KINDS),
        load_i64(instruction, 8 * KIND_MASK),
    )
    target, width, bitmap = (
        load_i64(instruction, 8 * TARGET),
        load_i64(instruction, 8 * WIDTH),
        load_i64(instruction, 8 * BITMAP),
    )
    absent, null, keep = (
        load_i64(instruction, 8 * ABSENT),
        load_i64(instruction, 8 * NULL),
        load_i64(instruction, 8 * KEEP_PREVIOUS),
    )
    flags, limit = load_i64(instruction, 8 * FLAGS), np.int64(0)
    if op != CHAR and op != WORDS and width < 8:
        limit = np.int64(1) << (8 * width - 1)
    previous = previous_result = np.int64(INT64_MIN)
    if op == ALL_ABSENT or (index == 0 and bitmap != 0 and keep == 0 and _all_absent(bitmap, rows)):
        for row in range(rows):
            _store_value(target, width, row, absent)
        return
    for row in range(rows):
        at = np.int64(load_i32(index, 4 * row)) if index != 0 else np.int64(row)
        is_present = at >= 0
        if kinds != 0:
            is_present = is_present and (kind_mask >> np.int64(load_u8(kinds, row))) & 1 != 0
        if is_present and bitmap != 0:
            is_present = load_u8(bitmap, at >> 3) >> (at & 7) & 1 != 0
        status, value = NO_VALUE, absent
        if is_present:
            value, status, previous, previous_result = _convert_value(
                instruction, op, at, row, previous, previous_result
            )
            if status == VALID and (value == null or (limit != 0 and (value >= limit or value < -limit))):
                status = INVALID
        if status == VALID:
            _store_value(target, width, row, value)
        elif status == INVALID:
            _store_value(target, width, row, null)
            if flags != 0:
                store_i32(flags, 4 * row, np.int32(load_i32(flags, 4 * row) | OUT_OF_RANGE))
        elif keep == 0:
            _store_value(target, width, row, absent)


@inlined
def _offset_address(base, offset):
    return base + offset if base != 0 and offset >= 0 else np.int64(0)


@outlined
def _set_addresses(t, instruction):
    """The addresses of an instruction, for this batch."""
    memory, stride = load_i64(t, 8 * MEMORY), load_i64(t, 8 * STRIDE)
    number = load_i64(instruction, 8 * SOURCE_NUMBER)
    if number != NO_TAG:
        tag = load_i64(t, 8 * TAGS) + 8 * TAG * number
        base = load_i64(load_i64(t, 8 * GROUP_MEMORY), 8 * load_i64(tag, 8 * TAG_GROUP))
        store_i64(instruction, 8 * SOURCE, _offset_address(base, load_i64(tag, 8 * TAG_VALUES)))
        store_i64(instruction, 8 * SECOND_SOURCE, _offset_address(base, load_i64(tag, 8 * TAG_SECOND)))
        store_i64(instruction, 8 * BITMAP, _offset_address(base, load_i64(tag, 8 * TAG_BITMAP)))
    column = load_i64(instruction, 8 * TARGET_NUMBER)
    store_i64(instruction, 8 * TARGET, memory + stride * column)
    group = load_i64(instruction, 8 * GROUP_NUMBER)
    store_i64(instruction, 8 * INDEX, load_i64(load_i64(t, 8 * GROUP_INDEX), 8 * group))
    kinds = load_i64(t, 8 * ROW_KINDS) if load_i64(instruction, 8 * KIND_MASK) != EVERY_KIND else np.int64(0)
    store_i64(instruction, 8 * KINDS, kinds)
    flags, flags_column = load_i64(t, 8 * ROW_FLAGS), load_i64(t, 8 * FLAGS_COLUMN)
    if flags_column >= 0:  # its own column comes first
        flags = memory + stride * flags_column if column != flags_column else np.int64(0)
    store_i64(instruction, 8 * FLAGS, flags)
    linked = load_i64(instruction, 8 * LINKED_COLUMN)
    if linked == SENT_COLUMN:
        store_i64(instruction, 8 * load_i64(instruction, 8 * LINKED_WORD), load_i64(t, 8 * SENT))
    elif linked != NO_COLUMN:
        store_i64(instruction, 8 * load_i64(instruction, 8 * LINKED_WORD), memory + stride * linked)


@kernel
def convert_columns(t):
    """Run the instructions of a plan."""
    rows = load_i64(t, 8 * ROWS)
    for number in range(load_i64(t, 8 * INSTRUCTION_COUNT)):
        instruction = load_i64(t, 8 * INSTRUCTIONS) + 8 * INSTRUCTION * number
        _set_addresses(t, instruction)
        op = load_i64(instruction, 8 * OP)
        if op == NUMBER:
            _convert_column(instruction, NUMBER, rows)
        elif op == DECIMAL:
            _convert_column(instruction, DECIMAL, rows)
        elif op == DATE:
            _convert_column(instruction, DATE, rows)
        elif op == TIME_OF_DAY:
            _convert_column(instruction, TIME_OF_DAY, rows)
        elif op == DAY_OF:
            _fill_missing_days(instruction, rows)
        else:
            _convert_column(instruction, op, rows)
