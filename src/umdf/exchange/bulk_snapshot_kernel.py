"""Snapshots of the bulk market's books, as lines of a journal of their own; and a book sent again on the incremental.

A snapshot is a header, the orders of both sides from the top, the statistics that are there, and the state.
"""

from __future__ import annotations

from umdf.exchange.bulk_emit_kernel import emit, value_at, write
from umdf.exchange.bulk_match_kernel import implied_flag, letter
from umdf.exchange.bulk_places_kernel import (
    ADD,
    CAPACITY,
    FIRST,
    I_EVENT,
    I_ID,
    I_PHASE,
    I_RPT_FAST,
    I_RPT_SBE,
    I_STATE,
    I_STATE_TS,
    INSTRUMENT_BYTES,
    INSTRUMENTS,
    LAST,
    LAST_TS,
    NEITHER,
    NULL,
    O_FIRM,
    O_ID,
    O_INSERT,
    O_KEY,
    O_SIZE,
    ORDER_BYTES,
    RECOVERY,
    ROWS,
    RPT_FAST,
    RPT_SBE,
    S_VOLUME,
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
from umdf.exchange.bulk_side_kernel import orders_of, price_of, side_at
from umdf.kernels import inlined, kernel, load_i64, outlined, store_i64


@outlined
def header(t, instrument):
    statistics = 1  # the state; Binary does not send trade volume
    for statistic in range(STATISTICS):
        if statistic != S_VOLUME and load_i64(value_at(instrument, statistic), V_PRESENT * 8) != 0:
            statistics += 1
    bids, asks = orders_of(instrument, 0), orders_of(instrument, 1)
    line = write(
        t, SNAPSHOT_HEADER, load_i64(instrument, I_ID * 8), load_i64(t, LAST_TS * 8), SNAPSHOT, NEITHER, NULL, bids,
        NULL, NULL, asks, statistics, NULL, NULL, NULL,
    )  # fmt: skip
    store_i64(line, RPT_SBE * 8, load_i64(instrument, I_RPT_SBE * 8))
    store_i64(line, RPT_FAST * 8, load_i64(instrument, I_RPT_FAST * 8))


@outlined
def snapshot(t, instrument):
    header(t, instrument)
    security_id, now = load_i64(instrument, I_ID * 8), load_i64(t, LAST_TS * 8)
    for side in range(2):
        orders, count = side_at(t, instrument, side), orders_of(instrument, side)
        for i in range(count):
            order = orders + (count - 1 - i) * ORDER_BYTES
            order_id, inserted = load_i64(order, O_ID * 8), load_i64(order, O_INSERT * 8)
            price = price_of(instrument, side, load_i64(order, O_KEY * 8))
            size, firm, flags = load_i64(order, O_SIZE * 8), load_i64(order, O_FIRM * 8), implied_flag(order_id)
            write(
                t, SNAPSHOT_ORDER, security_id, now, SNAPSHOT | flags, letter(side), price, size, order_id, firm, NULL,
                i + 1, inserted, NULL, NULL,
            )  # fmt: skip
    for statistic in range(STATISTICS):
        value = value_at(instrument, statistic)
        if load_i64(value, V_PRESENT * 8) != 0:
            write(
                t, load_i64(value, V_KIND * 8), security_id, load_i64(value, V_TS * 8), SNAPSHOT,
                load_i64(value, V_SIDE * 8), load_i64(value, V_PRICE * 8), load_i64(value, V_SIZE * 8),
                load_i64(value, V_ID * 8), load_i64(value, V_FIRM * 8), load_i64(value, V_OTHER * 8), NULL, NULL,
                load_i64(value, V_CODE * 8), load_i64(value, V_AUX * 8),
            )  # fmt: skip
    state, phase, event = (
        load_i64(instrument, I_STATE * 8),
        load_i64(instrument, I_PHASE * 8),
        load_i64(instrument, I_EVENT * 8),
    )
    at = load_i64(instrument, I_STATE_TS * 8)
    write(t, STATE, security_id, at, SNAPSHOT, NEITHER, NULL, NULL, NULL, NULL, phase, NULL, NULL, event, state)
    store_i64(t, LAST_TS * 8, now)


@inlined
def most_lines(instrument):
    return orders_of(instrument, 0) + orders_of(instrument, 1) + STATISTICS + 2


@kernel
def snapshots(t):
    """Snapshots of the instruments FIRST to STOP that exist; the first one for which there was no room."""
    i = load_i64(t, FIRST * 8)
    while i < load_i64(t, STOP * 8):
        instrument = load_i64(t, INSTRUMENTS * 8) + i * INSTRUMENT_BYTES
        if load_i64(instrument, I_STATE * 8) != UNKNOWN:
            if load_i64(t, ROWS * 8) + most_lines(instrument) > load_i64(t, CAPACITY * 8):
                break
            snapshot(t, instrument)
        i += 1
    return i


@kernel
def send_again(t):
    """The orders of instrument FIRST as new ones, marked as recovery (4.2.9); how many there were."""
    instrument = load_i64(t, INSTRUMENTS * 8) + load_i64(t, FIRST * 8) * INSTRUMENT_BYTES
    ts, left = load_i64(t, LAST_TS * 8) + 1_000, orders_of(instrument, 0) + orders_of(instrument, 1)
    if load_i64(t, ROWS * 8) + left > load_i64(t, CAPACITY * 8):
        return -1
    for side in range(2):
        orders, count = side_at(t, instrument, side), orders_of(instrument, side)
        for i in range(count):
            order = orders + (count - 1 - i) * ORDER_BYTES
            order_id, inserted, left = load_i64(order, O_ID * 8), load_i64(order, O_INSERT * 8), left - 1
            price = price_of(instrument, side, load_i64(order, O_KEY * 8))
            size, firm = load_i64(order, O_SIZE * 8), load_i64(order, O_FIRM * 8)
            flags = implied_flag(order_id) | RECOVERY | (LAST if left == 0 else 0)
            emit(
                t, instrument, ADD, ts, flags, letter(side), price, size, order_id, firm, NULL, i + 1, inserted, NULL,
                NULL,
            )  # fmt: skip
    return orders_of(instrument, 0) + orders_of(instrument, 1)
