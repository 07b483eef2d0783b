"""Matching: an aggressor trades with the orders at the top of the opposite side.

The records of one event are in the exchange's order: summary, trades, deleted orders, changed and new orders,
statistics (55, 53 …, 51 or 52, 50, 56).
"""

from __future__ import annotations

import numpy as np

from umdf.exchange.matching.book_side_kernel import insert, order_count, price_of, remove, set_order_count, side_address
from umdf.exchange.matching.journal_kernel import emit
from umdf.exchange.matching.memory_layout_kernel import (
    ADD,
    AGGRESSOR_OFFSET,
    C_LEG,
    C_REGULAR,
    CANCELLED,
    CHANGE,
    DELETE,
    FILL_BYTES,
    FILLS_OFFSET,
    FIRST_IMPLIED_ID,
    I_CAPACITY,
    I_HAS_LEG_TRADES,
    I_IS_QUEUED,
    I_LEGS,
    I_RATIOS,
    I_STATE,
    I_STRATEGIES,
    I_STRATEGY_COUNT,
    IMPLIED,
    IMPLIED_ID,
    IMPLIED_QUEUE,
    IMPLIED_QUEUE_COUNT,
    INSTRUMENT_BYTES,
    INSTRUMENTS,
    LAST,
    LAST_KEY,
    LIFETIMES,
    MAX_FILLS,
    MAX_FLOW_FILLS,
    MAX_LEGS,
    NO_SIDE,
    NULL,
    O_DISPLAY,
    O_FIRM,
    O_ID,
    O_INSERT,
    O_KEY,
    O_RESERVE,
    O_SIZE,
    O_TERMS,
    OPEN,
    ORDER_BYTES,
    ORDER_ID,
    ORDER_WORDS,
    REFILLS_OFFSET,
    RESTING_ID,
    SCRATCH,
    STP_MASK,
    STRATEGIES,
    TRADED,
)
from umdf.exchange.matching.order_expiry_kernel import push_expiry
from umdf.exchange.matching.order_index_kernel import remember, rename
from umdf.exchange.matching.random_kernel import random_bits, sample_quantile
from umdf.exchange.matching.trade_kernel import (
    NEVER_BUSTED,
    emit_execution_statistics,
    emit_execution_summary,
    emit_trade,
    emit_trade_statistics,
    implied_flag,
    last_or_closing_price,
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
    least priority at a price, 14), and after an implied order nothing at all, as another one may follow from the legs:
    that is for the next event. Return the quantity for it; of the order flow it is cancelled instead. Where the next
    order is one that it must not trade with, the rest is cancelled too.
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
    price, last_key, is_own, implied = np.int64(NULL), np.int64(0), False, np.int64(0)
    while at >= 0 and left > 0:
        order = orders + at * ORDER_BYTES
        resting_key, size = load_i64(order, O_KEY * 8), load_i64(order, O_SIZE * 8)
        is_implied = load_i64(order, O_ID * 8) >= FIRST_IMPLIED_ID
        if resting_key < floor or (refills > 0 and is_implied):
            break
        is_own = owner != 0 and owner_of(order) == owner
        if is_own or filled_orders == max_fills:
            break
        price, last_key = price_of(instrument, opposite, resting_key), resting_key
        if is_implied:
            implied = min(left, size)
        if left < size:
            partial_size, filled, left = left, filled + left, np.int64(0)
            break
        left, filled, filled_orders, at = left - size, filled + size, filled_orders + 1, at - 1
        if load_i64(order, O_RESERVE * 8) > 0:
            floor, refills = resting_key, refills + 1
        if is_implied:
            break
    continues = left > 0 and not is_own and (refills > 0 or implied > 0 or filled_orders == max_fills)
    if continues and refills == 0 and implied == 0:
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
        flags = implied_flag(order_id)
        bust_bits = bits >> min(i, 62) if of_flow and flags == 0 else np.int64(NEVER_BUSTED)
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
    regular_fills = fills - (1 if implied > 0 else 0)
    emit_leg_trades(t, instrument, ts, regular_fills, filled - implied, implied, side, firm)
    emit_trade_statistics(t, instrument, ts, first, low, high, LAST)
    store_i64(t, LAST_KEY * 8, last_key)
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
        flags = implied_flag(order_id)
        emit(t, instrument, DELETE, ts, flags, side_code(side), price, size, order_id, NULL, NULL, 1, NULL, NULL, NULL)
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
def cancel_order(t, instrument, side, index, ts, flags):
    """Cancel an order."""
    order = side_address(t, instrument, side) + index * ORDER_BYTES
    price, size = price_of(instrument, side, load_i64(order, O_KEY * 8)), load_i64(order, O_SIZE * 8)
    order_id, position = load_i64(order, O_ID * 8), order_count(instrument, side) - index
    flags |= implied_flag(order_id)
    emit(
        t, instrument, DELETE, ts, flags, side_code(side), price, size, order_id, NULL, NULL, position, NULL, NULL, NULL
    )
    remove(t, instrument, side, index)


# Strategies and their legs


