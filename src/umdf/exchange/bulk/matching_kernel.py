"""Matching in the bulk market: an aggressor trades with the orders at the top of the opposite side.

The records of one event are in the exchange's order: summary, trades, deleted orders, changed and new orders,
statistics (55, 53 …, 51 or 52, 50, 56).
"""

from __future__ import annotations

import numpy as np

from umdf.exchange.bulk.book_side_kernel import insert, order_count, price_of, set_order_count, side_address
from umdf.exchange.bulk.journal_kernel import append_record, assign_rpt_seq, emit, publish_statistic, store_statistic
from umdf.exchange.bulk.memory_layout_kernel import (
    ADD,
    ASK,
    BID,
    BUST,
    BUSTED,
    C_LAST,
    C_LEG,
    CHANGE,
    COUNT,
    DELETE,
    DELETE_FROM,
    EXECUTION,
    EXECUTION_SUMMARY,
    HIGH,
    I_BUST_BUYER,
    I_BUST_ID,
    I_BUST_PRICE,
    I_BUST_SELLER,
    I_BUST_SIZE,
    I_BUST_TS,
    I_CAPACITY,
    I_HIGH,
    I_ID,
    I_LAST,
    I_LEG_1,
    I_LEG_2,
    I_LOW,
    I_OPENED,
    I_PREVIOUS_CLOSE,
    I_QUANTITY,
    I_REFERENCE,
    I_STATE,
    I_TICK,
    I_TRADE_ID,
    I_TRADES,
    I_TURNOVER,
    IMPLIED,
    IMPLIED_ID,
    INSTRUMENT_BYTES,
    INSTRUMENTS,
    LAST,
    LAST_PRICE,
    LIFETIMES,
    LOW,
    MAX_FILLS,
    NO_SIDE,
    NULL,
    O_FIRM,
    O_ID,
    O_INSERT,
    O_KEY,
    O_RESERVE,
    O_SIZE,
    ON_SBE,
    OPEN,
    OPENING,
    ORDER_BYTES,
    ORDER_ID,
    POSITION_GENERATION,
    S_EXECUTION,
    S_HIGH,
    S_LAST,
    S_LOW,
    S_OPENING,
    SCRATCH,
    TRADE,
)
from umdf.exchange.bulk.order_expiry_kernel import push_expiry
from umdf.exchange.bulk.random_kernel import random_bits, sample_quantile
from umdf.kernels import inlined, load_i64, outlined, store_i64

VOLUME_UNIT = 100_000  # prices are in 1e-9, turnover and VWAP in 1e-4
FIRST_IMPLIED_ID = 1 << 62  # ids of implied orders are larger than those of others (9.1)
BUST_EVERY = 2048  # trades, and where one is requested
BUST_REQUESTED = -1  # instead of a trade id: the next trade that can be busted will be
BUST_DELAY_NS = 500_000_000


@inlined
def next_order_id(t, bits):
    order_id = load_i64(t, ORDER_ID * 8) + 1 + (bits & 3)
    store_i64(t, ORDER_ID * 8, order_id)
    return order_id


@inlined
def next_implied_id(t):
    order_id = load_i64(t, IMPLIED_ID * 8) + 1
    store_i64(t, IMPLIED_ID * 8, order_id)
    return order_id


@inlined
def side_code(side):
    return BID if side == 0 else ASK


@inlined
def implied_flag(order_id):
    return IMPLIED if order_id >= FIRST_IMPLIED_ID else 0


@outlined
def add_order(t, instrument, instrument_index, side, key, order_id, size, reserve, firm, ts, flags, lifetime):
    """Add an order, and schedule its expiry."""
    position = insert(t, instrument, side, key, order_id, size, reserve, firm, ts)
    price = price_of(instrument, side, key)
    flags |= implied_flag(order_id)
    emit(t, instrument, ADD, ts, flags, side_code(side), price, size, order_id, firm, NULL, position, ts, NULL, NULL)
    push_expiry(t, ts, ts + lifetime, instrument_index * 2 + side, key, order_id)


@inlined
def draw_lifetime(t, bits):
    return sample_quantile(t, LIFETIMES, bits)


@inlined
def emit_execution_summary(t, instrument, ts, side, price, size, cancelled):
    """Append the execution summary, which only Binary has."""
    security_id = load_i64(instrument, I_ID * 8)
    record = append_record(
        t, EXECUTION_SUMMARY, security_id, ts, 0, side, price, size, NULL, NULL, cancelled, NULL, ts, NULL, NULL
    )
    assign_rpt_seq(instrument, record, ON_SBE)


