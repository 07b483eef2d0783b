"""The journal as units of one protocol: the packet (Binary) or message (FIX/FAST) of each record; families as columns.

Binary numbers packets and puts what happens at the same moment into one, up to a size and a number of messages.
FIX/FAST numbers messages: the entries of an event are one message.
"""

from __future__ import annotations

import numpy as np

from umdf.exchange.matching.memory_layout_kernel import (
    AUX,
    FLAGS,
    INSTRUMENT,
    KIND,
    LAST,
    RECORD_BYTES,
    RECORD_COLUMNS,
    SNAPSHOT,
    SNAPSHOT_HEADER,
    SNAPSHOT_ORDER,
    TS,
)
from umdf.kernels import inlined, kernel, load_i64, store_i64, store_u16, store_u32

# Entries of the table of arguments.
L_JOURNAL, L_ROWS, L_KINDS, L_FAMILIES, L_SEQUENCE, L_TS, L_NEXT, L_UNITS = 0, 1, 2, 3, 4, 5, 6, 7
L_MAX_BYTES, L_MAX_MESSAGES, L_WINDOW_NS, L_ENTRY_BYTES, L_MAX_ENTRIES, L_RPT_SEQ, L_ROW_UNITS = range(8, 15)
ARGUMENT_COUNT = 15

# A kind of record: its family (-1: not on this protocol), its bytes (0: in the record), the mode in which it is sent.
K_FAMILY, K_BYTES, K_MODE = 0, 1, 2
KIND_BYTES = 32
SHARED_UNIT, OWN_UNIT, HEARTBEAT_UNIT, DEFINITION_UNIT = 0, 1, 2, 3  # the last: several definitions in a FAST message

# A family: its rows so far, capacity, columns (those of a record and RptSeq, one after the other), units, message and
# entry indices.
RPT_SEQ = RECORD_COLUMNS
FAMILY_COLUMNS = RECORD_COLUMNS + 1
F_ROWS, F_CAPACITY, F_COLUMNS, F_UNIT, F_INDEX, F_ENTRY = 0, 1, 2, 3, 4, 5
FAMILY_BYTES = 48
PACKET_HEADER = 16


@inlined
def append_row(w, family, record, record_row, unit, index, entry):
    """Append a record to the columns of its family, and remember its unit."""
    store_i64(load_i64(w, L_ROW_UNITS * 8), record_row * 8, unit)
    family_entry = load_i64(w, L_FAMILIES * 8) + family * FAMILY_BYTES
    row, capacity = load_i64(family_entry, F_ROWS * 8), load_i64(family_entry, F_CAPACITY * 8)
    if row >= capacity:
        return
    columns = load_i64(family_entry, F_COLUMNS * 8)
    for column in range(RECORD_COLUMNS):
        store_i64(columns, (column * capacity + row) * 8, load_i64(record, column * 8))
    rpt_seq = load_i64(load_i64(w, L_RPT_SEQ * 8), record_row * 8)
    store_i64(columns, (RPT_SEQ * capacity + row) * 8, rpt_seq)
    store_u32(load_i64(family_entry, F_UNIT * 8), row * 4, np.uint32(unit))
    store_u16(load_i64(family_entry, F_INDEX * 8), row * 2, np.uint16(index))
    store_u16(load_i64(family_entry, F_ENTRY * 8), row * 2, np.uint16(entry))
    store_i64(family_entry, F_ROWS * 8, row + 1)


@inlined
def open_unit(w, unit, is_numbered):
    """Start the next unit (packet or message), with the next sequence if it is numbered."""
    next_sequence = load_i64(w, L_NEXT * 8)
    store_i64(load_i64(w, L_SEQUENCE * 8), unit * 8, next_sequence if is_numbered else 0)
    store_i64(w, L_NEXT * 8, next_sequence + (1 if is_numbered else 0))


