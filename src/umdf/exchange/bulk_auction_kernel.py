"""Auctions of the bulk market: what one would do now (TOP, TOQ, imbalance), and the uncrossing."""

from __future__ import annotations

import numpy as np

from umdf.exchange.bulk_emit_kernel import emit, publish, value_at
from umdf.exchange.bulk_match_kernel import change_size, figures, leave_top, letter, summarise, trade
from umdf.exchange.bulk_places_kernel import (
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
    NEITHER,
    NULL,
    O_FIRM,
    O_ID,
    O_KEY,
    O_SIZE,
    ORDER_BYTES,
    PRICELESS,
    ROWS,
    S_IMBALANCE,
    S_THEORETICAL,
    STOP,
    THEORETICAL,
    V_PRESENT,
    V_PRICE,
    V_SIZE,
)
from umdf.exchange.bulk_random_kernel import draw
from umdf.exchange.bulk_side_kernel import orders_of, set_orders, side_at
from umdf.kernels import inlined, kernel, load_i64, outlined, store_i64

NO_TICKS = np.int64(NULL)
AUCTION_STEP_NS = 20_000
MORE_BUYERS, MORE_SELLERS = 1 << 8, 1 << 9


@inlined
def key_at(orders, place):
    return load_i64(orders, place * ORDER_BYTES + O_KEY * 8)


@inlined
def size_at(orders, place):
    return load_i64(orders, place * ORDER_BYTES + O_SIZE * 8)


@inlined
def first_priced(orders, place):
    """The best key with a price from `place` down; NO_TICKS if there is none."""
    while place >= 0 and key_at(orders, place) == PRICELESS:
        place -= 1
    return key_at(orders, place) if place >= 0 else NO_TICKS


@outlined
def theorise(t, instrument):
    """The most that can be matched, at which price, and what is left over there (positive: buyers)."""
    bids, asks = side_at(t, instrument, 0), side_at(t, instrument, 1)
    b, a = orders_of(instrument, 0) - 1, orders_of(instrument, 1) - 1
    bid_left = size_at(bids, b) if b >= 0 else np.int64(0)
    ask_left = size_at(asks, a) if a >= 0 else np.int64(0)
    volume, bid_key, ask_key = np.int64(0), NO_TICKS, NO_TICKS
    while b >= 0 and a >= 0 and key_at(bids, b) + key_at(asks, a) >= 0:
        bid_key, ask_key = key_at(bids, b), key_at(asks, a)
        size = min(bid_left, ask_left)
        volume, bid_left, ask_left = volume + size, bid_left - size, ask_left - size
        if bid_left == 0:
            b -= 1
            bid_left = size_at(bids, b) if b >= 0 else np.int64(0)
        if ask_left == 0:
            a -= 1
            ask_left = size_at(asks, a) if a >= 0 else np.int64(0)
    store_i64(t, A_VOLUME * 8, volume)
    store_i64(t, A_IMBALANCE * 8, 0)
    if volume == 0:
        return
    highest = bid_key if bid_key != PRICELESS else NO_TICKS
    lowest = -ask_key if ask_key != PRICELESS else NO_TICKS
    if highest != NO_TICKS and lowest != NO_TICKS:
        ticks = (highest + lowest) // 2
    elif highest != NO_TICKS:
        ticks = highest
    elif lowest != NO_TICKS:
        ticks = lowest
    else:
        ticks = load_i64(instrument, I_REFERENCE * 8)
    # Nobody with a better price than that of the auction may be left.
    waiting = first_priced(bids, b)
    if waiting != NO_TICKS:
        ticks = max(ticks, waiting)
    waiting = first_priced(asks, a)
    if waiting != NO_TICKS:
        ticks = min(ticks, -waiting)
    left = bid_left - ask_left
    for place in range(b - 1, -1, -1):
        if key_at(bids, place) < ticks:
            break
        left += size_at(bids, place)
    for place in range(a - 1, -1, -1):
        if key_at(asks, place) < -ticks:
            break
        left -= size_at(asks, place)
    if b >= 0 and key_at(bids, b) < ticks:
        left -= bid_left
    if a >= 0 and key_at(asks, a) < -ticks:
        left += ask_left
    store_i64(t, A_TICKS * 8, ticks)
    store_i64(t, A_IMBALANCE * 8, left)


@outlined
def show(t, instrument, ts):
    """Publish theoretical price and quantity and the imbalance, where they have changed."""
    theorise(t, instrument)
    volume, left = load_i64(t, A_VOLUME * 8), load_i64(t, A_IMBALANCE * 8)
    value = value_at(instrument, S_THEORETICAL)
    price = load_i64(t, A_TICKS * 8) * load_i64(instrument, I_TICK * 8)
    is_shown = load_i64(value, V_PRESENT * 8) != 0
    if volume == 0:
        if is_shown:
            withdraw(t, instrument, ts)
        return
    if is_shown and load_i64(value, V_PRICE * 8) == price and load_i64(value, V_SIZE * 8) == volume:
        return
    publish(t, instrument, S_THEORETICAL, THEORETICAL, ts, 0, NEITHER, price, volume, NULL, 5, NULL)
    side = BID if left > 0 else ASK if left < 0 else NEITHER
    code = MORE_BUYERS if left > 0 else MORE_SELLERS if left < 0 else 0
    publish(t, instrument, S_IMBALANCE, IMBALANCE, ts, LAST, side, NULL, abs(left), NULL, code, NULL)


