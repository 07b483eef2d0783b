"""Lines of the journal → Binary packets in one pass: the short road for what a busy channel is made of.

Each kind has an image of its message, headers and null values included, and a list of instructions: which column of the
line goes where, and how. `bulk_direct` makes both from the schema.
"""

from __future__ import annotations

import numpy as np

from umdf.exchange.bulk_layout_kernel import BEAT, PACKET_HEADER, TOGETHER
from umdf.exchange.bulk_places_kernel import (
    BID,
    C_LEG,
    IMPLIED,
    KIND,
    LAST,
    LINE_BYTES,
    NEITHER,
    NULL,
    RECOVERY,
    TS,
)
from umdf.exchange.bulk_side_kernel import memmove
from umdf.kernels import inlined, kernel, load_i64, store_i64, store_u8, store_u16, store_u32, store_u64

# Places in the table of arguments.
X_JOURNAL, X_ROWS, X_KINDS, X_OUT, X_CAPACITY, X_START, X_END, X_SEQUENCE, X_TS = 0, 1, 2, 3, 4, 5, 6, 7, 8
X_NEXT, X_MOST_BYTES, X_MOST_MESSAGES, X_WINDOW_NS, X_SEND_NS, X_HEADER = 9, 10, 11, 12, 13, 14
DIRECT = 15

# A kind: bytes of its message (0: not on this wire), its image, its instructions and how many, how it is sent.
Y_BYTES, Y_IMAGE, Y_INSTRUCTIONS, Y_COUNT, Y_HOW = 0, 1, 2, 3, 4
DIRECT_KIND_BYTES = 40
# An instruction: the column, where in the message, and how.
Z_COLUMN, Z_OFFSET, Z_HOW = 0, 1, 2
INSTRUCTION_BYTES = 24
COPY_64, COPY_32, COPY_8, PRICE, FINE_PRICE, SIDE_CHAR, AGGRESSOR, EVENT, CONDITIONS, LEG_TRADE, NEXT = range(11)
PRICE_UNIT, FINE_PRICE_UNIT = 100_000, 10  # 1e-4 and 1e-8, of 1e-9
LEG_CODE = 102
NO_ROOM = -1


@inlined
def carry_out(message, instruction, line, following):
    """One column of a line into its message; an absent value leaves the image's null."""
    value = load_i64(line, load_i64(instruction, Z_COLUMN * 8) * 8)
    offset, how = load_i64(instruction, Z_OFFSET * 8), load_i64(instruction, Z_HOW * 8)
    if how == EVENT:
        bits = (value & LAST) | ((value & IMPLIED) >> 4) | ((value & RECOVERY) >> 4)
        store_u8(message, offset, np.uint8(bits))
    elif how == NEXT:
        store_u32(message, offset, np.uint32(following))
    elif value == NULL:
        return
    elif how == COPY_64:
        store_i64(message, offset, value)
    elif how == PRICE:
        store_i64(message, offset, value // PRICE_UNIT)
    elif how == COPY_32:
        store_u32(message, offset, np.uint32(value))
    elif how == SIDE_CHAR:
        store_u8(message, offset, np.uint8(48 if value == BID else 49))
    elif how == FINE_PRICE:
        store_i64(message, offset, value // FINE_PRICE_UNIT)
    elif how == AGGRESSOR:
        store_u8(message, offset, np.uint8(0 if value == NEITHER else 1 if value == BID else 2))
    elif how == CONDITIONS:
        store_u16(message, offset, np.uint16(value & 0x7FFF))
    elif how == LEG_TRADE:
        if value & C_LEG:
            store_u8(message, offset, np.uint8(LEG_CODE))
    else:
        store_u8(message, offset, np.uint8(value))


@kernel
def encode(x):
    """The packets, as `lay_out_sbe` would make them; how many there are, or NO_ROOM."""
    journal, rows, kinds = load_i64(x, X_JOURNAL * 8), load_i64(x, X_ROWS * 8), load_i64(x, X_KINDS * 8)
    out, capacity = load_i64(x, X_OUT * 8), load_i64(x, X_CAPACITY * 8)
    starts, ends, times = load_i64(x, X_START * 8), load_i64(x, X_END * 8), load_i64(x, X_TS * 8)
    sequences, following, header = load_i64(x, X_SEQUENCE * 8), load_i64(x, X_NEXT * 8), load_i64(x, X_HEADER * 8)
    most_bytes, most_messages = load_i64(x, X_MOST_BYTES * 8), load_i64(x, X_MOST_MESSAGES * 8)
    window, send_ns = load_i64(x, X_WINDOW_NS * 8), load_i64(x, X_SEND_NS * 8)
    unit, at, used, index, begun, closed = np.int64(-1), np.int64(0), np.int64(0), np.int64(0), np.int64(0), True
    for row in range(rows):
        line = journal + row * LINE_BYTES
        ts, about = load_i64(line, TS * 8), kinds + load_i64(line, KIND * 8) * DIRECT_KIND_BYTES
        size, how = load_i64(about, Y_BYTES * 8), load_i64(about, Y_HOW * 8)
        if size == 0:
            continue
        if at + size + PACKET_HEADER > capacity:
            return NO_ROOM
        late = ts - begun > window
        if closed or how != TOGETHER or late or used + size > most_bytes or index + 1 >= most_messages:
            unit += 1
            number = following if how != BEAT else np.int64(0)
            following += 1 if how != BEAT else 0
            store_i64(starts, unit * 8, at)
            store_i64(sequences, unit * 8, number)
            store_i64(out, at, header)
            store_u32(out, at + 4, np.uint32(number))
            at += PACKET_HEADER
            used, index, begun, closed = np.int64(PACKET_HEADER), np.int64(-1), ts, how != TOGETHER
        used, index = used + size, index + 1
        store_u64(out, load_i64(starts, unit * 8) + 8, np.uint64(ts + send_ns))
        store_i64(times, unit * 8, ts + send_ns)
        message = out + at
        memmove(message, load_i64(about, Y_IMAGE * 8), size)
        instruction = load_i64(about, Y_INSTRUCTIONS * 8)
        for _ in range(load_i64(about, Y_COUNT * 8)):
            carry_out(message, instruction, line, following)
            instruction += INSTRUCTION_BYTES
        at += size
        store_i64(ends, unit * 8, at)
    store_i64(x, X_NEXT * 8, following)
    return unit + 1
