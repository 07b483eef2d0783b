"""The same commands on a cluster: two workers on loopback, one of which dies in mid-ingest; and what a cluster needs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lake.captures import ALL, day, files_of, hashes, ingest
from lake.lake_commands import umdf, until
from lake.standalone import Standalone, pythons, standalone

from umdf.errors import UmdfError
from umdf.lake import care, java

pytestmark = pytest.mark.xdist_group("cluster")
TABLES = ",".join(sorted(ALL))
# How far an ingest has come when a worker is killed, as its directory shows it.
STEPS = {
    "decode": "_lake/work/ingest-*/staged/**/*",
    "survey": "_lake/surveys/*.json",
    "books": "mbo/trading_date=*/*/part-*.parquet",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    try:
        java.java_home()
    except UmdfError as error:
        pytest.skip(f"no Java for Spark: {error}")
    with standalone(tmp_path_factory.mktemp("cluster")) as own:
        yield own


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory, sized: Callable[[int, int], int]) -> Path:
    return day(tmp_path_factory.mktemp("cluster-day"), sized(6_000, 400_000), 20, loss=0.01, seed=5, roll_s=sized(6, 20))


@pytest.fixture(scope="module")
def undisturbed(captured: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Without Spark."""
    root = tmp_path_factory.mktemp("cluster-plain") / "lake"
    ingest(root, files_of(captured))
    return hashes(root)


@pytest.mark.parametrize("step", STEPS)
def test_a_worker_of_the_cluster_is_killed_in_mid_ingest_and_the_tables_are_identical(
    cluster: Standalone, captured: Path, undisturbed: dict[str, str], tmp_path: Path, step: str, soak: bool
) -> None:
    if step != "decode" and not soak:
        pytest.skip("one moment at reduced size, all at full size: make soak")
    root = tmp_path / "lake"
    alive = cluster.living()
    if missing := 2 - len(alive):
        alive += cluster.start_workers(missing)
    words = ("ingest", captured / "capture", "--lake", root, "--master", cluster.url, "--tables", TABLES)
    with umdf(f"cluster-{step}", *words) as command:
        assert until(lambda: command.ended or any(root.glob(STEPS[step])), 240), command.family()
        victims = [pid for pid in alive if pythons(pid)]
        assert victims and not command.ended, command.finish()
        # The worker, the JVM of its executor, the daemon of its Python workers, and one of these.
        assert cluster.kill_worker(random.choice(victims)) >= 4
        code, _, said = command.finish()
    assert code == 0, said
    [log] = (root / "_lake" / "logs").glob("spark-*.log")
    assert "Lost executor" in log.read_text()  # while we had work for it
    assert hashes(root) == undisturbed
    assert care.verify(root, deep=True) == []
    assert ingest(root, files_of(captured)).commit is None  # it knows every file, and sweeps
    status = care.status(root)
    assert (status.orphans.files, status.pending, status.writer, status.unknown) == (0, None, None, ())
    assert not list((root / "_lake" / "work").glob("*"))
    assert hashes(root) == undisturbed
