"""Whether an order may be entered: phase, size, price bands (10.9) and self-trade prevention. Checks change nothing."""

from __future__ import annotations

import numpy as np

from umdf.exchange.matching.book_side_kernel import order_count, price_of, side_address
from umdf.exchange.matching.journal_kernel import statistic_address
from umdf.exchange.matching.matching_kernel import owner_of
from umdf.exchange.matching.memory_layout_kernel import (
    BAND_LIMIT_TYPE,
    BAND_MIDPOINT,
    FINAL_CLOSING_CALL,
    I_CAPACITY,
    I_LAST,
    I_LOT,
    I_PREVIOUS_CLOSE,
    I_STATE,
    I_SYNCHRONISM,
    I_TICK,
    MARKET_ORDER_KEY,
    MAX_ORDER_LOTS,
    NULL,
    O_KEY,
    O_RESERVE,
    O_SIZE,
    OPEN,
    ORDER_BYTES,
    PAUSE,
    RESERVED,
    S_AUCTION_BAND,
    S_HARD_LIMITS,
    S_QUANTITY_BAND,
    S_REJECTION_BAND,
    S_STATIC_LIMITS,
    S_THEORETICAL,
    V_AUX,
    V_CODE,
    V_OTHER,
    V_PRESENT,
    V_PRICE,
)
from umdf.exchange.matching.request_layout_kernel import (
    DISPLAY_INVALID,
    LIMIT,
    MARKET,
    MARKET_TO_LIMIT,
    MOC,
    NO_COUNTERPARTY,
    NOT_ALLOWED,
    OUTSIDE_HARD_LIMITS,
    OUTSIDE_REJECTION_BAND,
    OUTSIDE_STATIC_LIMITS,
    PRICE_INVALID,
    PRICE_MISSING,
    PRICE_NOT_ALLOWED,
    PRICE_OFF_TICK,
    SELF_TRADE,
    SIDE_FULL,
    SIZE_INVALID,
    SIZE_OFF_LOT,
    SIZE_OUTSIDE_BAND,
    TYPE_NOT_ALLOWED,
)
from umdf.kernels import inlined, load_i64, outlined

STARTS_AUCTION = 1
PERCENT, PERCENT_UNIT, WHOLE = 2, 100_000, 1_000_000  # 1306=2; a percent is 1e9 in a band, 1e4 here
OF_THEORETICAL_PRICE = 2  # 37008


@inlined
def is_auction(state):
    return state == RESERVED or state == FINAL_CLOSING_CALL


@inlined
def may_cancel(state):
    """Orders may be cancelled in a pause too (certification B2.5, B4.2)."""
    return state == OPEN or is_auction(state) or state == PAUSE


@inlined
def is_synchronizing(instrument):
    """Whether the simultaneous auction of an instrument is about to end, so that nothing may change it (15.2)."""
    return load_i64(instrument, I_SYNCHRONISM * 8) != 0


@inlined
def is_set(instrument, statistic):
    return load_i64(statistic_address(instrument, statistic), V_PRESENT * 8) != 0


@outlined
def band_reference(instrument, code):
    """The price that a band in percent is around: the theoretical price if it says so, else the last, else the
    previous closing price."""
    if (code >> BAND_MIDPOINT & 0xFF) - 1 == OF_THEORETICAL_PRICE and is_set(instrument, S_THEORETICAL):
        return load_i64(statistic_address(instrument, S_THEORETICAL), V_PRICE * 8)
    last = load_i64(instrument, I_LAST * 8)
    return last if last != NULL else load_i64(instrument, I_PREVIOUS_CLOSE * 8)


@outlined
def is_within_band(instrument, statistic, price):
    """Whether a price is within a band, if there is one. Without a positive reference there is none in percent."""
    value = statistic_address(instrument, statistic)
    if load_i64(value, V_PRESENT * 8) == 0:
        return True
    low, high, code = load_i64(value, V_PRICE * 8), load_i64(value, V_AUX * 8), load_i64(value, V_CODE * 8)
    if code >> BAND_LIMIT_TYPE & 0xFF == PERCENT:
        reference = band_reference(instrument, code)
        if reference <= 0:
            return True
        low = low if low == NULL else reference + percent_of(reference, low)
        high = high if high == NULL else reference + percent_of(reference, high)
    return (low == NULL or price >= low) and (high == NULL or price <= high)


@inlined
def percent_of(reference, percent):
    share = percent // PERCENT_UNIT
    return reference // WHOLE * share + reference % WHOLE * share // WHOLE


