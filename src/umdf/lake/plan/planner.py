"""Plans an ingest: the epochs of a channel-day, and its tasks, or those of its next part.

Invariant: a plan depends on the content of the files, never on their names, their order or which of them are new.
Sequences are divided into equal spans; each task reads a little beyond its span, so the boundaries do not matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from umdf.lake.plan.isolated_packets import exclude_unconfirmed
from umdf.lake.plan.line_epochs import bounding_segments, find_resets, last_sent, set_aside_lone_restarts
from umdf.lake.plan.overlapping_files import OverlappingFiles
from umdf.lake.plan.segments import (
    LINES,
    ChannelDayKey,
    MulticastGroup,
    Segment,
    StreamLine,
    foreign_segments,
    segments_of,
)
from umdf.lake.tasks.gather import OVERLAP
from umdf.lake.tasks.survey import SPLIT_FIELDS
from umdf.market.families import NULL

MIN_SPAN_SEQUENCES = 1 << 14  # minimum of a span that exists only to use another core
SPAN_SEQUENCES = 1 << 18  # packets have some 1,400 bytes: a task stays well below 2 GiB
LOOPING_TASK_PACKETS = 1 << 18  # per task of a looping stream
MARGIN_PACKETS = 512  # read before and after such a task's range, to complete messages and snapshots at its edges
TASK_SOURCES = ("sources", "before", "after")  # per task of a looping stream
DAY_START = (-1, 0, 0, NULL, NULL)  # a DayPosition before all sequences


class DayPosition(NamedTuple):
    """A position in a channel-day: up to and including this sequence of this epoch; `rank` is the epoch's index."""

    rank: int
    number: int
    epoch: int
    ts_recv: int
    ts_unnumbered: int  # packets without a sequence are done up to this time


@dataclass
class ChannelDay:
    """One channel on one date: its epochs and tasks."""

    channel: int
    date: int
    protocol: str
    lines: list[str]
    epochs: list[tuple[int, int, int]] = field(default_factory=list)  # epoch, first and last sequence; ordered
    epoch_starts: list[int] = field(default_factory=list)  # when each epoch was first seen
    decode_tasks: list[dict[str, Any]] = field(default_factory=list)
    looping_tasks: list[dict[str, Any]] = field(default_factory=list)
    since: DayPosition | None = None  # how far it was processed before
    until: DayPosition | None = None  # how far it is processed now; None: to the end
    lines_set_aside: tuple[str, ...] = ()  # those that restarted their numbering alone

    @property
    def key(self) -> ChannelDayKey:
        return self.channel, self.date


