"""Gathers columns: from the row offsets that the walk has found to values and presence."""

from __future__ import annotations

import numpy as np

from umdf.kernels import (
    inlined,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    outlined,
    store_i32,
    store_pair_u64,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
)
from umdf.wire.sbe.tables_kernel import (
    ANY_TRACKED,
    BASE,
    BUFFER,
    C_BITMAP,
    C_KIND,
    C_NULL,
    C_NULL_BEFORE,
    C_NULLABLE,
    C_OFFSET,
    C_RETIRED,
    C_SINCE,
    C_SIZE,
    C_STRICT_SINCE,
    C_TEXT,
    C_TRACKED,
    C_UNTIL,
    C_VALUES,
    COLUMN,
    COLUMNS,
    FIXED,
    N_COLUMNS,
    N_COLUMNS_END,
    N_INCOMPLETE,
    N_INDEX,
    N_META,
    N_PACKET,
    N_PENDING,
    N_ROW_OFFSETS,
    N_ROWS,
    ROW_KEYS_OFFSET,
    TEXT,
    get,
    put,
)


@inlined
def _load_offset_pair(where, i):
    """The offsets of rows i and i + 1, read together."""
    both = load_u64(where, 4 * i)
    return np.int64(both & np.uint64(0xFFFFFFFF)), np.int64(both >> np.uint64(32))


@inlined
def _gather_column(base, where, count, size, values):
    """A column of rows whose blocks all hold it; `base` is that of the batch of passes plus the column's offset.

    The loops wait for nothing but their loads and stores, so two rows share those of offsets and of values.
    """
    even, last = count & ~1, np.int64(load_u32(where, 4 * (count - 1)))
    if size == 8:
        for i in range(0, even, 2):
            one, other = _load_offset_pair(where, i)
            store_pair_u64(values, 8 * i, load_u64(base, one), load_u64(base, other))
        if even < count:
            store_u64(values, 8 * even, load_u64(base, last))
    elif size == 4:
        for i in range(0, even, 2):
            one, other = _load_offset_pair(where, i)
            both = np.uint64(load_u32(base, one)) | np.uint64(load_u32(base, other)) << np.uint64(32)
            store_u64(values, 4 * i, both)
        if even < count:
            store_u32(values, 4 * even, load_u32(base, last))
    elif size == 2:
        for i in range(0, even, 2):
            one, other = _load_offset_pair(where, i)
            both = np.uint32(load_u16(base, one)) | np.uint32(load_u16(base, other)) << np.uint32(16)
            store_u32(values, 2 * i, np.uint32(both))
        if even < count:
            store_u16(values, 2 * even, load_u16(base, last))
    else:
        for i in range(0, even, 2):
            one, other = _load_offset_pair(where, i)
            both = np.uint16(load_u8(base, one)) | np.uint16(load_u8(base, other)) << np.uint16(8)
            store_u16(values, i, np.uint16(both))
        if even < count:
            store_u8(values, even, load_u8(base, last))


@inlined
def fill(values, size, row, count, value):
    """The same value in `count` rows."""
    if size == 8:
        for i in range(count):
            store_u64(values, 8 * (row + i), value)
    elif size == 4:
        for i in range(count):
            store_u32(values, 4 * (row + i), np.uint32(value))
    elif size == 2:
        for i in range(count):
            store_u16(values, 2 * (row + i), np.uint16(value))
    else:
        for i in range(count):
            store_u8(values, row + i, np.uint8(value))


@inlined
def _store_value(values, size, row, value):
    if size == 8:
        store_u64(values, 8 * row, value)
    elif size == 4:
        store_u32(values, 4 * row, np.uint32(value))
    elif size == 2:
        store_u16(values, 2 * row, np.uint16(value))
    else:
        store_u8(values, row, np.uint8(value))


@inlined
def _load_value(buffer, here, size):
    if size == 8:
        return load_u64(buffer, here)
    if size == 4:
        return np.uint64(load_u32(buffer, here))
    if size == 2:
        return np.uint64(load_u16(buffer, here))
    return np.uint64(load_u8(buffer, here))


@inlined
def _has_column(c, meta):
    """Whether a block of this length and version carries the column."""
    block, version = meta & 0xFFFF, meta >> 16
    if get(c, C_OFFSET) + get(c, C_SIZE) > block:
        return False
    return get(c, C_SINCE) <= version and version <= get(c, C_UNTIL)


@inlined
def _sized(value, size):
    """The value as `_load_value` reads it: its lowest bytes."""
    return np.uint64(value) & (np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - 8 * min(size, 8)))


@outlined
def _start_bitmap(c, rows):
    """From now on this column without a null value has a bitmap: every row so far is present."""
    for word in range((rows + 63) >> 6):
        store_u64(get(c, C_BITMAP), 8 * word, np.uint64(0xFFFFFFFFFFFFFFFF))
    put(c, C_TRACKED, 1)


@inlined
def _mark_presence(bitmap, row, present):
    byte = load_u8(bitmap, row >> 3) & np.uint8((1 << (row & 7)) - 1)
    store_u8(bitmap, row >> 3, byte | np.uint8(np.int64(present) << (row & 7)))


@inlined
def _row_meta(base, n, i):
    """The block length and version of a row: a root's are in its own header, directly before it."""
    if get(n, N_PACKET) != 0:
        here = np.int64(load_u32(get(n, N_ROW_OFFSETS), 4 * i))
        return np.int64(load_u16(base, here - 8)) | np.int64(load_u16(base, here - 2)) << 16
    return get(get(n, N_META), i)


