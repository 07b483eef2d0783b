"""A trading week of the live exchange, by its schedule: every channel agrees with the exchange's own books at any
sequence, phases come in their order, the orders of a day end with it, and the next week begins at number 1."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

import numpy as np
import pytest
from exchange.channel_client import ChannelClient, rows_of, true_rows

from umdf.book.engine import Books
from umdf.exchange.instruments.instrument_types import InstrumentType
from umdf.exchange.live import schedule as s
from umdf.exchange.live.exchange import Exchange
from umdf.exchange.live.settings import ExchangeSettings
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.orders import BID, GTC
from umdf.exchange.publish.channel_settings import (
    FAST,
    MBP,
    POSITION,
    PRIORITY,
    SBE,
    TOB,
    ChannelSettings,
    Members,
)
from umdf.exchange.truth.book_history import BookHistory
from umdf.sync.raw_units import UnitKind

Sized = Callable[[int, int], int]
SECOND, MINUTE, HOUR = 10**9, 60 * 10**9, 3600 * 10**9
EQUITIES, FUTURES = Members(("CS", "PS", "ETF")), Members(("FUT", "MLEG", "OPT"))
LOOPS: dict[str, Any] = {"heartbeat_ms": 3_600_000, "loop_pause_ms": 3_600_000, "snapshots_per_s": 100_000}
CHANNELS = {
    "sbe": ChannelSettings(72, SBE, members=EQUITIES, **LOOPS),
    "fast": ChannelSettings(72, FAST, members=EQUITIES, **LOOPS),
    "mbp": ChannelSettings(73, FAST, PRIORITY, MBP, 5, EQUITIES, **LOOPS),
    "tob": ChannelSettings(74, FAST, PRIORITY, TOB, 0, EQUITIES, **LOOPS),
    "derivatives": ChannelSettings(78, SBE, POSITION, members=FUTURES, **LOOPS),
}
TIMETABLE = s.Timetable(
    {
        s.EQUITIES: {
            "pre_open": "10:00", "open": "10:02", "closing_call": "10:05", "pre_close": "10:07", "close": "10:08",
            "after_market_pre_open": "10:12", "after_market_open": "10:13", "after_market_close": "10:15",
        },
        s.DERIVATIVES: {"pre_open": "09:58", "open": "10:01", "close": "10:10"},
    },
    {"morning": "09:00", "settlement": "10:20", "end_of_day": "10:30"},
    frozenset({date(2026, 11, 18)}),
)  # fmt: skip
TRADING_DAYS = 4  # Wednesday is a holiday


@dataclass
class Week:
    seed: int
    rate: float
    history: BookHistory = field(default_factory=BookHistory)
    clients: dict[str, ChannelClient] = field(default_factory=dict)

    def __post_init__(self) -> None:
        settings = ExchangeSettings(
            tuple(CHANNELS.values()), instruments=100, seed=self.seed, messages_per_s=self.rate,
            start=datetime(2026, 11, 16, 8, 0), timetable=TIMETABLE,
        )  # fmt: skip
        self.clients = {name: ChannelClient(channel) for name, channel in CHANNELS.items()}
        sinks = {id(channel): self.clients[name].sinks for name, channel in CHANNELS.items()}
        self.exchange = Exchange(settings, lambda channel: sinks[id(channel)], self.history)
        self._monday()
        self._advance_to(2026, 11, 16, 10, 25)
        self.settled = self._settlement_prices(k.S_SETTLEMENT)
        self._advance_to(2026, 11, 17, 9, 30)
        self.previous_settlement = self._settlement_prices(k.S_PREVIOUS_SETTLEMENT)
        self.tuesday_bids = self.exchange.book(self.quiet).bids
        self._advance_to(2026, 11, 20, 21, 59)

    def _settlement_prices(self, statistic: int) -> dict[str, int]:
        values, listing = self.exchange.market.statistic_values(statistic), self.exchange.listing
        return {
            listing.symbols[row]: int(values[row, k.V_PRICE])
            for row in np.flatnonzero((values[:, k.V_PRESENT] != 0) & self.exchange.is_listed).tolist()
        }

    def _monday(self) -> None:
        """Orders of the operator, on the first day: one for the day, one until it is cancelled."""
        self._advance_to(2026, 11, 16, 10, 3)
        listing = self.exchange.listing
        stocks = [i for i in listing.by_activity() if listing.type[i] == InstrumentType.STOCK]
        self.quiet, spec = listing.symbols[stocks[-1]], listing.instruments[stocks[-1]]
        self.kept_price = spec.reference_price - 10 * spec.tick
        result = self.exchange.enter(self.quiet, BID, self.kept_price, 300, firm=3, time_in_force=GTC)
        self.exchange.enter(self.quiet, BID, self.kept_price - spec.tick, 400, firm=4)
        assert result.order_id is not None and result.traded == 0
        self.entered_ns = next(o for o in self.exchange.book(self.quiet).bids if o.price == self.kept_price).entered_ns
        assert abs(self.entered_ns - self.exchange.now_ns) < SECOND

    def _advance_to(self, *local: int) -> None:
        end_ns = s.local_ns(date(*local[:3]), s.time_of("", f"{local[3]:02}:{local[4]:02}"))
        while self.exchange.now_ns < end_ns:
            step_ns = 15 * SECOND if self.exchange.trading.is_trading else 10 * MINUTE
            self.exchange.advance(min(self.exchange.now_ns + step_ns, end_ns))


@pytest.fixture(scope="module")
def week(sized: Sized) -> Week:
    return Week(sized(5, random.randrange(1 << 30)), sized(3, 100))


@pytest.mark.parametrize("name", CHANNELS)
def test_every_channel_has_the_exchanges_books_at_random_sequences(week: Week, name: str, sized: Sized) -> None:
    client, listing = week.clients[name], week.exchange.listing
    members = np.flatnonzero(CHANNELS[name].members.of(listing)).tolist()
    units = client.units()
    units = units.take(units.kind == UnitKind.DATA)
    assert (np.diff(units.sequence) == 1).all(), "numbers of a week have no holes, also over nights"
    books, compared, first = Books(), 0, 0
    for instrument in members if client.declared_depth is not None else ():
        books.set_depth(int(listing.security_id[instrument]), client.declared_depth or 0)
    stops = [*sorted(random.Random(week.seed).sample(range(1, len(units)), sized(6, 60))), len(units)]
    for stop in stops:
        books.apply(client.events(units.take(slice(first, stop))).rows("mbo"))
        first, sequence = stop, int(units.sequence[stop - 1])
        for instrument in members:
            book = books.book(int(listing.security_id[instrument]))
            expected = true_rows(week.history, CHANNELS[name], instrument, sequence)
            assert rows_of(book) == expected, (sequence, listing.symbols[instrument])
            compared += len(expected)
    assert compared > 10


def statuses(week: Week, name: str = "sbe") -> tuple[Any, Any]:
    client = week.clients[name]
    units = client.units()
    return units, client.events(units.take(units.kind == UnitKind.DATA)).rows("status")


def test_each_day_has_its_phases_in_order(week: Week) -> None:
    """Pre-open, Open, Final closing call, Pre-close, Close, the after-market (336=6), and the change of session."""
    _, rows = statuses(week)
    offsets, text = rows.texts["security_group"]
    ours = [row for row in range(len(rows)) if bytes(text[offsets[row] : offsets[row + 1]]) == b"S1"]
    seen = [
        (int(rows.column("phase")[row]), int(rows.column("trading_session")[row]), int(rows.column("event")[row]) == 4)
        for row in ours
    ]
    day = [(21, 1), (17, 1), (101, 1), (18, 1), (4, 1), (21, 6), (17, 6), (4, 6)]
    expected = [(4, 1, False)] + ([(*phase, False) for phase in day] + [(4, 1, True)]) * TRADING_DAYS
    assert seen == expected


def test_orders_of_the_day_end_with_it_and_others_return_with_the_time_of_their_entry(week: Week) -> None:
    found = [(order.price, order.size, order.entered_ns) for order in week.tuesday_bids]
    assert found == [(week.kept_price, 300, week.entered_ns)]
    assert all(not week.exchange.book(symbol).asks for symbol in ("PETR4", "VALE3"))


def test_the_previous_settlement_of_a_day_is_the_final_one_of_the_day_before(week: Week) -> None:
    """10.6: 286=4 with 731=1 repeats yesterday's 286=1 with 731=1, not the closing price."""
    assert week.previous_settlement == {symbol: week.settled[symbol] for symbol in week.previous_settlement}
    closing = week.exchange.listing.instruments
    assert any(week.settled[spec.symbol] != spec.reference_price for spec in closing if spec.symbol in week.settled)


