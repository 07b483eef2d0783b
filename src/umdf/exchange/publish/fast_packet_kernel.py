"""FAST messages → packets: a technical header before each message, large messages in chunks, small ones together.

Messages share a packet while they were sent within a window of time and fit (4.2.4).
"""

from __future__ import annotations

import numpy as np

from umdf.exchange.matching.book_side_kernel import memmove
from umdf.kernels import inlined, kernel, load_i64, store_i64, store_u16, store_u32, swap_u16, swap_u32

# Entries of the table of arguments; G_FIRST_BYTE to G_LAST have an element for each packet.
G_BUFFER, G_START, G_END, G_SEQUENCE, G_TS, G_MESSAGES = 0, 1, 2, 3, 4, 5
G_OUT, G_CAPACITY, G_FIRST_BYTE, G_LAST_BYTE, G_FIRST, G_LAST, G_MAX_PACKETS = range(6, 13)
G_MAX_BYTES, G_WINDOW_NS = 13, 14
ARGUMENT_COUNT = 15
TECHNICAL_HEADER = 10
BUFFER_FULL = -1


@inlined
def write_technical_header(out, at, sequence, chunks, chunk, size):
    store_u32(out, at, swap_u32(np.uint32(sequence)))
    store_u16(out, at + 4, swap_u16(np.uint16(chunks)))
    store_u16(out, at + 6, swap_u16(np.uint16(chunk)))
    store_u16(out, at + 8, swap_u16(np.uint16(size)))


@kernel
def build_packets(g):
    """Build the packets; return how many, or BUFFER_FULL."""
    buffer, starts, ends = load_i64(g, G_BUFFER * 8), load_i64(g, G_START * 8), load_i64(g, G_END * 8)
    sequences, times, messages = load_i64(g, G_SEQUENCE * 8), load_i64(g, G_TS * 8), load_i64(g, G_MESSAGES * 8)
    out, capacity, max_packets = load_i64(g, G_OUT * 8), load_i64(g, G_CAPACITY * 8), load_i64(g, G_MAX_PACKETS * 8)
    first_bytes, last_bytes = load_i64(g, G_FIRST_BYTE * 8), load_i64(g, G_LAST_BYTE * 8)
    first_message, last_message = load_i64(g, G_FIRST * 8), load_i64(g, G_LAST * 8)
    max_bytes, window = load_i64(g, G_MAX_BYTES * 8), load_i64(g, G_WINDOW_NS * 8)
    at, count, opened_ts, is_open = np.int64(0), np.int64(0), np.int64(0), False
    for i in range(messages):
        start = load_i64(starts, i * 8)
        size, ts, sequence = load_i64(ends, i * 8) - start, load_i64(times, i * 8), load_i64(sequences, i * 8)
        payload = max_bytes - TECHNICAL_HEADER
        chunks = (size + payload - 1) // payload
        if at + size + (chunks + 1) * TECHNICAL_HEADER > capacity or count + chunks > max_packets:
            return BUFFER_FULL
        if chunks > 1:
            sent = np.int64(0)
            for chunk in range(chunks):
                chunk_bytes = min(size - sent, payload)
                store_i64(first_bytes, count * 8, at)
                write_technical_header(out, at, sequence, chunks, chunk + 1, chunk_bytes)
                memmove(out + at + TECHNICAL_HEADER, buffer + start + sent, chunk_bytes)
                at, sent = at + TECHNICAL_HEADER + chunk_bytes, sent + chunk_bytes
                store_i64(last_bytes, count * 8, at)
                store_i64(first_message, count * 8, i)
                store_i64(last_message, count * 8, i)
                count += 1
            is_open = False
            continue
        if is_open and ts - opened_ts <= window:
            used = at - load_i64(first_bytes, (count - 1) * 8)
            is_open = used + TECHNICAL_HEADER + size <= max_bytes
        else:
            is_open = False
        if not is_open:
            store_i64(first_bytes, count * 8, at)
            store_i64(first_message, count * 8, i)
            count, opened_ts, is_open = count + 1, ts, True
        write_technical_header(out, at, sequence, 1, 1, size)
        memmove(out + at + TECHNICAL_HEADER, buffer + start, size)
        at += TECHNICAL_HEADER + size
        store_i64(last_bytes, (count - 1) * 8, at)
        store_i64(last_message, (count - 1) * 8, i)
    return count
