"""The rules of trust of a book, decided here once: what a gap, an update, an Empty Book and a snapshot mean for it.

A book is healthy, unverified (something was lost that may have affected it) or stale (something that affected it is
missing). Its state is one row of int64 columns (S_...), which these helpers change; s is the address of that row.
Invariant: unless a book is stale, its state and the book engine agree about RptSeq (5.2.2).
"""

from __future__ import annotations

import numpy as np

from umdf.book.memory_layout_kernel import ACTION_CLEAR, F_SNAPSHOT, SIDE_NEITHER, get, put
from umdf.kernels import inlined, kernel, load_i8, load_i32, load_i64, load_u8, store_i64, store_u8
from umdf.sync.rpt_seq_kernel import OLD, SEEMS_TO_FOLLOW, SHORT_HISTORY, UPDATES_MISSING, compare_rpt_seq

NULL = -(1 << 63)
# State of a book: its last RptSeq, whether it is stale or unverified, the number of gaps it knows, the time of
# its last row, whether it was seen or deleted, and the first gap for which it is unverified.
S_RPT_SEQ, S_STALE, S_UNVERIFIED, S_GAPS, S_TS, S_SEEN, S_FIRST_GAP = range(7)
STATE_COLUMNS = 7
UNSEEN, ACTIVE, DELETED = range(3)  # values of S_SEEN; DELETED: no more updates of the instrument are expected
UNVERIFIED, AMBIGUOUS = 1, 2  # values of S_UNVERIFIED; AMBIGUOUS: RptSeq followed, but that proves nothing
IS_STALE, IS_UNVERIFIED = 1, 2  # bits of `trust_bits`
UNKNOWN_START = NULL + 1  # start of a loss window: unknown
UNKNOWN_COUNT = 1 << 40  # of updates that are missing: any number


@inlined
def add_gaps(s, gaps):
    """So many gaps of the stream lie before what comes next: if some are new, the book is unverified."""
    if gaps > get(s, S_GAPS):
        if get(s, S_UNVERIFIED) == 0:
            put(s, S_FIRST_GAP, get(s, S_GAPS))
            put(s, S_UNVERIFIED, UNVERIFIED)
        put(s, S_GAPS, gaps)


@inlined
def add_update(s, rpt_seq):
    """An update with this RptSeq arrives: what `compare_rpt_seq` finds. A new state row has RptSeq 0."""
    unverified = get(s, S_UNVERIFIED)
    found = compare_rpt_seq(get(s, S_RPT_SEQ), rpt_seq, unverified != 0, unverified == AMBIGUOUS)
    if found == OLD:
        return found
    put(s, S_RPT_SEQ, rpt_seq)
    put(s, S_UNVERIFIED, AMBIGUOUS if found == SEEMS_TO_FOLLOW else 0)
    if found == UPDATES_MISSING:
        put(s, S_STALE, 1)
    return found


@inlined
def empty_book(s, rpt_seq):
    """An Empty Book (NULL: RptSeq restarts) or the start of a snapshot with this RptSeq: nothing before it matters."""
    put(s, S_RPT_SEQ, rpt_seq)
    put(s, S_STALE, 0)
    put(s, S_UNVERIFIED, 0)


@inlined
def missing_updates(known, rpt_seq):
    """How many updates are missing if one with this RptSeq came after `known`. An Empty Book, which restarts RptSeq
    (4.2.9), may be among them if the number is lower, or if the book had a short history."""
    return rpt_seq - known - 1 if known > SHORT_HISTORY and rpt_seq > known else np.int64(UNKNOWN_COUNT)


@inlined
def trust_bits(s):
    """0 if the book is healthy."""
    return (IS_STALE if get(s, S_STALE) != 0 else 0) | (IS_UNVERIFIED if get(s, S_UNVERIFIED) != 0 else 0)


# Arguments of `track_trust`.
ROWS, BOOK, ACTION, SIDE, FLAGS, RPT_SEQ, OUTCOMES, GAPS, TIMES, STATES = range(10)
BAD, LOST_FROM, LOST_UPDATES, ANSWERS = range(10, 14)
TRUST_ARGUMENTS = 14
# Bits of ANSWERS: updates are missing; the gaps of an unverified book are answered; the book was emptied, which
# answers everything.
MISSED, ANSWERED, EMPTIED = 1, 2, 4
# In FLAGS: a synthetic row that empties a book, for a channel reset or a deleted instrument.
IS_SYNTHETIC, IS_DELETED = 1 << 29, 1 << 30


@inlined
def _mark_loss(t, s, i, updates):
    """Record a loss of so many updates between the last row and this one."""
    store_i64(get(t, LOST_FROM), 8 * i, get(s, S_TS) if get(s, S_SEEN) != UNSEEN else np.int64(UNKNOWN_START))
    store_i64(get(t, LOST_UPDATES), 8 * i, np.int64(updates))


@kernel
def track_trust(t):
    """Rows of many books, grouped by book and in wire order. For each: whether its book may be wrong after it (BAD),
    since when updates are missing before it (LOST_FROM) and how many (LOST_UPDATES), and its answers to gaps (ANSWERS):
    GAPS comes in as the number of gaps before the row, and becomes the first gap that the row answers.
    """
    for i in range(get(t, ROWS)):
        s = get(t, STATES) + 8 * STATE_COLUMNS * np.int64(load_i32(get(t, BOOK), 4 * i))
        gaps, flags = load_i64(get(t, GAPS), 8 * i), load_i32(get(t, FLAGS), 4 * i)
        store_i64(get(t, LOST_FROM), 8 * i, NULL)
        if flags & IS_SYNTHETIC != 0 and get(s, S_SEEN) != ACTIVE:  # there is nothing to empty
            continue
        add_gaps(s, gaps)
        unverified, missed, emptied = get(s, S_UNVERIFIED) != 0, False, False
        store_i64(get(t, GAPS), 8 * i, get(s, S_FIRST_GAP) if unverified else gaps)
        rpt_seq, snapshot = load_i64(get(t, RPT_SEQ), 8 * i), flags & F_SNAPSHOT != 0
        known = get(s, S_RPT_SEQ)
        if load_u8(get(t, ACTION), i) == ACTION_CLEAR and load_u8(get(t, SIDE), i) == SIDE_NEITHER:
            emptied = True
            empty_book(s, rpt_seq if snapshot else np.int64(NULL))
        elif rpt_seq != NULL and not snapshot:
            missed = add_update(s, rpt_seq) == UPDATES_MISSING
        if missed or (emptied and unverified):
            _mark_loss(t, s, i, missing_updates(known, rpt_seq) if missed else np.int64(UNKNOWN_COUNT))
        if load_i8(get(t, OUTCOMES), i) < 0:  # an impossible row, or an unknown action
            put(s, S_STALE, 1)
        store_u8(get(t, BAD), i, np.uint8(trust_bits(s)))
        # A book that was not seen yet has no unanswered gaps.
        answered = unverified and get(s, S_UNVERIFIED) == 0 and not missed and get(s, S_SEEN) == ACTIVE
        answers = (MISSED if missed else 0) | (ANSWERED if answered else 0) | (EMPTIED if emptied else 0)
        store_u8(get(t, ANSWERS), i, np.uint8(answers))
        put(s, S_TS, load_i64(get(t, TIMES), 8 * i))
        put(s, S_SEEN, DELETED if flags & IS_DELETED != 0 else ACTIVE)
    return 0
