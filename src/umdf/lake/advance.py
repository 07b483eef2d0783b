"""Captures → tables: the one function of an ingest, `advance(files, lake) → one commit`.

    survey (a task for each new file) → decode (for each span) → channel (for each day) → books (for each pack of
    instruments) → one lake commit, with the inputs in the ledger

The one rule: a channel-day is always made from all its files. When a new file brings something for a day that is
there already, that day is made again from everything the ledger knows of it, and replaced. So the order in which files
come, late and sent again ones included, cannot matter. A known file is a no-op.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from umdf.errors import CaptureError
from umdf.lake import channel_task, durable, ledger, sweep
from umdf.lake.day_parts import DayParts
from umdf.lake.ledger import file_id
from umdf.lake.log import Change
from umdf.lake.plan import (
    SPAN_NUMBERS,
    ChannelDay,
    Day,
    Group,
    Place,
    Planner,
    date_of,
    days_of,
    entries_of,
    streams_of,
)
from umdf.lake.schemas import tables
from umdf.lake.survey import FORMAT, SPLIT_BYTES, unpack
from umdf.lake.tasks import Progress
from umdf.lake.timeline import gap_rows, gaps_of, quality_rows, write_rows
from umdf.lake.writer import Writer

BOOK_TABLES = (
    "mbo", "trades", "statistics", "mbp_1", "mbp_10", "tbbo", "bbo_1s", "bbo_1m", "ohlcv_1s", "ohlcv_1m", "ohlcv_1h",
    "ohlcv_1d", "book_check", "day_statistics", "book_state",
)  # fmt: skip
TABLES = (*BOOK_TABLES, *channel_task.TABLES, "packets", "quarantine", "gaps", "quality")
DEFAULT_TABLES = frozenset(TABLES) - {"mbp_10"}  # derived from `mbo` and `book_state` where it is asked for
ROWS_A_TASK = 2_000_000  # of `mbo`, in a task of the books
NO_TABLE = frozenset({"ledger", "channel_state"})


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


@dataclass
class Outcome:
    """What an ingest came to."""

    new: int = 0
    known: int = 0
    unusable: list[tuple[str, str]] = field(default_factory=list)  # files that are no captures, and why
    damaged: list[str] = field(default_factory=list)
    unrecognised: int = 0  # datagrams of groups that carry no stream of the exchange
    days: list[Day] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    messages: int = 0
    gaps: int = 0
    missing: int = 0
    stale: int = 0
    commit: int | None = None
    peak_memory_bytes: int = 0
    largest_task_share: float = 0.0


Stage = Callable[[str, int], Progress | None]  # told of each step and its number of tasks


def no_progress(step: str, tasks: int) -> Progress | None:
    return None


def advance(
    paths: Sequence[str | os.PathLike[str]],
    writer: Writer,
    run: Runner,
    settings: Settings | None = None,
    stage: Stage = no_progress,
) -> Outcome:
    """Bring captures into the lake, as one commit; or as none, if the lake knows them all."""
    ingest = _Ingest(writer, run, settings or Settings(), stage)
    sweep.sweep(writer)
    try:
        return ingest.advance(paths)
    finally:
        shutil.rmtree(ingest.work, ignore_errors=True)


class _Ingest:
    def __init__(self, writer: Writer, run: Runner, settings: Settings, stage: Stage) -> None:
        self.writer, self.settings, self.stage = writer, settings, stage
        self.run = run
        self.root, self.stamp = writer.home.root, writer.stamp
        # We are the only writer: whatever else is there was left by one that is dead.
        for left in writer.home.work.glob("ingest-*") if writer.home.work.is_dir() else ():
            shutil.rmtree(left, ignore_errors=True)
        self.work = writer.home.work / f"ingest-{self.stamp.commit:08d}-{self.stamp.token:08d}"
        self.outcome = Outcome()
        self.known: dict[str, list[ledger.Entry]] = defaultdict(list)
        for entry in ledger.entries(writer.snapshot):
            self.known[entry.digest].append(entry)
        self.paths: dict[str, str] = {}  # where the files that are needed can be read, by digest

    def _step(self, tasks: Sequence[dict[str, Any]], function: str, description: str) -> list[dict[str, Any]]:
        progress = self.stage(description, len(tasks))
        done = self.run(tasks, function, description=description, progress=progress) if tasks else []
        peaks = [answer.get("peak_memory_bytes", 0) for answer in done]
        self.outcome.peak_memory_bytes = max([self.outcome.peak_memory_bytes, *peaks])
        return done

    def advance(self, paths: Sequence[str | os.PathLike[str]]) -> Outcome:
        new = self._survey(paths)
        if not new:
            return self.outcome
        old = self._old_surveys({day for survey in new for day in _dates(survey)})
        places = streams_of([*new, *old], self.settings.named)
        touched = {day for survey in new for day in days_of(survey, places)}
        moved = [survey for survey in old if self._entries_changed(survey, places)]
        for survey in moved:  # what it is has only now become clear
            touched |= days_of(survey, places)
            touched |= {
                (entry.channel_id, (entry.trading_date - date_of(0)).days)
                for entry in self.known[survey["digest"]]
                if entry.channel_id is not None and entry.trading_date is not None
            }
        surveys = [survey for survey in (*new, *old) if days_of(survey, places) & touched]
        self._find_old_files([survey for survey in old if days_of(survey, places) & touched])
        planner = Planner(surveys, places, self.paths, self.settings.span_numbers)
        there = {day for survey in surveys for day in days_of(survey, places)}
        days = [planner.plan(day) for day in sorted(touched & there)]
        changes = self._make(days) + [self._emptied(day) for day in sorted(touched - there)]
        self._commit(new, moved, places, [change for some in changes for change in some])
        return self.outcome

    # Files

    def _survey(self, paths: Sequence[str | os.PathLike[str]]) -> list[dict[str, Any]]:
        """Surveys of the files that are new, each content once."""
        sizes: dict[int, list[str]] = defaultdict(list)
        for digest, entries in self.known.items():
            sizes[entries[0].size_bytes].append(digest)
        tasks = []
        for path in sorted({os.path.abspath(path) for path in paths}):
            if not os.path.isfile(path):
                raise CaptureError(f"{path}: no such file", "check the path")
            about = {
                "path": path,
                "known": sizes.get(os.path.getsize(path), []),
                "unpacked": str(self.work / "unpacked"),
            }
            about["split_bytes"] = self.settings.split_bytes
            tasks.append(about | {"description": os.path.basename(path)})
        found: dict[str, dict[str, Any]] = {}
        for survey in self._step(tasks, "umdf.lake.survey:run", "survey"):
            digest = survey["digest"]
            self.paths.setdefault(digest, survey["path"])
            if survey.get("known") or digest in found:
                self.outcome.known += 1
                continue
            found[digest] = survey
            if survey.get("packed"):
                self.paths[digest] = self._unpacked(digest)
        new = list(found.values())
        for survey in new:
            self._keep(survey)
            for offset, reason in survey["warnings"]:
                if "no_capture" in survey:
                    self.outcome.unusable.append((survey["path"], reason))
                else:
                    self.outcome.damaged.append(f"{survey['path']}: at offset {offset}: {reason}")
        self.outcome.new = len(new)
        return new

    def _unpacked(self, digest: str) -> str:
        return str(self.work / "unpacked" / f"{digest.partition(':')[2]}.pcap")

    def _kept(self, digest: str) -> Path:
        return self.root / "_lake" / "surveys" / f"{digest.partition(':')[2]}.json"

    def _keep(self, survey: dict[str, Any]) -> None:
        durable.create_once(self._kept(survey["digest"]), survey)

    def _old_surveys(self, dates: set[int]) -> list[dict[str, Any]]:
        """Of known files that have something of these dates."""
        found = []
        for digest, entries in sorted(self.known.items()):
            if any(entry.trading_date and (entry.trading_date - date_of(0)).days in dates for entry in entries):
                survey = durable.read(self._kept(digest))
                if survey is None or survey["format"] != FORMAT:
                    survey = self._survey_again(digest, entries[0])
                found.append(survey)
        return found

    def _survey_again(self, digest: str, entry: ledger.Entry) -> dict[str, Any]:
        path = self.paths.get(digest) or entry.path or ""
        self._refuse_gone(path, digest)
        about = {"path": path, "known": [], "unpacked": str(self.work / "unpacked")}
        [survey] = self._step(
            [about | {"split_bytes": self.settings.split_bytes}], "umdf.lake.survey:run", "survey of older files"
        )
        self._keep(survey)
        return survey

    def _find_old_files(self, surveys: list[dict[str, Any]]) -> None:
        """Older files of days that are made again must still be there, as they were."""
        for survey in surveys:
            digest = survey["digest"]
            path = self.paths.get(digest) or survey["path"]
            there = os.path.isfile(path) and os.stat(path).st_size == survey["size_bytes"]
            if not there or os.stat(path).st_mtime_ns != survey["mtime_ns"]:
                self._refuse_gone(path, digest)
            self.paths[digest] = unpack(path, digest, self.work / "unpacked")[0] if survey["packed"] else path

    def _refuse_gone(self, path: str, digest: str) -> None:
        if not os.path.isfile(path) or ledger.digest_of(path)[0] != digest:
            state = "has changed" if os.path.isfile(path) else "is gone"
            raise CaptureError(
                f"{path} {state}; the lake needs it, because a day that it belongs to is made again from all its files",
                "give the file along with the new ones, wherever it is now",
            )

    # Days

    def _wanted(self, day: ChannelDay) -> list[str]:
        """Tables that were asked for, and those that have the day already and must not be left behind."""
        where = {"trading_date": date_of(day.date), "channel_id": day.channel}
        return [name for name in TABLES if name in self.settings.tables or self.writer.snapshot.adds(name, **where)]

    def _make(self, days: list[ChannelDay]) -> list[list[Change]]:
        wanted = {day.channel * 10**6 + day.date: self._wanted(day) for day in days}
        common = {"root": str(self.root), "stamp": [self.stamp.commit, self.stamp.token]}
        common["directory"] = str(self.work / "staged")

        def of(day: ChannelDay) -> dict[str, Any]:
            about = {"channel_id": day.channel, "protocol": day.protocol, "trading_date": day.date}
            return common | about | {"tables": wanted[day.channel * 10**6 + day.date]}

        tasks = [of(day) | task for day in days for task in (*day.decode, *day.loops)]
        decoded = self._step(tasks, "umdf.lake.decode_task:run", "decode")
        parts = {_key(day): DayParts(day, [each for each in decoded if _is_of(each, day)]) for day in days}
        channel = self._step(
            [of(day) | parts[_key(day)].channel_task() for day in days], "umdf.lake.channel_task:run", "channel"
        )
        book_tasks = []
        for day, said in zip(days, channel, strict=True):
            mine = parts[_key(day)]
            mine.add_files(said["files"])
            mine.gaps = gaps_of(day, mine.spans)
            if any(name in BOOK_TABLES for name in of(day)["tables"]):
                packs = mine.packs(self.settings.rows_a_task, self.run.parallel)
                book_tasks += [of(day) | task for task in mine.book_tasks(said, packs)]
        book_tasks.sort(key=lambda task: -task["rows"])  # the longest first, so that none is left for the end
        made = self._step(book_tasks, "umdf.lake.books_task:run", "books")
        for answer, task in zip(made, book_tasks, strict=True):
            mine = parts[task["channel_id"], task["trading_date"]]
            mine.add_files(answer["files"])
            mine.stale += answer.get("stale", [])
        lossy = [parts[_key(day)] for day in days if parts[_key(day)].gaps and "gaps" in of(day)["tables"]]
        gap_tasks = [task for mine in lossy for task in mine.gap_tasks(self.settings.rows_a_task, self.run.parallel)]
        for answer, task in zip(self._step(gap_tasks, "umdf.lake.gap_task:run", "gaps"), gap_tasks, strict=True):
            parts[task["channel_id"], task["trading_date"]].healed.append(answer["gaps"])
        self._measure(book_tasks)
        return [self._changes(parts[_key(day)], of(day)["tables"]) for day in days]

    def _measure(self, book_tasks: list[dict[str, Any]]) -> None:
        sizes = [task["rows"] for task in book_tasks]
        self.outcome.largest_task_share = max(sizes) / sum(sizes) if sum(sizes) else 0.0

    def _changes(self, parts: DayParts, names: list[str]) -> list[Change]:
        """The day in every table, in the place of what was there of it."""
        day, outcome = parts.day, self.outcome
        small = {
            "gaps": gap_rows(day, parts.gaps, parts.healed),
            "quality": quality_rows(day, parts.spans, parts.loops),
        }
        for name, rows in small.items():
            made = write_rows(self.root, self.stamp, name, rows, day) if name in names else None
            parts.add_files({name: [made.to_json()]} if made else {})
        outcome.days.append((day.channel, day.date))
        outcome.messages += sum(span["messages"] for span in parts.spans)
        outcome.gaps += len(parts.gaps)
        outcome.missing += sum(gap.last - gap.first + 1 for gap in parts.gaps)
        outcome.stale += len(parts.stale)
        for name, adds in parts.files.items():
            outcome.rows[name] = outcome.rows.get(name, 0) + sum(add.rows for add in adds)
            outcome.bytes[name] = outcome.bytes.get(name, 0) + sum(add.bytes for add in adds)
        where = {"trading_date": date_of(day.date), "channel_id": day.channel}
        return [self.writer.replacing(name, parts.files.get(name, ()), **where) for name in names]

    def _emptied(self, day: Day) -> list[Change]:
        """A day whose files have turned out to be of another channel."""
        where = {"trading_date": date_of(day[1]), "channel_id": day[0]}
        return [self.writer.replacing(name, (), **where) for name in tables() if name not in NO_TABLE]

    # The commit

    def _entries_changed(self, survey: dict[str, Any], places: Mapping[Group, Place]) -> bool:
        return set(entries_of(survey, places)) != set(self.known[survey["digest"]])

    def _commit(
        self,
        new: list[dict[str, Any]],
        moved: list[dict[str, Any]],
        places: Mapping[Group, Place],
        changes: list[Change],
    ) -> None:
        entries = [entry for survey in new for entry in entries_of(survey, places)]
        if moved:
            # The ledger is small, and one of its files cannot lose a row: it is written anew.
            again = {survey["digest"] for survey in moved}
            entries += [entry for digest, known in self.known.items() if digest not in again for entry in known]
            entries += [entry for survey in moved for entry in entries_of(survey, places)]
            changes.append(Change("ledger", (), tuple(self.writer.snapshot.adds("ledger"))))
        damage = [
            {"file_id": file_id(survey["digest"]), "file_offset": offset, "reason": reason}
            for survey in new
            for offset, reason in survey["warnings"]
        ]
        if damage and "quarantine" in self.settings.tables:
            made = write_rows(self.root, self.stamp, "quarantine", damage, None)
            changes.append(Change("quarantine", (made,) if made else ()))
        for survey in new:
            known = {number for number, flow in enumerate(survey.get("flows", [])) if tuple(flow) in places}
            packets = (pair for split in survey.get("splits", []) for pair in split["packets"])
            self.outcome.unrecognised += sum(count for flow, count in packets if flow not in known)
        notes = {"inputs": len(new), "days": len(self.outcome.days), "messages": self.outcome.messages}
        self.outcome.commit = self.writer.commit(changes, entries, notes).number


def _dates(survey: dict[str, Any]) -> set[int]:
    return {segment[3] for split in survey.get("splits", []) for segment in split["segments"]}


def _key(day: ChannelDay) -> Day:
    return day.channel, day.date


def _is_of(manifest: dict[str, Any], day: ChannelDay) -> bool:
    return (manifest["channel_id"], manifest["trading_date"]) == _key(day)
