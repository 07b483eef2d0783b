"""The memory layout of books: the names of all fields, and the outcome codes of rows.

A channel's books are a few flat arenas, reached from one table of int64 (the argument of every kernel). Numbers, not
addresses, lead from one thing to another, so that Python can move an arena to larger memory between two calls.

    book hash ─► book ─► side: sorted keys and slots, the best last ─► level ─► its orders, a list in priority order
    order hash ─────────────────────────────────────────────────────► order ─► its level

A slot leads to a level, or straight to an order in a book of orders by position. A key is a price, turned so that
greater is better on both sides and no price is the greatest: bid price - 1, offer -price - 1, both wrapping.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import inlined, load_i64, store_i64

# Slots of the table. First where the arenas are, their capacity and how much is free.
ORDERS, COLD_ORDERS, ORDER_FREE_LIST, ORDER_HIGH_WATER, ORDERS_AVAILABLE = 0, 1, 2, 3, 4
HASH, HASH_SHIFT, HASH_MASK = 5, 6, 7
LEVELS, LEVEL_FREE_LIST, LEVEL_HIGH_WATER, LEVELS_AVAILABLE = 8, 9, 10, 11
BOOKS, BOOK_FREE_LIST, BOOK_HIGH_WATER, BOOKS_AVAILABLE = 12, 13, 14, 15
BOOK_HASH, BOOK_HASH_SHIFT, BOOK_HASH_MASK = 16, 17, 18
BLOCKS, BLOCKS_USED, BLOCKS_CAPACITY, BLOCK_FREE_LISTS = 19, 20, 21, 22  # BLOCK_FREE: 32 lists, by power of two
FULL = 54  # what has to grow
ROW_BASE = 55  # how many rows came before those of this call
# What a call is about: rows FIRST to ROWS - 1, their columns, where outcomes go.
FIRST, ROWS, OUTCOMES, COLUMNS = 56, 57, 58, 59
(
    C_ACTION, C_SIDE, C_PRICE, C_SIZE, C_ORDER_ID, C_FIRM, C_PREV_SIZE, C_POSITION, C_ORDER_COUNT, C_TS_INSERT,
    C_VENUE, C_UPDATE_ACTION, C_INSTRUMENT_ID, C_RPT_SEQ, C_FLAGS,
) = range(COLUMNS, COLUMNS + 15)  # fmt: skip
# Rows of the best levels, if wanted.
OUT, OUT_CAPACITY, OUT_ROWS, DEPTH, LADDERS, LADDER_VERSION = 74, 75, 76, 77, 78, 79
PENDING, PENDING_COUNT = 80, 81  # the books that changed since the last end of an event, in that order
SAVED_LADDER = 82  # the ladder of a book before a row, and space for another
LIVE_TABLE = 83  # the table of `live_kernel`
PREFETCH_RING = 84  # 16 pairs: what was found out about rows to come
FIRST_RPT_SEQ = PREFETCH_RING + 32  # what a new book has: NULL accepts whatever comes first, 0 only 1
SAVED_LADDER_ROW = PREFETCH_RING + 33  # the row before which NOTED was
REMOVED, REMOVED_COUNT = PREFETCH_RING + 34, PREFETCH_RING + 35  # what cancels without a price removed; 0: not wanted
TABLE_WORDS = PREFETCH_RING + 36
R_ROW, R_PRICE, R_SIZE = 0, 8, 16
REMOVED_BYTES = 24

# FULL: nothing, or what Python has to enlarge before it calls again.
NOTHING_FULL, ORDERS_FULL, LEVELS_FULL, BOOKS_FULL, BLOCKS_FULL, OUTPUT_FULL = 0, 1, 2, 3, 4, 5

# An order, in two parts: what every change touches, and what is only kept. Links and slots are numbers; -1 is none.
O_SIZE, O_ID, O_LEVEL, O_NEXT, O_PREV, O_OWNER = 0, 8, 16, 20, 24, 28  # owner: book << 2 | side << 1 | implied
ORDER_BYTES = 32
O_FIRM, O_TS_INSERT = 0, 8
COLD_BYTES = 16
HASH_BYTES = 8  # the upper half of the hash, then number of the order + 1; 0 is empty

L_KEY, L_SIZE, L_COUNT, L_HEAD, L_TAIL, L_IMPLIED = 0, 8, 16, 20, 24, 28
LEVEL_BYTES = 32

# A book: two cache lines, the second for what is rare. A side is offset of its block, entries, capacity.
B_MAX_ORDER_ID, B_RPT_SEQ, B_SIDES, B_BOOK_TYPE, B_DEPTH, B_DECLARED_DEPTH, B_CHANGED_SIDES = (
    0,
    8,
    16,
    48,
    52,
    56,
    60,
)  # the greatest id so far
B_STALE, B_STALE_ROW, B_STALE_RECEIVED, B_STALE_EXPECTED, B_LENDING, B_ALIVE, B_INSTRUMENT = (
    64,
    72,
    80,
    88,
    96,
    100,
    104,
)
BOOK_BYTES = 128
S_BLOCK, S_COUNT, S_CAPACITY = 0, 8, 12
SIDE_BYTES = 16
SIDES_MASK, STALE_BIT = (
    3,
    4,
)  # of B_CHANGED_SIDES: sides that changed since the last end of an event; whether B_STALE is set
MIN_BLOCK_POWER = 4  # 16 entries
SLACK = 8  # entries that a block always has left, so that a few are moved and compared without counting them
ENTRY_BYTES = 12  # of a block: a key (8), a slot (4)
BOOK_SLOT_BYTES = 16  # of the book hash: the instrument, then (number of the book + 1) << 1 | lending; 0 is empty

# A kind of book, as bits; UNDECIDED while nothing has ever been in it.
ORDERS_BY_PRICE, BY_POSITION, AGGREGATED, UNDECIDED = 0, 1, 2, 4
DEFAULT_DEPTH = 10  # 9.3
TOP_OF_BOOK = 1
UNDECLARED = -1

NULL = -(1 << 63)
NULL_I32 = -(1 << 31)
BEST, OUTSIDE_DEPTH = (
    0,
    (1 << 63) - 1,
)  # as the rank of what a row touched: perhaps the best level; nothing that can be seen
BID, ASK = 0, 1

# Outcomes of a row. Below zero the row was impossible, did nothing, and the book is stale.
NO_CHANGE, ADDED, CHANGED, DELETED, CLEARED, REPLACED, ALREADY_APPLIED = 0, 1, 2, 3, 4, 5, 6
UNKNOWN_ORDER, DUPLICATE_ORDER, SIDE_MISMATCH, PRICE_MISMATCH, SIZE_MISMATCH = -1, -2, -3, -4, -5
UNKNOWN_PRICE, DUPLICATE_PRICE, BAD_POSITION, GENERATION_MISMATCH, NO_ORDER_ID = -6, -7, -8, -9, -10
BAD_SIZE, BAD_SIDE, UNKNOWN_ACTION, NO_INSTRUMENT, AMBIGUOUS_LEVEL = -11, -12, -13, -14, -15
# Reasons to be stale that are no outcome of a row.
RPT_SEQ_GAP, MESSAGES_LOST = -16, -17
CONTRADICTED = -19  # of a book: a message came with two contents
VALUE_OUT_OF_RANGE = -18  # of a row: a price or size that no column can hold
NOT_HANDLED = 100  # of a first look at a row: it is one for a book of orders by price

ACTION_ADD, ACTION_MODIFY, ACTION_CANCEL, ACTION_CLEAR = 65, 77, 67, 82  # A M C R
ACTION_TRADE, ACTION_FILL, ACTION_NONE = 84, 70, 78  # T F N
SIDE_BID, SIDE_ASK, SIDE_NEITHER = 66, 65, 78  # B A N
VENUE_LENDING = 76  # L
DELETE_FROM, OVERLAY = 4, 5  # of 279
F_LAST, F_SNAPSHOT, F_IMPLIED, F_RECOVERY, F_MAYBE_BAD_BOOK, F_OUT_OF_RANGE = 128, 32, 1 << 8, 1 << 9, 4, 1 << 10


@inlined
def get(base, index):
    """The int64 in this slot of a table."""
    return load_i64(base, 8 * index)


@inlined
def put(base, index, value):
    store_i64(base, 8 * index, np.int64(value))


@inlined
def invalidate_ladders(t):
    """Books have changed without `ladder_rows_kernel`."""
    put(t, LADDER_VERSION, get(t, LADDER_VERSION) + 1)
