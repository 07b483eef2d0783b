"""What is in a directory of captures, and what a manifest lists."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from umdf.errors import CaptureError
from umdf.transport.recording import MANIFEST, closed_files, files_below, read_manifest


def write(path: Path, *entries: object) -> Path:
    path.write_text("".join(json.dumps({"file": each} if isinstance(each, str) else each) + "\n" for each in entries))
    return path


def test_linked_directories_are_followed_and_each_file_is_found_once(tmp_path: Path) -> None:
    real, given = tmp_path / "real", tmp_path / "given"
    for directory in (real / "deep", given):
        directory.mkdir(parents=True)
    for path in (real / "a.pcap", real / "deep" / "b.pcapng.zst", real / "notes.txt", given / "c.pcap"):
        path.write_text(path.name)
    (given / "d.pcap.part").write_text("it still grows")
    write(given / MANIFEST, "c.pcap")
    (given / "one").symlink_to(real)
    (given / "other").symlink_to(real)
    (given / "a.pcap").symlink_to(real / "a.pcap")
    (given / "c-again.pcap").hardlink_to(given / "c.pcap")
    (real / "deep" / "loop").symlink_to(given)
    (real / "gone").symlink_to(tmp_path / "nowhere")
    found = files_below(given)
    assert sorted(path.read_text() for path in found.captures) == ["a.pcap", "b.pcapng.zst", "c.pcap"]
    assert sorted(path.name for path in found.others) == ["d.pcap.part", "notes.txt"]


@pytest.mark.parametrize("entry", ["/etc/a.pcap", "../a.pcap", "day/../../a.pcap", ".."])
def test_an_entry_outside_of_the_recording_is_refused_with_its_place(tmp_path: Path, entry: str) -> None:
    write(tmp_path / MANIFEST, "a.pcap", entry)
    for read in (closed_files, lambda path: read_manifest(path / MANIFEST)):
        with pytest.raises(CaptureError) as fault:
            read(tmp_path)
        assert f"{tmp_path / MANIFEST}:2: {entry} is outside" in str(fault.value)
        assert fault.value.hint


def test_a_half_written_line_does_not_count_and_a_broken_one_is_an_error(tmp_path: Path) -> None:
    manifest = write(tmp_path / MANIFEST, "a.pcap", {"file": "b.pcap", "closed": False}, "c..d/e.pcap")
    with manifest.open("a") as file:
        file.write('{"file": "late.pc')
    assert read_manifest(manifest).files == [tmp_path / "a.pcap", tmp_path / "c..d" / "e.pcap"]
    with manifest.open("a") as file:
        file.write('ap"}')
    assert read_manifest(manifest).files[-1] == tmp_path / "late.pcap"
    with manifest.open("a") as file:
        file.write('\n{"fil\n')
    with pytest.raises(CaptureError, match=":5: invalid entry"):
        read_manifest(manifest)


def test_a_digest_covers_everything_that_a_manifest_states_of_its_first_files(tmp_path: Path) -> None:
    first = write(tmp_path / "first", {"file": "a.pcap", "bytes": 3}, "b.pcap")
    same = write(tmp_path / "same", {"bytes": 3, "file": "a.pcap"}, "another.pcap")
    other = write(tmp_path / "other", {"file": "a.pcap", "bytes": 4}, "b.pcap")
    digests = [[read_manifest(path).digest(count) for count in (0, 1, 2)] for path in (first, same, other)]
    assert digests[0][:2] == digests[1][:2] and digests[0][2] != digests[1][2]
    assert digests[0][0] == digests[2][0] and not set(digests[0][1:]) & set(digests[2][1:])
    assert read_manifest(tmp_path / "nothing yet").files == []
