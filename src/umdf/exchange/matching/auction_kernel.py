"""Auctions: the theoretical result (TOP, TOQ, imbalance), and the uncrossing."""

from __future__ import annotations

import numpy as np

from umdf.exchange.matching.auction_price_kernel import (
    R_IMBALANCE,
    R_TICKS,
    R_VOLUME,
    find_auction_price,
    key_at,
    size_at,
)
from umdf.exchange.matching.book_side_kernel import order_count, set_order_count, side_address
from umdf.exchange.matching.journal_kernel import emit, end_event, publish_statistic, statistic_address
from umdf.exchange.matching.matching_kernel import copy_order, delete_matched, next_order_id, reduce_order, refill
from umdf.exchange.matching.memory_layout_kernel import (
    ASK,
    AUCTION_RESULT,
    BID,
    C_REGULAR,
    CAPACITY,
    DELETE,
    DELETED,
    FIRST,
    GROUP,
    I_GROUP,
    I_INDEX,
    I_LAST,
    I_PREVIOUS_CLOSE,
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
    O_RESERVE,
    O_SIZE,
    O_TERMS,
    ORDER_BYTES,
    REFILLS_OFFSET,
    ROWS,
    S_IMBALANCE,
    S_THEORETICAL,
    SCRATCH,
    STATE_SELECTED,
    STOP,
    THEORETICAL,
    V_PRESENT,
    V_PRICE,
    V_SIDE,
    V_SIZE,
)
from umdf.exchange.matching.random_kernel import random_bits
from umdf.exchange.matching.trade_kernel import emit_trade, emit_trade_statistics, opening_condition, side_code
from umdf.kernels import inlined, kernel, load_i64, outlined, store_i64

MAX_AUCTION_DELAY_NS = 20_000
THEORETICAL_FLAG = 5  # 286
MORE_BUYERS, MORE_SELLERS = 1 << 8, 1 << 9


@outlined
def compute_theoretical(t, instrument):
    """Store what the auction would trade now, in the table's AUCTION_RESULT."""
    last = load_i64(instrument, I_LAST * 8)
    reference = last if last != NULL else load_i64(instrument, I_PREVIOUS_CLOSE * 8)
    find_auction_price(
        side_address(t, instrument, 0), order_count(instrument, 0), side_address(t, instrument, 1),
        order_count(instrument, 1), reference // load_i64(instrument, I_TICK * 8), t + AUCTION_RESULT * 8,
    )  # fmt: skip


@inlined
def result(t, word):
    return load_i64(t, (AUCTION_RESULT + word) * 8)


@outlined
def end_auction_event(t, instrument, ts):
    """Publish the theoretical price, quantity and imbalance that an event has changed, as its end (10.4, 10.7)."""
    publish_theoretical(t, instrument, ts)
    end_event(t)


@outlined
def publish_theoretical(t, instrument, ts):
    """Publish the theoretical price, quantity and imbalance, if they have changed."""
    compute_theoretical(t, instrument)
    volume, left = result(t, R_VOLUME), result(t, R_IMBALANCE)
    value = statistic_address(instrument, S_THEORETICAL)
    is_published = load_i64(value, V_PRESENT * 8) != 0
    if volume == 0:
        if is_published:
            delete_theoretical(t, instrument, ts)
        return
    price = result(t, R_TICKS) * load_i64(instrument, I_TICK * 8)
    if not is_published or load_i64(value, V_PRICE * 8) != price or load_i64(value, V_SIZE * 8) != volume:
        publish_statistic(
            t, instrument, S_THEORETICAL, THEORETICAL, ts, 0, NO_SIDE, price, volume, NULL, THEORETICAL_FLAG, NULL
        )
    value = statistic_address(instrument, S_IMBALANCE)
    side = BID if left > 0 else ASK if left < 0 else NO_SIDE
    if (
        load_i64(value, V_PRESENT * 8) == 0
        or load_i64(value, V_SIDE * 8) != side
        or load_i64(value, V_SIZE * 8) != abs(left)
    ):
        code = MORE_BUYERS if left > 0 else MORE_SELLERS if left < 0 else 0
        publish_statistic(t, instrument, S_IMBALANCE, IMBALANCE, ts, 0, side, NULL, abs(left), NULL, code, NULL)


@outlined
def delete_theoretical(t, instrument, ts):
    """Delete theoretical price and imbalance by message (legacy 14.8)."""
    emit(
        t, instrument, THEORETICAL, ts, DELETED, NO_SIDE, NULL, NULL, NULL, NULL, NULL, NULL, NULL, THEORETICAL_FLAG,
        NULL,
    )  # fmt: skip
    emit(t, instrument, IMBALANCE, ts, DELETED, NO_SIDE, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL)
    store_i64(statistic_address(instrument, S_THEORETICAL), V_PRESENT * 8, 0)
    store_i64(statistic_address(instrument, S_IMBALANCE), V_PRESENT * 8, 0)


