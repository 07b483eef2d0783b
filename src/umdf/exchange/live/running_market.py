"""The exchange as it runs: the order flow, the schedule, periodic statistics, and the publishers of all channels.

    running = RunningMarket(settings, open_sinks)
    running.advance(now_ns)        # everything that is due by then

Invariant: no clock and no thread: the exchange is where its last `advance` has brought it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from umdf.errors import ConfigError, UmdfError
from umdf.exchange.bulk.settings import SECOND_NS, BulkSettings
from umdf.exchange.instruments.catalogue import generate_catalogue
from umdf.exchange.instruments.catalogue_file import load_catalogue
from umdf.exchange.instruments.contract_terms import ContractTerms
from umdf.exchange.instruments.listing import Listing
from umdf.exchange.live import schedule as s
from umdf.exchange.live.settings import ExchangeSettings
from umdf.exchange.live.trading_activity import PEAK, TradingActivity
from umdf.exchange.live.trading_steps import TradingSteps
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.market import ARRIVALS_PER_MESSAGE, BATCH_ROWS, NORMAL_SHARE, Indices, Records
from umdf.exchange.matching.order_entry import MatchingEngine
from umdf.exchange.publish.channel_settings import FAST, SBE, ChannelSettings
from umdf.exchange.publish.control_records import control_records
from umdf.exchange.publish.fast_publisher import FastPublisher
from umdf.exchange.publish.news import NewsItem
from umdf.exchange.publish.publication import Publication
from umdf.exchange.publish.publisher import Publisher
from umdf.exchange.publish.sbe_publisher import SbePublisher
from umdf.exchange.publish.sinks import Sink
from umdf.exchange.session.intraday_changes import IntradayChanges
from umdf.exchange.session.trading_session import TradingSession
from umdf.exchange.statistics.statistics import Statistics
from umdf.exchange.truth.book_history import BookHistory

PUBLISHERS: dict[str, type[Publisher]] = {SBE: SbePublisher, FAST: FastPublisher}
NEVER = 1 << 62
OF_A_SESSION = (k.TRADE, k.BUST, k.OPENING, k.EXECUTION, k.STATE)  # kinds of records that have 336
RESERVED_INSTRUMENTS = 1_000  # that can be added while it runs
VOLATILITY_SCALE = 0.4  # of that of a bulk day, which is minutes long: a stock moves by some 2 percent in a real one
OpenSinks = Callable[[ChannelSettings], Mapping[str, Sink]]


class RunningMarket:
    def __init__(self, settings: ExchangeSettings, open_sinks: OpenSinks, history: BookHistory | None = None) -> None:
        self.settings, self.now_ns = settings, settings.start_ns
        self.schedule = s.Schedule(settings.timetable)
        self.listing = _listing(settings)
        pairs = _check(settings, self.listing)
        self.engine = MatchingEngine(self.listing, _bulk_settings(settings), self.now_ns)
        self.market = self.engine.market
        self.market.table[k.HEARTBEAT_NS] = NEVER  # each channel has heartbeats of its own
        self.market.instruments[len(self.listing) :, k.I_STATE] = k.UNKNOWN
        if settings.messages_per_s:
            per_arrival = ARRIVALS_PER_MESSAGE * NORMAL_SHARE * PEAK
            self.market.table[k.BASE_INTERARRIVAL] = int(SECOND_NS / (settings.messages_per_s * per_arrival))
            self.market.table[k.MEAN_INTERARRIVAL] = self.market.table[k.BASE_INTERARRIVAL]
        self.session = TradingSession(self.market, self.flush)
        self.changes = IntradayChanges(self.market, self.session)
        self.statistics = Statistics(self.market, self.flush)
        self._terms = ContractTerms(self.listing)
        self._news: list[NewsItem] = []
        publishers = [
            PUBLISHERS[channel.protocol](channel, self.listing, open_sinks(channel), history, self._news)
            for channel in settings.channels
        ]
        self.publication = Publication(publishers, self, self._phase_records)
        self.records = self.trade_count = 0  # of the journal
        self.trading, self.activity = TradingSteps(self), TradingActivity(self)
        for pair in pairs:
            self.trading.simultaneous.pair(*pair)
        self._start()

    # Time

    def _start(self) -> None:
        """Do what the schedule has done by the start: the week's start, and the steps of the day until now."""
        day = s.local_datetime(self.now_ns).date()
        earlier = [
            step for step in self.schedule.steps_of(day) if step.ts_ns <= self.now_ns and step.name != s.START_WEEK
        ]
        self._steps = self.schedule.steps_after(self.now_ns)
        self._next_step = next(self._steps)
        if not self.schedule.is_down(self.now_ns):
            for step in chain([s.Step(self.now_ns, s.START_WEEK)], earlier):
                if step.ts_ns == self.now_ns or step.name != s.START_WEEK:
                    self.trading.run_step(step)
        self.trading.simultaneous.run_due(NEVER)  # of auctions that have ended before the start
        self.flush()

    def advance(self, now_ns: int) -> None:
        """Do everything that is due by a time."""
        while self.now_ns < now_ns:
            self.activity.follow(self.now_ns)
            due_ns = min(now_ns, max(min(self._next_step.ts_ns, self.trading.next_due_ns), self.now_ns + 1))
            self._run_order_flow(due_ns)
            self.now_ns = max(self.now_ns, due_ns)
            self._set_market_time()
            while self._next_step.ts_ns <= self.now_ns:
                step, self._next_step = self._next_step, next(self._steps)
                self.trading.run_step(step)
            self.trading.run_due(self.now_ns)
            self.flush()

    def _run_order_flow(self, until_ns: int) -> None:
        market = self.market
        if not self.settings.messages_per_s or not self.trading.is_trading:
            return
        while True:
            target = BATCH_ROWS - market.rows
            rows = market.rows
            market.run_order_flow(target, until_ns)
            if market.rows - rows < target:
                return
            self.flush()

    def start_order_flow(self) -> None:
        """Let orders arrive from now on: none has been due while nothing traded."""
        self.market.table[[k.NEXT_ARRIVAL, k.REGIME_END, k.SILENT_UNTIL]] = self.now_ns
        self.activity.update(self.now_ns)

    def skip_order_flow(self, until_ns: int) -> None:
        """Let no order of the flow arrive until a time; those that are there still expire."""
        table = self.market.table
        table[k.NEXT_ARRIVAL] = max(int(table[k.NEXT_ARRIVAL]), until_ns)

    def _set_market_time(self) -> None:
        """Let what is not an order of the flow happen now."""
        table = self.market.table
        table[k.LAST_TS] = max(int(table[k.LAST_TS]), self.now_ns)

    # Publishing

    def flush(self) -> None:
        """Publish the journal so far, and what else every channel sends by now; while the platform is down, nothing."""
        records = self.engine.take_records()
        self.records += len(records)
        self.trade_count += int((records[:, k.KIND] == k.TRADE).sum())
        self.trading.watch_auctions(records)
        mark_after_market(records, self.listing.group, self.session.is_after_market)
        self._terms.add_to(records, self.trading.trading_date)
        self.statistics.on_trades(records)
        if self.trading.is_up:
            self.publication.publish(records, max(self.now_ns, self.market.now))

    def restart_numbering(self) -> None:
        """Number the incremental streams from 1 again, at the start of a week."""
        self.publication.start_week(self.now_ns)

    # What the publication reads

    @property
    def is_listed(self) -> NDArray[np.bool_]:
        return self.market.is_listed

    def snapshots(self, first: int, stop: int) -> tuple[Records, int]:
        records, next_index = self.market.snapshots(first, stop)
        mark_after_market(records, self.listing.group, self.session.is_after_market)
        self._terms.add_to(records, self.trading.trading_date)
        return records, next_index

    def _phase_records(self) -> Records:
        """The phases of all groups as they are now."""
        phases = self.session.phases
        records = control_records(k.GROUP_PHASE, np.full(len(phases), self.market.now))
        records[:, k.ID], records[:, k.AUX] = np.arange(len(phases)), phases
        records[:, k.FLAGS] = k.SNAPSHOT | np.where(self.session.is_after_market, k.AFTER_MARKET, 0)
        return records

    def add_news(self, item: NewsItem) -> None:
        self._news.append(item)
        for number in range(1, len(item.parts) + 1):
            self.market.append(k.NEWS, None, id=len(self._news) - 1, position=number)

    def close(self) -> None:
        """Publish what is left, and close all sinks."""
        self.flush()
        self.publication.close()


