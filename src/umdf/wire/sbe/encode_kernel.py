"""Columns → bytes: the loops that write one column into many messages.

Every offset that is written has been computed by `encode` from the lengths of the messages, inside the buffer.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import (
    kernel,
    load_i32,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
)


@kernel
def scatter(buffer, row_offsets, count, offset, size, values, step):
    """values[i] → buffer[where[i] + offset]; a step of 0 writes the same value everywhere."""
    base = buffer + offset
    if size == 8:
        for i in range(count):
            store_u64(base, load_i64(row_offsets, 8 * i), load_u64(values, step * i))
    elif size == 4:
        for i in range(count):
            store_u32(base, load_i64(row_offsets, 8 * i), load_u32(values, step * i))
    elif size == 2:
        for i in range(count):
            store_u16(base, load_i64(row_offsets, 8 * i), load_u16(values, step * i))
    else:
        for i in range(count):
            store_u8(base, load_i64(row_offsets, 8 * i), load_u8(values, step * i))


@kernel
def scatter_bytes(buffer, row_offsets, count, offset, offsets, content):
    """content[offsets[i]:offsets[i + 1]] → buffer[where[i] + offset:]"""
    base = buffer + offset
    for i in range(count):
        first, last = np.int64(load_i32(offsets, 4 * i)), np.int64(load_i32(offsets, 4 * i + 4))
        at = load_i64(row_offsets, 8 * i)
        for j in range(last - first):
            store_u8(base, at + j, load_u8(content, first + j))
