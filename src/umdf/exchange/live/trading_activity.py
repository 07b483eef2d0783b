"""How busy the order flow is in the course of a day: most after the open and before the close, least at midday, and
hardly at all after the market. Prices move as much as their instruments trade."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from umdf.exchange.bulk.settings import SECOND_NS
from umdf.exchange.live import schedule as s
from umdf.exchange.matching import memory_layout_kernel as k

if TYPE_CHECKING:
    from umdf.exchange.live.running_market import RunningMarket

EVERY_NS = 60 * SECOND_NS
# The share of the mean flow: a parabola over the day whose mean is 1, and after the market.
MIDDAY, PEAK, AFTER_MARKET = 0.7, 1.6, 0.03


class TradingActivity:
    """The flow runs at PEAK all day; the instruments of a market skip what is too much."""

    def __init__(self, running: RunningMarket) -> None:
        self._running, self._next_ns = running, 0

    def follow(self, now_ns: int) -> None:
        """Set what the instruments skip, every minute and when a phase changes."""
        if now_ns >= self._next_ns:
            self.update(now_ns)

    def update(self, now_ns: int) -> None:
        self._next_ns = now_ns + EVERY_NS
        listing, table = self._running.listing, self._running.market.instruments
        share = np.ones(len(listing.groups))
        for market in s.MARKETS:
            share[self._running.trading.groups_of_market(market)] = self._share(market, now_ns)
        share[self._running.session.is_after_market] = AFTER_MARKET
        of_instrument = share[listing.group]
        count = len(of_instrument)
        table[:count, k.I_SKIPPED] = np.round(k.ALL_ARRIVALS * (1 - of_instrument / PEAK))
        table[:count, k.I_VOLATILITY] = listing.volatility[:count] * np.sqrt(of_instrument)

    def _share(self, market: str, now_ns: int) -> float:
        """1 before the open, in the opening auction, and where a market has no schedule."""
        times = self._running.settings.timetable.phases.get(market)
        if times is None:
            return 1.0
        day = s.local_datetime(now_ns).date()
        opens_ns, closes_ns = (s.local_ns(day, s.time_of("", times[name])) for name in ("open", "close"))
        if not opens_ns <= now_ns <= closes_ns:
            return 1.0
        from_midday = 2 * (now_ns - opens_ns) / (closes_ns - opens_ns) - 1
        return MIDDAY + (PEAK - MIDDAY) * from_midday**2
