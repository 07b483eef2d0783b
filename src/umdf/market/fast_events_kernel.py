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
    load_u64,
    outlined,
    store_i32,
    store_i64,
    store_u8,
    store_u16,
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
SMALLEST = -(1 << 63)

FINE, BAD, NONE = 0, 1, 2
DAY_NS = 86_400_000_000_000


@inlined
def _power(n):
    value = np.int64(1)
    for _ in range(n):
        value *= 10
    return value


@outlined
def _digits(text, length, lenient, anywhere):
    """The number that a text says, its status, and how many digits it has. `lenient`: separators of dates and times
    count for nothing; `anywhere`: only the digits at the end count."""
    value, count, negative, status = np.int64(0), np.int64(0), False, FINE
    if length == 0:
        return value, NONE, count
    first = np.int64(0)
    if anywhere != 0:
        first = length
        while first > 0 and load_u8(text, first - 1) >= 48 and load_u8(text, first - 1) <= 57:
            first -= 1
    elif load_u8(text, 0) == 45 and lenient == 0:
        negative, first = True, np.int64(1)
    for at in range(first, length):
        c = np.int64(load_u8(text, at)) - 48
        if c >= 0 and c <= 9:
            if value > 922337203685477580 or (value == 922337203685477580 and c > 7):
                return np.int64(0), BAD, count
            value = 10 * value + c
            count += 1
        elif lenient == 0 or not (c == -3 or c == -2 or c == 10 or c == -16 or c == 36):  # - . : blank T
            status = BAD
    if count == 0:
        status = BAD
    return -value if negative else value, status, count


@inlined
def _eight_digits(word):
    """The number that eight bytes say, or -1 if they are not all digits."""
    high = np.uint64(0xF0F0F0F0F0F0F0F0)
    zeros = np.uint64(0x3030303030303030)
    if word & high != zeros or (word + np.uint64(0x0606060606060606)) & high != zeros:
        return np.int64(-1)
    pairs = word - zeros
    pairs = pairs * np.uint64(10) + (pairs >> np.uint64(8))
    mask = np.uint64(0x000000FF000000FF)
    upper = (pairs & mask) * np.uint64(0x000F424000000064)
    lower = (pairs >> np.uint64(16) & mask) * np.uint64(0x0000271000000001)
    return np.int64((upper + lower) >> np.uint64(32))


@inlined
def _text_value(text, length, lenient, anywhere):
    """As `_digits`, quickly where there is nothing but up to 18 digits."""
    if length > 0 and length <= 18:
        value, at = np.int64(0), np.int64(0)
        while at + 8 <= length and value >= 0:
            part = _eight_digits(load_u64(text, at))
            value = value * 100_000_000 + part if part >= 0 else np.int64(-1)
            at += 8
        while at < length and value >= 0:
            c = np.int64(load_u8(text, at)) - 48
            value = value * 10 + c if c >= 0 and c <= 9 else np.int64(-1)
            at += 1
        if value >= 0:
            return value, FINE, length
    return _digits(text, length, lenient, anywhere)


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
        return _text_value(load_i64(line, 8 * MORE) + start, size, lenient, anywhere)
    return load_i64(source, 8 * row), FINE, np.int64(0)  # unsigned ones are bit-cast


@outlined
def _days(date):
    """YYYYMMDD as days since 1970, or SMALLEST."""
    year, month, day = date // 10000, date // 100 % 100, date % 100
    if date < 10101 or date > 99991231 or month < 1 or month > 12 or day < 1:
        return np.int64(SMALLEST)
    leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0
    longest = np.int64(31)
    if month == 4 or month == 6 or month == 9 or month == 11:
        longest = np.int64(30)
    elif month == 2:
        longest = np.int64(29 if leap else 28)
    if day > longest:
        return np.int64(SMALLEST)
    # Days of civil dates, with years that start in March.
    y = year - (1 if month <= 2 else 0)
    m = (month + 9) % 12
    return 365 * y + y // 4 - y // 100 + y // 400 + (153 * m + 2) // 5 + day - 1 - 719468


@outlined
def _clock(time):
    """hhmmssSSS as nanoseconds of the day, or SMALLEST."""
    ms, seconds, minutes, hours = time % 1000, time // 1000 % 100, time // 100000 % 100, time // 10000000
    if time < 0 or hours > 23 or minutes > 59 or seconds > 60:
        return np.int64(SMALLEST)
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + ms * 1_000_000