@outlined
def emit_trade(t, instrument, ts, side, price, size, buyer, seller, conditions, flags, bits):
    """Append one trade and update the session's statistics. A leg trade does not change the last price (13.4)."""
    trade_id = load_i64(instrument, I_TRADE_ID * 8) + 10
    store_i64(instrument, I_TRADE_ID * 8, trade_id)
    quantity = load_i64(instrument, I_QUANTITY * 8) + size
    store_i64(instrument, I_QUANTITY * 8, quantity)
    store_i64(instrument, I_TURNOVER * 8, load_i64(instrument, I_TURNOVER * 8) + price // VOLUME_UNIT * size)
    store_i64(instrument, I_TRADES * 8, load_i64(instrument, I_TRADES * 8) + 1)
    if conditions & C_LEG == 0:
        store_i64(instrument, I_LAST * 8, price)
        store_statistic(
            instrument, S_LAST, LAST_PRICE, ts, NO_SIDE, price, size, trade_id, buyer, seller, conditions, NULL
        )
        inside = load_i64(instrument, I_LOW * 8) < price < load_i64(instrument, I_HIGH * 8)
        # Only a trade between low and high is busted, so that both stay valid (13.4).
        bust_id = load_i64(instrument, I_BUST_ID * 8)
        if inside and (bust_id == BUST_REQUESTED or (bust_id == 0 and bits % BUST_EVERY == 0)):
            flags |= BUSTED
            store_i64(instrument, I_BUST_ID * 8, trade_id)
            store_i64(instrument, I_BUST_PRICE * 8, price)
            store_i64(instrument, I_BUST_SIZE * 8, size)
            store_i64(instrument, I_BUST_TS * 8, ts)
            store_i64(instrument, I_BUST_BUYER * 8, buyer)
            store_i64(instrument, I_BUST_SELLER * 8, seller)
    last = load_i64(instrument, I_LAST * 8)
    change = last - load_i64(instrument, I_PREVIOUS_CLOSE * 8) if last != NULL else np.int64(NULL)
    emit(t, instrument, TRADE, ts, flags, side, price, size, trade_id, buyer, seller, change, ts, conditions, quantity)


@inlined
def emit_execution_statistics(t, instrument, ts, flags):
    """Append the execution statistics: the last record of a trade event."""
    quantity, last = load_i64(instrument, I_QUANTITY * 8), load_i64(instrument, I_LAST * 8)
    vwap = np.int64(NULL)
    if quantity > 0:
        vwap = (load_i64(instrument, I_TURNOVER * 8) + quantity // 2) // quantity * VOLUME_UNIT
    change = last - load_i64(instrument, I_PREVIOUS_CLOSE * 8) if last != NULL else np.int64(NULL)
    trades = load_i64(instrument, I_TRADES * 8)
    publish_statistic(t, instrument, S_EXECUTION, EXECUTION, ts, flags, NO_SIDE, vwap, quantity, trades, NULL, change)


@outlined
def emit_trade_statistics(t, instrument, ts, low, high, flags):
    """Append opening price, low, high and execution statistics after trades between two prices."""
    if load_i64(instrument, I_OPENED * 8) == 0:
        store_i64(instrument, I_OPENED * 8, 1)
        last = load_i64(instrument, I_LAST * 8)
        change = last - load_i64(instrument, I_PREVIOUS_CLOSE * 8)
        publish_statistic(t, instrument, S_OPENING, OPENING, ts, 0, NO_SIDE, last, NULL, NULL, 0, change)
    if high > load_i64(instrument, I_HIGH * 8):
        store_i64(instrument, I_HIGH * 8, high)
        publish_statistic(t, instrument, S_HIGH, HIGH, ts, 0, NO_SIDE, high, NULL, NULL, NULL, NULL)
    if low < load_i64(instrument, I_LOW * 8):
        store_i64(instrument, I_LOW * 8, low)
        publish_statistic(t, instrument, S_LOW, LOW, ts, 0, NO_SIDE, low, NULL, NULL, NULL, NULL)
    emit_execution_statistics(t, instrument, ts, flags)


@outlined
def bust_trade(t, instrument, ts):
    """Bust the marked trade: volume and VWAP change, the last price stays (13.4)."""
    price, size = load_i64(instrument, I_BUST_PRICE * 8), load_i64(instrument, I_BUST_SIZE * 8)
    store_i64(instrument, I_QUANTITY * 8, load_i64(instrument, I_QUANTITY * 8) - size)
    store_i64(instrument, I_TURNOVER * 8, load_i64(instrument, I_TURNOVER * 8) - price // VOLUME_UNIT * size)
    store_i64(instrument, I_TRADES * 8, load_i64(instrument, I_TRADES * 8) - 1)
    buyer, seller = load_i64(instrument, I_BUST_BUYER * 8), load_i64(instrument, I_BUST_SELLER * 8)
    trade_id, trade_ts = load_i64(instrument, I_BUST_ID * 8), load_i64(instrument, I_BUST_TS * 8)
    quantity = load_i64(instrument, I_QUANTITY * 8)
    emit(t, instrument, BUST, ts, 0, NO_SIDE, price, size, trade_id, buyer, seller, NULL, trade_ts, NULL, quantity)
    store_i64(instrument, I_BUST_ID * 8, 0)
    emit_execution_statistics(t, instrument, ts, LAST)


@inlined
def is_bust_due(instrument, ts):
    return load_i64(instrument, I_BUST_ID * 8) > 0 and ts - load_i64(instrument, I_BUST_TS * 8) > BUST_DELAY_NS


@outlined
def emit_leg_trades(t, instrument, ts, size, firm):
    """A trade of a strategy is a trade of each leg too (10.1)."""
    base, count = load_i64(t, INSTRUMENTS * 8), load_i64(t, COUNT * 8)
    for leg_column in (I_LEG_1, I_LEG_2):
        instrument_index = load_i64(instrument, leg_column * 8)
        if instrument_index < 0 or instrument_index >= count:
            continue
        leg = base + instrument_index * INSTRUMENT_BYTES
        if load_i64(leg, I_STATE * 8) != OPEN:
            continue
        price = load_i64(leg, I_LAST * 8)
        if price == NULL:
            price = load_i64(leg, I_REFERENCE * 8) * load_i64(leg, I_TICK * 8)
        emit_execution_summary(t, leg, ts, NO_SIDE, price, size, NULL)
        emit_trade(t, leg, ts, NO_SIDE, price, size, firm, firm, C_LEG | C_LAST, 0, 1)
        emit_execution_statistics(t, leg, ts, 0)


@outlined
def match_aggressor(t, instrument, instrument_index, side, key, quantity, firm, ts):
    """Match an order with what rests at its price or better; its remainder rests in the book."""
    opposite = 1 - side
    orders, count = side_address(t, instrument, opposite), order_count(instrument, opposite)
    # What it will match: `filled_orders` from the top, perhaps a part of the next. After the refill of a disclosed
    # order, which queues behind, nothing deeper is matched and the remainder is cancelled.
    at, left, filled_orders, filled, partial_size, floor, refills = (
        count - 1,
        quantity,
        np.int64(0),
        np.int64(0),
        np.int64(0),
        -key,
        0,
    )
    price = np.int64(NULL)
    while at >= 0 and left > 0 and filled_orders < MAX_FILLS:
        order = orders + at * ORDER_BYTES
        resting_key, size = load_i64(order, O_KEY * 8), load_i64(order, O_SIZE * 8)
        if resting_key < floor:
            break
        price = price_of(instrument, opposite, resting_key)
        if left < size:
            partial_size, filled, left = left, filled + left, np.int64(0)
            break
        left, filled, filled_orders, at = left - size, filled + size, filled_orders + 1, at - 1
        if load_i64(order, O_RESERVE * 8) > 0:
            floor, refills = resting_key, refills + 1
    rests = left > 0 and refills == 0 and filled_orders < MAX_FILLS
    emit_execution_summary(t, instrument, ts, side_code(side), price, filled, NULL if rests or left == 0 else left)
    scratch, refill_count, bits = load_i64(t, SCRATCH * 8), np.int64(0), random_bits(t)
    low, high = price, price
    for i in range(filled_orders + (1 if partial_size > 0 else 0)):
        order = orders + (count - 1 - i) * ORDER_BYTES
        order_id, maker = load_i64(order, O_ID * 8), load_i64(order, O_FIRM * 8)
        size = load_i64(order, O_SIZE * 8) if i < filled_orders else partial_size
        at_price = price_of(instrument, opposite, load_i64(order, O_KEY * 8))
        low, high = min(low, at_price), max(high, at_price)
        last = i == filled_orders + (1 if partial_size > 0 else 0) - 1
        buyer, seller = (firm, maker) if side == 0 else (maker, firm)
        conditions, flags = C_LAST if last else 0, implied_flag(order_id)
        emit_trade(t, instrument, ts, side_code(side), at_price, size, buyer, seller, conditions, flags, bits >> i)
        if i < filled_orders and load_i64(order, O_RESERVE * 8) > 0:
            saved_order = scratch + refill_count * ORDER_BYTES
            for word in range(6):
                store_i64(saved_order, word * 8, load_i64(order, word * 8))
            refill_count += 1
    delete_matched(t, instrument, opposite, filled_orders, ts)
    if partial_size > 0:
        order = orders + (count - 1 - filled_orders) * ORDER_BYTES
        reduce_order(
            t, instrument, opposite, count - 1 - filled_orders, load_i64(order, O_SIZE * 8) - partial_size, ts, 0
        )
    for i in range(refill_count):
        saved_order = scratch + i * ORDER_BYTES
        displayed = min(load_i64(saved_order, O_SIZE * 8), load_i64(saved_order, O_RESERVE * 8))
        reserve, order_id = load_i64(saved_order, O_RESERVE * 8) - displayed, next_order_id(t, bits)
        lifetime = draw_lifetime(t, random_bits(t))
        add_order(
            t, instrument, instrument_index, opposite, load_i64(saved_order, O_KEY * 8), order_id, displayed, reserve,
            load_i64(saved_order, O_FIRM * 8), ts, 0, lifetime,
        )  # fmt: skip
    if rests and order_count(instrument, side) < load_i64(instrument, I_CAPACITY * 8):
        add_order(
            t,
            instrument,
            instrument_index,
            side,
            key,
            next_order_id(t, bits),
            left,
            0,
            firm,
            ts,
            0,
            draw_lifetime(t, random_bits(t)),
        )
    emit_leg_trades(t, instrument, ts, filled, firm)
    emit_trade_statistics(t, instrument, ts, low, high, LAST)


@outlined
def delete_matched(t, instrument, side, filled_orders, ts):
    """Delete the matched orders at the top of a side: one by one, or by position in one record (9.4)."""
    orders, count = side_address(t, instrument, side), order_count(instrument, side)
    by_position = load_i64(t, POSITION_GENERATION * 8)
    if by_position and filled_orders > 1:
        emit(
            t,
            instrument,
            DELETE_FROM,
            ts,
            0,
            side_code(side),
            NULL,
            NULL,
            NULL,
            NULL,
            NULL,
            filled_orders,
            NULL,
            NULL,
            NULL,
        )
    else:
        for i in range(filled_orders):
            order = orders + (count - 1 - i) * ORDER_BYTES
            size = np.int64(NULL) if by_position else load_i64(order, O_SIZE * 8)
            price = price_of(instrument, side, load_i64(order, O_KEY * 8))
            order_id = load_i64(order, O_ID * 8)
            emit(t, instrument, DELETE, ts, 0, side_code(side), price, size, order_id, NULL, NULL, 1, NULL, NULL, NULL)
    set_order_count(instrument, side, count - filled_orders)


@outlined
def reduce_order(t, instrument, side, index, size, ts, flags):
    """Reduce the size of an order, which keeps its priority (13.4)."""
    order = side_address(t, instrument, side) + index * ORDER_BYTES
    before, order_id = load_i64(order, O_SIZE * 8), load_i64(order, O_ID * 8)
    store_i64(order, O_SIZE * 8, size)
    price, position = price_of(instrument, side, load_i64(order, O_KEY * 8)), order_count(instrument, side) - index
    insert_ts, firm = load_i64(order, O_INSERT * 8), load_i64(order, O_FIRM * 8)
    flags |= implied_flag(order_id)
    emit(
        t, instrument, CHANGE, ts, flags, side_code(side), price, size, order_id, firm, before, position, insert_ts,
        NULL, NULL,
    )  # fmt: skip


@outlined
def emit_cross(t, instrument, ts, price, size, firm, conditions):
    """Append a cross: both sides are of one firm, the book does not change."""
    emit_execution_summary(t, instrument, ts, NO_SIDE, price, size, NULL)
    emit_trade(t, instrument, ts, NO_SIDE, price, size, firm, firm, conditions, 0, 1)
    emit_trade_statistics(t, instrument, ts, price, price, LAST)
