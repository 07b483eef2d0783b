"""Staged events between the steps of an ingest: Arrow files by instrument bucket, in the format of the kernels.

Step 1 decodes a span of a channel and writes one file per family, with rows by bucket and instrument. Steps 2 and 3
read the rows of their buckets from every span, without a copy; those of an instrument are in order. Columns are those
of `Rows`, with the same NULLs, so nothing is converted; packet columns (`sequence`, `ts_send` …) are in every row.
Staged files are never part of a table: they are deleted after the commit, so nothing waits for the disk either.
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

from umdf.buffers import ALIGNMENT, Pool, buffer_address
from umdf.lake.atomic_files import write_error
from umdf.lake.stream.staging_file_pool import StagingFilePool
from umdf.lake.tasks import staging_kernel as k
from umdf.lake.tasks.id_lookup import count_by_id, indices_of_ids
from umdf.market.families import FAMILIES, UNIT_COLUMNS, Column, Family
from umdf.market.rows import Events, Numbers, RepeatingGroup, Rows, Text, Units

BUCKETS, NO_INSTRUMENT = k.BUCKETS, k.NO_INSTRUMENT
MAX_BUFFERED_BYTES = 256 << 20  # events held before writing: the decoded size of a span is not known in advance
KEY_BYTES = 38  # per row: its packet's columns and its position in the packet
RowTargets = NDArray[np.uint32]
_POOL = Pool(1)  # allocating fresh memory would take as long as everything else


def bucket_of(instrument_id: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The bucket of an instrument: the same in every task and version."""
    ids, bucket = np.ascontiguousarray(instrument_id), np.empty(len(instrument_id), np.uint8)
    k.assign_buckets(buffer_address(ids), len(ids), buffer_address(bucket))
    return bucket


@dataclass(frozen=True)
class StagedFile:
    """One file of one family, as it is listed in the result of a task."""

    family: str
    path: str
    rows: dict[int, int]  # by bucket, in the file's order

    def to_json(self) -> dict[str, Any]:
        return {"family": self.family, "path": self.path, "rows": {str(b): n for b, n in self.rows.items()}}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> StagedFile:
        return cls(content["family"], content["path"], {int(b): n for b, n in content["rows"].items()})


def staged_writer(task: Mapping[str, Any], name: str) -> StagedWriter:
    """The writer for a task's staged files."""
    file_pool = StagingFilePool(Path(task["file_pool"])) if task.get("file_pool") else None
    return StagedWriter(Path(task["directory"]), f"{name}-{uuid.uuid4().hex}", file_pool)


@dataclass
class StagedWriter:
    """Collects the events of a span and writes them by bucket on close."""

    directory: Path
    name: str  # unique per attempt
    file_pool: StagingFilePool | None = None  # files to overwrite
    _parts: dict[str, list[tuple[Rows, Units]]] = field(default_factory=dict)
    _buffered_bytes: int = 0
    _written: list[StagedFile] = field(default_factory=list)

    def add(self, events: Events) -> None:
        for family, rows in events.families.items():
            if len(rows):
                self._parts.setdefault(family, []).append((rows, events.units))
                self._buffered_bytes += _byte_size(rows)
        if self._buffered_bytes > MAX_BUFFERED_BYTES:
            self._flush()

    def close(self) -> list[StagedFile]:
        """Write all families; returns the files."""
        self._flush()
        return self._written

    def _flush(self) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            for family in list(self._parts):
                self._written.append(self._write(family, self._parts.pop(family)))
        except OSError as error:
            raise write_error(self.directory, error) from error
        self._buffered_bytes = 0

    def _write(self, family: str, parts: list[tuple[Rows, Units]]) -> StagedFile:
        targets, counts = _by_instrument([rows.column("instrument_id") for rows, _ in parts])
        batch = _scatter_parts(parts, targets, int(counts.sum()))
        parts.clear()
        path = self.directory / f"{self.name}-{len(self._written)}-{family}.arrow"
        is_reused = self.file_pool is not None and self.file_pool.acquire(family, path)
        # An Arrow stream marks its end: older bytes after it are ignored.
        with path.open("r+b" if is_reused else "wb") as file, pa.ipc.new_stream(file, batch.schema) as writer:
            writer.write_batch(batch)
        return StagedFile(family, str(path), {int(b): int(counts[b]) for b in np.flatnonzero(counts)})


def _byte_size(rows: Rows) -> int:
    """Approximate size of the rows in a file."""
    inside = [part for text in rows.texts.values() for part in text]
    for entries in rows.lists.values():
        inside += [*entries.columns.values(), *(part for text in entries.texts.values() for part in text)]
    return sum(part.nbytes for part in (*rows.columns.values(), *inside)) + KEY_BYTES * len(rows)


