"""A live exchange over real sockets, and a client of it that is compared with the exchange after every step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from feed.free_ports import free_udp_ports
from feed.live_truth import TrueBooks, assert_same_trust, levels_of, orders_of
from parity.truth import BAND, STATISTIC, newest_settlements

from umdf.exchange.live.exchange import Exchange
from umdf.exchange.live.outputs import OpenLine, sinks_of, udp_lines
from umdf.exchange.live.settings import ExchangeSettings
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.network.faults import Faults
from umdf.exchange.publish.channel_settings import LOOPING_STREAMS, MBO, SBE, ChannelSettings
from umdf.exchange.truth.book_history import BookHistory
from umdf.exchange.truth.tables import final_statistics
from umdf.feed.channel_feed import ChannelFeed
from umdf.feed.channel_states import FeedState
from umdf.feed.events import FeedEvent
from umdf.feed.feed_lines import ChannelKey
from umdf.feed.live import Live
from umdf.market.families import LAST_PRICE, TRADE_VOLUME
from umdf.transport.channels_file import LOOPBACK, ChannelAddresses, LineAddress

pc: Any = pyarrow.compute  # its functions are made at run time
MS = 1_000_000
SECOND_NS = 1_000 * MS
DEADLINE_S = 300.0
STEP_NS = 20 * MS
MANY_INSTRUMENTS, STEPS_BETWEEN = 200, 25  # of so many, the trust of each is read every so many steps only


def addresses_of(channels: tuple[ChannelSettings, ...], host: str = LOOPBACK) -> tuple[ChannelAddresses, ...]:
    """Where channels are sent: ports that nobody else has; the looping streams on line A. They stay long silent without
    being so, because their clock is not that of this machine."""
    ports = iter(free_udp_ports(4 * len(channels)))
    found = []
    for channel in channels:
        streams = {"incremental": tuple(LineAddress(line, host, next(ports)) for line in channel.lines)}
        streams |= {stream: (LineAddress("A", host, next(ports)),) for stream in LOOPING_STREAMS}
        found.append(ChannelAddresses(channel.channel, channel.protocol, streams, heartbeat_s=1_000))
    return tuple(found)


class LiveMarket:
    """An exchange that sends over UDP, through a network with faults."""

    def __init__(
        self,
        channels: tuple[ChannelSettings, ...],
        faults: Faults | None = None,
        also: list[OpenLine] | None = None,
        addresses: tuple[ChannelAddresses, ...] | None = None,
        **more: Any,
    ) -> None:
        """`also`: sinks that get everything, before the faults."""
        self.settings = ExchangeSettings(
            channels,
            addresses or addresses_of(channels),
            **{"instruments": 100, "messages_per_s": 400, "faults": faults} | more,
        )
        self.history = BookHistory()
        self.exchange = Exchange(self.settings, sinks_of(self.settings, also or [], [udp_lines(0)]), self.history)

    def run_alone(self, seconds: float) -> None:
        """Without a client."""
        self.exchange.advance(self.exchange.now_ns + int(seconds * SECOND_NS))

    def stop_order_flow(self) -> None:
        self.exchange.settings = replace(self.settings, messages_per_s=0)

    def resume_order_flow(self) -> None:
        self.exchange.settings = self.settings
        self.exchange.start_order_flow()


class CheckedClient:
    """Invariant: whenever a book is healthy, it is the exchange's book at that sequence."""

    def __init__(self, market: LiveMarket, **options: Any) -> None:
        self.market, self.exchange = market, market.exchange
        self.live = Live(list(market.settings.addresses), **options)
        self.events: list[FeedEvent] = []
        self.compared, self.untrusted = 0, 0  # healthy books, and those that were not
        self._steps = 0
        for schema in ("gaps", "trust", "state"):
            self.live.subscribe(schema=schema, callback=self.events.append)
        self._ids: dict[ChannelKey, list[int]] = {}
        self._channels = {ChannelKey(each.protocol, each.channel): each for each in market.settings.channels}
        self.truths = {
            key: TrueBooks(market.history, key.protocol, key.number, partial(self._instrument_ids, channel))
            for key, channel in self._channels.items()
        }
        self._epochs: dict[ChannelKey, list[int]] = {key: [] for key in self._channels}
        self._unseen: dict[ChannelKey, set[int]] = {key: set() for key in self._channels}

    def _instrument_ids(self, channel: ChannelSettings) -> list[int]:
        listing = self.exchange.listing
        if len(found := self._ids.get(key := ChannelKey(channel.protocol, channel.channel), [])) != len(listing):
            found = np.where(channel.members.of(listing), listing.security_id, 0)[: len(listing)].tolist()
            self._ids[key] = found
        return found

    def __enter__(self) -> CheckedClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.live.close()

    @property
    def feeds(self) -> list[ChannelFeed]:
        return list(self.live.client.feeds.values())

    @property
    def is_live(self) -> bool:
        return all(feed.state == FeedState.LIVE for feed in self.feeds)

    # Time

    def run(self, seconds: float, step_ns: int = STEP_NS) -> None:
        """The exchange goes on, the client receives, and everything is compared after every step."""
        end_ns = self.exchange.now_ns + int(seconds * SECOND_NS)
        while self.exchange.now_ns < end_ns:
            self.exchange.advance(min(self.exchange.now_ns + step_ns, end_ns))
            self.receive()

    def run_until(self, condition: Callable[[], bool], step_ns: int = 100 * MS) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, [(f.state, f.totals, f.untrusted_count) for f in self.feeds]
            self.exchange.advance(self.exchange.now_ns + step_ns)
            self.receive()

    def receive(self) -> None:
        self.live.poll(0.001)
        self._steps += 1
        for feed in self.feeds:
            self._compare(feed)

    def catch_up(self, step_ns: int = 100 * MS) -> None:
        """Receive all that was sent: the flow stops, heartbeats tell of what is missing, and snapshots bring it."""
        self.market.stop_order_flow()
        self.run_until(lambda: self.is_live and all(map(self._is_at_the_end, self.feeds)), step_ns)
        self.market.resume_order_flow()

    def _is_at_the_end(self, feed: ChannelFeed) -> bool:
        return feed.channel.sequence >= self.market.history.last_sequence(*feed.key)

    # Comparison

    def _compare(self, feed: ChannelFeed) -> None:
        key, channel = feed.key, feed.channel
        if channel.epoch is None:
            return
        if len(feed.instrument_ids()) < MANY_INSTRUMENTS or self._steps % STEPS_BETWEEN == 0:
            assert_same_trust(channel)
        epochs, truth, unseen = self._epochs[key], self.truths[key], self._unseen[key]
        if channel.epoch not in epochs:
            epochs.append(channel.epoch)
            truth.start_epoch()
            unseen |= truth.books.keys()
        unseen |= truth.advance(channel.sequence)
        for number in sorted(unseen):
            if not channel.book_trust(number).is_healthy:
                self.untrusted += 1
                continue
            self._assert_equal(feed, number)
            unseen.discard(number)
            self.compared += 1

    def _assert_equal(self, feed: ChannelFeed, number: int) -> None:
        settings, truth = self._channels[feed.key], self.truths[feed.key]
        if settings.book_type == MBO:
            found, expected = orders_of(feed, number), truth.orders(number)
        else:
            found, expected = levels_of(feed, number), truth.levels(number, settings.depth or 1)
        assert found == expected, (feed.key, number, feed.channel.sequence, feed.channel.book_trust(number))

    def assert_equal_to_the_exchange(self) -> None:
        """Books, statistics, price bands, phases and states of every instrument are those of the exchange."""
        for feed in self.feeds:
            members = self._members(feed)
            assert feed.state == FeedState.LIVE and feed.untrusted_count == 0, feed.state
            assert set(feed.channel.state.instruments.ids()) == members
            for number in members:
                assert feed.channel.book_trust(number).is_healthy, (feed.key, number)
                assert feed.channel.state_trust(number).is_healthy, (feed.key, feed.channel.state_trust(number))
                assert feed.channel.definition_trust(number).is_healthy, (feed.key, number)
                self._assert_equal(feed, number)
            tables = feed.channel.state.to_tables()
            statistics, bands = (pa.table(each) for each in final_statistics(self.exchange.market))
            # What a snapshot states as the last price is followed by trades, which are the last price then.
            last = statistics.filter(pc.equal(statistics["stat_type"], LAST_PRICE))
            _assert_same_rows(
                feed.key,
                _rows(tables["last"], ("instrument_id", "price"), members),
                _rows(last, ("instrument_id", "price"), members),
            )
            left_out = [LAST_PRICE] + ([TRADE_VOLUME] if feed.key.protocol == SBE else [])  # FIX/FAST's
            names = STATISTIC if feed.key.protocol == SBE else STATISTIC[:5]
            ours, theirs = (
                _rows(each.filter(pc.invert(pc.is_in(each["stat_type"], pa.array(left_out)))), names, members)
                for each in (newest_settlements(tables["statistics"]), statistics)
            )
            _assert_same_rows(feed.key, ours, theirs)
            _assert_same_rows(feed.key, _rows(tables["price_band"], BAND, members), _rows(bands, BAND, members))
            names = ("instrument_id", "state", "phase")
            _assert_same_rows(feed.key, _rows(tables["states"], names, members), self._states(members))

    def _members(self, feed: ChannelFeed) -> set[int]:
        listing, market = self.exchange.listing, self.exchange.market
        chosen = self._channels[feed.key].members.of(listing) & market.is_listed
        return set(listing.security_id[np.flatnonzero(chosen)].tolist())

    def _states(self, members: set[int]) -> list[tuple[Any, ...]]:
        listing, session = self.exchange.listing, self.exchange.session
        states = self.exchange.market.instruments[:, k.I_STATE]
        found = []
        for index in range(len(listing)):
            number, phase = int(listing.security_id[index]), session.phase_of(index)
            if number in members:
                found.append((number, int(states[index]) if session.is_separated(index) else phase, phase))
        return sorted(found, key=str)


def _rows(table: pa.Table, names: tuple[str, ...], members: set[int]) -> list[tuple[Any, ...]]:
    rows = zip(*(table.column(name).to_pylist() for name in names), strict=True)
    return sorted((row for row in rows if row[0] in members), key=str)


def _assert_same_rows(key: ChannelKey, found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> None:
    assert found == expected, (key, sorted(set(found) - set(expected))[:5], sorted(set(expected) - set(found))[:5])
