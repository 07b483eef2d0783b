"""The walk over the records of a chunk of a pcap or pcapng file.

The one rule: a record is taken whole or not at all; the walk ends at its first byte (`POSITION`) and says why. All that
a walk knows is in one table of int64, the slots below, so that it can go on in the next chunk.
"""

from __future__ import annotations

import numpy as np

from ..kernels import inlined, kernel, load_i64, load_u32, store_i64, store_u16
from .frame_kernel import MALFORMED, UNKNOWN_LINK, find_flow, find_payload, u8, u16, u32

# What the walk reads
BUFFER, POSITION, FILLED, FILE_OFFSET = 0, 1, 2, 3  # address; next record and end of the bytes; offset of the buffer
STOP = 4  # end at the first record at or behind this position
PARSE = 5  # 0: step over the records, as the index does
SWAPPED, TICK_NS, LINK, LONGEST = 6, 7, 8, 9  # pcap: the file's header; SWAPPED also for pcapng: the section's
INTERFACES, INTERFACES_KNOWN = 10, 11  # pcapng: the section's interfaces
FLOW_INDEX, FLOWS, FLOWS_KNOWN = 12, 13, 14
# What it writes: addresses of the columns, their room, the packets in them
START, END, TS_NS, NUMBER, OFFSET, FLOW, ROOM, COUNT = 15, 16, 17, 18, 19, 20, 21, 22
# Why it ended, and what that needs or what is wrong there
NEEDED = 23
# Counts
RECORDS, UDP, CUT, TALLY = 24, 25, 26, 27  # TALLY - outcome, for each outcome of frame_kernel
FIRST_UNKNOWN, UNKNOWN_TYPE = 33, 34  # file offset (-1: none) and link type of the first record that cannot be read
SLOTS = 35

# Why a walk ended
MORE = 0  # at a record of NEEDED bytes that is not whole
FULL = 1  # no room for another packet
STOPPED = 2  # at STOP
# Damage; NEEDED is the number that is wrong
LENGTH_INSANE, LENGTH_UNALIGNED, LENGTH_SHORT, LENGTH_DIFFERS, NO_BYTE_ORDER, VERSION_UNKNOWN = 3, 4, 5, 6, 7, 8
ZEROS = 9

LONGEST_BLOCK = 16 << 20
MOST_INTERFACES = 4096
INTERFACE_BYTES = 48  # link type, snap length, MULTIPLIER, DIVISOR, BITS, offset in ns
MULTIPLIER, DIVISOR, BITS = 16, 24, 32  # ticks to ns: the first that is not 0 counts

SECTION, INTERFACE, OLD_PACKET, SIMPLE, ENHANCED = 0x0A0D0D0A, 1, 2, 3, 6


@inlined
def get(state, slot):
    return load_i64(state, slot * 8)


@inlined
def put(state, slot, value):
    store_i64(state, slot * 8, np.int64(value))


@inlined
def add(state, slot):
    store_i64(state, slot * 8, load_i64(state, slot * 8) + 1)


@inlined
def tell_unknown(state, record, link):
    if get(state, FIRST_UNKNOWN) < 0:
        put(state, FIRST_UNKNOWN, get(state, FILE_OFFSET) + record)
        put(state, UNKNOWN_TYPE, link)


@inlined
def take(state, buffer, record, at, end, link, ts_ns, count):
    """Parse the frame at `at` and append it if it is UDP; the number of packets in the batch afterwards."""
    ip, start, stop = find_payload(buffer, at, end, link)
    if ip < 0:
        add(state, TALLY - ip)
        if ip == UNKNOWN_LINK:
            tell_unknown(state, record, link)
        return count
    flow, known = find_flow(get(state, FLOW_INDEX), get(state, FLOWS), get(state, FLOWS_KNOWN), buffer, ip, start - 8)
    put(state, FLOWS_KNOWN, known)
    if stop > end:
        add(state, CUT)
        stop = end
    add(state, UDP)
    store_i64(get(state, START), count * 8, start)
    store_i64(get(state, END), count * 8, stop)
    store_i64(get(state, TS_NS), count * 8, ts_ns)
    store_i64(get(state, NUMBER), count * 8, get(state, RECORDS))
    store_i64(get(state, OFFSET), count * 8, get(state, FILE_OFFSET) + record)
    store_u16(get(state, FLOW), count * 2, np.uint16(flow))
    return count + 1


