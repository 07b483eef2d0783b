"""Statistics that are no part of a trade's event, for the bulk day and the live exchange alike.

    statistics = Statistics(market, flush)
    statistics.publish_start_of_day(indices)      limits, and what the previous day left
    statistics.on_trades(records)                 index values; `records` is what `take_records` gave
    statistics.advance(now_ns)                    volumes every 30 s, open interest every minute, indexes every 30 s
    statistics.publish_closing(indices)
    statistics.settle(PREVIEW), statistics.settle(FINAL)
    statistics.publish_again(indices)             after a channel reset

Each is a record of the journal and a value as last published, which snapshots and `publish_again` repeat.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from umdf.errors import UsageError
from umdf.exchange.bulk.settings import SECOND_NS
from umdf.exchange.instruments.instrument_types import InstrumentType, types_where
from umdf.exchange.instruments.journal_details import CompositePrice
from umdf.exchange.instruments.maturities import previous_business_day
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.market import BATCH_ROWS, Indices, Market, Records
from umdf.exchange.statistics.index_values import PRICE_UNIT, IndexUpdates, IndexValues
from umdf.exchange.statistics.price_limits import PublishedStatistic, price_limits
from umdf.exchange.statistics.settlement import (
    FINAL,
    PREVIEW,
    PREVIOUS_DAY,
    UPDATED,
    is_settled,
    previous_prices,
    settlement_code,
    settlement_prices,
)

__all__ = ["EXCHANGE_LAST", "FINAL", "PREVIEW", "UPDATED", "Statistics"]
EXCHANGE_LAST = 1 << 16  # 277=U
CLOSING, PRELIMINARY_CLOSING = 0, 3  # 286; the last is of indexes only
VOLUME_EVERY_NS, INTEREST_EVERY_NS, INDEX_EVERY_NS = 30 * SECOND_NS, 60 * SECOND_NS, 30 * SECOND_NS  # 12.1, 12.2, B7.3
EXERCISE, EX_PIT = "O", "X"  # 1500 (12.4)
VENUE_STATISTICS = {EXERCISE: k.S_EXERCISE_VOLUME, EX_PIT: k.S_EX_PIT_VOLUME}
NEVER = 1 << 62


class Statistics:
    def __init__(self, market: Market, flush: Callable[[], None]) -> None:
        """`flush` takes the journal when it is full."""
        self._market, self._flush, self._listing = market, flush, market.listing
        self._indexes = IndexValues(market.listing)
        self._next_volume = self._next_interest = self._next_index = 0

    # Start of the day

    def publish_start_of_day(self, indices: Indices) -> None:
        """Publish what the previous day left, and the limits of this one."""
        listing = self._listing
        price = self._market.instruments[:, k.I_PREVIOUS_CLOSE]
        closed = indices[listing.type[indices] != InstrumentType.INDICATOR]
        settled = indices[is_settled(listing)[indices]]
        held = indices[np.isin(listing.type[indices], types_where("has_open_interest"))]
        adjusted = np.where(np.isin(listing.type[closed], types_where("is_equity")) & (closed % 40 == 7), 1, 0)
        last_traded = previous_business_day(listing.trading_date)
        code, interest = settlement_code(FINAL, PREVIOUS_DAY), self._open_interest(held, 1_000 + held % 9_000)
        for published in (
            PublishedStatistic(
                k.S_PREVIOUS_CLOSING,
                k.CLOSING,
                closed,
                {"price": price[closed], "code": PREVIOUS_DAY, "other": adjusted, "aux": last_traded},
            ),
            PublishedStatistic(
                k.S_PREVIOUS_SETTLEMENT,
                k.SETTLEMENT,
                settled,
                {"price": previous_prices(self._market, settled), "code": code},
            ),
            PublishedStatistic(k.S_OPEN_INTEREST, k.OPEN_INTEREST, held, interest),
            *price_limits(listing, indices),
        ):
            self._publish(published)

    def _open_interest(self, indices: Indices, size: Indices) -> dict[str, Any]:
        """The price is sent for lending only (10.8)."""
        lending = self._listing.type[indices] == InstrumentType.LENDING
        price = self._market.instruments[indices, k.I_PREVIOUS_CLOSE]
        return {"size": size, "price": np.where(lending, price, k.NULL)}

    # During the session

    def on_trades(self, records: Records) -> None:
        """Publish the value of each index after each trade of an underlying, and the opening, high and low of these."""
        self._publish_index_values(self._indexes.on_trades(records))

    def advance(self, now_ns: int) -> None:
        """Publish what is due: what changed of volumes and open interest, and all index values."""
        if not self._next_volume:
            self._next_volume, self._next_interest = now_ns + VOLUME_EVERY_NS, now_ns + INTEREST_EVERY_NS
            self._next_index = now_ns + INDEX_EVERY_NS
        if now_ns >= self._next_volume:
            self._next_volume = now_ns + VOLUME_EVERY_NS
            self._publish_volumes()
        if now_ns >= self._next_interest:
            self._next_interest = now_ns + INTEREST_EVERY_NS
            self._publish_open_interest()
        if now_ns >= self._next_index:
            self._next_index = now_ns + INDEX_EVERY_NS
            self._publish_index_values(self._indexes.current())

    def _publish_volumes(self) -> None:
        """The volume of the session's own venue, of what has traded since the last time (12.1)."""
        table = self._market.instruments
        indices = self._traded_since_volume()
        volumes = {"size": table[indices, k.I_QUANTITY], "other": table[indices, k.I_TRADES]}
        volumes |= {"code": self._listing.venue[indices], "aux": table[indices, k.I_TURNOVER]}
        self._publish(PublishedStatistic(k.S_VOLUME, k.VOLUME, indices, volumes))
        table[indices, k.I_VOLUME_TRADES] = table[indices, k.I_TRADES]

    def _traded_since_volume(self) -> Indices:
        table = self._market.instruments
        return np.flatnonzero((table[:, k.I_TRADES] != table[:, k.I_VOLUME_TRADES]) & self._market.is_listed)

    def _publish_open_interest(self) -> None:
        """What trades changed of the open interest: contracts are opened and closed (12.2)."""
        values, traded = self._market.statistic_values(k.S_OPEN_INTEREST), self._traded_since_volume()
        indices = traded[values[traded, k.V_PRESENT] != 0]
        size = values[indices, k.V_SIZE] + self._market.instruments[indices, k.I_TRADES] % 7
        columns = self._open_interest(indices, size)
        self._publish(PublishedStatistic(k.S_OPEN_INTEREST, k.OPEN_INTEREST, indices, columns))

    def report_volume(self, symbol: str, venue: str, quantity: int, trades: int, turnover: int) -> None:
        """Publish the volume of another venue: O (exercise) or X (ex-pit); the turnover is in 1e-4 (12.4)."""
        columns = {"size": quantity, "other": trades, "aux": turnover, "code": ord(venue)}
        self._publish_one(VENUE_STATISTICS[venue], k.VOLUME, symbol, columns)

    def publish_volatility(self, symbol: str, short_price: int, long_price: int, delta: int) -> None:
        """Publish the prices of the short and the long future and the delta, all in 1e-9, during the call (10.11)."""
        columns = {"firm": short_price, "other": long_price, "aux": delta}
        self._publish_one(k.S_VOLATILITY, k.VOLATILITY, symbol, columns)

    def publish_composite(self, symbol: str) -> None:
        """Publish which prices of its underlyings the value of an index has (269=D)."""
        row = self._listing.index_of(symbol)
        index = next((index for index in self._indexes.indexes if index.row == row), None)
        if index is None:
            raise UsageError(f"{symbol} is no index", "name one, as IBOV")
        prices = tuple(
            CompositePrice(member, int(self._indexes.last[member]) * PRICE_UNIT) for member in index.members.tolist()
        )
        number = self._listing.details.add_composite(prices)
        self._publish_one(k.S_COMPOSITE, k.COMPOSITE, symbol, {"id": index.seq, "other": number})

    # Indexes

    def _publish_index_values(self, updates: IndexUpdates) -> None:
        table = self._market.instruments
        listed = table[updates.rows, k.I_STATE] != k.UNKNOWN
        rows, values, seqs = updates.rows[listed], updates.values[listed], updates.seqs[listed]
        if not len(rows):
            return
        last = table[rows, k.I_LAST]
        before = np.where(last == k.NULL, table[rows, k.I_PREVIOUS_CLOSE], last)
        # The value before each is that of the same index: the one before it here, or the last one published.
        order = np.argsort(rows, kind="stable")
        same = np.flatnonzero(rows[order][1:] == rows[order][:-1]) + 1
        before[order[same]] = values[order[same - 1]]
        change = values - table[rows, k.I_PREVIOUS_CLOSE]
        direction = np.where(values > before, ord("0"), np.where(values < before, ord("2"), k.NULL))
        columns = {"price": values, "id": seqs, "firm": direction, "aux": change}
        self._publish(PublishedStatistic(k.S_INDEX_VALUE, k.INDEX_VALUE, rows, columns))
        unique = np.unique(rows)
        table[rows, k.I_LAST] = values
        for row in unique.tolist():
            own = values[rows == row]
            self._publish_extremes(row, int(own[0]), int(own.min()), int(own.max()))

    def _publish_extremes(self, row: int, first: int, low: int, high: int) -> None:
        """Opening value, high and low of an index."""
        table, symbol = self._market.instruments, self._listing.instruments[row].symbol
        if not table[row, k.I_OPENED] & k.HAS_OPENING_PRICE:
            table[row, k.I_OPENED] |= k.HAS_OPENING_PRICE
            change = first - int(table[row, k.I_PREVIOUS_CLOSE])
            self._publish_one(k.S_OPENING, k.OPENING, symbol, {"price": first, "code": CLOSING, "aux": change})
        if table[row, k.I_HIGH] == k.NULL or high > table[row, k.I_HIGH]:
            table[row, k.I_HIGH] = high
            self._publish_one(k.S_HIGH, k.HIGH, symbol, {"price": high})
        if low < table[row, k.I_LOW]:
            table[row, k.I_LOW] = low
            self._publish_one(k.S_LOW, k.LOW, symbol, {"price": low})

    # End of the day

    def publish_closing(self, among: Indices) -> None:
        """Publish closing prices of those that have traded, and the last trade volumes; of indexes the preliminary
        close first (10.5)."""
        table = self._market.instruments
        indices = among[(table[among, k.I_LAST] != k.NULL) & self._market.is_listed[among]]
        indexes = indices[self._listing.type[indices] == InstrumentType.INDEX]
        for at, code in ((indexes, PRELIMINARY_CLOSING), (indices, CLOSING)):
            columns = {"price": table[at, k.I_LAST], "code": code}
            self._publish(PublishedStatistic(k.S_CLOSING, k.CLOSING, at, columns))
        self._publish_volumes()

    def settle(self, price_type: int, symbol: str | None = None, price: int | None = None) -> None:
        """Publish settlement prices: PREVIEW, FINAL, or UPDATED ones of the previous day (10.6); of one instrument,
        with a price of its own if that is given."""
        market = self._market
        indices = np.flatnonzero(is_settled(self._listing) & market.is_listed)
        if symbol is not None:
            indices = indices[indices == self._listing.index_of(symbol)]
            if not len(indices):
                raise UsageError(f"{symbol} has no settlement price", "name a derivative or an index (10.6)")
        if price_type == UPDATED:
            statistic, prices = k.S_PREVIOUS_SETTLEMENT, previous_prices(market, indices)
        else:
            statistic, prices = k.S_SETTLEMENT, settlement_prices(market, indices)
        columns = {"price": prices if price is None else price, "code": settlement_code(price_type)}
        self._publish(PublishedStatistic(statistic, k.SETTLEMENT, indices, columns))

    # Publishing

    def _publish_one(self, statistic: int, kind: int, symbol: str, columns: dict[str, Any]) -> None:
        index = np.array([self._listing.index_of(symbol)])
        self._publish(PublishedStatistic(statistic, kind, index, columns))

    def _publish(self, published: PublishedStatistic) -> None:
        """Publish a statistic of any number of instruments."""
        indices = published.indices
        for first in range(0, len(indices), BATCH_ROWS // 2):
            part = slice(first, first + BATCH_ROWS // 2)
            if self._market.rows + BATCH_ROWS // 2 > BATCH_ROWS:
                self._flush()
            columns = {name: values[part] if np.ndim(values) else values for name, values in published.columns.items()}
            self._market.publish_statistic(published.statistic, published.kind, indices[part], **columns)

    def publish_again(self, indices: Indices) -> None:
        """Publish everything again, as it was published last."""
        for statistic in range(k.STATISTICS):
            values = self._market.statistic_values(statistic)
            present = indices[values[indices, k.V_PRESENT] != 0]
            for first in range(0, len(present), BATCH_ROWS // 2):
                part = present[first : first + BATCH_ROWS // 2]
                self._flush()
                rows = values[part]
                kind = int(rows[0, k.V_KIND])
                code = rows[:, k.V_CODE] | EXCHANGE_LAST if kind == k.LAST_PRICE else rows[:, k.V_CODE]
                self._market.append_each(
                    kind,
                    part,
                    side=rows[:, k.V_SIDE],
                    price=rows[:, k.V_PRICE],
                    size=rows[:, k.V_SIZE],
                    id=rows[:, k.V_ID],
                    firm=rows[:, k.V_FIRM],
                    other=rows[:, k.V_OTHER],
                    code=code,
                    aux=rows[:, k.V_AUX],
                )
