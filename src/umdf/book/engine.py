"""All books of one channel.

    books = Books()
    outcomes = books.apply(events.rows("mbo"))          # the outcome of each row
    outcomes, top = books.apply_top(rows)               # and a row for every change of the best prices
    books.book(instrument_id).bids                      # levels and orders, for people

Whatever the rows say, nothing is raised and nothing is repaired: an impossible row does nothing, and its book is stale
until a snapshot, an Empty Book or a channel reset.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from umdf.book import memory_layout_kernel as k
from umdf.book.apply_kernel import apply_without_ladders
from umdf.book.arenas import Arenas
from umdf.book.input_row_kernel import set_columns
from umdf.book.ladder_rows_kernel import apply_with_depth, apply_with_depth_at_event_end, apply_with_top
from umdf.book.ladders import Ladders, ladder_dtype
from umdf.book.outcomes import REMOVED_DTYPE, Outcomes, Stale
from umdf.book.state import BOOK_COLUMNS, ENTRY_COLUMNS, BooksState, record_columns
from umdf.book.state_kernel import (
    book_number,
    count_all_entries,
    count_entries,
    declare_depth,
    delete_book,
    ensure_book,
    ensure_books,
    load_all_entries,
    write_all_entries,
    write_entries,
)
from umdf.book.views import ENTRY_DTYPE, Book
from umdf.buffers import Memory, Pool, buffer_address
from umdf.market.families import MBO, NULL
from umdf.market.rows import ConstantColumns, MemoryColumns, Rows

MBO_COLUMNS = (
    "action side price size order_id firm prev_size position order_count ts_insert venue update_action "
    "instrument_id rpt_seq flags"
).split()
_TYPES = [MBO.column(name).dtype for name in MBO_COLUMNS]
_COLUMNS = {column.name: (column.dtype, column.null if column.nullable else 0)
            for column in map(MBO.column, MBO_COLUMNS)}  # fmt: skip
LADDER_KERNELS = {"event": apply_with_depth, "end": apply_with_depth_at_event_end}
MIN_OUTPUT_ROWS = 256  # rows


class Books:
    """The books of one channel, empty at first. Not for several threads at once.

    With `requires_full_history`, a book whose first update is not RptSeq 1 has an unknown past: it is stale.
    """

    def __init__(
        self, *, requires_full_history: bool = False, orders: int = 1 << 12, levels: int = 1 << 10, books: int = 1 << 6
    ) -> None:
        self.arenas = Arenas(orders, levels, books)
        self._table, self._table_view = self.arenas.table, self.arenas.table_view
        self._table[k.FIRST_RPT_SEQ] = 0 if requires_full_history else NULL
        self._outcomes, self._output, self._removed = Pool(), Pool(), Pool()
        self._absent = ConstantColumns()

    def apply(self, rows: Rows) -> Outcomes:
        """Apply rows of the family mbo."""
        self._table_view[k.DEPTH] = 0
        return self._apply_rows(rows, apply_without_ladders)[0]

    def apply_top(self, rows: Rows, per: str = "event") -> tuple[Outcomes, Ladders]:
        """Apply rows; a row for every change of the best prices, `per` "event" row or "end" of event (flag LAST)."""
        return self.apply_depth(rows, 1, per)

    def apply_depth(self, rows: Rows, depth: int, per: str = "event") -> tuple[Outcomes, Ladders]:
        """Apply rows; a row for every change of the best `depth` levels."""
        kind, run = ladder_dtype(depth), apply_with_top if (depth, per) == (1, "event") else LADDER_KERNELS[per]
        self.arenas.reserve_ladders(depth, per)
        outcomes, out = self._apply_rows(rows, run, kind)
        assert out is not None
        return outcomes, Ladders(depth, np.frombuffer(out.array, kind, self._table_view[k.OUT_ROWS]))

    def _apply_rows(
        self, rows: Rows, kernel: Callable[[int], int], dtype: np.dtype[np.void] | None = None
    ) -> tuple[Outcomes, Memory | None]:
        """The outcomes of the rows, and the memory of the rows of `dtype` that they wrote, if it is given."""
        words, arenas, count = self._table_view, self.arenas, len(rows)
        codes, removed = self._outcomes.acquire(count), self._removed.acquire(REMOVED_DTYPE.itemsize * count)
        first_row, words[k.REMOVED], words[k.REMOVED_COUNT] = words[k.ROW_BASE], removed.address, 0
        out = None if dtype is None else self._allocate_output(dtype, MIN_OUTPUT_ROWS + count + arenas.book_capacity)
        words[k.FIRST], words[k.ROWS], words[k.OUTCOMES], words[k.OUT_ROWS] = 0, count, codes.address, 0
        kept_alive = self._set_columns(rows)
        while (next_row := kernel(arenas.address)) != count:
            words[k.FIRST] = next_row
            if words[k.FULL] == k.OUTPUT_FULL:
                assert dtype is not None and out is not None
                used = words[k.OUT_ROWS] * dtype.itemsize
                wider = self._allocate_output(dtype, 2 * words[k.OUT_CAPACITY] + arenas.book_capacity)
                wider.array[:used] = out.array[:used]
                out = wider
                continue
            arenas.grow()
        del kept_alive
        words[k.ROW_BASE], words[k.REMOVED] = first_row + count, 0
        noted = np.frombuffer(removed.array, REMOVED_DTYPE, words[k.REMOVED_COUNT]) if words[k.REMOVED_COUNT] else None
        return Outcomes(codes.array[:count].view(np.int8), first_row, noted), out

    def _allocate_output(self, dtype: np.dtype[np.void], rows: int) -> Memory:
        memory = self._output.acquire(dtype.itemsize * rows)
        self._table_view[k.OUT], self._table_view[k.OUT_CAPACITY] = memory.address, memory.nbytes // dtype.itemsize
        return memory

    def _set_columns(self, rows: Rows) -> list[NDArray[np.generic]]:
        """Have the table name the columns of some rows; returns those that have to be kept meanwhile."""
        if type(rows.columns) is MemoryColumns:
            addresses = rows.columns.addresses(_COLUMNS, self._absent)
            if addresses is not None:
                self._table[k.COLUMNS : k.COLUMNS + len(addresses)] = addresses
                return []
        sent_columns = [rows.columns.get(name) for name in MBO_COLUMNS]
        is_usable = [
            c is not None and c.dtype is kind and c.flags.carray for c, kind in zip(sent_columns, _TYPES, strict=True)
        ]
        if all(is_usable) and set_columns(self.arenas.address, *sent_columns):
            return []
        columns = [
            np.ascontiguousarray(rows.column(name), kind) for name, kind in zip(MBO_COLUMNS, _TYPES, strict=True)
        ]
        assert all(len(column) == len(rows) for column in columns)
        self._table[k.COLUMNS : k.COLUMNS + len(MBO_COLUMNS)] = [buffer_address(column) for column in columns]
        return columns

    @property
    def rows_applied(self) -> int:
        """How many rows have come so far: the number of the next one."""
        return self._table_view[k.ROW_BASE]

    @property
    def order_count(self) -> int:
        """Living orders, of all books."""
        return self.arenas.order_capacity - self._table_view[k.ORDERS_AVAILABLE]

    @property
    def available_orders(self) -> int:
        """How many more orders there is memory for."""
        return self._table_view[k.ORDERS_AVAILABLE]

    @property
    def order_bytes(self) -> int:
        """The memory of orders and of their hash."""
        return self.arenas.order_bytes

    def instruments(self) -> list[tuple[int, bool]]:
        """(instrument_id, lending) of every book."""
        ids, lending = self.keys()
        return list(zip(ids.tolist(), lending.tolist(), strict=True))

    def keys(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The instrument of every book, and whether it is the lending book."""
        headers = self.arenas.headers
        alive = headers["alive"] != 0
        return headers["instrument_id"][alive], headers["lending"][alive] != 0

    def book(self, instrument_id: int, *, lending: bool = False) -> Book | None:
        """A book as it is now; None if it was never mentioned."""
        number = book_number(self.arenas.address, instrument_id, int(lending))
        return None if number < 0 else self._book(number)

    def rpt_seq(self, number: int) -> int:
        """The last RptSeq of a book by its number; NULL if any may follow."""
        return int(self.arenas.headers["rpt_seq"][number])

    def _book(self, number: int) -> Book:
        header, entries = self.arenas.headers[number], self._entries(number)
        kind, rpt_seq = int(header["book_type"]), int(header["rpt_seq"])
        stale = Stale(*(int(header[name]) for name in ("stale", "stale_row", "stale_received", "stale_expected")))
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
        entries = np.empty(count_entries(self.arenas.address, number), ENTRY_DTYPE)
        write_entries(self.arenas.address, number, buffer_address(entries))
        return entries

    def set_depth(self, instrument_id: int, depth: int, *, lending: bool = False) -> None:
        """Declare the depth by a snapshot (264) or definition: levels of a price-depth book, 0 for a book of orders."""
        declare_depth(self.arenas.address, self.ensure(instrument_id, lending=lending), depth)

    def mark_stale(self, instrument_id: int, reason: int = k.MESSAGES_LOST, *, lending: bool = False) -> None:
        """Mark a book stale for a reason from outside."""
        header = self.arenas.headers[self.ensure(instrument_id, lending=lending)]
        if not header["stale"]:
            header["stale"], header["stale_row"] = reason, self.rows_applied
            header["stale_received"] = header["stale_expected"] = NULL
            header["changed_sides"] |= k.STALE_BIT

    def shown_book(self, instrument_id: int) -> Book | None:
        """The book to show of an instrument: the lending book, unless the ordinary one has orders of its own. The
        ordinary one may exist for a declared depth or a statistic alone."""
        return self.book(instrument_id, lending=self.shows_lending(instrument_id))

    def shows_lending(self, instrument_id: int) -> bool:
        """Whether the lending book of an instrument is the one to show."""
        if book_number(self.arenas.address, instrument_id, 1) < 0:
            return False
        ordinary = book_number(self.arenas.address, instrument_id, 0)
        return ordinary < 0 or not count_entries(self.arenas.address, ordinary)

    def delete_instrument(self, instrument_id: int) -> bool:
        """The instrument is gone, and both its books with it (7.3, 9.8); returns whether there was one."""
        deleted = [self.delete(instrument_id, lending=lending) for lending in (False, True)]
        return any(deleted)

    def delete(self, instrument_id: int, *, lending: bool = False) -> bool:
        """Forget one book; returns whether there was one."""
        number = book_number(self.arenas.address, instrument_id, int(lending))
        if number < 0:
            return False
        delete_book(self.arenas.address, number)
        self.arenas.remove_book(number)
        return True

    def contents(self) -> tuple[NDArray[np.void], NDArray[np.int64], NDArray[np.void]]:
        """The header of every book, how many entries each has, and the entries, one book after the other."""
        headers = self.arenas.headers
        numbers = np.flatnonzero(headers["alive"])
        counts = np.empty(len(numbers), np.int64)
        arguments = self.arenas.address, buffer_address(numbers), len(numbers), buffer_address(counts)
        entries = np.empty(count_all_entries(*arguments), ENTRY_DTYPE)
        write_all_entries(*arguments, buffer_address(entries))
        return headers[numbers], counts, entries

    def state(self) -> BooksState:
        """Everything, to be stored."""
        headers, counts, entries = self.contents()
        numbers, pending = np.flatnonzero(self.arenas.headers["alive"]), self.arenas.pending
        books = record_columns(headers, BOOK_COLUMNS)
        books["changed_sides"] &= k.SIDES_MASK
        books["entry_count"], books["pending"] = counts, np.zeros(len(counts), np.int64)
        books["pending"][np.searchsorted(numbers, pending)] = np.arange(len(pending)) + 1
        return BooksState(self.rows_applied, books, record_columns(entries, ENTRY_COLUMNS))

    @classmethod
    def from_state(cls, state: BooksState, *, requires_full_history: bool = False) -> Books:
        """Books that go on where others stopped."""
        stored, counts = state.books, state.books["entry_count"].astype(np.int64)
        entries = np.zeros(int(counts.sum()), ENTRY_DTYPE)
        for name in ENTRY_COLUMNS:
            entries[name] = state.entries[name]
        capacities = {"orders": len(entries) + 1, "levels": len(entries) + 1, "books": len(counts) + 1}
        books = cls(requires_full_history=requires_full_history, **capacities)
        arenas, numbers = books.arenas, np.empty(len(counts), np.int64)
        books._table[k.ROW_BASE] = state.rows_applied
        known = [np.ascontiguousarray(stored[name], np.int64) for name in ("instrument_id", "lending")]
        book_count, keys = 0, tuple(map(buffer_address, known))
        while (
            book_count := ensure_books(arenas.address, *keys, book_count, len(counts), buffer_address(numbers))
        ) < len(counts):
            arenas.grow()
        headers = arenas.headers
        for name in BOOK_COLUMNS:
            headers[name][numbers] = stored[name]
        changed_sides = headers["changed_sides"][numbers] & k.SIDES_MASK
        headers["changed_sides"][numbers] = changed_sides | np.where(headers["stale"][numbers] != 0, k.STALE_BIT, 0)
        starts, done = np.cumsum(counts) - counts, 0
        entry_arrays = tuple(map(buffer_address, (starts, counts, entries)))
        while (
            done := load_all_entries(arenas.address, buffer_address(numbers), done, len(counts), *entry_arrays)
        ) < len(counts):
            arenas.grow()
        queue = np.argsort(stored["pending"], kind="stable")
        arenas.pending = queue[stored["pending"][queue] > 0]
        return books

    def ensure(self, instrument_id: int, *, lending: bool = False) -> int:
        """The number of a book, which is created if it does not exist."""
        while (number := ensure_book(self.arenas.address, instrument_id, int(lending))) < 0:
            self.arenas.grow()
        return number