@outlined
def withdraw(t, instrument, ts):
    """Delete theoretical price and imbalance by message (legacy 14.8)."""
    emit(t, instrument, THEORETICAL, ts, DELETED, NEITHER, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 5, NULL)
    emit(t, instrument, IMBALANCE, ts, DELETED | LAST, NEITHER, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL)
    forget(instrument)


@inlined
def forget(instrument):
    store_i64(value_at(instrument, S_THEORETICAL), V_PRESENT * 8, 0)
    store_i64(value_at(instrument, S_IMBALANCE), V_PRESENT * 8, 0)


@outlined
def uncross(t, instrument, ts, conditions):
    """Match everything that can be at one price; then priceless orders that are left go."""
    forget(instrument)  # by the change of phase or state (10.7)
    theorise(t, instrument)
    volume = load_i64(t, A_VOLUME * 8)
    if volume > 0:
        price = load_i64(t, A_TICKS * 8) * load_i64(instrument, I_TICK * 8)
        summarise(t, instrument, ts, NEITHER, price, volume, NULL)
        bids, asks = side_at(t, instrument, 0), side_at(t, instrument, 1)
        top_b, top_a = orders_of(instrument, 0) - 1, orders_of(instrument, 1) - 1
        b, a, bid_left, ask_left, left = top_b, top_a, size_at(bids, top_b), size_at(asks, top_a), volume
        while left > 0:
            size = min(bid_left, ask_left, left)
            left, bid_left, ask_left = left - size, bid_left - size, ask_left - size
            buyer = load_i64(bids, b * ORDER_BYTES + O_FIRM * 8)
            seller = load_i64(asks, a * ORDER_BYTES + O_FIRM * 8)
            last = C_LAST if left == 0 else 0
            trade(t, instrument, ts, NEITHER, price, size, buyer, seller, conditions | last, 0, 1)
            if bid_left == 0:
                b -= 1
                bid_left = size_at(bids, b) if b >= 0 else np.int64(0)
            if ask_left == 0:
                a -= 1
                ask_left = size_at(asks, a) if a >= 0 else np.int64(0)
        leave_top(t, instrument, 0, top_b - b, ts)
        leave_top(t, instrument, 1, top_a - a, ts)
        if b >= 0 and bid_left < size_at(bids, b):
            change_size(t, instrument, 0, b, bid_left, ts, 0)
        if a >= 0 and ask_left < size_at(asks, a):
            change_size(t, instrument, 1, a, ask_left, ts, 0)
        figures(t, instrument, ts, price, price, LAST)
    drop_priceless(t, instrument, 0, ts)
    drop_priceless(t, instrument, 1, ts)


@outlined
def drop_priceless(t, instrument, side, ts):
    orders = side_at(t, instrument, side)
    while True:
        count = orders_of(instrument, side)
        if count == 0 or key_at(orders, count - 1) != PRICELESS:
            break
        order = orders + (count - 1) * ORDER_BYTES
        size, order_id = load_i64(order, O_SIZE * 8), load_i64(order, O_ID * 8)
        emit(t, instrument, DELETE, ts, LAST, letter(side), NULL, size, order_id, NULL, NULL, 1, NULL, NULL, NULL)
        set_orders(instrument, side, count - 1)


@inlined
def is_meant(t, instrument):
    """Whether an instrument is of GROUP (-1: any) and in the state that CONDITIONS has in its high half."""
    group = load_i64(t, GROUP * 8)
    mine = group == -1 or load_i64(instrument, I_GROUP * 8) == group
    return mine and load_i64(instrument, I_STATE * 8) == load_i64(t, CONDITIONS * 8) >> 32


@kernel
def uncross_all(t):
    """Uncross the instruments FIRST to STOP that are meant; the first one for which there was no room."""
    conditions = load_i64(t, CONDITIONS * 8) & 0xFFFFFFFF
    i = load_i64(t, FIRST * 8)
    while i < load_i64(t, STOP * 8):
        instrument = load_i64(t, INSTRUMENTS * 8) + i * INSTRUMENT_BYTES
        if is_meant(t, instrument):
            if load_i64(t, ROWS * 8) + load_i64(t, MARGIN * 8) > load_i64(t, CAPACITY * 8):
                break
            uncross(t, instrument, load_i64(t, LAST_TS * 8) + 1 + draw(t) % AUCTION_STEP_NS, conditions)
        i += 1
    return i


@kernel
def withdraw_all(t):
    """Delete what is shown of the auctions of the instruments FIRST to STOP that are meant; the first without room."""
    i = load_i64(t, FIRST * 8)
    while i < load_i64(t, STOP * 8):
        instrument = load_i64(t, INSTRUMENTS * 8) + i * INSTRUMENT_BYTES
        if is_meant(t, instrument) and load_i64(value_at(instrument, S_THEORETICAL), V_PRESENT * 8) != 0:
            if load_i64(t, ROWS * 8) + load_i64(t, MARGIN * 8) > load_i64(t, CAPACITY * 8):
                break
            withdraw(t, instrument, load_i64(t, LAST_TS * 8) + 1_000)
        i += 1
    return i
