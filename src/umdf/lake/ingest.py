"""Captures → tables: `ingest_captures(files, lake) → one commit`, for a batch ingest and for each micro-batch.

    survey (one task per new file) → decode (per span) → channel (per channel-day) → books (per pack of
    instruments) → one lake commit, with the inputs in the ledger

Invariant: the order in which files arrive does not matter. A known file is skipped. A batch ingest builds a
channel-day from all its files, and rebuilds it when a new file belongs to it. A stream (`IngestSettings.follow`)
takes a channel-day up to its frontier and continues there with the next files; a file with data before the frontier
causes a rebuild.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

from umdf.lake.books.gap_recovery import merge_gap_records
from umdf.lake.commit import ledger, vacuum
from umdf.lake.commit.log import Change
from umdf.lake.commit.writer import Writer
from umdf.lake.ingest_result import IngestResult
from umdf.lake.ingest_settings import IngestSettings, StepProgress, TaskRunner, no_progress
from umdf.lake.parquet.data_files import FileAdd
from umdf.lake.plan import channel_config
from umdf.lake.plan.contradicting_files import input_files
from umdf.lake.plan.day_builder import BOOK_TABLES, TABLES, TaskContext, build_days, digests_read
from umdf.lake.plan.day_results import DayResults
from umdf.lake.plan.frontier import (
    STATE_FORMAT,
    ChannelState,
    FollowSettings,
    Frontier,
    ReadProgress,
    find_frontier,
    has_late_input,
    open_days,
)
from umdf.lake.plan.gap_timeline import merge_quality, write_small_table
from umdf.lake.plan.input_damage import input_damage_change
from umdf.lake.plan.inputs import Inputs, SurveyLookup, days_of_entries
from umdf.lake.plan.loop_gaps import small_table_rows
from umdf.lake.plan.planner import ChannelDay, Planner
from umdf.lake.plan.segments import (
    ChannelDayKey,
    MulticastGroup,
    StreamLine,
    assign_streams,
    days_of,
    days_touched_by,
    ledger_entries_of,
    partition_of,
    trading_dates,
)
from umdf.lake.recording.capture_clock import is_clock_off, largest_offset
from umdf.lake.schemas import APPEND, tables
from umdf.lake.schemas import table as table_named
from umdf.lake.stream.staging_file_pool import StagingFilePool
from umdf.lake.tasks.quarantine import damage_of
from umdf.transport.damage import damage_messages

TABLES_WITHOUT_DAYS = frozenset({"ledger"})


def ingest_captures(
    paths: Sequence[str | os.PathLike[str]],
    writer: Writer,
    runner: TaskRunner,
    settings: IngestSettings | None = None,
    on_step: StepProgress = no_progress,
    rebuild: Collection[ChannelDayKey] = (),
    forget: Collection[str] = (),
    prefetched: SurveyLookup = lambda path: None,
    file_pool: StagingFilePool | None = None,
) -> IngestResult:
    """Load captures into the lake, as one commit, or none if the lake has them all. The days in `rebuild` are rebuilt
    from all their files, those of inputs to `forget` (digests) from their other files. `prefetched` may have the
    survey of a file already; `file_pool` lends files for staging, and gets them back."""
    ingest = _Ingest(writer, runner, settings or IngestSettings(), on_step, prefetched, file_pool, forget)
    if not ingest.settings.follow:  # a stream deletes orphans when it starts
        vacuum.delete_orphans(writer)
    try:
        return ingest.ingest(paths, set(rebuild))
    finally:
        ingest.clear()


class _Ingest:
    def __init__(
        self,
        writer: Writer,
        runner: TaskRunner,
        settings: IngestSettings,
        on_step: StepProgress,
        prefetched: SurveyLookup,
        file_pool: StagingFilePool | None,
        forget: Collection[str],
    ) -> None:
        self.writer, self.settings, self.on_step = writer, settings, on_step
        self.runner, self.file_pool = runner, file_pool
        self.root, self.stamp = writer.paths.root, writer.stamp
        # This is the only writer: anything else there was left by a dead one.
        for left in writer.paths.work.glob("ingest-*") if writer.paths.work.is_dir() else ():
            if file_pool is None or left != file_pool.directory:
                shutil.rmtree(left, ignore_errors=True)
        self.work = writer.paths.work / f"ingest-{self.stamp.commit:08d}-{self.stamp.token:08d}"
        self.result = IngestResult()
        entries = ledger.entries(writer.snapshot)
        self.channel_config = (
            settings.channel_config
            if settings.is_config_replaced
            else channel_config.merge(self.root, entries, settings.channel_config)
        )
        self.inputs = Inputs(
            writer, self._run_step, self.work, settings.split_bytes, runner.parallel, prefetched, forget
        )
        self.states = open_days(writer.snapshot) if settings.follow else {}  # days that a stream has started
        self.patience: dict[ChannelDayKey, int] = {}
        self._staged_files: list[tuple[str, Path]] = []  # family and file

    def _run_step(self, tasks: Sequence[dict[str, Any]], function: str, description: str) -> list[dict[str, Any]]:
        progress = self.on_step(description, len(tasks))
        results = self.runner(tasks, function, description=description, progress=progress) if tasks else []
        staged_files = (staged for task_result in results for staged in task_result.get("staged", ()))
        self._staged_files += [(staged["family"], Path(staged["path"])) for staged in staged_files]
        peaks = [task_result.get("peak_memory_bytes", 0) for task_result in results]
        self.result.peak_memory_bytes = max([self.result.peak_memory_bytes, *peaks])
        return results

    def ingest(self, paths: Sequence[str | os.PathLike[str]], rebuild: set[ChannelDayKey]) -> IngestResult:
        follow, due_days = self.settings.follow, rebuild | set(self.states)
        is_due = bool(rebuild or self.inputs.dropped or (follow and follow.finish and due_days))
        new, old = self._surveys(paths, due_days, is_due)
        if not new and not is_due and not self.inputs.dropped:
            return self.result
        stream_lines = assign_streams([*new, *old], self.channel_config)
        reassigned = [
            each
            for each in old
            if self.settings.is_config_replaced
            or self.inputs.is_reassigned(each, ledger_entries_of(each, stream_lines))
        ]
        # Their files were not recognised before, or there were others.
        changed = self._days_of_reassigned(reassigned, stream_lines) | self.inputs.dropped_days
        touched = {day for survey in new for day in days_of(survey, stream_lines)} | due_days | changed
        known = {day for survey in (*new, *old) for day in days_of(survey, stream_lines)}
        touched |= {day for survey in new for day in days_touched_by(survey, stream_lines)} & known
        surveys = {
            survey["digest"]: survey
            for survey in (*new, *old)
            if days_touched_by(survey, stream_lines) & touched or follow
        }
        days_with_data = {day for survey in surveys.values() for day in days_of(survey, stream_lines)}
        current_paths = {digest: self.inputs.readable_path(survey) for digest, survey in surveys.items()}
        new_digests = frozenset(survey["digest"] for survey in new) if follow else None
        plan_options = self.settings.span_sequences, new_digests, self.runner.parallel
        planner = Planner(list(surveys.values()), stream_lines, current_paths, *plan_options)
        for day in changed if follow else touched:
            self.states.pop(day, None)
        if follow:
            days = self._plan_followed(
                planner, sorted(touched & days_with_data), ReadProgress(surveys.values()), follow
            )
        else:
            days = [(planner.plan_day(day), Frontier(None, is_over=True)) for day in sorted(touched & days_with_data)]
        changes = self._build(planner, surveys, days)
        changes += [change for day in sorted(touched - days_with_data) for change in self._clear_day(day)]
        # No longer needed, and the commit waits for the disk anyway.
        clearing = Thread(target=self._recycle_staged_files)
        clearing.start()
        self._commit(new, reassigned, stream_lines, changes)
        clearing.join()
        return self.result

    def _recycle_staged_files(self) -> None:
        if self.file_pool is not None:
            self.file_pool.release(self._staged_files)
        self.clear()

    def clear(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)

    def _surveys(
        self, paths: Sequence[str | os.PathLike[str]], due_days: set[ChannelDayKey], is_due: bool
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Surveys of new files and of known ones that have grown; then of the other files of their dates."""
        inputs, next_paths, new = self.inputs, list(paths), list[dict[str, Any]]()
        while True:
            new += self._survey_new(next_paths)
            if not self.settings.follow:
                self.result.raise_if_no_captures()
            if not (new or is_due or inputs.dropped):
                return [], []
            dates = {date for survey in new for date in trading_dates(survey)}
            dates |= {date for _, date in due_days | inputs.dropped_days}
            next_paths = [] if self.settings.follow else inputs.grown_paths(dates)
            if not next_paths:
                return new, inputs.known_surveys(dates)

    def _survey_new(self, paths: Sequence[str | os.PathLike[str]]) -> list[dict[str, Any]]:
        new = self.inputs.survey(paths)
        self.result.new += len(new)
        self.result.known, self.result.grown = self.inputs.known_count, self.inputs.grown
        for survey in new:
            times = [segment[8] for split in survey.get("splits", []) for segment in split["segments"]]
            self.result.closings += [(survey["mtime_ns"], max(times))] if times else []
            offset_ns = largest_offset(offset for _, offset in survey.get("clock_offsets", []))
            if offset_ns is not None and is_clock_off(offset_ns):
                self.result.clock_offsets.append((survey["path"], offset_ns))
            damage = damage_of(survey)
            if "no_capture" in survey:
                self.result.unusable += [(one.file, one.reason) for one in damage]
            else:
                self.result.damaged += damage_messages(damage)
                self.result.unread_bytes += sum(one.unread_bytes for one in damage)
        return new

    # Days

    def _days_of_reassigned(
        self, reassigned: list[dict[str, Any]], stream_lines: Mapping[MulticastGroup, StreamLine]
    ) -> set[ChannelDayKey]:
        found = {day for survey in reassigned for day in days_of(survey, stream_lines)}
        entries = (entry for survey in reassigned for entry in self.inputs.known[survey["digest"]])
        return found | days_of_entries(entries)

    def _plan_followed(
        self, planner: Planner, days: list[ChannelDayKey], progress: ReadProgress, follow: FollowSettings
    ) -> list[tuple[ChannelDay, Frontier]]:
        """How far each day can go now, without the days that have nothing to do."""
        found = []
        for key in days:
            day, before = planner.outline_day(key), self.states.get(key)
            is_late = before is not None and has_late_input(planner, day, before)
            if before is not None and (
                is_late or self._has_lost_state_files(before) or self._lacks_tables(key, before)
            ):
                self.patience[key] = before.patience * (2 if is_late and not planner.has_new_group(key) else 1)
                before = None
            if before is None and key in self.inputs.days:
                self._mark_for_rebuild(key)
            day_frontier = find_frontier(
                planner, day, progress, follow, before.patience if before else self.patience.get(key, 1)
            )
            until = day_frontier.target(before)
            if before is None or planner.has_new_data(day) or until != before.done:
                found.append((planner.plan_day(key, before and before.done, until), day_frontier))
            else:
                self.result.open_days[key] = before.done
        return found

    def _has_lost_state_files(self, state: ChannelState) -> bool:
        """Whether the state's book files were replaced since, by a compaction."""
        snapshot = self.writer.snapshot
        return any(not set(paths) <= {add.path for add in snapshot.adds(name)} for name, paths in state.open.items())

    def _lacks_tables(self, day: ChannelDayKey, state: ChannelState) -> bool:
        """Whether a requested table lacks the earlier parts of the day."""
        return not set(self._tables_of(day)) <= set(state.tables)

    def _mark_for_rebuild(self, day: ChannelDayKey) -> None:
        self.states.pop(day, None)
        self.result.rebuilt_days.append(day)

    def _tables_of(self, day: ChannelDayKey) -> list[str]:
        """The requested tables, and those that already have the day and must stay complete."""
        requested = self.settings.tables
        if self.settings.follow and requested & set(BOOK_TABLES):
            requested |= {"book_state"}  # needed to continue
        requested |= set(self.states[day].tables) if day in self.states else set()
        return [name for name in TABLES if name in requested or self.writer.snapshot.adds(name, **partition_of(day))]

    def _build(
        self, planner: Planner, surveys: Mapping[str, dict[str, Any]], days: list[tuple[ChannelDay, Frontier]]
    ) -> list[Change]:
        limits = self.settings.rows_per_task, self.runner.parallel
        inputs = input_files(surveys.values(), self.inputs.known)
        pool_directory = self.file_pool and self.file_pool.directory
        context = TaskContext(self.root, self.stamp, self.work, self._run_step, *limits, inputs, pool_directory)
        changes: list[Change] = []
        while days:
            frontiers = {day.key: front for day, front in days}
            tables_by_day = {key: self._tables_of(key) for key in frontiers}
            plans = [day for day, _ in days]
            self.inputs.prepare(surveys[digest] for digest in digests_read(plans))
            built, to_rebuild = build_days(context, plans, self.states, tables_by_day)
            for parts in built:
                changes += self._changes(parts, tables_by_day[parts.day.key], frontiers[parts.day.key].is_over)
            for key in to_rebuild:
                self.patience[key] = self.states[key].patience * (1 if planner.has_new_group(key) else 2)
                self._mark_for_rebuild(key)
            days = [(planner.plan_day(key, None, frontiers[key].target(None)), frontiers[key]) for key in to_rebuild]
        return changes

    def _changes(self, results: DayResults, names: list[str], is_over: bool) -> list[Change]:
        """The changes of every table: the day replaces its earlier rows, or is appended to them."""
        day, result, before = results.day, self.result, results.before
        quality = merge_quality(before.quality if before else (), results.span_results, results.looping_results)
        gap_records = merge_gap_records(before.gap_records if before else [], results.gap_records)
        small_tables = small_table_rows(day, results.gaps, gap_records, quality)
        result.add_loop_losses(small_tables if before is None else {})
        for name, rows in small_tables.items():
            added = write_small_table(self.root, self.stamp, name, rows, day) if name in names else None
            results.add_files({name: [added.to_json()]} if added else {})
        self._add_to_result(results)
        changes = []
        for name in names:
            adds = results.files.get(name, ())
            if before is None:
                changes.append(self.writer.replace_partition(name, adds, **partition_of(day.key)))
            elif table_named(name).mode == APPEND:
                changes.append(Change(name, tuple(adds)))
            elif name in small_tables or results.has_new_rows:
                changes.append(self.writer.replace_partition(name, adds, **partition_of(day.key)))
        for name, paths in before.open.items() if before is not None and results.has_new_rows else ():
            replaced = [add for add in self.writer.snapshot.adds(name) if add.path in paths]
            changes.append(Change(name, (), tuple(replaced)))
        state = None
        if is_over:
            result.closed_days += [day.key] if self.settings.follow else []
        else:
            assert day.until is not None
            still_open = results.open_files if results.has_new_rows or before is None else before.open
            state_fields = {
                "listed": results.definition_hashes,
                "open": still_open,
                "quality": quality,
                "gap_records": gap_records,
            }
            state_fields |= {"ts_sent": results.ts_sent, "tables": names, "states": results.states}
            patience = self.patience.get(day.key, before.patience if before else 1)
            gaps = [gap.to_json() for gap in results.gaps]
            next_state = ChannelState.from_staged(
                results.definitions, done=day.until, gaps=gaps, patience=patience, **state_fields
            )
            state = self._write_state(day, next_state)
            result.open_days[day.key] = day.until
        return [
            *changes,
            self.writer.replace_partition("channel_state", (state,) if state else (), **partition_of(day.key)),
        ]

    def _add_to_result(self, results: DayResults) -> None:
        result, losses = self.result, results.new_losses()
        result.days.append(results.day.key)
        result.messages += sum(span["messages"] for span in results.span_results)
        result.notices = sorted({*result.notices, *results.notices})
        result.gaps += len(losses)
        result.missing_sequences += sum(gap.last - gap.first + 1 for gap in losses)
        result.stale += len(results.stale)
        result.not_stored += sum(
            task_result["not_stored"] for task_result in (*results.span_results, *results.looping_results)
        )
        if results.task_rows:
            share = max(results.task_rows) / max(sum(results.task_rows), 1)
            result.largest_task_share = max(result.largest_task_share, share)
        for name, adds in results.files.items():
            result.rows[name] = result.rows.get(name, 0) + sum(add.rows for add in adds)
            result.bytes[name] = result.bytes.get(name, 0) + sum(add.bytes for add in adds)

    def _write_state(self, day: ChannelDay, state: ChannelState) -> FileAdd | None:
        row = {"seq_version": state.done.epoch, "sequence": state.done.number, "ts_recv": state.done.ts_recv}
        row |= {"format": STATE_FORMAT, "content": state.to_bytes()}
        return write_small_table(self.root, self.stamp, "channel_state", [row], day)

    def _clear_day(self, day: ChannelDayKey) -> list[Change]:
        """Remove a day whose files turned out to belong to another channel."""
        return [
            self.writer.replace_partition(name, (), **partition_of(day))
            for name in tables()
            if name not in TABLES_WITHOUT_DAYS
        ]

    # The commit

    def _commit(
        self,
        new: list[dict[str, Any]],
        reassigned: list[dict[str, Any]],
        stream_lines: Mapping[MulticastGroup, StreamLine],
        changes: list[Change],
    ) -> None:
        config = channel_config.store(self.root, self.channel_config)
        entries, is_rewritten = self.inputs.ledger_entries(
            new, reassigned, lambda survey: ledger_entries_of(survey, stream_lines, config)
        )
        if is_rewritten:
            changes.append(Change("ledger", (), tuple(self.writer.snapshot.adds("ledger"))))
        has_quarantine = "quarantine" in self.settings.tables
        changes.append(input_damage_change(self.writer, new, self.inputs.dropped, has_quarantine))
        for survey in new:
            known = {number for number, flow in enumerate(survey.get("flows", [])) if tuple(flow) in stream_lines}
            packets = (pair for split in survey.get("splits", []) for pair in split["packets"])
            self.result.unrecognised += sum(count for flow, count in packets if flow not in known)
        notes = {"inputs": len(new), "days": len(self.result.days), "messages": self.result.messages}
        self.result.commit = self.writer.commit(changes, entries, notes).number
        self.inputs.clear_dropped()
