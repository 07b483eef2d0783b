"""A whole bulk capture: the market in this thread, a publisher for each protocol in a thread of its own.

    summary = write_capture(BulkSettings(messages=1_000_000), Path("day"))

day/capture/*.pcap, manifest.jsonl      day/truth/*.parquet (see `truth`)      day/session.json
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
from umdf.exchange.bulk.capture_sinks import flows_of, open_sinks
from umdf.exchange.bulk.settings import SECOND_NS, BulkSettings
from umdf.exchange.bulk.trading_day import TradingDay
from umdf.exchange.instruments.listing import Listing, generate_listing
from umdf.exchange.matching.market import Market
from umdf.exchange.publish.channel_settings import FAST, INCREMENTAL, SBE
from umdf.exchange.publish.fast_publisher import FastPublisher
from umdf.exchange.publish.member_filter import without_firms
from umdf.exchange.publish.publisher import JournalBatch, Publisher
from umdf.exchange.publish.sbe_publisher import SbePublisher
from umdf.exchange.truth.book_history import BookHistory
from umdf.exchange.truth.tables import Truth
from umdf.transport.rolling_captures import Manifest

PUBLISHERS: dict[str, type[Publisher]] = {SBE: SbePublisher, FAST: FastPublisher}
QUEUED_BATCHES = 2


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
    """Real time, or that of a test: nanoseconds, and a way to sleep."""

    now_ns: Callable[[], int] = time.monotonic_ns
    sleep_s: Callable[[float], None] = time.sleep


class PublisherThread:
    """Runs a publisher: it publishes batches in order, and its error is raised by the next call."""

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher
        self._queue: queue.Queue[JournalBatch | None] = queue.Queue(QUEUED_BATCHES)
        self._failure: BaseException | None = None
        self._thread = Thread(target=self._run, name=f"publish-{publisher.protocol}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (batch := self._queue.get()) is not None:
            if self._failure is None:
                try:
                    self.publisher.publish(batch)
                except BaseException as error:  # raised by the next call
                    self._failure = error

    def publish(self, batch: JournalBatch) -> None:
        if self._failure is not None:
            raise self._failure
        self._queue.put(batch)

    def finish(self) -> None:
        """Write all batches and close all files."""
        self._queue.put(None)
        self._thread.join()
        self.publisher.close()
        if self._failure is not None:
            raise self._failure


def write_capture(
    settings: BulkSettings, directory: Path, clock: Clock | None = None, history: BookHistory | None = None
) -> Summary:
    """Write a capture to a directory that has none yet; a history can give the books of any moment afterwards."""
    clock, started_s = clock or Clock(), time.monotonic()
    capture, truth = _make_directories(directory)
    listing = generate_listing(settings, np.random.default_rng([settings.seed, 0]))
    market, manifest, truth_writer = Market(listing, settings), Manifest(capture), Truth(truth, settings.channel)
    publishers = [
        PUBLISHERS[protocol](
            settings.channel_settings(protocol),
            listing,
            open_sinks(settings, protocol, manifest, truth_writer),
            history,
        )
        for protocol in settings.protocols
    ]
    publisher_threads = [PublisherThread(publisher) for publisher in publishers]
    _write_session(directory, settings, listing, publishers)
    pacer = Pacer(clock) if settings.real_time else None

    def publish(batch: JournalBatch) -> None:
        if pacer:
            pacer.wait_until(batch.ts_ns)
        if batch.stream == INCREMENTAL:
            truth_writer.add_trades(without_firms(batch.records, listing), listing.security_id)
        for thread in publisher_threads:
            thread.publish(batch)

    trading_day = TradingDay(market, settings, publish)
    try:
        trading_day.run()
    finally:
        for thread in publisher_threads:
            thread.finish()
    truth_writer.close()
    _write_truth(truth_writer, market, publishers)
    elapsed, totals = time.monotonic() - started_s, manifest.totals
    simulated = (market.now - settings.midnight_ns) / SECOND_NS - 12.75 * 3600
    return Summary(
        trading_day.messages,
        truth_writer.trade_count,
        totals.packets,
        totals.files,
        totals.bytes,
        round(simulated, 3),
        round(elapsed, 3),
        round(trading_day.messages / elapsed),
        str(directory),
    )


class Pacer:
    """Delays batches to the pace of their times, counted from the first."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._start_ns, self._first_ns = clock, 0, -1

    def wait_until(self, ts_ns: int) -> None:
        if self._first_ns < 0:
            self._first_ns, self._start_ns = ts_ns, self._clock.now_ns()
        ahead_ns = (ts_ns - self._first_ns) - (self._clock.now_ns() - self._start_ns)
        if ahead_ns > 0:
            self._clock.sleep_s(ahead_ns / SECOND_NS)


def _make_directories(directory: Path) -> tuple[Path, Path]:
    capture, truth = directory / "capture", directory / "truth"
    if capture.exists() and any(capture.iterdir()):
        raise ConfigError(f"{capture} is not empty", "use a new directory, or delete it first")
    capture.mkdir(parents=True, exist_ok=True)
    return capture, truth


def _write_session(directory: Path, settings: BulkSettings, listing: Listing, publishers: list[Publisher]) -> None:
    """Write session.json: the settings, and the multicast group and port of each stream."""
    protocols = {
        publisher.protocol: {
            "sequence_versions": publisher.seq_versions,
            **publisher.format_versions,
            "streams": [
                {"stream": flow.stream, "line": flow.line, "multicast_group": flow.dest[0], "port": flow.dest[1]}
                for flows in flows_of(settings, publisher.protocol).values()
                for flow in flows
            ],
        }
        for publisher in publishers
    }
    session = {
        "settings": asdict(settings),
        "channels": [{"channel": settings.channel, "groups": listing.groups, "protocols": protocols}],
        "instruments": settings.instruments,
        "note": "snapshot and instrument streams are on line A only, without loss",
    }
    (directory / "session.json").write_text(json.dumps(session, indent=2) + "\n")


def _write_truth(truth: Truth, market: Market, publishers: list[Publisher]) -> None:
    truth.write_market(market)
    sequences = [(publisher.protocol, *row) for publisher in publishers for row in publisher.sequences()]
    names = ("protocol", "stream", "first_sequence", "last_sequence", "packets")
    truth.write("sequences", {name: [row[i] for row in sequences] for i, name in enumerate(names)})
    counts = [
        (publisher.protocol, *key, rows) for publisher in publishers for key, rows in sorted(publisher.counts.items())
    ]
    names = ("protocol", "stream", "family", "rows")
    truth.write("counts", {name: [row[i] for row in counts] for i, name in enumerate(names)})
