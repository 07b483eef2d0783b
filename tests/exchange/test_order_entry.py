"""Orders from Python, one by one and in batches: what they lead to, and that a refused one changes nothing."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from exchange.open_engine import CENT, REAL, SETTINGS, START_NS, SYMBOL, content, engine, enter, kinds, rows

from umdf.errors import UsageError
from umdf.exchange.bulk.settings import BulkSettings
from umdf.exchange.instruments.listing import generate_listing
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching import request_layout_kernel as q
from umdf.exchange.matching.order_entry import MatchingEngine
from umdf.exchange.matching.orders import (
    AMEND,
    ASK,
    BID,
    CANCEL,
    ENTER,
    GTC,
    LIMIT,
    MARKET,
    MARKET_TO_LIMIT,
    MOA,
    MOC,
    REQUEST,
    EntryResult,
)  # fmt: skip
from umdf.exchange.truth.book_history import Book


def test_price_and_time_decide_and_a_change_of_price_loses_priority() -> None:
    exchange = engine(SYMBOL)
    first, second = enter(exchange, BID, 3_000, 100, firm=1).order_id, enter(exchange, BID, 3_000, 200, firm=2).order_id
    assert first and second
    assert exchange.amend(second, size=100, ts_ns=START_NS).order_id == second  # less: it stays where it is
    moved = exchange.amend(first, size=300, ts_ns=START_NS).order_id  # more: behind the second
    assert moved and moved > second
    exchange.take_records()
    assert enter(exchange, ASK, 2_900, 200, firm=3) == EntryResult(None, 200, 0, False)
    records = exchange.take_records()
    assert rows(records, k.TRADE, k.FIRM, k.SIZE) == [[2, 100], [1, 100]]
    assert kinds(records)[:5] == [k.EXECUTION_SUMMARY, k.TRADE, k.TRADE, k.DELETE, k.CHANGE]
    assert exchange.cancel(first, START_NS) == 200  # the id that it had before works too


def test_a_disclosed_order_is_refilled_under_new_ids_behind_the_others() -> None:
    exchange = engine(SYMBOL)
    hidden = enter(exchange, BID, 3_000, 500, firm=1, display_size=100).order_id
    enter(exchange, BID, 3_000, 100, firm=2)
    assert content(exchange)[0] == [(3_000, 100, 400), (3_000, 100, 0)]
    exchange.take_records()
    assert enter(exchange, ASK, 3_000, 400, firm=3).traded == 400
    records = exchange.take_records()
    assert rows(records, k.TRADE, k.FIRM, k.SIZE) == [[1, 100], [2, 100], [1, 100], [1, 100]]
    ids = [row[0] for row in rows(records, k.ADD, k.ID)]
    assert len(set(ids)) == 3 and content(exchange)[0] == [(3_000, 100, 100)]
    assert hidden and exchange.cancel(hidden, START_NS) == 200


def test_market_orders_trade_what_they_can_and_the_rest_is_cancelled_or_rests_at_the_last_price() -> None:
    exchange = engine(SYMBOL)
    with pytest.raises(UsageError, match="nothing to trade with"):
        enter(exchange, BID, None, 100, order_type=MARKET)
    enter(exchange, ASK, 3_000, 100)
    enter(exchange, ASK, 3_001, 100)
    assert enter(exchange, BID, None, 500, order_type=MARKET) == EntryResult(None, 200, 300, False)
    summary = rows(exchange.take_records(), k.EXECUTION_SUMMARY, k.SIZE, k.OTHER)
    assert summary == [[200, 300]] and content(exchange) == [[], []]
    enter(exchange, ASK, 3_000, 100)
    enter(exchange, ASK, 3_002, 100)
    assert enter(exchange, BID, None, 500, order_type=MARKET_TO_LIMIT).traded == 200
    assert content(exchange) == [[(3_002, 300, 0)], []]


def test_auction_orders_have_no_price_and_what_is_left_of_them_is_deleted() -> None:
    exchange = engine()
    exchange.set_state(SYMBOL, k.RESERVED)
    enter(exchange, BID, None, 300, order_type=MOA, firm=1)
    enter(exchange, ASK, 3_000, 100, firm=2)
    theoretical = exchange.theoretical(SYMBOL)
    assert theoretical and (theoretical.price, theoretical.size, theoretical.imbalance) == (30 * REAL, 100, 200)
    exchange.take_records()
    exchange.set_state(SYMBOL, k.OPEN)
    records = exchange.take_records()
    assert content(exchange) == [[], []]
    # The trades, then the theoretical price and the market order are deleted, then the state changes (11.1).
    assert kinds(records)[:4] == [k.TRADE, k.DELETE, k.CHANGE, k.OPENING] and kinds(records)[-1] == k.STATE
    assert kinds(records)[-4:-1] == [k.THEORETICAL, k.IMBALANCE, k.DELETE]


def test_market_on_close_orders_wait_for_the_closing_call() -> None:
    exchange = engine(SYMBOL)
    waiting = enter(exchange, BID, None, 300, order_type=MOC).order_id
    dropped = enter(exchange, BID, None, 500, order_type=MOC).order_id
    assert waiting and dropped and content(exchange) == [[], []] and not len(exchange.take_records())
    assert exchange.amend(waiting, size=200, ts_ns=START_NS).order_id == waiting
    assert exchange.cancel(dropped, START_NS) == 500
    exchange.set_state(SYMBOL, k.FINAL_CLOSING_CALL)
    assert kinds(exchange.take_records()) == [k.STATE, k.ADD] and content(exchange)[0] == [(None, 200, 0)]
    assert exchange.cancel(waiting, START_NS) == 200


@pytest.mark.parametrize(
    ("state", "allowed"),
    [
        (k.OPEN, "enter amend cancel"), (k.RESERVED, "enter amend cancel"),
        (k.FINAL_CLOSING_CALL, "enter amend cancel"), (k.PAUSE, "cancel"), (k.CLOSE, ""), (k.FORBIDDEN, ""),
    ],
)  # fmt: skip
def test_the_state_says_what_is_allowed(state: int, allowed: str) -> None:
    """11.1 to 11.3; cancels work in a pause too (certification B2.5, B4.2 and B4.3)."""
    exchange = engine(SYMBOL)
    order_id = enter(exchange, BID, 3_000, 200).order_id
    assert order_id
    exchange.set_state(SYMBOL, state)
    for name, call in {
        "enter": lambda: enter(exchange, BID, 3_000, 100),
        "amend": lambda: exchange.amend(order_id, size=100, ts_ns=START_NS),
        "cancel": lambda: exchange.cancel(order_id, START_NS),
    }.items():
        if name in allowed:
            call()
        else:
            with pytest.raises(UsageError, match="the state of the instrument does not allow it"):
                call()


@pytest.mark.parametrize(
    ("kind", "percent_of", "refused"),
    [
        ("hard", None, "price is outside the hard limits: 31.01; use 29 to 31"),
        ("static", None, "price is outside the static limits: 31.01"),
        ("rejection", 0, "price is outside the rejection band: 31.01; use -3 to 3"),
    ],
)
def test_prices_outside_of_limits_are_refused(kind: str, percent_of: int | None, refused: str) -> None:
    exchange = engine(SYMBOL)
    exchange.enter_on_behalf(SYMBOL, 30 * REAL, 1, buyer=1, seller=2, ts_ns=START_NS)
    low, high = (29 * REAL, 31 * REAL) if percent_of is None else (-3 * REAL, 3 * REAL)  # 3 % of 30
    exchange.set_band(SYMBOL, kind, low, high, percent_of=percent_of)
    enter(exchange, BID, 3_090, 100)
    with pytest.raises(UsageError) as error:
        enter(exchange, BID, 3_101, 100)
    assert str(error.value).startswith(refused)


def test_a_trade_outside_of_the_auction_band_starts_an_auction_instead() -> None:
    exchange = engine(SYMBOL)
    exchange.set_band(SYMBOL, "auction", 29 * REAL, 31 * REAL)
    enter(exchange, ASK, 3_050, 100)
    enter(exchange, ASK, 3_110, 100)
    exchange.take_records()
    result = enter(exchange, BID, 3_120, 200)
    assert result.started_auction and result.traded == 0
    records = exchange.take_records()
    assert kinds(records) == [k.STATE, k.ADD, k.THEORETICAL, k.IMBALANCE]
    assert rows(records, k.STATE, k.AUX, k.CODE) == [[k.RESERVED, k.SEPARATES]]
    assert content(exchange) == [[(3_120, 200, 0)], [(3_050, 100, 0), (3_110, 100, 0)]]
    exchange.set_state(SYMBOL, k.OPEN)
    assert content(exchange) == [[], []]


def test_orders_of_one_owner_never_trade_with_each_other() -> None:
    exchange = engine(SYMBOL)
    enter(exchange, ASK, 3_000, 100)
    enter(exchange, ASK, 3_001, 100, stp_id=5)
    assert enter(exchange, BID, 3_001, 300, stp_id=5) == EntryResult(None, 100, 200, False)
    with pytest.raises(UsageError, match="self-trade prevention"):
        enter(exchange, BID, 3_001, 300, stp_id=5)
    assert content(exchange) == [[], [(3_001, 100, 0)]]
    exchange.set_state(SYMBOL, k.RESERVED)
    with pytest.raises(UsageError, match="self-trade prevention"):
        enter(exchange, BID, None, 300, stp_id=5, order_type=MOA)


@pytest.mark.parametrize("seed", range(2))
def test_no_random_flow_makes_an_owner_trade_with_himself(seed: int) -> None:
    dice, exchange, owners = random.Random(seed), engine(SYMBOL), range(1, 5)
    for number in range(1_500):
        if number % 40 == 39:
            exchange.set_state(SYMBOL, dice.choice((k.OPEN, k.RESERVED, k.FINAL_CLOSING_CALL)))
        owner, order_type = dice.choice(owners), dice.choices(range(5), (20, 1, 1, 2, 1))[0]
        price = 3_000 + dice.randint(-5, 5) if order_type == LIMIT else None
        size, display = 100 * dice.randint(1, 9), 100 if order_type == LIMIT and dice.random() < 0.2 else None
        try:
            enter(
                exchange, dice.randint(0, 1), price, size, firm=owner, stp_id=owner, order_type=order_type,
                display_size=display if size > 100 else None, ts_ns=START_NS + number,
            )  # fmt: skip
        except UsageError as error:
            assert "self-trade" in str(error) or "order type" in str(error) or "nothing" in str(error), error
        if number % 10 == 0:
            exchange.mass_cancel(firm=dice.choice(owners), ts_ns=START_NS + number)
    trades = rows(exchange.take_records(), k.TRADE, k.FIRM, k.OTHER)
    assert len(trades) > 150 and all(buyer != seller for buyer, seller in trades)


def test_orders_for_the_day_expire_and_others_return_with_the_time_of_their_entry() -> None:
    exchange, today = engine(SYMBOL), SETTINGS.trading_date
    enter(exchange, BID, 3_000, 100)
    enter(exchange, BID, 2_999, 200, time_in_force="GTD", expire_date=today)
    enter(exchange, BID, 2_998, 300, time_in_force="GTD", expire_date=today + 1)
    first = enter(exchange, BID, 2_997, 400, time_in_force=GTC).order_id
    second = enter(exchange, BID, 2_997, 500, time_in_force=GTC, ts_ns=START_NS + 1).order_id
    exchange.set_state(SYMBOL, k.CLOSE)
    exchange.take_records()
    assert exchange.expire_orders(START_NS + 10, today) == 300
    assert kinds(exchange.take_records()) == [k.DELETE, k.DELETE]
    exchange.restate_orders(START_NS + 20)
    records = exchange.take_records()
    assert kinds(records) == [k.EMPTY_BOOK, k.ADD, k.ADD, k.ADD]
    assert rows(records, k.ADD, k.ID)[1:] == [[first], [second]]
    assert rows(records, k.ADD, k.INSERT)[1:] == [[START_NS], [START_NS + 1]]
    exchange.restate_orders(START_NS + 30, new_ids=True)  # another segment (9.1)
    ids = [row[0] for row in rows(exchange.take_records(), k.ADD, k.ID)]
    assert ids == sorted(ids) and not {first, second} & set(ids)
    exchange.set_state(SYMBOL, k.PAUSE)
    assert first and exchange.cancel(first, START_NS + 40) == 400


def test_mass_cancel_is_of_a_firm_an_instrument_or_all() -> None:
    exchange = engine(SYMBOL, "VALE3")
    for firm in (1, 2):
        enter(exchange, BID, 3_000, 100 * firm, firm=firm)
        exchange.enter("VALE3", ASK, 60 * REAL, 1_000 * firm, firm=firm, ts_ns=START_NS)
    enter(exchange, BID, None, 700, firm=2, order_type=MOC)
    assert exchange.mass_cancel(firm=1, symbol=SYMBOL, ts_ns=START_NS) == 100
    exchange.set_state("VALE3", k.CLOSE)
    assert exchange.mass_cancel(firm=2, ts_ns=START_NS) == 900  # not where the state does not allow it
    assert exchange.clear_book("VALE3", START_NS) == 3_000


def test_the_order_flow_leaves_orders_from_python_alone_but_trades_with_them() -> None:
    settings = BulkSettings(40_000, 10)
    exchange = MatchingEngine(generate_listing(settings, np.random.default_rng(1)), settings, START_NS)
    for instrument in exchange.market.listing.symbols[:10]:
        exchange.set_state(instrument, k.OPEN)
    book, mine = Book(), Counter[str]()
    index, firm = exchange.index_of(SYMBOL), 999_999
    for number in range(40):
        exchange.run_order_flow(1 << 62, 250)
        side = number % 2
        top = exchange.book(SYMBOL).asks if side else exchange.book(SYMBOL).bids
        price = top[0].price if top else 30 * REAL
        result = exchange.enter(SYMBOL, side, price, 500, firm=firm, ts_ns=0, display_size=100)
        mine["entered"] += 500
    exchange.run_order_flow(1 << 62, 2_000)
    records = exchange.take_records()
    for record in records[records[:, k.INSTRUMENT] == index].tolist():
        if record[k.KIND] in (k.ADD, k.CHANGE, k.DELETE):
            book.apply(record)
        elif record[k.KIND] == k.TRADE:
            mine["traded"] += record[k.SIZE] * [record[k.FIRM], record[k.OTHER]].count(firm)
    now = exchange.book(SYMBOL)
    assert [(o.order_id, o.size) for o in now.bids] == [(o.order_id, o.size) for o in book.bids]
    assert [(o.order_id, o.size) for o in now.asks] == [(o.order_id, o.size) for o in book.asks]
    resting = sum(order.size + order.hidden for order in (*now.bids, *now.asks) if order.firm == firm)
    assert mine["entered"] == mine["traded"] + resting and mine["traded"] > 0 and result is not None
    flow = next(order for order in now.bids if order.firm != firm)
    assert exchange.cancel(flow.order_id, 0) == flow.size + flow.hidden  # an order that the engine has not entered


def test_a_batch_is_the_same_as_one_by_one(sized: Callable[[int, int], int]) -> None:
    count = sized(3_000, 60_000)
    dice = np.random.default_rng(3)
    requests = np.zeros(count, REQUEST)
    single, many = engine(SYMBOL), engine(SYMBOL)
    index = single.index_of(SYMBOL)
    requests["action"] = dice.choice([ENTER, AMEND, CANCEL], count, p=(0.7, 0.1, 0.2))
    requests["instrument"], requests["side"] = index, dice.integers(0, 2, count)
    requests["price"], requests["size"] = (3_000 + dice.integers(-8, 9, count)) * CENT, 100 * dice.integers(1, 9, count)
    requests["firm"], requests["expires"], requests["ts_ns"] = 7, k.DAY, START_NS + np.arange(count)
    requests["order_id"] = 1_000_000_000 + dice.integers(0, 6_000, count)
    results = many.enter_many(requests)
    for request, result in zip(requests.tolist(), results.tolist(), strict=True):
        action, _, side, price, size, firm, _, _, _, _, order_id, ts_ns = request
        try:
            if action == ENTER:
                one = single.enter(SYMBOL, side, price, size, firm=firm, ts_ns=ts_ns)
            elif action == AMEND:
                one = single.amend(order_id, price=price, size=size, ts_ns=ts_ns)
            else:
                assert single.cancel(order_id, ts_ns) == result[3]
                continue
            assert (one.order_id or 0, one.traded, one.cancelled) == (result[0], result[2], result[3])
        except UsageError:
            assert result[1] < 0
    assert np.array_equal(single.take_records(), many.take_records())
    assert single.book(SYMBOL) == many.book(SYMBOL)
    codes = Counter(results["refusal"].tolist())
    assert codes[0] > count // 3 and codes[q.UNKNOWN_ORDER] > 0


def test_an_order_larger_than_the_journal_is_matched_to_its_end() -> None:
    exchange = engine(SYMBOL)
    enter(exchange, ASK, 3_000, 100 * 100_000, display_size=100)
    assert enter(exchange, BID, 3_000, 100 * 20_000) == EntryResult(None, 100 * 20_000, 0, False)
    records = exchange.take_records()
    assert len(rows(records, k.TRADE, k.SIZE)) == 20_000 and content(exchange)[1] == [(3_000, 100, 100 * 79_999)]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"symbol": "XXXX3"}, "unknown instrument: XXXX3; use a symbol of the listing"),
        ({"symbol": "VALE3"}, "the state of the instrument does not allow it; wait for Open or an auction"),
        ({"price": 30_005_000_000}, "price is not on a tick: 30.005; use a multiple of 0.01"),
        ({"size": 0}, "invalid size: 0"),
        ({"size": 150}, "size is not a multiple of the lot: 150; use a multiple of 100"),
        ({"size": 600}, "size is above the quantity band: 600; use at most 500"),
        ({"price": None}, "limit order without a price"),
        ({"order_type": MOA, "price": None}, "order type not allowed in this state"),
        ({"order_type": MARKET}, "this order has no price: 30"),
        ({"display_size": 500}, "invalid display size: 500"),
        ({"time_in_force": "GTD"}, "GTD order without an expiry date"),
        ({"time_in_force": "IOC"}, "invalid time_in_force: IOC; use DAY, GTC or GTD"),
        ({"stp_id": -1}, "invalid last day or self-trade prevention id: -1"),
    ],
)
def test_a_refused_order_says_why_and_changes_nothing(arguments: dict, error: str) -> None:
    exchange = engine(SYMBOL)
    exchange.set_band(SYMBOL, "quantity", 0, 500)
    exchange.take_records()
    before = exchange.market.instruments.copy(), exchange.market.orders.copy()
    order = {"symbol": SYMBOL, "side": BID, "price": 30 * REAL, "size": 500, "firm": 1, "ts_ns": START_NS} | arguments
    with pytest.raises(UsageError) as refused:
        exchange.enter(**order)
    assert str(refused.value).startswith(error)
    with pytest.raises(UsageError, match="unknown order: 7"):
        exchange.cancel(7, START_NS)
    assert len(exchange.take_records()) == 0
    for one, other in zip(before, (exchange.market.instruments, exchange.market.orders), strict=True):
        assert np.array_equal(one, other)
