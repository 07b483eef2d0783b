"""Who took liquidity: the execution summary that precedes the trades of its instrument within the same event.

An event ends with the flag LAST (MatchEventIndicator bit 7). It can span packets and batches, so what is open is kept
in a table; after a lost packet nothing is known to belong together any more, so that it is forgotten.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import inlined, kernel, load_i32, load_i64, load_u8, load_u16, load_u32, outlined, store_i64, store_u8
from umdf.market.sbe_events_kernel import FIRST_ROW

# The table of arguments.
SUMMARIES, S_UNIT, S_INDEX, S_INSTRUMENT, S_SIDE = 0, 1, 2, 3, 4
TRADES, T_UNIT, T_INDEX, T_INSTRUMENT, T_SIDE, T_ACTION = 5, 6, 7, 8, 9, 10
FIRST, ROWS = 11, 12  # the first message of each packet, the first row of the book of each message
BOOK_ROWS, FLAGS = 13, 14
UNITS, CHANNEL, VERSION, SEQUENCE, STATE = 15, 16, 17, 18, 19
ARGUMENTS = 20

# What is kept between batches.
OPEN, LAST_CHANNEL, LAST_VERSION, LAST_SEQUENCE, WALKED_UNIT, WALKED_ROW, ENTRIES = 0, 1, 2, 3, 4, 5, 6
MOST_OPEN = 64  # summaries of one event: beyond, the first is forgotten
STATE_WORDS = ENTRIES + 2 * MOST_OPEN

LAST = 128  # as in `events`
TRADE = 65  # the action A


@inlined
def _at(base, index):
    return load_i64(base, 8 * index)


@inlined
def _put(base, index, value):
    store_i64(base, 8 * index, value)


@inlined
def _walk_units(t, state, end):
    """Up to this packet: another channel or version, or a number left out, ends what is open. 0 numbers no packet."""
    for u in range(_at(state, WALKED_UNIT), end):
        sequence = load_i64(_at(t, SEQUENCE), 8 * u)
        if sequence != 0:
            channel, version = np.int64(load_u16(_at(t, CHANNEL), 2 * u)), load_i64(_at(t, VERSION), 8 * u)
            follows = (
                channel == _at(state, LAST_CHANNEL)
                and version == _at(state, LAST_VERSION)
                and sequence == _at(state, LAST_SEQUENCE) + 1
            )
            if not follows:
                _put(state, OPEN, 0)
            _put(state, LAST_CHANNEL, channel)
            _put(state, LAST_VERSION, version)
            _put(state, LAST_SEQUENCE, sequence)
    if end > _at(state, WALKED_UNIT):
        _put(state, WALKED_UNIT, end)


@inlined
def _walk_rows(t, state, end):
    """Up to this row of the book: the end of an event ends what is open."""
    flags, ended = _at(t, FLAGS), np.int32(0)
    for row in range(_at(state, WALKED_ROW), end):
        ended |= load_i32(flags, 4 * row)
    if ended & LAST != 0:
        _put(state, OPEN, 0)
    if end > _at(state, WALKED_ROW):
        _put(state, WALKED_ROW, end)


@inlined
def _slot(t, units, indexes, i):
    """Which message of the batch a row came from."""
    unit = np.int64(load_u32(units, 4 * i))
    return np.int64(load_u32(_at(t, FIRST), 4 * unit)) + np.int64(load_u16(indexes, 2 * i))


@inlined
def _walk_to(t, state, unit, slot):
    _walk_units(t, state, unit + 1)
    _walk_rows(t, state, np.int64(load_u32(_at(t, ROWS), 4 * slot)))


@outlined
def _open(t, state, i):
    """Remember a summary; a later one of the same instrument takes its place."""
    instrument = load_i64(_at(t, S_INSTRUMENT), 8 * i)
    side = np.int64(load_u8(_at(t, S_SIDE), i))
    count = _at(state, OPEN)
    entry = np.int64(0)
    while entry < count and _at(state, ENTRIES + 2 * entry) != instrument:
        entry += 1
    if entry == MOST_OPEN:
        entry = np.int64(0)
    _put(state, ENTRIES + 2 * entry, instrument)
    _put(state, ENTRIES + 2 * entry + 1, side)
    if entry == count:
        _put(state, OPEN, count + 1)


@kernel
def find_aggressors(t):
    """Write the side of every trade whose summary is known; keep what is open."""
    state, summaries = _at(t, STATE), _at(t, SUMMARIES)
    _put(state, WALKED_UNIT, 0)
    _put(state, WALKED_ROW, FIRST_ROW)
    s = np.int64(0)
    for i in range(_at(t, TRADES)):
        slot = _slot(t, _at(t, T_UNIT), _at(t, T_INDEX), i)
        while s < summaries and _slot(t, _at(t, S_UNIT), _at(t, S_INDEX), s) < slot:
            _walk_to(t, state, np.int64(load_u32(_at(t, S_UNIT), 4 * s)), _slot(t, _at(t, S_UNIT), _at(t, S_INDEX), s))
            _open(t, state, s)
            s += 1
        _walk_to(t, state, np.int64(load_u32(_at(t, T_UNIT), 4 * i)), slot)
        if load_u8(_at(t, T_ACTION), i) == TRADE:
            instrument = load_i64(_at(t, T_INSTRUMENT), 8 * i)
            for entry in range(_at(state, OPEN)):
                if _at(state, ENTRIES + 2 * entry) == instrument:
                    store_u8(_at(t, T_SIDE), i, np.uint8(_at(state, ENTRIES + 2 * entry + 1)))
    while s < summaries:
        _walk_to(t, state, np.int64(load_u32(_at(t, S_UNIT), 4 * s)), _slot(t, _at(t, S_UNIT), _at(t, S_INDEX), s))
        _open(t, state, s)
        s += 1
    _walk_units(t, state, _at(t, UNITS))
    _walk_rows(t, state, FIRST_ROW + _at(t, BOOK_ROWS))
    return 0
