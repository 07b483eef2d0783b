"""The steps of an ingest for some channel-days, or for the next part of each: decode, channel, books.

Invariant: a part of a day is appended only if all of it is after the frontier. Some violations show only while the
part is built (a snapshot of an earlier sequence, another symbol); such a day is skipped here and rebuilt completely.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.lake.books.snapshot_rows import EpochStarts, are_before, epoch_ranks
from umdf.lake.parquet.data_files import FileStamp
from umdf.lake.parquet.file_reader import read_file
from umdf.lake.plan.contradicting_files import InputFile, refuse_contradictions
from umdf.lake.plan.day_results import DayResults
from umdf.lake.plan.frontier import ChannelState
from umdf.lake.plan.gap_timeline import find_gaps
from umdf.lake.plan.planner import DAY_START, TASK_SOURCES, ChannelDay, DayPosition
from umdf.lake.plan.segments import ChannelDayKey
from umdf.lake.tasks import channel_task
from umdf.lake.tasks.damaged_headers import MAX_OVERTAKING
from umdf.lake.tasks.decode_task import CUT_MAY_BE_EMPTY, CUT_NEVER_EMPTY
from umdf.market.families import NULL

BOOK_TABLES = (
    "mbo", "trades", "statistics", "mbp_1", "mbp_10", "tbbo", "bbo_1s", "bbo_1m", "ohlcv_1s", "ohlcv_1m", "ohlcv_1h",
    "ohlcv_1d", "book_check", "day_statistics", "book_state",
)  # fmt: skip
TABLES = (*BOOK_TABLES, *channel_task.TABLES, "packets", "quarantine", "gaps", "quality")
Numbers = NDArray[np.int64]
RunStep = Callable[[Sequence[dict[str, Any]], str, str], list[dict[str, Any]]]  # tasks, function, description


@dataclass(frozen=True)
class TaskContext:
    """The arguments of all tasks, and how they are run."""

    root: Path
    stamp: FileStamp
    work: Path
    run_step: RunStep
    rows_per_task: int
    parallel: int
    inputs: Mapping[str, InputFile]  # by digest
    file_pool: Path | None = None  # files that may be overwritten

    @property
    def common_arguments(self) -> dict[str, Any]:
        stamp = [self.stamp.commit, self.stamp.token]
        file_pool = None if self.file_pool is None else str(self.file_pool)
        return {"root": str(self.root), "stamp": stamp, "directory": str(self.work / "staged"), "file_pool": file_pool}


def build_days(
    context: TaskContext,
    days: Sequence[ChannelDay],
    states: Mapping[ChannelDayKey, ChannelState],
    tables_by_day: Mapping[ChannelDayKey, list[str]],
) -> tuple[list[DayResults], list[ChannelDayKey]]:
    """The results, and the days that must be rebuilt. `states` are the states from which days continue."""

    def arguments(day: ChannelDay) -> dict[str, Any]:
        day_arguments = {"channel_id": day.channel, "protocol": day.protocol, "trading_date": day.date}
        # The files of an unfinished day are compacted when it is complete: until then they need not be small.
        return (
            context.common_arguments
            | day_arguments
            | {"tables": tables_by_day[day.key], "is_compressed": day.until is None}
        )

    for day in days:
        if day.until is not None and day.decode_tasks:
            day.decode_tasks[-1]["cut"] = CUT_MAY_BE_EMPTY if len(day.decode_tasks) == 1 else CUT_NEVER_EMPTY
    tasks = [arguments(day) | task for day in days for task in (*day.decode_tasks, *day.looping_tasks)]
    decoded = context.run_step(tasks, "umdf.lake.tasks.decode_task:run", "decode")
    notices = refuse_contradictions(decoded, context.inputs, context.root)
    results = []
    for day in days:
        day_results = [each for each in decoded if (each["channel_id"], each["trading_date"]) == day.key]
        results.append(DayResults(day, day_results, states.get(day.key)))
        results[-1].notices.update(notices.get(day.key, ()))
    late = [each for each in results if has_late_snapshots(each)]
    results = [each for each in results if each not in late]
    for each in results:
        _set_day_end(each)
        each.gaps += find_gaps(each.day, each.span_results, each.before.ts_sent if each.before else NULL)
    channel = context.run_step(
        [arguments(each.day) | each.channel_task(context.work) for each in results],
        "umdf.lake.tasks.channel_task:run",
        "channel",
    )
    with_changed_instruments = []
    for each, channel_result in zip(list(results), channel, strict=True):
        each.add_channel_result(channel_result)
        if (
            channel_result["renamed"]
            and each.before
            and _have_state_rows(context, each.before, channel_result["renamed"])
        ):
            with_changed_instruments.append(each)
            results.remove(each)
    book_tasks = []
    for each in results:
        needed = BOOK_TABLES if not each.gaps else (*BOOK_TABLES, "gaps")  # books know how gaps were recovered
        if each.has_new_rows and any(name in needed for name in tables_by_day[each.day.key]):
            packs = each.packs(context.rows_per_task, context.parallel)
            book_tasks += [
                arguments(each.day) | task for task in each.book_tasks(packs, _state_paths(context, each.before))
            ]
    book_tasks.sort(key=lambda task: -task["rows"])  # the longest first, so that no core waits for it at the end
    by_day = {each.day.key: each for each in results}
    for books_result, task in zip(
        context.run_step(book_tasks, "umdf.lake.tasks.books_task:run", "books"), book_tasks, strict=True
    ):
        by_day[task["channel_id"], task["trading_date"]].add_books_result(books_result, task["rows"])
    late += [each for each in results if each.is_late and each.before]
    return [each for each in results if each not in late], [each.day.key for each in (*late, *with_changed_instruments)]


def digests_read(days: Sequence[ChannelDay]) -> set[str]:
    """Digests of the files that the tasks of these days read."""
    tasks = [task for day in days for task in (*day.decode_tasks, *day.looping_tasks)]
    sources = [source for task in tasks for name in TASK_SOURCES for source in task.get(name, ())]
    return {each["digest"] for source in sources for each in (source, *source["earlier"])}


def has_late_snapshots(results: DayResults) -> bool:
    """Whether a snapshot arrived that belongs to the finished part of the day, where it would have been used."""
    since = results.day.since
    held = [held_snapshot for result in results.looping_results for held_snapshot in result.get("held", ())]
    if since is None or since.rank < 0 or not held:
        return False
    version, last, ts_recv = np.array(held, np.int64).T
    rank = _ranks(results.day, version, last, ts_recv)
    return bool(((rank >= 0) & are_before(rank, last, ts_recv, (since.rank, since.number, since.ts_recv))).any())


def _ranks(day: ChannelDay, version: Numbers, last: Numbers, ts_recv: Numbers) -> NDArray[np.int32]:
    versions, firsts, _ = zip(*day.epochs, strict=True) if day.epochs else ((), (), ())
    return epoch_ranks(version, last, ts_recv, versions, EpochStarts(day.epoch_starts, firsts))


def _set_day_end(results: DayResults) -> None:
    """End this part of the day at the last end of an event, which the last task has found. A whole day ends with the
    last sequence of a snapshot, if the incremental stream was not recorded as long: the rest is missing."""
    day = results.day
    if day.until is None and day.epochs:
        epoch, first, last = day.epochs[-1]
        day.epochs[-1] = epoch, first, max(last, _last_of_snapshots(results))
    if day.until is None or not results.span_results:
        return
    span = results.span_results[-1]
    epoch, number = span["epoch"], span["span"][1]
    rank = day.until.rank
    if span["ts_last"] is not None:
        day.until = DayPosition(rank, number, epoch, span["ts_last"], day.until.ts_unnumbered)
    else:
        day.until = (day.since or DayPosition(*DAY_START))._replace(ts_unnumbered=day.until.ts_unnumbered)
    day.epochs[rank] = (epoch, day.epochs[rank][1], number)


def _last_of_snapshots(results: DayResults) -> int:
    """The last sequence that snapshots of the day's last epoch have; one that is far ahead of the others is damaged."""
    day = results.day
    newest = [snapshot for result in results.looping_results for snapshot in result.get("newest", ())]
    if not newest:
        return NULL
    version, last, ts_recv = np.array(newest, np.int64).T
    known = sorted(last[_ranks(day, version, last, ts_recv) == len(day.epochs) - 1].tolist())
    believed = [each for before, each in pairwise([day.epochs[-1][2], *known]) if each <= before + MAX_OVERTAKING]
    return max(believed, default=NULL)


def _state_paths(context: TaskContext, state: ChannelState | None) -> list[str]:
    return [str(context.root / "book_state" / path) for path in state.open.get("book_state", [])] if state else []


def _have_state_rows(context: TaskContext, state: ChannelState, ids: Sequence[int]) -> bool:
    """Whether earlier parts of the day have books of these instruments, under their previous symbols."""
    known = [read_file(path, ["instrument_id"]) for path in _state_paths(context, state)]
    return any(bool(np.isin(rows.column("instrument_id").to_numpy(), ids).any()) for rows in known)
