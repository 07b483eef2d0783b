"""Control characters in texts of the feed, through every command that prints them; and a full disk."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lake.report_lake import DAY, NINE, write_lake

from umdf.cli.app import run
from umdf.transport.pcap_writer import PcapWriter
from umdf.wire.sbe.compose import Packet, compose
from umdf.wire.sbe.loader import load

FLOW = ("10.0.0.1", 40_001), ("224.0.20.72", 20_001)
HEADLINE = "up\x1b[31m\x07\r\n|\\\x9b2J\u202e"
SHOWN = r"up\x1b[31m\x07\r\n|\\x9b2J\u202e"  # the backslash of the headline stays alone: this is for people
IN_FIX = r"up\x1b[31m\x07\r\n\|\\\x9b2J\u202e"


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("escapes") / "news.pcap"
    news = {"newsSource": 3, "partCount": 1, "partNumber": 1, "totalTextLength": 1, "securityID": 1,
            "matchEventIndicator": 128, "headline": HEADLINE, "text": "x", "uRLLink": ""}  # fmt: skip
    encoded = compose(load(), [Packet([("News_5", news)], 72, 1, 1)])
    with PcapWriter(path) as writer:
        writer.write_batch(encoded.buffer, encoded.start, encoded.end, np.array([NINE]), *FLOW)
    return path


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("escapes") / "lake"
    row: dict[str, Any] = {"channel_id": 72, "instrument_id": 1, "symbol": HEADLINE, "ts_recv": NINE, "price": 10**9}
    write_lake(root, {"definition": [row | {"action": "A"}], "trades": [row]}, DAY)
    return root


def printed(capsys: pytest.CaptureFixture[str], *command: str | Path) -> str:
    assert run([str(word) for word in command]) == 0
    return capsys.readouterr().out


def is_harmless(text: str) -> bool:
    return all(part.isprintable() for line in text.splitlines() for part in line.split("\t"))


def test_no_command_prints_control_characters(capture: Path, lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command, expected in (
        (("decode", capture), SHOWN),
        (("decode", capture, "--format", "fix"), IN_FIX),
        (("explain", capture, "--packet", "1"), SHOWN),
        (("query", lake, "--schema", "trades", "--columns", "symbol"), SHOWN),
        (("query", lake, "--schema", "trades", "--columns", "symbol", "--json"), None),
        (("decode", capture, "--json"), None),
    ):
        found = printed(capsys, *command)
        assert is_harmless(found), command
        if expected is None:
            assert json.dumps(HEADLINE)[1:-1].lower() in found.lower(), command
        else:
            assert expected in found, command


def test_csv_for_a_program_is_exact(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "query", lake, "--schema", "trades", "--columns", "symbol", "--csv")
    assert list(csv.reader(io.StringIO(found, newline=""))) == [["symbol"], [HEADLINE]]


def test_a_page_has_no_live_markup_of_the_feed(lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "page.html"
    printed(capsys, "report", lake, "--out", out)
    assert "\x1b" not in out.read_text()


def test_a_full_disk_is_a_one_line_error(
    capture: Path, lake: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    query = ("query", lake, "--schema", "trades")
    for command in (
        *(("decode", capture, "--format", form, "--out", "/dev/full") for form in ("table", "json", "fix")),
        (*query, "--parquet", "/dev/full"),
        ("report", lake, "--out", "/dev/full"),
    ):
        assert run([str(word) for word in command]) == 3, command
        said = capsys.readouterr().err
        assert said == "umdf: cannot write the output: No space left on device; free some space, or write elsewhere\n"
