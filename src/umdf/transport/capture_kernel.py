"""Reads the records of a buffer of a pcap file, and what that has in common with reading blocks (`pcapng_kernel`).

Invariant: a record is read completely or not at all; the kernel stops at its first byte (`POSITION`) with a reason. Its
state is one table of int64, the slots below, so that it can continue in the next buffer; and the result depends only
on the bytes of the file, not on where a buffer ends.
"""

from __future__ import annotations

import numpy as np

from ..kernels import inlined, kernel, load_i64, store_i64, store_u8, store_u16
from .frame_kernel import (
    RIGHT,
    UNCHECKED,
    UNKNOWN_LINK,
    WRONG,
    check_udp,
    find_flow,
    find_payload,
    frame_fits,
    u32,
)

# What the walk reads
BUFFER, POSITION, FILLED, FILE_OFFSET = 0, 1, 2, 3  # address; next record and end of the bytes; offset of the buffer
STOP = 4  # stop at the first record at or after this position
PARSE = 5  # 0: skip the records, as the index does
SWAPPED, TICK_NS, LINK, MAX_RECORD_BYTES = 6, 7, 8, 9  # pcap: the file's header; SWAPPED also for pcapng: the section's
INTERFACES, INTERFACE_COUNT = 10, 11  # pcapng: the section's interfaces
FLOW_INDEX, FLOWS, FLOW_COUNT = 12, 13, 14
# What it writes: addresses of the columns, their capacity, the packets in them
START, END, TS_NS, NUMBER, OFFSET, FLOW, CAPACITY, COUNT = 15, 16, 17, 18, 19, 20, 21, 22
# Why it stopped, and what it needs or what is wrong there
NEEDED = 23
# Counts
RECORDS, UDP, TRUNCATED, OUTCOME_COUNTS = 24, 25, 26, 27  # TALLY - outcome, for each outcome of frame_kernel
FIRST_UNKNOWN_OFFSET, UNKNOWN_LINK_TYPE = (
    33,
    34,
)  # file offset (-1: none) and link type of the first record that cannot be read
# Of the file: its snap length, the limit of a second's fraction, whether nothing follows the loaded bytes, whether a
# search has already located the damage, and the time of the last confirmed record (-1: none)
SNAP, FRACTIONS, DRAINED, TRUSTED, SECOND = 35, 36, 37, 38, 39
CHECKSUM, RIGHT_SUMS, WRONG_SUMS = 40, 41, 42  # address of the column; UDP packets
READ_BYTES = 43  # of records and blocks that were read
SLOTS = 44

# Why reading stopped
NEED_MORE = 0  # at an incomplete record of NEEDED bytes
FULL = 1  # the columns are full
STOPPED = 2  # at STOP
# Damage; NEEDED is the wrong value
LENGTH_TOO_LARGE, LENGTH_UNALIGNED, LENGTH_SHORT, LENGTH_DIFFERS, BYTE_ORDER_UNKNOWN, VERSION_UNKNOWN = 3, 4, 5, 6, 7, 8
ZERO_FILLED, TIME_FAR, FRACTION_INSANE, LENGTH_UNLIKELY = 9, 10, 11, 12
# Only of a search (resync_kernel)
FOUND = 13

MAX_BLOCK_BYTES = 16 << 20
SLACK = 32  # a record may exceed its frame by this (some include a checksum); no record is this short
FAR_S = 7 * 86_400  # a record further from its neighbours than this is suspicious


@inlined
def get(state, slot):
    return load_i64(state, slot * 8)


@inlined
def put(state, slot, value):
    store_i64(state, slot * 8, np.int64(value))


@inlined
def increment(state, slot):
    store_i64(state, slot * 8, load_i64(state, slot * 8) + 1)


@inlined
def record_unknown_link(state, record, link):
    if get(state, FIRST_UNKNOWN_OFFSET) < 0:
        put(state, FIRST_UNKNOWN_OFFSET, get(state, FILE_OFFSET) + record)
        put(state, UNKNOWN_LINK_TYPE, link)


@inlined
def append_packet(state, buffer, record, at, end, link, ts_ns, count):
    """Parse the frame at `at` and append it if it is UDP; returns the new number of packets in the batch."""
    ip, start, stop = find_payload(buffer, at, end, link)
    if ip < 0:
        increment(state, OUTCOME_COUNTS - ip)
        if ip == UNKNOWN_LINK:
            record_unknown_link(state, record, link)
        return count
    flow, known = find_flow(get(state, FLOW_INDEX), get(state, FLOWS), get(state, FLOW_COUNT), buffer, ip, start - 8)
    put(state, FLOW_COUNT, known)
    checksum = UNCHECKED
    if stop > end:
        increment(state, TRUNCATED)
        stop = end
    else:
        checksum = check_udp(buffer, ip, start - 8, stop)
        if checksum == RIGHT:
            increment(state, RIGHT_SUMS)
        elif checksum == WRONG:
            increment(state, WRONG_SUMS)
    increment(state, UDP)
    store_i64(get(state, START), count * 8, start)
    store_i64(get(state, END), count * 8, stop)
    store_i64(get(state, TS_NS), count * 8, ts_ns)
    store_i64(get(state, NUMBER), count * 8, get(state, RECORDS))
    store_i64(get(state, OFFSET), count * 8, get(state, FILE_OFFSET) + record)
    store_u16(get(state, FLOW), count * 2, np.uint16(flow))
    store_u8(get(state, CHECKSUM), count, np.uint8(checksum))
    return count + 1


