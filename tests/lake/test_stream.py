"""A growing recording into a lake with Structured Streaming: `umdf stream` and what is below it.

What micro-batches come to is tested without Spark (test_followed_days.py), and what is left by a kill in
test_kill_stream.py.
"""

from __future__ import annotations

import json
import shutil
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lake.captures import ALL, day, files_of, hashes, ingest
from lake.followed_days import Made, cut
from lake.lake_commands import umdf, until

from umdf.cli.app import run
from umdf.errors import UmdfError
from umdf.lake.admin import lake_status
from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.commit.writer import open_writer
from umdf.lake.ingest_settings import IngestSettings
from umdf.lake.stream.stream_ingest import MicroBatch, StreamIngest, wait_for_manifest
from umdf.transport.recording import MANIFEST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")  # one session, in one process
FEW = frozenset({"mbo", "trades", "packets", "gaps", "quality", "ohlcv_1m"})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, sized: Callable[[int, int], int]) -> Made:
    tmp = tmp_path_factory.mktemp("streams")
    captured = day(tmp, sized(3_000, 20_000), sized(10, 40), rate=500, roll_s=sized(3, 1), loss=0.02, seed=5)
    ingest(tmp / "batch", files_of(captured))
    return Made([captured], tmp / "batch")


def record(directory: Path, files: Sequence[Path]) -> Path:
    """Files are closed, one after the other."""
    directory.mkdir(exist_ok=True)
    with (directory / MANIFEST).open("a") as manifest:
        for file in files:
            shutil.copy(file, directory)
            manifest.write(json.dumps({"file": file.name, "bytes": file.stat().st_size}) + "\n")
    return directory


def stream(
    spark: SparkSession, recording: Path, root: Path, *, finish: bool = False, tables: frozenset[str] = ALL, **more: Any
) -> list[MicroBatch]:
    """All that is closed now; what each micro-batch came to."""
    batches: list[MicroBatch] = []
    with open_writer(root, "stream") as writer:
        followed = StreamIngest(
            spark, recording, writer, IngestSettings(tables=tables), on_batch=batches.append, **more
        )
        followed.run(once=True)
        if finish:
            followed.finish()
    return batches


