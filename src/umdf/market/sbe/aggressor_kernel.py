"""Who took liquidity: the execution summary that precedes the trades of its instrument within the same event.

An event ends with the flag LAST (MatchEventIndicator bit 7). It can span packets and batches, so what is open is kept
in a table; after a lost packet nothing is known to belong together any more, so that it is forgotten.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import inlined, kernel, load_i32, load_i64, load_u8, load_u16, load_u32, outlined, store_i64, store_u8
from umdf.market.sbe.convert_kernel import FIRST_ROW

# The table of arguments.
SUMMARIES, S_UNIT, S_INDEX, S_INSTRUMENT, S_SIDE = 0, 1, 2, 3, 4
TRADES, T_UNIT, T_INDEX, T_INSTRUMENT, T_SIDE, T_ACTION = 5, 6, 7, 8, 9, 10
FIRST_MESSAGE, FIRST_BOOK_ROW = 11, 12  # the first message of each packet, the first row of the book of each message
BOOK_ROWS, FLAGS = 13, 14
UNITS, CHANNEL, VERSION, SEQUENCE, STATE = 15, 16, 17, 18, 19
ARGUMENTS = 20

# What is kept between batches.
OPEN_COUNT, LAST_CHANNEL, LAST_VERSION, LAST_SEQUENCE, NEXT_UNIT, NEXT_ROW, ENTRIES = 0, 1, 2, 3, 4, 5, 6
MAX_OPEN = 64  # summaries of one event: beyond, the first is forgotten
STATE_WORDS = ENTRIES + 2 * MAX_OPEN

LAST = 128  # as in `families`
TRADE = 65  # the action A


@inlined
def _get(base, index):
    return load_i64(base, 8 * index)


@inlined
def _put(base, index, value):
    store_i64(base, 8 * index, value)


@inlined
def _advance_units(t, state, end):
    """Up to this packet: another channel or version, or a number left out, ends what is open. 0 numbers no packet."""
    for u in range(_get(state, NEXT_UNIT), end):
        sequence = load_i64(_get(t, SEQUENCE), 8 * u)
        if sequence != 0:
            channel, version = np.int64(load_u16(_get(t, CHANNEL), 2 * u)), load_i64(_get(t, VERSION), 8 * u)
            follows = (
                channel == _get(state, LAST_CHANNEL)
                and version == _get(state, LAST_VERSION)
                and sequence == _get(state, LAST_SEQUENCE) + 1
            )
            if not follows:
                _put(state, OPEN_COUNT, 0)
            _put(state, LAST_CHANNEL, channel)
            _put(state, LAST_VERSION, version)
            _put(state, LAST_SEQUENCE, sequence)
    if end > _get(state, NEXT_UNIT):
        _put(state, NEXT_UNIT, end)


@inlined
def _advance_rows(t, state, end):
    """Up to this row of the book: the end of an event ends what is open."""
    flags, ended = _get(t, FLAGS), np.int32(0)
    for row in range(_get(state, NEXT_ROW), end):
        ended |= load_i32(flags, 4 * row)
    if ended & LAST != 0:
        _put(state, OPEN_COUNT, 0)
    if end > _get(state, NEXT_ROW):
        _put(state, NEXT_ROW, end)


@inlined
def _message_number(t, units, indexes, i):
    """Which message of the batch a row came from."""
    unit = np.int64(load_u32(units, 4 * i))
    return np.int64(load_u32(_get(t, FIRST_MESSAGE), 4 * unit)) + np.int64(load_u16(indexes, 2 * i))


@inlined
def _advance_to(t, state, unit, slot):
    _advance_units(t, state, unit + 1)
    _advance_rows(t, state, np.int64(load_u32(_get(t, FIRST_BOOK_ROW), 4 * slot)))


@outlined
def _open_summary(t, state, i):
    """Remember a summary; a later one of the same instrument replaces it."""
    instrument = load_i64(_get(t, S_INSTRUMENT), 8 * i)
    side = np.int64(load_u8(_get(t, S_SIDE), i))
    count = _get(state, OPEN_COUNT)
    entry = np.int64(0)
    while entry < count and _get(state, ENTRIES + 2 * entry) != instrument:
        entry += 1
    if entry == MAX_OPEN:
        entry = np.int64(0)
    _put(state, ENTRIES + 2 * entry, instrument)
    _put(state, ENTRIES + 2 * entry + 1, side)
    if entry == count:
        _put(state, OPEN_COUNT, count + 1)


@kernel
def find_aggressors(t):
    """Write the side of every trade whose summary is known; keep what is open."""
    state, summaries = _get(t, STATE), _get(t, SUMMARIES)
    _put(state, NEXT_UNIT, 0)
    _put(state, NEXT_ROW, FIRST_ROW)
    s = np.int64(0)
    for i in range(_get(t, TRADES)):
        slot = _message_number(t, _get(t, T_UNIT), _get(t, T_INDEX), i)
        while s < summaries and _message_number(t, _get(t, S_UNIT), _get(t, S_INDEX), s) < slot:
            _advance_to(
                t,
                state,
                np.int64(load_u32(_get(t, S_UNIT), 4 * s)),
                _message_number(t, _get(t, S_UNIT), _get(t, S_INDEX), s),
            )
            _open_summary(t, state, s)
            s += 1
        _advance_to(t, state, np.int64(load_u32(_get(t, T_UNIT), 4 * i)), slot)
        if load_u8(_get(t, T_ACTION), i) == TRADE:
            instrument = load_i64(_get(t, T_INSTRUMENT), 8 * i)
            for entry in range(_get(state, OPEN_COUNT)):
                if _get(state, ENTRIES + 2 * entry) == instrument:
                    store_u8(_get(t, T_SIDE), i, np.uint8(_get(state, ENTRIES + 2 * entry + 1)))
    while s < summaries:
        _advance_to(
            t,
            state,
            np.int64(load_u32(_get(t, S_UNIT), 4 * s)),
            _message_number(t, _get(t, S_UNIT), _get(t, S_INDEX), s),
        )
        _open_summary(t, state, s)
        s += 1
    _advance_units(t, state, _get(t, UNITS))
    _advance_rows(t, state, FIRST_ROW + _get(t, BOOK_ROWS))
    return 0