def _by_instrument(ids: list[Numbers]) -> tuple[list[RowTargets], NDArray[np.int64]]:
    """Target positions of each part's rows, by bucket and instrument, and the row count of each bucket."""
    known, rows = count_by_id(np.concatenate(ids))
    known, order = np.sort(known), np.argsort(known)
    rows, bucket = rows[order], bucket_of(known)
    order = np.argsort(bucket, kind="stable")
    next_target = np.empty(len(known), np.int64)
    next_target[order] = np.cumsum(rows[order]) - rows[order]
    targets = []
    for part_ids in ids:
        instrument_rows, target = indices_of_ids(known, part_ids), np.empty(len(part_ids), np.uint32)
        k.assign_targets(
            buffer_address(instrument_rows), len(part_ids), buffer_address(next_target), buffer_address(target)
        )
        targets.append(target)
    return targets, np.bincount(bucket, rows, BUCKETS + 1).astype(np.int64)


def _scatter_parts(parts: list[tuple[Rows, Units]], targets: list[RowTargets], count: int) -> pa.RecordBatch:
    """All columns that any part has, at the target positions; NULL for parts that lack a column."""
    family = parts[0][0].family
    family_columns = list(dict.fromkeys(["instrument_id", *(name for rows, _ in parts for name in rows.columns)]))
    family_columns = [
        name for name in family_columns if name == "instrument_id" or not _is_absent(family.column(name), parts)
    ]
    columns: dict[str, list[Numbers]] = {
        name: [getattr(rows, name) for rows, _ in parts] for name in ("msg_index", "entry_index")
    }
    columns |= {name: [rows.column(name) for rows, _ in parts] for name in family_columns}
    unit_columns = {name: [getattr(units, name) for _, units in parts] for name in UNIT_COLUMNS}
    moves = [
        RowMove(target, rows.unit, frozenset(unit_columns)) for (rows, _), target in zip(parts, targets, strict=True)
    ]
    scattered_columns = scatter_columns({**columns, **unit_columns}, moves, _POOL)
    order = ["msg_index", "entry_index", *UNIT_COLUMNS, *family_columns]
    arrays: dict[str, pa.Array] = {name: pa.array(scattered_columns[name]) for name in order}
    others = dict.fromkeys(name for rows, _ in parts for name in (*rows.texts, *rows.lists))
    if others:
        source_rows = np.empty(count, np.int64)
        source_rows[np.concatenate(targets)] = np.arange(count)
        for name in others:
            whole: Any = pa.concat_arrays([_nested_array(rows, family, name) for rows, _ in parts])
            arrays[name] = whole.take(pa.array(source_rows))
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


def _is_absent(column: Column, parts: list[tuple[Rows, Units]]) -> bool:
    """Whether no row has a value, as if the protocol had no such column."""
    found = (rows.columns.get(column.name) for rows, _ in parts)
    return column.nullable and all(
        values is None or (values[0] == column.null and (values == column.null).all()) for values in found
    )


class RowMove(NamedTuple):
    """Targets of a part's rows; `source_rows` selects them in the columns `by_rows`, the others are used completely."""

    targets: RowTargets
    source_rows: NDArray[np.uint32] | None = None
    by_rows: frozenset[str] = frozenset()


def scatter_columns(columns: Mapping[str, list[Numbers]], moves: Sequence[RowMove], pool: Pool) -> dict[str, Numbers]:
    """Scatter partial columns into complete ones, each row to its target."""
    count = sum(len(move.targets) for move in moves)
    scattered = _allocate({name: parts[0].dtype for name, parts in columns.items()}, count, pool)
    for number, (targets, rows, by_rows) in enumerate(moves):
        source_columns = {
            name: np.ascontiguousarray(parts[number], scattered[name].dtype) for name, parts in columns.items()
        }
        column_descriptions = [
            (buffer_address(source_columns[n]), scattered[n].itemsize, buffer_address(scattered[n]), n in by_rows)
            for n in scattered
        ]
        table = np.array(column_descriptions, np.int64)
        rows_or_targets = targets if rows is None else np.ascontiguousarray(rows, np.uint32)
        k.scatter(
            buffer_address(table), len(table), buffer_address(targets), buffer_address(rows_or_targets), len(targets)
        )
    return scattered


