"""The tables of int64 that the encode kernel is driven by; `program` and `encoder` fill them.

Operators, types and dictionary states are those of `decode.tables_kernel`; an instruction here is a different table.
"""

from __future__ import annotations

import numpy as np

from umdf.wire.fast.decode.tables_kernel import (
    ASCII,
    ASSIGNED,
    COLUMN,
    CONSTANT,
    COPY,
    COUNT,
    DECIMAL_TYPE,
    DEFAULT,
    DELTA,
    EMPTY,
    EXPONENT,
    INCREMENT,
    INT32,
    INT64,
    NONE,
    S_MORE,
    S_STATE,
    S_TYPE,
    S_VALUE,
    SLOT,
    UINT64,
    put,
    word,
)

# The table of arguments.
BUFFER, CAPACITY, USED, STARTS, ROWS, ENDS, FIRST, MESSAGES = range(8)
EPOCH, STACK, SCRATCH, SCRATCH_WIDTH, STATUS = range(8, 13)
ARGUMENTS = 16
DONE, USE_REFERENCE, FULL = range(
    3
)  # STATUS: all written; the reference writer must take the next message; the buffer must grow

# An instruction. VALUES: its column, a text's or a list's offsets, or the masks of an OPEN's node; CONTENT: the bytes
# of a text, the exponents of a decimal. LOW and HIGH: the ends of an integer's type; of a SKIP how many NULLs and bits;
# of an OPEN the bytes of its presence map (0: it has none; otherwise as many as the last time), and the most bytes that
# the segment takes by itself, without what texts hold.
I_OP, I_OPERATOR, I_OPTIONAL, I_BIT, I_WORD, I_VALUES, I_CONTENT, I_TYPE = range(8)
I_SLOT, I_INITIAL, I_MORE, I_HAS_INITIAL, I_ROLE, I_JUMP, I_LOW, I_HIGH = range(8, 16)
INSTRUCTION = 16
END_MESSAGE, END_GROUP, END_ENTRY, GROUP, SEQUENCE, OPEN, FLUSH, SKIP, BIT, INTEGER, WHOLE_DECIMAL, TEXT, TEMPLATE = (
    range(13)
)

DECIMAL = DECIMAL_TYPE

# Kinds of addresses that an instruction reads from.
MASKS, VALUES, CONTENT, OFFSETS = range(4)

# A frame: what a group or sequence returns to.
F_RETURN, F_LEFT, F_ROW, F_MASKS, F_BITS, F_COUNT, F_FLUSHED, F_MAP, F_ROOM, F_NEED, F_OPENED = range(11)
FRAME = 12

# Bytes behind what is written that may be written too: sixteen NULLs at once.
SLACK = 32
# Presence bits that are added without a look at how many there are; with the six that may be left from before they fit
# nine bytes of a map.
WINDOW = 56
MAX_NULLS = 16  # that a SKIP writes

STOP_BITS = np.uint64(0x8080808080808080)

__all__ = [
    "ASCII",
    "ASSIGNED",
    "COLUMN",
    "CONSTANT",
    "COPY",
    "COUNT",
    "DEFAULT",
    "DELTA",
    "EMPTY",
    "EXPONENT",
    "INCREMENT",
    "INT32",
    "INT64",
    "NONE",
    "SLOT",
    "S_MORE",
    "S_STATE",
    "S_TYPE",
    "S_VALUE",
    "UINT64",
    "put",
    "word",
]
