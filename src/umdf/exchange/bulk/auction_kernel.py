"""Auctions of the bulk market: the theoretical result (TOP, TOQ, imbalance), and the uncrossing."""

from __future__ import annotations

import numpy as np

from umdf.exchange.bulk.book_side_kernel import order_count, set_order_count, side_address
from umdf.exchange.bulk.journal_kernel import emit, publish_statistic, statistic_address
from umdf.exchange.bulk.matching_kernel import (
    delete_matched,
    emit_execution_summary,
    emit_trade,
    emit_trade_statistics,
    reduce_order,
    side_code,
)
from umdf.exchange.bulk.memory_layout_kernel import (
    A_IMBALANCE,
    A_TICKS,
    A_VOLUME,
    ASK,
    BID,
    C_LAST,
    CAPACITY,
    CONDITIONS,
    DELETE,
    DELETED,
    FIRST,
    GROUP,
    I_GROUP,
    I_REFERENCE,
    I_STATE,
    I_TICK,
    IMBALANCE,
    INSTRUMENT_BYTES,
    INSTRUMENTS,
    LAST,
    LAST_TS,
    MARGIN,
    MARKET_ORDER_KEY,
    NO_SIDE,
    NULL,
    O_FIRM,
    O_ID,
    O_KEY,
    O_SIZE,
    ORDER_BYTES,
    ROWS,
    S_IMBALANCE,
    S_THEORETICAL,
    STOP,
    THEORETICAL,
    V_PRESENT,
    V_PRICE,
    V_SIZE,
)
from umdf.exchange.bulk.random_kernel import random_bits
from umdf.kernels import inlined, kernel, load_i64, outlined, store_i64

NO_TICKS = np.int64(NULL)
MAX_AUCTION_DELAY_NS = 20_000
MORE_BUYERS, MORE_SELLERS = 1 << 8, 1 << 9


@inlined
def key_at(orders, index):
    return load_i64(orders, index * ORDER_BYTES + O_KEY * 8)


@inlined
def size_at(orders, index):
    return load_i64(orders, index * ORDER_BYTES + O_SIZE * 8)


@inlined
def best_limit_key(orders, index):
    """The key of the best limit order from `index` down; NO_TICKS if there is none."""
    while index >= 0 and key_at(orders, index) == MARKET_ORDER_KEY:
        index -= 1
    return key_at(orders, index) if index >= 0 else NO_TICKS


@outlined
def compute_theoretical(t, instrument):
    """Compute the largest quantity that can be matched, its price, and the imbalance there (positive: buyers)."""
    bids, asks = side_address(t, instrument, 0), side_address(t, instrument, 1)
    bid_index, ask_index = order_count(instrument, 0) - 1, order_count(instrument, 1) - 1
    bid_left = size_at(bids, bid_index) if bid_index >= 0 else np.int64(0)
    ask_left = size_at(asks, ask_index) if ask_index >= 0 else np.int64(0)
    volume, bid_key, ask_key = np.int64(0), NO_TICKS, NO_TICKS
    while bid_index >= 0 and ask_index >= 0 and key_at(bids, bid_index) + key_at(asks, ask_index) >= 0:
        bid_key, ask_key = key_at(bids, bid_index), key_at(asks, ask_index)
        size = min(bid_left, ask_left)
        volume, bid_left, ask_left = volume + size, bid_left - size, ask_left - size
        if bid_left == 0:
            bid_index -= 1
            bid_left = size_at(bids, bid_index) if bid_index >= 0 else np.int64(0)
        if ask_left == 0:
            ask_index -= 1
            ask_left = size_at(asks, ask_index) if ask_index >= 0 else np.int64(0)
    store_i64(t, A_VOLUME * 8, volume)
    store_i64(t, A_IMBALANCE * 8, 0)
    if volume == 0:
        return
    highest = bid_key if bid_key != MARKET_ORDER_KEY else NO_TICKS
    lowest = -ask_key if ask_key != MARKET_ORDER_KEY else NO_TICKS
    if highest != NO_TICKS and lowest != NO_TICKS:
        ticks = (highest + lowest) // 2
    elif highest != NO_TICKS:
        ticks = highest
    elif lowest != NO_TICKS:
        ticks = lowest
    else:
        ticks = load_i64(instrument, I_REFERENCE * 8)
    # No order with a better price than that of the auction may be left.
    best_left = best_limit_key(bids, bid_index)
    if best_left != NO_TICKS:
        ticks = max(ticks, best_left)
    best_left = best_limit_key(asks, ask_index)
    if best_left != NO_TICKS:
        ticks = min(ticks, -best_left)
    left = bid_left - ask_left
    for index in range(bid_index - 1, -1, -1):
        if key_at(bids, index) < ticks:
            break
        left += size_at(bids, index)
    for index in range(ask_index - 1, -1, -1):
        if key_at(asks, index) < -ticks:
            break
        left -= size_at(asks, index)
    if bid_index >= 0 and key_at(bids, bid_index) < ticks:
        left -= bid_left
    if ask_index >= 0 and key_at(asks, ask_index) < -ticks:
        left += ask_left
    store_i64(t, A_TICKS * 8, ticks)
    store_i64(t, A_IMBALANCE * 8, left)


