"""One FIX/FAST message of an incremental template → its rows of the family mbo, without returning to Python.

The steps are those of a batch (decode, the columns that determine the kind of each entry, selection, conversion), by
the same kernels, in memory that is reserved once (see `live_rows`).
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import inlined, kernel, load_i32, load_i64, load_u8, load_u16, store_i64, store_u8
from umdf.market.fast.convert_kernel import ROWS, convert_columns
from umdf.market.fast.select_kernel import (
    CONTROL,
    COUNTERS,
    COUNTS,
    FAMILIES,
    MBO,
    OFFSETS,
    STATUS,
    SUB_OFFSETS,
    UNKNOWN_ENTRIES,
    book_actions,
    classify_entries,
    select_entries,
)
from umdf.market.fast.select_kernel import ENTRIES as SELECT_ENTRIES
from umdf.wire.fast.decode.messages_kernel import interpret_one
from umdf.wire.fast.decode.tables_kernel import N_ROWS

# The table of a template. DECODER, BLOCK: the tables of the decoder. Nodes are addresses of its tables. SEQUENCE, SENT,
# and from UPDATES on: addresses of columns. PLACES: of each row, the index of its message in the packet and of its
# entry, as in `Rows.wire_order`. TAKEN: COUNT columns that rows have of their entries: from, to, bytes of a value.
(
    TEMPLATE, DECODER, BLOCK, ENTRY_NODE, SUB_NODE, SUBS, CAPACITY, HEADER_PLAN, SEQUENCE, SENT, KIND_PLAN, MBO_PLAN,
    SELECT, STAMP, FIRST_KIND, TAKEN, TAKEN_COUNT, ENTRY, KIND, ENTRY_INDEX, UPDATES, PRICES, SIZES, ACTIONS, SIDES,
    PLACES,
) = range(26)  # fmt: skip
TABLE_WORDS = 26
TAKEN_WORDS = 3
UNUSUAL, NOT_PLAIN = -1, -2  # returned: a batch decodes it; it has statuses, resets or unknown entries


@inlined
def get(r, word):
    return load_i64(r, 8 * word)


@inlined
def _put(r, word, value):
    store_i64(r, 8 * word, np.int64(value))


@inlined
def _take_columns(r, rows):
    for number in range(get(r, TAKEN_COUNT)):
        taken = get(r, TAKEN) + 8 * TAKEN_WORDS * number
        source, target, width, entry = get(taken, 0), get(taken, 1), get(taken, 2), get(r, ENTRY)
        for row in range(rows):
            at = np.int64(load_i32(entry, 4 * row))
            if width == 8:
                store_i64(target, 8 * row, load_i64(source, 8 * at))
            else:
                store_u8(target, row, load_u8(source, at))


@inlined
def _select(r, entries):
    """Select the entries that become rows; returns how many are of the family mbo, or something below zero."""
    select = get(r, SELECT)
    counts, has_subs = get(select, COUNTS), get(r, SUBS) != 0 and get(get(r, SUB_NODE), N_ROWS) > 0
    _put(select, SELECT_ENTRIES, entries)
    _put(select, SUB_OFFSETS, get(r, SUBS) if has_subs else np.int64(0))
    for counter in range(COUNTERS):
        _put(counts, counter, 0)
    _put(r, STAMP, classify_entries(select, get(r, STAMP)))
    if get(counts, STATUS) + get(counts, CONTROL) + get(counts, UNKNOWN_ENTRIES) > 0:
        return np.int64(NOT_PLAIN)
    for family in range(FAMILIES):
        if get(counts, family) > get(r, CAPACITY):
            return np.int64(UNUSUAL)
        _put(counts, family, 0)
    select_entries(select)
    return get(counts, MBO)


@kernel
def read_message(r, buffer, start, end, msg_index):
    """The rows of the message buffer[start:end] of the template; returns how many, or something below zero. SEQUENCE
    and SENT then have what the message states."""
    if not interpret_one(get(r, DECODER), get(r, BLOCK), get(r, TEMPLATE), buffer, start, end):
        return np.int64(UNUSUAL)
    _put(get(r, HEADER_PLAN), ROWS, 1)
    convert_columns(get(r, HEADER_PLAN))
    entries = get(get(r, ENTRY_NODE), N_ROWS)
    if entries > get(r, CAPACITY) or np.int64(load_i32(get(get(r, SELECT), OFFSETS), 4)) != entries:
        return np.int64(UNUSUAL)
    _put(get(r, KIND_PLAN), ROWS, entries)
    convert_columns(get(r, KIND_PLAN))
    rows = _select(r, entries)
    if rows <= 0:
        return rows
    _put(get(r, MBO_PLAN), ROWS, rows)
    convert_columns(get(r, MBO_PLAN))
    _take_columns(r, rows)
    book_actions(
        get(r, KIND), get(r, UPDATES), get(r, PRICES), get(r, SIZES), rows, get(r, ACTIONS), get(r, SIDES),
        get(r, FIRST_KIND),
    )  # fmt: skip
    for row in range(rows):
        entry_index = np.int64(load_u16(get(r, ENTRY_INDEX), 2 * row))
        store_i64(get(r, PLACES), 8 * row, msg_index << 16 | entry_index)
    return rows
