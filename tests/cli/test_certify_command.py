"""`umdf certify` on the command line: the list of steps, exit codes, a report of a section."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from umdf.cli.app import run


def test_the_list_has_every_step_and_what_it_expects(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["certify", "--list"]) == 0
    text = capsys.readouterr().out
    assert text.count("\nB2.") == 12 and "E4.6   optional    The exchange sends an ASK order for the spread." in text
    assert "MBO: new 6th level of BID: 279=0 269=0" in text
    assert run(["certify", "--list", "--only", "B7", "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert [(step["step"], step["runs"]) for step in steps] == [("B7.1", 2), ("B7.2", 2), ("B7.3", 2)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "B9"], "unknown step: B9"),
        (["--only", "B1", "--from", "B2"], "at the same time"),
        (["--protocol", "fix"], "unknown protocol: fix"),
        (["--client", "theirs"], "unknown client: theirs"),
        (["--client", "external"], "8 combinations for an external client"),
        (["--listen"], "no instrument to observe"),
        (["--listen", "--symbol", "PETR4", "--book", "all"], "unknown book: all"),
    ],
)
def test_a_wrong_option_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["certify", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_a_section_is_played_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--protocol", "sbe", "--generation", "priority", "--segment", "equities", "--only", "C1"]
    assert run(["certify", *arguments, "--report", str(tmp_path / "page.html")]) == 3, "no required step has passed"
    output = capsys.readouterr()
    assert "C1     PASS" in output.out and "not certified: 1 of 1 runs failed" in output.err
    assert "<b>C1</b>" in (tmp_path / "page.html").read_text()