@outlined
def check_price(instrument, price):
    """0, or why no order may have this price."""
    tick = load_i64(instrument, I_TICK * 8)
    if price == NULL:
        return PRICE_MISSING
    if price % tick != 0:
        return PRICE_OFF_TICK
    if abs(price // tick) >= MARKET_ORDER_KEY // 2:
        return PRICE_INVALID
    if not is_within_band(instrument, S_HARD_LIMITS, price):
        return OUTSIDE_HARD_LIMITS
    if not is_within_band(instrument, S_STATIC_LIMITS, price):
        return OUTSIDE_STATIC_LIMITS
    return 0 if is_within_band(instrument, S_REJECTION_BAND, price) else OUTSIDE_REJECTION_BAND


@outlined
def check_size(instrument, size, display):
    """0, or why no order may have this size, or display this much of it (0: all)."""
    lot = load_i64(instrument, I_LOT * 8)
    if size <= 0 or size > lot * MAX_ORDER_LOTS:
        return SIZE_INVALID
    if size % lot != 0:
        return SIZE_OFF_LOT
    value = statistic_address(instrument, S_QUANTITY_BAND)
    max_size = load_i64(value, V_OTHER * 8)
    if load_i64(value, V_PRESENT * 8) != 0 and max_size != NULL and size > max_size:
        return SIZE_OUTSIDE_BAND
    return 0 if display == 0 or (0 < display < size and display % lot == 0) else DISPLAY_INVALID


@outlined
def check_type(state, order_type, price, display):
    """0, or why an order of this type cannot be entered in this state."""
    if state != OPEN and not is_auction(state):
        return NOT_ALLOWED
    if order_type < LIMIT or order_type > MOC:
        return TYPE_NOT_ALLOWED
    immediate = order_type == MARKET or order_type == MARKET_TO_LIMIT
    if (immediate and state != OPEN) or (not immediate and order_type != LIMIT and order_type != MOC and state == OPEN):
        return TYPE_NOT_ALLOWED
    if order_type == LIMIT:
        return PRICE_MISSING if price == NULL else 0
    if price != NULL:
        return PRICE_NOT_ALLOWED
    return 0 if display == 0 else DISPLAY_INVALID


@inlined
def waits(state, order_type):
    """Whether an order waits for the closing call (11.2)."""
    return order_type == MOC and state != FINAL_CLOSING_CALL


@outlined
def crosses(t, instrument, side, key):
    """Whether an order would trade with the best one of the opposite side."""
    count = order_count(instrument, 1 - side)
    if count == 0:
        return False
    best = side_address(t, instrument, 1 - side) + (count - 1) * ORDER_BYTES
    return load_i64(best, O_KEY * 8) + key >= 0


@outlined
def check_matching(t, instrument, side, key, size, owner):
    """0, why an order cannot meet the opposite side, or STARTS_AUCTION: it would trade outside of the auction band.

    Self-trade prevention: in continuous trading an order is refused if the first that it would trade with is of the
    same owner, and in an auction, where any two can trade, if its price crosses one of the same owner.
    """
    opposite, count = side_address(t, instrument, 1 - side), order_count(instrument, 1 - side)
    is_open, starts_auction, left, i = load_i64(instrument, I_STATE * 8) == OPEN, False, size, count - 1
    while i >= 0 and left > 0 and is_open:
        order = opposite + i * ORDER_BYTES
        if load_i64(order, O_KEY * 8) + key < 0 or (owner != 0 and owner_of(order) == owner):
            break
        price = price_of(instrument, 1 - side, load_i64(order, O_KEY * 8))
        starts_auction = starts_auction or not is_within_band(instrument, S_AUCTION_BAND, price)
        left -= load_i64(order, O_SIZE * 8) + load_i64(order, O_RESERVE * 8)
        i -= 1
    if owner != 0:
        i = count - 1
        while i >= 0 and load_i64(opposite, i * ORDER_BYTES + O_KEY * 8) + key >= 0:
            if owner_of(opposite + i * ORDER_BYTES) == owner:
                return SELF_TRADE
            if is_open and not starts_auction:
                break
            i -= 1
    return STARTS_AUCTION if starts_auction else 0


@outlined
def check_entry(t, instrument, side, order_type, price, size, display, owner):
    """0, why an order cannot be entered, or STARTS_AUCTION."""
    state = load_i64(instrument, I_STATE * 8)
    refusal = check_type(state, order_type, price, display)
    if refusal == 0:
        refusal = check_size(instrument, size, display)
    if refusal == 0 and order_type == LIMIT:
        refusal = check_price(instrument, price)
    if refusal != 0 or waits(state, order_type):
        return refusal
    key = key_of(instrument, side, price)
    if order_type != MARKET and order_count(instrument, side) == load_i64(instrument, I_CAPACITY * 8):
        return SIDE_FULL
    if state == OPEN and order_type != LIMIT and not crosses(t, instrument, side, key):
        return NO_COUNTERPARTY
    return check_matching(t, instrument, side, key, size, owner)


@inlined
def key_of(instrument, side, price):
    """The key of a price, of no price too."""
    if price == NULL:
        return np.int64(MARKET_ORDER_KEY)
    ticks = price // load_i64(instrument, I_TICK * 8)
    return ticks if side == 0 else -ticks
