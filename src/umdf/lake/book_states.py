"""The states of many books at once: what `umdf.lake.book_state` says of one, by column.

A stream reads and writes the state of every book of a channel in every micro-batch, so nothing here is done book by
book. The bytes are those of `Stored.content`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.book.engine import Books
from umdf.book.state import OF_ENTRY, State
from umdf.buffers import address_of
from umdf.errors import UmdfError
from umdf.lake.book_state import BOOK_NAMES, FORMAT, HAPPENED, HEAD_NAMES, NO_BOOK, SECTIONS
from umdf.lake.file_reader import read_file
from umdf.lake.schemas import table
from umdf.lake.staging import bucket_of
from umdf.market.events import NULL
from umdf.sync.pieces_kernel import gather_bytes

Numbers = NDArray[np.int64]
Columns = dict[str, Numbers]
WORD = 8  # bytes
FIXED_BYTES = WORD * (len(HEAD_NAMES) + len(BOOK_NAMES))


@dataclass(frozen=True, eq=False)
class Section:
    """Records of many books, one book after the other."""

    counts: Numbers  # of each book
    records: NDArray[Any]

    def owners(self, books: Numbers) -> Numbers:
        """Of each record the book, by its name in `books`."""
        return np.repeat(books, self.counts)

    def at(self, rows: Numbers) -> Section:
        """Of these books, in this order."""
        counts = self.counts[rows]
        first = (np.cumsum(self.counts) - self.counts)[rows]
        inside = np.arange(int(counts.sum())) + np.repeat(first - (np.cumsum(counts) - counts), counts)
        return Section(counts, self.records[inside])


def section_of(owner: Numbers, records: NDArray[Any], books: int) -> Section:
    """Records in any order, each with its place among so many books; -1: it is of none of them."""
    order = np.argsort(owner, kind="stable")
    order = order[np.searchsorted(owner[order], 0) :]
    return Section(np.bincount(owner[order], minlength=books).astype(np.int64), records[order])


@dataclass(frozen=True, eq=False)
class States:
    """A row for each book; see `Stored`."""

    instrument_id: Numbers
    seq_version: Numbers
    key: NDArray[np.uint64]
    rpt_seq: Numbers
    flags: NDArray[np.int32]
    head: Columns
    book: Columns
    sections: dict[str, Section]

    def __len__(self) -> int:
        return len(self.instrument_id)

    def at(self, rows: Numbers) -> States:
        ids, version, key = self.instrument_id[rows], self.seq_version[rows], self.key[rows]
        head, book = ({name: values[rows] for name, values in part.items()} for part in (self.head, self.book))
        sections = {name: section.at(rows) for name, section in self.sections.items()}
        return States(ids, version, key, self.rpt_seq[rows], self.flags[rows], head, book, sections)

    def between(self, first: int, last: int) -> States:
        """Of some instruments; all are in their order."""
        low, high = np.searchsorted(self.instrument_id, [first, last + 1]).tolist()
        return self if high - low == len(self) else self.at(np.arange(low, high))

    def table(self) -> pa.Table:
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
            "content": self._contents(order),
        }
        schema = table("book_state").file_schema
        arrays = [pa.array(columns[each.name]).cast(each.type) for each in schema]
        return pa.Table.from_arrays(arrays, schema=schema)

    def _contents(self, order: Numbers) -> pa.Array:
        count, parts = len(self), [self.sections[name] for name in SECTIONS]
        sizes = np.full(count, FIXED_BYTES + WORD * len(parts))
        for part in parts:
            sizes += part.counts * part.records.itemsize
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(sizes[order], out=offsets[1:])
        if offsets[-1] >= 1 << 31:
            raise UmdfError("the books of one task take more than 2 GiB", "give it fewer instruments")
        content, at = np.empty(int(offsets[-1]), np.uint8), np.empty(count, np.int64)
        at[order] = offsets[:-1]
        fixed = [*(self.head[name] for name in HEAD_NAMES), *(self.book[name] for name in BOOK_NAMES)]
        at = _put(content, at, np.stack(fixed, axis=1).astype(np.int64), np.full(count, FIXED_BYTES))
        for part in parts:
            at = _put(content, at, part.counts, np.full(count, WORD))
            at = _put(content, at, part.records, part.counts * part.records.itemsize)
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(content)]
        return pa.Array.from_buffers(pa.binary(), count, buffers)


def _put(content: NDArray[np.uint8], at: Numbers, values: NDArray[Any], sizes: Numbers) -> Numbers:
    """The next bytes of each row, one row's after the other, go to their places; what follows them."""
    values, starts = np.ascontiguousarray(values), np.cumsum(sizes) - sizes
    gather_bytes(*map(address_of, (values, starts, sizes, content, at)), len(at))
    return at + sizes


