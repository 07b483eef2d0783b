"""Records about orders → records about price levels: price-depth books of a depth (9.3), top of the book (9.4, 9.7).

A side is sorted, its best level last: by key, which is higher for a better price on both sides. An order without a
price (MOA, MOC) is in the best level of all, which counts in the depth.
"""

from __future__ import annotations

import numpy as np

from umdf.exchange.matching.book_side_kernel import memmove
from umdf.exchange.matching.memory_layout_kernel import (
    ADD,
    BID,
    CHANGE,
    CHANNEL_RESET,
    CODE,
    DEFINITION,
    DELETE,
    DELETE_THRU,
    EMPTY_BOOK,
    FIRM,
    FLAGS,
    ID,
    INSERT,
    INSTRUMENT,
    KIND,
    LAST,
    NULL,
    OTHER,
    POSITION,
    PRICE,
    RECORD_BYTES,
    RECOVERY,
    SIDE,
    SIZE,
)
from umdf.kernels import inlined, kernel, load_i64, outlined, store_i64

# Entries of the table of arguments and state. P_SOURCE: the row of the journal that each record comes from.
P_RECORDS, P_ROWS, P_FIRST, P_OUT, P_SOURCE, P_OUT_ROWS, P_CAPACITY = 0, 1, 2, 3, 4, 5, 6
P_SIDES, P_INSTRUMENTS, P_LEVELS, P_DEPTH, P_IS_OVERLAY, P_EVENT_ROW, P_FULL_SIDE = 7, 8, 9, 10, 11, 12, 13
ARGUMENT_COUNT = 14
DONE, SIDE_FULL = 0, -1  # SIDE_FULL: the side P_FULL_SIDE has to grow before the row P_FIRST

# A side: its levels, how many fit, where they are (an index in P_LEVELS).
S_COUNT, S_CAPACITY, S_OFFSET = 0, 1, 2
SIDE_WORDS, SIDE_BYTES = 3, 24
L_KEY, L_SIZE, L_ORDERS = 0, 1, 2
LEVEL_WORDS, LEVEL_BYTES = 3, 24
NO_PRICE_KEY = (1 << 63) - 1
MAX_OUT_ROWS = 2  # for each record: a deleted level, and the one that comes back into the depth


@inlined
def key_of(is_bid, price):
    if price == NULL:
        return np.int64(NO_PRICE_KEY)
    return price if is_bid else -price


@inlined
def price_of_key(is_bid, key):
    if key == NO_PRICE_KEY:
        return np.int64(NULL)
    return key if is_bid else -key


@inlined
def find_level(levels, count, key):
    """The first level whose key is not below `key`."""
    low, high = np.int64(0), count
    while low < high:
        middle = (low + high) // 2
        if load_i64(levels, middle * LEVEL_BYTES) < key:
            low = middle + 1
        else:
            high = middle
    return low


@outlined
def emit_level(p, record, row, kind, level, is_bid):
    """Append a record about a level: price, size, orders (in CODE) and position; about no level if it is 0."""
    out_row = load_i64(p, P_OUT_ROWS * 8)
    out = load_i64(p, P_OUT * 8) + out_row * RECORD_BYTES
    memmove(out, record, RECORD_BYTES)
    store_i64(out, KIND * 8, kind)
    store_i64(out, FLAGS * 8, load_i64(record, FLAGS * 8) & RECOVERY)
    for column in (ID, FIRM, OTHER, INSERT, PRICE, SIZE, CODE, POSITION):
        store_i64(out, column * 8, NULL)
    if level != 0:
        store_i64(out, PRICE * 8, price_of_key(is_bid, load_i64(level, L_KEY * 8)))
        store_i64(out, SIZE * 8, load_i64(level, L_SIZE * 8))
        store_i64(out, CODE * 8, load_i64(level, L_ORDERS * 8))
    store_i64(load_i64(p, P_SOURCE * 8), out_row * 8, row)
    store_i64(p, P_OUT_ROWS * 8, out_row + 1)
    return out


