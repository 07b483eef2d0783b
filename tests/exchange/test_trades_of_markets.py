"""Trades of all markets: the legs of strategies, details of lending and forwards, anonymous and special trades."""

from __future__ import annotations

from datetime import date

import numpy as np
import pytest
from exchange.published_events import publish

from umdf.exchange.bulk.settings import BulkSettings
from umdf.exchange.instruments.catalogue import generate_catalogue
from umdf.exchange.instruments.instrument_spec import BUY
from umdf.exchange.instruments.journal_details import OrderDetails, TradeDetails
from umdf.exchange.instruments.listing import Listing
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.order_entry import ASK as SELLER
from umdf.exchange.matching.order_entry import BID as BUYER
from umdf.exchange.matching.order_entry import MatchingEngine
from umdf.exchange.publish.channel_settings import FAST, INCREMENTAL, POSITION, PRIORITY, SBE, ChannelSettings
from umdf.exchange.publish.publisher import JournalBatch
from umdf.market import families as e
from umdf.market.rows import Rows

TRADING_DATE, COUNT, SECOND_NS = 20_770, 400, 1_000_000_000
NONE = e.NULL_I32
KINDS = [(SBE, PRIORITY), (SBE, POSITION), (FAST, PRIORITY), (FAST, POSITION)]


@pytest.fixture
def listing() -> Listing:
    return Listing(generate_catalogue(COUNT, 5, date(2026, 11, 13)), TRADING_DATE, np.random.default_rng(2))


@pytest.mark.parametrize("generation", [PRIORITY, POSITION])
def test_lending_and_forwards_have_their_details(listing: Listing, generation: str) -> None:
    """13.1: 432, 37019, 37023, 37024, 37025 and the conditions LM and AN; 10.1: 287 and 37014 of a forward."""
    lending, forward = listing.index_of("PETR4BTB"), listing.index_of("PETR4T30")
    contract = TradeDetails(None, None, 2, 2, TRADING_DATE + 5, TRADING_DATE + 30, 0)
    term = TradeDetails(seller_days=30, interest_rate=1_250_000_000)
    records = np.full((4, k.RECORD_COLUMNS), k.NULL, np.int64)
    ts = TRADING_DATE * 86_400 * SECOND_NS
    records[:, k.TS], records[:, k.FLAGS], records[:, k.SIDE] = ts, k.LAST, k.NO_SIDE
    records[:, k.PRICE], records[:, k.SIZE], records[:, k.INSERT] = 500_000_000, 100, ts
    records[:, k.KIND] = k.TRADE, k.TRADE, k.ADD, k.ADD
    records[:, k.INSTRUMENT], records[:, k.ID] = [lending, forward, lending, lending], [10, 10, 501, 502]
    records[:2, k.CODE] = listing.details.add_trade(contract), listing.details.add_trade(term) | k.C_REGULAR
    records[2:, k.SIDE], records[2:, k.POSITION] = [k.BID, k.ASK], 1
    records[2, k.FLAGS], records[3, k.FLAGS] = k.LAST | e.BTB_LIMITED, k.LAST | e.BTB_ALL_OR_NONE
    listing.details.orders[501] = OrderDetails(TRADING_DATE + 20, 1, 0)
    batch = JournalBatch(INCREMENTAL, records, ts)
    events = publish(ChannelSettings(61, FAST, generation), listing, batch)
    trades, orders = events.rows("trades"), events.rows("mbo")
    by_id = dict(zip(trades.column("instrument_id").tolist(), range(len(trades)), strict=True))
    first, second = by_id[int(listing.security_id[lending])], by_id[int(listing.security_id[forward])]

    def row(rows: Rows, number: int, *names: str) -> list[int]:
        return [int(rows.column(name)[number]) for name in names]

    names = ("early_termination", "btb_contract_info", "btb_grace_date", "expire_date", "btb_cert_indicator", "venue")
    # The previous generation has no 37023, 37024 and 37025: absent, they mean 1, 1 and no date.
    sent = (
        [2, 2, TRADING_DATE + 5, TRADING_DATE + 30, 0] if generation == PRIORITY else [2, 1, NONE, TRADING_DATE + 30, 1]
    )
    assert row(trades, first, *names) == [*sent, ord("L")]
    assert row(trades, second, "seller_days", "interest_rate", "venue") == [30, 1_250_000_000, ord("T")]
    sides = {chr(side): number for number, side in enumerate(orders.column("side").tolist()) if chr(side) in "BA"}
    details = ("expire_date", "early_termination", "btb_cert_indicator", "venue")
    assert row(orders, sides["B"], *details) == [TRADING_DATE + 20, 1, int(generation == POSITION), ord("L")]
    assert row(orders, sides["A"], *details) == [NONE, 0, 1, ord("L")]  # the meaning of absent ones
    flags = orders.column("flags")
    assert flags[sides["B"]] & e.BTB_LIMITED and flags[sides["A"]] & e.BTB_ALL_OR_NONE