def test_trades_of_the_after_market_say_so(week: Week) -> None:
    client = week.clients["sbe"]
    units = client.units()
    trades = client.events(units.take(units.kind == UnitKind.DATA)).rows("trades")
    sessions = trades.column("trading_session")
    times = [s.local_datetime(int(ts)).strftime("%H:%M") for ts in trades.column("ts_event")]
    assert {6} == {int(sessions[row]) for row in range(len(trades)) if times[row] >= "10:12"}
    assert {1} == {int(sessions[row]) for row in range(len(trades)) if times[row] < "10:12"}


def test_the_next_week_begins_at_number_one_with_the_last_prices(week: Week) -> None:
    """After the weekend: nothing in between, then SequenceReset or another version, and 277=U (13.4)."""
    before = {name: len(client.units()) for name, client in week.clients.items()}
    week._advance_to(2026, 11, 22, 12, 1)
    for name in ("sbe", "fast"):
        units = week.clients[name].units()
        later = units.take(slice(before[name], None))
        silence_ns = int(later.ts_recv[0]) - int(units.ts_recv[before[name] - 1])
        assert silence_ns > 37 * HOUR, "down from Friday 22:00 to Sunday 12:00"
        assert later.sequence[later.kind == UnitKind.DATA].min() <= 2
        data = later.take(later.kind == UnitKind.DATA)
        statistics = week.clients[name].events(data).rows("statistics")
        last = statistics.column("stat_type") == 100
        assert last.sum() > 5


