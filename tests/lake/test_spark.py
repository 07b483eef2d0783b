"""Spark itself: the session of the tests, and a few in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from lake.lake_rows import TABLES, day, rows_of

from umdf.errors import UmdfError
from umdf.lake.commit import vacuum
from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.commit.log import Change
from umdf.lake.commit.writer import open_writer
from umdf.lake.hashing import logical_hash
from umdf.lake.parquet.data_files import FileAdd
from umdf.lake.query import sql
from umdf.lake.runtime import session, spark_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")  # one session, in one process
TESTS = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def spark(shared_spark: SparkSession) -> SparkSession:
    """The session that was started, which has a log."""
    return shared_spark


def numbered(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"n": n, "description": f"channel {n}", **more} for n in range(count)]


def test_the_session_is_as_it_should_be(spark: SparkSession, spark_logs: Path) -> None:
    context = spark.sparkContext
    assert context.master == "local[2,4]"
    for name, value in {**session.SETTINGS, **session.LOOPBACK_SETTINGS}.items():
        assert context.getConf().get(name) == value
    assert spark.sql("SELECT current_timezone()").head()[0] == "UTC"  # type: ignore[index]
    log = session.session_log(spark)
    assert log is not None and log.parent == spark_logs and log.exists()
    assert "[cds" not in log.read_text()  # the archive of Spark's classes, where there is one, was not refused
    with pytest.raises(UmdfError, match="already running in this process"):
        session.start_session()


def test_each_task_answers_once_in_order_from_our_python(spark: SparkSession) -> None:
    seen: list[tuple[int, int]] = []
    found = spark_tasks.run_tasks(
        spark, numbered(5), "lake.spark_functions:answer", progress=lambda done, total: seen.append((done, total))
    )
    assert [answer["n"] for answer in found] == [answer["task"] for answer in found] == list(range(5))
    assert {answer["python"] for answer in found} == {sys.executable} and os.getpid() not in {a["pid"] for a in found}
    assert seen[-1] == (5, 5) and sorted(seen) == seen
    assert spark_tasks.run_tasks(spark, [], "lake.spark_functions:answer") == []


def test_a_lost_worker_is_tried_again_and_a_hopeless_one_given_up(spark: SparkSession) -> None:
    found = spark_tasks.run_tasks(spark, numbered(3), "lake.spark_functions:dying")
    assert found[1]["attempt"] == 1 and [answer["n"] for answer in found] == [0, 1, 2]
    with pytest.raises(UmdfError, match=r"day one \(1 tasks\): Spark job failed: .*worker.*; more in .*spark-\d+\.log"):
        spark_tasks.run_tasks(spark, numbered(1), "lake.spark_functions:doomed", description="day one")


def test_failures_are_one_clear_error_or_values(spark: SparkSession) -> None:
    with pytest.raises(UmdfError) as caught:
        spark_tasks.run_tasks(spark, numbered(4), "lake.spark_functions:failing")
    assert str(caught.value) == "channel 1: no space left on the disk (and 1 more of 4 tasks); free some"
    found = spark_tasks.task_outcomes(spark, numbered(4), "lake.spark_functions:failing")
    assert [list(answer) for answer in (found[0], found[3])] == [["peak_memory_bytes"]] * 2  # type: ignore[arg-type]
    assert isinstance(found[2], spark_tasks.TaskFailure) and str(found[2].error()) == "channel 2: ValueError: two lines"
    assert "spark_functions.py" in found[2].trace
    with pytest.raises(UmdfError, match="channel 0: ModuleNotFoundError: No module named 'no_such'"):
        spark_tasks.run_tasks(spark, numbered(1), "no_such:function")


def test_a_job_is_described_while_it_runs(spark: SparkSession) -> None:
    context = spark.sparkContext
    with session.described_job(spark, "decode, channel 72"):
        assert context.getLocalProperty("spark.job.description") == "decode, channel 72"
        with session.described_job(spark, "inner", group="g"):
            assert context.getLocalProperty("spark.jobGroup.id") == "g"
        assert context.getLocalProperty("spark.job.description") == "decode, channel 72"
    assert context.getLocalProperty("spark.job.description") is None


def test_tasks_write_files_a_commit_lists_them_and_a_lost_attempt_leaves_an_orphan(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "lake [1] é"  # no pattern, no URL
    with open_writer(root) as writer:
        given = {"root": root, "commit": writer.stamp.commit, "token": writer.stamp.token}
        made = spark_tasks.run_tasks(spark, numbered(3, **given), "lake.spark_functions:writing")
        assert len(list(root.rglob("*.parquet"))) == 4
        writer.commit([Change("mbo", tuple(FileAdd.from_json(answer["file"]) for answer in made))])
        assert vacuum.delete_orphans(writer).files == 1
    snapshot = open_snapshot(root)
    truth = [rows_of("mbo", 50, n) for n in range(3)]
    assert snapshot.logical_hash("mbo") == logical_hash([batch for rows in truth for batch in rows.to_batches()])
    frame = snapshot.spark_frame(spark, "mbo")
    assert frame.columns == truth[0].schema.names
    assert frame.count() == 150


def test_spark_and_polars_read_what_arrow_reads(spark: SparkSession, tmp_path: Path) -> None:
    import polars
    from pyspark.sql import functions

    with open_writer(tmp_path) as writer:
        day(writer, range(2))
    snapshot = open_snapshot(tmp_path)
    for name in TABLES:
        frame, arrow = snapshot.spark_frame(spark, name), snapshot.arrow_table(name)
        assert logical_hash(frame.toArrow()) == logical_hash(arrow) == snapshot.logical_hash(name)
        second = polars.read_delta(str(tmp_path / name))  # as Delta, not as our list of files
        assert second.columns == arrow.schema.names and second.height == arrow.num_rows
        numbers = [field.name for field in arrow.schema if str(field.type) in ("int64", "int32", "int16", "int8")]
        ours = {column: sum(filter(None, arrow.column(column).to_pylist())) for column in numbers}
        assert second.select(polars.col(column).cast(polars.Int64).sum() for column in numbers).to_dicts() == [ours]
        theirs = frame.agg(*[functions.sum(column).alias(column) for column in numbers]).head()
        assert theirs is not None and theirs.asDict() == ours
    assert snapshot.spark_frame(spark, "news").count() == 0
    assert snapshot.spark_frame(spark, "news").columns == snapshot.arrow_table("news").schema.names
    assert snapshot.spark_frame(spark, "mbo", channel_id=72).count() == 100
    assert snapshot.spark_frame(spark, "mbo", channel_id=[1, 2]).count() == 0


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_spark_notices_a_damaged_page_and_names_its_file(spark: SparkSession, tmp_path: Path, vectorized: str) -> None:
    root = tmp_path / "a lake é"
    with open_writer(root) as writer:
        day(writer, range(1), ("mbo",))
    snapshot = open_snapshot(root)
    [path] = snapshot.files("mbo")
    column = pq.read_metadata(path).row_group(0).column(1)  # ts_recv: plain deltas, of which any bits are numbers
    content = bytearray(path.read_bytes())
    content[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    path.write_bytes(content)
    spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
    try:
        sql.register(snapshot, spark, names=["mbo"], prefix="damaged_")
        with pytest.raises(
            UmdfError, match=f"^cannot read {path}: .*CRC.*; find damaged files with `umdf lake verify LAKE --deep`"
        ):
            sql.run_sql(spark, "SELECT sum(ts_recv_ns) FROM damaged_mbo")
    finally:
        spark.conf.unset("spark.sql.parquet.enableVectorizedReader")


def test_a_session_of_the_caller_is_neither_changed_nor_ended(spark: SparkSession) -> None:
    with session.session_scope(spark) as same:
        assert same is spark
    session.stop_session(spark.newSession())  # not ours: nothing happens
    assert spark.range(3).count() == 3


def waiting(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.1)
    return False


def marked(mark: str) -> list[int]:
    """The processes whose environment carries a mark: a child and everything it started."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            alive = directory.joinpath("stat").read_text().rpartition(")")[2].split()[0] != "Z"
            if alive and f"UMDF_TEST_MARK={mark}".encode() in directory.joinpath("environ").read_bytes().split(b"\0"):
                found.append(int(directory.name))
        except OSError:
            continue
    return found


