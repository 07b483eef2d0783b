"""Events between the two stages of an ingest: Arrow files by instrument bucket, in the form that the kernels use.

Stage one decodes a span of a channel and writes one file for each family; its record batches are the buckets. Stage
two reads the batches of its buckets from every span, in order, without a copy. Columns are those of `Rows`, NULL as
they have it, so nothing is converted on the way; what belongs to the packet (`sequence`, `ts_send` …) stands in every
row. Staged files are never part of a table: they go when the commit is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.lake.durable import write_fault
from umdf.market.events import FAMILIES, OF_UNIT, Column, Family
from umdf.market.rows import Events, List, Numbers, Rows, Text, Units

BUCKETS = 64
HELD_BYTES = 256 << 20  # of events, before they are written: what a span decodes to is not known before
NO_INSTRUMENT = BUCKETS  # rows of the whole channel or of a group


def bucket_of(instrument_id: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Which bucket an instrument is in: the same everywhere and always."""
    mixed = instrument_id.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    bucket = (mixed >> np.uint64(58)).astype(np.uint8)
    bucket[instrument_id == np.iinfo(np.int64).min] = NO_INSTRUMENT
    return bucket


@dataclass(frozen=True)
class Staged:
    """One file of one family: what a task says of it in its manifest."""

    family: str
    path: str
    rows: dict[int, int]  # by bucket; the record batches stand in the order of their buckets

    def to_json(self) -> dict[str, Any]:
        return {"family": self.family, "path": self.path, "rows": {str(b): n for b, n in self.rows.items()}}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Staged:
        return cls(said["family"], said["path"], {int(b): n for b, n in said["rows"].items()})


@dataclass
class StagedWriter:
    """Gathers the events of a span and writes them by bucket when it is closed."""

    directory: Path
    name: str  # unique for the attempt
    _parts: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    _held_bytes: int = 0
    _written: list[Staged] = field(default_factory=list)

    def add(self, events: Events) -> None:
        for family, rows in events.families.items():
            if len(rows):
                batch = _as_batch(rows, events.units)
                self._parts.setdefault(family, []).append(batch)
                self._held_bytes += batch.nbytes
        if self._held_bytes > HELD_BYTES:
            self._flush()

    def close(self) -> list[Staged]:
        """Write every family; the files, in the order of the stream."""
        self._flush()
        return self._written

    def _flush(self) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            for family in list(self._parts):
                self._written.append(self._write(family, self._parts.pop(family)))
        except OSError as error:
            raise write_fault(self.directory, error) from error
        self._held_bytes = 0

    def _write(self, family: str, parts: list[pa.RecordBatch]) -> Staged:
        table = _concatenated(parts, family)
        parts.clear()
        bucket = bucket_of(table.column("instrument_id").to_numpy())
        counts = np.bincount(bucket, minlength=BUCKETS + 1)
        table = table.take(pa.array(np.argsort(bucket, kind="stable")))
        path = self.directory / f"{self.name}-{len(self._written)}-{family}.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            first = 0
            for count in counts[counts > 0].tolist():
                writer.write_batch(table.slice(first, count).to_batches()[0])
                first += count
        return Staged(family, str(path), {int(b): int(counts[b]) for b in np.flatnonzero(counts)})


def read_staged(files: Iterable[Staged], family: str, buckets: Iterable[int]) -> Events:
    """The rows of a family in these buckets, in the order of the files; a unit for each row."""
    batches = [batch for _, _, batch in staged_batches(files, family, buckets)]
    if not batches:
        return Events(_units({}, 0), {})
    batch = _concatenated(batches, family).to_batches()[0] if len(batches) > 1 else batches[0]
    return as_events(batch, family)


def staged_batches(
    files: Iterable[Staged], family: str, buckets: Iterable[int]
) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """As they are in the files, without a copy: path, bucket, rows. All have the same columns: what a wire leaves out
    for a while is NULL there."""
    wanted = set(buckets)
    chosen = [staged for staged in files if staged.family == family and wanted & staged.rows.keys()]
    readers = [pa.ipc.open_file(pa.memory_map(staged.path)) for staged in chosen]
    types = {each.name: each.type for reader in readers for each in reader.schema}
    for staged, reader in zip(chosen, readers, strict=True):
        for place, bucket in enumerate(sorted(staged.rows)):
            if bucket in wanted:
                batch = reader.get_batch(place)
                same = batch.schema.names == list(types)
                yield staged.path, bucket, batch if same else _filled(batch, types, FAMILIES[family])


