"""Reads rows of a table from as few bytes as possible: by partition, file statistics, then row-group statistics.

Invariant: skipped data has no requested row. A file or row group is skipped only by its stored bounds; without them it
is read. `ReadStats` counts what was opened.
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
from umdf.lake.commit.lake_snapshot import LakeSnapshot
from umdf.lake.parquet.data_files import FileAdd
from umdf.lake.parquet.file_reader import open_file
from umdf.lake.query.arrays import constant_array, empty_table, filter_rows, int64_values, is_in, is_valid, take_rows
from umdf.lake.query.name_lookup import STREAM_ORDERED_TABLES, sort_columns
from umdf.lake.query.query_times import AUTO_TIME, ComparedTime
from umdf.lake.query.times import TimeRange
from umdf.lake.schemas import Table
from umdf.lake.schemas import table as table_named
from umdf.market.families import JOINED, MAYBE_BAD_BOOK

Partition = tuple[date | None, int | None]  # trading_date, channel_id
ALL_ROW_GROUPS = 1 << 30  # at once: all of a file
MARGIN_DAYS = 1  # a row may be received, or its interval may end, after midnight


@dataclass(frozen=True)
class InstrumentFilter:
    """Which rows of one channel-day; None: any."""

    ids: frozenset[int] | None = None
    symbols: frozenset[str] | None = None

    def may_match(self, bounds: Mapping[str, tuple[Any, Any]]) -> bool:
        """Whether a file or row group with these bounds can have such a row."""
        named = (("instrument_id", self.ids), ("symbol", self.symbols))
        for column, values in named:
            if values is not None and column in bounds:
                low, high = bounds[column]
                if not any(low <= value <= high for value in values):
                    return False
        return True


ALL_INSTRUMENTS, ALL_TIMES = InstrumentFilter(), TimeRange()


@dataclass(frozen=True)
class Query:
    """Which rows: a time range, and some instruments per channel-day (channel-days without a filter are skipped)."""

    table: Table
    span: TimeRange = ALL_TIMES
    filters: Mapping[Partition, InstrumentFilter] | None = None  # None: every instrument
    exclude_stale: bool = False
    time: ComparedTime = AUTO_TIME
    continued: frozenset[Partition] = frozenset()  # days of which the lake has what was before the recording

    def time_column(self, part: Partition) -> str | None:
        """The column that times are compared with; None if there are none."""
        return self.time.column(self.table, part) if self.span.has_times else None

    def filter_for(self, part: Partition) -> InstrumentFilter | None:
        return ALL_INSTRUMENTS if self.filters is None else self.filters.get(part)


@dataclass
class ReadStats:
    """What was opened for a query: for tests, and to find out why a query is slow."""

    files: int = 0  # files of the table
    files_opened: int = 0
    row_groups: int = 0  # in the opened files
    row_groups_read: int = 0
    rows: int = 0  # in the result
    paths: list[str] = field(default_factory=list)


def partition_of(add: FileAdd) -> Partition:
    day, channel = add.partition.get("trading_date"), add.partition.get("channel_id")
    return (date.fromisoformat(day) if day else None, int(channel) if channel else None)


def group_by_partition(adds: Iterable[FileAdd]) -> dict[Partition, list[FileAdd]]:
    """The files of each channel-day, in order."""
    found: dict[Partition, list[FileAdd]] = {}
    for add in adds:
        found.setdefault(partition_of(add), []).append(add)
    return {part: found[part] for part in sorted(found, key=lambda part: (part[0] or date.min, part[1] or -1))}


def select_files(snapshot: LakeSnapshot, question: Query) -> list[FileAdd]:
    """The files that can have selected rows, by partition and statistics, without opening any."""
    found = []
    for add in [] if question.span.is_empty else snapshot.adds(question.table.name):
        part = partition_of(add)
        wanted = question.filter_for(part) if question.table.partition else ALL_INSTRUMENTS
        if wanted is None or (part[0] is not None and not question.span.includes_date(part[0], MARGIN_DAYS)):
            continue
        bounds = _file_bounds(add)
        if wanted.may_match(bounds) and _overlaps_time(question, part, bounds):
            found.append(add)
    return found


def _file_bounds(add: FileAdd) -> dict[str, tuple[Any, Any]]:
    stats = json.loads(add.stats) if add.stats else {}
    low, high = stats.get("minValues", {}), stats.get("maxValues", {})
    return {name: (low[name], high[name]) for name in low.keys() & high.keys()}


def _overlaps_time(question: Query, part: Partition, bounds: Mapping[str, tuple[Any, Any]]) -> bool:
    name = question.time_column(part)
    if name is None or name not in bounds:
        return True
    first, last = bounds[name]
    low, high = question.span.start_ns, question.span.end_ns
    return (low is None or last >= low) and (high is None or first < high)


def read_rows(
    snapshot: LakeSnapshot,
    question: Query,
    columns: Sequence[str] | None = None,
    stats: ReadStats | None = None,
    *,
    ordered: bool = True,
) -> pa.Table:
    """The rows as stored, in order: by date, by channel, then by `name_lookup.sort_columns`."""
    stats = ReadStats() if stats is None else stats
    stats.files += len(snapshot.adds(question.table.name))
    parts = [
        read_partition(snapshot, question, part, adds, columns, stats, ordered=ordered)
        for part, adds in group_by_partition(select_files(snapshot, question)).items()
    ]
    schema = _output_schema(question.table, columns)
    found = pa.concat_tables([empty_table(schema), *parts])
    stats.rows += found.num_rows
    return found


def read_partition(
    snapshot: LakeSnapshot,
    question: Query,
    partition: Partition,
    adds: Sequence[FileAdd],
    columns: Sequence[str] | None,
    stats: ReadStats,
    *,
    ordered: bool = True,
) -> pa.Table:
    """The rows of one channel-day, in order."""
    batches = iter_rows(
        snapshot, question, partition, adds, columns, stats, ordered=ordered, row_groups_per_read=ALL_ROW_GROUPS
    )
    rows = pa.concat_tables([empty_table(_columns_to_read(question, columns, ordered)), *batches])
    return (sort_rows(rows, question.table) if ordered else rows).select(_output_schema(question.table, columns).names)


def iter_rows(
    snapshot: LakeSnapshot,
    question: Query,
    partition: Partition,
    adds: Sequence[FileAdd],
    columns: Sequence[str] | None,
    stats: ReadStats,
    *,
    ordered: bool = True,
    row_groups_per_read: int = 1,
) -> Iterator[pa.Table]:
    """The rows of one channel-day as stored, some row groups at a time; `ordered`: with the columns that define their
    order."""
    schema = _columns_to_read(question, columns, ordered)
    for add in adds:
        for rows in _read_file(snapshot, question.table, add, question, schema, stats, row_groups_per_read):
            yield filter_rows(rows, row_mask(rows, question, partition))


def _columns_to_read(question: Query, columns: Sequence[str] | None, ordered: bool) -> pa.Schema:
    names = {*_output_schema(question.table, columns).names, *_helper_columns(question, ordered)}
    return pa.schema([each for each in question.table.schema if each.name in names])


def _output_schema(table: Table, columns: Sequence[str] | None) -> pa.Schema:
    return table.schema if columns is None else pa.schema([table.schema.field(name) for name in columns])


def _helper_columns(question: Query, ordered: bool) -> set[str]:
    """Columns that are needed to select and order the rows."""
    table = question.table
    needed = (
        {*sort_columns(table), *(("seq_version", "ts_recv") if table.name in STREAM_ORDERED_TABLES else ())}
        if ordered
        else set()
    )
    needed |= question.time.columns(table) if question.span.has_times else set()
    needed |= {"flags"} if question.exclude_stale else set()
    needed |= {"instrument_id", "symbol"} if question.filters is not None else set()
    needed |= {"trading_date", "channel_id"} if not table.partition else set()
    return needed & set(table.schema.names)


def _read_file(
    snapshot: LakeSnapshot,
    table: Table,
    add: FileAdd,
    question: Query,
    schema: pa.Schema,
    stats: ReadStats,
    row_groups_per_read: int,
) -> Iterator[pa.Table]:
    path = snapshot.paths.table(table.name) / add.path
    stats.files_opened += 1
    stats.paths.append(add.path)
    try:
        with open_file(path) as file:
            instrument_filter = question.filter_for(partition_of(add)) or ALL_INSTRUMENTS
            groups = _row_groups_with_ids(
                file, _select_row_groups(file, question, partition_of(add), instrument_filter), instrument_filter
            )
            stats.row_groups += file.num_row_groups
            stats.row_groups_read += len(groups)
            inside = set(file.schema_arrow.names)
            there = [each.name for each in schema if each.name in inside]
            for first in range(0, len(groups), row_groups_per_read):
                rows = file.read_row_groups(groups[first : first + row_groups_per_read], there)
                yield pa.Table.from_arrays([_column(rows, each, add, table) for each in schema], schema=schema)
    except FileNotFoundError as error:
        reason = f"{table.name}: {add.path} no longer exists, it was vacuumed after this lake was opened"
        raise UmdfError(reason, "call lake.refresh() and retry") from error


def _column(rows: pa.Table, each: pa.Field, add: FileAdd, table: Table) -> Any:
    if each.name in table.partition:
        day, channel = partition_of(add)
        return constant_array(day if each.name == "trading_date" else channel, each.type, rows.num_rows)
    if each.name not in rows.schema.names:  # a column newer than this file
        return pa.nulls(rows.num_rows, each.type)
    column = rows.column(each.name)
    return column if column.type == each.type else column.cast(each.type)


def _select_row_groups(
    file: pq.ParquetFile, question: Query, part: Partition, instrument_filter: InstrumentFilter
) -> list[int]:
    asked = {"instrument_id", "symbol", question.time_column(part)}
    names = {file.schema.column(at).path: at for at in range(len(file.schema.names))}
    places = {name: names[name] for name in asked if name in names}
    found = []
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        stats = {name: group.column(at).statistics for name, at in places.items()}
        bounds = {name: (one.min, one.max) for name, one in stats.items() if one is not None and one.has_min_max}
        if instrument_filter.may_match(bounds) and _overlaps_time(question, part, bounds):
            found.append(number)
    return found


def _row_groups_with_ids(file: pq.ParquetFile, groups: list[int], instrument_filter: InstrumentFilter) -> list[int]:
    """Files have instruments by hash, so bounds say little: reading one narrow column avoids reading the others."""
    if instrument_filter.ids is None or "instrument_id" not in file.schema_arrow.names:
        return groups
    ids = np.array(sorted(instrument_filter.ids), np.int64)
    return [
        at for at in groups if np.isin(int64_values(file.read_row_group(at, ["instrument_id"]).column(0)), ids).any()
    ]


def row_mask(rows: pa.Table, question: Query, partition: Partition) -> NDArray[np.bool_]:
    """Which rows are selected. Rows with NULL in a filtered column are not."""
    mask = np.ones(rows.num_rows, np.bool_)
    instrument_filter = question.filter_for(partition) if question.table.partition else ALL_INSTRUMENTS
    assert instrument_filter is not None
    if instrument_filter.ids is not None and "instrument_id" in rows.schema.names:
        mask &= np.isin(int64_values(rows.column("instrument_id")), np.array(sorted(instrument_filter.ids), np.int64))
        mask &= is_valid(rows.column("instrument_id"))
    if instrument_filter.symbols is not None and "symbol" in rows.schema.names:
        mask &= is_in(rows.column("symbol"), instrument_filter.symbols)
    name = question.time_column(partition)
    if name is not None:
        times, span = int64_values(rows.column(name)), question.span
        mask &= is_valid(rows.column(name))
        mask &= times >= span.start_ns if span.start_ns is not None else True
        mask &= times < span.end_ns if span.end_ns is not None else True
    if question.exclude_stale:
        excluded = MAYBE_BAD_BOOK | (JOINED if partition in question.continued else 0)
        mask &= int64_values(rows.column("flags")) & excluded != MAYBE_BAD_BOOK
    if not question.table.partition and "trading_date" in rows.schema.names:
        days = rows.column("trading_date").to_pylist()
        mask &= np.array([day is None or question.span.includes_date(day, MARGIN_DAYS) for day in days], np.bool_)
    return mask


def sort_rows(rows: pa.Table, table: Table) -> pa.Table:
    """Sort the rows of one channel-day as in the feed, or by time."""
    keys = [
        int64_values(rows.column(name)) if _is_number(rows, name) else _text_ranks(rows, name)
        for name in sort_columns(table)
    ]
    if table.name in STREAM_ORDERED_TABLES:
        keys.insert(0, epoch_ranks(int64_values(rows.column("seq_version")), int64_values(rows.column("ts_recv"))))
    if _is_sorted(keys):
        return rows
    return take_rows(rows, np.lexsort(keys[::-1]))


def epoch_ranks(versions: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Ranks of epochs by start time: versions only differ, they have no order."""
    if not len(versions) or (versions == versions[0]).all():
        return np.zeros(len(versions), np.int64)
    values, places = np.unique(versions, return_inverse=True)
    epoch_starts = np.full(len(values), np.iinfo(np.int64).max)
    np.minimum.at(epoch_starts, places, times)
    ranks = np.empty(len(values), np.int64)
    ranks[np.argsort(epoch_starts, kind="stable")] = np.arange(len(values))
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


def _text_ranks(rows: pa.Table, name: str) -> NDArray[np.int64]:
    texts = [value or "" for value in rows.column(name).to_pylist()]
    return np.unique(np.array(texts, object), return_inverse=True)[1] if texts else np.empty(0, np.int64)


def query_of(name: str, **about: Any) -> Query:
    return Query(table_named(name), **about)
