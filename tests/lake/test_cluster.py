"""The same commands on a cluster of two workers on loopback, one of which dies in mid-ingest; what a cluster needs."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lake.captures import ALL, day, files_of, hashes, ingest
from lake.lake_commands import umdf, until
from lake.spark_cluster import Standalone, connect_server, pythons, standalone

import umdf as package
from umdf.errors import ConfigError, UmdfError
from umdf.lake.admin import lake_status
from umdf.lake.commit.writer import open_writer
from umdf.lake.runtime import cluster, java, session
from umdf.lake.runtime.cluster import SparkMode

pytestmark = pytest.mark.xdist_group("cluster")
TABLES = ",".join(sorted(ALL))
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # JVMs that start sooner
# How far an ingest has come when a worker is killed, as its directory shows it.
STEPS = {
    "decode": "_lake/work/ingest-*/staged/**/*",
    "survey": "_lake/surveys/*.json",
    "books": "mbo/trading_date=*/*/part-*.parquet",
}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    try:
        java.java_home()
    except UmdfError as error:
        pytest.skip(f"no Java for Spark: {error}")
    with standalone(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory, sized: Callable[[int, int], int]) -> Path:
    tmp = tmp_path_factory.mktemp("cluster-day")
    return day(tmp, sized(6_000, 400_000), 20, loss=0.01, seed=5, roll_s=sized(6, 20))


@pytest.fixture(scope="module")
def undisturbed(captured: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Without Spark."""
    root = tmp_path_factory.mktemp("cluster-plain") / "lake"
    ingest(root, files_of(captured))
    return hashes(root)


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=pytest.mark.full_size if step != "decode" else ()) for step in STEPS]
)
def test_a_worker_of_the_cluster_is_killed_in_mid_ingest_and_the_tables_are_identical(
    own: Standalone, captured: Path, undisturbed: dict[str, str], tmp_path: Path, step: str
) -> None:
    root, alive = tmp_path / "lake", own.living()
    if missing := 2 - len(alive):
        alive += own.start_workers(missing)
    words = ["ingest", captured / "capture", "--lake", root.as_uri(), "--master", own.url, "--tables", TABLES]
    for who in ("driver", "executor"):
        words += ["--conf", f"spark.{who}.extraJavaOptions={QUICK}"]
    with umdf(f"cluster-{step}", *words) as command:
        assert until(lambda: command.ended or any(root.glob(STEPS[step])), 400), command.family()
        victims = [pid for pid in alive if pythons(pid)]
        assert victims and not command.ended, command.finish()
        # The worker, the JVM of its executor, the daemon of its Python workers, and one of these.
        assert own.kill_worker(random.choice(victims)) >= 4
        code, _, said = command.finish(600)
    assert code == 0, said
    [log] = (root / "_lake" / "logs").glob("spark-*.log")
    assert "Lost executor" in log.read_text()  # Spark had work for it still
    assert hashes(root) == undisturbed
    assert lake_status.verify(root, deep=True) == []
    assert ingest(root, files_of(captured)).commit is None  # it knows every file, and sweeps
    status = lake_status.status(root)
    assert (status.orphans.files, status.pending, status.writer, status.unknown) == (0, None, None, ())
    assert not list((root / "_lake" / "work").glob("*"))
    assert hashes(root) == undisturbed


