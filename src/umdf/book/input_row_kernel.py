"""One row as the kernels see it, and what a bad one does to its book.

The hot path has the columns and reads of a row what it needs; what is rare takes a tuple of all values.
"""

from __future__ import annotations

import numpy as np

from umdf.book import memory_layout_kernel as k
from umdf.book.memory_layout_kernel import get, put
from umdf.kernels import (
    array_kernel,
    inlined,
    load_i8,
    load_i32,
    load_i64,
    load_u8,
    outlined,
    store_i32,
    store_i64,
)

(
    ACTION, SIDE, PRICE, SIZE, ORDER_ID, FIRM, PREV_SIZE, POSITION, ORDER_COUNT, TS_INSERT, VENUE, UPDATE_ACTION,
    INSTRUMENT, RPT_SEQ, FLAGS,
) = range(15)  # fmt: skip
COLUMN_COUNT = 15


@inlined
def columns_of(t):
    """The addresses of the columns."""
    return (
        get(t, k.C_ACTION), get(t, k.C_SIDE), get(t, k.C_PRICE), get(t, k.C_SIZE), get(t, k.C_ORDER_ID),
        get(t, k.C_FIRM), get(t, k.C_PREV_SIZE), get(t, k.C_POSITION), get(t, k.C_ORDER_COUNT), get(t, k.C_TS_INSERT),
        get(t, k.C_VENUE), get(t, k.C_UPDATE_ACTION), get(t, k.C_INSTRUMENT_ID), get(t, k.C_RPT_SEQ), get(t, k.C_FLAGS),
    )  # fmt: skip


@inlined
def _set_column(t, word, column):
    put(t, word, column.ctypes.data)
    return len(column) == get(t, k.ROWS)


@array_kernel("u1", "u1", "i8", "i8", "i8", "i8", "i8", "i4", "i4", "i8", "u1", "i1", "i8", "i8", "i4")
def set_columns(
    t, action, side, price, size, order_id, firm, prev_size, position, order_count, ts_insert, venue, update_action,
    instrument_id, rpt_seq, flags,
):  # fmt: skip
    """Have the table name these columns; returns whether each of them has as many values as there are ROWS."""
    fit = _set_column(t, k.C_ACTION, action) & _set_column(t, k.C_SIDE, side) & _set_column(t, k.C_PRICE, price)
    fit &= _set_column(t, k.C_SIZE, size) & _set_column(t, k.C_ORDER_ID, order_id) & _set_column(t, k.C_FIRM, firm)
    fit &= _set_column(t, k.C_PREV_SIZE, prev_size) & _set_column(t, k.C_POSITION, position)
    fit &= _set_column(t, k.C_ORDER_COUNT, order_count) & _set_column(t, k.C_TS_INSERT, ts_insert)
    fit &= _set_column(t, k.C_VENUE, venue) & _set_column(t, k.C_UPDATE_ACTION, update_action)
    fit &= _set_column(t, k.C_INSTRUMENT_ID, instrument_id) & _set_column(t, k.C_RPT_SEQ, rpt_seq)
    return fit & _set_column(t, k.C_FLAGS, flags)


@inlined
def i64_in(c, which, i):
    """A value of a column of int64, in row i. The hot path reads nothing before it needs it."""
    return load_i64(c[which], 8 * i)


@inlined
def i32_in(c, which, i):
    return np.int64(load_i32(c[which], 4 * i))


@inlined
def u8_in(c, which, i):
    return np.int64(load_u8(c[which], i))


@inlined
def update_action_in(c, i):
    return np.int64(load_i8(c[UPDATE_ACTION], i))


@inlined
def load_row(t, i):
    """All of row i, for what is rare."""
    c = columns_of(t)
    return (
        u8_in(c, ACTION, i), u8_in(c, SIDE, i), i64_in(c, PRICE, i), i64_in(c, SIZE, i), i64_in(c, ORDER_ID, i),
        i64_in(c, FIRM, i), i64_in(c, PREV_SIZE, i), i32_in(c, POSITION, i), i32_in(c, ORDER_COUNT, i),
        i64_in(c, TS_INSERT, i), u8_in(c, VENUE, i), update_action_in(c, i), i64_in(c, INSTRUMENT, i),
        i64_in(c, RPT_SEQ, i), i32_in(c, FLAGS, i),
    )  # fmt: skip


@outlined
def note_removed(t, row, price, size):
    """Note what a cancel without a price (Binary before version 11) has removed."""
    if get(t, k.REMOVED) != 0:
        found = get(t, k.REMOVED) + k.REMOVED_BYTES * get(t, k.REMOVED_COUNT)
        store_i64(found, k.R_ROW, np.int64(row))
        store_i64(found, k.R_PRICE, np.int64(price))
        store_i64(found, k.R_SIZE, np.int64(size))
        put(t, k.REMOVED_COUNT, get(t, k.REMOVED_COUNT) + 1)
    return np.int64(0)


@outlined
def mark_stale(b, reason, row, received, expected):
    """Mark a book stale; the first reason stays, with the row and what was known."""
    if load_i64(b, k.B_STALE) == 0:
        store_i64(b, k.B_STALE, np.int64(reason))
        store_i32(b, k.B_CHANGED_SIDES, np.int32(load_i32(b, k.B_CHANGED_SIDES) | k.STALE_BIT))
        store_i64(b, k.B_STALE_ROW, np.int64(row))
        store_i64(b, k.B_STALE_RECEIVED, np.int64(received))
        store_i64(b, k.B_STALE_EXPECTED, np.int64(expected))
    return np.int64(reason)
