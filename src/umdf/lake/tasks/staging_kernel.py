"""Scatters rows of many batches into one: a counting sort by instrument, then each column directly to its target.

Invariant: rows of an instrument stay in order. Batches are not concatenated first, so every value is moved once.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import (
    inlined,
    kernel,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    store_i64,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
)

BUCKETS = 64
NO_INSTRUMENT = BUCKETS  # rows of the whole channel or of a group
NULL = -(1 << 63)
# A column of `scatter`: its address, bytes per value, its target, whether only some of its rows are used.
SOURCE, WIDTH, TARGET, BY_ROWS = range(4)
COLUMN = 4


@inlined
def _bucket(instrument_id):
    if instrument_id == NULL:
        return np.int64(NO_INSTRUMENT)
    return np.int64((np.uint64(instrument_id) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(58))


@kernel
def assign_buckets(ids, rows, buckets):
    """The bucket of each instrument, as a byte."""
    for row in range(rows):
        store_u8(buckets, row, np.uint8(_bucket(load_i64(ids, 8 * row))))
    return 0


@kernel
def assign_targets(instruments, rows, next_targets, targets):
    """The target of each row, by instrument; `next_targets` has the next target of each instrument."""
    for row in range(rows):
        at = 8 * np.int64(load_u32(instruments, 4 * row))
        target = load_i64(next_targets, at)
        store_u32(targets, 4 * row, np.uint32(target))
        store_i64(next_targets, at, target + 1)
    return 0


@kernel
def scatter(columns, count, targets, rows, move_count):
    """Scatter the values of some columns: of all rows, or of some."""
    for number in range(count):
        column = columns + 8 * COLUMN * number
        source, width, target = load_i64(column, 8 * SOURCE), load_i64(column, 8 * WIDTH), load_i64(column, 8 * TARGET)
        if load_i64(column, 8 * BY_ROWS) != 0:
            _scatter_rows(source, width, target, targets, rows, move_count)
        elif width == 8:
            for i in range(move_count):
                store_u64(target, 8 * np.int64(load_u32(targets, 4 * i)), load_u64(source, 8 * i))
        elif width == 4:
            for i in range(move_count):
                store_u32(target, 4 * np.int64(load_u32(targets, 4 * i)), load_u32(source, 4 * i))
        elif width == 2:
            for i in range(move_count):
                store_u16(target, 2 * np.int64(load_u32(targets, 4 * i)), load_u16(source, 2 * i))
        else:
            for i in range(move_count):
                store_u8(target, np.int64(load_u32(targets, 4 * i)), load_u8(source, i))
    return 0


@inlined
def _scatter_rows(source, width, target, targets, rows, move_count):
    if width == 8:
        for i in range(move_count):
            value = load_u64(source, 8 * np.int64(load_u32(rows, 4 * i)))
            store_u64(target, 8 * np.int64(load_u32(targets, 4 * i)), value)
    elif width == 4:
        for i in range(move_count):
            value = load_u32(source, 4 * np.int64(load_u32(rows, 4 * i)))
            store_u32(target, 4 * np.int64(load_u32(targets, 4 * i)), value)
    elif width == 2:
        for i in range(move_count):
            value = load_u16(source, 2 * np.int64(load_u32(rows, 4 * i)))
            store_u16(target, 2 * np.int64(load_u32(targets, 4 * i)), value)
    else:
        for i in range(move_count):
            value = load_u8(source, np.int64(load_u32(rows, 4 * i)))
            store_u8(target, np.int64(load_u32(targets, 4 * i)), value)
