"""The offsets of a recording: which files a micro-batch of a stream gets. What becomes of them: test_stream.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles

from umdf.lake.stream.closed_files import ClosedFilesReader
from umdf.transport.recording import MANIFEST

ALL = ReadAllAvailable()


def write(directory: Path, *names: str, take: int = 0, mode: str = "w") -> None:
    with (directory / MANIFEST).open(mode) as manifest:
        manifest.writelines(json.dumps({"file": name, "bytes": 100 + take}) + "\n" for name in names)


def batch(directory: Path, start: dict[str, Any], limit: ReadLimit = ALL) -> tuple[list[str], dict[str, Any]]:
    """As a query that was started again does it; an offset is what a checkpoint has of it."""
    reader = ClosedFilesReader(str(directory), None)
    end = json.loads(json.dumps(reader.latestOffset(start, limit)))
    return given(directory, start, end), end


def given(directory: Path, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    reader = ClosedFilesReader(str(directory), None)
    return [Path(path).name for part in reader.partitions(start, end) for (path,) in reader.read(part)]


def test_each_file_is_handed_over_once_in_the_order_of_the_manifest(tmp_path: Path) -> None:
    begin = ClosedFilesReader(str(tmp_path), None).initialOffset()
    assert batch(tmp_path, begin) == ([], begin), "without a manifest nothing is closed"
    (tmp_path / "grows.pcap").write_text("")
    assert batch(tmp_path, begin) == ([], begin)
    write(tmp_path, "c", "a", "b")
    files, first = batch(tmp_path, begin, ReadMaxFiles(2))
    assert files == ["c", "a"] and first["files"] == 2
    write(tmp_path, "d", mode="a")
    files, second = batch(tmp_path, first)
    assert files == ["b", "d"] and batch(tmp_path, second) == ([], second)
    assert given(tmp_path, begin, first) == ["c", "a"], "a batch that is done again has the same files"
    assert len(json.dumps(second)) < 100


def test_no_file_of_a_restarted_manifest_is_skipped(tmp_path: Path) -> None:
    write(tmp_path, "a", "b", "c")
    begin = ClosedFilesReader(str(tmp_path), None).initialOffset()
    _, old = batch(tmp_path, begin)
    (tmp_path / MANIFEST).unlink()
    assert batch(tmp_path, old) == ([], old)
    for names, take in ((["x"], 0), (["x", "y", "z"], 0), (["a", "b", "c", "d"], 1), (["c", "a"], 0)):
        write(tmp_path, *names, take=take)  # fewer, as many and more files; names that were there before
        files, offset = batch(tmp_path, old)
        assert files == names
        assert batch(tmp_path, offset) == ([], offset)
        files, offset = batch(tmp_path, old, ReadMaxFiles(1))
        assert files == names[:1] and batch(tmp_path, offset)[0] == names[1:]
        assert given(tmp_path, begin, old) == [], "of the old one nothing is known any more"
    assert batch(tmp_path, {"files": 2})[0] == ["c", "a"], "a checkpoint of before has no digest"


def test_a_run_that_takes_what_there_is_ends_there(tmp_path: Path) -> None:
    write(tmp_path, "a", "b")
    reader = ClosedFilesReader(str(tmp_path), None)
    reader.prepareForTriggerAvailableNow()
    write(tmp_path, "c", mode="a")
    assert reader.latestOffset(reader.initialOffset(), ALL)["files"] == 2
    assert reader.reportLatestOffset()["files"] == 3
