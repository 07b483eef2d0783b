"""The tables of int64 that the FAST kernels are driven by: their slots, and how a word is read and written.

`layout` fills them, `decoder` owns them, the kernels and the generated code read and write them.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import inlined, load_i64, store_i64

# The table of arguments. The input's addresses and sizes; what to decode; the limits (`transfer_encoding.Limits`).
BUFFER, BUFFER_SIZE, STARTS, ENDS, MESSAGES, FIRST, SCRATCH, SCRATCH_SIZE = 0, 1, 2, 3, 4, 5, 6, 7
NODES, TEXTS, LISTS, INSTRUCTIONS, SLOTS, PROGRAMS, PROGRAM_INDEX, PROGRAM_INDEX_SIZE = 8, 9, 10, 11, 12, 13, 14, 15
QUARANTINE, QUARANTINE_ROWS, QUARANTINE_CAPACITY, STACK, FULL, USE_GENERATED = 16, 17, 18, 19, 20, 21
KEEP_DICTIONARY, EPOCH, TEMPLATE_ID, SLOT_COUNT, SLOTS_SAVED = 22, 23, 24, 25, 26
MAX_PRESENCE_BYTES, MAX_INTEGER_BYTES, MAX_ENTRIES, MAX_EMPTY_ENTRIES, MAX_NESTING, MAX_COMBINED_BYTES = (
    27,
    28,
    29,
    30,
    31,
    32,
)
# The message at hand, for what is called from the middle of it.
MESSAGE, MESSAGE_START, DEPTH, COMBINED, CURRENT_TEMPLATE = 33, 34, 35, 36, 37
# What a careful read leaves: the value as 128 bits, whether it is NULL, and where the next item starts.
HIGH, LOW, NULL, NEXT, LENGTH, FAULT_OFFSET, FAULT_INSTRUCTION = 38, 39, 40, 41, 42, 43, 44
NODE_COUNT, COLUMNS = 45, 46  # COLUMNS: the address of every column's values, for generated code
ONE_START, ONE_END = 47, 48  # of a message that is decoded alone
ARGUMENTS = 49

# A node: a message's body or the entries of a sequence.
N_ROWS, N_CAPACITY, N_MASKS, N_MASK_WORDS, N_BITMAPS, N_BITS = 0, 1, 2, 3, 4, 5
N_TEXTS, N_TEXTS_END, N_LISTS, N_LISTS_END, N_MESSAGE, N_SAVED = 6, 7, 8, 9, 10, 11  # ranges as addresses
NODE = 12

# The bytes of one string or byte vector column.
T_OFFSETS, T_BYTES, T_USED, T_CAPACITY, T_SAVED, T_NODE = 0, 1, 2, 3, 4, 5
TEXT = 6

# A sequence as a column of the node that it stands in: Arrow's list offsets, and the node of its entries.
L_OFFSETS, L_CHILD = 0, 1
LIST = 2

# A template.
P_START, P_ROOT, P_NODES_END, P_TEXTS, P_TEXTS_END, P_BITS, P_GENERATED, P_REFERENCE, P_ID = 0, 1, 2, 3, 4, 5, 6, 7, 8
PROGRAM = 10

# A dictionary entry. STATE is 4 · epoch + state: entries of an older epoch are undefined, so a reset is one addition.
S_STATE, S_TYPE, S_VALUE, S_MORE = 0, 1, 2, 3  # MORE: a decimal's exponent (its VALUE is the mantissa), a text's length
SLOT = 4
UNDEFINED, EMPTY, ASSIGNED = 0, 1, 2

# An instruction.
I_OP, I_OPTIONAL, I_BIT, I_VALUES, I_SHIFT, I_SLOT, I_INITIAL, I_HAS_INITIAL = 0, 1, 2, 3, 4, 5, 6, 7
I_LOW, I_HIGH, I_TYPE, I_ROLE, I_TEXT, I_JUMP, I_MORE, I_EXPONENTS = 8, 9, 10, 11, 12, 13, 14, 15
INSTRUCTION = 16

# Its operation. Integers: INTEGER + 2 · operator + signed; decimals and texts: their first + operator.
END_MESSAGE, END_GROUP, END_ENTRY, GROUP, SEQUENCE, OPEN, MASK_WORD, REFILL, SKIP, BIT, PRICE = range(11)
NONE, DEFAULT, COPY, INCREMENT, DELTA, CONSTANT, TAIL = range(7)
INTEGER, DECIMAL, TEXTUAL = 16, 32, 48
# What an integer is for: a column, the exponent of a decimal (absent: the mantissa is not there), a sequence's length.
COLUMN, EXPONENT, COUNT = 0, 1, 2
# Types, as in a dictionary entry.
TYPES = ("int32", "uInt32", "int64", "uInt64", "decimal", "ascii", "unicode", "byteVector")
INT32, UINT32, INT64, UINT64, DECIMAL_TYPE, ASCII, UNICODE, BYTES = range(8)

# A frame of the interpreter's stack: what a group or sequence returns to.
F_RETURN, F_LEFT, F_INDEX, F_NODE, F_ROW, F_MASK, F_WORD, F_PRESENCE, F_MISSING_BITS, F_MAP, F_MAP_BYTES = range(11)
FRAME = 12
MAX_FRAMES = 18  # one more than the loader allows, and the message itself

# A quarantine row; the indexes of entries stand behind, as uint32.
Q_MESSAGE, Q_OFFSET, Q_CODE, Q_INSTRUCTION, Q_COUNT, Q_TEMPLATE, Q_DEPTH = range(7)
Q_INDEXES = 8
QUARANTINE_ROW = Q_INDEXES + MAX_FRAMES // 2
MAX_QUARANTINE_ROWS_PER_MESSAGE = 12  # nine kinds of reports, one error

# Codes: R1 to R9 are 1 to 9, D1 to D12 are 11 to 22, ours follow.
R1, R2, R6, R7, R8, R9 = 1, 2, 6, 7, 8, 9
D2, D4, D5, D6, D7, D9 = 12, 14, 15, 16, 17, 19
T1, T2, T3 = 31, 32, 33
OUT_OF_ROOM = 40  # no fault of the message: something must grow, then it is read again

# What FULL says: a node's or text's number, or one of these.
NOTHING_FULL, QUARANTINE_FULL, SCRATCH_FULL, OUTSIDE_BUFFER = -1, -2, -3, -4
TEXT_FULL = 1 << 32  # + the text's number; LENGTH says how many bytes it needs

# Bytes behind a message that may be read, though not used.
SLACK = 32
# Bytes behind a text that may be written: eight are copied at a time.
TEXT_SLACK = 16
# Bytes that every text column has free beyond a message's own length when the message begins, so that generated code
# need not look: MOST_REPEATED from previous and default values, and what it may read behind the end before it notices.
TEXT_RESERVE, MAX_REPEATED_BYTES = 1 << 13, 1 << 12


@inlined
def word(base, index):
    return load_i64(base, 8 * index)


@inlined
def put(base, index, value):
    store_i64(base, 8 * index, np.int64(value))
