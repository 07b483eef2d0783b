"""Orders from Python are entered: matched as those of the order flow, added to a book, or kept for the closing call."""

from __future__ import annotations

import numpy as np

from umdf.exchange.matching.auction_kernel import (
    compute_theoretical,
    delete_theoretical,
    end_auction_event,
    publish_theoretical,
    uncross,
)
from umdf.exchange.matching.book_side_kernel import order_count
from umdf.exchange.matching.implied_orders_kernel import derive_queued, has_capacity, withdraw
from umdf.exchange.matching.journal_kernel import emit, end_event, statistic_address
from umdf.exchange.matching.matching_kernel import (
    REST_AT_LAST_PRICE,
    REST_AT_LIMIT,
    REST_NEVER,
    match_aggressor,
    next_order_id,
    queue_strategies,
    rest_new_order,
)
from umdf.exchange.matching.memory_layout_kernel import (
    AGGRESSOR_OFFSET,
    AUCTION_NS,
    CANCELLED,
    COUNT,
    EXPIRY_SHIFT,
    FINAL_CLOSING_CALL,
    I_CAPACITY,
    I_EVENT,
    I_STATE,
    I_STATE_TS,
    INSTRUMENT_BYTES,
    INSTRUMENTS,
    LAST,
    LAST_KEY,
    MARKET_ORDER_KEY,
    NO_SIDE,
    NULL,
    O_DISPLAY,
    O_FIRM,
    O_KEY,
    O_SIZE,
    O_TERMS,
    OPEN,
    RESERVED,
    RESTING_ID,
    ROWS,
    S_THEORETICAL,
    SCRATCH,
    SEPARATES,
    STARTED_AUCTION,
    STATE,
    STP_MASK,
    V_PRESENT,
    WAITING_COUNT,
    WAITING_KEY,
)
from umdf.exchange.matching.order_checks_kernel import (
    STARTS_AUCTION,
    check_entry,
    check_matching,
    crosses,
    is_auction,
    is_synchronizing,
    key_of,
    waits,
)
from umdf.exchange.matching.order_index_kernel import (
    W_BOOK_SIDE,
    W_FIRM,
    W_ID,
    W_SIZE,
    W_TERMS,
    add_waiting,
    is_waiting_full,
    remember,
    remove_waiting,
    rename,
    waiting_address,
)
from umdf.exchange.matching.request_layout_kernel import (
    ENTER,
    MARKET,
    MARKET_TO_LIMIT,
    Q_ACTION,
    Q_DISPLAY,
    Q_EXPIRES,
    Q_FIRM,
    Q_INSTRUMENT,
    Q_PRICE,
    Q_SIDE,
    Q_SIZE,
    Q_STP,
    Q_TYPE,
    RESUME,
    SYNCHRONISM,
    TERMS_INVALID,
    UNKNOWN_INSTRUMENT,
    WAITING_FULL,
)
from umdf.kernels import inlined, kernel, load_i64, outlined, store_i64

UNFINISHED = 2  # the journal is full before an order is matched to its end


@inlined
def instrument_address(t, index):
    return load_i64(t, INSTRUMENTS * 8) + index * INSTRUMENT_BYTES


@outlined
def start_auction(t, instrument, ts):
    """Separate an instrument from its group: an auction that a price band starts (10.9, 11.1)."""
    withdraw(t, instrument, ts)
    opens_at = ts + load_i64(t, AUCTION_NS * 8)
    emit(
        t, instrument, STATE, ts, LAST, NO_SIDE, NULL, NULL, NULL, NULL, NULL, NULL, opens_at, SEPARATES, RESERVED
    )  # fmt: skip
    store_i64(instrument, I_STATE * 8, RESERVED)
    store_i64(instrument, I_EVENT * 8, SEPARATES)
    store_i64(instrument, I_STATE_TS * 8, ts)
    store_i64(t, STARTED_AUCTION * 8, 1)


@outlined
def place(t, instrument, index, side, order, order_type, ts):
    """Match an order that may be entered, and add what rests of it; UNFINISHED if the journal is full before that."""
    is_open = load_i64(instrument, I_STATE * 8) == OPEN
    rest_mode = (
        REST_NEVER if order_type == MARKET else REST_AT_LAST_PRICE if order_type == MARKET_TO_LIMIT else REST_AT_LIMIT
    )
    while is_open and crosses(t, instrument, side, load_i64(order, O_KEY * 8)):
        left = match_aggressor(t, instrument, index, side, order, rest_mode, ts)
        queue_strategies(t, instrument)
        if left == 0:
            return 0
        store_i64(order, O_SIZE * 8, left)
        if derive_queued(t, ts) > 0 or not has_capacity(t):
            return UNFINISHED
    # An implied order that it has traded with need not be followed by another one.
    if is_open and rest_mode == REST_NEVER:
        store_i64(t, CANCELLED * 8, load_i64(t, CANCELLED * 8) + load_i64(order, O_SIZE * 8))
        return 0
    if is_open and rest_mode == REST_AT_LAST_PRICE:
        store_i64(order, O_KEY * 8, -load_i64(t, LAST_KEY * 8))
    rest_new_order(
        t, instrument, index, side, order, load_i64(order, O_SIZE * 8), next_order_id(t, 0), ts, LAST if is_open else 0
    )
    if not is_open:
        end_auction_event(t, instrument, ts)
    return 0


