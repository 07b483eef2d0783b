"""Statistics that the trading day publishes: limits in the morning, volumes and open interest, settlement prices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from umdf.exchange.bulk.settings import SECOND_NS
from umdf.exchange.instruments.catalogue import FUTURE, OPTION, STOCK
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.market import BATCH_ROWS, Indices, Market

EXCHANGE_LAST = 1 << 16  # 277=U
PREVIOUS_DAY, TODAY, FINAL, PREVIEW = 4, 1, 1 << 8, 2 << 8  # 286 and 731
VOLUME_EVERY_NS, INTEREST_EVERY_NS = 30 * SECOND_NS, 60 * SECOND_NS  # 12.1, 12.2
# Price bands: 6939, 1306 and 37008 (10.9). Bands in percent are around the last traded or the theoretical price.
HARD_LIMITS, AUCTION_BAND, REJECTION_BAND, STATIC_LIMITS = 1, 2, 3, 4
PERCENT = 2 << k.BAND_LIMIT_TYPE
OF_LAST_PRICE, OF_THEORETICAL_PRICE = 1 << k.BAND_MIDPOINT, 3 << k.BAND_MIDPOINT
ONE_PERCENT = 1_000_000_000
# How wide the limits in prices are, in quarters of the range in which orders are.
HARD_WIDTH, STATIC_WIDTH, REJECTION_WIDTH = 8, 6, 5


class DailyStatistics:
    def __init__(self, market: Market, flush: Callable[[], None]) -> None:
        self._market, self._flush = market, flush
        self._next_volume = self._next_interest = 0

    def start(self) -> None:
        """Start the intervals of volumes and open interest."""
        now = self._market.now
        self._next_volume, self._next_interest = now + VOLUME_EVERY_NS, now + INTEREST_EVERY_NS

    def publish_limits(self, indices: Indices) -> None:
        """Publish what the previous day left, and the limits of this one."""
        market, listing = self._market, self._market.listing
        price = market.instruments[:, k.I_PREVIOUS_CLOSE]

        def of(*types: int) -> Indices:
            return indices[np.isin(listing.type[indices], types)]

        def limits(code: int, width: int, at: Indices) -> dict[str, Any]:
            ticks, half = listing.reference_ticks[at], listing.bound_ticks[at] * width // 4
            return {"code": code, "price": (ticks - half) * listing.tick[at], "aux": (ticks + half) * listing.tick[at]}

        def percent(code: int, width: int, at: Indices) -> dict[str, Any]:
            half = np.full(len(at), width * ONE_PERCENT)
            return {"code": code | PERCENT, "price": -half, "aux": half}

        stocks, derivatives, settled = of(STOCK), indices[~np.isin(indices, of(STOCK))], of(FUTURE, OPTION)
        for statistic, kind, part_indices, columns in (
            (k.S_PREVIOUS_CLOSING, k.CLOSING, indices, {"price": price[indices], "code": PREVIOUS_DAY}),
            (k.S_PREVIOUS_SETTLEMENT, k.SETTLEMENT, settled, {"price": price[settled], "code": PREVIOUS_DAY | FINAL}),
            (k.S_OPEN_INTEREST, k.OPEN_INTEREST, settled, {"size": 1_000 + settled % 9_000}),
            (k.S_HARD_LIMITS, k.PRICE_BAND, indices, limits(HARD_LIMITS, HARD_WIDTH, indices)),
            (k.S_STATIC_LIMITS, k.PRICE_BAND, settled, limits(STATIC_LIMITS, STATIC_WIDTH, settled)),
            (k.S_REJECTION_BAND, k.PRICE_BAND, stocks, limits(REJECTION_BAND, REJECTION_WIDTH, stocks)),
            (k.S_REJECTION_BAND, k.PRICE_BAND, derivatives, percent(REJECTION_BAND | OF_LAST_PRICE, 25, derivatives)),
            (k.S_AUCTION_BAND, k.PRICE_BAND, stocks, percent(AUCTION_BAND | OF_THEORETICAL_PRICE, 10, stocks)),
            (k.S_QUANTITY_BAND, k.QUANTITY_BAND, stocks, {"size": 100_000 + stocks, "other": 5_000_000}),
        ):
            self._publish(statistic, kind, part_indices, columns)

    def _publish(self, statistic: int, kind: int, indices: Indices, columns: dict[str, Any]) -> None:
        """Publish a statistic of any number of instruments."""
        for first in range(0, len(indices), BATCH_ROWS // 2):
            part = slice(first, first + BATCH_ROWS // 2)
            self._flush()
            part_columns = {name: values[part] if np.ndim(values) else values for name, values in columns.items()}
            self._market.publish_statistic(statistic, kind, indices[part], **part_columns)

    def publish_periodic(self) -> None:
        """Publish what changed: trade volume every 30 s, open interest every minute."""
        market, table = self._market, self._market.instruments
        traded = (table[:, k.I_TRADES] != table[:, k.I_VOLUME_TRADES]) & (table[:, k.I_STATE] != k.UNKNOWN)
        if market.now >= self._next_volume:
            self._next_volume = market.now + VOLUME_EVERY_NS
            indices = np.flatnonzero(traded)
            volumes = {"size": table[indices, k.I_QUANTITY], "other": table[indices, k.I_TRADES]}
            self._publish(k.S_VOLUME, k.VOLUME, indices, {**volumes, "aux": table[indices, k.I_TURNOVER]})
            table[indices, k.I_VOLUME_TRADES] = table[indices, k.I_TRADES]
        if market.now >= self._next_interest:
            self._next_interest = market.now + INTEREST_EVERY_NS
            is_open = traded & (market.statistic_values(k.S_OPEN_INTEREST)[:, k.V_PRESENT] != 0)
            indices = np.flatnonzero(is_open)
            size = market.statistic_values(k.S_OPEN_INTEREST)[indices, k.V_SIZE] + table[indices, k.I_TRADES] % 7
            self._publish(k.S_OPEN_INTEREST, k.OPEN_INTEREST, indices, {"size": size})

    def publish_closing(self, among: Indices) -> None:
        """Publish closing prices and the last trade volumes."""
        table = self._market.instruments
        indices = among[(table[among, k.I_LAST] != k.NULL) & self._market.is_listed[among]]
        self._publish(k.S_CLOSING, k.CLOSING, indices, {"price": table[indices, k.I_LAST], "code": 0})
        self._next_volume = 0
        self.publish_periodic()

    def settle(self, price_type: int) -> None:
        """Publish settlement prices, of 731 = `price_type`."""
        market, table = self._market, self._market.instruments
        indices = np.flatnonzero(np.isin(market.listing.type, (FUTURE, OPTION)) & market.is_listed)
        last = market.statistic_values(k.S_CLOSING)[indices]
        price = np.where(last[:, k.V_PRESENT] != 0, last[:, k.V_PRICE], table[indices, k.I_PREVIOUS_CLOSE])
        self._publish(k.S_SETTLEMENT, k.SETTLEMENT, indices, {"price": price, "code": TODAY | price_type})

    def publish_again(self, listed: Indices) -> None:
        """Publish everything again, as it was published last."""
        for statistic in range(k.STATISTICS):
            values = self._market.statistic_values(statistic)
            indices = listed[values[listed, k.V_PRESENT] != 0]
            for first in range(0, len(indices), BATCH_ROWS // 2):
                part_indices = indices[first : first + BATCH_ROWS // 2]
                self._flush()
                rows = values[part_indices]
                kind = int(rows[0, k.V_KIND])
                code = rows[:, k.V_CODE] | EXCHANGE_LAST if kind == k.LAST_PRICE else rows[:, k.V_CODE]
                self._market.append_each(
                    kind,
                    part_indices,
                    side=rows[:, k.V_SIDE],
                    price=rows[:, k.V_PRICE],
                    size=rows[:, k.V_SIZE],
                    id=rows[:, k.V_ID],
                    firm=rows[:, k.V_FIRM],
                    other=rows[:, k.V_OTHER],
                    code=code,
                    aux=rows[:, k.V_AUX],
                )