@inlined
def _track_presence(c, row, present):
    """A column without a null value has a bitmap from its first absent row on."""
    if not present and get(c, C_TRACKED) == 0:
        _start_bitmap(c, row)
    if get(c, C_TRACKED) != 0:
        _mark_presence(get(c, C_BITMAP), row, present)


@outlined
def _gather_incomplete(t, n, c):
    """A column of rows of which some do not carry it (an older version, a shorter block), or of texts.

    Where a version before those that the schema serves sends the null value of a required column, there is no value.
    """
    base, size, values = get(t, BUFFER) + get(t, BASE), get(c, C_SIZE), get(c, C_VALUES)
    where, first, count = get(n, N_ROW_OFFSETS), get(n, N_ROWS), get(n, N_PENDING)
    nullable, null = get(c, C_NULLABLE), np.uint64(get(c, C_NULL))
    strict_since, null_before = get(c, C_STRICT_SINCE), _sized(get(c, C_NULL_BEFORE), size)
    if get(c, C_KIND) == FIXED:
        if get(c, C_RETIRED) != 0 and get(c, C_TRACKED) == 0:
            fill(values, size, 0, first, null)
            put(c, C_TRACKED, 1)
        for i in range(count):
            meta = _row_meta(base, n, i)
            present = _has_column(c, meta)
            value = _load_value(base, np.int64(load_u32(where, 4 * i)) + get(c, C_OFFSET), size) if present else null
            if meta >> 16 < strict_since and value == null_before:
                present, value = False, null
            _store_value(values, size, first + i, value)
            if nullable == 0:
                _track_presence(c, first + i, present)
        return
    # Fixed-length texts, padded with NUL, become Arrow's offsets and bytes; empty means absent where it may (3.5).
    text = get(c, C_TEXT)
    if first == 0:
        store_i32(values, 0, np.int32(0))
    used = np.int64(load_u32(values, 4 * first))
    for i in range(count):
        meta = _row_meta(base, n, i)
        present = _has_column(c, meta)
        length = np.int64(0)
        if present:
            here = np.int64(load_u32(where, 4 * i)) + get(c, C_OFFSET)
            while length < size and load_u8(base, here + length) != 0:
                store_u8(text, used + length, load_u8(base, here + length))
                length += 1
        used += length
        store_i32(values, 4 * (first + i + 1), np.int32(used))
        if nullable != 0:
            _mark_presence(get(c, C_BITMAP), first + i, length > 0)
        else:
            _track_presence(c, first + i, present and (length > 0 or meta >> 16 >= strict_since))


@inlined
def _presence_word(values, size, first, null):
    """64 rows' presence as one word."""
    word = np.uint64(0)
    if size == 8:
        for i in range(64):
            word |= np.uint64(load_u64(values, 8 * (first + i)) != null) << np.uint64(i)
    elif size == 4:
        n4 = np.uint32(null)
        for i in range(64):
            word |= np.uint64(load_u32(values, 4 * (first + i)) != n4) << np.uint64(i)
    elif size == 2:
        n2 = np.uint16(null)
        for i in range(64):
            word |= np.uint64(load_u16(values, 2 * (first + i)) != n2) << np.uint64(i)
    else:
        n1 = np.uint8(null)
        for i in range(64):
            word |= np.uint64(load_u8(values, first + i) != n1) << np.uint64(i)
    return word


@inlined
def build_bitmap(values, size, null, bitmap, rows):
    """The bitmap of a whole column: a row is present where it does not hold the null value.

    Works in words of 64 rows; the buffers have that much capacity behind their last row.
    """
    for word in range((rows + 63) >> 6):
        store_u64(bitmap, 8 * word, _presence_word(values, size, 64 * word, null))


@inlined
def _gather_row_keys(row_keys, count, packet, packets, indexes):
    """A message's own two columns: its packet and its index there."""
    first = np.uint32(packet)
    for i in range(count):
        store_u32(packets, 4 * i, first + (load_u32(row_keys, 4 * i) & np.uint32(0xFFFF)))
    for i in range(count):
        store_u16(indexes, 2 * i, np.uint16(load_u32(row_keys, 4 * i) >> np.uint32(16)))


@outlined
def gather_node(t, n, packet):
    """Move the rows that the walk has found into the node's columns; `packet` is the first of the passes."""
    count, row, where = get(n, N_PENDING), get(n, N_ROWS), get(n, N_ROW_OFFSETS)
    if get(n, N_PACKET) != 0:
        _gather_row_keys(where + ROW_KEYS_OFFSET, count, packet, get(n, N_PACKET) + 4 * row, get(n, N_INDEX) + 2 * row)
    base, incomplete = get(t, BUFFER) + get(t, BASE), get(n, N_INCOMPLETE)
    for column in range(get(n, N_COLUMNS), get(n, N_COLUMNS_END)):
        c = get(t, COLUMNS) + 8 * COLUMN * column
        if incomplete != 0 or get(c, C_KIND) == TEXT:
            _gather_incomplete(t, n, c)
            put(t, ANY_TRACKED, get(t, ANY_TRACKED) | get(c, C_TRACKED))
        elif get(c, C_RETIRED) != 0:
            # Gone in every version that comes here: its bytes are padding now. Nothing is written while none was sent.
            if get(c, C_TRACKED) != 0:
                fill(get(c, C_VALUES), get(c, C_SIZE), row, count, np.uint64(get(c, C_NULL)))
        else:
            size = get(c, C_SIZE)
            _gather_column(base + get(c, C_OFFSET), where, count, size, get(c, C_VALUES) + size * row)
            if get(c, C_TRACKED) != 0:
                for i in range(count):
                    _mark_presence(get(c, C_BITMAP), row + i, True)
    put(n, N_INCOMPLETE, 0)
    put(n, N_ROWS, row + count)