@inlined
def emit_at(p, record, row, kind, levels, index, position, is_bid):
    out = emit_level(p, record, row, kind, levels + index * LEVEL_BYTES, is_bid)
    store_i64(out, POSITION * 8, position)


@inlined
def takes_back_deletion(p, record, position, price):
    """Whether the newest record of the event has deleted this level, which an order brings back: it only changes."""
    out_rows = load_i64(p, P_OUT_ROWS * 8)
    if out_rows <= load_i64(p, P_EVENT_ROW * 8):
        return False
    last = load_i64(p, P_OUT * 8) + (out_rows - 1) * RECORD_BYTES
    return (
        load_i64(last, KIND * 8) == DELETE
        and load_i64(last, INSTRUMENT * 8) == load_i64(record, INSTRUMENT * 8)
        and load_i64(last, SIDE * 8) == load_i64(record, SIDE * 8)
        and load_i64(last, POSITION * 8) == position
        and load_i64(last, PRICE * 8) == price
    )


@inlined
def emit_top(p, record, row, levels, count, is_bid):
    """An Overlay of the best level; of none if the side is empty, which removes it (9.7)."""
    level = levels + (count - 1) * LEVEL_BYTES if count > 0 else np.int64(0)
    out = emit_level(p, record, row, CHANGE, level, is_bid)
    store_i64(out, POSITION * 8, 1)


@outlined
def apply_order(p, record, row, kind, side, is_bid):
    """Apply an order to the levels of its side; False if the side is full."""
    levels = load_i64(p, P_LEVELS * 8) + load_i64(side, S_OFFSET * 8) * LEVEL_BYTES
    count, depth = load_i64(side, S_COUNT * 8), load_i64(p, P_DEPTH * 8)
    is_overlay = load_i64(p, P_IS_OVERLAY * 8) != 0
    key, size = key_of(is_bid, load_i64(record, PRICE * 8)), load_i64(record, SIZE * 8)
    index = find_level(levels, count, key)
    level = levels + index * LEVEL_BYTES
    exists = index < count and load_i64(level, L_KEY * 8) == key
    position = count - index  # of the level if it exists, 1 is the best
    if kind == ADD and not exists:
        if count == load_i64(side, S_CAPACITY * 8):
            return False
        memmove(level + LEVEL_BYTES, level, (count - index) * LEVEL_BYTES)
        store_i64(level, L_KEY * 8, key)
        store_i64(level, L_SIZE * 8, size)
        store_i64(level, L_ORDERS * 8, 1)
        store_i64(side, S_COUNT * 8, count + 1)
        position += 1
        if position <= depth:  # the bottom row goes without a message (9.3.1)
            if is_overlay:
                emit_top(p, record, row, levels, count + 1, is_bid)
            elif takes_back_deletion(p, record, position, load_i64(record, PRICE * 8)):
                out_rows = load_i64(p, P_OUT_ROWS * 8) - 1
                store_i64(p, P_OUT_ROWS * 8, out_rows)
                deleted = load_i64(load_i64(p, P_SOURCE * 8), out_rows * 8)  # the truth has both in this message
                emit_at(p, record, deleted, CHANGE, levels, index, position, is_bid)
            else:
                emit_at(p, record, row, ADD, levels, index, position, is_bid)
        return True
    if not exists:
        return True
    orders = load_i64(level, L_ORDERS * 8)
    if kind == ADD:
        size, orders = load_i64(level, L_SIZE * 8) + size, orders + 1
    elif kind == CHANGE:
        size = load_i64(level, L_SIZE * 8) + size - load_i64(record, OTHER * 8)
    elif orders > 1:
        size, orders = load_i64(level, L_SIZE * 8) - size, orders - 1
    else:
        if position <= depth and not is_overlay:
            emit_at(p, record, row, DELETE, levels, index, position, is_bid)
        memmove(level, level + LEVEL_BYTES, (count - index - 1) * LEVEL_BYTES)
        count -= 1
        store_i64(side, S_COUNT * 8, count)
        if position <= depth and is_overlay:
            emit_top(p, record, row, levels, count, is_bid)
        elif position <= depth <= count:  # the row that comes back into the depth
            emit_at(p, record, row, ADD, levels, count - depth, depth, is_bid)
        return True
    store_i64(level, L_SIZE * 8, size)
    store_i64(level, L_ORDERS * 8, orders)
    if position <= depth:
        if is_overlay:
            emit_top(p, record, row, levels, count, is_bid)
        else:
            emit_at(p, record, row, CHANGE, levels, index, position, is_bid)
    return True


