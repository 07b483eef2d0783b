"""A bulk capture as live traffic, and the exchange's own books to compare with at every step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from umdf.book import memory_layout_kernel as k
from umdf.cli.replay import expand_captures
from umdf.exchange.bulk.capture import write_capture
from umdf.exchange.bulk.settings import BulkSettings
from umdf.exchange.instruments.listing import generate_listing
from umdf.exchange.matching import memory_layout_kernel as journal
from umdf.exchange.truth.book_history import Book, BookHistory
from umdf.feed.channel_feed import ChannelFeed, FeedSettings
from umdf.feed.channel_states import FeedState
from umdf.feed.client import FeedClient
from umdf.feed.events import FeedEvent, StateChanged
from umdf.feed.feed_lines import FeedLine
from umdf.feed.replay import captured_lines, loopback_channels, replayed_packets
from umdf.market.families import NULL
from umdf.transport.channels_file import ChannelAddresses
from umdf.transport.udp_receiver import ReceivedPackets
from umdf.wire.fast.loader import load as load_templates

SECOND_NS = 1_000_000_000


@dataclass
class LiveDay:
    """A day of one channel: its packets in order of time, and its true books."""

    directory: Path
    protocol: str
    history: BookHistory
    instrument_ids: list[int]
    channels: list[ChannelAddresses] = field(init=False)

    def __post_init__(self) -> None:
        self.paths = expand_captures([self.directory / "capture"])
        self.lines = captured_lines(self.paths, load_templates())
        self.channels = loopback_channels(self.lines, 40_000)

    def packets(self, sizes: Iterator[int] | None = None) -> Iterator[ReceivedPackets]:
        """In batches of these sizes."""
        for packets in replayed_packets(self.paths, self.lines, []):
            first = 0
            while first < len(packets):
                size = next(sizes) if sizes is not None else len(packets)
                yield packets.take(slice(first, first + size))
                first += size


def write_day(
    directory: Path,
    protocol: str = "sbe",
    loss: float = 0.0,
    seed: int = 3,
    messages: int = 2_000,
    *,
    channel_reset: bool = True,
) -> LiveDay:
    settings, history = (
        BulkSettings(messages, 20, protocol, loss=loss, seed=seed, channel_reset=channel_reset),
        BookHistory(),
    )
    write_capture(settings, directory, history=history)
    ids = generate_listing(settings, np.random.default_rng([seed, 0])).security_id.tolist()
    return LiveDay(directory, protocol, history, ids)


class TrueBooks:
    """The exchange's books as of a sequence that only grows, within one epoch."""

    def __init__(self, day: LiveDay) -> None:
        history = day.history
        ((_, batches),) = [each for each in history._batches.items() if each[0][0] == day.protocol]
        self._sequence = np.concatenate([history._sequences[sequences] for _, _, sequences in batches])
        self._records = np.concatenate([history._records[records] for _, records, _ in batches])
        order = np.argsort(self._sequence, kind="stable")
        self._sequence, self._records, self._next = self._sequence[order], self._records[order], 0
        self._ids = day.instrument_ids
        self.books = {number: Book() for number in self._ids}

    def advance(self, sequence: int) -> set[int]:
        """Apply everything up to a sequence; returns the instruments whose books were changed."""
        until, changed = int(np.searchsorted(self._sequence, sequence, side="right")), set[int]()
        for record in self._records[self._next : until].tolist():
            everyone, instrument = record[journal.KIND] == journal.CHANNEL_RESET, record[journal.INSTRUMENT]
            is_one = 0 <= instrument < len(self._ids)
            for number in self._ids if everyone else [self._ids[instrument]] if is_one else []:
                self.books[number].apply(record)
                changed.add(number)
        self._next = max(until, self._next)
        return changed

    def orders(self, number: int) -> list[tuple[int, int, int, int]]:
        """Side, price, order, size; bids first, the best first."""
        book = self.books[number]
        sides = ((k.BID, book.bids), (k.ASK, book.asks))
        return [
            (side, NULL if order.price is None else order.price, order.order_id, order.size)
            for side, orders in sides
            for order in orders
        ]


def orders_of(feed: ChannelFeed, number: int) -> list[tuple[int, int, int, int]]:
    book = feed.channel.book(number)
    if book is None:
        return []
    columns = (book.entries[name].tolist() for name in ("side", "price", "order_id", "size"))
    found = list(zip(*columns, strict=True))
    return [each for side in (k.BID, k.ASK) for each in found if each[0] == side]


@dataclass
class Follower:
    """A client that receives some packets, compared with the truth after every step."""

    day: LiveDay
    settings: FeedSettings | None = None
    compared: int = 0  # healthy books
    untrusted: int = 0  # books that were not healthy when they were looked at
    events: list[FeedEvent] = field(default_factory=list)
    now_ns: int = 0

    def __post_init__(self) -> None:
        self.client = FeedClient(self.day.channels, self.settings)
        (self.feed,) = self.client.feeds.values()
        self._truth, self._epoch = TrueBooks(self.day), None
        self._unseen = set(self.day.instrument_ids)  # changed since they were compared

    def receive(self, packets: ReceivedPackets) -> None:
        """Only packets of lines that are joined arrive."""
        joined = self.client.wanted_lines()
        is_joined = np.array([name in joined for name in packets.names])
        packets = packets.take(np.flatnonzero(is_joined[packets.flow]))
        self.client.receive(packets)
        self.tick(int(packets.ts_ns[-1]) if len(packets) else self.now_ns)

    def receive_recovered(self, packets: ReceivedPackets) -> None:
        """What a recovery source returns."""
        self.client.receive(packets)
        self.tick(int(packets.ts_ns[-1]))

    def tick(self, now_ns: int) -> None:
        self.now_ns = max(self.now_ns, now_ns)
        for report in self.client.advance(self.now_ns):
            self.events += report.events
        self._compare()

    def _compare(self) -> None:
        channel = self.feed.channel
        if channel.epoch is None:
            return
        if channel.epoch != self._epoch:
            self._epoch, self._truth = channel.epoch, TrueBooks(self.day)
            self._unseen = set(self.day.instrument_ids)
        self._unseen |= self._truth.advance(channel.sequence)
        for number in sorted(self._unseen):
            if channel.book_trust(number).is_healthy:
                assert orders_of(self.feed, number) == self._truth.orders(number), (number, channel.sequence)
                self._unseen.discard(number)
                self.compared += 1
            else:
                self.untrusted += 1

    def assert_all_right(self) -> None:
        """At the end every book is healthy and right."""
        assert self.feed.state == FeedState.LIVE and self.feed.untrusted_count == 0
        known = self.feed.instrument_ids()
        assert len(known) >= len(self.day.instrument_ids) - 2  # the others were deleted during the session
        for number in self.day.instrument_ids:
            assert orders_of(self.feed, number) == self._truth.orders(number), number
            trust = self.feed.channel.book_trust(number)
            assert trust.is_healthy if number in known else self._truth.orders(number) == [], (number, trust)

    @property
    def states(self) -> list[FeedState]:
        return [event.state for event in self.events if isinstance(event, StateChanged)]


def without(packets: ReceivedPackets, lost: np.ndarray) -> ReceivedPackets:
    return packets.take(np.flatnonzero(~lost))


def is_line(packets: ReceivedPackets, stream: str, line: str) -> np.ndarray:
    found = [isinstance(name, FeedLine) and (name.stream, name.line) == (stream, line) for name in packets.names]
    return np.array(found)[packets.flow]
