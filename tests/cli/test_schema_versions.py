"""Traffic of another version than the schema's: reported once, by every command that decodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from market.sbe_user_schema import user_file

from umdf.cli.app import run
from umdf.transport.pcap_writer import PcapWriter
from umdf.wire.sbe.compose import Packet, compose
from umdf.wire.sbe.loader import load

FLOW = ("10.0.0.1", 40_001), ("224.0.20.72", 20_001)
SENT = 1_763_038_800_000_000_000
BID: dict[str, Any] = {"securityID": 7, "matchEventIndicator": 128, "mDEntryType": "0", "transactTime": SENT}
Shown = pytest.CaptureFixture[str]


def capture(path: Path, version: int) -> Path:
    """Two bids; the better one is matched away, and a lower offer comes: crossed, if the delete is not believed."""
    order = BID | {"mDUpdateAction": 0, "mDEntrySize": 100, "mDInsertTimestamp": SENT}
    messages = [
        (50, order | {"secondaryOrderID": 1, "mDEntryPx": "10", "rptSeq": 1}),
        (50, order | {"secondaryOrderID": 2, "mDEntryPx": "9", "rptSeq": 2}),
        (51, BID | {"secondaryOrderID": 1, "rptSeq": 3}),
        (50, order | {"secondaryOrderID": 3, "mDEntryType": "1", "mDEntryPx": "9.5", "rptSeq": 4}),
    ]
    packets = [Packet([each], 72, 1, n, SENT + n * 1000) for n, each in enumerate(messages, 1)]
    encoded = compose(load(), packets, version)
    with PcapWriter(path) as writer:
        writer.write_batch(encoded.buffer, encoded.start, encoded.end, SENT + np.arange(len(packets)) * 1000, *FLOW)
    return path


@pytest.fixture
def schema(tmp_path: Path) -> str:
    path = tmp_path / "official.xml"
    path.write_bytes(user_file(16))
    return str(path)


def warnings(capsys: Shown) -> tuple[list[dict[str, Any]], list[str]]:
    out, err = capsys.readouterr()
    result = [json.loads(line)["warning"] for line in err.splitlines()]
    return [json.loads(line) for line in out.splitlines()], [each for each in result if "the traffic is of" in each]


def test_books_of_an_old_capture_with_a_new_schema_are_healthy_and_the_difference_is_reported(
    tmp_path: Path, schema: str, capsys: Shown
) -> None:
    day = capture(tmp_path / "day.pcap", 8)
    assert run(["book", str(day), "--sbe-schema", schema, "--json"]) == 0
    [book], result = warnings(capsys)
    assert (book["bid"], book["ask"], book["stale"]) == ("9", "9.5", None)
    assert result == [
        f"the traffic is of version 8, the schema {schema} of version 16: "
        "fields that had another name or place then are absent"
    ]
    assert run(["book", str(day), "--json"]) == 0
    [ours], result = warnings(capsys)
    assert ours == book and not result


def test_decode_reports_it_once_for_all_files(tmp_path: Path, schema: str, capsys: Shown) -> None:
    days = [str(capture(tmp_path / f"{version}.pcap", version)) for version in (8, 9, 8)]
    assert run(["decode", *days, "--sbe-schema", schema, "--json"]) == 0
    messages, result = warnings(capsys)
    assert len(messages) == 12 and len(result) == 1 and "of versions 8 to 9, the schema" in result[0]
    assert all("mDEntrySize" not in m["fields"] for m in messages if m["template_id"] == 51)
    assert run(["decode", *days, "--json"]) == 0
    assert not warnings(capsys)[1]


def test_an_ingest_reports_traffic_that_is_newer_than_our_schema(tmp_path: Path, capsys: Shown) -> None:
    for version, number in ((16, 0), (17, 1)):
        day = capture(tmp_path / f"{version}.pcap", version)
        lake = tmp_path / f"lake-{version}"
        assert run(["ingest", str(day), "--lake", str(lake), "--no-spark", "--tables", "mbo", "--json"]) == 0
        [outcome], result = warnings(capsys)
        assert outcome["rows"]["mbo"] == 4 and len(result) == number and outcome["notices"] == result
        assert all(
            "of version 17, the schema b3-umdf-2.2.0.xml of versions 8 to 16: what is new" in each for each in result
        )
