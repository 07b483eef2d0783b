"""The order flow of the bulk market: when orders arrive, what they do, and when they expire.

Arrivals come in bursts, orders expire at the end of their lifetime, and now and then the market is silent.
"""

from __future__ import annotations

import numpy as np

from umdf.exchange.bulk.auction_kernel import publish_theoretical
from umdf.exchange.bulk.book_side_kernel import find_order, is_order_at, order_count, price_of, remove, side_address
from umdf.exchange.bulk.journal_kernel import append_heartbeats, emit
from umdf.exchange.bulk.matching_kernel import (
    add_order,
    bust_trade,
    draw_lifetime,
    emit_cross,
    is_bust_due,
    match_aggressor,
    next_implied_id,
    next_order_id,
    reduce_order,
    side_code,
)
from umdf.exchange.bulk.memory_layout_kernel import (
    BASE_INTERARRIVAL,
    C_CROSSED,
    C_LAST,
    CAPACITY,
    DELETE,
    DEPTHS,
    E_BOOK_SIDE,
    E_ID,
    E_KEY,
    FAR_COUNT,
    FAR_EXPIRIES,
    FINAL_CLOSING_CALL,
    FIRST,
    I_BUST_ID,
    I_CAPACITY,
    I_IMPLIED,
    I_LAST,
    I_LOT,
    I_REFERENCE,
    I_STATE,
    I_TICK,
    INSTRUMENT_BYTES,
    INSTRUMENTS,
    INTERARRIVALS,
    LAST,
    LAST_TS,
    MARGIN,
    MARKET_ORDER_KEY,
    MEAN_INTERARRIVAL,
    NEAR_COUNT,
    NEAR_EXPIRIES,
    NEXT_ARRIVAL,
    NULL,
    O_FIRM,
    O_ID,
    O_KEY,
    O_SIZE,
    OPEN,
    ORDER_BYTES,
    PAUSE,
    QUANTILES,
    REGIME_END,
    RESERVED,
    ROW_TARGET,
    ROWS,
    SCRATCH,
    SILENT_UNTIL,
    STOP,
    UNTIL,
    WEIGHTED_COUNT,
    WEIGHTED_INSTRUMENTS,
)
from umdf.exchange.bulk.order_expiry_kernel import next_expiry, pop_expiry, push_expiry
from umdf.exchange.bulk.random_kernel import random_bits, sample_quantile
from umdf.kernels import inlined, kernel, load_i32, load_i64, outlined, store_i64

# What an arrival does: upper bounds of a random number below 1024.
REDUCE_BELOW, REPLACE_BELOW, AGGRESS_BELOW, CROSS_BELOW = 40, 105, 150, 152
PUBLISH_BELOW, MARKET_ORDER_BELOW = 100, 140  # during an auction
FIRMS = 120
MILLISECOND = 1_000_000
NORMAL_NS, BURST_NS, SILENCE_NS = 2_000 * MILLISECOND, 120 * MILLISECOND, 1_200 * MILLISECOND
BURST_FACTOR = 90
RETRY_NS = 1_000 * MILLISECOND
ENTRY_OFFSET = 1024  # in the scratch memory, behind the refills


@inlined
def draw_firm(bits):
    return 3 + (bits % FIRMS) * 7


@inlined
def draw_size(t, instrument, bits):
    return load_i64(instrument, I_LOT * 8) * (1 + sample_quantile(t, DEPTHS, bits))


@inlined
def reference_key(instrument, side):
    """The key just outside of the reference price."""
    reference = load_i64(instrument, I_REFERENCE * 8)
    return reference - 1 if side == 0 else -(reference + 1)


