"""Rows of the best N levels of both sides, written while rows are applied.

A row is written when what it shows has changed: at once, or at the end of the event (flag LAST) for all books that the
event changed. A book's last row is kept as its *ladder*, so that only a side that changed is read again.

In a book of orders by price the key that was touched tells whether anybody can see it. In all others, which are small
or old, what there was to see is noted before the row and compared after it.
"""

from __future__ import annotations

import numpy as np

from umdf.book import tables_kernel as k
from umdf.book.apply_kernel import BOTH_SIDES, STOPPED, apply_row, keep_outcome, look_ahead, look_first, mark_pending
from umdf.book.arena_kernel import A_BOOKS, A_LEVELS, A_ORDERS, arenas, find_book, keys_of, price_of, side_of, slots_of
from umdf.book.row_kernel import FLAGS, INSTRUMENT, STREAM, columns_of, i32_in, i64_in, u8_in
from umdf.book.tables_kernel import at, put
from umdf.kernels import inlined, kernel, load_i32, load_i64, outlined, store_i32, store_i64

# A row: these, then prices, sizes and numbers of orders, of bids then asks each.
R_ROW, R_INSTRUMENT, R_BOOK, R_FLAGS, R_BODY = 0, 8, 16, 20, 24
BODY_BYTES = 40  # for each level of depth
LADDER_BODY = 8  # behind the epoch: a ladder of an earlier call is not trusted


@inlined
def put_level(body, depth, side, rank, price, size, count):
    place = side * depth + rank
    store_i64(body, 8 * place, price)
    store_i64(body, 16 * depth + 8 * place, size)
    store_i32(body, 32 * depth + 4 * place, np.int32(count))


@outlined
def _show_orders(a, b, side, depth, body):
    """The levels of a side of orders by position: runs of one price. Returns how many."""
    s = side_of(b, side)
    keys, place = keys_of(a, s), np.int64(load_i32(s, k.S_COUNT)) - 1
    slots, rank = slots_of(keys, s), 0
    while place >= 0 and rank < depth:
        key, size, count = load_i64(keys, 8 * place), np.int64(0), 0
        while place >= 0 and load_i64(keys, 8 * place) == key:
            size += load_i64(a[A_ORDERS] + k.ORDER_BYTES * np.int64(load_i32(slots, 4 * place)), k.O_SIZE)
            count += 1
            place -= 1
        put_level(body, depth, side, rank, price_of(side, key), size, count)
        rank += 1
    return rank


@inlined
def show_side(a, b, side, depth, body):
    s = side_of(b, side)
    if load_i32(b, k.B_KIND) == k.BY_POSITION:
        shown = _show_orders(a, b, side, depth, body)
    else:
        keys, count = keys_of(a, s), np.int64(load_i32(s, k.S_COUNT))
        slots, shown = slots_of(keys, s), min(count, depth)
        for rank in range(shown):
            place = count - 1 - rank
            v = a[A_LEVELS] + k.LEVEL_BYTES * np.int64(load_i32(slots, 4 * place))
            price = price_of(side, load_i64(keys, 8 * place))
            put_level(body, depth, side, rank, price, load_i64(v, k.L_SIZE), load_i32(v, k.L_COUNT))
    for rank in range(shown, depth):
        put_level(body, depth, side, rank, np.int64(k.NULL), np.int64(k.NULL), np.int64(k.NULL_I32))


@inlined
def _write_row(t, a, b, instrument, row, flags, depth, sides):
    """Write a row of a book of which these sides (1 bids, 2 asks) have changed."""
    number, nbytes = (b - a[A_BOOKS]) // k.BOOK_BYTES, BODY_BYTES * depth
    ladder = at(t, k.LADDERS) + (LADDER_BODY + nbytes) * number
    body = ladder + LADDER_BODY
    if load_i64(ladder, 0) != at(t, k.EPOCH):
        store_i64(ladder, 0, at(t, k.EPOCH))
        sides = 3
    show_side(a, b, sides >> 1 if sides < 3 else k.BID, depth, body)  # nearly always one; which one cannot be guessed
    if sides == 3:
        show_side(a, b, k.ASK, depth, body)
    rows = at(t, k.OUT_ROWS)
    out = at(t, k.OUT) + (R_BODY + nbytes) * rows
    put(t, k.OUT_ROWS, rows + 1)
    store_i64(out, R_ROW, row)
    store_i64(out, R_INSTRUMENT, instrument)
    store_i32(out, R_BOOK, np.int32(number))
    bad = k.F_MAYBE_BAD_BOOK if load_i32(b, k.B_DIRTY) & k.STALE_TOO != 0 else 0
    store_i32(out, R_FLAGS, np.int32(flags | bad))
    for place in range(0, 32 * depth, 8):
        store_i64(out, R_BODY + place, load_i64(body, place))
    for place in range(32 * depth, nbytes, 4):
        store_i32(out, R_BODY + place, load_i32(body, place))


