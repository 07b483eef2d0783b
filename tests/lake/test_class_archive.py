"""Spark's classes, kept for the next session."""

from __future__ import annotations

from pathlib import Path

import pytest

from umdf.lake.runtime import class_archive, java
from umdf.lake.runtime.class_archive import JAVA_OPTIONS
from umdf.lake.runtime.session import QUICK_START_SETTINGS


@pytest.fixture
def home(tmp_path: Path) -> Path:
    executable = tmp_path / "home" / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.touch()
    return tmp_path / "home"


def _keep(home: Path, monkeypatch: pytest.MonkeyPatch, place: Path) -> Path:
    monkeypatch.setattr(java, "cache_directories", lambda: [place])
    place.mkdir()
    [path] = class_archive._archive_paths(home)
    path.touch()
    return path


def test_without_an_archive_no_option_is_added(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(java, "cache_directories", lambda: [tmp_path / "none"])
    assert class_archive.with_archive({"a": "b"}, home) == {"a": "b"}
    assert class_archive.with_archive(QUICK_START_SETTINGS, home) == QUICK_START_SETTINGS


def test_an_archive_keeps_the_callers_java_options(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kept = _keep(home, monkeypatch, tmp_path / "place")
    assert class_archive.with_archive({}, home) == {JAVA_OPTIONS: f"-XX:SharedArchiveFile={kept}"}
    assert (
        class_archive.with_archive(QUICK_START_SETTINGS, home)[JAVA_OPTIONS]
        == f"{QUICK_START_SETTINGS[JAVA_OPTIONS]} -XX:SharedArchiveFile={kept}"
    )
    mine = {JAVA_OPTIONS: "-XX:SharedArchiveFile=/mine.jsa"}
    assert class_archive.with_archive(mine, home) == mine
    base = kept.with_suffix(".base.jsa")
    base.touch()
    assert class_archive.with_archive({}, home) == {JAVA_OPTIONS: f"-XX:SharedArchiveFile={base}:{kept}"}


def test_another_java_has_another_archive(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kept = _keep(home, monkeypatch, tmp_path / "place")
    other = tmp_path / "other" / "bin" / "java"
    other.parent.mkdir(parents=True)
    other.touch()
    assert class_archive.with_archive({}, tmp_path / "other") == {}
    assert [kept] != class_archive._archive_paths(tmp_path / "other")


def test_a_place_that_an_option_cannot_name_is_passed_over(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(java, "cache_directories", lambda: [tmp_path / "a place", tmp_path / "b:c"])
    assert class_archive._archive_paths(home) == []
    assert class_archive.create() is None
