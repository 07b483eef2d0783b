"""How work is cut into tasks, and what they say of themselves."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pytest

from umdf.lake.plan.day_results import DayResults
from umdf.lake.plan.planner import MIN_SPAN_SEQUENCES, ChannelDay, Planner
from umdf.lake.runtime.local_runner import run_locally
from umdf.lake.runtime.spark_tasks import TaskAttempt

MIB = 1 << 20


def hungry(task: dict[str, Any], place: TaskAttempt) -> dict[str, Any]:
    # Not from the heap: a process that has run tasks before keeps what they freed.
    memory = mmap.mmap(-1, task["bytes"], flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    ones = np.frombuffer(memory, np.uint8)
    ones[:] = 1
    return {"sum": int(ones.sum())}


def test_a_task_says_how_much_memory_it_took() -> None:
    little, much = run_locally([{"bytes": MIB}, {"bytes": 256 * MIB}], f"{__name__}:hungry")
    assert little["sum"] == MIB and much["sum"] == 256 * MIB
    assert 200 * MIB < much["peak_memory_bytes"] - little["peak_memory_bytes"] < 400 * MIB


@pytest.mark.parametrize(("numbers", "most", "count"), [(5, 3, 2), (100, 1_000, 1), (40_000, 1 << 18, 2), (100, 15, 7)])
def test_spans_are_even_and_as_many_as_can_run_at_once(numbers: int, most: int, count: int) -> None:
    planner = Planner([], {}, {}, most, parallel=2)
    spans = planner._spans(101, 100 + numbers)
    sizes = [last - first + 1 for first, last in spans]
    assert len(spans) == count and sum(sizes) == numbers and max(sizes) - min(sizes) <= 1
    assert [first for first, _ in spans[1:]] == [last + 1 for _, last in spans[:-1]] and spans[0][0] == 101
    assert numbers < 2 * MIN_SPAN_SEQUENCES or count % 2 == 0


@pytest.mark.parametrize(
    ("rows", "parallel", "packs"), [(1_000, 2, 1), (400_000, 2, 2), (400_000, 4, 4), (5_000_000, 2, 6), (0, 2, 1)]
)
def test_packs_of_buckets_are_about_equal(rows: int, parallel: int, packs: int) -> None:
    by_bucket = {str(bucket): rows // 64 for bucket in range(64)}
    staged = {"family": "mbo", "path": "", "rows": by_bucket}
    span = {"stream": "incremental", "epoch": 1, "span": [1, rows], "staged": [staged], "files": {}, "notices": []}
    day = ChannelDay(72, 20_770, "sbe", ["A"], [(1, 1, rows)], [0])
    found = DayResults(day, [span]).packs(2_000_000, parallel)
    assert len(found) == packs and sorted(bucket for pack, _ in found for bucket in pack) == list(range(65))
    assert max(size for _, size in found) <= 1.1 * rows / packs + 64