@outlined
def uncross(t, instrument, ts):
    """End an auction before its state changes (11.1): match all that can be at one price, delete the theoretical
    price and the market orders (MOA, MOC) that are left. Trades of an auction have no execution summary.

    What disclosed orders do not display takes no part: the next part is displayed after the trades, and where it can
    trade it does so as a further auction. Return False if the journal is too full for that; call it again.
    """
    has_refilled = True
    while has_refilled:
        if load_i64(t, ROWS * 8) + load_i64(t, MARGIN * 8) > load_i64(t, CAPACITY * 8):
            return False
        has_refilled = match_auction(t, instrument, ts)
        if load_i64(statistic_address(instrument, S_THEORETICAL), V_PRESENT * 8) != 0:
            delete_theoretical(t, instrument, ts)
            end_event(t)
    delete_market_orders(t, instrument, 0, ts)
    delete_market_orders(t, instrument, 1, ts)
    return True


@outlined
def match_auction(t, instrument, ts):
    """Match all that can be at one price; whether a disclosed order has been refilled."""
    compute_theoretical(t, instrument)
    volume = result(t, R_VOLUME)
    if volume == 0:
        return False
    price = result(t, R_TICKS) * load_i64(instrument, I_TICK * 8)
    conditions = C_REGULAR | opening_condition(instrument)
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
        emit_trade(t, instrument, ts, NO_SIDE, price, size, buyer, seller, conditions, 0, 1)
        if bid_left == 0:
            bid_index -= 1
            bid_left = size_at(bids, bid_index) if bid_index >= 0 else np.int64(0)
        if ask_left == 0:
            ask_index -= 1
            ask_left = size_at(asks, ask_index) if ask_index >= 0 else np.int64(0)
    bid_refills = save_refills(t, instrument, 0, top_bid - bid_index, 0)
    refills = save_refills(t, instrument, 1, top_ask - ask_index, bid_refills)
    delete_matched(t, instrument, 0, top_bid - bid_index, ts)
    delete_matched(t, instrument, 1, top_ask - ask_index, ts)
    if bid_index >= 0 and bid_left < size_at(bids, bid_index):
        reduce_order(t, instrument, 0, bid_index, bid_left, ts, 0)
    if ask_index >= 0 and ask_left < size_at(asks, ask_index):
        reduce_order(t, instrument, 1, ask_index, ask_left, ts, 0)
    for i in range(refills):
        order, side = load_i64(t, SCRATCH * 8) + REFILLS_OFFSET + i * ORDER_BYTES, 0 if i < bid_refills else 1
        refill(t, instrument, load_i64(instrument, I_INDEX * 8), side, order, next_order_id(t, 0), ts)
    emit_trade_statistics(t, instrument, ts, price, price, price, LAST)
    return refills > 0


@outlined
def save_refills(t, instrument, side, filled_orders, count):
    """Copy the disclosed orders among those that are filled behind `count` others; return the new count. Those of the
    order flow are not refilled: they end with the auction."""
    orders, top = side_address(t, instrument, side), order_count(instrument, side) - 1
    for i in range(filled_orders):
        order = orders + (top - i) * ORDER_BYTES
        if load_i64(order, O_RESERVE * 8) > 0 and load_i64(order, O_TERMS * 8) != 0:
            copy_order(load_i64(t, SCRATCH * 8) + REFILLS_OFFSET + count * ORDER_BYTES, order)
            count += 1
    return count


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
    """Whether an instrument is of GROUP (-1: any) and in STATE_SELECTED."""
    group = load_i64(t, GROUP * 8)
    in_group = group == -1 or load_i64(instrument, I_GROUP * 8) == group
    return in_group and load_i64(instrument, I_STATE * 8) == load_i64(t, STATE_SELECTED * 8)


@kernel
def uncross_all(t):
    """Uncross the selected instruments FIRST to STOP; return the first that did not fit, or STOP."""
    i = load_i64(t, FIRST * 8)
    while i < load_i64(t, STOP * 8):
        instrument = load_i64(t, INSTRUMENTS * 8) + i * INSTRUMENT_BYTES
        if is_selected(t, instrument):
            if load_i64(t, ROWS * 8) + load_i64(t, MARGIN * 8) > load_i64(t, CAPACITY * 8):
                break
            if not uncross(t, instrument, load_i64(t, LAST_TS * 8) + 1 + random_bits(t) % MAX_AUCTION_DELAY_NS):
                break
        i += 1
    return i
