"""The order flow of the bulk market: who comes when, and does what.

Arrivals come in bursts, orders end when their lifetime is over, and in between the market is silent now and then.
"""

from __future__ import annotations

import numpy as np

from umdf.exchange.bulk_auction_kernel import show
from umdf.exchange.bulk_deaths_kernel import first, pop, push
from umdf.exchange.bulk_emit_kernel import beat, emit
from umdf.exchange.bulk_match_kernel import (
    aggress,
    bust,
    bust_is_due,
    change_size,
    cross,
    letter,
    lifetime_of,
    next_id,
    next_implied_id,
    place,
)
from umdf.exchange.bulk_places_kernel import (
    BASE_GAP,
    C_CROSSED,
    C_LAST,
    CAPACITY,
    D_ID,
    D_KEY,
    D_PLACE,
    DELETE,
    DEPTHS,
    FAR,
    FAR_ROWS,
    FINAL_CLOSING_CALL,
    FIRST,
    GAPS,
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
    LAST,
    LAST_TS,
    MARGIN,
    MEAN_GAP,
    NEAR,
    NEAR_ROWS,
    NEXT_ARRIVAL,
    NULL,
    O_FIRM,
    O_ID,
    O_KEY,
    O_SIZE,
    OPEN,
    ORDER_BYTES,
    PAUSE,
    PICK_COUNT,
    PICKS,
    PRICELESS,
    QUANTILES,
    QUOTA,
    REGIME_END,
    RESERVED,
    ROWS,
    SCRATCH,
    SILENT_UNTIL,
    STOP,
    UNTIL,
)
from umdf.exchange.bulk_random_kernel import draw, quantile
from umdf.exchange.bulk_side_kernel import find, is_order, orders_of, price_of, remove, side_at
from umdf.kernels import inlined, kernel, load_i32, load_i64, outlined, store_i64

# What an arrival does, of 1024.
SHRINKS, REPLACES, AGGRESSES, CROSSES = 40, 105, 150, 152
SHOWS, PRICELESS_ORDER = 100, 140  # while an auction gathers orders
FIRMS = 120
MILLISECOND = 1_000_000
NORMAL_NS, BURST_NS, SILENCE_NS = 2_000 * MILLISECOND, 120 * MILLISECOND, 1_200 * MILLISECOND
BURST_FACTOR = 90
RETRY_NS = 1_000 * MILLISECOND
LINE_AT = 1024  # in the scratch, behind the refills


@inlined
def firm_of(bits):
    return 3 + (bits % FIRMS) * 7


@inlined
def size_of(t, instrument, bits):
    return load_i64(instrument, I_LOT * 8) * (1 + quantile(t, DEPTHS, bits))


@inlined
def own_reference(instrument, side):
    """The key just outside of the reference price."""
    reference = load_i64(instrument, I_REFERENCE * 8)
    return reference - 1 if side == 0 else -(reference + 1)


@outlined
def passive_key(t, instrument, side, bits):
    """Near the best of its side, never crossing, and in bounds around the reference price."""
    outside = own_reference(instrument, side)
    count, others = orders_of(instrument, side), orders_of(instrument, 1 - side)
    best = load_i64(side_at(t, instrument, side), (count - 1) * ORDER_BYTES + O_KEY * 8) if count > 0 else outside
    chance = bits & 127
    if chance < 18:
        key = best + 1
    elif chance < 50:
        key = best
    else:
        key = best - quantile(t, DEPTHS, bits >> 7)
    bound = load_i64(instrument, I_REFERENCE * 8) // 8
    key = min(max(key, outside - bound), outside + bound)
    if others > 0:
        facing = load_i64(side_at(t, instrument, 1 - side), (others - 1) * ORDER_BYTES + O_KEY * 8)
        key = min(key, -facing - 1)
    return key


@outlined
def delete(t, instrument, side, place_, ts, flags):
    """An order is cancelled."""
    order = side_at(t, instrument, side) + place_ * ORDER_BYTES
    price, size = price_of(instrument, side, load_i64(order, O_KEY * 8)), load_i64(order, O_SIZE * 8)
    order_id, position = load_i64(order, O_ID * 8), orders_of(instrument, side) - place_
    emit(t, instrument, DELETE, ts, flags, letter(side), price, size, order_id, NULL, NULL, position, NULL, NULL, NULL)
    remove(t, instrument, side, place_)


@inlined
def make_room(t, instrument, side, ts, bits):
    """A side that is full loses some order first."""
    count = orders_of(instrument, side)
    if count == load_i64(instrument, I_CAPACITY * 8):
        delete(t, instrument, side, bits % count, ts, LAST)