def mark_after_market(records: Records, group: Indices, is_after_market: NDArray[np.bool_]) -> None:
    """Mark trades, statistics and states of the instruments whose groups are in the after-market (336=6)."""
    if is_after_market.any() and len(records):
        index = np.maximum(records[:, k.INSTRUMENT], 0)
        marked = (records[:, k.INSTRUMENT] >= 0) & is_after_market[group[index]]
        records[marked & np.isin(records[:, k.KIND], OF_A_SESSION), k.FLAGS] |= k.AFTER_MARKET


def _bulk_settings(settings: ExchangeSettings) -> BulkSettings:
    """The settings of what the bulk day and the live exchange have in common."""
    day = s.days_since_1970(settings.start.date())
    return BulkSettings(1 << 40, settings.instruments, seed=settings.seed, trading_date=day)


def _check(settings: ExchangeSettings, listing: Listing) -> list[list[int]]:
    """The pairs of settings as rows of the listing; refuse what names instruments or groups that are not listed."""
    where = "exchange.pairs"
    try:
        pairs = [[listing.index_of(symbol) for symbol in pair] for pair in settings.pairs]
        for channel in settings.channels:
            where = f"channel {channel.channel} ({channel.protocol})"
            channel.members.check(listing)
    except UmdfError as error:
        raise ConfigError(f"{where}: {error.reason}", error.hint) from None
    return pairs


def _listing(settings: ExchangeSettings) -> Listing:
    """The instruments of the catalogue, or generated ones; there is room for more."""
    today = settings.start.date()
    if settings.catalogue is not None:
        try:
            specs = load_catalogue(settings.catalogue)
        except UmdfError as error:
            raise ConfigError(f"exchange.catalogue: {error.reason}", error.hint) from None
    else:
        specs = generate_catalogue(settings.instruments, settings.seed, today)
    random = np.random.default_rng([settings.seed, 3])
    more = {"capacity": len(specs) + RESERVED_INSTRUMENTS, "volatility_scale": VOLATILITY_SCALE}
    return Listing(specs, s.days_since_1970(today), random, **more)