@outlined
def passive_key(t, instrument, side, bits):
    """A key near the best of its side, never crossing, and within bounds around the reference price."""
    outside = reference_key(instrument, side)
    count, opposite_count = order_count(instrument, side), order_count(instrument, 1 - side)
    best = load_i64(side_address(t, instrument, side), (count - 1) * ORDER_BYTES + O_KEY * 8) if count > 0 else outside
    chance = bits & 127
    if chance < 18:
        key = best + 1
    elif chance < 50:
        key = best
    else:
        key = best - sample_quantile(t, DEPTHS, bits >> 7)
    bound = load_i64(instrument, I_REFERENCE * 8) // 8
    key = min(max(key, outside - bound), outside + bound)
    if opposite_count > 0:
        opposite_key = load_i64(side_address(t, instrument, 1 - side), (opposite_count - 1) * ORDER_BYTES + O_KEY * 8)
        key = min(key, -opposite_key - 1)
    return key


@outlined
def cancel_order(t, instrument, side, index, ts, flags):
    """Cancel an order."""
    order = side_address(t, instrument, side) + index * ORDER_BYTES
    price, size = price_of(instrument, side, load_i64(order, O_KEY * 8)), load_i64(order, O_SIZE * 8)
    order_id, position = load_i64(order, O_ID * 8), order_count(instrument, side) - index
    emit(
        t, instrument, DELETE, ts, flags, side_code(side), price, size, order_id, NULL, NULL, position, NULL, NULL, NULL
    )
    remove(t, instrument, side, index)


@inlined
def evict_if_full(t, instrument, side, ts, bits):
    """Cancel a random order of a full side."""
    count = order_count(instrument, side)
    if count == load_i64(instrument, I_CAPACITY * 8):
        cancel_order(t, instrument, side, bits % count, ts, LAST)


@outlined
def add_passive_order(t, instrument, instrument_index, side, ts):
    """Add an order that rests in the book; some are disclosed orders, some are implied."""
    bits = random_bits(t)
    evict_if_full(t, instrument, side, ts, bits >> 40)
    key = passive_key(t, instrument, side, bits)
    size, firm, reserve = draw_size(t, instrument, bits >> 20), draw_firm(bits >> 32), np.int64(0)
    chance = (bits >> 52) & 255
    if chance < 13 and load_i64(instrument, I_IMPLIED * 8) != 0:
        order_id, firm = next_implied_id(t), np.int64(NULL)
    else:
        order_id = next_order_id(t, bits >> 60)
        if chance > 250:
            reserve = 4 * size
    add_order(
        t,
        instrument,
        instrument_index,
        side,
        key,
        order_id,
        size,
        reserve,
        firm,
        ts,
        LAST,
        draw_lifetime(t, random_bits(t)),
    )


@inlined
def pick_near_top(t, instrument, side, bits):
    """The index of a random order of a side, more likely one near the top."""
    count = order_count(instrument, side)
    return max(count - 1 - sample_quantile(t, DEPTHS, bits), 0)


