"""Captures → tables: the one function of an ingest and of a stream, `advance(files, lake) → one commit`.

    survey (a task for each new file) → decode (for each span) → channel (for each day) → books (for each pack of
    instruments) → one lake commit, with the inputs in the ledger

The one rule: the order in which files come cannot matter. A known file is a no-op. An ingest makes a channel-day from
all its files, and again when a new one brings something for it. A stream (`Settings.follow`) takes a channel-day as far
as its frontier and goes on from there with the next files; what comes for a place behind the frontier makes it again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any, Protocol

from umdf.lake import channel_config, ledger, sweep
from umdf.lake.day_making import BOOK_TABLES, TABLES, Shop, make_days
from umdf.lake.day_parts import DayParts
from umdf.lake.file_damage import damage_change
from umdf.lake.files import FileAdd
from umdf.lake.frontier import FORMAT, ChannelState, Follow, Frontier, Reach, frontier, is_behind, open_days
from umdf.lake.gap_cures import merge
from umdf.lake.inputs import Inputs, Surveys, days_of_entries
from umdf.lake.log import Change
from umdf.lake.outcome import Outcome
from umdf.lake.plan import SPAN_NUMBERS, TASK_SOURCES, ChannelDay, Planner
from umdf.lake.refusals import damage_of
from umdf.lake.schemas import APPEND, tables
from umdf.lake.schemas import table as table_named
from umdf.lake.segments import Day, Group, Place, date_of, days_of, days_with, entries_of, streams_of
from umdf.lake.spare import Spare
from umdf.lake.survey import SPLIT_BYTES
from umdf.lake.tasks import Progress
from umdf.lake.timeline import gap_rows, quality_of_day, quality_rows, write_rows
from umdf.lake.writer import Writer
from umdf.transport.damage import told

DEFAULT_TABLES = frozenset(TABLES) - {"mbp_10"}  # derived from `mbo` and `book_state` where it is asked for
ROWS_A_TASK = 2_000_000  # of `mbo`, in a task of the books
NO_TABLE = frozenset({"ledger"})


class Runner(Protocol):
    """Runs tasks: umdf.lake.tasks.run_tasks with its session, or umdf.lake.plain_run."""

    parallel: int

    def __call__(
        self, tasks: Sequence[Any], function: str, *, description: str = ..., progress: Progress | None = ...
    ) -> list[dict[str, Any]]: ...


@dataclass(frozen=True)
class Settings:
    tables: frozenset[str] = DEFAULT_TABLES
    named: Mapping[Group, Mapping[str, Any]] = field(default_factory=dict)  # groups as the configuration names them
    span_numbers: int = SPAN_NUMBERS
    split_bytes: int = SPLIT_BYTES
    rows_a_task: int = ROWS_A_TASK
    follow: Follow | None = None  # files still come: go as far as is final
    rename: bool = False  # `named` stands in the place of what the lake was made with, and every day is made again


Stage = Callable[[str, int], Progress | None]  # told of each step and its number of tasks


def no_progress(step: str, tasks: int) -> Progress | None:
    return None


def advance(
    paths: Sequence[str | os.PathLike[str]],
    writer: Writer,
    run: Runner,
    settings: Settings | None = None,
    stage: Stage = no_progress,
    again: Collection[Day] = (),
    forget: Collection[str] = (),
    ahead: Surveys = lambda path: None,
    spare: Spare | None = None,
) -> Outcome:
    """Bring captures into the lake, as one commit; or as none, if the lake knows them all. The days in `again` are made
    from all their files once more, as this version makes them, and those of inputs to `forget` (digests) from their
    other files; `ahead` may know what is in a file already; `spare` has files to be staged in, and gets them back."""
    ingest = _Ingest(writer, run, settings or Settings(), stage, ahead, spare, forget)
    if not ingest.settings.follow:  # a stream sweeps when it begins
        sweep.sweep(writer)
    try:
        return ingest.advance(paths, set(again))
    finally:
        ingest.clear()


class _Ingest:
    def __init__(
        self,
        writer: Writer,
        run: Runner,
        settings: Settings,
        stage: Stage,
        ahead: Surveys,
        spare: Spare | None,
        forget: Collection[str],
    ) -> None:
        self.writer, self.settings, self.stage, self.run, self.spare = writer, settings, stage, run, spare
        self.root, self.stamp = writer.home.root, writer.stamp
        # We are the only writer: whatever else is there was left by one that is dead.
        for left in writer.home.work.glob("ingest-*") if writer.home.work.is_dir() else ():
            if spare is None or left != spare.directory:
                shutil.rmtree(left, ignore_errors=True)
        self.work = writer.home.work / f"ingest-{self.stamp.commit:08d}-{self.stamp.token:08d}"
        self.outcome = Outcome()
        entries = ledger.entries(writer.snapshot)
        self.named = settings.named if settings.rename else channel_config.merged(self.root, entries, settings.named)
        self.inputs = Inputs(writer, self._step, self.work, settings.split_bytes, run.parallel, ahead, forget)
        self.states = open_days(writer.snapshot) if settings.follow else {}  # days that a stream has begun
        self.patience: dict[Day, int] = {}
        self._staged: list[tuple[str, Path]] = []  # family and file

    def _step(self, tasks: Sequence[dict[str, Any]], function: str, description: str) -> list[dict[str, Any]]:
        progress = self.stage(description, len(tasks))
        done = self.run(tasks, function, description=description, progress=progress) if tasks else []
        every = (staged for answer in done for staged in answer.get("staged", ()))
        self._staged += [(staged["family"], Path(staged["path"])) for staged in every]
        peaks = [answer.get("peak_memory_bytes", 0) for answer in done]
        self.outcome.peak_memory_bytes = max([self.outcome.peak_memory_bytes, *peaks])
        return done

    def advance(self, paths: Sequence[str | os.PathLike[str]], again: set[Day]) -> Outcome:
        follow, waiting = self.settings.follow, again | set(self.states)
        is_due = bool(again or self.inputs.dropped or (follow and follow.finish and waiting))
        new, old = self._surveys(paths, waiting, is_due)
        if not new and not is_due and not self.inputs.dropped:
            return self.outcome
        places = streams_of([*new, *old], self.named)
        moved = [each for each in old if self.settings.rename or self.inputs.is_moved(each, entries_of(each, places))]
        # What their files are has only now become clear; or there were others.
        changed = self._days_of_moved(moved, places) | self.inputs.dropped_days
        touched = {day for survey in new for day in days_of(survey, places)} | waiting | changed
        known = {day for survey in (*new, *old) for day in days_of(survey, places)}
        touched |= {day for survey in new for day in days_with(survey, places)} & known
        surveys = {survey["digest"]: survey for survey in (*new, *old) if days_with(survey, places) & touched or follow}
        there = {day for survey in surveys.values() for day in days_of(survey, places)}
        paths_now = {digest: self.inputs.path_of(survey) for digest, survey in surveys.items()}
        fresh = frozenset(survey["digest"] for survey in new) if follow else None
        cut = self.settings.span_numbers, fresh, self.run.parallel
        planner = Planner(list(surveys.values()), places, paths_now, *cut)
        for day in changed if follow else touched:
            self.states.pop(day, None)
        if follow:
            days = self._followed(planner, sorted(touched & there), Reach(surveys.values()), follow)
        else:
            days = [(planner.plan(day), Frontier(None, is_over=True)) for day in sorted(touched & there)]
        changes = self._make(planner, surveys, days)
        changes += [change for day in sorted(touched - there) for change in self._emptied(day)]
        clearing = Thread(target=self._put_away)  # nobody needs it any more, and the commit waits for the disk
        clearing.start()
        self._commit(new, moved, places, changes)
        clearing.join()
        return self.outcome

    def _put_away(self) -> None:
        if self.spare is not None:
            self.spare.give(self._staged)
        self.clear()

    def clear(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)

    def _surveys(
        self, paths: Sequence[str | os.PathLike[str]], waiting: set[Day], is_due: bool
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Of the files that are new, known ones that have grown included; and of the others of their dates."""
        inputs, more, new = self.inputs, list(paths), list[dict[str, Any]]()
        while True:
            new += self._new(more)
            if not self.settings.follow:
                self.outcome.refuse_no_capture()
            if not (new or is_due or inputs.dropped):
                return [], []
            dates = {date for survey in new for date in _dates(survey)}
            dates |= {date for _, date in waiting | inputs.dropped_days}
            more = [] if self.settings.follow else inputs.grown_paths(dates)
            if not more:
                return new, inputs.old(dates)

    def _new(self, paths: Sequence[str | os.PathLike[str]]) -> list[dict[str, Any]]:
        new = self.inputs.survey(paths)
        self.outcome.new += len(new)
        self.outcome.known, self.outcome.grown = self.inputs.known_again, self.inputs.grown
        for survey in new:
            times = [segment[8] for split in survey.get("splits", []) for segment in split["segments"]]
            self.outcome.closings += [(survey["mtime_ns"], max(times))] if times else []
            damage = damage_of(survey)
            if "no_capture" in survey:
                self.outcome.unusable += [(one.file, one.reason) for one in damage]
            else:
                self.outcome.damaged += told(damage)
                self.outcome.unread_bytes += sum(one.unread_bytes for one in damage)
        return new

    # Days

    def _days_of_moved(self, moved: list[dict[str, Any]], places: Mapping[Group, Place]) -> set[Day]:
        found = {day for survey in moved for day in days_of(survey, places)}
        entries = (entry for survey in moved for entry in self.inputs.known[survey["digest"]])
        return found | days_of_entries(entries)

    def _followed(
        self, planner: Planner, days: list[Day], reach: Reach, follow: Follow
    ) -> list[tuple[ChannelDay, Frontier]]:
        """How far each day goes now; those for which there is nothing to do are left out."""
        found = []
        for key in days:
            day, before = planner.outline(key), self.states.get(key)
            is_late = before is not None and is_behind(planner, day, before)
            if before is not None and (is_late or self._is_gone(before) or self._lacks(key, before)):
                self.patience[key] = before.patience * (2 if is_late and not planner.has_newcomer(key) else 1)
                before = None
            if before is None and key in self.inputs.days:
                self._make_again(key)
            front = frontier(planner, day, reach, follow, before.patience if before else self.patience.get(key, 1))
            until = front.until(before)
            if before is None or planner.is_touched(day) or until != before.done:
                found.append((planner.plan(key, before and before.done, until), front))
            else:
                self.outcome.open_days[key] = before.done
        return found

    def _is_gone(self, before: ChannelState) -> bool:
        """Whether the files of the books are other ones by now: the lake was compacted."""
        snapshot = self.writer.snapshot
        return any(not set(paths) <= {add.path for add in snapshot.adds(name)} for name, paths in before.open.items())

    def _lacks(self, day: Day, before: ChannelState) -> bool:
        """Whether a table is asked for that the earlier parts of the day are not in."""
        return not set(self._wanted(day)) <= set(before.tables)

    def _make_again(self, day: Day) -> None:
        self.states.pop(day, None)
        self.outcome.made_again.append(day)

    def _wanted(self, day: Day) -> list[str]:
        """Tables that were asked for, and those that have the day already and must not be left behind."""
        asked = self.settings.tables
        if self.settings.follow and asked & set(BOOK_TABLES):
            asked |= {"book_state"}  # without it nothing could go on
        asked |= set(self.states[day].tables) if day in self.states else set()
        return [name for name in TABLES if name in asked or self.writer.snapshot.adds(name, **_partition(day))]

    def _make(
        self, planner: Planner, surveys: Mapping[str, dict[str, Any]], days: list[tuple[ChannelDay, Frontier]]
    ) -> list[Change]:
        how = self.settings.rows_a_task, self.run.parallel
        shop = Shop(self.root, self.stamp, self.work, self._step, *how, self.spare and self.spare.directory)
        changes: list[Change] = []
        while days:
            fronts = {day.key: front for day, front in days}
            wanted = {key: self._wanted(key) for key in fronts}
            plans = [day for day, _ in days]
            self.inputs.make_ready(surveys[digest] for digest in _digests(plans))
            made, again = make_days(shop, plans, self.states, wanted)
            for parts in made:
                changes += self._changes(parts, wanted[parts.day.key], fronts[parts.day.key].is_over)
            for key in again:
                self.patience[key] = self.states[key].patience * (1 if planner.has_newcomer(key) else 2)
                self._make_again(key)
            days = [(planner.plan(key, None, fronts[key].until(None)), fronts[key]) for key in again]
        return changes

    def _changes(self, parts: DayParts, names: list[str], is_over: bool) -> list[Change]:
        """The day in every table: in the place of what was there of it, or behind that."""
        day, outcome, before = parts.day, self.outcome, parts.before
        quality = quality_of_day(before.quality if before else (), parts.spans, parts.loops)
        answers = merge(before.answers if before else [], parts.answers)
        small = {"gaps": gap_rows(day, parts.gaps, answers), "quality": quality_rows(day, quality)}
        for name, rows in small.items():
            made = write_rows(self.root, self.stamp, name, rows, day) if name in names else None
            parts.add_files({name: [made.to_json()]} if made else {})
        self._tell(parts)
        changes = []
        for name in names:
            adds = parts.files.get(name, ())
            if before is None:
                changes.append(self.writer.replacing(name, adds, **_partition(day.key)))
            elif table_named(name).mode == APPEND:
                changes.append(Change(name, tuple(adds)))
            elif name in small or parts.is_moving:
                changes.append(self.writer.replacing(name, adds, **_partition(day.key)))
        for name, paths in before.open.items() if before is not None and parts.is_moving else ():
            replaced = [add for add in self.writer.snapshot.adds(name) if add.path in paths]
            changes.append(Change(name, (), tuple(replaced)))
        state = None
        if is_over:
            outcome.closed_days += [day.key] if self.settings.follow else []
        else:
            assert day.until is not None
            still_open = parts.open if parts.is_moving or before is None else before.open
            about = {"listed": parts.listed, "open": still_open, "quality": quality, "answers": answers}
            about |= {"ts_sent": parts.ts_sent, "tables": names, "states": parts.states}
            patience = self.patience.get(day.key, before.patience if before else 1)
            gaps = [gap.to_json() for gap in parts.gaps]
            left = ChannelState.of(parts.definitions, done=day.until, gaps=gaps, patience=patience, **about)
            state = self._write_state(day, left)
            outcome.open_days[day.key] = day.until
        return [*changes, self.writer.replacing("channel_state", (state,) if state else (), **_partition(day.key))]

    def _tell(self, parts: DayParts) -> None:
        outcome, earlier = self.outcome, len(parts.before.gaps) if parts.before else 0
        outcome.days.append(parts.day.key)
        outcome.messages += sum(span["messages"] for span in parts.spans)
        outcome.notices = sorted({*outcome.notices, *parts.notices})
        outcome.gaps += len(parts.gaps) - earlier
        outcome.missing += sum(gap.last - gap.first + 1 for gap in parts.gaps[earlier:])
        outcome.stale += len(parts.stale)
        outcome.not_kept += sum(made["not_kept"] for made in (*parts.spans, *parts.loops))
        if parts.task_rows:
            share = max(parts.task_rows) / max(sum(parts.task_rows), 1)
            outcome.largest_task_share = max(outcome.largest_task_share, share)
        for name, adds in parts.files.items():
            outcome.rows[name] = outcome.rows.get(name, 0) + sum(add.rows for add in adds)
            outcome.bytes[name] = outcome.bytes.get(name, 0) + sum(add.bytes for add in adds)

    def _write_state(self, day: ChannelDay, state: ChannelState) -> FileAdd | None:
        row = {"seq_version": state.done.epoch, "sequence": state.done.number, "ts_recv": state.done.ts_recv}
        row |= {"format": FORMAT, "content": state.to_bytes()}
        return write_rows(self.root, self.stamp, "channel_state", [row], day)

    def _emptied(self, day: Day) -> list[Change]:
        """A day whose files have turned out to be of another channel."""
        return [self.writer.replacing(name, (), **_partition(day)) for name in tables() if name not in NO_TABLE]

    # The commit

    def _commit(
        self,
        new: list[dict[str, Any]],
        moved: list[dict[str, Any]],
        places: Mapping[Group, Place],
        changes: list[Change],
    ) -> None:
        config = channel_config.keep(self.root, self.named)
        entries, is_anew = self.inputs.ledger_rows(new, moved, lambda survey: entries_of(survey, places, config))
        if is_anew:
            changes.append(Change("ledger", (), tuple(self.writer.snapshot.adds("ledger"))))
        is_wanted = "quarantine" in self.settings.tables
        changes.append(damage_change(self.writer, new, self.inputs.dropped, is_wanted))
        for survey in new:
            known = {number for number, flow in enumerate(survey.get("flows", [])) if tuple(flow) in places}
            packets = (pair for split in survey.get("splits", []) for pair in split["packets"])
            self.outcome.unrecognised += sum(count for flow, count in packets if flow not in known)
        notes = {"inputs": len(new), "days": len(self.outcome.days), "messages": self.outcome.messages}
        self.outcome.commit = self.writer.commit(changes, entries, notes).number
        self.inputs.clear_dropped()


def _dates(survey: dict[str, Any]) -> set[int]:
    return {segment[3] for split in survey.get("splits", []) for segment in split["segments"]}


def _partition(day: Day) -> dict[str, Any]:
    return {"trading_date": date_of(day[1]), "channel_id": day[0]}


def _digests(days: Sequence[ChannelDay]) -> set[str]:
    """The files that the tasks of some days read."""
    tasks = [task for day in days for task in (*day.decode, *day.loops)]
    return {source["digest"] for task in tasks for name in TASK_SOURCES for source in task.get(name, ())}
