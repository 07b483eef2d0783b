"""One row applied to the books of a channel, whatever kind the book is; and the loop that does only that.

The order is always the same: find the book, make sure of capacity (so that nothing below can stop half-way), check
rpt_seq, then apply the entry by what the row carries.
"""

from __future__ import annotations

import numpy as np

from umdf.book import memory_layout_kernel as k
from umdf.book.arena_kernel import (
    A_BOOKS,
    A_HASH,
    A_LEVELS,
    A_ORDERS,
    A_SHIFT,
    add_book,
    arenas,
    delete_slot,
    ensure_capacity,
    find_book,
    find_order,
    free_level,
    free_order,
    keys_of,
    order_hash,
    order_in_slot,
    side_of,
    slots_of,
)
from umdf.book.input_row_kernel import (
    ACTION,
    FLAGS,
    INSTRUMENT,
    ORDER_ID,
    POSITION,
    RPT_SEQ,
    SIDE,
    UPDATE_ACTION,
    VENUE,
    columns_of,
    i32_in,
    i64_in,
    load_row,
    mark_stale,
    u8_in,
    update_action_in,
)
from umdf.book.ladder_kernel import save_ladder
from umdf.book.memory_layout_kernel import get, invalidate_ladders, put
from umdf.book.orders_kernel import apply_order
from umdf.book.price_and_position_kernel import apply_position_order, apply_price_level
from umdf.kernels import (
    inlined,
    kernel,
    load_i32,
    load_i64,
    load_u64,
    outlined,
    prefetch,
    store_i32,
    store_i64,
    store_u8,
    store_u64,
)

NEEDS_GROWTH = -100  # as an outcome: the row was not begun, something has to grow
BOTH_SIDES = 2
ORDER_DISTANCE, SIDE_DISTANCE, LEVEL_DISTANCE = 12, 4, 2  # rows; FAR is at most what the ring holds less the row itself
RING_MASK = 15


@outlined
def clear_side(t, b, side):
    """Take everything out of a side; returns whether there was anything."""
    a, s = arenas(t), side_of(b, side)
    count, keys = np.int64(load_i32(s, k.S_COUNT)), keys_of(a, s)
    slots, kind = slots_of(keys, s), load_i32(b, k.B_BOOK_TYPE)
    number = (b - a[A_BOOKS]) // k.BOOK_BYTES
    for index in range(count):
        slot = np.int64(load_i32(slots, 4 * index))
        if kind == k.BY_POSITION:
            free_order(t, a, slot)
            continue
        order = np.int64(load_i32(a[A_LEVELS] + k.LEVEL_BYTES * slot, k.L_HEAD))
        while order >= 0:
            o = a[A_ORDERS] + k.ORDER_BYTES * order
            following, order_id = np.int64(load_i32(o, k.O_NEXT)), load_i64(o, k.O_ID)
            x = order_hash(load_i64(b, k.B_INSTRUMENT), order_id)
            delete_slot(a, find_order(a, x, number, order_id))
            free_order(t, a, order)
            order = following
        free_level(t, a, slot)
    store_i32(s, k.S_COUNT, np.int32(0))
    return count > 0


@outlined
def clear_book(t, b, rpt_seq):
    """An empty book that nothing is wrong with; NULL accepts whatever rpt_seq comes next."""
    had_entries = clear_side(t, b, k.BID)
    had_entries |= clear_side(t, b, k.ASK)
    store_i64(b, k.B_RPT_SEQ, rpt_seq)
    store_i64(b, k.B_STALE, 0)
    store_i32(b, k.B_CHANGED_SIDES, np.int32(load_i32(b, k.B_CHANGED_SIDES) & k.SIDES_MASK))
    return had_entries


