"""Packet headers → the columns of `Units` (reference 5.1)."""

from __future__ import annotations

import numpy as np

from umdf.kernels import kernel, load_i64, load_u8, load_u16, load_u32, store_i64, store_u16
from umdf.wire.sbe.tables_kernel import (
    BUFFER,
    BUFFER_SIZE,
    ENDS,
    MAX_PACKET_BYTES,
    PACKET_HEADER,
    PACKETS,
    STARTS,
    get,
)

# The columns, one after the other: four of int64, then the channels as int16.
SEQ_VERSION, SEQUENCE, TS_SEND, TS_RECV, CHANNEL = 0, 1, 2, 3, 4
NULL = -(1 << 63)


@kernel
def gather_units(decoded, target):
    """The units of a batch, from the decoder's arguments; zeros for a packet without a header, as the decoder sees it.
    Returns the first packet that lies outside the buffer, else their number."""
    packets = get(decoded, PACKETS)
    for i in range(packets):
        start, end = get(get(decoded, STARTS), i), get(get(decoded, ENDS), i)
        if start < 0 or end > get(decoded, BUFFER_SIZE):
            return i
        version = sequence = sent = channel = np.int64(0)
        if end - start >= PACKET_HEADER and end - start <= MAX_PACKET_BYTES:
            packet = get(decoded, BUFFER) + start
            channel, version = np.int64(load_u8(packet, 0)), np.int64(load_u16(packet, 2))
            sequence, sent = np.int64(load_u32(packet, 4)), load_i64(packet, 8)
        store_i64(target, 8 * (SEQ_VERSION * packets + i), version)
        store_i64(target, 8 * (SEQUENCE * packets + i), sequence)
        store_i64(target, 8 * (TS_SEND * packets + i), sent)
        store_i64(target, 8 * (TS_RECV * packets + i), NULL)
        store_u16(target, 8 * CHANNEL * packets + 2 * i, np.uint16(channel))
    return packets