@outlined
def rest(t, instrument, i, side, ts):
    """A new order in the book; some are disclosed orders, some are implied."""
    bits = draw(t)
    make_room(t, instrument, side, ts, bits >> 40)
    key = passive_key(t, instrument, side, bits)
    size, firm, reserve = size_of(t, instrument, bits >> 20), firm_of(bits >> 32), np.int64(0)
    chance = (bits >> 52) & 255
    if chance < 13 and load_i64(instrument, I_IMPLIED * 8) != 0:
        order_id, firm = next_implied_id(t), np.int64(NULL)
    else:
        order_id = next_id(t, bits >> 60)
        if chance > 250:
            reserve = 4 * size
    place(t, instrument, i, side, key, order_id, size, reserve, firm, ts, LAST, lifetime_of(t, draw(t)))


@inlined
def near_top(t, instrument, side, bits):
    """Some order of a side, more likely a good one."""
    count = orders_of(instrument, side)
    return max(count - 1 - quantile(t, DEPTHS, bits), 0)


@outlined
def act(t, instrument, i, ts):
    """What an arrival does while the instrument trades."""
    bits = draw(t)
    if bust_is_due(instrument, ts):
        bust(t, instrument, ts)
    choice, side = bits & 1023, (bits >> 10) & 1
    count, others = orders_of(instrument, side), orders_of(instrument, 1 - side)
    lot = load_i64(instrument, I_LOT * 8)
    if choice < SHRINKS and count > 0:
        chosen = near_top(t, instrument, side, bits >> 11)
        size = load_i64(side_at(t, instrument, side), chosen * ORDER_BYTES + O_SIZE * 8)
        if size > lot:
            less = lot * (1 + (bits >> 30) % (size // lot - 1)) if size // lot > 2 else lot
            change_size(t, instrument, side, chosen, size - less, ts, LAST)
            return
    elif choice < REPLACES and count > 0:
        chosen = near_top(t, instrument, side, bits >> 11)
        order = side_at(t, instrument, side) + chosen * ORDER_BYTES
        firm, size = load_i64(order, O_FIRM * 8), load_i64(order, O_SIZE * 8)
        if firm != NULL:
            delete(t, instrument, side, chosen, ts, 0)
            key = passive_key(t, instrument, side, bits >> 30)
            order_id = next_id(t, bits >> 50)
            place(t, instrument, i, side, key, order_id, size, 0, firm, ts, LAST, lifetime_of(t, draw(t)))
            return
    elif choice < AGGRESSES and others > 0:
        facing = load_i64(side_at(t, instrument, 1 - side), (others - 1) * ORDER_BYTES + O_KEY * 8)
        make_room(t, instrument, side, ts, bits >> 30)
        deeper = quantile(t, DEPTHS, bits >> 11) if bits >> 23 & 3 == 0 else np.int64(0)
        wanted = size_of(t, instrument, bits >> 25) * (4 if bits >> 37 & 7 == 0 else 1)
        aggress(t, instrument, i, side, -facing + deeper, wanted, firm_of(bits >> 40), ts)
        return
    elif choice < CROSSES:
        price = load_i64(instrument, I_LAST * 8)
        if price == NULL:
            price = load_i64(instrument, I_REFERENCE * 8) * load_i64(instrument, I_TICK * 8)
        cross(t, instrument, ts, price, 10 * lot, firm_of(bits >> 40), C_CROSSED | C_LAST)
        return
    rest(t, instrument, i, side, ts)


@outlined
def gather(t, instrument, i, ts):
    """What an arrival does while an auction gathers orders: prices may cross, some have none (9.1)."""
    bits = draw(t)
    choice, side = bits & 1023, (bits >> 10) & 1
    if choice < SHOWS:
        show(t, instrument, ts)
        return
    make_room(t, instrument, side, ts, bits >> 40)
    bound = load_i64(instrument, I_REFERENCE * 8) // 8
    key = own_reference(instrument, side) + 5 - min(quantile(t, DEPTHS, bits >> 11), bound)
    if choice < PRICELESS_ORDER:
        key = np.int64(PRICELESS)
    size, firm = size_of(t, instrument, bits >> 23), firm_of(bits >> 35)
    lifetime = lifetime_of(t, (bits >> 40) | (QUANTILES >> 1))  # patient ones
    place(t, instrument, i, side, key, next_id(t, bits >> 60), size, 0, firm, ts, LAST, lifetime)


@outlined
def arrive(t, ts):
    bits = draw(t)
    i = np.int64(load_i32(load_i64(t, PICKS * 8), (bits & (PICK_COUNT - 1)) * 4))
    instrument = load_i64(t, INSTRUMENTS * 8) + i * INSTRUMENT_BYTES
    state = load_i64(instrument, I_STATE * 8)
    if state == OPEN:
        act(t, instrument, i, ts)
    elif state == RESERVED or state == FINAL_CLOSING_CALL:
        gather(t, instrument, i, ts)


@outlined
def end(t, heap, rows_at, ts):
    """The lifetime of an order is over: it is cancelled, if it is still there and its instrument allows it."""
    line = load_i64(t, SCRATCH * 8) + LINE_AT
    pop(t, heap, rows_at, line)
    where, key, order_id = load_i64(line, D_PLACE), load_i64(line, D_KEY), load_i64(line, D_ID)
    instrument, side = load_i64(t, INSTRUMENTS * 8) + (where >> 1) * INSTRUMENT_BYTES, where & 1
    state = load_i64(instrument, I_STATE * 8)
    if state == PAUSE:  # orders stay, nobody can cancel (11.1)
        push(t, ts, ts + RETRY_NS, where, key, order_id)
    elif state == OPEN or state == RESERVED or state == FINAL_CLOSING_CALL:
        orders, count = side_at(t, instrument, side), orders_of(instrument, side)
        place_ = find(orders, count, key, order_id)
        if is_order(orders, count, place_, key, order_id):
            delete(t, instrument, side, place_, ts, LAST)


@outlined
def change_regime(t, now):
    """Normal, burst or silence, and for how long."""
    bits = draw(t)
    chance, base = bits & 127, load_i64(t, BASE_GAP * 8)
    if chance < 110:
        store_i64(t, MEAN_GAP * 8, base)
        store_i64(t, REGIME_END * 8, now + (bits >> 7) % NORMAL_NS)
    elif chance < 125:
        store_i64(t, MEAN_GAP * 8, max(base // BURST_FACTOR, 1))
        store_i64(t, REGIME_END * 8, now + BURST_NS // 2 + (bits >> 7) % BURST_NS)
    else:
        until = now + SILENCE_NS + (bits >> 7) % (2 * SILENCE_NS)
        store_i64(t, SILENT_UNTIL * 8, until)
        store_i64(t, REGIME_END * 8, until)
        store_i64(t, NEXT_ARRIVAL * 8, until)


@kernel
def flow(t):
    """Let the market go on until UNTIL, until QUOTA rows are there or the room ends; the rows."""
    stop = min(load_i64(t, QUOTA * 8), load_i64(t, CAPACITY * 8) - load_i64(t, MARGIN * 8))
    until = load_i64(t, UNTIL * 8)
    while load_i64(t, ROWS * 8) < stop:
        arrival = load_i64(t, NEXT_ARRIVAL * 8)
        near, far = first(t, NEAR, NEAR_ROWS), first(t, FAR, FAR_ROWS)
        due = min(near, far)
        happens = max(min(due, arrival), load_i64(t, SILENT_UNTIL * 8))
        if happens > until:
            break
        ts = max(happens, load_i64(t, LAST_TS * 8) + 300 + (happens & 511))
        beat(t, ts)
        if due <= arrival:
            if near <= far:
                end(t, NEAR, NEAR_ROWS, ts)
            else:
                end(t, FAR, FAR_ROWS, ts)
            continue
        arrive(t, ts)
        if arrival >= load_i64(t, REGIME_END * 8):
            change_regime(t, arrival)
        gap = quantile(t, GAPS, draw(t) >> 9) * load_i64(t, MEAN_GAP * 8) >> 20
        store_i64(t, NEXT_ARRIVAL * 8, max(arrival, load_i64(t, SILENT_UNTIL * 8)) + 1 + gap)
    return load_i64(t, ROWS * 8)


@kernel
def bust_all(t):
    """Undo now what was going to be undone, of the instruments FIRST to STOP; the first without room."""
    i = load_i64(t, FIRST * 8)
    while i < load_i64(t, STOP * 8):
        instrument = load_i64(t, INSTRUMENTS * 8) + i * INSTRUMENT_BYTES
        if load_i64(instrument, I_BUST_ID * 8) > 0:
            if load_i64(t, ROWS * 8) + load_i64(t, MARGIN * 8) > load_i64(t, CAPACITY * 8):
                break
            bust(t, instrument, load_i64(t, LAST_TS * 8) + 1_000)
        i += 1
    return i
