"""The exchange's own books at any sequence of a channel, one record of its journal after the other."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.market import Market
from umdf.exchange.publish.channel_settings import MBO
from umdf.exchange.publish.publisher import Publisher
from umdf.exchange.truth.book_history import Book, BookHistory
from umdf.exchange.truth.tables import final_orders
from umdf.market.families import NULL

EVERY = -1  # row of the listing
Row = tuple[str, int, int, int]  # side, price, size, and the order or the number of orders


class TrueBooks:
    """Positions only grow."""

    def __init__(self, publisher: Publisher, history: BookHistory) -> None:
        self._publisher, self._history = publisher, history
        self._key = publisher.protocol, publisher.settings.channel
        self._batch = self._row = 0
        self._books: dict[int, Book] = {}

    def advance(self, epoch: int, sequence: int) -> set[int]:
        """Apply everything up to a sequence; the rows of the listing that may have changed, or EVERY."""
        batches, changed = self._history._batches[self._key], set[int]()
        while self._batch < len(batches) and batches[self._batch][0] <= epoch:
            batch_epoch, records_number, sequences_number = batches[self._batch]
            records, sequences = self._history._records[records_number], self._history._sequences[sequences_number]
            end = len(records)
            if batch_epoch == epoch:
                end = int(sequences.searchsorted(sequence, side="right"))
            for record in records[self._row : end].tolist():
                changed.add(self._apply(record))
            self._row = max(end, self._row)
            if self._row < len(records):
                break
            self._batch, self._row = self._batch + 1, 0
        return {row for row in changed if row >= EVERY}

    def _apply(self, record: list[int]) -> int:
        if record[k.KIND] == k.CHANNEL_RESET:
            for book in self._books.values():
                book.apply(record)
            return EVERY
        instrument = record[k.INSTRUMENT]
        if instrument >= 0 and self._publisher.is_member[instrument]:
            self._books.setdefault(instrument, Book()).apply(record)
        return instrument

    def rows(self, instrument: int) -> list[Row]:
        """Bids first, the best first."""
        book, settings = self._books.get(instrument, Book()), self._publisher.settings
        if settings.book_type == MBO:
            return [
                (side, NULL if order.price is None else order.price, order.size, order.order_id)
                for side, orders in (("B", book.bids), ("A", book.asks))
                for order in orders
            ]
        return [
            (side, NULL if level.price is None else level.price, level.size, level.orders)
            for side in "BA"
            for level in book.levels(side, settings.depth or 1)
        ]


class EndBooks:
    """The exchange's books as they are now, of a channel with orders: nothing is kept."""

    def __init__(self, publisher: Publisher, market: Market) -> None:
        assert publisher.settings.book_type == MBO
        self._market = market

    def rows(self, instrument: int) -> list[Row]:
        """Bids first, the best first."""
        orders, own = final_orders(self._market), int(self._market.instruments[instrument, k.I_ID])
        chosen = np.flatnonzero(orders["instrument_id"] == own)
        names = "side", "price", "size", "order_id"
        side, price, size, number = (pa.array(orders[name]).take(pa.array(chosen)).to_pylist() for name in names)
        rows = zip(side, (NULL if each is None else each for each in price), size, number, strict=True)
        return sorted(rows, key=lambda row: row[0] == "A")
