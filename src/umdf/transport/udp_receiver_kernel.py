"""Receives datagrams of many sockets with poll(2) and recvmmsg(2), without the GIL.

Datagrams come into one small scratch area, which stays in the processor's cache, and are copied out behind each other.
The layouts of the kernel's structures are those of Linux on 64 bits.
"""

from __future__ import annotations

import numpy as np
from numba import types

from ..kernels import inlined, kernel, load_i32, load_i64, load_u16, load_u32, load_u64, store_i32, store_i64, store_u64

# Slots of the argument table
POLLS, POLL_COUNT, TIMEOUT_MS = 0, 1, 2  # struct pollfd of each socket; entry 0 only wakes
BUFFER, CAPACITY, USED = 3, 4, 5  # where the bytes go
START, END, TS_NS, FLOW, ROW_CAPACITY, ROWS = 6, 7, 8, 9, 10, 11  # one row per datagram
MESSAGES, SCRATCH, CONTROLS = 12, 13, 14  # struct mmsghdr, and their datagrams and control data
LOST, TRUNCATED = 15, 16  # by flow: SO_RXQ_OVFL of the socket; all datagrams that were too long
FLOWS = 17  # the flow of each entry of POLLS
SLOTS = 18

BURST = 32  # datagrams of one call
DATAGRAM_BYTES = 2048  # at most 1472 are sent in one frame
CONTROL_BYTES = 64
MESSAGE_BYTES, IOVEC_BYTES, POLL_BYTES = 64, 16, 8
# struct mmsghdr
M_CONTROL_LENGTH, M_FLAGS, M_LENGTH = 40, 48, 56
# struct cmsghdr: its length, level, type, and the data
C_LEVEL, C_TYPE, C_DATA = 8, 12, 16
SOL_SOCKET, SO_TIMESTAMPNS, SO_RXQ_OVFL = 1, 35, 40
MSG_DONTWAIT, MSG_TRUNC = 0x40, 0x20

poll = types.ExternalFunction("poll", types.int32(types.int64, types.uint64, types.int32))
_recvmmsg = types.ExternalFunction(
    "recvmmsg", types.int32(types.int32, types.int64, types.uint32, types.int32, types.int64)
)


@kernel
def receive(table):
    """Wait for datagrams, and take all that are there until the memory is full or nothing is left. Returns the rows,
    or -1 if only the waking socket was ready."""
    polls, count = load_i64(table, 8 * POLLS), load_i64(table, 8 * POLL_COUNT)
    timeout_ms, is_woken, is_more = load_i64(table, 8 * TIMEOUT_MS), False, True
    store_i64(table, 8 * ROWS, 0)
    store_i64(table, 8 * USED, 0)
    while is_more and not is_woken and has_room(table):
        if poll(polls, np.uint64(count), np.int32(timeout_ms)) <= 0:
            break
        timeout_ms, is_more = 0, False
        is_woken = load_u16(polls, 6) != 0
        for entry in range(1, count):
            if load_u16(polls, POLL_BYTES * entry + 6) and has_room(table):
                is_more |= receive_burst(table, entry) == BURST
    rows = load_i64(table, 8 * ROWS)
    return -1 if is_woken and rows == 0 else rows


@inlined
def has_room(table):
    rows = load_i64(table, 8 * ROWS) + BURST <= load_i64(table, 8 * ROW_CAPACITY)
    return rows and load_i64(table, 8 * USED) + BURST * DATAGRAM_BYTES <= load_i64(table, 8 * CAPACITY)


@inlined
def receive_burst(table, entry):
    """The datagrams of one call, copied out; returns how many there were."""
    messages, controls = load_i64(table, 8 * MESSAGES), load_i64(table, 8 * CONTROLS)
    for i in range(BURST):
        store_i64(messages, MESSAGE_BYTES * i + M_CONTROL_LENGTH, CONTROL_BYTES)
    fd = load_i32(load_i64(table, 8 * POLLS), POLL_BYTES * entry)
    received = _recvmmsg(fd, messages, np.uint32(BURST), np.int32(MSG_DONTWAIT), np.int64(0))
    flow = load_i64(load_i64(table, 8 * FLOWS), 8 * entry)
    scratch, buffer = load_i64(table, 8 * SCRATCH), load_i64(table, 8 * BUFFER)
    row, used = load_i64(table, 8 * ROWS), load_i64(table, 8 * USED)
    for i in range(received):
        message, size = MESSAGE_BYTES * i, np.int64(load_u32(messages, MESSAGE_BYTES * i + M_LENGTH))
        if load_u32(messages, message + M_FLAGS) & np.uint32(MSG_TRUNC):
            store_i64(table, 8 * TRUNCATED, load_i64(table, 8 * TRUNCATED) + 1)
        size = min(size, DATAGRAM_BYTES)
        for word in range((size + 7) >> 3):
            store_u64(buffer, used + 8 * word, load_u64(scratch, DATAGRAM_BYTES * i + 8 * word))
        ts_ns = _read_controls(
            table, controls + CONTROL_BYTES * i, load_i64(messages, message + M_CONTROL_LENGTH), flow
        )
        store_i64(load_i64(table, 8 * START), 8 * row, used)
        store_i64(load_i64(table, 8 * END), 8 * row, used + size)
        store_i64(load_i64(table, 8 * TS_NS), 8 * row, ts_ns)
        store_i64(load_i64(table, 8 * FLOW), 8 * row, flow)
        row, used = row + 1, used + ((size + 7) & ~7)
    store_i64(table, 8 * ROWS, row)
    store_i64(table, 8 * USED, used)
    return received


@inlined
def _read_controls(table, control, length, flow):
    """The receive time of a datagram, 0 if there is none; notes how many the socket had lost by then."""
    ts_ns, at = np.int64(0), np.int64(0)
    while at + C_DATA <= min(length, CONTROL_BYTES):
        size, level, kind = load_i64(control, at), load_i32(control, at + C_LEVEL), load_i32(control, at + C_TYPE)
        if size < C_DATA:
            break
        if level == SOL_SOCKET and kind == SO_TIMESTAMPNS:
            ts_ns = load_i64(control, at + C_DATA) * 1_000_000_000 + load_i64(control, at + C_DATA + 8)
        elif level == SOL_SOCKET and kind == SO_RXQ_OVFL:
            store_i64(load_i64(table, 8 * LOST), 8 * flow, np.int64(load_u32(control, at + C_DATA)))
        at += (size + 7) & ~7
    return ts_ns


@kernel
def prepare_messages(messages, iovecs, scratch, controls):
    """Point each struct mmsghdr at its datagram and its control data."""
    for i in range(BURST):
        store_i64(iovecs, IOVEC_BYTES * i, scratch + DATAGRAM_BYTES * i)
        store_i64(iovecs, IOVEC_BYTES * i + 8, DATAGRAM_BYTES)
        for word in range(8):
            store_i64(messages, MESSAGE_BYTES * i + 8 * word, 0)
        store_i64(messages, MESSAGE_BYTES * i + 16, iovecs + IOVEC_BYTES * i)
        store_i64(messages, MESSAGE_BYTES * i + 24, 1)
        store_i64(messages, MESSAGE_BYTES * i + 32, controls + CONTROL_BYTES * i)


@kernel
def prepare_poll(polls, entry, fd):
    store_i32(polls, POLL_BYTES * entry, np.int32(fd))
    store_i32(polls, POLL_BYTES * entry + 4, np.int32(1))  # POLLIN, and no result yet
