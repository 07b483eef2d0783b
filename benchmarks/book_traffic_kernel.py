"""A realistic stream of book events, generated in bulk: every change and every delete is of a live order.

Skew, lifetimes and distances from the best price are like those of a busy channel. Random numbers are from
splitmix64, so a seed always gives the same stream.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import (
    inlined,
    kernel,
    load_i32,
    load_i64,
    load_u64,
    store_i32,
    store_i64,
    store_u8,
    store_u64,
)

# Entries of the table of arguments: counts, the generator's own memory, the columns of the family mbo.
EVENTS, INSTRUMENTS, MAX_LIVE_ORDERS, STATE, SHARES, LIVE_COUNTS, LIVE_ORDERS, MIDDLE, NEXT_ID, RPT_SEQ = range(10)
ACTION, SIDE, PRICE, SIZE, ORDER_ID, PREV_SIZE, INSTRUMENT, RPT, FLAGS, TS_INSERT = range(10, 20)
ARGUMENT_COUNT = 20
LIVE_ORDER_BYTES = 32  # an order: id, price, size, side
MIN_LIVE_ORDERS = 60  # of an instrument before orders are deleted
TICK = 10_000_000  # 0.01
LAST = 128
A, B, C, M, N, T = 65, 66, 67, 77, 78, 84
NULL = -(1 << 63)


@inlined
def _random(t):
    """The next 53 random bits."""
    x = load_u64(t, 8 * STATE) + np.uint64(0x9E3779B97F4A7C15)
    store_u64(t, 8 * STATE, x)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64((x ^ (x >> np.uint64(31))) >> np.uint64(11))


@inlined
def _random_share(t):
    return _random(t) / 9007199254740992.0


@inlined
def _instrument(t):
    """By the cumulative shares, in 53 bits."""
    target, low, high = _random(t), np.int64(0), load_i64(t, 8 * INSTRUMENTS) - 1
    while low < high:
        middle = (low + high) >> 1
        if load_i64(load_i64(t, 8 * SHARES), 8 * middle) < target:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def generate_events(t):
    """Fill the columns."""
    max_orders, live_orders = load_i64(t, 8 * MAX_LIVE_ORDERS), load_i64(t, 8 * LIVE_ORDERS)
    for i in range(load_i64(t, 8 * EVENTS)):
        instrument = _instrument(t)
        live_count = np.int64(load_i32(load_i64(t, 8 * LIVE_COUNTS), 4 * instrument))
        orders = live_orders + LIVE_ORDER_BYTES * max_orders * instrument
        chance = _random_share(t) * (0.41 if live_count < MIN_LIVE_ORDERS else 1.0)
        action, side, price, size, order_id, prev_size = (
            N,
            N,
            np.int64(-(1 << 63)),
            np.int64(-(1 << 63)),
            np.int64(0),
            -1,
        )
        if chance < 0.415 and live_count < max_orders:
            away = np.int64(-np.log(1.0 - _random_share(t)) * 6) if _random_share(t) < 0.9 else _random(t) % 400
            bid = _random(t) & 1
            action, side = A, B if bid else A
            price = load_i64(load_i64(t, 8 * MIDDLE), 8 * instrument) + TICK * (1 + away) * (-1 if bid else 1)
            size = 100 * (1 + np.int64(-np.log(1.0 - _random_share(t)) * 5))
            order_id = load_i64(load_i64(t, 8 * NEXT_ID), 8 * instrument)
            store_i64(load_i64(t, 8 * NEXT_ID), 8 * instrument, order_id + 1 + _random(t) % 3)
            o = orders + LIVE_ORDER_BYTES * live_count
            store_i64(o, 0, order_id)
            store_i64(o, 8, price)
            store_i64(o, 16, size)
            store_i64(o, 24, side)
            store_i32(load_i64(t, 8 * LIVE_COUNTS), 4 * instrument, np.int32(live_count + 1))
        elif chance < 0.85:
            recent = live_count - 1 - _random(t) % min(live_count, 32)
            o = orders + LIVE_ORDER_BYTES * (recent if _random_share(t) < 0.7 else _random(t) % live_count)
            order_id, price, size, side = load_i64(o, 0), load_i64(o, 8), load_i64(o, 16), load_i64(o, 24)
            if chance < 0.45:
                action, prev_size, size = M, size, 100 * (1 + _random(t) % 10)
                store_i64(o, 16, size)
            else:
                action, last = C, orders + LIVE_ORDER_BYTES * (live_count - 1)
                for offset in range(0, LIVE_ORDER_BYTES, 8):
                    store_i64(o, offset, load_i64(last, offset))
                store_i32(load_i64(t, 8 * LIVE_COUNTS), 4 * instrument, np.int32(live_count - 1))
        elif chance < 0.92:
            action = T
        rpt = load_i64(load_i64(t, 8 * RPT_SEQ), 8 * instrument) + 1
        store_i64(load_i64(t, 8 * RPT_SEQ), 8 * instrument, rpt)
        store_u8(load_i64(t, 8 * ACTION), i, np.uint8(action))
        store_u8(load_i64(t, 8 * SIDE), i, np.uint8(side))
        store_i64(load_i64(t, 8 * PRICE), 8 * i, price)
        store_i64(load_i64(t, 8 * SIZE), 8 * i, size)
        store_i64(load_i64(t, 8 * ORDER_ID), 8 * i, order_id)
        store_i64(load_i64(t, 8 * PREV_SIZE), 8 * i, prev_size)
        store_i64(load_i64(t, 8 * INSTRUMENT), 8 * i, 100_000_000 + 7919 * instrument)
        store_i64(load_i64(t, 8 * RPT), 8 * i, rpt)
        store_i32(load_i64(t, 8 * FLAGS), 4 * i, np.int32(LAST if _random_share(t) < 0.7 else 0))
        store_i64(load_i64(t, 8 * TS_INSERT), 8 * i, 1_763_000_000_000_000_000 + 1000 * i)
