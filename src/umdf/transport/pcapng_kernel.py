"""Reads the blocks of a buffer of a pcapng file. Its invariant and its table are those of `capture_kernel`."""

from __future__ import annotations

import numpy as np

from ..kernels import inlined, kernel, load_i64, load_u32, store_i64
from .capture_kernel import (
    BUFFER,
    BYTE_ORDER_UNKNOWN,
    CAPACITY,
    COUNT,
    FILLED,
    FULL,
    INTERFACE_COUNT,
    INTERFACES,
    LENGTH_DIFFERS,
    LENGTH_SHORT,
    LENGTH_TOO_LARGE,
    LENGTH_UNALIGNED,
    MAX_BLOCK_BYTES,
    NEED_MORE,
    NEEDED,
    OUTCOME_COUNTS,
    PARSE,
    POSITION,
    READ_BYTES,
    RECORDS,
    STOP,
    STOPPED,
    SWAPPED,
    VERSION_UNKNOWN,
    append_packet,
    get,
    increment,
    put,
    record_unknown_link,
)
from .frame_kernel import MALFORMED, UNKNOWN_LINK, u8, u16, u32

MOST_INTERFACES = 4096
NO_LINK = -1  # of an interface whose description is damaged
INTERFACE_BYTES = 48  # link type, snap length, MULTIPLIER, DIVISOR, BITS, offset in ns
MULTIPLIER, DIVISOR, BITS = 16, 24, 32  # ticks to ns: the first that is not 0 counts

SECTION, INTERFACE, OLD_PACKET, SIMPLE, ENHANCED = 0x0A0D0D0A, 1, 2, 3, 6


@inlined
def describe_interface(state, buffer, block, end, swapped):
    """Append an Interface Description Block to the section's table."""
    known = get(state, INTERFACE_COUNT)
    if known == MOST_INTERFACES:
        return
    put(state, INTERFACE_COUNT, known + 1)
    resolution = np.int64(6)  # microseconds, unless the option if_tsresol is present
    offset_s = np.int64(0)
    at = block + 16
    while end - at >= 4:
        code = u16(buffer, at, swapped)
        size = u16(buffer, at + 2, swapped)
        at += 4
        if code == 0 or end - at < size:
            break
        if code == 9 and size >= 1:
            resolution = u8(buffer, at)
        elif code == 14 and size >= 8:
            first, second = u32(buffer, at, swapped), u32(buffer, at + 4, swapped)
            offset_s = first << 32 | second if swapped != 0 else second << 32 | first
        at += size + 3 & ~3
    multiplier, divisor, bits = np.int64(0), np.int64(0), np.int64(0)
    exponent = resolution & 127
    if resolution & 128:
        if exponent == 0:
            multiplier = np.int64(1_000_000_000)
        bits = exponent
    elif exponent <= 9:
        multiplier = np.int64(1)
        for _ in range(9 - exponent):
            multiplier *= 10
    else:
        divisor = np.int64(1)
        for _ in range(min(exponent - 9, 18)):  # 18: the limit of int64; 10^-28 s does not occur
            divisor *= 10
    row = get(state, INTERFACES) + known * INTERFACE_BYTES
    store_i64(row, 0, u16(buffer, block + 8, swapped))
    store_i64(row, 8, u32(buffer, block + 12, swapped))
    store_i64(row, MULTIPLIER, multiplier)
    store_i64(row, DIVISOR, divisor)
    store_i64(row, BITS, bits)
    store_i64(row, 40, offset_s * 1_000_000_000)


