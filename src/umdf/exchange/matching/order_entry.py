"""Orders from Python into the matching engine: enter, amend, cancel, and the states and auctions around them.

    engine = MatchingEngine(listing, settings, start_ns)
    engine.set_state("PETR4", OPEN)
    order = engine.enter("PETR4", BID, 32_450_000_000, 500, firm=3, ts_ns=now)

Prices are in 1e-9, None is a market order (auctions only). What happened is in the journal: `take_records`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from umdf.errors import UsageError
from umdf.exchange.bulk.settings import BulkSettings
from umdf.exchange.instruments.listing import Listing
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching import order_entry_kernel as o
from umdf.exchange.matching.market import Market, Records

BID, ASK = 0, 1
REFUSALS = {
    o.SIDE_FULL: ("the side of the book is full", "cancel orders first"),
    o.NOT_ALLOWED: ("the state of the instrument does not allow it", "market orders need an auction, others also OPEN"),
    o.UNKNOWN_ORDER: ("there is no such order in the book", "it was traded or cancelled, or has a new id"),
}


@dataclass(frozen=True)
class RestingOrder:
    """An order in the book: an amendment that loses its priority gives it a new id."""

    order_id: int
    instrument: int
    side: int
    key: int  # price in ticks, higher is better on both sides


class MatchingEngine:
    def __init__(self, listing: Listing, settings: BulkSettings, start_ns: int) -> None:
        self.market = self._market = Market(listing, settings)
        self._listing = listing
        self._index = {instrument.symbol: index for index, instrument in enumerate(listing.instruments)}
        self._orders: dict[int, RestingOrder] = {}
        self._taken: list[Records] = []
        self._seen_rows = 0
        self._market.start(start_ns)
        self._market.table[k.POSITION_GENERATION] = 0  # each deleted order is a record
        self._market.instruments[:, k.I_STATE] = k.CLOSE

    @property
    def orders(self) -> dict[int, RestingOrder]:
        return self._orders

    def set_state(self, symbol: str, state: int) -> None:
        """Change the state of an instrument; an auction that it leaves is uncrossed first (11.1)."""
        index = self._index_of(symbol)
        row = self._market.instruments[index]
        if row[k.I_STATE] in (k.RESERVED, k.FINAL_CLOSING_CALL) and row[k.I_STATE] != state:
            self._market.uncross_one(index, self._flush)
        self._market.append(k.STATE, index, aux=state)
        row[k.I_STATE] = state
        self._follow_journal()

    def enter(self, symbol: str, side: int, price: int | None, size: int, firm: int, ts_ns: int) -> RestingOrder | None:
        """Enter an order; what rests of it, None if nothing does."""
        index = self._index_of(symbol)
        if size <= 0:
            raise UsageError(f"invalid size: {size}", "use a positive one")
        key = self._key(index, side, price)
        return self._result(lambda: o.enter(self._table, index, side, key, size, firm, ts_ns))

    def amend(self, order_id: int, price: int | None, size: int, ts_ns: int) -> RestingOrder | None:
        """Change the price and the size of an order; what rests of it."""
        if size <= 0:
            raise UsageError(f"invalid size: {size}", "cancel the order instead")
        order = self._order(order_id)
        key = self._key(order.instrument, order.side, price)
        arguments = (order.instrument, order.side, order.key, order_id, key, size, ts_ns)
        return self._result(lambda: o.amend(self._table, *arguments))

    def cancel(self, order_id: int, ts_ns: int) -> int:
        """Cancel an order; its size."""
        order = self._order(order_id)
        arguments = (order.instrument, order.side, order.key, order_id, ts_ns)
        return self._call(lambda: o.cancel(self._table, *arguments))

    def take_records(self) -> Records:
        """The journal since the last call."""
        self._flush()
        records = np.concatenate([np.zeros((0, k.RECORD_COLUMNS), np.int64), *self._taken])
        self._taken.clear()
        return records

    @property
    def _table(self) -> int:
        return self._market.table.ctypes.data

    def _call(self, kernel: Callable[[], int]) -> int:
        result = int(kernel())
        if result == o.JOURNAL_FULL:
            self._flush()
            result = int(kernel())
        if result in REFUSALS:
            raise UsageError(*REFUSALS[result])
        self._follow_journal()
        return result

    def _result(self, kernel: Callable[[], int]) -> RestingOrder | None:
        return self._orders.get(self._call(kernel))

    def _follow_journal(self) -> None:
        """Take over which orders rest now."""
        for record in self._market.records_so_far()[self._seen_rows :].tolist():
            if record[k.KIND] == k.ADD:
                index, side = record[k.INSTRUMENT], BID if record[k.SIDE] == k.BID else ASK
                price = None if record[k.PRICE] == k.NULL else record[k.PRICE]
                self._orders[record[k.ID]] = RestingOrder(record[k.ID], index, side, self._key(index, side, price))
            elif record[k.KIND] == k.DELETE:
                del self._orders[record[k.ID]]
        self._seen_rows = self._market.rows

    def _flush(self) -> None:
        self._follow_journal()
        self._taken.append(self._market.take_records())
        self._seen_rows = 0

    def _index_of(self, symbol: str) -> int:
        if symbol not in self._index:
            raise UsageError(f"unknown instrument: {symbol}", "use a symbol of the listing")
        return self._index[symbol]

    def _order(self, order_id: int) -> RestingOrder:
        if order_id not in self._orders:
            raise UsageError(f"unknown order: {order_id}", REFUSALS[o.UNKNOWN_ORDER][1])
        return self._orders[order_id]

    def _key(self, index: int, side: int, price: int | None) -> int:
        if price is None:
            return k.MARKET_ORDER_KEY
        ticks, rest = divmod(price, int(self._listing.tick[index]))
        if rest:
            raise UsageError(f"price is not on a tick: {price}", f"use a multiple of {int(self._listing.tick[index])}")
        return ticks if side == BID else -ticks
