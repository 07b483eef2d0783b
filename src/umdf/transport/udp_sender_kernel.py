"""Datagrams to the operating system, many in a call: sendmmsg(2) of a connected socket, without the GIL."""

from __future__ import annotations

import numpy as np
from numba import types

from umdf.kernels import kernel, load_i64, store_i64

# Entries of the table of arguments.
U_SOCKET, U_BUFFER, U_START, U_END, U_ROWS, U_MESSAGES, U_VECTORS = 0, 1, 2, 3, 4, 5, 6
ARGUMENT_COUNT = 7
BATCH = 64  # datagrams of a call
MESSAGE_BYTES, VECTOR_BYTES = 64, 16  # of struct mmsghdr and struct iovec, on 64 bits
M_VECTOR, M_VECTORS = 16, 24  # offsets in struct mmsghdr

_sendmmsg = types.ExternalFunction("sendmmsg", types.int32(types.int32, types.int64, types.uint32, types.int32))


@kernel
def prepare(u):
    """Point each message at its vector."""
    messages, vectors = load_i64(u, U_MESSAGES * 8), load_i64(u, U_VECTORS * 8)
    for i in range(BATCH):
        store_i64(messages, i * MESSAGE_BYTES + M_VECTOR, vectors + i * VECTOR_BYTES)
        store_i64(messages, i * MESSAGE_BYTES + M_VECTORS, 1)
    return np.int64(BATCH)


@kernel
def send_datagrams(u):
    """Send the datagrams START … END of a buffer; return how many the system has taken."""
    socket, messages, vectors = load_i64(u, U_SOCKET * 8), load_i64(u, U_MESSAGES * 8), load_i64(u, U_VECTORS * 8)
    buffer, starts, ends = load_i64(u, U_BUFFER * 8), load_i64(u, U_START * 8), load_i64(u, U_END * 8)
    rows, row, taken = load_i64(u, U_ROWS * 8), np.int64(0), np.int64(0)
    while row < rows:
        count = min(rows - row, np.int64(BATCH))
        for i in range(count):
            start = load_i64(starts, (row + i) * 8)
            store_i64(vectors, i * VECTOR_BYTES, buffer + start)
            store_i64(vectors, i * VECTOR_BYTES + 8, load_i64(ends, (row + i) * 8) - start)
        sent = np.int64(_sendmmsg(np.int32(socket), messages, np.uint32(count), np.int32(0)))
        # The first of the call fails if nobody listens at the port or the buffer is full: UDP loses it, the next is
        # tried.
        taken += max(sent, np.int64(0))
        row += max(sent, np.int64(1))
    return taken
