"""Synthetic rows for channel resets and deletions, which the stream sends once for all books, or in another family.

A channel reset empties every book of the channel (4.2.9); a deleted instrument no longer has a book (7.3). Both become
an Empty Book row for each instrument concerned, which is never written to `mbo`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.book.engine import Books
from umdf.lake.books.instrument_rows import (
    LENDING,
    Epochs,
    RowsByBook,
    StagedRows,
    StreamPosition,
    is_between,
    wire_key,
)
from umdf.lake.books.state_record import BookState
from umdf.lake.tasks.staging import NO_INSTRUMENT, StagedFile, read_staged, staged_batches
from umdf.market.calendar import local_dates
from umdf.market.families import FAMILIES, LAST, NULL, UNIT_COLUMNS

CLEAR, NEITHER, DELETE = ord("R"), ord("N"), ord("D")
EVERY_BUCKET = range(NO_INSTRUMENT + 1)


@dataclass(frozen=True, eq=False)
class BookResets:
    """Positions at which books are emptied: of one instrument, or (NULL) of all."""

    instrument_id: NDArray[np.int64]
    epoch: NDArray[np.int32]
    key: NDArray[np.uint64]
    position_columns: dict[str, NDArray[Any]]  # the columns of its position in the stream
    schema: pa.Schema | None  # of staged rows of mbo

    @classmethod
    def from_staged(
        cls, staged: Sequence[StagedFile], buckets: Sequence[int], trading_date: int, epochs: Epochs
    ) -> BookResets:
        parts: list[tuple[NDArray[np.int64], dict[str, NDArray[Any]]]] = []
        for family, family_buckets in (("mbo", [NO_INSTRUMENT]), ("definition", buckets)):
            events = read_staged(staged, family, family_buckets)
            rows = events.rows(family)
            is_reset = rows.column("action") == (CLEAR if family == "mbo" else DELETE)
            rows = rows.take(is_reset & (local_dates(events.units.ts_send)[rows.unit] == trading_date))
            position_columns = {name: getattr(events.units, name)[rows.unit] for name in UNIT_COLUMNS}
            position_columns |= {
                "msg_index": rows.msg_index,
                "entry_index": rows.entry_index,
                "ts_event": rows.column("ts_event"),
            }
            parts.append((rows.column("instrument_id"), position_columns))
        ids = np.concatenate([some for some, _ in parts])
        position_columns = {name: np.concatenate([of[name] for _, of in parts]) for name in parts[0][1]}
        schema = next((batch.schema for _, _, batch in staged_batches(staged, "mbo", EVERY_BUCKET)), None)
        key = wire_key(position_columns["sequence"], position_columns["msg_index"], position_columns["entry_index"])
        return cls(ids, epochs.ranks(position_columns["seq_version"]), key, position_columns, schema)

    def rows(
        self,
        ids: NDArray[np.int64],
        after: StreamPosition,
        until: StreamPosition,
        staged: StagedRows | None = None,
        books: Books | None = None,
    ) -> pa.RecordBatch | None:
        """Rows for these (sorted) instruments, between two positions of the stream; also for the lending books that
        the staged rows of that span or the books so far have (9.8)."""
        inside = is_between(self.epoch, self.key, after, until)
        own = (self.instrument_id == NULL) | np.isin(self.instrument_id, ids)
        events = np.flatnonzero(inside & own)
        if not len(events) or self.schema is None:
            return None
        lending_ids = _lending_ids(staged, books)
        keys = [(e, i, 0) for e in events.tolist() for i in self._affected_ids(e, ids)]
        keys += [(e, i, 1) for e, i, _ in keys if i in lending_ids]
        event, instrument_id, is_lending = (np.array(column, np.int64) for column in zip(*keys, strict=True))
        position_columns = {name: values[event] for name, values in self.position_columns.items()}
        return _reset_rows(position_columns, instrument_id, is_lending, self.schema)

    def deletion_mask(self, rows: RowsByBook) -> NDArray[np.bool_] | None:
        """Which synthetic rows are deletions."""
        own = self.instrument_id != NULL
        if rows.is_synthetic is None or not own.any():
            return None
        found = np.zeros(len(rows), np.bool_)
        for epoch in np.unique(self.epoch[own]).tolist():  # the key of a message: no reset has the same
            found |= (rows.epoch == epoch) & np.isin(rows.key, self.key[own & (self.epoch == epoch)])
        return found & rows.is_synthetic

    def _affected_ids(self, event: int, ids: NDArray[np.int64]) -> list[int]:
        own = int(self.instrument_id[event])
        return ids.tolist() if own == NULL else [own]


_RESET_VALUES = {"action": CLEAR, "side": NEITHER, "flags": LAST}


def _lending_ids(staged: StagedRows | None, books: Books | None) -> set[int]:
    """The instruments with a lending book, so far or in these rows."""
    ids = set[int]()
    if books is not None:
        ids |= {instrument_id for instrument_id, is_lending in books.instruments() if is_lending}
    if staged is not None and "venue" in staged.schema.names:
        ids |= set(staged.column("instrument_id")[staged.column("venue") == LENDING].tolist())
    return ids


def _reset_rows(
    position_columns: dict[str, NDArray[Any]],
    instrument_id: NDArray[np.int64],
    is_lending: NDArray[np.int64],
    schema: pa.Schema,
) -> pa.RecordBatch:
    """Rows that empty the books of some instruments."""
    arrays = []
    for each in schema:
        if each.name in position_columns:
            values = position_columns[each.name]
        elif each.name == "venue":
            values = np.where(is_lending != 0, LENDING, 0).astype(np.uint8)
        else:
            column = FAMILIES["mbo"].column(each.name)
            value = _RESET_VALUES.get(each.name, column.null if column.nullable else 0)
            values = np.full(len(instrument_id), value, column.dtype)
        arrays.append(pa.array(instrument_id if each.name == "instrument_id" else values))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def resets_from_states(states: Sequence[BookState], schema: pa.Schema) -> pa.RecordBatch | None:
    """The resets stored in `book_state`."""
    if not states:
        return None
    position_columns: dict[str, NDArray[Any]] = {
        "channel_id": np.zeros(len(states), np.int16),
        "seq_version": np.array([one.seq_version for one in states], np.int64),
        "sequence": np.array([one.key >> 32 for one in states], np.int64),
        "msg_index": np.array([one.key >> 16 & 0xFFFF for one in states], np.uint16),
        "entry_index": np.array([one.key & 0xFFFF for one in states], np.uint16),
        "ts_event": np.array([one.header["ts"] for one in states], np.int64),
        "ts_send": np.array([one.header["ts_send"] for one in states], np.int64),
        "ts_recv": np.array([one.header["ts_recv"] for one in states], np.int64),
    }
    ids, lending = ([one.instrument_id for one in states], [one.header["lending"] for one in states])
    return _reset_rows(position_columns, np.array(ids, np.int64), np.array(lending, np.int64), schema)
