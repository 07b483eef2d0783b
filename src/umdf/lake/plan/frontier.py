"""How far a channel-day can go while more files arrive: the frontier.

Everything before the frontier is final, so the frontier passes only what no later file is expected to change: every
line must have passed that sequence, and the snapshot stream must have been read up to the same time, because a
snapshot takes effect at the sequence it holds (369), not where it arrived. A multicast group that has been silent for
longer than `line_timeout_ns`, and for longer than its next file can take to be closed, is not waited for. If data
arrives for a position before the frontier, the day is rebuilt.

Invariant: a frontier is a sequence that was received. So no gap is ever split.
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
from umdf.lake.commit.lake_snapshot import LakeSnapshot
from umdf.lake.parquet.file_reader import read_file
from umdf.lake.plan.planner import DAY_START, ChannelDay, DayPosition, Planner
from umdf.lake.plan.segments import ChannelDayKey, MulticastGroup, date_of
from umdf.market.families import NULL

STATE_FORMAT = 2
SECOND_NS = 10**9
MAX_LATE_HALVES = 3  # in halves of a file's duration: the next file may take a little longer
_LENGTH_BYTES = 8


@dataclass(frozen=True)
class FollowSettings:
    """How a growing recording is followed."""

    snapshot_delay_ns: int = SECOND_NS  # longest delay of a snapshot after the last update it holds
    line_timeout_ns: int = 120 * SECOND_NS  # a multicast group that is silent for longer is not waited for
    finish: bool = False  # no more files will come: process everything


@dataclass
class ChannelState:
    """State of an unfinished channel-day; together with `book_state`, all that the next run needs."""

    done: DayPosition
    gaps: list[dict[str, int]] = field(default_factory=list)  # fields of umdf.lake.plan.gap_timeline.Gap
    # Gap records of the books (umdf.lake.books.gap_recovery).
    gap_records: list[dict[str, Any]] = field(default_factory=list)
    # {"stream", "line", …}, to be merged with that of the next part.
    quality: list[dict[str, Any]] = field(default_factory=list)
    # The last definition of each instrument (umdf.lake.tasks.unchanged_definitions).
    listed: dict[str, int] = field(default_factory=dict)
    states: dict[str, Any] = field(default_factory=dict)  # see umdf.lake.tasks.last_states
    open: dict[str, list[str]] = field(default_factory=dict)  # by table: files that the next part replaces
    tables: list[str] = field(default_factory=list)  # tables that have the day so far
    ts_sent: int = NULL  # when the last unit was sent
    patience: int = 1  # learned: factor by which waiting times are extended
    definitions: list[dict[str, Any]] = field(default_factory=list)  # staged files of every definition so far
    content: bytes = b""  # content of those files

    @classmethod
    def from_staged(cls, staged: Iterable[dict[str, Any]], **fields: Any) -> ChannelState:
        parts = [(staged_file, Path(staged_file["path"]).read_bytes()) for staged_file in staged]
        files = [{"rows": staged_file["rows"], "bytes": len(content)} for staged_file, content in parts]
        return cls(**fields, definitions=files, content=b"".join(content for _, content in parts))

    def write_staged(self, directory: Path) -> list[dict[str, Any]]:
        """Write the definitions to staged files again."""
        directory.mkdir(parents=True, exist_ok=True)
        found, at = [], 0
        for staged_file in self.definitions:
            path = directory / f"definitions-{uuid.uuid4().hex}.arrow"
            path.write_bytes(self.content[at : at + staged_file["bytes"]])
            found.append({"family": "definition", "path": str(path), "rows": staged_file["rows"]})
            at += staged_file["bytes"]
        return found

    def to_bytes(self) -> bytes:
        fields = {name: value for name, value in vars(self).items() if name != "content"}
        return join_content(fields, self.content)

    @classmethod
    def from_bytes(cls, content: bytes, format_: int) -> ChannelState:
        if format_ != STATE_FORMAT:
            raise UmdfError(
                "the stored stream state has another format version", "rebuild the day with `umdf lake rebuild LAKE`"
            )
        fields, staged = split_content(content)
        fields["done"] = DayPosition(*fields["done"])
        return cls(**fields, content=staged)


def join_content(fields: dict[str, Any], staged: bytes) -> bytes:
    """The `content` of a row of `channel_state`: the fields of the state, then its staged files."""
    head = zlib.compress(json.dumps(fields).encode(), 1)
    return len(head).to_bytes(_LENGTH_BYTES, "little") + head + staged


def split_content(content: bytes) -> tuple[dict[str, Any], bytes]:
    length = int.from_bytes(content[:_LENGTH_BYTES], "little")
    fields = json.loads(zlib.decompress(content[_LENGTH_BYTES : _LENGTH_BYTES + length]))
    return fields, bytes(content[_LENGTH_BYTES + length :])


def open_days(snapshot: LakeSnapshot) -> dict[ChannelDayKey, ChannelState]:
    """The unfinished days of a stream. Files have one row each: reading them directly is ten times as fast."""
    found = {}
    for add in snapshot.adds("channel_state"):
        day = date.fromisoformat(add.partition["trading_date"] or "")
        key = int(add.partition["channel_id"] or 0), (day - date_of(0)).days
        path = snapshot.paths.table("channel_state") / add.path
        [row] = read_file(path, ["format", "content"]).to_pylist()
        found[key] = ChannelState.from_bytes(row["content"], row["format"])
    return found


class ReadProgress:
    """When the closed files of each multicast group end, and how long they are. A file has all packets of its groups up
    to its end."""

    def __init__(self, surveys: Iterable[dict[str, Any]]) -> None:
        self._last_ts: dict[MulticastGroup, int] = {}
        self._longest_file_ns: dict[MulticastGroup, int] = {}
        for survey in surveys:
            segments = [segment for split in survey.get("splits", []) for segment in split["segments"]]
            begins = min((segment[7] for segment in segments), default=NULL)
            ends = max((segment[8] for segment in segments), default=NULL)
            for flow in {segment[0] for segment in segments}:
                group: MulticastGroup = tuple(survey["flows"][flow])  # type: ignore[assignment]
                self._last_ts[group] = max(self._last_ts.get(group, NULL), ends)
                self._longest_file_ns[group] = max(self._longest_file_ns.get(group, 0), ends - begins)

    def active_groups(self, groups: Iterable[MulticastGroup], line_timeout_ns: int) -> dict[MulticastGroup, int]:
        """The multicast groups that are not silent, and the time up to which they were read."""
        known = {group: self._last_ts[group] for group in groups if group in self._last_ts}
        newest = max(known.values(), default=NULL)
        waits = {group: max(line_timeout_ns, MAX_LATE_HALVES * self._longest_file_ns[group] // 2) for group in known}
        return {group: last for group, last in known.items() if last >= newest - waits[group]}


@dataclass(frozen=True)
class Frontier:
    position: DayPosition | None
    is_over: bool  # no more data of this day will arrive

    def target(self, state: ChannelState | None) -> DayPosition | None:
        """How far the day is processed now: never backwards, and to the end if it is over."""
        if self.is_over:
            return None
        done = state.done if state else DayPosition(*DAY_START)
        return self.position if self.position is not None and self.position[:2] > done[:2] else done


def has_late_input(planner: Planner, day: ChannelDay, state: ChannelState) -> bool:
    """Whether a new file has data before the frontier."""
    ranks = {epoch: rank for rank, (epoch, _, _) in enumerate(day.epochs)}
    done = state.done
    if done.rank >= 0 and ranks.get(done.epoch) != done.rank:  # an unknown epoch precedes it
        return True
    groups = planner.groups(day.channel, "incremental", "snapshot", "instruments")
    if any(planner.files.precedes_known(group, planner.new_digests) for group in groups):
        return True
    first = day.epochs[0][1] if day.epochs else 1
    if done.rank >= 0 and first > 1 and not any(gap["last"] < first for gap in state.gaps):
        return True  # a version before layout 3 began the day, and did not judge that it is joined
    for part in planner.segments(day, "incremental"):
        if part.survey["digest"] not in planner.new_digests:
            continue
        if part.first == NULL:  # heartbeats, or unreadable packets
            if part.ts_first <= done.ts_unnumbered:
                return True
            continue
        lowest = min(ranks[epoch] for epoch in planner.epochs_of(part))
        if lowest < done.rank or (lowest == done.rank and part.first <= done.number):
            return True
    instrument_segments = planner.segments(day, "instruments")  # they are ordered: an older one cannot be inserted
    old = [part.ts_last for part in instrument_segments if part.survey["digest"] not in planner.new_digests]
    return any(
        part.ts_first < max(old) for part in instrument_segments if old and part.survey["digest"] in planner.new_digests
    )


def find_frontier(
    planner: Planner, day: ChannelDay, progress: ReadProgress, follow: FollowSettings, patience: int
) -> Frontier:
    """The frontier of a day, given what was read."""
    segments = planner.segments(day, "incremental")
    if follow.finish:
        return Frontier(_epoch_end(planner, day, len(day.epochs) - 1), is_over=True)
    groups = planner.groups(day.channel, "incremental", "snapshot")
    active = progress.active_groups(groups, follow.line_timeout_ns * patience)
    until_ns = min(active.values(), default=NULL) - follow.snapshot_delay_ns * patience
    groups_past_day = {part.group for part in planner.later_segments(day)}
    lines = {group for group in planner.groups(day.channel, "incremental") if group in active}
    lines -= {group for date_, group in planner.lines_set_aside if date_ == day.date}
    found: DayPosition | None = None
    for rank, (epoch, _, last) in enumerate(day.epochs):
        epoch_segments = [part for part in segments if part.first != NULL and epoch in planner.epochs_of(part)]
        later = {each for each, _, _ in day.epochs[rank + 1 :]}
        finished_groups = groups_past_day | {part.group for part in segments if later & set(planner.epochs_of(part))}
        reached = dict.fromkeys(lines - finished_groups, NULL)
        for part in epoch_segments:
            if part.group in reached:
                reached[part.group] = max(reached[part.group], part.last)
        if not reached and all(part.ts_last <= until_ns for part in epoch_segments):
            found = _epoch_end(planner, day, rank)
            continue
        last_sequence = min(reached.values(), default=last)
        marks = [
            (number, ts)
            for part in epoch_segments
            for number, ts in part.marks
            if number <= last_sequence and ts <= until_ns
        ]
        if marks:
            number, ts = max(marks)
            found = DayPosition(rank, number, epoch, ts, ts)
        break
    all_segments = planner.segments(day, "incremental", "snapshot", "instruments")
    is_over = lines <= groups_past_day and all(part.ts_last <= until_ns for part in all_segments)
    return Frontier(found, is_over)


def _epoch_end(planner: Planner, day: ChannelDay, rank: int) -> DayPosition | None:
    if rank < 0:
        return None
    epoch, _, last = day.epochs[rank]
    parts = [part for part in planner.segments(day, "incremental") if epoch in planner.epochs_of(part)]
    ts = max(part.ts_last for part in parts)
    return DayPosition(rank, last, epoch, ts, ts)
