"""The steps of an ingest for some channel-days, or for the next part of each: decode, channel, books.

The one rule: a part of a day is appended only if nothing of it stands behind the frontier. That shows only while it is
made (a snapshot of an earlier number, another symbol); such a day is left out here and made again as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from umdf.lake import channel_task
from umdf.lake.day_parts import DayParts
from umdf.lake.decode_task import AT_AN_EVENT, MAY_WAIT
from umdf.lake.file_reader import read_file
from umdf.lake.files import Stamp
from umdf.lake.frontier import ChannelState
from umdf.lake.plan import NOWHERE, ChannelDay, Edge
from umdf.lake.segments import Day
from umdf.lake.snapshot_rows import ranks_of
from umdf.lake.timeline import gaps_of
from umdf.market.events import NULL

BOOK_TABLES = (
    "mbo", "trades", "statistics", "mbp_1", "mbp_10", "tbbo", "bbo_1s", "bbo_1m", "ohlcv_1s", "ohlcv_1m", "ohlcv_1h",
    "ohlcv_1d", "book_check", "day_statistics", "book_state",
)  # fmt: skip
TABLES = (*BOOK_TABLES, *channel_task.TABLES, "packets", "quarantine", "gaps", "quality")
Step = Callable[[Sequence[dict[str, Any]], str, str], list[dict[str, Any]]]  # tasks, function, description


@dataclass(frozen=True)
class Shop:
    """What all tasks are told, and how they are run."""

    root: Path
    stamp: Stamp
    work: Path
    step: Step
    rows_a_task: int
    parallel: int
    spare: Path | None = None  # of files that may be written over

    @property
    def common(self) -> dict[str, Any]:
        stamp = [self.stamp.commit, self.stamp.token]
        spare = None if self.spare is None else str(self.spare)
        return {"root": str(self.root), "stamp": stamp, "directory": str(self.work / "staged"), "spare": spare}


def make_days(
    shop: Shop, days: Sequence[ChannelDay], states: Mapping[Day, ChannelState], wanted: Mapping[Day, list[str]]
) -> tuple[list[DayParts], list[Day]]:
    """What was made, and the days that have to be made again. `states` are those that days go on from."""

    def of(day: ChannelDay) -> dict[str, Any]:
        about = {"channel_id": day.channel, "protocol": day.protocol, "trading_date": day.date}
        # The files of a day that goes on are joined when it is over: until then they need not be small.
        return shop.common | about | {"tables": wanted[day.key], "packed": day.until is None}

    for day in days:
        if day.until is not None and day.decode:
            day.decode[-1]["cut"] = MAY_WAIT if len(day.decode) == 1 else AT_AN_EVENT
    tasks = [of(day) | task for day in days for task in (*day.decode, *day.loops)]
    decoded = shop.step(tasks, "umdf.lake.decode_task:run", "decode")
    parts = []
    for day in days:
        mine = [each for each in decoded if (each["channel_id"], each["trading_date"]) == day.key]
        parts.append(DayParts(day, mine, states.get(day.key)))
    late = [each for each in parts if has_late_snapshots(each)]
    parts = [each for each in parts if each not in late]
    for each in parts:
        _settle(each)
    channel = shop.step(
        [of(each.day) | each.channel_task(shop.work) for each in parts], "umdf.lake.channel_task:run", "channel"
    )
    renamed = []
    for each, said in zip(list(parts), channel, strict=True):
        each.take_channel(said)
        if said["renamed"] and each.before and _have_rows(shop, each.before, said["renamed"]):
            renamed.append(each)
            parts.remove(each)
    book_tasks = []
    for each in parts:
        each.gaps += gaps_of(each.day, each.spans, each.before.ts_sent if each.before else NULL)
        needed = BOOK_TABLES if not each.gaps else (*BOOK_TABLES, "gaps")  # the books know what became of them
        if each.is_moving and any(name in needed for name in wanted[each.day.key]):
            packs = each.packs(shop.rows_a_task, shop.parallel)
            book_tasks += [of(each.day) | task for task in each.book_tasks(packs, _paths(shop, each.before))]
    book_tasks.sort(key=lambda task: -task["rows"])  # the longest first, so that none is left for the end
    by_day = {each.day.key: each for each in parts}
    for answer, task in zip(shop.step(book_tasks, "umdf.lake.books_task:run", "books"), book_tasks, strict=True):
        by_day[task["channel_id"], task["trading_date"]].take_books(answer, task["rows"])
    late += [each for each in parts if each.is_late and each.before]
    return [each for each in parts if each not in late], [each.day.key for each in (*late, *renamed)]


def has_late_snapshots(parts: DayParts) -> bool:
    """Whether a snapshot came that holds nothing behind what is done already: it would have been used there."""
    since = parts.day.since
    held = [place for manifest in parts.loops for place in manifest.get("held", ())]
    if since is None or since.rank < 0 or not held:
        return False
    version, last, came = np.array(held, np.int64).T
    versions = [epoch for epoch, _, _ in parts.day.epochs]
    rank = ranks_of(version, came, versions, np.array(parts.day.begun, np.int64))
    return bool(((rank >= 0) & ((rank < since.rank) | ((rank == since.rank) & (last <= since.number)))).any())


def _settle(parts: DayParts) -> None:
    """The last task has found out where an event ends: that is how far this part goes."""
    day = parts.day
    if day.until is None or not parts.spans:
        return
    span = parts.spans[-1]
    epoch, number = span["epoch"], span["span"][1]
    rank = day.until.rank
    if span["ts_last"] is not None:
        day.until = Edge(rank, number, epoch, span["ts_last"], day.until.ts_rest)
    else:
        day.until = (day.since or Edge(*NOWHERE))._replace(ts_rest=day.until.ts_rest)
    day.epochs[rank] = (epoch, day.epochs[rank][1], number)


def _paths(shop: Shop, before: ChannelState | None) -> list[str]:
    return [str(shop.root / "book_state" / path) for path in before.open.get("book_state", [])] if before else []


def _have_rows(shop: Shop, before: ChannelState, ids: Sequence[int]) -> bool:
    """Whether the tables have something of these instruments, with what they were called before."""
    known = [read_file(path, ["instrument_id"]) for path in _paths(shop, before)]
    return any(bool(np.isin(rows.column("instrument_id").to_numpy(), ids).any()) for rows in known)
