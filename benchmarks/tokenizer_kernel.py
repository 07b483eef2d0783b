"""The bare stop-bit tokenizer: what merely walking through FAST bytes costs. It knows no template, checks nothing and
writes nothing; the ratio of a decoder to it is what decoding costs on top."""

from __future__ import annotations

import numpy as np

from umdf.kernels import kernel, load_u8


@kernel
def tokenize(buffer, size):
    """Read the groups of seven bits of everything up to a stop bit; returns the number of items and their sum in a way
    that keeps the compiler from leaving anything out."""
    p, items, mixed = np.int64(0), np.int64(0), np.uint64(0)
    while p < size:
        c = np.int64(load_u8(buffer, p))
        p += 1
        value = np.uint64(c & 127)
        while c < 128:
            c = np.int64(load_u8(buffer, p))
            p += 1
            value = value << np.uint64(7) | np.uint64(c & 127)
        mixed ^= value
        items += 1
    return items + np.int64(mixed & np.uint64(1))
