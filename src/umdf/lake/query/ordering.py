"""Rows in order, in memory that does not grow with them: an external sort, as of one trading date and channel.

Files hold the rows of one instrument after those of another, and an answer comes in the order of the feed. What is more
than `held_rows` is sorted piece by piece into temporary files (runs), which are then merged.

The one rule: the rows are those of `in_order` of all of them, in the same order, also where keys are equal.
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
from umdf.lake.query.arrays import numbers, rows_at
from umdf.lake.query.names import OF_FEED, order_of
from umdf.lake.query.reading import in_order
from umdf.lake.schemas import Table

HELD_ROWS = 1 << 16  # of mbp_10, some 30 MB
RUN_BATCH_ROWS = 1 << 10  # so much is read of a run at a time, at least
COMPRESSION = "lz4"


class Sorter:
    """Takes rows in any order, and gives them back in order, some at a time. Its files go when it is closed."""

    def __init__(self, table: Table, held_rows: int = HELD_ROWS) -> None:
        self._table, self._held_rows = table, held_rows
        self._held: list[pa.Table] = []
        self._runs: dict[int, list[Path]] = defaultdict(list)  # by epoch
        self._begun: dict[int, int] = {}  # when each epoch began
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._directory is not None:
            self._directory.cleanup()

    def take(self, rows: pa.Table) -> None:
        for first in range(0, rows.num_rows, self._held_rows):
            self._held.append(rows.slice(first, self._held_rows))
            if self._is_numbered and sum(map(len, self._held)) >= self._held_rows:
                self._write_runs()

    def tables(self) -> Iterator[pa.Table]:
        """All rows that were taken; nothing may be taken any more."""
        if not self._runs:
            if self._held:
                yield in_order(pa.concat_tables(self._held), self._table)
            return
        self._write_runs()
        for epoch in sorted(self._begun, key=lambda epoch: (self._begun[epoch], epoch)):
            yield from self._merged(self._runs[epoch])

    @property
    def _is_numbered(self) -> bool:
        """Whether keys can be compared from piece to piece. Tables that are in the order of texts are small."""
        return all(pa.types.is_integer(self._table.schema.field(name).type) for name in order_of(self._table))

    def _write_runs(self) -> None:
        """What is held, sorted, a file for each epoch."""
        if not self._held:
            return
        rows, self._held = pa.concat_tables(self._held), []
        if self._table.name not in OF_FEED:
            self._write_run(0, 0, rows)
            return
        versions, times = numbers(rows.column("seq_version")), numbers(rows.column("ts_recv"))
        for version in np.unique(versions).tolist():
            places = np.flatnonzero(versions == version)
            self._write_run(version, int(times[places].min()), rows_at(rows, places))

    def _write_run(self, epoch: int, begun: int, rows: pa.Table) -> None:
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="umdf-range-")
        path = Path(self._directory.name) / f"{epoch}-{len(self._runs[epoch])}.arrow"
        options = pa.ipc.IpcWriteOptions(compression=COMPRESSION)
        try:
            with path.open("wb") as file, pa.ipc.new_file(file, rows.schema, options=options) as run:
                run.write_table(self._sorted(rows), RUN_BATCH_ROWS)
        except OSError as error:
            hint = "make room there, or set TMPDIR to another directory"
            raise UmdfError(f"rows cannot be sorted in {path.parent}: {error.strerror}", hint) from error
        self._runs[epoch].append(path)
        self._begun[epoch] = min(begun, self._begun.get(epoch, begun))

    def _merged(self, paths: Sequence[Path]) -> Iterator[pa.Table]:
        """Up to the least of the last keys that are at hand, every row is known."""
        least = max(1, self._held_rows // len(paths))
        runs = [_Run(path) for path in paths]
        while any(run.has_more for run in runs):
            for run in runs:
                run.load(least)
            ends = [self._last_key(run.rows) for run in runs if run.has_more]
            found = [run.cut(self._before(run.rows, min(ends))) for run in runs] if ends else []
            if sum(map(len, found)):
                yield self._sorted(pa.concat_tables(found))
            elif ends:  # all that is at hand has the same key: more of it may follow
                for run in runs:
                    run.load(run.rows.num_rows + 1)
        yield self._sorted(pa.concat_tables([run.rows for run in runs]))

    def _keys(self, rows: pa.Table) -> list[NDArray[np.int64]]:
        return [numbers(rows.column(name)) for name in order_of(self._table)]

    def _sorted(self, rows: pa.Table) -> pa.Table:
        return rows_at(rows, np.lexsort(self._keys(rows)[::-1]))

    def _last_key(self, rows: pa.Table) -> tuple[int, ...]:
        return tuple(int(key[-1]) for key in self._keys(rows.slice(rows.num_rows - 1)))

    def _before(self, rows: pa.Table, bound: tuple[int, ...]) -> int:
        """How many rows stand before a key."""
        before, same = np.zeros(rows.num_rows, np.bool_), np.ones(rows.num_rows, np.bool_)
        for key, limit in zip(self._keys(rows), bound, strict=True):
            before |= same & (key < limit)
            same &= key == limit
        return int(before.sum())


class _Run:
    """A file of sorted rows, from which they are read batch by batch."""

    def __init__(self, path: Path) -> None:
        self._file: Any = pa.ipc.open_file(pa.memory_map(str(path)))
        self._next = 0
        self.rows: pa.Table = self._file.schema.empty_table()

    @property
    def has_more(self) -> bool:
        return self._next < self._file.num_record_batches

    def load(self, least: int) -> None:
        """So many rows at least, if there are so many."""
        batches = [*self.rows.to_batches()]
        while self.has_more and sum(map(len, batches)) < least:
            batches.append(self._file.get_batch(self._next))
            self._next += 1
        self.rows = pa.Table.from_batches(batches, self._file.schema)

    def cut(self, count: int) -> pa.Table:
        """The first rows, which are then gone."""
        found, self.rows = self.rows.slice(0, count), self.rows.slice(count)
        return found
