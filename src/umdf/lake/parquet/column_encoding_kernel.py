"""Encodes an integer column as a Parquet page: definition levels, then deltas or dictionary codes.

Invariant: absent values (0 in the bitmap) are in the levels only, followed by the values that are present. All widths
are widened to int64 by `encode_column`, so deltas and codes handle a single type.

Encodings are those of Apache Parquet's format: RLE/bit-packed hybrid (RLE = 3), DELTA_BINARY_PACKED (= 5).
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
    load_u64,
    store_i64,
    store_u8,
    store_u32,
    store_u64,
)

# Results of `encode_column`.
VALUE_COUNT, LOW, HIGH, DISTINCT = range(4)
RESULTS = 4
DELTAS, CODES = 0, 1  # requested encoding
# The table of `_assign_codes`: a slot has a value, then the round in which it was inserted, and its code.
SLOTS = 1 << 16
SLOT = 16
SMALL_RANGE = 1 << 12  # size of the table of `_assign_small_codes`, after it: for values in such a range
MAX_DICTIONARY_VALUES = 1 << 15  # with more values no dictionary is used
# After this many values, a dictionary with three quarters of them is given up.
DICTIONARY_TRIAL_VALUES = 1 << 12
DELTA_BLOCK, MINIBLOCK = 128, 32  # values per block of deltas, and per miniblock
MIN_RUN = 16  # runs of at least this many equal codes are run-length encoded


@inlined
def _write_varint(out, at, value):
    value = np.uint64(value)
    while value >= np.uint64(128):
        store_u8(out, at, np.uint8((value & np.uint64(127)) | np.uint64(128)))
        value >>= np.uint64(7)
        at += 1
    store_u8(out, at, np.uint8(value))
    return at + 1


@inlined
def _zigzag(value):
    return np.uint64(value << np.int64(1)) ^ np.uint64(value >> np.int64(63))


@inlined
def _bit_width(value):
    """Number of bits of an unsigned number."""
    count = np.int64(0)
    for step in (32, 16, 8, 4, 2, 1):
        if value >> np.uint64(step) != np.uint64(0):
            count += step
            value >>= np.uint64(step)
    return count + np.int64(value)


@inlined
def _write_levels(bitmap, offset, rows, out):
    """1 where a value is present: one bit-packed run, or one run of equal levels."""
    groups = (rows + 7) // 8
    at = _write_varint(out, 4, groups * 2 + 1)
    shift, first = np.uint64(offset & 7), offset >> 3
    last = (offset + rows - 1) >> 3
    for group in range(groups):
        byte = np.uint64(load_u8(bitmap, first + group)) >> shift
        if shift != np.uint64(0) and first + group + 1 <= last:
            byte |= np.uint64(load_u8(bitmap, first + group + 1)) << (np.uint64(8) - shift)
        store_u8(out, at + group, np.uint8(byte & np.uint64(255)))
    at += groups
    store_u32(out, 0, np.uint32(at - 4))
    return at


@inlined
def _write_equal_levels(level, rows, out):
    at = _write_varint(out, 4, rows * 2)
    store_u8(out, at, np.uint8(level))
    store_u32(out, 0, np.uint32(at - 3))
    return at + 1


@inlined
def _load(values, width, row):
    if width == 8:
        return load_i64(values, 8 * row)
    if width == 4:
        return np.int64(load_i32(values, 4 * row))
    if width == 2:
        return np.int64(load_i16(values, 2 * row))
    return np.int64(load_i8(values, row))


@inlined
def _widen(values, width, rows, numbers):
    if width == 4:
        for row in range(rows):
            store_i64(numbers, 8 * row, np.int64(load_i32(values, 4 * row)))
    elif width == 2:
        for row in range(rows):
            store_i64(numbers, 8 * row, np.int64(load_i16(values, 2 * row)))
    else:
        for row in range(rows):
            store_i64(numbers, 8 * row, np.int64(load_i8(values, row)))


@inlined
def _copy_present(values, width, bitmap, offset, rows, numbers):
    """The values that are present."""
    count = 0
    for row in range(rows):
        bit = offset + row
        store_i64(numbers, 8 * count, _load(values, width, row))
        count += np.int64((load_u8(bitmap, bit >> 3) >> np.uint8(bit & 7)) & np.uint8(1))
    return count


@inlined
def _write_bit_packed(values, count, width, out, at):
    """Bit-pack numbers below 2^width; `count` × width is a multiple of 8."""
    gathered, used, w = np.uint64(0), np.uint64(0), np.uint64(width)
    for i in range(count):
        value = load_u64(values, 8 * i)
        gathered |= value << used
        used += w
        if used >= np.uint64(64):
            store_u64(out, at, gathered)
            at += 8
            used -= np.uint64(64)
            gathered = value >> (w - used) if used != np.uint64(0) else np.uint64(0)
    while used != np.uint64(0):
        store_u8(out, at, np.uint8(gathered & np.uint64(255)))
        gathered >>= np.uint64(8)
        used -= np.uint64(8)
        at += 1
    return at


@inlined
def _write_deltas(numbers, count, is_short, out, at, deltas):
    at = _write_varint(out, at, DELTA_BLOCK)
    at = _write_varint(out, at, DELTA_BLOCK // MINIBLOCK)
    at = _write_varint(out, at, count)
    before = load_i64(numbers, 0) if count else np.int64(0)
    at = _write_varint(out, at, _zigzag(before))
    row = 1
    while row < count:
        block = min(np.int64(DELTA_BLOCK), count - row)
        least = np.int64(0x7FFFFFFFFFFFFFFF)
        if is_short:
            for i in range(block):
                delta = np.int64(np.int32(load_i64(numbers, 8 * (row + i)) - load_i64(numbers, 8 * (row + i - 1))))
                store_i64(deltas, 8 * i, delta)
                least = min(least, delta)
        else:
            for i in range(block):
                delta = load_i64(numbers, 8 * (row + i)) - load_i64(numbers, 8 * (row + i - 1))
                store_i64(deltas, 8 * i, delta)
                least = min(least, delta)
        at = _write_varint(out, at, _zigzag(least))
        widths = at
        store_u32(out, widths, np.uint32(0))
        at += DELTA_BLOCK // MINIBLOCK
        for i in range(block, DELTA_BLOCK):
            store_i64(deltas, 8 * i, least)
        first = 0
        while first < block:
            every = np.uint64(0)
            for i in range(first, first + MINIBLOCK):
                above = np.uint64(load_i64(deltas, 8 * i) - least)
                store_u64(deltas, 8 * i, above)
                every |= above
            width = _bit_width(every)
            store_u8(out, widths + first // MINIBLOCK, np.uint8(width))
            if width:
                at = _write_bit_packed(deltas + 8 * first, MINIBLOCK, width, out, at)
            first += MINIBLOCK
        row += block
    return at


@inlined
def _assign_small_codes(numbers, count, low, table, stamp, dictionary, codes):
    """The code of each number, by first appearance, if all are within SMALL_RANGE; returns the number of codes."""
    distinct = np.int64(0)
    for row in range(count):
        value = load_i64(numbers, 8 * row)
        held = load_i64(table, 8 * (value - low))
        if held >> np.int64(32) != stamp:
            held = stamp << np.int64(32) | distinct
            store_i64(table, 8 * (value - low), held)
            store_i64(dictionary, 8 * distinct, value)
            distinct += 1
        store_i64(codes, 8 * row, held & np.int64(0xFFFFFFFF))
    return distinct


@inlined
def _assign_codes(numbers, count, table, stamp, dictionary, codes):
    """The code of each number, by first appearance; returns the number of codes, or 0 if there are too many."""
    distinct = np.int64(0)
    for row in range(count):
        value = load_i64(numbers, 8 * row)
        slot = np.int64((np.uint64(value) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(48))
        held = load_i64(table, SLOT * slot + 8)
        while held >> np.int64(32) == stamp and load_i64(table, SLOT * slot) != value:
            slot = (slot + 1) & np.int64(SLOTS - 1)
            held = load_i64(table, SLOT * slot + 8)
        if held >> np.int64(32) != stamp:
            if distinct == MAX_DICTIONARY_VALUES or (row >= DICTIONARY_TRIAL_VALUES and distinct * 4 > row * 3):
                return np.int64(0)
            held = stamp << np.int64(32) | distinct
            store_i64(table, SLOT * slot, value)
            store_i64(table, SLOT * slot + 8, held)
            store_i64(dictionary, 8 * distinct, value)
            distinct += 1
        store_i64(codes, 8 * row, held & np.int64(0xFFFFFFFF))
    return distinct


@inlined
def _write_literals(codes, first, end, width, out, at):
    """Bit-pack codes from `first` to `end`; all but the last run of a page have a multiple of eight."""
    count = end - first
    groups = (count + 7) // 8
    at = _write_varint(out, at, groups * 2 + 1)
    for i in range(end, first + 8 * groups):
        store_i64(codes, 8 * i, 0)
    return _write_bit_packed(codes + 8 * first, 8 * groups, width, out, at)


@inlined
def _write_codes(codes, count, distinct, out, at):
    width = max(_bit_width(np.uint64(distinct - 1)), np.int64(1))  # 0 bits would do, but not every reader accepts it
    store_u8(out, at, np.uint8(width))
    at += 1
    if distinct == 1:
        at = _write_varint(out, at, count * 2)
        store_u8(out, at, np.uint8(0))
        return at + 1
    code_bytes, first, row = (width + 7) // 8, np.int64(0), np.int64(0)
    while row < count:
        code, end = load_i64(codes, 8 * row), row + 1
        while end < count and load_i64(codes, 8 * end) == code:
            end += 1
        if end - row < MIN_RUN:
            row = min(row + 8, count)
            continue
        if row > first:
            at = _write_literals(codes, first, row, width, out, at)
        at = _write_varint(out, at, (end - row) * 2)
        for i in range(code_bytes):
            store_u8(out, at + i, np.uint8((code >> (8 * i)) & 255))
        at += code_bytes
        first = row = end
    if count > first:
        at = _write_literals(codes, first, count, width, out, at)
    return at


@kernel
def encode_column(
    values, width, bitmap, offset, rows, is_nullable, encoding, work, table, stamp, dictionary, out, results
):
    """Encode one page of a column; returns the number of bytes.

    `bitmap` is 0 if nothing is absent. `work` holds twice `rows` + BLOCK numbers. The encoding is only a request: a
    column with too many values for a dictionary is written as deltas, and then `DISTINCT` is 0. If no value is present,
    nothing follows the levels.
    """
    numbers, present, at = work, rows, np.int64(0)
    if bitmap != 0:
        present = _copy_present(values, width, bitmap, offset, rows, numbers)
    elif width == 8:
        numbers = values
    else:
        _widen(values, width, rows, numbers)
    if is_nullable != 0:
        if present == rows or present == 0:
            at = _write_equal_levels(1 if present else 0, rows, out)
        else:
            at = _write_levels(bitmap, offset, rows, out)
    low, high = np.int64(0x7FFFFFFFFFFFFFFF), np.int64(-0x8000000000000000)
    for row in range(present):
        value = load_i64(numbers, 8 * row)
        low, high = min(low, value), max(high, value)
    distinct, codes = np.int64(0), work + 8 * (rows + 8)
    if encoding == CODES and low == high:
        distinct = np.int64(1)
        store_i64(dictionary, 0, low)
    elif encoding == CODES and present and np.uint64(high - low) < np.uint64(SMALL_RANGE):
        distinct = _assign_small_codes(numbers, present, low, table + SLOT * SLOTS, stamp, dictionary, codes)
    elif encoding == CODES and present:
        distinct = _assign_codes(numbers, present, table, stamp, dictionary, codes)
    if distinct:
        at = _write_codes(codes, present, distinct, out, at)
    elif present:
        at = _write_deltas(numbers, present, width < 8, out, at, codes)
    store_i64(results, 8 * VALUE_COUNT, present)
    store_i64(results, 8 * LOW, low)
    store_i64(results, 8 * HIGH, high)
    store_i64(results, 8 * DISTINCT, distinct)
    return at
