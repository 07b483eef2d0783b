"""One Binary packet → the books, in one call.

The packet's messages are read into the rows of a scratch buffer, checked as the decoder checks them, and applied like
rows of a batch. A message in its expected shape is read directly, by offsets found once; any other (an older version,
a shorter block) by the plan of `umdf.market.sbe.live_plan_kernel`, column by column.
"""

from __future__ import annotations

import numpy as np

from umdf.book import input_row_kernel as r
from umdf.book import memory_layout_kernel as k
from umdf.book.apply_kernel import ORDER_DISTANCE, apply_rows, prefetch_order
from umdf.book.arena_kernel import arenas
from umdf.book.memory_layout_kernel import get, put
from umdf.kernels import (
    inlined,
    kernel,
    load_i8,
    load_i16,
    load_i32,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    outlined,
    store_i32,
    store_i64,
    store_u8,
)
from umdf.market.sbe.live_plan_kernel import (
    CODED,
    CONSTANT,
    E_COLUMNS,
    F_ABSENT,
    F_FACTOR,
    F_FIELDS,
    F_HIGH,
    F_KIND,
    F_LOW,
    F_NULL,
    F_NULL_BEFORE,
    F_OFFSET,
    F_SIGNED,
    F_SINCE,
    F_SIZE,
    F_TABLE,
    F_UNTIL,
    L_ACTION,
    L_FIRM,
    L_FLAGS,
    L_INSTRUMENT_ID,
    L_MORE_FLAGS,
    L_ORDER_ID,
    L_POSITION,
    L_PREV_SIZE,
    L_PRICE,
    L_RPT_SEQ,
    L_SIDE,
    L_SIZE,
    L_TS_INSERT,
    OTHER_CODE,
    ROW_IF_RPT_SEQ,
    TEMPLATES,
)
from umdf.wire.sbe.tables_kernel import MAX_PACKET_BYTES, MESSAGE_HEADER, PACKET_HEADER, SBE_LITTLE_ENDIAN

# The live table: where the scratch is, the plan, and for each template how it is read.
V_COLUMNS, V_OUTCOMES, V_SCHEMA, V_PLAN, V_SHAPES, V_REJECTED, V_UNKNOWN = 0, 15, 16, 17, 18, 19, 20
V_PLACES = 21  # of each row, the index of its message in the packet << 16, as in `Rows.wire_order`
V_WORDS = 22
SCRATCH_ROWS = MAX_PACKET_BYTES // MESSAGE_HEADER + 1  # no packet has more messages
NEEDS_GROWTH_AT = -1  # returns below zero: -1 - row, at which something has to grow
NEEDS_BATCH = -(1 << 32)  # or this: nothing was applied, the packet has messages with groups of book entries

# How a template is read, as int64s.
X_METHOD, X_FULL_LENGTH, X_MIN_VERSION, X_ROW_CONDITION, X_ENTRY = 0, 1, 2, 3, 4
IGNORED, BY_SHAPE, BY_PLAN, BY_BATCH = 0, 1, 2, 3  # X_HOW
# Numbers: the offset (below zero: absent) and the null value.
X_INSTRUMENT, X_SIZE, X_ORDER_ID, X_PREV_SIZE, X_TS_INSERT, X_FIRM, X_RPT_SEQ, X_PRICE = 5, 7, 9, 11, 13, 15, 17, 19
X_LOW, X_HIGH, X_FACTOR = 21, 22, 23  # of the price
# Codes: the offset, and the position in the plan of what the codes mean.
X_ACTION, X_SIDE, X_FLAGS, X_MORE_FLAGS = 24, 26, 28, 30
X_UPDATE_ACTION = 32  # its offset, below zero: absent
SHAPE = 33
OUT_OF_RANGE = 1 << 10
NULL_I8 = -128


@inlined
def _load_i64_field(x, which, body):
    offset, null = get(x, which), get(x, which + 1)
    value = load_i64(body, max(offset, 0))
    return np.int64(k.NULL) if (offset < 0) | (value == null) else value


@inlined
def _load_u32_field(x, which, body):
    offset, null = get(x, which), get(x, which + 1)
    value = np.int64(load_u32(body, max(offset, 0)))
    return np.int64(k.NULL) if (offset < 0) | (value == null) else value


@inlined
def _load_code(x, which, body, plan):
    return get(plan, get(x, which + 1) + np.int64(load_u8(body, get(x, which))))


