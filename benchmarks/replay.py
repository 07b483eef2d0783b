"""From a capture file to books, on one core."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Result, fastest
from umdf.book.engine import Books
from umdf.cli.replay import expand_captures, replay
from umdf.exchange.bulk.capture import write_capture
from umdf.exchange.bulk.settings import BulkSettings
from umdf.market.sbe.events import SbeEventMapper
from umdf.transport.capture import open_capture
from umdf.wire.fast.loader import load as load_templates
from umdf.wire.sbe.decode import Decoder
from umdf.wire.sbe.loader import load as load_schema

MESSAGES, INSTRUMENTS = 1_000_000, 500


def run() -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as directory:
        day = Path(directory)
        summary = write_capture(BulkSettings(MESSAGES, INSTRUMENTS), day)
        [line] = (day / "capture").glob("*incremental-A.pcap")
        decoder, packets, rows = Decoder(load_schema(), validity=False), 0, 0

        def to_books() -> None:
            nonlocal packets, rows
            packets, rows = 0, 0
            books, mapper = Books(), SbeEventMapper(decoder.layout)
            with open_capture(line) as capture:
                for batch in capture:
                    events = mapper.events(decoder.decode(batch.buffer, batch.start, batch.end), batch.ts_ns)
                    books.apply(events.rows("mbo"))
                    packets += len(batch)
                    rows += len(events.rows("mbo"))

        def whole() -> None:
            replay(expand_captures([day / "capture"]), load_schema(), load_templates())

        best = fastest({"books": to_books, "whole": whole})
        figure = f"{best['books'] / rows * 1e9:.0f} ns/message, {rows / packets:.1f} messages a packet"
        yield Result("capture → books, one line, one core", figure, packets / best["books"] / 1e6, "M packets/s")
        figure = "both lines merged, snapshots, statistics, states; files read twice"
        rate = summary.packets / best["whole"] / 1e6
        yield Result("capture → books, all streams, one core", figure, rate, "M packets/s")
