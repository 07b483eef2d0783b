"""Whether the books can be trusted, row by row; where events of one list stand in another; the best levels at a moment.

The one rule of `follow`: it says the same as the book engine about RptSeq (5.2.2) and knows more, the gaps of the
stream. Rows come grouped by book, each book in the order of the wire; what is known of a book stands in its state.
"""

from __future__ import annotations

import numpy as np

from umdf.book.arena_kernel import A_BOOKS, arenas, find_book
from umdf.book.show_kernel import put_level, show_side
from umdf.book.tables_kernel import ACTION_CLEAR, BOOK_BYTES, F_SNAPSHOT, NULL_I32, SIDE_NEITHER, at, put
from umdf.kernels import inlined, kernel, load_i8, load_i32, load_i64, load_u8, load_u64, store_i64, store_u8

NULL = -(1 << 63)
# Arguments of `follow`.
ROWS, BOOK, ACTION, SIDE, FLAGS, RPT_SEQ, OUTCOMES, GAPS, TIMES, STATES, BAD, LOST_FROM, SAID = range(13)
FOLLOW_ARGUMENTS = 13
# State of a book: RptSeq as the engine has it, whether it is stale or in doubt, how many gaps it knows of, the time of
# its last row, whether there is anything to be known of it, and the first of the gaps that it is in doubt about.
S_RPT_SEQ, S_STALE, S_DOUBT, S_GAPS, S_TS, S_SEEN, S_FROM = range(7)
STATE = 7
UNSEEN, HERE, GONE = range(3)  # of S_SEEN; GONE: the instrument was deleted, nothing more is expected of it
IS_STALE, IN_DOUBT = 1, 2  # bits of BAD
# Bits of SAID: numbers are missing; a book that was in doubt has its answer; it was emptied, which answers everything.
MISSED, ANSWERED, EMPTIED = 1, 2, 4
# In FLAGS: this row was made to empty a book, because of a channel reset or because its instrument is deleted.
IS_MADE, IS_DELETED = 1 << 29, 1 << 30
BEGINNING = NULL + 1  # as the start of what was lost: nobody knows when


@inlined
def _lose(t, s, i):
    """Something was lost between the last row and this one."""
    store_i64(at(t, LOST_FROM), 8 * i, at(s, S_TS) if at(s, S_SEEN) != UNSEEN else np.int64(BEGINNING))


@inlined
def _next_number(t, s, i, rpt_seq):
    """Whether numbers are missing before this one."""
    known, missed = at(s, S_RPT_SEQ), False
    if known == NULL:  # after an Empty Book anything may follow, but not if something may be missing
        if at(s, S_DOUBT) != 0 and rpt_seq != 1:
            missed = True
    elif rpt_seq <= known:
        return False
    elif rpt_seq != known + 1:
        missed = True
    if missed:
        put(s, S_STALE, 1)
        _lose(t, s, i)
    put(s, S_DOUBT, 0)
    put(s, S_RPT_SEQ, rpt_seq)
    return missed


@kernel
def follow(t):
    """For each row whether its book may be wrong after it (BAD), since when something is missing before it, and what it
    says of the gaps (SAID): of those from GAPS, as it is then, to GAPS, as it came, how many there are before the row.
    """
    for i in range(at(t, ROWS)):
        s = at(t, STATES) + 8 * STATE * np.int64(load_i32(at(t, BOOK), 4 * i))
        gaps, flags = load_i64(at(t, GAPS), 8 * i), load_i32(at(t, FLAGS), 4 * i)
        if flags & IS_MADE != 0 and at(s, S_SEEN) != HERE:  # there is nothing to be emptied
            store_i64(at(t, LOST_FROM), 8 * i, NULL)
            continue
        if gaps > at(s, S_GAPS):
            if at(s, S_DOUBT) == 0:
                put(s, S_FROM, at(s, S_GAPS))
            put(s, S_GAPS, gaps)
            put(s, S_DOUBT, 1)
        doubt, missed, emptied = at(s, S_DOUBT) != 0, False, False
        store_i64(at(t, GAPS), 8 * i, at(s, S_FROM) if doubt else gaps)
        store_i64(at(t, LOST_FROM), 8 * i, NULL)
        rpt_seq, snapshot = load_i64(at(t, RPT_SEQ), 8 * i), flags & F_SNAPSHOT != 0
        if load_u8(at(t, ACTION), i) == ACTION_CLEAR and load_u8(at(t, SIDE), i) == SIDE_NEITHER:
            if doubt:
                _lose(t, s, i)
            put(s, S_RPT_SEQ, rpt_seq if snapshot else np.int64(NULL))
            put(s, S_STALE, 0)
            put(s, S_DOUBT, 0)
            emptied = True
        elif rpt_seq != NULL and not snapshot:
            missed = _next_number(t, s, i, rpt_seq)
        if load_i8(at(t, OUTCOMES), i) < 0:
            put(s, S_STALE, 1)
        bad = (IS_STALE if at(s, S_STALE) != 0 else 0) | (IN_DOUBT if at(s, S_DOUBT) != 0 else 0)
        store_u8(at(t, BAD), i, np.uint8(bad))
        # A book that nobody has seen yet owes no answer.
        answered = doubt and at(s, S_DOUBT) == 0 and not missed and at(s, S_SEEN) == HERE
        said = (MISSED if missed else 0) | (ANSWERED if answered else 0) | (EMPTIED if emptied else 0)
        store_u8(at(t, SAID), i, np.uint8(said))
        put(s, S_TS, load_i64(at(t, TIMES), 8 * i))
        put(s, S_SEEN, GONE if flags & IS_DELETED != 0 else HERE)
    return 0


# Arguments of `place_in`: rows by (group, key), others by (group, key), where these go.
IN_ROWS, IN_GROUP, IN_KEY, OTHERS, OF_GROUP, OF_KEY, BEHIND, PLACES = range(8)
PLACE_ARGUMENTS = 8


@kernel
def place_in(t):
    """For each of the others how many rows come before it; with BEHIND also those of the same key."""
    rows, row, behind = at(t, IN_ROWS), 0, at(t, BEHIND) != 0
    for i in range(at(t, OTHERS)):
        group, key = load_i32(at(t, OF_GROUP), 4 * i), load_u64(at(t, OF_KEY), 8 * i)
        while row < rows:
            there, own = load_i32(at(t, IN_GROUP), 4 * row), load_u64(at(t, IN_KEY), 8 * row)
            if there > group or (there == group and (own > key or (own == key and not behind))):
                break
            row += 1
        store_i64(at(t, PLACES), 8 * i, row)
    return 0


# Arguments of `show_books`.
TABLE, BOOKS, IDS, LENDING, DEPTH, STRIDE, OUT = range(7)
SHOW_ARGUMENTS = 7


@kernel
def show_books(t):
    """The best DEPTH levels of some books, as the body of a row of the ladders; NULL where there is no book."""
    books, depth = at(t, TABLE), at(t, DEPTH)
    a = arenas(books)
    for i in range(at(t, BOOKS)):
        body = at(t, OUT) + at(t, STRIDE) * i
        number = find_book(books, load_i64(at(t, IDS), 8 * i), load_i64(at(t, LENDING), 8 * i))
        for side in range(2):
            if number >= 0:
                show_side(a, a[A_BOOKS] + BOOK_BYTES * number, side, depth, body)
            else:
                for rank in range(depth):
                    put_level(body, depth, side, rank, np.int64(NULL), np.int64(NULL), np.int64(NULL_I32))
    return 0
