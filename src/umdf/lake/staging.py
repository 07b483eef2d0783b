"""Events between the two stages of an ingest: Arrow files by instrument bucket, in the form that the kernels use.

Stage one decodes a span of a channel and writes one file for each family, its rows by bucket and instrument. Stage two
reads the rows of its buckets from every span, without a copy; those of an instrument are in their order. Columns are
those of `Rows`, NULL as they have it, so nothing is converted on the way; what belongs to the packet (`sequence`,
`ts_send` …) stands in every row. Staged files are never part of a table: they go when the commit is done, so nothing
waits for the disk either.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.buffers import ALIGNMENT, Pool, address_of
from umdf.lake import staging_kernel as k
from umdf.lake.durable import write_fault
from umdf.lake.instruments import ids_and_counts, places_of
from umdf.lake.spare import Spare
from umdf.market.events import FAMILIES, OF_UNIT, Column, Family
from umdf.market.rows import Events, List, Numbers, Rows, Text, Units

BUCKETS, NO_INSTRUMENT = k.BUCKETS, k.NO_INSTRUMENT
HELD_BYTES = 256 << 20  # of events, before they are written: what a span decodes to is not known before
PLACE_BYTES = 38  # of a row: what belongs to its packet, and where it stands in it
Places = NDArray[np.uint32]
_MEMORY = Pool(1)  # fresh memory takes as long as all the rest


def bucket_of(instrument_id: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Which bucket an instrument is in: the same everywhere and always."""
    ids, bucket = np.ascontiguousarray(instrument_id), np.empty(len(instrument_id), np.uint8)
    k.put_buckets(address_of(ids), len(ids), address_of(bucket))
    return bucket


@dataclass(frozen=True)
class Staged:
    """One file of one family: what a task says of it in its manifest."""

    family: str
    path: str
    rows: dict[int, int]  # by bucket; they stand in the order of the buckets

    def to_json(self) -> dict[str, Any]:
        return {"family": self.family, "path": self.path, "rows": {str(b): n for b, n in self.rows.items()}}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Staged:
        return cls(said["family"], said["path"], {int(b): n for b, n in said["rows"].items()})


def writer_of(task: Mapping[str, Any], name: str) -> StagedWriter:
    """For what a task stages."""
    spare = Spare(Path(task["spare"])) if task.get("spare") else None
    return StagedWriter(Path(task["directory"]), f"{name}-{uuid.uuid4().hex}", spare)


@dataclass
class StagedWriter:
    """Gathers the events of a span and writes them by bucket when it is closed."""

    directory: Path
    name: str  # unique for the attempt
    spare: Spare | None = None  # files to be written over
    _parts: dict[str, list[tuple[Rows, Units]]] = field(default_factory=dict)
    _held_bytes: int = 0
    _written: list[Staged] = field(default_factory=list)

    def add(self, events: Events) -> None:
        for family, rows in events.families.items():
            if len(rows):
                self._parts.setdefault(family, []).append((rows, events.units))
                self._held_bytes += _size(rows)
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

    def _write(self, family: str, parts: list[tuple[Rows, Units]]) -> Staged:
        places, counts = _by_instrument([rows.column("instrument_id") for rows, _ in parts])
        batch = _scattered_rows(parts, places, int(counts.sum()))
        parts.clear()
        path = self.directory / f"{self.name}-{len(self._written)}-{family}.arrow"
        is_old = self.spare is not None and self.spare.take(family, path)
        # A stream says where it ends: what an old file has behind that is nothing.
        with path.open("r+b" if is_old else "wb") as file, pa.ipc.new_stream(file, batch.schema) as writer:
            writer.write_batch(batch)
        return Staged(family, str(path), {int(b): int(counts[b]) for b in np.flatnonzero(counts)})


def _size(rows: Rows) -> int:
    """About the bytes that they take in a file."""
    inside = [part for text in rows.texts.values() for part in text]
    for entries in rows.lists.values():
        inside += [*entries.columns.values(), *(part for text in entries.texts.values() for part in text)]
    return sum(part.nbytes for part in (*rows.columns.values(), *inside)) + PLACE_BYTES * len(rows)


def _by_instrument(ids: list[Numbers]) -> tuple[list[Places], NDArray[np.int64]]:
    """Where the rows of each part go, bucket by bucket and instrument by instrument, and how many each bucket has."""
    known, rows = ids_and_counts(np.concatenate(ids))
    known, order = np.sort(known), np.argsort(known)
    rows, bucket = rows[order], bucket_of(known)
    order = np.argsort(bucket, kind="stable")
    following = np.empty(len(known), np.int64)
    following[order] = np.cumsum(rows[order]) - rows[order]
    places = []
    for some in ids:
        which, place = places_of(known, some), np.empty(len(some), np.uint32)
        k.place_rows(address_of(which), len(some), address_of(following), address_of(place))
        places.append(place)
    return places, np.bincount(bucket, rows, BUCKETS + 1).astype(np.int64)


