"""What an ingest has to do: the numberings of a channel-day, and its tasks, or those of its next part.

The one rule: a plan depends on the content of the files, never on their names, their order or which of them are new.
Numbers are cut into even spans; each looks a little beyond its edges, so it does not matter where those are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from umdf.lake.gather import OVERLAP
from umdf.lake.plan_doubts import settled
from umdf.lake.segments import LINES, Day, Group, Place, Segment, segments_of, strangers_of
from umdf.lake.survey import SPLIT
from umdf.market.events import NULL

LEAST_NUMBERS = 1 << 14  # of a span that is only for the sake of another core
SPAN_NUMBERS = 1 << 18  # packets of some 1,400 bytes at most: a task stays well below 2 GiB
LOOP_PACKETS = 1 << 18  # of a task of a looping stream
AROUND_PACKETS = 512  # before and behind what such a task has: so many may hold a message, or a snapshot, that is cut
TASK_SOURCES = ("sources", "before", "after")  # of a task of a looping stream
NOWHERE = (-1, 0, 0, NULL, NULL)  # before all numbers, as an Edge


class Edge(NamedTuple):
    """A place in a channel-day: everything up to that number of that numbering. `rank` is the numbering's place."""

    rank: int
    number: int
    epoch: int
    ts_recv: int
    ts_rest: int  # what has no number is done up to then


@dataclass
class ChannelDay:
    """All that is known of one channel on one date, and its tasks."""

    channel: int
    date: int
    protocol: str
    lines: list[str]
    epochs: list[tuple[int, int, int]] = field(default_factory=list)  # numbering, first and last number; in their order
    begun: list[int] = field(default_factory=list)  # when each numbering was first seen
    decode: list[dict[str, Any]] = field(default_factory=list)
    loops: list[dict[str, Any]] = field(default_factory=list)
    since: Edge | None = None  # what is done already
    until: Edge | None = None  # how far it goes now; None: to the end

    @property
    def key(self) -> Day:
        return self.channel, self.date