def test_spark_submit_starts_the_same_command(
    own: Standalone, captured: Path, undisturbed: dict[str, str], tmp_path: Path, soak: bool
) -> None:
    if not soak:
        pytest.skip("only at full size: make soak")
    own.start_workers(2 - len(own.living()))
    submit = [own.home / "bin" / "spark-submit", "--master", own.url, "--conf", "spark.driver.host=127.0.0.1"]
    program = Path(str(package.__file__)).parent / "__main__.py"
    words = ["ingest", captured / "capture", "--lake", tmp_path / "lake", "--tables", TABLES]
    environment = own.environment() | {"PYSPARK_PYTHON": sys.executable}
    done = subprocess.run([*submit, program, *words], env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert hashes(tmp_path / "lake") == undisturbed


def test_a_spark_connect_server_gives_the_same_tables(
    captured: Path, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("grpc", reason="pyspark[connect] is not installed")
    with connect_server(tmp_path / "server", sys.executable) as url:
        words = ("ingest", captured / "capture", "--lake", tmp_path / "lake", "--tables", TABLES, "--master", url)
        with umdf("connect", *words) as command:
            code, _, said = command.finish(600)
    assert code == 0, said
    assert hashes(tmp_path / "lake") == undisturbed


WAYS = {
    None: SparkMode.LOCAL,
    "local[2,4]": SparkMode.LOCAL,
    "spark://host:7077": SparkMode.CLUSTER,
    "spark://a:7077,b:7077": SparkMode.CLUSTER,
    "yarn": SparkMode.CLUSTER,
    "k8s://https://host:443": SparkMode.CLUSTER,
    "sc://host:15002/;token=x": SparkMode.CONNECT,
}


def test_the_master_decides_where_the_driver_runs() -> None:
    assert {master: cluster.spark_mode(master, {}) for master in WAYS} == WAYS
    with pytest.raises(ConfigError, match=r"unknown Spark master: mesos://x; use spark://HOST:PORT, yarn"):
        cluster.spark_mode("mesos://x", {})
    submitted = {cluster.GATEWAY_PORT_VARIABLE: "1234"}
    assert cluster.spark_mode(None, submitted) is SparkMode.SUBMITTED
    with pytest.raises(ConfigError, match=r"--master yarn conflicts with spark-submit.*; remove --master"):
        cluster.spark_mode("yarn", submitted)


def test_workers_run_our_python_or_the_packed_one(tmp_path: Path) -> None:
    theirs = {"PYSPARK_PYTHON": "/opt/python"}
    assert cluster.worker_python("local[2]", None, theirs) == sys.executable
    assert cluster.worker_python("spark://h:1", None, {}) == sys.executable
    assert cluster.worker_python("spark://h:1", None, theirs) == "/opt/python"
    assert cluster.worker_python("spark://h:1", tmp_path, theirs) == "./environment/bin/python"
    assert cluster.environment_archive(None, SparkMode.LOCAL) is None
    for way, hint in (
        (SparkMode.LOCAL, "add --master"),
        (SparkMode.SUBMITTED, "with spark-submit, use --archives"),
    ):
        with pytest.raises(ConfigError, match=hint):
            cluster.environment_archive(tmp_path / "env.tar", way)
    with pytest.raises(ConfigError, match=r"environment archive not found: .*; create it with `umdf lake pack "):
        cluster.environment_archive(tmp_path / "env.tar", SparkMode.CLUSTER)


def test_settings_of_the_server_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {"spark.x": "1"}
    message = r"cannot set spark\.x: they belong to the server; set them there"
    with pytest.raises(ConfigError, match=message), session.session_scope(master="sc://127.0.0.1:1", **given):
        pass
    monkeypatch.setenv(cluster.GATEWAY_PORT_VARIABLE, "1234")
    message = r"cannot set spark\.x: they belong to spark-submit; set them there"
    with pytest.raises(ConfigError, match=message), session.session_scope(**given):
        pass


def test_a_worker_that_does_not_see_the_lake_says_so_before_it_writes(tmp_path: Path) -> None:
    with open_writer(tmp_path / "lake") as writer:
        task = {"root": str(writer.paths.root), "stamp": [writer.stamp.commit, writer.stamp.token]}
        cluster.refuse_unshared_lake(task)
        cluster.refuse_unshared_lake({"path": "a task that writes no table"})
        for other in ({"root": str(tmp_path / "elsewhere")}, {"stamp": [1, writer.stamp.token + 1]}):
            with pytest.raises(UmdfError, match=r"cannot access the lake .*; lake and captures must be mounted at"):
                cluster.refuse_unshared_lake(task | other)
    assert not (tmp_path / "elsewhere").exists()


def test_a_cluster_without_room_is_one_clear_error() -> None:
    """The driver is alone: a moment later two workers are there; or never."""
    counts, now = iter([1, 1, 3]), iter(range(1000))
    executors: Callable[[], Any] = lambda: [None] * next(counts, 1)  # noqa: E731
    tracker = SimpleNamespace(getExecutorInfos=executors)
    java_context = SimpleNamespace(sc=lambda: SimpleNamespace(statusTracker=lambda: tracker))
    context = SimpleNamespace(_jsc=java_context, getConf=lambda: {"spark.executor.memory": "9t"})
    spark: Any = SimpleNamespace(sparkContext=context)
    clock: dict[str, Any] = {"clock": lambda: float(next(now)), "sleep": lambda seconds: None}
    cluster.await_executor(spark, "spark://h:1", 60, **clock)
    with pytest.raises(UmdfError, match=r"no executor from spark://h:1 after 60 s; .*9t of memory"):
        cluster.await_executor(spark, "spark://h:1", 60, **clock)
    cluster.await_executor(spark, "yarn", 60, **clock)  # it has a queue: to wait is right


@pytest.mark.parametrize("setting", ["memory=1g", "spark.executor.memory", "=1"])
def test_a_setting_that_is_none_is_refused(setting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from umdf.cli.app import run

    assert run(["ingest", os.fspath(tmp_path), "--lake", "lake", "--conf", setting]) == 2
    assert "use KEY=VALUE, for example spark.executor.memory=4g" in capsys.readouterr().err
