"""What the operator publishes arrives on the channels that it concerns: news, statistics, bands, instruments, orders
that migrate. A live exchange by its Python API, decoded by our decoders."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import pytest
from exchange.channel_client import ChannelClient

from umdf.errors import UsageError
from umdf.exchange.instruments.instrument_spec import BUY, FORBIDDEN, SELL, Leg
from umdf.exchange.instruments.instrument_types import InstrumentType
from umdf.exchange.live.exchange import Exchange
from umdf.exchange.live.settings import ExchangeSettings
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.orders import ASK, BID
from umdf.exchange.publish.channel_settings import FAST, SBE, ChannelSettings, Members
from umdf.market import families as e
from umdf.market.rows import Events, Rows
from umdf.sync.raw_units import UnitKind

SECOND = 10**9
STOCKS, DERIVATIVES = Members(("CS", "PS", "OPT", "FORWARD")), Members(("FUT", "MLEG"))
CHANNELS = {
    "stocks": ChannelSettings(72, SBE, members=STOCKS),
    "stocks fast": ChannelSettings(72, FAST, members=STOCKS),
    "derivatives": ChannelSettings(78, SBE, members=DERIVATIVES),
    "more derivatives": ChannelSettings(79, FAST, members=DERIVATIVES),
    "lending": ChannelSettings(61, FAST, members=Members(("SECLOAN",))),
    "indexes": ChannelSettings(62, FAST, members=Members(("INDEX",))),
    "news": ChannelSettings(90, FAST, is_news_channel=True),
}


class Market:
    """An open exchange on all those channels, and what each client has got since the last look."""

    def __init__(self, rate: float = 20) -> None:
        settings = ExchangeSettings(
            tuple(CHANNELS.values()), instruments=200, messages_per_s=rate, start=datetime(2026, 11, 16, 10, 0, 1)
        )
        self.clients = {name: ChannelClient(channel) for name, channel in CHANNELS.items()}
        sinks = {id(channel): self.clients[name].sinks for name, channel in CHANNELS.items()}
        self.exchange = Exchange(settings, lambda channel: sinks[id(channel)])
        self._seen = dict.fromkeys(CHANNELS, 0)
        self.run()

    def run(self, seconds: float = 1) -> None:
        self.exchange.advance(self.exchange.now_ns + round(seconds * SECOND))

    def new(self, name: str) -> Events:
        """The events of a channel since the last call."""
        units = self.clients[name].units()
        units = units.take(units.kind == UnitKind.DATA)
        first, self._seen[name] = self._seen[name], len(units)
        return self.clients[name].events(units.take(slice(first, None)))

    def all_new(self, family: str) -> dict[str, Rows]:
        self.run(0.05)
        return {name: self.new(name).rows(family) for name in CHANNELS}

    def id_of(self, symbol: str) -> int:
        return int(self.exchange.listing.security_id[self.exchange.listing.index_of(symbol)])


@pytest.fixture(scope="module")
def market() -> Market:
    return Market()


def texts(rows: Rows, name: str) -> list[str]:
    if name not in rows.texts:
        return [""] * len(rows)
    offsets, data = rows.texts[name]
    return [bytes(data[a:b]).decode() for a, b in itertools.pairwise(offsets.tolist())]


def test_news_about_an_instrument_are_on_all_channels_of_its_market(market: Market) -> None:
    """Legacy 12.3: derivatives news on every derivatives channel. A long text arrives whole: in parts that Binary
    numbers, in chunks of FIX/FAST, encoded (359, 355) where it is not ASCII."""
    text = "Suspensão de negócios: " + "ação " * 700
    market.all_new("news")
    market.exchange.publish_news("Atenção", text, symbols=["WINZ26"])
    found = market.all_new("news")
    assert {name for name, rows in found.items() if len(rows)} == {"derivatives", "more derivatives"}
    binary, fast = found["derivatives"], found["more derivatives"]
    count = len(binary)
    assert count == 5 and binary.column("part_number").tolist() == [1, 2, 3, 4, 5]
    assert set(binary.column("total_text_length").tolist()) == {len(text.encode())}
    assert set(binary.column("instrument_id").tolist()) == {market.id_of("WINZ26")}
    assert len(fast) == 1 and fast.lists["related"].columns["related_id"].tolist() == [market.id_of("WINZ26")]
    for rows in (binary, fast):
        assert "".join(texts(rows, "text")) == text and set(texts(rows, "headline")) == {"Atenção"}


def test_the_news_channel_gets_what_names_it_and_everything_else_goes_to_the_order_channels(market: Market) -> None:
    market.all_new("news")
    market.exchange.publish_news(
        "Global", "texto", channels=[90], news_id=4_711, language="en", url="https://b3.com.br"
    )
    found = market.all_new("news")
    assert {name for name, rows in found.items() if len(rows)} == {"news"}
    assert found["news"].column("news_id").tolist() == [4_711] and texts(found["news"], "language") == ["en"]
    market.exchange.publish_news("Engine", "texto")
    assert {name for name, rows in market.all_new("news").items() if len(rows)} == set(CHANNELS) - {"news"}


@pytest.mark.parametrize(
    ("news", "reason"),
    [
        ({"headline": "h" * 301}, "headline and link too long: 301 bytes"),
        ({"text": "t" * 70_000}, "line of text too long: 70000 bytes"),
        ({"text": "line\n" * 20_000}, "text too long: 100000 bytes"),
        ({"source": 12}, "unknown news source: 12"),
        ({"language": "xx"}, "unknown language: xx"),
        ({"news_id": 0}, "news number out of range: 0"),
        ({"channels": [5]}, "unknown channel: 5"),
        ({"symbols": ["PETR9"]}, "unknown instrument: PETR9"),
    ],
)
def test_news_that_cannot_be_sent_are_refused(market: Market, news: dict[str, Any], reason: str) -> None:
    before = market.exchange.market.rows
    with pytest.raises(UsageError, match=reason):
        market.exchange.publish_news(**{"headline": "h", "text": "t", **news})
    assert market.exchange.market.rows == before


def test_settlement_prices_can_be_previewed_corrected_and_made_final(market: Market) -> None:
    market.all_new("statistics")
    market.exchange.settle("preview")
    market.exchange.settle("updated", "WINZ26", 180_000 * SECOND)
    market.exchange.settle("final", "WINZ26", 181_005 * SECOND)
    found = market.all_new("statistics")
    rows = found["derivatives"]
    chosen = (rows.column("stat_type") == e.SETTLEMENT_PRICE) & (rows.column("instrument_id") == market.id_of("WINZ26"))
    names = ("open_close_settl_flag", "settl_price_type", "price")
    flags, types, prices = (rows.column(name)[chosen].tolist() for name in names)
    assert list(zip(flags, types, strict=True)) == [(1, 2), (4, 3), (1, 1)]  # 10.6
    assert prices[1:] == [180_000 * SECOND, 181_005 * SECOND]
    assert (found["indexes"].column("stat_type") == e.SETTLEMENT_PRICE).any()
    for kind, symbol, price, reason in (
        ("preview", "PETR4", None, "no settlement price"),
        ("final", "WIN", None, "unknown instrument"),
        ("final", None, SECOND, "without an instrument"),
    ):
        with pytest.raises(UsageError, match=reason):
            market.exchange.settle(kind, symbol, price)


def test_volumes_of_other_venues_volatility_and_composites_arrive(market: Market) -> None:
    """12.4, 10.11, 10.10: in FIX/FAST only."""
    market.all_new("statistics")
    exchange = market.exchange
    exchange.report_volume("PETR4", "O", 15_000, 12, 4_875_000_000)
    exchange.publish_volatility("WINZ26", 12 * SECOND, 13 * SECOND, SECOND // 4)
    exchange.publish_composite("IBOV")
    found = market.all_new("statistics")
    fast = found["stocks fast"]
    (row,) = np.flatnonzero((fast.column("stat_type") == e.TRADE_VOLUME) & (fast.column("venue") == ord("O")))
    assert int(fast.column("instrument_id")[row]) == market.id_of("PETR4")
    assert [int(fast.column(name)[row]) for name in ("size", "trade_count", "financial_volume")] == [
        15_000, 12, 4_875_000_000,
    ]  # fmt: skip
    (row,) = np.flatnonzero(found["more derivatives"].column("stat_type") == e.VOLATILITY)
    rows = found["more derivatives"]
    assert [int(rows.column(n)[row]) for n in ("first_price", "last_price", "price_delta")] == [
        12 * SECOND, 13 * SECOND, SECOND // 4,
    ]  # fmt: skip
    composites = found["indexes"].column("stat_type") == e.COMPOSITE_UNDERLYING
    listing = exchange.listing
    assert composites.sum() == len(listing.instruments[listing.index_of("IBOV")].underlyings)
    with pytest.raises(UsageError, match="is no index"):
        exchange.publish_composite("PETR4")


def test_bands_in_percent_and_of_quantities(market: Market) -> None:
    market.all_new("price_band")
    exchange = market.exchange
    exchange.set_band("PETR4", "auction", -10 * SECOND, 10 * SECOND, percent_of="last")
    exchange.set_band("PETR4", "quantity", 100_000, 2_000)
    rows = market.all_new("price_band")["stocks"]
    names = ("price_band_type", "price_limit_type", "midpoint_type", "low_limit_price", "high_limit_price")
    first, second = ([int(rows.column(name)[row]) for name in names] for row in (0, 1))
    assert first == [2, 2, 0, -10 * SECOND, 10 * SECOND] and chr(rows.column("entry_type")[1]) == "h"
    assert [int(rows.column(name)[1]) for name in ("avg_daily_traded_qty", "max_trade_vol")] == [100_000, 2_000]
    assert second[0] != 2
    with pytest.raises(UsageError, match="size is above the quantity band: 2100; use at most 2000"):
        exchange.enter("PETR4", BID, 32 * SECOND, 2_100, firm=3)
    with pytest.raises(UsageError, match="a hard band has no percentage"):
        exchange.set_band("PETR4", "hard", -SECOND, SECOND, percent_of="last")


def test_a_user_defined_strategy_starts_forbidden_and_opens_as_script_e_has_it(market: Market) -> None:
    """E4: defined with its legs, Forbidden; Reserved; an order; Open; a trade that prints the legs (277=1)."""
    exchange, listing = market.exchange, market.exchange.listing
    near, far = (listing.instruments[listing.index_of(symbol)] for symbol in ("WINZ26", "WING27"))
    like = next(spec for spec in listing.instruments if spec.legs and not spec.is_user_defined and spec.asset == "WIN")
    market.all_new("status")
    exchange.add_instrument(like.symbol, "UDS99", legs=(Leg("WINZ26", SELL), Leg("WING27", BUY)), multi_leg_model=1)
    market.run(0.05)
    events = market.new("derivatives")
    (row,) = np.flatnonzero(events.rows("definition").column("instrument_id") == market.id_of("UDS99"))
    legs = events.rows("definition").lists["legs"]
    ids = legs.columns["leg_id"][legs.offsets[row] : legs.offsets[row + 1]]
    assert ids.tolist() == [near.security_id, far.security_id]
    status = events.rows("status")
    mine = status.column("instrument_id") == market.id_of("UDS99")
    assert status.column("state")[mine].tolist() == [FORBIDDEN] and status.column("event")[mine].tolist() == [101]
    price = far.reference_price - near.reference_price
    with pytest.raises(UsageError, match="the state of the instrument does not allow it"):
        exchange.enter("UDS99", BID, price, 10, firm=3)
    exchange.change_state("UDS99", k.RESERVED)
    exchange.enter("UDS99", BID, price, 10, firm=3)
    exchange.change_state("UDS99", k.OPEN)
    exchange.enter("UDS99", ASK, price, 10, firm=8)
    market.run(0.05)
    events = market.new("derivatives")
    status, trades = events.rows("status"), events.rows("trades")
    mine = status.column("instrument_id") == market.id_of("UDS99")
    assert status.column("state")[mine].tolist() == [k.RESERVED, k.OPEN]
    assert status.column("event")[mine].tolist() == [101, 102]
    own = trades.column("instrument_id") == market.id_of("UDS99")
    is_leg = trades.column("conditions") & e.CONDITIONS["1"] != 0
    assert trades.column("size")[own].tolist() == [10] and not is_leg[own].any()
    event = trades.column("ts_event") == trades.column("ts_event")[own][0]
    assert set(trades.column("instrument_id")[is_leg & event].tolist()) == {near.security_id, far.security_id}


def test_orders_of_an_instrument_that_migrates_have_new_ids_in_the_same_order(market: Market) -> None:
    """9.1: they are sent again, with the time of their entry; each still answers to its old id."""
    exchange = market.exchange
    mine = exchange.enter("PETR4", BID, 31 * SECOND, 300, firm=3).order_id
    before = exchange.book("PETR4")
    market.all_new("mbo")
    exchange.migrate(["PETR4"])
    rows = market.all_new("mbo")["stocks"]
    after = exchange.book("PETR4")
    for old, new in ((before.bids, after.bids), (before.asks, after.asks)):
        assert [replace(order, order_id=0) for order in old] == [replace(order, order_id=0) for order in new]
        assert not {order.order_id for order in old} & {order.order_id for order in new}
    sent = rows.column("order_id")[(rows.column("instrument_id") == market.id_of("PETR4")) & (rows.column("size") > 0)]
    assert {order.order_id for order in after.bids} <= set(sent.tolist())
    assert mine is not None and exchange.cancel(mine) == 300


def test_a_deleted_instrument_stays_deleted_when_its_auction_would_have_ended(market: Market) -> None:
    exchange = market.exchange
    exchange.add_instrument("PETR4", "PETR98")
    exchange.change_state("PETR98", k.RESERVED, opens_in_s=2)
    exchange.delete_instrument("PETR98")
    market.run(3)
    with pytest.raises(UsageError, match="unknown instrument: PETR98"):
        exchange.book("PETR98")
    assert "PETR98" not in exchange.status()["separated"]


def test_an_instrument_is_deleted_with_the_strategies_that_it_is_a_leg_of(market: Market) -> None:
    """7.3; what is deleted is published with its legs, although these are deleted at the same time."""
    listing = market.exchange.listing
    expected = {spec.symbol for spec in listing.instruments if any(leg.symbol == "DOLZ26" for leg in spec.legs)}
    market.all_new("definition")
    assert set(market.exchange.delete_instrument("DOLZ26")) == {"DOLZ26", *expected} != {"DOLZ26"}
    rows = market.all_new("definition")["derivatives"]
    deleted = rows.column("action") == ord("D")
    assert set(rows.column("instrument_id")[deleted].tolist()) == {
        spec.security_id for spec in listing.instruments if spec.symbol in {"DOLZ26", *expected}
    }


def test_lending_and_forwards_publish_their_terms() -> None:
    """13.1: 1500=L, 432, 37019, 37023 on every offer, some limited or all or none (276); pre-contracts with 37024 and
    37025. 10.1: a forward's trades have 287 and 37014. Snapshots say the same of an offer."""
    market = Market(rate=0)
    exchange = market.exchange
    lending = next(s for s in exchange.listing.instruments if s.type == InstrumentType.LENDING)
    forward = next(s for s in exchange.listing.instruments if s.type == InstrumentType.FORWARD)
    market.all_new("mbo")
    for number in range(40):
        side, away = (BID, -1) if number % 2 else (ASK, 1)
        exchange.enter(
            lending.symbol, side, lending.reference_price + away * (1 + number % 5) * lending.tick, 100, firm=3
        )
    exchange.enter(lending.symbol, BID, lending.reference_price + lending.tick, 250, firm=8)
    exchange.enter(forward.symbol, BID, forward.reference_price, forward.lot, firm=3)
    exchange.enter(forward.symbol, ASK, forward.reference_price, forward.lot, firm=8)
    market.run(0.05)
    events = market.new("lending")
    offers, trades = events.rows("mbo"), events.rows("trades")
    added = offers.column("action") == ord("A")
    assert added.sum() >= 40 and set(offers.column("venue")[added].tolist()) == {ord("L")}
    for name in ("expire_date", "early_termination", "btb_cert_indicator"):
        assert (offers.column(name)[added] >= 0).all(), name
    flags = offers.column("flags")[added]
    assert (flags & e.BTB_LIMITED != 0).any() and (flags & e.BTB_ALL_OR_NONE != 0).any()
    assert len(trades) == 3 and (trades.column("expire_date") > 20_000).all()
    assert set(trades.column("btb_contract_info").tolist()) <= {1, 2}
    for name in ("stocks", "stocks fast"):
        rows = market.new(name).rows("trades")
        mine = rows.column("instrument_id") == forward.security_id
        assert rows.column("seller_days")[mine].tolist() == [forward.settl_days]
        assert rows.column("interest_rate")[mine].tolist() == [400_000 * (forward.settl_days or 0)]
    # A snapshot repeats what the offers said.
    said = {
        order: terms
        for order, *terms in zip(
            offers.column("order_id").tolist(),
            *(offers.column(n).tolist() for n in ("expire_date", "early_termination", "btb_cert_indicator")),
            strict=True,
        )
        if terms[0] > 0
    }
    market.run(3)
    client = market.clients["lending"]
    units = client.units("snapshot")
    rows = client.events(units.take(units.kind == UnitKind.DATA), snapshot=True).rows("mbo")
    repeated = 0
    for order, *terms in zip(
        rows.column("order_id").tolist(),
        *(rows.column(n).tolist() for n in ("expire_date", "early_termination", "btb_cert_indicator")),
        strict=True,
    ):
        if order in said and terms[0] > 0:
            assert terms == said[order]
            repeated += 1
    assert repeated > 20
