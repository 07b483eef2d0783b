"""Single values of the FAST feed: digits, dates, times, decimals, words. Invalid ones have a status of their own."""

from __future__ import annotations

import numpy as np

from umdf.kernels import inlined, load_i64, load_u8, load_u64, outlined

VALID, INVALID, NO_VALUE = 0, 1, 2  # a value, one that does not fit, none
INT64_MIN = -(1 << 63)
DAY_NS = 86_400_000_000_000


@inlined
def power_of_ten(n):
    value = np.int64(1)
    for _ in range(n):
        value *= 10
    return value


@outlined
def parse_digits(text, length, skip_separators, trailing_only):
    """The number that a text says, its status, and how many digits it has. `skip_separators`: those of dates and times
    count for nothing; `trailing_only`: only the digits at the end count."""
    value, count, negative, status = np.int64(0), np.int64(0), False, VALID
    if length == 0:
        return value, NO_VALUE, count
    first = np.int64(0)
    if trailing_only != 0:
        first = length
        while first > 0 and load_u8(text, first - 1) >= 48 and load_u8(text, first - 1) <= 57:
            first -= 1
    elif load_u8(text, 0) == 45 and skip_separators == 0:
        negative, first = True, np.int64(1)
    for at in range(first, length):
        c = np.int64(load_u8(text, at)) - 48
        if c >= 0 and c <= 9:
            if value > 922337203685477580 or (value == 922337203685477580 and c > 7):
                return np.int64(0), INVALID, count
            value = 10 * value + c
            count += 1
        elif skip_separators == 0 or not (c == -3 or c == -2 or c == 10 or c == -16 or c == 36):  # - . : blank T
            status = INVALID
    if count == 0:
        status = INVALID
    return -value if negative else value, status, count


@inlined
def parse_eight_digits(word):
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
def parse_number(text, length, skip_separators, trailing_only):
    """As `parse_digits`, quickly where there is nothing but up to 18 digits."""
    if length > 0 and length <= 18:
        value, at = np.int64(0), np.int64(0)
        while at + 8 <= length and value >= 0:
            part = parse_eight_digits(load_u64(text, at))
            value = value * 100_000_000 + part if part >= 0 else np.int64(-1)
            at += 8
        while at < length and value >= 0:
            c = np.int64(load_u8(text, at)) - 48
            value = value * 10 + c if c >= 0 and c <= 9 else np.int64(-1)
            at += 1
        if value >= 0:
            return value, VALID, length
    return parse_digits(text, length, skip_separators, trailing_only)


@outlined
def days_from_date(date):
    """YYYYMMDD as days since 1970, or SMALLEST."""
    year, month, day = date // 10000, date // 100 % 100, date % 100
    if date < 10101 or date > 99991231 or month < 1 or month > 12 or day < 1:
        return np.int64(INT64_MIN)
    leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0
    days_in_month = np.int64(31)
    if month == 4 or month == 6 or month == 9 or month == 11:
        days_in_month = np.int64(30)
    elif month == 2:
        days_in_month = np.int64(29 if leap else 28)
    if day > days_in_month:
        return np.int64(INT64_MIN)
    # Days of civil dates, with years that start in March.
    y = year - (1 if month <= 2 else 0)
    m = (month + 9) % 12
    return 365 * y + y // 4 - y // 100 + y // 400 + (153 * m + 2) // 5 + day - 1 - 719468


@outlined
def ns_from_time(time):
    """hhmmssSSS as nanoseconds of the day, or SMALLEST."""
    ms, seconds, minutes, hours = time % 1000, time // 1000 % 100, time // 100000 % 100, time // 10000000
    if time < 0 or hours > 23 or minutes > 59 or seconds > 60:
        return np.int64(INT64_MIN)
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + ms * 1_000_000


@inlined
def normalize_timestamp(value, digits):
    """YYYYMMDDHHMMSS[sss] with its milliseconds, or -1."""
    if (digits == 0 and value < 100_000_000_000_000) or digits == 14:
        value *= 1000
    return value if value >= 0 and value <= 99_999_999_999_999_999 else np.int64(-1)


@inlined
def timestamp_ns(days, time_ns):
    """Nanoseconds since 1970, or SMALLEST where one part is wrong; they reach from 1677 to 2262."""
    if days < -106_750 or days > 106_750 or time_ns < 0:
        return np.int64(INT64_MIN)
    return days * DAY_NS + time_ns


@outlined
def parse_decimal(text, length):
    """Mantissa, exponent and status of a decimal that is written out."""
    mantissa, exponent, status, point = np.int64(0), np.int64(0), VALID, False
    if length == 0:
        return mantissa, exponent, NO_VALUE
    first = np.int64(1) if load_u8(text, 0) == 45 else np.int64(0)
    for at in range(first, length):
        c = np.int64(load_u8(text, at)) - 48
        if c == -2 and not point:
            point = True
        elif c < 0 or c > 9 or mantissa > 92233720368547757:
            status = INVALID
        else:
            mantissa = 10 * mantissa + c
            exponent -= 1 if point else 0
    return -mantissa if first == 1 else mantissa, exponent, status if length > first else INVALID


@inlined
def scale_decimal(mantissa, exponent):
    """mantissa · 10^exponent if that is a whole number of 64 bits, and its status."""
    if mantissa == 0:
        return np.int64(0), VALID
    if exponent >= 0:
        if exponent > 18:
            return np.int64(0), INVALID
        power = power_of_ten(exponent)
        value = mantissa * power
        if exponent <= 9 and mantissa < 1 << 31 and mantissa > -(1 << 31):
            return value, VALID
        max_mantissa = np.int64(9223372036854775807) // power
        return value, VALID if mantissa <= max_mantissa and mantissa >= -max_mantissa else INVALID
    if exponent < -18:
        return np.int64(0), INVALID
    power = power_of_ten(-exponent)
    value = mantissa // power
    return value, VALID if value * power == mantissa and value != INT64_MIN else INVALID


@outlined
def lookup_word(table, count, text, length):
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
