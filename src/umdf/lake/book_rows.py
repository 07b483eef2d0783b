"""Staged rows → rows of some instruments, each instrument's together and in the order of the wire.

The one rule: a book must see all rows of its instrument, each once, in order. What is not so fails the job here, with
the instrument and the places, before anything wrong can be written (a shuffle that splits instruments is silent).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.book.engine import COLUMNS
from umdf.buffers import Pool
from umdf.errors import UmdfError
from umdf.lake.instruments import ids_and_counts, places_of
from umdf.lake.staging import Move, Staged, as_events, bucket_of, scattered, staged_batches
from umdf.market.calendar import are_all_of, local_dates
from umdf.market.events import NULL
from umdf.market.rows import Events, Rows, Units

LENDING = ord("L")
_MEMORY = Pool(1)
Limit = tuple[int, int] | None  # a place in the stream: rank of the epoch, key
HINT = "an instrument's rows were split or mixed up between tasks; this is a bug: please report it"


@dataclass(frozen=True, eq=False)
class Piece:
    """The rows of some buckets in one staged file."""

    path: str
    batch: pa.RecordBatch
    instrument_id: NDArray[np.int64]
    counted: NDArray[np.bool_] | None  # which rows are of the trading date; None: all

    def rows_of(self, first: int, last: int) -> NDArray[np.int64]:
        chosen = (self.instrument_id >= first) & (self.instrument_id <= last)
        return np.flatnonzero(chosen if self.counted is None else chosen & self.counted)


@dataclass(frozen=True, eq=False)
class Chosen:
    """Rows that are still in pieces, where they were staged: whoever wants them in one, or in another order, moves them
    once. Of each batch which rows; None: all."""

    parts: list[tuple[pa.RecordBatch, NDArray[np.uint32] | None]]

    def __len__(self) -> int:
        return sum(batch.num_rows if rows is None else len(rows) for batch, rows in self.parts)

    @property
    def schema(self) -> pa.Schema:
        return self.parts[0][0].schema

    def numbers(self, name: str) -> NDArray[Any]:
        columns = ((batch.column(name).to_numpy(), rows) for batch, rows in self.parts)
        found = [column if rows is None else np.take(column, rows) for column, rows in columns]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def batch(self) -> pa.RecordBatch:
        """Put together, in the order of the pieces."""
        batches = [batch if rows is None else _taken(batch, rows) for batch, rows in self.parts]
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


@dataclass(eq=False)
class Grouped:
    """Rows of one family by book: `book` is twice the place of the instrument among `ids`, and one for lending."""

    events: Events
    book: NDArray[np.int32]
    epoch: NDArray[np.int32]  # its place among the epochs of the channel
    key: NDArray[np.uint64]  # sequence, message, entry: the order within an epoch
    made: NDArray[np.bool_] | None = None  # rows that were not staged: a channel reset, for each of its books
    deleted: NDArray[np.bool_] | None = None  # those of them where the instrument is deleted

    def __len__(self) -> int:
        return len(self.key)

    @property
    def rows(self) -> Rows:
        return next(iter(self.events.families.values()))

    @property
    def units(self) -> Units:
        return self.events.units

    def between(self, done: Limit, until: Limit) -> Grouped:
        """Rows behind one place of the stream and not behind another."""
        chosen = np.flatnonzero(is_between(self.epoch, self.key, done, until))
        if len(chosen) == len(self):
            return self
        events = self.events.at({self.rows.family.name: chosen})
        masks = (mask if mask is None else mask[chosen] for mask in (self.made, self.deleted))
        return Grouped(events, self.book[chosen], self.epoch[chosen], self.key[chosen], *masks)


@dataclass
class Epochs:
    """The numbering epochs of a channel in their order (versions are compared for inequality only)."""

    versions: list[int] = field(default_factory=list)

    def ranks(self, seq_version: NDArray[np.int64]) -> NDArray[np.int32]:
        if not len(seq_version):
            return np.empty(0, np.int32)
        if (seq_version == seq_version[0]).all():
            return np.full(len(seq_version), self.rank(int(seq_version[0])), np.int32)
        values, first, places = np.unique(seq_version, return_index=True, return_inverse=True)
        for at in np.argsort(first):
            self.rank(int(values[at]))
        return np.array([self.rank(int(value)) for value in values], np.int32)[places]

    def rank(self, seq_version: int) -> int:
        if seq_version not in self.versions:
            self.versions.append(seq_version)
        return self.versions.index(seq_version)


class Intake:
    """The rows of one family in some buckets and on one date, still where they were staged."""

    def __init__(self, staged: Sequence[Staged], family: str, buckets: Sequence[int], trading_date: int) -> None:
        self.family = family
        self.pieces: list[Piece] = []
        for path, rows, batch in staged_batches(staged, family, buckets):
            ids = batch.column("instrument_id").to_numpy()
            _refuse_strangers(path, rows, ids)
            counted = _of_date(batch.column("ts_send").to_numpy(), trading_date)
            if counted is None or counted.any():
                self.pieces.append(Piece(path, batch, ids, counted))

    def counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Instruments, sorted, and how many rows each has."""
        ids, rows = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for piece in self.pieces:
            some, many = ids_and_counts(
                piece.instrument_id if piece.counted is None else piece.instrument_id[piece.counted]
            )
            ids.append(some)
            rows.append(many)
        all_ids, places = np.unique(np.concatenate(ids), return_inverse=True)
        return all_ids, np.bincount(places, np.concatenate(rows), len(all_ids)).astype(np.int64)

    def chunks(self, first: int, last: int, most_rows: int) -> Iterator[Chosen]:
        """Rows of the instruments from `first` to `last` in the order of the files, at most about so many at a time."""
        waiting: list[tuple[pa.RecordBatch, NDArray[np.uint32] | None]] = []
        count = 0
        for piece in self.pieces:
            rows = piece.rows_of(first, last)
            if not len(rows):
                continue
            if count and count + len(rows) > most_rows:
                done, waiting, count = Chosen(waiting), [], 0
                yield done
            whole = len(rows) == piece.batch.num_rows
            waiting.append((piece.batch, None if whole else rows.astype(np.uint32)))
            count += len(rows)
        if waiting:
            yield Chosen(waiting)


