"""An instrument-day, order by order: rows of `mbo` applied to a reference book, checked against every row of `mbp_1`.

For formats that rebuild books from orders and cannot mark unverified data (LOBSTER, Nautilus). Invariant: a day that
cannot be rebuilt order by order from an empty book is an error, with the reason; nothing is guessed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute

from umdf.errors import UmdfError
from umdf.market.families import DELETE_FROM, LAST, MAYBE_BAD_BOOK, OVERLAY

pc: Any = pyarrow.compute  # its functions are created at run time

KEY = ("seq_version", "sequence", "msg_index", "entry_index")
MBO_COLUMNS = (
    *KEY, "ts_event", "ts_send", "ts_recv", "flags", "action", "side", "price", "size", "order_id", "position",
    "order_count", "update_action", "venue", "symbol",
)  # fmt: skip
TOP_COLUMNS = (*KEY, "ts_event", "ts_send", "ts_recv", "flags", "bid_px_00", "bid_sz_00", "ask_px_00", "ask_sz_00")
CHUNK_ROWS = 1 << 16
LENDING = "L"
SIDES = ("B", "A")
BOTH = "N"
MBP_HINT = "exclude this instrument, or export mbp_1 or mbp_10 with --format databento"


class UntrustedDataError(UmdfError):
    """A day with rows that may be wrong, or whose rows alone do not define the book."""


class Row(NamedTuple):
    """A row of `mbo`, and the expected best prices after it (None: unknown)."""

    key: tuple[int, ...]
    ts_event: int
    ts_recv: int
    flags: int
    action: str
    side: str
    price: int | None
    size: int | None
    order_id: int | None
    top: tuple[int | None, ...] | None

    @property
    def is_event_end(self) -> bool:
        return bool(self.flags & LAST)


class Order(NamedTuple):
    side: str
    price: int | None
    size: int


@dataclass
class Ladder:
    """One side: sizes by price, and the prices in order, the best first (as -price of bids)."""

    sign: int
    sizes: dict[int, int] = field(default_factory=dict)
    keys: list[int] = field(default_factory=list)

    def add(self, price: int, size: int) -> int:
        """Add a size (may be negative) at a price; returns the index of its level."""
        key, now = self.sign * price, self.sizes.get(price, 0) + size
        place = bisect_left(self.keys, key)
        if price not in self.sizes:
            insort(self.keys, key)
        if now:
            self.sizes[price] = now
        else:
            del self.sizes[price], self.keys[place]
        return place

    def best(self, count: int) -> list[tuple[int, int]]:
        return [(self.sign * key, self.sizes[self.sign * key]) for key in self.keys[:count]]


class OrderBook:
    """Orders by ID. Orders without a price (MOA, MOC) are kept, but are on no level."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.orders: dict[int, Order] = {}
        self.ladders = {"B": Ladder(-1), "A": Ladder(1)}

    def add(self, row: Row) -> Order:
        order_id = _required_order_id(row.order_id)
        if order_id in self.orders or row.side not in SIDES or not row.size or row.size < 0:
            raise self.inconsistency_error(row)
        return self._insert(order_id, Order(row.side, row.price, row.size))

    def find_order(self, row: Row) -> Order:
        found = self.orders.get(_required_order_id(row.order_id))
        if found is None or found.side != row.side:
            raise self.inconsistency_error(row)
        return found

    def modify(self, row: Row) -> tuple[Order, Order]:
        """Returns the order before and after the change."""
        before = self.find_order(row)
        if not row.size or row.size < 0:
            raise self.inconsistency_error(row)
        self._remove(_required_order_id(row.order_id), before)
        return before, self._insert(_required_order_id(row.order_id), Order(row.side, row.price, row.size))

    def delete(self, row: Row) -> Order:
        before = self.find_order(row)
        self._remove(_required_order_id(row.order_id), before)
        return before

    def clear(self, side: str) -> list[tuple[int, Order]]:
        """Remove one side or both; returns the orders."""
        gone = [(number, order) for number, order in self.orders.items() if side in (BOTH, order.side)]
        for number, order in gone:
            self._remove(number, order)
        return gone

    def _insert(self, order_id: int, order: Order) -> Order:
        self.orders[order_id] = order
        if order.price is not None:
            self.ladders[order.side].add(order.price, order.size)
        return order

    def _remove(self, order_id: int, order: Order) -> None:
        del self.orders[order_id]
        if order.price is not None:
            self.ladders[order.side].add(order.price, -order.size)

    def check_top(self, row: Row) -> None:
        """Raise if the best prices differ from the lake's."""
        if row.top is None:
            return
        for side, price, size in (("B", *row.top[:2]), ("A", *row.top[2:])):
            priceless = price is None and size is not None  # MOA and MOC orders come first
            best = self.ladders[side].best(1)
            if not priceless and (best[0] if best else (None, None)) != (price, size):
                raise self.inconsistency_error(row)

    def inconsistency_error(self, row: Row) -> UntrustedDataError:
        reason = f"{self.name}: the book cannot be rebuilt order by order from {_format_key(row.key)}"
        return UntrustedDataError(reason, MBP_HINT)


