"""Orders from outside, one at a time: enter, amend, cancel. The matching is that of the order flow."""

from __future__ import annotations

import numpy as np

from umdf.exchange.matching.auction_kernel import end_auction_event
from umdf.exchange.matching.book_side_kernel import find_order, is_order_at, order_count, side_address
from umdf.exchange.matching.matching_kernel import add_order, match_aggressor, next_order_id, reduce_order
from umdf.exchange.matching.memory_layout_kernel import (
    CAPACITY,
    FINAL_CLOSING_CALL,
    I_CAPACITY,
    I_STATE,
    INSTRUMENT_BYTES,
    INSTRUMENTS,
    LAST,
    MARGIN,
    MARKET_ORDER_KEY,
    O_FIRM,
    O_KEY,
    O_SIZE,
    OPEN,
    ORDER_BYTES,
    ORDER_ID,
    RESERVED,
    ROWS,
)
from umdf.exchange.matching.order_flow_kernel import cancel_order
from umdf.kernels import inlined, kernel, load_i64, outlined

# Results that are no order id. NOTHING_RESTS: all of it traded or was cancelled.
NOTHING_RESTS, JOURNAL_FULL, SIDE_FULL, NOT_ALLOWED, UNKNOWN_ORDER = 0, -1, -2, -3, -4
NO_EXPIRY_NS = 1 << 60


@inlined
def instrument_address(t, index):
    return load_i64(t, INSTRUMENTS * 8) + index * INSTRUMENT_BYTES


@inlined
def is_auction(state):
    return state == RESERVED or state == FINAL_CLOSING_CALL


@outlined
def check_entry(t, instrument, side, key):
    """0, or why an order cannot be entered now."""
    state = load_i64(instrument, I_STATE * 8)
    if load_i64(t, ROWS * 8) + load_i64(t, MARGIN * 8) > load_i64(t, CAPACITY * 8):
        return JOURNAL_FULL
    if not (is_auction(state) or (state == OPEN and key != MARKET_ORDER_KEY)):
        return NOT_ALLOWED
    return SIDE_FULL if order_count(instrument, side) == load_i64(instrument, I_CAPACITY * 8) else 0


@outlined
def place(t, instrument, index, side, key, size, firm, ts):
    """Match or add an order that may be entered; return the id under which it rests."""
    if load_i64(instrument, I_STATE * 8) == OPEN:
        opposite, count = side_address(t, instrument, 1 - side), order_count(instrument, 1 - side)
        if count > 0 and load_i64(opposite, (count - 1) * ORDER_BYTES + O_KEY * 8) + key >= 0:
            before = order_count(instrument, side)
            match_aggressor(t, instrument, index, side, key, size, firm, ts)
            rests = order_count(instrument, side) > before
            return load_i64(t, ORDER_ID * 8) if rests else np.int64(NOTHING_RESTS)
    order_id = next_order_id(t, 0)
    is_open = load_i64(instrument, I_STATE * 8) == OPEN
    flags = LAST if is_open else 0
    add_order(t, instrument, index, side, key, order_id, size, 0, firm, ts, flags, NO_EXPIRY_NS)
    if not is_open:
        end_auction_event(t, instrument, ts)
    return order_id


@inlined
def locate(t, instrument, side, key, order_id):
    """The index of an order in its side, -1 if it is not there."""
    orders, count = side_address(t, instrument, side), order_count(instrument, side)
    index = find_order(orders, count, key, order_id)
    return index if is_order_at(orders, count, index, key, order_id) else np.int64(-1)


@kernel
def enter(t, index, side, key, size, firm, ts):
    """Enter an order; return the id under which it rests, or a result that is none."""
    instrument = instrument_address(t, index)
    refusal = check_entry(t, instrument, side, key)
    return refusal if refusal < 0 else place(t, instrument, index, side, key, size, firm, ts)


@kernel
def cancel(t, index, side, key, order_id, ts):
    """Cancel an order; return its size, or a result below 0."""
    instrument = instrument_address(t, index)
    state = load_i64(instrument, I_STATE * 8)
    if load_i64(t, ROWS * 8) + load_i64(t, MARGIN * 8) > load_i64(t, CAPACITY * 8):
        return np.int64(JOURNAL_FULL)
    if not (state == OPEN or is_auction(state)):
        return np.int64(NOT_ALLOWED)
    place_in_side = locate(t, instrument, side, key, order_id)
    if place_in_side < 0:
        return np.int64(UNKNOWN_ORDER)
    order = side_address(t, instrument, side) + place_in_side * ORDER_BYTES
    size = load_i64(order, O_SIZE * 8)
    cancel_order(t, instrument, side, place_in_side, ts, LAST if state == OPEN else 0)
    if state != OPEN:
        end_auction_event(t, instrument, ts)
    return size


@kernel
def amend(t, index, side, key, order_id, new_key, new_size, ts):
    """Change price and size of an order; return its id, a new one where it loses its priority (13.4)."""
    instrument = instrument_address(t, index)
    refusal = check_entry(t, instrument, side, new_key)
    if refusal < 0 and refusal != SIDE_FULL:
        return refusal
    place_in_side = locate(t, instrument, side, key, order_id)
    if place_in_side < 0:
        return np.int64(UNKNOWN_ORDER)
    order = side_address(t, instrument, side) + place_in_side * ORDER_BYTES
    if new_key == key and new_size == load_i64(order, O_SIZE * 8):
        return order_id
    if new_key == key and new_size < load_i64(order, O_SIZE * 8):
        is_open = load_i64(instrument, I_STATE * 8) == OPEN
        reduce_order(t, instrument, side, place_in_side, new_size, ts, LAST if is_open else 0)
        if not is_open:
            end_auction_event(t, instrument, ts)
        return order_id
    firm = load_i64(order, O_FIRM * 8)
    cancel_order(t, instrument, side, place_in_side, ts, 0)
    return place(t, instrument, index, side, new_key, new_size, firm, ts)
