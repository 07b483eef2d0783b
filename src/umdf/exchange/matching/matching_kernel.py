"""Matching in the bulk market: an aggressor trades with the orders at the top of the opposite side.

The records of one event are in the exchange's order: summary, trades, deleted orders, changed and new orders,
statistics (55, 53 …, 51 or 52, 50, 56).
"""

from __future__ import annotations

import numpy as np

from umdf.exchange.matching.book_side_kernel import insert, order_count, price_of, set_order_count, side_address
from umdf.exchange.matching.journal_kernel import emit
from umdf.exchange.matching.memory_layout_kernel import (
    ADD,
    C_REGULAR,
    CHANGE,
    DELETE,
    DELETE_FROM,
    I_CAPACITY,
    IMPLIED_ID,
    LAST,
    LIFETIMES,
    MAX_FILLS,
    NULL,
    O_FIRM,
    O_ID,
    O_INSERT,
    O_KEY,
    O_RESERVE,
    O_SIZE,
    ORDER_BYTES,
    ORDER_ID,
    POSITION_GENERATION,
    SCRATCH,
)
from umdf.exchange.matching.order_expiry_kernel import push_expiry
from umdf.exchange.matching.random_kernel import random_bits, sample_quantile
from umdf.exchange.matching.trade_kernel import (
    FILL_BYTES,
    FILLS_OFFSET,
    FIRST_IMPLIED_ID,
    emit_execution_summary,
    emit_leg_trades,
    emit_trade,
    emit_trade_statistics,
    implied_flag,
    opening_condition,
    side_code,
)
from umdf.kernels import inlined, load_i64, outlined, store_i64


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


@outlined
def match_aggressor(t, instrument, instrument_index, side, key, quantity, firm, ts):
    """Match an order with what rests at its price or better; its remainder rests in the book."""
    opposite = 1 - side
    orders, count = side_address(t, instrument, opposite), order_count(instrument, opposite)
    # What it will match: `filled_orders` from the top, perhaps a part of the next. After the refill of a disclosed
    # order, which queues behind, nothing deeper is matched, no implied order either (the least priority at a price,
    # 14), and the remainder is cancelled.
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
        if resting_key < floor or (refills > 0 and load_i64(order, O_ID * 8) >= FIRST_IMPLIED_ID):
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
    low, high, first = price, price, price
    fills = filled_orders + (1 if partial_size > 0 else 0)
    conditions = C_REGULAR | opening_condition(instrument)
    for i in range(fills):
        order = orders + (count - 1 - i) * ORDER_BYTES
        order_id, maker = load_i64(order, O_ID * 8), load_i64(order, O_FIRM * 8)
        size = load_i64(order, O_SIZE * 8) if i < filled_orders else partial_size
        at_price = price_of(instrument, opposite, load_i64(order, O_KEY * 8))
        low, high = min(low, at_price), max(high, at_price)
        if i == 0:
            first = at_price
        buyer, seller = (firm, maker) if side == 0 else (maker, firm)
        flags = implied_flag(order_id)
        emit_trade(t, instrument, ts, side_code(side), at_price, size, buyer, seller, conditions, flags, bits >> i)
        fill = scratch + FILLS_OFFSET + i * FILL_BYTES
        store_i64(fill, 0, at_price)
        store_i64(fill, 8, size)
        store_i64(fill, 16, maker)
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
    emit_leg_trades(t, instrument, ts, fills, filled, side == 0, firm)
    emit_trade_statistics(t, instrument, ts, first, low, high, LAST)


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