def _of_date(ts_send: NDArray[np.int64], trading_date: int) -> NDArray[np.bool_] | None:
    """Which rows are of a date; None: all."""
    return None if are_all_of(ts_send, trading_date) else local_dates(ts_send) == trading_date


def _refuse_strangers(path: str, rows: dict[int, int], ids: NDArray[np.int64]) -> None:
    own, said = bucket_of(ids), np.repeat(np.array(list(rows), np.uint8), list(rows.values()))
    strange = np.flatnonzero(own != said)
    if len(strange):
        at = strange[0]
        reason = f"instrument {ids[at]} is split: it is of bucket {own[at]} and has rows in {said[at]} of {path}"
        raise UmdfError(reason, HINT)


def _taken(batch: pa.RecordBatch, rows: NDArray[np.uint32]) -> pa.RecordBatch:
    """numpy takes numbers faster than Arrow does."""
    arrays = [_taken_array(column, rows) for column in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, batch.schema.names)


def _taken_array(column: pa.Array, rows: NDArray[np.uint32]) -> pa.Array:
    if pa.types.is_primitive(column.type) and not column.null_count:
        return pa.array(np.take(column.to_numpy(), rows))
    return column.take(pa.array(rows))


def grouped(
    rows: Chosen | None,
    family: str,
    ids: NDArray[np.int64],
    epochs: Epochs,
    made: pa.RecordBatch | None = None,
) -> Grouped:
    """Rows in the order of the files → rows by book; `made` are put among them by their key."""
    count = 0 if rows is None else len(rows)
    has_made = made is not None and made.num_rows > 0
    every = Chosen([*(rows.parts if rows is not None else ()), *([(made, None)] if has_made else [])])
    if not len(every):
        numbers, none = np.empty(0, np.int64), np.empty(0, np.int16)
        empty = Events(Units(none, numbers, numbers, numbers, numbers), {})
        return Grouped(empty, np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.uint64))
    instrument_id, sequence = every.numbers("instrument_id"), every.numbers("sequence")
    book = 2 * places_of(ids, instrument_id)
    if "stream" in every.schema.names:
        book += every.numbers("stream") == LENDING
    epoch = epochs.ranks(every.numbers("seq_version"))
    key = wire_key(sequence, every.numbers("msg_index"), every.numbers("entry_index"))
    order = np.lexsort((key, epoch, book)) if has_made and count else _stable_order(book, 2 * len(ids))
    if has_made and count:
        _refuse_disorder(book[:count], epoch[:count], key[:count], instrument_id[:count], family)
    if len(every.parts) > 1 or not _is_identity(order):
        whole = _placed(every, order)
        book, epoch, key = book[order], epoch[order], key[order]
    else:
        whole = every.batch()
    _refuse_disorder(book, epoch, key, ids[book >> 1], family)
    return Grouped(as_events(whole, family), book, epoch, key, order >= count if has_made else None)