@inlined
def _whole_stamp(value, digits):
    """YYYYMMDDHHMMSS[sss] with its milliseconds, or -1."""
    if (digits == 0 and value < 100_000_000_000_000) or digits == 14:
        value *= 1000
    return value if value >= 0 and value <= 99_999_999_999_999_999 else np.int64(-1)


@inlined
def _moment(days, clock):
    """Nanoseconds since 1970, or SMALLEST where one part is wrong; they reach from 1677 to 2262."""
    if days < -106_750 or days > 106_750 or clock < 0:
        return np.int64(SMALLEST)
    return days * DAY_NS + clock


@outlined
def _decimal_text(text, length):
    """Mantissa, exponent and status of a decimal that is written out."""
    mantissa, exponent, status, point = np.int64(0), np.int64(0), FINE, False
    if length == 0:
        return mantissa, exponent, NONE
    first = np.int64(1) if load_u8(text, 0) == 45 else np.int64(0)
    for at in range(first, length):
        c = np.int64(load_u8(text, at)) - 48
        if c == -2 and not point:
            point = True
        elif c < 0 or c > 9 or mantissa > 92233720368547757:
            status = BAD
        else:
            mantissa = 10 * mantissa + c
            exponent -= 1 if point else 0
    return -mantissa if first == 1 else mantissa, exponent, status if length > first else BAD


@inlined
def _scaled(mantissa, exponent):
    """mantissa · 10^exponent if that is a whole number of 64 bits, and its status."""
    if mantissa == 0:
        return np.int64(0), FINE
    if exponent >= 0:
        if exponent > 18:
            return np.int64(0), BAD
        power = _power(exponent)
        value = mantissa * power
        if exponent <= 9 and mantissa < 1 << 31 and mantissa > -(1 << 31):
            return value, FINE
        most = np.int64(9223372036854775807) // power
        return value, FINE if mantissa <= most and mantissa >= -most else BAD
    if exponent < -18:
        return np.int64(0), BAD
    power = _power(-exponent)
    value = mantissa // power
    return value, FINE if value * power == mantissa and value != SMALLEST else BAD


@inlined
def _decimal(line, row):
    more, scale = load_i64(line, 8 * MORE), load_i64(line, 8 * PARAM)
    if load_i64(line, 8 * TYPE) == TEXT:
        start = np.int64(load_i32(load_i64(line, 8 * SOURCE), 4 * row))
        size = np.int64(load_i32(load_i64(line, 8 * SOURCE), 4 * row + 4)) - start
        mantissa, exponent, status = _decimal_text(more + start, size)
        if status != FINE:
            return np.int64(0), status
        return _scaled(mantissa, exponent + scale)
    mantissa, _, _ = _value(line, row, 0, 0)
    if load_i64(line, 8 * TYPE) == UINT64 and mantissa < 0:
        return np.int64(0), BAD
    exponent = np.int64(load_i32(more, 4 * row)) if more != 0 else np.int64(0)
    return _scaled(mantissa, exponent + scale)


@outlined
def _word(table, count, text, length):
    """What a word stands for, or -1: (word as eight bytes, value) each."""
    if length > 8:
        return np.int64(-1)
    packed = np.uint64(0)
    for at in range(length):
        packed |= np.uint64(load_u8(text, at)) << np.uint64(8 * at)
    for number in range(count):
        if load_u64(table, 16 * number) == packed:
            return load_i64(table, 16 * number + 8)
    return np.int64(-1)


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
            found = _word(table + 16, count - 1, content + start, at - start)
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
        found = _word(load_i64(line, 8 * PARAM), load_i64(line, 8 * COUNT), text, size)
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
            seen, meant = date, _days(date)
        return meant, BAD if status == FINE and meant == SMALLEST else status, seen, meant
    if op == STAMP:
        stamp, status, digits = _value(line, source_row, 1, 0)
        stamp = _whole_stamp(stamp, digits)
        date = stamp // 1_000_000_000
        if date != seen:
            seen, meant = date, _days(date)
        value = _moment(meant, _clock(stamp - date * 1_000_000_000))
        return value, BAD if status == FINE and value == SMALLEST else status, seen, meant
    if op == CLOCK:
        time, status, digits = _value(line, source_row, 1, 0)
        time = time * 1000 if digits == 6 else time
        if time != seen:
            seen, meant = time, _clock(time)
        value = _moment(np.int64(load_i32(load_i64(line, 8 * PARAM), 4 * row)), meant)
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
