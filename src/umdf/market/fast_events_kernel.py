"""Decoded FAST columns → columns of events. A table has a line for each: where values come from, what they become.

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
from umdf.market.fast_values_kernel import (
    BAD,
    DAY_NS,
    FINE,
    NONE,
    SMALLEST,
    clock_of,
    days_of,
    decimal_text,
    moment,
    scaled,
    text_value,
    whole_stamp,
    word_value,
)

# A line.
OP, INDEX, KINDS, ON, KEEP, TARGET, WIDTH, ABSENT, NULL, SOURCE, MORE, BITMAP, TYPE, PARAM, COUNT, FLAGS = range(16)
LINE = 16
NOT_SENT = -(1 << 31) + 1  # a date that DAY_OF may still give
# What is done. A clock is added to the days that stand at PARAM; NOTHING is absent throughout.
NUMBER, DECIMAL, CHAR, DATE, STAMP, CLOCK, WORDS, CODES, FILL, DAY_OF, NOTHING = range(11)
# Types of a source. MORE: of a text its bytes, of numbers their exponents (or 0).
INT32, UINT32, INT64, UINT64, TEXT = range(5)
TYPES = {"int32": INT32, "uInt32": UINT32, "int64": INT64, "uInt64": UINT64}
OUT_OF_RANGE = 1 << 10  # of events.FLAGS


@inlined
def _value(line, row, lenient, anywhere):
    """The number in a row of the source, its status, and the digits of a text (0 of a number)."""
    kind, source = load_i64(line, 8 * TYPE), load_i64(line, 8 * SOURCE)
    if kind == UINT32:
        return np.int64(load_u32(source, 4 * row)), FINE, np.int64(0)
    if kind == INT32:
        return np.int64(load_i32(source, 4 * row)), FINE, np.int64(0)
    if kind == TEXT:
        start = np.int64(load_i32(source, 4 * row))
        size = np.int64(load_i32(source, 4 * row + 4)) - start
        return text_value(load_i64(line, 8 * MORE) + start, size, lenient, anywhere)
    return load_i64(source, 8 * row), FINE, np.int64(0)  # unsigned ones are bit-cast


@inlined
def _decimal(line, row):
    more, scale = load_i64(line, 8 * MORE), load_i64(line, 8 * PARAM)
    if load_i64(line, 8 * TYPE) == TEXT:
        start = np.int64(load_i32(load_i64(line, 8 * SOURCE), 4 * row))
        size = np.int64(load_i32(load_i64(line, 8 * SOURCE), 4 * row + 4)) - start
        mantissa, exponent, status = decimal_text(more + start, size)
        if status != FINE:
            return np.int64(0), status
        return scaled(mantissa, exponent + scale)
    mantissa, _, _ = _value(line, row, 0, 0)
    if load_i64(line, 8 * TYPE) == UINT64 and mantissa < 0:
        return np.int64(0), BAD
    exponent = np.int64(load_i32(more, 4 * row)) if more != 0 else np.int64(0)
    return scaled(mantissa, exponent + scale)


@outlined
def _words(line, row):
    """The bits of space-separated words; what is no word of the table has the bit of its first line."""
    table, count = load_i64(line, 8 * PARAM), load_i64(line, 8 * COUNT)
    source, content = load_i64(line, 8 * SOURCE), load_i64(line, 8 * MORE)
    at, end = np.int64(load_i32(source, 4 * row)), np.int64(load_i32(source, 4 * row + 4))
    bits = np.int64(0)
    while at < end:
        start = at
        while at < end and load_u8(content, at) != 32:
            at += 1
        if at > start:
            found = word_value(table + 16, count - 1, content + start, at - start)
            bits |= found if found >= 0 else load_i64(table, 8)
        at += 1
    return bits


@inlined
def _text_row(line, row):
    start = np.int64(load_i32(load_i64(line, 8 * SOURCE), 4 * row))
    return load_i64(line, 8 * MORE) + start, np.int64(load_i32(load_i64(line, 8 * SOURCE), 4 * row + 4)) - start


@outlined
def _char(line, row):
    """The only character of a text or the only digit of a number, and its status."""
    if load_i64(line, 8 * TYPE) == TEXT:
        text, size = _text_row(line, row)
        if size == 0:
            return np.int64(0), NONE
        return np.int64(load_u8(text, 0)), FINE if size == 1 else BAD
    value, _, _ = _value(line, row, 0, 0)
    return value + 48, FINE if value >= 0 and value <= 9 else BAD


@outlined
def _code(line, row):
    """What a text stands for: by the table, else as a number."""
    if load_i64(line, 8 * TYPE) == TEXT:
        text, size = _text_row(line, row)
        found = word_value(load_i64(line, 8 * PARAM), load_i64(line, 8 * COUNT), text, size)
        if found >= 0:
            return found, FINE
    value, status, _ = _value(line, row, 0, 0)
    return value, status


@inlined
def _converted(line, op, source_row, row, seen, meant):
    """The value of a row, its status, and what was seen last and what it meant: dates and times hardly change."""
    if op == NUMBER:
        value, status, _ = _value(line, source_row, 0, load_i64(line, 8 * PARAM))
        return value, status, seen, meant
    if op == DECIMAL:
        value, status = _decimal(line, source_row)
        return value, status, seen, meant
    if op == DATE:
        date, status, _ = _value(line, source_row, 1, 0)
        if date != seen:
            seen, meant = date, days_of(date)
        return meant, BAD if status == FINE and meant == SMALLEST else status, seen, meant
    if op == STAMP:
        stamp, status, digits = _value(line, source_row, 1, 0)
        stamp = whole_stamp(stamp, digits)
        date = stamp // 1_000_000_000
        if date != seen:
            seen, meant = date, days_of(date)
        value = moment(meant, clock_of(stamp - date * 1_000_000_000))
        return value, BAD if status == FINE and value == SMALLEST else status, seen, meant
    if op == CLOCK:
        time, status, digits = _value(line, source_row, 1, 0)
        time = time * 1000 if digits == 6 else time
        if time != seen:
            seen, meant = time, clock_of(time)
        value = moment(np.int64(load_i32(load_i64(line, 8 * PARAM), 4 * row)), meant)
        return value, BAD if status == FINE and value == SMALLEST else status, seen, meant
    if op == CHAR:
        value, status = _char(line, source_row)
        return value, status, seen, meant
    if op == WORDS:
        return _words(line, source_row), FINE, seen, meant
    if op == CODES:
        value, status = _code(line, source_row)
        return value, status, seen, meant
    return load_i64(line, 8 * PARAM), FINE, seen, meant


@inlined
def _put(target, width, row, value):
    if width == 8:
        store_i64(target, 8 * row, value)
    elif width == 4:
        store_i32(target, 4 * row, np.int32(value))
    elif width == 1:
        store_u8(target, row, np.uint8(value & 255))
    else:
        store_u16(target, 2 * row, np.uint16(value & 65535))


@inlined
def _no_bit(bitmap, rows):
    found = np.uint8(0)
    for byte in range((rows + 7) >> 3):
        found |= load_u8(bitmap, byte)
    return found == 0


@inlined
def _days_of(line, rows):
    """The day of a time, for dates that were not sent."""
    index, target, source = load_i64(line, 8 * INDEX), load_i64(line, 8 * TARGET), load_i64(line, 8 * SOURCE)
    for row in range(rows):
        if load_i32(target, 4 * row) == NOT_SENT:
            at = np.int64(load_i32(index, 4 * row)) if index != 0 else np.int64(row)
            if at >= 0 and load_i64(source, 8 * at) != SMALLEST:
                store_i32(target, 4 * row, np.int32(load_i64(source, 8 * at) // DAY_NS))


@inlined
def _column(line, op, rows):
    index, kinds, on = load_i64(line, 8 * INDEX), load_i64(line, 8 * KINDS), load_i64(line, 8 * ON)
    target, width, bitmap = load_i64(line, 8 * TARGET), load_i64(line, 8 * WIDTH), load_i64(line, 8 * BITMAP)
    absent, null, keep = load_i64(line, 8 * ABSENT), load_i64(line, 8 * NULL), load_i64(line, 8 * KEEP)
    flags, limit = load_i64(line, 8 * FLAGS), np.int64(0)
    if op != CHAR and op != WORDS and width < 8:
        limit = np.int64(1) << (8 * width - 1)
    seen = meant = np.int64(SMALLEST)
    if op == NOTHING or (index == 0 and bitmap != 0 and keep == 0 and _no_bit(bitmap, rows)):
        for row in range(rows):
            _put(target, width, row, absent)
        return
    for row in range(rows):
        at = np.int64(load_i32(index, 4 * row)) if index != 0 else np.int64(row)
        there = at >= 0
        if kinds != 0:
            there = there and (on >> np.int64(load_u8(kinds, row))) & 1 != 0
        if there and bitmap != 0:
            there = load_u8(bitmap, at >> 3) >> (at & 7) & 1 != 0
        status, value = NONE, absent
        if there:
            value, status, seen, meant = _converted(line, op, at, row, seen, meant)
            if status == FINE and (value == null or (limit != 0 and (value >= limit or value < -limit))):
                status = BAD
        if status == FINE:
            _put(target, width, row, value)
        elif status == BAD:
            _put(target, width, row, null)
            if flags != 0:
                store_i32(flags, 4 * row, np.int32(load_i32(flags, 4 * row) | OUT_OF_RANGE))
        elif keep == 0:
            _put(target, width, row, absent)


@kernel
def convert(lines, count, rows):
    """Fill the columns of `count` lines, of `rows` rows each."""
    for number in range(count):
        line = lines + 8 * LINE * number
        op = load_i64(line, 8 * OP)
        if op == NUMBER:
            _column(line, NUMBER, rows)
        elif op == DECIMAL:
            _column(line, DECIMAL, rows)
        elif op == DATE:
            _column(line, DATE, rows)
        elif op == CLOCK:
            _column(line, CLOCK, rows)
        elif op == DAY_OF:
            _days_of(line, rows)
        else:
            _column(line, op, rows)
