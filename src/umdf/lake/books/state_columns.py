"""The states of many books as columns; `umdf.lake.books.state_record` has a single one.

A stream reads and writes the state of every book of a channel in every micro-batch, so everything here is vectorised.
The bytes are those of `BookState.content`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.book.engine import Books
from umdf.book.state import ENTRY_COLUMNS, BooksState
from umdf.buffers import buffer_address
from umdf.errors import UmdfError
from umdf.lake.books.state_record import (
    BOOK_FIELDS,
    EMPTY_BOOK,
    EVENT_FLAGS,
    FORMAT,
    HEADER_FIELDS,
    LOSS_DTYPE,
    SECTION_DTYPES,
)
from umdf.lake.parquet.file_reader import read_file
from umdf.lake.schemas import table
from umdf.lake.tasks.staging import bucket_of
from umdf.market.families import NULL
from umdf.sync.raw_units_kernel import gather_bytes

Numbers = NDArray[np.int64]
Columns = dict[str, Numbers]
WORD_BYTES = 8  # of a word
HEADER_BYTES = WORD_BYTES * (len(HEADER_FIELDS) + len(BOOK_FIELDS))


@dataclass(frozen=True, eq=False)
class RecordSection:
    """Records of many books, book by book."""

    counts: Numbers  # records per book
    records: NDArray[Any]

    def owners(self, books: Numbers) -> Numbers:
        """The book of each record, from `books`."""
        return np.repeat(books, self.counts)

    def take(self, rows: Numbers) -> RecordSection:
        """The records of these books, in this order."""
        counts = self.counts[rows]
        first = (np.cumsum(self.counts) - self.counts)[rows]
        inside = np.arange(int(counts.sum())) + np.repeat(first - (np.cumsum(counts) - counts), counts)
        return RecordSection(counts, self.records[inside])


def group_records(owner: Numbers, records: NDArray[Any], books: int) -> RecordSection:
    """Group records, in any order, by the index of their book; -1: dropped."""
    order = np.argsort(owner, kind="stable")
    order = order[np.searchsorted(owner[order], 0) :]
    return RecordSection(np.bincount(owner[order], minlength=books).astype(np.int64), records[order])


@dataclass(frozen=True, eq=False)
class BookStates:
    """One row per book; see `BookState`."""

    instrument_id: Numbers
    seq_version: Numbers
    key: NDArray[np.uint64]
    rpt_seq: Numbers
    flags: NDArray[np.int32]
    header: Columns
    book_header: Columns
    sections: dict[str, RecordSection]

    def __len__(self) -> int:
        return len(self.instrument_id)

    def take(self, rows: Numbers) -> BookStates:
        ids, version, key = self.instrument_id[rows], self.seq_version[rows], self.key[rows]
        head, book = ({name: values[rows] for name, values in part.items()} for part in (self.header, self.book_header))
        sections = {name: section.take(rows) for name, section in self.sections.items()}
        return BookStates(ids, version, key, self.rpt_seq[rows], self.flags[rows], head, book, sections)

    def select_instruments(self, first: int, last: int) -> BookStates:
        """The states of a range of instruments; states are sorted by instrument."""
        low, high = np.searchsorted(self.instrument_id, [first, last + 1]).tolist()
        return self if high - low == len(self) else self.take(np.arange(low, high))

    def to_table(self) -> pa.Table:
        """Rows of `book_state`, sorted."""
        order = np.lexsort((self.key, self.seq_version, self.instrument_id))
        key, rpt_seq = self.key[order], self.rpt_seq[order]
        columns: dict[str, Any] = {
            "instrument_id": self.instrument_id[order],
            "seq_version": self.seq_version[order],
            "sequence": (key >> np.uint64(32)).astype(np.int64),
            "msg_index": (key >> np.uint64(16) & np.uint64(0xFFFF)).astype(np.int64),
            "entry_index": (key & np.uint64(0xFFFF)).astype(np.int64),
            "rpt_seq": pa.array(rpt_seq, mask=rpt_seq == NULL),
            "flags": self.flags[order],
            "format": np.full(len(self), FORMAT),
            "content": self._encode(order),
        }
        schema = table("book_state").file_schema
        arrays = [pa.array(columns[each.name]).cast(each.type) for each in schema]
        return pa.Table.from_arrays(arrays, schema=schema)

    def _encode(self, order: Numbers) -> pa.Array:
        count, sections = len(self), [self.sections[name] for name in SECTION_DTYPES]
        sizes = np.full(count, HEADER_BYTES + WORD_BYTES * len(sections))
        for section in sections:
            sizes += section.counts * section.records.itemsize
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(sizes[order], out=offsets[1:])
        if offsets[-1] >= 1 << 31:
            raise UmdfError("the books of one task exceed 2 GiB", "use more buckets")
        content, write_offsets = np.empty(int(offsets[-1]), np.uint8), np.empty(count, np.int64)
        write_offsets[order] = offsets[:-1]
        fixed = [*(self.header[name] for name in HEADER_FIELDS), *(self.book_header[name] for name in BOOK_FIELDS)]
        write_offsets = _write_bytes(
            content, write_offsets, np.stack(fixed, axis=1).astype(np.int64), np.full(count, HEADER_BYTES)
        )
        for section in sections:
            write_offsets = _write_bytes(content, write_offsets, section.counts, np.full(count, WORD_BYTES))
            write_offsets = _write_bytes(
                content, write_offsets, section.records, section.counts * section.records.itemsize
            )
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(content)]
        return pa.Array.from_buffers(pa.binary(), count, buffers)


def _write_bytes(content: NDArray[np.uint8], offsets: Numbers, values: NDArray[Any], sizes: Numbers) -> Numbers:
    """Write the next bytes of each row, given row after row; returns the offsets after them."""
    values, starts = np.ascontiguousarray(values), np.cumsum(sizes) - sizes
    gather_bytes(*map(buffer_address, (values, starts, sizes, content, offsets)), len(offsets))
    return offsets + sizes


def _read_values(
    content: NDArray[np.uint8], offsets: Numbers, kind: Any, counts: Numbers
) -> tuple[NDArray[Any], Numbers]:
    """Read the next values of each row; returns them and the offsets after them."""
    values = np.empty(int(counts.sum()), kind)
    sizes = counts * values.itemsize
    starts = np.cumsum(sizes) - sizes
    gather_bytes(*map(buffer_address, (content, offsets, sizes, values, starts)), len(offsets))
    return values, offsets + sizes


def decode_states(rows: pa.Table) -> BookStates:
    """Decode rows of `book_state`, in order."""
    count, columns = rows.num_rows, dict[str, Any]()
    if not set(rows.column("format").unique().to_pylist()) <= {FORMAT}:
        raise UmdfError("the stored books have another format version", "rebuild the day with `umdf lake rebuild LAKE`")
    for name in ("instrument_id", "seq_version", "sequence", "msg_index", "entry_index", "rpt_seq"):
        column = rows.column(name)
        columns[name] = (column.fill_null(NULL) if column.null_count else column).to_numpy().astype(np.int64)
    content, offsets = _content_buffer(rows.column("content"))
    ones = np.ones(count, np.int64)
    names = [*HEADER_FIELDS, *BOOK_FIELDS]
    fixed, offsets = _read_values(content, offsets, np.int64, ones * len(names))
    values = [np.ascontiguousarray(column) for column in fixed.reshape(count, len(names)).T]
    head: Columns = dict(zip(HEADER_FIELDS, values, strict=False))
    book: Columns = dict(zip(BOOK_FIELDS, values[len(HEADER_FIELDS) :], strict=True))
    sections = {}
    for name, kind in SECTION_DTYPES.items():
        counts, offsets = _read_values(content, offsets, np.int64, ones)
        records, offsets = _read_values(content, offsets, kind, counts)
        sections[name] = RecordSection(counts, records)
    key = columns["sequence"] << 32 | columns["msg_index"] << 16 | columns["entry_index"]
    key_columns = columns["instrument_id"], columns["seq_version"], key.astype(np.uint64), columns["rpt_seq"]
    return BookStates(*key_columns, rows.column("flags").to_numpy().astype(np.int32), head, book, sections)


def _content_buffer(column: pa.ChunkedArray) -> tuple[NDArray[np.uint8], Numbers]:
    """All bytes, and the offset of each row."""
    array = column.combine_chunks()
    array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
    _, offsets, content = array.buffers()
    if not len(array) or content is None:
        return np.empty(0, np.uint8), np.empty(0, np.int64)
    starts = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array)]
    return np.frombuffer(content, np.uint8), starts.astype(np.int64)


def read_states(paths: str | Sequence[str] | None, buckets: Sequence[int]) -> BookStates:
    """The last state of each book of these buckets, sorted by instrument."""
    parts = [table("book_state").file_schema.empty_table()]
    for path in [paths] if isinstance(paths, str) else paths or []:
        rows = read_file(path)
        ids, flags = (rows.column(name).to_numpy() for name in ("instrument_id", "flags"))
        chosen = np.isin(bucket_of(ids), buckets) & (flags & EVENT_FLAGS == 0)
        parts.append(rows if chosen.all() else rows.filter(pa.array(chosen)))
    states = decode_states(pa.concat_tables(parts))
    book = states.instrument_id << 1 | states.header["lending"]
    order = np.argsort(book, kind="stable")
    is_last = np.append(book[order][1:] != book[order][:-1], True)[: len(book)]
    return states.take(order[is_last])


def restore_books(states: BookStates) -> Books:
    """The book engine, restored from stored states."""
    entries, nothing = states.sections["entries"], np.zeros(len(states), np.int64)
    columns: dict[str, NDArray[Any]] = {**states.book_header, "instrument_id": states.instrument_id}
    columns |= {
        "lending": states.header["lending"],
        "entry_count": entries.counts,
        "pending": nothing,
        "changed_sides": nothing,
    }
    stored = BooksState(0, columns, {name: entries.records[name] for name in ENTRY_COLUMNS})
    return Books.from_state(stored, requires_full_history=True)


def book_contents(books: Books, ids: Numbers, selected: Numbers) -> tuple[Columns, RecordSection]:
    """Header and entries of the `selected` books (twice the index of the instrument in `ids`, plus one for lending);
    books without any update have their initial state."""
    headers, counts, entries = books.contents()
    book = 2 * np.searchsorted(ids, headers["instrument_id"]) + headers["lending"]
    row = np.minimum(np.searchsorted(selected, book), max(len(selected) - 1, 0))
    row = np.where(selected[row] == book, row, -1) if len(selected) else np.full(len(book), -1)
    columns = {name: np.full(len(selected), value) for name, value in EMPTY_BOOK[0].items()}
    known = row >= 0
    for name in columns:
        if name not in ("stale_row", "changed_sides"):  # they depend on the other books of the task
            columns[name][row[known]] = headers[name][known]
    owner = np.repeat(row, counts)
    return columns, group_records(owner, entries, len(selected))


def sequences_at(values: NDArray[np.int64], indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sequences at some indices; 0 for those out of range."""
    return np.append(values, 0)[np.where((indices >= 0) & (indices < len(values)), indices, len(values))]


def loss_records(lost: NDArray[np.int64]) -> NDArray[np.void]:
    found = np.zeros(len(lost), LOSS_DTYPE)
    found["since"], found["until"] = lost[:, 1], lost[:, 2]
    return found