@outlined
def _write_pending(t, row, flags):
    """Write a row for each book that changed since the last end of an event."""
    a, depth, pending = arenas(t), at(t, k.DEPTH), at(t, k.PENDING)
    for place in range(at(t, k.PENDING_COUNT)):
        b = a[A_BOOKS] + k.BOOK_BYTES * load_i64(pending, 8 * place)
        dirty = np.int64(load_i32(b, k.B_DIRTY)) & k.DIRTY_SIDES
        if dirty != 0:
            store_i32(b, k.B_DIRTY, np.int32(load_i32(b, k.B_DIRTY) & k.STALE_TOO))
            _write_row(t, a, b, load_i64(b, k.B_INSTRUMENT), row, flags, depth, dirty)
    put(t, k.PENDING_COUNT, 0)


@outlined
def _note(t, i, number, depth):
    """Keep what there is to see of a book before row i; returns whether the row's change must be compared with it."""
    if number < 0:
        c = columns_of(t)
        number = find_book(t, i64_in(c, INSTRUMENT, i), np.int64(u8_in(c, STREAM, i) == k.STREAM_LENDING))
    b = at(t, k.BOOKS) + k.BOOK_BYTES * number
    if number < 0 or load_i32(b, k.B_KIND) == k.ORDERS_BY_PRICE:
        return False
    for side in range(2):
        show_side(arenas(t), b, side, depth, at(t, k.NOTED))
    return True


@outlined
def _differs(t, b, depth):
    """Whether what there is to see is another than was noted."""
    noted = at(t, k.NOTED)
    body, differs = noted + BODY_BYTES * depth, False
    for side in range(2):
        show_side(arenas(t), b, side, depth, body)
    for place in range(0, BODY_BYTES * depth, 8):
        differs |= load_i64(noted, place) != load_i64(body, place)
    return differs


@inlined
def _is_seen(t, a, b, side, key, depth, noted):
    """Whether a touched level is among the best: then it is now, or was until this row."""
    if key == k.UNTOUCHED:
        return False
    if noted:
        return _differs(t, b, depth)
    if side == BOTH_SIDES:
        return True
    s = side_of(b, side)
    count = np.int64(load_i32(s, k.S_COUNT))
    if load_i32(b, k.B_KIND) != k.ORDERS_BY_PRICE:  # it was empty before
        return count > 0
    return count < depth or key >= load_i64(keys_of(a, s), 8 * (count - depth))


@inlined
def _run(t, depth):
    a, c, rows, outcomes, base = arenas(t), columns_of(t), at(t, k.ROWS), at(t, k.OUTCOMES), at(t, k.ROW_BASE)
    per_event, capacity = at(t, k.PER_EVENT), at(t, k.OUT_CAPACITY)
    look_first(t, a, c, at(t, k.FIRST), rows)
    for i in range(at(t, k.FIRST), rows):
        x, number = look_ahead(t, a, c, i, rows)
        noted, most = False, at(t, k.OUT_ROWS) + at(t, k.PENDING_COUNT)
        if number < 0 or load_i32(a[A_BOOKS] + k.BOOK_BYTES * number, k.B_KIND) != k.ORDERS_BY_PRICE:
            noted = _note(t, i, number, depth)
            most += at(t, k.BOOK_FRESH) if i64_in(c, INSTRUMENT, i) == k.NULL else 0  # it may be a channel reset
        if most >= capacity:
            put(t, k.FULL, k.NO_OUT)
            return i
        outcome, b, side, key = apply_row(t, a, c, i, base + i, x, number)
        if outcome == STOPPED:
            return i
        keep_outcome(outcomes, i, outcome)
        seen, flags = b != 0 and _is_seen(t, a, b, side, key, depth, noted), i32_in(c, FLAGS, i)
        if per_event != 0 and b != 0:
            if seen:
                _write_row(t, a, b, i64_in(c, INSTRUMENT, i), base + i, flags, depth, side + 1)
            continue
        if seen:
            mark_pending(t, b, side + 1)
        if (per_event != 0 or flags & k.F_LAST != 0) and at(t, k.PENDING_COUNT) > 0:
            _write_pending(t, base + i, flags)
    return rows


@kernel
def apply_with_top(t):
    """As `maintain`, and a row for each change of the best level of a book."""
    return _run(t, 1)


@kernel
def apply_with_depth(t):
    """As `maintain`, and a row for each change of the best DEPTH levels of a book."""
    return _run(t, at(t, k.DEPTH))