@outlined
def publish_theoretical(t, instrument, ts):
    """Publish theoretical price and quantity and the imbalance, where they have changed."""
    compute_theoretical(t, instrument)
    volume, left = load_i64(t, A_VOLUME * 8), load_i64(t, A_IMBALANCE * 8)
    value = statistic_address(instrument, S_THEORETICAL)
    price = load_i64(t, A_TICKS * 8) * load_i64(instrument, I_TICK * 8)
    is_published = load_i64(value, V_PRESENT * 8) != 0
    if volume == 0:
        if is_published:
            delete_theoretical(t, instrument, ts)
        return
    if is_published and load_i64(value, V_PRICE * 8) == price and load_i64(value, V_SIZE * 8) == volume:
        return
    publish_statistic(t, instrument, S_THEORETICAL, THEORETICAL, ts, 0, NO_SIDE, price, volume, NULL, 5, NULL)
    side = BID if left > 0 else ASK if left < 0 else NO_SIDE
    code = MORE_BUYERS if left > 0 else MORE_SELLERS if left < 0 else 0
    publish_statistic(t, instrument, S_IMBALANCE, IMBALANCE, ts, LAST, side, NULL, abs(left), NULL, code, NULL)


@outlined
def delete_theoretical(t, instrument, ts):
    """Delete theoretical price and imbalance by message (legacy 14.8)."""
    emit(t, instrument, THEORETICAL, ts, DELETED, NO_SIDE, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 5, NULL)
    emit(t, instrument, IMBALANCE, ts, DELETED | LAST, NO_SIDE, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL)
    clear_theoretical(instrument)


@inlined
def clear_theoretical(instrument):
    store_i64(statistic_address(instrument, S_THEORETICAL), V_PRESENT * 8, 0)
    store_i64(statistic_address(instrument, S_IMBALANCE), V_PRESENT * 8, 0)


