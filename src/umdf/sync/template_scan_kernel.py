"""The templates of the messages in packets, without decoding them."""

from __future__ import annotations

import numpy as np

from umdf.kernels import inlined, kernel, load_i64, load_u8, load_u16, load_u32, store_i64, store_u32
from umdf.wire.sbe.tables_kernel import PACKET_HEADER

FRAMING, TEMPLATE = 12, 6  # size of a message's two headers; offset of templateId
HEARTBEAT_TEMPLATE, HEARTBEAT_BYTES = 2, 4  # Sequence_2: nextSeqNo
NO_TEMPLATE = 0xFFFFFFFF


@kernel
def count_templates(buffer, starts, ends, packets, flows, kinds, counts, kind_count):
    """Count the messages of Binary packets by flow and kind; `kinds` has one byte per template ID."""
    for i in range(packets):
        at, end = load_i64(starts, 8 * i) + PACKET_HEADER, load_i64(ends, 8 * i)
        row = 8 * kind_count * np.int64(load_u16(flows, 2 * i))
        while at + FRAMING <= end:
            size = np.int64(load_u16(buffer, at))
            if size < FRAMING or at + size > end:
                break
            cell = row + 8 * np.int64(load_u8(kinds, np.int64(load_u16(buffer, at + TEMPLATE))))
            store_i64(counts, cell, load_i64(counts, cell) + 1)
            at += size


@inlined
def peek_template(buffer, at, end):
    """The template ID at the start of a FAST message (if the first bit of the presence map is set)."""
    value = np.int64(NO_TEMPLATE)
    if at < end and load_u8(buffer, at) & 0x40:
        while at < end and not load_u8(buffer, at) & 0x80:
            at += 1
        at += 1
        number, length = np.int64(0), 0
        while at < end and length < 5:
            byte = np.int64(load_u8(buffer, at))
            number = number << 7 | (byte & 0x7F)
            at += 1
            length += 1
            if byte & 0x80:
                value = number
                break
    return value & np.int64(0xFFFFFFFF)


@kernel
def peek_templates(buffer, starts, ends, messages, templates):
    for i in range(messages):
        template = peek_template(buffer, load_i64(starts, 8 * i), load_i64(ends, 8 * i))
        store_u32(templates, 4 * i, np.uint32(template))


@inlined
def framed_until_end(buffer, at, end):
    """Of a Binary packet: -1 if a message length does not fit it, the sequence that it announces if it begins with a
    heartbeat (Sequence_2), else 0."""
    found = np.int64(0)
    if at + FRAMING + HEARTBEAT_BYTES <= end and load_u16(buffer, at + TEMPLATE) == HEARTBEAT_TEMPLATE:
        found = np.int64(load_u32(buffer, at + FRAMING))
    while at < end:
        size = np.int64(load_u16(buffer, at)) if at + FRAMING <= end else np.int64(0)
        if size < FRAMING or at + size > end:
            found = np.int64(-1)
            break
        at += size
    return found if at <= end else np.int64(-1)
