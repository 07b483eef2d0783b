"""`umdf ingest`, `umdf lake` and `umdf explain --row`: what a user sees."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from umdf.cli.app import run
from umdf.cli.commands.ingest import find_captures
from umdf.errors import CaptureError

PCAP_HEADER = bytes.fromhex("4d3cb2a1020004000000000000000000ffff000001000000")
TABLES = ["--no-spark", "--tables", "packets,gaps,quality,definition,execution_summary,quarantine"]


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("day")
    settings = ["--messages", "3000", "--instruments", "12", "--loss", "0.02", "--seed", "5"]
    assert run(["exchange", "capture", *settings, str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def lake(day: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("lakes") / "lake"
    assert run(["ingest", str(day / "capture"), "--lake", str(root), *TABLES]) == 0
    return root


def test_ingest_prints_a_summary_and_warns_about_gaps(
    day: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["ingest", str(day / "capture" / "manifest.jsonl"), "--lake", str(tmp_path / "lake"), *TABLES, "--json"]
    assert run(command) == 0
    shown = capsys.readouterr()
    result = json.loads(shown.out)
    assert (result["new"], result["known"], result["commit"]) == (4, 0, 1) and result["messages"] > 2_500
    assert result["rows"]["packets"] > 1_000 and result["gaps"] == result["rows"]["gaps"] > 0
    lost = f"{result['missing_sequences']:,} sequence numbers lost in {result['gaps']:,} gaps"
    assert lost in json.loads(shown.err)["warning"]
    assert run(command[:-1]) == 0
    assert "0 new files, 4 already in the lake" in capsys.readouterr().out


def test_lake_commands(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lake", "status", str(lake)]) == 0
    assert "packets" in capsys.readouterr().out
    assert run(["lake", "status", str(lake), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["marker"]["number"] == 1 and result["orphans"]["files"] == 0
    assert run(["--json", "lake", "verify", str(lake), "--deep"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert run(["lake", "ddl", str(lake)]) == 0
    assert "CREATE TABLE IF NOT EXISTS umdf.packets" in capsys.readouterr().out
    assert run(["lake", "compact", str(lake)]) == 0
    assert run(["lake", "vacuum", str(lake), "--retention-days", "0"]) == 0
    assert run(["lake", "verify", str(lake)]) == 0


def test_a_row_is_explained_to_its_bits(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from umdf.lake.commit.lake_snapshot import open_snapshot

    row = open_snapshot(lake).arrow_table("execution_summary").to_pylist()[0]
    key = f"execution_summary:72:{row['seq_version']}:{row['sequence']}:{row['msg_index']}"
    assert run(["explain", "--lake", str(lake), "--row", key, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["ts_recv"] == row["ts_recv"]
    fields = {line["name"]: line.get("value") for line in result["lines"]}
    assert fields["sequenceNumber"] == row["sequence"] and "ExecutionSummary_55" in fields


def test_damage_is_a_warning_and_with_strict_an_exit_code(
    day: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "garbage.pcap").write_bytes(b"no capture")
    inputs = [str(day / "capture"), str(tmp_path / "bad")]
    assert run(["ingest", *inputs, "--lake", str(tmp_path / "lake"), *TABLES, "--strict"]) == 4
    said = capsys.readouterr().err
    assert said.count("garbage.pcap (not a capture file") == 1
    assert said.splitlines()[-1] == "umdf: 1 damaged files; the rest was ingested"


def test_a_named_file_must_be_a_capture_and_others_in_a_directory_are_counted(
    day: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, lake = tmp_path / "given", ["--lake", str(tmp_path / "lake"), *TABLES]
    given.mkdir()
    for name in ("README", "garbage.pcap"):
        (given / name).write_text("no capture")
    for inputs in ([given / "README", day / "capture"], [given]):
        assert run(["ingest", *map(str, inputs), *lake]) == 3
        said = capsys.readouterr().err.splitlines()[-1]
        assert f"{inputs[0]}" in said and "not a capture file (it starts with 6e 6f 20 63)" in said
    assert not (tmp_path / "lake" / "ledger").exists(), "nothing was committed"
    (given / "linked").symlink_to(day)
    assert run(["ingest", str(given), *lake, "--json"]) == 0
    shown = capsys.readouterr()
    truth = sum(1 for path in (day / "truth").iterdir())
    assert f"skipped {truth + 2} files that are not captures: README, session.json" in shown.err
    assert (json.loads(shown.out)["new"], json.loads(shown.out)["unusable"][0][0]) == (5, str(given / "garbage.pcap"))


def test_an_input_is_forgotten_and_a_configuration_is_remembered(
    day: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, lake = sorted((day / "capture").glob("*.pcap")), str(tmp_path / "lake")
    config = tmp_path / "lines.toml"
    channel = '[[channel]]\nnumber = 72\nprotocol = "sbe"\nincremental = { %s = "224.0.20.72:20001" }\n'
    config.write_text(channel % "B")
    other = tmp_path / "other.toml"
    other.write_text(channel % "A")
    assert run(["ingest", *map(str, files[:2]), "--lake", lake, *TABLES, "--channels", str(config)]) == 0
    assert run(["ingest", *map(str, files[2:]), "--lake", lake, *TABLES, "--channels", str(other)]) == 3
    assert (
        "224.0.20.72:20001 is line B in the lake, but line A in --channels; omit --channels" in capsys.readouterr().err
    )
    assert run(["lake", "rebuild", lake, "--no-spark", "--channels", str(other), "--channel", "72"]) != 0
    assert run(["lake", "forget", lake, "nothing.pcap", "--no-spark"]) == 3
    assert "unknown input: nothing.pcap; inputs are listed in the table ledger: " in capsys.readouterr().err
    assert run(["lake", "forget", lake, str(files[0]), "--no-spark", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["path"], result["commit"]) == (str(files[0]), 2)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["ingest", "nothing.pcap", "--lake", "LAKE"], 3, "nothing.pcap: no such file or directory; check the path"),
        (["ingest", ".", "--lake", "LAKE"], 3, "no captures in .; pass a pcap or pcapng file, or a dir"),
        (["ingest", "x.pcap", "--lake", "LAKE", "--tables", "mbo,nope"], 2, "unknown table: nope; available: mbo, "),
        (["ingest", "x.pcap", "--lake", "x.pcap", "--no-spark"], 3, "x.pcap is not a directory; use a new or empty"),
        (["ingest", "x.pcap", "--lake", "LAKE", "--channels", "x.toml"], 3, "channel 72: unknown key: incrementals; d"),
        (["lake", "status", "LAKE"], 3, "LAKE is not a umdf lake (no lake.json); create one with `umdf ing"),
        (["lake", "compact", "LAKE"], 3, "LAKE is not a umdf lake"),
        (["explain", "x.pcap"], 2, "no packet selected; pass FILE and --packet, or --lake and --row"),
        (["explain", "--lake", "LAKE", "--row", "mbo:1"], 2, "invalid row: mbo:1; use TABLE:CHANNEL:SEQ_VERSION"),
    ],
)  # fmt: skip
def test_invalid_options_are_a_one_line_error(
    arguments: list[str], code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    if "x.pcap" in arguments:
        Path("x.pcap").write_bytes(PCAP_HEADER)
    Path("x.toml").write_text('[[channel]]\nnumber = 72\nprotocol = "sbe"\nincrementals = { A = "224.0.0.1:1" }\n')
    assert run(arguments) == code
    shown = capsys.readouterr().err
    assert said in shown and shown.startswith("umdf: ") and shown.count("\n") == 1


def test_growing_files_are_not_inputs(tmp_path: Path) -> None:
    names = ("a.pcap", "b.pcapng.zst", "c.pcap.gz", "d.pcap.part", "e.txt", "manifest.jsonl")
    for name in names:
        (tmp_path / name).write_text('{"file": "a.pcap"}\n')
    (tmp_path / "f.pcap").write_bytes(PCAP_HEADER)
    captures, skipped = find_captures([tmp_path])
    assert [path.name for path in captures] == ["a.pcap", "b.pcapng.zst", "c.pcap.gz", "f.pcap"]
    assert [path.name for path in skipped] == ["d.pcap.part", "e.txt"]
    assert find_captures([tmp_path / "manifest.jsonl"]).captures == [tmp_path / "a.pcap"]
    assert find_captures([tmp_path / "f*", tmp_path / "f.pcap"]).captures == [tmp_path / "f.pcap"] * 2
    os.mkfifo(tmp_path / "pipe.pcap")
    for name, text, reason in (
        ("bad.jsonl", "[1]", r"bad\.jsonl:1: invalid entry"),
        ("outside.jsonl", '{"file": "../a.pcap"}', r"outside\.jsonl:1: \.\./a\.pcap is outside"),
        ("empty.jsonl", "", "lists no captures"),
        ("e.txt", "x", "not a capture file"),
        ("pipe.pcap", "", "not a regular file"),
    ):
        if name != "pipe.pcap":
            (tmp_path / name).write_text(text)
        with pytest.raises(CaptureError, match=reason):
            find_captures([tmp_path / name])
