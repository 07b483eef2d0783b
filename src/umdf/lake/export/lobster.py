"""An instrument-day as LOBSTER's two files: a message per change, and the book after each message.

Invariant: replaying the messages on an empty book gives the rows of the book file, line by line.

    message    time, type, order id, size, price, direction
    orderbook  ask price 1, ask size 1, bid price 1, bid size 1, ask price 2 …

Types: 1 new, 2 partial cancellation, 3 deletion, 4 execution, 5 execution of a hidden order, 6 a trade without an order
of the book (an auction, a cross), 7 change of the instrument's state.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute

from umdf.errors import UmdfError, UsageError
from umdf.lake.export.order_flow import (
    MBO_COLUMNS,
    TOP_COLUMNS,
    Ladder,
    Order,
    OrderBook,
    Row,
    UntrustedDataError,
    merge_rows,
)
from umdf.market.calendar import DAY_NS, transitions
from umdf.units import EPOCH, fix_decimal

if TYPE_CHECKING:
    from umdf.lake.export.job import ExportJob

pc: Any = pyarrow.compute  # its functions are created at run time

NEW, CANCEL, DELETE, EXECUTE, HIDDEN, CROSS, STATE = range(1, 8)
PRICE_UNIT = 10**5  # LOBSTER's prices are in 1e-4, ours in 1e-9
NO_ASK, NO_BID = 9_999_999_999, -9_999_999_999
DIRECTIONS = {"B": 1, "A": -1}
NO_ORDER_ID = 0  # order ID of no visible order
# 326 → price of a message of type 7: -1 halted, 0 quoting resumes, 1 trading resumes. Its direction is always -1.
STATE_PRICES = {2: -1, 4: -1, 18: -1, 21: 0, 17: 1, 101: 0}
MAX_LEVELS = 200
DAY_MS = 86_400_000
STATE_COLUMNS = ("ts_event", "ts_send", "state")
UINT64_MASK = (1 << 64) - 1  # order ids are unsigned on the wire


@dataclass(frozen=True)
class LobsterLine:
    """A message, and the book after it."""

    ts: int
    message: str
    book: str


@dataclass
class ConversionCounts:
    """Counts for an instrument-day."""

    messages: Counter[int] = field(default_factory=Counter)  # by type
    without_price: int = 0  # changes of orders without a price (MOA, MOC), which LOBSTER cannot represent


class LobsterConverter:
    """Converts rows into lines; one per instrument-day."""

    def __init__(self, symbol: str, day: date, levels: int, round_prices: bool = False) -> None:
        if not 1 <= levels <= MAX_LEVELS:
            raise UsageError(f"invalid --levels: {levels}", f"use 1 to {MAX_LEVELS}")
        self.symbol, self.day, self.round_prices = symbol, day, round_prices
        self.book = OrderBook(symbol)
        self.counts = ConversionCounts()
        self._sides = {"B": _SideText(-1, NO_BID, levels), "A": _SideText(1, NO_ASK, levels)}
        self._midnight = (day - EPOCH).days * DAY_NS
        self._transitions, self._offsets = (times.tolist() for times in transitions())

    def lines(self, rows: Iterable[Row], states: Iterable[tuple[int, int]] = ()) -> Iterator[LobsterLine]:
        """`states`: times and 326 of the instrument's own state, in order."""
        changes = iter(states)
        change = next(changes, None)
        for event in _events(rows):
            while change is not None and change[0] <= event[0].ts_event:
                yield from self._state_lines(*change)
                change = next(changes, None)
            yield from self._event_lines(event)
        while change is not None:
            yield from self._state_lines(*change)
            change = next(changes, None)

    def _event_lines(self, rows: list[Row]) -> Iterator[LobsterLine]:
        trades = [row for row in rows if row.action == "T" and row.size]
        reduced = _reduced_sides(rows, self.book) if trades else set()
        auction = len(reduced) != 1
        traded: dict[int | None, int] = defaultdict(int)
        for row in trades:
            if auction:
                yield self._line(row, CROSS, NO_ORDER_ID, row.size or 0, self._price(row.price), -1)
            else:
                traded[row.price] += row.size or 0
        for row in rows:
            if row.action in CHANGE_HANDLERS:
                yield from CHANGE_HANDLERS[row.action](self, row, traded)
            self.book.check_top(row)
        for price, left in traded.items():
            if left:  # more was traded than the orders show: the hidden part of an iceberg
                yield self._line(rows[-1], HIDDEN, NO_ORDER_ID, left, self._price(price), DIRECTIONS[min(reduced)])

    def _add(self, row: Row, _: dict[int | None, int]) -> Iterator[LobsterLine]:
        order = self.book.add(row)
        yield from self._new_order_lines(row, order)

    def _modify(self, row: Row, traded: dict[int | None, int]) -> Iterator[LobsterLine]:
        before, after = self.book.modify(row)
        if before.price == after.price and after.size <= before.size:
            yield from self._reduction_lines(row, before, before.size - after.size, CANCEL, traded)
        else:
            yield from self._reduction_lines(row, before, before.size, DELETE, {})
            yield from self._new_order_lines(row, after)

    def _cancel(self, row: Row, traded: dict[int | None, int]) -> Iterator[LobsterLine]:
        before = self.book.delete(row)
        yield from self._reduction_lines(row, before, before.size, DELETE, traded)

    def _clear(self, row: Row, _: dict[int | None, int]) -> Iterator[LobsterLine]:
        for order_id, order in self.book.clear(row.side):
            yield from self._reduction_lines(row._replace(order_id=order_id), order, order.size, DELETE, {})

    def _new_order_lines(self, row: Row, order: Order) -> Iterator[LobsterLine]:
        if order.price is None:
            self.counts.without_price += 1
            return
        price = self._price(order.price)
        self._sides[order.side].add(price, order.size)
        yield self._line(row, NEW, row.order_id, order.size, price, DIRECTIONS[order.side])

    def _reduction_lines(
        self, row: Row, order: Order, size: int, remaining_type: int, traded: dict[int | None, int]
    ) -> Iterator[LobsterLine]:
        """An order is reduced by `size`: what was traded at its price is an execution, the rest a cancellation."""
        if order.price is None:
            self.counts.without_price += 1
            return
        price, direction = self._price(order.price), DIRECTIONS[order.side]
        executed = min(size, traded.get(order.price, 0))
        for kind, part in ((EXECUTE, executed), (remaining_type, size - executed)):
            if part:
                self._sides[order.side].add(price, -part)
                yield self._line(row, kind, row.order_id, part, price, direction)
        if executed:
            traded[order.price] -= executed

    def _state_lines(self, ts: int, state: int) -> Iterator[LobsterLine]:
        if state in STATE_PRICES:
            self.counts.messages[STATE] += 1
            yield LobsterLine(ts, f"{self._time(ts)},{STATE},0,0,{STATE_PRICES[state]},-1\n", self._book_text())

    def _price(self, price: int | None) -> int:
        if price is None:
            raise UmdfError(
                f"{self.symbol}: trade without a price, which LOBSTER cannot represent", "exclude this instrument"
            )
        if price % PRICE_UNIT and not self.round_prices:
            reason = f"{self.symbol}: price {fix_decimal(price, -9)} is not a multiple of 0.0001"
            raise UmdfError(reason, "round prices with --round-prices")
        return (price + PRICE_UNIT // 2) // PRICE_UNIT

    def _line(self, row: Row, kind: int, order_id: int | None, size: int, price: int, direction: int) -> LobsterLine:
        self.counts.messages[kind] += 1
        text = (
            f"{self._time(row.ts_event)},{kind},{(order_id or NO_ORDER_ID) & UINT64_MASK},{size},{price},{direction}\n"
        )
        return LobsterLine(row.ts_event, text, self._book_text())

    def _since_midnight_ns(self, ts: int) -> int:
        return ts + self._offsets[bisect_right(self._transitions, ts)] - self._midnight

    def _time(self, ts: int) -> str:
        """Seconds after midnight in São Paulo, with nanoseconds."""
        since = self._since_midnight_ns(ts)
        sign, since = ("-", -since) if since < 0 else ("", since)
        return f"{sign}{since // 10**9}.{since % 10**9:09}"

    def milliseconds(self, ts: int) -> int:
        """Milliseconds after midnight in São Paulo, limited to the day."""
        return min(max(0, self._since_midnight_ns(ts) // 10**6), DAY_MS)

    def _book_text(self) -> str:
        asks, bids = self._sides["A"].texts(), self._sides["B"].texts()
        return ",".join(f"{ask},{bid}" for ask, bid in zip(asks, bids, strict=True)) + "\n"


CHANGE_HANDLERS = {
    "A": LobsterConverter._add,
    "M": LobsterConverter._modify,
    "C": LobsterConverter._cancel,
    "R": LobsterConverter._clear,
}


class _SideText:
    """The best levels of a side as text, rebuilt only when one of them changes."""

    def __init__(self, sign: int, nothing: int, levels: int) -> None:
        self._ladder, self._levels = Ladder(sign), levels
        self._empty = f"{nothing},0"
        self._texts: list[str] | None = None

    def add(self, price: int, size: int) -> None:
        if self._ladder.add(price, size) < self._levels:
            self._texts = None

    def texts(self) -> list[str]:
        if self._texts is None:
            shown = [f"{price},{size}" for price, size in self._ladder.best(self._levels)]
            self._texts = shown + [self._empty] * (self._levels - len(shown))
        return self._texts


def _events(rows: Iterable[Row]) -> Iterator[list[Row]]:
    event: list[Row] = []
    for row in rows:
        event.append(row)
        if row.is_event_end:
            yield event
            event = []
    if event:
        yield event


def _reduced_sides(rows: Iterable[Row], book: OrderBook) -> set[str]:
    """Sides with orders that are reduced in an event: one side in a trade, both in an auction."""
    reduced = set()
    for row in rows:
        known = book.orders.get(row.order_id) if row.order_id is not None else None
        if row.action == "C" or (row.action == "M" and known and row.size and row.size < known.size):
            reduced.add(row.side)
    return reduced


def write(job: ExportJob) -> None:
    """Two files per instrument-day. A time window is cut out of the whole day, with the book at its start."""
    for instrument_day in job.instrument_days():
        mbo = instrument_day.read_single_channel("mbo", MBO_COLUMNS, whole_day=True)
        if not mbo.num_rows:
            continue
        tops, states = (
            instrument_day.read_single_channel("mbp_1", TOP_COLUMNS, whole_day=True),
            instrument_day.read("status", STATE_COLUMNS, True),
        )
        converter = LobsterConverter(
            instrument_day.name, instrument_day.day.date, job.options.levels, job.options.round_prices
        )
        low, high = instrument_day.day.window
        begin, end = (None if at is None else converter.milliseconds(at) for at in (low, high))
        names = file_names(
            instrument_day.instrument.file_name, instrument_day.day.date, begin or 0, end or DAY_MS, job.options.levels
        )
        paths = [job.new_file(name) for name in names]
        try:
            lines = converter.lines(merge_rows(instrument_day.name, mbo, tops), _state_changes(states))
            count = _write(paths, lines, low, high)
        except UntrustedDataError as error:
            for path in paths:
                path.unlink(missing_ok=True)
            job.skip_instrument(instrument_day, error)
            continue
        job.count("messages", count)
        job.count_left_out("changes of orders without price", converter.counts.without_price)


def _write(paths: list[Path], lines: Iterable[LobsterLine], low: int | None, high: int | None) -> int:
    count = 0
    with paths[0].open("w") as messages, paths[1].open("w") as books:
        for line in lines:
            if (low is None or line.ts >= low) and (high is None or line.ts < high):
                messages.write(line.message)
                books.write(line.book)
                count += 1
    if not count:
        for path in paths:
            path.unlink()
    return count


def _state_changes(rows: pa.Table) -> list[tuple[int, int]]:
    times = pc.coalesce(rows.column("ts_event"), rows.column("ts_send")).to_pylist()
    pairs = zip(times, rows.column("state").to_pylist(), strict=True)
    return [(ts, state) for ts, state in pairs if ts is not None and state is not None]


def file_names(instrument: str, day: date, start_ms: int, end_ms: int, levels: int) -> tuple[str, str]:
    """As LOBSTER names them: AAPL_2012-06-21_34200000_57600000_message_10.csv."""
    stem = f"{instrument}_{day}_{start_ms}_{end_ms}"
    return f"{stem}_message_{levels}.csv", f"{stem}_orderbook_{levels}.csv"
