"""Which rows a subscription has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from market.event_builders import build_events, define, trade

from umdf.feed.subscriptions import Subscription
from umdf.market.state import MarketState


def test_a_symbol_that_another_instrument_gets_is_followed_to_it():
    """7.1, 7.3: one is deleted and another created in one step, so there are as many as before."""
    state = MarketState(72)
    state.apply(build_events(define(1, "PETR4"), define(2, "VALE3")), "instruments")
    feed: Any = SimpleNamespace(key=("sbe", 72), channel=SimpleNamespace(state=state), symbol_of=lambda number: None)
    found: list[Any] = []
    subscription = Subscription("trades", frozenset({"PETR4"}), found.append)
    trades = build_events(trade(1, 10, 100, 1), trade(3, 10, 100, 2))
    report: Any = SimpleNamespace(feed=feed, batches=[trades])
    subscription.offer(report)
    state.apply(build_events(define(1, "PETR4", action="D"), define(3, "PETR4")))
    subscription.offer(report)
    assert [row.instrument_id for row in found] == [1, 3]
