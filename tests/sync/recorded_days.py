"""A simulated day of one market on channels of every kind, packet by packet, with what is right after each of them.

    recorded = record_day(RESET)            # channels by name: "sbe", "fast-mbp" …
    recorded["sbe"].truth(sequence)         # instrument → View

What is right is what a client shows that misses nothing. That this is what the exchange holds, other tests prove
(tests/parity, tests/exchange/test_channels.py); here its books are compared with the exchange's at the end of the day.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from exchange.channel_client import SCHEMA, TEMPLATES, KeptPackets, rows_of
from numpy.typing import NDArray

from umdf.exchange.bulk.capture import PUBLISHERS
from umdf.exchange.bulk.settings import BulkSettings
from umdf.exchange.bulk.trading_day import TradingDay
from umdf.exchange.instruments.listing import generate_listing
from umdf.exchange.matching.market import Market
from umdf.exchange.publish.channel_settings import (
    FAST,
    INCREMENTAL,
    INSTRUMENTS,
    MBP,
    POSITION,
    SBE,
    SNAPSHOTS,
    STREAMS,
    TOB,
    ChannelSettings,
)
from umdf.exchange.publish.publisher import JournalBatch
from umdf.market.families import LAST_PRICE, NULL, SETTLEMENT_PRICE
from umdf.market.rows import Events
from umdf.sync.channel import Channel
from umdf.sync.session import ChannelKey, Session
from umdf.sync.stream_detection import DetectedStream, StreamKind
from umdf.sync.until import Until
from umdf.wire.packet import Protocol

MS = 1_000_000
PLAIN, RESET, RESTART = "plain", "with a channel reset", "with a new numbering"
CHANNELS = {
    "sbe": ChannelSettings(71, SBE),
    "sbe-position": ChannelSettings(72, SBE, POSITION),
    "fast": ChannelSettings(73, FAST),
    "fast-position": ChannelSettings(74, FAST, POSITION),
    "fast-mbp": ChannelSettings(75, FAST, book_type=MBP, depth=4),
    "fast-mbp-position": ChannelSettings(76, FAST, POSITION, MBP, 4),
    "fast-tob": ChannelSettings(77, FAST, book_type=TOB),
}
LINE_A, LINE_B, SNAPSHOT_LINE, INSTRUMENT_LINE = FLOWS = ("A", "B", "snapshots", "instruments")
LINE_B_DELAY_NS = 300_000
# In a snapshot the last price is one of its own kind, and a final settlement price stands for the preview before it.
SENT_DIFFERENTLY = (LAST_PRICE, SETTLEMENT_PRICE)


@dataclass(frozen=True)
class Sent:
    ts: int
    flow: str
    content: bytes
    first: int  # sequences of the incremental stream; 0: none
    last: int
    numbering: int = 0  # how often the stream has been numbered anew before


class View(NamedTuple):
    """What is shown of an instrument."""

    book: tuple[Any, ...] = ()
    last: int | None = None
    trades: int = 0
    statistics: tuple[Any, ...] = ()
    state: int = 20  # unknown


@dataclass(eq=False)
class RecordedChannel:
    settings: ChannelSettings
    sent: list[Sent]  # each packet once, in order of time
    ids: list[int]
    offset: int = 0  # of the truth from the second numbering
    original: RecordedChannel | None = None  # the same day with one numbering, whose truth this one shares
    _is_known: bool = False
    _topics: dict[int, set[str]] = field(default_factory=dict)
    _places: dict[int, list[int]] = field(default_factory=dict)
    _views: dict[int, list[View | None]] = field(default_factory=dict)

    @property
    def topics(self) -> dict[int, set[str]]:
        """What each sequence is about: families of events, "… of many", "empty book"."""
        self._learn()
        return self._topics

    @property
    def is_fast(self) -> bool:
        return self.settings.protocol == FAST

    @property
    def last(self) -> int:
        return max(packet.last for packet in self.sent if packet.flow == LINE_A)

    def packets(self) -> list[Sent]:
        """On both lines."""
        return sorted(
            (*self.sent, *(replace(packet, flow=LINE_B, ts=packet.ts + LINE_B_DELAY_NS)
                           for packet in self.sent if packet.flow == LINE_A)),
            key=lambda packet: packet.ts,
        )  # fmt: skip

    def truth(self, instrument_id: int, sequence: int, numbering: int = 0) -> View | None:
        """None: it does not exist."""
        if self.original is not None:
            return self.original.truth(instrument_id, sequence + (self.offset if numbering else 0))
        self._learn()
        places = self._places.get(instrument_id, [])
        at = bisect_right(places, sequence)
        return self._views[instrument_id][at - 1] if at else None

    def is_end_of_packet(self, sequence: int, numbering: int = 0) -> bool:
        return any(p.last == sequence and p.numbering == numbering for p in self.sent if p.flow == LINE_A)

    def _note(self, client: Client, touched: set[int]) -> None:
        for number in touched & set(self.ids):
            exists = number in client.channel.state.instruments
            self._places.setdefault(number, []).append(client.channel.sequence)
            self._views.setdefault(number, []).append(view_of(client.channel, number) if exists else None)

    def _learn(self) -> None:
        """Feed everything to a client, packet by packet."""
        if self._is_known:
            return
        self._is_known, touched, seen = True, set[int](), 0

        def observe(_: ChannelKey, events: Events) -> None:
            for name, rows in events.families.items():
                ids, sequences = rows.column("instrument_id").tolist(), events.units.sequence[rows.unit].tolist()
                for number, sequence in zip(ids, sequences, strict=True):
                    self._topics.setdefault(sequence, set()).add(f"{name} of many" if number == NULL else name)
                touched.update(ids)
            book = events.rows("mbo")
            for row in np.flatnonzero(book.column("action") == ord("R")).tolist():
                self._topics[int(events.units.sequence[book.unit[row]])].add("empty book")

        client = Client(self.settings, observer=observe)
        for packet in self.sent:
            client.feed([packet])
            if client.channel.sequence > seen:
                seen = client.channel.sequence
                self._note(client, touched | set(self.ids) if NULL in touched else touched)
                touched.clear()
        client.session.finish()
        assert not client.channel.gaps.opened
        for number in client.channel.state.instruments.ids():
            assert client.channel.state_trust(number).is_healthy


def view_of(channel: Channel, instrument_id: int) -> View:
    last, totals = channel.state.statistics.tape.venues_of(instrument_id).get(0, (None, None))
    values = channel.state.statistics.latest["statistics"].values_of(instrument_id)
    statistics = tuple((key, each.get("price"), each.get("size")) for key, each in values
                       if key >> 8 & 0xFFFF not in SENT_DIFFERENTLY)  # fmt: skip
    state = channel.state.phases.state_of(instrument_id).state
    price, trades = None if last is None else last.price, totals.trades if totals else 0
    return View(tuple(rows_of(channel.book(instrument_id))), price, trades, statistics, state)


@dataclass(frozen=True, eq=False)
class _Packets:
    buffer: NDArray[np.uint8]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    ts_ns: NDArray[np.int64]
    flow: NDArray[np.uint16]


class Client:
    """A session that is fed with packets of one channel."""

    def __init__(self, settings: ChannelSettings, until: Until | None = None, *, observer: Any = None) -> None:
        protocol = Protocol.FAST if settings.protocol == FAST else Protocol.SBE
        kinds = StreamKind.INCREMENTAL, StreamKind.INCREMENTAL, StreamKind.SNAPSHOT, StreamKind.INSTRUMENTS
        streams = [
            DetectedStream(flow, protocol, kind, settings.channel, 1) for flow, kind in zip(FLOWS, kinds, strict=True)
        ]
        self.session = Session(streams, SCHEMA, TEMPLATES, until, observer)
        [self.channel] = self.session.channels.values()

    def feed(self, received: list[Sent]) -> None:
        if not received:
            return
        end = np.cumsum([len(packet.content) for packet in received])
        buffer = np.frombuffer(b"".join(packet.content for packet in received), np.uint8)
        flow = np.array([FLOWS.index(packet.flow) for packet in received], np.uint16)
        ts = np.array([packet.ts for packet in received])
        names: list[Hashable] = list(FLOWS)
        packets = _Packets(buffer, np.concatenate([[0], end[:-1]]), end, ts, flow)
        self.session.add(packets, names, np.arange(len(received)))
        self.session.advance(received[-1].ts)


def record_day(kind: str = PLAIN, seed: int = 4, messages: int = 600) -> dict[str, RecordedChannel]:
    settings = BulkSettings(messages, 12, seed=seed, channel_reset=kind == RESET, snapshot_loops=14)
    listing = generate_listing(settings, np.random.default_rng([seed, 0]))
    market = Market(listing, settings)
    sinks = {name: {stream: KeptPackets() for stream in STREAMS} for name in CHANNELS}
    publishers = {
        name: PUBLISHERS[each.protocol](replace(each, heartbeat_ms=1_000), listing, sinks[name])
        for name, each in CHANNELS.items()
    }
    restarts: dict[str, int] = {}

    def publish(batch: JournalBatch) -> None:
        for name, publisher in publishers.items():
            publisher.publish(batch)
            is_due = trading_day.messages > messages // 2 and name not in restarts
            if kind == RESTART and is_due and batch.stream == INCREMENTAL:
                restarts[name] = len(sinks[name][INCREMENTAL].payloads)
                publisher.reset_sequences(batch.ts_ns)

    trading_day = TradingDay(market, settings, publish)
    trading_day.run()
    ids = [int(number) for number in listing.security_id[: len(listing)]]
    recorded = {}
    for name, each in CHANNELS.items():
        publishers[name].close()
        # A SequenceReset of FIX/FAST still has a number of the old numbering.
        restart = restarts.get(name, 1 << 60) + (each.protocol == FAST)
        sent = [
            Sent(ts, flow, content, *(numbers if flow == LINE_A else (0, 0)), int(number >= restart))
            for flow, stream in ((LINE_A, INCREMENTAL), (SNAPSHOT_LINE, SNAPSHOTS), (INSTRUMENT_LINE, INSTRUMENTS))
            for number, (ts, content, numbers) in enumerate(
                zip(sinks[name][stream].ts_ns, sinks[name][stream].payloads, sinks[name][stream].sequences, strict=True)
            )
        ]
        recorded[name] = RecordedChannel(each, sorted(sent, key=lambda packet: packet.ts), ids)
    return recorded


def restarted(plain: RecordedChannel, again: RecordedChannel) -> RecordedChannel:
    """The same day with two numberings, with the truth of the day with one."""
    before = max(packet.last for packet in again.sent if packet.flow == LINE_A and not packet.numbering)
    again.original = plain
    after = max(packet.last for packet in again.sent if packet.flow == LINE_A and packet.numbering)
    again.offset = plain.last - after
    assert abs(again.offset - before) <= 2, "a reset costs a number or two"
    return again
