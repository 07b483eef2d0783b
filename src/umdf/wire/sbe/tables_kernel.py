"""The tables that drive the SBE kernels: the names of their slots, and how a kernel reads and writes them.

A table is an array of int64. `decode_packets` takes the address of the table of arguments, from which all others are
reached; `layout` fills in what the schema says, `decode` the addresses.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import inlined, load_i64, store_i64

# Slots of the table of arguments.
BUFFER, BUFFER_SIZE, STARTS, ENDS, PACKETS = 0, 1, 2, 3, 4
NODES, NODE_COUNT, COLUMNS, PARTS, NODE_OF_TEMPLATE, SCHEMA_ID = 5, 6, 7, 8, 9, 10
DATA_USED, DATA_CAPACITY, DATA_ADDRESS, DATA_COUNT, DATA_SAVED = 11, 12, 13, 14, 15
MESSAGES = 16
QUARANTINE, QUARANTINE_ROWS, QUARANTINE_CAPACITY, FULL, VALIDITY, STACK, FIRST, BASE = 17, 18, 19, 20, 21, 22, 23, 24
WINDOW_FIRST, ANY_TRACKED = 25, 26  # UNUSUAL: of the batch, some column is tracked
# The versions that the schema serves, and the lowest and the highest of the batch that it does not.
OLDEST, NEWEST, LOWEST_OTHER, HIGHEST_OTHER = 27, 28, 29, 30
ARGUMENTS = 31
NO_OTHER = 1 << 16  # LOWEST_OTHER: there is none

# A node, as int64s. First what the walk of a message of the expected kind needs: one cache line.
N_HEADER, N_FRAMING = 0, 1  # the expected SBE header and framing header, each as one word
N_PENDING, N_FREE = 2, 3  # rows found and not gathered yet, and how many can be
N_ROW_OFFSETS = 4  # address of the list of where rows start (u32, from BASE); of a root, TAGS further on, of their tags
N_INCOMPLETE = 7  # some row of these does not carry every column
N_COLUMNS, N_COLUMNS_END, N_PARTS, N_PARTS_END, N_END = 8, 9, 10, 11, 12  # N_LAST: one past its descendants
N_FULL_LENGTH, N_MIN_VERSION = 13, 14  # a block at least so long, of at least this version, holds every column as it is
N_ROWS, N_CAPACITY, N_MAX_PENDING, N_PACKET, N_INDEX, N_META, N_PENDING_BEFORE_MESSAGE, N_PENDING_BEFORE_PASS = (
    15,
    16,
    17,
    18,
    19,
    20,
    21,
    22,
)
# N_SAVED and N_KEPT: rows found before this message, before this pass
NODE = 24
NO_FRAMING = -1  # what no simple message can have: the node is a group, or has groups or data

# A column, as int64s.
C_OFFSET, C_SIZE, C_KIND, C_NULLABLE, C_NULL, C_SINCE, C_UNTIL = 0, 1, 2, 3, 4, 5, 6
C_VALUES, C_BITMAP, C_TRACKED, C_TEXT = 7, 8, 9, 10  # addresses, and whether the unusual happened: a row of a
# column without null value was absent (so it has a bitmap), or one of a retired column was there (so it has values)
C_RETIRED = 11  # gone from newer versions, which its null value says: nothing is written while no row has it
C_STRICT_SINCE, C_NULL_BEFORE = 12, 13  # of a required column: in a row of a version before, this value means absent
COLUMN = 14
FIXED, TEXT = 0, 1

# A part behind a block, as int64s.
P_KIND, P_CHILD, P_LENGTH_SIZE, P_COUNT_SIZE, P_SINCE, P_OFFSETS = 0, 1, 2, 3, 4, 5
PART = 6
GROUP, DATA = 0, 1

# A quarantine row, as int64s: the packet, the message in it, the byte in the packet, the template and version as
# sent, why, which part (or -1), and the two numbers of the reason's text.
Q_PACKET, Q_INDEX, Q_OFFSET, Q_TEMPLATE, Q_VERSION, Q_REASON, Q_PART, Q_NEED, Q_LEFT = 0, 1, 2, 3, 4, 5, 6, 7, 8
QUARANTINE_ROW = 9

# Why a message (or the rest of a packet) is not among the rows.
PACKET_CUT, PACKET_TOO_LONG, HEADER_CUT, LENGTH_TOO_SMALL, LENGTH_PAST_END, ENCODING_UNKNOWN = 1, 2, 3, 4, 5, 6
BLOCK_PAST_END, GROUP_CUT, GROUP_PAST_END, GROUP_OF_NOTHING, DATA_CUT, DATA_PAST_END = 7, 8, 9, 10, 11, 12
TEMPLATE_UNKNOWN, SCHEMA_OTHER = 13, 14

PACKET_HEADER, MESSAGE_HEADER = 16, 12
MAX_PACKET_BYTES = 65535
NO_NODE = 0  # unknown templates lead to the first node, which is no template's and expects nothing
SBE_LITTLE_ENDIAN = 0xEB50  # framing header, encodingType (reference 5.2)
# A list of row offsets holds what one packet can: messages of 12 bytes, entries of one byte.
MESSAGES_PER_PASS, ENTRIES_PER_PASS = 8192, 1 << 16
ROW_KEYS_OFFSET = (
    4 * MESSAGES_PER_PASS
)  # a tag (u32) is the packet, from the first of the passes, and the index in it << 16
PREFETCH_BYTES = 2048  # bytes: the gathering between two walks throws the processor's own prefetching off
PASS_PACKETS = 96  # walked, then gathered: small enough to stay in the cache
WINDOW_PACKETS = 2048  # after which every node is gathered, however few its rows
MIN_GATHER_ROWS = 192  # rows of a node, to be gathered after a pass
MAX_DEPTH = 8

# What FULL says when a buffer has to grow; a node's number when it is the node's.
NOTHING_FULL, QUARANTINE_FULL, DATA_FULL = -1, -2, -3
OK, DAMAGED, STOP = 0, 1, 2  # what a walk came to


@inlined
def get(base, index):
    """The int64 in this slot of a table."""
    return load_i64(base, 8 * index)


@inlined
def put(base, index, value):
    store_i64(base, 8 * index, np.int64(value))
