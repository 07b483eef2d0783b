"""Rows that a book needs and the stream has only once for all, or in another family: a channel reset, a deletion.

A channel reset empties every book of the channel (4.2.9); an instrument that is deleted has no book any more (7.3).
Both become an Empty Book of each instrument concerned; they are never written to `mbo`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.lake.book_rows import Epochs, Grouped, Limit, is_between, wire_key
from umdf.lake.book_state import Stored
from umdf.lake.staging import NO_INSTRUMENT, Staged, read_staged, staged_batches
from umdf.market.calendar import local_dates
from umdf.market.events import FAMILIES, LAST, NULL, OF_UNIT

CLEAR, NEITHER, DELETE = ord("R"), ord("N"), ord("D")
EVERY_BUCKET = range(NO_INSTRUMENT + 1)


@dataclass(frozen=True, eq=False)
class Made:
    """Where something empties books: of one instrument, or (NULL) of all."""

    instrument_id: NDArray[np.int64]
    epoch: NDArray[np.int32]
    key: NDArray[np.uint64]
    places: dict[str, NDArray[Any]]  # the columns that say where it stands in the stream
    schema: pa.Schema | None  # of staged rows of mbo

    @classmethod
    def of(cls, staged: Sequence[Staged], buckets: Sequence[int], trading_date: int, epochs: Epochs) -> Made:
        found: list[tuple[NDArray[np.int64], dict[str, NDArray[Any]]]] = []
        for family, some in (("mbo", [NO_INSTRUMENT]), ("definition", buckets)):
            events = read_staged(staged, family, some)
            rows = events.rows(family)
            wanted = rows.column("action") == (CLEAR if family == "mbo" else DELETE)
            rows = rows.at(wanted & (local_dates(events.units.ts_send)[rows.unit] == trading_date))
            places = {name: getattr(events.units, name)[rows.unit] for name in OF_UNIT}
            places |= {
                "msg_index": rows.msg_index,
                "entry_index": rows.entry_index,
                "ts_event": rows.column("ts_event"),
            }
            found.append((rows.column("instrument_id"), places))
        ids = np.concatenate([some for some, _ in found])
        places = {name: np.concatenate([of[name] for _, of in found]) for name in found[0][1]}
        schema = next((batch.schema for _, _, batch in staged_batches(staged, "mbo", EVERY_BUCKET)), None)
        key = wire_key(places["sequence"], places["msg_index"], places["entry_index"])
        return cls(ids, epochs.ranks(places["seq_version"]), key, places, schema)

    def rows(self, ids: NDArray[np.int64], done: Limit, until: Limit) -> pa.RecordBatch | None:
        """For these (sorted) instruments, between two places of the stream."""
        chosen = is_between(self.epoch, self.key, done, until)
        own = (self.instrument_id == NULL) | np.isin(self.instrument_id, ids)
        events = np.flatnonzero(chosen & own)
        if not len(events) or self.schema is None:
            return None
        pairs = [(e, i) for e in events.tolist() for i in self._concerned(e, ids)]
        event, instrument_id = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
        return _empty_books({name: values[event] for name, values in self.places.items()}, instrument_id, self.schema)

    def deleted(self, rows: Grouped) -> NDArray[np.bool_] | None:
        """Which of the rows that were made are those of deletions."""
        own = self.instrument_id != NULL
        if rows.made is None or not own.any():
            return None
        found = np.zeros(len(rows), np.bool_)
        for epoch in np.unique(self.epoch[own]).tolist():  # the key is that of a message: no reset has the same
            found |= (rows.epoch == epoch) & np.isin(rows.key, self.key[own & (self.epoch == epoch)])
        return found & rows.made

    def _concerned(self, event: int, ids: NDArray[np.int64]) -> list[int]:
        own = int(self.instrument_id[event])
        return ids.tolist() if own == NULL else [own]


_FIXED = {"action": CLEAR, "side": NEITHER, "flags": LAST}


def _empty_books(
    places: dict[str, NDArray[Any]], instrument_id: NDArray[np.int64], schema: pa.Schema
) -> pa.RecordBatch:
    """Rows that empty the books of some instruments."""
    arrays = []
    for each in schema:
        if each.name in places:
            values = places[each.name]
        else:
            column = FAMILIES["mbo"].column(each.name)
            value = _FIXED.get(each.name, column.null if column.nullable else 0)
            values = np.full(len(instrument_id), value, column.dtype)
        arrays.append(pa.array(instrument_id if each.name == "instrument_id" else values))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def empty_books(stored: Sequence[Stored], schema: pa.Schema) -> pa.RecordBatch | None:
    """Those that were kept in `book_state`."""
    if not stored:
        return None
    places: dict[str, NDArray[Any]] = {
        "channel_id": np.zeros(len(stored), np.int16),
        "seq_version": np.array([one.seq_version for one in stored], np.int64),
        "sequence": np.array([one.key >> 32 for one in stored], np.int64),
        "msg_index": np.array([one.key >> 16 & 0xFFFF for one in stored], np.uint16),
        "entry_index": np.array([one.key & 0xFFFF for one in stored], np.uint16),
        "ts_event": np.array([one.head["ts"] for one in stored], np.int64),
        "ts_send": np.array([one.head["ts_send"] for one in stored], np.int64),
        "ts_recv": np.array([one.head["ts_recv"] for one in stored], np.int64),
    }
    return _empty_books(places, np.array([one.instrument_id for one in stored], np.int64), schema)