@pytest.mark.parametrize(("protocol", "generation"), KINDS)
def test_anonymous_orders_and_special_trades(listing: Listing, protocol: str, generation: str) -> None:
    """FX orders and trades have no firms, also if nothing but orders and trades is encoded; every special kind of trade
    arrives with its condition (277, Binary 829)."""
    fx, words = listing.index_of("USDBRLD2"), [word for word in e.TRD_SUB_TYPES.values() if word != "1"]
    ts, count = TRADING_DATE * 86_400 * SECOND_NS, len(words) + 2
    records = np.full((count, k.RECORD_COLUMNS), k.NULL, np.int64)
    records[:, k.KIND], records[:, k.INSTRUMENT], records[:, k.ID] = k.TRADE, fx, 10 * np.arange(1, count + 1)
    records[:, k.TS], records[:, k.FLAGS], records[:, k.SIDE] = ts, k.LAST, k.NO_SIDE
    records[:, k.PRICE], records[:, k.SIZE], records[:, k.INSERT] = 5_350_000_000, 1_000, ts
    records[:, k.FIRM], records[:, k.OTHER] = 3, 8
    records[: len(words), k.CODE] = [e.CONDITIONS[word] for word in words]
    records[len(words), k.CODE] = k.C_REGULAR
    records[-1, [k.KIND, k.SIDE, k.OTHER, k.POSITION, k.CODE]] = k.ADD, k.BID, k.NULL, 1, k.NULL
    for part in (records, records[len(words) :]):  # the latter has nothing special
        events = publish(ChannelSettings(72, protocol, generation), listing, JournalBatch(INCREMENTAL, part.copy(), ts))
        trades, orders = events.rows("trades"), events.rows("mbo")
        assert set(trades.column("buyer").tolist() + trades.column("seller").tolist()) == {e.NULL}
        (bid,) = (
            firm for firm, side in zip(orders.column("firm"), orders.column("side"), strict=True) if side == k.BID
        )
        assert bid == e.NULL
        special = trades.column("conditions") & sum(e.CONDITIONS[word] for word in words)
        sent = [
            0 if code == k.NULL else code & ~k.C_REGULAR for code in part[part[:, k.KIND] == k.TRADE, k.CODE].tolist()
        ]
        assert special.tolist() == sent


def test_the_trade_of_a_strategy_is_one_of_each_leg(listing: Listing) -> None:
    """10.1: a butterfly of options trades, and its legs at prices that are worth its own, in its ratios (277=1)."""
    settings = BulkSettings(40 * COUNT, COUNT)
    engine = MatchingEngine(listing, settings, settings.midnight_ns)
    butterfly = next(spec for spec in listing.instruments if len(spec.legs) == 3)
    for symbol in (butterfly.symbol, *(leg.symbol for leg in butterfly.legs)):
        engine.set_state(symbol, k.OPEN)
    price, ts = butterfly.reference_price, settings.midnight_ns + SECOND_NS
    engine.enter(butterfly.symbol, SELLER, price, 300, firm=3, ts_ns=ts)
    engine.enter(butterfly.symbol, BUYER, price, 200, firm=8, ts_ns=ts + 1_000)
    records = engine.take_records()
    trades = {r[k.INSTRUMENT]: r for r in records[records[:, k.KIND] == k.TRADE].tolist()}
    assert set(trades) == {listing.index_of(s) for s in (butterfly.symbol, *(leg.symbol for leg in butterfly.legs))}
    value = 0
    for leg in butterfly.legs:
        trade, sign = trades[listing.index_of(leg.symbol)], 1 if leg.side == BUY else -1
        assert trade[k.CODE] & k.C_LEG and trade[k.SIZE] == 200 * leg.ratio // 10**9
        assert (trade[k.FIRM], trade[k.OTHER]) == ((8, 3) if leg.side == BUY else (3, 8))
        value += sign * leg.ratio // 10**9 * trade[k.PRICE]
    assert value == price == trades[listing.index_of(butterfly.symbol)][k.PRICE]