class Planner:
    """`paths` are where the (unpacked) files are, by digest; `fresh` are those that are not in the lake yet."""

    def __init__(
        self,
        surveys: Sequence[dict[str, Any]],
        places: Mapping[Group, Place],
        paths: Mapping[str, str],
        span_numbers: int = SPAN_NUMBERS,
        fresh: frozenset[str] | None = None,
        parallel: int = 1,
    ) -> None:
        self.places, self.paths, self.span_numbers, self.parallel = places, paths, span_numbers, parallel
        self.fresh = frozenset(survey["digest"] for survey in surveys) if fresh is None else fresh
        self._segments: dict[int, list[Segment]] = defaultdict(list)  # by channel
        for survey in surveys:
            for segment in segments_of(survey, places):
                self._segments[places[segment.group].channel].append(segment)
        known = {(channel, part.date) for channel, parts in self._segments.items() for part in parts}
        for segment in (each for survey in surveys for each in strangers_of(survey, places)):
            channel = places[segment.group].channel
            if (channel, segment.date) in known:
                self._segments[channel].append(segment)
        self._refused: dict[tuple[str, int, Group], list[tuple[int, int, int]]] = defaultdict(list)
        for channel, segments in self._segments.items():
            self._segments[channel], doubtful = settled(segments, places)
            for segment, offset, number in doubtful:
                self._refused[_identity(segment)].append((offset, number, segment.date))
        self._resets = _resets(surveys, places)
        self._rest = _rest(self._segments, places)

    def groups(self, channel: int, *roles: str) -> list[Group]:
        return [group for group, place in self.places.items() if place.channel == channel and place.role in roles]

    def segments(self, day: ChannelDay, *roles: str) -> list[Segment]:
        """What there is of a day."""
        of_channel = self._segments[day.channel]
        return [part for part in of_channel if part.date == day.date and self.places[part.group].role in roles]

    def is_touched(self, day: ChannelDay) -> bool:
        """Whether a file that is new has something of the day."""
        mine = (part for part in self._segments[day.channel] if part.date == day.date)
        return any(part.survey["digest"] in self.fresh for part in mine)

    def has_newcomer(self, day: Day) -> bool:
        """Whether there is a group of which the day had nothing before: nobody could have waited for it."""
        mine = [part for part in self._segments[day[0]] if part.date == day[1]]
        old = {part.group for part in mine if part.survey["digest"] not in self.fresh}
        return any(part.group not in old for part in mine)

    def later(self, day: ChannelDay) -> list[Segment]:
        """What there is of later days."""
        return [part for part in self._segments[day.channel] if part.date > day.date]

    def outline(self, day: Day) -> ChannelDay:
        """The numberings of a day, without any task."""
        channel, trading_date = day
        mine = [part for part in self._segments[channel] if part.date == trading_date]
        protocol = self.places[mine[0].group].protocol
        planned = ChannelDay(channel, trading_date, protocol, list(LINES[: len(self.groups(channel, "incremental"))]))
        for rank, (epoch, parts) in enumerate(
            sorted(self._numbered(planned).items(), key=lambda item: min(part.ts_first for part in item[1]))
        ):
            # A numbering begins with 1; but where we join in the middle of the day's first one, that is no gap.
            first = min(part.first for part in parts) if rank == 0 else 1
            planned.epochs.append((epoch, first, max(part.last for part in parts)))
            planned.begun.append(min(part.ts_first for part in parts))
        return planned

    def plan(self, day: Day, since: Edge | None = None, until: Edge | None = None) -> ChannelDay:
        """The tasks of a day, or of the part of it behind `since` and up to `until`."""
        planned = self.outline(day)
        planned.since, planned.until = since, until
        if until is not None:
            del planned.epochs[until.rank + 1 :], planned.begun[until.rank + 1 :]
            if planned.epochs:
                planned.epochs[-1] = (until.epoch, planned.epochs[-1][1], until.number)
        channel, trading_date = day
        about = {"channel_id": channel, "protocol": planned.protocol, "trading_date": trading_date}
        about["lines"] = list(LINES)
        self._plan_spans(planned, about)
        for role in ("instruments", "snapshot"):
            of_role = sorted(self.segments(planned, role), key=lambda segment: segment.order)
            planned.loops += self._loops(about | {"role": role}, of_role, since)
        if since is None:  # the whole day is new, whatever the lake has of it
            for source in (each for task in planned.loops for name in TASK_SOURCES for each in task[name]):
                source["is_fresh"] = True
        return planned

    def _numbered(self, day: ChannelDay) -> dict[int, list[Segment]]:
        """Segments with numbers, by numbering."""
        found: dict[int, list[Segment]] = defaultdict(list)
        for segment in sorted(self.segments(day, "incremental"), key=lambda segment: segment.order):
            if segment.first != NULL:
                for epoch in self.epochs_of(segment):
                    found[epoch].append(segment)
        return found

    def _plan_spans(self, planned: ChannelDay, about: dict[str, Any]) -> None:
        numbered, since = self._numbered(planned), planned.since
        known = [list(epoch) for epoch in self._known(planned.channel)]
        for rank, (epoch, first, last) in enumerate(planned.epochs):
            if since is not None and rank <= since.rank:
                if rank < since.rank:
                    continue
                first = since.number + 1
            if first > last:
                continue
            for span in self._spans(first, last):
                # Line by line: of the copies of a number, the one on the first line is the one that is decoded.
                parts = [part for part in numbered[epoch] if _reaches(part, *span)]
                sources = [self._source(part) for part in sorted(parts, key=self._line_order)]
                if sources:
                    task = {"description": f"channel {planned.channel}, numbers {span[0]} to {span[1]}"}
                    planned.decode.append(about | task | _span_task(epoch, span, known, sources))
        self._give_rest(planned, about | {"known": known}, self.segments(planned, "incremental"))

    def _spans(self, first: int, last: int) -> list[tuple[int, int]]:
        """In even pieces: none is so short that no event may end in it, and no core waits for another."""
        numbers = last - first + 1
        count = -(-numbers // self.span_numbers)
        if numbers >= self.parallel * LEAST_NUMBERS:
            count = -(-count // self.parallel) * self.parallel
        edges = [first + numbers * part // count for part in range(count + 1)]
        return [(low, high - 1) for low, high in pairwise(edges)]

    def _give_rest(self, planned: ChannelDay, about: dict[str, Any], segments: list[Segment]) -> None:
        """What has no number in a split is accounted for by one task only: that of the split's first number."""
        left = [segment for segment in segments if segment.first == NULL and _is_now(segment, planned)]
        since = planned.since
        if left and not planned.decode and since is not None and since.rank >= 0:
            nothing = since.number + 1, since.number
            planned.decode.append(about | _span_task(since.epoch, nothing, about["known"], []))
        for segment in segments:
            identity = _identity(segment)
            if self._rest.get((*identity, segment.date)) != (segment.epoch, segment.first):
                continue
            epochs = self.epochs_of(segment)
            of_epoch = segment.first != NULL or any(task["epoch"] in epochs for task in planned.decode)
            for task in planned.decode:
                first, last = task["span"]
                within = first <= segment.first <= last if segment.first != NULL else _is_now(segment, planned)
                if within and (task["epoch"] in epochs or not of_epoch):
                    source = next((each for each in task["sources"] if _is_of(each, segment)), None)
                    if source is None:
                        source = self._source(segment)
                        task["sources"].append(source)
                    source["own_rest"], source["rest_from"] = True, max(segment.first, 0)
                    break

    def _line_order(self, segment: Segment) -> tuple[Any, ...]:
        return self.places[segment.group].line, *segment.order

    def _known(self, channel: int) -> list[tuple[int, int, int]]:
        """Of every day at hand: numbering, first and last number."""
        ranges: dict[int, tuple[int, int]] = {}
        for segment in self._segments[channel]:
            if segment.first != NULL and self.places[segment.group].role == "incremental":
                for epoch in self.epochs_of(segment):
                    low, high = ranges.get(epoch, (segment.first, segment.last))
                    ranges[epoch] = min(low, segment.first), max(high, segment.last)
        return [(epoch, *span) for epoch, span in sorted(ranges.items())]

    def epochs_of(self, segment: Segment) -> list[int]:
        """The numberings in a segment: what Binary says; of FAST, by the resets before and within it."""
        if self.places[segment.group].protocol == "sbe":
            return [int(segment.epoch or 0)]
        since = self._resets.get(segment.group, ())
        before = [epoch for ts, epoch in since if ts <= segment.ts_first]
        within = [epoch for ts, epoch in since if segment.ts_first < ts <= segment.ts_last]
        return [before[-1] if before else 0, *within]

    def _source(self, segment: Segment) -> dict[str, Any]:
        survey, about, digest = segment.survey, segment.survey["splits"][segment.split], segment.survey["digest"]
        split = {name: about[name] for name in SPLIT}
        said = (each for each in about["refused"] if tuple(survey["flows"][each[0]]) == segment.group)
        return {
            "line": self.places[segment.group].line,
            "digest": digest,
            "path": self.paths[digest],
            "flow": list(segment.group),
            "split": split,
            "own_rest": False,
            "rest_from": 0,
            "is_fresh": digest in self.fresh,
            "epochs": list(self._resets.get(segment.group, ())),
            "refused": [each[1:] for each in said] + self._refused.get(_identity(segment), []),
        }

    def _loops(self, about: dict[str, Any], segments: list[Segment], since: Edge | None) -> list[dict[str, Any]]:
        """Of what the lake has already, what may hold snapshots of numbers behind `since` is read once more."""
        tasks = []
        by_group: dict[Group, list[Segment]] = defaultdict(list)
        for segment in segments:
            by_group[segment.group].append(segment)
        for group, parts in sorted(by_group.items(), key=str):
            ordered = sorted(_whole(parts), key=lambda part: part.order)
            begin = next((at for at, part in enumerate(ordered) if self._is_wanted(part, about, since)), len(ordered))
            for low, high in _packed([part.packets for part in ordered[begin:]], LOOP_PACKETS):
                low, high = low + begin, high + begin
                sizes = [part.packets for part in ordered]
                first, last = low - _enough(sizes[:low][::-1]), high + _enough(sizes[high:])
                sources, before, after = (
                    [self._source(part) for part in some]
                    for some in (ordered[low:high], ordered[first:low], ordered[high:last])
                )
                description = f"channel {about['channel_id']}, {about['role']} on {group[0]}:{group[1]}"
                task = {"description": description, "sources": sources, "before": before, "after": after}
                tasks.append(about | task | {"ts_first": ordered[low].ts_first})
        return sorted(tasks, key=lambda task: task["ts_first"])

    def _is_wanted(self, segment: Segment, about: dict[str, Any], since: Edge | None) -> bool:
        is_fresh = segment.survey["digest"] in self.fresh
        return is_fresh or since is None or (about["role"] == "snapshot" and segment.ts_last >= since.ts_recv)


def _identity(segment: Segment) -> tuple[str, int, Group]:
    return segment.survey["digest"], segment.split, segment.group


def _span_task(
    epoch: int, span: tuple[int, int], known: list[list[int]], sources: list[dict[str, Any]]
) -> dict[str, Any]:
    return {"role": "incremental", "epoch": epoch, "span": list(span), "known": known, "sources": sources, "cut": ""}


def _whole(segments: Iterable[Segment]) -> list[Segment]:
    """One segment for each split: a loop may have a numbering of its own every time."""
    found: dict[tuple[str, int, Group], Segment] = {}
    for part in segments:
        old = found.get(_identity(part), part)
        times = {"ts_first": min(old.ts_first, part.ts_first), "ts_last": max(old.ts_last, part.ts_last)}
        found[_identity(part)] = part._replace(packets=part.packets + (old.packets if old is not part else 0), **times)
    return list(found.values())


def _is_of(source: dict[str, Any], segment: Segment) -> bool:
    offset = segment.survey["splits"][segment.split]["offset"]
    mine = segment.survey["digest"], offset, list(segment.group)
    return (source["digest"], source["split"]["offset"], source["flow"]) == mine


def _reaches(segment: Segment, first: int, last: int) -> bool:
    return segment.last >= first - OVERLAP and segment.first <= last + OVERLAP


def _is_now(segment: Segment, planned: ChannelDay) -> bool:
    """Whether a segment without numbers belongs to the part of the day that is planned."""
    is_done = planned.since is not None and segment.ts_first <= planned.since.ts_rest
    return not is_done and (planned.until is None or segment.ts_first <= planned.until.ts_rest)


def _enough(sizes: Sequence[int]) -> int:
    """How many of them have `AROUND_PACKETS`."""
    found = total = 0
    while found < len(sizes) and total < AROUND_PACKETS:
        found, total = found + 1, total + sizes[found]
    return found


def _packed(sizes: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Neighbours together, as many as fit."""
    groups, first, size = [], 0, 0
    for number, each in enumerate(sizes):
        if number > first and size + each > most:
            groups.append((first, number))
            first, size = number, 0
        size += each
    return [*groups, (first, len(sizes))] if len(sizes) else []


def _resets(
    surveys: Iterable[dict[str, Any]], places: Mapping[Group, Place]
) -> dict[Group, tuple[tuple[int, int], ...]]:
    """FAST: when each group's numbering began anew. A line that lost the reset has it when the others had."""
    seen: dict[int, dict[int, dict[Group, int]]] = defaultdict(lambda: defaultdict(dict))  # channel, epoch, group
    for survey in surveys:
        for flow, ts_recv, ts_send in survey.get("resets", []):
            group: Group = tuple(survey["flows"][flow])  # type: ignore[assignment]
            place = places.get(group)
            if place and place.role == "incremental":
                of_epoch = seen[place.channel][ts_send]
                of_epoch[group] = min(of_epoch.get(group, ts_recv), ts_recv)
    found: dict[Group, list[tuple[int, int]]] = defaultdict(list)
    for group, place in places.items():
        if place.role == "incremental":
            for epoch, times in seen[place.channel].items():
                found[group].append((times.get(group, min(times.values())), epoch))
    return {group: tuple(sorted(times)) for group, times in found.items()}


def _rest(
    segments: Mapping[int, list[Segment]], places: Mapping[Group, Place]
) -> dict[tuple[str, int, Group, int], tuple[int | None, int]]:
    """For each split, incremental group and date, the segment whose task accounts for what has no number."""
    first: dict[tuple[str, int, Group, int], Segment] = {}
    for part in (segment for found in segments.values() for segment in found):
        if places[part.group].role == "incremental":
            key = (*_identity(part), part.date)
            best = first.get(key)
            if best is None or (part.first == NULL, part.ts_first) < (best.first == NULL, best.ts_first):
                first[key] = part
    return {key: (part.epoch, part.first) for key, part in first.items()}
