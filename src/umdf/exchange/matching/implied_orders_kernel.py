"""Implied-in orders (14.1): what the best orders of the legs of a strategy offer in its book.

An implied order is derived: each side of a strategy has at most one, at the price that the best prices of the legs
make, for the quantity that is there, while the strategy and all its legs are Open. Whatever changes one of these books
queues the strategy; deriving it again is an event of its own. Less quantity is a change, more quantity or another price
another order (14).
"""

from __future__ import annotations

import numpy as np

from umdf.exchange.matching.book_side_kernel import locate, order_count, price_of, side_address
from umdf.exchange.matching.journal_kernel import end_event
from umdf.exchange.matching.matching_kernel import (
    REST_AT_LIMIT,
    cancel_order,
    copy_order,
    match_aggressor,
    next_implied_id,
    next_order_id,
    queue_strategies,
    reduce_order,
    rest_new_order,
    rest_order,
)
from umdf.exchange.matching.memory_layout_kernel import (
    CANCELLED,
    CAPACITY,
    EXPIRY_SHIFT,
    GOOD_TILL_CANCELLED,
    I_CAPACITY,
    I_IMPLIED,
    I_IMPLIED_IDS,
    I_IMPLIED_KEYS,
    I_INDEX,
    I_IS_QUEUED,
    I_LEGS,
    I_LOT,
    I_RATIOS,
    I_STATE,
    I_STRATEGIES,
    I_STRATEGY_COUNT,
    IMPLIED_KEY,
    IMPLIED_OFFSET,
    IMPLIED_QUEUE,
    IMPLIED_QUEUE_COUNT,
    INSTRUMENT_BYTES,
    INSTRUMENTS,
    LAST,
    LAST_KEY,
    LAST_TS,
    MARGIN,
    MAX_LEG_ORDERS,
    MAX_LEGS,
    NULL,
    O_DISPLAY,
    O_FIRM,
    O_ID,
    O_KEY,
    O_RESERVE,
    O_SIZE,
    O_TERMS,
    OPEN,
    ORDER_BYTES,
    ORDER_INDEX,
    RESTING_ID,
    RESTING_OFFSET,
    ROWS,
    S_AUCTION_BAND,
    SCRATCH,
    STRATEGIES,
    TRADED,
)
from umdf.exchange.matching.order_checks_kernel import check_price, crosses, is_within_band, key_of
from umdf.exchange.matching.order_index_kernel import is_index_full, rename
from umdf.kernels import inlined, kernel, load_i64, outlined, store_i64

NO_ORDER = -1


@inlined
def has_capacity(t):
    """Whether the journal has space for an event, and the index, which a bulk day has not."""
    has_rows = load_i64(t, ROWS * 8) + load_i64(t, MARGIN * 8) <= load_i64(t, CAPACITY * 8)
    return has_rows and (load_i64(t, ORDER_INDEX * 8) == 0 or not is_index_full(t))


@outlined
def best_quantity(t, leg, side):
    """The displayed quantity at the best price of a side, of so many orders as an event can match."""
    orders, at = side_address(t, leg, side), order_count(leg, side) - 1
    key, quantity, last = load_i64(orders, at * ORDER_BYTES + O_KEY * 8), np.int64(0), max(at - MAX_LEG_ORDERS, -1)
    while at > last and load_i64(orders, at * ORDER_BYTES + O_KEY * 8) == key:
        quantity += load_i64(orders, at * ORDER_BYTES + O_SIZE * 8)
        at -= 1
    return quantity


