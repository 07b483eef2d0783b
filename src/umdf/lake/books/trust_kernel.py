"""Trust of the books, row by row; positions of one list in another; the current best levels.

Invariant of `track_trust`: it agrees with the book engine about RptSeq (5.2.2), and also uses the gaps of the stream.
Rows are grouped by book, in wire order; the state table has what is known about each book.
"""

from __future__ import annotations

import numpy as np

from umdf.book.arena_kernel import A_BOOKS, arenas, find_book
from umdf.book.ladder_kernel import store_level, write_side
from umdf.book.memory_layout_kernel import ACTION_CLEAR, BOOK_BYTES, F_SNAPSHOT, NULL_I32, SIDE_NEITHER, get, put
from umdf.kernels import inlined, kernel, load_i8, load_i32, load_i64, load_u8, load_u64, store_i64, store_u8

NULL = -(1 << 63)
# Arguments of `track_trust`.
ROWS, BOOK, ACTION, SIDE, FLAGS, RPT_SEQ, OUTCOMES, GAPS, TIMES, STATES, BAD, LOST_FROM, ANSWERS = range(13)
TRUST_ARGUMENTS = 13
# State of a book: RptSeq as in the engine, whether it is stale or unverified, the number of gaps it knows, the time of
# its last row, whether it was seen or deleted, and the first gap for which it is unverified.
S_RPT_SEQ, S_STALE, S_UNVERIFIED, S_GAPS, S_TS, S_SEEN, S_FIRST_GAP = range(7)
STATE_COLUMNS = 7
UNSEEN, ACTIVE, DELETED = range(3)  # values of S_SEEN; DELETED: no more updates of the instrument are expected
IS_STALE, IS_UNVERIFIED = 1, 2  # bits of BAD
# Bits of ANSWERS: updates are missing; the gaps of an unverified book are answered; the book was emptied, which
# answers everything.
MISSED, ANSWERED, EMPTIED = 1, 2, 4
# In FLAGS: a synthetic row that empties a book, for a channel reset or a deleted instrument.
IS_SYNTHETIC, IS_DELETED = 1 << 29, 1 << 30
UNKNOWN_START = NULL + 1  # start of a loss window: unknown


@inlined
def _mark_loss(t, s, i):
    """Record a loss between the last row and this one."""
    store_i64(get(t, LOST_FROM), 8 * i, get(s, S_TS) if get(s, S_SEEN) != UNSEEN else np.int64(UNKNOWN_START))


@inlined
def _check_rpt_seq(t, s, i, rpt_seq):
    """Whether updates are missing before this one."""
    known, missed = get(s, S_RPT_SEQ), False
    if known == NULL:  # after an Empty Book any number may follow, unless updates may be missing
        if get(s, S_UNVERIFIED) != 0 and rpt_seq != 1:
            missed = True
    elif rpt_seq <= known:
        return False
    elif rpt_seq != known + 1:
        missed = True
    if missed:
        put(s, S_STALE, 1)
        _mark_loss(t, s, i)
    put(s, S_UNVERIFIED, 0)
    put(s, S_RPT_SEQ, rpt_seq)
    return missed


