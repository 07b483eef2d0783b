"""Fair prices: futures on IBOV follow the index, and that its stocks."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pytest

from umdf.exchange.instruments.instrument_types import InstrumentType
from umdf.exchange.live.exchange import Exchange
from umdf.exchange.live.settings import ExchangeSettings
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.fair_price_kernel import fair_ticks
from umdf.exchange.publish.channel_settings import FAST, STREAMS, ChannelSettings, Members

MINUTE = 60 * 10**9


class Nowhere:
    def write(self, packets: object) -> None: ...

    def advance(self, now_ns: int) -> None: ...

    def close(self) -> None: ...


@pytest.fixture(scope="module")
def exchange() -> Exchange:
    """Half an hour of trading, in which prices move three times as much as they do."""
    slow_ms, members = 10**7, Members(("INDEX",))
    channel = ChannelSettings(62, FAST, members=members, loop_pause_ms=slow_ms, heartbeat_ms=slow_ms)
    settings = ExchangeSettings((channel,), instruments=100, messages_per_s=2, start=datetime(2026, 11, 16, 10, 5))
    exchange = Exchange(settings, lambda _: dict.fromkeys(STREAMS, Nowhere()))
    exchange.listing.volatility *= 3
    for _ in range(30):
        exchange.advance(exchange.now_ns + MINUTE)
    return exchange


def fair_price(exchange: Exchange, symbol: str) -> float:
    market, row = exchange.market, exchange.listing.index_of(symbol)
    address = market.instruments[row].ctypes.data
    return fair_ticks(market.table.ctypes.data, address, exchange.now_ns) * int(exchange.listing.tick[row]) / 1e9


def test_an_index_is_worth_its_stocks_and_its_futures_are_with_their_carry(exchange: Exchange) -> None:
    listing = exchange.listing
    index = listing.instruments[listing.index_of("IBOV")]
    stocks = sum((each.quantity or 0) * fair_price(exchange, each.symbol) for each in index.underlyings)
    value = stocks / (index.divisor or 1)
    assert abs(value / (index.reference_price / 1e9) - 1) > 0.002, "it has moved"
    assert fair_price(exchange, "IBOV") == pytest.approx(value, rel=1e-3)
    followers = [spec for spec in listing.instruments if spec.follows == "IBOV"]
    assert {spec.asset for spec in followers} >= {"WIN", "BOVA"}
    for spec in followers:
        expected = value * spec.reference_price / index.reference_price
        assert fair_price(exchange, spec.symbol) == pytest.approx(expected, rel=1e-3), spec.symbol


def test_its_stocks_move_together_and_each_for_itself(exchange: Exchange) -> None:
    listing, table = exchange.listing, exchange.market.instruments
    index = listing.index_of("IBOV")
    members = [listing.index_of(each.symbol) for each in listing.instruments[index].underlyings]
    assert set(listing.market[members]) == {index} and (listing.market[listing.driver != index] <= index).all()
    assert table[index, k.I_WALK] != 0 and len(set(table[members, k.I_WALK].tolist())) > 5
    options = listing.of_types([InstrumentType.OPTION])
    assert np.isin(listing.driver[options], members).any() and (listing.market[options] == -1).all()
