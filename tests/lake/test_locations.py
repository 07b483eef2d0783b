"""Where a lake or a capture can be, and how it is said."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from lake.captures import day, files_of, hashes

from umdf.cli.app import run
from umdf.errors import ConfigError
from umdf.lake.commit import ledger
from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.layout import create_lake_paths, open_lake_paths
from umdf.lake.locations import local_path
from umdf.lake.plan.input_paths import find_captures
from umdf.transport.pcap_writer import PcapWriter

SAME = {
    "lake": "lake",
    "/data/lake": "/data/lake",
    "a:b/c": "a:b/c",
    "C:/lake": "C:/lake",  # one letter is no scheme
    "file:///data/lake": "/data/lake",
    "file:/data/lake": "/data/lake",
    "FILE://localhost/data/my%20lake": "/data/my lake",
    "/data/100%25": "/data/100%25",  # a path is not decoded
}


@pytest.mark.parametrize("given", SAME)
def test_a_path_and_its_url_are_the_same_place(given: str) -> None:
    assert local_path(given) == Path(SAME[given])
    assert local_path(local_path(given)) == Path(SAME[given])


@pytest.mark.parametrize("given", ["s3://bucket/lake", "hdfs://name:9000/lake", "gs://bucket/x", "s3a:/bucket/lake"])
def test_what_is_no_file_system_is_refused_with_what_to_do(given: str, tmp_path: Path) -> None:
    for use in (local_path, open_lake_paths, create_lake_paths, lambda path: find_captures([path])):
        for form in (given, Path(given)):
            with pytest.raises(
                ConfigError, match=r"unsupported URL: .*; mount the storage at the same path on every machine"
            ):
                use(form)  # type: ignore[arg-type]


def test_another_machines_file_is_refused_before_a_lake_is_made_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ingest", "x.pcap", "--lake", "file://nas/lake", "--no-spark"]) == 3
    assert capsys.readouterr().err.startswith(
        "umdf: unsupported URL: file://nas/lake names a remote host (nas); mount it"
    )


def test_commands_take_urls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    captured, root = day(tmp_path, 600), tmp_path / "my #1 lake? [100%] a:b é"
    assert run(["ingest", (captured / "capture").as_uri(), "--lake", root.as_uri(), "--no-spark"]) == 0
    assert len(hashes(root)) > 20 and root.as_uri().endswith("my%20%231%20lake%3F%20%5B100%25%5D%20a%3Ab%20%C3%A9")
    for words in (["lake", "verify", root.as_uri()], ["report", root.as_uri(), "--json"]):
        assert run(words) == 0
    capsys.readouterr()
    by_path, by_url = [], []
    for spell, said in ((str, by_path), (Path.as_uri, by_url)):
        assert run(["decode", *(spell(file) for file in files_of(captured)[:1]), "--limit", "3"]) == 0
        said.append(capsys.readouterr().out)
    assert by_path == by_url and by_path[0].count("\n") >= 3


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("a%20b", "an escape sequence of URLs ('%20')"),
        ("new\nline", r"a control character ('\n')"),
        ("tab\there", r"a control character ('\t')"),
        ("back\\slash", r"a backslash ('\\')"),
        ("caf\udce9", r"bytes that are not UTF-8 ('\udce9')"),
        ("%41/lake", "an escape sequence of URLs ('%41')"),
    ],
)
def test_a_directory_that_delta_would_look_for_elsewhere_is_refused_before_it_is_made(
    name: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture = tmp_path / "x.pcap"
    with PcapWriter(capture):
        pass
    assert run(["ingest", str(capture), "--lake", str(tmp_path / name), "--no-spark"]) == 3
    said = capsys.readouterr().err
    assert f": {why}; readers of Delta" in said and "unsupported lake path: " in said and said.count("\n") == 1
    assert list(tmp_path.iterdir()) == [capture]


def test_a_capture_whose_name_is_not_utf_8_is_one_like_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [first, *_] = files_of(day(tmp_path, 600))
    odd, root = tmp_path / os.fsdecode(b"odd/caf\xe9\x1b.pcap"), tmp_path / "lake"
    odd.parent.mkdir()
    shutil.copy(first, odd)

    def printed(*words: str | Path) -> str:
        assert run([str(word) for word in words]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    for words in (["decode", odd, "--limit", "1"], ["book", odd]):
        printed(*words)
    assert json.loads(printed("explain", odd, "--packet", "1", "--json"))["file"] == str(odd)
    assert run(["explain", str(odd), "--packet", "99999"]) == 2
    assert "odd/caf\\xe9\\x1b.pcap has no packet 99999" in capsys.readouterr().err
    printed("ingest", odd.parent, "--lake", root, "--no-spark")
    assert {entry.path for entry in ledger.entries(open_snapshot(root))} == {str(odd)}
    assert printed("query", root, "--schema", "ledger", "--columns", "path").splitlines()[1] == odd.as_uri()
    row = json.loads(printed("query", root, "--schema", "packets", "--limit", "1", "--json"))
    key = f"packets:{row['channel_id']}:{row['seq_version']}:{row['sequence']}"
    assert json.loads(printed("explain", "--lake", root, "--row", key, "--json"))["file"] == str(odd)
    assert "0 new files, 1 already in the lake" in printed("ingest", odd, "--lake", root, "--no-spark")
