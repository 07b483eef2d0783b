"""The fair price of an instrument: what its orders are priced around.

It is a random walk in time. Instruments can follow another one: the contracts of one asset move together, an option
moves with its underlying, and a spread, the difference of two contracts, does not move. Futures on an index follow the
index: it has a walk that all its stocks share, each beside its own, and is the sum of its stocks.
"""

from __future__ import annotations

import numpy as np

from umdf.exchange.matching.memory_layout_kernel import (
    BASKETS,
    I_BASKET,
    I_BASKET_COUNT,
    I_BETA,
    I_BOUND,
    I_DRIVER,
    I_MARKET,
    I_MARKET_BETA,
    I_REFERENCE,
    I_VOLATILITY,
    I_WALK,
    I_WALK_TS,
    INSTRUMENT_BYTES,
    INSTRUMENTS,
)
from umdf.exchange.matching.random_kernel import random_bits
from umdf.kernels import inlined, load_i64, outlined, store_i64

MIN_STEP_NS = 1_000_000
NOISE_MEAN, NOISE_DEVIATION = 8_190, 2_364.8  # of the sum of four random numbers of 12 bits


@inlined
def advance_walk(t, driver, ts):
    elapsed, walk = ts - load_i64(driver, I_WALK_TS * 8), load_i64(driver, I_WALK * 8)
    if elapsed < MIN_STEP_NS:
        return walk
    bits = random_bits(t)
    noise = (bits & 4095) + (bits >> 12 & 4095) + (bits >> 24 & 4095) + (bits >> 36 & 4095) - NOISE_MEAN
    scale = np.float64(load_i64(driver, I_VOLATILITY * 8)) * np.sqrt(np.float64(elapsed) * 1e-9) / NOISE_DEVIATION
    limit = load_i64(driver, I_BOUND * 8) * 3 // 4 << 16
    walk = min(max(walk + np.int64(scale * np.float64(noise)), -limit), limit)
    store_i64(driver, I_WALK * 8, walk)
    store_i64(driver, I_WALK_TS * 8, ts)
    return walk


@inlined
def total_walk(t, driver, ts):
    """How far the fair price of an instrument that follows no other is from its reference, in 2^-16 ticks. The stocks
    of an index are where their last arrivals have left them."""
    instruments, walk = load_i64(t, INSTRUMENTS * 8), advance_walk(t, driver, ts)
    market = load_i64(driver, I_MARKET * 8)
    if market >= 0:
        shared = advance_walk(t, instruments + market * INSTRUMENT_BYTES, ts)
        walk += shared * load_i64(driver, I_MARKET_BETA * 8) >> 32
    baskets, first = load_i64(t, BASKETS * 8), load_i64(driver, I_BASKET * 8)
    for entry in range(first, first + load_i64(driver, I_BASKET_COUNT * 8)):
        stock = instruments + load_i64(baskets, entry * 16) * INSTRUMENT_BYTES
        walk += load_i64(stock, I_WALK * 8) * load_i64(baskets, entry * 16 + 8) >> 16
    return walk


@outlined
def fair_ticks(t, instrument, ts):
    """The fair price now, in ticks, well within the prices that orders may have."""
    driver = load_i64(t, INSTRUMENTS * 8) + load_i64(instrument, I_DRIVER * 8) * INSTRUMENT_BYTES
    move = total_walk(t, driver, ts) * load_i64(instrument, I_BETA * 8) >> 32
    limit = load_i64(instrument, I_BOUND * 8) * 3 // 4
    return load_i64(instrument, I_REFERENCE * 8) + min(max(move, -limit), limit)


@inlined
def signed_ticks(side, ticks):
    """A price in ticks as a key of a side."""
    return ticks if side == 0 else -ticks


@inlined
def within_bounds(instrument, side, key):
    """A key within the prices that orders may have."""
    reference, bound = signed_ticks(side, load_i64(instrument, I_REFERENCE * 8)), load_i64(instrument, I_BOUND * 8)
    return min(max(key, reference - bound), reference + bound)
