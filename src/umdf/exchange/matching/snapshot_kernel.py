"""Snapshots of the bulk market's books, as records of a separate journal; and books resent on the incremental stream.

A snapshot is a header, the orders of both sides from the top, the statistics that are present, and the state.
"""

from __future__ import annotations

from umdf.exchange.matching.book_side_kernel import order_count, price_of, side_address
from umdf.exchange.matching.journal_kernel import append_record, emit, statistic_address
from umdf.exchange.matching.memory_layout_kernel import (
    ADD,
    BINARY_STATISTICS,
    CAPACITY,
    FIRST,
    I_EVENT,
    I_INDEX,
    I_PHASE,
    I_STATE,
    I_STATE_TS,
    INSTRUMENT_BYTES,
    INSTRUMENTS,
    LAST,
    LAST_TS,
    NO_SIDE,
    NULL,
    O_FIRM,
    O_ID,
    O_INSERT,
    O_KEY,
    O_SIZE,
    ORDER_BYTES,
    RECOVERY,
    ROWS,
    SNAPSHOT,
    SNAPSHOT_HEADER,
    SNAPSHOT_ORDER,
    STATE,
    STATISTICS,
    STOP,
    UNKNOWN,
    V_AUX,
    V_CODE,
    V_FIRM,
    V_ID,
    V_KIND,
    V_OTHER,
    V_PRESENT,
    V_PRICE,
    V_SIDE,
    V_SIZE,
    V_TS,
)
from umdf.exchange.matching.trade_kernel import implied_flag, side_code
from umdf.kernels import inlined, kernel, load_i64, outlined, store_i64


@outlined
def append_header(t, instrument):
    statistics = 1  # the state
    for statistic in range(BINARY_STATISTICS):
        if load_i64(statistic_address(instrument, statistic), V_PRESENT * 8) != 0:
            statistics += 1
    bids, asks = order_count(instrument, 0), order_count(instrument, 1)
    emit(
        t, instrument, SNAPSHOT_HEADER, load_i64(t, LAST_TS * 8), SNAPSHOT, NO_SIDE, NULL, bids, NULL, NULL, asks,
        statistics, NULL, NULL, NULL,
    )  # fmt: skip


@outlined
def append_snapshot(t, instrument):
    append_header(t, instrument)
    index, now = load_i64(instrument, I_INDEX * 8), load_i64(t, LAST_TS * 8)
    for side in range(2):
        orders, count = side_address(t, instrument, side), order_count(instrument, side)
        for i in range(count):
            order = orders + (count - 1 - i) * ORDER_BYTES
            order_id, insert_ts = load_i64(order, O_ID * 8), load_i64(order, O_INSERT * 8)
            price = price_of(instrument, side, load_i64(order, O_KEY * 8))
            size, firm, flags = load_i64(order, O_SIZE * 8), load_i64(order, O_FIRM * 8), implied_flag(order_id)
            append_record(
                t, SNAPSHOT_ORDER, index, now, SNAPSHOT | flags, side_code(side), price, size, order_id, firm,
                NULL, i + 1, insert_ts, NULL, NULL,
            )  # fmt: skip
    for statistic in range(STATISTICS):
        value = statistic_address(instrument, statistic)
        if load_i64(value, V_PRESENT * 8) != 0:
            append_record(
                t, load_i64(value, V_KIND * 8), index, load_i64(value, V_TS * 8), SNAPSHOT,
                load_i64(value, V_SIDE * 8), load_i64(value, V_PRICE * 8), load_i64(value, V_SIZE * 8),
                load_i64(value, V_ID * 8), load_i64(value, V_FIRM * 8), load_i64(value, V_OTHER * 8), NULL, NULL,
                load_i64(value, V_CODE * 8), load_i64(value, V_AUX * 8),
            )  # fmt: skip
    state, phase, event = (
        load_i64(instrument, I_STATE * 8),
        load_i64(instrument, I_PHASE * 8),
        load_i64(instrument, I_EVENT * 8),
    )
    state_ts = load_i64(instrument, I_STATE_TS * 8)
    append_record(t, STATE, index, state_ts, SNAPSHOT, NO_SIDE, NULL, NULL, NULL, NULL, phase, NULL, NULL, event, state)
    store_i64(t, LAST_TS * 8, now)


@inlined
def max_records(instrument):
    return order_count(instrument, 0) + order_count(instrument, 1) + STATISTICS + 2


@kernel
def append_snapshots(t):
    """Append snapshots of the listed instruments FIRST to STOP; return the first that did not fit, or STOP."""
    i = load_i64(t, FIRST * 8)
    while i < load_i64(t, STOP * 8):
        instrument = load_i64(t, INSTRUMENTS * 8) + i * INSTRUMENT_BYTES
        if load_i64(instrument, I_STATE * 8) != UNKNOWN:
            if load_i64(t, ROWS * 8) + max_records(instrument) > load_i64(t, CAPACITY * 8):
                break
            append_snapshot(t, instrument)
        i += 1
    return i


@kernel
def resend_book(t):
    """Append the orders of instrument FIRST as new, flagged as recovery (4.2.9); their count, -1 if they do not fit."""
    instrument = load_i64(t, INSTRUMENTS * 8) + load_i64(t, FIRST * 8) * INSTRUMENT_BYTES
    ts, left = load_i64(t, LAST_TS * 8) + 1_000, order_count(instrument, 0) + order_count(instrument, 1)
    if load_i64(t, ROWS * 8) + left > load_i64(t, CAPACITY * 8):
        return -1
    for side in range(2):
        orders, count = side_address(t, instrument, side), order_count(instrument, side)
        for i in range(count):
            order = orders + (count - 1 - i) * ORDER_BYTES
            order_id, insert_ts, left = load_i64(order, O_ID * 8), load_i64(order, O_INSERT * 8), left - 1
            price = price_of(instrument, side, load_i64(order, O_KEY * 8))
            size, firm = load_i64(order, O_SIZE * 8), load_i64(order, O_FIRM * 8)
            flags = implied_flag(order_id) | RECOVERY | (LAST if left == 0 else 0)
            emit(
                t, instrument, ADD, ts, flags, side_code(side), price, size, order_id, firm, NULL, i + 1, insert_ts,
                NULL, NULL,
            )  # fmt: skip
    return order_count(instrument, 0) + order_count(instrument, 1)
