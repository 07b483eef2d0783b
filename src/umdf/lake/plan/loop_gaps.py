"""Losses on the snapshot and instrument streams, as rows of `gaps` and in those of `quality`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from umdf.lake.plan.gap_timeline import LOSS, Gap, gap_rows, quality_rows
from umdf.lake.plan.planner import ChannelDay
from umdf.lake.recording.loop_losses import Loop, LoopLoss, find_losses

INCREMENTAL = "incremental"
LATER_LOOP = "loop"  # recovered by a loop that repeated it
MAX_SKEW_NS = 10**9  # between lines


def small_table_rows(
    day: ChannelDay, gaps: list[Gap], gap_records: list[dict[str, Any]], quality: Sequence[dict[str, Any]]
) -> dict[str, list[dict[str, Any]]]:
    """The rows of `gaps` and `quality`; `quality` is the result of `merge_quality`, `gap_records` as in `gap_rows`."""
    losses = _losses_by_line(quality)
    return {
        "gaps": gap_rows(day, gaps, gap_records) + _loop_gap_rows(losses),
        "quality": [
            row | _loss_columns(row, quality, losses.get((row["stream"], row["line"])))
            for row in quality_rows(day, quality)
        ],
    }


def _losses_by_line(quality: Sequence[dict[str, Any]]) -> dict[tuple[str, str], list[LoopLoss]]:
    """By stream and line."""
    loops: dict[str, dict[str, list[Loop]]] = defaultdict(dict)
    for each in quality:
        if each["stream"] != INCREMENTAL:
            loops[each["stream"]][each["line"]] = [Loop.from_json(loop) for loop in each["loops"]]
    found = ((stream, find_losses(by_line)) for stream, by_line in loops.items())
    return {(stream, line): losses for stream, by_line in found for line, losses in by_line.items()}


def _loop_gap_rows(losses_by_line: dict[tuple[str, str], list[LoopLoss]]) -> list[dict[str, Any]]:
    """What no line delivered, once."""
    found: list[dict[str, Any]] = []
    known: dict[tuple[str, int, int, int], list[tuple[str, int]]] = defaultdict(list)  # line and time of each
    for (stream, line), losses in sorted(losses_by_line.items()):
        for loss in losses:
            for first, last in loss.unfilled:
                same = known[stream, loss.epoch, first, last]
                if any(other != line and abs(ts - loss.ts_after) <= MAX_SKEW_NS for other, ts in same):
                    continue
                same.append((line, loss.ts_after))
                found.append(
                    {
                        "stream": stream,
                        "seq_version": loss.epoch,
                        "first_sequence": first,
                        "last_sequence": last,
                        "missing": last - first + 1,
                        "cause": LOSS,
                        "recovered_by": None if loss.ts_repeated is None else LATER_LOOP,
                        "ts_opened": loss.ts_after,
                        "ts_recovered": loss.ts_repeated,
                    }
                )
    return sorted(found, key=lambda row: (row["stream"], row["ts_opened"]))


def _loss_columns(
    row: dict[str, Any], quality: Sequence[dict[str, Any]], losses: list[LoopLoss] | None
) -> dict[str, Any]:
    if losses is not None:
        own = next(each for each in quality if (each["stream"], each["line"]) == (row["stream"], row["line"]))
        return {
            "lost": sum(loss.count for loss in losses),
            "filled": sum(loss.filled for loss in losses),
            "incomplete_snapshots": own["incomplete_snapshots"] if row["stream"] == "snapshot" else None,
        }
    incremental = [each for each in quality if each["stream"] == INCREMENTAL]
    own = next(each for each in incremental if each["line"] == row["line"])
    arrived = sum(each["first_arrivals"] for each in incremental)
    return {"filled": arrived - own["seen"], "incomplete_snapshots": None}
