"""Rows of a table from as few bytes as possible: partitions, then statistics of files, then those of row groups.

The one rule: what is skipped cannot hold a row that was asked for. A file or a row group is left out only by bounds
that were written down; without them it is read. `Reading` counts what was opened.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from umdf.errors import UmdfError
from umdf.lake.file_reader import open_file
from umdf.lake.files import FileAdd
from umdf.lake.query.arrays import constant, is_present, is_text, no_rows, numbers, rows_at, rows_where
from umdf.lake.query.names import OF_FEED, order_of, time_of
from umdf.lake.query.times import Span
from umdf.lake.schemas import Table
from umdf.lake.schemas import table as table_named
from umdf.lake.snapshot import Snapshot
from umdf.market.events import MAYBE_BAD_BOOK

Part = tuple[date | None, int | None]  # trading_date, channel_id
MOST_GROUPS = 1 << 30  # row groups at once: all of a file
MARGIN_DAYS = 1  # a row may be received, or its interval may end, on the other side of midnight


@dataclass(frozen=True)
class Wanted:
    """Which rows of one trading date and channel; None is any."""

    ids: frozenset[int] | None = None
    symbols: frozenset[str] | None = None

    def may_hold(self, bounds: Mapping[str, tuple[Any, Any]]) -> bool:
        """Whether a file or a row group with these smallest and largest values can have such a row."""
        named = (("instrument_id", self.ids), ("symbol", self.symbols))
        for column, values in named:
            if values is not None and column in bounds:
                low, high = bounds[column]
                if not any(low <= value <= high for value in values):
                    return False
        return True


ALL, EVER = Wanted(), Span()


@dataclass(frozen=True)
class Question:
    """Which rows: of a span of time, of some instruments by date and channel (those not named: nothing is wanted)."""

    table: Table
    span: Span = EVER
    wanted: Mapping[Part, Wanted] | None = None  # None: every instrument
    exclude_stale: bool = False

    @property
    def time(self) -> str | None:
        return time_of(self.table) if self.span.has_times else None

    def of(self, part: Part) -> Wanted | None:
        return ALL if self.wanted is None else self.wanted.get(part)


@dataclass
class Reading:
    """What was opened to answer: for tests, and for whoever wonders why a query takes so long."""

    files: int = 0  # of the table
    opened: int = 0
    row_groups: int = 0  # of the files that were opened
    row_groups_read: int = 0
    rows: int = 0  # of the answer
    paths: list[str] = field(default_factory=list)


def part_of(add: FileAdd) -> Part:
    day, channel = add.partition.get("trading_date"), add.partition.get("channel_id")
    return (date.fromisoformat(day) if day else None, int(channel) if channel else None)


def by_part(adds: Iterable[FileAdd]) -> dict[Part, list[FileAdd]]:
    """Files of each trading date and channel, in their order."""
    found: dict[Part, list[FileAdd]] = {}
    for add in adds:
        found.setdefault(part_of(add), []).append(add)
    return {part: found[part] for part in sorted(found, key=lambda part: (part[0] or date.min, part[1] or -1))}


def chosen(snapshot: Snapshot, question: Question) -> list[FileAdd]:
    """The files that can have rows of the answer: by their partitions and statistics, without opening any."""
    found = []
    for add in [] if question.span.is_empty else snapshot.adds(question.table.name):
        part = part_of(add)
        wanted = question.of(part) if question.table.partition else ALL
        if wanted is None or (part[0] is not None and not question.span.has_date(part[0], MARGIN_DAYS)):
            continue
        bounds = _bounds(add)
        if wanted.may_hold(bounds) and _in_time(question, bounds):
            found.append(add)
    return found


def _bounds(add: FileAdd) -> dict[str, tuple[Any, Any]]:
    stats = json.loads(add.stats) if add.stats else {}
    low, high = stats.get("minValues", {}), stats.get("maxValues", {})
    return {name: (low[name], high[name]) for name in low.keys() & high.keys()}


def _in_time(question: Question, bounds: Mapping[str, tuple[Any, Any]]) -> bool:
    if question.time is None or question.time not in bounds:
        return True
    first, last = bounds[question.time]
    low, high = question.span.low, question.span.high
    return (low is None or last >= low) and (high is None or first < high)


def read(
    snapshot: Snapshot,
    question: Question,
    columns: Sequence[str] | None = None,
    reading: Reading | None = None,
    *,
    ordered: bool = True,
) -> pa.Table:
    """The rows as they are stored, in order: date by date, channel by channel, then as `names.order_of` says."""
    reading = Reading() if reading is None else reading
    reading.files += len(snapshot.adds(question.table.name))
    parts = [
        read_part(snapshot, question, part, adds, columns, reading, ordered=ordered)
        for part, adds in by_part(chosen(snapshot, question)).items()
    ]
    schema = _schema(question.table, columns)
    found = pa.concat_tables([no_rows(schema), *parts])
    reading.rows += found.num_rows
    return found


def read_part(
    snapshot: Snapshot,
    question: Question,
    part: Part,
    adds: Sequence[FileAdd],
    columns: Sequence[str] | None,
    reading: Reading,
    *,
    ordered: bool = True,
) -> pa.Table:
    """The rows of one trading date and channel, in order."""
    pieces = read_pieces(snapshot, question, part, adds, columns, reading, ordered=ordered, at_once=MOST_GROUPS)
    rows = pa.concat_tables([no_rows(_read_schema(question, columns, ordered)), *pieces])
    return (in_order(rows, question.table) if ordered else rows).select(_schema(question.table, columns).names)


def read_pieces(
    snapshot: Snapshot,
    question: Question,
    part: Part,
    adds: Sequence[FileAdd],
    columns: Sequence[str] | None,
    reading: Reading,
    *,
    ordered: bool = True,
    at_once: int = 1,
) -> Iterator[pa.Table]:
    """The rows of one trading date and channel as they are stored, so many row groups at once; `ordered`: with the
    columns that tell their order."""
    schema = _read_schema(question, columns, ordered)
    for add in adds:
        for rows in _read_file(snapshot, question.table, add, question, schema, reading, at_once):
            yield rows_where(rows, row_mask(rows, question, part))


def _read_schema(question: Question, columns: Sequence[str] | None, ordered: bool) -> pa.Schema:
    names = {*_schema(question.table, columns).names, *_needed(question, ordered)}
    return pa.schema([each for each in question.table.schema if each.name in names])


def _schema(table: Table, columns: Sequence[str] | None) -> pa.Schema:
    return table.schema if columns is None else pa.schema([table.schema.field(name) for name in columns])


def _needed(question: Question, ordered: bool) -> set[str]:
    """Columns that tell which rows are wanted, and in which order they come."""
    table = question.table
    needed = {*order_of(table), *(("seq_version", "ts_recv") if table.name in OF_FEED else ())} if ordered else set()
    needed |= {question.time} if question.time else set()
    needed |= {"flags"} if question.exclude_stale else set()
    needed |= {"instrument_id", "symbol"} if question.wanted is not None else set()
    needed |= {"trading_date", "channel_id"} if not table.partition else set()
    return needed & set(table.schema.names)


def _read_file(
    snapshot: Snapshot,
    table: Table,
    add: FileAdd,
    question: Question,
    schema: pa.Schema,
    reading: Reading,
    at_once: int,
) -> Iterator[pa.Table]:
    path = snapshot.home.table(table.name) / add.path
    reading.opened += 1
    reading.paths.append(add.path)
    try:
        with open_file(path) as file:
            wanted = question.of(part_of(add)) or ALL
            groups = _with_ids(file, _row_groups(file, question, wanted), wanted)
            reading.row_groups += file.num_row_groups
            reading.row_groups_read += len(groups)
            inside = set(file.schema_arrow.names)
            there = [each.name for each in schema if each.name in inside]
            for first in range(0, len(groups), at_once):
                rows = file.read_row_groups(groups[first : first + at_once], there)
                yield pa.Table.from_arrays([_column(rows, each, add, table) for each in schema], schema=schema)
    except FileNotFoundError as error:
        hint = "it was vacuumed since this lake was opened: lake.refresh(), then ask again"
        raise UmdfError(f"{table.name}: the file {add.path} is gone", hint) from error


def _column(rows: pa.Table, each: pa.Field, add: FileAdd, table: Table) -> Any:
    if each.name in table.partition:
        day, channel = part_of(add)
        return constant(day if each.name == "trading_date" else channel, each.type, rows.num_rows)
    if each.name not in rows.schema.names:  # a column that this file is too old for
        return pa.nulls(rows.num_rows, each.type)
    column = rows.column(each.name)
    return column if column.type == each.type else column.cast(each.type)


def _row_groups(file: pq.ParquetFile, question: Question, wanted: Wanted) -> list[int]:
    asked = {"instrument_id", "symbol", question.time}
    names = {file.schema.column(at).path: at for at in range(len(file.schema.names))}
    places = {name: names[name] for name in asked if name in names}
    found = []
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        stats = {name: group.column(at).statistics for name, at in places.items()}
        bounds = {name: (one.min, one.max) for name, one in stats.items() if one is not None and one.has_min_max}
        if wanted.may_hold(bounds) and _in_time(question, bounds):
            found.append(number)
    return found


def _with_ids(file: pq.ParquetFile, groups: list[int], wanted: Wanted) -> list[int]:
    """Instruments go to files by a hash, so bounds say little: one narrow column saves reading all of them."""
    if wanted.ids is None or "instrument_id" not in file.schema_arrow.names:
        return groups
    ids = np.array(sorted(wanted.ids), np.int64)
    return [at for at in groups if np.isin(numbers(file.read_row_group(at, ["instrument_id"]).column(0)), ids).any()]


def row_mask(rows: pa.Table, question: Question, part: Part) -> NDArray[np.bool_]:
    """Which rows are wanted. Those without a value that is asked for are not."""
    chosen = np.ones(rows.num_rows, np.bool_)
    wanted = question.of(part) if question.table.partition else ALL
    assert wanted is not None
    if wanted.ids is not None and "instrument_id" in rows.schema.names:
        chosen &= np.isin(numbers(rows.column("instrument_id")), np.array(sorted(wanted.ids), np.int64))
        chosen &= is_present(rows.column("instrument_id"))
    if wanted.symbols is not None and "symbol" in rows.schema.names:
        chosen &= is_text(rows.column("symbol"), wanted.symbols)
    if question.time is not None:
        times, span = numbers(rows.column(question.time)), question.span
        chosen &= is_present(rows.column(question.time))
        chosen &= times >= span.low if span.low is not None else True
        chosen &= times < span.high if span.high is not None else True
    if question.exclude_stale:
        chosen &= numbers(rows.column("flags")) & MAYBE_BAD_BOOK == 0
    if not question.table.partition and "trading_date" in rows.schema.names:
        days = rows.column("trading_date").to_pylist()
        chosen &= np.array([day is None or question.span.has_date(day, MARGIN_DAYS) for day in days], np.bool_)
    return chosen


def in_order(rows: pa.Table, table: Table) -> pa.Table:
    """Rows of one trading date and channel in the order of the feed, or of time."""
    keys = [numbers(rows.column(name)) if _is_number(rows, name) else _ranks(rows, name) for name in order_of(table)]
    if table.name in OF_FEED:
        keys.insert(0, epoch_ranks(numbers(rows.column("seq_version")), numbers(rows.column("ts_recv"))))
    if _is_sorted(keys):
        return rows
    return rows_at(rows, np.lexsort(keys[::-1]))


def epoch_ranks(versions: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numberings by when they began: a version says only that it is another one."""
    if not len(versions) or (versions == versions[0]).all():
        return np.zeros(len(versions), np.int64)
    values, places = np.unique(versions, return_inverse=True)
    begun = np.full(len(values), np.iinfo(np.int64).max)
    np.minimum.at(begun, places, times)
    ranks = np.empty(len(values), np.int64)
    ranks[np.argsort(begun, kind="stable")] = np.arange(len(values))
    return ranks[places]


def _is_sorted(keys: Sequence[NDArray[Any]]) -> bool:
    count = len(keys[0]) if keys else 0
    if count < 2:
        return True
    before = np.zeros(count - 1, np.bool_)
    same = np.ones(count - 1, np.bool_)
    for key in keys:
        before |= same & (key[:-1] < key[1:])
        same &= key[:-1] == key[1:]
    return bool((before | same).all())


def _is_number(rows: pa.Table, name: str) -> bool:
    return pa.types.is_integer(rows.schema.field(name).type)


def _ranks(rows: pa.Table, name: str) -> NDArray[np.int64]:
    texts = [value or "" for value in rows.column(name).to_pylist()]
    return np.unique(np.array(texts, object), return_inverse=True)[1] if texts else np.empty(0, np.int64)


def question_of(name: str, **about: Any) -> Question:
    return Question(table_named(name), **about)
