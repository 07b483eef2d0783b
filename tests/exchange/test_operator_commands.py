"""Commands of the control socket on a real exchange: what they do, and that a refused one changes nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from umdf.exchange.live.exchange import Exchange
from umdf.exchange.live.operator_commands import answer
from umdf.exchange.live.outputs import sinks_of
from umdf.exchange.live.settings import read_settings

ROOT = Path(__file__).parents[2]
SECOND = 10**9


@pytest.fixture(scope="module")
def exchange() -> Exchange:
    settings = read_settings(ROOT / "examples" / "exchange.toml")
    settings = replace(settings, instruments=100, messages_per_s=20, channels=settings.channels[:2])
    running = Exchange(settings, sinks_of(replace(settings, addresses=settings.addresses[:2]), []))
    running.advance(running.now_ns + 40 * SECOND)
    return running


def do(exchange: Exchange, command: str, **arguments: Any) -> Any:
    reply = json.loads(answer(exchange, json.dumps({"command": command, **arguments}).encode()))
    assert reply["ok"], reply
    return reply["result"]


def test_an_order_is_entered_amended_and_cancelled(exchange: Exchange) -> None:
    order_id = do(exchange, "enter", symbol="PETR4", side="buy", price="30", size=500, firm=3)["order_id"]
    smaller = do(exchange, "amend", order_id=order_id, size=300)
    assert smaller["order_id"] == order_id
    moved = do(exchange, "amend", order_id=order_id, price="30.01")
    assert moved["order_id"] != order_id
    assert {"order_id": moved["order_id"], "price": "30.01", "size": 300, "firm": 3} in do(
        exchange, "book", symbol="PETR4", depth=1_000
    )["bids"]
    assert do(exchange, "cancel", order_id=moved["order_id"]) == 300


def test_an_instrument_is_listed_changed_and_deleted(exchange: Exchange) -> None:
    before = do(exchange, "status")["instruments"]
    do(exchange, "add_instrument", symbol="PETR99", like="PETR4")
    do(exchange, "modify_instrument", symbol="PETR99", lot=200)
    exchange.advance(exchange.now_ns + SECOND)
    assert do(exchange, "status")["instruments"] == before + 1
    assert do(exchange, "delete_instrument", symbol="PETR99") == ["PETR99"]
    assert do(exchange, "status")["instruments"] == before


def test_a_symbol_that_was_deleted_can_be_listed_again(exchange: Exchange) -> None:
    for _ in range(2):
        do(exchange, "add_instrument", symbol="PETR98", like="PETR4")
        exchange.advance(exchange.now_ns + SECOND)
        assert do(exchange, "enter", symbol="PETR98", side="buy", price="30", size=500, firm=3)["order_id"]
        assert do(exchange, "delete_instrument", symbol="PETR98") == ["PETR98"]


def test_a_state_with_a_time_ends_by_itself(exchange: Exchange) -> None:
    do(exchange, "state", symbol="VALE3", state="reserved", opens_in_s=5)
    assert do(exchange, "status")["separated"] == ["VALE3"]
    exchange.advance(exchange.now_ns + 6 * SECOND)
    assert do(exchange, "status")["separated"] == []


REFUSED = [
    (
        {"command": "enter", "symbol": "PETR9", "side": "buy", "price": "32", "size": 100, "firm": 3},
        "unknown instrument: PETR9",
    ),
    ({"command": "enter", "symbol": "PETR4", "side": "buy", "size": 100, "firm": 3}, "limit order without a price"),
    (
        {"command": "enter", "symbol": "PETR4", "side": "buy", "size": 100, "firm": 3, "order_type": "moa"},
        "order type not allowed in this state: MOA",
    ),
    (
        {"command": "band", "symbol": "PETR4", "kind": "hard", "low": "40", "high": "30.5"},
        "high one: 40 > 30.5",
    ),
    ({"command": "band", "symbol": "PETR4", "kind": "quantity", "low": "1.5", "high": "3"}, "quantity band: 1.5 to 3"),
    (
        {"command": "add_instrument", "symbol": "UDS99", "like": "UDS00001", "legs": "buy PETR4"},
        "UDS99 has one leg",
    ),
    ({"command": "settle", "kind": "preview", "symbol": "PETR4"}, "PETR4 has no settlement price"),
    (
        {"command": "volume", "symbol": "PETR4", "venue": "Z", "quantity": 1, "trades": 1, "turnover": "1"},
        "invalid venue",
    ),
    ({"command": "volume", "symbol": "PETR4", "venue": "O", "quantity": 1, "trades": 1, "turnover": 1.5}, "turnover"),
    ({"command": "composite", "symbol": "PETR4"}, "PETR4 is no index"),
    ({"command": "migrate", "symbols": ["PETR9"]}, "unknown instrument: PETR9"),
    ({"command": "step", "name": "lunch"}, "invalid name"),
    ({"command": "step", "name": "start_week"}, "the platform is up already"),
    ({"command": "enter", "symbol": "PETR4", "side": "buy", "price": "300", "size": 100, "firm": 3}, "hard limits"),
    ({"command": "enter", "symbol": "PETR4", "side": "buy", "price": 32.45, "size": 100, "firm": 3}, "invalid price"),
    (
        {
            "command": "enter",
            "symbol": "PETR4",
            "side": "buy",
            "price": "30",
            "size": 100,
            "firm": 3,
            "time_in_force": "gtd",
            "expire_date": "2026-11-13",
        },
        "the last day of the order is over: 2026-11-13",
    ),
    ({"command": "enter", "symbol": "PETR4", "side": "up", "size": 100, "firm": 3}, "invalid side"),
    ({"command": "enter", "symbol": "PETR4", "side": "buy", "size": "100", "firm": 3}, "invalid size"),
    ({"command": "enter", "symbol": "PETR4"}, "missing argument: side"),
    ({"command": "cancel", "order_id": 5}, "unknown order"),
    ({"command": "cancel", "order": 5}, "unknown argument: order"),
    ({"command": "phase", "groups": ["equities"], "phase": "lunch"}, "invalid phase"),
    ({"command": "phase", "groups": ["XX"], "phase": "pause"}, "unknown group: XX"),
    ({"command": "failover", "protocol": "fast", "channel": 99}, "unknown channel: fast 99"),
    ({"command": "news", "headline": "", "text": "x"}, "news without a headline"),
    ({"command": "mass_cancel"}, "neither a firm nor an instrument"),
    ({"command": "stop"}, "unknown command: stop"),
    ([1], "the request is not an object"),
]


@pytest.mark.parametrize(("request_", "reason"), REFUSED)
def test_what_cannot_be_done_says_why_and_changes_nothing(exchange: Exchange, request_: Any, reason: str) -> None:
    before = do(exchange, "status")
    reply = json.loads(answer(exchange, json.dumps(request_).encode()))
    assert not reply["ok"] and reason in reply["error"] and reply["hint"]
    assert do(exchange, "status") == before


def test_a_phase_that_may_not_follow_is_refused(exchange: Exchange) -> None:
    do(exchange, "phase", groups="derivatives", phase="close")
    reply = json.loads(answer(exchange, b'{"command": "phase", "groups": "derivatives", "phase": "open"}'))
    assert "cannot change from Close to Open" in reply["error"] and reply["hint"] == "use pause or pre-open"
    assert answer(exchange, b"{").startswith(b'{"ok": false, "error": "the request is not JSON"')


def test_while_the_platform_is_down_nothing_can_be_published(exchange: Exchange) -> None:
    do(exchange, "step", name="stop_week")
    for request in ({"command": "news", "headline": "h", "text": "t"}, {"command": "reset_book", "symbol": "PETR4"}):
        reply = json.loads(answer(exchange, json.dumps(request).encode()))
        assert reply["error"] == "the platform is down until Sunday 12:00"
    assert not do(exchange, "status")["is_up"]
    do(exchange, "step", name="start_week")
    assert do(exchange, "status")["is_up"]
