"""What is missing in the snapshot and instrument streams is counted: in `quality`, in `gaps`, and by the ingest."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from lake.captures import day, files_of, ingest, rows
from lake.damaged_days import captures_in, numbers_of

from umdf.lake.recording.loop_losses import Loop, LoopTracker, find_losses, join_loops
from umdf.lake.report.day_report import RECOVERED, day_report
from umdf.transport.capture import open_capture

pytestmark = pytest.mark.xdist_group("lake-loops")
PROTOCOLS = ("sbe", "fast")
SECOND_NS = 10**9


# Loops


def tracked(
    numbers: Sequence[int],
    ends: Sequence[int] = (),
    batch: int = 100,
    epoch: int = 3,
    contents: Sequence[int] | None = None,
) -> list[Loop]:
    """The loops of these numbers, received one per millisecond; the loop ends at the positions `ends`."""
    tracker, count = LoopTracker(has_send_times=False), len(numbers)
    number, ts = np.array(numbers, np.int64), np.arange(count) * 10**6
    content, is_end = np.array(contents or range(count), np.int64), np.isin(np.arange(count), ends)
    for low in range(0, count, batch):
        some = slice(low, low + batch)
        tracker.add(np.full(len(number[some]), epoch), number[some], ts[some], content[some], is_end[some])
    return tracker.loops()


def runs(loops: list[Loop]) -> list[tuple[int, int, list[tuple[int, int]]]]:
    return [(loop.first, loop.last, [run[:2] for run in loop.missing]) for loop in loops]


def lost(*lines: list[Loop]) -> list[list[tuple[int, int]]]:
    found = find_losses({str(number): loops for number, loops in enumerate(lines)})
    return [[(loss.first, loss.last) for loss in found[str(number)]] for number in range(len(lines))]


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_a_loop_ends_where_numbers_begin_again(batch: int) -> None:
    assert runs(tracked([1, 2, 3, 1, 2, 3, 1, 2], batch=batch)) == [(1, 3, []), (1, 3, []), (1, 2, [])]
    assert runs(tracked([2, 4, 5, 1, 3], batch=batch)) == [(2, 5, [(3, 3)]), (1, 3, [(2, 2)])]


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_what_was_overtaken_is_not_missing(batch: int) -> None:
    assert runs(tracked([1, 2, 4, 3, 5, 7, 8, 6], batch=batch)) == [(1, 8, [])]


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_what_comes_twice_is_no_new_loop(batch: int) -> None:
    numbers, contents = [1, 2, 2, 3, 1, 3, 2, 1, 3], [11, 12, 12, 13, 21, 13, 22, 11, 23]
    assert runs(tracked(numbers, batch=batch, contents=contents)) == [(1, 3, []), (1, 3, [])]


def test_the_begin_and_the_end_of_a_recording_are_no_loss() -> None:
    assert lost(tracked([7, 8, 9, 1, 2, 3, 4], ends=[2])) == [[]]
    pause = [Loop(3, 5, 9, 0, 1, False), Loop(3, 4, 9, 70 * SECOND_NS, 71 * SECOND_NS, True)]
    assert lost(pause) == [[]]


def test_the_begin_the_middle_and_the_end_of_a_loop_are_missing() -> None:
    whole = [1, 2, 3, 4, 5]
    loops = tracked([*whole, 3, 5, *whole[:3], *whole], ends=[4, 6, 14])
    assert runs(loops) == [(1, 5, []), (3, 5, [(4, 4)]), (1, 3, []), (1, 5, [])]
    assert lost(loops) == [[(1, 2), (4, 4), (4, 4)]]
    assert [loss.ts_repeated for loss in find_losses({"A": loops})["A"]] == [9 * 10**6, 14 * 10**6, 14 * 10**6]


def test_without_ends_nothing_is_known_of_the_end_of_a_loop() -> None:
    assert lost(tracked([1, 2, 3, 4, 5, 1, 2, 1, 2, 3])) == [[]]


def test_another_line_fills_what_it_has() -> None:
    a, b = tracked([1, 2, 5, 6, 9], ends=[4]), tracked([1, 2, 3, 6, 7, 8, 9], ends=[6])
    found = find_losses({"A": a, "B": b})
    assert [(loss.first, loss.last, loss.filled, loss.unfilled) for loss in found["A"]] == [
        (3, 4, 1, [(4, 4)]),
        (7, 8, 2, []),
    ]
    assert [(loss.first, loss.last, loss.filled, loss.unfilled) for loss in found["B"]] == [(4, 5, 1, [(4, 4)])]


def test_tasks_may_divide_a_stream_anywhere() -> None:
    chance = np.random.default_rng(4)
    for _ in range(100):
        numbers, ends = [], []
        for _ in range(5):
            numbers += [number for number in range(1, 12) if chance.random() > 0.2]
            ends.append(len(numbers) - 1)
        whole = tracked(numbers, ends)
        cut = int(chance.integers(1, len(numbers)))
        number, ts = np.array(numbers), np.arange(len(numbers)) * 10**6
        parts: list[Loop] = []
        for some in (slice(0, cut), slice(cut, None)):
            tracker, is_end = LoopTracker(has_send_times=False), np.isin(np.arange(len(numbers)), ends)[some]
            tracker.add(np.full(len(number[some]), 3), number[some], ts[some], np.arange(len(numbers))[some], is_end)
            parts += tracker.loops()
        assert join_loops(Loop.from_json(loop.to_json()) for loop in parts) == whole


def test_an_end_that_is_no_unit_may_be_the_first_that_a_task_reads() -> None:
    numbers, ends = [1, 2, 3, 1, 2, 3, 2, 3, 1], {3, 6, 8}
    for cut in range(len(numbers) + 1):
        parts: list[Loop] = []
        for some in (range(cut), range(cut, len(numbers))):
            tracker = LoopTracker(has_send_times=False)
            for at in some:
                if at in ends:
                    tracker.end_loop(at * 10**6 - 1)
                row = np.array([at], np.int64)
                tracker.add(row * 0, row * 0 + numbers[at], row * 10**6, row, np.zeros(1, np.bool_))
            parts += tracker.loops()
        found = join_loops(Loop.from_json(loop.to_json()) for loop in parts)
        assert [(loop.first, loop.last, loop.has_end) for loop in found] == [
            (1, 3, True), (1, 3, True), (2, 3, True), (1, 1, False),
        ], cut  # fmt: skip


# Lakes


def thin(path: Path, keep: Callable[[int], bool]) -> int:
    """Remove packets by their position; how many were removed."""
    with open_capture(path) as capture:
        offsets = [int(offset) for batch in capture for offset in batch.offset]
    raw, edges = path.read_bytes(), [*offsets, path.stat().st_size]
    kept = [raw[edges[at] : edges[at + 1]] for at in range(len(offsets)) if keep(at)]
    path.write_bytes(raw[: offsets[0]] + b"".join(kept))
    return len(offsets) - len(kept)


def dropped_numbers(paths: Sequence[Path], keep: Callable[[int], bool], protocol: str) -> tuple[int, int]:
    """How many numbers `thin` takes from the loops of these files, and how many of those are certain: a loop of which
    the end is lost shows only that its last number is."""
    loops: list[dict[int, bool]] = []
    last = 1 << 62
    for path in paths:
        with open_capture(path) as capture:
            packets = [numbers for batch in capture for numbers in numbers_of(batch, protocol)]
        for at, numbers in enumerate(packets):
            for number in numbers:
                if number < last:
                    loops.append({})
                last = number
                loops[-1][number] = loops[-1].get(number, True) and keep(at)
    dropped = certain = 0
    for loop in loops:
        lost = [number for number, is_kept in loop.items() if not is_kept]
        end = max(number for number, is_kept in loop.items() if is_kept)
        tail = sum(number > end for number in lost)
        if loop is loops[-1]:  # the recording ends with it
            lost, tail = [number for number in lost if number < end], 0
        dropped, certain = dropped + len(lost), certain + len(lost) - max(tail - 1, 0)
    return dropped, certain


@pytest.fixture(scope="module")
def tmp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("loops")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_whole_recording_has_lost_nothing(tmp: Path, tmp_path: Path, protocol: str) -> None:
    captured = day(tmp, 4_000, 40, protocol=protocol, seed=3)
    result = ingest(tmp_path / "lake", files_of(captured), split_bytes=20_000)
    assert (result.missing_in_loops, result.incomplete_snapshots) == (0, 0)
    for row in rows(tmp_path / "lake", "quality"):
        assert (row["lost"], row["filled"]) == (0, 0) or row["stream"] == "incremental"
        assert row["incomplete_snapshots"] == (0 if row["stream"] == "snapshot" else None)
        assert row["filled"] <= row["lost"]


@pytest.mark.parametrize("stream", ["snapshot", "instruments"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_dropped_from_a_loop_is_in_quality_and_gaps(
    tmp: Path, tmp_path: Path, protocol: str, stream: str
) -> None:
    captured = day(tmp, 4_000, 40, protocol=protocol, seed=3)
    shutil.copytree(captured / "capture", tmp_path / "capture")
    paths = sorted((tmp_path / "capture").glob(f"*{stream}-A*.pcap"))
    every = 3 if (protocol, stream) == ("fast", "instruments") else 7  # there are few packets

    def keep(at: int) -> bool:
        return at < 3 or at % every != 1

    dropped, certain = dropped_numbers(paths, keep, protocol)
    assert sum(thin(path, keep) for path in paths) > 1 and dropped > 1
    root = tmp_path / "lake"
    result = ingest(root, captures_in(tmp_path / "capture"), split_bytes=20_000)
    [quality] = [row for row in rows(root, "quality") if row["stream"] == stream]
    gaps = [row for row in rows(root, "gaps") if row["stream"] == stream]
    assert quality["lost"] == sum(row["missing"] for row in gaps) == result.missing_in_loops > 0
    assert {row["cause"] for row in gaps} == {"loss"}
    assert any(row["recovered_by"] == "loop" for row in gaps)
    assert quality["lost"] == certain
    assert quality["filled"] == 0
    if stream == "snapshot" and protocol == "sbe":
        assert quality["incomplete_snapshots"] == result.incomplete_snapshots > 0
    other = [row for row in rows(root, "quality") if row["stream"] not in (stream, "incremental")]
    assert [row["lost"] for row in other] == [0]


def test_every_snapshot_is_compared_or_counted(tmp: Path, tmp_path: Path) -> None:
    captured = day(tmp, 4_000, 40, seed=3)
    shutil.copytree(captured / "capture", tmp_path / "capture")
    whole = ingest(tmp_path / "whole", files_of(captured))
    for path in sorted((tmp_path / "capture").glob("*snapshot-A*.pcap")):
        thin(path, lambda at: at % 5 != 2)
    result = ingest(tmp_path / "lake", captures_in(tmp_path / "capture"))
    gone = whole.rows["book_check"] - result.rows["book_check"]
    assert gone > 0
    assert result.missing_in_loops > 0 and 0 < result.incomplete_snapshots <= gone


def test_the_report_names_what_the_loops_lost(tmp: Path, tmp_path: Path) -> None:
    captured = day(tmp, 4_000, 40, seed=3)
    shutil.copytree(captured / "capture", tmp_path / "capture")
    for path in sorted((tmp_path / "capture").glob("*snapshot-A*.pcap")):
        thin(path, lambda at: at % 5 != 2)
    result = ingest(tmp_path / "lake", captures_in(tmp_path / "capture"))
    report = day_report(tmp_path / "lake")
    phrase = f"The snapshot and instrument streams lost {result.missing_in_loops} sequence numbers"
    assert f"{phrase}; {result.incomplete_snapshots} snapshots are incomplete." in report.summary
    assert report.verdict == RECOVERED
    assert not report.gaps.channels  # nothing of the market is missing
