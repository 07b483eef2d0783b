"""Definitions at a given time.

Invariant: later data does not count. A day starts with its own list, so for each channel the newest day counts whose
list had started by then, and for each instrument the last row up to then; a deleted instrument is not in force.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa

from umdf.errors import UmdfError
from umdf.lake.commit.lake_snapshot import LakeSnapshot
from umdf.lake.query.arrays import filter_rows, int64_values, is_in, take_rows
from umdf.lake.query.computed_rows import TASK_ROWS, DeriveTask
from umdf.lake.query.query_times import RECEIVED, ComparedTime
from umdf.lake.query.symbols import DELETED, InstrumentCatalog
from umdf.lake.query.table_reader import InstrumentFilter, Partition, Query, ReadStats, query_of, read_rows
from umdf.lake.query.times import TimeRange, format_dates, parse_time, to_trading_date
from umdf.lake.schemas import Table
from umdf.lake.schemas import table as table_named


@dataclass(frozen=True)
class DefinitionsAsOf:
    """The definitions in force: the last one of each instrument, on the current day of each channel."""

    query: Query
    as_of_ns: int | None  # nanoseconds; None: the end of the day
    partitions: tuple[Partition, ...]

    @property
    def table(self) -> Table:
        return self.query.table

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def tasks(self, snapshot: LakeSnapshot, max_rows: int = TASK_ROWS) -> list[DeriveTask]:
        found = [(part, self.query.filter_for(part)) for part in self.partitions]
        return [DeriveTask(part, wanted) for part, wanted in found if wanted is not None]

    def derive(self, snapshot: LakeSnapshot, task: DeriveTask, stats: ReadStats) -> pa.Table:
        own = replace(self.query, filters={task.partition: InstrumentFilter(task.instrument_filter.ids)})
        rows = read_rows(snapshot, own, None, stats)
        if self.as_of_ns is not None:
            name = self.query.time.column(self.table, task.partition) or RECEIVED
            rows = filter_rows(rows, int64_values(rows.column(name)) <= self.as_of_ns)
        ids = int64_values(rows.column("instrument_id"))
        _, last = np.unique(ids[::-1], return_index=True)
        rows = take_rows(rows, np.sort(len(ids) - 1 - last))
        chosen = ~is_in(rows.column("action"), DELETED)
        if task.instrument_filter.symbols is not None:
            chosen &= is_in(rows.column("symbol"), task.instrument_filter.symbols)
        return filter_rows(rows, chosen)


def partitions_in_force(
    catalog: InstrumentCatalog, at: Any, time: ComparedTime
) -> tuple[tuple[Partition, ...], int | None]:
    """For each channel the day whose definitions are in force, and the time up to which they count."""
    when = None if at is None else parse_time(at, "at")
    limit = when if isinstance(when, int) else None
    last = date.max if when is None else to_trading_date(when) if isinstance(when, int) else when
    newest: dict[int | None, Partition] = {}
    for part in sorted(catalog.defined_partitions, key=lambda part: part[0] or date.min):
        if part[0] is None or part[0] > last:
            continue
        if limit is None or _first_definition_ns(catalog.snapshot, part, time) <= limit:
            newest[part[1]] = part
    if not newest:
        catalog.check_has_dates(TimeRange())
        dates = sorted({day for day, _ in catalog.defined_partitions if day})
        hint = f"the lake has definitions of {format_dates(dates)}"
        raise UmdfError(f"no definitions at {at}", hint)
    return tuple(newest.values()), limit


def _first_definition_ns(snapshot: LakeSnapshot, part: Partition, time: ComparedTime) -> int:
    """When the first definition of a day was received or sent."""
    name = time.column(table_named("definition"), part) or RECEIVED
    bounds = [add.bounds(name) for add in snapshot.adds("definition", trading_date=part[0], channel_id=part[1])]
    if any(bound is None for bound in bounds):
        question = query_of("definition", filters={part: InstrumentFilter()})
        return int(int64_values(read_rows(snapshot, question, [name]).column(0)).min())
    return min(int(bound[0]) for bound in bounds if bound is not None)
