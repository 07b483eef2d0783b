"""Simultaneous auctions (15), step by step as the tables of 15.3 and 15.4 have them, in both protocols."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from exchange.few_contracts import CENT, NAMES, ORDER_BOOKS, FewContracts, few_contracts, future

from umdf.errors import UsageError
from umdf.exchange.live.exchange import Exchange
from umdf.exchange.live.schedule import Timetable
from umdf.exchange.matching.orders import ASK, BID
from umdf.market.families import NULL, NULL_I16
from umdf.market.rows import strings_of

DOL, WDO = "DOLF24", "WDOF24"
OPEN, RESERVED, SEPARATES, REJOINS = 17, 21, 101, 102  # 326, 1174
TIMETABLE = Timetable({"derivatives": {"pre_open": "08:55", "open": "09:00", "close": "18:00"}})
HEADLINE = f"Auction for instrument {WDO} - synchronization"
CALL = f"Call for instrument {WDO} -Reason: synchronization"
IN_PROGRESS = "rejected (7153): Instrument has an auction synchronism in progress"
OF_DOL = f"{IN_PROGRESS} 'Instrument {DOL} in Simultaneous Auction closing.'"

Do = Callable[[Exchange], Any]
Published = list[tuple[Any, ...]]  # (symbol, 326, 1174, time of 342) and (headline, text)


def extend(symbol: str, seconds: int) -> Do:
    return lambda exchange: exchange.extend_auction(symbol, seconds)


def reserve(symbol: str, seconds: float) -> Do:
    return lambda exchange: exchange.change_state(symbol, RESERVED, opens_in_s=seconds)


# Scenario 1 (15.3): the time, what the operator does, what is published, and the instruments that reject orders with
# which text. A query takes a second: T1 is half a second after it, T2 a whole one.
PRE_OPEN: list[tuple[str, Do | None, Published, dict[str, str]]] = [
    ("08:59:50", extend(DOL, 30), [(DOL, RESERVED, SEPARATES, "09:00:30")], {}),
    ("09:00:00", None, [(WDO, RESERVED, SEPARATES, None), (HEADLINE, CALL + ".")], {WDO: IN_PROGRESS + "."}),
    ("09:00:00.5", None, [], {WDO: IN_PROGRESS + "."}),
    ("09:00:01", None, [(HEADLINE, CALL + ".")], {}),
    ("09:00:30", None, [], {DOL: IN_PROGRESS + "."}),
    ("09:00:30.5", None, [(WDO, OPEN, REJOINS, None)], {DOL: IN_PROGRESS + "."}),
    ("09:00:31", None, [(DOL, OPEN, REJOINS, None)], {}),
]
# Scenario 2 (15.4).
INTRADAY: list[tuple[str, Do | None, Published, dict[str, str]]] = [
    ("12:00:00", reserve(DOL, 300), [(DOL, RESERVED, SEPARATES, "12:05:00")], {}),
    ("12:00:00.5", None, [(WDO, RESERVED, SEPARATES, None), (HEADLINE, CALL)], {}),
    ("12:04:20", extend(DOL, 30), [(DOL, RESERVED, SEPARATES, "12:05:30")], {}),
    ("12:05:30", None, [], {DOL: OF_DOL}),
    ("12:05:30.5", None, [(WDO, OPEN, REJOINS, None)], {DOL: OF_DOL}),
    ("12:05:31", None, [(DOL, OPEN, REJOINS, None)], {}),
]


def contracts(directory: Path, start: str, channels: Any = ORDER_BOOKS) -> FewContracts:
    settings = {"pairs": ((DOL, WDO),), "timetable": TIMETABLE, "channels": channels}
    started = datetime.fromisoformat(f"2026-11-16 {start}")
    return few_contracts(directory, future(DOL, 5_000), future(WDO, 5_000), start=started, **settings)


def local_ns(time: str) -> int:
    """The time of the table, and a microsecond: what is due then has been done."""
    hours, minutes, seconds = time.split(":")
    day = datetime(2026, 11, 16, int(hours), int(minutes), tzinfo=ZoneInfo("America/Sao_Paulo"))
    return round((day + timedelta(seconds=float(seconds))).timestamp() * 1_000_000) * 1_000 + 1_000


def published(market: FewContracts, name: str, after: int) -> Published:
    """States of instruments and news, in the order in which a channel has sent them."""
    events, found = market.events(name, after), []
    status, news = events.rows("status"), events.rows("news")
    texts = (strings_of(news.texts[name]) for name in ("headline", "text")) if len(news) else ([], [])
    columns = (status.column(c).tolist() for c in ("instrument_id", "state", "event", "ts_open"))
    for order, security_id, state, event, opens in zip(status.wire_order.tolist(), *columns, strict=True):
        if state != NULL_I16:
            at = None if opens == NULL else datetime.fromtimestamp(opens // 10**9, ZoneInfo("America/Sao_Paulo"))
            found.append((order, (market.symbol_of(security_id), state, event, at and at.strftime("%H:%M:%S"))))
    found += zip(news.wire_order.tolist(), zip(*texts, strict=True), strict=True)
    return [row for _, row in sorted(found)]


def check_rejections(market: FewContracts, orders: dict[str, int], rejecting: dict[str, str]) -> None:
    """Additions, changes and cancels of what rejects them leave no trace; another instrument takes them all."""
    exchange = market.exchange
    for symbol in (DOL, WDO):
        attempts: list[Callable[[], Any]] = [
            lambda s=symbol: exchange.enter(s, BID, 4_999 * CENT, 1, firm=3),
            lambda s=symbol: exchange.amend(orders[s], size=9),
            lambda s=symbol: exchange.cancel(orders[s]),
            lambda s=symbol: exchange.mass_cancel(symbol=s),
        ]  # fmt: skip
        for attempt in attempts:
            records = exchange.market.rows
            if symbol not in rejecting:
                attempt()
                continue
            with pytest.raises(UsageError) as error:
                attempt()
            assert error.value.reason == rejecting[symbol]
            assert exchange.market.rows == records
        if symbol not in rejecting:
            orders[symbol] = exchange.enter(symbol, BID, 5_000 * CENT, 10, firm=3).order_id or 0


@pytest.mark.parametrize("steps", [PRE_OPEN, INTRADAY], ids=["pre-open", "intraday"])
def test_the_auctions_of_a_pair_start_and_end_together(tmp_path: Path, steps: Any) -> None:
    market = contracts(tmp_path, steps[0][0])
    orders = {s: market.exchange.enter(s, BID, 5_000 * CENT, 10, firm=3).order_id or 0 for s in (DOL, WDO)}
    for time, do, expected, rejecting in steps:
        market.exchange.advance(local_ns(time) - 2_000)
        before = {name: market.last(name) for name in market.clients}
        if do is not None:
            do(market.exchange)
        market.exchange.advance(local_ns(time))
        for name in market.clients:
            assert published(market, name, before[name]) == expected, (time, name)
        check_rejections(market, orders, rejecting)
        market.exchange.flush()
    market.compare_books()


def test_both_open_within_a_second_if_neither_is_extended(tmp_path: Path) -> None:
    market = contracts(tmp_path, "08:56:00", ORDER_BOOKS[:1])
    exchange = market.exchange
    for symbol in (DOL, WDO):
        exchange.enter(symbol, BID, 5_000 * CENT, 10, firm=3)
        exchange.enter(symbol, ASK, 5_000 * CENT, 4, firm=8)
    exchange.advance(local_ns("09:00:00"))
    assert exchange.status()["separated"] == [DOL, WDO] and exchange.status()["trades"] == 0
    exchange.advance(local_ns("09:00:01"))
    assert exchange.status()["separated"] == [] and exchange.status()["trades"] == 2
    rows = market.rows(market.events(NAMES["sbe", "priority"], 0), "trades", "price", "size")
    assert [row[1:] for row in rows] == [(WDO, 5_000 * CENT, 4), (DOL, 5_000 * CENT, 4)]


def test_market_surveillance_closes_an_auction_without_synchronization(tmp_path: Path) -> None:
    market = contracts(tmp_path, "12:00:00", ORDER_BOOKS[:1])
    exchange = market.exchange
    exchange.change_state(DOL, RESERVED, opens_in_s=300)
    exchange.advance(local_ns("12:01:00"))
    before = market.last("sbe")
    exchange.close_auction(WDO)
    exchange.advance(local_ns("12:02:00"))
    assert published(market, "sbe", before) == [(WDO, OPEN, REJOINS, None)]
    assert exchange.status()["separated"] == [DOL]
    exchange.advance(local_ns("12:05:01"))  # its time has come, and WDOF24 is in no auction
    assert exchange.status()["separated"] == []
    for symbol in (DOL, WDO):
        with pytest.raises(UsageError, match=f"{symbol} is in no auction of its own"):
            exchange.close_auction(symbol)


def test_an_auction_without_an_end_ends_with_the_trading_of_the_day(tmp_path: Path) -> None:
    market = contracts(tmp_path, "17:59:50", ORDER_BOOKS[:1])
    exchange = market.exchange
    exchange.change_state(DOL, RESERVED)
    exchange.advance(local_ns("17:59:59"))
    assert exchange.status()["separated"] == [DOL, WDO]
    with pytest.raises(UsageError, match=f"{WDO} is in no auction that has an end"):
        exchange.extend_auction(WDO, 30)
    exchange.advance(local_ns("18:00:02"))
    assert exchange.status()["separated"] == [DOL]  # its own ends with the day: nobody has given it a time


def test_a_price_band_that_starts_an_auction_starts_that_of_the_pair(tmp_path: Path) -> None:
    market = contracts(tmp_path, "12:00:00", ORDER_BOOKS[:1])
    exchange = market.exchange
    exchange.set_band(DOL, "auction", 4_990 * CENT, 5_010 * CENT)
    exchange.enter(DOL, ASK, 5_020 * CENT, 4, firm=8)
    assert exchange.enter(DOL, BID, 5_020 * CENT, 4, firm=3).started_auction
    market.advance()
    exchange.advance(local_ns("12:00:01"))
    assert exchange.status()["separated"] == [DOL, WDO]
    exchange.advance(local_ns("12:05:02"))
    assert exchange.status()["separated"] == [] and exchange.status()["trades"] == 1


@pytest.mark.parametrize(("symbol", "other", "reason"), [
    (DOL, DOL, f"{DOL} is paired with {WDO}"), ("NONE", WDO, "unknown instrument: NONE"),
])  # fmt: skip
def test_what_cannot_be_paired(tmp_path: Path, symbol: str, other: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        contracts(tmp_path, "12:00:00", ORDER_BOOKS[:1]).exchange.pair(symbol, other)
