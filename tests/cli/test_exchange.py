"""`umdf exchange capture`: what a user sees."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from umdf.cli.app import run

SMALL = ["--messages", "1000", "--instruments", "10"]


def test_a_capture_is_written_and_summarized(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "day"
    assert run(["exchange", "capture", *SMALL, str(out), "--seed", "3", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    listed = [json.loads(line) for line in (out / "capture" / "manifest.jsonl").read_text().splitlines()]
    assert result["files"] == len(listed) == len(list((out / "capture").glob("*.pcap")))
    assert result["bytes"] == sum(file.stat().st_size for file in (out / "capture").glob("*.pcap"))
    assert result["messages"] >= 1_000 and result["messages_per_s"] > 0
    session = json.loads((out / "session.json").read_text())
    assert session["settings"]["seed"] == 3
    streams = session["channels"][0]["protocols"]["sbe"]["streams"]
    assert [(s["stream"], s["line"]) for s in streams] == [
        ("incremental", "A"), ("incremental", "B"), ("snapshot", "A"), ("instruments", "A"),
    ]  # fmt: skip
    assert len({(s["multicast_group"], s["port"]) for s in streams}) == 4
    assert {path.stem for path in (out / "truth").iterdir()} >= {
        "final_orders", "final_levels", "trades", "statistics", "states", "instruments", "loss", "sequences", "counts",
    }  # fmt: skip


def test_the_summary_is_a_sentence_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "day"
    assert run(["exchange", "capture", *SMALL, str(out), "--lines", "A"]) == 0
    said = capsys.readouterr().out
    files = len(list((out / "capture").glob("*.pcap")))
    assert re.match(rf"wrote [\d,]+ messages \([\d.,]+ s simulated\) in {files} files, [\d.,]+ [kM]B, to ", said)
    assert said.endswith(f"try `umdf book {out}/capture`\n")


def test_what_is_written_can_be_decoded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--json", "exchange", "capture", *SMALL, str(tmp_path), "--protocol", "both"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == 8
    files = sorted(map(str, (tmp_path / "capture").glob("*.pcap")))
    assert run(["decode", *files, "--strict", "--format", "json", "--limit", "100"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 100


@pytest.mark.parametrize(
    ("more", "code", "line"),
    [
        (["--loss", "2"], 2, "umdf: --loss out of range: 2.0; use 0 to 0.5"),
        (["--lines", "C"], 2, "umdf: invalid --lines: C; use A or AB"),
        (["--messages", "100"], 2, "umdf: too few messages for 10 instruments: 100; use at least 400, or fewer instruments"),  # noqa: E501
        (["--instruments", "1"], 2, "umdf: --instruments out of range: 1; use 10 to 60000"),
        (["--protocol", "itch"], 2, "umdf: invalid value for '--protocol': 'itch' is not one of 'sbe', 'fast', 'both'; see `umdf exchange capture --help`"),  # noqa: E501
    ],
)  # fmt: skip
def test_invalid_options_are_a_one_line_error(
    more: list[str], code: int, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["exchange", "capture", *SMALL, str(tmp_path / "day"), *more]) == code
    assert capsys.readouterr() == ("", line + "\n")
    assert not (tmp_path / "day").exists()


def test_an_existing_capture_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["exchange", "capture", *SMALL, str(tmp_path)]
    assert run(argv) == 0
    before = {path: path.read_bytes() for path in (tmp_path / "capture").iterdir()}
    capsys.readouterr()
    assert run(argv) == 3
    assert "is not empty; use a new directory, or delete it first" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in (tmp_path / "capture").iterdir()} == before


def test_exchange_alone_shows_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["exchange"]) == 0
    assert "capture" in capsys.readouterr().out


def test_settings_come_from_a_file_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "umdf.toml"
    config.write_text("[exchange.capture]\nmessages = 1000\ninstruments = 10\nlines = 'A'\njson = true\n")
    assert run(["--config", str(config), "exchange", "capture", str(tmp_path / "day")]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == 3
