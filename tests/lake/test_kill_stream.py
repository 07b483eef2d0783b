"""kill -9 in the middle of a stream: what can be seen is final, and in the end all is as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from lake.captures import ALL, day, files_of, ingest
from lake.followed_days import Made, check_is_the_beginning
from lake.kill_helpers import STEPS, kill_a_worker, reached_step, reading
from lake.lake_commands import umdf, until

from umdf.lake.admin import lake_status
from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.commit.writer import open_writer
from umdf.lake.plan.frontier import ChannelState

pytestmark = pytest.mark.xdist_group("spark")  # one session, in one process
MOMENTS = 10


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, sized: Callable[[int, int], int]) -> Made:
    tmp = tmp_path_factory.mktemp("kill")
    captured = day(tmp, sized(3_000, 20_000), sized(10, 40), rate=500, roll_s=3, loss=0.02, seed=11)
    ingest(tmp / "batch", files_of(captured))
    return Made([captured], tmp / "batch")


def check_what_is_seen(root: Path, made: Made) -> None:
    """Whatever a reader finds: files are sound, and events are there up to where the stream has come."""
    assert lake_status.verify(root, deep=True) == []
    states = open_snapshot(root).arrow_table("channel_state").to_pylist()
    if states:
        [row] = states
        check_is_the_beginning(root, made, ChannelState.from_bytes(row["content"], row["format"]).done)
    elif open_snapshot(root).rows("mbo"):
        assert made.differing(root) == set()


@pytest.mark.full_size
@pytest.mark.parametrize("moment", range(MOMENTS))
def test_a_driver_and_then_a_worker_are_killed_and_the_stream_goes_on(made: Made, tmp_path: Path, moment: int) -> None:
    root, chance = tmp_path / "lake", random.Random(moment)
    open_writer(root).close()
    size = 3
    batches = -(-len(made.files) // size)
    words = ("stream", made.files[0].parent, "--lake", root, "--once", "--finish", "--cores", "2", "--max-files", size)
    words = (*map(str, words), "--tables", ",".join(sorted(ALL)))
    commit = chance.randint(1, batches + 1)  # the last ones: what was held back, and the files of the day joined
    step, later_s = [*STEPS][moment % len(STEPS)], chance.choice((0.0, chance.random() / 2))
    with reading(root) as seen, umdf(f"driver-{moment}", *words) as first:
        assert until(lambda: open_snapshot(root).number >= commit - 1 or first.ended, 240, 0.05)
        reached = reached_step(root, step, 1)
        assert until(lambda: reached() or first.ended, 240, 0.005)
        until(lambda: False, later_s)
        first.kill()
        assert first.process.returncode == -signal.SIGKILL or commit >= batches, (step, first.finish())
        check_what_is_seen(root, made)
        # At once: the old JVM and its workers may still be alive, and still be writing.
        with umdf(f"worker-{moment}", *words) as second:
            assert until(lambda: bool(second.workers()) or second.ended, 240, 0.1)
            until(lambda: second.ended, chance.random() * 6)
            assert kill_a_worker(second, chance) or second.ended or moment
            code, _, said = second.finish()
    assert code == 0, said
    assert seen and made.differing(root) == set()
    assert ingest(root, made.files).commit is None  # it knows every file, and sweeps
    check_what_is_seen(root, made)
    status = lake_status.status(root)
    assert (status.orphans.files, status.pending, status.writer, status.unknown) == (0, None, None, ())
    assert not list((root / "_lake" / "work").glob("*"))


@pytest.mark.full_size
def test_a_jvm_that_is_killed_is_one_line_and_the_stream_goes_on(made: Made, tmp_path: Path) -> None:
    root = tmp_path / "lake"
    words = ("stream", str(made.files[0].parent), "--lake", str(root), "--cores", "1", "--max-files", "4")
    with umdf("jvm", *words) as first:
        assert until(
            lambda: ((root / "lake.json").exists() and open_snapshot(root).number >= 1) or first.ended, 240, 0.05
        )
        [jvm] = [pid for pid, words in first.family().items() if "org.apache.spark.deploy.SparkSubmit" in words]
        os.kill(jvm, signal.SIGKILL)
        code, _, said = first.finish()
    assert (code, said.count("\n")) == (3, 1), said
    assert said.startswith(
        "umdf: Spark's JVM has ended (killed by SIGKILL); run the command again to continue after the last"
    )
    check_what_is_seen(root, made)
    with umdf("again", *words, "--once", "--finish", "--tables", ",".join(sorted(ALL))) as second:
        code, _, said = second.finish()
    assert code == 0, said
