"""Records of the journal: what happened, with the instrument's RptSeq on each protocol, and the last statistics.

A record serves both protocols; its kind decides which of them sends it (`publish.unit_builder`). RptSeq counts what
each protocol sends: Binary has no trade volume, FIX/FAST no execution summary and no RptSeq in a status.
"""

from __future__ import annotations

from umdf.exchange.bulk.memory_layout_kernel import (
    AUX,
    CAPACITY,
    CODE,
    FIRM,
    FLAGS,
    HEARTBEAT,
    HEARTBEAT_NS,
    I_ID,
    I_RPT_FAST,
    I_RPT_SBE,
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
    ON_BOTH,
    ON_FAST,
    ON_SBE,
    OTHER,
    POSITION,
    PRICE,
    RECORD_BYTES,
    ROWS,
    RPT_FAST,
    RPT_SBE,
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
    t, kind, security_id, ts, flags, side, price, size, entry_id, firm, other, position, insert_ts, code, aux
):
    """Append a record without RptSeq and return its address. The caller checks the capacity."""
    rows = load_i64(t, ROWS * 8)
    record = load_i64(t, JOURNAL * 8) + rows * RECORD_BYTES
    store_i64(record, KIND * 8, kind)
    store_i64(record, INSTRUMENT * 8, security_id)
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
    store_i64(record, RPT_SBE * 8, NULL)
    store_i64(record, RPT_FAST * 8, NULL)
    store_i64(t, ROWS * 8, rows + 1)
    store_i64(t, LAST_TS * 8, ts)
    return record


@inlined
def end_event(t):
    """Mark the newest record as the last of its event."""
    record = load_i64(t, JOURNAL * 8) + (load_i64(t, ROWS * 8) - 1) * RECORD_BYTES
    store_i64(record, FLAGS * 8, load_i64(record, FLAGS * 8) | LAST)


@inlined
def assign_rpt_seq(instrument, record, protocols):
    """Set the RptSeq of a record on the protocols that count it."""
    if protocols & ON_SBE:
        rpt_seq = load_i64(instrument, I_RPT_SBE * 8) + 1
        store_i64(instrument, I_RPT_SBE * 8, rpt_seq)
        store_i64(record, RPT_SBE * 8, rpt_seq)
    if protocols & ON_FAST:
        rpt_seq = load_i64(instrument, I_RPT_FAST * 8) + 1
        store_i64(instrument, I_RPT_FAST * 8, rpt_seq)
        store_i64(record, RPT_FAST * 8, rpt_seq)


@inlined
def emit(t, instrument, kind, ts, flags, side, price, size, entry_id, firm, other, position, insert_ts, code, aux):
    """Append a record about an instrument that both protocols count."""
    security_id = load_i64(instrument, I_ID * 8)
    record = append_record(
        t, kind, security_id, ts, flags, side, price, size, entry_id, firm, other, position, insert_ts, code, aux
    )
    assign_rpt_seq(instrument, record, ON_BOTH)


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
