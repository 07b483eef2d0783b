"""Step three of an ingest: staged rows of some instruments of a channel and date → books, bars and final tables.

    run({"root", "stamp", "channel_id", "protocol", "trading_date", "buckets", "staged", "snapshots", "timeline",
         "definitions", "state_in", "part", "settle_ns", "tables", "packed"}, place)
        -> {"files", "open", "is_late", "rows", "stale", "gaps"}

A plain function: Spark calls it as a task, tests and benchmarks call it as it is. Instruments are done in groups of
GROUP_ROWS rows, in the order of their ids, so that every file is sorted by instrument and memory stays bounded; an
instrument with more rows is done in stretches.

The one rule: no instrument is in two tasks. What a task writes of an instrument depends on that instrument's rows, on
the timeline and on the state only, never on what else is in the task.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from umdf.lake.book_day import Group, GroupDay, Tables
from umdf.lake.book_made import Made
from umdf.lake.book_rows import Chosen, Epochs, Grouped, Intake, Limit, grouped
from umdf.lake.book_states import read_states
from umdf.lake.columns import family_table
from umdf.lake.file_writer import FileWriter
from umdf.lake.files import FileAdd, Stamp
from umdf.lake.gap_cures import Cures, Timeline
from umdf.lake.healing import Numbers
from umdf.lake.intervals import OPEN
from umdf.lake.last_states import phases_and_states
from umdf.lake.listed import listed
from umdf.lake.parquet import ROW_GROUP_ROWS
from umdf.lake.snapshot_rows import Part, snapshots_of
from umdf.lake.staging import NO_INSTRUMENT, Staged, as_events, read_staged
from umdf.lake.tasks import Place
from umdf.market.events import NULL

GROUP_ROWS = 1 << 19
GROUP_ROWS_DEEP = 1 << 18  # with mbp_10: a row of it takes 400 bytes
HELD_ROWS = ROW_GROUP_ROWS  # rows of a table that wait for more, so that row groups are not small
ENOUGH_ROWS = 1 << 15  # that need not wait: to put them together with others takes as long as to write them
TABLES = (
    "mbo trades statistics mbp_1 tbbo bbo_1s bbo_1m ohlcv_1s ohlcv_1m ohlcv_1h ohlcv_1d book_check day_statistics "
    "book_state"
).split()  # mbp_10 is derived on demand (umdf.lake.derive) unless it is asked for
STATE_TABLE = "book_state"
CLOSED_AT_ONCE = 8


def run(arguments: Mapping[str, Any], place: Place | None = None) -> dict[str, Any]:
    """Do the task; the manifest."""
    task = _Task(arguments, place or Place(0, 0))
    try:
        return task.run()
    except BaseException:
        task.output.abandon()
        raise


class Output:
    """One file for each table, written as rows come."""

    def __init__(self, root: str, stamp: Stamp, partition: Mapping[str, Any], place: Place, packed: bool) -> None:
        self._root, self._stamp, self._partition, self._place, self._packed = root, stamp, partition, place, packed
        self._writers: dict[str, FileWriter] = {}
        self._held: dict[str, list[pa.Table]] = {}
        self._held_rows: dict[str, int] = {}

    def add(self, tables: Tables) -> None:
        for name, rows in tables.items():
            if rows.num_rows >= ENOUGH_ROWS:
                self._write(name)
            if rows.num_rows:
                self._held.setdefault(name, []).append(rows)
                self._held_rows[name] = self._held_rows.get(name, 0) + rows.num_rows
                if self._held_rows[name] >= HELD_ROWS or rows.num_rows >= ENOUGH_ROWS:
                    self._write(name)

    def _write(self, name: str) -> None:
        parts, self._held_rows[name] = self._held.pop(name, []), 0
        if not parts:
            return
        if name not in self._writers:
            self._writers[name] = FileWriter(
                self._root,
                name.removesuffix(OPEN),
                self._stamp,
                self._partition,
                task=self._place.task,
                attempt=self._place.attempt,
                packed=self._packed,
            )
        self._writers[name].write(pa.concat_tables(parts).unify_dictionaries() if len(parts) > 1 else parts[0])

    def close(self) -> dict[str, list[FileAdd]]:
        for name in list(self._held):
            self._write(name)
        with ThreadPoolExecutor(CLOSED_AT_ONCE) as pool:  # the disk is waited for once, not for each file
            closed = [*pool.map(FileWriter.close, self._writers.values())]
        added = dict(zip(self._writers, closed, strict=True))
        return {name: [file] for name, file in added.items() if file is not None}

    def abandon(self) -> None:
        for writer in self._writers.values():
            writer.abandon()


@dataclass(frozen=True, eq=False)
class _Range:
    """Instruments that are done together."""

    ids: Numbers
    rows: int


class _Task:
    def __init__(self, arguments: Mapping[str, Any], place: Place) -> None:
        self.root, self.channel = str(arguments["root"]), int(arguments["channel_id"])
        self.date, self.buckets = int(arguments["trading_date"]), [int(bucket) for bucket in arguments["buckets"]]
        self.wanted = frozenset(arguments.get("tables") or TABLES)
        self.staged = [Staged.from_json(said) for said in arguments["staged"]]
        snapshots = [Staged.from_json(said) for said in arguments.get("snapshots") or []]
        definitions = [Staged.from_json(said) for said in arguments.get("definitions") or []]
        self.epochs, self.timeline, self.epoch_times = timeline_of(arguments.get("timeline") or {})
        day = datetime.date(1970, 1, 1) + datetime.timedelta(days=self.date)
        partition = {"trading_date": day, "channel_id": self.channel}
        packed = bool(arguments.get("packed", True))
        self.output = Output(self.root, Stamp(*arguments["stamp"]), partition, place, packed)
        instrument_buckets = [bucket for bucket in self.buckets if bucket != NO_INSTRUMENT]
        self.mbo, self.trades, self.statistics = (
            Intake(self.staged, family, instrument_buckets, self.date) for family in ("mbo", "trades", "statistics")
        )
        self.heads, self.snapshot_books, self.snapshot_statistics = (
            Intake(snapshots, family, instrument_buckets, self.date) for family in ("snapshot", "mbo", "statistics")
        )
        self.part = Part.from_json(arguments.get("part") or {})
        self.stored = read_states(arguments.get("state_in"), instrument_buckets)
        self.epochs.ranks(self.stored.seq_version)
        for piece in self.mbo.pieces:
            self.epochs.ranks(piece.batch.column("seq_version").to_numpy())
        every = read_staged([*definitions, *self.staged], "definition", instrument_buckets)
        self.listed = listed([every.rows("definition")], self.channel)
        self.ends: Mapping[str, Any] = arguments.get("ends") or {}
        self.made = Made.of(self.staged, instrument_buckets, self.date, self.epochs)
        self.stale: list[dict[str, Any]] = []
        self.settle_ns: int | None = arguments.get("settle_ns")
        self.is_late = False  # something came for what an earlier run has written as final
        self.cures = Cures(self.timeline, self.epochs)

    def run(self) -> dict[str, Any]:
        if NO_INSTRUMENT in self.buckets:
            self.output.add(self._without_instrument())
        for part in self._ranges():
            self._run_range(part)
        files = self.output.close()
        still_open: dict[str, list[str]] = {}  # by table: files that the next run replaces
        for name in [name for name in files if name.endswith(OPEN)]:
            made, table = files.pop(name), name.removesuffix(OPEN)
            still_open[table] = [file.path for file in made]
            files[table] = files.get(table, []) + made
        return {
            "files": {name: [file.to_json() for file in some] for name, some in files.items()},
            "open": still_open,
            "is_late": self.is_late,
            "rows": {name: sum(file.rows for file in some) for name, some in files.items()},
            "stale": self.stale,
            "gaps": self.cures.to_json(),
        }

    def _without_instrument(self) -> Tables:
        """Rows of the whole channel: nothing to be done with them."""
        found: Tables = {}
        for name in ("mbo", "trades", "statistics"):
            intake = Intake(self.staged, name, [NO_INSTRUMENT], self.date)
            batch = next(intake.chunks(NULL, NULL, 1 << 62), None)
            if batch is not None and name in self.wanted:
                events = as_events(batch.batch(), name)
                rows = events.rows(name)
                nobody = np.zeros(len(rows), np.int32)
                found[name] = family_table(events, name, rows.column("flags"), pa.array([None], pa.utf8()), nobody)
        return found

    def _ranges(self) -> Iterator[_Range]:
        """Neighbouring instruments, about as many rows together as fit."""
        counts = [(self.stored.instrument_id, np.zeros(len(self.stored), np.int64))]
        counts += [
            intake.counts() for intake in (self.mbo, self.snapshot_books, self.heads, self.trades, self.statistics)
        ]
        ids, place = np.unique(np.concatenate([some for some, _ in counts]), return_inverse=True)
        rows = np.bincount(place, np.concatenate([rows for _, rows in counts]), len(ids)).astype(np.int64)
        most = GROUP_ROWS_DEEP if "mbp_10" in self.wanted else GROUP_ROWS
        before, first = np.append(0, np.cumsum(rows)), 0
        while first < len(ids):
            end = max(int(np.searchsorted(before, before[first] + most, side="right")) - 1, first + 1)
            yield _Range(ids[first:end], int(before[end] - before[first]))
            first = end

    def _run_range(self, part: _Range) -> None:
        ids, first, last = part.ids, int(part.ids[0]), int(part.ids[-1])
        day = self._day(ids)
        every, none = 1 << 62, None
        trades, statistics = (
            grouped(next(intake.chunks(first, last, every), none), intake.family, ids, self.epochs)
            for intake in (self.trades, self.statistics)
        )
        snapshots = snapshots_of(self.heads, self.snapshot_books, first, last, ids, self.epochs, self.epoch_times)
        snapshots = snapshots.of_part(self.part)
        said = grouped_snapshots(self.snapshot_statistics, first, last, ids)
        if said is not None:
            day.published.take(said, snapshot=True)
        most = GROUP_ROWS_DEEP if "mbp_10" in self.wanted else GROUP_ROWS
        chunks = self.mbo.chunks(first, last, most)
        batch = next(chunks, None)
        done: Limit = None  # epoch and key of the last row so far
        while True:
            following = next(chunks, None)
            until = None if following is None or batch is None else _last_of(batch, self.epochs)
            made = self.made.rows(ids, done, until)
            mbo, batch = grouped(batch, "mbo", ids, self.epochs, made), None
            mbo.deleted = self.made.deleted(mbo)
            own = trades.between(done, until), statistics.between(done, until)
            held = snapshots.between(done, until)
            self.output.add(day.advance(mbo, own[0], own[1], held, more=following is not None))
            if following is None:
                break
            batch, done = following, until
        self.output.add(day.finish(self.settle_ns))
        self.is_late |= day.intervals.is_late
        self.stale += day.stale()
        self.cures.add(day.gaps, ids)

    def _day(self, ids: Numbers) -> GroupDay:
        rows = self.listed.rows_of(ids)
        said = self.listed.depths[rows]
        depths = dict(zip(ids[said != NULL].tolist(), said[said != NULL].tolist(), strict=True))
        ends = phases_and_states(self.ends, ids, [self.listed.groups[row] for row in rows.tolist()])
        group = Group(ids, self.listed.symbols.take(pa.array(rows)), depths, *ends)
        stored = self.stored.between(int(ids[0]), int(ids[-1]))
        return GroupDay(group, self.timeline, self.epochs, self.date, self.wanted, stored if len(stored) else None)


def timeline_of(said: Mapping[str, Any]) -> tuple[Epochs, Timeline, list[int]]:
    """The timeline of the channel's task: epochs in their order, gaps, how far each epoch goes, when it began."""
    epochs, times = Epochs(), []
    last: dict[int, int] = {}
    for one in said.get("epochs") or []:
        rank = epochs.rank(int(one["seq_version"]))
        times.append(int(one.get("ts_recv") or NULL))
        if one.get("last") is not None:
            last[rank] = int(one["last"])
    by_epoch: dict[int, set[tuple[int, int, int]]] = {}
    for gap in said.get("gaps") or []:
        about = int(gap["first"]), int(gap["last"]), int(gap.get("ts_before", NULL))
        by_epoch.setdefault(epochs.rank(int(gap["seq_version"])), set()).add(about)
    every = {epoch: np.array(sorted(some), np.int64).T.copy() for epoch, some in by_epoch.items()}
    gaps, sent = {epoch: (some[0], some[1]) for epoch, some in every.items()}, {e: some[2] for e, some in every.items()}
    return epochs, Timeline(gaps, last, dict(enumerate(times)), sent), times


def grouped_snapshots(intake: Intake, first: int, last: int, ids: Numbers) -> Grouped | None:
    """Statistics of snapshots, by instrument, in the order of time."""
    batch = next(intake.chunks(first, last, 1 << 62), None)
    if batch is None:
        return None
    events = as_events(batch.batch(), intake.family)
    book = 2 * np.searchsorted(ids, events.rows(intake.family).column("instrument_id")).astype(np.int32)
    order = np.argsort(book, kind="stable")
    nothing = np.zeros(len(book), np.int32)
    return Grouped(events.at({intake.family: order}), book[order], nothing, nothing.astype(np.uint64))


def _last_of(chosen: Chosen, epochs: Epochs) -> tuple[int, int]:
    """Epoch and key of the last row of an instrument's rows."""
    batch, rows = chosen.parts[-1]
    at = int(rows[-1]) if rows is not None else batch.num_rows - 1
    row = {
        name: int(batch.column(name)[at].as_py()) for name in ("seq_version", "sequence", "msg_index", "entry_index")
    }
    return epochs.rank(row["seq_version"]), row["sequence"] << 32 | row["msg_index"] << 16 | row["entry_index"]
