"""What the steps of the schedule do: phases of the markets, auctions and their extensions, the days and the week.

STEPS is the table: the name of a step, and the method that runs it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from umdf.errors import UsageError
from umdf.exchange.bulk.settings import SECOND_NS
from umdf.exchange.instruments.instrument_types import InstrumentType, types_where
from umdf.exchange.live import schedule as s
from umdf.exchange.live.simultaneous_auctions import SimultaneousAuctions
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.market import Indices, Records
from umdf.exchange.session.resets import reset_book
from umdf.exchange.session.trading_session import AUCTIONS, PRE_CLOSE, SEPARATES
from umdf.exchange.statistics.statistics import FINAL

if TYPE_CHECKING:
    from umdf.exchange.live.running_market import RunningMarket

EQUITY_TYPES = (  # the others: derivatives; lending and fixed income are of the equities segment (13.1, 13.2)
    *types_where("is_equity"), InstrumentType.OPTION, InstrumentType.INDEX, InstrumentType.LENDING,
    InstrumentType.FIXED_INCOME,
)  # fmt: skip
PERIOD_NS = 30 * SECOND_NS  # of trade volumes and of looks at the theoretical prices (12.1)
EXTENSION_NS, MAX_EXTENSIONS = 60 * SECOND_NS, 2
EXTENSION_SHARE = 0.01  # a theoretical price that moves more in the last period extends its auction
NEVER = 1 << 62


class TradingSteps:
    def __init__(self, running: RunningMarket) -> None:
        self._running = running
        self._market, self._session, self._listing = running.market, running.session, running.listing
        self.is_up = False  # from the start of a week to its end
        self.trading_date = running.listing.trading_date
        self._next_period = NEVER
        self._auction_ends: dict[int, int] = {}  # of instruments in an auction of their own: when it ends
        self._extensions: dict[int, int] = {}  # how often the auction of an instrument was extended
        self.simultaneous = SimultaneousAuctions(running, self._auction_ends)
        self._theoretical = np.zeros(len(running.market.instruments), np.int64)  # a period ago; 0: none
        equities = self._equity_groups()
        every = range(len(self._listing.groups))
        self._groups = {
            s.EQUITIES: [group for group in every if group in equities],
            s.DERIVATIVES: [group for group in every if group not in equities],
            "": list(every),
        }

    def _equity_groups(self) -> set[int]:
        """A strategy is of the market of its first leg."""
        listing = self._listing
        is_equity = listing.of_types(EQUITY_TYPES)
        for index, spec in enumerate(listing.instruments):
            if spec.legs:
                is_equity[index] = is_equity[listing.index_of(spec.legs[0].symbol)]
        return set(listing.group[is_equity].tolist())

    @property
    def is_trading(self) -> bool:
        """Whether any instrument takes orders."""
        return bool(np.isin(self._session.phases, (k.OPEN, *AUCTIONS)).any())

    @property
    def next_due_ns(self) -> int:
        return min(self._next_period, self.simultaneous.next_due_ns, *self._auction_ends.values(), NEVER)

    def run_step(self, step: s.Step) -> None:
        STEPS[step.name](self, step.market)

    def run_due(self, now_ns: int) -> None:
        """End the auctions that are over, and publish the periodic statistics."""
        for index in [index for index, end_ns in self._auction_ends.items() if end_ns <= now_ns]:
            del self._auction_ends[index]
            if not self._extend(index):
                self._extensions.pop(index, None)
                if not self.simultaneous.query(index):
                    self._session.rejoin(index)
        self.simultaneous.run_due(now_ns)
        if now_ns >= self._next_period:
            self._next_period = now_ns + PERIOD_NS if self.is_trading else NEVER
            self._running.statistics.advance(now_ns)
            self._theoretical = self._theoretical_prices()

    # The week and its days

    def start_week(self, _: str) -> None:
        """Sunday 12:00: all numbering starts again, and the last price of each instrument is sent (277=U, 13.4)."""
        self.is_up = True
        self._market.instruments[:, k.I_WALK_TS] = self._running.now_ns
        if (self._session.phases == 0).all():
            self._session.change_phase(self._groups[""], k.CLOSE)
        self._running.restart_numbering()
        self._running.engine.publish_exchange_last(self._running.now_ns)

    def stop_week(self, _: str) -> None:
        self.is_up, self._next_period = False, NEVER

    def morning(self, _: str) -> None:
        """What has matured is deleted; closing prices of the day before, limits; orders good till a date or cancelled
        are sent again (37016)."""
        today = s.local_datetime(self._running.now_ns).date()
        self.trading_date = s.days_since_1970(today)
        self._running.publication.start_day(self.trading_date)
        self.forget(self._running.changes.expire(today))
        listed = np.flatnonzero(self._market.is_listed)
        self._running.statistics.publish_start_of_day(listed)
        self._running.statistics.advance(self._running.now_ns)
        self._running.engine.restate_orders(self._running.now_ns)

    def settlement(self, _: str) -> None:
        self._running.statistics.settle(FINAL)

    def end_of_day(self, _: str) -> None:
        """The orders of the day expire, the statistics of the session are reset (1174=4), and the closing prices become
        those of the day before."""
        self.simultaneous.end_all(self._groups[""])
        self._running.engine.expire_orders(self._running.now_ns, self.trading_date)
        for index in self._session.separated().tolist():
            self._session.rejoin(index)
        table, closing = self._market.instruments, self._market.statistic_values(k.S_CLOSING)
        closed = closing[:, k.V_PRESENT] != 0
        table[closed, k.I_PREVIOUS_CLOSE] = closing[closed, k.V_PRICE]
        self._session.change_session(self._groups[""], k.CLOSE)
        self._running.engine.start_session()

    # Phases of a market

    def groups_of_market(self, market: str) -> list[int]:
        return self._groups[market]

    def change_phase(
        self,
        groups: Iterable[int],
        phase: int,
        *,
        after_market: bool = False,
        extends: bool = False,
        expires: bool = False,
    ) -> None:
        """Change the phase of groups; an auction that they leave ends with its trades, unless it is extended. Orders of
        the day expire before its trading ends: in the phases after it nothing is cancelled (11.2). The close of the
        regular session publishes closing prices."""
        groups = list(groups)
        if phase == k.CLOSE:
            self._rejoin_auctions(groups)
        for group in groups:
            self._end_auctions(group, phase, extends)
            if expires:
                self._expire_orders(group)
            self._session.change_phase([group], phase, after_market=after_market)
        if phase == k.FINAL_CLOSING_CALL:
            self._running.engine.trigger_market_on_close(self._running.now_ns)
        if phase == k.CLOSE:
            self.simultaneous.end_all(groups)
        if phase == k.CLOSE and not after_market:
            members = np.isin(self._listing.group, groups) & self._market.is_listed
            self._running.statistics.publish_closing(np.flatnonzero(members))
        if self._next_period == NEVER:
            self._next_period = self._running.now_ns + PERIOD_NS
        self._running.start_order_flow()

    def _expire_orders(self, group: int) -> None:
        engine, table = self._running.engine, self._market.instruments
        for index in self._session.listed(group).tolist():
            if table[index, k.I_BIDS] + table[index, k.I_ASKS] and not self._session.is_separated(index):
                engine.expire_orders(self._running.now_ns, self.trading_date, self._listing.symbols[index])

    def _is_last(self, step: str, market: str) -> bool:
        """Whether the day's trading of a market ends with a step."""
        steps = self._running.settings.timetable.phases[market]
        return step == next(name for name in ("after_market_close", "pre_close", "close") if name in steps)

    def pre_open(self, market: str) -> None:
        self.change_phase(self._groups[market], k.RESERVED)

    def open(self, market: str) -> None:
        self.change_phase(self._groups[market], k.OPEN, extends=True)

    def closing_call(self, market: str) -> None:
        self.change_phase(self._groups[market], k.FINAL_CLOSING_CALL)

    def pre_close(self, market: str) -> None:
        """The closing call ends with its trades; no orders from now on (18)."""
        self.change_phase(self._groups[market], PRE_CLOSE, extends=True, expires=self._is_last("pre_close", market))

    def close(self, market: str) -> None:
        self.change_phase(self._groups[market], k.CLOSE, expires=self._is_last("close", market))

    def after_market_pre_open(self, market: str) -> None:
        self.change_phase(self._groups[market], k.RESERVED, after_market=True)

    def after_market_open(self, market: str) -> None:
        self.change_phase(self._groups[market], k.OPEN, after_market=True)

    def after_market_close(self, market: str) -> None:
        self.change_phase(self._groups[market], k.CLOSE, after_market=True, expires=True)

    # The state of an instrument

    def change_state(self, index: int, state: int, opens_at_ns: int | None = None) -> None:
        """Give an instrument a state; it rejoins its group where that has the same one, and an auction with a time
        ends then. In the state Close the orders of the day leave its book (script B2.11)."""
        engine = self._running.engine
        self._auction_ends.pop(index, None)
        self.simultaneous.forget(index)
        if state == k.CLOSE:
            self._end_auction_of(index, state)
            engine.expire_orders(self._running.now_ns, self.trading_date, self._listing.symbols[index])
        if state == self._session.phase_of(index):
            self._session.rejoin(index)
        else:
            self._session.separate(index, state, k.NULL if opens_at_ns is None else opens_at_ns)
        if opens_at_ns is not None:
            self._auction_ends[index] = opens_at_ns
        if state == k.RESERVED:
            self.simultaneous.start(index)
        if state == k.FINAL_CLOSING_CALL:
            engine.trigger_market_on_close(self._running.now_ns)

    def _end_auction_of(self, index: int, state: int) -> None:
        if int(self._market.instruments[index, k.I_STATE]) in AUCTIONS and state not in AUCTIONS:
            self._market.uncross_one(index, self._running.flush)

    def reset_book(self, index: int) -> None:
        """Send Empty Book, then the book again (4.2.9)."""
        self._running.flush()
        reset_book(self._market, index)

    def watch_auctions(self, records: Records) -> None:
        """Let the auctions end that price bands have started."""
        started = (
            (records[:, k.KIND] == k.STATE) & (records[:, k.AUX] == k.RESERVED) & (records[:, k.CODE] == SEPARATES)
        )
        for index, opens_at_ns in records[started & (records[:, k.INSERT] != k.NULL)][
            :, [k.INSTRUMENT, k.INSERT]
        ].tolist():
            if index not in self._auction_ends:
                self._auction_ends[index] = opens_at_ns
                self.simultaneous.start(index)

    def extend_auction(self, index: int, duration_ns: int) -> int:
        """Move the end of an auction; the new one."""
        end_ns = self._end_of_auction(index)
        if end_ns is None:
            reason = f"{self._listing.symbols[index]} is in no auction that has an end"
            raise UsageError(reason, "start one with a time")
        self._set_end(index, end_ns + duration_ns)
        return end_ns + duration_ns

    def _end_of_auction(self, index: int) -> int | None:
        """When the auction of an instrument ends: its own, or that of the phase of its group; None without an end."""
        if int(self._market.instruments[index, k.I_STATE]) not in AUCTIONS or self._session.is_separated(index):
            return self._auction_ends.get(index)
        steps = self._running.schedule.steps_after(self._running.now_ns)
        groups = self._groups
        return next(step.ts_ns for step in steps if step.market and self._listing.group[index] in groups[step.market])

    def _set_end(self, index: int, end_ns: int) -> None:
        self._auction_ends[index] = end_ns
        state = int(self._market.instruments[index, k.I_STATE])
        opens_at = end_ns if state == k.RESERVED else k.NULL  # 342: a closing call opens nothing
        self._session.change_state(index, state, SEPARATES, opens_at)

    def forget(self, instruments: Iterable[int]) -> None:
        """Instruments are deleted: nothing of theirs ends any more."""
        for index in instruments:
            self._auction_ends.pop(index, None)
            self._extensions.pop(index, None)

    # Auctions

    def _end_auctions(self, group: int, phase: int, extends: bool) -> None:
        """End the auctions of a group that leaves them (11.1)."""
        if int(self._session.phases[group]) not in AUCTIONS or phase in AUCTIONS:
            return
        for index in self._session.listed(group).tolist():
            if not self._session.is_separated(index) and not (extends and self._extend(index)):
                self.simultaneous.query(index)
        self._session.end_auctions(group)

    def _rejoin_auctions(self, groups: list[int]) -> None:
        """End the auctions of their own that instruments of groups are in."""
        for index in [index for index in self._auction_ends if self._listing.group[index] in groups]:
            del self._auction_ends[index]
            self._session.rejoin(index)
        self.simultaneous.end_all(groups)

    def _extend(self, index: int) -> bool:
        """Extend an auction whose theoretical price has moved in the last period; whether it is."""
        price, before = int(self._theoretical_prices()[index]), int(self._theoretical[index])
        has_moved = before > 0 and price > 0 and abs(price - before) > EXTENSION_SHARE * before
        if not has_moved or self._extensions.get(index, 0) >= MAX_EXTENSIONS:
            return False
        self._extensions[index] = self._extensions.get(index, 0) + 1
        self._set_end(index, self._running.now_ns + EXTENSION_NS)
        return True

    def _theoretical_prices(self) -> Indices:
        value = self._market.statistic_values(k.S_THEORETICAL)
        return np.where(value[:, k.V_PRESENT] != 0, value[:, k.V_PRICE], 0)


STEPS = {
    s.START_WEEK: TradingSteps.start_week,
    s.STOP_WEEK: TradingSteps.stop_week,
    **{name: getattr(TradingSteps, name) for name in (*s.DAY_STEPS, *s.PHASE_STEPS)},
}
