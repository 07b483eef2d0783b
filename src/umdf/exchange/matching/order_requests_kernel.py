"""Requests from Python, one or many in one call: orders are entered, amended and cancelled."""

from __future__ import annotations

import numpy as np

from umdf.exchange.matching.auction_kernel import end_auction_event
from umdf.exchange.matching.book_side_kernel import locate, price_of, side_address
from umdf.exchange.matching.implied_orders_kernel import derive_queued, has_capacity
from umdf.exchange.matching.matching_kernel import cancel_order, queue_strategies, reduce_order
from umdf.exchange.matching.memory_layout_kernel import (
    AGGRESSOR_OFFSET,
    CANCELLED,
    DAY,
    EXPIRY_SHIFT,
    FOUND_BOOK_SIDE,
    FOUND_ID,
    FOUND_KEY,
    I_STATE,
    LAST,
    LAST_TS,
    MARKET_ORDER_KEY,
    NULL,
    O_DISPLAY,
    O_FIRM,
    O_KEY,
    O_RESERVE,
    O_SIZE,
    O_TERMS,
    OPEN,
    ORDER_BYTES,
    RESTING_ID,
    SCRATCH,
    STARTED_AUCTION,
    STP_MASK,
    TRADED,
    WAITING_KEY,
)
from umdf.exchange.matching.order_checks_kernel import (
    STARTS_AUCTION,
    check_matching,
    check_price,
    check_size,
    is_auction,
    is_synchronizing,
    key_of,
    may_cancel,
)
from umdf.exchange.matching.order_entry_kernel import UNFINISHED, enter, instrument_address, place, start_auction
from umdf.exchange.matching.order_index_kernel import (
    W_SIZE,
    find,
    find_waiting,
    found_instrument,
    remove_waiting,
    rename,
    waiting_address,
)
from umdf.exchange.matching.request_layout_kernel import (
    A_CANCELLED,
    A_ORDER_ID,
    A_REFUSAL,
    A_STARTED_AUCTION,
    A_TRADED,
    AMEND,
    CANCEL,
    LIMIT,
    NOT_ALLOWED,
    PRICE_NOT_ALLOWED,
    Q_ACTION,
    Q_DISPLAY,
    Q_EXPIRES,
    Q_FIRM,
    Q_INSTRUMENT,
    Q_ORDER_ID,
    Q_PRICE,
    Q_SIDE,
    Q_SIZE,
    Q_STP,
    Q_TS,
    Q_TYPE,
    REQUEST_BYTES,
    RESULT_BYTES,
    RESUME,
    SYNCHRONISM,
    UNKNOWN_ORDER,
)
from umdf.kernels import kernel, load_i64, outlined, store_i64


@outlined
def cancel(t, request, ts):
    """Cancel an order; 0, or why it is refused."""
    if not find(t, load_i64(request, Q_ORDER_ID)):
        return UNKNOWN_ORDER
    instrument, side = found_instrument(t), load_i64(t, FOUND_BOOK_SIDE * 8) & 1
    if is_synchronizing(instrument):
        return SYNCHRONISM
    key, order_id, state = load_i64(t, FOUND_KEY * 8), load_i64(t, FOUND_ID * 8), load_i64(instrument, I_STATE * 8)
    waiting = find_waiting(t, order_id) if key == WAITING_KEY else np.int64(-1)
    index = waiting if key == WAITING_KEY else locate(t, instrument, side, key, order_id)
    if index < 0:
        return UNKNOWN_ORDER
    if not may_cancel(state):
        return NOT_ALLOWED
    if waiting >= 0:
        store_i64(t, CANCELLED * 8, load_i64(waiting_address(t, waiting), W_SIZE))
        remove_waiting(t, waiting)
        return 0
    order = side_address(t, instrument, side) + index * ORDER_BYTES
    store_i64(t, CANCELLED * 8, load_i64(order, O_SIZE * 8) + load_i64(order, O_RESERVE * 8))
    cancel_order(t, instrument, side, index, ts, 0 if is_auction(state) else LAST)
    if is_auction(state):
        end_auction_event(t, instrument, ts)
    return 0


