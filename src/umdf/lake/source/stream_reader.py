"""A growing recording as a stream of events: `spark.readStream.format("umdf")`.

An offset is a number of closed files (umdf.transport.recording). A micro-batch from offset s to offset e returns what
can be read from the first e files but not from the first s: sequences in the new files, messages that they complete,
and streams whose channel they reveal. So every event is returned exactly once, whatever its file or line and wherever
files are divided. Invariant: a micro-batch depends only on its two offsets, so that Spark can repeat it.
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
from umdf.lake.locations import local_path
from umdf.lake.plan.segments import ChannelDayKey, MulticastGroup, segments_of
from umdf.lake.source.options import PACKETS, SourceOptions
from umdf.lake.source.partition_plan import CaptureSet, partition_tasks, select_days, survey_files
from umdf.lake.source.partition_reader import (
    INSTRUMENT_LOOP,
    LOOP_PACKETS,
    SNAPSHOT_LOOP,
    PartitionTask,
    ReadSources,
    Scan,
    Task,
    read_partition,
    source_identity,
)
from umdf.lake.source.symbols import SymbolCache
from umdf.market.families import NULL
from umdf.transport.recording import closed_files, has_manifest

if TYPE_CHECKING:
    import pyarrow as pa

Offset = dict[str, Any]  # {"files": how many, "names": a digest of their names}
LOOP_STREAMS = {INSTRUMENT_LOOP: "instruments", SNAPSHOT_LOOP: "snapshot"}


class RecordingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions) -> None:
        if len(options.paths) != 1:
            raise UsageError("a stream reads exactly one recording", "load() a single directory")
        self.options, self.directory = options, local_path(options.paths[0])
        self.scan = Scan(options.family, options.schema)
        self._initial_files: list[Path] | None = None
        self._target: int | None = None  # set by Trigger.AvailableNow
        self._symbol_cache: SymbolCache = {}
        self._captures: dict[int, CaptureSet] = {}  # by number of files

    def _closed_files(self) -> list[Path]:
        """Without a manifest it is unknown which files are closed: then only those present at the start count."""
        if self._initial_files is not None:
            return self._initial_files
        files = closed_files(self.directory)
        if not has_manifest(self.directory):
            if not files:
                raise CaptureError(
                    f"{self.directory} is not a recording (no manifest, no captures)", "pass a recording's directory"
                )
            self._initial_files = files
        return files

    def initialOffset(self) -> Offset:
        return _offset([], 0)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        files = self._closed_files()
        last = len(files) if self._target is None else min(self._target, len(files))
        if isinstance(limit, ReadMaxFiles):
            last = min(last, start["files"] + limit.max_files)
        return _offset(files, max(last, start["files"]))

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(self.options.max_files) if self.options.max_files else ReadAllAvailable()

    def reportLatestOffset(self) -> Offset:
        files = self._closed_files()
        return _offset(files, len(files))

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = len(self._closed_files())

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if start["files"] >= end["files"]:
            return []
        files = self._closed_files()
        for offset in (start, end):
            if len(files) < offset["files"] or _offset(files, offset["files"]) != offset:
                reason = f"{self.directory} is not the recording of this checkpoint: its first files differ"
                raise CaptureError(reason, "use a new checkpoint")
        before, now = self._capture_set(files, start["files"]), self._capture_set(files, end["files"])
        self._captures = {end["files"]: now}
        return [InputPartition(work) for work in MicroBatch(before, now, self.scan).partition_tasks()]

    def _capture_set(self, files: Sequence[Path], count: int) -> CaptureSet:
        if count not in self._captures:
            surveys, options = survey_files(files[:count]), self.options
            self._captures[count] = CaptureSet(
                surveys, options.configured_streams, options.span_units, self._symbol_cache
            )
        return self._captures[count]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition.value, self.scan)


def _offset(files: Sequence[Path], count: int) -> Offset:
    """The names identify the recording."""
    names = "\n".join(path.name for path in files[:count])
    return {"files": count, "names": hashlib.blake2b(names.encode(), digest_size=8).hexdigest()}


class MicroBatch:
    """The rows that some more files add."""

    def __init__(self, previous: CaptureSet, current: CaptureSet, scan: Scan) -> None:
        self.previous, self.current, self.scan = previous, current, scan
        self._previous_digests = {survey["digest"] for survey in previous.surveys}
        self._sequence_ranges = _sequence_ranges(current)

    def partition_tasks(self) -> Iterator[PartitionTask]:
        changed_days = self._changed_days()
        for day in select_days(self.current, self.scan):
            if day in changed_days:
                for work in partition_tasks(self.current, day, self.scan):
                    new = self._only_new(work, day)
                    if new is not None:
                        yield new

    def _was_read(self, digest: str, group: MulticastGroup) -> bool:
        """Whether it was read before, as the same stream."""
        return (
            digest in self._previous_digests
            and self.previous.streams.get(group, ())[:3] == self.current.streams[group][:3]
        )

    def _changed_days(self) -> set[ChannelDayKey]:
        """Rows of a FAST stream whose channel is not known yet (a negative number) wait."""
        places = self.current.streams
        return {
            (places[segment.group].channel, segment.date)
            for survey in self.current.surveys
            for segment in segments_of(survey, places)
            if places[segment.group].channel >= 0 and not self._was_read(survey["digest"], segment.group)
        }

    def _only_new(self, work: PartitionTask, day: ChannelDayKey) -> PartitionTask | None:
        sources = [source for task in work.tasks for source in task["sources"]]
        already_read: ReadSources = frozenset(
            source_identity(source) for source in sources if self._was_read(source["digest"], tuple(source["flow"]))
        )
        new = [source for source in sources if source_identity(source) not in already_read]
        if not new:
            return None
        if work.kind in LOOP_STREAMS:
            return replace(work, previous_tasks=self._previous_tasks(day, LOOP_STREAMS[work.kind]))
        if work.kind == LOOP_PACKETS or self.scan.family == PACKETS:
            return replace(work, already_read=already_read)
        narrowed_task = self._narrow_span(work.tasks[0], new)
        return None if narrowed_task is None else replace(work, tasks=[narrowed_task], already_read=already_read)

    def _previous_tasks(self, day: ChannelDayKey, stream: str) -> list[Task]:
        if day not in self.previous.days:
            return []
        return [task for task in self.previous.plan_day(day).looping_tasks if task["stream"] == stream]

    def _narrow_span(self, task: Task, new: Sequence[Task]) -> Task | None:
        """Narrow the span to the sequences that the new files may have."""
        found = [self._sequence_ranges.get(_split_key(source)) for source in new]
        known = [numbers for numbers in found if numbers is not None]
        first = max([task["span"][0], min((low for low, _ in known), default=task["span"][1] + 1)])
        last = min([task["span"][1], max((high for _, high in known), default=0)])
        return task | {"span": [first, last]} if first <= last else None


def _split_key(source: Task) -> tuple[str, int, MulticastGroup]:
    return source["digest"], source["split"]["offset"], tuple(source["flow"])


def _sequence_ranges(captures: CaptureSet) -> dict[tuple[str, int, MulticastGroup], tuple[int, int]]:
    """First and last sequence of each multicast group in each split, over all epochs."""
    found: dict[tuple[str, int, MulticastGroup], tuple[int, int]] = {}
    for survey in captures.surveys:
        for segment in segments_of(survey, captures.streams):
            if segment.first != NULL:
                key = survey["digest"], survey["splits"][segment.split]["offset"], segment.group
                low, high = found.get(key, (segment.first, segment.last))
                found[key] = min(low, segment.first), max(high, segment.last)
    return found
