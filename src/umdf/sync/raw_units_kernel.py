"""Copies the bytes of many raw units into one buffer."""

from __future__ import annotations

from umdf.kernels import kernel, load_i64, load_u8, load_u64, store_u8, store_u64


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