@inlined
def copy_record(p, record, row):
    out_row = load_i64(p, P_OUT_ROWS * 8)
    out = load_i64(p, P_OUT * 8) + out_row * RECORD_BYTES
    memmove(out, record, RECORD_BYTES)
    store_i64(out, FLAGS * 8, load_i64(record, FLAGS * 8) & ~LAST)
    store_i64(load_i64(p, P_SOURCE * 8), out_row * 8, row)
    store_i64(p, P_OUT_ROWS * 8, out_row + 1)


@outlined
def clear_sides(p, first, last):
    for number in range(first, last):
        store_i64(load_i64(p, P_SIDES * 8) + number * SIDE_BYTES, S_COUNT * 8, 0)


@outlined
def delete_side(p, record, row, side):
    """Delete Thru; at the top of the book an Overlay of nothing, if there was something."""
    if load_i64(p, P_IS_OVERLAY * 8) == 0:
        copy_record(p, record, row)
    elif load_i64(side, S_COUNT * 8) > 0:
        emit_top(p, record, row, np.int64(0), np.int64(0), False)
    store_i64(side, S_COUNT * 8, 0)


@kernel
def derive_levels(p):
    """Derive the records of P_RECORDS from P_FIRST on; DONE, or SIDE_FULL."""
    records, rows, row = load_i64(p, P_RECORDS * 8), load_i64(p, P_ROWS * 8), load_i64(p, P_FIRST * 8)
    sides = load_i64(p, P_SIDES * 8)
    while row < rows:
        record = records + row * RECORD_BYTES
        kind, instrument = load_i64(record, KIND * 8), load_i64(record, INSTRUMENT * 8)
        is_bid = load_i64(record, SIDE * 8) == BID
        number = 2 * instrument + (0 if is_bid else 1)
        if kind == ADD or kind == CHANGE or kind == DELETE:
            if not apply_order(p, record, row, kind, sides + number * SIDE_BYTES, is_bid):
                store_i64(p, P_FIRST * 8, row)
                store_i64(p, P_FULL_SIDE * 8, number)
                return np.int64(SIDE_FULL)
        elif kind == DELETE_THRU:
            delete_side(p, record, row, sides + number * SIDE_BYTES)
        else:
            if kind == CHANNEL_RESET:
                clear_sides(p, 0, 2 * load_i64(p, P_INSTRUMENTS * 8))
            elif kind == EMPTY_BOOK or (kind == DEFINITION and load_i64(record, CODE * 8) == ord("D")):
                clear_sides(p, 2 * instrument, 2 * instrument + 2)
            copy_record(p, record, row)
        if load_i64(record, FLAGS * 8) & LAST != 0:
            mark_event_end(p)
        row += 1
    return np.int64(DONE)


@inlined
def mark_event_end(p):
    """The newest record that the event has left is its end."""
    out_rows = load_i64(p, P_OUT_ROWS * 8)
    if out_rows > load_i64(p, P_EVENT_ROW * 8):
        last = load_i64(p, P_OUT * 8) + (out_rows - 1) * RECORD_BYTES
        store_i64(last, FLAGS * 8, load_i64(last, FLAGS * 8) | LAST)
    store_i64(p, P_EVENT_ROW * 8, out_rows)
