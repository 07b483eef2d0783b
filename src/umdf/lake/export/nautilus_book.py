"""An instrument-day, order by order → Nautilus' OrderBookDelta.

Invariant: a book rebuilt from them equals the lake's after every event (flag LAST), and needs no earlier data: each day
and each window starts with a clear and the orders then in the book.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from umdf.lake.export.nautilus_instruments import nautilus_module
from umdf.lake.export.order_flow import BOTH, OrderBook, Row
from umdf.market.families import LAST, SNAPSHOT

UINT64_MASK = (1 << 64) - 1  # order IDs are unsigned on the wire
Change = tuple[str, str, int | None, int, int]  # action of `mbo`, side, price, size, order ID
Window = tuple[int | None, int | None]


class DeltaBuilder:
    """For one instrument-day. `left_out` counts the changes of orders without a price (MOA, MOC)."""

    def __init__(self, symbol: str, instrument_id: Any, precision: int, price_scale: int, size_scale: int) -> None:
        enums = nautilus_module("enums")
        sides, words = enums.OrderSide, enums.BookAction
        self.book, self.left_out = OrderBook(symbol), 0
        self._instrument_id, self._precision, self._price_factor, self._size_factor = (
            instrument_id,
            precision,
            price_scale,
            size_scale,
        )
        self._sides = {"B": sides.BUY, "A": sides.SELL, BOTH: sides.NO_ORDER_SIDE}
        self._actions = {"A": words.ADD, "M": words.UPDATE, "C": words.DELETE, "R": words.CLEAR}
        self._make = nautilus_module("data").OrderBookDelta.from_raw

    def events(self, rows: Iterable[Row], window: Window = (None, None)) -> Iterator[list[Any]]:
        """The deltas, by event; `window` refers to ts_recv."""
        low, high = window
        event: list[tuple[Change, int, Row, int]] = []
        ts_init, begun = 0, False
        for row in rows:
            if high is not None and row.ts_recv >= high:
                break
            inside = low is None or row.ts_recv >= low
            ts_init = max(ts_init, row.ts_recv)
            if inside and not begun:
                begun = True
                event += [(change, SNAPSHOT, row, ts_init) for change in _snapshot_changes(self.book)]
            changes = _changes(self.book, row)
            self.book.check_top(row)
            if inside:
                event += [(change, 0, row, ts_init) for change in changes if change[2] is not None]
                self.left_out += sum(change[2] is None for change in changes)
                if row.is_event_end and event:
                    yield self._build_event(event)
                    event = []
        if event:
            yield self._build_event(event)

    def _build_event(self, event: list[tuple[Change, int, Row, int]]) -> list[Any]:
        found = []
        for place, ((word, side, price, size, order_id), flags, row, ts_init) in enumerate(event, 1):
            flags |= LAST if place == len(event) else 0
            raw = (
                (price or 0) * self._price_factor,
                self._precision,
                size * self._size_factor,
                0,
                order_id & UINT64_MASK,
            )
            times = (row.key[1], row.ts_event, ts_init)
            found.append(self._make(self._instrument_id, self._actions[word], self._sides[side], *raw, flags, *times))
        return found


def _snapshot_changes(book: OrderBook) -> list[Change]:
    """A clear, and every order that has a price."""
    orders = [("A", order.side, order.price, order.size, number) for number, order in book.orders.items()]
    return [("R", BOTH, 0, 0, 0), *(order for order in orders if order[2] is not None)]


def _changes(book: OrderBook, row: Row) -> list[Change]:
    """Changes of a row to the orders that have a price: action, side, price, size, order ID."""
    number = row.order_id or 0
    if row.action == "A":
        order = book.add(row)
        return [("A", order.side, order.price, order.size, number)]
    if row.action == "M":
        before, after = book.modify(row)
        if before.price == after.price:
            return [("M", after.side, after.price, after.size, number)]
        # An update with another price would leave the order at its old level.
        return [
            ("C", before.side, before.price, before.size, number),
            ("A", after.side, after.price, after.size, number),
        ]
    if row.action == "C":
        order = book.delete(row)
        return [("C", order.side, order.price, order.size, number)]
    if row.action == "R" and row.side == BOTH:
        book.clear(BOTH)
        return [("R", BOTH, 0, 0, 0)]
    if row.action == "R":
        return [("C", order.side, order.price, order.size, gone) for gone, order in book.clear(row.side)]
    return []