@outlined
def amend(t, request, new_order, ts):
    """Change price and size of an order; 0, why it is refused, or UNFINISHED.

    It keeps its id and its priority if only its size is reduced (13.4); of a disclosed order the hidden part is reduced
    first.
    """
    if not find(t, load_i64(request, Q_ORDER_ID)):
        return UNKNOWN_ORDER
    instrument, side = found_instrument(t), load_i64(t, FOUND_BOOK_SIDE * 8) & 1
    if is_synchronizing(instrument):
        return SYNCHRONISM
    key, order_id, state = load_i64(t, FOUND_KEY * 8), load_i64(t, FOUND_ID * 8), load_i64(instrument, I_STATE * 8)
    price, size = load_i64(request, Q_PRICE), load_i64(request, Q_SIZE)
    if key == WAITING_KEY:
        return amend_waiting(t, instrument, order_id, state, price, size)
    index = locate(t, instrument, side, key, order_id)
    if index < 0:
        return UNKNOWN_ORDER
    if state != OPEN and not is_auction(state):
        return NOT_ALLOWED
    order = side_address(t, instrument, side) + index * ORDER_BYTES
    shown, hidden, display = load_i64(order, O_SIZE * 8), load_i64(order, O_RESERVE * 8), load_i64(order, O_DISPLAY * 8)
    size = size if size != NULL else shown + hidden
    display = display if display < size else np.int64(0)
    check = check_size(instrument, size, 0)
    if check == 0 and key == MARKET_ORDER_KEY:
        check = PRICE_NOT_ALLOWED if price != NULL else 0
    elif check == 0:
        price = price if price != NULL else price_of(instrument, side, key)
        check = check_price(instrument, price)
    new_key, owner = key_of(instrument, side, price), load_i64(order, O_TERMS * 8) & STP_MASK
    if check == 0 and new_key != key:
        check = check_matching(t, instrument, side, new_key, size, owner)
    if check < 0:
        return check
    store_i64(t, RESTING_ID * 8, order_id)
    if new_key == key and size <= shown + hidden:
        new_hidden = min(max(hidden - (shown + hidden - size), 0), size)
        store_i64(order, O_RESERVE * 8, new_hidden)
        if size - new_hidden < shown:
            reduce_order(t, instrument, side, index, size - new_hidden, ts, 0 if is_auction(state) else LAST)
            if is_auction(state):
                end_auction_event(t, instrument, ts)
        return 0
    store_i64(new_order, O_KEY * 8, new_key)
    store_i64(new_order, O_SIZE * 8, size)
    store_i64(new_order, O_FIRM * 8, load_i64(order, O_FIRM * 8))
    store_i64(new_order, O_DISPLAY * 8, display)
    # An order of the order flow is one from Python from now on.
    terms = load_i64(order, O_TERMS * 8)
    store_i64(new_order, O_TERMS * 8, terms if terms != 0 else np.int64(DAY) << EXPIRY_SHIFT)
    store_i64(t, RESTING_ID * 8, 0)
    cancel_order(t, instrument, side, index, ts, 0)
    if check == STARTS_AUCTION:
        start_auction(t, instrument, ts)
    index = load_i64(t, FOUND_BOOK_SIDE * 8) >> 1
    outcome = place(t, instrument, index, side, new_order, LIMIT, ts)
    newest = load_i64(t, RESTING_ID * 8)
    if newest != 0:
        rename(t, order_id, newest, index * 2 + side, new_key)
    if outcome == UNFINISHED:
        store_i64(request, Q_ACTION, RESUME)
        store_i64(request, Q_ORDER_ID, order_id)
        store_i64(request, Q_INSTRUMENT, index)
        store_i64(request, Q_SIDE, side)
        store_i64(request, Q_PRICE, price)
        store_i64(request, Q_SIZE, load_i64(new_order, O_SIZE * 8))
        store_i64(request, Q_FIRM, load_i64(new_order, O_FIRM * 8))
        store_i64(request, Q_TYPE, LIMIT)
        store_i64(request, Q_DISPLAY, display)
        store_i64(request, Q_EXPIRES, load_i64(new_order, O_TERMS * 8) >> EXPIRY_SHIFT)
        store_i64(request, Q_STP, owner)
    return outcome


@outlined
def amend_waiting(t, instrument, order_id, state, price, size):
    waiting = find_waiting(t, order_id)
    if waiting < 0:
        return UNKNOWN_ORDER
    if state != OPEN and not is_auction(state):
        return NOT_ALLOWED
    if price != NULL:
        return PRICE_NOT_ALLOWED
    check = check_size(instrument, size, 0) if size != NULL else 0
    if check == 0:
        store_i64(t, RESTING_ID * 8, order_id)
        if size != NULL:
            store_i64(waiting_address(t, waiting), W_SIZE, size)
    return check


@kernel
def process_requests(t, requests, results, first, stop):
    """Process the requests from `first` on; return the first that needs more space in the journal or the index."""
    order = load_i64(t, SCRATCH * 8) + AGGRESSOR_OFFSET
    for i in range(first, stop):
        request, result = requests + i * REQUEST_BYTES, results + i * RESULT_BYTES
        action, ts = load_i64(request, Q_ACTION), max(load_i64(request, Q_TS), load_i64(t, LAST_TS * 8))
        if derive_queued(t, load_i64(t, LAST_TS * 8)) > 0 or not has_capacity(t):
            return np.int64(i)
        if action != RESUME:
            for offset in range(0, RESULT_BYTES, 8):
                store_i64(result, offset, 0)
        for word in (RESTING_ID, TRADED, CANCELLED, STARTED_AUCTION):
            store_i64(t, word * 8, 0)
        if action == CANCEL:
            outcome = np.int64(cancel(t, request, ts))
        elif action == AMEND:
            outcome = np.int64(amend(t, request, order, ts))
        else:
            outcome = np.int64(enter(t, request, order, ts))
        store_i64(result, A_TRADED, load_i64(result, A_TRADED) + load_i64(t, TRADED * 8))
        store_i64(result, A_CANCELLED, load_i64(result, A_CANCELLED) + load_i64(t, CANCELLED * 8))
        if load_i64(t, STARTED_AUCTION * 8) != 0:
            store_i64(result, A_STARTED_AUCTION, 1)
        if outcome == UNFINISHED:
            return np.int64(i)
        order_id = load_i64(t, RESTING_ID * 8)
        store_i64(result, A_ORDER_ID, order_id)
        if action == RESUME and order_id != 0 and load_i64(request, Q_ORDER_ID) != 0:
            find(t, order_id)
            found_key = load_i64(t, FOUND_KEY * 8)
            rename(t, load_i64(request, Q_ORDER_ID), order_id, load_i64(t, FOUND_BOOK_SIDE * 8), found_key)
        if outcome < 0:
            store_i64(result, A_REFUSAL, outcome)
            continue
        by_id = action == CANCEL or action == AMEND
        index = load_i64(t, FOUND_BOOK_SIDE * 8) >> 1 if by_id else load_i64(request, Q_INSTRUMENT)
        queue_strategies(t, instrument_address(t, index))
        derive_queued(t, ts)
    return np.int64(stop)
