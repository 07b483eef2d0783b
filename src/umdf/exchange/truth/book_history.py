"""The book of any instrument at any sequence of a published channel: the journal, replayed into a plain book.

Give it to `write_capture`; it keeps what changed books, with the sequence in which each channel sent it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.matching import memory_layout_kernel as k

Records = NDArray[np.int64]
CHANGES_BOOKS = (k.ADD, k.CHANGE, k.DELETE, k.DELETE_FROM, k.DELETE_THRU, k.EMPTY_BOOK, k.CHANNEL_RESET, k.DEFINITION)


@dataclass
class BookOrder:
    order_id: int
    price: int | None  # 1e-9; None: a market order
    size: int
    firm: int | None


@dataclass
class Book:
    """Both sides, the best order first."""

    bids: list[BookOrder] = field(default_factory=list)
    asks: list[BookOrder] = field(default_factory=list)

    def clear(self) -> None:
        self.bids.clear()
        self.asks.clear()

    def apply(self, record: list[int]) -> None:
        kind, is_bid = record[k.KIND], record[k.SIDE] == k.BID
        side = self.bids if is_bid else self.asks
        if kind == k.ADD:
            price, firm = (None if record[column] == k.NULL else record[column] for column in (k.PRICE, k.FIRM))
            side.append(BookOrder(record[k.ID], price, record[k.SIZE], firm))
            side.sort(key=lambda order: _priority(order, is_bid))
        elif kind in (k.CHANGE, k.DELETE):
            (found,) = (order for order in side if order.order_id == record[k.ID])
            if kind == k.DELETE:
                side.remove(found)
            else:
                found.size = record[k.SIZE]
        elif kind == k.DELETE_FROM:
            del side[: record[k.POSITION]]
        elif kind == k.DELETE_THRU:
            side.clear()
        elif kind != k.DEFINITION or record[k.CODE] == ord("D"):  # Empty Book, channel reset, a deleted instrument
            self.clear()


def _priority(order: BookOrder, is_bid: bool) -> tuple[bool, int, int]:
    """Market orders first, then by price, then by id (9.1)."""
    price = order.price or 0
    return order.price is not None, -price if is_bid else price, order.order_id


class BookHistory:
    def __init__(self) -> None:
        self._batches: dict[str, list[tuple[NDArray[np.int64], Records]]] = defaultdict(list)

    def add(self, protocol: str, records: Records, sequences: NDArray[np.int64]) -> None:
        """Add records of the incremental stream, with the sequence of each."""
        chosen = np.isin(records[:, k.KIND], CHANGES_BOOKS)
        self._batches[protocol].append((sequences[chosen], records[chosen]))

    def book_at(self, protocol: str, instrument: int, sequence: int) -> Book:
        """The book of an instrument (its index in the listing) after a sequence of a protocol's channel."""
        book = Book()
        for sequences, records in self._batches[protocol]:
            concerns = (records[:, k.INSTRUMENT] == instrument) | (records[:, k.KIND] == k.CHANNEL_RESET)
            for record in records[concerns & (sequences <= sequence)].tolist():
                book.apply(record)
        return book
