"""Records of the journal → Binary packets in one pass: direct encoding of the most frequent kinds.

Each kind has an image of its message, headers and null values included, and a list of instructions: which column of the
record is written where, with which conversion. `direct_encoder` builds both from the schema.
"""

from __future__ import annotations

import numpy as np

from umdf.exchange.matching.book_side_kernel import memmove
from umdf.exchange.matching.memory_layout_kernel import (
    BID,
    IMPLIED,
    KIND,
    LAST,
    NO_SIDE,
    NULL,
    RECORD_BYTES,
    RECOVERY,
    TS,
)
from umdf.exchange.publish.unit_builder_kernel import HEARTBEAT_UNIT, PACKET_HEADER, SHARED_UNIT
from umdf.kernels import inlined, kernel, load_i64, store_i64, store_u8, store_u16, store_u32, store_u64

# Entries of the table of arguments.
X_JOURNAL, X_ROWS, X_KINDS, X_OUT, X_CAPACITY, X_START, X_END, X_SEQUENCE, X_TS = 0, 1, 2, 3, 4, 5, 6, 7, 8
X_NEXT, X_MAX_BYTES, X_MAX_MESSAGES, X_WINDOW_NS, X_SEND_NS, X_HEADER = 9, 10, 11, 12, 13, 14
X_INSTRUMENT_IDS, X_RPT_SEQ, X_RECORD_PACKET = 15, 16, 17  # the last two have an element for each record
ARGUMENT_COUNT = 18

# A kind: bytes of its message (0: not on this protocol), its image, its instructions and their count, its mode.
Y_BYTES, Y_IMAGE, Y_INSTRUCTIONS, Y_COUNT, Y_MODE = 0, 1, 2, 3, 4
DIRECT_KIND_BYTES = 40
# An instruction: the column, the offset in the message, and the conversion.
Z_COLUMN, Z_OFFSET, Z_CONVERSION = 0, 1, 2
INSTRUCTION_BYTES = 24
(
    COPY_64,
    COPY_32,
    COPY_8,
    PRICE,
    FINE_PRICE,
    SIDE_CHAR,
    AGGRESSOR,
    EVENT_INDICATOR,
    CONDITIONS,
    SUB_TYPE,
    NEXT_SEQUENCE,
    INSTRUMENT_ID,
    RPT_SEQ,
) = range(13)
PRICE_UNIT, FINE_PRICE_UNIT = 100_000, 10  # 1e-4 and 1e-8, of 1e-9
# The conditions that are special types of a trade (829): bits from the first on, codes from the first on.
FIRST_SUB_TYPE_BIT, SUB_TYPES, FIRST_SUB_TYPE = 17, 9, 101
BUFFER_FULL = -1


