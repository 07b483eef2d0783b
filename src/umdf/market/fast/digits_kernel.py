"""Numbers as text, for the encoder's columns of ids."""

from __future__ import annotations

import numpy as np

from umdf.kernels import kernel, load_i64, load_u8, store_i32, store_u8


@kernel
def write_digits(values, valid, rows, width, offsets, content):
    """Where `valid` says so, each value in decimal with zeros in front up to `width` (at most 19); returns the bytes
    written. `content` has 20 bytes for each row."""
    used = np.int64(0)
    store_i32(offsets, 0, np.int32(0))
    for row in range(rows):
        if load_u8(valid, row) != 0:
            value = load_i64(values, 8 * row)
            # The smallest number has no positive twin: its digits are counted as of an unsigned one.
            remaining = np.uint64(value) if value >= 0 else np.uint64(0) - np.uint64(value)
            count, rest = np.int64(1), remaining
            while rest >= np.uint64(10):
                rest //= np.uint64(10)
                count += 1
            count = max(count, width)
            if value < 0:
                store_u8(content, used, np.uint8(45))
                used += 1
            for at in range(used + count - 1, used - 1, -1):
                store_u8(content, at, np.uint8(48 + remaining % np.uint64(10)))
                remaining //= np.uint64(10)
            used += count
        store_i32(offsets, 4 * (row + 1), np.int32(used))
    return used