@outlined
def implied_size(t, strategy, side):
    """The quantity that the legs offer on a side of a strategy, 0 if none; IMPLIED_KEY is its key."""
    if load_i64(strategy, I_IMPLIED * 8) == 0 or load_i64(strategy, I_STATE * 8) != OPEN:
        return np.int64(0)
    price, size = np.int64(0), np.int64(1 << 62)
    for slot in range(MAX_LEGS):
        row, ratio = load_i64(strategy, (I_LEGS + slot) * 8), load_i64(strategy, (I_RATIOS + slot) * 8)
        if row < 0:
            continue
        leg, leg_side = load_i64(t, INSTRUMENTS * 8) + row * INSTRUMENT_BYTES, side if ratio > 0 else 1 - side
        count = order_count(leg, leg_side)
        if load_i64(leg, I_STATE * 8) != OPEN or count == 0:
            return np.int64(0)
        best = side_address(t, leg, leg_side) + (count - 1) * ORDER_BYTES
        leg_price = price_of(leg, leg_side, load_i64(best, O_KEY * 8))
        if not is_within_band(leg, S_AUCTION_BAND, leg_price):
            return np.int64(0)
        price, size = price + ratio * leg_price, min(size, best_quantity(t, leg, leg_side) // abs(ratio))
    size -= size % load_i64(strategy, I_LOT * 8)
    if check_price(strategy, price) != 0 or not is_within_band(strategy, S_AUCTION_BAND, price):
        return np.int64(0)
    store_i64(t, IMPLIED_KEY * 8, key_of(strategy, side, price))
    return size


@inlined
def implied_index(t, strategy, side):
    """The index of the implied order of a side, NO_ORDER if there is none."""
    key = load_i64(strategy, (I_IMPLIED_KEYS + side) * 8)
    return locate(t, strategy, side, key, load_i64(strategy, (I_IMPLIED_IDS + side) * 8))


@outlined
def remove_or_reduce(t, strategy, side, key, size, ts):
    """Delete an implied order that cannot stay as it is, or reduce it; whether one is left."""
    index = implied_index(t, strategy, side)
    if index == NO_ORDER:
        return False
    order = side_address(t, strategy, side) + index * ORDER_BYTES
    before = load_i64(order, O_SIZE * 8)
    if size == 0 or size > before or load_i64(order, O_KEY * 8) != key:
        cancel_order(t, strategy, side, index, ts, 0)
        return False
    if size < before:
        reduce_order(t, strategy, side, index, size, ts, 0)
    return True


@outlined
def add_implied(t, strategy, side, key, size, ts):
    """Add an implied order: of no firm, in no index, and until the legs change."""
    order, order_id = load_i64(t, SCRATCH * 8) + IMPLIED_OFFSET, next_implied_id(t)
    store_i64(order, O_KEY * 8, key)
    store_i64(order, O_FIRM * 8, NULL)
    store_i64(order, O_DISPLAY * 8, 0)
    store_i64(order, O_TERMS * 8, np.int64(GOOD_TILL_CANCELLED) << EXPIRY_SHIFT)
    rest_order(t, strategy, side, order_id, order, size, 0, ts, 0)
    store_i64(strategy, (I_IMPLIED_IDS + side) * 8, order_id)
    store_i64(strategy, (I_IMPLIED_KEYS + side) * 8, key)


@outlined
def match_resting(t, strategy, side, key, size, ts):
    """Match an implied order with the best order of the opposite side: that one is entered again, trades at the price
    that the legs make, and what is left of it rests anew. The implied order has no more than it can trade, so that the
    book is not crossed when the event is over."""
    opposite, book_side = 1 - side, 2 * load_i64(strategy, I_INDEX * 8) + 1 - side
    top = order_count(strategy, opposite) - 1
    order = load_i64(t, SCRATCH * 8) + RESTING_OFFSET
    copy_order(order, side_address(t, strategy, opposite) + top * ORDER_BYTES)
    old_id, resting_key = load_i64(order, O_ID * 8), load_i64(order, O_KEY * 8)
    resting_size = load_i64(order, O_SIZE * 8) + load_i64(order, O_RESERVE * 8)
    store_i64(order, O_SIZE * 8, resting_size)
    cancel_order(t, strategy, opposite, top, ts, 0)
    add_implied(t, strategy, side, key, min(size, resting_size), ts)
    # What the request has done that made this possible is not what this does.
    resting_id, traded, cancelled = load_i64(t, RESTING_ID * 8), load_i64(t, TRADED * 8), load_i64(t, CANCELLED * 8)
    last_key = load_i64(t, LAST_KEY * 8)
    left = match_aggressor(t, strategy, book_side >> 1, opposite, order, REST_AT_LIMIT, ts)
    if left > 0:
        store_i64(t, RESTING_ID * 8, 0)
        rest_new_order(t, strategy, book_side >> 1, opposite, order, left, next_order_id(t, 0), ts, LAST)
        rename(t, old_id, load_i64(t, RESTING_ID * 8), book_side, resting_key)
        if resting_id == old_id:
            resting_id = load_i64(t, RESTING_ID * 8)
    store_i64(t, RESTING_ID * 8, resting_id)
    store_i64(t, TRADED * 8, traded)
    store_i64(t, CANCELLED * 8, cancelled)
    store_i64(t, LAST_KEY * 8, last_key)
    queue_strategies(t, strategy)


@outlined
def derive_strategy(t, strategy, ts):
    """Derive both implied orders of a strategy, as one event; it is queued again if one has traded."""
    rows = load_i64(t, ROWS * 8)
    bid_size = implied_size(t, strategy, 0)
    bid_key = load_i64(t, IMPLIED_KEY * 8)
    ask_size = implied_size(t, strategy, 1)
    ask_key = load_i64(t, IMPLIED_KEY * 8)
    has_bid = remove_or_reduce(t, strategy, 0, bid_key, bid_size, ts)
    has_ask = remove_or_reduce(t, strategy, 1, ask_key, ask_size, ts)
    for side in range(2):
        key, size = (bid_key, bid_size) if side == 0 else (ask_key, ask_size)
        if size == 0 or (has_bid if side == 0 else has_ask):
            continue
        if crosses(t, strategy, side, key):
            if load_i64(t, ROWS * 8) > rows:
                end_event(t)
            match_resting(t, strategy, side, key, size, ts)
            return
        if order_count(strategy, side) < load_i64(strategy, I_CAPACITY * 8):
            add_implied(t, strategy, side, key, size, ts)
    if load_i64(t, ROWS * 8) > rows:
        end_event(t)


@outlined
def derive_queued(t, ts):
    """Derive the implied orders of the queued strategies; how many are left, as the journal is full."""
    while load_i64(t, IMPLIED_QUEUE_COUNT * 8) > 0 and has_capacity(t):
        queue, count = load_i64(t, IMPLIED_QUEUE * 8), load_i64(t, IMPLIED_QUEUE_COUNT * 8) - 1
        strategy = load_i64(t, INSTRUMENTS * 8) + load_i64(queue, count * 8) * INSTRUMENT_BYTES
        store_i64(t, IMPLIED_QUEUE_COUNT * 8, count)
        store_i64(strategy, I_IS_QUEUED * 8, 0)
        derive_strategy(t, strategy, ts)
    return load_i64(t, IMPLIED_QUEUE_COUNT * 8)


@outlined
def withdraw(t, instrument, ts):
    """Delete the implied orders of the strategies of an instrument, before it leaves Open."""
    first, rows = load_i64(instrument, I_STRATEGIES * 8), load_i64(t, ROWS * 8)
    for i in range(load_i64(instrument, I_STRATEGY_COUNT * 8)):
        row = load_i64(load_i64(t, STRATEGIES * 8), (first + i) * 8)
        strategy = load_i64(t, INSTRUMENTS * 8) + row * INSTRUMENT_BYTES
        for side in range(2):
            remove_or_reduce(t, strategy, side, np.int64(0), np.int64(0), ts)
    if load_i64(t, ROWS * 8) > rows:
        end_event(t)


@kernel
def withdraw_implied(t, index):
    """Delete the implied orders of the strategies of an instrument."""
    withdraw(t, load_i64(t, INSTRUMENTS * 8) + index * INSTRUMENT_BYTES, load_i64(t, LAST_TS * 8))
    return 0


@kernel
def queue_implied(t, index):
    """Queue the strategies of an instrument that has changed."""
    queue_strategies(t, load_i64(t, INSTRUMENTS * 8) + index * INSTRUMENT_BYTES)
    return 0


@kernel
def derive_implied(t):
    """Derive the implied orders of the queued strategies; how many are left, as the journal is full."""
    return derive_queued(t, load_i64(t, LAST_TS * 8))
