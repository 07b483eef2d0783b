"""Orders from Python: every order's quantity is traded, cancelled or resting, and a refused one changes nothing."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import numpy as np
import pytest

from umdf.errors import UsageError
from umdf.exchange.bulk.settings import BulkSettings
from umdf.exchange.instruments.listing import generate_listing
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.order_entry import ASK, BID, MatchingEngine
from umdf.exchange.truth.book_history import Book

SETTINGS = BulkSettings(1_000, 12)
START_NS, CENT = SETTINGS.midnight_ns, 10_000_000
SYMBOLS = ("PETR4", "VALE3")


def engine(*open_symbols: str) -> MatchingEngine:
    made = MatchingEngine(generate_listing(SETTINGS, np.random.default_rng(1)), SETTINGS, START_NS)
    for symbol in open_symbols:
        made.set_state(symbol, k.OPEN)
    return made


class Accounts:
    """Follows the journal in plain Python; every order has a firm of its own."""

    def __init__(self) -> None:
        self.books: defaultdict[int, Book] = defaultdict(Book)
        self.traded, self.cancelled = Counter[int](), Counter[int]()

    def follow(self, records: np.ndarray, aggressor: int = 0) -> None:
        for record in records.tolist():
            kind, book = record[k.KIND], self.books[record[k.INSTRUMENT]]
            if kind == k.TRADE:
                self.traded.update({record[k.FIRM]: record[k.SIZE]})
                self.traded.update({record[k.OTHER]: record[k.SIZE]})
            elif kind == k.EXECUTION_SUMMARY and record[k.OTHER] != k.NULL:
                self.cancelled[aggressor] += record[k.OTHER]
            elif kind == k.DELETE and record[k.PRICE] == k.NULL and record[k.FLAGS] & k.LAST and not aggressor:
                # A market order that is left over when an auction ends.
                (firm,) = (o.firm for o in (*book.bids, *book.asks) if o.order_id == record[k.ID])
                self.cancelled[firm or 0] += record[k.SIZE]
            if kind in (k.ADD, k.CHANGE, k.DELETE):
                book.apply(record)

    def resting(self) -> Counter[int]:
        return Counter(
            {order.firm or 0: order.size for book in self.books.values() for order in (*book.bids, *book.asks)}
        )

    def size_of(self, instrument: int, order_id: int) -> tuple[int, int]:
        book = self.books[instrument]
        (order,) = (order for order in (*book.bids, *book.asks) if order.order_id == order_id)
        return order.size, order.firm or 0


@pytest.mark.parametrize("seed", range(6))
def test_every_quantity_is_traded_cancelled_or_resting(seed: int) -> None:
    dice, exchange, accounts = random.Random(seed), engine(*SYMBOLS), Accounts()
    entered, states = Counter[int](), dict.fromkeys(SYMBOLS, k.OPEN)
    for number in range(1, 1_500):
        now, action = START_NS + number * 1_000_000, dice.random()
        firm, symbol = number, dice.choice(SYMBOLS)
        if action < 0.02:
            states[symbol] = k.RESERVED if states[symbol] == k.OPEN else k.OPEN
            exchange.set_state(symbol, states[symbol])
            firm = 0
        elif action < 0.75 or not exchange.orders:
            in_auction = states[symbol] == k.RESERVED and dice.random() < 0.1
            price = None if in_auction else (3_000 + dice.randint(-12, 12)) * CENT
            size = dice.randint(1, 20)
            try:
                exchange.enter(symbol, dice.choice((BID, ASK)), price, size, firm, now)
                entered[firm] += size
            except UsageError:  # the side is full
                assert len(exchange.orders) >= 32
        else:
            order = exchange.orders[dice.choice(list(exchange.orders))]
            before, firm = accounts.size_of(order.instrument, order.order_id)
            if action < 0.9 or order.key == k.MARKET_ORDER_KEY:
                assert exchange.cancel(order.order_id, now) == before
                accounts.cancelled[firm] += before
            else:
                size = dice.randint(1, 20)
                exchange.amend(order.order_id, (3_000 + dice.randint(-12, 12)) * CENT, size, now)
                entered[firm] += size - before
        accounts.follow(exchange.take_records(), firm)
    for symbol in SYMBOLS:
        exchange.set_state(symbol, k.PAUSE)
    accounts.follow(exchange.take_records())
    resting = accounts.resting()
    assert {order.order_id for order in exchange.orders.values()} == {
        order.order_id for book in accounts.books.values() for order in (*book.bids, *book.asks)
    }
    for firm, quantity in entered.items():
        assert quantity == accounts.traded[firm] + accounts.cancelled[firm] + resting[firm], firm
    assert accounts.traded.total() > 1_000 and accounts.cancelled.total() > 500 and resting.total() > 10


def test_price_and_time_decide_and_a_change_of_price_loses_priority() -> None:
    exchange = engine("PETR4")
    first = exchange.enter("PETR4", BID, 30 * 10**9, 100, 1, START_NS + 1)
    second = exchange.enter("PETR4", BID, 30 * 10**9, 100, 2, START_NS + 2)
    assert first and second and exchange.amend(first.order_id, 30 * 10**9, 50, START_NS + 3) == first
    moved = exchange.amend(first.order_id, 30 * 10**9, 80, START_NS + 4)  # more: behind the second
    assert moved and moved.order_id > second.order_id
    assert exchange.enter("PETR4", ASK, 29 * 10**9, 120, 3, START_NS + 5) is None
    trades = exchange.take_records()
    trades = trades[trades[:, k.KIND] == k.TRADE]
    assert trades[:, [k.FIRM, k.SIZE]].tolist() == [[2, 100], [1, 20]]
    assert list(exchange.orders) == [moved.order_id]


@pytest.mark.parametrize(
    ("order", "error"),
    [
        (("XXXX3", BID, 10**9, 100, 1, START_NS), "unknown instrument: XXXX3"),
        (("PETR4", BID, 30_005_000_000, 100, 1, START_NS), "price is not on a tick: 30005000000"),
        (("PETR4", BID, None, 100, 1, START_NS), "the state of the instrument does not allow it"),
        (("VALE3", BID, 30 * 10**9, 100, 1, START_NS), "the state of the instrument does not allow it"),
        (("PETR4", BID, 30 * 10**9, 0, 1, START_NS), "invalid size: 0"),
    ],
)
def test_a_refused_order_changes_nothing(order: tuple, error: str) -> None:
    exchange = engine("PETR4")
    exchange.take_records()
    with pytest.raises(UsageError, match=error):
        exchange.enter(*order)
    with pytest.raises(UsageError, match="unknown order: 7"):
        exchange.cancel(7, START_NS)
    assert len(exchange.take_records()) == 0 and not exchange.orders
