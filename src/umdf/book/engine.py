"""All books of one channel.

    books = Books()
    outcomes = books.apply(events.rows("mbo"))          # what each row came to
    outcomes, top = books.apply_top(rows)               # and a row for every change of the best prices
    books.book(instrument_id).bids                      # levels and orders, for people

Whatever the rows say, nothing is raised and nothing is repaired: an impossible row does nothing, and its book is stale
until a snapshot, an Empty Book or a channel reset.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from umdf.book import tables_kernel as k
from umdf.book.apply_kernel import maintain
from umdf.book.ladders import Ladders, row_type
from umdf.book.memory import Arenas
from umdf.book.outcomes import Outcomes, Stale
from umdf.book.row_kernel import point_at
from umdf.book.rows_kernel import apply_with_depth, apply_with_ends, apply_with_top
from umdf.book.state import OF_BOOK, OF_ENTRY, State, columns_of
from umdf.book.state_kernel import (
    count_entries,
    count_every,
    drop_book,
    list_entries,
    list_every,
    make_book,
    make_books,
    number_of,
    read_every,
    say_depth,
)
from umdf.book.views import ENTRY, Book
from umdf.buffers import Memory, Pool, address_of
from umdf.market.events import MBO, NULL
from umdf.market.rows import Rows

COLUMNS = (
    "action side price size order_id firm prev_size position order_count ts_insert stream update_action "
    "instrument_id rpt_seq flags"
).split()
_TYPES = [MBO.column(name).dtype for name in COLUMNS]
PER = {"event": apply_with_depth, "end": apply_with_ends}
SMALLEST_OUT = 256  # rows


class Books:
    """The books of one channel, empty at first. Not for several threads at once.

    `from_the_start` says that a book whose first update is not RptSeq 1 has a past that is not known: it is stale.
    """

    def __init__(
        self, *, from_the_start: bool = False, orders: int = 1 << 12, levels: int = 1 << 10, books: int = 1 << 6
    ) -> None:
        self.arenas = Arenas(orders, levels, books)
        self._table, self._words = self.arenas.table, self.arenas.words
        self._table[k.FIRST_RPT_SEQ] = 0 if from_the_start else NULL
        self._outcomes, self._out = Pool(), Pool()

    def apply(self, rows: Rows) -> Outcomes:
        """Apply rows of the family mbo."""
        self._words[k.DEPTH] = 0
        return self._run(rows, maintain)[0]

    def apply_top(self, rows: Rows, per: str = "event") -> tuple[Outcomes, Ladders]:
        """Apply rows; a row for every change of the best prices, `per` "event" row or "end" of event (flag LAST)."""
        return self.apply_depth(rows, 1, per)

    def apply_depth(self, rows: Rows, depth: int, per: str = "event") -> tuple[Outcomes, Ladders]:
        """Apply rows; a row for every change of the best `depth` levels."""
        kind, run = row_type(depth), apply_with_top if (depth, per) == (1, "event") else PER[per]
        self.arenas.reserve_ladders(depth, per)
        outcomes, out = self._run(rows, run, kind)
        assert out is not None
        return outcomes, Ladders(depth, np.frombuffer(out.array, kind, self._words[k.OUT_ROWS]))

    def _run(
        self, rows: Rows, run: Callable[[int], int], kind: np.dtype[np.void] | None = None
    ) -> tuple[Outcomes, Memory | None]:
        """What the rows came to, and the memory of the rows of `kind` that they made, if that is asked for."""
        words, arenas, count = self._words, self.arenas, len(rows)
        codes, first_row = self._outcomes.take(count), words[k.ROW_BASE]
        out = None if kind is None else self._take_out(kind, SMALLEST_OUT + count + arenas.book_capacity)
        words[k.FIRST], words[k.ROWS], words[k.OUTCOMES], words[k.OUT_ROWS] = 0, count, codes.address, 0
        kept = self._point_at(rows)
        while (reached := run(arenas.address)) != count:
            words[k.FIRST] = reached
            if words[k.FULL] == k.NO_OUT:
                assert kind is not None and out is not None
                used = words[k.OUT_ROWS] * kind.itemsize
                wider = self._take_out(kind, 2 * words[k.OUT_CAPACITY] + arenas.book_capacity)
                wider.array[:used] = out.array[:used]
                out = wider
                continue
            arenas.grow()
        del kept
        words[k.ROW_BASE] = first_row + count
        return Outcomes(codes.array[:count].view(np.int8), first_row), out

    def _take_out(self, kind: np.dtype[np.void], rows: int) -> Memory:
        memory = self._out.take(kind.itemsize * rows)
        self._words[k.OUT], self._words[k.OUT_CAPACITY] = memory.address, memory.nbytes // kind.itemsize
        return memory

    def _point_at(self, rows: Rows) -> list[NDArray[np.generic]]:
        """Have the table name the columns of some rows; returns those that have to be kept meanwhile."""
        given = [rows.columns.get(name) for name in COLUMNS]
        plain = [c is not None and c.dtype is kind and c.flags.carray for c, kind in zip(given, _TYPES, strict=True)]
        if all(plain) and point_at(self.arenas.address, *given):
            return []
        columns = [np.ascontiguousarray(rows.column(name), kind) for name, kind in zip(COLUMNS, _TYPES, strict=True)]
        assert all(len(column) == len(rows) for column in columns)
        self._table[k.COLUMNS : k.COLUMNS + len(COLUMNS)] = [address_of(column) for column in columns]
        return columns

    @property
    def rows_applied(self) -> int:
        """How many rows have come so far: the number of the next one."""
        return self._words[k.ROW_BASE]

    @property
    def order_count(self) -> int:
        """Living orders, of all books."""
        return self.arenas.order_capacity - self._words[k.ORDER_ROOM]

    @property
    def order_room(self) -> int:
        """How many more orders there is memory for."""
        return self._words[k.ORDER_ROOM]

    @property
    def order_bytes(self) -> int:
        """The memory of orders and of their hash."""
        return self.arenas.order_bytes

    def instruments(self) -> list[tuple[int, bool]]:
        """(instrument_id, lending) of every book."""
        headers = self.arenas.headers
        alive = headers[headers["alive"] != 0]
        return [(int(b["instrument_id"]), bool(b["lending"])) for b in alive]

    def book(self, instrument_id: int, *, lending: bool = False) -> Book | None:
        """A book as it is now; None if nothing was ever said about it."""
        number = number_of(self.arenas.address, instrument_id, int(lending))
        return None if number < 0 else self._book(number)

    def _book(self, number: int) -> Book:
        header, entries = self.arenas.headers[number], self._entries(number)
        kind, rpt_seq = int(header["kind"]), int(header["rpt_seq"])
        stale = Stale(*(int(header[name]) for name in ("stale", "row", "got", "had")))
        return Book(
            int(header["instrument_id"]),
            bool(header["lending"]),
            None if rpt_seq == NULL else rpt_seq,
            int(header["depth"]) if kind & k.AGGREGATED else None,
            bool(kind & k.BY_POSITION),
            stale if stale.reason else None,
            entries,
        )

    def _entries(self, number: int) -> NDArray[np.void]:
        entries = np.empty(count_entries(self.arenas.address, number), ENTRY)
        list_entries(self.arenas.address, number, address_of(entries))
        return entries

    def set_depth(self, instrument_id: int, depth: int, *, lending: bool = False) -> None:
        """What a snapshot (264) or a definition says: levels of a price-depth book, 0 for a book of orders."""
        say_depth(self.arenas.address, self._number(instrument_id, lending), depth)

    def mark_stale(self, instrument_id: int, reason: int = k.LOST, *, lending: bool = False) -> None:
        """Somebody else knows that a book cannot be right."""
        header = self.arenas.headers[self._number(instrument_id, lending)]
        if not header["stale"]:
            header["stale"], header["row"], header["got"], header["had"] = reason, self.rows_applied, NULL, NULL
            header["dirty"] |= k.STALE_TOO

    def delete(self, instrument_id: int, *, lending: bool = False) -> bool:
        """The instrument is gone, and its book with it; returns whether there was one."""
        number = number_of(self.arenas.address, instrument_id, int(lending))
        if number < 0:
            return False
        drop_book(self.arenas.address, number)
        self.arenas.forget_book(number)
        return True

    def contents(self) -> tuple[NDArray[np.void], NDArray[np.int64], NDArray[np.void]]:
        """The header of every book, how many entries each has, and the entries, one book after the other."""
        headers = self.arenas.headers
        numbers = np.flatnonzero(headers["alive"])
        counts = np.empty(len(numbers), np.int64)
        about = self.arenas.address, address_of(numbers), len(numbers), address_of(counts)
        entries = np.empty(count_every(*about), ENTRY)
        list_every(*about, address_of(entries))
        return headers[numbers], counts, entries

    def state(self) -> State:
        """Everything, to be stored."""
        headers, counts, entries = self.contents()
        numbers, pending = np.flatnonzero(self.arenas.headers["alive"]), self.arenas.pending
        books = columns_of(headers, OF_BOOK)
        books["dirty"] &= k.DIRTY_SIDES
        books["entry_count"], books["pending"] = counts, np.zeros(len(counts), np.int64)
        books["pending"][np.searchsorted(numbers, pending)] = np.arange(len(pending)) + 1
        return State(self.rows_applied, books, columns_of(entries, OF_ENTRY))

    @classmethod
    def from_state(cls, state: State, *, from_the_start: bool = False) -> Books:
        """Books that go on where others stopped."""
        stored, counts = state.books, state.books["entry_count"].astype(np.int64)
        entries = np.zeros(int(counts.sum()), ENTRY)
        for name in OF_ENTRY:
            entries[name] = state.entries[name]
        room = {"orders": len(entries) + 1, "levels": len(entries) + 1, "books": len(counts) + 1}
        books = cls(from_the_start=from_the_start, **room)
        arenas, numbers = books.arenas, np.empty(len(counts), np.int64)
        books._table[k.ROW_BASE] = state.rows_applied
        known = [np.ascontiguousarray(stored[name], np.int64) for name in ("instrument_id", "lending")]
        made, about = 0, tuple(map(address_of, known))
        while (made := make_books(arenas.address, *about, made, len(counts), address_of(numbers))) < len(counts):
            arenas.grow()
        headers = arenas.headers
        for name in OF_BOOK:
            headers[name][numbers] = stored[name]
        dirty = headers["dirty"][numbers] & k.DIRTY_SIDES
        headers["dirty"][numbers] = dirty | np.where(headers["stale"][numbers] != 0, k.STALE_TOO, 0)
        starts, done = np.cumsum(counts) - counts, 0
        places = tuple(map(address_of, (starts, counts, entries)))
        while (done := read_every(arenas.address, address_of(numbers), done, len(counts), *places)) < len(counts):
            arenas.grow()
        queue = np.argsort(stored["pending"], kind="stable")
        arenas.pending = queue[stored["pending"][queue] > 0]
        return books

    def _number(self, instrument_id: int, lending: bool) -> int:
        while (number := make_book(self.arenas.address, instrument_id, int(lending))) < 0:
            self.arenas.grow()
        return number
