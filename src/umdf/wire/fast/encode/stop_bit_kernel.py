"""How single values and presence maps are written: canonical, so never longer than they must be (FAST 1.1, 10.5, 10.6).

Up to seven bytes behind a value are written too; no column is read outside its values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from umdf.kernels import (
    inlined,
    load_u8,
    load_u32,
    load_u64,
    outlined,
    store_u8,
    store_u32,
    store_u64,
    swap_u64,
)
from umdf.wire.fast.encode import tables_kernel as e
from umdf.wire.fast.encode.tables_kernel import put, word


def _leading_zeros() -> Any:
    @intrinsic
    def count(typingctx: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

        return types.int64(types.uint64), codegen

    return count


leading_zeros = _leading_zeros()


@inlined
def _put_groups(p, value, groups):
    """The lowest groups of seven bits, most significant first, at most eight."""
    v = np.uint64(value)
    v = (v & np.uint64(0x00FFFFFFF0000000)) << np.uint64(4) | v & np.uint64(0x000000000FFFFFFF)
    v = (v & np.uint64(0x0FFFC0000FFFC000)) << np.uint64(2) | v & np.uint64(0x00003FFF00003FFF)
    v = (v & np.uint64(0x3F803F803F803F80)) << np.uint64(1) | v & np.uint64(0x007F007F007F007F)
    store_u64(p, 0, swap_u64((v | np.uint64(128)) << np.uint64(64 - 8 * groups)))
    return p + groups


@outlined
def _put_long_integer(p, value, groups, signed):
    """Nine or ten groups."""
    for group in range(groups):
        shift = 7 * (groups - 1 - group)
        seven = value >> shift if signed != 0 else np.int64(np.uint64(value) >> np.uint64(shift))
        store_u8(p, group, np.uint8(seven & 127))
    store_u8(p, groups - 1, load_u8(p, groups - 1) | np.uint8(128))
    return p + groups


@inlined
def put_unsigned(p, value):
    """The value as the bits of a uint64."""
    if value >= 0 and value < 128:
        store_u8(p, 0, np.uint8(value | 128))
        return p + 1
    groups = (70 - leading_zeros(np.uint64(value))) // 7
    if groups > 8:
        return _put_long_integer(p, value, groups, 0)
    return _put_groups(p, value, groups)


@inlined
def put_signed(p, value):
    if value >= -64 and value < 64:
        store_u8(p, 0, np.uint8(value & 127 | 128))
        return p + 1
    # One bit more than the number needs: the sign (10.6.1.1).
    groups = (64 - leading_zeros(np.uint64(value ^ value >> 63))) // 7 + 1
    if groups > 8:
        return _put_long_integer(p, value, groups, 1)
    return _put_groups(p, value, groups)


@inlined
def _copy(source, to, length):
    """Exactly these bytes are read; returns all of them, one or the other, as a word."""
    seen = np.uint64(0)
    if length >= 8:
        for at in range(0, length - 8, 8):
            eight = load_u64(source, at)
            store_u64(to, at, eight)
            seen |= eight
        eight = load_u64(source, length - 8)
        store_u64(to, length - 8, eight)
        return seen | eight
    if length >= 4:
        first, last = load_u32(source, 0), load_u32(source, length - 4)
        store_u32(to, 0, first)
        store_u32(to, length - 4, last)
        return np.uint64(first | last)
    for at in range(length):
        single = load_u8(source, at)
        store_u8(to, at, single)
        seen |= np.uint64(single)
    return seen


@outlined
def put_text(p, i, source, length):
    """A string or byte vector that is there; 0 if it is to be ASCII and is not."""
    optional = word(i, e.I_OPTIONAL)
    if word(i, e.I_TYPE) != e.ASCII:
        p = put_unsigned(p, length + optional)
        _copy(source, p, length)
        return p + length
    # An empty string, and one that starts with a zero, have zeros in front (10.6.3).
    if length == 0 or load_u8(source, 0) == 0:
        for _ in range(1 + optional):
            store_u8(p, 0, np.uint8(0))
            p += 1
    if (_copy(source, p, length) & e.STOP_BITS) != 0:
        return np.int64(0)
    p += length
    store_u8(p, -1, load_u8(p, -1) | np.uint8(128))
    return p


@outlined
def is_same_text(one, one_length, other, other_length):
    if one_length != other_length:
        return False
    at = 0
    while at < one_length and load_u8(one, at) == load_u8(other, at):
        at += 1
    return at == one_length


@outlined
def _move(source, to, length):
    """To an address that may overlap, either way; up to seven bytes behind are written too."""
    if to < source:
        for at in range(0, length, 8):
            store_u64(to, at, load_u64(source, at))
    else:
        for at in range(length - 1, -1, -1):
            store_u8(to, at, load_u8(source, at))


@outlined
def flush_presence_map(scratch, flushed, bits, count):
    """Move whole groups of seven bits to the scratch, behind those that are there; returns how many that makes, and
    the bits that are left (the lowest of `bits`; what stands above them is of no account)."""
    while count >= 7:
        count -= 7
        store_u8(scratch, flushed, np.uint8((bits >> np.uint64(count)) & np.uint64(127)))
        flushed += 1
    return flushed, count


@inlined
def close_presence_map(p, opened, at, room, bits, count, flushed, scratch):
    """Write the map of the segment from `at` to `p`, for which `room` bytes were left; returns the segment's end."""
    if flushed != 0:
        return _close_wide_presence_map(p, opened, at, room, bits, count, flushed, scratch)
    # A map is there even if no bit of it is used: that of a mantissa is not where the exponent is NULL.
    size = max((count + 6) // 7, 1)
    bits <<= np.uint64(7 * size - count)
    # As short as the last set bit allows (10.5).
    while size > 1 and (bits & np.uint64(127)) == 0:
        bits >>= np.uint64(7)
        size -= 1
    if size != room:
        _move(at + room, at + size, p - at - room)
        put(opened, e.I_LOW, size)
        p += size - room
    if size <= 8:
        # What a store of eight bytes writes behind the map is the segment's, and is put back.
        behind = load_u64(at, size)
        _put_groups(at, np.int64(bits), size)
        store_u64(at, size, behind)
    else:
        _put_long_integer(at, np.int64(bits), size, 0)
    return p


@outlined
def _close_wide_presence_map(p, opened, at, room, bits, count, flushed, scratch):
    if count > 0:
        flushed, count = flush_presence_map(scratch, flushed, bits << np.uint64(-count % 7), count + -count % 7)
    while flushed > 1 and load_u8(scratch, flushed - 1) == 0:
        flushed -= 1
    _move(at + room, at + flushed, p - at - room)
    put(opened, e.I_LOW, flushed)
    _copy(scratch, at, flushed)
    store_u8(at, flushed - 1, load_u8(at, flushed - 1) | np.uint8(128))
    return p + flushed - room
