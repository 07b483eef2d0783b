"""What generated code is made of: one call for each way a value can stand in the stream.

Each returns a state with it: ABSENT (it is NULL), PRESENT, or UNUSUAL: then the value means nothing, and the message is
the interpreter's. Generated code finds out at the end of an entry, as it does about bytes read behind the end of the
message; so the offset must never go back, or texts could outgrow the memory reserved for them. Written as calls and
not as text, because numba's own part of a compilation grows with the square of the generated function.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import inlined, load_u8, load_u64, store_u64
from umdf.wire.fast.decode.slow_path_kernel import is_utf8
from umdf.wire.fast.decode.stop_bit_kernel import (
    DATA_BITS,
    STOP_BITS,
    copy_bytes,
    copy_stop_bit_string,
    read_signed,
    read_unsigned,
    trailing_zeros,
    wrapping_sum,
)

ABSENT, PRESENT, UNUSUAL = 0, 1, 2


@inlined
def read_presence_map(b, p, needed):
    """A presence map, its first bit on top, and the offset behind it: 0 if it has more bytes or bits than needed."""
    c = np.int64(load_u8(b, p))
    bits, q = np.uint64(c & 127), p + 1
    while c < 128 and q < p + 9:
        c = np.int64(load_u8(b, q))
        bits = bits << np.uint64(7) | np.uint64(c & 127)
        q += 1
    bits <<= np.uint64(64 - 7 * (q - p))
    if c < 128 or (c == 128 and q > p + 1) or 7 * (q - p) >= needed + 7 or bits << np.uint64(needed) != 0:
        return bits, np.int64(0)
    return bits, q


@inlined
def unsigned_mandatory(b, p, high):
    c = np.int64(load_u8(b, p))
    if c > 127:
        return c & 127, p + 1, np.int64(PRESENT)
    x, q = read_unsigned(b, p)
    if q == 0 or x > high:
        return x, p, np.int64(UNUSUAL)
    return x, q, np.int64(PRESENT)


@inlined
def unsigned_optional(b, p, high):
    c = np.int64(load_u8(b, p))
    if c == 128:
        return np.int64(0), p + 1, np.int64(ABSENT)
    if c > 127:
        return (c & 127) - 1, p + 1, np.int64(PRESENT)
    x, q = read_unsigned(b, p)
    if q == 0 or x - 1 > high:
        return x, p, np.int64(UNUSUAL)
    return x - 1, q, np.int64(PRESENT)


@inlined
def signed_mandatory(b, p, low, high):
    c = np.int64(load_u8(b, p))
    if c > 127:
        x, q = (c & 63) - (c & 64), p + 1
    else:
        x, q = read_signed(b, p)
    if q == 0 or x < low or x > high:
        return x, p, np.int64(UNUSUAL)
    return x, q, np.int64(PRESENT)


@inlined
def signed_optional(b, p, low, high):
    c = np.int64(load_u8(b, p))
    if c == 128:
        return np.int64(0), p + 1, np.int64(ABSENT)
    if c > 127:
        x, q = (c & 63) - (c & 64), p + 1
    else:
        x, q = read_signed(b, p)
    x -= np.int64(x > 0)
    if q == 0 or x < low or x > high:
        return x, p, np.int64(UNUSUAL)
    return x, q, np.int64(PRESENT)


@inlined
def _add_delta(base, delta, p, q, low, high):
    x = wrapping_sum(base, delta)
    if q == 0 or base < low or x < low or x > high or ((base ^ x) & (delta ^ x)) < 0:
        return x, p, np.int64(UNUSUAL)
    return x, q, np.int64(PRESENT)


@inlined
def delta_mandatory(b, p, base, low, high):
    c = np.int64(load_u8(b, p))
    if c > 127:
        return _add_delta(base, (c & 63) - (c & 64), p, p + 1, low, high)
    delta, q = read_signed(b, p)
    return _add_delta(base, delta, p, q, low, high)


@inlined
def delta_optional(b, p, base, low, high):
    c = np.int64(load_u8(b, p))
    if c == 128:
        return base, p + 1, np.int64(ABSENT)
    if c > 127:
        delta, q = (c & 63) - (c & 64), p + 1
    else:
        delta, q = read_signed(b, p)
    return _add_delta(base, delta - np.int64(delta > 0), p, q, low, high)


@inlined
def ascii_mandatory(b, p, end, to):
    """A string into `to`: the offset behind it, its length, and its state. One that starts with zero is unusual."""
    w = load_u64(b, p)
    stops = w & STOP_BITS
    if (w & np.uint64(127)) == 0:
        return p, np.int64(0), np.int64(UNUSUAL)
    if stops != 0:
        store_u64(to, 0, w & DATA_BITS)
        n = (trailing_zeros(stops) >> 3) + 1
        return p + n, n, np.int64(PRESENT)
    n = copy_stop_bit_string(b, p, end, to) - p
    if p + n > end:
        return p, np.int64(0), np.int64(UNUSUAL)
    return p + n, n, np.int64(PRESENT)


@inlined
def ascii_optional(b, p, end, to):
    if load_u8(b, p) == 128:
        return p + 1, np.int64(0), np.int64(ABSENT)
    return ascii_mandatory(b, p, end, to)


@inlined
def vector_mandatory(b, p, end, to):
    n, q, state = unsigned_mandatory(b, p, np.int64(0xFFFFFFFF))
    if state != PRESENT or n > end - q:
        return q, np.int64(0), np.int64(UNUSUAL)
    copy_bytes(b + q, to, n)
    return q + n, n, np.int64(PRESENT)


@inlined
def vector_optional(b, p, end, to):
    n, q, state = unsigned_optional(b, p, np.int64(0xFFFFFFFF))
    if state == ABSENT:
        return q, np.int64(0), np.int64(ABSENT)
    if state != PRESENT or n > end - q:
        return q, np.int64(0), np.int64(UNUSUAL)
    copy_bytes(b + q, to, n)
    return q + n, n, np.int64(PRESENT)


@inlined
def unicode_mandatory(b, p, end, to):
    q, n, state = vector_mandatory(b, p, end, to)
    if state == PRESENT and not is_utf8(to, n):
        return q, n, np.int64(UNUSUAL)
    return q, n, state


@inlined
def unicode_optional(b, p, end, to):
    q, n, state = vector_optional(b, p, end, to)
    if state == PRESENT and not is_utf8(to, n):
        return q, n, np.int64(UNUSUAL)
    return q, n, state


@inlined
def repeat_text(to, first, at, length):
    """A previous text again: its first eight bytes are at hand."""
    store_u64(to, 0, first)
    if length > 8:
        copy_bytes(at, to, length)
