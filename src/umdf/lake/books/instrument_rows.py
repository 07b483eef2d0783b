"""Staged rows → rows of some instruments, grouped by instrument and in wire order.

Invariant: a book must see all rows of its instrument, each once, in order. A violation fails the job here, with the
instrument and the positions, before anything wrong is written (a shuffle that splits instruments is silent).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.book.engine import MBO_COLUMNS
from umdf.buffers import Pool
from umdf.errors import UmdfError
from umdf.lake.tasks.id_lookup import count_by_id, indices_of_ids
from umdf.lake.tasks.staging import RowMove, StagedFile, as_events, bucket_of, scatter_columns, staged_batches
from umdf.market.calendar import are_all_on_date, local_dates
from umdf.market.families import LAST, NULL
from umdf.market.rows import Events, Rows, Units

LENDING = ord("L")
_BUFFERS = Pool(1)
StreamPosition = tuple[int, int] | None  # position in the stream: rank of the epoch, key
HINT = "this is a bug, please report it"


@dataclass(frozen=True, eq=False)
class StagedBatch:
    """The rows of some buckets in one staged file."""

    path: str
    batch: pa.RecordBatch
    instrument_id: NDArray[np.int64]
    is_on_date: NDArray[np.bool_] | None  # which rows are of the trading date; None: all

    def select_range(self, first: int, last: int) -> NDArray[np.int64]:
        chosen = (self.instrument_id >= first) & (self.instrument_id <= last)
        return np.flatnonzero(chosen if self.is_on_date is None else chosen & self.is_on_date)


@dataclass(frozen=True, eq=False)
class StagedRows:
    """Rows still in their staged batches, so that combining or reordering them moves them only once. Per batch, the
    selected rows; None: all."""

    batches: list[tuple[pa.RecordBatch, NDArray[np.uint32] | None]]

    def __len__(self) -> int:
        return sum(batch.num_rows if rows is None else len(rows) for batch, rows in self.batches)

    @property
    def schema(self) -> pa.Schema:
        return self.batches[0][0].schema

    def column(self, name: str) -> NDArray[Any]:
        columns = ((batch.column(name).to_numpy(), rows) for batch, rows in self.batches)
        arrays = [column if rows is None else np.take(column, rows) for column, rows in columns]
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

    def to_batch(self) -> pa.RecordBatch:
        """As one batch, in the order of the batches."""
        batches = [batch if rows is None else _take_rows(batch, rows) for batch, rows in self.batches]
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


@dataclass(eq=False)
class RowsByBook:
    """Rows of one family by book: `book` is twice the index of the instrument in `ids`, plus one for lending."""

    events: Events
    book: NDArray[np.int32]
    epoch: NDArray[np.int32]  # rank among the epochs of the channel
    key: NDArray[np.uint64]  # sequence, message, entry: the order within an epoch
    is_synthetic: NDArray[np.bool_] | None = None  # rows that were not staged: a channel reset, once per book
    is_deletion: NDArray[np.bool_] | None = None  # synthetic rows for deleted instruments

    def __len__(self) -> int:
        return len(self.key)

    @property
    def rows(self) -> Rows:
        return next(iter(self.events.families.values()))

    @property
    def units(self) -> Units:
        return self.events.units

    def between(self, after: StreamPosition, until: StreamPosition) -> RowsByBook:
        """Rows after one position of the stream, up to another."""
        chosen = np.flatnonzero(is_between(self.epoch, self.key, after, until))
        if len(chosen) == len(self):
            return self
        events = self.events.take({self.rows.family.name: chosen})
        masks = (mask if mask is None else mask[chosen] for mask in (self.is_synthetic, self.is_deletion))
        return RowsByBook(events, self.book[chosen], self.epoch[chosen], self.key[chosen], *masks)


@dataclass
class Epochs:
    """The epochs of a channel in order (versions are compared only for equality)."""

    versions: list[int] = field(default_factory=list)

    def ranks(self, seq_version: NDArray[np.int64]) -> NDArray[np.int32]:
        if not len(seq_version):
            return np.empty(0, np.int32)
        if (seq_version == seq_version[0]).all():
            return np.full(len(seq_version), self.rank(int(seq_version[0])), np.int32)
        values, first, inverse = np.unique(seq_version, return_index=True, return_inverse=True)
        for at in np.argsort(first):
            self.rank(int(values[at]))
        return np.array([self.rank(int(value)) for value in values], np.int32)[inverse]

    def rank(self, seq_version: int) -> int:
        if seq_version not in self.versions:
            self.versions.append(seq_version)
        return self.versions.index(seq_version)


class StagedFamily:
    """The staged rows of one family in some buckets, of one date."""

    def __init__(self, staged: Sequence[StagedFile], family: str, buckets: Sequence[int], trading_date: int) -> None:
        self.family = family
        self.batches: list[StagedBatch] = []
        for path, rows, batch in staged_batches(staged, family, buckets):
            ids = batch.column("instrument_id").to_numpy()
            _check_buckets(path, rows, ids)
            is_on_date = _date_mask(batch.column("ts_send").to_numpy(), trading_date)
            if is_on_date is None or is_on_date.any():
                self.batches.append(StagedBatch(path, batch, ids, is_on_date))

    def counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Instrument IDs, sorted, and their row counts."""
        ids, rows = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for batch in self.batches:
            batch_ids, batch_counts = count_by_id(
                batch.instrument_id if batch.is_on_date is None else batch.instrument_id[batch.is_on_date]
            )
            ids.append(batch_ids)
            rows.append(batch_counts)
        all_ids, inverse = np.unique(np.concatenate(ids), return_inverse=True)
        return all_ids, np.bincount(inverse, np.concatenate(rows), len(all_ids)).astype(np.int64)

    def row_batches(self, first: int, last: int, max_rows: int) -> Iterator[StagedRows]:
        """Rows of the instruments from `first` to `last`, in the order of the files, about `max_rows` at a time."""
        pending: list[tuple[pa.RecordBatch, NDArray[np.uint32] | None]] = []
        count = 0
        for batch in self.batches:
            rows = batch.select_range(first, last)
            if not len(rows):
                continue
            if count and count + len(rows) > max_rows:
                done, pending, count = StagedRows(pending), [], 0
                yield done
            is_whole = len(rows) == batch.batch.num_rows
            pending.append((batch.batch, None if is_whole else rows.astype(np.uint32)))
            count += len(rows)
        if pending:
            yield StagedRows(pending)


