"""Where the orders that were entered from Python are: a hash table from every id that they have had.

Nothing is removed when an order leaves the book: look the order up there. `rebuild_index` drops what is gone.
Market-on-close orders wait outside of the books until the final closing call, which triggers them (11.2).
"""

from __future__ import annotations

import numpy as np

from umdf.exchange.matching.book_side_kernel import locate
from umdf.exchange.matching.memory_layout_kernel import (
    COUNT,
    FIRST_IMPLIED_ID,
    FOUND_BOOK_SIDE,
    FOUND_ID,
    FOUND_KEY,
    I_BIDS,
    I_CAPACITY,
    I_ORDERS_OFFSET,
    INDEX_COUNT,
    INDEX_MASK,
    INSTRUMENT_BYTES,
    INSTRUMENTS,
    MARGIN,
    O_ID,
    O_KEY,
    ORDER_BYTES,
    ORDER_INDEX,
    ORDERS,
    WAITING,
    WAITING_CAPACITY,
    WAITING_COUNT,
    WAITING_KEY,
)
from umdf.kernels import inlined, kernel, load_i64, outlined, store_i64

X_ID, X_BOOK_SIDE, X_KEY = 0, 8, 16  # an entry; 0: it is free. X_BOOK_SIDE is 2 * the instrument's index + the side
INDEX_ENTRY_BYTES = 24
RENAMED = -1  # as X_BOOK_SIDE: X_KEY is the newer id
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


@inlined
def entry_of(base, mask, order_id):
    """The entry of an id, or the free one where it belongs. Ids are close together, and so are their entries."""
    slot = order_id & mask
    while True:
        entry = base + slot * INDEX_ENTRY_BYTES
        found = load_i64(entry, X_ID)
        if found == order_id or found == 0:
            return entry
        slot = (slot + 1) & mask


@inlined
def fill_entry(entry, order_id, book_side, key):
    store_i64(entry, X_ID, order_id)
    store_i64(entry, X_BOOK_SIDE, book_side)
    store_i64(entry, X_KEY, key)


@outlined
def remember(t, order_id, book_side, key):
    """Store where an order is. The caller checks the capacity (`is_index_full`)."""
    entry = entry_of(load_i64(t, ORDER_INDEX * 8), load_i64(t, INDEX_MASK * 8), order_id)
    if load_i64(entry, X_ID) == 0:
        store_i64(t, INDEX_COUNT * 8, load_i64(t, INDEX_COUNT * 8) + 1)
    fill_entry(entry, order_id, book_side, key)


@outlined
def rename(t, old_id, new_id, book_side, key):
    """An order has a new id; the old one leads to it."""
    remember(t, new_id, book_side, key)
    remember(t, old_id, RENAMED, new_id)


@inlined
def is_index_full(t):
    """Whether there may be no space for what one event stores."""
    return load_i64(t, INDEX_COUNT * 8) + load_i64(t, MARGIN * 8) > (load_i64(t, INDEX_MASK * 8) + 1) * 3 // 4


@outlined
def resolve(t, base, mask, order_id):
    """Store the newest id of an order and where it is, or was, as FOUND_…; False if the id is unknown."""
    first = entry = entry_of(base, mask, order_id)
    if load_i64(entry, X_ID) == 0:
        return False
    while load_i64(entry, X_BOOK_SIDE) == RENAMED:
        order_id = load_i64(entry, X_KEY)
        entry = entry_of(base, mask, order_id)
    if first != entry:
        store_i64(first, X_KEY, order_id)  # the next time it is found at once
    store_i64(t, FOUND_ID * 8, order_id)
    store_i64(t, FOUND_BOOK_SIDE * 8, load_i64(entry, X_BOOK_SIDE))
    store_i64(t, FOUND_KEY * 8, load_i64(entry, X_KEY))
    return True


@inlined
def found_instrument(t):
    return load_i64(t, INSTRUMENTS * 8) + (load_i64(t, FOUND_BOOK_SIDE * 8) >> 1) * INSTRUMENT_BYTES


@outlined
def is_alive(t):
    """Whether the order that was looked up is in its book, or waits for the closing call."""
    order_id, key = load_i64(t, FOUND_ID * 8), load_i64(t, FOUND_KEY * 8)
    if key == WAITING_KEY:
        return find_waiting(t, order_id) >= 0
    return locate(t, found_instrument(t), load_i64(t, FOUND_BOOK_SIDE * 8) & 1, key, order_id) >= 0


@outlined
def search_books(t, order_id):
    """Look up an order that the index does not have, one of the order flow, and remember it; False if there is none."""
    for index in range(load_i64(t, COUNT * 8)):
        instrument = load_i64(t, INSTRUMENTS * 8) + index * INSTRUMENT_BYTES
        for side in range(2):
            offset = load_i64(instrument, I_ORDERS_OFFSET * 8) + side * load_i64(instrument, I_CAPACITY * 8)
            orders = load_i64(t, ORDERS * 8) + offset * ORDER_BYTES
            for i in range(load_i64(instrument, (I_BIDS + side) * 8)):
                if load_i64(orders, i * ORDER_BYTES + O_ID * 8) == order_id:
                    key = load_i64(orders, i * ORDER_BYTES + O_KEY * 8)
                    remember(t, order_id, np.int64(index * 2 + side), key)
                    return resolve(t, load_i64(t, ORDER_INDEX * 8), load_i64(t, INDEX_MASK * 8), order_id)
    return False


@outlined
def find(t, order_id):
    """Look an order up, as FOUND_…; whether the id is or was that of an order. Nobody owns an implied one."""
    if order_id >= FIRST_IMPLIED_ID:
        return False
    known = resolve(t, load_i64(t, ORDER_INDEX * 8), load_i64(t, INDEX_MASK * 8), order_id)
    return known or search_books(t, order_id)


@kernel
def rebuild_index(t, base, mask):
    """Move what still exists to a new hash table, which is empty; return the number of its entries."""
    old_base, old_mask = load_i64(t, ORDER_INDEX * 8), load_i64(t, INDEX_MASK * 8)
    store_i64(t, ORDER_INDEX * 8, base)
    store_i64(t, INDEX_MASK * 8, mask)
    store_i64(t, INDEX_COUNT * 8, 0)
    for slot in range(old_mask + 1):
        old = old_base + slot * INDEX_ENTRY_BYTES
        order_id = load_i64(old, X_ID)
        if order_id == 0:
            continue
        resolve(t, old_base, old_mask, order_id)
        if not is_alive(t):
            continue
        newest = load_i64(t, FOUND_ID * 8)
        if newest == order_id:
            remember(t, order_id, load_i64(old, X_BOOK_SIDE), load_i64(old, X_KEY))
        else:
            remember(t, order_id, RENAMED, newest)
    return load_i64(t, INDEX_COUNT * 8)
