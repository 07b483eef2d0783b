"""A bulk capture as live traffic, and the exchange's own books to compare with at every step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from umdf.sync.channel import Channel
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

    def true_books(self) -> TrueBooks:
        ((protocol, number),) = (key for key in self.history._batches if key[0] == self.protocol)
        books = TrueBooks(self.history, protocol, number, lambda: self.instrument_ids)
        books.start_epoch()
        return books

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
    """The exchange's books of a channel as of a sequence that only grows. Records are read as the history gets them."""

    def __init__(self, history: BookHistory, protocol: str, channel: int, ids: Callable[[], list[int]]) -> None:
        """`ids`: of the instruments, in the order of the listing, 0 for those of other channels; more may come."""
        self._history, self._key, self._ids = history, (protocol, channel), ids
        self._batch = self._row = 0  # the next record
        self._epoch: int | None = None
        self.books = {number: Book() for number in ids() if number}

    def start_epoch(self) -> None:
        """The client receives another numbering: at first the newest, then the one that follows."""
        newest = max(epoch for epoch, _, _ in self._history._batches[self._key])
        self._epoch = newest if self._epoch is None else self._epoch + 1

    def advance(self, sequence: int) -> set[int]:
        """Apply everything up to a sequence; returns the instruments whose books were changed."""
        batches, changed, ids = self._history._batches[self._key], set[int](), self._ids()
        assert self._epoch is not None, "an epoch has started"
        while self._batch < len(batches):
            epoch, records_number, sequences_number = batches[self._batch]
            records, sequences = self._history._records[records_number], self._history._sequences[sequences_number]
            if epoch > self._epoch:
                break
            until = len(records) if epoch < self._epoch else int(np.searchsorted(sequences, sequence, side="right"))
            for record in records[self._row : until].tolist():
                changed |= self._apply(record, ids)
            self._row = max(self._row, until)
            if self._row < len(records):
                break
            self._batch, self._row = self._batch + 1, 0
        return changed

    def _apply(self, record: list[int], ids: list[int]) -> set[int]:
        instrument = record[journal.INSTRUMENT]
        if record[journal.KIND] == journal.CHANNEL_RESET:
            concerned = list(self.books)
        else:
            concerned = [ids[instrument]] if 0 <= instrument < len(ids) and ids[instrument] else []
        for number in concerned:
            self.books.setdefault(number, Book()).apply(record)
        return set(concerned)

    def orders(self, number: int) -> list[tuple[int, int, int, int]]:
        """Side, price, order, size; bids first, the best first."""
        book = self.books[number]
        sides = ((k.BID, book.bids), (k.ASK, book.asks))
        return [
            (side, NULL if order.price is None else order.price, order.order_id, order.size)
            for side, orders in sides
            for order in orders
        ]

    def levels(self, number: int, depth: int) -> list[tuple[int, int, int, int]]:
        """Side, price, quantity, orders; bids first, the best first."""
        sides = ((k.BID, "B"), (k.ASK, "A"))
        return [
            (side, NULL if level.price is None else level.price, level.size, level.orders)
            for side, name in sides
            for level in self.books[number].levels(name, depth)
        ]


def orders_of(feed: ChannelFeed, number: int) -> list[tuple[int, int, int, int]]:
    return _entries_of(feed, number, ("side", "price", "order_id", "size"))


def levels_of(feed: ChannelFeed, number: int) -> list[tuple[int, int, int, int]]:
    return _entries_of(feed, number, ("side", "price", "size", "count"))


def _entries_of(feed: ChannelFeed, number: int, names: tuple[str, ...]) -> list[tuple[int, int, int, int]]:
    book = feed.channel.book(number)
    if book is None:
        return []
    found = list(zip(*(book.entries[name].tolist() for name in names), strict=True))
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
        self._truth, self._epoch = self.day.true_books(), None
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
        self.compare()

    def compare(self) -> None:
        channel = self.feed.channel
        if channel.epoch is None:
            return
        assert_same_trust(channel)
        if channel.epoch != self._epoch:
            self._epoch, self._truth = channel.epoch, self.day.true_books()
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


def assert_same_trust(channel: Channel) -> None:
    """What is told of all instruments at once is what is told of each."""
    ids = {*channel.state.instruments.ids(), *channel.instrument_ids()}
    trusts = {number: channel.book_trust(number) for number in ids}
    assert channel.untrusted() == {number: trust for number, trust in trusts.items() if not trust.is_healthy}
    if not channel.untrusted():
        is_uncertain = not all(channel.state_trust(number).is_healthy for number in ids)
        assert channel.has_uncertain_state() == is_uncertain


def without(packets: ReceivedPackets, lost: np.ndarray) -> ReceivedPackets:
    return packets.take(np.flatnonzero(~lost))


def is_line(packets: ReceivedPackets, stream: str, line: str) -> np.ndarray:
    found = [isinstance(name, FeedLine) and (name.stream, name.line) == (stream, line) for name in packets.names]
    return np.array(found)[packets.flow]
