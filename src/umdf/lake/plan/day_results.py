"""Results of the tasks of one channel-day so far, and the arguments of the next tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from umdf.lake.books.snapshot_rows import DaySpan
from umdf.lake.parquet.data_files import FileAdd
from umdf.lake.plan.frontier import ChannelState
from umdf.lake.plan.gap_timeline import Gap, books_timeline
from umdf.lake.plan.planner import ChannelDay
from umdf.lake.plan.segments import date_of
from umdf.lake.tasks.last_states import SEQUENCE_BITS
from umdf.lake.tasks.staging import BUCKETS
from umdf.market.families import NULL

MIN_ROWS_PER_TASK = 50_000  # rows of `mbo` per books task
TARGET_ROWS_PER_TASK = 1_000_000  # tasks are smaller only to use more cores
MAX_EVENT_DELAY_NS = 5 * 10**9  # longest time from an event to its message


class DayResults:
    """`before` is the state of the day after an earlier run, if this run builds the next part."""

    def __init__(self, day: ChannelDay, results: list[dict[str, Any]], before: ChannelState | None = None) -> None:
        self.day, self.before = day, before
        rank = {epoch: number for number, (epoch, _, _) in enumerate(day.epochs)}
        incremental = [result for result in results if result["stream"] == "incremental"]
        self.span_results = sorted(incremental, key=lambda span: (rank[span["epoch"]], span["span"]))
        self.looping_results = [result for result in results if result["stream"] != "incremental"]
        self.notices = {notice for result in results for notice in result["notices"]}
        self.notices |= {
            f"line {line} of channel {day.channel} restarted its numbering alone on {date_of(day.date)}: what it sent "
            "since is not used, because another line goes on"
            for line in day.lines_set_aside
        }
        self.files: dict[str, list[FileAdd]] = defaultdict(list)
        self.gaps = [Gap.from_json(gap) for gap in before.gaps] if before else []
        self.open_files: dict[str, list[str]] = defaultdict(list)  # by table: files that the next part replaces
        self.is_late = False
        self.stale: list[Any] = []
        self.definitions: list[dict[str, Any]] = []
        self.definition_hashes: dict[int, int] = {}
        self.states: dict[str, Any] = {}
        self.final_states: dict[str, Any] = {}
        self.gap_records: list[list[dict[str, Any]]] = []  # the gap records of each books task
        self.task_rows: list[int] = []
        for result in results:
            self.add_files(result["files"])

    def add_files(self, files: Mapping[str, list[dict[str, Any]]]) -> None:
        for name, added in files.items():
            self.files[name] += [FileAdd.from_json(add) for add in added]

    def _staged(self, stream: str) -> list[dict[str, Any]]:
        found = (
            self.span_results
            if stream == "incremental"
            else [each for each in self.looping_results if each["stream"] == stream]
        )
        return [staged for result in found for staged in result["staged"]]

    @property
    def has_new_rows(self) -> bool:
        """Whether there are new rows for the books tasks."""
        is_over = self.day.until is None
        return self.before is None or is_over or any(span["span"][1] >= span["span"][0] for span in self.span_results)

    def add_channel_result(self, result: dict[str, Any]) -> None:
        self.add_files(result["files"])
        self.definitions, self.definition_hashes = result["definitions"], result["listed"]
        self.states, self.final_states = result["states"], result["ends"]

    def add_books_result(self, result: dict[str, Any], rows: int) -> None:
        self.add_files(result["files"])
        self.stale += result["stale"]
        self.is_late |= result["is_late"]
        for name, paths in result["open"].items():
            self.open_files[name] += paths
        self.gap_records.append(result["gaps"])
        self.task_rows.append(rows)

    def new_losses(self) -> list[Gap]:
        """The gaps that this run has found. What was sent before a join is not lost."""
        firsts = {epoch: first for epoch, first, _ in self.day.epochs}
        new = self.gaps[len(self.before.gaps) if self.before else 0 :]
        return [gap for gap in new if gap.last >= firsts[gap.epoch]]

    def channel_task(self, work: Path) -> dict[str, Any]:
        return {
            "description": f"channel {self.day.channel}, {date_of(self.day.date)}",
            "staged": self._staged("incremental"),
            "snapshots": self._staged("snapshot"),
            "instruments": self._staged("instruments"),
            "part": self._day_part().to_json(),
            "before": self.before.write_staged(work / "before") if self.before else [],
            "listed": self.before.listed if self.before else {},
            "states": self.before.states if self.before else {},
            **self._gaps_by_rank(),
        }

    def _gaps_by_rank(self) -> dict[str, Any]:
        """The gaps as (epoch's rank, first, last), and the position where a join ends."""
        ranks = {epoch: (rank, first) for rank, (epoch, first, _) in enumerate(self.day.epochs)}
        gaps = [(*ranks[gap.epoch], gap.first, gap.last) for gap in self.gaps]
        join = [rank << SEQUENCE_BITS | last for rank, epoch_first, _, last in gaps if last < epoch_first]
        return {"gaps": [[rank, first, last] for rank, _, first, last in gaps], "join": join[0] if join else None}

    def _day_part(self) -> DaySpan:
        edges = self.day.since, self.day.until
        since, until = (edge and (edge.rank, edge.number, edge.ts_recv) for edge in edges)
        epochs, firsts, _ = zip(*self.day.epochs, strict=True) if self.day.epochs else ((), (), ())
        return DaySpan(since, until, list(epochs), self.day.epoch_starts, list(firsts))

    def _final_before_ns(self) -> int | None:
        """Time before which all events have arrived; None if the day is complete."""
        if self.day.until is None:
            return None
        return self.ts_sent - MAX_EVENT_DELAY_NS if self.ts_sent != NULL else 0

    @property
    def ts_sent(self) -> int:
        """When the last unit of this part was sent."""
        sent = [span["ts_sent"] for span in self.span_results if span["ts_sent"] is not None]
        return sent[-1] if sent else self.before.ts_sent if self.before else NULL

    def packs(self, max_rows: int, parallel: int) -> list[tuple[list[int], int]]:
        """Groups neighbouring buckets into packs of similar size: as many as can run in parallel, or a multiple. The
        bucket of a very active instrument is not divided."""
        rows = np.zeros(BUCKETS + 1, np.int64)
        for staged in self._staged("incremental"):
            if staged["family"] == "mbo":
                for bucket, count in staged["rows"].items():
                    rows[int(bucket)] += count
        total = int(rows.sum())
        count = parallel * max(-(-total // (parallel * TARGET_ROWS_PER_TASK)), 1)
        count = max(min(count, total // MIN_ROWS_PER_TASK), -(-total // max_rows), 1)
        edges = np.append(0, np.cumsum(rows))
        cuts = {int(np.abs(edges - total * part / count).argmin()) for part in range(1, count)}
        bucket_edges = [0, *sorted(cuts - {0, len(rows)}), len(rows)]
        return [(list(range(low, high)), int(edges[high] - edges[low])) for low, high in pairwise(bucket_edges)]

    def book_tasks(self, packs: list[tuple[list[int], int]], state_in: list[str]) -> list[dict[str, Any]]:
        common = {
            "staged": self._staged("incremental"),
            "snapshots": self._staged("snapshot"),
            "timeline": books_timeline(self.day, self.gaps),
            "definitions": self.definitions,
            "ends": self.final_states,
            "state_in": state_in,
            "final_before_ns": self._final_before_ns(),
            "part": self._day_part().to_json(),
        }
        name = f"books of channel {self.day.channel}, {date_of(self.day.date)}"
        return [
            common | {"description": f"{name}, buckets {min(pack)} to {max(pack)}", "buckets": pack, "rows": rows}
            for pack, rows in packs
        ]