@inlined
def _read_shape(v, x, body, row):
    """A row from a block that holds every column where it is expected."""
    plan, price = get(v, V_PLAN), _load_i64_field(x, X_PRICE, body)
    outside = (price != k.NULL) & ((price < get(x, X_LOW)) | (price > get(x, X_HIGH)))
    price = np.int64(k.NULL) if outside | (price == k.NULL) else price * get(x, X_FACTOR)
    flags = _load_code(x, X_FLAGS, body, plan) | _load_code(x, X_MORE_FLAGS, body, plan)
    update_action = np.int64(load_u8(body, max(get(x, X_UPDATE_ACTION), 0)))
    update_action = NULL_I8 if get(x, X_UPDATE_ACTION) < 0 else update_action
    store_u8(get(v, r.ACTION), row, np.uint8(_load_code(x, X_ACTION, body, plan)))
    store_u8(get(v, r.SIDE), row, np.uint8(_load_code(x, X_SIDE, body, plan)))
    store_i64(get(v, r.PRICE), 8 * row, price)
    store_i64(get(v, r.SIZE), 8 * row, _load_i64_field(x, X_SIZE, body))
    store_i64(get(v, r.ORDER_ID), 8 * row, _load_i64_field(x, X_ORDER_ID, body))
    store_i64(get(v, r.FIRM), 8 * row, _load_u32_field(x, X_FIRM, body))
    store_i64(get(v, r.PREV_SIZE), 8 * row, _load_i64_field(x, X_PREV_SIZE, body))
    store_i32(get(v, r.POSITION), 4 * row, np.int32(k.NULL_I32))
    store_i64(get(v, r.TS_INSERT), 8 * row, _load_i64_field(x, X_TS_INSERT, body))
    store_u8(get(v, r.UPDATE_ACTION), row, np.uint8(update_action & 255))
    store_i64(get(v, r.INSTRUMENT), 8 * row, _load_i64_field(x, X_INSTRUMENT, body))
    store_i64(get(v, r.RPT_SEQ), 8 * row, _load_u32_field(x, X_RPT_SEQ, body))
    store_i32(get(v, r.FLAGS), 4 * row, np.int32(flags | (OUT_OF_RANGE if outside else 0)))


@outlined
def _value(plan, field, body, block, version):
    """One column by the plan; a value that does not fit is absent, and OUT_OF_RANGE comes with it."""
    kind, offset, size, absent = get(field, F_KIND), get(field, F_OFFSET), get(field, F_SIZE), get(field, F_ABSENT)
    if kind == CONSTANT or block < offset + size or version < get(field, F_SINCE) or version > get(field, F_UNTIL):
        return absent, np.int64(0)
    signed = get(field, F_SIGNED) != 0
    if size == 1:
        value = np.int64(load_i8(body, offset)) if signed else np.int64(load_u8(body, offset))
    elif size == 2:
        value = np.int64(load_i16(body, offset)) if signed else np.int64(load_u16(body, offset))
    elif size == 4:
        value = np.int64(load_i32(body, offset)) if signed else np.int64(load_u32(body, offset))
    else:
        value = load_i64(body, offset)
    if version < get(field, F_NULL_BEFORE) and value == get(field, F_NULL):
        return absent, np.int64(0)
    if kind == CODED:
        return get(plan, get(field, F_TABLE) + (value if 0 <= value < 256 else OTHER_CODE)), np.int64(0)
    if size == 8 and not signed:
        return value, np.int64(0)
    if value < get(field, F_LOW) or value > get(field, F_HIGH):
        return absent, np.int64(OUT_OF_RANGE)
    return value * get(field, F_FACTOR), np.int64(0)


@inlined
def _read_column(v, x, which, body, block, version):
    plan = get(v, V_PLAN)
    field = plan + 8 * (get(x, X_ENTRY) + E_COLUMNS + F_FIELDS * which)
    return _value(plan, field, body, block, version)