@inlined
def nanoseconds(row, high, low):
    """UNIX nanoseconds of a 64-bit tick count of an interface. Invalid values wrap."""
    ticks = np.uint64(high) << np.uint64(32) | np.uint64(low)
    multiplier, divisor, bits = load_i64(row, MULTIPLIER), load_i64(row, DIVISOR), load_i64(row, BITS)
    if multiplier != 0:
        value = np.int64(ticks) * multiplier
    elif divisor != 0:
        value = np.int64(ticks // np.uint64(divisor))
    else:
        seconds, fraction = np.uint64(0), ticks
        if bits < 64:
            seconds = ticks >> np.uint64(bits)
            fraction = ticks - (seconds << np.uint64(bits))
        # fraction * 10^9 / 2^bits: the product may need 94 bits
        billion = np.uint64(1_000_000_000)
        upper = (fraction >> np.uint64(32)) * billion
        lower = (fraction & np.uint64(0xFFFFFFFF)) * billion
        if bits <= 32:
            part = lower >> np.uint64(bits)
        elif bits < 96:
            part = (upper + (lower >> np.uint64(32))) >> np.uint64(bits - 32)
        else:
            part = np.uint64(0)
        value = np.int64(seconds * billion + part)
    return value + load_i64(row, 40)


@inlined
def shortest(kind):
    if kind == SECTION:
        return 28
    if kind == INTERFACE:
        return 20
    if kind == SIMPLE:
        return 16
    if kind == ENHANCED or kind == OLD_PACKET:
        return 32
    return 12


@inlined
def take_block(state, buffer, block, end, kind, swapped, count):
    """`append_packet` for a block with a packet; `end` is where its content ends."""
    interface = np.int64(0)  # simple packets belong to interface 0
    if kind == ENHANCED:
        interface = u32(buffer, block + 8, swapped)
    elif kind == OLD_PACKET:
        interface = u16(buffer, block + 8, swapped)
    if interface >= get(state, INTERFACE_COUNT):
        increment(state, OUTCOME_COUNTS - UNKNOWN_LINK)
        record_unknown_link(state, block, -1)
        return count
    row = get(state, INTERFACES) + interface * INTERFACE_BYTES
    if kind == SIMPLE:
        ts_ns = np.int64(0)  # these blocks have no time and no captured length
        at = block + 12
        captured = min(u32(buffer, block + 8, swapped), end - at)
        snap = load_i64(row, 8)
        if snap != 0:
            captured = min(captured, snap)
    else:
        ts_ns = nanoseconds(row, u32(buffer, block + 12, swapped), u32(buffer, block + 16, swapped))
        at = block + 28
        captured = u32(buffer, block + 20, swapped)
        if captured > end - at:
            increment(state, OUTCOME_COUNTS - MALFORMED)
            return count
    return append_packet(state, buffer, block, at, at + captured, load_i64(row, 0), ts_ns, count)


@kernel
def walk_pcapng(state):
    buffer = get(state, BUFFER)
    position = get(state, POSITION)
    filled = get(state, FILLED)
    stop = get(state, STOP)
    parse = get(state, PARSE)
    room = get(state, CAPACITY)
    swapped = get(state, SWAPPED)
    begun = position
    count = np.int64(0)
    needed = np.int64(12)
    while True:
        if position >= stop:
            ended = STOPPED
            break
        if filled - position < 12:
            needed = np.int64(12)
            ended = NEED_MORE
            break
        kind = np.int64(load_u32(buffer, position))  # a section's type is the same in both byte orders
        order = swapped
        if kind == SECTION:
            mark = np.int64(load_u32(buffer, position + 8))
            if mark != 0x1A2B3C4D and mark != 0x4D3C2B1A:
                needed = mark
                ended = BYTE_ORDER_UNKNOWN
                break
            order = np.int64(mark == 0x4D3C2B1A)
        else:
            kind = u32(buffer, position, order)
        length = u32(buffer, position + 4, order)
        if length > MAX_BLOCK_BYTES or length & 3 != 0 or length < shortest(kind):
            needed = length
            ended = LENGTH_TOO_LARGE
            if length <= MAX_BLOCK_BYTES:
                ended = LENGTH_UNALIGNED if length & 3 != 0 else LENGTH_SHORT
            break
        end = position + length
        if end > filled:
            needed = length
            ended = NEED_MORE
            break
        end -= 4
        if u32(buffer, end, order) != length:
            needed = u32(buffer, end, order)
            ended = LENGTH_DIFFERS
            break
        if kind == SECTION:
            if u16(buffer, position + 12, order) != 1:
                needed = u16(buffer, position + 12, order)
                ended = VERSION_UNKNOWN
                break
            swapped = order
            put(state, INTERFACE_COUNT, 0)
        elif kind == INTERFACE:
            describe_interface(state, buffer, position, end, swapped)
        elif kind == ENHANCED or kind == OLD_PACKET or kind == SIMPLE:
            if count == room:
                ended = FULL
                break
            increment(state, RECORDS)
            if parse != 0:
                count = take_block(state, buffer, position, end, kind, swapped, count)
        position = end + 4
    put(state, SWAPPED, swapped)
    put(state, READ_BYTES, get(state, READ_BYTES) + position - begun)
    put(state, POSITION, position)
    put(state, COUNT, count)
    put(state, NEEDED, needed)
    return ended