@outlined
def queue_strategies(t, instrument):
    """The book or the state of an instrument has changed: the implied orders of its strategies have to be derived."""
    first, rows = load_i64(instrument, I_STRATEGIES * 8), load_i64(t, INSTRUMENTS * 8)
    for i in range(load_i64(instrument, I_STRATEGY_COUNT * 8)):
        row = load_i64(load_i64(t, STRATEGIES * 8), (first + i) * 8)
        strategy = rows + row * INSTRUMENT_BYTES
        if load_i64(strategy, I_IS_QUEUED * 8) == 0:
            count = load_i64(t, IMPLIED_QUEUE_COUNT * 8)
            store_i64(load_i64(t, IMPLIED_QUEUE * 8), count * 8, row)
            store_i64(t, IMPLIED_QUEUE_COUNT * 8, count + 1)
            store_i64(strategy, I_IS_QUEUED * 8, 1)


@outlined
def emit_leg_trades(t, instrument, ts, fills, filled, implied, side, firm):
    """A trade of a strategy is a trade of each leg too (10.1, 1378). The first leg, which is bought once, has the price
    that the others leave of that of the strategy; they trade at their last prices. What an implied order has traded
    trades with the orders of the legs instead (14.3)."""
    base, fill_list = load_i64(t, INSTRUMENTS * 8), load_i64(t, SCRATCH * 8) + FILLS_OFFSET
    has_prints = filled > 0 and load_i64(instrument, I_HAS_LEG_TRADES * 8) != 0
    if load_i64(instrument, I_LEGS * 8) < 0 or not (has_prints or implied > 0):
        return
    others = np.int64(0)
    for slot in range(1, MAX_LEGS):
        row = load_i64(instrument, (I_LEGS + slot) * 8)
        if row >= 0:
            ratio = load_i64(instrument, (I_RATIOS + slot) * 8)
            others += ratio * last_or_closing_price(base + row * INSTRUMENT_BYTES)
    for i in range(MAX_LEGS):
        slot = MAX_LEGS - 1 - i
        row, ratio = load_i64(instrument, (I_LEGS + slot) * 8), load_i64(instrument, (I_RATIOS + slot) * 8)
        if row < 0 or load_i64(base + row * INSTRUMENT_BYTES, I_STATE * 8) != OPEN:
            continue
        leg, times, leg_side = base + row * INSTRUMENT_BYTES, abs(ratio), side if ratio > 0 else 1 - side
        own_price, opening = last_or_closing_price(leg), opening_condition(leg)
        last_fill = load_i64(fill_list, (fills - 1) * FILL_BYTES) if has_prints else np.int64(0)
        price = last_fill - others if slot == 0 else own_price
        aggressor = np.int64(NO_SIDE)
        if implied > 0:
            opposite, top = side_address(t, leg, 1 - leg_side), order_count(leg, 1 - leg_side) - 1
            price = price_of(leg, 1 - leg_side, load_i64(opposite, top * ORDER_BYTES + O_KEY * 8))
            aggressor = np.int64(side_code(leg_side))
        printed = filled * times if has_prints else np.int64(0)
        emit_execution_summary(t, leg, ts, aggressor, price, printed + implied * times, NULL)
        for j in range(fills if has_prints else 0):
            fill = fill_list + j * FILL_BYTES
            print_price = load_i64(fill, 0) - others if slot == 0 else own_price
            maker = load_i64(fill, 16)
            buyer, seller = (firm, maker) if leg_side == 0 else (maker, firm)
            emit_trade(t, leg, ts, aggressor, print_price, load_i64(fill, 8) * times, buyer, seller, C_LEG, 0, 1)
        if implied > 0:
            match_leg(t, leg, row, leg_side, implied * times, firm, C_REGULAR | opening, ts)
            emit_trade_statistics(t, leg, ts, price, price, price, 0)
        else:
            emit_execution_statistics(t, leg, ts, 0)
        queue_strategies(t, leg)


@outlined
def match_leg(t, leg, leg_index, side, quantity, firm, conditions, ts):
    """Match the orders at the best price of a leg for which an implied order has traded (14.3)."""
    opposite, refills_at = 1 - side, load_i64(t, SCRATCH * 8) + REFILLS_OFFSET
    orders, count = side_address(t, leg, opposite), order_count(leg, opposite)
    left, filled_orders, partial_size, refill_count = quantity, np.int64(0), np.int64(0), np.int64(0)
    price = price_of(leg, opposite, load_i64(orders, (count - 1) * ORDER_BYTES + O_KEY * 8))
    while left > 0 and filled_orders < count:
        order = orders + (count - 1 - filled_orders) * ORDER_BYTES
        size, maker = min(left, load_i64(order, O_SIZE * 8)), load_i64(order, O_FIRM * 8)
        buyer, seller = (firm, maker) if side == 0 else (maker, firm)
        emit_trade(t, leg, ts, side_code(side), price, size, buyer, seller, conditions, IMPLIED, NEVER_BUSTED)
        left -= size
        if size < load_i64(order, O_SIZE * 8):
            partial_size = size
            break
        if load_i64(order, O_RESERVE * 8) > 0:
            copy_order(refills_at + refill_count * ORDER_BYTES, order)
            refill_count += 1
        filled_orders += 1
    delete_matched(t, leg, opposite, filled_orders, ts)
    if partial_size > 0:
        at = count - 1 - filled_orders
        reduce_order(t, leg, opposite, at, load_i64(orders, at * ORDER_BYTES + O_SIZE * 8) - partial_size, ts, 0)
    for i in range(refill_count):
        refill(t, leg, leg_index, opposite, refills_at + i * ORDER_BYTES, next_order_id(t, 0), ts)
