"""Instruments that come and go during the day (7): listing, market, journal and channels agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date

import numpy as np
import pytest
from exchange.published_events import publish

from umdf.errors import UsageError
from umdf.exchange.bulk.settings import BulkSettings
from umdf.exchange.instruments.catalogue import generate_catalogue
from umdf.exchange.instruments.instrument_spec import FORBIDDEN, InstrumentSpec, Underlying
from umdf.exchange.instruments.listing import Listing
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.market import Market, Records
from umdf.exchange.publish.channel_settings import FAST, INCREMENTAL, SBE, ChannelSettings
from umdf.exchange.publish.publisher import JournalBatch
from umdf.exchange.session.intraday_changes import IntradayChanges
from umdf.exchange.session.trading_session import REJOINS, SEPARATES, TradingSession
from umdf.market.rows import strings_of

COUNT, TRADING_DATE = 200, 20_770
SETTINGS = BulkSettings(40 * COUNT, COUNT)


@dataclass
class Exchange:
    listing: Listing
    market: Market
    session: TradingSession
    changes: IntradayChanges

    def records(self) -> list[list[int]]:
        return self.market.take_records().tolist()

    def spec(self, symbol: str) -> InstrumentSpec:
        return self.listing.instruments[self.listing.index_of(symbol)]


@pytest.fixture
def exchange() -> Exchange:
    specs = generate_catalogue(COUNT, 3, date(2026, 11, 13))
    listing = Listing(specs, TRADING_DATE, np.random.default_rng(1), capacity=COUNT + 2)
    market = Market(listing, SETTINGS)
    market.start(SETTINGS.midnight_ns)
    market.instruments[:COUNT, k.I_STATE] = k.CLOSE
    session = TradingSession(market, lambda: None)
    session.change_phase(range(len(listing.groups)), k.OPEN)
    market.take_records()
    return Exchange(listing, market, session, IntradayChanges(market, session))


def test_a_new_instrument_is_defined_before_its_first_status(exchange: Exchange) -> None:
    """7.1: before it, phase and state are unknown."""
    new = replace(exchange.spec("PETR4"), symbol="NEWS3", security_id=77, isin="")
    index = exchange.changes.add(new)
    assert [(r[k.KIND], r[k.INSTRUMENT], r[k.CODE], r[k.AUX]) for r in exchange.records()] == [
        (k.DEFINITION, index, ord("A"), k.NULL), (k.STATE, index, REJOINS, k.OPEN),
    ]  # fmt: skip
    row = exchange.market.instruments[index]
    assert (row[k.I_ID], row[k.I_STATE], row[k.I_TICK]) == (77, k.OPEN, new.tick) and exchange.market.is_listed[index]


def test_a_user_defined_strategy_starts_forbidden(exchange: Exchange) -> None:
    """Certification E4.1."""
    strategy = next(spec for spec in exchange.listing.instruments if spec.is_user_defined)
    index = exchange.changes.add(replace(strategy, symbol="UDS99999", security_id=78))
    assert [(r[k.KIND], r[k.CODE], r[k.AUX]) for r in exchange.records()][1] == (k.STATE, SEPARATES, FORBIDDEN)
    assert exchange.market.instruments[index, k.I_STATE] == FORBIDDEN
    exchange.session.rejoin(index)
    assert exchange.market.instruments[index, k.I_STATE] == k.OPEN


def test_a_deleted_stock_takes_its_lending_book_and_its_own_with_it(exchange: Exchange) -> None:
    """7.3."""
    stock, lending = (exchange.listing.index_of(symbol) for symbol in ("PETR4", "PETR4BTB"))
    exchange.market.instruments[[stock, lending], k.I_BIDS] = 3
    assert exchange.changes.delete("PETR4") == [lending, stock]
    deleted = [(r[k.KIND], r[k.INSTRUMENT], r[k.CODE]) for r in exchange.records()]
    assert deleted == [(k.DEFINITION, lending, ord("D")), (k.DEFINITION, stock, ord("D"))]
    assert not exchange.market.is_listed[[stock, lending]].any()
    assert not exchange.market.instruments[[stock, lending], k.I_BIDS].any()


def test_what_has_matured_is_deleted(exchange: Exchange) -> None:
    rows = exchange.changes.expire(date(2026, 12, 17))
    symbols = {exchange.listing.instruments[row].symbol for row in rows}
    assert {"WINZ26", "WINZ26G27"} <= symbols and not exchange.market.is_listed[rows].any()
    assert [r[k.INSTRUMENT] for r in exchange.records()] == rows


@pytest.mark.parametrize("protocol", [SBE, FAST])
def test_a_change_does_not_reach_packets_of_before(exchange: Exchange, protocol: str) -> None:
    """A publisher may encode a batch when the instrument has changed again: the record has the definition's number."""
    spec = exchange.spec("VALE3")
    for name in ("FIRST NAME", "SECOND NAME"):
        exchange.changes.modify("VALE3", replace(spec, description=name))
    records: Records = exchange.market.take_records()
    exchange.changes.modify("VALE3", replace(spec, description="THIRD NAME"))
    batch = JournalBatch(INCREMENTAL, records, int(records[-1, k.TS]))
    rows = publish(ChannelSettings(72, protocol), exchange.listing, batch).rows("definition")
    assert strings_of(rows.texts["description"]) == ["FIRST NAME", "SECOND NAME"]
    assert rows.column("action").tolist() == [ord("M")] * 2


def test_what_cannot_be_changes_nothing(exchange: Exchange) -> None:
    spec, before = exchange.spec("PETR4"), exchange.market.instruments.copy()
    orphan = replace(spec, symbol="ORPH3", security_id=79, underlyings=(Underlying("NOBODY"),))
    faults: tuple[Callable[[], object], ...] = (
        lambda: exchange.changes.add(spec),
        lambda: exchange.changes.add(orphan),
        lambda: exchange.changes.modify("PETR4", replace(spec, group="ZZ")),
        lambda: exchange.changes.delete("NOBODY"),
    )
    for fault in faults:
        with pytest.raises(UsageError):
            fault()
    assert not exchange.records() and (exchange.market.instruments == before).all()
