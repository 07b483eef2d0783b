"""The matching engine against a slow one in plain Python, after every one of thousands of random operations."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from exchange import matching_reference as r

from umdf.errors import UsageError
from umdf.exchange.bulk.settings import BulkSettings
from umdf.exchange.instruments.listing import generate_listing
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.order_entry import MatchingEngine
from umdf.exchange.matching.orders import BAND_STATISTICS, DAY, GTC, GTD, NULL, Order
from umdf.exchange.truth.book_history import Book

SETTINGS = BulkSettings(1_000, 10)
START_NS, CENT, LOT, MIDDLE = SETTINGS.midnight_ns, 10_000_000, 100, 3_000
SYMBOL = "PETR4"
FIRST_DAY = SETTINGS.trading_date
STATES = (r.OPEN,) * 12 + (r.RESERVED,) * 4 + (r.CLOSING_CALL,) * 2 + (r.PAUSE, r.CLOSE, r.FORBIDDEN)
KEPT_WORDS = [k.RNG, k.ROWS, k.ORDER_ID, k.IMPLIED_ID, k.LAST_TS, k.WAITING_COUNT, k.INDEX_COUNT]


class Comparison:
    """One engine and one reference, on which the same operations are made."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.engine = MatchingEngine(generate_listing(SETTINGS, np.random.default_rng(1)), SETTINGS, START_NS)
        self.index = self.engine.index_of(SYMBOL)
        row = self.row
        self.book = r.ReferenceBook(
            int(row[k.I_TICK]), int(row[k.I_LOT]), int(row[k.I_CAPACITY]), int(row[k.I_PREVIOUS_CLOSE])
        )
        self.replayed, self.now, self.day = Book(), START_NS, FIRST_DAY
        self.published: dict[int, int] = {}  # kind: price
        self.totals, self.counts = Counter[str](), Counter[str]()

    @property
    def row(self) -> np.ndarray:
        return self.engine.market.instruments[self.index]

    def memory(self) -> list[Any]:
        market = self.engine.market
        return [market.table[KEPT_WORDS], market.instruments.copy(), market.orders.copy()]

    def orders(self) -> list[r.Resting]:
        return [*self.book.sides[0], *self.book.sides[1], *self.book.waiting]

    # One operation on both

    def step(self) -> None:
        self.now += self.dice.randint(1, 1_000_000)
        operations = [
            (60, self.enter), (14, self.amend), (10, self.cancel), (5, self.change_state), (2, self.cross),
            (1, self.enter_on_behalf), (2, self.bust), (1, self.amend_trade), (2, self.set_band),
            (0.4, self.mass_cancel), (0.3, self.expire), (0.3, self.restate),
        ]  # fmt: skip
        (operation,) = self.dice.choices([o for _, o in operations], [w for w, _ in operations])
        before = self.memory()
        try:
            operation()
            self.counts[operation.__name__] += 1
        except UsageError as error:
            for one, other in zip(before, self.memory(), strict=True):
                assert np.array_equal(one, other), f"{operation.__name__} was refused ({error}) and has changed memory"
            self.counts[f"refused: {error.args[0].split(':')[0]}"] += 1
        self.follow()
        self.compare()

    def both(self, on_engine: Any, on_reference: Any) -> tuple[Any, Any]:
        """The results of both; what is refused by both raises the error of the engine."""
        try:
            expected = on_reference()
        except r.Refused as refusal:
            with pytest.raises(UsageError) as error:
                on_engine()
            assert str(error.value).startswith(str(refusal)), (str(error.value), str(refusal))
            raise error.value from None
        return on_engine(), expected

    def price(self) -> int:
        return (MIDDLE + self.dice.randint(-14, 14)) * CENT + (1 if self.dice.random() < 0.01 else 0)

    def size(self) -> int:
        return self.dice.choice((1, 2, 3, 5, 8, 20)) * LOT + (50 if self.dice.random() < 0.01 else 0)

    def enter(self) -> None:
        dice, side, size = self.dice, self.dice.randint(0, 1), self.size()
        order_type = dice.choices(range(5), (80, 6, 6, 6, 3))[0]
        price = self.price() if order_type == r.LIMIT or dice.random() < 0.01 else None
        display = LOT * dice.randint(0, 4) if dice.random() < 0.2 else 0
        in_force = dice.choice((DAY, DAY, GTC, GTD))
        expire_date = self.day + dice.randint(0, 3) if in_force == GTD else None
        firm, stp_id = dice.randint(1, 4), dice.choice((0, 0, 1, 2, 3))
        last_day = {DAY: k.DAY, GTC: k.GOOD_TILL_CANCELLED, GTD: expire_date}[in_force] or 0
        order = r.Resting(side, price, size, 0, display, firm, stp_id, last_day, self.now)
        result, expected = self.both(
            lambda: self.engine.enter(
                SYMBOL, side, price, size, firm=firm, ts_ns=self.now, order_type=order_type, time_in_force=in_force,
                expire_date=expire_date, display_size=display or None, stp_id=stp_id or None,
            ),
            lambda: self.book.enter(order, order_type),
        )  # fmt: skip
        order.order_id = result.order_id or 0
        self.totals["entered"] += size
        self.check(result, expected)

    def check(self, result: Any, expected: r.Outcome) -> None:
        assert (result.traded, result.cancelled) == (expected.traded, expected.cancelled)
        assert (result.order_id is not None, result.started_auction) == (expected.rests, expected.started_auction)
        self.totals["cancelled"] += result.cancelled
        self.counts["started an auction"] += result.started_auction
        self.counts["traded and rests"] += bool(result.traded and result.order_id)

    def any_order(self) -> r.Resting:
        orders = self.orders()
        return self.dice.choice(orders) if orders else r.Resting(0, None, 0, 0, 0, 0, 0, 0, 0, 999)

    def amend(self) -> None:
        order = self.any_order()
        price = self.price() if self.dice.random() < 0.7 else None
        size = self.size() if self.dice.random() < 0.7 else None
        before = order.total
        result, expected = self.both(
            lambda: self.engine.amend(order.order_id, price=price, size=size, ts_ns=self.now),
            lambda: self.known(order) or self.book.amend(order, price, size, self.now),
        )
        self.totals["entered"] += (before if size is None else size) - before
        self.check(result, expected)
        order.order_id = result.order_id or order.order_id

    def known(self, order: r.Resting) -> None:
        if order.total == 0:
            raise r.Refused("unknown order: 999")

    def cancel(self) -> None:
        order = self.any_order()
        quantity, expected = self.both(
            lambda: self.engine.cancel(order.order_id, self.now), lambda: self.known(order) or self.book.cancel(order)
        )
        assert quantity == expected
        self.totals["cancelled"] += quantity

    def change_state(self) -> None:
        state, before, book = self.dice.choice(STATES), self.book.state, self.book
        self.engine.set_state(SYMBOL, state, None, self.now)
        records = self.engine.take_records()
        prices = []
        for record in records[records[:, k.KIND] == k.TRADE].tolist():
            prices.append(record[k.PRICE])
        rounds = iter(_rounds(records))
        uncrosses = state in (r.OPEN, r.CLOSE) and before in r.AUCTIONS
        if state == r.OPEN or uncrosses or (before == r.CLOSING_CALL and state == r.FORBIDDEN):
            book.uncross(lambda: next(rounds), self.now)
            self.totals["cancelled"] += book.drop_market_orders()
        assert next(rounds, None) is None
        book.state = state
        if state == r.CLOSING_CALL:
            self.totals["cancelled"] += book.trigger_waiting(self.now)
        self.follow(records)

    def cross(self) -> None:
        price, size = self.price(), self.size()

        def on_reference() -> None:
            if self.book.state != r.OPEN:
                raise r.Refused("the state of the instrument does not allow it")
            self.book.check_size(size)
            self.book.check_price(price)
            if any(order.price is None or price < order.price for order in self.book.sides[0]):
                raise r.Refused("price of a cross is outside the spread")
            if any(order.price is None or price > order.price for order in self.book.sides[1]):
                raise r.Refused("price of a cross is outside the spread")
            self.book.add_trade(r.Trade(price, size, 7, 8))

        self.both(lambda: self.engine.cross(SYMBOL, price, size, buyer=7, seller=8, ts_ns=self.now), on_reference)

    def enter_on_behalf(self) -> None:
        price, size = (MIDDLE + self.dice.randint(-30, 30)) * CENT, self.dice.randint(1, 500)
        conditions = self.dice.choice((("2",), ("2", "TC"), ("RL",)))
        self.engine.enter_on_behalf(
            SYMBOL, price, size, buyer=7, seller=8, ts_ns=self.now, conditions=conditions
        )  # fmt: skip
        self.book.add_trade(r.Trade(price, size, 7, 8))

    def any_trade(self) -> r.Trade | None:
        return self.dice.choice(self.book.trades) if self.book.trades else None

    def bust(self) -> None:
        trade = self.any_trade()
        self.engine.bust(SYMBOL, trade.trade_id if trade else 999, self.now)
        assert trade
        self.remove_trade(trade)

    def remove_trade(self, trade: r.Trade) -> None:
        self.book.trades.remove(trade)
        if not self.book.trades:
            self.book.last = self.book.opening = None

    def amend_trade(self) -> None:
        trade = self.any_trade()
        if trade is None:
            return
        price, size = (MIDDLE + self.dice.randint(-30, 30)) * CENT, self.dice.randint(1, 500)
        trade_id = self.engine.amend_trade(SYMBOL, trade.trade_id, price=price, size=size, ts_ns=self.now)
        self.book.trades.remove(trade)
        self.book.trades.append(r.Trade(price, size, trade.buyer, trade.seller, trade_id))

    def set_band(self) -> None:
        kind = self.dice.choice(("quantity", "auction", "auction", "auction", *BAND_STATISTICS))
        if kind == "quantity":
            self.book.max_size = self.dice.choice((1_000, 10_000, 10**6))
            self.engine.set_band(SYMBOL, kind, 0, self.book.max_size, ts_ns=self.now)
            return
        half = self.dice.randint(3, 12) * (1 if kind == "auction" else 3) * CENT
        band = r.Band(MIDDLE * CENT - half, MIDDLE * CENT + half)
        if kind in ("auction", "rejection") and self.dice.random() < 0.7:
            half = self.dice.randint(1, 30) * (10 if kind == "auction" else 30) * 1_000_000  # of 1e-9 percent
            band = r.Band(-half, half, self.dice.choice((0, 2)))
        self.engine.set_band(SYMBOL, kind, band.low, band.high, ts_ns=self.now, percent_of=band.percent_of)
        self.book.bands[kind] = band

    def mass_cancel(self) -> None:
        firm = self.dice.choice((None, 1, 2, 3))
        symbol = self.dice.choice((None, SYMBOL))
        quantity = self.engine.mass_cancel(firm=firm, symbol=symbol, ts_ns=self.now)
        expected = 0
        if self.book.state in (r.OPEN, r.PAUSE, *r.AUCTIONS):
            chosen = [order for order in self.orders() if firm in (None, order.firm)]
            expected = sum(self.book.remove(order) for order in chosen)
        assert quantity == expected
        self.totals["cancelled"] += quantity

    def expire(self) -> None:
        quantity = self.engine.expire_orders(self.now, self.day)
        ended = [order for order in self.orders() if order.last_day <= self.day]
        assert quantity == sum(self.book.remove(order) for order in ended)
        self.totals["expired"] += quantity
        self.day += 1

    def restate(self) -> None:
        new_ids = self.dice.random() < 0.5
        before = self.ids()
        self.engine.restate_orders(self.now, new_ids=new_ids)
        after = self.ids()
        assert set(before).isdisjoint(after) if new_ids else before == after
        if self.dice.random() < 0.5:  # else the old ids stay in use
            for order, order_id in zip((*self.book.sides[0], *self.book.sides[1]), after, strict=True):
                order.order_id = order_id

    def ids(self) -> list[int]:
        book = self.engine.book(SYMBOL)
        return [order.order_id for order in (*book.bids, *book.asks)]

    # The comparison

    def follow(self, records: Any = None) -> None:
        records = self.engine.take_records() if records is None else records
        assert not len(records) or records[-1, k.FLAGS] & k.LAST
        assert (np.diff(records[records[:, k.KIND] != k.TRADE, k.TS]) >= 0).all()
        trade_ids = []
        for record in records.tolist():
            kind = record[k.KIND]
            if kind in (k.ADD, k.CHANGE, k.DELETE, k.EMPTY_BOOK):
                self.replayed.apply(record)
            elif kind in (k.OPENING, k.HIGH, k.LOW, k.THEORETICAL, k.EXECUTION):
                self.published[kind] = NULL if record[k.FLAGS] & k.DELETED else record[k.PRICE]
                self.published[k.KINDS + kind] = record[k.SIZE]
            elif kind == k.TRADE:
                if record[k.FIRM] != 7 and not record[k.CODE] & k.C_OUT_OF_SEQUENCE:
                    self.totals["filled"] += 2 * record[k.SIZE]
                trade_ids.append((record[k.PRICE], record[k.SIZE], record[k.FIRM], record[k.OTHER], record[k.ID]))
        new = [trade for trade in self.book.trades if not trade.trade_id]
        if new:
            assert [(t.price, t.size, t.buyer, t.seller) for t in new] == [row[:4] for row in trade_ids]
            for trade, row in zip(new, trade_ids, strict=True):
                trade.trade_id = row[4]

    def compare(self) -> None:
        book = self.engine.book(SYMBOL)
        assert int(self.row[k.I_STATE]) == self.book.state
        for mine, theirs, replayed in zip(
            (book.bids, book.asks), self.book.sides, (self.replayed.bids, self.replayed.asks), strict=True
        ):
            assert [_content(order) for order in mine] == [_expected(order) for order in theirs]
            assert [(o.order_id, o.price, o.size, o.firm) for o in mine] == [
                (o.order_id, o.price, o.size, o.firm) for o in replayed
            ]
        self.compare_statistics()
        found, published = self.book.auction(), self.published.get(k.THEORETICAL, NULL)
        if self.book.state in r.AUCTIONS:
            theoretical = self.engine.theoretical(SYMBOL)
            assert (theoretical is None) == (found is None) == (published == NULL)
            if theoretical and found:
                ticks, volume = theoretical.price // CENT, self.published[k.KINDS + k.THEORETICAL]
                assert ticks in found[0] and theoretical.size == found[1] == volume and published == theoretical.price
                assert theoretical.imbalance == found[2][ticks]
            self.book.theoretical = (theoretical.price, 0, 0) if theoretical else None
        else:
            assert published == NULL
            if self.book.state == r.OPEN:
                assert found is None and all(order.price is not None for order in self.orders() if order.size < 0)

    def compare_statistics(self) -> None:
        row, trades = self.row, self.book.trades
        assert (int(row[k.I_QUANTITY]), int(row[k.I_TRADES])) == (self.book.volume, len(trades))
        assert int(row[k.I_TURNOVER]) == self.book.turnover
        assert int(row[k.I_LAST]) == (NULL if self.book.last is None else self.book.last)
        prices = [trade.price for trade in trades]
        expected = {
            k.OPENING: self.book.opening,
            k.HIGH: max(prices, default=None),
            k.LOW: min(prices, default=None),
            k.EXECUTION: (self.book.turnover + self.book.volume // 2) // self.book.volume * 100_000 if trades else None,
        }
        for kind, price in expected.items():
            assert self.published.get(kind, NULL) == (NULL if price is None else price), kind

    def check_conservation(self) -> None:
        """What was entered is traded, cancelled, expired or there. Of each trade between orders two are filled."""
        totals, there = self.totals, sum(order.total for order in self.orders())
        assert totals["entered"] == totals["filled"] + totals["cancelled"] + totals["expired"] + there
        assert min(totals["filled"], totals["cancelled"], totals["expired"]) > 0


def _rounds(records: np.ndarray) -> list[int]:
    """The price of each auction among records: one event, or those that follow refills."""
    prices: list[int] = []
    is_new = True
    for record in records.tolist():
        if record[k.KIND] == k.TRADE and is_new:
            prices.append(record[k.PRICE])
            is_new = False
        is_new = is_new or bool(record[k.FLAGS] & k.LAST)
    return prices


def _content(order: Order) -> tuple:
    return (order.price, order.size, order.hidden, order.firm, order.stp_id or 0, order.entered_ns)


def _expected(order: r.Resting) -> tuple:
    return (order.price, order.size, order.hidden, order.firm, order.stp_id, order.entered_ns)


@pytest.mark.parametrize("seed", range(3))
def test_the_engine_is_the_slow_one_after_every_operation(seed: int, sized: Callable[[int, int], int]) -> None:
    comparison = Comparison(seed)
    for _ in range(sized(1_500, 30_000)):
        comparison.step()
    comparison.check_conservation()
