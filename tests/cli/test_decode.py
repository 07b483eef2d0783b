"""`umdf decode` and `umdf explain` on real files: what a user sees, on sound and on damaged input."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from io import StringIO
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import umdf
from umdf.cli.app import run
from umdf.transport.pcap_writer import PcapWriter
from umdf.wire.sbe.compose import Packet, compose
from umdf.wire.sbe.loader import load

FLOW = ("10.0.0.1", 40_001), ("224.0.20.72", 20_001)
ORDER = {
    "securityID": 2**63 + 7,
    "matchEventIndicator": 144,
    "mDUpdateAction": 0,
    "mDEntryType": "0",
    "mDEntryPx": "-12.3456",
    "mDEntrySize": 300,
    "mDInsertTimestamp": 1_763_038_800_000_000_001,
    "secondaryOrderID": 9001,
    "rptSeq": 5,
    "transactTime": 1_763_038_800_000_000_002,
}
SNAPSHOT = {
    "securityID": 1,
    "noMDEntries": [
        {"mDEntryPx": "1.5", "mDEntrySize": 1, "secondaryOrderID": 4, "mDEntryType": "0"},
        {"mDEntrySize": 2, "secondaryOrderID": 5, "mDEntryType": "1", "mDEntryPx": None},
    ],
}
SENT_NS = 1_763_038_799_999_000_000
BEAT = ("Sequence_2", {"nextSeqNo": 3})


def capture(path: Path, packets: list[Packet], damaged: bytes = b"") -> Path:
    encoded = compose(load(), packets)
    ts_ns = 1_763_038_800_000_000_000 + np.arange(len(packets))
    with PcapWriter(path) as writer:
        writer.write_batch(encoded.buffer, encoded.start, encoded.end, ts_ns, *FLOW)
        if damaged:
            writer.write(int(ts_ns[-1]), damaged, *FLOW)
    return path


@pytest.fixture
def day(tmp_path: Path) -> Path:
    first = Packet([("Order_MBO_50", ORDER), ("SnapshotFullRefresh_Orders_MBO_71", SNAPSHOT)], 72, 1, 1, SENT_NS)
    return capture(tmp_path / "day.pcap", [first, Packet([BEAT], 72, 1, 0, SENT_NS + 1)])


def test_json_is_one_object_a_message_with_exact_values(day: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["decode", str(day), "--format", "json"]) == 0
    order, snapshot, beat = map(json.loads, capsys.readouterr().out.splitlines())
    assert order == {
        "file": str(day),
        "packet": 1,
        "ts_recv": 1_763_038_800_000_000_000,
        "ts_send": SENT_NS,
        "channel": 72,
        "seq_version": 1,
        "sequence": 1,
        "msg_index": 0,
        "template_id": 50,
        "name": "Order_MBO_50",
        "fields": ORDER,
    }
    assert snapshot["msg_index"] == 1
    entries = snapshot["fields"]["noMDEntries"]
    assert [entry.get("mDEntryPx") for entry in entries] == ["1.5000", None]
    assert beat["packet"] == 2 and beat["fields"] == {"nextSeqNo": 3}


def test_names_replace_codes_only_when_asked_for(day: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["decode", str(day), "--json", "--names", "--limit", "1"]) == 0
    fields = json.loads(capsys.readouterr().out)["fields"]
    assert fields["mDUpdateAction"] == "NEW" and fields["mDEntryType"] == "BID"
    assert fields["matchEventIndicator"] == ["Implied", "EndOfEvent"]


def test_fix_writes_a_group_with_its_count_first(day: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["decode", str(day), "--format", "fix"]) == 0
    order, snapshot, beat = capsys.readouterr().out.splitlines()
    header = "1128=9|34=1|52=20251113-12:59:59.999000000"
    assert order.startswith(f"35=X|{header}|48={2**63 + 7}|22=8|207=BVMF|37035=144|279=0|269=0|270=-12.3456|271=300|")
    assert "|60=20251113-13:00:00.000000002" in order
    assert snapshot.endswith("|268=2|269=0|270=1.5|271=1|198=4|37035=0|269=1|271=2|198=5|37035=0")
    assert beat == "35=0|1128=9|34=0|52=20251113-12:59:59.999000001|35526=3"


def test_a_table_shows_every_message_and_what_it_is(day: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["decode", str(day)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[5] for line in lines[1:]] == [
        "Order_MBO_50",
        "SnapshotFullRefresh_Orders_MBO_71",
        "Sequence_2",
    ]


def test_parquet_is_a_file_a_template_with_exact_decimals(day: Path, tmp_path: Path) -> None:
    out = tmp_path / "tables"
    assert run(["decode", str(day), "--format", "parquet", "--out", str(out)]) == 0
    assert sorted(path.stem for path in out.iterdir()) == sorted(
        ["Order_MBO_50", "SnapshotFullRefresh_Orders_MBO_71", "Sequence_2"]
    )
    (order,) = pq.read_table(out / "Order_MBO_50.parquet").to_pylist()
    assert str(order["mDEntryPx"]) == "-12.3456" and order["mDEntryType"] == "0" and order["sequence"] == 1
    assert order["securityID"] == 2**63 + 7 and order["mDEntryPrevSize"] is None
    (snapshot,) = pq.read_table(out / "SnapshotFullRefresh_Orders_MBO_71.parquet").to_pylist()
    assert [str(entry["mDEntryPx"]) for entry in snapshot["noMDEntries"]] == ["1.5000", "None"]


def test_parquet_without_out_is_an_error_with_a_hint(day: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["decode", str(day), "--format", "parquet"]) == 2
    assert capsys.readouterr().err == "umdf: --format parquet writes a directory; add --out DIR\n"


@pytest.mark.parametrize("format_", ["json", "fix", "table", "parquet"])
def test_a_limit_stops_after_so_many_messages(format_: str, day: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(["decode", str(day), "--format", format_, "--limit", "2", "--out", str(out)]) == 0
    if format_ == "parquet":
        assert sum(pq.read_metadata(path).num_rows for path in out.iterdir()) == 2
    else:
        assert len(out.read_text().splitlines()) == 2 + (format_ == "table")


def test_a_pipe_gets_every_row_of_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = capture(tmp_path / "many.pcap", [Packet([BEAT], 72, 1, number) for number in range(250)])
    for more in ([], ["--limit", "0"]):
        assert run(["decode", str(many), *more]) == 0
        out, err = capsys.readouterr()
        assert [line.split("\t")[3] for line in out.splitlines()] == ["sequence", *map(str, range(250))]
        assert err == ""


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_hundred_rows_and_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beats = [Packet([BEAT], 72, 1, number) for number in range(101)]
    cut, whole = capture(tmp_path / "101.pcap", beats), capture(tmp_path / "100.pcap", beats[:100])
    for more, rows, said in (
        ([cut], 100, "umdf: warning: showing the first 100 messages; use --limit 0 for all\n"),
        ([cut, "--limit", "0"], 101, ""),
        ([cut, "--limit", "7"], 7, ""),
        ([whole], 100, ""),
        ([cut, whole, "--limit", "150"], 150, ""),
    ):
        out, err = Terminal(), StringIO()
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        monkeypatch.setenv("COLUMNS", "200")
        assert run(["decode", *map(str, more)]) == 0
        assert out.getvalue().count("Sequence_2") == rows
        assert err.getvalue() == said
        titles = [path for path in more if isinstance(path, Path)]
        assert all((str(path) in out.getvalue()) == (len(titles) > 1) for path in titles)


def test_a_directory_is_read_as_umdf_book_reads_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "day" / "later").mkdir(parents=True)
    for number, name in enumerate(["day/b.pcap", "day/a.pcap", "day/later/c.pcap"]):
        capture(tmp_path / name, [Packet([BEAT], number)])
    (tmp_path / "day" / "notes.txt").write_text("no capture")
    assert run(["decode", str(tmp_path / "day"), "--json"]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [Path(message["file"]).name for message in shown] == ["a.pcap", "b.pcap", "c.pcap"]
    assert run(["decode", str(tmp_path / "day")]) == 0
    header, *rows = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert header[0] == "file" and [row[0] for row in rows] == [message["file"] for message in shown]
    assert run(["explain", str(tmp_path / "day" / "later"), "--packet", "1"]) == 0  # there is only one
    capsys.readouterr()
    assert run(["explain", str(tmp_path / "day"), "--packet", "1"]) == 2
    assert "day contains 3 captures; pass one of them, for example " in capsys.readouterr().err
    (tmp_path / "none").mkdir()
    assert run(["decode", str(tmp_path / "none")]) == 3


def test_dates_are_dates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bust = {
        "securityID": 1,
        "mDEntryPx": "1.5",
        "mDEntrySize": 1,
        "tradeID": 2,
        "tradeDate": 19_926,
        "matchEventIndicator": 128,
        "tradingSessionID": 1,
    }
    day = capture(tmp_path / "day.pcap", [Packet([("TradeBust_57", bust)], 72)])
    # A file without semanticType, and with another name for the field: the type tells.
    schema = tmp_path / "own.xml"
    text = (Path(umdf.__file__).parent / "schemas" / "sbe" / "b3-umdf-2.2.0.xml").read_text()
    schema.write_text(text.replace(' semanticType="LocalMktDate"', "").replace('name="tradeDate"', 'name="sessionDay"'))
    for more, name in (([], "tradeDate"), (["--sbe-schema", str(schema)], "sessionDay")):
        assert run(["decode", str(day), "--json", *more]) == 0
        assert json.loads(capsys.readouterr().out)["fields"][name] == "2024-07-22"
        assert run(["decode", str(day), *more]) == 0
        assert f" {name}=2024-07-22" in capsys.readouterr().out
        assert run(["decode", str(day), "--format", "fix", *more]) == 0
        assert "75=20240722" in capsys.readouterr().out.strip().split("|")
        assert run(["explain", str(day), "--packet", "1", "--json", *more]) == 0
        (line,) = [line for line in json.loads(capsys.readouterr().out)["lines"] if line["name"] == name]
        assert (line["value"], line["meaning"]) == (19_926, "2024-07-22")
        out = tmp_path / name
        assert run(["decode", str(day), "--format", "parquet", "--out", str(out), *more]) == 0
        (row,) = pq.read_table(out / "TradeBust_57.parquet").to_pylist()
        assert row[name] == date(2024, 7, 22) and row["file"] == str(day)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ([], ["--json", "--format", "fix"], "--json cannot be used with --format fix"),
        (["--json"], ["--format", "table"], "--json cannot be used with --format table"),
        (
            [],
            ["--json", "--format", "parquet", "--out", "/dev/null"],
            "--json cannot be used with --format parquet",
        ),
        ([], ["--names", "--format", "fix"], "--names cannot be used with --format fix"),
    ],
)
def test_conflicting_options_are_a_usage_error(
    before: list[str], after: list[str], said: str, day: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*before, "decode", str(day), *after]) == 2
    out, err = capsys.readouterr()
    assert out == "" and said in err


def test_a_flag_wins_over_the_settings_of_a_file(day: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "umdf.toml"
    config.write_text('[decode]\nformat = "fix"\n')
    assert run(["--config", str(config), "decode", str(day), "--json", "--limit", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["packet"] == 1
    config.write_text("[decode]\njson = true\nnames = true\n")
    assert run(["--config", str(config), "decode", str(day), "--format", "fix", "--limit", "1"]) == 0
    assert capsys.readouterr().out.startswith("35=X|")


def test_several_files_follow_each_other(day: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = capture(tmp_path / "other.pcap", [Packet([BEAT], 73)])
    assert run(["decode", str(day), str(other), "--json"]) == 0
    assert [json.loads(line)["channel"] for line in capsys.readouterr().out.splitlines()] == [72, 72, 72, 73]


def test_a_damaged_packet_is_quarantined_and_the_rest_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = compose(load(), [Packet([BEAT, ("Order_MBO_50", ORDER)], 72, 1, 9)]).buffer.tobytes()
    path = capture(tmp_path / "day.pcap", [Packet([BEAT], 72, 1, 8)], damaged=whole[:-1])
    faults = tmp_path / "faults.jsonl"
    assert run(["decode", str(path), "--format", "json", "--quarantine", str(faults)]) == 0
    printed = capsys.readouterr()
    assert [json.loads(line)["sequence"] for line in printed.out.splitlines()] == [8, 9]
    assert "packet 2, byte 32, template 50: messageLength 84 exceeds the packet: 83 bytes left" in printed.err
    assert "1 message quarantined, 2 decoded" in printed.err
    assert json.loads(faults.read_text()) == {
        "file": str(path),
        "packet": 2,
        "msg_index": 1,
        "offset": 32,
        "template_id": 50,
        "version": 16,
        "field": None,
        "reason": "messageLength 84 exceeds the packet: 83 bytes left",
    }
    assert run(["decode", str(path), "--json", "--strict"]) == 4


def test_packets_of_something_else_are_counted_not_decoded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mixed.pcap"
    capture(path, [Packet([BEAT], 72)])
    with PcapWriter(path) as writer:
        writer.write(0, compose(load(), [Packet([BEAT], 72)]).buffer.tobytes(), *FLOW)
        writer.write(0, b"GET / HTTP/1.1", ("10.0.0.2", 1), ("10.0.0.3", 2))
    assert run(["decode", str(path), "--json"]) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 1
    assert "1 of 2 packets are not" in printed.err


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "the file is empty"), (b"no capture at all", "not a capture file")],
)
def test_a_file_that_is_not_a_capture_is_a_one_line_error(
    content: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(content)
    assert run(["decode", str(path)]) == 3
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_a_bad_schema_is_refused_with_every_fault(
    day: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = tmp_path / "bad.xml"
    schema.write_text(
        '<messageSchema id="2" version="16">\n<message name="A" id="1"><field name="x" id="1" type="Nothing"/>\n'
        '<field name="y" id="2" type="Nowhere"/></message></messageSchema>'
    )
    assert run(["decode", str(day), "--sbe-schema", str(schema)]) == 3
    error = capsys.readouterr().err
    assert "bad.xml:2" in error and "bad.xml:3" in error and "Nothing" in error and "Nowhere" in error


def test_explain_shows_every_byte_of_a_packet(day: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", str(day), "--packet", "1", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    covered = {
        offset
        for line in shown["lines"]
        if line.get("raw")
        for offset in range(line["offset"], line["offset"] + len(line["raw"]) // 2)
    }
    packet = compose(load(), [Packet([("Order_MBO_50", ORDER), ("SnapshotFullRefresh_Orders_MBO_71", SNAPSHOT)])])
    assert covered == set(range(len(packet.buffer)))
    price = next(line for line in shown["lines"] if line["name"] == "mDEntryPx")
    assert price["value"] == "-12.3456" and price["tag"] == 270 and price["offset"] == 16 + 12 + 12


def test_explaining_a_packet_that_is_not_there_says_how_many_there_are(
    day: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", str(day), "--packet", "9"]) == 2
    assert "has no packet 9; it has 2 packets" in capsys.readouterr().err


def test_a_closed_pipe_ends_the_command_quietly(day: Path) -> None:
    program = f"{sys.executable} -m umdf decode {day} {day} --json | head -n 1"
    done = subprocess.run(program, shell=True, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "" and len(done.stdout.splitlines()) == 1