def _as_batch(rows: Rows, units: Units) -> pa.RecordBatch:
    columns: dict[str, Any] = {"msg_index": rows.msg_index, "entry_index": rows.entry_index}
    for name in OF_UNIT:
        columns[name] = getattr(units, name)[rows.unit]
    columns |= {"instrument_id": rows.column("instrument_id"), **rows.columns}
    arrays = {name: pa.array(values) for name, values in columns.items()}
    arrays |= {name: _text_array(text) for name, text in rows.texts.items()}
    for name, entries in rows.lists.items():
        arrays[name] = _list_array(entries, rows.family.lists[name])
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


def as_events(batch: pa.RecordBatch, family: str) -> Events:
    known, count = FAMILIES[family], batch.num_rows
    columns: dict[str, Numbers] = {}
    texts: dict[str, Text] = {}
    lists: dict[str, List] = {}
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if name in known.lists:
            lists[name] = _list_of(array)
        elif pa.types.is_binary(array.type):
            texts[name] = _text_of(array)
        else:
            columns[name] = array.to_numpy(zero_copy_only=True)
    units = _units(columns, count)
    place = {"msg_index": columns.pop("msg_index"), "entry_index": columns.pop("entry_index")}
    own = {name: values for name, values in columns.items() if name not in OF_UNIT}
    rows = Rows(known, np.arange(count, dtype=np.uint32), place["msg_index"], place["entry_index"], own, texts, lists)
    return Events(units, {family: rows} if count else {})


def _units(columns: Mapping[str, Numbers], count: int) -> Units:
    kinds = {"channel_id": np.int16}
    return Units(*(columns.get(name, np.zeros(count, kinds.get(name, np.int64))) for name in _UNIT_ORDER))


_UNIT_ORDER = ("channel_id", "seq_version", "sequence", "ts_send", "ts_recv")


def _text_array(text: Text) -> pa.Array:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(text[0])), pa.py_buffer(np.ascontiguousarray(text[1]))]
    return pa.Array.from_buffers(pa.binary(), len(text[0]) - 1, buffers)


def _text_of(array: pa.Array) -> Text:
    _, offsets, content = array.buffers()
    found = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    shown = np.frombuffer(content, np.uint8) if content is not None else np.empty(0, np.uint8)
    return (found - found[0]).astype(np.int32), shown[found[0] : found[-1]]


def _list_of(array: pa.Array) -> List:
    offsets = np.asarray(array.offsets).astype(np.int32)
    inside = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    columns: dict[str, Numbers] = {}
    texts: dict[str, Text] = {}
    for number, entry in enumerate(array.type.value_type):
        values = inside.field(number).slice(inside.offset, len(inside)) if inside.offset else inside.field(number)
        if pa.types.is_binary(entry.type):
            texts[entry.name] = _text_of(values)
        else:
            columns[entry.name] = values.to_numpy(zero_copy_only=True)
    return List(offsets - offsets[0], columns, texts)


def _list_array(entries: List, columns: tuple[Column, ...]) -> pa.Array:
    """With all columns of the list, so that lists of any two batches are of one type."""
    count, inside = int(entries.offsets[-1]), []
    for column in columns:
        if column.is_text:
            text = entries.texts.get(column.name)
            inside.append(_absent(column, count) if text is None else _text_array((text[0][: count + 1], text[1])))
        else:
            values = entries.columns.get(column.name)
            inside.append(_absent(column, count) if values is None else pa.array(values[:count]))
    structs = pa.StructArray.from_arrays(inside, [column.name for column in columns])
    return pa.ListArray.from_arrays(pa.array(entries.offsets, pa.int32()), structs)


def _absent(column: Column, count: int) -> pa.Array:
    """A column that is NULL throughout, as `Rows` has it."""
    if column.is_text:
        return _text_array((np.zeros(count + 1, np.int32), np.empty(0, np.uint8)))
    return pa.array(np.full(count, column.null if column.nullable else 0, column.dtype))


def _concatenated(parts: list[pa.RecordBatch], family: str) -> pa.Table:
    """Batches of one family as one; a column that a wire leaves out for a while is NULL there."""
    if not all(part.schema.equals(parts[0].schema) for part in parts):
        types = {each.name: each.type for part in parts for each in part.schema}
        parts = [_filled(part, types, FAMILIES[family]) for part in parts]
    return pa.Table.from_batches(parts).combine_chunks()


def _filled(part: pa.RecordBatch, types: Mapping[str, pa.DataType], family: Family) -> pa.RecordBatch:
    count, arrays = part.num_rows, []
    for name, kind in types.items():
        if name in part.schema.names:
            array = part.column(name)
        elif name in family.lists:
            none = List(np.zeros(count + 1, np.int32), {}, {})
            array = _list_array(none, family.lists[name])
        else:
            array = _absent(family.column(name), count)
        arrays.append(array if array.type == kind else array.cast(kind))
    return pa.RecordBatch.from_arrays(arrays, list(types))