@inlined
def write_field(message, instruction, record, next_sequence, instrument_ids, rpt_seq):
    """Write one column of a record to its message; an absent value leaves the null of the image."""
    value = load_i64(record, load_i64(instruction, Z_COLUMN * 8) * 8)
    offset, conversion = load_i64(instruction, Z_OFFSET * 8), load_i64(instruction, Z_CONVERSION * 8)
    if conversion == EVENT_INDICATOR:
        bits = (value & LAST) | ((value & IMPLIED) >> 4) | ((value & RECOVERY) >> 4)
        store_u8(message, offset, np.uint8(bits))
    elif conversion == NEXT_SEQUENCE:
        store_u32(message, offset, np.uint32(next_sequence))
    elif conversion == RPT_SEQ:
        if rpt_seq != NULL:
            store_u32(message, offset, np.uint32(rpt_seq))
    elif conversion == INSTRUMENT_ID:
        store_i64(message, offset, load_i64(instrument_ids, value * 8))
    elif value == NULL:
        return
    elif conversion == COPY_64:
        store_i64(message, offset, value)
    elif conversion == PRICE:
        store_i64(message, offset, value // PRICE_UNIT)
    elif conversion == COPY_32:
        store_u32(message, offset, np.uint32(value))
    elif conversion == SIDE_CHAR:
        store_u8(message, offset, np.uint8(48 if value == BID else 49))
    elif conversion == FINE_PRICE:
        store_i64(message, offset, value // FINE_PRICE_UNIT)
    elif conversion == AGGRESSOR:
        store_u8(message, offset, np.uint8(0 if value == NO_SIDE else 1 if value == BID else 2))
    elif conversion == CONDITIONS:
        store_u16(message, offset, np.uint16(value & 0x7FFF))
    elif conversion == SUB_TYPE:
        for i in range(SUB_TYPES):
            if value >> (FIRST_SUB_TYPE_BIT + i) & 1:
                store_u8(message, offset, np.uint8(FIRST_SUB_TYPE + i))
    else:
        store_u8(message, offset, np.uint8(value))


@kernel
def encode_packets(x):
    """Build packets as `unit_builder_kernel.build_packets` and the encoder do; return how many, or BUFFER_FULL."""
    journal, rows, kinds = load_i64(x, X_JOURNAL * 8), load_i64(x, X_ROWS * 8), load_i64(x, X_KINDS * 8)
    out, capacity = load_i64(x, X_OUT * 8), load_i64(x, X_CAPACITY * 8)
    starts, ends, times = load_i64(x, X_START * 8), load_i64(x, X_END * 8), load_i64(x, X_TS * 8)
    sequences, next_sequence, header = load_i64(x, X_SEQUENCE * 8), load_i64(x, X_NEXT * 8), load_i64(x, X_HEADER * 8)
    max_bytes, max_messages = load_i64(x, X_MAX_BYTES * 8), load_i64(x, X_MAX_MESSAGES * 8)
    window, send_ns = load_i64(x, X_WINDOW_NS * 8), load_i64(x, X_SEND_NS * 8)
    instrument_ids, rpt_seqs = load_i64(x, X_INSTRUMENT_IDS * 8), load_i64(x, X_RPT_SEQ * 8)
    record_packets = load_i64(x, X_RECORD_PACKET * 8)
    unit, at, used, index, opened_ts, closed = np.int64(-1), np.int64(0), np.int64(0), np.int64(0), np.int64(0), True
    for row in range(rows):
        record = journal + row * RECORD_BYTES
        ts, kind_entry = load_i64(record, TS * 8), kinds + load_i64(record, KIND * 8) * DIRECT_KIND_BYTES
        size, mode = load_i64(kind_entry, Y_BYTES * 8), load_i64(kind_entry, Y_MODE * 8)
        if size == 0:
            continue
        if at + size + PACKET_HEADER > capacity:
            return BUFFER_FULL
        late = ts - opened_ts > window
        if closed or mode != SHARED_UNIT or late or used + size > max_bytes or index + 1 >= max_messages:
            unit += 1
            sequence = next_sequence if mode != HEARTBEAT_UNIT else np.int64(0)
            next_sequence += 1 if mode != HEARTBEAT_UNIT else 0
            store_i64(starts, unit * 8, at)
            store_i64(sequences, unit * 8, sequence)
            store_i64(out, at, header)
            store_u32(out, at + 4, np.uint32(sequence))
            at += PACKET_HEADER
            used, index, opened_ts, closed = np.int64(PACKET_HEADER), np.int64(-1), ts, mode != SHARED_UNIT
        used, index = used + size, index + 1
        store_u64(out, load_i64(starts, unit * 8) + 8, np.uint64(ts + send_ns))
        store_i64(times, unit * 8, ts + send_ns)
        message = out + at
        memmove(message, load_i64(kind_entry, Y_IMAGE * 8), size)
        rpt_seq = load_i64(rpt_seqs, row * 8)
        store_i64(record_packets, row * 8, unit)
        instruction = load_i64(kind_entry, Y_INSTRUCTIONS * 8)
        for _ in range(load_i64(kind_entry, Y_COUNT * 8)):
            write_field(message, instruction, record, next_sequence, instrument_ids, rpt_seq)
            instruction += INSTRUCTION_BYTES
        at += size
        store_i64(ends, unit * 8, at)
    store_i64(x, X_NEXT * 8, next_sequence)
    return unit + 1
