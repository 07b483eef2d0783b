"""Captures → partitions of the DataFrame source: which tasks read which spans of which channel-days.

The steps are those of an ingest: survey every file, detect the stream of each multicast group, divide channel-days into
spans. Invariant: a partition that a pushed filter excludes is not planned.
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
from umdf.lake.plan.planner import ChannelDay, Planner
from umdf.lake.plan.segments import (
    ChannelDayKey,
    MulticastGroup,
    StreamLine,
    assign_streams,
    date_of,
    days_of,
    segments_of,
)
from umdf.lake.runtime.spark_tasks import TaskAttempt as TaskPlace
from umdf.lake.source.decompression import temporary_decompression
from umdf.lake.source.options import PACKETS
from umdf.lake.source.partition_reader import (
    INSTRUMENT_LOOP,
    LOOP_PACKETS,
    SNAPSHOT_LOOP,
    SPAN,
    SPAN_PACKETS,
    PartitionTask,
    Scan,
    Task,
)
from umdf.lake.source.symbols import SymbolCache, SymbolTable, resolve_symbols
from umdf.lake.tasks import survey
from umdf.lake.tasks.looping_stream_task import INSTRUMENTS, SNAPSHOT
from umdf.market.families import NULL

MAX_CACHED_SURVEYS = 10_000
MIN_PARALLEL_BYTES = 64 << 20  # less than this is surveyed in this process
SurveyResult = dict[str, Any]
ConfiguredStreams = Mapping[MulticastGroup, Mapping[str, Any]]


def survey_files(paths: Iterable[str | os.PathLike[str]]) -> list[SurveyResult]:
    """Surveys, once per content, in this order; an error if a file is not a capture."""
    by_content: dict[str, SurveyResult] = {}
    for file, result in _cached_surveys([_identify_file(path) for path in paths]):
        if result.get("no_capture"):
            raise CaptureError(f"{file.path}: {result['warnings'][0][1]}", "exclude this file")
        by_content.setdefault(result.get("content_digest", result["digest"]), result)
    return list(by_content.values())


class FileIdentity(NamedTuple):
    path: str
    size: int
    mtime_ns: int


def _identify_file(path: str | os.PathLike[str]) -> FileIdentity:
    full = os.path.abspath(path)
    try:
        status = os.stat(full)
    except OSError as error:
        raise CaptureError(f"{full}: {error.strerror}", "check the path") from error
    return FileIdentity(full, status.st_size, status.st_mtime_ns)


# Spark plans a query more than once in the same process, and a stream plans every micro-batch.
_SURVEY_CACHE: dict[FileIdentity, SurveyResult] = {}


def _cached_surveys(files: Sequence[FileIdentity]) -> Iterator[tuple[FileIdentity, SurveyResult]]:
    new = [file for file in dict.fromkeys(files) if file not in _SURVEY_CACHE]
    if len(_SURVEY_CACHE) + len(new) > MAX_CACHED_SURVEYS:
        _SURVEY_CACHE.clear()
        new = list(dict.fromkeys(files))
    processes = min(len(new), len(os.sched_getaffinity(0)))
    if processes > 1 and sum(file.size for file in new) > MIN_PARALLEL_BYTES:
        # Forked, because importing takes longest in a new process; no other thread runs in the planner's.
        with ProcessPoolExecutor(processes, multiprocessing.get_context("fork")) as pool:
            _SURVEY_CACHE.update(zip(new, pool.map(_survey_file, new), strict=True))
    else:
        _SURVEY_CACHE.update((file, _survey_file(file)) for file in new)
    return ((file, _SURVEY_CACHE[file]) for file in files)


def _survey_file(file: FileIdentity) -> SurveyResult:
    with tempfile.TemporaryDirectory(prefix="umdf-source-") as decompressed:
        task = {"path": file.path, "known": [], "decompressed": decompressed, "split_bytes": survey.SPLIT_BYTES}
        return survey.run(task, TaskPlace(0, 0))


@dataclass
class CaptureSet:
    """Some files, and the streams in them."""

    surveys: Sequence[SurveyResult]
    configured_streams: ConfiguredStreams
    span_units: int
    symbol_cache: SymbolCache = field(default_factory=dict)  # symbols found in splits; a stream reuses it
    _planned_days: dict[ChannelDayKey, ChannelDay] = field(default_factory=dict)

    @cached_property
    def streams(self) -> dict[MulticastGroup, StreamLine]:
        return assign_streams(self.surveys, self.configured_streams)

    @cached_property
    def days(self) -> list[ChannelDayKey]:
        return sorted({day for each in self.surveys for day in days_of(each, self.streams)})

    @cached_property
    def compressed_digests(self) -> frozenset[str]:
        return frozenset(each["digest"] for each in self.surveys if each.get("packed"))

    @cached_property
    def _planner(self) -> Planner:
        paths = {each["digest"]: each["path"] for each in self.surveys}
        return Planner(self.surveys, self.streams, paths, self.span_units)

    def plan_day(self, day: ChannelDayKey) -> ChannelDay:
        if day not in self._planned_days:
            self._planned_days[day] = self._planner.plan_day(day)
        return self._planned_days[day]

    @cached_property
    def receive_times(self) -> dict[tuple[str, int, MulticastGroup], tuple[int, int]]:
        """First and last receive time of a group's packets with a sequence, by split."""
        ranges: dict[tuple[str, int, MulticastGroup], tuple[int, int]] = {}
        for each in self.surveys:
            for segment in segments_of(each, self.streams):
                if segment.first == NULL:
                    continue
                key = each["digest"], each["splits"][segment.split]["offset"], segment.group
                low, high = ranges.get(key, (segment.ts_first, segment.ts_last))
                ranges[key] = min(low, segment.ts_first), max(high, segment.ts_last)
        return ranges

    def symbols(self, day: ChannelDayKey) -> SymbolTable:
        with temporary_decompression(self.compressed_digests) as decompress:
            return resolve_symbols(self.plan_day(day), self.surveys, self.symbol_cache, decompress)