def _get(content: NDArray[np.uint8], at: Numbers, kind: Any, counts: Numbers) -> tuple[NDArray[Any], Numbers]:
    """The next values of each row; what follows them."""
    found = np.empty(int(counts.sum()), kind)
    sizes = counts * found.itemsize
    starts = np.cumsum(sizes) - sizes
    gather_bytes(*map(address_of, (content, at, sizes, found, starts)), len(at))
    return found, at + sizes


def states_of(rows: pa.Table) -> States:
    """Rows of `book_state`, in their order."""
    count, columns = rows.num_rows, dict[str, Any]()
    if not set(rows.column("format").unique().to_pylist()) <= {FORMAT}:
        raise UmdfError("the lake holds books of another version", "reprocess the day: `umdf lake reprocess`")
    for name in ("instrument_id", "seq_version", "sequence", "msg_index", "entry_index", "rpt_seq"):
        column = rows.column(name)
        columns[name] = (column.fill_null(NULL) if column.null_count else column).to_numpy().astype(np.int64)
    content, at = _content_of(rows.column("content"))
    one = np.ones(count, np.int64)
    names = [*HEAD_NAMES, *BOOK_NAMES]
    fixed, at = _get(content, at, np.int64, one * len(names))
    values = [np.ascontiguousarray(column) for column in fixed.reshape(count, len(names)).T]
    head: Columns = dict(zip(HEAD_NAMES, values, strict=False))
    book: Columns = dict(zip(BOOK_NAMES, values[len(HEAD_NAMES) :], strict=True))
    sections = {}
    for name, kind in SECTIONS.items():
        counts, at = _get(content, at, np.int64, one)
        records, at = _get(content, at, kind, counts)
        sections[name] = Section(counts, records)
    key = columns["sequence"] << 32 | columns["msg_index"] << 16 | columns["entry_index"]
    about = columns["instrument_id"], columns["seq_version"], key.astype(np.uint64), columns["rpt_seq"]
    return States(*about, rows.column("flags").to_numpy().astype(np.int32), head, book, sections)


def _content_of(column: pa.ChunkedArray) -> tuple[NDArray[np.uint8], Numbers]:
    """All bytes, and where those of each row begin."""
    whole = column.combine_chunks()
    whole = pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
    _, offsets, content = whole.buffers()
    if not len(whole) or content is None:
        return np.empty(0, np.uint8), np.empty(0, np.int64)
    starts = np.frombuffer(offsets, np.int32)[whole.offset : whole.offset + len(whole)]
    return np.frombuffer(content, np.uint8), starts.astype(np.int64)


def read_states(paths: str | Sequence[str] | None, buckets: Sequence[int]) -> States:
    """The last state of each book of these buckets, in the order of the instruments."""
    parts = [table("book_state").file_schema.empty_table()]
    for path in [paths] if isinstance(paths, str) else paths or []:
        rows = read_file(path)
        ids, flags = (rows.column(name).to_numpy() for name in ("instrument_id", "flags"))
        chosen = np.isin(bucket_of(ids), buckets) & (flags & HAPPENED == 0)
        parts.append(rows if chosen.all() else rows.filter(pa.array(chosen)))
    states = states_of(pa.concat_tables(parts))
    book = states.instrument_id << 1 | states.head["lending"]
    order = np.argsort(book, kind="stable")
    is_last = np.append(book[order][1:] != book[order][:-1], True)[: len(book)]
    return states.at(order[is_last])


def books_of(states: States) -> Books:
    """The engine, as it was when they were stored."""
    entries, nothing = states.sections["entries"], np.zeros(len(states), np.int64)
    columns: dict[str, NDArray[Any]] = {**states.book, "instrument_id": states.instrument_id}
    columns |= {"lending": states.head["lending"], "entry_count": entries.counts, "pending": nothing, "dirty": nothing}
    stored = State(0, columns, {name: entries.records[name] for name in OF_ENTRY})
    return Books.from_state(stored, from_the_start=True)


def books_in(books: Books, ids: Numbers, wanted: Numbers) -> tuple[Columns, Section]:
    """Header and entries of the `wanted` books (twice the place of the instrument among `ids`, one more for lending);
    those of which nothing was said are as they are at first."""
    headers, counts, entries = books.contents()
    book = 2 * np.searchsorted(ids, headers["instrument_id"]) + headers["lending"]
    row = np.minimum(np.searchsorted(wanted, book), max(len(wanted) - 1, 0))
    row = np.where(wanted[row] == book, row, -1) if len(wanted) else np.full(len(book), -1)
    found = {name: np.full(len(wanted), value) for name, value in NO_BOOK[0].items()}
    known = row >= 0
    for name in found:
        if name not in ("row", "dirty"):  # they depend on what else was in the task
            found[name][row[known]] = headers[name][known]
    owner = np.repeat(row, counts)
    return found, section_of(owner, entries, len(wanted))
