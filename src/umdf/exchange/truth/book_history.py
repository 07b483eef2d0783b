"""What is true of any instrument at any sequence of a published channel: the journal, replayed slowly and plainly.

Give it to the publishers: each adds the records of the journal with the sequence by which its channel has sent them.
Books are kept as orders; those of price-depth and top-of-book channels follow from them by `levels`. Several channels
share the memory of the same records, and what exceeds the memory is kept in a file.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.matching import memory_layout_kernel as k

Records = NDArray[np.int64]
Numbers = NDArray[np.int64]
NOT_KEPT = (k.HEARTBEAT, k.EXECUTION_SUMMARY, k.NEWS)
CLEARS_STATISTICS = (k.CHANNEL_RESET,)
IS_STATISTIC = (
    k.OPENING, k.THEORETICAL, k.CLOSING, k.SETTLEMENT, k.HIGH, k.LOW, k.EXECUTION, k.VOLUME, k.OPEN_INTEREST,
    k.LAST_PRICE, k.IMBALANCE, k.PRICE_BAND, k.QUANTITY_BAND,
)  # fmt: skip
SHARED_BATCHES = 4  # newest batches whose records channels share


@dataclass
class BookOrder:
    order_id: int
    price: int | None  # 1e-9; None: a market order
    size: int
    firm: int | None


@dataclass(frozen=True)
class Level:
    price: int | None
    size: int
    orders: int


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
        elif kind == k.DELETE_THRU:
            side.clear()
        elif kind in (k.EMPTY_BOOK, k.CHANNEL_RESET) or (kind == k.DEFINITION and record[k.CODE] == ord("D")):
            self.clear()

    def levels(self, side: str, depth: int | None = None) -> list[Level]:
        """The prices of a side (B or A), the best first: what a price-depth book of a depth contains (9.3)."""
        found: list[Level] = []
        for order in self.bids if side == "B" else self.asks:
            if found and found[-1].price == order.price:
                found[-1] = Level(order.price, found[-1].size + order.size, found[-1].orders + 1)
            else:
                found.append(Level(order.price, order.size, 1))
        return found[:depth]


def _priority(order: BookOrder, is_bid: bool) -> tuple[bool, int, int]:
    """Market orders first, then by price, then by id (9.1)."""
    price = order.price or 0
    return order.price is not None, -price if is_bid else price, order.order_id


class _Spool:
    """Arrays in order; the older ones are in a file when there are too many for the memory."""

    def __init__(self, file: Path | None, max_bytes: int) -> None:
        self._file, self._max_bytes = file, max_bytes
        self._arrays: list[NDArray[np.int64]] = []
        self._first_in_memory = self._bytes = self._file_bytes = 0

    def append(self, array: NDArray[np.int64]) -> int:
        """Keep an array; its number."""
        self._arrays.append(array)
        self._bytes += array.nbytes
        if self._file is not None and self._bytes > self._max_bytes:
            self._spill(self._file)
        return len(self._arrays) - 1

    def _spill(self, file: Path) -> None:
        moved = self._arrays[self._first_in_memory :]
        with file.open("ab") as out:
            for array in moved:
                out.write(np.ascontiguousarray(array).tobytes())
        words = np.memmap(file, np.int64, "r", self._file_bytes, (self._bytes // 8,))
        at = 0
        for number, array in enumerate(moved, self._first_in_memory):
            self._arrays[number] = words[at : at + array.size].reshape(array.shape)
            at += array.size
        self._file_bytes, self._bytes, self._first_in_memory = self._file_bytes + self._bytes, 0, len(self._arrays)

    def __getitem__(self, number: int) -> NDArray[np.int64]:
        return self._arrays[number]


class BookHistory:
    """`directory`: where records go that exceed `max_bytes`; without one all are kept in memory."""

    def __init__(self, directory: Path | None = None, max_bytes: int = 256 << 20) -> None:
        self._records = _Spool(directory / "records.i64" if directory else None, max_bytes)
        self._sequences = _Spool(directory / "sequences.i64" if directory else None, max_bytes)
        # Of each channel: the epoch, and the numbers of records and sequences of each batch.
        self._batches: dict[tuple[str, int], list[tuple[int, int, int]]] = defaultdict(list)
        self._newest: dict[tuple[str, int], tuple[int, int]] = {}  # epoch and sequence
        self._shared: dict[int, tuple[Records, int, Numbers]] = {}
        self._lock = Lock()

    def add(
        self, protocol: str, channel: int, epoch: int, records: Records, source: Numbers, sequence: Numbers
    ) -> None:
        """Add records of the journal: the channel has sent records that come from the rows `source` (-1: from none) in
        the messages or packets `sequence` (-1: in none). A row that it did not send is true with the row before."""
        key = (protocol, channel)
        with self._lock:
            number, rows = self._keep(records)
            newest = self._newest.get(key, (epoch, 0))
            last = newest[1] if newest[0] == epoch else 0
            row_sequence = np.full(len(records), -1, np.int64)
            sent = (source >= 0) & (sequence >= 0)
            row_sequence[source[sent]] = sequence[sent]
            row_sequence = np.maximum.accumulate(np.append(last, row_sequence))
            self._newest[key] = epoch, int(row_sequence[-1])
            if len(rows):
                self._batches[key].append((epoch, number, self._sequences.append(row_sequence[1:][rows])))

    def _keep(self, records: Records) -> tuple[int, Numbers]:
        """The number of the kept records, and which rows they are; once for all channels."""
        if id(records) not in self._shared:
            rows = np.flatnonzero(~np.isin(records[:, k.KIND], NOT_KEPT))
            self._shared[id(records)] = records, self._records.append(records[rows]) if len(rows) else -1, rows
            if len(self._shared) > SHARED_BATCHES:
                del self._shared[next(iter(self._shared))]
        _, number, rows = self._shared[id(records)]
        return number, rows

    def book_at(
        self, protocol: str, instrument: int, sequence: int, channel: int | None = None, epoch: int | None = None
    ) -> Book:
        """The book of an instrument (its index in the listing) after a sequence of a channel: of the newest epoch, and
        the only channel of the protocol, if none is given."""
        book = Book()
        for record in self._records_of(protocol, instrument, sequence, channel, epoch):
            book.apply(record)
        return book

    def statistics_at(
        self, protocol: str, instrument: int, sequence: int, channel: int | None = None, epoch: int | None = None
    ) -> dict[tuple[int, int], list[int]]:
        """The newest record of each kind of statistic and CODE, those deleted left out."""
        found: dict[tuple[int, int], list[int]] = {}
        for record in self._records_of(protocol, instrument, sequence, channel, epoch):
            if record[k.KIND] in CLEARS_STATISTICS:
                found.clear()
            elif record[k.KIND] in IS_STATISTIC:
                key = record[k.KIND], record[k.CODE] & 0xFF if record[k.CODE] != k.NULL else 0
                found.pop(key, None)
                if not record[k.FLAGS] & k.DELETED:
                    found[key] = record
        return found

    def state_at(
        self, protocol: str, instrument: int, sequence: int, channel: int | None = None, epoch: int | None = None
    ) -> int | None:
        """The newest state (326) that was sent for the instrument itself."""
        state = None
        for record in self._records_of(protocol, instrument, sequence, channel, epoch):
            if record[k.KIND] == k.STATE:
                state = record[k.AUX]
        return state

    def last_sequence(self, protocol: str, channel: int) -> int:
        """The last sequence of the newest epoch that has changed something."""
        return self._newest[protocol, channel][1]

    def _records_of(
        self, protocol: str, instrument: int, sequence: int, channel: int | None, epoch: int | None
    ) -> list[list[int]]:
        """The records that concern an instrument, up to a sequence."""
        if channel is None:
            (channel,) = (number for name, number in self._batches if name == protocol)
        key = (protocol, channel)
        until = (self._newest[key][0] if epoch is None else epoch, sequence)
        found: list[list[int]] = []
        for batch_epoch, number, sequences_number in self._batches[key]:
            if batch_epoch > until[0]:
                break
            records = self._records[number]
            chosen = (records[:, k.INSTRUMENT] == instrument) | (records[:, k.KIND] == k.CHANNEL_RESET)
            if batch_epoch == until[0]:
                chosen &= self._sequences[sequences_number] <= sequence
            found += records[chosen].tolist()
        return found
