"""The journal laid out for one wire: the packet (Binary) or message (FIX/FAST) of each line, and families as columns.

Binary numbers packets and packs what comes at the same moment into one, up to a size and a number of messages.
FIX/FAST numbers messages: the entries of an event are one message.
"""

from __future__ import annotations

import numpy as np

from umdf.exchange.bulk_places_kernel import (
    AUX,
    FLAGS,
    INSTRUMENT,
    KIND,
    LAST,
    LINE,
    LINE_BYTES,
    SNAPSHOT,
    SNAPSHOT_HEADER,
    SNAPSHOT_ORDER,
    TS,
)
from umdf.kernels import inlined, kernel, load_i64, store_i64, store_u16, store_u32

# Places in the table of arguments.
L_JOURNAL, L_ROWS, L_KINDS, L_FAMILIES, L_SEQUENCE, L_TS, L_NEXT, L_UNITS = 0, 1, 2, 3, 4, 5, 6, 7
L_MOST_BYTES, L_MOST_MESSAGES, L_WINDOW_NS, L_ENTRY_BYTES, L_MOST_ENTRIES, L_SNAPSHOTS = 8, 9, 10, 11, 12, 13
LAYOUT = 14

# What is to be known about a kind: its family (-1: not on this wire), its bytes (0: in the line), how it is sent.
K_FAMILY, K_BYTES, K_HOW = 0, 1, 2
KIND_BYTES = 32
TOGETHER, ALONE, BEAT, LISTED = 0, 1, 2, 3  # LISTED: several of them in a message (FAST definitions)

# A family: its columns (LINE of them, one after the other), packets or messages, places; and how many rows so far.
F_ROWS, F_CAPACITY, F_COLUMNS, F_UNIT, F_INDEX, F_ENTRY = 0, 1, 2, 3, 4, 5
FAMILY_BYTES = 48
PACKET_HEADER = 16


@inlined
def put(w, family, line, unit, index, entry):
    """A line into the columns of its family."""
    place = load_i64(w, L_FAMILIES * 8) + family * FAMILY_BYTES
    row, capacity = load_i64(place, F_ROWS * 8), load_i64(place, F_CAPACITY * 8)
    if row >= capacity:
        return
    columns = load_i64(place, F_COLUMNS * 8)
    for column in range(LINE):
        store_i64(columns, (column * capacity + row) * 8, load_i64(line, column * 8))
    store_u32(load_i64(place, F_UNIT * 8), row * 4, np.uint32(unit))
    store_u16(load_i64(place, F_INDEX * 8), row * 2, np.uint16(index))
    store_u16(load_i64(place, F_ENTRY * 8), row * 2, np.uint16(entry))
    store_i64(place, F_ROWS * 8, row + 1)


@inlined
def open_unit(w, unit, counts):
    """The next packet or message, with the next number if it has one."""
    following = load_i64(w, L_NEXT * 8)
    store_i64(load_i64(w, L_SEQUENCE * 8), unit * 8, following if counts else 0)
    store_i64(w, L_NEXT * 8, following + (1 if counts else 0))


@kernel
def lay_out_sbe(w):
    """Lines → packets; how many there are."""
    journal, rows, kinds = load_i64(w, L_JOURNAL * 8), load_i64(w, L_ROWS * 8), load_i64(w, L_KINDS * 8)
    most_bytes, most_messages = load_i64(w, L_MOST_BYTES * 8), load_i64(w, L_MOST_MESSAGES * 8)
    window, entry_bytes = load_i64(w, L_WINDOW_NS * 8), load_i64(w, L_ENTRY_BYTES * 8)
    most_entries, times = load_i64(w, L_MOST_ENTRIES * 8), load_i64(w, L_TS * 8)
    unit, used, index, entry, begun = np.int64(-1), np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    closed, in_orders, of = True, False, np.int64(0)
    for row in range(rows):
        line = journal + row * LINE_BYTES
        kind, ts = load_i64(line, KIND * 8), load_i64(line, TS * 8)
        about = kinds + kind * KIND_BYTES
        family, size, how = load_i64(about, K_FAMILY * 8), load_i64(about, K_BYTES * 8), load_i64(about, K_HOW * 8)
        if family < 0:
            continue
        if size == 0:
            size = load_i64(line, AUX * 8)
        same = in_orders and kind == SNAPSHOT_ORDER and load_i64(line, INSTRUMENT * 8) == of and not closed
        if same and entry + 1 < most_entries and used + entry_bytes <= most_bytes:
            entry, used = entry + 1, used + entry_bytes
            put(w, family, line, unit, index, entry)
            continue
        if kind == SNAPSHOT_ORDER:
            size += entry_bytes
        late = ts - begun > window
        if closed or how != TOGETHER or late or used + size > most_bytes or index + 1 >= most_messages:
            unit += 1
            open_unit(w, unit, how != BEAT)
            used, index, begun, closed = np.int64(PACKET_HEADER), np.int64(-1), ts, how != TOGETHER
        used, index, entry = used + size, index + 1, np.int64(0)
        in_orders, of = kind == SNAPSHOT_ORDER, load_i64(line, INSTRUMENT * 8)
        store_i64(times, unit * 8, ts)
        put(w, family, line, unit, index, np.int64(0))
    store_i64(w, L_UNITS * 8, unit + 1)
    return unit + 1


@kernel
def lay_out_fast(w):
    """Lines → messages; how many there are."""
    journal, rows, kinds = load_i64(w, L_JOURNAL * 8), load_i64(w, L_ROWS * 8), load_i64(w, L_KINDS * 8)
    most_entries, times, most_listed = (
        load_i64(w, L_MOST_ENTRIES * 8),
        load_i64(w, L_TS * 8),
        load_i64(w, L_MOST_MESSAGES * 8),
    )
    unit, entry, closed, listing = np.int64(-1), np.int64(0), True, False
    for row in range(rows):
        line = journal + row * LINE_BYTES
        kind, ts, flags = load_i64(line, KIND * 8), load_i64(line, TS * 8), load_i64(line, FLAGS * 8)
        about = kinds + kind * KIND_BYTES
        family, how = load_i64(about, K_FAMILY * 8), load_i64(about, K_HOW * 8)
        ends = flags & LAST != 0
        if family < 0:
            closed = closed or (ends and flags & SNAPSHOT == 0)
            continue
        if flags & SNAPSHOT != 0 and kind != SNAPSHOT_HEADER:
            joins, ends = True, False
        elif how == LISTED:
            joins, ends = listing and entry + 1 < most_listed, False
        else:
            joins = how == TOGETHER and not closed and not listing and entry + 1 < most_entries
        if joins and unit >= 0:
            entry += 1
        else:
            unit, entry = unit + 1, np.int64(0)
            open_unit(w, unit, True)
        listing = how == LISTED
        closed = ends or how == ALONE or how == BEAT
        if unit >= 0 and not (flags & SNAPSHOT != 0 and entry > 0):
            store_i64(times, unit * 8, ts)
        put(w, family, line, unit, np.int64(0), entry)
    store_i64(w, L_UNITS * 8, unit + 1)
    return unit + 1
