"""Which updates may be applied to a book: the trust of each book, row by row, in the order of the stream.

Invariant: what is applied to a book that is not stale has the next RptSeq (83) of that book (5.2.2). An update that
shows that others are missing makes its book stale; it and everything after it waits in the queue, and the book stays
as it was. Whether a book is unverified is not stored but derived: it is, if the stream has a gap after the sequence up
to which the book is verified.
"""

from __future__ import annotations

import numpy as np

from umdf.book.arena_kernel import find_book
from umdf.book.memory_layout_kernel import (
    ACTION_CLEAR,
    BOOK_HIGH_WATER,
    F_SNAPSHOT,
    RPT_SEQ_GAP,
    SIDE_NEITHER,
    VENUE_LENDING,
    get,
    put,
)
from umdf.kernels import inlined, kernel, load_i32, load_i64, load_u8, store_u8
from umdf.sync.rpt_seq_kernel import FOLLOWS, SEEMS_TO_FOLLOW, UPDATES_MISSING, compare_rpt_seq

NULL = -(1 << 63)
# Arguments of `gate_updates`. FIRST: the row to start with; GAP_BEFORE: for each row the last sequence of the latest
# gap before it, below zero if there is none.
(
    BOOKS, ROWS, FIRST, STATES, SEQUENCE, GAP_BEFORE, INSTRUMENT, VENUE, ACTION, SIDE, FLAGS, RPT_SEQ, DECISIONS,
) = range(13)  # fmt: skip
GATE_ARGUMENTS = 13
# State of a book. RPT_SEQ: the last one applied, NULL if any may follow, 0 if there was none. STALE: 0, or the reason.
# VERIFIED: nothing is missing up to this sequence. APPLIED: the sequence of the last row or snapshot that was applied.
# INCOMPLETE: updates, and so perhaps trades, were missed in this session. RECEIVED, EXPECTED: of the reason.
# AMBIGUOUS: the last gap up to which RptSeq proves nothing.
S_RPT_SEQ, S_STALE, S_VERIFIED, S_APPLIED, S_INCOMPLETE, S_RECEIVED, S_EXPECTED, S_AMBIGUOUS = range(8)
STATE_WORDS = 8
UNVERIFIED_FROM_START = -1  # of VERIFIED, APPLIED and AMBIGUOUS
# Decisions. APPLY_UNVERIFIED: nothing shows that it is the next one. EMPTIED: applied, and what waits for its book is
# out of date. EMPTIED_UNVERIFIED: the same, but units were lost before it, perhaps a channel reset, which clears
# statistics too.
APPLY, APPLY_UNVERIFIED, WAIT, OLD, EMPTIED, EMPTIED_UNVERIFIED = range(6)
NOT_NEEDED, NEEDED, TOO_OLD = range(3)  # of a snapshot


@inlined
def _set_known(s, rpt_seq, sequence):
    put(s, S_RPT_SEQ, rpt_seq)
    put(s, S_STALE, 0)
    put(s, S_VERIFIED, max(get(s, S_VERIFIED), sequence))
    put(s, S_APPLIED, max(get(s, S_APPLIED), sequence))


@inlined
def _is_untrusted(t, s, i):
    """Whether updates of a book are missing before a row, or may be."""
    return get(s, S_STALE) != 0 or load_i64(get(t, GAP_BEFORE), 8 * i) > get(s, S_VERIFIED)


