"""One session on many channels: both protocols, both generations, by order, by price and top of book; all of them agree
with the exchange's own books at any sequence."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exchange.channel_client import ChannelClient, rows_of, true_rows

from umdf.exchange.bulk.settings import BulkSettings
from umdf.exchange.bulk.trading_day import TradingDay
from umdf.exchange.instruments.listing import Listing, generate_listing
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.market import Market
from umdf.exchange.publish.channel_settings import (
    FAST,
    INCREMENTAL,
    INSTRUMENTS,
    MBO,
    MBP,
    POSITION,
    PRIORITY,
    SBE,
    SNAPSHOTS,
    TOB,
    ChannelSettings,
)
from umdf.exchange.publish.fast_publisher import FastPublisher
from umdf.exchange.publish.publisher import JournalBatch, Publisher
from umdf.exchange.publish.sbe_publisher import SbePublisher
from umdf.exchange.truth.book_history import BookHistory
from umdf.sync.raw_units import UnitKind

Sized = Callable[[int, int], int]
MAX_BYTES = {SBE: 1_400, FAST: 1_420}
CHANNELS = {
    "sbe": ChannelSettings(72, SBE),
    "sbe position": ChannelSettings(73, SBE, POSITION),
    "fast": ChannelSettings(72, FAST),
    "fast position": ChannelSettings(73, FAST, POSITION),
    "mbp 3": ChannelSettings(74, FAST, PRIORITY, MBP, 3),
    "mbp 10": ChannelSettings(75, FAST, PRIORITY, MBP),
    "mbp position": ChannelSettings(76, FAST, POSITION, MBP, 4),
    "tob": ChannelSettings(77, FAST, PRIORITY, TOB),
    "tob position": ChannelSettings(78, FAST, POSITION, TOB),
}


@dataclass
class Session:
    """A day of a few instruments, published on all channels."""

    seed: int
    messages: int
    history: BookHistory = field(default_factory=BookHistory)
    clients: dict[str, ChannelClient] = field(default_factory=dict)
    journal: list[Any] = field(default_factory=list)
    listing: Listing = field(init=False)

    def __post_init__(self) -> None:
        settings = BulkSettings(self.messages, 15, seed=self.seed, channel_reset=True, rate=2_000)
        self.listing = generate_listing(settings, np.random.default_rng(self.seed))
        self.publishers = {name: self.publisher(name, channel) for name, channel in CHANNELS.items()}
        TradingDay(Market(self.listing, settings), settings, self._publish).run()

    def publisher(self, name: str, channel: ChannelSettings) -> Publisher:
        self.clients[name] = client = ChannelClient(channel)
        kind = SbePublisher if channel.protocol == SBE else FastPublisher
        return kind(channel, self.listing, client.sinks, self.history)

    def _publish(self, batch: JournalBatch) -> None:
        if batch.stream == INCREMENTAL:
            self.journal.append(batch.records)
        for publisher in self.publishers.values():
            publisher.publish(replace(batch, records=batch.records.copy()) if batch.stream != INCREMENTAL else batch)


@pytest.fixture(scope="module")
def session(sized: Sized) -> Session:
    return Session(sized(4, random.randrange(1 << 30)), sized(2_500, 40_000))


@pytest.mark.parametrize("name", CHANNELS)
def test_the_books_of_a_channel_are_the_exchanges_at_random_sequences(
    session: Session, name: str, sized: Sized
) -> None:
    client, ids = session.clients[name], session.listing.security_id.tolist()
    last = session.history.last_sequence(client.settings.protocol, client.settings.channel)
    sequences = sorted(random.Random(session.seed).sample(range(1, last), sized(12, 100)))
    compared = 0
    for sequence, books in client.at(sequences, ids):
        for instrument, instrument_id in enumerate(ids):
            book, expected = books.book(instrument_id), true_rows(session.history, CHANNELS[name], instrument, sequence)
            assert rows_of(book) == expected, (sequence, session.listing.symbols[instrument])
            assert book is None or book.stale is None
            compared += len(expected)
    assert compared > 100


@pytest.mark.parametrize("name", CHANNELS)
def test_snapshots_are_the_books_at_the_sequence_that_they_name(session: Session, name: str) -> None:
    client = session.clients[name]
    index = {number: place for place, number in enumerate(session.listing.security_id.tolist())}
    checked = 0
    for header, entries in client.snapshots():
        expected = true_rows(session.history, CHANNELS[name], index[header["instrument_id"]], header["last_sequence"])
        with_ids = client.settings.book_type == MBO
        sent = [(side, price if price != k.NULL else None, size, order if with_ids else count)
                for side, price, size, count, order in entries]  # fmt: skip
        assert sent == expected, header
        assert header["depth"] == (client.declared_depth or np.iinfo(np.int32).min)
        checked += bool(entries)
    assert checked > 20


@pytest.mark.parametrize("name", CHANNELS)
def test_packets_fit_and_their_numbers_have_no_holes(session: Session, name: str) -> None:
    client = session.clients[name]
    for stream, sink in client.sinks.items():
        assert max(map(len, sink.payloads)) <= MAX_BYTES[client.settings.protocol], stream
        assert sink.ts_ns == sorted(sink.ts_ns)
    units = client.units()
    numbered = units.sequence[units.kind == UnitKind.DATA]
    assert (numbered == np.arange(1, len(numbered) + 1)).all()


@pytest.mark.parametrize(("stream", "payload"), [(SNAPSHOTS, 1_410), (INSTRUMENTS, 1_410)])
def test_large_messages_are_in_chunks(session: Session, stream: str, payload: int) -> None:
    sink = session.clients["fast"].sinks[stream]
    chunked = [packet for packet in sink.payloads if int.from_bytes(packet[4:6], "big") > 1]
    assert chunked or stream == INSTRUMENTS
    for packet in chunked:
        chunks, number = int.from_bytes(packet[4:6], "big"), int.from_bytes(packet[6:8], "big")
        assert len(packet) == 10 + payload or number == chunks


def test_entries_of_price_books_have_no_order_and_no_firm(session: Session) -> None:
    """279, 269, 270, 271 and 346 only; a top of book has Overlays only."""
    for name in ("mbp 3", "tob"):
        client = session.clients[name]
        units = client.units()
        mbo = client.events(units.take(units.kind == UnitKind.DATA)).rows("mbo")
        entries = np.isin(mbo.column("action"), [ord("A"), ord("M"), ord("C")]) & (mbo.column("side") != ord("N"))
        for column in ("order_id", "firm", "prev_size", "ts_insert"):
            assert (mbo.column(column)[entries] == k.NULL).all(), column
        actions = set(mbo.column("update_action")[entries].tolist())
        assert actions == ({5} if name == "tob" else {0, 1, 2})


def test_by_position_several_matched_orders_are_one_delete_from(session: Session) -> None:
    counts = {}
    for name in ("sbe", "sbe position", "fast position"):
        client = session.clients[name]
        units = client.units()
        mbo = client.events(units.take(units.kind == UnitKind.DATA)).rows("mbo")
        counts[name] = int((mbo.column("update_action") == 4).sum())
    assert counts["sbe"] == 0 and counts["sbe position"] == counts["fast position"] > 3


def test_a_history_in_a_file_is_the_one_in_memory(session: Session, tmp_path: Path) -> None:
    spilled, kept = BookHistory(tmp_path, max_bytes=4_096), BookHistory()
    journal = session.journal
    for epoch, batch in enumerate(journal):
        rows = np.arange(len(batch))
        for history in (spilled, kept):
            history.add(SBE, 72, epoch // 20, batch, rows, rows + 1)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) > 100_000
    for instrument in range(len(session.listing)):
        for epoch in (0, 1):
            books = [history.book_at(SBE, instrument, 1 << 40, 72, epoch) for history in (spilled, kept)]
            assert books[0] == books[1]
            statistics = [history.statistics_at(SBE, instrument, 1 << 40, 72, epoch) for history in (spilled, kept)]
            assert statistics[0] == statistics[1] and (statistics[0] or epoch == 0)