def _scattered_rows(parts: list[tuple[Rows, Units]], places: list[Places], count: int) -> pa.RecordBatch:
    """All columns that a part has, in the order of the places; where a part has none it is NULL."""
    family = parts[0][0].family
    own = list(dict.fromkeys(["instrument_id", *(name for rows, _ in parts for name in rows.columns)]))
    own = [name for name in own if name == "instrument_id" or not _is_absent(family.column(name), parts)]
    columns: dict[str, list[Numbers]] = {
        name: [getattr(rows, name) for rows, _ in parts] for name in ("msg_index", "entry_index")
    }
    columns |= {name: [rows.column(name) for rows, _ in parts] for name in own}
    of_units = {name: [getattr(units, name) for _, units in parts] for name in OF_UNIT}
    moves = [Move(place, rows.unit, frozenset(of_units)) for (rows, _), place in zip(parts, places, strict=True)]
    made = scattered({**columns, **of_units}, moves, _MEMORY)
    order = ["msg_index", "entry_index", *OF_UNIT, *own]
    arrays: dict[str, pa.Array] = {name: pa.array(made[name]) for name in order}
    others = dict.fromkeys(name for rows, _ in parts for name in (*rows.texts, *rows.lists))
    if others:
        taken = np.empty(count, np.int64)
        taken[np.concatenate(places)] = np.arange(count)
        for name in others:
            whole: Any = pa.concat_arrays([_nested(rows, family, name) for rows, _ in parts])
            arrays[name] = whole.take(pa.array(taken))
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


def _is_absent(column: Column, parts: list[tuple[Rows, Units]]) -> bool:
    """Whether no row has it: as if the wire had no such column."""
    found = (rows.columns.get(column.name) for rows, _ in parts)
    return column.nullable and all(
        values is None or (values[0] == column.null and (values == column.null).all()) for values in found
    )


class Move(NamedTuple):
    """Where the rows of a part go, and which rows of it these are in some of its columns; in the others all are."""

    place: Places
    rows: NDArray[np.uint32] | None = None
    by_rows: frozenset[str] = frozenset()


def scattered(columns: Mapping[str, list[Numbers]], moves: Sequence[Move], pool: Pool) -> dict[str, Numbers]:
    """Columns in parts → whole columns, each row at its place."""
    count = sum(len(move.place) for move in moves)
    made = _room({name: parts[0].dtype for name, parts in columns.items()}, count, pool)
    for number, (place, rows, by_rows) in enumerate(moves):
        held = {name: np.ascontiguousarray(parts[number], made[name].dtype) for name, parts in columns.items()}
        abouts = [(address_of(held[n]), made[n].itemsize, address_of(made[n]), n in by_rows) for n in made]
        table = np.array(abouts, np.int64)
        taken = place if rows is None else np.ascontiguousarray(rows, np.uint32)
        k.scatter(address_of(table), len(table), address_of(place), address_of(taken), len(place))
    return made


def _room(kinds: Mapping[str, np.dtype[Any]], count: int, pool: Pool) -> dict[str, Numbers]:
    """Columns to be filled."""
    sizes = [-(-count * kind.itemsize // ALIGNMENT) * ALIGNMENT for kind in kinds.values()]
    memory, found, at = pool.take(sum(sizes)).array, {}, 0
    for (name, kind), size in zip(kinds.items(), sizes, strict=True):
        found[name] = memory[at : at + count * kind.itemsize].view(kind)
        at += size
    return found


def _nested(rows: Rows, family: Family, name: str) -> pa.Array:
    if name in family.lists:
        none = List(np.zeros(len(rows) + 1, np.int32), {}, {})
        return _list_array(rows.lists.get(name, none), family.lists[name])
    text = rows.texts.get(name)
    return _absent(family.column(name), len(rows)) if text is None else _text_array(text)


def read_staged(files: Iterable[Staged], family: str, buckets: Iterable[int]) -> Events:
    """The rows of a family in these buckets, in the order of the files; a unit for each row."""
    batches = [batch for _, _, batch in staged_batches(files, family, buckets)]
    if not batches:
        return Events(_units({}, 0), {})
    batch = _concatenated(batches, family).to_batches()[0] if len(batches) > 1 else batches[0]
    return as_events(batch, family)


def staged_batches(
    files: Iterable[Staged], family: str, buckets: Iterable[int]
) -> Iterator[tuple[str, dict[int, int], pa.RecordBatch]]:
    """As they are in the files, without a copy: path, how many rows of which buckets (neighbours come together), rows.

    All have the same columns: what a wire leaves out for a while is NULL there."""
    wanted = set(buckets)
    chosen = [staged for staged in files if staged.family == family and wanted & staged.rows.keys()]
    readers = [pa.ipc.open_stream(pa.memory_map(staged.path)) for staged in chosen]
    types = {each.name: each.type for reader in readers for each in reader.schema}
    for staged, reader in zip(chosen, readers, strict=True):
        whole, first = reader.read_next_batch(), 0
        same = whole.schema.names == list(types)
        for is_wanted, run in groupby(sorted(staged.rows), wanted.__contains__):
            rows = {bucket: staged.rows[bucket] for bucket in run}
            count = sum(rows.values())
            if is_wanted:
                batch = whole.slice(first, count)
                yield staged.path, rows, batch if same else _filled(batch, types, FAMILIES[family])
            first += count


def as_events(batch: pa.RecordBatch, family: str) -> Events:
    """The columns of a batch as they are."""
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
        values = inside.field(number)
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