@kernel
def build_packets(w):
    """Records → packets; return how many."""
    journal, rows, kinds = load_i64(w, L_JOURNAL * 8), load_i64(w, L_ROWS * 8), load_i64(w, L_KINDS * 8)
    max_bytes, max_messages = load_i64(w, L_MAX_BYTES * 8), load_i64(w, L_MAX_MESSAGES * 8)
    window, entry_bytes = load_i64(w, L_WINDOW_NS * 8), load_i64(w, L_ENTRY_BYTES * 8)
    max_entries, times = load_i64(w, L_MAX_ENTRIES * 8), load_i64(w, L_TS * 8)
    unit, used, index, entry, opened_ts = np.int64(-1), np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    closed, in_orders, snapshot_instrument = True, False, np.int64(0)
    for row in range(rows):
        record = journal + row * RECORD_BYTES
        kind, ts = load_i64(record, KIND * 8), load_i64(record, TS * 8)
        kind_entry = kinds + kind * KIND_BYTES
        family, size, mode = (
            load_i64(kind_entry, K_FAMILY * 8),
            load_i64(kind_entry, K_BYTES * 8),
            load_i64(kind_entry, K_MODE * 8),
        )
        if family < 0:
            continue
        if size == 0:
            size = load_i64(record, AUX * 8)
        is_same_snapshot = (
            in_orders
            and kind == SNAPSHOT_ORDER
            and load_i64(record, INSTRUMENT * 8) == snapshot_instrument
            and not closed
        )
        if is_same_snapshot and entry + 1 < max_entries and used + entry_bytes <= max_bytes:
            entry, used = entry + 1, used + entry_bytes
            append_row(w, family, record, row, unit, index, entry)
            continue
        if kind == SNAPSHOT_ORDER:
            size += entry_bytes
        late = ts - opened_ts > window
        if closed or mode != SHARED_UNIT or late or used + size > max_bytes or index + 1 >= max_messages:
            unit += 1
            open_unit(w, unit, mode != HEARTBEAT_UNIT)
            used, index, opened_ts, closed = np.int64(PACKET_HEADER), np.int64(-1), ts, mode != SHARED_UNIT
        used, index, entry = used + size, index + 1, np.int64(0)
        in_orders, snapshot_instrument = kind == SNAPSHOT_ORDER, load_i64(record, INSTRUMENT * 8)
        store_i64(times, unit * 8, ts)
        append_row(w, family, record, row, unit, index, np.int64(0))
    store_i64(w, L_UNITS * 8, unit + 1)
    return unit + 1


@kernel
def build_messages(w):
    """Records → messages; return how many."""
    journal, rows, kinds = load_i64(w, L_JOURNAL * 8), load_i64(w, L_ROWS * 8), load_i64(w, L_KINDS * 8)
    max_entries, times, max_definitions = (
        load_i64(w, L_MAX_ENTRIES * 8),
        load_i64(w, L_TS * 8),
        load_i64(w, L_MAX_MESSAGES * 8),
    )
    unit, entry, closed, in_definitions = np.int64(-1), np.int64(0), True, False
    for row in range(rows):
        record = journal + row * RECORD_BYTES
        kind, ts, flags = load_i64(record, KIND * 8), load_i64(record, TS * 8), load_i64(record, FLAGS * 8)
        kind_entry = kinds + kind * KIND_BYTES
        family, mode = load_i64(kind_entry, K_FAMILY * 8), load_i64(kind_entry, K_MODE * 8)
        ends_event = flags & LAST != 0
        if family < 0:
            closed = closed or (ends_event and flags & SNAPSHOT == 0)
            continue
        if flags & SNAPSHOT != 0 and kind != SNAPSHOT_HEADER:
            joins_unit, ends_event = True, False
        elif mode == DEFINITION_UNIT:
            joins_unit = in_definitions and entry + 1 < max_definitions and not closed  # those of a loop, never others
        else:
            joins_unit = mode == SHARED_UNIT and not closed and not in_definitions and entry + 1 < max_entries
        if joins_unit and unit >= 0:
            entry += 1
        else:
            unit, entry = unit + 1, np.int64(0)
            open_unit(w, unit, True)
        in_definitions = mode == DEFINITION_UNIT
        closed = ends_event or mode == OWN_UNIT or mode == HEARTBEAT_UNIT
        if unit >= 0 and not (flags & SNAPSHOT != 0 and entry > 0):
            store_i64(times, unit * 8, ts)
        append_row(w, family, record, row, unit, np.int64(0), entry)
    store_i64(w, L_UNITS * 8, unit + 1)
    return unit + 1
