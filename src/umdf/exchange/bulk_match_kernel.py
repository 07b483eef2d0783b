"""Trades of the bulk market: an aggressor takes orders from the top of the other side.

The lines of one event stand as the exchange sends them: summary, trades, orders that leave, orders that changed or are
new, statistics (55, 53 …, 51 or 52, 50, 56).
"""

from __future__ import annotations

import numpy as np

from umdf.exchange.bulk_deaths_kernel import push
from umdf.exchange.bulk_emit_kernel import emit, keep, number, publish, write
from umdf.exchange.bulk_places_kernel import (
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
    I_PREVIOUS,
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
    NEITHER,
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
    REFILLS,
    S_EXECUTION,
    S_HIGH,
    S_LAST,
    S_LOW,
    S_OPENING,
    SCRATCH,
    SUMMARY,
    TRADE,
)
from umdf.exchange.bulk_random_kernel import draw, quantile
from umdf.exchange.bulk_side_kernel import insert, orders_of, price_of, set_orders, side_at
from umdf.kernels import inlined, load_i64, outlined, store_i64

VOLUME_UNIT = 100_000  # prices are in 1e-9, turnover and VWAP in 1e-4
IMPLIED_FROM = 1 << 62  # ids of implied orders are larger than those of others (9.1)
BUST_ONE_IN = 2048  # trades, and where one is asked for
BUST_WANTED = -1  # instead of a trade's number: the next trade that can be undone will be
BUST_AFTER_NS = 500_000_000


@inlined
def next_id(t, bits):
    order_id = load_i64(t, ORDER_ID * 8) + 1 + (bits & 3)
    store_i64(t, ORDER_ID * 8, order_id)
    return order_id


@inlined
def next_implied_id(t):
    order_id = load_i64(t, IMPLIED_ID * 8) + 1
    store_i64(t, IMPLIED_ID * 8, order_id)
    return order_id


@inlined
def letter(side):
    return BID if side == 0 else ASK


@inlined
def implied_flag(order_id):
    return IMPLIED if order_id >= IMPLIED_FROM else 0


@outlined
def place(t, instrument, number_, side, key, order_id, size, reserve, firm, ts, flags, lifetime):
    """A new order, and when it will end."""
    position = insert(t, instrument, side, key, order_id, size, reserve, firm, ts)
    price = price_of(instrument, side, key)
    flags |= implied_flag(order_id)
    emit(t, instrument, ADD, ts, flags, letter(side), price, size, order_id, firm, NULL, position, ts, NULL, NULL)
    push(t, ts, ts + lifetime, number_ * 2 + side, key, order_id)


@inlined
def lifetime_of(t, bits):
    return quantile(t, LIFETIMES, bits)


@inlined
def summarise(t, instrument, ts, side, price, size, cancelled):
    """The execution summary, which only Binary has."""
    security_id = load_i64(instrument, I_ID * 8)
    line = write(t, SUMMARY, security_id, ts, 0, side, price, size, NULL, NULL, cancelled, NULL, ts, NULL, NULL)
    number(instrument, line, ON_SBE)


