"""Lines of the journal: what happened, with the instrument's RptSeq on each wire, and the statistics as last published.

A line is there for both wires; which of them sends it is told by its kind (`bulk_layout`). RptSeq counts on each wire
what that wire sends: Binary has no trade volume, FIX/FAST no execution summary and no RptSeq in a status.
"""

from __future__ import annotations

from umdf.exchange.bulk_places_kernel import (
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
    LAST_TS,
    LINE_BYTES,
    MARGIN,
    NEITHER,
    NULL,
    ON_BOTH,
    ON_FAST,
    ON_SBE,
    OTHER,
    POSITION,
    PRICE,
    ROWS,
    RPT_FAST,
    RPT_SBE,
    SIDE,
    SIZE,
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
    VALUE,
)
from umdf.kernels import inlined, load_i64, outlined, store_i64


@outlined
def write(t, kind, security_id, ts, flags, side, price, size, number, firm, other, position, inserted, code, aux):
    """A line, without RptSeq; where it is. The caller has made sure of the room."""
    rows = load_i64(t, ROWS * 8)
    line = load_i64(t, JOURNAL * 8) + rows * LINE_BYTES
    store_i64(line, KIND * 8, kind)
    store_i64(line, INSTRUMENT * 8, security_id)
    store_i64(line, TS * 8, ts)
    store_i64(line, FLAGS * 8, flags)
    store_i64(line, SIDE * 8, side)
    store_i64(line, PRICE * 8, price)
    store_i64(line, SIZE * 8, size)
    store_i64(line, ID * 8, number)
    store_i64(line, FIRM * 8, firm)
    store_i64(line, OTHER * 8, other)
    store_i64(line, POSITION * 8, position)
    store_i64(line, INSERT * 8, inserted)
    store_i64(line, CODE * 8, code)
    store_i64(line, AUX * 8, aux)
    store_i64(line, RPT_SBE * 8, NULL)
    store_i64(line, RPT_FAST * 8, NULL)
    store_i64(t, ROWS * 8, rows + 1)
    store_i64(t, LAST_TS * 8, ts)
    return line


@inlined
def number(instrument, line, wires):
    """Give a line its RptSeq on the wires that count it."""
    if wires & ON_SBE:
        rpt_seq = load_i64(instrument, I_RPT_SBE * 8) + 1
        store_i64(instrument, I_RPT_SBE * 8, rpt_seq)
        store_i64(line, RPT_SBE * 8, rpt_seq)
    if wires & ON_FAST:
        rpt_seq = load_i64(instrument, I_RPT_FAST * 8) + 1
        store_i64(instrument, I_RPT_FAST * 8, rpt_seq)
        store_i64(line, RPT_FAST * 8, rpt_seq)


@inlined
def emit(t, instrument, kind, ts, flags, side, price, size, number_, firm, other, position, inserted, code, aux):
    """A line about an instrument that both wires count."""
    security_id = load_i64(instrument, I_ID * 8)
    line = write(
        t, kind, security_id, ts, flags, side, price, size, number_, firm, other, position, inserted, code, aux
    )
    number(instrument, line, ON_BOTH)


@inlined
def value_at(instrument, statistic):
    return instrument + (I_STATISTICS + statistic * VALUE) * 8


@outlined
def keep(instrument, statistic, kind, ts, side, price, size, number_, firm, other, code, aux):
    """Remember a statistic as published."""
    value = value_at(instrument, statistic)
    store_i64(value, V_KIND * 8, kind)
    store_i64(value, V_SIDE * 8, side)
    store_i64(value, V_PRICE * 8, price)
    store_i64(value, V_SIZE * 8, size)
    store_i64(value, V_ID * 8, number_)
    store_i64(value, V_FIRM * 8, firm)
    store_i64(value, V_OTHER * 8, other)
    store_i64(value, V_CODE * 8, code)
    store_i64(value, V_AUX * 8, aux)
    store_i64(value, V_TS * 8, ts)
    store_i64(value, V_PRESENT * 8, 1)


@inlined
def publish(t, instrument, statistic, kind, ts, flags, side, price, size, other, code, aux):
    """A line about a statistic, which is remembered."""
    emit(t, instrument, kind, ts, flags, side, price, size, NULL, NULL, other, NULL, NULL, code, aux)
    keep(instrument, statistic, kind, ts, side, price, size, NULL, NULL, other, code, aux)


@outlined
def beat(t, ts):
    """Heartbeats of the silence before ts, as far as there is room."""
    interval, most = load_i64(t, HEARTBEAT_NS * 8), load_i64(t, CAPACITY * 8) - load_i64(t, MARGIN * 8) // 2
    while ts - load_i64(t, LAST_TS * 8) > interval and load_i64(t, ROWS * 8) < most:
        at = load_i64(t, LAST_TS * 8) + interval
        write(t, HEARTBEAT, NULL, at, 0, NEITHER, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