@kernel
def walk_pcap(state):
    buffer = get(state, BUFFER)
    position = get(state, POSITION)
    filled = get(state, FILLED)
    stop = get(state, STOP)
    parse = get(state, PARSE)
    room = get(state, ROOM)
    swapped = get(state, SWAPPED)
    tick_ns = get(state, TICK_NS)
    link = get(state, LINK)
    longest = get(state, LONGEST)
    count = np.int64(0)
    needed = np.int64(16)
    while True:
        if position >= stop:
            ended = STOPPED
            break
        if filled - position < 16:
            needed = np.int64(16)
            ended = MORE
            break
        length = u32(buffer, position + 8, swapped)
        if length > longest:
            needed = length
            ended = LENGTH_INSANE
            break
        if length == 0 and load_i64(buffer, position) == 0 and load_i64(buffer, position + 8) == 0:
            needed = np.int64(0)
            ended = ZEROS
            break
        end = position + 16 + length
        if end > filled:
            needed = 16 + length
            ended = MORE
            break
        if count == room:
            ended = FULL
            break
        add(state, RECORDS)
        if parse != 0:
            ts_ns = u32(buffer, position, swapped) * 1_000_000_000 + u32(buffer, position + 4, swapped) * tick_ns
            count = take(state, buffer, position, position + 16, end, link, ts_ns, count)
        position = end
    put(state, POSITION, position)
    put(state, COUNT, count)
    put(state, NEEDED, needed)
    return ended


@inlined
def describe_interface(state, buffer, block, end, swapped):
    """Append what an Interface Description Block says to the section's table."""
    known = get(state, INTERFACES_KNOWN)
    if known == MOST_INTERFACES:
        return
    put(state, INTERFACES_KNOWN, known + 1)
    resolution = np.int64(6)  # microseconds unless the option if_tsresol says otherwise
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
        for _ in range(min(exponent - 9, 18)):  # 18: what an int64 holds; nobody counts in 10^-28 s
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
    """UNIX nanoseconds of a 64-bit count of an interface's ticks. Nonsense wraps."""
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
        # fraction * 10^9 / 2^bits, of which the product may need 94 bits
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
    """`take` for a block with a packet; `end` is where its content ends."""
    interface = np.int64(0)  # of which simple packets are
    if kind == ENHANCED:
        interface = u32(buffer, block + 8, swapped)
    elif kind == OLD_PACKET:
        interface = u16(buffer, block + 8, swapped)
    if interface >= get(state, INTERFACES_KNOWN):
        add(state, TALLY - UNKNOWN_LINK)
        tell_unknown(state, block, -1)
        return count
    row = get(state, INTERFACES) + interface * INTERFACE_BYTES
    if kind == SIMPLE:
        ts_ns = np.int64(0)  # these blocks carry no time and no captured length
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
            add(state, TALLY - MALFORMED)
            return count
    return take(state, buffer, block, at, at + captured, load_i64(row, 0), ts_ns, count)


@kernel
def walk_pcapng(state):
    buffer = get(state, BUFFER)
    position = get(state, POSITION)
    filled = get(state, FILLED)
    stop = get(state, STOP)
    parse = get(state, PARSE)
    room = get(state, ROOM)
    swapped = get(state, SWAPPED)
    count = np.int64(0)
    needed = np.int64(12)
    while True:
        if position >= stop:
            ended = STOPPED
            break
        if filled - position < 12:
            needed = np.int64(12)
            ended = MORE
            break
        kind = np.int64(load_u32(buffer, position))  # a section's type reads the same in both byte orders
        order = swapped
        if kind == SECTION:
            mark = np.int64(load_u32(buffer, position + 8))
            if mark != 0x1A2B3C4D and mark != 0x4D3C2B1A:
                needed = mark
                ended = NO_BYTE_ORDER
                break
            order = np.int64(mark == 0x4D3C2B1A)
        else:
            kind = u32(buffer, position, order)
        length = u32(buffer, position + 4, order)
        if length > LONGEST_BLOCK or length & 3 != 0 or length < shortest(kind):
            needed = length
            ended = LENGTH_INSANE
            if length <= LONGEST_BLOCK:
                ended = LENGTH_UNALIGNED if length & 3 != 0 else LENGTH_SHORT
            break
        end = position + length
        if end > filled:
            needed = length
            ended = MORE
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
            put(state, INTERFACES_KNOWN, 0)
        elif kind == INTERFACE:
            describe_interface(state, buffer, position, end, swapped)
        elif kind == ENHANCED or kind == OLD_PACKET or kind == SIMPLE:
            if count == room:
                ended = FULL
                break
            add(state, RECORDS)
            if parse != 0:
                count = take_block(state, buffer, position, end, kind, swapped, count)
        position = end + 4
    put(state, SWAPPED, swapped)
    put(state, POSITION, position)
    put(state, COUNT, count)
    put(state, NEEDED, needed)
    return ended
