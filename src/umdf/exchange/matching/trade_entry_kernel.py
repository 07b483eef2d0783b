"""Trades from Python: crosses, trades on behalf, and amended trades."""

from __future__ import annotations

import numpy as np

from umdf.exchange.matching.book_side_kernel import order_count, side_address
from umdf.exchange.matching.memory_layout_kernel import (
    I_STATE,
    I_TICK,
    I_TRADE_ID,
    LAST,
    LAST_TS,
    NO_SIDE,
    O_KEY,
    OPEN,
    ORDER_BYTES,
    UNKNOWN,
)
from umdf.exchange.matching.order_checks_kernel import check_price, check_size
from umdf.exchange.matching.order_entry_kernel import instrument_address
from umdf.exchange.matching.request_layout_kernel import NOT_ALLOWED, OUTSIDE_SPREAD, PRICE_OFF_TICK, SIZE_INVALID
from umdf.exchange.matching.trade_kernel import (
    NEVER_BUSTED,
    emit_cross,
    emit_trade,
    emit_trade_statistics,
    opening_condition,
)
from umdf.kernels import kernel, load_i64, outlined


@outlined
def is_within_spread(t, instrument, ticks):
    for side in range(2):
        count, key = order_count(instrument, side), ticks if side == 0 else -ticks
        if count > 0 and load_i64(side_address(t, instrument, side), (count - 1) * ORDER_BYTES + O_KEY * 8) > key:
            return False
    return True


@kernel
def cross(t, index, price, size, buyer, seller, ts):
    """Trade between two parties that have agreed (277=X); the id of the trade, or why it is refused."""
    instrument = instrument_address(t, index)
    if load_i64(instrument, I_STATE * 8) != OPEN:
        return np.int64(NOT_ALLOWED)
    refusal = np.int64(check_size(instrument, size, 0))
    if refusal == 0:
        refusal = np.int64(check_price(instrument, price))
    if refusal == 0 and not is_within_spread(t, instrument, price // load_i64(instrument, I_TICK * 8)):
        refusal = np.int64(OUTSIDE_SPREAD)
    if refusal < 0:
        return refusal
    emit_cross(t, instrument, max(ts, load_i64(t, LAST_TS * 8)), price, size, buyer, seller)
    return load_i64(instrument, I_TRADE_ID * 8)


@kernel
def enter_trade(t, index, price, size, buyer, seller, conditions, ts):
    """A trade that is entered by the marketplace, as its conditions say; its id, or why it is refused."""
    instrument, ts = instrument_address(t, index), max(ts, load_i64(t, LAST_TS * 8))
    if load_i64(instrument, I_STATE * 8) == UNKNOWN:
        return np.int64(NOT_ALLOWED)
    if size <= 0:
        return np.int64(SIZE_INVALID)
    if price % load_i64(instrument, I_TICK * 8) != 0:
        return np.int64(PRICE_OFF_TICK)
    conditions |= opening_condition(instrument)
    emit_trade(t, instrument, ts, NO_SIDE, price, size, buyer, seller, conditions, 0, NEVER_BUSTED)
    emit_trade_statistics(t, instrument, ts, price, price, price, LAST)
    return load_i64(instrument, I_TRADE_ID * 8)


@kernel
def append_amended_trade(t, index, price, size, buyer, seller, conditions, ts):
    """A trade instead of a busted one, at the time of that one; statistics are up to the caller. Return its id."""
    instrument = instrument_address(t, index)
    emit_trade(t, instrument, ts, NO_SIDE, price, size, buyer, seller, conditions, 0, NEVER_BUSTED)
    return load_i64(instrument, I_TRADE_ID * 8)
