"""kill -9 in the middle of an ingest, and two writers at once: the tables are those of an undisturbed run."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from lake.captures import ALL, day, files_of, hashes, ingest
from lake.kill_helpers import STEPS, kill_a_worker, reached_step, reading, rows_of_all
from lake.lake_commands import umdf, until

from umdf.lake.admin import lake_status
from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.commit.writer import open_writer

pytestmark = pytest.mark.xdist_group("spark")  # one session, in one process
TABLES = ",".join(sorted(ALL))


@dataclass(frozen=True)
class Lakes:
    """A day, and what is in lakes that have nothing, half or all of it."""

    capture: Path
    empty: Path
    half: Path
    content: dict[str, dict[str, str]]  # hashes by "empty", "half", "whole"
    rows: dict[str, tuple[int, ...]]


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory, sized: Callable[[int, int], int]) -> Lakes:
    tmp = tmp_path_factory.mktemp("kill")
    captured = day(tmp, sized(6_000, 60_000), 20, loss=0.01, seed=11, roll_s=sized(6, 12))
    files = files_of(captured)
    open_writer(tmp / "empty").close()
    ingest(tmp / "half", files[: len(files) // 2])
    ingest(tmp / "whole", files)
    names = ("empty", "half", "whole")
    content, rows = {name: hashes(tmp / name) for name in names}, {name: rows_of_all(tmp / name) for name in names}
    return Lakes(captured / "capture", tmp / "empty", tmp / "half", content, rows)


def _shown(lakes: Lakes, root: Path) -> str:
    """Which of the three a reader sees: it must be one of them, to the last row, and files must be sound."""
    assert lake_status.verify(root, deep=True) == []
    found = hashes(root)
    return next(name for name, expected in lakes.content.items() if found == expected)


@pytest.mark.parametrize("moment", range(10))
def test_a_driver_and_then_a_worker_are_killed_and_the_day_is_as_if_nothing_had_happened(
    lakes: Lakes, tmp_path: Path, moment: int, soak: bool
) -> None:
    """Every second time into a lake that has half of the day, which is what readers see until all of it is there."""
    if moment and not soak:
        pytest.skip("one driver and one worker at reduced size, ten of each at full size: make soak")
    root, before = tmp_path / "lake", "empty" if moment % 2 else "half"
    shutil.copytree(getattr(lakes, before), root)
    words = ("ingest", lakes.capture, "--lake", root, "--cores", "2", "--tables", TABLES)
    chance = random.Random(moment)
    step = [*STEPS][moment % len(STEPS)]
    reached = reached_step(root, step, chance.randint(1, STEPS[step][1]))
    later_s = chance.choice((0.0, chance.random() / 2))

    with reading(root) as seen, umdf(f"driver-{moment}", *words) as first:
        assert until(lambda: reached() or first.ended, 240, 0.005)
        until(lambda: False, later_s)
        first.kill()
        assert first.process.returncode == -signal.SIGKILL or later_s, (step, first.finish())
        assert _shown(lakes, root) in (before, "whole")
        # At once: the old JVM and its workers may still be alive, and still be writing.
        with umdf(f"worker-{moment}", *words) as second:
            assert until(lambda: bool(second.workers()), 240, 0.3)
            until(lambda: second.ended, chance.random() * 3)
            assert kill_a_worker(second, chance) or until(lambda: second.ended, 60), "it has no workers and goes on"
            code, _, said = second.finish()
    assert code == 0, said
    assert _shown(lakes, root) == "whole"
    assert seen <= {lakes.rows[before], lakes.rows["whole"]} and seen
    assert ingest(root, files_of(lakes.capture.parent)).commit is None  # it knows every file, and sweeps
    assert _shown(lakes, root) == "whole"
    status = lake_status.status(root)
    assert (status.orphans.files, status.pending, status.writer, status.unknown) == (0, None, None, ())
    assert not list((root / "_lake" / "work").glob("*"))


def test_a_second_writer_gets_one_clear_error_and_others_wait_in_turn(lakes: Lakes, tmp_path: Path) -> None:
    root = tmp_path / "lake"
    shutil.copytree(lakes.half, root)
    words = ("ingest", lakes.capture, "--lake", root, "--no-spark", "--tables", TABLES)
    patient = (*words, "--writer-wait-s", "240")
    with (
        open_writer(root, "the first") as writer,
        umdf("hasty", *words) as hasty,
        umdf("patient", *patient) as one,
        umdf("patient too", *patient) as other,
    ):
        code, printed, said = hasty.finish()
        assert code not in (0, 1) and printed == ""
        assert said.count("\n") == 1 and f"is locked by the first (process {os.getpid()}" in said
        assert not one.ended and not other.ended and _shown(lakes, root) == "half"
        writer.close()
        outcomes = [command.finish() for command in (one, other)]
    assert [code for code, _, _ in outcomes] == [0, 0], outcomes
    assert sum("nothing to do" in printed for _, printed, _ in outcomes) == 1
    assert _shown(lakes, root) == "whole" and open_snapshot(root).number == 2
    assert lake_status.status(root).orphans.files == 0