@inlined
def mark_pending(t, b, sides):
    """Mark that the ladder of a book changed; returns nothing."""
    changed_sides = np.int64(load_i32(b, k.B_CHANGED_SIDES))
    if changed_sides & k.SIDES_MASK == 0:
        count = get(t, k.PENDING_COUNT)
        store_i64(get(t, k.PENDING), 8 * count, (b - get(t, k.BOOKS)) // k.BOOK_BYTES)
        put(t, k.PENDING_COUNT, count + 1)
    store_i32(b, k.B_CHANGED_SIDES, np.int32(changed_sides | sides))


@outlined
def _reset_channel(t):
    """All books are empty and healthy; their ladders are pending if ladders are written."""
    for number in range(get(t, k.BOOK_HIGH_WATER)):
        b = get(t, k.BOOKS) + k.BOOK_BYTES * number
        if load_i32(b, k.B_ALIVE) != 0 and clear_book(t, b, np.int64(k.NULL)) and get(t, k.DEPTH) > 0:
            mark_pending(t, b, 3)


@outlined
def _apply_channel_row(t, action):
    if action == k.ACTION_CLEAR:
        _reset_channel(t)
        return np.int64(k.CLEARED), np.int64(k.BEST)
    if action == k.ACTION_NONE or action == k.ACTION_TRADE or action == k.ACTION_FILL:
        return np.int64(k.NO_CHANGE), np.int64(k.OUTSIDE_DEPTH)
    return np.int64(k.NO_INSTRUMENT), np.int64(k.OUTSIDE_DEPTH)


@outlined
def find_or_add_book(t, instrument, lending):
    """The number of the row's book, new or not; -1 if Python must grow."""
    number = find_book(t, instrument, lending)
    return number if number >= 0 else add_book(t, instrument, lending)


@outlined
def _is_already_applied(b, rpt_seq, flags, row):
    """rpt_seq that is not the next one; returns whether the row is old and so already in the book."""
    known = load_i64(b, k.B_RPT_SEQ)
    if rpt_seq == k.NULL or flags & k.F_SNAPSHOT != 0:  # the entries of a snapshot have the number of its start
        return False
    if known != k.NULL:
        if rpt_seq <= known:
            return True
        if rpt_seq - 1 != known:
            mark_stale(b, k.RPT_SEQ_GAP, row, rpt_seq, known)
    store_i64(b, k.B_RPT_SEQ, rpt_seq)
    return False


@outlined
def _infer_book_type(b, r):
    """While a book is empty, the next row decides its book type, unless it was declared (9.1, 9.3, 9.4)."""
    declared_depth = np.int64(load_i32(b, k.B_DECLARED_DEPTH))
    overlay = r[UPDATE_ACTION] == k.OVERLAY
    aggregated = declared_depth > 0 if declared_depth >= 0 else overlay or r[ORDER_ID] == k.NULL
    kind = k.AGGREGATED if aggregated else 0
    store_i32(b, k.B_BOOK_TYPE, np.int32(kind | k.BY_POSITION if r[POSITION] > 0 else kind))
    if declared_depth > 0:
        store_i32(b, k.B_DEPTH, np.int32(declared_depth))
    elif overlay:
        store_i32(b, k.B_DEPTH, np.int32(k.TOP_OF_BOOK))


@outlined
def _apply_uncommon_row(t, a, b, number, i, row, side):
    """A row that is not simply one for a book of orders by price: GO_ON if it is after all."""
    r, none = load_row(t, i), np.int64(k.OUTSIDE_DEPTH)
    save_ladder(t, a, b, row)
    action, update_action = r[ACTION], r[UPDATE_ACTION]
    of_entry = action == k.ACTION_ADD or action == k.ACTION_MODIFY or action == k.ACTION_CANCEL
    if not of_entry and action != k.ACTION_CLEAR:  # what it did to the book is not known
        return mark_stale(b, k.UNKNOWN_ACTION, row, action if update_action < 0 else update_action, 0), none
    if r[FLAGS] & k.F_OUT_OF_RANGE != 0:  # its price would look like none
        return mark_stale(b, k.VALUE_OUT_OF_RANGE, row, 0, 0), none
    if side < k.BID or side > k.ASK:
        return mark_stale(b, k.BAD_SIDE, row, r[SIDE], 0), none
    if action == k.ACTION_CLEAR and update_action != k.DELETE_FROM:  # also of an empty side (legacy 14.3)
        return k.CLEARED, np.int64(k.BEST) if clear_side(t, b, side) else none
    if load_i32(side_of(b, k.BID), k.S_COUNT) == 0 and load_i32(side_of(b, k.ASK), k.S_COUNT) == 0:
        _infer_book_type(b, r)
    kind = load_i32(b, k.B_BOOK_TYPE)
    if kind & k.AGGREGATED != 0:
        return apply_price_level(t, a, b, r, row, side)
    if update_action == k.OVERLAY:
        return mark_stale(b, k.UNKNOWN_ACTION, row, update_action, 0), none
    if kind == k.BY_POSITION:
        return apply_position_order(t, a, b, number, r, row, side)
    if r[POSITION] > 0:
        return mark_stale(b, k.GENERATION_MISMATCH, row, r[POSITION], 0), none
    if update_action == k.DELETE_FROM:
        return mark_stale(b, k.BAD_POSITION, row, r[POSITION], 0), none
    return np.int64(k.NOT_HANDLED), none


@inlined
def apply_row(t, a, c, i, row, x, number, depth):
    """Returns the outcome, the book's address (0: none, or all), the side and the rank that were touched.

    x is the row's `order_hash`, number that of its book if it was already known (else below zero), depth how many
    levels are written.
    """
    none, nobody, action, instrument = (
        np.int64(k.OUTSIDE_DEPTH),
        np.int64(0),
        u8_in(c, ACTION, i),
        i64_in(c, INSTRUMENT, i),
    )
    if instrument == k.NULL:
        outcome, rank = _apply_channel_row(t, action)
        return outcome, nobody, nobody, rank
    lending = np.int64(u8_in(c, VENUE, i) == k.VENUE_LENDING)
    if number < 0:
        number = find_or_add_book(t, instrument, lending)
        if number < 0:
            return np.int64(NEEDS_GROWTH), nobody, nobody, none
    b, side, flags = a[A_BOOKS] + k.BOOK_BYTES * number, k.SIDE_BID - u8_in(c, SIDE, i), i32_in(c, FLAGS, i)
    update_action, rpt_seq = update_action_in(c, i), i64_in(c, RPT_SEQ, i)
    if action == k.ACTION_ADD or update_action == k.OVERLAY:
        s = side_of(b, side & 1)
        full = load_i32(s, k.S_COUNT) + k.SLACK >= load_i32(s, k.S_CAPACITY)
        if (full or get(t, k.ORDERS_AVAILABLE) < 1 or get(t, k.LEVELS_AVAILABLE) < 1) and not ensure_capacity(t, s):
            return np.int64(NEEDS_GROWTH), b, nobody, none
    elif action == k.ACTION_CLEAR and u8_in(c, SIDE, i) == k.SIDE_NEITHER:
        snapshot = flags & k.F_SNAPSHOT != 0  # otherwise an Empty Book, after which rpt_seq restarts
        had_entries = clear_book(t, b, rpt_seq if snapshot else np.int64(k.NULL))
        return np.int64(k.CLEARED), b, np.int64(BOTH_SIDES), np.int64(k.BEST) if had_entries else none
    if rpt_seq == load_i64(b, k.B_RPT_SEQ) + 1 and flags & k.F_SNAPSHOT == 0:
        store_i64(b, k.B_RPT_SEQ, rpt_seq)
    elif _is_already_applied(b, rpt_seq, flags, row):
        return np.int64(k.ALREADY_APPLIED), b, nobody, none
    if action == k.ACTION_NONE or action == k.ACTION_TRADE or action == k.ACTION_FILL:
        return np.int64(k.NO_CHANGE), b, nobody, none
    is_entry_action = action == k.ACTION_ADD or action == k.ACTION_MODIFY or action == k.ACTION_CANCEL
    by_price = i32_in(c, POSITION, i) <= 0 and update_action < k.DELETE_FROM
    by_price = by_price and i64_in(c, ORDER_ID, i) != k.NULL and load_i32(b, k.B_BOOK_TYPE) == k.ORDERS_BY_PRICE
    by_price = by_price and flags & k.F_OUT_OF_RANGE == 0
    if not (is_entry_action and by_price):
        outcome, rank = _apply_uncommon_row(t, a, b, number, i, row, side)
        if outcome != k.NOT_HANDLED:
            return outcome, b, side, rank
    outcome, rank = apply_order(t, a, c, b, number, i, row, action, side, x, depth)
    return outcome, b, side, rank


# Memory is prefetched before it is needed, in three steps that each wait for the one before: the row's slot in the hash
# and its book; what these lead to, the order and the ends of the side; the order's level. A step may guess wrong (the
# order may stand in another slot), which costs nothing but time. What the first step found is kept in a ring.


@inlined
def prefetch_order(t, a, c, i):
    instrument = i64_in(c, INSTRUMENT, i)
    x = order_hash(instrument, i64_in(c, ORDER_ID, i))
    number = find_book(t, instrument, np.int64(u8_in(c, VENUE, i) == k.VENUE_LENDING))
    slot, ring_entry = 8 * np.int64(x >> np.uint64(a[A_SHIFT])), t + 8 * k.PREFETCH_RING + 16 * (i & RING_MASK)
    prefetch(a[A_HASH], slot)
    prefetch(a[A_HASH], slot + 8)  # a deletion looks at the next slot as well
    prefetch(a[A_BOOKS], k.BOOK_BYTES * number)
    store_u64(ring_entry, 0, x)
    store_i64(ring_entry, 8, number)


@inlined
def _likely_order(t, a, i):
    """The order in the first slot that a row's order may stand in."""
    x = load_u64(t + 8 * k.PREFETCH_RING + 16 * (i & RING_MASK), 0)
    return max(order_in_slot(a, np.int64(x >> np.uint64(a[A_SHIFT]))), 0)


@inlined
def prefetch_side(t, a, c, i):
    prefetch(a[A_ORDERS], k.ORDER_BYTES * _likely_order(t, a, i))
    number = max(load_i64(t + 8 * k.PREFETCH_RING + 16 * (i & RING_MASK), 8), 0)
    s = side_of(a[A_BOOKS] + k.BOOK_BYTES * number, (k.SIDE_BID - u8_in(c, SIDE, i)) & 1)
    keys, best = keys_of(a, s), np.int64(load_i32(s, k.S_COUNT)) - 1
    prefetch(keys, 8 * best)
    prefetch(keys, 8 * best - 64)
    prefetch(keys, 8 * best - 128)
    prefetch(slots_of(keys, s), 4 * best)


@inlined
def prefetch_level(t, a, i):
    """The level of the order that is there."""
    level = np.int64(load_i32(a[A_ORDERS] + k.ORDER_BYTES * _likely_order(t, a, i), k.O_LEVEL))
    prefetch(a[A_LEVELS], k.LEVEL_BYTES * level)


@inlined
def prefetch_ahead(t, a, c, i, rows):
    """One step for each of three rows to come; returns hash and book of this row."""
    if i + ORDER_DISTANCE < rows:
        prefetch_order(t, a, c, i + ORDER_DISTANCE)
    if i + SIDE_DISTANCE < rows:
        prefetch_side(t, a, c, i + SIDE_DISTANCE)
    if i + LEVEL_DISTANCE < rows:
        prefetch_level(t, a, i + LEVEL_DISTANCE)
    ring_entry = t + 8 * k.PREFETCH_RING + 16 * (i & RING_MASK)
    return load_u64(ring_entry, 0), load_i64(ring_entry, 8)


@inlined
def prefetch_first(t, a, c, first, rows, prefetched):
    """Before the first row: the steps not yet made; the first step was made for rows before `prefetched`."""
    for i in range(max(first, prefetched), min(first + ORDER_DISTANCE, rows)):
        prefetch_order(t, a, c, i)
    for i in range(first, min(first + SIDE_DISTANCE, rows)):
        prefetch_side(t, a, c, i)
    for i in range(first, min(first + LEVEL_DISTANCE, rows)):
        prefetch_level(t, a, i)


@inlined
def store_outcome(outcomes, i, outcome):
    store_u8(outcomes, i, np.uint8(outcome & 255))


@inlined
def apply_rows(t, a, c, first, rows, prefetched, outcomes):
    """Apply rows of the table's columns; returns the row that could not be begun because FULL, else `rows`."""
    base = get(t, k.ROW_BASE)
    invalidate_ladders(t)
    prefetch_first(t, a, c, first, rows, prefetched)
    for i in range(first, rows):
        x, number = prefetch_ahead(t, a, c, i, rows)
        outcome, _, _, _ = apply_row(t, a, c, i, base + i, x, number, 0)
        if outcome == NEEDS_GROWTH:
            return i
        store_outcome(outcomes, i, outcome)
    return rows


@kernel
def apply_without_ladders(t):
    """Apply rows FIRST … ROWS - 1; returns the row that could not be begun because FULL, else ROWS."""
    return apply_rows(t, arenas(t), columns_of(t), get(t, k.FIRST), get(t, k.ROWS), 0, get(t, k.OUTCOMES))
