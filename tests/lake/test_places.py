"""Where a lake or a capture can be, and how it is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from lake.captures import day, files_of, hashes

from umdf.cli.app import run
from umdf.errors import ConfigError
from umdf.lake.given import inputs_of
from umdf.lake.layout import create_home, open_home
from umdf.lake.places import place_of

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
    assert place_of(given) == Path(SAME[given])
    assert place_of(place_of(given)) == Path(SAME[given])


@pytest.mark.parametrize("given", ["s3://bucket/lake", "hdfs://name:9000/lake", "gs://bucket/x", "s3a:/bucket/lake"])
def test_what_is_no_file_system_is_refused_with_what_to_do(given: str, tmp_path: Path) -> None:
    for use in (place_of, open_home, create_home, lambda path: inputs_of([path])):
        for form in (given, Path(given)):
            with pytest.raises(ConfigError, match=r"is no file system; mount it at the same path on every machine"):
                use(form)  # type: ignore[arg-type]


def test_another_machines_file_is_refused_before_a_lake_is_made_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ingest", "x.pcap", "--lake", "file://nas/lake", "--plain"]) == 3
    assert capsys.readouterr().err.startswith("umdf: file://nas/lake is on another machine (nas); mount it")


def test_commands_take_urls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    captured, root = day(tmp_path, 600), tmp_path / "my lake"
    assert run(["ingest", (captured / "capture").as_uri(), "--lake", root.as_uri(), "--plain"]) == 0
    assert len(hashes(root)) > 20 and root.as_uri().endswith("my%20lake")
    for words in (["lake", "verify", root.as_uri()], ["report", "--lake", root.as_uri(), "--json"]):
        assert run(words) == 0
    capsys.readouterr()
    by_path, by_url = [], []
    for spell, said in ((str, by_path), (Path.as_uri, by_url)):
        assert run(["decode", *(spell(file) for file in files_of(captured)[:1]), "--limit", "3"]) == 0
        said.append(capsys.readouterr().out)
    assert by_path == by_url and by_path[0].count("\n") >= 3
