"""Captures → partitions of the DataFrame source: which tasks read which spans of which channel-days.

The steps are those of an ingest: survey every file, tell what each group carries, cut channel-days into spans. The one
rule: a partition that a pushed filter excludes is never made.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from umdf.errors import CaptureError
from umdf.lake import survey
from umdf.lake.loop_task import INSTRUMENTS, SNAPSHOT
from umdf.lake.plan import ChannelDay, Planner
from umdf.lake.segments import Day, Group, Place, date_of, days_of, segments_of, streams_of
from umdf.lake.source_options import PACKETS
from umdf.lake.source_symbols import Memory, Symbols, symbols_of
from umdf.lake.source_tasks import (
    LISTED,
    LOOP_PACKETS,
    SNAPSHOTS,
    SPAN,
    SPAN_PACKETS,
    Task,
    Wanted,
    Work,
)
from umdf.lake.source_unpack import unpacking
from umdf.lake.tasks import Place as TaskPlace
from umdf.market.events import NULL

KEPT_SURVEYS = 10_000
ALONE_BYTES = 64 << 20  # less is surveyed in this process
Surveyed = dict[str, Any]
Named = Mapping[Group, Mapping[str, Any]]


def surveys_of(paths: Iterable[str | os.PathLike[str]]) -> list[Surveyed]:
    """Each content once, in this order; what is no capture is refused."""
    found: dict[str, Surveyed] = {}
    for file, said in _surveys([_file(path) for path in paths]):
        if said.get("no_capture"):
            raise CaptureError(f"{file.path}: {said['warnings'][0][1]}", "leave it out")
        found.setdefault(said["digest"], said)
    return list(found.values())


class File(NamedTuple):
    path: str
    size: int
    mtime_ns: int


def _file(path: str | os.PathLike[str]) -> File:
    full = os.path.abspath(path)
    try:
        about = os.stat(full)
    except OSError as error:
        raise CaptureError(f"{full}: {error.strerror}", "check the path") from error
    return File(full, about.st_size, about.st_mtime_ns)


# Spark plans a query more than once in the same process, and a stream plans every micro-batch.
_KNOWN: dict[File, Surveyed] = {}


def _surveys(files: Sequence[File]) -> Iterator[tuple[File, Surveyed]]:
    new = [file for file in dict.fromkeys(files) if file not in _KNOWN]
    if len(_KNOWN) + len(new) > KEPT_SURVEYS:
        _KNOWN.clear()
        new = list(dict.fromkeys(files))
    processes = min(len(new), len(os.sched_getaffinity(0)))
    if processes > 1 and sum(file.size for file in new) > ALONE_BYTES:
        # Forked, because what takes longest in a new process is to import; nothing else runs in the planner's.
        with ProcessPoolExecutor(processes, multiprocessing.get_context("fork")) as pool:
            _KNOWN.update(zip(new, pool.map(_survey, new), strict=True))
    else:
        _KNOWN.update((file, _survey(file)) for file in new)
    return ((file, _KNOWN[file]) for file in files)


def _survey(file: File) -> Surveyed:
    with tempfile.TemporaryDirectory(prefix="umdf-source-") as unpacked:
        task = {"path": file.path, "known": [], "unpacked": unpacked, "split_bytes": survey.SPLIT_BYTES}
        return survey.run(task, TaskPlace(0, 0))


@dataclass
class Captures:
    """Some files, and what they hold together."""

    surveys: Sequence[Surveyed]
    named: Named
    span_numbers: int
    definitions: Memory = field(default_factory=dict)  # what splits said; a stream keeps it
    _days: dict[Day, ChannelDay] = field(default_factory=dict)

    @cached_property
    def places(self) -> dict[Group, Place]:
        return streams_of(self.surveys, self.named)

    @cached_property
    def days(self) -> list[Day]:
        return sorted({day for each in self.surveys for day in days_of(each, self.places)})

    @cached_property
    def packed(self) -> frozenset[str]:
        return frozenset(each["digest"] for each in self.surveys if each.get("packed"))

    @cached_property
    def _planner(self) -> Planner:
        paths = {each["digest"]: each["path"] for each in self.surveys}
        return Planner(self.surveys, self.places, paths, self.span_numbers)

    def day(self, day: Day) -> ChannelDay:
        if day not in self._days:
            self._days[day] = self._planner.plan(day)
        return self._days[day]

    @cached_property
    def times(self) -> dict[tuple[str, int, Group], tuple[int, int]]:
        """When the packets with numbers came that a split has of a group."""
        found: dict[tuple[str, int, Group], tuple[int, int]] = {}
        for each in self.surveys:
            for segment in segments_of(each, self.places):
                if segment.first == NULL:
                    continue
                key = each["digest"], each["splits"][segment.split]["offset"], segment.group
                low, high = found.get(key, (segment.ts_first, segment.ts_last))
                found[key] = min(low, segment.ts_first), max(high, segment.ts_last)
        return found

    def symbols(self, day: Day) -> Symbols:
        with unpacking(self.packed) as plain:
            return symbols_of(self.day(day), self.surveys, self.definitions, plain)


def partitions(captures: Captures, wanted: Wanted) -> list[Work]:
    """Of all that may have a row that is wanted."""
    if not captures.places:
        raise CaptureError(
            "there is no stream of the exchange in these files", "name groups and ports with the option config"
        )
    return [work for day in wanted_days(captures, wanted) for work in works_of(captures, day, wanted)]


def wanted_days(captures: Captures, wanted: Wanted) -> list[Day]:
    admits = wanted.conditions.admits
    return [
        (channel, day)
        for channel, day in captures.days
        if admits("channel_id", channel) and admits("trading_date", date_of(day))
    ]


def works_of(captures: Captures, day: Day, wanted: Wanted) -> Iterator[Work]:
    """The partitions of a channel-day."""
    planned, symbols = captures.day(day), None
    if _needs_symbols(wanted):
        symbols = captures.symbols(day)
        if not any(wanted.conditions.admits("symbol", symbol) for symbol in _symbols(symbols, wanted)):
            return
    loops: dict[str, list[Task]] = defaultdict(list)
    for task in planned.loops:
        loops[task["role"]].append(task)
    for work in _works(planned, loops, wanted.family):
        if work.kind not in (SPAN, SPAN_PACKETS) or _admitted(work.tasks[0], captures, wanted):
            yield replace(work, packed=captures.packed, symbols=symbols)


def _works(planned: ChannelDay, loops: Mapping[str, list[Task]], family: str) -> Iterator[Work]:
    if family != SNAPSHOT:
        yield from (Work(SPAN_PACKETS if family == PACKETS else SPAN, [task]) for task in planned.decode)
    if family == PACKETS:
        yield from (Work(LOOP_PACKETS, [task]) for tasks in loops.values() for task in tasks)
    if family == "definition" and loops[INSTRUMENTS]:
        yield Work(LISTED, loops[INSTRUMENTS])
    if family == SNAPSHOT and loops[SNAPSHOT]:
        yield Work(SNAPSHOTS, loops[SNAPSHOT])


def _needs_symbols(wanted: Wanted) -> bool:
    """A definition says its own."""
    return wanted.family not in ("definition", PACKETS) and "symbol" in wanted.schema.names


def _symbols(symbols: Symbols, wanted: Wanted) -> Iterable[str]:
    """Without a filter on symbols, rows of instruments that nobody has defined are wanted, too."""
    return symbols if wanted.conditions.are_about("symbol") else [""]


def _admitted(task: Task, captures: Captures, wanted: Wanted) -> bool:
    if wanted.family == PACKETS:  # what has no number is among them
        return True
    admits, (first, last), known = wanted.conditions.admits, task["span"], captures.times
    places = ((source["digest"], source["split"]["offset"], tuple(source["flow"])) for source in task["sources"])
    lows, highs = zip(*(known[place] for place in places if place in known), strict=True)
    is_in_time = admits("ts_recv", min(lows), max(highs))
    return is_in_time and admits("sequence", first, last) and admits("seq_version", task["epoch"])
