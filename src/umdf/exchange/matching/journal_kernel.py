"""Records of the journal: what happened, without sequences and RptSeq; and the statistics as last published.

A record serves every published channel; its kind decides which of them send it (`publish.unit_builder`), and each
numbers what it sends (`publish.rpt_seq`).
"""

from __future__ import annotations

from umdf.exchange.matching.memory_layout_kernel import (
    AUX,
    CAPACITY,
    CODE,
    FIRM,
    FLAGS,
    HEARTBEAT,
    HEARTBEAT_NS,
    I_INDEX,
    I_STATISTICS,
    ID,
    INSERT,
    INSTRUMENT,
    JOURNAL,
    KIND,
    LAST,
    LAST_TS,
    MARGIN,
    NO_SIDE,
    NULL,
    OTHER,
    POSITION,
    PRICE,
    RECORD_BYTES,
    ROWS,
    SIDE,
    SIZE,
    STATISTIC_WORDS,
    TS,
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
from umdf.kernels import inlined, load_i64, outlined, store_i64


@outlined
def append_record(
    t, kind, instrument_index, ts, flags, side, price, size, entry_id, firm, other, position, insert_ts, code, aux
):
    """Append a record. The caller checks the capacity."""
    rows = load_i64(t, ROWS * 8)
    record = load_i64(t, JOURNAL * 8) + rows * RECORD_BYTES
    store_i64(record, KIND * 8, kind)
    store_i64(record, INSTRUMENT * 8, instrument_index)
    store_i64(record, TS * 8, ts)
    store_i64(record, FLAGS * 8, flags)
    store_i64(record, SIDE * 8, side)
    store_i64(record, PRICE * 8, price)
    store_i64(record, SIZE * 8, size)
    store_i64(record, ID * 8, entry_id)
    store_i64(record, FIRM * 8, firm)
    store_i64(record, OTHER * 8, other)
    store_i64(record, POSITION * 8, position)
    store_i64(record, INSERT * 8, insert_ts)
    store_i64(record, CODE * 8, code)
    store_i64(record, AUX * 8, aux)
    store_i64(t, ROWS * 8, rows + 1)
    store_i64(t, LAST_TS * 8, ts)


@inlined
def end_event(t):
    """Mark the newest record as the last of its event."""
    record = load_i64(t, JOURNAL * 8) + (load_i64(t, ROWS * 8) - 1) * RECORD_BYTES
    store_i64(record, FLAGS * 8, load_i64(record, FLAGS * 8) | LAST)


@inlined
def emit(t, instrument, kind, ts, flags, side, price, size, entry_id, firm, other, position, insert_ts, code, aux):
    """Append a record about an instrument."""
    index = load_i64(instrument, I_INDEX * 8)
    append_record(t, kind, index, ts, flags, side, price, size, entry_id, firm, other, position, insert_ts, code, aux)


@inlined
def statistic_address(instrument, statistic):
    return instrument + (I_STATISTICS + statistic * STATISTIC_WORDS) * 8


@outlined
def store_statistic(instrument, statistic, kind, ts, side, price, size, entry_id, firm, other, code, aux):
    """Store a statistic as last published."""
    value = statistic_address(instrument, statistic)
    store_i64(value, V_KIND * 8, kind)
    store_i64(value, V_SIDE * 8, side)
    store_i64(value, V_PRICE * 8, price)
    store_i64(value, V_SIZE * 8, size)
    store_i64(value, V_ID * 8, entry_id)
    store_i64(value, V_FIRM * 8, firm)
    store_i64(value, V_OTHER * 8, other)
    store_i64(value, V_CODE * 8, code)
    store_i64(value, V_AUX * 8, aux)
    store_i64(value, V_TS * 8, ts)
    store_i64(value, V_PRESENT * 8, 1)


@inlined
def publish_statistic(t, instrument, statistic, kind, ts, flags, side, price, size, other, code, aux):
    """Append a record about a statistic, and store it as last published."""
    emit(t, instrument, kind, ts, flags, side, price, size, NULL, NULL, other, NULL, NULL, code, aux)
    store_statistic(instrument, statistic, kind, ts, side, price, size, NULL, NULL, other, code, aux)


@outlined
def append_heartbeats(t, ts):
    """Append the heartbeats of the silence before ts, as far as the journal has capacity."""
    interval, max_rows = load_i64(t, HEARTBEAT_NS * 8), load_i64(t, CAPACITY * 8) - load_i64(t, MARGIN * 8) // 2
    while ts - load_i64(t, LAST_TS * 8) > interval and load_i64(t, ROWS * 8) < max_rows:
        heartbeat_ts = load_i64(t, LAST_TS * 8) + interval
        append_record(
            t, HEARTBEAT, NULL, heartbeat_ts, 0, NO_SIDE, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
        )