@outlined
def uncross(t, instrument, ts, conditions):
    """Match all that can be at one price; then delete the market orders (MOA, MOC) that are left."""
    clear_theoretical(instrument)  # by the change of phase or state (10.7)
    compute_theoretical(t, instrument)
    volume = load_i64(t, A_VOLUME * 8)
    if volume > 0:
        price = load_i64(t, A_TICKS * 8) * load_i64(instrument, I_TICK * 8)
        emit_execution_summary(t, instrument, ts, NO_SIDE, price, volume, NULL)
        bids, asks = side_address(t, instrument, 0), side_address(t, instrument, 1)
        top_bid, top_ask = order_count(instrument, 0) - 1, order_count(instrument, 1) - 1
        bid_index, ask_index, bid_left, ask_left, left = (
            top_bid,
            top_ask,
            size_at(bids, top_bid),
            size_at(asks, top_ask),
            volume,
        )
        while left > 0:
            size = min(bid_left, ask_left, left)
            left, bid_left, ask_left = left - size, bid_left - size, ask_left - size
            buyer = load_i64(bids, bid_index * ORDER_BYTES + O_FIRM * 8)
            seller = load_i64(asks, ask_index * ORDER_BYTES + O_FIRM * 8)
            last = C_LAST if left == 0 else 0
            emit_trade(t, instrument, ts, NO_SIDE, price, size, buyer, seller, conditions | last, 0, 1)
            if bid_left == 0:
                bid_index -= 1
                bid_left = size_at(bids, bid_index) if bid_index >= 0 else np.int64(0)
            if ask_left == 0:
                ask_index -= 1
                ask_left = size_at(asks, ask_index) if ask_index >= 0 else np.int64(0)
        delete_matched(t, instrument, 0, top_bid - bid_index, ts)
        delete_matched(t, instrument, 1, top_ask - ask_index, ts)
        if bid_index >= 0 and bid_left < size_at(bids, bid_index):
            reduce_order(t, instrument, 0, bid_index, bid_left, ts, 0)
        if ask_index >= 0 and ask_left < size_at(asks, ask_index):
            reduce_order(t, instrument, 1, ask_index, ask_left, ts, 0)
        emit_trade_statistics(t, instrument, ts, price, price, LAST)
    delete_market_orders(t, instrument, 0, ts)
    delete_market_orders(t, instrument, 1, ts)


@outlined
def delete_market_orders(t, instrument, side, ts):
    orders = side_address(t, instrument, side)
    while True:
        count = order_count(instrument, side)
        if count == 0 or key_at(orders, count - 1) != MARKET_ORDER_KEY:
            break
        order = orders + (count - 1) * ORDER_BYTES
        size, order_id = load_i64(order, O_SIZE * 8), load_i64(order, O_ID * 8)
        emit(t, instrument, DELETE, ts, LAST, side_code(side), NULL, size, order_id, NULL, NULL, 1, NULL, NULL, NULL)
        set_order_count(instrument, side, count - 1)


@inlined
def is_selected(t, instrument):
    """Whether an instrument is of GROUP (-1: any) and in the state in the high half of CONDITIONS."""
    group = load_i64(t, GROUP * 8)
    in_group = group == -1 or load_i64(instrument, I_GROUP * 8) == group
    return in_group and load_i64(instrument, I_STATE * 8) == load_i64(t, CONDITIONS * 8) >> 32


@kernel
def uncross_all(t):
    """Uncross the selected instruments FIRST to STOP; return the first that did not fit, or STOP."""
    conditions = load_i64(t, CONDITIONS * 8) & 0xFFFFFFFF
    i = load_i64(t, FIRST * 8)
    while i < load_i64(t, STOP * 8):
        instrument = load_i64(t, INSTRUMENTS * 8) + i * INSTRUMENT_BYTES
        if is_selected(t, instrument):
            if load_i64(t, ROWS * 8) + load_i64(t, MARGIN * 8) > load_i64(t, CAPACITY * 8):
                break
            uncross(t, instrument, load_i64(t, LAST_TS * 8) + 1 + random_bits(t) % MAX_AUCTION_DELAY_NS, conditions)
        i += 1
    return i


@kernel
def delete_all_theoretical(t):
    """Delete the theoretical prices of the selected instruments FIRST to STOP; return the first that did not fit."""
    i = load_i64(t, FIRST * 8)
    while i < load_i64(t, STOP * 8):
        instrument = load_i64(t, INSTRUMENTS * 8) + i * INSTRUMENT_BYTES
        if is_selected(t, instrument) and load_i64(statistic_address(instrument, S_THEORETICAL), V_PRESENT * 8) != 0:
            if load_i64(t, ROWS * 8) + load_i64(t, MARGIN * 8) > load_i64(t, CAPACITY * 8):
                break
            delete_theoretical(t, instrument, load_i64(t, LAST_TS * 8) + 1_000)
        i += 1
    return i
