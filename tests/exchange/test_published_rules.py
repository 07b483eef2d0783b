"""The rules of published traffic: what real traffic keeps, a generated day keeps too."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from exchange.auction_reference import auction
from exchange.decoded_day import Day, write
from exchange.reference_client import Client, Op, nanos, snapshots_of

SECOND = 1_000_000_000
REGULAR, CROSSED, OPENING = 1 << 13, 2, 1
KINDS = [("sbe", "priority", True), ("sbe", "position", False), ("fast", "priority", False)]


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: "-".join(kind[:2]))
def day(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Day:
    protocol, generation, reset = request.param
    directory = tmp_path_factory.mktemp(f"{protocol}-{generation}")
    return write(directory, protocol, generation, messages=9_000, instruments=24, channel_reset=reset, seed=11)


def walk(day: Day, at_end_of_event: Callable[[Client, int, list[Op]], None]) -> None:
    """Replay the day; call with the ops of an event and instrument, when it is over."""
    client, event = day.client(), defaultdict[int, list[Op]](list)
    for _, ops in day.decoded():
        for op in ops:
            client.take(op, day.protocol)
            event[op.instrument].append(op)
            if op.last or op.kind in ("phase", "state", "heartbeat"):
                for instrument, its_ops in event.items():
                    if instrument:
                        at_end_of_event(client, instrument, its_ops)
                event.clear()


def conditions(op: Op) -> int:
    words = op.fields.get("TradeCondition", "").split()
    return op.fields.get("tradeCondition", sum({"R": OPENING, "X": CROSSED}.get(word, 0) for word in words))


def is_leg(op: Op) -> bool:
    return op.fields.get("trdSubType") == 102 or "1" in op.fields.get("TradeCondition", "").split()


def ticks_of(day: Day) -> dict[int, int]:
    names = ("minPriceIncrement", "MinPriceIncrement")
    ops = [op for _, some in day.decoded("instruments") for op in some]
    return {
        op.instrument: nanos(next(op.fields[n] for n in names if n in op.fields)) or 0 for op in ops if op.instrument
    }


def test_trades_have_their_conditions_and_the_opening_price_is_that_of_the_first(day: Day) -> None:
    """RegularTrade is on all but crosses and legs (Binary 11.2); R is on the first event of an instrument (10.1)."""
    traded, opened = set[int](), dict[int, int | None]()

    def check(client: Client, instrument: int, ops: list[Op]) -> None:
        trades = [op for op in ops if op.kind == "trade"]
        for op in trades:
            if day.protocol == "sbe":
                assert bool(conditions(op) & REGULAR) == (not is_leg(op) and not conditions(op) & CROSSED)
            if not is_leg(op):
                assert bool(conditions(op) & OPENING) == (instrument not in traded)
                opened.setdefault(instrument, op.price)
        traded.update(instrument for _ in trades)
        for op in ops:
            if op.kind == "stat" and op.what[0] == "4":
                assert op.price == opened[instrument]

    walk(day, check)
    assert len(opened) > 10


def test_the_theoretical_price_is_always_that_of_the_auction_book(day: Day) -> None:
    """It follows every change (10.4), auctions trade at it before the state changes (11.1), and it is deleted."""
    ticks, checked, before = ticks_of(day), [0, 0], dict[int, Any]()

    def check(client: Client, instrument: int, ops: list[Op]) -> None:
        published = client.stats.get((instrument, ("TOP", None)))
        trades = [op for op in ops if op.kind == "trade"]
        if client.is_in_auction(instrument) and any(op.kind == "order" for op in ops):
            if trades:
                assert before[instrument] == (trades[0].price, sum(op.size or 0 for op in trades))
                checked[0] += 1
            else:
                assert_theoretical(client, instrument, ticks[instrument], published)
                checked[1] += 1
        elif client.state_of(instrument) == 17:
            assert published is None
            assert all(order.price is not None for side in "BA" for order in client.book(instrument, side))
        before[instrument] = published

    walk(day, check)
    assert checked[0] > 5 and checked[1] > 100


def assert_theoretical(client: Client, instrument: int, tick: int, published: Any) -> None:
    bids, asks = (
        [(None if order.price is None else order.price // tick, order.size) for order in client.book(instrument, side)]
        for side in "BA"
    )
    last = client.stats.get((instrument, ("last", None))) or client.stats[instrument, ("5", 4)]
    expected = auction(bids, asks, (last[0] or 0) // tick)
    if expected is None:
        assert published is None
        return
    assert published is not None and published[1] == expected.volume and published[0] // tick in expected.prices
    imbalance = client.stats[instrument, ("A", None)][1]
    assert (imbalance or 0) == abs(expected.imbalance[published[0] // tick])


def test_crosses_are_inside_the_spread_and_legs_make_the_price_of_their_strategy(day: Day) -> None:
    crosses, strategies = [], []

    def check(client: Client, instrument: int, ops: list[Op]) -> None:
        for op in ops:
            if op.kind == "trade" and conditions(op) & CROSSED:
                bids, asks = client.book(instrument, "B"), client.book(instrument, "A")
                assert not bids or (bids[0].price is not None and bids[0].price <= (op.price or 0))
                assert not asks or (asks[0].price is not None and (op.price or 0) <= asks[0].price)
                crosses.append(op)
            if op.kind == "trade" and is_leg(op):
                strategies.append(op)

    walk(day, check)
    assert crosses and len(strategies) % 2 == 0
    prices = defaultdict[Any, list[int]](list)
    for op in strategies:
        prices[op.size, op.fields.get("transactTime", op.fields.get("MDEntryTime"))].append(op.price or 0)
    assert all(0 < max(legs) - min(legs) < min(legs) // 10 for legs in prices.values())  # one asset, two maturities


@pytest.mark.parametrize("stream", ["snapshot", "instruments"])
def test_looping_streams_are_never_silent(day: Day, stream: str) -> None:
    """Heartbeats between loops (Binary 9.2.2, FIX/FAST 4.2.7); in Binary the next number is always 1."""
    messages = day.messages(stream=stream)
    limit = 1.25 * SECOND if day.protocol == "sbe" else 10.5 * SECOND
    assert max((two.ts_recv or 0) - (one.ts_recv or 0) for one, two in pairwise(messages)) <= limit
    if day.protocol == "sbe":
        heartbeats = [message for message in messages if message.template_id == 2]
        assert heartbeats and all(m.sequence == 0 and m.fields["nextSeqNo"] == 1 for m in heartbeats)


def test_a_snapshot_is_sent_after_the_packet_that_it_refers_to(day: Day) -> None:
    """Binary 9.2.28."""
    sent = {message.sequence: message.ts_recv for message in day.messages()}
    headers = [m for m in day.messages(stream="snapshot")
               if m.template_id == 30 or "LastMsgSeqNumProcessed" in m.fields]  # fmt: skip
    assert len(headers) == len(snapshots_of(day.directory, day.protocol))
    for header in headers:
        last = header.fields.get("lastMsgSeqNumProcessed", header.fields.get("LastMsgSeqNumProcessed"))
        assert last == 0 or sent[last] < header.ts_recv


def test_every_status_of_an_instrument_has_its_event(day: Day) -> None:
    """1174 is always sent with an instrument (Binary 9.2.3), also after a channel reset."""
    ops = [op for _, some in day.decoded() for op in some if op.kind == "state"]
    events = [op.fields.get("securityTradingEvent", op.fields.get("SecurityTradingEvent")) for op in ops]
    assert {101, 102} <= set(events) <= {4, 101, 102}
    assert len(events) > 20 or not day.settings.channel_reset


def test_all_types_of_bands_are_published_some_in_percent(day: Day) -> None:
    """10.9: only rejection and auction bands are in percent, and then say of which price."""
    found = set()
    for _, ops in day.decoded():
        for op in ops:
            if op.kind == "band" and op.what != "h":
                f = op.fields
                limit = f.get("priceLimitType", f.get("PriceLimitType"))
                midpoint = f.get("priceBandMidpointPriceType", f.get("PriceBandMidpointPriceType"))
                found.add((op.what, limit, midpoint is not None))
    assert {(1, 0, False), (2, 2, True), (3, 0, False), (3, 2, True), (4, 0, False)} == found


def test_prices_move(day: Day) -> None:
    prices = defaultdict[int, list[int]](list)
    for _, ops in day.decoded():
        for op in ops:
            if op.kind == "trade" and not is_leg(op):
                prices[op.instrument].append(op.price or 0)
    busiest = max(prices.values(), key=len)
    assert len(busiest) > 50 and sum(one != two for one, two in pairwise(busiest)) > len(busiest) // 10
    assert len(set(busiest)) >= 5
