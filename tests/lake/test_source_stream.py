"""A growing recording as a stream: every event once, however the files come and wherever micro-batches end."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from lake.captures import day, files_of
from lake.source_rows import options, read, streamed

import umdf
from umdf.errors import UmdfError
from umdf.lake.hashing import logical_hash
from umdf.lake.source.options import PACKETS, READABLE_SCHEMAS
from umdf.lake.source.stream_reader import RecordingReader
from umdf.transport.recording import MANIFEST, closed_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")  # one session, in one process
DAYS: dict[str, dict[str, Any]] = {
    "sbe": {"loss": 0.01},
    "fast": {"protocol": "fast", "loss": 0.01, "channel_reset": True},
}
# Known from files that may be closed later: when the other line's copy came, and what an instrument is called.
LATER = {"ts_recv", "symbol"}


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory, sized: Callable[[int, int], int]) -> dict[str, Path]:
    tmp = tmp_path_factory.mktemp("recordings")
    return {
        kind: day(tmp, sized(4_000, 60_000), sized(12, 60), roll_s=2, seed=8, **more) / "capture"
        for kind, more in DAYS.items()
    }


def record(directory: Path, files: Sequence[Path]) -> None:
    """Files are closed, one after the other."""
    directory.mkdir(exist_ok=True)
    with (directory / MANIFEST).open("a") as manifest:
        for file in files:
            shutil.copy(file, directory)
            manifest.write(json.dumps({"file": file.name, "bytes": file.stat().st_size, "digest": "…"}) + "\n")


def manifested(capture: Path) -> list[Path]:
    return [capture / json.loads(line)["file"] for line in (capture / MANIFEST).read_text().splitlines()]


def counted(rows: pa.Table, without: set[str]) -> Counter[str]:
    return Counter(str({name: value for name, value in row.items() if name not in without}) for row in rows.to_pylist())


@pytest.mark.parametrize("kind", DAYS)
def test_micro_batches_together_are_the_batch(
    captured: dict[str, Path], tmp_path: Path, kind: str, sized: Callable[[Any, Any], Any]
) -> None:
    files = manifested(captured[kind])
    record(tmp_path / "recording", files)
    for family in sized(("mbo", "definition", "snapshot", PACKETS), READABLE_SCHEMAS):
        without = {"definition": {"ts_recv"}, PACKETS: {"ts_recv", "disposition"}}.get(family, LATER)
        expected = counted(read(files, family), without)
        for ends in ([3, 4, 11, len(files)], *([range(1, len(files) + 1)] if family == "mbo" else [])):
            found = streamed(tmp_path / "recording", family, list(ends))
            assert sum((counted(rows, without) for rows in found), Counter()) == expected, (family, list(ends))
            assert family != "mbo" or sum(rows.num_rows > 0 for rows in found) > 1  # others may be of one moment
    [whole] = streamed(tmp_path / "recording", "mbo", [len(files)])
    assert logical_hash(whole) == logical_hash(read(files, "mbo"))


@pytest.mark.parametrize("kind", DAYS)
def test_the_order_in_which_files_are_closed_does_not_matter(
    captured: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    files = files_of(captured[kind].parent)
    order = random.Random(3).sample(files, len(files))
    record(tmp_path / "recording", order)
    # What comes before an event may be read after it: then the aggressor of a trade is not known.
    expected = counted(read(files, "trades"), LATER | {"side"})
    ends = [4, 9, 15, len(files)]
    found = streamed(tmp_path / "recording", "trades", ends)
    assert sum((counted(rows, LATER | {"side"}) for rows in found), Counter()) == expected


def test_a_file_that_is_sent_again_brings_nothing(captured: dict[str, Path], tmp_path: Path) -> None:
    files = manifested(captured["sbe"])
    record(tmp_path / "recording", files)
    again = tmp_path / f"again-{files[0].name}"
    shutil.copy(files[0], again)
    record(tmp_path / "recording", [again])
    first, second = streamed(tmp_path / "recording", "mbo", [len(files), len(files) + 1])
    assert first.num_rows > 0 and second.num_rows == 0


def test_without_late_definitions_a_stream_equals_the_batch_in_every_column(
    captured: dict[str, Path], tmp_path: Path
) -> None:
    """One line, and definitions first."""
    files = [file for file in manifested(captured["sbe"]) if not file.name.endswith("incremental-B.pcap")]
    files.sort(key=lambda file: "instruments" not in file.name)
    record(tmp_path / "recording", files)
    found = streamed(tmp_path / "recording", "mbo", range(1, len(files) + 1))
    assert sum(rows.num_rows > 0 for rows in found) >= 4
    assert logical_hash(pa.concat_tables(found)) == logical_hash(read(files, "mbo"))


@pytest.fixture(scope="module")
def spark(shared_spark: SparkSession) -> SparkSession:
    own = shared_spark.newSession()
    umdf.register_source(own)
    return own


def drain(spark: SparkSession, recording: Path, out: Path, family: str, **more: str) -> list[dict[str, Any]]:
    """All that is closed now goes to Parquet files; the progress of each micro-batch."""
    reader = spark.readStream.format("umdf").option("schema", family)
    for name, value in more.items():
        reader = reader.option(name, value)
    writer = reader.load(str(recording)).writeStream.format("parquet").option("path", str(out / "rows"))
    query = writer.option("checkpointLocation", str(out / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(240)
    return [json.loads(each.json) for each in query.recentProgress]


def test_available_now_over_a_growing_recording(spark: SparkSession, captured: dict[str, Path], tmp_path: Path) -> None:
    files = manifested(captured["fast"])
    recording, half = tmp_path / "recording", len(files) // 2
    record(recording, files[:half])
    more = {"maxFilesPerTrigger": "6", "columns": "sequence,seq_version,msg_index,entry_index,instrument_id,price"}
    progress = drain(spark, recording, tmp_path, "mbo", **more)
    assert [each["sources"][0]["endOffset"]["files"] for each in progress][-1] == half
    record(recording, files[half:])
    progress += drain(spark, recording, tmp_path, "mbo", **more)
    assert progress[-1]["sources"][0]["endOffset"]["files"] == len(files)
    assert sum(each["numInputRows"] > 0 for each in progress) >= 3
    found = spark.read.parquet(str(tmp_path / "rows")).toArrow()
    assert logical_hash(found) == logical_hash(read(files, "mbo", columns=more["columns"]))


def test_a_recording_that_grows_while_a_query_runs(
    spark: SparkSession, captured: dict[str, Path], tmp_path: Path
) -> None:
    files, recording = manifested(captured["sbe"]), tmp_path / "recording"
    some = next(count for count in range(1, len(files)) if read(files[:count], "trades").num_rows)
    record(recording, files[:some])
    frame = spark.readStream.format("umdf").option("schema", "trades").option("columns", "trade_id,size")
    query = (
        frame.load(str(recording))
        .writeStream.format("memory")
        .queryName("grown")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        first = spark.table("grown").count()
        record(recording, files[some:])
        query.processAllAvailable()
        found = spark.table("grown").toArrow()
    finally:
        query.stop()
    assert 0 < first < found.num_rows
    assert logical_hash(found) == logical_hash(read(files, "trades", columns="trade_id,size"))


# Bad input


def test_what_is_no_recording_is_refused(captured: dict[str, Path], tmp_path: Path) -> None:
    files = manifested(captured["sbe"])
    record(tmp_path / "recording", files[:4])
    (tmp_path / "empty").mkdir()
    reader = RecordingReader(options("mbo", tmp_path / "recording"))
    offset = reader.reportLatestOffset()
    assert offset["files"] == 4

    def refused(said: str, ask: Callable[[], Any]) -> None:
        with pytest.raises(UmdfError) as error:
            ask()
        assert said in str(error.value)

    for name, said in (("nothing", "recording not found"), ("empty", "is not a recording")):
        refused(said, RecordingReader(options("mbo", tmp_path / name)).reportLatestOffset)
    refused("not the recording", lambda: reader.partitions(reader.initialOffset(), offset | {"names": "0"}))
    refused("not the recording", lambda: reader.partitions(offset, offset | {"files": 5}))
    with (tmp_path / "recording" / MANIFEST).open("a") as manifest:
        manifest.write('{"file": "half')  # is being written: no line yet
        manifest.flush()
        assert closed_files(tmp_path / "recording") == [tmp_path / "recording" / file.name for file in files[:4]]
        manifest.write("\n")
    refused(":5: invalid entry", reader.reportLatestOffset)
    record(tmp_path / "changed", files[:2])
    with (tmp_path / "changed" / files[0].name).open("ab") as grown:
        grown.write(b"more")
    refused("but the manifest says", lambda: closed_files(tmp_path / "changed"))
    (tmp_path / "changed" / files[0].name).unlink()
    refused("does not exist", lambda: closed_files(tmp_path / "changed"))


def test_without_a_manifest_the_files_of_the_start_count(captured: dict[str, Path], tmp_path: Path) -> None:
    files = files_of(captured["sbe"].parent)
    for file in files[:5]:
        shutil.copy(file, tmp_path)
    reader = RecordingReader(options("mbo", tmp_path))
    assert reader.reportLatestOffset()["files"] == 5
    shutil.copy(files[5], tmp_path)
    assert reader.reportLatestOffset()["files"] == 5
    assert RecordingReader(options("mbo", tmp_path)).reportLatestOffset()["files"] == 6