def test_micro_batches_of_a_recording_that_grows_are_its_ingest(
    spark: SparkSession, made: Made, tmp_path: Path
) -> None:
    """Stopped and started again from its checkpoint, which knows what was read; and batches that Spark does again."""
    root, files = tmp_path / "lake", made.files
    half = len(files) // 2
    recording = record(tmp_path / "recording", files[:half])
    first = stream(spark, recording, root, max_files=half // 3)
    assert len(first) >= 3 and sum(batch.files for batch in first) == half
    assert [batch.number for batch in first] == list(range(len(first)))
    assert stream(spark, recording, root) == []  # there is nothing new
    commits = open_snapshot(root).number
    checkpoint = next((root / "_lake" / "streams").iterdir())
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.with_name(f".{last.name}.crc").unlink()
    last.unlink()  # as if Spark had been killed between the lake's commit and its own
    [again] = stream(spark, recording, root)
    assert (again.number, again.outcome.new, again.outcome.known) == (int(last.name), 0, again.files)
    assert open_snapshot(root).number == commits, "what is known already is no commit"
    record(recording, files[half:])
    rest = stream(spark, recording, root, max_files=7, finish=True)
    assert rest[0].number == len(first) and sum(batch.files for batch in rest) == len(files) - half
    assert made.differing(root) == set()
    assert rest[-1].outcome.closed_days and lake_status.verify(root, deep=True) == []
    names = ("mbo", "trades", "mbp_1", "packets", "ohlcv_1s")
    assert [len(open_snapshot(root).files(name)) for name in names] == [1] * len(names)  # a day that is over
    assert lake_status.status(root).orphans.files == 0


@pytest.mark.full_size
def test_a_stream_without_its_checkpoint_begins_anew_and_nothing_comes_twice(
    spark: SparkSession, made: Made, tmp_path: Path
) -> None:
    recording = record(tmp_path / "recording", made.files)
    stream(spark, recording, tmp_path / "lake", tables=FEW)
    shutil.rmtree(tmp_path / "lake" / "_lake" / "streams")
    [again, *_] = stream(spark, recording, tmp_path / "lake", tables=FEW, finish=True)
    assert (again.outcome.new, again.outcome.known) == (0, len(made.files))
    assert made.differing(tmp_path / "lake") & FEW == set()


def test_a_stream_goes_on_until_it_is_stopped(spark: SparkSession, made: Made, tmp_path: Path) -> None:
    recording, batches = record(tmp_path / "recording", made.files[:6]), list[MicroBatch]()
    with open_writer(tmp_path / "lake", "stream") as writer:
        followed = StreamIngest(spark, recording, writer, IngestSettings(tables=FEW), on_batch=batches.append)
        running = threading.Thread(target=followed.run)
        running.start()
        try:
            assert until(lambda: bool(batches), 60)
            record(recording, made.files[6:])
            assert until(lambda: sum(batch.files for batch in batches) == len(made.files), 60)
        finally:
            followed.stop()
            running.join()
        followed.finish()
    assert made.differing(tmp_path / "lake") & FEW == set()
    lags = [batch.lag_s for batch in batches if batch.lag_s]
    assert lags and all(0 <= newest <= oldest for newest, oldest in lags)


def test_an_error_in_a_micro_batch_is_raised_as_it_is_and_the_next_run_goes_on(
    spark: SparkSession, made: Made, tmp_path: Path
) -> None:
    recording = record(tmp_path / "recording", made.files)
    gone = recording / made.files[-1].name
    batches: list[MicroBatch] = []

    def fail(batch: MicroBatch) -> None:
        batches.append(batch)
        if gone.exists():
            gone.rename(tmp_path / "away")

    with open_writer(tmp_path / "lake", "stream") as writer:
        followed = StreamIngest(
            spark, recording, writer, IngestSettings(tables=FEW), on_batch=fail, max_files=len(made.files) // 2
        )
        with pytest.raises(UmdfError, match=f"{gone.name}: no such file") as fault:
            followed.run(once=True)
    assert "\n" not in str(fault.value) and 1 <= len(batches) <= 2
    (tmp_path / "away").rename(gone)
    stream(spark, recording, tmp_path / "lake", finish=True, tables=FEW)
    assert made.differing(tmp_path / "lake") & FEW == set()


def test_a_checkpoint_of_something_else_is_refused(spark: SparkSession, made: Made, tmp_path: Path) -> None:
    one, other = (record(tmp_path / name, made.files[:3]) for name in ("one", "other"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("mine")
    (tmp_path / "file").write_text("mine")
    stream(spark, one, tmp_path / "lake", checkpoint=tmp_path / "mark", tables=FEW)
    before = hashes(tmp_path / "lake")
    for recording, root, checkpoint, reason in (
        (other, "lake", "mark", f"mark belongs to {one}"),
        (one, "another", "mark", "mark belongs to another lake"),
        (one, "lake", "full", "full is not a umdf checkpoint"),
        (one, "lake", "file", "file is not a umdf checkpoint"),
    ):
        with pytest.raises(UmdfError, match=reason) as fault:
            stream(spark, recording, tmp_path / root, checkpoint=tmp_path / checkpoint)
        assert fault.value.hint
    assert hashes(tmp_path / "lake") == before
    assert stream(spark, one, tmp_path / "lake", checkpoint=tmp_path / "mark") == []


# The command


def test_a_recording_without_a_manifest_is_waited_for(tmp_path: Path) -> None:
    lines: list[str] = []
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            record(tmp_path / "recording", [])

    wait_for_manifest(tmp_path / "recording", lines.append, sleep)
    assert len(waited) == 2 and len(lines) == 1 and f"waiting for {tmp_path / 'recording' / MANIFEST}" in lines[0]
    wait_for_manifest(tmp_path / "recording", lines.append, sleep)
    assert len(waited) == 2 and len(lines) == 1, "it is there"


def test_a_recording_that_cannot_be_read_is_one_clear_error(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("missing", "empty", "broken", "gone", "other-size", "no-manifest"):
        if name != "missing":
            record(tmp_path / name, made.files[:2] if name not in ("empty",) else [])
    (tmp_path / "empty" / MANIFEST).unlink()
    (tmp_path / "no-manifest" / MANIFEST).unlink()
    with (tmp_path / "broken" / MANIFEST).open("a") as manifest:
        manifest.write('{"fil": 3}\n')
    (tmp_path / "gone" / made.files[1].name).unlink()
    with (tmp_path / "other-size" / made.files[1].name).open("ab") as file:
        file.write(b"more")
    for name, reason in {
        "missing": "missing; pass its directory",
        "empty": "empty is not a recording",
        "broken": f"{MANIFEST}:3: invalid entry",
        "gone": "is listed in the manifest but does not exist",
        "other-size": "but the manifest says",
        "no-manifest": f"no-manifest has no {MANIFEST}, so closed files are unknown",
    }.items():
        assert run(["stream", str(tmp_path / name), "--lake", str(tmp_path / "lake"), "--once"]) == 3, name
        shown = capsys.readouterr()
        assert shown.out == "" and shown.err.count("\n") == 1 and reason in shown.err and "; " in shown.err, shown.err
    assert not (tmp_path / "lake").exists()
    arguments = ["stream", str(tmp_path / "gone"), "--lake", str(tmp_path / "lake")]
    assert run([*arguments, "--finish"]) == 2
    assert "--finish can only be used with --once" in capsys.readouterr().err
    assert run([*arguments, "--json", "--once", "--tables", "mbo,mbx"]) == 2
    assert "mbx" in json.loads(capsys.readouterr().err)["error"]


@pytest.mark.full_size
def test_the_command_takes_a_recording_in_one_go(made: Made, tmp_path: Path) -> None:
    recording, root = record(tmp_path / "recording", made.files), tmp_path / "lake"
    words = ("stream", recording, "--lake", root, "--once", "--cores", "2", "--tables", ",".join(sorted(ALL)))
    with umdf("once", *words, "--finish", "--max-files", "8", "--json") as command:
        code, printed, said = command.finish()
    assert (code, said) == (0, "")
    batches = [json.loads(line) for line in printed.splitlines()]
    assert [batch["files"] for batch in batches[:-1]] == [len(files) for files in cut(made.files, 8)]
    assert batches[-1]["outcome"]["closed_days"] and sum(batch["outcome"]["messages"] for batch in batches) > 2_000
    assert made.differing(root) == set()


def test_another_writer_has_to_wait_and_ctrl_c_ends_spark_and_its_workers(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording, root = record(tmp_path / "recording", made.files[:8]), tmp_path / "lake"
    tables = ("--tables", ",".join(sorted(FEW)))
    with umdf("stream", "stream", recording, "--lake", root, "--cores", "2", "--interval-s", "0", *tables) as command:
        assert until(lambda: (root.is_dir() and open_snapshot(root).number > 0) or command.ended, 120, 0.2)
        # An ingest of the same lake gets one clear error, or waits for its turn.
        files = [str(path) for path in made.files]
        assert run(["ingest", *files, "--lake", str(root), "--no-spark", *tables]) == 3
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and f"is locked by stream (process {command.process.pid}" in said
        with umdf(
            "waits", "ingest", *files, "--lake", root, "--no-spark", "--writer-wait-s", "200", *tables
        ) as waiting:
            record(recording, made.files[8:12])
            assert until(lambda: open_snapshot(root).rows("ledger") >= 12 or command.ended, 120, 0.2)
            assert not waiting.ended
            command.process.send_signal(signal.SIGINT)
            code, printed, said = command.finish()
            assert code == 130 and "start it again to resume from here" in said and "Traceback" not in said
            assert printed.count("batch ") >= 2
            assert until(lambda: not command.family(), 30, 0.1), command.family()
            assert waiting.finish()[0] == 0
    assert made.differing(root) & FEW == set()
    assert lake_status.status(root).writer is None and not list((root / "_lake" / "work").glob("*"))
