"""One row as the kernels see it, and what a bad one does to its book.

The hot path has the columns and reads of a row what it needs; what is rare takes a tuple of all values.
"""

from __future__ import annotations

import numpy as np

from umdf.book import tables_kernel as k
from umdf.book.tables_kernel import at, put
from umdf.kernels import (
    inlined,
    kernel_of_arrays,
    load_i8,
    load_i32,
    load_i64,
    load_u8,
    outlined,
    store_i32,
    store_i64,
)

(
    ACTION, SIDE, PRICE, SIZE, ORDER_ID, FIRM, PREV_SIZE, POSITION, ORDER_COUNT, TS_INSERT, STREAM, UPDATE_ACTION,
    INSTRUMENT, RPT_SEQ, FLAGS,
) = range(15)  # fmt: skip


@inlined
def columns_of(t):
    """The addresses of the columns."""
    return (
        at(t, k.C_ACTION), at(t, k.C_SIDE), at(t, k.C_PRICE), at(t, k.C_SIZE), at(t, k.C_ORDER_ID), at(t, k.C_FIRM),
        at(t, k.C_PREV_SIZE), at(t, k.C_POSITION), at(t, k.C_ORDER_COUNT), at(t, k.C_TS_INSERT), at(t, k.C_STREAM),
        at(t, k.C_UPDATE_ACTION), at(t, k.C_INSTRUMENT_ID), at(t, k.C_RPT_SEQ), at(t, k.C_FLAGS),
    )  # fmt: skip


@inlined
def _point(t, place, column):
    put(t, place, column.ctypes.data)
    return len(column) == at(t, k.ROWS)


@kernel_of_arrays("u1", "u1", "i8", "i8", "i8", "i8", "i8", "i4", "i4", "i8", "u1", "i1", "i8", "i8", "i4")
def point_at(
    t, action, side, price, size, order_id, firm, prev_size, position, order_count, ts_insert, stream, update_action,
    instrument_id, rpt_seq, flags,
):  # fmt: skip
    """Have the table name these columns; returns whether each of them has as many values as there are ROWS."""
    fit = _point(t, k.C_ACTION, action) & _point(t, k.C_SIDE, side) & _point(t, k.C_PRICE, price)
    fit &= _point(t, k.C_SIZE, size) & _point(t, k.C_ORDER_ID, order_id) & _point(t, k.C_FIRM, firm)
    fit &= _point(t, k.C_PREV_SIZE, prev_size) & _point(t, k.C_POSITION, position)
    fit &= _point(t, k.C_ORDER_COUNT, order_count) & _point(t, k.C_TS_INSERT, ts_insert)
    fit &= _point(t, k.C_STREAM, stream) & _point(t, k.C_UPDATE_ACTION, update_action)
    fit &= _point(t, k.C_INSTRUMENT_ID, instrument_id) & _point(t, k.C_RPT_SEQ, rpt_seq)
    return fit & _point(t, k.C_FLAGS, flags)


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
def row_of(t, i):
    """All of row i, for what is rare."""
    c = columns_of(t)
    return (
        u8_in(c, ACTION, i), u8_in(c, SIDE, i), i64_in(c, PRICE, i), i64_in(c, SIZE, i), i64_in(c, ORDER_ID, i),
        i64_in(c, FIRM, i), i64_in(c, PREV_SIZE, i), i32_in(c, POSITION, i), i32_in(c, ORDER_COUNT, i),
        i64_in(c, TS_INSERT, i), u8_in(c, STREAM, i), update_action_in(c, i), i64_in(c, INSTRUMENT, i),
        i64_in(c, RPT_SEQ, i), i32_in(c, FLAGS, i),
    )  # fmt: skip


@outlined
def fail(b, reason, row, got, had):
    """Mark a book stale; the first reason stays, with the row and what was known."""
    if load_i64(b, k.B_STALE) == 0:
        store_i64(b, k.B_STALE, np.int64(reason))
        store_i32(b, k.B_DIRTY, np.int32(load_i32(b, k.B_DIRTY) | k.STALE_TOO))
        store_i64(b, k.B_STALE_ROW, np.int64(row))
        store_i64(b, k.B_STALE_GOT, np.int64(got))
        store_i64(b, k.B_STALE_HAD, np.int64(had))
    return np.int64(reason)
