"""Cancels without a price (Binary before version 11): rows of mbo have what they removed, if the book was known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lake.captures import ingest, rows
from sync.test_trust_model import TEMPLATES, Packets

from umdf.market.families import FROM_BOOK, NULL
from umdf.market.rows import Events
from umdf.sync.session import Session
from umdf.sync.stream_detection import DetectedStream, StreamKind
from umdf.transport.pcap_writer import PcapWriter
from umdf.wire.packet import Protocol
from umdf.wire.sbe.compose import Packet, compose
from umdf.wire.sbe.loader import load

FLOW = ("10.0.0.1", 40_001), ("224.0.20.72", 20_001)
SENT, MS = 1_763_038_800_000_000_000, 1_000_000
BID: dict[str, Any] = {"securityID": 7, "matchEventIndicator": 128, "mDEntryType": "0", "transactTime": SENT}
COLUMNS = ("sequence", "msg_index", "rpt_seq", "action", "price", "size", "prev_size", "flags")
PRICE = 10**9
Row = tuple[int, ...]


def order(
    rpt_seq: int, order_id: int, price: str | None, size: int, action: int = 0, position: int | None = None
) -> Any:
    fields = {"mDUpdateAction": action, "mDEntryPx": price, "mDEntrySize": size, "secondaryOrderID": order_id}
    fields |= {"mDInsertTimestamp": SENT, "rptSeq": rpt_seq, "mDEntryPositionNo": position}
    return 50, BID | {name: value for name, value in fields.items() if value is not None}


def cancel(rpt_seq: int, order_id: int, size: int | None = None, position: int | None = None) -> Any:
    fields = {"mDEntrySize": size, "secondaryOrderID": order_id, "rptSeq": rpt_seq, "mDEntryPositionNo": position}
    return 51, BID | {name: value for name, value in fields.items() if value is not None}


def composed(messages: dict[int, list[Any]], version: int) -> Any:
    packets = [Packet(each, 72, 1, number, SENT + number * MS) for number, each in messages.items()]
    return compose(load(), packets, version)


def live_cancels(messages: dict[int, list[Any]], version: int, size: int = 1) -> list[Row]:
    """The rows of cancels that a session reports, fed with so many packets at once."""
    stream = DetectedStream("A", Protocol.SBE, StreamKind.INCREMENTAL, 72, version)
    reported: list[Events] = []
    session = Session([stream], load(), TEMPLATES, observer=lambda _, events: reported.append(events))
    encoded = composed(messages, version)
    ts, count = SENT + np.arange(len(encoded.start)) * 100 * MS, len(encoded.start)
    packets = Packets(encoded.buffer, encoded.start, encoded.end, ts, np.zeros(count, np.uint16))
    for first in range(0, count, size):
        some = np.arange(first, min(first + size, count))
        session.add(packets, ["A"], some)
        session.advance(int(ts[some[-1]]))
    session.finish()
    found = []
    for events in reported:
        own = events.rows("mbo")
        columns = {name: own.column(name) for name in COLUMNS[2:]}
        columns |= {"sequence": events.units.sequence[own.unit], "msg_index": own.msg_index}
        chosen = np.flatnonzero(columns["action"] == ord("C"))
        found += [tuple(int(columns[name][row]) for name in COLUMNS if name != "action") for row in chosen]
    return found


def lake_cancels(messages: dict[int, list[Any]], version: int, directory: Path) -> list[Row]:
    encoded, path = composed(messages, version), directory / "day.pcap"
    with PcapWriter(path) as writer:
        ts = SENT + np.arange(len(encoded.start)) * 100 * MS
        writer.write_batch(encoded.buffer, encoded.start, encoded.end, ts, *FLOW)
    ingest(directory / "lake", [path], tables=frozenset({"mbo"}))
    found = [row for row in rows(directory / "lake", "mbo") if row["action"] == "C"]
    values = [[row[name] for name in COLUMNS if name != "action"] for row in found]
    return sorted(tuple(NULL if value is None else value for value in row) for row in values)


def what(found: list[Row]) -> list[tuple[float | None, ...]]:
    """rpt_seq, price, size, prev_size of each, and whether they are marked."""
    values = [(r, None if p == NULL else p / PRICE, s, b, f & FROM_BOOK) for _, _, r, p, s, b, f in found]
    return [tuple(None if value == NULL else value for value in row) for row in values]


def plain(*, is_by_position: bool) -> dict[int, list[Any]]:
    """A packet with a change before its cancel, a cancel that states its size, one of an order without a price."""
    first, second = (1, 2) if is_by_position else (None, None)
    return {
        1: [order(1, 11, "10", 300, position=first), order(2, 12, "9.5", 100, position=second)],
        2: [order(3, 11, "10", 200, action=1, position=first), cancel(4, 11, position=first)],
        3: [cancel(5, 12, size=100, position=first)],
        4: [order(6, 13, None, 500, position=first), cancel(7, 13, size=500, position=first)],
    }


FOUND = [(4, 10.0, 200, 200, FROM_BOOK), (5, 9.5, 100, 100, FROM_BOOK), (7, None, 500, None, 0)]


@pytest.mark.parametrize("is_by_position", [True, False])
@pytest.mark.parametrize("size", [1, 2, 100])
def test_a_cancel_has_the_price_and_size_that_it_removed(size: int, is_by_position: bool, tmp_path: Path) -> None:
    messages = plain(is_by_position=is_by_position)
    found = live_cancels(messages, 8, size)
    assert what(found) == FOUND
    if size == 1:
        assert lake_cancels(messages, 8, tmp_path) == found


def test_a_cancel_with_a_price_stays_as_it_was_sent(tmp_path: Path) -> None:
    priced = {1: [order(1, 11, "10", 300)], 2: [(51, {**cancel(2, 11, 300)[1], "mDEntryPx": "10"})]}
    found = live_cancels(priced, 16)
    assert what(found) == [(2, 10.0, 300, None, 0)]
    assert lake_cancels(priced, 16, tmp_path) == found


def test_a_book_that_is_not_known_gives_nothing(tmp_path: Path) -> None:
    """Stale by RptSeq, and after a loss that few updates cannot rule out."""
    stale = {1: [order(1, 11, "10", 300), order(2, 12, "9", 100)], 3: [cancel(4, 11)], 4: [cancel(5, 12)]}
    unverified = {1: [order(1, 11, "10", 300), order(2, 12, "9", 100)], 3: [cancel(3, 11)], 4: [cancel(4, 12)]}
    for number, messages in enumerate((stale, unverified)):
        found = live_cancels(messages, 8)
        assert {row[1:] for row in what(found)} == {(None, None, None, 0)} and len(found) == 2
        assert live_cancels(messages, 8, size=100) == found
        (directory := tmp_path / str(number)).mkdir()
        assert {row[1:] for row in what(lake_cancels(messages, 8, directory))} == {(None, None, None, 0)}
