"""A whole bulk capture: the market in this thread, a publisher for each wire in a thread of its own.

summary = write_capture(BulkSettings(messages=1_000_000), Path("day"))

day/capture/*.pcap, manifest.jsonl      day/truth/*.parquet (see bulk_truth)      day/session.json
"""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Thread

import numpy as np

from umdf.errors import ConfigError
from umdf.exchange.bulk_fast import FastPublisher
from umdf.exchange.bulk_files import Manifest
from umdf.exchange.bulk_listing import Listing, make_listing
from umdf.exchange.bulk_market import Market
from umdf.exchange.bulk_publisher import INCREMENTAL, Piece, Publisher
from umdf.exchange.bulk_sbe import SbePublisher
from umdf.exchange.bulk_session import Session
from umdf.exchange.bulk_settings import FAST, SBE, SECOND_NS, BulkSettings
from umdf.exchange.bulk_truth import Truth

PUBLISHERS: dict[str, type[Publisher]] = {SBE: SbePublisher, FAST: FastPublisher}
PIECES_WAITING = 2


@dataclass(frozen=True)
class Summary:
    messages: int  # of the incremental stream
    trades: int
    packets: int
    files: int
    bytes: int
    simulated_s: float
    elapsed_s: float
    messages_per_s: float
    directory: str


@dataclass(frozen=True)
class Clock:
    """Real time, or what a test takes for it: nanoseconds, and how to wait for seconds."""

    now_ns: Callable[[], int] = time.monotonic_ns
    sleep_s: Callable[[float], None] = time.sleep


class Desk:
    """A publisher at work: it gets pieces in order, and its failure is the next caller's."""

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher
        self._pieces: queue.Queue[Piece | None] = queue.Queue(PIECES_WAITING)
        self._failure: BaseException | None = None
        self._thread = Thread(target=self._work, name=f"publish-{publisher.wire}", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while (piece := self._pieces.get()) is not None:
            if self._failure is None:
                try:
                    self.publisher.publish(piece)
                except BaseException as error:  # told to whoever hands over the next piece
                    self._failure = error

    def publish(self, piece: Piece) -> None:
        if self._failure is not None:
            raise self._failure
        self._pieces.put(piece)

    def finish(self) -> None:
        """All pieces are written and all files closed."""
        self._pieces.put(None)
        self._thread.join()
        self.publisher.close()
        if self._failure is not None:
            raise self._failure


def write_capture(settings: BulkSettings, directory: Path, clock: Clock | None = None) -> Summary:
    """Write a capture into a directory that has none yet."""
    clock, begun = clock or Clock(), time.monotonic()
    capture, truth = _prepare(directory)
    listing = make_listing(settings, np.random.default_rng([settings.seed, 0]))
    market, manifest, facts = Market(listing, settings), Manifest(capture), Truth(truth, settings.channel)
    desks = [Desk(PUBLISHERS[wire](settings, listing, manifest, facts)) for wire in settings.wires]
    _describe(directory, settings, listing, [desk.publisher for desk in desks])
    pace = Pace(clock) if settings.live_pace else None

    def publish(piece: Piece) -> None:
        if pace:
            pace.wait_for(piece.ts_ns)
        if piece.stream == INCREMENTAL:
            facts.note(piece.lines)
        for desk in desks:
            desk.publish(piece)

    session = Session(market, settings, publish)
    try:
        session.run()
    finally:
        for desk in desks:
            desk.finish()
    facts.close()
    _write_truth(facts, market, [desk.publisher for desk in desks])
    elapsed, totals = time.monotonic() - begun, manifest.totals
    simulated = (market.now - settings.midnight_ns) / SECOND_NS - 12.75 * 3600
    return Summary(
        session.messages,
        facts.trades,
        totals.packets,
        totals.files,
        totals.bytes,
        round(simulated, 3),
        round(elapsed, 3),
        round(session.messages / elapsed),
        str(directory),
    )


class Pace:
    """Holds pieces back until their time has come, counted from the first."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._begun, self._first_ns = clock, 0, -1

    def wait_for(self, ts_ns: int) -> None:
        if self._first_ns < 0:
            self._first_ns, self._begun = ts_ns, self._clock.now_ns()
        late_ns = (ts_ns - self._first_ns) - (self._clock.now_ns() - self._begun)
        if late_ns > 0:
            self._clock.sleep_s(late_ns / SECOND_NS)


def _prepare(directory: Path) -> tuple[Path, Path]:
    capture, truth = directory / "capture", directory / "truth"
    if capture.exists() and any(capture.iterdir()):
        raise ConfigError(f"{capture} already holds files", "name a new directory, or remove it first")
    capture.mkdir(parents=True, exist_ok=True)
    return capture, truth


def _describe(directory: Path, settings: BulkSettings, listing: Listing, publishers: list[Publisher]) -> None:
    """session.json: what was asked for, and where each stream is."""
    wires = {
        publisher.wire: {
            "sequence_versions": publisher.versions,
            **publisher.layout_versions,
            "streams": [
                {"stream": flow.stream, "line": flow.line, "group": flow.dest[0], "port": flow.dest[1]}
                for flow in publisher.flows
            ],
        }
        for publisher in publishers
    }
    about = {
        "settings": asdict(settings),
        "channels": [{"channel": settings.channel, "groups": listing.groups, "wires": wires}],
        "instruments": settings.instruments,
        "note": "snapshot and instrument streams are on the first line only, and are never lost",
    }
    (directory / "session.json").write_text(json.dumps(about, indent=2) + "\n")


def _write_truth(truth: Truth, market: Market, publishers: list[Publisher]) -> None:
    truth.write_market(market)
    sequences = [(publisher.wire, *row) for publisher in publishers for row in publisher.sequences()]
    names = ("wire", "stream", "first", "last", "packets")
    truth.write("sequences", {name: [row[i] for row in sequences] for i, name in enumerate(names)})
    counts = [
        (publisher.wire, *key, rows) for publisher in publishers for key, rows in sorted(publisher.counts.items())
    ]
    names = ("wire", "stream", "family", "rows")
    truth.write("counts", {name: [row[i] for row in counts] for i, name in enumerate(names)})
