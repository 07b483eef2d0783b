"""The order flow: when orders arrive, what they do, and when they expire.

Orders are priced around the fair price, which moves (`fair_price_kernel`). Arrivals come in bursts, orders expire at
the end of their lifetime, and now and then the market is silent.
"""

from __future__ import annotations

import numpy as np

from umdf.exchange.matching.auction_kernel import end_auction_event
from umdf.exchange.matching.book_side_kernel import find_order, is_order_at, order_count, side_address
from umdf.exchange.matching.fair_price_kernel import fair_ticks, signed_ticks, within_bounds
from umdf.exchange.matching.implied_orders_kernel import derive_queued
from umdf.exchange.matching.journal_kernel import append_heartbeats
from umdf.exchange.matching.matching_kernel import (
    REST_AT_LIMIT,
    add_order,
    cancel_order,
    draw_lifetime,
    match_aggressor,
    next_order_id,
    queue_strategies,
    reduce_order,
)
from umdf.exchange.matching.memory_layout_kernel import (
    AGGRESSOR_OFFSET,
    ALL_ARRIVALS,
    BASE_INTERARRIVAL,
    CAPACITY,
    DEPTHS,
    E_BOOK_SIDE,
    E_ID,
    E_KEY,
    ENTRY_OFFSET,
    FAR_COUNT,
    FAR_EXPIRIES,
    FINAL_CLOSING_CALL,
    FIRST,
    I_BUST_ID,
    I_CAPACITY,
    I_LOT,
    I_SKIPPED,
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
    O_DISPLAY,
    O_FIRM,
    O_KEY,
    O_SIZE,
    O_TERMS,
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
from umdf.exchange.matching.order_checks_kernel import is_synchronizing
from umdf.exchange.matching.order_expiry_kernel import next_expiry, pop_expiry, push_expiry
from umdf.exchange.matching.random_kernel import random_bits, sample_quantile
from umdf.exchange.matching.trade_kernel import bust_trade, emit_cross, is_bust_due
from umdf.kernels import inlined, kernel, load_i32, load_i64, outlined, store_i64

# What an arrival does: upper bounds of a random number below 1024.
REDUCE_BELOW, REPLACE_BELOW, AGGRESS_BELOW, CROSS_BELOW = 4, 69, 123, 125
MARKET_ORDER_BELOW = 40  # during an auction
FIRMS = 120
MILLISECOND = 1_000_000
NORMAL_NS, BURST_NS, SILENCE_NS = 2_000 * MILLISECOND, 120 * MILLISECOND, 1_200 * MILLISECOND
BURST_FACTOR = 90
RETRY_NS = 1_000 * MILLISECOND


@inlined
def draw_firm(bits):
    return 3 + (bits % FIRMS) * 7


@inlined
def draw_size(t, instrument, bits):
    return load_i64(instrument, I_LOT * 8) * (1 + sample_quantile(t, DEPTHS, bits))


@inlined
def best_key(t, instrument, side):
    """The key of the best order of a side that has one."""
    count = order_count(instrument, side)
    return load_i64(side_address(t, instrument, side), (count - 1) * ORDER_BYTES + O_KEY * 8)


@outlined
def passive_key(t, instrument, side, fair, bits):
    """A key near the best of its side, outside of the fair price, never crossing."""
    outside = signed_ticks(side, fair) - 1
    best = best_key(t, instrument, side) if order_count(instrument, side) > 0 else outside
    chance = bits & 127
    if chance < 18:
        key = best + 1 + max((outside - best) // 2, 0)
    elif chance < 50:
        key = best
    else:
        key = best - sample_quantile(t, DEPTHS, bits >> 7)
    key = within_bounds(instrument, side, min(key, outside))
    if order_count(instrument, 1 - side) > 0:
        key = min(key, -best_key(t, instrument, 1 - side) - 1)
    return key


@inlined
def is_of_flow(t, instrument, side, index):
    """Whether the order flow may change an order: not one that was entered from Python, and no implied one."""
    return load_i64(side_address(t, instrument, side), index * ORDER_BYTES + O_TERMS * 8) == 0


@outlined
def has_space(t, instrument, side, ts, bits, flags):
    """Whether a side has space for an order; of a full one a random order of the flow is cancelled."""
    count = order_count(instrument, side)
    if count < load_i64(instrument, I_CAPACITY * 8):
        return True
    for i in range(count):
        index = (bits + i) % count
        if is_of_flow(t, instrument, side, index):
            cancel_order(t, instrument, side, index, ts, flags)
            return True
    return False


@outlined
def add_passive_order(t, instrument, instrument_index, side, fair, ts):
    """Add an order that rests in the book; some are disclosed orders."""
    bits = random_bits(t)
    if not has_space(t, instrument, side, ts, bits >> 40, LAST):
        return
    key = passive_key(t, instrument, side, fair, bits)
    size, firm, reserve = 2 * draw_size(t, instrument, bits >> 20), draw_firm(bits >> 32), np.int64(0)
    order_id = next_order_id(t, bits >> 60)
    if (bits >> 52) & 255 > 250:
        reserve = 4 * size
    lifetime = draw_lifetime(t, random_bits(t))
    add_order(t, instrument, instrument_index, side, key, order_id, size, reserve, firm, ts, LAST, lifetime)


@inlined
def pick_near_top(t, instrument, side, bits):
    """The index of a random order of a side, more likely one near the top."""
    count = order_count(instrument, side)
    return max(count - 1 - sample_quantile(t, DEPTHS, bits), 0)


@outlined
def replace_order(t, instrument, instrument_index, side, order_index, fair, ts, bits):
    """Replace an order by one with another price, and so without its priority; False if it is not of the order flow."""
    order = side_address(t, instrument, side) + order_index * ORDER_BYTES
    firm, size = load_i64(order, O_FIRM * 8), load_i64(order, O_SIZE * 8)
    if not is_of_flow(t, instrument, side, order_index):
        return False
    cancel_order(t, instrument, side, order_index, ts, 0)
    key, order_id = passive_key(t, instrument, side, fair, bits), next_order_id(t, bits >> 20)
    lifetime = draw_lifetime(t, random_bits(t))
    add_order(t, instrument, instrument_index, side, key, order_id, size, 0, firm, ts, LAST, lifetime)
    return True


@outlined
def aggress(t, instrument, instrument_index, side, key, ts, bits):
    """Match an order of random size up to a key; nothing if no order of the opposite side is there."""
    key = within_bounds(instrument, side, key)
    if best_key(t, instrument, 1 - side) + key < 0:  # an order from outside may rest farther away than the flow goes
        return
    if not has_space(t, instrument, side, ts, bits >> 5, LAST):
        return
    aggressor = load_i64(t, SCRATCH * 8) + AGGRESSOR_OFFSET
    store_i64(aggressor, O_KEY * 8, key)
    store_i64(aggressor, O_SIZE * 8, draw_size(t, instrument, bits) * (4 if bits >> 12 & 7 == 0 else 1))
    store_i64(aggressor, O_FIRM * 8, draw_firm(bits >> 15))
    store_i64(aggressor, O_DISPLAY * 8, 0)
    store_i64(aggressor, O_TERMS * 8, 0)
    match_aggressor(t, instrument, instrument_index, side, aggressor, REST_AT_LIMIT, ts)


@outlined
def correct_mispriced_order(t, instrument, instrument_index, fair, ts, bits):
    """Trade with the best order of a side, or move it, if the fair price has passed it; False if there is none."""
    for side in range(2):
        count = order_count(instrument, side)
        if count > 0 and best_key(t, instrument, side) > signed_ticks(side, fair):
            if bits & 1 and replace_order(t, instrument, instrument_index, side, count - 1, fair, ts, bits >> 1):
                return True
            aggress(t, instrument, instrument_index, 1 - side, signed_ticks(1 - side, fair), ts, bits >> 1)
            return True
    return False


@outlined
def act_in_continuous_trading(t, instrument, instrument_index, ts):
    """Process an arrival while the instrument trades."""
    bits = random_bits(t)
    if is_bust_due(instrument, ts):
        bust_trade(t, instrument, ts)
    choice, side, fair = bits & 1023, (bits >> 10) & 1, fair_ticks(t, instrument, ts)
    count, opposite_count = order_count(instrument, side), order_count(instrument, 1 - side)
    lot = load_i64(instrument, I_LOT * 8)
    if bits >> 58 & 7 == 0 and correct_mispriced_order(t, instrument, instrument_index, fair, ts, bits >> 11):
        return
    if choice < REDUCE_BELOW and count > 0:
        order_index = pick_near_top(t, instrument, side, bits >> 11)
        size = load_i64(side_address(t, instrument, side), order_index * ORDER_BYTES + O_SIZE * 8)
        if size > lot and is_of_flow(t, instrument, side, order_index):
            reduction = lot * (1 + (bits >> 30) % (size // lot - 1)) if size // lot > 2 else lot
            reduce_order(t, instrument, side, order_index, size - reduction, ts, LAST)
            return
    elif choice < REPLACE_BELOW and count > 0:
        order_index = pick_near_top(t, instrument, side, bits >> 11)
        if replace_order(t, instrument, instrument_index, side, order_index, fair, ts, bits >> 30):
            return
    elif choice < AGGRESS_BELOW and opposite_count > 0:
        extra_ticks = sample_quantile(t, DEPTHS, bits >> 11) if bits >> 23 & 3 == 0 else np.int64(0)
        key = -best_key(t, instrument, 1 - side) + extra_ticks
        aggress(t, instrument, instrument_index, side, key, ts, bits >> 25)
        return
    elif choice < CROSS_BELOW:
        price = load_i64(instrument, I_TICK * 8) * within_spread(t, instrument, fair)
        emit_cross(t, instrument, ts, price, 10 * lot, draw_firm(bits >> 40), draw_firm(bits >> 40))
        return
    add_passive_order(t, instrument, instrument_index, side, fair, ts)


@inlined
def within_spread(t, instrument, ticks):
    if order_count(instrument, 0) > 0:
        ticks = max(ticks, best_key(t, instrument, 0))
    if order_count(instrument, 1) > 0:
        ticks = min(ticks, -best_key(t, instrument, 1))
    return ticks


@outlined
def act_in_auction(t, instrument, instrument_index, ts):
    """Process an arrival during an auction: prices may cross, and market orders have none (9.1)."""
    bits = random_bits(t)
    choice, side = bits & 1023, (bits >> 10) & 1
    if not has_space(t, instrument, side, ts, bits >> 40, 0):
        return
    key = signed_ticks(side, fair_ticks(t, instrument, ts)) + 4 - sample_quantile(t, DEPTHS, bits >> 11)
    key = np.int64(MARKET_ORDER_KEY) if choice < MARKET_ORDER_BELOW else within_bounds(instrument, side, key)
    size, firm = draw_size(t, instrument, bits >> 23), draw_firm(bits >> 35)
    lifetime = draw_lifetime(t, (bits >> 40) | (QUANTILES >> 1))  # long lifetimes only
    add_order(t, instrument, instrument_index, side, key, next_order_id(t, bits >> 60), size, 0, firm, ts, 0, lifetime)
    end_auction_event(t, instrument, ts)


@outlined
def process_arrival(t, ts):
    bits = random_bits(t)
    instrument_index = np.int64(load_i32(load_i64(t, WEIGHTED_INSTRUMENTS * 8), (bits & (WEIGHTED_COUNT - 1)) * 4))
    instrument = load_i64(t, INSTRUMENTS * 8) + instrument_index * INSTRUMENT_BYTES
    if bits >> 17 & (ALL_ARRIVALS - 1) < load_i64(instrument, I_SKIPPED * 8):
        return
    state = load_i64(instrument, I_STATE * 8)
    if state == OPEN:
        act_in_continuous_trading(t, instrument, instrument_index, ts)
        queue_strategies(t, instrument)
    elif (state == RESERVED or state == FINAL_CLOSING_CALL) and not is_synchronizing(instrument):
        act_in_auction(t, instrument, instrument_index, ts)


@outlined
def expire_order(t, heap, count_offset, ts):
    """Cancel an order at the end of its lifetime, if it still exists and the state of its instrument allows it."""
    entry = load_i64(t, SCRATCH * 8) + ENTRY_OFFSET
    pop_expiry(t, heap, count_offset, entry)
    book_side, key, order_id = load_i64(entry, E_BOOK_SIDE), load_i64(entry, E_KEY), load_i64(entry, E_ID)
    instrument, side = load_i64(t, INSTRUMENTS * 8) + (book_side >> 1) * INSTRUMENT_BYTES, book_side & 1
    state = load_i64(instrument, I_STATE * 8)
    if state == PAUSE or is_synchronizing(instrument):  # orders stay, and cannot be cancelled (11.1, 15.2)
        push_expiry(t, ts, ts + RETRY_NS, book_side, key, order_id)
    elif state == OPEN or state == RESERVED or state == FINAL_CLOSING_CALL:
        orders, count = side_address(t, instrument, side), order_count(instrument, side)
        index = find_order(orders, count, key, order_id)
        if is_order_at(orders, count, index, key, order_id):
            cancel_order(t, instrument, side, index, ts, LAST if state == OPEN else 0)
            queue_strategies(t, instrument)
            if state != OPEN:
                end_auction_event(t, instrument, ts)


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
    while derive_queued(t, load_i64(t, LAST_TS * 8)) == 0 and load_i64(t, ROWS * 8) < stop:
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
