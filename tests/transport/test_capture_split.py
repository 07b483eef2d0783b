"""Reading the splits of a file, in any order and in any process, is reading the file."""

from __future__ import annotations

import gzip
import pickle
import random
from pathlib import Path

import pytest
from transport.capture_builders import pcap, pcap_header, read, sample_pcap, sample_pcapng, section

from umdf.errors import CaptureError
from umdf.transport.capture import open_capture, split_capture

SAMPLES = {"pcap": sample_pcap(200), "pcapng": sample_pcapng(200)}


@pytest.mark.parametrize("every_bytes", [1, 500, 5000, 64 << 20])
@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("tail", [b"", b"\xff" * 7, b"\xff" * 50], ids=["whole", "cut", "damaged"])
def test_the_splits_together_are_the_file(name: str, every_bytes: int, tail: bytes, tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(SAMPLES[name] + tail)
    whole, capture = read(path)
    splits = split_capture(path, every_bytes)
    assert len(splits) == 1 if every_bytes > 1 << 20 else len(splits) >= path.stat().st_size // (every_bytes + 200)
    random.Random(3).shuffle(splits)
    rows, warnings, records, udp = [], [], 0, 0
    for split in splits:
        part, opened = read(pickle.loads(pickle.dumps(split)), buffer_bytes=300)
        rows += part
        warnings += opened.warnings
        records += opened.counts.records
        udp += opened.counts.udp
    assert sorted(rows) == whole
    assert warnings == capture.warnings and len(warnings) == bool(tail)
    assert (records, udp) == (capture.counts.records, capture.counts.udp)


def test_splits_meet_end_to_end_and_number_their_packets(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(SAMPLES["pcap"])
    splits = split_capture(path, 1000)
    assert [split.end for split in splits[:-1]] == [split.offset for split in splits[1:]]
    assert (splits[0].offset, splits[-1].end) == (24, path.stat().st_size)
    assert all(1000 <= (split.end or 0) - split.offset < 1200 for split in splits[:-1])
    for split in splits:
        rows, _ = read(split)
        assert rows[0].number - split.number <= 1  # every fifth is no UDP


def test_a_file_that_ends_at_a_boundary_has_no_empty_split(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    frames = [bytes(84)] * 10
    path.write_bytes(pcap(frames))
    assert [split.number for split in split_capture(path, 500)] == [1, 6]


def test_a_compressed_file_is_one_split(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(gzip.compress(SAMPLES["pcap"]))
    (split,) = split_capture(path, 100)
    assert read(split)[0] == read(path)[0]


@pytest.mark.parametrize("data", [pcap([]), section(), pcap_header()[:9]], ids=["pcap", "pcapng", "cut in its header"])
def test_a_file_without_packets_is_one_split(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(data)
    (split,) = split_capture(path)
    rows, capture = read(split)
    assert rows == [] and len(capture.warnings) == (len(data) == 9)


def test_a_file_shorter_than_its_split_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(SAMPLES["pcapng"])
    last = split_capture(path, 5000)[-1]
    path.write_bytes(SAMPLES["pcapng"][: last.offset + 50])
    assert len(read(last)[1].warnings) == 1


def test_what_is_no_capture_cannot_be_indexed(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(b"hello")
    for wrong in (path, tmp_path / "missing"):
        with pytest.raises(CaptureError):
            split_capture(wrong)
        with pytest.raises(CaptureError):
            open_capture(wrong)
