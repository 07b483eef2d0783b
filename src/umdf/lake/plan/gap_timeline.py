"""The timeline of a channel-day: its gaps, and the rows of `gaps` and `quality`.

Each task knows only its own span; this module merges their results. A gap across a boundary of spans is one gap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from umdf.lake.parquet.data_files import FileAdd, FileStamp, sort_rows
from umdf.lake.parquet.file_writer import write_file
from umdf.lake.plan.planner import ChannelDay
from umdf.lake.plan.segments import date_of
from umdf.lake.schemas import table
from umdf.lake.tasks.packet_accounts import quality_row, sum_quality
from umdf.market.families import NULL

LOSS, JOIN = "loss", "join"
SNAPSHOT, RPT_SEQ = "snapshot", "rpt_seq"


@dataclass(frozen=True)
class Gap:
    """Units that no line delivered; when the next unit arrived and was sent, and when the previous one was sent."""

    epoch: int
    first: int
    last: int
    ts_recv: int
    ts_send: int
    ts_before: int

    def to_json(self) -> dict[str, int]:
        return {
            "seq_version": self.epoch,
            "first": self.first,
            "last": self.last,
            "ts_recv": self.ts_recv,
            "ts_send": self.ts_send,
            "ts_before": self.ts_before,
        }

    @classmethod
    def from_json(cls, content: dict[str, int]) -> Gap:
        rest = (content[name] for name in ("first", "last", "ts_recv", "ts_send", "ts_before"))
        return cls(content["seq_version"], *rest)


def find_gaps(day: ChannelDay, span_results: Iterable[dict[str, Any]], ts_sent: int = NULL) -> list[Gap]:
    """The gaps, by sequence. `span_results` are those of the day's spans; `ts_sent` is when the last unit before them
    was sent. What came before a recording that begins in mid-epoch (a join) is one too: books know nothing of it."""
    by_epoch: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for result in span_results:
        by_epoch[result["epoch"]].append(result)
    found = []
    for rank, (epoch, first, last) in enumerate(day.epochs):
        if day.since is not None and rank < day.since.rank:
            continue
        runs: list[list[Any]] = []  # first, last, (ts_recv, ts_send) of the next unit, ts_send of the previous one
        begins_here = day.since is None or rank > day.since.rank
        expected = day.since.number + 1 if day.since is not None and not begins_here else first
        spans = sorted(by_epoch[epoch], key=lambda result: result["span"])
        if begins_here and first > 1:
            moments = [result["missing"]["begins"] for result in spans if result["missing"]["begins"]]
            found.append(Gap(epoch, 1, first - 1, *(moments[0][1] if moments else (NULL, NULL)), ts_before=NULL))
        for result in spans:
            low, high = result["span"]
            missing = result["missing"]
            skipped = [[expected, low - 1, None, None]] if low > expected else []  # no file has data of such a span
            _append_runs(runs, skipped, ts_sent)
            if runs and runs[-1][2] is None and missing["begins"] and runs[-1][1] + 1 == missing["begins"][0]:
                runs[-1][2] = missing["begins"][1]
            _append_runs(runs, missing["runs"], ts_sent)
            expected, ts_sent = high + 1, result["ts_sent"] if result["ts_sent"] is not None else ts_sent
        if expected <= last:  # a heartbeat announced them
            _append_runs(runs, [[expected, last, None, None]], ts_sent)
        for low, high, moment, before in runs:
            ts_recv, ts_send = moment or (NULL, NULL)
            found.append(Gap(epoch, low, high, ts_recv, ts_send, before))
        ts_sent = NULL
    return found


def _append_runs(runs: list[list[Any]], more: list[Any], ts_sent: int) -> None:
    for run in more:
        if runs and runs[-1][1] + 1 == run[0]:
            runs[-1][1:3] = run[1:3]
        else:
            runs.append([*run[:3], ts_sent if run[3] is None else run[3]])


def books_timeline(day: ChannelDay, gaps: list[Gap]) -> dict[str, Any]:
    """The epochs and gaps, as arguments of the books tasks."""
    return {
        "gaps": [gap.to_json() for gap in gaps],
        "epochs": [
            {"seq_version": epoch, "first": first, "last": last, "ts_recv": ts_start}
            for (epoch, first, last), ts_start in zip(day.epochs, day.epoch_starts, strict=True)
        ],
    }


def gap_rows(day: ChannelDay, gaps: list[Gap], records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`records` are the books' merged gap records (umdf.lake.books.gap_recovery.merge_gap_records)."""
    records_by_gap = {(each["seq_version"], each["first"]): each for each in records}
    firsts = {epoch: first for epoch, first, _ in day.epochs}
    return [
        _gap_row(gap, records_by_gap.get((gap.epoch, gap.first)))
        | {"cause": JOIN if gap.last < firsts[gap.epoch] else LOSS}
        for gap in gaps
    ]


def _gap_row(gap: Gap, record: dict[str, Any] | None) -> dict[str, Any]:
    """A gap without a record affected no book: there was none that it could have affected."""
    opened = None if gap.ts_send == NULL else gap.ts_send
    record = record or {"instruments": [], "affected": 0, "open": 0, "ts_recovered": opened}
    affected, is_recovered = record["affected"], not record["open"]
    return {
        "stream": "incremental",
        "seq_version": gap.epoch,
        "first_sequence": gap.first,
        "last_sequence": gap.last,
        "missing": gap.last - gap.first + 1,
        "recovered_by": (SNAPSHOT if affected else RPT_SEQ) if is_recovered else None,
        "ts_opened": opened,
        "ts_recovered": record["ts_recovered"] if is_recovered else None,
        "affected": affected,
        "instruments": record["instruments"] if affected == len(record["instruments"]) else None,
    }


def merge_quality(
    earlier: Iterable[dict[str, Any]], spans: Iterable[dict[str, Any]], loops: Iterable[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Merged results of all tasks, by stream and line; `earlier` is this function's result for the earlier part."""
    parts: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for quality in earlier:
        parts[quality["stream"], quality["line"]].append(quality)
    for result in spans:
        for line, quality in result["quality"].items():
            parts["incremental", line].append(quality)
    for result in loops:
        parts[result["stream"], result["line"]].append(result["quality"])
    return [
        {"stream": stream, "line": line} | sum_quality(parts_of_line) for (stream, line), parts_of_line in parts.items()
    ]


def quality_rows(day: ChannelDay, quality: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    numbers = sum(last - first + 1 for _, first, last in day.epochs)
    return [
        {"stream": line_quality["stream"], "line": line_quality["line"]}
        | quality_row(line_quality, numbers if line_quality["stream"] == "incremental" else 0)
        for line_quality in quality
    ]


def write_small_table(
    root: Path, stamp: FileStamp, name: str, rows: list[dict[str, Any]], day: ChannelDay | None
) -> FileAdd | None:
    """Write a small table of a channel-day, or of no day."""
    if not rows:
        return None
    known = table(name)
    partition = {"trading_date": date_of(day.date) if day else None, "channel_id": day.channel if day else None}
    return write_file(root, name, stamp, sort_rows(pa.Table.from_pylist(rows, known.file_schema), known), partition)
