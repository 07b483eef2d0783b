"""The matching engine for Python: orders, trades, states, auctions, and the journal of what happened.

    engine = MatchingEngine(listing, settings, start_ns)
    engine.set_state("PETR4", OPEN, ts_ns=now)
    result = engine.enter("PETR4", BID, 32_450_000_000, 500, firm=3, ts_ns=now)
    engine.cancel(result.order_id, now)

Prices are in 1e-9. What is refused is a UsageError, and nothing has changed. A record is never older than the one
before it, whatever `ts_ns` says. An order keeps answering to every id that it has had (13.4: a refill, and a change
that loses its priority, give it a new one).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

import numpy as np

from umdf.errors import UsageError, did_you_mean
from umdf.exchange.bulk.settings import SECOND_NS, BulkSettings
from umdf.exchange.instruments.listing import Listing
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching import order_entry_kernel as entry
from umdf.exchange.matching import order_removal_kernel as removal
from umdf.exchange.matching import request_layout_kernel as q
from umdf.exchange.matching import trade_entry
from umdf.exchange.matching.auction_price_kernel import R_IMBALANCE, R_TICKS, R_VOLUME
from umdf.exchange.matching.implied_orders_kernel import derive_implied
from umdf.exchange.matching.market import Market, Records
from umdf.exchange.matching.order_index_kernel import INDEX_ENTRY_BYTES, MAX_WAITING, WAITING_BYTES, rebuild_index
from umdf.exchange.matching.order_requests_kernel import process_requests
from umdf.exchange.matching.orders import (
    ASK,
    BAND_STATISTICS,
    BID,
    DAY,
    LIMIT,
    REQUEST,
    RESULT,
    EntryResult,
    OrderBook,
    Requests,
    Results,
    Theoretical,
    last_day_of,
    read_side,
    refusal_error,
)  # fmt: skip
from umdf.exchange.matching.session_trades import SessionTrades
from umdf.exchange.matching.trade_entry_kernel import cross, enter_trade
from umdf.units import fix_decimal

INDEX_ENTRIES = 1 << 16
AUCTION_NS = 300 * SECOND_NS  # of an auction that a price band starts
AUCTIONS = (k.RESERVED, k.FINAL_CLOSING_CALL)
EXCHANGE_LAST = 1 << 16  # 277=U


class MatchingEngine:
    def __init__(self, listing: Listing, settings: BulkSettings, start_ns: int, auction_ns: int = AUCTION_NS) -> None:
        self.market, self.trades, self._listing = Market(listing, settings), SessionTrades(), listing
        self._taken: list[Records] = []
        self._indices: dict[str, int] = {}
        self._waiting = np.zeros(MAX_WAITING * WAITING_BYTES // 8, np.int64)
        self._index = np.zeros((0, INDEX_ENTRY_BYTES // 8), np.int64)
        self._request, self._result = np.zeros(1, REQUEST), np.zeros(1, RESULT)
        self._request_row = self._request.view(np.int64)
        self._result_row = self._result.view(np.int64)
        self._addresses = self._request.ctypes.data, self._result.ctypes.data
        self._table = self.market.table.ctypes.data
        table = self.market.table
        table[k.AUCTION_NS] = auction_ns
        table[k.WAITING], table[k.WAITING_CAPACITY] = self._waiting.ctypes.data, MAX_WAITING
        table[k.INDEX_MASK] = -1
        self._grow_index()
        self.market.start(start_ns)
        self.market.instruments[:, k.I_STATE] = k.CLOSE

    # Orders

    def enter(
        self,
        symbol: str,
        side: int,
        price: int | None,
        size: int,
        *,
        firm: int,
        ts_ns: int,
        order_type: int = LIMIT,
        time_in_force: str = DAY,
        expire_date: int | None = None,
        display_size: int | None = None,
        stp_id: int | None = None,
    ) -> EntryResult:
        """Enter an order. It is matched if the instrument is Open; what may rest does so, a market-on-close order until
        the closing call. Orders of one `stp_id` never trade with each other: the newer one is cancelled or refused."""
        last_day = k.DAY if time_in_force == DAY and expire_date is None else last_day_of(time_in_force, expire_date)
        self._request_row[:] = (
            q.ENTER, self.index_of(symbol), side, k.NULL if price is None else price, size, firm, order_type, last_day,
            display_size or 0, stp_id or 0, 0, ts_ns,
        )  # fmt: skip
        return self._process()

    def amend(self, order_id: int, *, price: int | None = None, size: int | None = None, ts_ns: int) -> EntryResult:
        """Change an order; None leaves the price or the size as it is. Less of it keeps its priority and its id."""
        self._request_row[:] = (
            q.AMEND, 0, 0, k.NULL if price is None else price, k.NULL if size is None else size, 0, 0, 0, 0, 0,
            order_id, ts_ns,
        )  # fmt: skip
        return self._process()

    def cancel(self, order_id: int, ts_ns: int) -> int:
        """Cancel an order; its quantity, the hidden one too."""
        self._request_row[:] = q.CANCEL, 0, 0, 0, 0, 0, 0, 0, 0, 0, order_id, ts_ns
        return self._process().cancelled

    def enter_many(self, requests: Requests) -> Results:
        """Process many requests (of type REQUEST: entries, amendments, cancels) in one call. A refused one has its
        code (`request_layout_kernel`) in the result; the others are processed."""
        requests = np.array(requests, REQUEST)
        results = np.zeros(len(requests), RESULT)
        self._run(requests.ctypes.data, results.ctypes.data, len(requests))
        return results

    def mass_cancel(self, *, firm: int | None = None, symbol: str | None = None, ts_ns: int) -> int:
        """Cancel the orders of a firm, of an instrument, of both, or all, where the state allows it; their quantity."""
        if symbol is not None and self.market.instruments[self.index_of(symbol), k.I_SYNCHRONISM]:
            raise refusal_error(self.market, q.SYNCHRONISM, {"instrument": self.index_of(symbol)})
        return self._delete(firm, symbol, removal.ANY_DAY, False, ts_ns)

    def clear_book(self, symbol: str, ts_ns: int) -> int:
        """Delete all orders of an instrument, in any state; their quantity."""
        return self._delete(None, symbol, removal.ANY_DAY, True, ts_ns)

    def expire_orders(self, ts_ns: int, date: int, symbol: str | None = None) -> int:
        """Delete the orders that end with a day (days since 1970): those for the day, and by their date; the quantity.
        Orders that are good till cancelled stay."""
        return self._delete(None, symbol, max(date, k.DAY), True, ts_ns)

    def restate_orders(self, ts_ns: int, symbols: Iterable[str] | None = None, *, new_ids: bool = False) -> None:
        """Empty books and send their orders as new with the time of their entry (37016, 37017): in the morning, or
        with new ids after a migration to another segment (9.1)."""
        indices = range(len(self._listing)) if symbols is None else [self.index_of(symbol) for symbol in symbols]
        for index in indices:
            while removal.restate_orders(self._table, index, index + 1, int(new_ids), self._time(ts_ns)) == index:
                self._make_space()

    # Trades

    def cross(self, symbol: str, price: int, size: int, *, buyer: int, seller: int, ts_ns: int) -> int:
        """A trade on which two parties have agreed (277=X), inside the spread; its id."""
        arguments = {"symbol": symbol, "price": price, "size": size}
        return self._trade(cross, arguments, (price, size, buyer, seller, ts_ns))

    def enter_on_behalf(
        self,
        symbol: str,
        price: int,
        size: int,
        *,
        buyer: int,
        seller: int,
        ts_ns: int,
        conditions: Iterable[str] = ("2",),
    ) -> int:
        """A trade that the marketplace enters; its id. `conditions` as in 277: 2, 3, X, RL, RF, MP, PT, TC, TA, SW."""
        arguments = {"symbol": symbol, "price": price, "size": size}
        bits = trade_entry.condition_bits(conditions)
        return self._trade(enter_trade, arguments, (price, size, buyer, seller, bits, ts_ns))

    def bust(self, symbol: str, trade_id: int, ts_ns: int) -> None:
        """Bust a trade of the session."""
        index = self._settle_trades(symbol)
        trade = self.trades.find(index, trade_id)
        trade_entry.bust_trade(self.market, self.trades, index, trade, self._time(ts_ns))
        self._refresh_theoretical(index)

    def amend_trade(self, symbol: str, trade_id: int, *, price: int, size: int, ts_ns: int) -> int:
        """Enter a trade instead of another, which is busted; its id."""
        index = self._settle_trades(symbol)
        trade = self.trades.find(index, trade_id)
        trade_id = trade_entry.amend_trade(self.market, self.trades, index, trade, price, size, self._time(ts_ns))
        self._refresh_theoretical(index)
        return trade_id

    def publish_exchange_last(self, ts_ns: int) -> None:
        """Publish the last trades of the session before (277=U), as at the start of a week (13.4)."""
        price, size = self.market.last_trades
        indices = np.flatnonzero((price != k.NULL) & self.market.is_listed)
        for index in indices.tolist():
            self._reserve_rows()
            self.market.publish_statistic(
                k.S_LAST, k.LAST_PRICE, np.array([index]), spacing_ns=self._spacing(ts_ns), price=int(price[index]),
                size=int(size[index]), code=EXCHANGE_LAST,
            )  # fmt: skip

    def start_session(self) -> None:
        """Forget the trades of the session before; `Market.clear_session` resets its statistics."""
        self._flush()
        self.trades.clear()

    # States and auctions

    def set_state(
        self, symbol: str, state: int, event: int | None = None, ts_ns: int = 0, opens_at_ns: int | None = None
    ) -> None:
        """Change the state of an instrument. An auction trades before it ends (11.1), in Open nothing can be crossed.

        `event` (1174) is by default whether the state is that of the group.
        """
        index = self.index_of(symbol)
        row = self.market.instruments[index]
        if event is None:
            event = k.REJOINS if row[k.I_PHASE] == state else k.SEPARATES
        ends_auction = row[k.I_STATE] == k.FINAL_CLOSING_CALL and state not in (*AUCTIONS, k.PAUSE)
        if state == k.OPEN or ends_auction or (row[k.I_STATE] in AUCTIONS and state == k.CLOSE):
            self.uncross(symbol, ts_ns)
        if state != k.OPEN:
            self.market.withdraw_implied(np.array([index]), self._flush)
        self._reserve_rows()
        opens_at = k.NULL if opens_at_ns is None else opens_at_ns
        self.market.append(k.STATE, index, spacing_ns=self._spacing(ts_ns), aux=state, code=event, insert=opens_at)
        row[k.I_STATE], row[k.I_EVENT], row[k.I_STATE_TS] = state, event, self.market.now
        self._refresh_theoretical(index)
        self.market.derive_implied(np.array([index]), self._flush)
        if state == k.FINAL_CLOSING_CALL:
            self.trigger_market_on_close(ts_ns)

    def uncross(self, symbol: str, ts_ns: int) -> None:
        """End the auction of an instrument: its trades, and the deletion of orders that have no price."""
        index = self.index_of(symbol)
        while not entry.uncross_instrument(self._table, index, self._time(ts_ns)):
            self._make_space()

    def trigger_market_on_close(self, ts_ns: int) -> int:
        """Add the market-on-close orders of all instruments in the closing call to their books (11.2); the quantity
        that is cancelled instead, by self-trade prevention or as the side is full."""
        self.market.table[k.CANCELLED], first = 0, 0
        while (first := int(entry.trigger_waiting(self._table, first, self._time(ts_ns)))) >= 0:
            self._make_space()
        return int(self.market.table[k.CANCELLED])

    def theoretical(self, symbol: str) -> Theoretical | None:
        """What an auction would trade now."""
        index = self.index_of(symbol)
        entry.store_theoretical(self._table, index)
        result = self.market.table[k.AUCTION_RESULT : k.AUCTION_RESULT + 3].tolist()
        if result[R_VOLUME] == 0:
            return None
        tick = int(self.market.instruments[index, k.I_TICK])
        return Theoretical(result[R_TICKS] * tick, result[R_VOLUME], result[R_IMBALANCE])

    def set_band(
        self, symbol: str, kind: str, low: int, high: int, *, ts_ns: int = 0, percent_of: int | None = None
    ) -> None:
        """Publish a price band (hard, auction, rejection, static), in prices, or in 1e-9 percent of a price (37008: 0
        the last, 2 the theoretical); or with `kind` "quantity" the daily average and the largest size."""
        index, columns = np.array([self.index_of(symbol)]), {"spacing_ns": self._spacing(ts_ns)}
        self._reserve_rows()
        if low > high and kind != "quantity":
            limits = f"{fix_decimal(low, -9)} > {fix_decimal(high, -9)}"
            raise UsageError(f"the low limit is above the high one: {limits}", "exchange them")
        if kind == "quantity":
            self.market.publish_statistic(k.S_QUANTITY_BAND, k.QUANTITY_BAND, index, size=low, other=high, **columns)
            return
        if kind not in BAND_STATISTICS:
            raise UsageError(f"unknown band: {kind}", f"use {', '.join(BAND_STATISTICS)} or quantity")
        statistic, code = BAND_STATISTICS[kind]
        if percent_of is not None:
            code |= 2 << k.BAND_LIMIT_TYPE | percent_of + 1 << k.BAND_MIDPOINT
        self.market.publish_statistic(statistic, k.PRICE_BAND, index, code=code, price=low, aux=high, **columns)

    # The books and the journal

    def book(self, symbol: str) -> OrderBook:
        """The book of an instrument now."""
        index = self.index_of(symbol)
        return OrderBook(read_side(self.market, index, BID), read_side(self.market, index, ASK))

    def run_order_flow(self, until_ns: int, rows: int) -> None:
        """Generate orders and trades: about `rows` more records, not beyond a time."""
        self.market.run_order_flow(rows, until_ns)

    def take_records(self) -> Records:
        """The journal since the last call."""
        if self.market.rows or not self._taken:
            self._flush()
        records = self._taken[0] if len(self._taken) == 1 else np.concatenate(self._taken)
        self._taken.clear()
        return records

    def index_of(self, symbol: str) -> int:
        """The index of an instrument in the listing."""
        index = self._indices.get(symbol)
        instruments, states = self._listing.instruments, self.market.instruments[:, k.I_STATE]
        if index is None or states[index] == k.UNKNOWN or instruments[index].symbol != symbol:
            # A symbol that was deleted may be listed again, in another row.
            is_listed = self.market.is_listed
            self._indices = {each.symbol: row for row, each in enumerate(instruments) if is_listed[row]}
            index = self._indices.get(symbol)
        if index is None:
            close = difflib.get_close_matches(symbol, self._indices, 1)
            raise UsageError(
                f"unknown instrument: {symbol}", did_you_mean(close) if close else "use a symbol of the listing"
            )
        return index

    # Implementation

    def _process(self) -> EntryResult:
        """Process the one request."""
        self._run(*self._addresses, 1)
        order_id, refusal, traded, cancelled, started_auction = self._result_row.tolist()
        if refusal == 0:
            return EntryResult(order_id or None, traded, cancelled, started_auction != 0)
        values = dict(zip(REQUEST.names or (), self._request_row.tolist(), strict=True))
        if values["order_id"]:
            values["instrument"] = int(self.market.table[k.FOUND_BOOK_SIDE]) >> 1
        raise refusal_error(self.market, refusal, values)

    def _run(self, requests: int, results: int, count: int) -> None:
        done = 0
        while (done := process_requests(self._table, requests, results, done, count)) < count:
            self._make_space()
        self._derive_implied()

    def _derive_implied(self) -> None:
        """Derive the implied orders for which the journal had no space (14)."""
        while self.market.table[k.IMPLIED_QUEUE_COUNT] and derive_implied(self._table):
            self._make_space()

    def _trade(self, kernel: Any, values: dict[str, Any], arguments: tuple[int, ...]) -> int:
        index = self.index_of(values["symbol"])
        self._reserve_rows()
        trade_id = int(kernel(self._table, index, *arguments))
        if trade_id < 0:
            raise refusal_error(self.market, trade_id, {**values, "instrument": index})
        self._refresh_theoretical(index)
        return trade_id

    def _refresh_theoretical(self, index: int) -> None:
        """Publish the theoretical price of an auction if the last price has changed it."""
        entry.refresh_theoretical(self._table, index, self.market.now)

    def _settle_trades(self, symbol: str) -> int:
        """The index of an instrument whose trades are all known; what the order flow would bust is busted now."""
        index = self.index_of(symbol)
        self._reserve_rows()
        self.market.bust_pending_of(index)
        self._flush()
        return index

    def _delete(self, firm: int | None, symbol: str | None, last_day: int, in_any_state: bool, ts_ns: int) -> int:
        first = 0 if symbol is None else self.index_of(symbol)
        stop = len(self._listing) if symbol is None else first + 1
        which = (removal.ANY_FIRM if firm is None else firm, last_day, int(in_any_state))
        self.market.table[k.CANCELLED] = 0
        removal.delete_waiting(self._table, first, stop, *which)
        while (first := int(removal.delete_orders(self._table, first, stop, *which, self._time(ts_ns)))) < stop:
            self._make_space()
        self._derive_implied()
        return int(self.market.table[k.CANCELLED])

    def _time(self, ts_ns: int) -> int:
        return max(ts_ns, self.market.now)

    def _spacing(self, ts_ns: int) -> int:
        return max(ts_ns - self.market.now, 0)

    def _reserve_rows(self) -> None:
        """Make space for an event of the journal."""
        if self.market.is_full:
            self._flush()

    def _make_space(self) -> None:
        """Make space in the journal, and in the index if it is that which is full."""
        if self.market.is_full:
            self._flush()
        else:
            self._grow_index()

    def _flush(self) -> None:
        records = self.market.take_records()
        self.trades.follow(records)
        self._taken.append(records)

    def _grow_index(self) -> None:
        """Move what still exists to another index, of twice the size if that is much."""
        entries = max(len(self._index), INDEX_ENTRIES, 4 * self.market.margin)
        while True:
            entries = 1 << (entries - 1).bit_length()
            index = np.zeros((entries, INDEX_ENTRY_BYTES // 8), np.int64)
            kept = int(rebuild_index(self._table, index.ctypes.data, entries - 1))
            self._index = index
            if kept + self.market.margin < entries // 2:
                return
            entries *= 2