def merge_rows(name: str, mbo: pa.Table, tops: pa.Table) -> Iterator[Row]:
    """Rows of an instrument-day in wire order, including changes without a row of `mbo` (a channel reset).

    An event ends with the flag LAST, or, if that is missing, when the time changes (as in umdf.lake.books.levels).
    """
    before: Row | None = None
    for row in _merge_mbo_and_tops(name, mbo, tops):
        if before is not None:
            yield before if before.ts_event == row.ts_event else before._replace(flags=before.flags | LAST)
        before = row
    if before is not None:
        yield before._replace(flags=before.flags | LAST)


def _merge_mbo_and_tops(name: str, mbo: pa.Table, tops: pa.Table) -> Iterator[Row]:
    _reject_unverified(name, mbo)
    _reject_unverified(name, tops)
    _reject_non_order_books(name, mbo)
    top_rows = _tuples(tops, TOP_COLUMNS)
    following = next(top_rows, None)
    for row in _tuples(mbo, MBO_COLUMNS):
        key = row[:4]
        while following is not None and following[:4] != key and _is_before(following[:4], key):
            yield _row_from_top(name, following)
            following = next(top_rows, None)
        top = None
        if following is not None and following[:4] == key:
            top, following = following[8:12], next(top_rows, None)
        yield _make_row(row, top)
    while following is not None:
        yield _row_from_top(name, following)
        following = next(top_rows, None)


def _make_row(row: tuple[Any, ...], top: tuple[int | None, ...] | None) -> Row:
    ts_event = row[4] if row[4] is not None else row[5]
    return Row(row[:4], ts_event, row[6], row[7], *row[8:13], top=top)


def _is_before(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether a position comes first; positions of different epochs are not comparable."""
    return one[0] == other[0] and one[1:] < other[1:]


def _row_from_top(name: str, top_row: tuple[Any, ...]) -> Row:
    """A row of mbp_1 without a row of mbo: a reset emptied the book, or a snapshot filled it."""
    if any(value is not None for value in top_row[8:12]):
        reason = f"{name}: the book starts from a snapshot at {_format_key(top_row[:4])}, not from its orders"
        raise UntrustedDataError(reason, MBP_HINT)
    ts_event = top_row[4] if top_row[4] is not None else top_row[5]
    return Row(top_row[:4], ts_event, top_row[6], LAST, "R", BOTH, None, None, None, top_row[8:12])


def _tuples(rows: pa.Table, columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    rows = rows.select(list(columns))
    for first in range(0, rows.num_rows, CHUNK_ROWS):
        chunk = rows.slice(first, CHUNK_ROWS)
        yield from zip(*(column.to_pylist() for column in chunk.columns), strict=True)


def _reject_unverified(name: str, rows: pa.Table) -> None:
    flags = rows.column("flags")
    doubtful = pc.sum(pc.not_equal(pc.bit_wise_and(flags, pa.scalar(MAYBE_BAD_BOOK, flags.type)), 0)).as_py() or 0
    if doubtful:
        reason = f"{name}: {doubtful:,} rows may be wrong because of gaps, which this format cannot mark"
        raise UntrustedDataError(reason, "skip such instruments with --exclude-stale")


def _reject_non_order_books(name: str, mbo: pa.Table) -> None:
    """Books by position, by price and of lending have no order IDs."""
    of_order = pc.is_in(mbo.column("action"), pa.array(["A", "M", "C"]))
    other = pc.or_(pc.is_null(mbo.column("order_id")), pc.is_valid(mbo.column("order_count")))
    other = pc.or_(other, pc.fill_null(pc.greater(mbo.column("position"), 0), False))
    other = pc.and_(of_order, other)
    other = pc.or_(other, pc.fill_null(pc.equal(mbo.column("venue"), LENDING), False))
    partly = pc.is_in(mbo.column("update_action"), pa.array([DELETE_FROM, OVERLAY], mbo.column("update_action").type))
    if pc.any(pc.or_(other, partly)).as_py():
        hint = "export mbp_1 or mbp_10 with --format databento"
        raise UntrustedDataError(f"{name}: not an order-by-order book (by position, by price, or lending)", hint)


def _required_order_id(order_id: int | None) -> int:
    assert order_id is not None  # checked by _reject_non_order_books
    return order_id


def _format_key(key: tuple[int, ...]) -> str:
    return f"packet {key[1]}, message {key[2]}, entry {key[3]} (epoch {key[0]})"
