"""How kernels read stop-bit items where all is as usual: up to nine bytes, not overlong. What is not usual gives a
next offset of 0 and is read again by `slow_path_kernel`, which knows every rule.

All of them may read up to SLACK bytes behind a message, never further: an integer stops after nine bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from umdf.kernels import inlined, load_u8, load_u64, store_u64

STOP_BITS = np.uint64(0x8080808080808080)
DATA_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)


@inlined
def wrapping_sum(a, b):
    """a + b of int64s. numba's own sum lets LLVM take for granted that it does not overflow, and drop a later check."""
    return np.int64(np.uint64(a) + np.uint64(b))


def _trailing_zeros() -> Any:
    @intrinsic
    def count(typingctx: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

        return types.int64(types.uint64), codegen

    return count


trailing_zeros = _trailing_zeros()  # of a word that is not zero


@inlined
def read_unsigned(b, p):
    """An unsigned integer and the offset behind it; 0 if it is overlong or longer than nine bytes."""
    c = np.int64(load_u8(b, p))
    v, q = c & 127, p + 1
    if c < 128:
        if c == 0:
            return v, np.int64(0)
        c = np.int64(load_u8(b, q))
        v = v << 7 | c & 127
        q += 1
        # Without a leading zero it grows by seven bits a byte, so this ends.
        while c < 128 and v < 1 << 56:
            c = np.int64(load_u8(b, q))
            v = v << 7 | c & 127
            q += 1
        if c < 128:
            return v, np.int64(0)
    return v, q


@inlined
def read_signed(b, p):
    """A signed integer and the offset behind it; 0 if it is overlong or longer than nine bytes."""
    c = np.int64(load_u8(b, p))
    v, q = (c << 57) >> 57, p + 1
    if c < 128:
        c = np.int64(load_u8(b, q))
        v = v << 7 | c & 127
        q += 1
        if v >= -64 and v < 64:
            return v, np.int64(0)
        while c < 128 and v >= -(1 << 55) and v < 1 << 55:
            c = np.int64(load_u8(b, q))
            v = v << 7 | c & 127
            q += 1
        if c < 128:
            return v, np.int64(0)
    return v, q


@inlined
def copy_bytes(source, to, count):
    """Eight at a time: up to seven bytes more are read and written."""
    at = np.int64(0)
    while at < count:
        store_u64(to, at, load_u64(source, at))
        at += 8


@inlined
def copy_stop_bit_string(b, p, end, to):
    """Copy a string without its stop bit; returns the offset behind it, or one behind `end` if it has no stop bit."""
    q = p
    while q < end:
        w = load_u64(b, q)
        store_u64(to, q - p, w & DATA_BITS)
        stops = w & STOP_BITS
        if stops != 0:
            return q + (trailing_zeros(stops) >> 3) + 1
        q += 8
    return end + 1
