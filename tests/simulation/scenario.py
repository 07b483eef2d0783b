"""What happens in one run of the whole system, from a seed: the exchange, its operator, and the network's faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any

from umdf.errors import UsageError
from umdf.exchange.live.exchange import Exchange
from umdf.exchange.live.settings import ExchangeSettings, Network
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.orders import ASK, BID
from umdf.exchange.network.faults import REPLAYER_STREAM, Faults, Outage, Renumbering
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
    Members,
)
from umdf.transport.channels_file import ChannelAddresses

START = datetime(2026, 11, 16, 10, 30)
MEMBERS = Members(("CS", "PS", "ETF", "FUT"))
HEARTBEAT_MS = 500
Operation = Callable[[Exchange, Random], None]


@dataclass(frozen=True)
class Scenario:
    seed: int
    settings: ExchangeSettings
    operations_per_s: float
    keeps_joined: bool  # the looping streams, as a client that records does
    joins_after_s: float
    wait_ms: int

    @property
    def random(self) -> Random:
        return Random(f"{self.seed} client")


def random_scenario(seed: int, busy_s: float) -> Scenario:
    random = Random(f"{seed} scenario")
    fast_books = random.choice(((MBO, 0), (MBO, 0), (MBP, 5), (TOB, 0)))
    loops: dict[str, Any] = {
        "snapshots_per_s": random.choice((200, 1_000)),
        "definitions_per_s": 2_000,
        "loop_pause_ms": 300,
    }
    generation = random.choice((PRIORITY, PRIORITY, POSITION))
    channels = (
        ChannelSettings(72, SBE, generation, members=MEMBERS, heartbeat_ms=HEARTBEAT_MS, **loops),
        ChannelSettings(
            73, FAST, generation if fast_books[0] == MBO else PRIORITY, fast_books[0], fast_books[1], MEMBERS,
            heartbeat_ms=HEARTBEAT_MS, **loops,
        ),
    )  # fmt: skip
    addresses = tuple(
        ChannelAddresses(
            channel.channel, channel.protocol, Network().addresses_of(channel, place), channel.book_type.lower(),
            heartbeat_s=HEARTBEAT_MS / 1e3,
        )
        for place, channel in enumerate(channels)
    )  # fmt: skip
    settings = ExchangeSettings(
        channels, addresses, instruments=100, seed=seed, start=START, messages_per_s=random.choice((20, 200, 600)),
        faults=random_faults(random, busy_s),
    )  # fmt: skip
    return Scenario(
        seed,
        settings,
        operations_per_s=random.choice((0.0, 0.5, 3.0)),
        keeps_joined=random.random() < 0.5,
        joins_after_s=random.choice((0.0, 0.0, 1.5)),
        wait_ms=20,
    )


def random_faults(random: Random, busy_s: float) -> Faults:
    """Several faults together: each alone is found by other tests."""

    def share(most: float) -> float:
        return random.choice((0.0, 0.0, most / 5, most))

    def span(longest_s: float) -> tuple[float, float]:
        first = random.uniform(0.0, busy_s)
        return first, first + random.uniform(0.05, longest_s)

    outages = [
        Outage(stream, line, *span(longest_s))
        for stream, line, longest_s, chance in (
            (INCREMENTAL, "A", 4.0, 0.25),
            (INCREMENTAL, "B", 4.0, 0.25),
            (INCREMENTAL, "", 3.0, 0.25),
            (SNAPSHOTS, "", 3.0, 0.2),
            (INSTRUMENTS, "", 3.0, 0.2),
            (REPLAYER_STREAM, "", 3.0, 0.3),
        )
        if random.random() < chance
    ]
    # A line that is alone in its numbering is set aside as long as the other one goes on.
    is_renumbered = random.random() < 0.2 and not any(outage.covers(INCREMENTAL, "A") for outage in outages)
    return Faults(
        loss=share(0.2),
        common_loss=share(0.05),
        burst_loss=share(0.05),
        max_run=random.choice((3, 20)),
        loop_loss=share(0.2),
        chunk_loss=share(0.1),
        duplicates=share(0.1),
        reordering=share(0.1),
        late_ms=random.choice((5.0, 15.0, 300.0)),
        delay_ms=random.choice((0.0, 5.0)),
        skew_ms=random.choice((0.0, 0.0, 5.0, 15.0, 100.0)),
        corruption=share(0.03),
        header_corruption=share(0.02),
        replayer_loss=share(0.3),
        replayer_corruption=share(0.3),
        replayer_refusals=share(0.5),
        replayer_delay_ms=random.choice((0.0, 3.0, 200.0)),
        ends_s=busy_s,
        outages=tuple(outages),
        renumberings=(Renumbering("B", *span(3.0)),) if is_renumbered else (),
    )


# What the operator does


def _symbol(exchange: Exchange, random: Random) -> str:
    listing = exchange.listing
    listed = [s for index, s in enumerate(listing.symbols) if exchange.is_listed[index] and s.isalnum()]
    members = [s for s in listed if MEMBERS.of(listing)[listing.symbols.index(s)]]
    return random.choice(members)


def _cross(exchange: Exchange, random: Random) -> None:
    symbol = _symbol(exchange, random)
    spec = exchange.listing.instruments[exchange.engine.index_of(symbol)]
    exchange.cross(symbol, spec.reference_price, spec.lot, buyer=3, seller=8)


def _enter(exchange: Exchange, random: Random) -> None:
    symbol = _symbol(exchange, random)
    spec = exchange.listing.instruments[exchange.engine.index_of(symbol)]
    side = random.choice((BID, ASK))
    price = spec.reference_price + random.randint(-20, 20) * spec.tick
    display = spec.lot if random.random() < 0.3 else None
    exchange.enter(
        symbol, side, price, spec.lot * random.randint(1, 20), firm=random.randint(1, 9), display_size=display
    )


def _add(exchange: Exchange, random: Random) -> None:
    exchange.add_instrument(_symbol(exchange, random), f"NEW{random.randrange(10**6)}")


def _state(exchange: Exchange, random: Random) -> None:
    state = random.choice((k.RESERVED, k.PAUSE, k.OPEN, k.FORBIDDEN, k.CLOSE))
    opens = random.uniform(0.5, 3.0) if state == k.RESERVED and random.random() < 0.5 else None
    exchange.change_state(_symbol(exchange, random), state, opens_in_s=opens)


OPERATIONS: dict[str, tuple[int, Operation]] = {  # how often, and what
    "cross": (4, _cross),
    "enter": (8, _enter),
    "cancel all": (2, lambda exchange, random: void(exchange.mass_cancel(symbol=_symbol(exchange, random)))),
    "cancel firm": (1, lambda exchange, random: void(exchange.mass_cancel(firm=random.randint(1, 9)))),
    "state": (4, _state),
    "add": (1, _add),
    "delete": (1, lambda exchange, random: void(exchange.delete_instrument(_symbol(exchange, random)))),
    "modify": (
        1,
        lambda exchange, random: exchange.modify_instrument(_symbol(exchange, random), lot=random.randrange(10, 500)),
    ),
    "special auction": (1, lambda exchange, random: exchange.set_special_auction(_symbol(exchange, random))),
    "reset book": (2, lambda exchange, random: exchange.reset_book(_symbol(exchange, random))),
    "reset sbe": (1, lambda exchange, random: exchange.reset_channel(SBE, 72)),
    "reset fast": (1, lambda exchange, random: exchange.reset_channel(FAST, 73)),
    "failover sbe": (1, lambda exchange, random: exchange.reset_sequences(SBE, 72)),
    "failover fast": (1, lambda exchange, random: exchange.reset_sequences(FAST, 73)),
    "news": (1, lambda exchange, random: exchange.publish_news("Fato relevante", "Texto " * random.randint(1, 600))),
    "end of day": (1, lambda exchange, random: exchange.trading.end_of_day("")),
    "pre-close": (1, lambda exchange, random: exchange.change_phase(["equities"], k.FORBIDDEN)),
    "reserve": (1, lambda exchange, random: exchange.change_phase(["equities"], k.RESERVED)),
    "open": (3, lambda exchange, random: exchange.change_phase(["equities"], k.OPEN)),
}


def void(_: object) -> None:
    pass


def operate(exchange: Exchange, random: Random) -> str:
    """One command of an operator; what cannot be done changes nothing."""
    name = random.choices(list(OPERATIONS), [weight for weight, _ in OPERATIONS.values()])[0]
    try:
        OPERATIONS[name][1](exchange, random)
    except UsageError as error:
        return f"{name}: {error.reason}"
    return name
