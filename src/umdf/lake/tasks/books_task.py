"""Step 3 of an ingest: staged rows of some instruments of a channel-day → books, bars and final tables.

    run({"root", "stamp", "channel_id", "protocol", "trading_date", "buckets", "staged", "snapshots", "timeline",
         "definitions", "state_in", "part", "final_before_ns", "tables", "is_compressed"}, attempt)
        -> {"files", "open", "is_late", "rows", "stale", "gaps"}

An ordinary function: Spark calls it as a task, tests and benchmarks call it directly. Instruments are processed in
groups of MAX_RANGE_ROWS rows, by instrument ID, so that every file is sorted by instrument and memory stays bounded;
an instrument with more rows is processed in spans.

Invariant: no instrument is in two tasks. What a task writes for an instrument depends only on that instrument's rows,
the timeline and the state, never on the other instruments of the task.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from umdf.lake.books.book_day_builder import BookDayBuilder, Tables
from umdf.lake.books.gap_recovery import GapRecoveries, Timeline
from umdf.lake.books.instrument_rows import (
    Epochs,
    InstrumentSet,
    RowsByBook,
    StagedFamily,
    StagedRows,
    StreamPosition,
    group_by_book,
)
from umdf.lake.books.intervals import OPEN_SUFFIX
from umdf.lake.books.replay import Numbers
from umdf.lake.books.reset_rows import BookResets
from umdf.lake.books.snapshot_rows import DaySpan, EpochStarts, read_snapshots
from umdf.lake.books.state_columns import read_states
from umdf.lake.books.table_columns import family_table
from umdf.lake.parquet.data_files import FileAdd, FileStamp
from umdf.lake.parquet.file_writer import FileWriter
from umdf.lake.parquet.flat_file_writer import ROW_GROUP_ROWS
from umdf.lake.runtime.spark_tasks import TaskAttempt
from umdf.lake.tasks.instrument_list import build_instrument_list
from umdf.lake.tasks.last_states import phases_and_states
from umdf.lake.tasks.staging import NO_INSTRUMENT, StagedFile, as_events, read_staged
from umdf.market.families import NULL

MAX_RANGE_ROWS = 1 << 19
MAX_RANGE_ROWS_MBP_10 = 1 << 18  # with mbp_10, whose rows take 400 bytes
BUFFERED_ROWS = ROW_GROUP_ROWS  # rows of a table that are buffered, so that row groups are not small
MIN_WRITE_ROWS = 1 << 15  # written without buffering: concatenating them would take as long as writing them
TABLES = (
    "mbo trades statistics mbp_1 tbbo bbo_1s bbo_1m ohlcv_1s ohlcv_1m ohlcv_1h ohlcv_1d book_check day_statistics "
    "book_state"
).split()  # mbp_10 is computed on demand (umdf.lake.books.derived_levels) unless requested
STATE_TABLE = "book_state"
CLOSE_THREADS = 8


def run(arguments: Mapping[str, Any], context: TaskAttempt | None = None) -> dict[str, Any]:
    """Run the task; returns its result."""
    task = _BooksTask(arguments, context or TaskAttempt(0, 0))
    try:
        return task.run()
    except BaseException:
        task.output.abandon()
        raise


class TableOutput:
    """One file per table, written as rows arrive."""

    def __init__(
        self, root: str, stamp: FileStamp, partition: Mapping[str, Any], context: TaskAttempt, is_compressed: bool
    ) -> None:
        self._root, self._stamp, self._partition, self._context, self._is_compressed = (
            root,
            stamp,
            partition,
            context,
            is_compressed,
        )
        self._writers: dict[str, FileWriter] = {}
        self._buffered: dict[str, list[pa.Table]] = {}
        self._buffered_rows: dict[str, int] = {}

    def add(self, tables: Tables) -> None:
        for name, rows in tables.items():
            if rows.num_rows >= MIN_WRITE_ROWS:
                self._write(name)
            if rows.num_rows:
                self._buffered.setdefault(name, []).append(rows)
                self._buffered_rows[name] = self._buffered_rows.get(name, 0) + rows.num_rows
                if self._buffered_rows[name] >= BUFFERED_ROWS or rows.num_rows >= MIN_WRITE_ROWS:
                    self._write(name)

    def _write(self, name: str) -> None:
        parts, self._buffered_rows[name] = self._buffered.pop(name, []), 0
        if not parts:
            return
        if name not in self._writers:
            self._writers[name] = FileWriter(
                self._root,
                name.removesuffix(OPEN_SUFFIX),
                self._stamp,
                self._partition,
                task=self._context.task,
                attempt=self._context.attempt,
                compressed=self._is_compressed,
            )
        self._writers[name].write(pa.concat_tables(parts).unify_dictionaries() if len(parts) > 1 else parts[0])

    def close(self) -> dict[str, list[FileAdd]]:
        for name in list(self._buffered):
            self._write(name)
        with ThreadPoolExecutor(CLOSE_THREADS) as pool:  # wait for the disk once, not per file
            closed = [*pool.map(FileWriter.close, self._writers.values())]
        added = dict(zip(self._writers, closed, strict=True))
        return {name: [file] for name, file in added.items() if file is not None}

    def abandon(self) -> None:
        for writer in self._writers.values():
            writer.discard()


@dataclass(frozen=True, eq=False)
class _InstrumentRange:
    """Instruments that are processed together."""

    ids: Numbers
    row_count: int


class _BooksTask:
    def __init__(self, arguments: Mapping[str, Any], context: TaskAttempt) -> None:
        self.root, self.channel = str(arguments["root"]), int(arguments["channel_id"])
        self.date, self.buckets = int(arguments["trading_date"]), [int(bucket) for bucket in arguments["buckets"]]
        self.table_names = frozenset(arguments.get("tables") or TABLES)
        self.staged = [StagedFile.from_json(file) for file in arguments["staged"]]
        snapshots = [StagedFile.from_json(file) for file in arguments.get("snapshots") or []]
        definitions = [StagedFile.from_json(file) for file in arguments.get("definitions") or []]
        self.epochs, self.timeline, self.epoch_starts = parse_timeline(arguments.get("timeline") or {})
        day = datetime.date(1970, 1, 1) + datetime.timedelta(days=self.date)
        partition = {"trading_date": day, "channel_id": self.channel}
        is_compressed = bool(arguments.get("is_compressed", True))
        self.output = TableOutput(self.root, FileStamp(*arguments["stamp"]), partition, context, is_compressed)
        instrument_buckets = [bucket for bucket in self.buckets if bucket != NO_INSTRUMENT]
        self.mbo, self.trades, self.statistics = (
            StagedFamily(self.staged, family, instrument_buckets, self.date)
            for family in ("mbo", "trades", "statistics")
        )
        self.snapshot_headers, self.snapshot_rows, self.snapshot_statistics = (
            StagedFamily(snapshots, family, instrument_buckets, self.date)
            for family in ("snapshot", "mbo", "statistics")
        )
        self.day_span = DaySpan.from_json(arguments.get("part") or {})
        self.stored_states = read_states(arguments.get("state_in"), instrument_buckets)
        self.epochs.ranks(self.stored_states.seq_version)
        for staged_batch in self.mbo.batches:
            self.epochs.ranks(staged_batch.batch.column("seq_version").to_numpy())
        every = read_staged(definitions or self.staged, "definition", instrument_buckets)
        self.definitions = build_instrument_list([every.rows("definition")], self.channel)
        self.last_states: Mapping[str, Any] = arguments.get("ends") or {}
        self.book_resets = BookResets.from_staged(self.staged, instrument_buckets, self.date, self.epochs)
        self.stale: list[dict[str, Any]] = []
        self.final_before_ns: int | None = arguments.get("final_before_ns")
        self.has_late_rows = False  # data arrived for a position that an earlier run wrote as final
        self.gap_recoveries = GapRecoveries(self.timeline, self.epochs)

    def run(self) -> dict[str, Any]:
        if NO_INSTRUMENT in self.buckets:
            self.output.add(self._channel_tables())
        for instrument_range in self._instrument_ranges():
            self._process_range(instrument_range)
        files = self.output.close()
        open_files: dict[str, list[str]] = {}  # by table: files that the next run replaces
        for name in [name for name in files if name.endswith(OPEN_SUFFIX)]:
            made, table = files.pop(name), name.removesuffix(OPEN_SUFFIX)
            open_files[table] = [file.path for file in made]
            files[table] = files.get(table, []) + made
        return {
            "files": {name: [file.to_json() for file in some] for name, some in files.items()},
            "open": open_files,
            "is_late": self.has_late_rows,
            "rows": {name: sum(file.rows for file in some) for name, some in files.items()},
            "stale": self.stale,
            "gaps": self.gap_recoveries.to_json(),
        }

    def _channel_tables(self) -> Tables:
        """Rows of the whole channel, copied to the tables as they are."""
        tables: Tables = {}
        for name in ("mbo", "trades", "statistics"):
            family = StagedFamily(self.staged, name, [NO_INSTRUMENT], self.date)
            batch = next(family.row_batches(NULL, NULL, 1 << 62), None)
            if batch is not None and name in self.table_names:
                events = as_events(batch.to_batch(), name)
                rows = events.rows(name)
                no_symbol = np.zeros(len(rows), np.int32)
                tables[name] = family_table(events, name, rows.column("flags"), pa.array([None], pa.utf8()), no_symbol)
        return tables

    def _instrument_ranges(self) -> Iterator[_InstrumentRange]:
        """Ranges of neighbouring instruments with about as many rows as fit."""
        counts = [(self.stored_states.instrument_id, np.zeros(len(self.stored_states), np.int64))]
        counts += [
            intake.counts()
            for intake in (self.mbo, self.snapshot_rows, self.snapshot_headers, self.trades, self.statistics)
        ]
        ids, inverse = np.unique(np.concatenate([some for some, _ in counts]), return_inverse=True)
        rows = np.bincount(inverse, np.concatenate([rows for _, rows in counts]), len(ids)).astype(np.int64)
        max_rows = MAX_RANGE_ROWS_MBP_10 if "mbp_10" in self.table_names else MAX_RANGE_ROWS
        before, first = np.append(0, np.cumsum(rows)), 0
        while first < len(ids):
            end = max(int(np.searchsorted(before, before[first] + max_rows, side="right")) - 1, first + 1)
            yield _InstrumentRange(ids[first:end], int(before[end] - before[first]))
            first = end

    def _process_range(self, instrument_range: _InstrumentRange) -> None:
        ids, first, last = instrument_range.ids, int(instrument_range.ids[0]), int(instrument_range.ids[-1])
        day = self._day_builder(ids)
        no_limit, none = 1 << 62, None
        trades, statistics = (
            group_by_book(next(intake.row_batches(first, last, no_limit), none), intake.family, ids, self.epochs)
            for intake in (self.trades, self.statistics)
        )
        snapshots = read_snapshots(
            self.snapshot_headers, self.snapshot_rows, first, last, ids, self.epochs, self.epoch_starts
        )
        snapshots = snapshots.in_span(self.day_span)
        snapshot_statistics = group_snapshot_statistics(self.snapshot_statistics, first, last, ids)
        if snapshot_statistics is not None:
            day.published.update(snapshot_statistics, snapshot=True)
        max_rows = MAX_RANGE_ROWS_MBP_10 if "mbp_10" in self.table_names else MAX_RANGE_ROWS
        batches = self.mbo.row_batches(first, last, max_rows)
        batch = next(batches, None)
        after: StreamPosition = None  # epoch and key of the last row so far
        while True:
            following = next(batches, None)
            until = None if following is None or batch is None else _last_position(batch, self.epochs)
            synthetic = self.book_resets.rows(ids, after, until, batch, day.replay.books)
            mbo, batch = group_by_book(batch, "mbo", ids, self.epochs, synthetic), None
            mbo.is_deletion = self.book_resets.deletion_mask(mbo)
            own = trades.between(after, until), statistics.between(after, until)
            snapshot_batch = snapshots.between(after, until)
            self.output.add(day.advance(mbo, own[0], own[1], snapshot_batch, more=following is not None))
            if following is None:
                break
            batch, after = following, until
        self.output.add(day.finish(self.final_before_ns))
        self.has_late_rows |= day.intervals.has_late_rows
        self.stale += day.untrusted_books()
        self.gap_recoveries.add(day.gap_log, ids)

    def _day_builder(self, ids: Numbers) -> BookDayBuilder:
        rows = self.definitions.rows_of(ids)
        declared_depths = self.definitions.depths[rows]
        depths = dict(
            zip(ids[declared_depths != NULL].tolist(), declared_depths[declared_depths != NULL].tolist(), strict=True)
        )
        ends = phases_and_states(self.last_states, ids, [self.definitions.groups[row] for row in rows.tolist()])
        group = InstrumentSet(ids, self.definitions.symbols.take(pa.array(rows)), depths, *ends)
        states = self.stored_states.select_instruments(int(ids[0]), int(ids[-1]))
        return BookDayBuilder(
            group, self.timeline, self.epochs, self.date, self.table_names, states if len(states) else None
        )


def parse_timeline(timeline: Mapping[str, Any]) -> tuple[Epochs, Timeline, EpochStarts]:
    """The timeline from the channel's plan: epochs in order, gaps, the last sequence and the start of each epoch."""
    epochs, times = Epochs(), []
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    joined: dict[int, int] = {}
    for one in timeline.get("epochs") or []:
        rank = epochs.rank(int(one["seq_version"]))
        first[rank] = int(one.get("first") or 0)
        times.append(int(one.get("ts_recv") or NULL))
        if one.get("last") is not None:
            last[rank] = int(one["last"])
    by_epoch: dict[int, set[tuple[int, int, int]]] = {}
    for gap in timeline.get("gaps") or []:
        gap_fields = int(gap["first"]), int(gap["last"]), int(gap.get("ts_before", NULL))
        rank = epochs.rank(int(gap["seq_version"]))
        by_epoch.setdefault(rank, set()).add(gap_fields)
        if gap_fields[1] < first.get(rank, 0):
            joined[rank] = int(gap["ts_send"])
    gap_columns = {epoch: np.array(sorted(some), np.int64).T.copy() for epoch, some in by_epoch.items()}
    gaps, sent = (
        {epoch: (some[0], some[1]) for epoch, some in gap_columns.items()},
        {e: some[2] for e, some in gap_columns.items()},
    )
    return epochs, Timeline(gaps, last, dict(enumerate(times)), sent, joined), EpochStarts(times, [*first.values()])


def group_snapshot_statistics(family: StagedFamily, first: int, last: int, ids: Numbers) -> RowsByBook | None:
    """Statistics of snapshots, by instrument and time."""
    batch = next(family.row_batches(first, last, 1 << 62), None)
    if batch is None:
        return None
    events = as_events(batch.to_batch(), family.family)
    book = 2 * np.searchsorted(ids, events.rows(family.family).column("instrument_id")).astype(np.int32)
    order = np.argsort(book, kind="stable")
    nothing = np.zeros(len(book), np.int32)
    return RowsByBook(events.take({family.family: order}), book[order], nothing, nothing.astype(np.uint64))


def _last_position(staged_rows: StagedRows, epochs: Epochs) -> tuple[int, int]:
    """Epoch and key of the last of an instrument's rows."""
    batch, rows = staged_rows.batches[-1]
    at = int(rows[-1]) if rows is not None else batch.num_rows - 1
    row = {
        name: int(batch.column(name)[at].as_py()) for name in ("seq_version", "sequence", "msg_index", "entry_index")
    }
    return epochs.rank(row["seq_version"]), row["sequence"] << 32 | row["msg_index"] << 16 | row["entry_index"]
