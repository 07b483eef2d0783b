"""Trades of the bulk market as records: trades, their execution summary, the legs of strategies, busts and crosses.

The statistics of the session follow from them: opening price, high, low, volume and VWAP.
"""

from __future__ import annotations

import numpy as np

from umdf.exchange.matching.journal_kernel import emit, publish_statistic, store_statistic
from umdf.exchange.matching.memory_layout_kernel import (
    ASK,
    BID,
    BUST,
    BUSTED,
    C_CROSSED,
    C_LAST,
    C_OPENING,
    DOWNTICK,
    EXECUTION,
    EXECUTION_SUMMARY,
    FIRST_IMPLIED_ID,
    HAS_OPENING_PRICE,
    HAS_TRADED,
    HIGH,
    I_BUST_BUYER,
    I_BUST_ID,
    I_BUST_PRICE,
    I_BUST_SELLER,
    I_BUST_SIZE,
    I_BUST_TS,
    I_HIGH,
    I_LAST,
    I_LOW,
    I_OPENED,
    I_PREVIOUS_CLOSE,
    I_QUANTITY,
    I_TRADE_ID,
    I_TRADES,
    I_TURNOVER,
    IMPLIED,
    LAST,
    LAST_PRICE,
    LOW,
    NEVER_LAST_PRICE,
    NO_SIDE,
    NULL,
    OPENING,
    S_EXECUTION,
    S_HIGH,
    S_LAST,
    S_LOW,
    S_OPENING,
    TRADE,
    UPTICK,
)
from umdf.kernels import inlined, load_i64, outlined, store_i64

VOLUME_UNIT = 100_000  # prices are in 1e-9, turnover and VWAP in 1e-4
BUST_EVERY = 2048  # trades, and where one is requested
BUST_REQUESTED = -1  # instead of a trade id: the next trade that can be busted will be
BUST_DELAY_NS = 500_000_000
NEVER_BUSTED = -1  # the random bits of a trade that the order flow does not bust


@inlined
def side_code(side):
    return BID if side == 0 else ASK


@inlined
def implied_flag(order_id):
    return IMPLIED if order_id >= FIRST_IMPLIED_ID else 0


@inlined
def emit_execution_summary(t, instrument, ts, side, price, size, cancelled):
    """Append the execution summary, which only Binary has."""
    emit(t, instrument, EXECUTION_SUMMARY, ts, 0, side, price, size, NULL, NULL, cancelled, NULL, ts, NULL, NULL)


@inlined
def opening_condition(instrument):
    """R on all trades of the event in which an instrument trades for the first time (10.1)."""
    return np.int64(C_OPENING if load_i64(instrument, I_OPENED * 8) & HAS_TRADED == 0 else 0)


@outlined
def emit_trade(t, instrument, ts, side, price, size, buyer, seller, conditions, flags, bits):
    """Append one trade and update the session's statistics, but the range of prices."""
    store_i64(instrument, I_OPENED * 8, load_i64(instrument, I_OPENED * 8) | HAS_TRADED)
    trade_id = load_i64(instrument, I_TRADE_ID * 8) + 10
    store_i64(instrument, I_TRADE_ID * 8, trade_id)
    quantity = load_i64(instrument, I_QUANTITY * 8) + size
    store_i64(instrument, I_QUANTITY * 8, quantity)
    store_i64(instrument, I_TURNOVER * 8, load_i64(instrument, I_TURNOVER * 8) + price // VOLUME_UNIT * size)
    store_i64(instrument, I_TRADES * 8, load_i64(instrument, I_TRADES * 8) + 1)
    if conditions & NEVER_LAST_PRICE == 0:
        before = load_i64(instrument, I_LAST * 8)
        if before == price:
            conditions |= C_LAST
        elif before != NULL:  # 274 is not sent on first trades and on those of equal price (10.1)
            flags |= UPTICK if price > before else DOWNTICK
        store_i64(instrument, I_LAST * 8, price)
        store_statistic(
            instrument, S_LAST, LAST_PRICE, ts, NO_SIDE, price, size, trade_id, buyer, seller, conditions, NULL
        )
        inside = load_i64(instrument, I_LOW * 8) < price < load_i64(instrument, I_HIGH * 8) and flags & IMPLIED == 0
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
def emit_trade_statistics(t, instrument, ts, first, low, high, flags):
    """Append opening price, low, high and execution statistics after trades: the first price, and the range."""
    opened = load_i64(instrument, I_OPENED * 8)
    if opened & HAS_OPENING_PRICE == 0:
        store_i64(instrument, I_OPENED * 8, opened | HAS_OPENING_PRICE)
        change = first - load_i64(instrument, I_PREVIOUS_CLOSE * 8)
        publish_statistic(t, instrument, S_OPENING, OPENING, ts, 0, NO_SIDE, first, NULL, NULL, 0, change)
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


@inlined
def last_or_closing_price(instrument):
    last = load_i64(instrument, I_LAST * 8)
    return last if last != NULL else load_i64(instrument, I_PREVIOUS_CLOSE * 8)


@outlined
def emit_cross(t, instrument, ts, price, size, buyer, seller):
    """Append a cross: the book does not change."""
    conditions = C_CROSSED | opening_condition(instrument)
    emit_execution_summary(t, instrument, ts, NO_SIDE, price, size, NULL)
    emit_trade(t, instrument, ts, NO_SIDE, price, size, buyer, seller, conditions, 0, 1)
    emit_trade_statistics(t, instrument, ts, price, price, price, LAST)