@outlined
def trade(t, instrument, ts, side, price, size, buyer, seller, conditions, flags, bits):
    """One trade and what it does to the session's figures. A leg trade does not move the last price (13.4)."""
    trade_id = load_i64(instrument, I_TRADE_ID * 8) + 10
    store_i64(instrument, I_TRADE_ID * 8, trade_id)
    quantity = load_i64(instrument, I_QUANTITY * 8) + size
    store_i64(instrument, I_QUANTITY * 8, quantity)
    store_i64(instrument, I_TURNOVER * 8, load_i64(instrument, I_TURNOVER * 8) + price // VOLUME_UNIT * size)
    store_i64(instrument, I_TRADES * 8, load_i64(instrument, I_TRADES * 8) + 1)
    if conditions & C_LEG == 0:
        store_i64(instrument, I_LAST * 8, price)
        keep(instrument, S_LAST, LAST_PRICE, ts, NEITHER, price, size, trade_id, buyer, seller, conditions, NULL)
        inside = load_i64(instrument, I_LOW * 8) < price < load_i64(instrument, I_HIGH * 8)
        # Only what is no extreme is undone, so that high and low stand (13.4).
        marked = load_i64(instrument, I_BUST_ID * 8)
        if inside and (marked == BUST_WANTED or (marked == 0 and bits % BUST_ONE_IN == 0)):
            flags |= BUSTED
            store_i64(instrument, I_BUST_ID * 8, trade_id)
            store_i64(instrument, I_BUST_PRICE * 8, price)
            store_i64(instrument, I_BUST_SIZE * 8, size)
            store_i64(instrument, I_BUST_TS * 8, ts)
            store_i64(instrument, I_BUST_BUYER * 8, buyer)
            store_i64(instrument, I_BUST_SELLER * 8, seller)
    last = load_i64(instrument, I_LAST * 8)
    change = last - load_i64(instrument, I_PREVIOUS * 8) if last != NULL else np.int64(NULL)
    emit(t, instrument, TRADE, ts, flags, side, price, size, trade_id, buyer, seller, change, ts, conditions, quantity)


@inlined
def execution(t, instrument, ts, flags):
    """Execution statistics: the last line of a trade event."""
    quantity, last = load_i64(instrument, I_QUANTITY * 8), load_i64(instrument, I_LAST * 8)
    vwap = np.int64(NULL)
    if quantity > 0:
        vwap = (load_i64(instrument, I_TURNOVER * 8) + quantity // 2) // quantity * VOLUME_UNIT
    change = last - load_i64(instrument, I_PREVIOUS * 8) if last != NULL else np.int64(NULL)
    trades = load_i64(instrument, I_TRADES * 8)
    publish(t, instrument, S_EXECUTION, EXECUTION, ts, flags, NEITHER, vwap, quantity, trades, NULL, change)


@outlined
def figures(t, instrument, ts, low, high, flags):
    """Opening price, low, high and execution statistics after trades between two prices."""
    if load_i64(instrument, I_OPENED * 8) == 0:
        store_i64(instrument, I_OPENED * 8, 1)
        last = load_i64(instrument, I_LAST * 8)
        change = last - load_i64(instrument, I_PREVIOUS * 8)
        publish(t, instrument, S_OPENING, OPENING, ts, 0, NEITHER, last, NULL, NULL, 0, change)
    if high > load_i64(instrument, I_HIGH * 8):
        store_i64(instrument, I_HIGH * 8, high)
        publish(t, instrument, S_HIGH, HIGH, ts, 0, NEITHER, high, NULL, NULL, NULL, NULL)
    if low < load_i64(instrument, I_LOW * 8):
        store_i64(instrument, I_LOW * 8, low)
        publish(t, instrument, S_LOW, LOW, ts, 0, NEITHER, low, NULL, NULL, NULL, NULL)
    execution(t, instrument, ts, flags)


@outlined
def bust(t, instrument, ts):
    """Undo the trade that was marked; volume and VWAP follow, the last price stands (13.4)."""
    price, size = load_i64(instrument, I_BUST_PRICE * 8), load_i64(instrument, I_BUST_SIZE * 8)
    store_i64(instrument, I_QUANTITY * 8, load_i64(instrument, I_QUANTITY * 8) - size)
    store_i64(instrument, I_TURNOVER * 8, load_i64(instrument, I_TURNOVER * 8) - price // VOLUME_UNIT * size)
    store_i64(instrument, I_TRADES * 8, load_i64(instrument, I_TRADES * 8) - 1)
    buyer, seller = load_i64(instrument, I_BUST_BUYER * 8), load_i64(instrument, I_BUST_SELLER * 8)
    trade_id, traded = load_i64(instrument, I_BUST_ID * 8), load_i64(instrument, I_BUST_TS * 8)
    quantity = load_i64(instrument, I_QUANTITY * 8)
    emit(t, instrument, BUST, ts, 0, NEITHER, price, size, trade_id, buyer, seller, NULL, traded, NULL, quantity)
    store_i64(instrument, I_BUST_ID * 8, 0)
    execution(t, instrument, ts, LAST)


@inlined
def bust_is_due(instrument, ts):
    return load_i64(instrument, I_BUST_ID * 8) > 0 and ts - load_i64(instrument, I_BUST_TS * 8) > BUST_AFTER_NS


@outlined
def leg_trades(t, instrument, ts, size, firm):
    """A trade of a strategy is a trade of each leg too (10.1)."""
    base, count = load_i64(t, INSTRUMENTS * 8), load_i64(t, COUNT * 8)
    for leg_at in (I_LEG_1, I_LEG_2):
        number_ = load_i64(instrument, leg_at * 8)
        if number_ < 0 or number_ >= count:
            continue
        leg = base + number_ * INSTRUMENT_BYTES
        if load_i64(leg, I_STATE * 8) != OPEN:
            continue
        price = load_i64(leg, I_LAST * 8)
        if price == NULL:
            price = load_i64(leg, I_REFERENCE * 8) * load_i64(leg, I_TICK * 8)
        summarise(t, leg, ts, NEITHER, price, size, NULL)
        trade(t, leg, ts, NEITHER, price, size, firm, firm, C_LEG | C_LAST, 0, 1)
        execution(t, leg, ts, 0)


@outlined
def aggress(t, instrument, number_, side, key, wanted, firm, ts):
    """An order that takes what stands at its price or better; what is left of it stays in the book."""
    other = 1 - side
    orders, count = side_at(t, instrument, other), orders_of(instrument, other)
    # What it will take: `whole` orders from the top, perhaps a part of the next. After a disclosed order's refill,
    # which stands behind, nothing deeper is taken and the rest is cancelled.
    at, left, whole, filled, part, floor, refills = count - 1, wanted, np.int64(0), np.int64(0), np.int64(0), -key, 0
    price = np.int64(NULL)
    while at >= 0 and left > 0 and whole < REFILLS:
        order = orders + at * ORDER_BYTES
        standing, size = load_i64(order, O_KEY * 8), load_i64(order, O_SIZE * 8)
        if standing < floor:
            break
        price = price_of(instrument, other, standing)
        if left < size:
            part, filled, left = left, filled + left, np.int64(0)
            break
        left, filled, whole, at = left - size, filled + size, whole + 1, at - 1
        if load_i64(order, O_RESERVE * 8) > 0:
            floor, refills = standing, refills + 1
    rests = left > 0 and refills == 0 and whole < REFILLS
    summarise(t, instrument, ts, letter(side), price, filled, NULL if rests or left == 0 else left)
    scratch, kept, bits = load_i64(t, SCRATCH * 8), np.int64(0), draw(t)
    low, high = price, price
    for i in range(whole + (1 if part > 0 else 0)):
        order = orders + (count - 1 - i) * ORDER_BYTES
        order_id, maker = load_i64(order, O_ID * 8), load_i64(order, O_FIRM * 8)
        size = load_i64(order, O_SIZE * 8) if i < whole else part
        at_price = price_of(instrument, other, load_i64(order, O_KEY * 8))
        low, high = min(low, at_price), max(high, at_price)
        last = i == whole + (1 if part > 0 else 0) - 1
        buyer, seller = (firm, maker) if side == 0 else (maker, firm)
        conditions, flags = C_LAST if last else 0, implied_flag(order_id)
        trade(t, instrument, ts, letter(side), at_price, size, buyer, seller, conditions, flags, bits >> i)
        if i < whole and load_i64(order, O_RESERVE * 8) > 0:
            line = scratch + kept * ORDER_BYTES
            for word in range(6):
                store_i64(line, word * 8, load_i64(order, word * 8))
            kept += 1
    leave_top(t, instrument, other, whole, ts)
    if part > 0:
        order = orders + (count - 1 - whole) * ORDER_BYTES
        change_size(t, instrument, other, count - 1 - whole, load_i64(order, O_SIZE * 8) - part, ts, 0)
    for i in range(kept):
        line = scratch + i * ORDER_BYTES
        shown = min(load_i64(line, O_SIZE * 8), load_i64(line, O_RESERVE * 8))
        reserve, order_id = load_i64(line, O_RESERVE * 8) - shown, next_id(t, bits)
        lifetime = lifetime_of(t, draw(t))
        place(
            t, instrument, number_, other, load_i64(line, O_KEY * 8), order_id, shown, reserve,
            load_i64(line, O_FIRM * 8), ts, 0, lifetime,
        )  # fmt: skip
    if rests and orders_of(instrument, side) < load_i64(instrument, I_CAPACITY * 8):
        place(t, instrument, number_, side, key, next_id(t, bits), left, 0, firm, ts, 0, lifetime_of(t, draw(t)))
    leg_trades(t, instrument, ts, filled, firm)
    figures(t, instrument, ts, low, high, LAST)


@outlined
def leave_top(t, instrument, side, whole, ts):
    """The first orders of a side leave, because they were matched: one by one, or by position in one line (9.4)."""
    orders, count = side_at(t, instrument, side), orders_of(instrument, side)
    by_position = load_i64(t, POSITION_GENERATION * 8)
    if by_position and whole > 1:
        emit(t, instrument, DELETE_FROM, ts, 0, letter(side), NULL, NULL, NULL, NULL, NULL, whole, NULL, NULL, NULL)
    else:
        for i in range(whole):
            order = orders + (count - 1 - i) * ORDER_BYTES
            size = np.int64(NULL) if by_position else load_i64(order, O_SIZE * 8)
            price = price_of(instrument, side, load_i64(order, O_KEY * 8))
            order_id = load_i64(order, O_ID * 8)
            emit(t, instrument, DELETE, ts, 0, letter(side), price, size, order_id, NULL, NULL, 1, NULL, NULL, NULL)
    set_orders(instrument, side, count - whole)


@outlined
def change_size(t, instrument, side, place_, size, ts, flags):
    """An order shrinks and keeps its priority (13.4)."""
    order = side_at(t, instrument, side) + place_ * ORDER_BYTES
    before, order_id = load_i64(order, O_SIZE * 8), load_i64(order, O_ID * 8)
    store_i64(order, O_SIZE * 8, size)
    price, position = price_of(instrument, side, load_i64(order, O_KEY * 8)), orders_of(instrument, side) - place_
    inserted, firm = load_i64(order, O_INSERT * 8), load_i64(order, O_FIRM * 8)
    flags |= implied_flag(order_id)
    emit(
        t, instrument, CHANGE, ts, flags, letter(side), price, size, order_id, firm, before, position, inserted,
        NULL, NULL,
    )  # fmt: skip


@outlined
def cross(t, instrument, ts, price, size, firm, conditions):
    """A cross: both sides are one firm's, the book does not move."""
    summarise(t, instrument, ts, NEITHER, price, size, NULL)
    trade(t, instrument, ts, NEITHER, price, size, firm, firm, conditions, 0, 1)
    figures(t, instrument, ts, price, price, LAST)
