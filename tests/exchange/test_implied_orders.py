"""Implied-in orders: the moments of 14 as their tables have them, and after random orders what the legs offer."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from exchange.few_contracts import CENT, ORDER_BOOKS, FewContracts, few_contracts, future, spread

from umdf.errors import UsageError
from umdf.exchange.instruments.instrument_spec import BUY, SELL, UNIT, InstrumentSpec, Leg
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.orders import ASK, BID, MARKET, MARKET_TO_LIMIT
from umdf.market.families import CONDITIONS, IMPLIED, NULL, NULL_I32

F24, N24, SPREAD = "DI1F24", "DI1N24", "DIIF24N24"
NEW, CHANGE, DELETE, DELETE_FROM = 0, 1, 2, 4  # 279
BY_PRIORITY, BY_POSITION = ("sbe", "fast"), ("sbe-position", "fast-position")
Update = tuple[Any, ...]  # symbol, 279, 269, 270, 271, 276; then 37780 or 290


@dataclass(frozen=True)
class Moment:
    """What is entered; the updates of the book as each generation words them, message by message; the trades."""

    order: tuple[str, int, int, int]  # symbol, side, price in cents, quantity
    by_priority: list[list[Update]]
    by_position: list[list[Update]]
    trades: list[tuple[str, int, int, str]] = field(default_factory=list)  # 48, 270, 271, 277


# fmt: off
MOMENTS = [
    Moment((F24, BID, 699, 10),
           [[(F24, NEW, "0", 699, 10, "", None)]],
           [[(F24, NEW, "0", 699, 10, "", 1)]]),
    # 2 and 3: a sell order of the other leg, and with it the implied order
    Moment((N24, ASK, 734, 10),
           [[(N24, NEW, "1", 734, 10, "", None)], [(SPREAD, NEW, "1", 35, 10, "K", None)]],
           [[(N24, NEW, "1", 734, 10, "", 1)], [(SPREAD, NEW, "1", 35, 10, "K", 1)]]),
    # 4: a normal order comes before the implied one
    Moment((SPREAD, ASK, 35, 15),
           [[(SPREAD, NEW, "1", 35, 15, "", None)]],
           [[(SPREAD, NEW, "1", 35, 15, "", 1)]]),
    # 5: the aggression, and by position the restatement in another message
    Moment((SPREAD, BID, 35, 20),
           [[(SPREAD, DELETE, "1", 35, 15, "", None), (SPREAD, CHANGE, "1", 35, 5, "K", 10),
             (F24, CHANGE, "0", 699, 5, "", 10), (N24, CHANGE, "1", 734, 5, "", 10)]],
           [[(SPREAD, DELETE_FROM, "1", None, 25, "", 2),
             (F24, CHANGE, "0", 699, 5, "", 1), (N24, CHANGE, "1", 734, 5, "", 1)],
            [(SPREAD, NEW, "1", 35, 5, "K", 1)]],
           [(SPREAD, 35, 15, ""), (SPREAD, 35, 5, "IM"), (F24, 699, 5, "IM"), (N24, 734, 5, "IM")]),
]
RESULT = {F24: ([(699, 5)], []), N24: ([], [(734, 5)]), SPREAD: ([], [(35, 5)])}
# fmt: on


@pytest.fixture
def market(tmp_path: Path) -> FewContracts:
    return few_contracts(tmp_path, future(F24, 699), future(N24, 734), spread(SPREAD, F24, N24, 35))


def in_cents(price: int) -> int | None:
    return None if price == NULL else price // CENT


def updates(market: FewContracts, name: str, after: int) -> list[list[Update]]:
    """The updates of books that a channel has sent, by event: a FIX/FAST message is one, in Binary bit 7 ends one."""
    rows, found = market.events(name, after).rows("mbo"), []
    last, is_binary = "position" if name in BY_POSITION else "prev_size", name.startswith("sbe")
    names = ("instrument_id", "side", "update_action", "entry_type", "price", "size", "flags", last)
    columns = (rows.column(column).tolist() for column in names)
    event, unit_before, has_ended = 0, 0, False
    for unit, security_id, side, action, kind, price, size, flags, extra in zip(
        rows.unit.tolist(), *columns, strict=True
    ):
        event += has_ended if is_binary else unit != unit_before
        has_ended, unit_before = bool(flags & k.LAST), unit
        if chr(side) in "BA":
            if not found or found[-1][0] != event:
                found.append((event, []))
            quantity, value = None if size == NULL else size, None if extra in (NULL, NULL_I32) else extra
            quote = "K" if flags & IMPLIED else ""
            symbol = market.symbol_of(security_id)
            found[-1][1].append((symbol, action, chr(kind), in_cents(price), quantity, quote, value))
    return [content for _, content in found]


def trades(market: FewContracts, name: str, after: int) -> list[tuple[str, int | None, int, str]]:
    rows = market.rows(market.events(name, after), "trades", "price", "size", "conditions", "flags")
    found = []
    for _, symbol, price, size, conditions, flags in rows:
        is_implied = bool(flags & IMPLIED)
        assert is_implied == bool(conditions & CONDITIONS["IM"])
        found.append((symbol, in_cents(price), size, "IM" if is_implied else ""))
    return found


def content(market: FewContracts, symbol: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Price in cents and quantity of the orders of both sides."""
    book = market.exchange.book(symbol)
    bids, asks = ([(o.price // CENT, o.size) for o in side if o.price is not None] for side in (book.bids, book.asks))
    return bids, asks


def enter(market: FewContracts, symbol: str, side: int, price: int | None, size: int, **more: Any) -> Any:
    arguments: dict[str, Any] = {"firm": 3} | more
    result = market.exchange.enter(symbol, side, None if price is None else price * CENT, size, **arguments)
    market.advance()
    return result


def test_the_moments_of_14_are_published_as_their_tables_have_them(market: FewContracts) -> None:
    for moment in MOMENTS:
        before = {name: market.last(name) for name in market.clients}
        enter(market, *moment.order)
        for name in (*BY_PRIORITY, *BY_POSITION):
            expected = moment.by_position if name in BY_POSITION else moment.by_priority
            if name == "sbe-position":  # a MassDeleteOrders has no quantity
                expected = [[(*u[:4], None, *u[5:]) if u[1] == DELETE_FROM else u for u in event] for event in expected]
            assert updates(market, name, before[name]) == expected, name
            assert trades(market, name, before[name]) == moment.trades, name
    assert {symbol: content(market, symbol) for symbol in RESULT} == RESULT
    market.compare_books()


def test_an_implied_order_has_no_firm_and_the_largest_id(market: FewContracts) -> None:
    enter(market, SPREAD, ASK, 35, 15)
    enter(market, F24, BID, 699, 10)
    enter(market, N24, ASK, 734, 10)
    normal, implied = market.exchange.book(SPREAD).asks
    assert implied.order_id > normal.order_id and implied.firm is None and normal.firm == 3


# Of the leg N24, whose sell order the implied one comes from: what happens to it, and to the implied order (10 @ 35).
LEG_CHANGES: list[tuple[str, Callable[[FewContracts, int], Any], list[Update]]] = [
    ("its quantity falls", lambda m, order: m.exchange.amend(order, size=6), [(SPREAD, CHANGE, "1", 35, 6, "K", 10)]),
    ("its quantity rises", lambda m, order: m.exchange.amend(order, size=20),  # the other leg has 12
     [(SPREAD, DELETE, "1", 35, 10, "K", None), (SPREAD, NEW, "1", 35, 12, "K", None)]),
    ("its price changes", lambda m, order: m.exchange.amend(order, price=736 * CENT),
     [(SPREAD, DELETE, "1", 35, 10, "K", None), (SPREAD, NEW, "1", 37, 10, "K", None)]),
    ("a better price comes", lambda m, _: enter(m, N24, ASK, 733, 3),
     [(SPREAD, DELETE, "1", 35, 10, "K", None), (SPREAD, NEW, "1", 34, 3, "K", None)]),
    ("a worse price comes", lambda m, _: enter(m, N24, ASK, 735, 3), []),
    ("it is cancelled", lambda m, order: m.exchange.cancel(order), [(SPREAD, DELETE, "1", 35, 10, "K", None)]),
    ("all are cancelled", lambda m, _: m.exchange.mass_cancel(symbol=N24), [(SPREAD, DELETE, "1", 35, 10, "K", None)]),
    ("it trades in part", lambda m, _: enter(m, N24, BID, 734, 4), [(SPREAD, CHANGE, "1", 35, 6, "K", 10)]),
    ("it trades", lambda m, _: enter(m, N24, BID, 734, 10), [(SPREAD, DELETE, "1", 35, 10, "K", None)]),
    ("its auction begins", lambda m, _: m.exchange.change_state(N24, k.RESERVED),
     [(SPREAD, DELETE, "1", 35, 10, "K", None)]),
    ("its group pauses", lambda m, _: m.exchange.change_phase(["F1"], k.PAUSE),
     [(SPREAD, DELETE, "1", 35, 10, "K", None)]),
    ("the spread pauses", lambda m, _: m.exchange.change_state(SPREAD, k.PAUSE),
     [(SPREAD, DELETE, "1", 35, 10, "K", None)]),
]  # fmt: skip


@pytest.mark.parametrize(("change", "expected"), [c[1:] for c in LEG_CHANGES], ids=[c[0] for c in LEG_CHANGES])
def test_an_implied_order_follows_its_legs_in_an_event_of_its_own(
    market: FewContracts, change: Callable[[FewContracts, int], Any], expected: list[Update]
) -> None:
    enter(market, F24, BID, 699, 12)
    order_id = enter(market, N24, ASK, 734, 10).order_id
    before = {name: market.last(name) for name in BY_PRIORITY}
    change(market, order_id)
    market.advance()
    for name in BY_PRIORITY:
        events = updates(market, name, before[name])
        implied = [event for event in events if any(update[5] for update in event)]
        assert [update for event in implied for update in event] == expected, name
    market.compare_books()


def test_an_aggressor_trades_with_one_implied_order_after_another(market: FewContracts) -> None:
    """Each follows from the next prices of the legs; what is left of the order rests at its limit."""
    for price, size in ((699, 4), (698, 6)):
        enter(market, F24, BID, price, size)
    for price, size in ((734, 5), (735, 5)):
        enter(market, N24, ASK, price, size)
    before = market.last("fast")
    assert enter(market, SPREAD, BID, 37, 20, firm=9).traded == 10
    assert trades(market, "fast", before) == [
        (symbol, price, size, "IM")
        for size, prices in ((4, (35, 699, 734)), (1, (36, 698, 734)), (5, (37, 698, 735)))
        for symbol, price in zip((SPREAD, F24, N24), prices, strict=True)
    ]  # fmt: skip
    assert [content(market, symbol) for symbol in (F24, N24, SPREAD)] == [([], []), ([], []), ([(37, 10)], [])]
    market.compare_books()


@pytest.mark.parametrize(("order_type", "rests"), [(MARKET, []), (MARKET_TO_LIMIT, [(35, 7)])])
def test_what_is_left_of_an_order_without_a_price(market: FewContracts, order_type: int, rests: Any) -> None:
    enter(market, F24, BID, 699, 3)
    enter(market, N24, ASK, 734, 3)
    result = enter(market, SPREAD, BID, None, 10, order_type=order_type)
    assert (result.traded, result.cancelled) == (3, 7 if order_type == MARKET else 0)
    assert content(market, SPREAD) == (rests, [])
    market.compare_books()


def test_legs_that_offer_what_a_resting_order_of_the_spread_wants_trade_with_it(market: FewContracts) -> None:
    """At the prices of the legs, which may be better than its own. What is left of it rests anew."""
    resting = enter(market, SPREAD, BID, 36, 25, firm=9).order_id
    enter(market, F24, BID, 699, 10)
    before = market.last("sbe")
    last = enter(market, N24, ASK, 734, 10, firm=8)
    assert last.traded == 0 and last.order_id is not None, "an order rests before it trades by an implied one"
    assert trades(market, "sbe", before) == [(SPREAD, 35, 10, "IM"), (F24, 699, 10, "IM"), (N24, 734, 10, "IM")]
    assert [content(market, symbol) for symbol in (F24, N24, SPREAD)] == [([], []), ([], []), ([(36, 15)], [])]
    assert market.exchange.cancel(resting) == 15, "it answers to the id that it had"
    market.compare_books()


def test_a_disclosed_order_of_a_leg_offers_what_it_shows(market: FewContracts) -> None:
    enter(market, F24, BID, 699, 100)
    enter(market, N24, ASK, 734, 12, display_size=5)
    assert content(market, SPREAD) == ([], [(35, 5)])
    assert enter(market, SPREAD, BID, 35, 12).traded == 12
    assert [content(market, symbol) for symbol in (F24, N24, SPREAD)] == [([(699, 88)], []), ([], []), ([], [])]
    market.compare_books()


def test_nobody_can_change_an_implied_order(market: FewContracts) -> None:
    enter(market, F24, BID, 699, 10)
    enter(market, N24, ASK, 734, 10)
    (implied,) = market.exchange.book(SPREAD).asks
    for attempt in (lambda: market.exchange.cancel(implied.order_id),
                    lambda: market.exchange.amend(implied.order_id, size=1)):  # fmt: skip
        with pytest.raises(UsageError, match="unknown order"):
            attempt()
    assert market.exchange.mass_cancel(symbol=SPREAD) == 0
    assert content(market, SPREAD) == ([], [(35, 10)])


def test_the_bust_of_an_implied_trade_says_so(market: FewContracts) -> None:
    for moment in MOMENTS:
        enter(market, *moment.order)
    rows = market.events("sbe", 0).rows("trades")
    is_leg = rows.column("instrument_id") == market.exchange.listing.security_id[market.exchange.engine.index_of(F24)]
    (trade_id,) = rows.column("trade_id")[is_leg].tolist()
    before = {name: market.last(name) for name in BY_PRIORITY}
    market.exchange.bust(F24, trade_id)
    market.advance()
    for name in BY_PRIORITY:
        assert trades(market, name, before[name]) == [(F24, 699, 5, "IM")], name


def test_legs_have_their_own_trades_too_where_the_engine_makes_their_prices(tmp_path: Path) -> None:
    """1378=3: a normal trade of a strategy is published on its legs as well (10.1), in the same event."""
    strategy = spread(SPREAD, F24, N24, 35, price_method=3)
    market = few_contracts(tmp_path, future(F24, 699), future(N24, 734), strategy)
    for moment in MOMENTS:
        before = market.last("fast")
        enter(market, *moment.order)
    rows = market.rows(market.events("fast", before), "trades", "price", "size", "conditions")
    legs = [(symbol, price // CENT, size) for _, symbol, price, size, bits in rows if bits & CONDITIONS["1"]]
    assert legs == [(F24, 699, 15), (N24, 734, 15)]
    assert {symbol: content(market, symbol) for symbol in RESULT} == RESULT
    market.compare_books()


# Random orders

FAR, SECOND, BUTTERFLY = "DI1F25", "DIIN24F25", "DIIBFLY"
STRATEGIES = {SPREAD: {F24: -1, N24: 1}, SECOND: {N24: -1, FAR: 1}, BUTTERFLY: {F24: 1, N24: -2, FAR: 1}}


def derived(market: FewContracts, strategy: str, side: int) -> tuple[int, int] | None:
    """The price and the quantity that the best orders of the legs offer on a side of a strategy."""
    exchange, price, size = market.exchange, 0, 1 << 30
    if any(state_of(market, symbol) != k.OPEN for symbol in (strategy, *STRATEGIES[strategy])):
        return None
    for leg, ratio in STRATEGIES[strategy].items():
        book = exchange.book(leg)
        orders = book.bids if (side == BID) == (ratio > 0) else book.asks
        best = [order for order in orders if order.price == orders[0].price]
        price += ratio * (orders[0].price or 0) if orders else 0
        size = min(size, sum(order.size for order in best) // abs(ratio))
    return (price, size) if size else None


def state_of(market: FewContracts, symbol: str) -> int:
    return int(market.exchange.market.instruments[market.exchange.engine.index_of(symbol), k.I_STATE])


def allow_all_prices(market: FewContracts) -> None:
    """An implied order has no price that a band refuses."""
    for symbol in (*STRATEGIES, F24, N24, FAR):
        for kind in ("hard", "rejection"):
            market.exchange.set_band(symbol, kind, -10_000 * CENT, 10_000 * CENT)


def check_books(market: FewContracts) -> None:
    for symbol in (*STRATEGIES, F24, N24, FAR):
        book = market.exchange.book(symbol)
        if state_of(market, symbol) == k.OPEN and book.bids and book.asks:
            assert (book.bids[0].price or 0) < (book.asks[0].price or 0), symbol
        for side, orders in ((BID, book.bids), (ASK, book.asks)):
            implied = [(order.price, order.size) for order in orders if order.order_id >= k.FIRST_IMPLIED_ID]
            expected = derived(market, symbol, side) if symbol in STRATEGIES else None
            assert implied == ([] if expected is None else [expected]), (symbol, side)


def butterfly() -> InstrumentSpec:
    three_legs = Leg(F24, BUY), Leg(N24, SELL, 2 * UNIT), Leg(FAR, BUY)
    return replace(spread(BUTTERFLY, F24, FAR, 0), legs=three_legs)


def test_the_order_flow_keeps_implied_orders_too(tmp_path: Path, sized: Callable[[int, int], int]) -> None:
    contracts = future(F24, 699), future(N24, 734), future(FAR, 769), spread(SPREAD, F24, N24, 35)
    strategies = (*contracts, spread(SECOND, N24, FAR, 35), butterfly())
    market = few_contracts(tmp_path, *strategies, messages_per_s=500, channels=ORDER_BOOKS[2:])
    allow_all_prices(market)
    for _ in range(sized(80, 2_000)):
        market.advance(0.05)
        check_books(market)
    assert sum(row[3] == "IM" for row in trades(market, "fast", 0)) > 0
    market.compare_books()


def test_after_random_orders_the_implied_ones_are_those_that_the_legs_offer(
    tmp_path: Path, sized: Callable[[int, int], int]
) -> None:
    dice = random.Random(24)
    strategies = spread(SPREAD, F24, N24, 35), spread(SECOND, N24, FAR, 35), butterfly()
    market = few_contracts(tmp_path, future(F24, 699), future(N24, 734), future(FAR, 769), *strategies)
    exchange, fair = market.exchange, {F24: 699, N24: 734, FAR: 769, SPREAD: 35, SECOND: 35, BUTTERFLY: 0}
    symbols, orders, counts = list(fair), list[int](), Counter[str]()
    allow_all_prices(market)
    for number in range(sized(250, 6_000)):
        operation = dice.choices(("enter", "amend", "cancel", "mass", "state"), (70, 12, 12, 1, 5))[0]
        symbol = dice.choice(symbols)
        try:
            if operation == "enter":
                price = (fair[symbol] + dice.randint(-3, 3)) * CENT
                display = 1 if dice.random() < 0.1 else None
                size = dice.randint(2, 12)
                side = dice.choice((BID, ASK))
                result = exchange.enter(symbol, side, price, size, firm=3, display_size=display)
                orders.append(result.order_id or 0)
            elif operation == "amend":
                price, size = (fair[symbol] + dice.randint(-3, 3)) * CENT, dice.randint(1, 12)
                exchange.amend(dice.choice(orders or [0]), price=price if dice.random() < 0.3 else None, size=size)
            elif operation == "cancel":
                exchange.cancel(dice.choice(orders or [0]))
            elif operation == "mass":
                exchange.mass_cancel(symbol=symbol)
            else:
                state = dice.choice((k.OPEN, k.OPEN, k.OPEN, k.PAUSE, k.RESERVED))
                exchange.change_state(symbol, state)
            counts[operation] += 1
        except UsageError:
            counts["refused"] += 1
        check_books(market)
        if number % 20 == 0:
            market.advance()
    market.advance()
    market.compare_books()
    rows = [row for row in trades(market, "fast", 0) if row[3] == "IM"]
    assert {row[0] for row in rows} == set(symbols), "implied orders of all strategies have traded"
    assert min(counts[name] for name in ("enter", "amend", "cancel", "state")) > 5