@kernel
def track_trust(t):
    """For each row: whether its book may be wrong after it (BAD), since when updates are missing before it, and its
    answers to gaps (ANSWERS): GAPS comes in as the number of gaps before the row, and becomes the first gap that the
    row answers.
    """
    for i in range(get(t, ROWS)):
        s = get(t, STATES) + 8 * STATE_COLUMNS * np.int64(load_i32(get(t, BOOK), 4 * i))
        gaps, flags = load_i64(get(t, GAPS), 8 * i), load_i32(get(t, FLAGS), 4 * i)
        if flags & IS_SYNTHETIC != 0 and get(s, S_SEEN) != ACTIVE:  # there is nothing to empty
            store_i64(get(t, LOST_FROM), 8 * i, NULL)
            continue
        if gaps > get(s, S_GAPS):
            if get(s, S_UNVERIFIED) == 0:
                put(s, S_FIRST_GAP, get(s, S_GAPS))
            put(s, S_GAPS, gaps)
            put(s, S_UNVERIFIED, 1)
        doubt, missed, emptied = get(s, S_UNVERIFIED) != 0, False, False
        store_i64(get(t, GAPS), 8 * i, get(s, S_FIRST_GAP) if doubt else gaps)
        store_i64(get(t, LOST_FROM), 8 * i, NULL)
        rpt_seq, snapshot = load_i64(get(t, RPT_SEQ), 8 * i), flags & F_SNAPSHOT != 0
        if load_u8(get(t, ACTION), i) == ACTION_CLEAR and load_u8(get(t, SIDE), i) == SIDE_NEITHER:
            if doubt:
                _mark_loss(t, s, i)
            put(s, S_RPT_SEQ, rpt_seq if snapshot else np.int64(NULL))
            put(s, S_STALE, 0)
            put(s, S_UNVERIFIED, 0)
            emptied = True
        elif rpt_seq != NULL and not snapshot:
            missed = _check_rpt_seq(t, s, i, rpt_seq)
        if load_i8(get(t, OUTCOMES), i) < 0:
            put(s, S_STALE, 1)
        bad = (IS_STALE if get(s, S_STALE) != 0 else 0) | (IS_UNVERIFIED if get(s, S_UNVERIFIED) != 0 else 0)
        store_u8(get(t, BAD), i, np.uint8(bad))
        # A book that was not seen yet has no unanswered gaps.
        answered = doubt and get(s, S_UNVERIFIED) == 0 and not missed and get(s, S_SEEN) == ACTIVE
        said = (MISSED if missed else 0) | (ANSWERED if answered else 0) | (EMPTIED if emptied else 0)
        store_u8(get(t, ANSWERS), i, np.uint8(said))
        put(s, S_TS, load_i64(get(t, TIMES), 8 * i))
        put(s, S_SEEN, DELETED if flags & IS_DELETED != 0 else ACTIVE)
    return 0


# Arguments of `find_positions`: rows by (group, key), others by (group, key), the positions of these.
IN_ROWS, IN_GROUP, IN_KEY, OTHERS, OF_GROUP, OF_KEY, INCLUDE_EQUAL, POSITIONS = range(8)
POSITION_ARGUMENTS = 8


@kernel
def find_positions(t):
    """For each of the others how many rows precede it; with INCLUDE_EQUAL also those of the same key."""
    rows, row, behind = get(t, IN_ROWS), 0, get(t, INCLUDE_EQUAL) != 0
    for i in range(get(t, OTHERS)):
        group, key = load_i32(get(t, OF_GROUP), 4 * i), load_u64(get(t, OF_KEY), 8 * i)
        while row < rows:
            there, own = load_i32(get(t, IN_GROUP), 4 * row), load_u64(get(t, IN_KEY), 8 * row)
            if there > group or (there == group and (own > key or (own == key and not behind))):
                break
            row += 1
        store_i64(get(t, POSITIONS), 8 * i, row)
    return 0


# Arguments of `write_ladders`.
TABLE, BOOKS, IDS, LENDING, DEPTH, STRIDE, OUT = range(7)
LADDER_ARGUMENTS = 7


@kernel
def write_ladders(t):
    """The best DEPTH levels of some books, as ladder rows; NULL if there is no book."""
    books, depth = get(t, TABLE), get(t, DEPTH)
    a = arenas(books)
    for i in range(get(t, BOOKS)):
        body = get(t, OUT) + get(t, STRIDE) * i
        number = find_book(books, load_i64(get(t, IDS), 8 * i), load_i64(get(t, LENDING), 8 * i))
        for side in range(2):
            if number >= 0:
                write_side(a, a[A_BOOKS] + BOOK_BYTES * number, side, depth, body)
            else:
                for rank in range(depth):
                    store_level(body, depth, side, rank, np.int64(NULL), np.int64(NULL), np.int64(NULL_I32))
    return 0