def _placed(chosen: Chosen, order: NDArray[np.int64]) -> pa.RecordBatch:
    """As one batch, in this order: numbers are moved once, straight to their places."""
    names, place = chosen.schema.names, np.empty(len(order), np.uint32)
    place[order] = np.arange(len(order), dtype=np.uint32)
    simple = [each.name for each in chosen.schema if pa.types.is_primitive(each.type)]
    columns = {name: [batch.column(name).to_numpy() for batch, _ in chosen.parts] for name in simple}
    moves, first = [], 0
    for batch, rows in chosen.parts:
        count = batch.num_rows if rows is None else len(rows)
        moves.append(Move(place[first : first + count], rows, frozenset(names if rows is not None else ())))
        first += count
    arrays = {name: pa.array(values) for name, values in scattered(columns, moves, _MEMORY).items()}
    if others := [name for name in names if name not in arrays]:
        whole = chosen.batch()
        arrays |= {name: whole.column(name).take(pa.array(order)) for name in others}
    return pa.RecordBatch.from_arrays([arrays[name] for name in names], names)


def wire_key(sequence: Any, msg_index: Any, entry_index: Any) -> NDArray[np.uint64]:
    key = np.asarray(sequence).astype(np.uint64) << np.uint64(32)
    key |= np.asarray(msg_index).astype(np.uint64) << np.uint64(16)
    return key | np.asarray(entry_index).astype(np.uint64)


def is_between(epoch: NDArray[np.int32], key: NDArray[np.uint64], done: Limit, until: Limit) -> NDArray[np.bool_]:
    """Behind `done` and not behind `until`; None: no such limit."""
    chosen = np.ones(len(key), np.bool_)
    if done is not None:
        chosen &= (epoch > done[0]) | ((epoch == done[0]) & (key > np.uint64(done[1])))
    if until is not None:
        chosen &= (epoch < until[0]) | ((epoch == until[0]) & (key <= np.uint64(until[1])))
    return chosen


def _stable_order(book: NDArray[np.int32], books: int) -> NDArray[np.int64]:
    """Up to 65,536 books numpy counts instead of comparing."""
    return np.argsort(book.astype(np.uint16) if books <= 1 << 16 else book, kind="stable")


def _is_identity(order: NDArray[np.int64]) -> bool:
    return bool((order == np.arange(len(order))).all())


def _refuse_disorder(
    book: NDArray[np.int32],
    epoch: NDArray[np.int32],
    key: NDArray[np.uint64],
    instrument_id: NDArray[np.int64],
    family: str,
) -> None:
    """Within a book, epoch and key must grow: the same row twice is as bad as an older one."""
    if (book[1:] < book[:-1]).any():  # still in the order of the files
        order = np.argsort(book, kind="stable")
        book, epoch, key, instrument_id = book[order], epoch[order], key[order], instrument_id[order]
    same = book[1:] == book[:-1]
    grows = (epoch[1:] > epoch[:-1]) | ((epoch[1:] == epoch[:-1]) & (key[1:] > key[:-1]))
    wrong = np.flatnonzero(same & ~grows)
    if len(wrong):
        at = int(wrong[0])
        places = f"{_place(key[at + 1])} after {_place(key[at])}"
        raise UmdfError(f"rows of instrument {int(instrument_id[at])} are out of order in {family}: {places}", HINT)


def _place(key: np.uint64) -> str:
    number = int(key)
    return f"sequence {number >> 32} message {number >> 16 & 0xFFFF} entry {number & 0xFFFF}"


def times_of(rows: Rows, units: Units) -> NDArray[np.int64]:
    """When each row happened; when it was sent, where that is not said."""
    ts_event = rows.column("ts_event")
    absent = ts_event == NULL
    return np.where(absent, units.ts_send[rows.unit], ts_event) if absent.any() else ts_event


def for_books(rows: Rows) -> Rows:
    """Only what books look at: some of it is taken out again and again."""
    columns = {name: values for name, values in rows.columns.items() if name in COLUMNS}
    return Rows(rows.family, rows.unit, rows.msg_index, rows.entry_index, columns)
