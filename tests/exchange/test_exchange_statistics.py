"""Statistics against a slow reference in plain Python, and through both protocols and generations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from exchange.published_events import publish

from umdf.exchange.bulk.settings import BulkSettings
from umdf.exchange.instruments.catalogue import generate_catalogue
from umdf.exchange.instruments.instrument_types import InstrumentType as T
from umdf.exchange.instruments.listing import Listing
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.market import Market, Records
from umdf.exchange.publish.channel_settings import FAST, INCREMENTAL, POSITION, PRIORITY, SBE, ChannelSettings
from umdf.exchange.publish.member_filter import MemberFilter
from umdf.exchange.publish.publisher import JournalBatch
from umdf.exchange.statistics.statistics import FINAL, PREVIEW, UPDATED, Statistics
from umdf.market import families as e
from umdf.market.rows import Rows

TRADING_DATE, COUNT, SECOND_NS = 20_770, 400, 1_000_000_000
BOOK_KINDS = (k.ADD, k.CHANGE, k.DELETE, k.DELETE_FROM, k.DELETE_THRU)
NONE = e.NULL_I32
FAST_ONLY = {e.INDEX_VALUE, e.COMPOSITE_UNDERLYING, e.VOLATILITY, e.TRADE_VOLUME}
KINDS = [(SBE, PRIORITY), (SBE, POSITION), (FAST, PRIORITY), (FAST, POSITION)]


@dataclass
class Session:
    listing: Listing
    market: Market
    statistics: Statistics
    journal: list[Records]

    @property
    def records(self) -> Records:
        return np.concatenate(self.journal)


@pytest.fixture(scope="module")
def session(sized: Callable[[int, int], int]) -> Session:
    """A day of a few thousand orders in all markets, with every statistic."""
    settings = BulkSettings(40 * COUNT, COUNT)
    specs = generate_catalogue(COUNT, 5, date(2026, 11, 13))
    listing = Listing(specs, TRADING_DATE, np.random.default_rng(2))
    market, journal = Market(listing, settings), list[Records]()

    def flush() -> None:
        if market.rows:
            journal.append(market.take_records().copy())
            statistics.on_trades(journal[-1])

    statistics = Statistics(market, flush)
    market.start(settings.midnight_ns + 13 * 3600 * SECOND_NS)
    market.instruments[:, k.I_STATE] = k.OPEN
    statistics.publish_start_of_day(np.arange(COUNT))
    statistics.advance(market.now)
    for _ in range(sized(20, 400)):
        market.run_order_flow(800, 1 << 62)
        flush()
        market.table[k.LAST_TS] = market.now + 5 * SECOND_NS
        market.table[[k.NEXT_ARRIVAL, k.REGIME_END]] = market.now
        statistics.advance(market.now)
    flush()
    statistics.settle(PREVIEW)
    statistics.settle(UPDATED)
    statistics.report_volume("PETR4", "O", 5_000, 7, 123_456_789)
    statistics.report_volume("DOLZ26", "X", 300, 2, 987_654_321)
    statistics.publish_volatility("DOLZ26", 5_400_000_000_000, 5_450_000_000_000, 512_500_000)
    statistics.publish_composite("IBOV")
    statistics.publish_closing(np.arange(COUNT))
    statistics.settle(FINAL)
    flush()
    return Session(listing, market, statistics, journal)


@dataclass
class Reference:
    """The statistics of one instrument, from its trades alone."""

    prices: list[int]
    sizes: list[int]
    last: int | None = None


def references(session: Session) -> dict[int, Reference]:
    found: defaultdict[int, Reference] = defaultdict(lambda: Reference([], []))
    busted: set[tuple[int, int]] = set()
    for record in session.records.tolist():
        if record[k.KIND] == k.BUST:
            busted.add((record[k.INSTRUMENT], record[k.ID]))
    for record in session.records.tolist():
        if record[k.KIND] == k.TRADE:
            reference = found[record[k.INSTRUMENT]]
            is_leg = record[k.CODE] & k.C_LEG
            if (record[k.INSTRUMENT], record[k.ID]) not in busted:
                reference.sizes.append(record[k.SIZE])
                reference.prices.append(record[k.PRICE])
            if not is_leg:
                reference.last = record[k.PRICE]
    return found


def published(session: Session, statistic: int, index: int) -> list[int]:
    return session.market.statistic_values(statistic)[index].tolist()


def test_high_low_average_volume_and_change_are_those_of_the_trades(session: Session) -> None:
    found = references(session)
    assert len(found) > 60
    legs = {int(leg) for leg in session.listing.legs.flatten() if leg >= 0}
    for index, reference in found.items():
        volume = sum(reference.sizes)
        turnover = sum(price // 100_000 * size for price, size in zip(reference.prices, reference.sizes, strict=True))
        execution = published(session, k.S_EXECUTION, index)
        assert execution[k.V_SIZE] == volume and execution[k.V_OTHER] == len(reference.sizes)
        exact = Fraction(turnover * 100_000, volume)
        assert abs(execution[k.V_PRICE] - exact) <= 50_000, "to 1e-4"
        if reference.last is not None:
            previous = int(session.market.instruments[index, k.I_PREVIOUS_CLOSE])
            assert execution[k.V_AUX] == reference.last - previous
            assert published(session, k.S_CLOSING, index)[k.V_PRICE] == reference.last
        own_volume = published(session, k.S_VOLUME, index)
        assert own_volume[k.V_SIZE : k.V_ID] == [volume] and own_volume[k.V_AUX] == turnover
        assert own_volume[k.V_OTHER] == len(reference.sizes)
        if index not in legs:
            assert published(session, k.S_HIGH, index)[k.V_PRICE] == max(reference.prices)
            assert published(session, k.S_LOW, index)[k.V_PRICE] == min(reference.prices)


def test_index_values_are_the_weighted_sum_of_last_prices_after_each_trade(session: Session) -> None:
    """Σ quantity × last / reducer, exactly, rounded to hundredths; numbered without holes; at least every 30 s."""
    listing = session.listing
    last = [spec.reference_price for spec in listing.instruments]
    expected: defaultdict[int, list[int]] = defaultdict(list)
    indexes = [
        (index, {listing.index_of(u.symbol): (u.quantity or 0) // 10**9 for u in spec.underlyings},
         (spec.divisor or 0) // 10**9)
        for index, spec in enumerate(listing.instruments) if spec.type == T.INDEX
    ]  # fmt: skip

    def value(weights: dict[int, int], reducer: int) -> int:
        exact = Fraction(sum(quantity * last[member] for member, quantity in weights.items()), reducer * 10_000_000)
        return int(exact + Fraction(1, 2)) * 10_000_000

    found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    times: defaultdict[int, list[int]] = defaultdict(list)
    for records in session.journal:
        for record in records.tolist():
            if record[k.KIND] == k.TRADE and not record[k.CODE] & k.C_LEG:
                last[record[k.INSTRUMENT]] = record[k.PRICE]
                for index, weights, reducer in indexes:
                    if record[k.INSTRUMENT] in weights:
                        expected[index].append(value(weights, reducer))
            elif record[k.KIND] == k.INDEX_VALUE:
                found[record[k.INSTRUMENT]].append((record[k.ID], record[k.PRICE]))
                times[record[k.INSTRUMENT]].append(record[k.TS])
    for index, weights, reducer in indexes:
        assert [seq for seq, _ in found[index]] == list(range(1, len(found[index]) + 1))
        values = iter(value_ for _, value_ in found[index])
        assert all(wanted in values for wanted in expected[index]), "each, in this order"
        assert len(found[index]) >= len(expected[index]) > 50
        assert found[index][-1][1] == value(weights, reducer)
        assert max(np.diff(times[index])) < 36 * SECOND_NS  # the session's clock advances by 5 s
        values_only = [value_ for _, value_ in found[index]]
        assert published(session, k.S_HIGH, index)[k.V_PRICE] == max(values_only)
        assert published(session, k.S_LOW, index)[k.V_PRICE] == min(values_only)
        assert published(session, k.S_OPENING, index)[k.V_PRICE] == values_only[0]


def test_settlement_follows_the_table_of_the_specification(session: Session) -> None:
    """10.6: which codes, of which instruments, on a tick; in a chain all move together."""
    settlements = [record for record in session.records.tolist() if record[k.KIND] == k.SETTLEMENT]
    assert [code for code in dict.fromkeys(record[k.CODE] for record in settlements)] == [
        4 | 1 << 8, 1 | 2 << 8, 4 | 3 << 8, 1 | 1 << 8,
    ]  # fmt: skip
    types = {session.listing.instruments[record[k.INSTRUMENT]].type for record in settlements}
    assert types == {T.FUTURE, T.INDEX}
    for record in settlements:
        assert record[k.PRICE] % session.listing.instruments[record[k.INSTRUMENT]].tick == 0
        assert record[k.PRICE] > 0


@pytest.mark.parametrize(("protocol", "generation"), KINDS)
def test_every_statistic_arrives_in_both_protocols(session: Session, protocol: str, generation: str) -> None:
    """Binary has no template for some (NOTES): they, and the instruments of 61 and 62, are on FIX/FAST only."""
    settings = ChannelSettings(72, protocol, generation)
    is_member = MemberFilter(settings, session.listing, []).is_member
    records = session.records
    records = records[~np.isin(records[:, k.KIND], BOOK_KINDS) & (records[:, k.INSTRUMENT] >= 0)]
    batch = JournalBatch(INCREMENTAL, records.copy(), int(records[-1, k.TS]))
    events = publish(settings, session.listing, batch)
    expected = expected_statistics(session, records[is_member[records[:, k.INSTRUMENT]]], protocol)
    found = statistics_of(events.rows("statistics"), protocol)
    if protocol == FAST and generation == POSITION:
        places = [2 + COLUMNS.index(name) for name in NOT_IN_145]
        expected = [tuple(None if i in places else value for i, value in enumerate(row)) for row in expected]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    kinds = {row[1] for row in expected}
    assert kinds == set(e.STATISTICS) - {e.LAST_PRICE, e.THEORETICAL_OPENING} - (
        set() if protocol == FAST else FAST_ONLY
    )
    check_trades(session, events.rows("trades"), records, is_member, protocol)


Row = tuple[Any, ...]
COLUMNS = (
    "price", "size", "trade_count", "financial_volume", "net_change", "open_close_settl_flag", "settl_price_type",
    "last_trade_date", "index_seq", "first_price", "last_price", "price_delta", "underlying_id", "venue",
)  # fmt: skip
BINARY_COLUMNS = COLUMNS[:8]
NOT_IN_145 = ("first_price", "last_price", "price_delta")  # of the previous generation


def statistics_of(rows: Rows, protocol: str) -> list[Row]:
    names = COLUMNS if protocol == FAST else BINARY_COLUMNS
    columns = []
    for name in names:
        null = e.STATISTICS_FAMILY.column(name).null
        columns.append([None if value == null else value for value in rows.column(name).tolist()])
    return sorted(
        zip(rows.column("instrument_id").tolist(), rows.column("stat_type").tolist(), *columns, strict=True), key=repr
    )


def expected_statistics(session: Session, records: Records, protocol: str) -> list[Row]:
    """The journal as statistics, by hand: what each kind of record says (10.2 to 10.11)."""
    listing, found = session.listing, list[Row]()

    def add(index: int, stat_type: int, **values: Any) -> None:
        names = COLUMNS if protocol == FAST else BINARY_COLUMNS
        spec = listing.instruments[index]
        values.setdefault("venue", ord(spec.rule.venue))
        row = (None if (value := values.get(name)) in (None, k.NULL) else value for name in names)
        found.append((spec.security_id, stat_type, *row))

    for record in records.tolist():
        index, price, size, other, aux, code = (
            record[column] for column in (k.INSTRUMENT, k.PRICE, k.SIZE, k.OTHER, k.AUX, k.CODE)
        )
        kind = record[k.KIND]
        if kind == k.OPENING:
            add(index, e.OPENING_PRICE, price=price, net_change=aux, open_close_settl_flag=0)
        elif kind == k.CLOSING:
            add(index, e.CLOSING_PRICE, price=price, open_close_settl_flag=code, last_trade_date=aux)
        elif kind == k.SETTLEMENT:
            venue = ord("N") if listing.instruments[index].type == T.INDEX else ord("A")
            flags = {"open_close_settl_flag": code & 0xFF, "settl_price_type": code >> 8}
            add(index, e.SETTLEMENT_PRICE, price=price, venue=venue, **flags)
        elif kind in (k.HIGH, k.LOW):
            add(index, e.SESSION_HIGH if kind == k.HIGH else e.SESSION_LOW, price=price)
        elif kind == k.EXECUTION:
            more = {} if protocol == FAST else {"size": size, "trade_count": other, "net_change": aux}
            add(index, e.VWAP, price=price, **more)
        elif kind == k.OPEN_INTEREST:
            more = {"price": price} if protocol == FAST else {}
            add(index, e.OPEN_INTEREST, size=size, **more)
        elif kind == k.VOLUME and protocol == FAST:
            add(index, e.TRADE_VOLUME, size=size, trade_count=other, financial_volume=aux, venue=code)
        elif kind == k.INDEX_VALUE and protocol == FAST:
            add(index, e.INDEX_VALUE, price=price, net_change=aux, index_seq=record[k.ID])
        elif kind == k.VOLATILITY and protocol == FAST:
            add(index, e.VOLATILITY, first_price=record[k.FIRM], last_price=other, price_delta=aux)
        elif kind == k.COMPOSITE and protocol == FAST:
            for part in listing.details.composites[other]:
                ids = {"underlying_id": listing.instruments[part.index].security_id, "index_seq": record[k.ID]}
                add(index, e.COMPOSITE_UNDERLYING, price=part.price, **ids)
    return sorted(found, key=repr)


def check_trades(session: Session, rows: Rows, records: Records, is_member: Any, protocol: str) -> None:
    """Trades of every market, the anonymous ones without firms, with the venue of the instrument."""
    trades = [record for record in records[records[:, k.KIND] == k.TRADE].tolist() if is_member[record[k.INSTRUMENT]]]
    actions = rows.column("action") == ord("A")
    found = zip(
        *(rows.column(name)[actions].tolist() for name in ("instrument_id", "trade_id", "price", "size", "buyer")),
        rows.column("venue")[actions].tolist(),
        strict=True,
    )
    expected = []
    if protocol == FAST:
        check_tick_directions(rows, trades, session.listing)
    for record in trades:
        spec = session.listing.instruments[record[k.INSTRUMENT]]
        buyer = e.NULL if spec.is_anonymous else record[k.FIRM]
        venue = ord(spec.rule.venue) if protocol == FAST else 0
        expected.append((spec.security_id, record[k.ID], record[k.PRICE], record[k.SIZE], buyer, venue))
    assert sorted(found) == sorted(expected)
    assert {session.listing.instruments[record[k.INSTRUMENT]].type for record in trades} >= {T.FORWARD, T.FX_SPOT}


def check_tick_directions(rows: Rows, trades: list[list[int]], listing: Listing) -> None:
    """274: above the last price 0, below it 2, absent on first trades and those of equal price (10.1)."""
    last, expected = dict[int, int](), dict[tuple[int, int], int]()
    for record in trades:
        index, price = record[k.INSTRUMENT], record[k.PRICE]
        key = int(listing.security_id[index]), record[k.ID]
        expected[key] = 0
        if not record[k.CODE] & k.C_LEG:
            before = last.get(index, price)
            expected[key] = 0 if price == before else ord("0") if price > before else ord("2")
            last[index] = price
    columns = (rows.column(name).tolist() for name in ("instrument_id", "trade_id", "tick_direction", "action"))
    found = {(i, t): d for i, t, d, action in zip(*columns, strict=True) if action == ord("A")}
    assert found == expected and len(set(expected.values())) == 3


def test_everything_is_published_again_as_it_was(session: Session) -> None:
    statistics, market = session.statistics, session.market
    before, batches = market.instruments[:, k.I_STATISTICS :].copy(), len(session.journal)
    statistics.publish_again(np.arange(COUNT))
    records = np.concatenate([*session.journal[batches:], market.take_records()])
    present = sum(int((market.statistic_values(s)[:, k.V_PRESENT] != 0).sum()) for s in range(k.STATISTICS))
    assert len(records) == present and (market.instruments[:, k.I_STATISTICS :] == before).all()
    index = session.listing.index_of("IBOV")
    again = records[(records[:, k.INSTRUMENT] == index) & (records[:, k.KIND] == k.INDEX_VALUE)]
    assert again[0, k.PRICE] == published(session, k.S_INDEX_VALUE, index)[k.V_PRICE]