@inlined
def is_near(second, other):
    return -FAR_S <= second - other <= FAR_S


@inlined
def find_damage(state, buffer, position, end, second, known):
    """What is wrong with a record that differs from those before it; 0 if the next record confirms it."""
    swapped, fractions = get(state, SWAPPED), get(state, FRACTIONS)
    filled = get(state, FILLED)
    length, original = end - position - 16, u32(buffer, position + 12, swapped)
    is_fraction_large = u32(buffer, position + 4, swapped) >= fractions
    is_far = known >= 0 and not is_near(second, known)
    fits = frame_fits(buffer, position + 16, min(end, filled), position + 16 + original, get(state, LINK))
    if fits and length > original + SLACK:
        return LENGTH_UNLIKELY  # whatever follows it so far
    follows = fits and end <= filled
    if filled - end >= 16:
        next_second, next_fraction = u32(buffer, end, swapped), u32(buffer, end + 4, swapped)
        is_next = u32(buffer, end + 8, swapped) <= get(state, MAX_RECORD_BYTES)
        if is_fraction_large:  # some programs always write them like this
            return 0 if is_next and fits and next_fraction >= fractions else FRACTION_INSANE
        is_next = is_next and next_fraction < fractions
        if is_far:  # a jump in time, unless the records before and after it agree
            return 0 if is_next and fits and not is_near(next_second, known) else TIME_FAR
        follows = is_next and is_near(next_second, second)
    elif is_fraction_large:
        return FRACTION_INSANE
    elif is_far:
        return 0 if follows else TIME_FAR
    if known >= 0:
        return 0 if follows else LENGTH_UNLIKELY
    # The first record: there is nothing to compare with yet.
    is_likely = length == original or (length < original and length >= get(state, SNAP))
    return 0 if follows or (is_likely and (fits or end == filled)) else LENGTH_UNLIKELY


@kernel
def walk_pcap(state):
    buffer = get(state, BUFFER)
    position = get(state, POSITION)
    filled = get(state, FILLED)
    stop = get(state, STOP)
    parse = get(state, PARSE)
    capacity = get(state, CAPACITY)
    swapped = get(state, SWAPPED)
    tick_ns = get(state, TICK_NS)
    link = get(state, LINK)
    longest = get(state, MAX_RECORD_BYTES)
    snap = get(state, SNAP)
    fractions = get(state, FRACTIONS)
    drained = get(state, DRAINED)
    trusted = get(state, TRUSTED)
    known = get(state, SECOND)
    begun = position
    count = np.int64(0)
    needed = np.int64(16)
    while True:
        if position >= stop:
            outcome = STOPPED
            break
        if filled - position < 16:
            needed = np.int64(16)
            outcome = NEED_MORE
            break
        length = u32(buffer, position + 8, swapped)
        if length > longest:
            needed = length
            outcome = LENGTH_TOO_LARGE
            break
        if length == 0 and load_i64(buffer, position) == 0 and load_i64(buffer, position + 8) == 0:
            needed = np.int64(0)
            outcome = ZERO_FILLED
            break
        end = position + 16 + length
        second = u32(buffer, position, swapped)
        fraction = u32(buffer, position + 4, swapped)
        original = u32(buffer, position + 12, swapped)
        is_usual = fraction < fractions and length <= original and (length == original or length >= snap)
        if trusted == 0 and not (is_usual and known >= 0 and is_near(second, known)):
            if drained == 0 and end + 16 > filled:
                needed = 32 + length
                outcome = NEED_MORE
                break
            if not (is_usual and known < 0 and end > filled):  # otherwise it is only truncated
                outcome = find_damage(state, buffer, position, end, second, known)
                if outcome != 0:
                    needed = fraction if outcome == FRACTION_INSANE else second if outcome == TIME_FAR else length
                    break
        if end > filled:
            needed = 16 + length
            outcome = NEED_MORE
            break
        if count == capacity:
            outcome = FULL
            break
        increment(state, RECORDS)
        if parse != 0:
            count = append_packet(
                state, buffer, position, position + 16, end, link, second * 1_000_000_000 + fraction * tick_ns, count
            )
        if known >= 0 or (
            filled - end >= 16
            and is_near(u32(buffer, end, swapped), second)
            and frame_fits(buffer, position + 16, end, position + 16 + original, link)
        ):
            known = second
        position = end
    put(state, SECOND, known)
    put(state, READ_BYTES, get(state, READ_BYTES) + position - begun)
    put(state, POSITION, position)
    put(state, COUNT, count)
    put(state, NEEDED, needed)
    return outcome
