"""An auction whose theoretical price has moved by more than one percent in the last half minute is extended by a
minute, at most twice (docs/exchange.md); and the reference price of economic indicators (10.9)."""

from __future__ import annotations

from datetime import datetime

import numpy as np
from exchange.channel_client import ChannelClient

from umdf.exchange.live.exchange import Exchange
from umdf.exchange.live.settings import ExchangeSettings
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.orders import ASK, BID
from umdf.exchange.publish.channel_settings import FAST, SBE, ChannelSettings
from umdf.sync.raw_units import UnitKind

SECOND = 10**9
SYMBOL = "PETR4"
CHANNELS = {protocol: ChannelSettings(72, protocol) for protocol in (SBE, FAST)}


class Morning:
    """No orders but ours, a minute before the stocks open."""

    def __init__(self) -> None:
        start = datetime(2026, 11, 16, 9, 59)
        settings = ExchangeSettings(tuple(CHANNELS.values()), instruments=100, messages_per_s=0, start=start)
        self.clients = {name: ChannelClient(channel) for name, channel in CHANNELS.items()}
        sinks = {id(channel): self.clients[name].sinks for name, channel in CHANNELS.items()}
        self.exchange = Exchange(settings, lambda channel: sinks[id(channel)])
        self.index = self.exchange.listing.index_of(SYMBOL)
        self.spec = self.exchange.listing.instruments[self.index]

    def run(self, seconds: float) -> None:
        end_ns = self.exchange.now_ns + round(seconds * SECOND)
        while self.exchange.now_ns < end_ns:
            self.exchange.advance(min(self.exchange.now_ns + SECOND, end_ns))

    def bid_and_offer(self, percent: int, lots: int) -> None:
        """More quantity at another price than before: the theoretical price is that."""
        ticks = self.spec.reference_price * (100 + percent) // 100 // self.spec.tick
        for side, firm in ((BID, 3), (ASK, 8)):
            self.exchange.enter(SYMBOL, side, ticks * self.spec.tick, lots * self.spec.lot, firm=firm)

    @property
    def state(self) -> int:
        return int(self.exchange.market.instruments[self.index, k.I_STATE])

    @property
    def trades(self) -> int:
        return int(self.exchange.market.instruments[self.index, k.I_TRADES])


def test_an_auction_whose_price_moves_at_its_end_is_extended_twice() -> None:
    morning = Morning()
    morning.bid_and_offer(0, 1)
    morning.run(55)
    morning.bid_and_offer(2, 10)
    morning.run(10)  # 10:00:05: the others are open
    for percent, lots in ((4, 100), (6, 1_000)):
        assert morning.exchange.session.phase_of(morning.index) == k.OPEN
        assert morning.state == k.RESERVED and morning.trades == 0
        morning.run(50)
        morning.bid_and_offer(percent, lots)
        assert morning.state == k.RESERVED
        morning.run(10)
    assert morning.state == k.OPEN and morning.trades > 0
    for name, client in morning.clients.items():
        units = client.units()
        rows = client.events(units.take(units.kind == UnitKind.DATA)).rows("status")
        own = np.flatnonzero(rows.column("instrument_id") == morning.spec.security_id)
        ends = [int(end) // SECOND % 3_600 for end in rows.column("ts_open")[own].tolist() if end > 0]
        assert ends == [60, 120], name  # 342: 10:01:00, then 10:02:00
        assert rows.column("event")[own].tolist()[-1] == 102, name


def test_an_auction_whose_price_stands_ends_with_the_phase() -> None:
    morning = Morning()
    morning.bid_and_offer(0, 1)
    morning.run(61)
    assert morning.state == k.OPEN and morning.trades > 0


def test_an_economic_indicator_has_a_reference_price_and_nothing_else() -> None:
    """1150 in a 269=g without limits; no closing price, no book."""
    morning = Morning()
    listing = morning.exchange.listing
    indicators = {
        spec.security_id: spec.reference_price for spec in listing.instruments if spec.type.name == "INDICATOR"
    }
    assert indicators
    for name, client in morning.clients.items():
        units = client.units()
        events = client.events(units.take(units.kind == UnitKind.DATA))
        bands = events.rows("price_band")
        columns = (bands.column(each).tolist() for each in ("instrument_id", "trading_reference_price"))
        found = {number: price for number, price in zip(*columns, strict=True) if number in indicators}
        assert found == indicators, name
        assert not set(events.rows("statistics").column("instrument_id").tolist()) & set(indicators), name
        mbo = events.rows("mbo")
        of_indicators = np.isin(mbo.column("instrument_id"), list(indicators))
        assert set(mbo.column("action")[of_indicators].tolist()) == {ord("N")}, name  # only what is no order