def _date_mask(ts_send: NDArray[np.int64], trading_date: int) -> NDArray[np.bool_] | None:
    """Which rows belong to a date; None: all."""
    return None if are_all_on_date(ts_send, trading_date) else local_dates(ts_send) == trading_date


def _check_buckets(path: str, rows: dict[int, int], ids: NDArray[np.int64]) -> None:
    expected, actual = bucket_of(ids), np.repeat(np.array(list(rows), np.uint8), list(rows.values()))
    wrong = np.flatnonzero(expected != actual)
    if len(wrong):
        at = wrong[0]
        reason = f"rows of instrument {ids[at]} are in bucket {actual[at]} instead of {expected[at]} ({path})"
        raise UmdfError(reason, HINT)


def _take_rows(batch: pa.RecordBatch, rows: NDArray[np.uint32]) -> pa.RecordBatch:
    """With numpy, which is faster than Arrow at this."""
    arrays = [_take_array(column, rows) for column in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, batch.schema.names)


def _take_array(column: pa.Array, rows: NDArray[np.uint32]) -> pa.Array:
    if pa.types.is_primitive(column.type) and not column.null_count:
        return pa.array(np.take(column.to_numpy(), rows))
    return column.take(pa.array(rows))


def group_by_book(
    rows: StagedRows | None,
    family: str,
    ids: NDArray[np.int64],
    epochs: Epochs,
    synthetic: pa.RecordBatch | None = None,
) -> RowsByBook:
    """Rows in the order of the files → rows by book; `synthetic` rows are inserted by their key."""
    count = 0 if rows is None else len(rows)
    has_synthetic = synthetic is not None and synthetic.num_rows > 0
    all_rows = StagedRows(
        [*(rows.batches if rows is not None else ()), *([(synthetic, None)] if has_synthetic else [])]
    )
    if not len(all_rows):
        numbers, none = np.empty(0, np.int64), np.empty(0, np.int16)
        empty = Events(Units(none, numbers, numbers, numbers, numbers), {})
        return RowsByBook(empty, np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.uint64))
    instrument_id, sequence = all_rows.column("instrument_id"), all_rows.column("sequence")
    book = 2 * indices_of_ids(ids, instrument_id)
    if "venue" in all_rows.schema.names:
        book += all_rows.column("venue") == LENDING
    epoch = epochs.ranks(all_rows.column("seq_version"))
    key = wire_key(sequence, all_rows.column("msg_index"), all_rows.column("entry_index"))
    order = np.lexsort((key, epoch, book)) if has_synthetic and count else _stable_order(book, 2 * len(ids))
    if has_synthetic and count:
        _check_row_order(book[:count], epoch[:count], key[:count], instrument_id[:count], family)
    if len(all_rows.batches) > 1 or not _is_identity(order):
        batch = _reorder(all_rows, order)
        book, epoch, key = book[order], epoch[order], key[order]
    else:
        batch = all_rows.to_batch()
    _check_row_order(book, epoch, key, ids[book >> 1], family)
    return RowsByBook(as_events(batch, family), book, epoch, key, order >= count if has_synthetic else None)