@outlined
def enter(t, request, order, ts):
    """Enter an order; 0, why it is refused, or UNFINISHED."""
    index, side, size = load_i64(request, Q_INSTRUMENT), load_i64(request, Q_SIDE) & 1, load_i64(request, Q_SIZE)
    price, order_type, stp_id = load_i64(request, Q_PRICE), load_i64(request, Q_TYPE), load_i64(request, Q_STP)
    display, expires = load_i64(request, Q_DISPLAY), load_i64(request, Q_EXPIRES)
    if index < 0 or index >= load_i64(t, COUNT * 8):
        return UNKNOWN_INSTRUMENT
    if expires < 1 or expires >> (EXPIRY_SHIFT - 1) != 0 or stp_id < 0 or stp_id > STP_MASK:
        return TERMS_INVALID
    instrument, terms = instrument_address(t, index), expires << EXPIRY_SHIFT | stp_id
    if load_i64(request, Q_ACTION) == ENTER:
        if is_synchronizing(instrument):
            return SYNCHRONISM
        check = check_entry(t, instrument, side, order_type, price, size, display, stp_id)
        if check < 0:
            return check
        if waits(load_i64(instrument, I_STATE * 8), order_type):
            return wait_for_closing_call(t, index * 2 + side, size, load_i64(request, Q_FIRM), terms)
        if check == STARTS_AUCTION:
            start_auction(t, instrument, ts)
    store_i64(order, O_KEY * 8, key_of(instrument, side, price))
    store_i64(order, O_SIZE * 8, size)
    store_i64(order, O_FIRM * 8, load_i64(request, Q_FIRM))
    store_i64(order, O_DISPLAY * 8, display)
    store_i64(order, O_TERMS * 8, terms)
    outcome = place(t, instrument, index, side, order, order_type, ts)
    if outcome == UNFINISHED:
        store_i64(request, Q_ACTION, RESUME)
        store_i64(request, Q_SIZE, load_i64(order, O_SIZE * 8))
    return outcome


@outlined
def wait_for_closing_call(t, book_side, size, firm, terms):
    if is_waiting_full(t):
        return WAITING_FULL
    order_id = next_order_id(t, 0)
    add_waiting(t, order_id, book_side, size, firm, terms)
    remember(t, order_id, book_side, WAITING_KEY)
    store_i64(t, RESTING_ID * 8, order_id)
    return 0


@kernel
def trigger_waiting(t, first, ts):
    """Add the waiting orders, from `first` on, of instruments in the final closing call to their books (11.2).

    What cannot be added is cancelled. Return the first that needs more space, or -1. CANCELLED is the quantity.
    """
    order, i = load_i64(t, SCRATCH * 8) + AGGRESSOR_OFFSET, first
    while i < load_i64(t, WAITING_COUNT * 8):
        waiting = waiting_address(t, i)
        book_side, size = load_i64(waiting, W_BOOK_SIDE), load_i64(waiting, W_SIZE)
        index, side, old_id = book_side >> 1, book_side & 1, load_i64(waiting, W_ID)
        instrument = instrument_address(t, index)
        if load_i64(instrument, I_STATE * 8) != FINAL_CLOSING_CALL:
            i += 1
            continue
        if not has_capacity(t):
            return np.int64(i)
        terms = load_i64(waiting, W_TERMS)
        is_full = order_count(instrument, side) == load_i64(instrument, I_CAPACITY * 8)
        if is_full or check_matching(t, instrument, side, np.int64(MARKET_ORDER_KEY), size, terms & STP_MASK) < 0:
            store_i64(t, CANCELLED * 8, load_i64(t, CANCELLED * 8) + size)
        else:
            store_i64(order, O_KEY * 8, MARKET_ORDER_KEY)
            store_i64(order, O_FIRM * 8, load_i64(waiting, W_FIRM))
            store_i64(order, O_DISPLAY * 8, 0)
            store_i64(order, O_TERMS * 8, terms)
            new_id = next_order_id(t, 0)
            rest_new_order(t, instrument, index, side, order, size, new_id, ts, 0)
            rename(t, old_id, new_id, book_side, np.int64(MARKET_ORDER_KEY))
            end_auction_event(t, instrument, ts)
        remove_waiting(t, i)
    return np.int64(-1)


# Auctions of one instrument


@kernel
def uncross_instrument(t, index, ts):
    """End the auction of an instrument; False if the journal is too full for all of it: call it again."""
    return uncross(t, instrument_address(t, index), ts)


@kernel
def store_theoretical(t, index):
    """Store what an auction of an instrument would trade now, in AUCTION_RESULT."""
    compute_theoretical(t, instrument_address(t, index))
    return 0


@kernel
def refresh_theoretical(t, index, ts):
    """Publish the theoretical price after a change of state: of an auction as it is now, else delete it."""
    instrument, rows = instrument_address(t, index), load_i64(t, ROWS * 8)
    if is_auction(load_i64(instrument, I_STATE * 8)):
        publish_theoretical(t, instrument, ts)
    elif load_i64(statistic_address(instrument, S_THEORETICAL), V_PRESENT * 8) != 0:
        delete_theoretical(t, instrument, ts)
    if load_i64(t, ROWS * 8) > rows:
        end_event(t)
    return 0
