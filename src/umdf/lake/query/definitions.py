"""Definitions at a moment: what was known of each instrument then.

The one rule: nothing that came later counts. A day begins with its own list, so of each channel the newest day counts
whose list had begun by then, and of each instrument the last row up to then; one that was deleted is not in force.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa

from umdf.errors import UmdfError
from umdf.lake.query.arrays import is_text, numbers, rows_at, rows_where
from umdf.lake.query.made import TASK_ROWS, Task
from umdf.lake.query.reading import Part, Question, Reading, Wanted, question_of, read
from umdf.lake.query.symbols import DELETED, Catalogue
from umdf.lake.query.times import Span, date_of, moment, named_dates
from umdf.lake.schemas import Table
from umdf.lake.snapshot import Snapshot


@dataclass(frozen=True)
class DefinitionsAt:
    """The definitions in force: of each instrument the last one, of the day that each channel was in."""

    question: Question
    limit: int | None  # nanoseconds; None: the end of the day
    parts: tuple[Part, ...]

    @property
    def table(self) -> Table:
        return self.question.table

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def tasks(self, snapshot: Snapshot, most_rows: int = TASK_ROWS) -> list[Task]:
        found = [(part, self.question.of(part)) for part in self.parts]
        return [Task(part, wanted) for part, wanted in found if wanted is not None]

    def make(self, snapshot: Snapshot, task: Task, reading: Reading) -> pa.Table:
        own = replace(self.question, wanted={task.part: Wanted(task.wanted.ids)})
        rows = read(snapshot, own, None, reading)
        if self.limit is not None:
            rows = rows_where(rows, numbers(rows.column("ts_recv")) <= self.limit)
        ids = numbers(rows.column("instrument_id"))
        _, last = np.unique(ids[::-1], return_index=True)
        rows = rows_at(rows, np.sort(len(ids) - 1 - last))
        chosen = ~is_text(rows.column("action"), DELETED)
        if task.wanted.symbols is not None:
            chosen &= is_text(rows.column("symbol"), task.wanted.symbols)
        return rows_where(rows, chosen)


def definition_parts(catalogue: Catalogue, at: Any) -> tuple[tuple[Part, ...], int | None]:
    """Of each channel the day whose definitions are in force, and up to when they count."""
    when = None if at is None else moment(at, "at")
    limit = when if isinstance(when, int) else None
    last = date.max if when is None else date_of(when) if isinstance(when, int) else when
    newest: dict[int | None, Part] = {}
    for part in sorted(catalogue.defined, key=lambda part: part[0] or date.min):
        if part[0] is None or part[0] > last:
            continue
        if limit is None or _began(catalogue.snapshot, part) <= limit:
            newest[part[1]] = part
    if not newest:
        catalogue.check(Span())
        hint = f"the lake has definitions of {named_dates(sorted({day for day, _ in catalogue.defined if day}))}"
        raise UmdfError(f"no definitions were known at {at}", hint)
    return tuple(newest.values()), limit


def _began(snapshot: Snapshot, part: Part) -> int:
    """When the first definition of a day came."""
    bounds = [add.bounds("ts_recv") for add in snapshot.adds("definition", trading_date=part[0], channel_id=part[1])]
    if any(bound is None for bound in bounds):
        question = question_of("definition", wanted={part: Wanted()})
        return int(numbers(read(snapshot, question, ["ts_recv"]).column(0)).min())
    return min(int(bound[0]) for bound in bounds if bound is not None)
