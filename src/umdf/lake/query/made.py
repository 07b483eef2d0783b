"""Rows that no table has: books on demand, joins. The same function makes them here and in tasks of Spark.

The one rule: a task is some instruments of one trading date and channel, and what it makes depends on nothing else. So
tasks run in any order and anywhere that sees the lake; nothing is written, so a task may run twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from umdf.lake.dialects import spark_ddl
from umdf.lake.query.arrays import constant, numbers, rows_where
from umdf.lake.query.names import DERIVED
from umdf.lake.query.reading import (
    Part,
    Question,
    Reading,
    Wanted,
    by_part,
    chosen,
    in_order,
    part_of,
    question_of,
    read,
    row_mask,
)
from umdf.lake.query.times import Span
from umdf.lake.schemas import Table
from umdf.lake.schemas import table as table_named
from umdf.lake.session import this_python
from umdf.lake.snapshot import Snapshot, open_snapshot
from umdf.market.events import NULL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASK_ROWS = 1_000_000  # of the tables that are read
BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class Task:
    part: Part
    wanted: Wanted


class Maker(Protocol):
    """What makes rows. It travels to Spark's workers, so it holds no open file."""

    @property
    def schema(self) -> pa.Schema: ...
    @property
    def table(self) -> Table:
        """In whose order the rows come."""
        ...

    def tasks(self, snapshot: Snapshot, most_rows: int = TASK_ROWS) -> list[Task]:
        """`most_rows`: of the tables that a task reads, but of one instrument at least."""
        ...

    def make(self, snapshot: Snapshot, task: Task, reading: Reading) -> pa.Table: ...


def make_here(maker: Maker, snapshot: Snapshot, reading: Reading) -> dict[Part, pa.Table]:
    """The rows of each trading date and channel, in order."""
    made: dict[Part, list[pa.Table]] = {}
    for task in maker.tasks(snapshot):
        made.setdefault(task.part, []).append(maker.make(snapshot, task, reading))
    return {
        part: in_order(pa.concat_tables(some), maker.table) if len(some) > 1 else some[0] for part, some in made.items()
    }


def make_in_spark(maker: Maker, snapshot: Snapshot, spark: SparkSession) -> DataFrame:
    """A frame whose partitions are the tasks; nothing is made until it is asked for."""
    tasks = maker.tasks(snapshot)
    if not tasks:
        from umdf.lake.dialects import spark_type

        return spark.createDataFrame([], spark_type(maker.schema))
    worker = _Worker(str(snapshot.home.root), snapshot.number, maker, tuple(tasks))
    with this_python(spark):
        return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(worker, spark_ddl(maker.schema))


class _Worker:
    """What is sent to the workers: by reference, so only names and arguments travel."""

    def __init__(self, root: str, commit: int, maker: Maker, tasks: tuple[Task, ...]) -> None:
        self.root, self.commit, self.maker, self.tasks = root, commit, maker, tasks
        self.__name__ = type(maker).__name__

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        snapshot = open_snapshot(self.root, self.commit)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                rows = self.maker.make(snapshot, self.tasks[number], Reading())
                yield from rows.combine_chunks().to_batches(BATCH_ROWS)


def instrument_tasks(
    snapshot: Snapshot,
    question: Question,
    parts: Sequence[Part],
    names: Sequence[str] = ("mbo", "book_state"),
    most_rows: int = TASK_ROWS,
) -> list[Task]:
    """The instruments of some tables that a question asks for, a few together, so that memory stays bounded."""
    found = []
    for part in parts:
        wanted = question.of(part)
        if wanted is None:
            continue
        if wanted.ids is not None and len(wanted.ids) == 1:
            found.append(Task(part, wanted))
            continue
        own = Question(question.table, wanted={part: Wanted(wanted.ids)})
        every = [
            read(snapshot, replace(own, table=table_named(name)), ["instrument_id"], ordered=False).column(0)
            for name in names
        ]
        ids, counts = np.unique(np.concatenate(list(map(numbers, every))), return_counts=True)
        known = ids != NULL
        pack = (np.cumsum(counts[known]) - 1) // most_rows
        found += [
            Task(part, Wanted(frozenset(ids[known][pack == number].tolist()), wanted.symbols))
            for number in np.unique(pack).tolist()
        ]
    return found


@dataclass(frozen=True)
class Levels:
    """`mbp_1` or `mbp_10` of the channel-days for which it is not stored."""

    question: Question

    @property
    def table(self) -> Table:
        return self.question.table

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def tasks(self, snapshot: Snapshot, most_rows: int = TASK_ROWS) -> list[Task]:
        parts = parts_to_make(snapshot, self.question)
        return instrument_tasks(snapshot, self.question, parts, most_rows=most_rows)

    def make(self, snapshot: Snapshot, task: Task, reading: Reading) -> pa.Table:
        from umdf.lake.derive import derive_levels  # loads numba

        mbo, states = book_rows(snapshot, task, reading)
        rows = derive_levels(mbo, states, DERIVED[self.table.name])
        day, channel = task.part
        constants: dict[str, Any] = {"trading_date": day, "channel_id": channel}
        columns = [
            constant(constants[each.name], each.type, rows.num_rows)
            if each.name in constants
            else rows.column(each.name).cast(each.type)
            for each in self.schema
        ]
        rows = pa.Table.from_arrays(columns, schema=self.schema)
        own = replace(self.question, wanted={task.part: task.wanted})
        return in_order(rows_where(rows, row_mask(rows, own, task.part)), self.table)


def parts_to_make(snapshot: Snapshot, question: Question) -> list[Part]:
    """Channel-days with books of orders and without files of the table."""
    stored = set(map(part_of, snapshot.adds(question.table.name)))
    asked = replace(question, table=table_named("mbo"), span=_whole_days(question.span))
    return [part for part in by_part(chosen(snapshot, asked)) if part not in stored]


def _whole_days(span: Span) -> Span:
    """Books need their day from its beginning: only the dates of a span count, not its times."""
    return _Dates(span.start, span.end)


class _Dates(Span):
    @property
    def has_times(self) -> bool:
        return False


def book_rows(snapshot: Snapshot, task: Task, reading: Reading) -> tuple[pa.Table, pa.Table]:
    """Everything that `mbo` and `book_state` have of some instruments on a trading date and channel."""
    wanted = {task.part: Wanted(task.wanted.ids)}
    mbo, states = (read(snapshot, question_of(name, wanted=wanted), None, reading) for name in ("mbo", "book_state"))
    return mbo, states