def plan_partitions(captures: CaptureSet, scan: Scan) -> list[PartitionTask]:
    """All partitions that may have matching rows."""
    if not captures.streams:
        raise CaptureError("no UMDF streams found in these files", "describe them with the option channels")
    return [work for day in select_days(captures, scan) for work in partition_tasks(captures, day, scan)]


def select_days(captures: CaptureSet, scan: Scan) -> list[ChannelDayKey]:
    may_match = scan.filters.may_match
    return [
        (channel, day)
        for channel, day in captures.days
        if may_match("channel_id", channel) and may_match("trading_date", date_of(day))
    ]


def partition_tasks(captures: CaptureSet, day: ChannelDayKey, scan: Scan) -> Iterator[PartitionTask]:
    """The partitions of a channel-day."""
    planned, symbols = captures.plan_day(day), None
    if _needs_symbols(scan):
        symbols = captures.symbols(day)
        if not any(scan.filters.may_match("symbol", symbol) for symbol in _candidate_symbols(symbols, scan)):
            return
    loops: dict[str, list[Task]] = defaultdict(list)
    for task in planned.looping_tasks:
        loops[task["stream"]].append(task)
    for work in _stream_tasks(planned, loops, scan.family):
        if work.kind not in (SPAN, SPAN_PACKETS) or _may_match(work.tasks[0], captures, scan):
            yield replace(work, compressed_digests=captures.compressed_digests, symbols=symbols)


def _stream_tasks(planned: ChannelDay, loops: Mapping[str, list[Task]], family: str) -> Iterator[PartitionTask]:
    if family != SNAPSHOT:
        yield from (PartitionTask(SPAN_PACKETS if family == PACKETS else SPAN, [task]) for task in planned.decode_tasks)
    if family == PACKETS:
        yield from (PartitionTask(LOOP_PACKETS, [task]) for tasks in loops.values() for task in tasks)
    if family == "definition" and loops[INSTRUMENTS]:
        yield PartitionTask(INSTRUMENT_LOOP, loops[INSTRUMENTS])
    if family == SNAPSHOT and loops[SNAPSHOT]:
        yield PartitionTask(SNAPSHOT_LOOP, loops[SNAPSHOT])


def _needs_symbols(scan: Scan) -> bool:
    """Definitions have their own symbol."""
    return scan.family not in ("definition", PACKETS) and "symbol" in scan.schema.names


def _candidate_symbols(symbols: SymbolTable, scan: Scan) -> Iterable[str]:
    """Without a filter on symbols, rows of undefined instruments are included."""
    return symbols if scan.filters.constrains("symbol") else [""]


def _may_match(task: Task, captures: CaptureSet, scan: Scan) -> bool:
    if scan.family == PACKETS:  # including those without a sequence
        return True
    filter_may_match, (first, last), known = scan.filters.may_match, task["span"], captures.receive_times
    split_keys = ((source["digest"], source["split"]["offset"], tuple(source["flow"])) for source in task["sources"])
    lows, highs = zip(*(known[place] for place in split_keys if place in known), strict=True)
    is_in_time = filter_may_match("ts_recv", min(lows), max(highs))
    return is_in_time and filter_may_match("sequence", first, last) and filter_may_match("seq_version", task["epoch"])
