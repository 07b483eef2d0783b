"""Matching: an aggressor trades with the orders at the top of the opposite side.

The records of one event are in the exchange's order: summary, trades, deleted orders, changed and new orders,
statistics (55, 53 …, 51 or 52, 50, 56).
"""

from __future__ import annotations

import numpy as np

from umdf.exchange.matching.book_side_kernel import insert, order_count, price_of, set_order_count, side_address
from umdf.exchange.matching.journal_kernel import emit
from umdf.exchange.matching.memory_layout_kernel import (
    ADD,
    AGGRESSOR_OFFSET,
    C_REGULAR,
    CANCELLED,
    CHANGE,
    DELETE,
    FILL_BYTES,
    FILLS_OFFSET,
    I_CAPACITY,
    IMPLIED_ID,
    LAST,
    LIFETIMES,
    MAX_FILLS,
    MAX_FLOW_FILLS,
    NULL,
    O_DISPLAY,
    O_FIRM,
    O_ID,
    O_INSERT,
    O_KEY,
    O_RESERVE,
    O_SIZE,
    O_TERMS,
    ORDER_BYTES,
    ORDER_ID,
    ORDER_WORDS,
    REFILLS_OFFSET,
    RESTING_ID,
    SCRATCH,
    STP_MASK,
    TRADED,
)
from umdf.exchange.matching.order_expiry_kernel import push_expiry
from umdf.exchange.matching.order_index_kernel import remember, rename
from umdf.exchange.matching.random_kernel import random_bits, sample_quantile
from umdf.exchange.matching.trade_kernel import (
    FIRST_IMPLIED_ID,
    NEVER_BUSTED,
    emit_execution_summary,
    emit_leg_trades,
    emit_trade,
    emit_trade_statistics,
    implied_flag,
    opening_condition,
    side_code,
)
from umdf.kernels import inlined, load_i64, outlined, store_i64

REST_NEVER, REST_AT_LIMIT, REST_AT_LAST_PRICE = 0, 1, 2  # what becomes of the rest of an aggressor


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
def rest_order(t, instrument, side, order_id, order, size, reserve, ts, flags):
    """Add an order with the key, the firm and the terms of another one."""
    key, firm = load_i64(order, O_KEY * 8), load_i64(order, O_FIRM * 8)
    display, terms = load_i64(order, O_DISPLAY * 8), load_i64(order, O_TERMS * 8)
    position = insert(t, instrument, side, key, order_id, size, reserve, firm, ts, display, terms)
    price = price_of(instrument, side, key)
    flags |= implied_flag(order_id)
    emit(t, instrument, ADD, ts, flags, side_code(side), price, size, order_id, firm, NULL, position, ts, NULL, NULL)


@outlined
def add_order(t, instrument, instrument_index, side, key, order_id, size, reserve, firm, ts, flags, lifetime):
    """Add an order of the order flow, and schedule its expiry."""
    order = load_i64(t, SCRATCH * 8) + AGGRESSOR_OFFSET
    store_i64(order, O_KEY * 8, key)
    store_i64(order, O_FIRM * 8, firm)
    store_i64(order, O_DISPLAY * 8, 0)
    store_i64(order, O_TERMS * 8, 0)
    rest_order(t, instrument, side, order_id, order, size, reserve, ts, flags)
    push_expiry(t, ts, ts + lifetime, instrument_index * 2 + side, key, order_id)


@inlined
def draw_lifetime(t, bits):
    return sample_quantile(t, LIFETIMES, bits)


@inlined
def owner_of(order):
    """Whose orders an order does not trade with; 0: it trades with all."""
    return load_i64(order, O_TERMS * 8) & STP_MASK


@outlined
def refill(t, instrument, instrument_index, side, order, order_id, ts):
    """Display the next part of a disclosed order, under a new id and so without its priority (13.4)."""
    display, terms = load_i64(order, O_DISPLAY * 8), load_i64(order, O_TERMS * 8)
    displayed = min(display if display > 0 else load_i64(order, O_SIZE * 8), load_i64(order, O_RESERVE * 8))
    reserve, key = load_i64(order, O_RESERVE * 8) - displayed, load_i64(order, O_KEY * 8)
    rest_order(t, instrument, side, order_id, order, displayed, reserve, ts, 0)
    if terms == 0:
        lifetime = draw_lifetime(t, random_bits(t))
        push_expiry(t, ts, ts + lifetime, instrument_index * 2 + side, key, order_id)
    else:
        rename(t, load_i64(order, O_ID * 8), order_id, instrument_index * 2 + side, key)


@inlined
def copy_order(target, source):
    for word in range(ORDER_WORDS):
        store_i64(target, word * 8, load_i64(source, word * 8))


