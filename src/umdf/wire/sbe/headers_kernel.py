"""Packet headers → columns (reference 5.1)."""

from __future__ import annotations

import numpy as np

from umdf.kernels import (
    kernel,
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
from umdf.wire.sbe.tables_kernel import MAX_PACKET_BYTES, PACKET_HEADER


@kernel
def gather_headers(buffer, buffer_size, starts, ends, packets, sending_time, sequence, seq_version, channel):
    """The four columns; a packet that is quarantined whole (too short for a header, too long) has zeros. Returns the
    first packet that lies outside the buffer, else `packets`."""
    for i in range(packets):
        start = load_i64(starts, 8 * i)
        end = load_i64(ends, 8 * i)
        if start < 0 or end > buffer_size:
            return i
        size = end - start
        if size < PACKET_HEADER or size > MAX_PACKET_BYTES:
            store_u64(sending_time, 8 * i, np.uint64(0))
            store_u32(sequence, 4 * i, np.uint32(0))
            store_u16(seq_version, 2 * i, np.uint16(0))
            store_u8(channel, i, np.uint8(0))
        else:
            store_u64(sending_time, 8 * i, load_u64(buffer, start + 8))
            store_u32(sequence, 4 * i, load_u32(buffer, start + 4))
            store_u16(seq_version, 2 * i, load_u16(buffer, start + 2))
            store_u8(channel, i, load_u8(buffer, start))
    return packets
