"""Market-on-close orders that wait outside of the books until the final closing call, which triggers them (11.2)."""

from __future__ import annotations

import numpy as np

from umdf.exchange.matching.memory_layout_kernel import WAITING, WAITING_CAPACITY, WAITING_COUNT
from umdf.kernels import inlined, load_i64, outlined, store_i64

W_ID, W_BOOK_SIDE, W_SIZE, W_FIRM, W_TERMS = 0, 8, 16, 24, 32
WAITING_BYTES, MAX_WAITING = 40, 65_536


@inlined
def waiting_address(t, index):
    return load_i64(t, WAITING * 8) + index * WAITING_BYTES


@inlined
def is_waiting_full(t):
    return load_i64(t, WAITING_COUNT * 8) == load_i64(t, WAITING_CAPACITY * 8)


@outlined
def find_waiting(t, order_id):
    """The index of a waiting order, -1 if there is none with this id."""
    for index in range(load_i64(t, WAITING_COUNT * 8)):
        if load_i64(waiting_address(t, index), W_ID) == order_id:
            return np.int64(index)
    return np.int64(-1)


@outlined
def add_waiting(t, order_id, book_side, size, firm, terms):
    """Let an order wait. The caller checks the capacity."""
    count = load_i64(t, WAITING_COUNT * 8)
    waiting = waiting_address(t, count)
    store_i64(waiting, W_ID, order_id)
    store_i64(waiting, W_BOOK_SIDE, book_side)
    store_i64(waiting, W_SIZE, size)
    store_i64(waiting, W_FIRM, firm)
    store_i64(waiting, W_TERMS, terms)
    store_i64(t, WAITING_COUNT * 8, count + 1)


@outlined
def remove_waiting(t, index):
    """Remove a waiting order; the others stay in the order in which they were entered."""
    count = load_i64(t, WAITING_COUNT * 8) - 1
    for following in range(index, count):
        target, source = waiting_address(t, following), waiting_address(t, following + 1)
        for offset in range(0, WAITING_BYTES, 8):
            store_i64(target, offset, load_i64(source, offset))
    store_i64(t, WAITING_COUNT * 8, count)