@inlined
def _gate_update(t, s, i, sequence):
    """The decision on an update of a book, and what it means for the book's trust."""
    rpt_seq = load_i64(get(t, RPT_SEQ), 8 * i)
    if get(s, S_STALE) != 0:
        return np.uint8(WAIT)
    if sequence < get(s, S_VERIFIED):  # late, and the book is already beyond it
        return np.uint8(OLD)
    if rpt_seq == NULL:
        put(s, S_APPLIED, sequence)
        is_verified = load_i64(get(t, GAP_BEFORE), 8 * i) <= get(s, S_VERIFIED)
        return np.uint8(APPLY if is_verified else APPLY_UNVERIFIED)
    known, gap = get(s, S_RPT_SEQ), load_i64(get(t, GAP_BEFORE), 8 * i)
    is_unverified, is_ambiguous = gap > get(s, S_VERIFIED), get(s, S_AMBIGUOUS) > get(s, S_VERIFIED)
    verdict = compare_rpt_seq(known, rpt_seq, is_unverified, is_ambiguous)
    if verdict == SEEMS_TO_FOLLOW:
        put(s, S_AMBIGUOUS, gap)
        put(s, S_RPT_SEQ, rpt_seq)
        put(s, S_APPLIED, sequence)
        return np.uint8(APPLY_UNVERIFIED)
    if verdict == FOLLOWS:
        if is_unverified and (known == NULL or known == 0):  # an Empty Book may have been lost, and trades before it
            put(s, S_INCOMPLETE, 1)
        _set_known(s, rpt_seq, sequence)
        return np.uint8(APPLY)
    if verdict == UPDATES_MISSING:
        put(s, S_STALE, RPT_SEQ_GAP)
        put(s, S_RECEIVED, rpt_seq)
        put(s, S_EXPECTED, known)
        put(s, S_INCOMPLETE, 1)
        return np.uint8(WAIT)
    return np.uint8(OLD)


@kernel
def gate_updates(t):
    """Decides on rows from FIRST on; returns the row whose book does not exist yet, or the number of rows."""
    books, states = get(t, BOOKS), get(t, STATES)
    for i in range(get(t, FIRST), get(t, ROWS)):
        instrument, sequence = load_i64(get(t, INSTRUMENT), 8 * i), load_i64(get(t, SEQUENCE), 8 * i)
        is_clear = load_u8(get(t, ACTION), i) == ACTION_CLEAR and load_u8(get(t, SIDE), i) == SIDE_NEITHER
        if instrument == NULL:
            if is_clear:  # a channel reset: every book is empty, and RptSeq starts again (4.2.9)
                for number in range(get(books, BOOK_HIGH_WATER)):
                    s = states + 8 * STATE_WORDS * number
                    if _is_untrusted(t, s, i):
                        put(s, S_INCOMPLETE, 1)
                    _set_known(s, np.int64(NULL), sequence)
            store_u8(get(t, DECISIONS), i, np.uint8(EMPTIED if is_clear else APPLY))
            continue
        lending = np.int64(load_u8(get(t, VENUE), i) == VENUE_LENDING)
        number = find_book(books, instrument, lending)
        if number < 0:
            return i
        s = states + 8 * STATE_WORDS * number
        if is_clear and load_i32(get(t, FLAGS), 4 * i) & F_SNAPSHOT == 0:  # an Empty Book
            if sequence < get(s, S_APPLIED):
                store_u8(get(t, DECISIONS), i, np.uint8(OLD))
            else:
                untrusted = _is_untrusted(t, s, i)
                if untrusted:
                    put(s, S_INCOMPLETE, 1)
                _set_known(s, np.int64(NULL), sequence)
                store_u8(get(t, DECISIONS), i, np.uint8(EMPTIED_UNVERIFIED if untrusted else EMPTIED))
        else:
            store_u8(get(t, DECISIONS), i, _gate_update(t, s, i, sequence))
    return get(t, ROWS)


@kernel
def examine_snapshots(books, states, rows, latest_gap, empty_until, instruments, lending, sequences, found):
    """Whether the book of each snapshot needs it, as far as the book's own state tells."""
    for i in range(rows):
        number = find_book(books, load_i64(instruments, 8 * i), load_i64(lending, 8 * i))
        stale, verified, applied = np.int64(0), np.int64(UNVERIFIED_FROM_START), np.int64(empty_until)
        if number >= 0:
            s = states + 8 * STATE_WORDS * number
            stale, verified, applied = get(s, S_STALE), get(s, S_VERIFIED), get(s, S_APPLIED)
        if load_i64(sequences, 8 * i) < applied:
            store_u8(found, i, np.uint8(TOO_OLD))
            continue
        is_known = number >= 0 and applied > UNVERIFIED_FROM_START
        is_healthy = is_known and stale == 0 and latest_gap <= max(verified, empty_until)
        store_u8(found, i, np.uint8(NOT_NEEDED if is_healthy else NEEDED))
