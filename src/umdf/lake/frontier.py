"""How far a channel-day can go while files still come: the frontier.

What is behind the frontier is final, so it may only pass what no file still to come is expected to change: a number
must have gone by on every line, and what was received at that time on the snapshot stream must be there, too, because
a snapshot takes effect at the number that it holds (369), not where it arrived. A group that has been silent for longer
than `wait_ns`, and for longer than its next file can take to be closed, is not waited for. Should something come for a
place behind the frontier, the day is made again.

The one rule: a frontier is a number that was seen. So no gap is ever cut in two.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from umdf.errors import UmdfError
from umdf.lake.file_reader import read_file
from umdf.lake.plan import NOWHERE, ChannelDay, Edge, Planner
from umdf.lake.segments import Day, Group, date_of
from umdf.lake.snapshot import Snapshot
from umdf.market.events import NULL

FORMAT = 2
SECOND_NS = 10**9
ROLLS = 3  # halves of a file's length: the next one may take a little longer
_LENGTH = 8


@dataclass(frozen=True)
class Follow:
    """How a growing recording is followed."""

    hold_ns: int = SECOND_NS  # a snapshot may come so long after the last update that it holds
    wait_ns: int = 120 * SECOND_NS  # a group that is silent for longer is not waited for
    finish: bool = False  # no more files will come: take everything


@dataclass
class ChannelState:
    """What is known of a channel-day that is not over; with `book_state` all that the next run needs."""

    done: Edge
    gaps: list[dict[str, int]] = field(default_factory=list)  # of umdf.lake.timeline.Gap
    answers: list[dict[str, Any]] = field(default_factory=list)  # what the books said of them (umdf.lake.gap_cures)
    quality: list[dict[str, Any]] = field(default_factory=list)  # {"stream", "line", …} that more can be added to
    listed: dict[str, int] = field(default_factory=dict)  # the last definition of each instrument (umdf.lake.repeats)
    states: dict[str, Any] = field(default_factory=dict)  # of umdf.lake.last_states
    open: dict[str, list[str]] = field(default_factory=dict)  # by table: files that the next part replaces
    tables: list[str] = field(default_factory=list)  # that have the day so far
    ts_sent: int = NULL  # when the last number was sent
    patience: int = 1  # learned: by how much longer than planned the others have to be waited for
    definitions: list[dict[str, Any]] = field(default_factory=list)  # staged files of every definition so far
    content: bytes = b""  # of those files

    @classmethod
    def of(cls, staged: Iterable[dict[str, Any]], **about: Any) -> ChannelState:
        parts = [(said, Path(said["path"]).read_bytes()) for said in staged]
        files = [{"rows": said["rows"], "bytes": len(content)} for said, content in parts]
        return cls(**about, definitions=files, content=b"".join(content for _, content in parts))

    def staged(self, directory: Path) -> list[dict[str, Any]]:
        """The definitions as staged files again."""
        directory.mkdir(parents=True, exist_ok=True)
        found, at = [], 0
        for said in self.definitions:
            path = directory / f"definitions-{uuid.uuid4().hex}.arrow"
            path.write_bytes(self.content[at : at + said["bytes"]])
            found.append({"family": "definition", "path": str(path), "rows": said["rows"]})
            at += said["bytes"]
        return found

    def to_bytes(self) -> bytes:
        said = {name: value for name, value in vars(self).items() if name != "content"}
        head = zlib.compress(json.dumps(said).encode(), 1)
        return len(head).to_bytes(_LENGTH, "little") + head + self.content

    @classmethod
    def from_bytes(cls, content: bytes, format_: int) -> ChannelState:
        if format_ != FORMAT:
            raise UmdfError("the lake holds the state of a stream of another version", "`umdf lake reprocess` the day")
        length = int.from_bytes(content[:_LENGTH], "little")
        said = json.loads(zlib.decompress(content[_LENGTH : _LENGTH + length]))
        said["done"] = Edge(*said["done"])
        return cls(**said, content=bytes(content[_LENGTH + length :]))


def open_days(snapshot: Snapshot) -> dict[Day, ChannelState]:
    """The days that a stream has begun. One row a file: read as they are, a dataset takes ten times as long."""
    found = {}
    for add in snapshot.adds("channel_state"):
        day = date.fromisoformat(add.partition["trading_date"] or "")
        key = int(add.partition["channel_id"] or 0), (day - date_of(0)).days
        path = snapshot.home.table("channel_state") / add.path
        [row] = read_file(path, ["format", "content"]).to_pylist()
        found[key] = ChannelState.from_bytes(row["content"], row["format"])
    return found


class Reach:
    """When the closed files of each group end, and how long they are. A file holds all that its groups had until its
    end."""

    def __init__(self, surveys: Iterable[dict[str, Any]]) -> None:
        self._last: dict[Group, int] = {}
        self._longest: dict[Group, int] = {}
        for survey in surveys:
            segments = [segment for split in survey.get("splits", []) for segment in split["segments"]]
            begins = min((segment[7] for segment in segments), default=NULL)
            ends = max((segment[8] for segment in segments), default=NULL)
            for flow in {segment[0] for segment in segments}:
                group: Group = tuple(survey["flows"][flow])  # type: ignore[assignment]
                self._last[group] = max(self._last.get(group, NULL), ends)
                self._longest[group] = max(self._longest.get(group, 0), ends - begins)

    def live(self, groups: Iterable[Group], wait_ns: int) -> dict[Group, int]:
        """The groups that are not silent, and up to when they have been read."""
        known = {group: self._last[group] for group in groups if group in self._last}
        newest = max(known.values(), default=NULL)
        waits = {group: max(wait_ns, ROLLS * self._longest[group] // 2) for group in known}
        return {group: last for group, last in known.items() if last >= newest - waits[group]}


@dataclass(frozen=True)
class Frontier:
    edge: Edge | None
    is_over: bool  # nothing more of this day will come

    def until(self, before: ChannelState | None) -> Edge | None:
        """How far the day goes now: never back, and to the end if it is over."""
        if self.is_over:
            return None
        done = before.done if before else Edge(*NOWHERE)
        return self.edge if self.edge is not None and self.edge[:2] > done[:2] else done


def is_behind(planner: Planner, day: ChannelDay, before: ChannelState) -> bool:
    """Whether a new file has something for a place that is done."""
    ranks = {epoch: rank for rank, (epoch, _, _) in enumerate(day.epochs)}
    done = before.done
    if done.rank >= 0 and ranks.get(done.epoch) != done.rank:  # a numbering that was not known has come before it
        return True
    for part in planner.segments(day, "incremental"):
        if part.survey["digest"] not in planner.fresh:
            continue
        if part.first == NULL:  # heartbeats, or what cannot be read
            if part.ts_first <= done.ts_rest:
                return True
            continue
        lowest = min(ranks[epoch] for epoch in planner.epochs_of(part))
        if lowest < done.rank or (lowest == done.rank and part.first <= done.number):
            return True
    listed = planner.segments(day, "instruments")  # in their order: an older one cannot be put before
    old = [part.ts_last for part in listed if part.survey["digest"] not in planner.fresh]
    return any(part.ts_first < max(old) for part in listed if old and part.survey["digest"] in planner.fresh)


def frontier(planner: Planner, day: ChannelDay, reach: Reach, follow: Follow, patience: int) -> Frontier:
    """The furthest that a day can go."""
    segments = planner.segments(day, "incremental")
    if follow.finish:
        return Frontier(_end(planner, day, len(day.epochs) - 1), is_over=True)
    groups = planner.groups(day.channel, "incremental", "snapshot")
    live = reach.live(groups, follow.wait_ns * patience)
    until_ns = min(live.values(), default=NULL) - follow.hold_ns * patience
    passed = {part.group for part in planner.later(day)}
    lines = {group for group in planner.groups(day.channel, "incremental") if group in live}
    found: Edge | None = None
    for rank, (epoch, _, last) in enumerate(day.epochs):
        mine = [part for part in segments if part.first != NULL and epoch in planner.epochs_of(part)]
        later = {each for each, _, _ in day.epochs[rank + 1 :]}
        over = passed | {part.group for part in segments if later & set(planner.epochs_of(part))}
        reached = dict.fromkeys(lines - over, NULL)
        for part in mine:
            if part.group in reached:
                reached[part.group] = max(reached[part.group], part.last)
        if not reached and all(part.ts_last <= until_ns for part in mine):
            found = _end(planner, day, rank)
            continue
        most = min(reached.values(), default=last)
        marks = [(number, ts) for part in mine for number, ts in part.marks if number <= most and ts <= until_ns]
        if marks:
            number, ts = max(marks)
            found = Edge(rank, number, epoch, ts, ts)
        break
    every = planner.segments(day, "incremental", "snapshot", "instruments")
    is_over = lines <= passed and all(part.ts_last <= until_ns for part in every)
    return Frontier(found, is_over)


def _end(planner: Planner, day: ChannelDay, rank: int) -> Edge | None:
    if rank < 0:
        return None
    epoch, _, last = day.epochs[rank]
    parts = [part for part in planner.segments(day, "incremental") if epoch in planner.epochs_of(part)]
    ts = max(part.ts_last for part in parts)
    return Edge(rank, last, epoch, ts, ts)
