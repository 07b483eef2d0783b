"""An exchange that lists a few contracts, without an order flow, and what clients make of all that it publishes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
from exchange.channel_client import ChannelClient, rows_of

from umdf.exchange.instruments.catalogue_file import save_catalogue
from umdf.exchange.instruments.instrument_spec import BUY, SELL, UNIT, InstrumentSpec, Leg
from umdf.exchange.instruments.instrument_types import InstrumentType
from umdf.exchange.live.exchange import Exchange
from umdf.exchange.live.settings import ExchangeSettings
from umdf.exchange.publish.channel_settings import FAST, MBO, MBP, POSITION, PRIORITY, SBE, TOB, ChannelSettings
from umdf.exchange.truth.book_history import BookHistory
from umdf.market.rows import Events

CENT, SECOND_NS = UNIT // 100, 10**9
ORDER_BOOKS = (
    ChannelSettings(72, SBE), ChannelSettings(73, SBE, POSITION), ChannelSettings(74, FAST),
    ChannelSettings(75, FAST, POSITION),
)  # fmt: skip
CHANNELS = (*ORDER_BOOKS, ChannelSettings(76, FAST, book_type=MBP, depth=3), ChannelSettings(77, FAST, book_type=TOB))
NAMES = {(SBE, PRIORITY): "sbe", (SBE, POSITION): "sbe-position", (FAST, PRIORITY): "fast",
         (FAST, POSITION): "fast-position"}  # fmt: skip


def future(symbol: str, price: int, **more: Any) -> InstrumentSpec:
    """A contract with a price in cents and a tick of one."""
    number = 100_000_000 + int.from_bytes(symbol.encode()[-5:]) % 90_000_000
    return InstrumentSpec(
        symbol, InstrumentType.FUTURE, number, symbol[:3], "F1", "FUT", 30, 3, "FFNCSX", CENT, price * CENT, lot=1,
        description=symbol, maturity=date(2028, 1, 3), maturity_code=202801, segment=6, **more,
    )  # fmt: skip


def spread(symbol: str, sold: str, bought: str, price: int, **more: Any) -> InstrumentSpec:
    """A strategy that has implied orders; it makes no prices for its legs (1378)."""
    leg_list = Leg(sold, SELL), Leg(bought, BUY)
    return replace(
        future(symbol, price), type=InstrumentType.STRATEGY, group="M1", security_type="MLEG", sub_type=90, product=16,
        cfi_code="KFXXXX", legs=leg_list, is_implied=True, multi_leg_model=0, strategy_type="FSP", **more,
    )  # fmt: skip


@dataclass
class FewContracts:
    exchange: Exchange
    clients: dict[str, ChannelClient]
    history: BookHistory

    def advance(self, seconds: float = 0.001) -> None:
        self.exchange.advance(self.exchange.now_ns + round(seconds * SECOND_NS))

    def last(self, name: str) -> int:
        """The last sequence of the incremental stream of a channel."""
        return self.exchange.publication.publishers[list(self.clients).index(name)].sequences()[0][2]

    def events(self, name: str, after: int) -> Events:
        """What a channel has published after a sequence, decoded."""
        client = self.clients[name]
        units = client.units()
        return client.events(units.take(np.flatnonzero(units.sequence > after)))

    def symbol_of(self, instrument_id: int) -> str:
        (symbol,) = (spec.symbol for spec in self.exchange.listing.instruments if spec.security_id == instrument_id)
        return symbol

    def rows(self, events: Events, family: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        """The rows of a family: the unit, the symbol, and some columns."""
        found = events.rows(family)
        symbols = [self.symbol_of(number) for number in found.column("instrument_id").tolist()]
        yield from zip(found.unit.tolist(), symbols, *(found.column(c).tolist() for c in columns), strict=True)

    def compare_books(self) -> None:
        """The books of a client of every channel are those of the exchange, after each of its sequences."""
        instruments = {spec.security_id: i for i, spec in enumerate(self.exchange.listing.instruments)}
        for (name, client), publisher in zip(self.clients.items(), self.exchange.publication.publishers, strict=True):
            settings = publisher.settings
            for sequence, books in client.at(list(range(1, self.last(name) + 1)), list(instruments)):
                for security_id, index in instruments.items():
                    truth = self.history.book_at(settings.protocol, index, sequence, settings.channel)
                    if client.declared_depth is None:
                        expected = [
                            (side, order.price, order.size, order.order_id)
                            for side, orders in (("B", truth.bids), ("A", truth.asks)) for order in orders
                        ]  # fmt: skip
                    else:
                        expected = [
                            (side, level.price, level.size, level.orders)
                            for side in "BA" for level in truth.levels(side, client.declared_depth)
                        ]  # fmt: skip
                    assert rows_of(books.book(security_id)) == expected, (name, sequence, index)


def few_contracts(directory: Path, *specs: InstrumentSpec, **more: Any) -> FewContracts:
    """An exchange in continuous trading."""
    catalogue = directory / "catalogue.csv"
    save_catalogue(catalogue, specs)
    values = {"start": datetime(2026, 11, 16, 9, 30), "messages_per_s": 0, "channels": CHANNELS} | more
    settings = ExchangeSettings(catalogue=catalogue, **values)
    clients = {
        NAMES.get((c.protocol, c.generation), "") if c.book_type == MBO else c.book_type.lower(): ChannelClient(c)
        for c in settings.channels
    }
    by_channel = {client.settings.channel: client for client in clients.values()}
    history = BookHistory()
    exchange = Exchange(settings, lambda channel: by_channel[channel.channel].sinks, history)
    return FewContracts(exchange, clients, history)
