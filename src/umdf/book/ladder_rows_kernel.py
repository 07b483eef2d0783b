"""Rows of the best N levels of both sides, written while rows are applied.

A row is written when its ladder has changed: immediately, or at the end of the event (flag LAST) for all books that the
event changed. A book's last row is kept as its *ladder*, so that only a side that changed is read again.

In a book of orders by price the rank of the touched level decides whether it is in the ladder. In all others,
which are small or old, the ladder is kept before the row (by `apply_kernel`, off its hot path) and compared
after it.
"""

from __future__ import annotations

import numpy as np

from umdf.book import memory_layout_kernel as k
from umdf.book.apply_kernel import NEEDS_GROWTH, apply_row, mark_pending, prefetch_ahead, prefetch_first, store_outcome
from umdf.book.arena_kernel import A_BOOKS, arenas
from umdf.book.input_row_kernel import FLAGS, INSTRUMENT, columns_of, i32_in, i64_in
from umdf.book.ladder_kernel import BODY_BYTES, is_ladder_changed, write_side
from umdf.book.memory_layout_kernel import get, put
from umdf.kernels import inlined, kernel, load_i32, load_i64, outlined, prefetch, store_i32, store_i64

# A row: these, then the body of `ladder_kernel`.
R_ROW, R_INSTRUMENT, R_BOOK, R_FLAGS, R_BODY = 0, 8, 16, 20, 24
PREFETCH_ROWS = 4  # rows: memory to be written is prefetched, or stores wait for it one after the other
LADDER_BODY = 8  # behind the epoch: a ladder of an earlier one is not trusted


@inlined
def _write_row(t, a, b, instrument, row, flags, depth, sides):
    """Write a row of a book of which these sides (1 bids, 2 asks) have changed."""
    number, nbytes = (b - a[A_BOOKS]) // k.BOOK_BYTES, BODY_BYTES * depth
    ladder = get(t, k.LADDERS) + (LADDER_BODY + nbytes) * number
    body = ladder + LADDER_BODY
    if load_i64(ladder, 0) != get(t, k.LADDER_VERSION):
        store_i64(ladder, 0, get(t, k.LADDER_VERSION))
        sides = 3
    write_side(a, b, sides >> 1 if sides < 3 else k.BID, depth, body)  # nearly always one; which one cannot be guessed
    if sides == 3:
        write_side(a, b, k.ASK, depth, body)
    rows = get(t, k.OUT_ROWS)
    out = get(t, k.OUT) + (R_BODY + nbytes) * rows
    put(t, k.OUT_ROWS, rows + 1)
    prefetch(out, PREFETCH_ROWS * (R_BODY + nbytes))
    store_i64(out, R_ROW, row)
    store_i64(out, R_INSTRUMENT, instrument)
    store_i32(out, R_BOOK, np.int32(number))
    bad_book_flag = k.F_MAYBE_BAD_BOOK if load_i32(b, k.B_CHANGED_SIDES) & k.STALE_BIT != 0 else 0
    store_i32(out, R_FLAGS, np.int32(flags | bad_book_flag))
    for offset in range(0, 32 * depth, 8):
        store_i64(out, R_BODY + offset, load_i64(body, offset))
    for offset in range(32 * depth, nbytes, 4):
        store_i32(out, R_BODY + offset, load_i32(body, offset))


@outlined
def _write_pending(t, row, flags):
    """Write a row for each book that changed since the last end of an event."""
    a, depth, pending = arenas(t), get(t, k.DEPTH), get(t, k.PENDING)
    for index in range(get(t, k.PENDING_COUNT)):
        b = a[A_BOOKS] + k.BOOK_BYTES * load_i64(pending, 8 * index)
        changed_sides = np.int64(load_i32(b, k.B_CHANGED_SIDES)) & k.SIDES_MASK
        if changed_sides != 0:
            store_i32(b, k.B_CHANGED_SIDES, np.int32(load_i32(b, k.B_CHANGED_SIDES) & k.STALE_BIT))
            _write_row(t, a, b, load_i64(b, k.B_INSTRUMENT), row, flags, depth, changed_sides)
    put(t, k.PENDING_COUNT, 0)


@inlined
def _row_limit(t, first):
    """Up to which row the output has capacity, if none of them is a channel reset: a row makes at most one,
    a reset one of every book."""
    reserved = get(t, k.OUT_ROWS) + get(t, k.PENDING_COUNT) + get(t, k.BOOK_HIGH_WATER) + get(t, k.BOOKS_AVAILABLE)
    return max(first + get(t, k.OUT_CAPACITY) - reserved, first)


@inlined
def _apply_with_ladders(t, depth, per_row):
    a, c, first, rows = arenas(t), columns_of(t), get(t, k.FIRST), get(t, k.ROWS)
    outcomes, base, last = get(t, k.OUTCOMES), get(t, k.ROW_BASE), min(_row_limit(t, first), rows)
    prefetch_first(t, a, c, first, rows, 0)
    i = first
    while i < last:
        x, number = prefetch_ahead(t, a, c, i, rows)
        outcome, b, side, rank = apply_row(t, a, c, i, base + i, x, number, depth)
        if outcome == NEEDS_GROWTH:
            return i
        store_outcome(outcomes, i, outcome)
        if rank < depth:
            if b == 0:  # a channel reset
                if per_row:
                    _write_pending(t, base + i, i32_in(c, FLAGS, i))
                last = min(_row_limit(t, i + 1), rows)
            elif get(t, k.SAVED_LADDER_ROW) != base + i or is_ladder_changed(t, a, b, depth):
                if per_row:
                    _write_row(t, a, b, i64_in(c, INSTRUMENT, i), base + i, i32_in(c, FLAGS, i), depth, side + 1)
                else:
                    mark_pending(t, b, side + 1)
        if not per_row and i32_in(c, FLAGS, i) & k.F_LAST != 0 and get(t, k.PENDING_COUNT) > 0:
            _write_pending(t, base + i, i32_in(c, FLAGS, i))
        i += 1
    if last < rows:
        put(t, k.FULL, k.OUTPUT_FULL)
    return last


# Three kernels, because what is constant in the loop costs nothing there.


@kernel
def apply_with_top(t):
    """As `apply_without_ladders`, and a row for each change of the best level of a book."""
    return _apply_with_ladders(t, 1, True)


@kernel
def apply_with_depth(t):
    """As `apply_without_ladders`, and a row for each change of the best DEPTH levels of a book."""
    return _apply_with_ladders(t, get(t, k.DEPTH), True)


@kernel
def apply_with_depth_at_event_end(t):
    """As `apply_without_ladders`, and at the end of an event a row for each book whose best DEPTH levels changed."""
    return _apply_with_ladders(t, get(t, k.DEPTH), False)