@outlined
def _read_by_plan(v, x, body, block, version, row):
    """A row from a block of whatever version and length."""
    flags, _ = _read_column(v, x, L_FLAGS, body, block, version)
    more, _ = _read_column(v, x, L_MORE_FLAGS, body, block, version)
    flags |= more
    action, _ = _read_column(v, x, L_ACTION, body, block, version)
    side, _ = _read_column(v, x, L_SIDE, body, block, version)
    store_u8(get(v, r.ACTION), row, np.uint8(action & 255))
    store_u8(get(v, r.SIDE), row, np.uint8(side & 255))
    position, bad = _read_column(v, x, L_POSITION, body, block, version)
    flags |= bad
    store_i32(get(v, r.POSITION), 4 * row, np.int32(position))
    for column, which in (
        (r.PRICE, L_PRICE), (r.SIZE, L_SIZE), (r.ORDER_ID, L_ORDER_ID), (r.FIRM, L_FIRM),
        (r.PREV_SIZE, L_PREV_SIZE), (r.TS_INSERT, L_TS_INSERT), (r.INSTRUMENT, L_INSTRUMENT_ID),
        (r.RPT_SEQ, L_RPT_SEQ),
    ):  # fmt: skip
        value, bad = _read_column(v, x, which, body, block, version)
        flags |= bad
        store_i64(get(v, column), 8 * row, value)
    offset, update_action = get(x, X_UPDATE_ACTION), np.int64(NULL_I8)
    if 0 <= offset < block:
        update_action = np.int64(load_u8(body, offset))
    store_u8(get(v, r.UPDATE_ACTION), row, np.uint8(update_action & 255))
    store_i32(get(v, r.FLAGS), 4 * row, np.int32(flags))


@inlined
def read_packet(t, a, c, v, packet, size):
    """Fill the scratch; returns how many rows, or NEEDS_BATCH. What cannot be framed is counted and left out.

    The memory that a row needs is prefetched while the next message is read.
    """
    rows, here, end, index = np.int64(0), packet + PACKET_HEADER, packet + size, np.int64(-1)
    if size < PACKET_HEADER or size > MAX_PACKET_BYTES:
        put(v, V_REJECTED, get(v, V_REJECTED) + 1)
        return rows
    while here + MESSAGE_HEADER <= end:
        length, block = np.int64(load_u16(here, 0)), np.int64(load_u16(here, 4))
        if length < MESSAGE_HEADER or here + length > end:
            break
        template, version, body = np.int64(load_u16(here, 6)), np.int64(load_u16(here, 10)), here + MESSAGE_HEADER
        here += length
        index += 1
        is_valid = load_u16(body, 2 - MESSAGE_HEADER) == SBE_LITTLE_ENDIAN and block <= length - MESSAGE_HEADER
        if not is_valid or np.int64(load_u16(body, 8 - MESSAGE_HEADER)) != get(v, V_SCHEMA):
            put(v, V_REJECTED, get(v, V_REJECTED) + (0 if is_valid else 1))
            continue
        x = get(v, V_SHAPES) + 8 * SHAPE * (template if template < TEMPLATES else 0)
        method = get(x, X_METHOD)
        if method == IGNORED:
            continue
        if method == BY_BATCH:
            return np.int64(NEEDS_BATCH)
        if method == BY_SHAPE and block >= get(x, X_FULL_LENGTH) and version >= get(x, X_MIN_VERSION):
            _read_shape(v, x, body, rows)
        else:
            _read_by_plan(v, x, body, block, version, rows)
        if rows < ORDER_DISTANCE:
            prefetch_order(t, a, c, rows)
        rpt_seq = load_i64(get(v, r.RPT_SEQ), 8 * rows)
        store_i64(get(v, V_PLACES), 8 * rows, index << 16)
        rows += np.int64((rpt_seq != k.NULL) | (get(x, X_ROW_CONDITION) != ROW_IF_RPT_SEQ))
    if here < end:
        put(v, V_REJECTED, get(v, V_REJECTED) + 1)
    return rows


@kernel
def apply_packet(packet, size, t):
    """Apply the packet of `size` bytes at an address; returns how many rows it made, or something below zero."""
    v = get(t, k.LIVE_TABLE)
    for column in range(r.FLAGS + 1):  # what is rare reads the columns that the table names
        put(t, k.COLUMNS + column, get(v, V_COLUMNS + column))
    a, c = arenas(t), r.columns_of(t)
    rows = read_packet(t, a, c, v, packet, size)
    if rows <= 0:
        return rows
    reached = apply_rows(t, a, c, np.int64(0), rows, ORDER_DISTANCE, get(v, V_OUTCOMES))
    if reached < rows:
        put(t, k.ROWS, rows)
        return NEEDS_GROWTH_AT - reached
    put(t, k.ROW_BASE, get(t, k.ROW_BASE) + rows)
    return rows


@kernel
def empty_call(packet, size, t):
    """What a call costs that does nothing."""
    return np.int64(0)
