"""Copies the bytes of many raw units into one buffer, and tells contents apart."""

from __future__ import annotations

import numpy as np

from umdf.kernels import kernel, load_i64, load_u8, load_u64, store_i64, store_u8, store_u64


@kernel
def gather_bytes(source, starts, sizes, target, target_starts, rows):
    """target[target_starts[i]:] = source[starts[i]:][:sizes[i]]."""
    for row in range(rows):
        start, size, target_start = (
            load_i64(starts, 8 * row),
            load_i64(sizes, 8 * row),
            load_i64(target_starts, 8 * row),
        )
        words = size & -8
        for at in range(0, words, 8):
            store_u64(target, target_start + at, load_u64(source, start + at))
        for at in range(words, size):
            store_u8(target, target_start + at, load_u8(source, start + at))


@kernel
def hash_contents(source, starts, ends, rows, keys):
    """keys[i]: a hash of source[starts[i]:ends[i]] that is positive and not 0."""
    for row in range(rows):
        start, size = load_i64(starts, 8 * row), load_i64(ends, 8 * row) - load_i64(starts, 8 * row)
        value, words = np.uint64(size) ^ np.uint64(0x9E3779B97F4A7C15), size & -8
        for at in range(0, words, 8):
            value = (value ^ load_u64(source, start + at)) * np.uint64(0xFF51AFD7ED558CCD)
            value ^= value >> np.uint64(32)
        for at in range(words, size):
            value = (value ^ np.uint64(load_u8(source, start + at))) * np.uint64(0xC4CEB9FE1A85EC53)
            value ^= value >> np.uint64(32)
        store_i64(keys, 8 * row, max(np.int64(value >> np.uint64(1)), np.int64(1)))
