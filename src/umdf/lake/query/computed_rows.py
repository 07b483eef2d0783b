"""Rows computed on demand: derived books, joins. The same function computes them here and in Spark tasks.

Invariant: a task is some instruments of one channel-day, and its result depends on nothing else. So tasks can run in
any order, wherever the lake is accessible; nothing is written, so a task can run twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from umdf.lake.commit.lake_snapshot import LakeSnapshot, open_snapshot
from umdf.lake.dialects import spark_ddl
from umdf.lake.query.arrays import constant_array, filter_rows, int64_values
from umdf.lake.query.name_lookup import DERIVED_DEPTHS
from umdf.lake.query.table_reader import (
    InstrumentFilter,
    Partition,
    Query,
    ReadStats,
    group_by_partition,
    partition_of,
    query_of,
    read_rows,
    row_mask,
    select_files,
    sort_rows,
)
from umdf.lake.query.times import TimeRange
from umdf.lake.runtime.session import with_this_python
from umdf.lake.schemas import Table
from umdf.lake.schemas import table as table_named
from umdf.market.families import NULL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASK_ROWS = 1_000_000  # of the tables that a task reads
BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class DeriveTask:
    partition: Partition
    instrument_filter: InstrumentFilter


class DerivedRows(Protocol):
    """Computes rows. It is sent to Spark's workers, so it holds no open files."""

    @property
    def schema(self) -> pa.Schema: ...
    @property
    def table(self) -> Table:
        """The table whose row order the rows have."""
        ...

    def tasks(self, snapshot: LakeSnapshot, max_rows: int = TASK_ROWS) -> list[DeriveTask]:
        """`max_rows`: of the tables that a task reads, but at least one instrument."""
        ...

    def derive(self, snapshot: LakeSnapshot, task: DeriveTask, stats: ReadStats) -> pa.Table: ...


def derive_local(derived: DerivedRows, snapshot: LakeSnapshot, stats: ReadStats) -> dict[Partition, pa.Table]:
    """The rows of each channel-day, in order."""
    by_partition: dict[Partition, list[pa.Table]] = {}
    for task in derived.tasks(snapshot):
        by_partition.setdefault(task.partition, []).append(derived.derive(snapshot, task, stats))
    return {
        part: sort_rows(pa.concat_tables(some), derived.table) if len(some) > 1 else some[0]
        for part, some in by_partition.items()
    }


def derive_in_spark(derived: DerivedRows, snapshot: LakeSnapshot, spark: SparkSession) -> DataFrame:
    """A frame whose partitions are the tasks; nothing is computed until it is read."""
    tasks = derived.tasks(snapshot)
    if not tasks:
        from umdf.lake.dialects import spark_type

        return spark.createDataFrame([], spark_type(derived.schema))
    worker = _SparkWorker(str(snapshot.paths.root), snapshot.number, derived, tuple(tasks))
    with with_this_python(spark):
        return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(worker, spark_ddl(derived.schema))


class _SparkWorker:
    """Sent to the workers by reference, so only names and arguments are transferred."""

    def __init__(self, root: str, commit: int, derived: DerivedRows, tasks: tuple[DeriveTask, ...]) -> None:
        self.root, self.commit, self.derived, self.tasks = root, commit, derived, tasks
        self.__name__ = type(derived).__name__

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        snapshot = open_snapshot(self.root, self.commit)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                rows = self.derived.derive(snapshot, self.tasks[number], ReadStats())
                yield from rows.combine_chunks().to_batches(BATCH_ROWS)


def instrument_tasks(
    snapshot: LakeSnapshot,
    question: Query,
    parts: Sequence[Partition],
    table_names: Sequence[str] = ("mbo", "book_state"),
    max_rows: int = TASK_ROWS,
) -> list[DeriveTask]:
    """The selected instruments of some tables, a few per task, so that memory stays bounded."""
    found = []
    for part in parts:
        wanted = question.filter_for(part)
        if wanted is None:
            continue
        if wanted.ids is not None and len(wanted.ids) == 1:
            found.append(DeriveTask(part, wanted))
            continue
        own = Query(question.table, filters={part: InstrumentFilter(wanted.ids)})
        id_columns = [
            read_rows(snapshot, replace(own, table=table_named(name)), ["instrument_id"], ordered=False).column(0)
            for name in table_names
        ]
        ids, counts = np.unique(np.concatenate(list(map(int64_values, id_columns))), return_counts=True)
        known = ids != NULL
        pack = (np.cumsum(counts[known]) - 1) // max_rows
        found += [
            DeriveTask(part, InstrumentFilter(frozenset(ids[known][pack == number].tolist()), wanted.symbols))
            for number in np.unique(pack).tolist()
        ]
    return found


@dataclass(frozen=True)
class DerivedLevels:
    """`mbp_1` or `mbp_10` of the channel-days for which it is not stored."""

    question: Query

    @property
    def table(self) -> Table:
        return self.question.table

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def tasks(self, snapshot: LakeSnapshot, max_rows: int = TASK_ROWS) -> list[DeriveTask]:
        parts = partitions_to_derive(snapshot, self.question)
        return instrument_tasks(snapshot, self.question, parts, max_rows=max_rows)

    def derive(self, snapshot: LakeSnapshot, task: DeriveTask, stats: ReadStats) -> pa.Table:
        from umdf.lake.books.derived_levels import derive_levels  # imports numba

        mbo, states = read_book_rows(snapshot, task, stats)
        rows = derive_levels(mbo, states, DERIVED_DEPTHS[self.table.name])
        day, channel = task.partition
        constants: dict[str, Any] = {"trading_date": day, "channel_id": channel}
        columns = [
            constant_array(constants[each.name], each.type, rows.num_rows)
            if each.name in constants
            else rows.column(each.name).cast(each.type)
            for each in self.schema
        ]
        rows = pa.Table.from_arrays(columns, schema=self.schema)
        own = replace(self.question, filters={task.partition: task.instrument_filter})
        return sort_rows(filter_rows(rows, row_mask(rows, own, task.partition)), self.table)


def partitions_to_derive(snapshot: LakeSnapshot, question: Query) -> list[Partition]:
    """Channel-days that have order books but no files of the table."""
    stored = set(map(partition_of, snapshot.adds(question.table.name)))
    mbo_query = replace(question, table=table_named("mbo"), span=_dates_only(question.span))
    return [part for part in group_by_partition(select_files(snapshot, mbo_query)) if part not in stored]


def _dates_only(span: TimeRange) -> TimeRange:
    """Books need the day from its start: only the dates of a range count, not its times."""
    return _DateRange(span.start, span.end)


class _DateRange(TimeRange):
    @property
    def has_times(self) -> bool:
        return False


def read_book_rows(snapshot: LakeSnapshot, task: DeriveTask, stats: ReadStats) -> tuple[pa.Table, pa.Table]:
    """All rows of `mbo` and `book_state` of some instruments on a channel-day."""
    wanted = {task.partition: InstrumentFilter(task.instrument_filter.ids)}
    mbo, states = (read_rows(snapshot, query_of(name, filters=wanted), None, stats) for name in ("mbo", "book_state"))
    return mbo, states
