"""Many orders at once: mass cancel, expiry at the end of a day, restatement (9.1). Each is a record."""

from __future__ import annotations

import numpy as np

from umdf.exchange.matching.auction_kernel import end_auction_event
from umdf.exchange.matching.book_side_kernel import order_count, price_of, side_address
from umdf.exchange.matching.implied_orders_kernel import derive_queued, has_capacity
from umdf.exchange.matching.journal_kernel import emit, end_event
from umdf.exchange.matching.matching_kernel import cancel_order, next_implied_id, next_order_id, queue_strategies
from umdf.exchange.matching.memory_layout_kernel import (
    ADD,
    CANCELLED,
    EMPTY_BOOK,
    EXPIRY_SHIFT,
    FIRST_IMPLIED_ID,
    I_IMPLIED_IDS,
    I_STATE,
    LAST,
    NO_SIDE,
    NULL,
    O_FIRM,
    O_ID,
    O_INSERT,
    O_KEY,
    O_RESERVE,
    O_SIZE,
    O_TERMS,
    ORDER_BYTES,
    ROWS,
    WAITING_COUNT,
)
from umdf.exchange.matching.order_checks_kernel import is_auction, is_synchronizing, may_cancel
from umdf.exchange.matching.order_entry_kernel import instrument_address
from umdf.exchange.matching.order_index_kernel import (
    W_BOOK_SIDE,
    W_FIRM,
    W_SIZE,
    W_TERMS,
    remove_waiting,
    rename,
    waiting_address,
)
from umdf.exchange.matching.trade_kernel import implied_flag, side_code
from umdf.kernels import inlined, kernel, load_i64, outlined, store_i64

ANY_FIRM, ANY_DAY = -1, (1 << 31) - 1


@inlined
def is_concerned(order_firm, terms, firm, last_day):
    return (firm == ANY_FIRM or order_firm == firm) and terms >> EXPIRY_SHIFT <= last_day


@inlined
def allows_cancels(instrument):
    return may_cancel(load_i64(instrument, I_STATE * 8)) and not is_synchronizing(instrument)


@outlined
def delete_from_book(t, instrument, firm, last_day, ts):
    """Delete the orders of a firm that are valid until a day at most; their quantity, the hidden one too."""
    quantity, rows = np.int64(0), load_i64(t, ROWS * 8)
    for side in range(2):
        index = order_count(instrument, side) - 1
        while index >= 0:  # from the top, so that what follows keeps its index
            order = side_address(t, instrument, side) + index * ORDER_BYTES
            order_firm, terms = load_i64(order, O_FIRM * 8), load_i64(order, O_TERMS * 8)
            is_implied = load_i64(order, O_ID * 8) >= FIRST_IMPLIED_ID  # it goes when those of the legs go
            if not is_implied and is_concerned(order_firm, terms, firm, last_day):
                quantity += load_i64(order, O_SIZE * 8) + load_i64(order, O_RESERVE * 8)
                cancel_order(t, instrument, side, index, ts, 0)
            index -= 1
    if load_i64(t, ROWS * 8) > rows:
        if is_auction(load_i64(instrument, I_STATE * 8)):
            end_auction_event(t, instrument, ts)
        else:
            end_event(t)
    return quantity


@kernel
def delete_orders(t, first, stop, firm, last_day, in_any_state, ts):
    """Delete orders of the instruments `first` to `stop`, of those that allow it or of all; return the first that did
    not fit, or `stop`. CANCELLED is their quantity."""
    for index in range(first, stop):
        instrument = instrument_address(t, index)
        if order_count(instrument, 0) + order_count(instrument, 1) == 0:
            continue
        if not has_capacity(t):
            return np.int64(index)
        if in_any_state or allows_cancels(instrument):
            quantity = delete_from_book(t, instrument, firm, last_day, ts)
            store_i64(t, CANCELLED * 8, load_i64(t, CANCELLED * 8) + quantity)
            queue_strategies(t, instrument)
            derive_queued(t, ts)
    return np.int64(stop)


@kernel
def delete_waiting(t, first, stop, firm, last_day, in_any_state):
    """Delete orders that wait for the closing call, as `delete_orders` does those in books; return how many."""
    count, i = 0, np.int64(0)
    while i < load_i64(t, WAITING_COUNT * 8):
        waiting = waiting_address(t, i)
        index = load_i64(waiting, W_BOOK_SIDE) >> 1
        allowed = in_any_state or allows_cancels(instrument_address(t, index))
        concerned = is_concerned(load_i64(waiting, W_FIRM), load_i64(waiting, W_TERMS), firm, last_day)
        if first <= index < stop and allowed and concerned:
            store_i64(t, CANCELLED * 8, load_i64(t, CANCELLED * 8) + load_i64(waiting, W_SIZE))
            remove_waiting(t, i)
            count += 1
        else:
            i += 1
    return count


@kernel
def restate_orders(t, first, stop, with_new_ids, ts):
    """Empty the books of the instruments `first` to `stop` and send all orders as new, with the time at which they
    were entered, and with new ids if they move to another segment (9.1). Return the first that did not fit, or `stop`.
    """
    for index in range(first, stop):
        instrument = instrument_address(t, index)
        left = order_count(instrument, 0) + order_count(instrument, 1)
        if left == 0:
            continue
        if not has_capacity(t):
            return np.int64(index)
        emit(
            t, instrument, EMPTY_BOOK, ts, LAST, NO_SIDE, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
        )  # fmt: skip
        for side in range(2):
            orders, count = side_address(t, instrument, side), order_count(instrument, side)
            for i in range(count):
                order, left = orders + (count - 1 - i) * ORDER_BYTES, left - 1
                if with_new_ids:
                    renumber(t, order, np.int64(index * 2 + side))
                order_id, key = load_i64(order, O_ID * 8), load_i64(order, O_KEY * 8)
                price, size = price_of(instrument, side, key), load_i64(order, O_SIZE * 8)
                firm = load_i64(order, O_FIRM * 8)
                flags, insert_ts = implied_flag(order_id) | (LAST if left == 0 else 0), load_i64(order, O_INSERT * 8)
                emit(
                    t, instrument, ADD, ts, flags, side_code(side), price, size, order_id, firm, NULL, i + 1,
                    insert_ts, NULL, NULL,
                )  # fmt: skip
    return np.int64(stop)


@outlined
def renumber(t, order, book_side):
    """Give an order a new id. From the top down, ids are larger and larger, so that priorities stay."""
    old_id, key = load_i64(order, O_ID * 8), load_i64(order, O_KEY * 8)
    is_implied = old_id >= FIRST_IMPLIED_ID
    new_id = next_implied_id(t) if is_implied else next_order_id(t, 0)
    store_i64(order, O_ID * 8, new_id)
    if is_implied:
        store_i64(instrument_address(t, book_side >> 1), (I_IMPLIED_IDS + (book_side & 1)) * 8, new_id)
    elif load_i64(order, O_TERMS * 8) != 0:
        rename(t, old_id, new_id, book_side, key)
