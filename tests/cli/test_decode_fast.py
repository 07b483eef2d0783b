"""`umdf decode` and `umdf explain` on FAST: captures, raw streams, chunks, both protocols in one file."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from umdf.cli.app import run
from umdf.transport.pcap_writer import PcapWriter
from umdf.wire.fast.loader import load
from umdf.wire.fast.reference.writer import Writer
from umdf.wire.fast.templates import Decimal
from umdf.wire.sbe.compose import Packet, compose
from umdf.wire.sbe.loader import load as load_schema

FLOW = ("10.0.0.1", 40_001), ("224.0.20.72", 20_001)
OTHER_FLOW = ("10.0.0.1", 40_002), ("224.0.20.73", 20_002)


def order(rpt_seq: int, price: Decimal | None) -> dict[str, Any]:
    found = {
        "MDUpdateAction": 0,
        "MDEntryType": "0",
        "SecurityIDSource": 8,
        "SecurityExchange": "BVMF",
        "SecurityID": 200_000_000_001,
        "RptSeq": rpt_seq,
        "MDEntryTime": 93_012_345,
        "MDEntrySize": 300,
        "OrderID": "9001",
    }
    return found if price is None else found | {"MDEntryPx": price}


def message(sequence: int, *entries: dict[str, Any]) -> bytes:
    head = {"ApplVerID": "9", "MsgType": "X", "MsgSeqNum": sequence, "SendingTime": 20_251_113_130_000_123}
    return Writer(load()).encode(152, head | {"MDEntries": list(entries)})


def frame(sequence: int, content: bytes, chunks: int = 1, chunk: int = 1) -> bytes:
    return struct.pack(">IHHH", sequence, chunks, chunk, len(content)) + content


ONE = message(1, order(10, Decimal(-2, 3811)), order(11, None))
TWO = message(2, order(12, Decimal(-4, -123400)))
THREE = message(3, *(order(20 + i, Decimal(-2, 3811 + i)) for i in range(9)))


@pytest.fixture
def day(tmp_path: Path) -> Path:
    path, third = tmp_path / "day.pcap", len(THREE) // 3
    with PcapWriter(path) as writer:
        writer.write(1, frame(1, ONE) + frame(2, TWO), *FLOW)
        for chunk in (3, 1, 2):  # in any order
            content = THREE[third * (chunk - 1) : third * chunk if chunk < 3 else None]
            writer.write(1 + chunk, frame(3, content, 3, chunk), *FLOW)
    return path


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_messages_and_reassembled_chunks_are_shown_in_order(day: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["decode", str(day), "--json"]) == 0
    shown = objects(capsys.readouterr().out)
    assert [(m["packet"], m["sequence"], m["msg_index"], m["template_id"]) for m in shown] == [
        (1, 1, 0, 152),
        (1, 2, 1, 152),
        (4, 3, 0, 152),
    ]
    first, second = shown[0]["fields"]["MDEntries"]
    assert first["MDEntryPx"] == "38.11" and first["SecurityID"] == 200_000_000_001 and "MDEntryPx" not in second
    assert shown[1]["fields"]["MDEntries"][0]["MDEntryPx"] == "-12.3400"
    assert [entry["RptSeq"] for entry in shown[2]["fields"]["MDEntries"]] == list(range(20, 29))


def test_fix_writes_the_count_before_the_entries(day: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["decode", str(day), "--format", "fix", "--limit", "2"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert "|34=1|52=20251113-13:00:00.123|268=2|279=0|269=0|" in first
    assert "|270=38.11|" in first and "|273=09:30:12.345|" in first and "|270=-12.34|" in second


def test_a_raw_stream_is_recognised_by_its_content(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "messages.bin"
    path.write_bytes(frame(1, ONE) + frame(2, TWO) + frame(3, THREE))
    assert run(["decode", str(path), "--json"]) == 0
    assert [m["sequence"] for m in objects(capsys.readouterr().out)] == [1, 2, 3]


def test_both_protocols_in_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "both.pcap"
    beat = compose(load_schema(), [Packet([("Sequence_2", {"nextSeqNo": 3})], 72)]).buffer.tobytes()
    with PcapWriter(path) as writer:
        writer.write(1, beat, *FLOW)
        writer.write(2, frame(1, ONE), *OTHER_FLOW)
    assert run(["decode", str(path), "--json"]) == 0
    assert [m["name"] for m in objects(capsys.readouterr().out)] == ["Sequence_2", "MDIncrementalRefresh_152"]


def test_parquet_holds_entries_as_lists(day: Path, tmp_path: Path) -> None:
    assert run(["decode", str(day), "--format", "parquet", "--out", str(tmp_path / "out")]) == 0
    rows = pq.read_table(tmp_path / "out" / "MDIncrementalRefresh_152.parquet").to_pylist()
    assert [(row["packet"], row["sequence"], len(row["MDEntries"])) for row in rows] == [
        (1, 1, 2),
        (1, 2, 1),
        (4, 3, 9),
    ]
    assert rows[0]["MDEntries"][0]["MDEntryPx"] == 3811 and rows[0]["MDEntries"][0]["MDEntryPx.exponent"] == -2


def test_damage_is_quarantined_with_offset_and_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, faults = tmp_path / "day.pcap", tmp_path / "faults.jsonl"
    with PcapWriter(path) as writer:
        writer.write(1, frame(1, ONE), *FLOW)
        writer.write(2, frame(2, TWO[:-4]), *FLOW)
        writer.write(3, frame(3, THREE[:40], 2, 1), *FLOW)  # its other chunk never comes
        writer.write(4, frame(4, bytes([0xC0, 0x7F, 0xFF])), *FLOW)  # a template that nobody knows
    assert run(["decode", str(path), "--json", "--quarantine", str(faults)]) == 0
    printed = capsys.readouterr()
    assert [m["sequence"] for m in objects(printed.out)] == [1]
    (fault,) = objects(faults.read_text())
    assert fault["packet"] == 2 and fault["template_id"] == 152 and fault["reason"].startswith("T1: ")
    assert fault["field"].startswith("MDEntries[0].")
    assert "message 3 dropped with 1 of 2 chunks" in printed.err
    assert "1 message skipped: unknown template 16383" in printed.err
    assert run(["decode", str(path), "--json", "--strict"]) == 4


def test_templates_of_the_user_replace_the_built_in_ones(
    day: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.xml"
    own.write_text(
        '<templates xmlns="http://www.fixprotocol.org/ns/fast/td/1.1"><template name="Mine" id="7">'
        '<uInt32 name="Number" id="34"/></template></templates>'
    )
    path = tmp_path / "own.bin"
    path.write_bytes(b"".join(frame(i, bytes([0xC0, 0x87, 0x80 | i])) for i in (1, 2, 3)))
    assert run(["decode", str(path), "--fast-templates", str(own), "--format", "fix"]) == 0
    assert capsys.readouterr().out.splitlines() == ["34=1", "34=2", "34=3"]
    own.write_text("<templates><template/></templates>")
    assert run(["decode", str(day), "--fast-templates", str(own)]) == 3
    assert "S1" in capsys.readouterr().err


def test_explain_shows_presence_map_bit_and_origin_of_a_value(day: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", str(day), "--packet", "1", "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)["lines"]
    covered = [
        i for line in lines if line.get("raw") for i in range(line["offset"], line["offset"] + len(line["raw"]) // 2)
    ]
    assert sorted(covered) == list(range(20 + len(ONE) + len(TWO)))  # each byte once
    by_name = {line["name"]: line for line in lines}
    assert by_name["MDEntries[0].MDEntryType"]["encoding"] == "copy bit 1=0 initial"
    assert by_name["MDEntries[1].SecurityID"]["encoding"].endswith("previous")
    assert by_name["MDEntries[0].MDEntryPx"]["value"] in ("38.11", "-12.3400")


def test_a_message_in_chunks_is_explained_whole_from_any_of_them(day: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for packet, number in ((2, 3), (3, 1), (4, 2)):
        assert run(["explain", str(day), "--packet", str(packet), "--json"]) == 0
        result = json.loads(capsys.readouterr().out)
        header = {line["name"]: line["value"] for line in result["lines"] if "value" in line}
        assert (header["NoChunks"], header["CurrentChunk"]) == (3, number)
        assert result["lines"][-1]["name"] == f"chunk {number} of 3"
        (message,) = result["messages"]
        assert (message["sequence"], message["packets"], message["bytes"]) == (3, [3, 4, 2], len(THREE))
        raw = "".join(line.get("raw", "") for line in message["lines"])
        assert raw == THREE.hex()  # each byte once, in order
        assert [line["value"] for line in message["lines"] if line["name"].endswith(".MDEntryPx")][-1] == "38.19"
    assert run(["explain", str(day), "--packet", "2"]) == 0
    shown = capsys.readouterr().out
    assert "chunks in packets 3, 4, 2; the reassembled message follows" in shown and "38.19" in shown


def test_chunks_of_the_next_loop_are_not_mixed_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A snapshot stream counts from 1 in every loop: a lost chunk is not taken from another loop."""
    path, half = tmp_path / "loops.pcap", len(THREE) // 2
    other = message(3, *(order(40 + i, Decimal(-2, 5000 + i)) for i in range(9)))
    with PcapWriter(path) as writer:
        writer.write(1, frame(3, THREE[:half], 2, 1), *FLOW)  # its second chunk is lost
        for number in range(100, 200):
            writer.write(number, frame(number, TWO), *FLOW)
        writer.write(201, frame(1, ONE), *FLOW)
        writer.write(202, frame(3, other[:half], 2, 1), *FLOW)
        writer.write(203, frame(3, other[half:], 2, 2), *FLOW)
        writer.write(204, frame(7, THREE[:half], 4, 2), *FLOW)
    assert run(["explain", str(path), "--packet", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert "messages" not in result and "belong to different messages" in result["lines"][-1]["meaning"]
    assert run(["explain", str(path), "--packet", "104", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["messages"]
    assert found["packets"] == [103, 104] and found["bytes"] == len(other)
    assert run(["explain", str(path), "--packet", "105"]) == 0
    assert "incomplete message: chunks 1, 3, 4 are not in this file" in capsys.readouterr().out


def test_a_duplicate_chunk_belongs_to_the_completed_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, half = tmp_path / "twice.pcap", len(THREE) // 2
    with PcapWriter(path) as writer:
        for ts_ns, chunk in enumerate((1, 2, 1)):
            writer.write(ts_ns, frame(3, THREE[:half] if chunk == 1 else THREE[half:], 2, chunk), *FLOW)
    assert run(["explain", str(path), "--packet", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["messages"][0]["packets"] == [1, 2]


def test_json_says_when_a_message_was_sent_and_received(
    day: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sent_ns = 1_763_038_800_123_000_000  # 52=20251113130000123
    assert run(["decode", str(day), "--json"]) == 0
    shown = objects(capsys.readouterr().out)
    assert [(m["file"], m["ts_recv"], m["ts_send"]) for m in shown] == [
        (str(day), 1, sent_ns), (str(day), 1, sent_ns), (str(day), 3, sent_ns)
    ]  # fmt: skip
    raw = tmp_path / "messages.bin"
    raw.write_bytes(frame(1, ONE))
    assert run(["decode", str(raw), "--json"]) == 0
    (first,) = objects(capsys.readouterr().out)
    assert first["ts_recv"] is None and first["ts_send"] == sent_ns
