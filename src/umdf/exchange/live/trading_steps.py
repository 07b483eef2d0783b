"""What the steps of the schedule do: phases of the markets, auctions and their extensions, the days and the week.

STEPS is the table: the name of a step, and the method that runs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from umdf.exchange.bulk.settings import SECOND_NS
from umdf.exchange.instruments.instrument_types import types_where
from umdf.exchange.live import schedule as s
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.market import Indices
from umdf.exchange.session.trading_session import AUCTIONS, PRE_CLOSE, SEPARATES
from umdf.exchange.statistics.statistics import EXCHANGE_LAST, FINAL

if TYPE_CHECKING:
    from umdf.exchange.live.running_market import RunningMarket

TYPES_OF_MARKET = {s.EQUITIES: types_where("is_equity")}  # all other types are derivatives
PERIOD_NS = 30 * SECOND_NS  # of trade volumes and of looks at the theoretical prices (12.1)
EXTENSION_NS, MAX_EXTENSIONS = 60 * SECOND_NS, 2
EXTENSION_SHARE = 0.01  # a theoretical price that moves more in the last period extends its auction
NEVER = 1 << 62


class TradingSteps:
    def __init__(self, running: RunningMarket) -> None:
        self._running = running
        self._market, self._session, self._listing = running.market, running.session, running.listing
        self.is_up = False  # from the start of a week to its end
        self._next_period = NEVER
        self._auction_ends: dict[int, int] = {}  # of instruments in an auction of their own: when it ends
        self._extensions: dict[int, int] = {}  # how often the auction of an instrument was extended
        self._theoretical = np.zeros(len(self._listing), np.int64)  # at the start of the last period; 0: none
        equities = set(self._session.groups_of(*TYPES_OF_MARKET[s.EQUITIES]))
        every = range(len(self._listing.groups))
        self._groups = {
            s.EQUITIES: [group for group in every if group in equities],
            s.DERIVATIVES: [group for group in every if group not in equities],
            "": list(every),
        }

    @property
    def is_trading(self) -> bool:
        """Whether any instrument takes orders."""
        return bool(np.isin(self._session.phases, (k.OPEN, *AUCTIONS)).any())

    @property
    def next_due_ns(self) -> int:
        return min(self._next_period, *self._auction_ends.values(), NEVER)

    def run_step(self, step: s.Step) -> None:
        STEPS[step.name](self, step.market)

    def run_due(self, now_ns: int) -> None:
        """End the auctions that are over, and publish the periodic statistics."""
        for index in [index for index, end_ns in self._auction_ends.items() if end_ns <= now_ns]:
            del self._auction_ends[index]
            if not self._extend(index):
                self._session.rejoin(index)
                self._extensions.pop(index, None)
        if now_ns >= self._next_period:
            self._next_period = now_ns + PERIOD_NS
            self._running.statistics.advance(now_ns)
            self._theoretical = self._theoretical_prices()

    # The week and its days

    def start_week(self, _: str) -> None:
        """Sunday 12:00: all numbering starts again, and the last price of each instrument is sent (277=U, 13.4)."""
        self.is_up, self._next_period = True, self._running.now_ns + PERIOD_NS
        self._market.instruments[:, k.I_WALK_TS] = self._running.now_ns
        if (self._session.phases == 0).all():
            self._session.change_phase(self._groups[""], k.CLOSE)
        price = self._market.instruments[:, k.I_PREVIOUS_CLOSE]
        listed = np.flatnonzero(self._market.is_listed & (price > 0))
        columns = {"price": price[listed], "size": self._listing.lot[listed]}
        self._market.publish_statistic(k.S_LAST, k.LAST_PRICE, listed, **columns, code=EXCHANGE_LAST)

    def stop_week(self, _: str) -> None:
        self.is_up, self._next_period = False, NEVER

    def morning(self, _: str) -> None:
        """Closing prices of the day before, limits, definitions."""
        listed = np.flatnonzero(self._market.is_listed)
        self._running.statistics.publish_start_of_day(listed)
        self._running.statistics.advance(self._running.now_ns)

    def settlement(self, _: str) -> None:
        self._running.statistics.settle(FINAL)

    def end_of_day(self, _: str) -> None:
        """Statistics are reset (1174=4); the closing price of today is that of the day before from now on."""
        for index in np.flatnonzero(self._market.instruments[:, k.I_EVENT] == SEPARATES).tolist():
            self._session.rejoin(index)
        table, closing = self._market.instruments, self._market.statistic_values(k.S_CLOSING)
        closed = closing[:, k.V_PRESENT] != 0
        table[closed, k.I_PREVIOUS_CLOSE] = closing[closed, k.V_PRICE]
        self._session.change_session(self._groups[""], k.CLOSE)

    # Phases of a market

    def pre_open(self, market: str) -> None:
        self._session.change_phase(self._groups[market], k.RESERVED)
        self._running.start_order_flow()

    def open(self, market: str) -> None:
        self._end_auctions(market, k.OPEN)

    def closing_call(self, market: str) -> None:
        self._session.change_phase(self._groups[market], k.FINAL_CLOSING_CALL)

    def pre_close(self, market: str) -> None:
        """The closing call ends with its trades; no orders from now on (18)."""
        self._end_auctions(market, PRE_CLOSE)

    def close(self, market: str) -> None:
        for index in [index for index in self._auction_ends if self._listing.group[index] in self._groups[market]]:
            del self._auction_ends[index]
            self._session.rejoin(index)
        self._end_auctions(market, k.CLOSE, may_extend=False)
        self._running.statistics.publish_closing(self._members(market))
        if "after_market_open" not in self._running.settings.timetable.phases.get(market, {}):
            self._expire_orders(market)

    def after_market_pre_open(self, market: str) -> None:
        self.pre_open(market)

    def after_market_open(self, market: str) -> None:
        self._end_auctions(market, k.OPEN, may_extend=False)

    def after_market_close(self, market: str) -> None:
        self._session.change_phase(self._groups[market], k.CLOSE)
        self._expire_orders(market)

    def _members(self, market: str) -> Indices:
        """The listed instruments of a market."""
        return np.flatnonzero(np.isin(self._listing.group, self._groups[market]) & self._market.is_listed)

    def _expire_orders(self, market: str) -> None:
        """The orders of the day leave the books."""
        for index in self._members(market).tolist():
            for side, column in ((k.BID, k.I_BIDS), (k.ASK, k.I_ASKS)):
                if self._market.instruments[index, column]:
                    self._market.append(k.DELETE_THRU, index, side=side)
                    self._market.instruments[index, column] = 0
            if self._market.rows > 10_000:
                self._running.flush()

    # Auctions

    def _end_auctions(self, market: str, phase: int, may_extend: bool = True) -> None:
        """End the auctions of a market's groups before they change their phase (11.1)."""
        for group in self._groups[market]:
            before = int(self._session.phases[group])
            if before in AUCTIONS:
                if may_extend:
                    for index in self._session.listed(group).tolist():
                        if not self._session.is_separated(index):
                            self._extend(index)
                self._session.end_auctions(group)
            self._session.change_phase([group], phase)

    def _extend(self, index: int) -> bool:
        """Extend an auction whose theoretical price has moved in the last period; whether it is."""
        price, before = int(self._theoretical_prices()[index]), int(self._theoretical[index])
        has_moved = before > 0 and price > 0 and abs(price - before) > EXTENSION_SHARE * before
        if not has_moved or self._extensions.get(index, 0) >= MAX_EXTENSIONS:
            return False
        end_ns = self._running.now_ns + EXTENSION_NS
        self._extensions[index] = self._extensions.get(index, 0) + 1
        self._auction_ends[index] = end_ns
        self._session.change_state(index, int(self._market.instruments[index, k.I_STATE]), SEPARATES, end_ns)
        return True

    def _theoretical_prices(self) -> Indices:
        value = self._market.statistic_values(k.S_THEORETICAL)
        return np.where(value[:, k.V_PRESENT] != 0, value[:, k.V_PRICE], 0)


STEPS = {
    s.START_WEEK: TradingSteps.start_week,
    s.STOP_WEEK: TradingSteps.stop_week,
    **{name: getattr(TradingSteps, name) for name in (*s.DAY_STEPS, *s.PHASE_STEPS)},
}