@outlined
def match_aggressor(t, instrument, instrument_index, side, aggressor, rest_mode, ts):
    """Match an order (its key, size, display, firm and terms) with what rests at its price or better, as one event.

    After the refill of a disclosed order, which queues behind, nothing deeper is matched, no implied order either (the
    least priority at a price, 14): that is for the next event. Return the quantity for it; of the order flow it is
    cancelled instead. Where the next order is one that it must not trade with, the rest is cancelled too.
    """
    opposite, key, quantity = 1 - side, load_i64(aggressor, O_KEY * 8), load_i64(aggressor, O_SIZE * 8)
    firm, of_flow, owner = load_i64(aggressor, O_FIRM * 8), load_i64(aggressor, O_TERMS * 8) == 0, owner_of(aggressor)
    orders, count = side_address(t, instrument, opposite), order_count(instrument, opposite)
    max_fills = MAX_FLOW_FILLS if of_flow else MAX_FILLS
    at, left, filled_orders, filled, partial_size, floor, refills = (
        count - 1,
        quantity,
        np.int64(0),
        np.int64(0),
        np.int64(0),
        -key,
        0,
    )
    price, last_key, is_own = np.int64(NULL), np.int64(0), False
    while at >= 0 and left > 0:
        order = orders + at * ORDER_BYTES
        resting_key, size = load_i64(order, O_KEY * 8), load_i64(order, O_SIZE * 8)
        if resting_key < floor or (refills > 0 and load_i64(order, O_ID * 8) >= FIRST_IMPLIED_ID):
            break
        is_own = owner != 0 and owner_of(order) == owner
        if is_own or filled_orders == max_fills:
            break
        price, last_key = price_of(instrument, opposite, resting_key), resting_key
        if left < size:
            partial_size, filled, left = left, filled + left, np.int64(0)
            break
        left, filled, filled_orders, at = left - size, filled + size, filled_orders + 1, at - 1
        if load_i64(order, O_RESERVE * 8) > 0:
            floor, refills = resting_key, refills + 1
    continues = left > 0 and not is_own and (refills > 0 or filled_orders == max_fills)
    if continues and refills == 0:
        continues = of_flow or (at >= 0 and load_i64(orders, at * ORDER_BYTES + O_KEY * 8) >= -key)
    rests = left > 0 and not is_own and not continues and rest_mode != REST_NEVER
    is_cancelled = left > 0 and not rests and (of_flow or not continues)
    emit_execution_summary(t, instrument, ts, side_code(side), price, filled, left if is_cancelled else NULL)
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
        flags, bust_bits = implied_flag(order_id), bits >> min(i, 62) if of_flow else np.int64(NEVER_BUSTED)
        emit_trade(t, instrument, ts, side_code(side), at_price, size, buyer, seller, conditions, flags, bust_bits)
        fill = scratch + FILLS_OFFSET + i * FILL_BYTES
        store_i64(fill, 0, at_price)
        store_i64(fill, 8, size)
        store_i64(fill, 16, maker)
        if i < filled_orders and load_i64(order, O_RESERVE * 8) > 0:
            copy_order(scratch + REFILLS_OFFSET + refill_count * ORDER_BYTES, order)
            refill_count += 1
    delete_matched(t, instrument, opposite, filled_orders, ts)
    if partial_size > 0:
        order = orders + (count - 1 - filled_orders) * ORDER_BYTES
        reduce_order(
            t, instrument, opposite, count - 1 - filled_orders, load_i64(order, O_SIZE * 8) - partial_size, ts, 0
        )
    for i in range(refill_count):
        order_id = next_order_id(t, bits)
        refill(t, instrument, instrument_index, opposite, scratch + REFILLS_OFFSET + i * ORDER_BYTES, order_id, ts)
    if rests and order_count(instrument, side) < load_i64(instrument, I_CAPACITY * 8):
        if rest_mode == REST_AT_LAST_PRICE:
            store_i64(aggressor, O_KEY * 8, -last_key)
        rest_remainder(t, instrument, instrument_index, side, aggressor, left, bits, ts)
    emit_leg_trades(t, instrument, ts, fills, filled, side == 0, firm)
    emit_trade_statistics(t, instrument, ts, first, low, high, LAST)
    store_i64(t, TRADED * 8, load_i64(t, TRADED * 8) + filled)
    if is_cancelled:
        store_i64(t, CANCELLED * 8, load_i64(t, CANCELLED * 8) + left)
    return left if continues and not of_flow else np.int64(0)


@outlined
def rest_remainder(t, instrument, instrument_index, side, aggressor, left, bits, ts):
    """Add what is left of an aggressor to its side; of a disclosed order only a part is displayed."""
    order_id = next_order_id(t, bits)
    if load_i64(aggressor, O_TERMS * 8) == 0:
        key, firm, lifetime = (
            load_i64(aggressor, O_KEY * 8),
            load_i64(aggressor, O_FIRM * 8),
            draw_lifetime(t, random_bits(t)),
        )
        add_order(t, instrument, instrument_index, side, key, order_id, left, 0, firm, ts, 0, lifetime)
    else:
        rest_new_order(t, instrument, instrument_index, side, aggressor, left, order_id, ts, 0)


@outlined
def rest_new_order(t, instrument, instrument_index, side, order, quantity, order_id, ts, flags):
    """Add an order that is not of the order flow, which is found by its id from now on."""
    display = load_i64(order, O_DISPLAY * 8)
    displayed = min(display, quantity) if display > 0 else quantity
    rest_order(t, instrument, side, order_id, order, displayed, quantity - displayed, ts, flags)
    remember(t, order_id, instrument_index * 2 + side, load_i64(order, O_KEY * 8))
    store_i64(t, RESTING_ID * 8, order_id)


@outlined
def delete_matched(t, instrument, side, filled_orders, ts):
    """Delete the matched orders at the top of a side, each by a record; a channel by position joins them (9.4)."""
    orders, count = side_address(t, instrument, side), order_count(instrument, side)
    for i in range(filled_orders):
        order = orders + (count - 1 - i) * ORDER_BYTES
        price, size = price_of(instrument, side, load_i64(order, O_KEY * 8)), load_i64(order, O_SIZE * 8)
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
