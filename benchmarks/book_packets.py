"""The events of `book_traffic` as Binary packets of six messages."""

from __future__ import annotations

import struct

from benchmarks import book_traffic_kernel as g
from benchmarks.book_traffic import Traffic

MESSAGES = 6
VERSION, SCHEMA_ID, LITTLE_ENDIAN = 16, 2, 0xEB50
NAMES = "action side price size order_id prev_size instrument_id rpt_seq firm ts_insert".split()
PRICE_UNIT = 100_000  # of 1e-9: messages have four decimals


def encode_packets(events: Traffic) -> list[bytes]:
    columns = (events.columns[name].tolist() for name in NAMES)
    messages = [_message(*row) for row in zip(*columns, strict=True)]
    return [
        struct.pack("<BBHIQ", 72, 0, 1, first // MESSAGES + 1, 0) + b"".join(messages[first : first + MESSAGES])
        for first in range(0, len(messages), MESSAGES)
    ]


def _message(
    action: int,
    side: int,
    price: int,
    size: int,
    order_id: int,
    prev_size: int,
    instrument: int,
    rpt_seq: int,
    firm: int,
    ts_insert: int,
) -> bytes:
    entry, wire_price = ord("0" if side == g.B else "1"), price // PRICE_UNIT
    if action in (g.A, g.M):
        fields = (
            instrument,
            128,
            int(action == g.M),
            entry,
            wire_price,
            size,
            firm,
            ts_insert,
            order_id,
            rpt_seq,
            0,
            prev_size,
        )
        return _with_header(50, struct.pack("<QBBBxqq4xIQQIQq", *fields))
    if action == g.C:
        return _with_header(
            51, struct.pack("<QBxB5xqQQIq", instrument, 128, entry, size, order_id, 0, rpt_seq, wire_price)
        )
    if action == g.T:
        return _with_header(53, struct.pack("<QB43xI", instrument, 128, rpt_seq))
    return _with_header(3, struct.pack("<QB23xI", instrument, 128, rpt_seq))


def _with_header(template: int, block: bytes) -> bytes:
    return struct.pack("<6H", 12 + len(block), LITTLE_ENDIAN, len(block), template, SCHEMA_ID, VERSION) + block
