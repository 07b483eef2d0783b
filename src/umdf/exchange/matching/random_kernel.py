"""Random numbers of the bulk market: a generator with its state in the table, and samples from quantile tables."""

from __future__ import annotations

import numpy as np

from umdf.exchange.matching.memory_layout_kernel import QUANTILES, RNG
from umdf.kernels import inlined, load_i64, load_u64, store_u64


@inlined
def random_bits(t):
    """63 random bits (xorshift64)."""
    x = load_u64(t, RNG * 8)
    x = x ^ (x << np.uint64(13))
    x = x ^ (x >> np.uint64(7))
    x = x ^ (x << np.uint64(17))
    store_u64(t, RNG * 8, x)
    return np.int64(x >> np.uint64(1))


@inlined
def sample_quantile(t, table, bits):
    """A random value of a quantile table, selected by random `bits`."""
    return load_i64(load_i64(t, table * 8), (bits & (QUANTILES - 1)) * 8)
