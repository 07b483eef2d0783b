"""Two clients that get the same packets, one with early books and one without, compared after every step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
from feed.live_truth import SECOND_NS, orders_of

from umdf.feed.channel_feed import ChannelFeed, FeedSettings
from umdf.feed.client import FeedClient
from umdf.feed.early_books import EarlyBooks, StopReason
from umdf.feed.subscriptions import Subscription
from umdf.market.families import FROM_BOOK
from umdf.market.rows import Events
from umdf.sync import update_gate_kernel as g
from umdf.transport.channels_file import ChannelAddresses
from umdf.transport.udp_receiver import ReceivedPackets


class Truth(Protocol):
    """The exchange's books as of a sequence that only grows."""

    def advance(self, sequence: int) -> set[int]: ...
    def orders(self, number: int) -> Any: ...


class Day(Protocol):
    channels: list[ChannelAddresses]
    instrument_ids: list[int]

    def true_books(self) -> Truth:
        """Of the first numbering, then of the next one."""
        ...


class Twins:
    """Two clients that get the same: one with early books, one without. After every step they are in the same state."""

    def __init__(
        self,
        day: Day,
        *,
        is_truth_known: bool = True,
        settings: FeedSettings | None = None,
        shown: Callable[[ChannelFeed, int], Any] = orders_of,
    ) -> None:
        self.day, self._is_truth_known, self._shown = day, is_truth_known, shown
        self.client, self.plain = FeedClient(day.channels, settings), FeedClient(day.channels, settings)
        self.client.start_early_books()
        ((self.feed,), (self._plain_feed,)) = (each.feeds.values() for each in (self.client, self.plain))
        assert self.feed.early is not None
        self.early: EarlyBooks = self.feed.early
        self.early.reports_changes = True
        self.early.arm()
        self.changes, self.plain_changes = list[Any](), list[Any]()
        self._subscription = Subscription("books", frozenset(), self.changes.append)
        self._plain_subscription = Subscription("books", frozenset(), self.plain_changes.append)
        self._truth, self._epoch = day.true_books(), None
        self._unseen = set(day.instrument_ids)
        self.compared = 0  # healthy books, before the session had the packets
        self.stops: set[StopReason] = set()
        self._nothing: ReceivedPackets | None = None
        self.now_ns = self.completed = 0  # cancels of the last step that got a price

    def receive(self, packets: ReceivedPackets, pieces: Iterator[int]) -> None:
        """In pieces: the session gets them together, or when it is needed."""
        joined = self.client.wanted_lines()
        assert joined == self.plain.wanted_lines()
        packets = packets.take(np.flatnonzero(np.array([name in joined for name in packets.names])[packets.flow]))
        self._nothing = packets.take(slice(0))
        first = pending = 0
        while first < len(packets):
            last = min(len(packets), first + next(pieces))
            is_needed = self.client.apply_early(packets.take(slice(first, last)))
            if (changes := self.feed.early_changes()) is not None:
                self._subscription.offer_changes(self.feed, changes)
            if is_needed:
                self.stops.add(self.early.stop_reason)
                self.process(packets.take(slice(pending, last)))
                pending = last
            elif self.early.is_armed:
                self._compare_with_truth(self.early.reported.stop - 1)
            first = last
        self.process(packets.take(slice(pending, len(packets))))

    def process(self, packets: ReceivedPackets) -> None:
        self.now_ns = max(self.now_ns, int(packets.ts_ns.max(initial=0)))
        reports = []
        for client, subscription in ((self.client, self._subscription), (self.plain, self._plain_subscription)):
            client.receive(packets)
            reports.append(client.advance(self.now_ns))
            for report in reports[-1]:
                subscription.offer(report)
        assert [each.events for each in reports[0]] == [each.events for each in reports[1]]
        batches = [[rows_of(events) for each in found for events in each.batches] for found in reports]
        flags = [flags for events in batches[0] for flags in events.get("mbo", {}).get("flags", [])]
        self.completed = sum(each & FROM_BOOK != 0 for each in flags)
        assert batches[0] == batches[1]
        self._compare_states()
        self._compare_with_truth(self.feed.channel.sequence)

    def _compare_states(self) -> None:
        one, other = self.feed.channel, self._plain_feed.channel
        assert (one.epoch, one.sequence, one.recovered) == (other.epoch, other.sequence, other.recovered)
        assert one.instrument_ids() == other.instrument_ids() and one.gaps.opened == other.gaps.opened
        states, plain_states = (each.trust.all_states() for each in (one, other))
        count = min(map(len, (states, plain_states)))
        assert np.array_equal(states[:count], plain_states[:count])
        for number in one.instrument_ids():
            place = one.trust.number_of(number, lending=False)
            if place >= 0 and states[place, g.S_STALE] and not self._is_truth_known:
                continue  # a stale book may have had updates that came before the contradiction was known
            assert content(self.feed, number) == content(self._plain_feed, number), number
            assert one.book_trust(number) == other.book_trust(number)
            assert one.trades_incomplete(number) == other.trades_incomplete(number)

    def _compare_with_truth(self, sequence: int) -> None:
        channel = self.feed.channel
        if channel.epoch is None or not self._is_truth_known:
            return
        if channel.epoch != self._epoch:
            self._epoch, self._truth = channel.epoch, self.day.true_books()
            self._unseen = set(self.day.instrument_ids)
        self._unseen |= self._truth.advance(sequence)
        for number in sorted(self._unseen):
            if channel.book_trust(number).is_healthy:
                assert self._shown(self.feed, number) == self._truth.orders(number), (number, sequence)
                self._unseen.discard(number)
                self.compared += sequence > channel.sequence

    def finish(self) -> None:
        self.now_ns += SECOND_NS // 2
        assert self._nothing is not None
        self.process(self._nothing)


def content(feed: ChannelFeed, number: int) -> object:
    book = feed.channel.book(number)
    return book and (book.rpt_seq, book.entries.tobytes())


def rows_of(events: Events) -> dict[str, Any]:
    return {
        name: {column: np.asarray(rows.column(column)).tolist() for column in sorted(rows.columns)}
        for name, rows in events.families.items()
    }


def numbers(seed: int, most: int) -> Iterator[int]:
    choose = random.Random(seed)
    while True:
        yield choose.randint(1, most)