@outlined
def act_in_continuous_trading(t, instrument, instrument_index, ts):
    """Process an arrival while the instrument trades."""
    bits = random_bits(t)
    if is_bust_due(instrument, ts):
        bust_trade(t, instrument, ts)
    choice, side = bits & 1023, (bits >> 10) & 1
    count, opposite_count = order_count(instrument, side), order_count(instrument, 1 - side)
    lot = load_i64(instrument, I_LOT * 8)
    if choice < REDUCE_BELOW and count > 0:
        order_index = pick_near_top(t, instrument, side, bits >> 11)
        size = load_i64(side_address(t, instrument, side), order_index * ORDER_BYTES + O_SIZE * 8)
        if size > lot:
            reduction = lot * (1 + (bits >> 30) % (size // lot - 1)) if size // lot > 2 else lot
            reduce_order(t, instrument, side, order_index, size - reduction, ts, LAST)
            return
    elif choice < REPLACE_BELOW and count > 0:
        order_index = pick_near_top(t, instrument, side, bits >> 11)
        order = side_address(t, instrument, side) + order_index * ORDER_BYTES
        firm, size = load_i64(order, O_FIRM * 8), load_i64(order, O_SIZE * 8)
        if firm != NULL:
            cancel_order(t, instrument, side, order_index, ts, 0)
            key = passive_key(t, instrument, side, bits >> 30)
            order_id = next_order_id(t, bits >> 50)
            add_order(
                t,
                instrument,
                instrument_index,
                side,
                key,
                order_id,
                size,
                0,
                firm,
                ts,
                LAST,
                draw_lifetime(t, random_bits(t)),
            )
            return
    elif choice < AGGRESS_BELOW and opposite_count > 0:
        opposite_key = load_i64(side_address(t, instrument, 1 - side), (opposite_count - 1) * ORDER_BYTES + O_KEY * 8)
        evict_if_full(t, instrument, side, ts, bits >> 30)
        extra_ticks = sample_quantile(t, DEPTHS, bits >> 11) if bits >> 23 & 3 == 0 else np.int64(0)
        quantity = draw_size(t, instrument, bits >> 25) * (4 if bits >> 37 & 7 == 0 else 1)
        match_aggressor(
            t, instrument, instrument_index, side, -opposite_key + extra_ticks, quantity, draw_firm(bits >> 40), ts
        )
        return
    elif choice < CROSS_BELOW:
        price = load_i64(instrument, I_LAST * 8)
        if price == NULL:
            price = load_i64(instrument, I_REFERENCE * 8) * load_i64(instrument, I_TICK * 8)
        emit_cross(t, instrument, ts, price, 10 * lot, draw_firm(bits >> 40), C_CROSSED | C_LAST)
        return
    add_passive_order(t, instrument, instrument_index, side, ts)


@outlined
def act_in_auction(t, instrument, instrument_index, ts):
    """Process an arrival during an auction: prices may cross, and market orders have none (9.1)."""
    bits = random_bits(t)
    choice, side = bits & 1023, (bits >> 10) & 1
    if choice < PUBLISH_BELOW:
        publish_theoretical(t, instrument, ts)
        return
    evict_if_full(t, instrument, side, ts, bits >> 40)
    bound = load_i64(instrument, I_REFERENCE * 8) // 8
    key = reference_key(instrument, side) + 5 - min(sample_quantile(t, DEPTHS, bits >> 11), bound)
    if choice < MARKET_ORDER_BELOW:
        key = np.int64(MARKET_ORDER_KEY)
    size, firm = draw_size(t, instrument, bits >> 23), draw_firm(bits >> 35)
    lifetime = draw_lifetime(t, (bits >> 40) | (QUANTILES >> 1))  # long lifetimes only
    add_order(
        t, instrument, instrument_index, side, key, next_order_id(t, bits >> 60), size, 0, firm, ts, LAST, lifetime
    )


@outlined
def process_arrival(t, ts):
    bits = random_bits(t)
    instrument_index = np.int64(load_i32(load_i64(t, WEIGHTED_INSTRUMENTS * 8), (bits & (WEIGHTED_COUNT - 1)) * 4))
    instrument = load_i64(t, INSTRUMENTS * 8) + instrument_index * INSTRUMENT_BYTES
    state = load_i64(instrument, I_STATE * 8)
    if state == OPEN:
        act_in_continuous_trading(t, instrument, instrument_index, ts)
    elif state == RESERVED or state == FINAL_CLOSING_CALL:
        act_in_auction(t, instrument, instrument_index, ts)


@outlined
def expire_order(t, heap, count_offset, ts):
    """Cancel an order at the end of its lifetime, if it still exists and the state of its instrument allows it."""
    entry = load_i64(t, SCRATCH * 8) + ENTRY_OFFSET
    pop_expiry(t, heap, count_offset, entry)
    book_side, key, order_id = load_i64(entry, E_BOOK_SIDE), load_i64(entry, E_KEY), load_i64(entry, E_ID)
    instrument, side = load_i64(t, INSTRUMENTS * 8) + (book_side >> 1) * INSTRUMENT_BYTES, book_side & 1
    state = load_i64(instrument, I_STATE * 8)
    if state == PAUSE:  # orders stay, and cannot be cancelled (11.1)
        push_expiry(t, ts, ts + RETRY_NS, book_side, key, order_id)
    elif state == OPEN or state == RESERVED or state == FINAL_CLOSING_CALL:
        orders, count = side_address(t, instrument, side), order_count(instrument, side)
        index = find_order(orders, count, key, order_id)
        if is_order_at(orders, count, index, key, order_id):
            cancel_order(t, instrument, side, index, ts, LAST)


@outlined
def change_regime(t, now):
    """Draw the next regime (normal, burst or silence) and its length."""
    bits = random_bits(t)
    chance, base = bits & 127, load_i64(t, BASE_INTERARRIVAL * 8)
    if chance < 110:
        store_i64(t, MEAN_INTERARRIVAL * 8, base)
        store_i64(t, REGIME_END * 8, now + (bits >> 7) % NORMAL_NS)
    elif chance < 125:
        store_i64(t, MEAN_INTERARRIVAL * 8, max(base // BURST_FACTOR, 1))
        store_i64(t, REGIME_END * 8, now + BURST_NS // 2 + (bits >> 7) % BURST_NS)
    else:
        until = now + SILENCE_NS + (bits >> 7) % (2 * SILENCE_NS)
        store_i64(t, SILENT_UNTIL * 8, until)
        store_i64(t, REGIME_END * 8, until)
        store_i64(t, NEXT_ARRIVAL * 8, until)


@kernel
def run_order_flow(t):
    """Run the market until UNTIL, ROW_TARGET rows or a full journal; return the number of rows."""
    stop = min(load_i64(t, ROW_TARGET * 8), load_i64(t, CAPACITY * 8) - load_i64(t, MARGIN * 8))
    until = load_i64(t, UNTIL * 8)
    while load_i64(t, ROWS * 8) < stop:
        arrival = load_i64(t, NEXT_ARRIVAL * 8)
        near, far = next_expiry(t, NEAR_EXPIRIES, NEAR_COUNT), next_expiry(t, FAR_EXPIRIES, FAR_COUNT)
        expiry_ts = min(near, far)
        due_ts = max(min(expiry_ts, arrival), load_i64(t, SILENT_UNTIL * 8))
        if due_ts > until:
            break
        ts = max(due_ts, load_i64(t, LAST_TS * 8) + 300 + (due_ts & 511))
        append_heartbeats(t, ts)
        if expiry_ts <= arrival:
            if near <= far:
                expire_order(t, NEAR_EXPIRIES, NEAR_COUNT, ts)
            else:
                expire_order(t, FAR_EXPIRIES, FAR_COUNT, ts)
            continue
        process_arrival(t, ts)
        if arrival >= load_i64(t, REGIME_END * 8):
            change_regime(t, arrival)
        gap = sample_quantile(t, INTERARRIVALS, random_bits(t) >> 9) * load_i64(t, MEAN_INTERARRIVAL * 8) >> 20
        store_i64(t, NEXT_ARRIVAL * 8, max(arrival, load_i64(t, SILENT_UNTIL * 8)) + 1 + gap)
    return load_i64(t, ROWS * 8)


@kernel
def bust_all_pending(t):
    """Bust the pending trades of the instruments FIRST to STOP; return the first that did not fit, or STOP."""
    instrument_index = load_i64(t, FIRST * 8)
    while instrument_index < load_i64(t, STOP * 8):
        instrument = load_i64(t, INSTRUMENTS * 8) + instrument_index * INSTRUMENT_BYTES
        if load_i64(instrument, I_BUST_ID * 8) > 0:
            if load_i64(t, ROWS * 8) + load_i64(t, MARGIN * 8) > load_i64(t, CAPACITY * 8):
                break
            bust_trade(t, instrument, load_i64(t, LAST_TS * 8) + 1_000)
        instrument_index += 1
    return instrument_index
