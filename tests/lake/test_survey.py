"""What a survey says of a file, against a plain reading of it."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import pytest
from lake.captures import day, files_of, truth

from umdf.lake.commit.ledger import digest_of
from umdf.lake.plan.segments import assign_streams
from umdf.lake.runtime.spark_tasks import TaskAttempt
from umdf.lake.tasks import survey
from umdf.lake.tasks.survey import SEGMENT_FIELDS
from umdf.market.calendar import local_date
from umdf.sync.stream_detection import StreamSurvey
from umdf.transport.capture import open_capture


@pytest.fixture(scope="module")
def tmp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("days")


def surveyed(path: Path, tmp: Path, split_bytes: int = 1 << 25) -> dict:
    task = {"path": str(path), "known": [], "decompressed": str(tmp / "decompressed"), "split_bytes": split_bytes}
    return json.loads(json.dumps(survey.run(task, TaskAttempt(0, 0))))  # as it travels


def test_segments_of_binary_are_what_the_headers_say(tmp: Path) -> None:
    [path] = [p for p in files_of(day(tmp, roll_s=600, seed=1)) if "incremental-A" in p.name]
    found = surveyed(path, tmp, 70_000)
    assert len(found["splits"]) > 3
    numbers = []
    with open_capture(path) as capture:
        for batch in capture:
            for row in range(len(batch)):
                payload = batch.payload(row)
                numbers.append((int(batch.offset[row]), int.from_bytes(payload[4:8], "little"), int(batch.ts_ns[row])))
                date = local_date(int.from_bytes(payload[8:16], "little"))
    for split in found["splits"]:
        mine = [(n, ts) for offset, n, ts in numbers if split["offset"] <= offset < split["end"]]
        [segment] = [dict(zip(SEGMENT_FIELDS, values, strict=True)) for values in split["segments"]]
        counted = [n for n, _ in mine if n]
        assert (segment["first"], segment["last"], segment["packets"]) == (min(counted), max(counted), len(mine))
        assert (segment["channel"], segment["epoch"], segment["date"]) == (72, 273, date)
        assert (segment["ts_first"], segment["ts_last"]) == (
            min(mine, key=lambda m: m[1])[1],
            max(ts for _, ts in mine),
        )
    assert sum(segment[6] for split in found["splits"] for segment in split["segments"]) == len(numbers)


@pytest.mark.parametrize("protocol", ["sbe", "fast"])
def test_surveys_of_single_files_together_tell_the_streams(tmp: Path, protocol: str) -> None:
    captured = day(tmp, protocol=protocol, seed=1)
    session = json.loads((captured / "session.json").read_text())
    places = assign_streams([surveyed(path, tmp) for path in files_of(captured)], {})
    expected = {
        (stream["multicast_group"], stream["port"]): (protocol, stream["stream"], 72, stream["line"])
        for stream in session["channels"][0]["protocols"][protocol]["streams"]
    }
    found = {group: (place.protocol, place.stream, place.channel, "AB"[place.line]) for group, place in places.items()}
    assert found == expected


def test_names_in_the_configuration_come_first(tmp: Path) -> None:
    captured = day(tmp, protocol="fast", seed=1)
    surveys = [surveyed(path, tmp) for path in files_of(captured)]
    groups = assign_streams(surveys, {})
    named = {group: {"channel": 99, "line": "BA"[place.line]} for group, place in groups.items()}
    again = assign_streams(surveys, named)
    assert {place.channel for place in again.values()} == {99}
    lines = {group: place.line for group, place in groups.items() if place.stream == "incremental"}
    assert {group: again[group].line for group in lines} == {group: 1 - line for group, line in lines.items()}


def test_fast_numbers_are_those_of_the_messages(tmp: Path) -> None:
    captured = day(tmp, protocol="fast", seed=1, roll_s=600)
    [path] = [p for p in files_of(captured) if "incremental-A" in p.name]
    segments = [segment for split in surveyed(path, tmp)["splits"] for segment in split["segments"]]
    [row] = [row for row in truth(captured, "sequences").to_pylist() if row["stream"] == "incremental"]
    assert (min(s[4] for s in segments), max(s[5] for s in segments)) == (row["first_sequence"], row["last_sequence"])


def test_a_packed_file_is_unpacked_and_known_by_its_own_bytes(tmp: Path, tmp_path: Path) -> None:
    path = files_of(day(tmp, seed=1))[0]
    compressed = tmp_path / "day.pcap.gz"
    compressed.write_bytes(gzip.compress(path.read_bytes()))
    plain, of_compressed = surveyed(path, tmp_path), surveyed(compressed, tmp_path)
    assert (of_compressed["packed"], of_compressed["splits"]) == ("gzip", plain["splits"])
    assert of_compressed["digest"] == digest_of(compressed)[0] != plain["digest"]
    [file] = (tmp_path / "decompressed").iterdir()
    assert file.read_bytes() == path.read_bytes()


def test_a_file_that_is_not_a_capture_is_reported_and_raises_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.pcap").write_bytes(b"nothing of the kind")
    found = surveyed(tmp_path / "x.pcap", tmp_path)
    assert found["no_capture"] and "not a capture file" in found["warnings"][0][1]
    task = {"path": str(tmp_path / "x.pcap"), "known": [found["digest"]], "decompressed": "", "split_bytes": 1}
    assert survey.run(task, TaskAttempt(0, 0))["known"] is True


def test_surveys_of_many_files_are_merged_in_place(tmp: Path) -> None:
    """What was absorbed before is not copied for each further file: 400 files took seconds in every micro-batch."""
    [path] = [path for path in files_of(day(tmp, protocol="fast", roll_s=600, seed=1)) if "incremental-A" in path.name]
    found = surveyed(path, tmp)["streams"]
    [stream] = [stream for stream in found if stream["digests"]]
    whole = StreamSurvey(survey.templates())
    for number in range(50):
        moved = [[sequence + 10_000 * number, digest] for sequence, digest in stream["digests"]]
        whole.merge([stream | {"digests": moved}])
    few = stream | {"digests": stream["digests"][:1]}
    tracemalloc.start()
    try:
        whole.merge([few])
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 100_000
