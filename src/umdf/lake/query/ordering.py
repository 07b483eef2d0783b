"""External sort of the rows of one channel-day, in bounded memory.

Files are sorted by instrument, and results come in wire order. If there are more than `max_buffered_rows`,
they are sorted in parts into temporary files (runs), which are then merged.

Invariant: the result equals `sort_rows` of all rows, including the order of rows with equal keys.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.errors import UmdfError
from umdf.lake.query.arrays import int64_values, take_rows
from umdf.lake.query.name_lookup import STREAM_ORDERED_TABLES, sort_columns
from umdf.lake.query.table_reader import sort_rows
from umdf.lake.schemas import Table

MAX_BUFFERED_ROWS = 1 << 16  # some 30 MB of mbp_10
RUN_BATCH_ROWS = 1 << 10  # minimum rows read from a run at a time
COMPRESSION = "lz4"


class ExternalSorter:
    """Takes rows in any order, and returns them in order, some at a time. Its files are deleted on close."""

    def __init__(self, table: Table, max_buffered_rows: int = MAX_BUFFERED_ROWS) -> None:
        self._table, self._max_buffered_rows = table, max_buffered_rows
        self._buffered: list[pa.Table] = []
        self._runs: dict[int, list[Path]] = defaultdict(list)  # by epoch
        self._epoch_starts: dict[int, int] = {}  # when each epoch started
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._directory is not None:
            self._directory.cleanup()

    def add(self, rows: pa.Table) -> None:
        for first in range(0, rows.num_rows, self._max_buffered_rows):
            self._buffered.append(rows.slice(first, self._max_buffered_rows))
            if self._has_integer_keys and sum(map(len, self._buffered)) >= self._max_buffered_rows:
                self._write_runs()

    def tables(self) -> Iterator[pa.Table]:
        """All rows, in order; no more rows can be added."""
        if not self._runs:
            if self._buffered:
                yield sort_rows(pa.concat_tables(self._buffered), self._table)
            return
        self._write_runs()
        for epoch in sorted(self._epoch_starts, key=lambda epoch: (self._epoch_starts[epoch], epoch)):
            yield from self._merge_runs(self._runs[epoch])

    @property
    def _has_integer_keys(self) -> bool:
        """Whether keys can be compared between runs. Tables sorted by strings are small."""
        return all(pa.types.is_integer(self._table.schema.field(name).type) for name in sort_columns(self._table))

    def _write_runs(self) -> None:
        """Write the buffered rows, sorted, to one file per epoch."""
        if not self._buffered:
            return
        rows, self._buffered = pa.concat_tables(self._buffered), []
        if self._table.name not in STREAM_ORDERED_TABLES:
            self._write_run(0, 0, rows)
            return
        versions, times = int64_values(rows.column("seq_version")), int64_values(rows.column("ts_recv"))
        for version in np.unique(versions).tolist():
            places = np.flatnonzero(versions == version)
            self._write_run(version, int(times[places].min()), take_rows(rows, places))

    def _write_run(self, epoch: int, epoch_start: int, rows: pa.Table) -> None:
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="umdf-range-")
        path = Path(self._directory.name) / f"{epoch}-{len(self._runs[epoch])}.arrow"
        options = pa.ipc.IpcWriteOptions(compression=COMPRESSION)
        try:
            with path.open("wb") as file, pa.ipc.new_file(file, rows.schema, options=options) as run:
                run.write_table(self._sorted(rows), RUN_BATCH_ROWS)
        except OSError as error:
            hint = "free some space, or set TMPDIR to another directory"
            raise UmdfError(f"cannot sort rows in {path.parent}: {error.strerror}", hint) from error
        self._runs[epoch].append(path)
        self._epoch_starts[epoch] = min(epoch_start, self._epoch_starts.get(epoch, epoch_start))

    def _merge_runs(self, paths: Sequence[Path]) -> Iterator[pa.Table]:
        """Merge up to the smallest of the last loaded keys: up to there all rows are loaded."""
        least = max(1, self._max_buffered_rows // len(paths))
        runs = [_SortedRun(path) for path in paths]
        while any(run.has_more for run in runs):
            for run in runs:
                run.load(least)
            ends = [self._last_key(run.rows) for run in runs if run.has_more]
            found = [run.take(self._count_before(run.rows, min(ends))) for run in runs] if ends else []
            if sum(map(len, found)):
                yield self._sorted(pa.concat_tables(found))
            elif ends:  # all loaded rows have the same key: more may follow
                for run in runs:
                    run.load(run.rows.num_rows + 1)
        yield self._sorted(pa.concat_tables([run.rows for run in runs]))

    def _keys(self, rows: pa.Table) -> list[NDArray[np.int64]]:
        return [int64_values(rows.column(name)) for name in sort_columns(self._table)]

    def _sorted(self, rows: pa.Table) -> pa.Table:
        return take_rows(rows, np.lexsort(self._keys(rows)[::-1]))

    def _last_key(self, rows: pa.Table) -> tuple[int, ...]:
        return tuple(int(key[-1]) for key in self._keys(rows.slice(rows.num_rows - 1)))

    def _count_before(self, rows: pa.Table, bound: tuple[int, ...]) -> int:
        """How many rows are before a key."""
        before, same = np.zeros(rows.num_rows, np.bool_), np.ones(rows.num_rows, np.bool_)
        for key, limit in zip(self._keys(rows), bound, strict=True):
            before |= same & (key < limit)
            same &= key == limit
        return int(before.sum())


class _SortedRun:
    """A file of sorted rows, read batch by batch."""

    def __init__(self, path: Path) -> None:
        self._file: Any = pa.ipc.open_file(pa.memory_map(str(path)))
        self._next = 0
        self.rows: pa.Table = self._file.schema.empty_table()

    @property
    def has_more(self) -> bool:
        return self._next < self._file.num_record_batches

    def load(self, min_rows: int) -> None:
        """Load at least this many rows, if there are as many."""
        batches = [*self.rows.to_batches()]
        while self.has_more and sum(map(len, batches)) < min_rows:
            batches.append(self._file.get_batch(self._next))
            self._next += 1
        self.rows = pa.Table.from_batches(batches, self._file.schema)

    def take(self, count: int) -> pa.Table:
        """Remove and return the first rows."""
        found, self.rows = self.rows.slice(0, count), self.rows.slice(count)
        return found
