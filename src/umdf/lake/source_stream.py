"""A growing recording as a stream of events: `spark.readStream.format("umdf")`.

An offset is a number of closed files (umdf.transport.recording). A micro-batch from offset s to offset e gives what can
be read from the first e files and could not be read from the first s: numbers that the new files bring, messages that
they complete, and streams whose channel they make known. So every event comes exactly once, whatever file or line it is
in and wherever files are cut. The one rule: a micro-batch depends on its two offsets alone, so that Spark may ask for
it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from umdf.errors import CaptureError, UsageError
from umdf.lake.places import place_of
from umdf.lake.segments import Day, Group, segments_of
from umdf.lake.source_options import PACKETS, Options
from umdf.lake.source_plan import Captures, surveys_of, wanted_days, works_of
from umdf.lake.source_symbols import Memory
from umdf.lake.source_tasks import LISTED, LOOP_PACKETS, SNAPSHOTS, Task, Told, Wanted, Work, batches, identity
from umdf.market.events import NULL
from umdf.transport.recording import closed_files, has_manifest

if TYPE_CHECKING:
    import pyarrow as pa

Offset = dict[str, Any]  # {"files": how many, "names": a digest of their names}
ROLES = {LISTED: "instruments", SNAPSHOTS: "snapshot"}


class RecordingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Options) -> None:
        if len(options.paths) != 1:
            raise UsageError("a stream reads one recording", "load() one directory")
        self.options, self.directory = options, place_of(options.paths[0])
        self.wanted = Wanted(options.family, options.schema)
        self._as_it_was: list[Path] | None = None
        self._target: int | None = None  # of Trigger.AvailableNow
        self._definitions: Memory = {}
        self._captures: dict[int, Captures] = {}  # of so many files

    def _closed(self) -> list[Path]:
        """Without a manifest nothing tells which files are closed: then those count that were there at the start."""
        if self._as_it_was is not None:
            return self._as_it_was
        files = closed_files(self.directory)
        if not has_manifest(self.directory):
            if not files:
                raise CaptureError(
                    f"{self.directory}: neither a manifest nor a capture", "name a recording's directory"
                )
            self._as_it_was = files
        return files

    def initialOffset(self) -> Offset:
        return _offset([], 0)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        files = self._closed()
        last = len(files) if self._target is None else min(self._target, len(files))
        if isinstance(limit, ReadMaxFiles):
            last = min(last, start["files"] + limit.max_files)
        return _offset(files, max(last, start["files"]))

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(self.options.max_files) if self.options.max_files else ReadAllAvailable()

    def reportLatestOffset(self) -> Offset:
        files = self._closed()
        return _offset(files, len(files))

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = len(self._closed())

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if start["files"] >= end["files"]:
            return []
        files = self._closed()
        for offset in (start, end):
            if len(files) < offset["files"] or _offset(files, offset["files"]) != offset:
                reason = f"{self.directory} is not the recording that was read so far: its first files are others"
                raise CaptureError(reason, "begin with a new checkpoint")
        before, now = self._of(files, start["files"]), self._of(files, end["files"])
        self._captures = {end["files"]: now}
        return [InputPartition(work) for work in Batch(before, now, self.wanted).works()]

    def _of(self, files: Sequence[Path], count: int) -> Captures:
        if count not in self._captures:
            surveys, options = surveys_of(files[:count]), self.options
            self._captures[count] = Captures(surveys, options.named, options.span_numbers, self._definitions)
        return self._captures[count]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(partition.value, self.wanted)


def _offset(files: Sequence[Path], count: int) -> Offset:
    """The names tell that it is still the same recording."""
    names = "\n".join(path.name for path in files[:count])
    return {"files": count, "names": hashlib.blake2b(names.encode(), digest_size=8).hexdigest()}


class Batch:
    """What some more files bring."""

    def __init__(self, before: Captures, now: Captures, wanted: Wanted) -> None:
        self.before, self.now, self.wanted = before, now, wanted
        self._old = {survey["digest"] for survey in before.surveys}
        self._numbers = _numbers(now)

    def works(self) -> Iterator[Work]:
        touched = self._touched()
        for day in wanted_days(self.now, self.wanted):
            if day in touched:
                for work in works_of(self.now, day, self.wanted):
                    new = self._new_of(work, day)
                    if new is not None:
                        yield new

    def _is_old(self, digest: str, group: Group) -> bool:
        """Whether it was read before, as what it is now."""
        return digest in self._old and self.before.places.get(group, ())[:3] == self.now.places[group][:3]

    def _touched(self) -> set[Day]:
        """Of a FAST stream whose channel no file has named yet (it is negative), rows wait."""
        places = self.now.places
        return {
            (places[segment.group].channel, segment.date)
            for survey in self.now.surveys
            for segment in segments_of(survey, places)
            if places[segment.group].channel >= 0 and not self._is_old(survey["digest"], segment.group)
        }

    def _new_of(self, work: Work, day: Day) -> Work | None:
        sources = [source for task in work.tasks for source in task["sources"]]
        told: Told = frozenset(
            identity(source) for source in sources if self._is_old(source["digest"], tuple(source["flow"]))
        )
        new = [source for source in sources if identity(source) not in told]
        if not new:
            return None
        if work.kind in ROLES:
            return replace(work, told_tasks=self._told_tasks(day, ROLES[work.kind]))
        if work.kind == LOOP_PACKETS or self.wanted.family == PACKETS:
            return replace(work, told=told)
        narrowed = self._narrowed(work.tasks[0], new)
        return None if narrowed is None else replace(work, tasks=[narrowed], told=told)

    def _told_tasks(self, day: Day, role: str) -> list[Task]:
        if day not in self.before.days:
            return []
        return [task for task in self.before.day(day).loops if task["role"] == role]

    def _narrowed(self, task: Task, new: Sequence[Task]) -> Task | None:
        """To the numbers that the new files may have."""
        found = [self._numbers.get(_place(source)) for source in new]
        known = [numbers for numbers in found if numbers is not None]
        first = max([task["span"][0], min((low for low, _ in known), default=task["span"][1] + 1)])
        last = min([task["span"][1], max((high for _, high in known), default=0)])
        return task | {"span": [first, last]} if first <= last else None


def _place(source: Task) -> tuple[str, int, Group]:
    return source["digest"], source["split"]["offset"], tuple(source["flow"])


def _numbers(captures: Captures) -> dict[tuple[str, int, Group], tuple[int, int]]:
    """The first and the last number that a split has of a group, in whatever numbering."""
    found: dict[tuple[str, int, Group], tuple[int, int]] = {}
    for survey in captures.surveys:
        for segment in segments_of(survey, captures.places):
            if segment.first != NULL:
                key = survey["digest"], survey["splits"][segment.split]["offset"], segment.group
                low, high = found.get(key, (segment.first, segment.last))
                found[key] = min(low, segment.first), max(high, segment.last)
    return found