class Planner:
    """`paths` are the paths of the (decompressed) files, by digest; `new_digests` are not in the lake yet."""

    def __init__(
        self,
        surveys: Sequence[dict[str, Any]],
        stream_lines: Mapping[MulticastGroup, StreamLine],
        paths: Mapping[str, str],
        span_sequences: int = SPAN_SEQUENCES,
        new_digests: frozenset[str] | None = None,
        parallel: int = 1,
    ) -> None:
        self.stream_lines, self.paths, self.span_sequences, self.parallel = (
            stream_lines,
            paths,
            span_sequences,
            parallel,
        )
        self.new_digests = frozenset(survey["digest"] for survey in surveys) if new_digests is None else new_digests
        self.files = OverlappingFiles(surveys, paths)
        self._segments: dict[int, list[Segment]] = defaultdict(list)  # by channel
        for survey in surveys:
            for segment in segments_of(survey, stream_lines):
                self._segments[stream_lines[segment.group].channel].append(segment)
        known_days = {(channel, part.date) for channel, parts in self._segments.items() for part in parts}
        for segment in (each for survey in surveys for each in foreign_segments(survey, stream_lines)):
            channel = stream_lines[segment.group].channel
            if (channel, segment.date) in known_days:
                self._segments[channel].append(segment)
        self._quarantined: dict[tuple[str, int, MulticastGroup], list[tuple[int, int, int]]] = defaultdict(list)
        for channel, segments in self._segments.items():
            self._segments[channel], unconfirmed = exclude_unconfirmed(segments, stream_lines)
            for segment, offset, number in unconfirmed:
                self._quarantined[_split_key(segment)].append((offset, number, segment.date))
        self._reset_times = find_resets(surveys, stream_lines)
        self.lines_set_aside = set[tuple[int, MulticastGroup]]()  # restarted alone: date and group
        for channel, segments in self._segments.items():
            self._segments[channel], lines = set_aside_lone_restarts(segments, stream_lines, self.epochs_of)
            self.lines_set_aside |= lines
        self._unnumbered_owners = _find_unnumbered_owners(self._segments, stream_lines)

    def groups(self, channel: int, *streams: str) -> list[MulticastGroup]:
        return [
            group
            for group, stream_line in self.stream_lines.items()
            if stream_line.channel == channel and stream_line.stream in streams
        ]

    def segments(self, day: ChannelDay, *streams: str) -> list[Segment]:
        """The segments of a day, perhaps of some streams only."""
        of_channel = self._segments[day.channel]
        return [
            part for part in of_channel if part.date == day.date and self.stream_lines[part.group].stream in streams
        ]

    def has_new_data(self, day: ChannelDay) -> bool:
        """Whether a new file has data of the day."""
        mine = (part for part in self._segments[day.channel] if part.date == day.date)
        return any(part.survey["digest"] in self.new_digests for part in mine)

    def has_new_group(self, day: ChannelDayKey) -> bool:
        """Whether there is a multicast group that was unknown before, so that it could not have been waited for."""
        segments = [part for part in self._segments[day[0]] if part.date == day[1]]
        old = {part.group for part in segments if part.survey["digest"] not in self.new_digests}
        return any(part.group not in old for part in segments)

    def later_segments(self, day: ChannelDay) -> list[Segment]:
        """The incremental segments of later days."""
        return [part for part in self._segments[day.channel] if part.date > day.date]

    def outline_day(self, day: ChannelDayKey) -> ChannelDay:
        """The epochs of a day, without any task."""
        channel, trading_date = day
        segments = [part for part in self._segments[channel] if part.date == trading_date]
        protocol = self.stream_lines[segments[0].group].protocol
        planned = ChannelDay(channel, trading_date, protocol, list(LINES[: len(self.groups(channel, "incremental"))]))
        own = sorted(self.segments(planned, "incremental"), key=lambda segment: segment.order)
        numbered = bounding_segments([part for part in own if part.first != NULL], self.epochs_of)
        planned.lines_set_aside = tuple(
            LINES[self.stream_lines[group].line]
            for group in self.groups(channel, "incremental")
            if (trading_date, group) in self.lines_set_aside
        )
        for rank, (epoch, parts) in enumerate(
            sorted(numbered.items(), key=lambda item: min(part.ts_first for part in item[1]))
        ):
            # An epoch starts with 1; but if the capture starts within the day's first epoch, that is not a gap.
            first = min(part.first for part in parts) if rank == 0 else 1
            heartbeats = [part.announced for part in own if part.announced and epoch in self.epochs_of(part)]
            planned.epochs.append((epoch, first, last_sent(parts, heartbeats)))
            planned.epoch_starts.append(min(part.ts_first for part in parts))
        return planned

    def plan_day(
        self, day: ChannelDayKey, since: DayPosition | None = None, until: DayPosition | None = None
    ) -> ChannelDay:
        """The tasks of a day, or of the part after `since` and up to `until`."""
        planned = self.outline_day(day)
        planned.since, planned.until = since, until
        if until is not None:
            del planned.epochs[until.rank + 1 :], planned.epoch_starts[until.rank + 1 :]
            if planned.epochs:
                planned.epochs[-1] = (until.epoch, planned.epochs[-1][1], until.number)
        channel, trading_date = day
        day_arguments = {"channel_id": channel, "protocol": planned.protocol, "trading_date": trading_date}
        day_arguments["lines"] = list(LINES)
        self._plan_spans(planned, day_arguments)
        for stream in ("instruments", "snapshot"):
            segments = sorted(self.segments(planned, stream), key=lambda segment: segment.order)
            planned.looping_tasks += self._looping_tasks(day_arguments | {"stream": stream}, segments, since)
        if since is None:  # the whole day is built, even if the lake has it
            for source in (each for task in planned.looping_tasks for name in TASK_SOURCES for each in task[name]):
                source["is_fresh"] = True
        return planned

    def _segments_by_epoch(self, day: ChannelDay) -> dict[int, list[Segment]]:
        """Segments that have sequences, by epoch."""
        found: dict[int, list[Segment]] = defaultdict(list)
        for segment in sorted(self.segments(day, "incremental"), key=lambda segment: segment.order):
            if segment.first != NULL:
                for epoch in self.epochs_of(segment):
                    found[epoch].append(segment)
        return found

    def _plan_spans(self, planned: ChannelDay, day_arguments: dict[str, Any]) -> None:
        numbered, since = self._segments_by_epoch(planned), planned.since
        known_spans = [list(epoch) for epoch in self._known_spans(planned.channel)]
        for rank, (epoch, first, last) in enumerate(planned.epochs):
            if since is not None and rank <= since.rank:
                if rank < since.rank:
                    continue
                first = since.number + 1
            if first > last:
                continue
            for span in self._spans(first, last):
                # Ordered by line: of duplicates, the one on the first line is decoded.
                parts = [part for part in numbered[epoch] if _overlaps(part, *span)]
                sources = [self._source(part) for part in sorted(parts, key=self._line_order)]
                if sources:
                    task = {"description": f"channel {planned.channel}, sequences {span[0]} to {span[1]}"}
                    planned.decode_tasks.append(day_arguments | task | _span_task(epoch, span, known_spans, sources))
        self._assign_unnumbered(planned, day_arguments | {"known": known_spans}, self.segments(planned, "incremental"))

    def _spans(self, first: int, last: int) -> list[tuple[int, int]]:
        """Equal spans: long enough that an event ends in each, and as many as keep all cores busy."""
        numbers = last - first + 1
        count = -(-numbers // self.span_sequences)
        if numbers >= self.parallel * MIN_SPAN_SEQUENCES:
            count = -(-count // self.parallel) * self.parallel
        edges = [first + numbers * part // count for part in range(count + 1)]
        return [(low, high - 1) for low, high in pairwise(edges)]

    def _assign_unnumbered(self, planned: ChannelDay, day_arguments: dict[str, Any], segments: list[Segment]) -> None:
        """Packets without a sequence are accounted for by one task only: that of their split's first sequence."""
        unnumbered = [segment for segment in segments if segment.first == NULL and _is_in_part(segment, planned)]
        since = planned.since
        if unnumbered and not planned.decode_tasks and since is not None and since.rank >= 0:
            empty_span = since.number + 1, since.number
            planned.decode_tasks.append(day_arguments | _span_task(since.epoch, empty_span, day_arguments["known"], []))
        for segment in segments:
            identity = _split_key(segment)
            if self._unnumbered_owners.get((*identity, segment.date)) != (segment.epoch, segment.first):
                continue
            epochs = self.epochs_of(segment)
            of_epoch = segment.first != NULL or any(task["epoch"] in epochs for task in planned.decode_tasks)
            for task in planned.decode_tasks:
                first, last = task["span"]
                within = first <= segment.first <= last if segment.first != NULL else _is_in_part(segment, planned)
                if within and (task["epoch"] in epochs or not of_epoch):
                    source = next((each for each in task["sources"] if _is_source_of(each, segment)), None)
                    if source is None:
                        source = self._source(segment)
                        task["sources"].append(source)
                    source["owns_unnumbered"], source["unnumbered_from"] = True, max(segment.first, 0)
                    break

    def _line_order(self, segment: Segment) -> tuple[Any, ...]:
        return self.stream_lines[segment.group].line, *self._file_order(segment)

    def _file_order(self, segment: Segment) -> tuple[Any, ...]:
        return self.files.order(segment.survey["digest"], segment.group), *segment.order

    def _known_spans(self, channel: int) -> list[tuple[int, int, int]]:
        """Epoch, first and last sequence of every day that was surveyed."""
        segments = [
            segment
            for segment in self._segments[channel]
            if segment.first != NULL and self.stream_lines[segment.group].stream == "incremental"
        ]
        return [
            (epoch, min(part.first for part in parts), max(part.last for part in parts))
            for epoch, parts in sorted(bounding_segments(segments, self.epochs_of).items())
        ]

    def epochs_of(self, segment: Segment) -> list[int]:
        """The epochs of a segment: from the packet headers (Binary), or from the resets before and within it (FAST)."""
        if self.stream_lines[segment.group].protocol == "sbe":
            return [int(segment.epoch or 0)]
        since = self._reset_times.get(segment.group, ())
        before = [epoch for ts, epoch in since if ts <= segment.ts_first]
        # Messages received at the time of a reset that is in the file itself came before it.
        resets, flows = segment.survey.get("resets", ()), segment.survey["flows"]
        own = {ts_recv for flow, ts_recv, _ in resets if tuple(flows[flow]) == segment.group}
        end = segment.ts_last
        within = [epoch for ts, epoch in since if segment.ts_first < ts <= end and not (ts == end and ts in own)]
        return [before[-1] if before else 0, *within]

    def _source(self, segment: Segment) -> dict[str, Any]:
        survey, split_survey, digest = segment.survey, segment.survey["splits"][segment.split], segment.survey["digest"]
        split = {name: split_survey[name] for name in SPLIT_FIELDS}
        quarantined = (each for each in split_survey["refused"] if tuple(survey["flows"][each[0]]) == segment.group)
        return {
            "line": self.stream_lines[segment.group].line,
            "digest": digest,
            "path": self.paths[digest],
            "flow": list(segment.group),
            "split": split,
            "owns_unnumbered": False,
            "unnumbered_from": 0,
            "is_fresh": digest in self.new_digests,
            "epochs": list(self._reset_times.get(segment.group, ())),
            "refused": [each[1:] for each in quarantined] + self._quarantined.get(_split_key(segment), []),
            **self.files.source_fields(digest, segment.split, segment.group),
        }

    def _looping_tasks(
        self, day_arguments: dict[str, Any], segments: list[Segment], since: DayPosition | None
    ) -> list[dict[str, Any]]:
        """Known files that may have snapshots of sequences after `since` are read again."""
        tasks = []
        by_group: dict[MulticastGroup, list[Segment]] = defaultdict(list)
        for segment in segments:
            by_group[segment.group].append(segment)
        for group, parts in sorted(by_group.items(), key=str):
            ordered = sorted(_merge_by_split(parts), key=self._file_order)
            begin = next(
                (at for at, part in enumerate(ordered) if self._is_needed(part, day_arguments, since)), len(ordered)
            )
            for low, high in _pack_ranges([part.packets for part in ordered[begin:]], LOOPING_TASK_PACKETS):
                low, high = low + begin, high + begin
                sizes = [part.packets for part in ordered]
                first, last = low - _count_for_margin(sizes[:low][::-1]), high + _count_for_margin(sizes[high:])
                sources, before, after = (
                    [self._source(part) for part in some]
                    for some in (ordered[low:high], ordered[first:low], ordered[high:last])
                )
                description = (
                    f"channel {day_arguments['channel_id']}, {day_arguments['stream']} on {group[0]}:{group[1]}"
                )
                task = {"description": description, "sources": sources, "before": before, "after": after}
                tasks.append(day_arguments | task | {"ts_first": ordered[low].ts_first})
        return sorted(tasks, key=lambda task: task["ts_first"])

    def _is_needed(self, segment: Segment, day_arguments: dict[str, Any], since: DayPosition | None) -> bool:
        is_fresh = segment.survey["digest"] in self.new_digests
        return is_fresh or since is None or (day_arguments["stream"] == "snapshot" and segment.ts_last >= since.ts_recv)


def _split_key(segment: Segment) -> tuple[str, int, MulticastGroup]:
    return segment.survey["digest"], segment.split, segment.group


def _span_task(
    epoch: int, span: tuple[int, int], known: list[list[int]], sources: list[dict[str, Any]]
) -> dict[str, Any]:
    return {"stream": "incremental", "epoch": epoch, "span": list(span), "known": known, "sources": sources, "cut": ""}


def _merge_by_split(segments: Iterable[Segment]) -> list[Segment]:
    """One segment per split: each loop of the stream may be an epoch of its own."""
    found: dict[tuple[str, int, MulticastGroup], Segment] = {}
    for part in segments:
        old = found.get(_split_key(part), part)
        times = {"ts_first": min(old.ts_first, part.ts_first), "ts_last": max(old.ts_last, part.ts_last)}
        found[_split_key(part)] = part._replace(packets=part.packets + (old.packets if old is not part else 0), **times)
    return list(found.values())


def _is_source_of(source: dict[str, Any], segment: Segment) -> bool:
    offset = segment.survey["splits"][segment.split]["offset"]
    mine = segment.survey["digest"], offset, list(segment.group)
    return (source["digest"], source["split"]["offset"], source["flow"]) == mine


def _overlaps(segment: Segment, first: int, last: int) -> bool:
    return segment.last >= first - OVERLAP and segment.first <= last + OVERLAP


def _is_in_part(segment: Segment, planned: ChannelDay) -> bool:
    """Whether a segment without sequences belongs to the planned part of the day."""
    is_done = planned.since is not None and segment.ts_first <= planned.since.ts_unnumbered
    return not is_done and (planned.until is None or segment.ts_first <= planned.until.ts_unnumbered)


def _count_for_margin(sizes: Sequence[int]) -> int:
    """How many of them it takes to have `MARGIN_PACKETS`."""
    found = total = 0
    while found < len(sizes) and total < MARGIN_PACKETS:
        found, total = found + 1, total + sizes[found]
    return found


def _pack_ranges(sizes: Sequence[int], max_size: int) -> list[tuple[int, int]]:
    """Groups neighbours, as many as fit."""
    groups, first, size = [], 0, 0
    for number, each in enumerate(sizes):
        if number > first and size + each > max_size:
            groups.append((first, number))
            first, size = number, 0
        size += each
    return [*groups, (first, len(sizes))] if len(sizes) else []


def _find_unnumbered_owners(
    segments: Mapping[int, list[Segment]], stream_lines: Mapping[MulticastGroup, StreamLine]
) -> dict[tuple[str, int, MulticastGroup, int], tuple[int | None, int]]:
    """For each split, incremental group and date, the segment whose task accounts for packets without a sequence."""
    first: dict[tuple[str, int, MulticastGroup, int], Segment] = {}
    for part in (segment for found in segments.values() for segment in found):
        if stream_lines[part.group].stream == "incremental":
            key = (*_split_key(part), part.date)
            best = first.get(key)
            if best is None or (part.first == NULL, part.ts_first) < (best.first == NULL, best.ts_first):
                first[key] = part
    return {key: (part.epoch, part.first) for key, part in first.items()}