CHILD = """
import sys
from umdf.lake.runtime import session, spark_tasks

with session.session_scope(cores=1, memory="512m", work=sys.argv[1], quick=True) as spark:
    print(spark.sparkContext._jvm.java.lang.System.getProperty("java.version"), flush=True)
    spark_tasks.run_tasks(spark, [{"started": sys.argv[1] + "/started"}], "lake.spark_functions:sleeping")
"""


def tools_without_java(directory: Path) -> str:
    directory.mkdir()
    for place in (Path("/usr/bin"), Path("/bin")):
        for tool in place.iterdir():
            if tool.name != "java" and not (directory / tool.name).is_symlink():
                (directory / tool.name).symlink_to(tool)
    return str(directory)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_without_any_java_it_starts_in_silence_and_a_signal_ends_the_job_its_workers_and_the_jvm(
    number: signal.Signals, soak: bool, tmp_path: Path
) -> None:
    if number is not signal.SIGINT and not soak:
        pytest.skip("only at full size: make soak")
    mark = f"{os.getpid()}-{number.name}"
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    path = tools_without_java(tmp_path / "bin")
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path / "work")],
        env=kept | {"PYTHONPATH": str(TESTS), "PATH": path, "UMDF_TEST_MARK": mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert waiting(lambda: (tmp_path / "work" / "started").exists() or child.poll() is not None, 120)
    assert len(marked(mark)) >= 4  # the child, the JVM, the daemon of workers, a worker
    child.send_signal(number)
    release, said = child.communicate(timeout=60)
    assert child.returncode == {signal.SIGINT: -2, signal.SIGTERM: 143, signal.SIGKILL: -9}[number]
    assert release.startswith("21.")  # the wheel's
    assert said == "" or (said.startswith("Traceback") and said.endswith("\nKeyboardInterrupt\n"))
    assert waiting(lambda: not marked(mark)), [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in marked(mark)]
    if number is not signal.SIGKILL:
        assert [path.name for path in (tmp_path / "work").iterdir()] == ["started"]
