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

from umdf.lake.book_rows import Epochs, Limit, is_between, wire_key
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
        family = FAMILIES["mbo"]
        arrays = []
        for each in self.schema:
            if each.name in self.places:
                values = self.places[each.name][event]
            else:
                column = family.column(each.name)
                value = _FIXED.get(each.name, column.null if column.nullable else 0)
                values = instrument_id if each.name == "instrument_id" else np.full(len(event), value, column.dtype)
            arrays.append(pa.array(values))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _concerned(self, event: int, ids: NDArray[np.int64]) -> list[int]:
        own = int(self.instrument_id[event])
        return ids.tolist() if own == NULL else [own]


_FIXED = {"action": CLEAR, "side": NEITHER, "flags": LAST}
