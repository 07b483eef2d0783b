"""Writes a batch of UDP payloads as pcap records: record header, Ethernet, IPv4 or IPv6, UDP, payload.

Invariant: everything that is the same for all packets of a flow, sums included, is in the flow's template; per packet
only lengths, checksums and the time are filled in. The caller has checked all ranges and indices.
"""

from __future__ import annotations

import numpy as np

from ..kernels import (
    inlined,
    kernel,
    load_i64,
    load_u8,
    load_u16,
    load_u64,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
    swap_u16,
)
from .frame_kernel import folded, sum_words

# Slots of the kernel's argument table
BUFFER, START, END, TS_NS, FLOW, FIRST, COUNT = 0, 1, 2, 3, 4, 5, 6  # addresses of the columns; rows FIRST to COUNT
TEMPLATES, SNAPLEN, OUT, CAPACITY, USED = 7, 8, 9, 10, 11
SLOTS = 12

# A template: the frame's headers with lengths and checksums of zero, then three int64
HEADER_BYTES, IP_SUM, UDP_SUM = 64, 72, 80  # their length (42 or 62), and sums of little-endian words
TEMPLATE_BYTES = 88
IPV4_HEADER_BYTES = 42


@inlined
def network_word(value):
    """The contribution of a 16-bit number in network order to a sum of little-endian words."""
    return np.int64(swap_u16(np.uint16(value)))


@kernel
def write_records(table):
    """Returns the first row that did not fit (COUNT if all did); USED is the number of bytes written."""
    buffer = load_i64(table, BUFFER * 8)
    starts = load_i64(table, START * 8)
    ends = load_i64(table, END * 8)
    times = load_i64(table, TS_NS * 8)
    flows = load_i64(table, FLOW * 8)
    count = load_i64(table, COUNT * 8)
    templates = load_i64(table, TEMPLATES * 8)
    snaplen = load_i64(table, SNAPLEN * 8)
    out = load_i64(table, OUT * 8)
    capacity = load_i64(table, CAPACITY * 8)
    at = load_i64(table, USED * 8)
    row = load_i64(table, FIRST * 8)
    while row < count:
        start = load_i64(starts, row * 8)
        size = load_i64(ends, row * 8) - start
        template = templates + np.int64(load_u16(flows, row * 2)) * TEMPLATE_BYTES
        header = load_i64(template, HEADER_BYTES)
        if capacity - at < 16 + 64 + size:  # 64: a template is copied completely
            break
        captured = min(header + size, snaplen)
        ts_ns = load_i64(times, row * 8)
        store_u32(out, at, np.uint32(ts_ns // 1_000_000_000))
        store_u32(out, at + 4, np.uint32(ts_ns % 1_000_000_000))
        store_u32(out, at + 8, np.uint32(captured))
        store_u32(out, at + 12, np.uint32(header + size))
        frame = at + 16
        for position in range(8):
            store_u64(out, frame + position * 8, load_u64(template, position * 8))
        if header == IPV4_HEADER_BYTES:
            length = network_word(28 + size)
            store_u16(out, frame + 16, np.uint16(length))
            store_u16(out, frame + 24, np.uint16(~folded(load_i64(template, IP_SUM) + length) & 0xFFFF))
        else:
            store_u16(out, frame + 18, np.uint16(network_word(8 + size)))
        length = network_word(8 + size)
        store_u16(out, frame + header - 4, np.uint16(length))
        # The length counts twice: in the UDP header and in the pseudo header.
        total = load_i64(template, UDP_SUM) + 2 * length + sum_words(buffer, start, size)
        checksum = ~folded(total) & 0xFFFF
        if checksum == 0:  # 0 would mean no checksum (RFC 768)
            checksum = 0xFFFF
        store_u16(out, frame + header - 2, np.uint16(checksum))
        payload = frame + header
        for position in range(size >> 3):
            store_u64(out, payload + position * 8, load_u64(buffer, start + position * 8))
        for position in range(size & ~7, size):
            store_u8(out, payload + position, load_u8(buffer, start + position))
        at = frame + captured
        row += 1
    store_u64(table, USED * 8, np.uint64(at))
    return row
