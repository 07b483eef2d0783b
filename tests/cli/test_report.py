"""`umdf report`: what a user sees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lake.report_lake import quality, state, write_lake

from umdf.cli.app import run


@pytest.fixture
def lake(tmp_path: Path) -> str:
    root = tmp_path / "lake"
    lines = [quality(72, "A", first_arrivals=10, first_sequence=1, last_sequence=10)]
    write_lake(root, {"quality": lines, "book_state": [state(72, 1)]})
    return str(root)


def test_a_report_is_written_and_summarized(
    lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["report", lake, "--date", "2026-11-13"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "The day is complete.",
        "Nothing was lost; none of 1 book is stale at the end.",
        "wrote report-2026-11-13.html",
    ]
    assert (tmp_path / "report-2026-11-13.html").read_text().startswith("<!doctype html>")


def test_json_is_printed_and_a_page_only_where_it_was_asked_for(
    lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["report", lake, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["verdict"] == "complete" and said["channels"] == [72] and said["page"] is None
    assert [path.name for path in tmp_path.iterdir()] == ["lake"]
    assert run(["--json", "report", lake, "--out", "day.html"]) == 0
    assert json.loads(capsys.readouterr().out)["page"] == "day.html" and (tmp_path / "day.html").is_file()


@pytest.mark.parametrize(
    ("more", "code", "line"),
    [
        (["--date", "2026-01-02"], 3, "umdf: no data for 2026-01-02; available dates: 2026-11-13"),
        (["--date", "13/11/2026"], 2, "umdf: invalid --date: 13/11/2026; use YYYY-MM-DD, for example 2026-11-13"),
        (["--out", "nowhere/day.html"], 3, "umdf: cannot access nowhere/day.html: No such file or directory; check the path and its permissions"),  # noqa: E501
        (["nowhere"], 3, "umdf: nowhere is not a umdf lake (no lake.json); create one with `umdf ingest CAPTURE… --lake nowhere`"),  # noqa: E501
    ],
)  # fmt: skip
def test_invalid_options_are_a_one_line_error(
    lake: str,
    more: list[str],
    code: int,
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = more if more == ["nowhere"] else [lake, *more]
    assert run(["report", *arguments]) == code
    assert capsys.readouterr() == ("", line + "\n")
    assert not list(tmp_path.glob("*.html"))
