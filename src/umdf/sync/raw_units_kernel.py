"""Copies the bytes of many raw units into one buffer, and tells contents apart."""

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
    store_u64,
)
from umdf.sync.template_scan_kernel import framed_until_end
from umdf.wire.sbe.tables_kernel import MAX_PACKET_BYTES, PACKET_HEADER

DATA, HEARTBEAT = 0, 1  # as in `UnitKind`
SENDING_TIME_AT = 8  # in a Binary packet


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


@inlined
def content_key(source, start, size):
    """A hash of some bytes that is positive and not 0."""
    value, words = np.uint64(size) ^ np.uint64(0x9E3779B97F4A7C15), size & -8
    for at in range(0, words, 8):
        value = (value ^ load_u64(source, start + at)) * np.uint64(0xFF51AFD7ED558CCD)
        value ^= value >> np.uint64(32)
    for at in range(words, size):
        value = (value ^ np.uint64(load_u8(source, start + at))) * np.uint64(0xC4CEB9FE1A85EC53)
        value ^= value >> np.uint64(32)
    return max(np.int64(value >> np.uint64(1)), np.int64(1))


@kernel
def hash_contents(source, starts, ends, rows, keys):
    """keys[i]: the content key of source[starts[i]:ends[i]]."""
    for row in range(rows):
        start, end = load_i64(starts, 8 * row), load_i64(ends, 8 * row)
        store_i64(keys, 8 * row, content_key(source, start, end - start))


# Columns of `read_packets`. NEXT_SEQUENCE: that a heartbeat announces. USABLE: 1 for a unit of the channel.
SEQUENCE, EPOCH, NEXT_SEQUENCE, KEY, KIND, USABLE = range(6)
PACKET_COLUMNS = 6


@kernel
def read_packets(buffer, size, starts, ends, packets, channel, columns):
    """What arbitration needs to know of Binary packets; returns the first that lies outside the buffer, else how many
    there are. Not usable is what cannot be framed to its end, what is of another channel, and what has no number and
    is no heartbeat."""
    for i in range(packets):
        start, end = load_i64(starts, 8 * i), load_i64(ends, 8 * i)
        if start < 0 or end > size:
            return i
        sequence, epoch, own = np.int64(0), np.int64(0), np.int64(0)
        if PACKET_HEADER <= end - start <= MAX_PACKET_BYTES:
            sequence, epoch = np.int64(load_u32(buffer, start + 4)), np.int64(load_u16(buffer, start + 2))
            own = np.int64(load_u8(buffer, start))
        announced = framed_until_end(buffer, start + PACKET_HEADER, end)
        is_heartbeat = sequence == 0 and announced > 0
        is_usable = own == channel and announced >= 0 and (sequence > 0 or is_heartbeat)
        # What is before the sending time was compared already; the reserved byte may differ.
        keyed = min(start + SENDING_TIME_AT, end)
        store_i64(columns, 8 * (SEQUENCE * packets + i), sequence)
        store_i64(columns, 8 * (EPOCH * packets + i), epoch)
        store_i64(columns, 8 * (NEXT_SEQUENCE * packets + i), announced if is_heartbeat else np.int64(0))
        store_i64(columns, 8 * (KEY * packets + i), content_key(buffer, keyed, end - keyed))
        store_i64(columns, 8 * (KIND * packets + i), np.int64(HEARTBEAT if is_heartbeat else DATA))
        store_i64(columns, 8 * (USABLE * packets + i), np.int64(is_usable))
    return packets