def _reorder(staged_rows: StagedRows, order: NDArray[np.int64]) -> pa.RecordBatch:
    """As one batch, in this order: values are moved once, directly to their targets."""
    names, destination = staged_rows.schema.names, np.empty(len(order), np.uint32)
    destination[order] = np.arange(len(order), dtype=np.uint32)
    simple = [each.name for each in staged_rows.schema if pa.types.is_primitive(each.type)]
    columns = {name: [batch.column(name).to_numpy() for batch, _ in staged_rows.batches] for name in simple}
    moves, first = [], 0
    for batch, rows in staged_rows.batches:
        count = batch.num_rows if rows is None else len(rows)
        moves.append(RowMove(destination[first : first + count], rows, frozenset(names if rows is not None else ())))
        first += count
    arrays = {name: pa.array(values) for name, values in scatter_columns(columns, moves, _BUFFERS).items()}
    if others := [name for name in names if name not in arrays]:
        whole_batch = staged_rows.to_batch()
        arrays |= {name: whole_batch.column(name).take(pa.array(order)) for name in others}
    return pa.RecordBatch.from_arrays([arrays[name] for name in names], names)


def wire_key(sequence: Any, msg_index: Any, entry_index: Any) -> NDArray[np.uint64]:
    key = np.asarray(sequence).astype(np.uint64) << np.uint64(32)
    key |= np.asarray(msg_index).astype(np.uint64) << np.uint64(16)
    return key | np.asarray(entry_index).astype(np.uint64)


def is_between(
    epoch: NDArray[np.int32], key: NDArray[np.uint64], after: StreamPosition, until: StreamPosition
) -> NDArray[np.bool_]:
    """After `after` and up to `until`; None: no limit."""
    inside = np.ones(len(key), np.bool_)
    if after is not None:
        inside &= (epoch > after[0]) | ((epoch == after[0]) & (key > np.uint64(after[1])))
    if until is not None:
        inside &= (epoch < until[0]) | ((epoch == until[0]) & (key <= np.uint64(until[1])))
    return inside


def _stable_order(book: NDArray[np.int32], books: int) -> NDArray[np.int64]:
    """For up to 65,536 books numpy uses a radix sort."""
    return np.argsort(book.astype(np.uint16) if books <= 1 << 16 else book, kind="stable")


def _is_identity(order: NDArray[np.int64]) -> bool:
    return bool((order == np.arange(len(order))).all())


def _check_row_order(
    book: NDArray[np.int32],
    epoch: NDArray[np.int32],
    key: NDArray[np.uint64],
    instrument_id: NDArray[np.int64],
    family: str,
) -> None:
    """Within a book, epoch and key must strictly increase: a repeated row is as bad as an older one."""
    if (book[1:] < book[:-1]).any():  # still in the order of the files
        order = np.argsort(book, kind="stable")
        book, epoch, key, instrument_id = book[order], epoch[order], key[order], instrument_id[order]
    same = book[1:] == book[:-1]
    grows = (epoch[1:] > epoch[:-1]) | ((epoch[1:] == epoch[:-1]) & (key[1:] > key[:-1]))
    wrong = np.flatnonzero(same & ~grows)
    if len(wrong):
        at = int(wrong[0])
        where = f"{_format_key(key[at + 1])} after {_format_key(key[at])}"
        raise UmdfError(f"rows of instrument {int(instrument_id[at])} are out of order in {family}: {where}", HINT)


def _format_key(key: np.uint64) -> str:
    number = int(key)
    return f"sequence {number >> 32} message {number >> 16 & 0xFFFF} entry {number & 0xFFFF}"


def event_times(rows: Rows, units: Units) -> NDArray[np.int64]:
    """Event time of each row; its send time if absent."""
    ts_event = rows.column("ts_event")
    absent = ts_event == NULL
    return np.where(absent, units.ts_send[rows.unit], ts_event) if absent.any() else ts_event


def event_ends(rows: RowsByBook, times: NDArray[np.int64], more: bool) -> NDArray[np.bool_]:
    """Where an event ends for a book. Binary marks only the last row of an event, which may belong to another
    instrument: for this book the event ends where its next row has another time. If that row does not follow by
    RptSeq, the end of the event may have been lost, and the half-applied event is not shown."""
    if not len(rows):
        return np.zeros(0, np.bool_)
    ends, rpt_seq = rows.rows.column("flags") & LAST != 0, rows.rows.column("rpt_seq")
    follows = (rpt_seq[1:] == rpt_seq[:-1] + 1) | (rpt_seq[1:] == NULL) | (rpt_seq[:-1] == NULL)
    ends[:-1] |= (follows & (times[1:] != times[:-1])) | (rows.book[1:] != rows.book[:-1])
    if not more:
        ends[-1] = True
    return ends


def select_book_columns(rows: Rows) -> Rows:
    """Only the columns that books use, because rows are selected repeatedly."""
    columns = {name: values for name, values in rows.columns.items() if name in MBO_COLUMNS}
    return Rows(rows.family, rows.unit, rows.msg_index, rows.entry_index, columns)


@dataclass(eq=False)
class InstrumentSet:
    """Some instruments, sorted by ID, with their symbols and depths."""

    ids: NDArray[np.int64]
    symbols: pa.Array
    depths: Mapping[int, int]  # 264, for instruments whose definition has it
    last_phase: NDArray[np.int16]
    last_state: NDArray[np.int16]