def _allocate(kinds: Mapping[str, np.dtype[Any]], count: int, pool: Pool) -> dict[str, Numbers]:
    """Uninitialised columns."""
    sizes = [-(-count * kind.itemsize // ALIGNMENT) * ALIGNMENT for kind in kinds.values()]
    memory, found, at = pool.acquire(sum(sizes)).array, {}, 0
    for (name, kind), size in zip(kinds.items(), sizes, strict=True):
        found[name] = memory[at : at + count * kind.itemsize].view(kind)
        at += size
    return found


def _nested_array(rows: Rows, family: Family, name: str) -> pa.Array:
    if name in family.lists:
        none = RepeatingGroup(np.zeros(len(rows) + 1, np.int32), {}, {})
        return _list_array(rows.lists.get(name, none), family.lists[name])
    text = rows.texts.get(name)
    return _absent(family.column(name), len(rows)) if text is None else _text_array(text)


def read_staged(files: Iterable[StagedFile], family: str, buckets: Iterable[int]) -> Events:
    """The rows of a family in these buckets, in the order of the files; one unit per row."""
    batches = [batch for _, _, batch in staged_batches(files, family, buckets)]
    if not batches:
        return Events(_units({}, 0), {})
    batch = _concatenated(batches, family).to_batches()[0] if len(batches) > 1 else batches[0]
    return as_events(batch, family)


def staged_batches(
    files: Iterable[StagedFile], family: str, buckets: Iterable[int]
) -> Iterator[tuple[str, dict[int, int], pa.RecordBatch]]:
    """The rows as stored, without a copy: path, row counts by bucket (neighbours are returned together), rows.

    All have the same columns: one that a protocol omits in some batches is NULL there."""
    wanted_buckets = set(buckets)
    chosen = [staged for staged in files if staged.family == family and wanted_buckets & staged.rows.keys()]
    readers = [pa.ipc.open_stream(pa.memory_map(staged.path)) for staged in chosen]
    types = {each.name: each.type for reader in readers for each in reader.schema}
    for staged, reader in zip(chosen, readers, strict=True):
        whole, first = reader.read_next_batch(), 0
        same = whole.schema.names == list(types)
        for is_wanted, run in groupby(sorted(staged.rows), wanted_buckets.__contains__):
            rows = {bucket: staged.rows[bucket] for bucket in run}
            count = sum(rows.values())
            if is_wanted:
                batch = whole.slice(first, count)
                yield staged.path, rows, batch if same else _with_missing_columns(batch, types, FAMILIES[family])
            first += count


def as_events(batch: pa.RecordBatch, family: str) -> Events:
    """The columns of a batch as they are."""
    known, count = FAMILIES[family], batch.num_rows
    columns: dict[str, Numbers] = {}
    texts: dict[str, Text] = {}
    lists: dict[str, RepeatingGroup] = {}
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if name in known.lists:
            lists[name] = _group_from_list(array)
        elif pa.types.is_binary(array.type):
            texts[name] = _text_from_array(array)
        else:
            columns[name] = array.to_numpy(zero_copy_only=True)
    units = _units(columns, count)
    row_key = {"msg_index": columns.pop("msg_index"), "entry_index": columns.pop("entry_index")}
    own = {name: values for name, values in columns.items() if name not in UNIT_COLUMNS}
    rows = Rows(
        known, np.arange(count, dtype=np.uint32), row_key["msg_index"], row_key["entry_index"], own, texts, lists
    )
    return Events(units, {family: rows} if count else {})


def _units(columns: Mapping[str, Numbers], count: int) -> Units:
    kinds = {"channel_id": np.int16}
    return Units(*(columns.get(name, np.zeros(count, kinds.get(name, np.int64))) for name in _UNIT_ORDER))


_UNIT_ORDER = ("channel_id", "seq_version", "sequence", "ts_send", "ts_recv")


def _text_array(text: Text) -> pa.Array:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(text[0])), pa.py_buffer(np.ascontiguousarray(text[1]))]
    return pa.Array.from_buffers(pa.binary(), len(text[0]) - 1, buffers)


def _text_from_array(array: pa.Array) -> Text:
    _, offsets, content = array.buffers()
    found = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    content_bytes = np.frombuffer(content, np.uint8) if content is not None else np.empty(0, np.uint8)
    return (found - found[0]).astype(np.int32), content_bytes[found[0] : found[-1]]


def _group_from_list(array: pa.Array) -> RepeatingGroup:
    offsets = np.asarray(array.offsets).astype(np.int32)
    inside = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    columns: dict[str, Numbers] = {}
    texts: dict[str, Text] = {}
    for number, entry in enumerate(array.type.value_type):
        values = inside.field(number)
        if pa.types.is_binary(entry.type):
            texts[entry.name] = _text_from_array(values)
        else:
            columns[entry.name] = values.to_numpy(zero_copy_only=True)
    return RepeatingGroup(offsets - offsets[0], columns, texts)


def _list_array(entries: RepeatingGroup, columns: tuple[Column, ...]) -> pa.Array:
    """With all columns of the list, so that lists of all batches have the same type."""
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
    """A column of NULLs, as in `Rows`."""
    if column.is_text:
        return _text_array((np.zeros(count + 1, np.int32), np.empty(0, np.uint8)))
    return pa.array(np.full(count, column.null if column.nullable else 0, column.dtype))


def _concatenated(parts: list[pa.RecordBatch], family: str) -> pa.Table:
    """Concatenate batches of one family; a column that some of them lack is NULL there."""
    if not all(part.schema.equals(parts[0].schema) for part in parts):
        types = {each.name: each.type for part in parts for each in part.schema}
        parts = [_with_missing_columns(part, types, FAMILIES[family]) for part in parts]
    return pa.Table.from_batches(parts).combine_chunks()


def _with_missing_columns(part: pa.RecordBatch, types: Mapping[str, pa.DataType], family: Family) -> pa.RecordBatch:
    count, arrays = part.num_rows, []
    for name, kind in types.items():
        if name in part.schema.names:
            array = part.column(name)
        elif name in family.lists:
            none = RepeatingGroup(np.zeros(count + 1, np.int32), {}, {})
            array = _list_array(none, family.lists[name])
        else:
            array = _absent(family.column(name), count)
        arrays.append(array if array.type == kind else array.cast(kind))
    return pa.RecordBatch.from_arrays(arrays, list(types))
