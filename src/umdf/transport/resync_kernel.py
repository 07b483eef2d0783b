"""Finds where the records continue after damage.

Invariant: an offset is accepted if the record there and the next ones are plausible, and every offset is checked in the
same few steps, so that the time of a search depends only on the number of bytes.
"""

from __future__ import annotations

import numpy as np

from ..kernels import inlined, kernel, load_u32
from .capture_kernel import (
    BUFFER,
    DRAINED,
    FILLED,
    FOUND,
    FRACTIONS,
    LINK,
    NEED_MORE,
    POSITION,
    SECOND,
    SLACK,
    SWAPPED,
    get,
    is_near,
    put,
)
from .frame_kernel import frame_fits, u32
from .pcapng_kernel import SECTION, shortest

LONGEST_SOUGHT = 68 << 10  # bytes of a record: the maximum of IP, and a link header
SHORTEST_FRAME = 14
RECORDS_SOUGHT = 3  # consecutive records
WINDOW = RECORDS_SOUGHT * (LONGEST_SOUGHT + 64)  # bytes that must be in memory to check an offset


@inlined
def is_record(buffer, at, swapped, fractions, second):
    """Whether a record header is plausible there, received at about that second (-1: at any)."""
    length = u32(buffer, at + 8, swapped)
    if length < SHORTEST_FRAME or length > LONGEST_SOUGHT:
        return False
    if length > u32(buffer, at + 12, swapped) + SLACK or u32(buffer, at + 4, swapped) >= fractions:
        return False
    return second < 0 or is_near(u32(buffer, at, swapped), second)


@kernel
def search_pcap(state):
    """Search from POSITION on: FOUND there, or MORE."""
    buffer, filled = get(state, BUFFER), get(state, FILLED)
    swapped, fractions = get(state, SWAPPED), get(state, FRACTIONS)
    known, link = get(state, SECOND), get(state, LINK)
    at = get(state, POSITION)
    last = filled - 16 if get(state, DRAINED) != 0 else filled - WINDOW
    ended = NEED_MORE
    while at <= last:
        if is_record(buffer, at, swapped, fractions, known):
            end = at + 16 + u32(buffer, at + 8, swapped)
            frame_end = at + 16 + u32(buffer, at + 12, swapped)
            if end <= filled and frame_fits(buffer, at + 16, end, frame_end, link):
                second = u32(buffer, at, swapped)
                follows = True
                for _ in range(RECORDS_SOUGHT - 1):
                    if filled - end < 16:  # the file ends
                        break
                    if not is_record(buffer, end, swapped, fractions, second):
                        follows = False
                        break
                    end += 16 + u32(buffer, end + 8, swapped)
                if follows:
                    ended = FOUND
                    break
        at += 1
    put(state, POSITION, at)
    return ended


@inlined
def block_length(buffer, at, filled, order):
    """The length of a block there, if it is plausible in a capture; otherwise 0."""
    kind = np.int64(load_u32(buffer, at))
    if kind == SECTION:
        mark = np.int64(load_u32(buffer, at + 8))
        if mark != 0x1A2B3C4D and mark != 0x4D3C2B1A:
            return np.int64(0)
        order = np.int64(mark == 0x4D3C2B1A)
    else:
        kind = u32(buffer, at, order)
        # Names, statistics, journals, secrets and custom blocks have their own types too.
        if kind == 0 or (kind > 10 and kind != 0xBAD and kind != 0x40000BAD):
            return np.int64(0)
    length = u32(buffer, at + 4, order)
    if length & 3 != 0 or length < shortest(kind) or length > LONGEST_SOUGHT:
        return np.int64(0)
    if at + length <= filled and u32(buffer, at + length - 4, order) != length:
        return np.int64(0)
    return length


@kernel
def search_pcapng(state):
    """The same, at multiples of 4, where blocks start."""
    buffer, filled, order = get(state, BUFFER), get(state, FILLED), get(state, SWAPPED)
    at = get(state, POSITION)
    last = filled - 12 if get(state, DRAINED) != 0 else filled - WINDOW
    ended = NEED_MORE
    while at <= last:
        length = block_length(buffer, at, filled, order)
        if length != 0 and at + length <= filled:
            end = at + length
            if load_u32(buffer, at) == SECTION:
                order = np.int64(load_u32(buffer, at + 8) == 0x4D3C2B1A)
            follows = True
            for _ in range(RECORDS_SOUGHT - 1):
                if filled - end < 12:
                    break
                length = block_length(buffer, end, filled, order)
                if length == 0:
                    follows = False
                    break
                end += length
            if follows:
                ended = FOUND
                break
            order = get(state, SWAPPED)
        at += 4
    put(state, POSITION, at)
    return ended