def test_nothing_is_sent_while_the_platform_is_down(week: Week) -> None:
    """No heartbeat on any stream from Friday 22:00 to Sunday 12:00; runs after the test above."""
    week._advance_to(2026, 11, 22, 12, 1)
    down, up = (s.local_ns(date(2026, 11, day), s.time_of("", text)) for day, text in ((20, "22:00"), (22, "12:00")))
    for name, client in week.clients.items():
        for stream, sink in client.sinks.items():
            times = np.array(sink.ts_ns)
            assert not ((times > down + SECOND) & (times < up)).any(), (name, stream)
            assert (np.diff(times) >= 0).all() and (times >= up).any(), (name, stream)


def test_what_has_matured_is_deleted_in_the_next_morning(week: Week) -> None:
    """7.3: the options of the third Friday, by a definition with the action delete."""
    exchange, monday = week.exchange, date(2026, 11, 23)
    listing, before = exchange.listing, {name: len(client.units()) for name, client in week.clients.items()}
    due = {row for row, spec in enumerate(listing.instruments) if spec.maturity is not None and spec.maturity < monday}
    assert due <= set(np.flatnonzero(exchange.is_listed).tolist())
    week._advance_to(2026, 11, 23, 9, 30)
    assert due and not due & set(np.flatnonzero(exchange.is_listed).tolist())
    deleted: set[int] = set()
    for name in ("sbe", "derivatives"):
        units = week.clients[name].units().take(slice(before[name], None))
        rows = week.clients[name].events(units.take(units.kind == UnitKind.DATA)).rows("definition")
        deleted |= set(rows.column("instrument_id")[rows.column("action") == ord("D")].tolist())
    assert deleted == {
        int(listing.security_id[row]) for row in due
        if (CHANNELS["sbe"].members.of(listing) | CHANNELS["derivatives"].members.of(listing))[row]
    }  # fmt: skip
