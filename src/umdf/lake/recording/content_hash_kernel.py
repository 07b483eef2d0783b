"""Hashes of the bytes of packets or messages."""

from __future__ import annotations

from umdf.kernels import kernel, load_i64, load_u8, store_i64

MULTIPLIER = -7046029254386353131  # odd: the golden ratio in 64 bits


@kernel
def hash_ranges(buffer, starts, ends, seeds, count, hashes):
    """hashes[row]: of the bytes from starts[row] to ends[row], mixed with seeds[row]."""
    for row in range(count):
        at, end = load_i64(starts, 8 * row), load_i64(ends, 8 * row)
        value = (load_i64(seeds, 8 * row) ^ (end - at)) * MULTIPLIER
        while at + 8 <= end:
            value = ((value ^ (value >> 29)) ^ load_i64(buffer, at)) * MULTIPLIER
            at += 8
        while at < end:
            value = ((value ^ (value >> 29)) ^ load_u8(buffer, at)) * MULTIPLIER
            at += 1
        store_i64(hashes, 8 * row, value ^ (value >> 32))
    return 0
