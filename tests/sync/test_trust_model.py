"""Random sessions of a tiny exchange over faulty lines: what is shown as right is right, after every packet.

UMDF_SEED=7 repeats one seed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pytest
from sync.faulty_lines import Arrival, Numbering, arrivals, random_faults
from sync.small_exchange import ALL_INSTRUMENTS, CHANNEL, SCHEMA, SmallExchange
from sync.small_exchange_model import OrderView, View

from umdf.book.views import Level
from umdf.market.families import NULL, SESSION_HIGH
from umdf.sync.channel import Channel
from umdf.sync.session import Session
from umdf.sync.stream_detection import DetectedStream, StreamKind
from umdf.sync.until import Until
from umdf.wire.fast.loader import load as load_templates
from umdf.wire.packet import Protocol

INCREMENTAL, SNAPSHOT, INSTRUMENTS = StreamKind
FLOWS: list[Hashable] = ["A", "B", "snapshots", "instruments"]
STREAMS = [
    DetectedStream(name, Protocol.SBE, kind, CHANNEL, 1)
    for name, kind in zip(FLOWS, (INCREMENTAL, INCREMENTAL, SNAPSHOT, INSTRUMENTS), strict=True)
]
TEMPLATES = load_templates(None)
NOTHING = View()
SEEDS = [int(os.environ["UMDF_SEED"])] if "UMDF_SEED" in os.environ else None


@dataclass(frozen=True, eq=False)
class Packets:
    buffer: np.ndarray[Any, np.dtype[np.uint8]]
    start: np.ndarray[Any, np.dtype[np.int64]]
    end: np.ndarray[Any, np.dtype[np.int64]]
    ts_ns: np.ndarray[Any, np.dtype[np.int64]]
    flow: np.ndarray[Any, np.dtype[np.uint16]]


class Client:
    """A session that is fed with packets."""

    def __init__(self, until: Until | None = None) -> None:
        self.session = Session(STREAMS, SCHEMA, TEMPLATES, until)
        [self.channel] = self.session.channels.values()

    def feed(self, received: list[Arrival]) -> None:
        end = np.cumsum([len(arrival.content) for arrival in received])
        start = np.concatenate([[0], end[:-1]])
        buffer = np.frombuffer(b"".join(arrival.content for arrival in received), np.uint8)
        ts, flow = (np.array(values) for values in zip(*[(each.ts, each.flow) for each in received], strict=True))
        self.session.add(Packets(buffer, start, end, ts, flow.astype(np.uint16)), FLOWS, np.arange(len(received)))
        self.session.advance(received[-1].ts)


@dataclass(frozen=True, eq=False)
class Scenario:
    seed: int
    exchange: SmallExchange
    received: list[Arrival]
    renumbered: Numbering

    def truth(self, channel: Channel) -> dict[int, View]:
        """Without instruments that are deleted next, if a list, which may be ahead, has shown it."""
        at, known = (channel.epoch or 0, channel.sequence), channel.deleted
        at = self.renumbered.get(at, at)
        later = [truth for when, truth in self.exchange.truth.items() if when > at] if known else []
        truth = self.exchange.truth[at]
        ahead = {number for number in known if number in truth and any(number not in each for each in later)}
        return {number: view for number, view in truth.items() if number not in ahead}

    def has_truth(self, channel: Channel) -> bool:
        """Not in a numbering that the moment cut off."""
        at = channel.epoch or 0, channel.sequence
        return self.renumbered.get(at, at) in self.exchange.truth

    def wrong_definitions(self, channel: Channel) -> list[int]:
        """Instruments that are defined and do not exist, or the reverse, now and later: lists may be ahead."""
        at, known = (channel.epoch or 0, channel.sequence), channel.state.instruments
        later = [truth for when, truth in self.exchange.truth.items() if when >= self.renumbered.get(at, at)]
        return [
            number
            for number in ALL_INSTRUMENTS
            if channel.definition_trust(number).is_healthy
            and all((number in known) != (number in truth) for truth in later)
        ]


def scenario(seed: int, packets: int = 150) -> Scenario:
    random = Random(seed)
    first = random.choice((1, 1, 1, 33_493))
    exchange = SmallExchange(random, first_sequence=first, has_events=seed % 4 != 3)  # 1174
    snapshots = random.choice((0.05, 0.3, 0.6))
    if random.random() < 0.8:
        exchange.instrument_loop()
    exchange.run(packets // 2, snapshots=snapshots)
    if random.random() < 0.3:
        exchange.pause(random.randint(500, 6_000))
    if random.random() < 0.2:
        exchange.restart()
    exchange.run(packets // 2, snapshots=snapshots)
    exchange.pause(1_000)
    quiet_from = exchange.now
    exchange.rest()
    renumbered: Numbering = {}
    received = arrivals(exchange.sent(), random_faults(random), random, quiet_from, renumbered)
    return Scenario(seed, exchange, received, renumbered)


def shown(channel: Channel, instrument_id: int) -> View:
    book, statistics = channel.book(instrument_id), channel.state.statistics
    sides = [_orders(side) for side in ((book.bids, book.asks) if book is not None else ((), ()))]
    last, totals = statistics.tape.venues_of(instrument_id).get(0, (None, None))
    high = None
    for key, values in statistics.latest["statistics"].values_of(instrument_id):
        if key >> 8 & 0xFFFF == SESSION_HIGH:
            high = values["price"]
    state = channel.state.phases.state_of(instrument_id).state
    price, trades = None if last is None else last.price, totals.trades if totals else 0
    return View(*sides, last=price, trades=trades, high=high, state=state)


def _orders(levels: tuple[Level, ...]) -> tuple[OrderView, ...]:
    return tuple(
        OrderView(order.order_id or NULL, level.price or 0, order.size) for level in levels for order in level.orders
    )


def wrong_values(channel: Channel, truth: dict[int, View]) -> list[str]:
    """What is shown as right and is not."""
    found = []
    for number in ALL_INSTRUMENTS:
        book_trust = channel.book_trust(number)
        if not book_trust.is_healthy:
            continue
        right, seen = truth.get(number, NOTHING), shown(channel, number)
        # Only its definition's trust tells that the message that deleted an instrument may have been lost.
        ignored = {"state"} if number not in truth or not channel.state_trust(number).is_healthy else set()
        if channel.trades_incomplete(number):
            ignored.add("trades")
        found += [
            f"{number} {name}: shown {getattr(seen, name)}, right {getattr(right, name)}"
            for name in View._fields
            if name not in ignored and getattr(seen, name) != getattr(right, name)
        ]
    return found


def seeds(sized: Callable[[int, int], int]) -> list[int]:
    return SEEDS or list(range(sized(10, 3_000)))


def test_nothing_wrong_is_shown_as_right(sized: Callable[[int, int], int]) -> None:
    for seed in seeds(sized):
        case = scenario(seed)
        client = Client()
        for number, arrival in enumerate(case.received):
            client.feed([arrival])
            if client.channel.epoch is not None:
                wrong = wrong_values(client.channel, case.truth(client.channel))
                where = f"seed {seed}, packet {number}, sequence {client.channel.sequence}"
                assert not wrong, f"{where}: {wrong}"
                assert not case.wrong_definitions(client.channel), where
        assert_all_known(client, case)


def test_with_little_memory_nothing_wrong_is_shown_as_right(sized: Callable[[int, int], int]) -> None:
    """Snapshots and updates that wait are dropped, and later ones heal what needed them."""
    dropped = 0
    for seed in seeds(sized)[: sized(3, 600)]:
        case, client = scenario(seed), Client()
        channel, key = client.channel, next(iter(client.session.channels))
        for arrival in case.received:
            channel._queue.max_bytes = client.session._inputs[key].early.max_bytes = 1_500
            channel._updates.waiting.max_bytes = 1_500
            client.feed([arrival])
            if channel.epoch is not None:
                wrong = wrong_values(channel, case.truth(channel))
                assert not wrong, f"seed {seed}, sequence {channel.sequence}: {wrong}"
        assert_all_known(client, case)
        dropped += client.session.dropped_snapshots(key)
    assert dropped or SEEDS


def test_what_was_right_at_a_moment_is_shown_and_nothing_else(sized: Callable[[int, int], int]) -> None:
    """Updates after the moment may show that a book is right, and snapshots of it recover others."""
    for seed in seeds(sized)[: sized(6, 3_000)]:
        case, random = scenario(seed), Random(seed)
        for moment in random.sample(sorted(sequence for _, sequence in case.exchange.truth), 3):
            client = Client(Until(sequence=moment))
            for first in range(0, len(case.received), 10):
                client.feed(case.received[first : first + 10])
            client.session.finish()
            if client.channel.epoch is not None and case.has_truth(client.channel):
                wrong = wrong_values(client.channel, case.truth(client.channel))
                assert not wrong, f"seed {seed}, as of {moment}: {wrong}"


def report(channel: Channel) -> dict[int, Any]:
    """Everything that is shown of a channel, and what is thought of it."""
    return {
        number: (
            channel.book_trust(number),
            channel.state_trust(number),
            channel.definition_trust(number),
            number in channel.state.instruments,
            channel.trades_incomplete(number),
            shown(channel, number),
        )
        for number in ALL_INSTRUMENTS
    }


@pytest.mark.parametrize("size", [7, 100, 100_000])
def test_batches_of_any_size_give_the_same(size: int, sized: Callable[[int, int], int]) -> None:
    """What is shown, and its trust, after each batch is what it is when the packets come one by one."""
    for seed in seeds(sized)[: sized(4, 600)]:
        case = scenario(seed)
        one, many = Client(), Client()
        for first in range(0, len(case.received), size):
            batch = case.received[first : first + size]
            many.feed(batch)
            for arrival in batch:
                one.feed([arrival])
            where = f"seed {seed}, batch {first // size}, sequence {one.channel.sequence}"
            assert report(many.channel) == report(one.channel), where
        assert many.channel.gaps.opened == one.channel.gaps.opened, f"seed {seed}"
        assert many.channel.recovered == one.channel.recovered, f"seed {seed}"
        assert_all_known(many, case)


def assert_all_known(client: Client, case: Scenario) -> None:
    """After the quiet time nothing is unverified or stale: everything shown is as the exchange has it."""
    channel, exchange = client.channel, case.exchange
    client.session.finish()
    assert (channel.epoch, channel.sequence) == (exchange.epoch, exchange.sequence), f"seed {case.seed}"
    assert not wrong_values(channel, case.truth(channel)), f"seed {case.seed}, at the end"
    for instrument in exchange.instruments:
        trust = channel.state_trust(instrument)
        assert trust.is_healthy, f"seed {case.seed}: {instrument} is {trust.level} after quiet time: {trust.reason}"
        trust = channel.definition_trust(instrument)
        assert trust.is_healthy, f"seed {case.seed}: {instrument} is {trust.level} after quiet time: {trust.reason}"
    assert channel.state.instruments.ids() == sorted(exchange.instruments), f"seed {case.seed}"
