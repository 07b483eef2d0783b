"""`umdf ingest`, `umdf lake` and `umdf explain --row`: what a user sees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from umdf.cli.app import run
from umdf.cli.ingest import inputs_of
from umdf.errors import CaptureError

TABLES = ["--plain", "--tables", "packets,gaps,quality,definition,execution_summary,quarantine"]


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("day")
    settings = ["--messages", "3000", "--instruments", "12", "--loss", "0.02", "--seed", "5"]
    assert run(["exchange", "capture", *settings, "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def lake(day: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("lakes") / "lake"
    assert run(["ingest", str(day / "capture"), "--lake", str(root), *TABLES]) == 0
    return root


def test_an_ingest_is_summed_up_and_what_was_lost_is_told(
    day: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["ingest", str(day / "capture" / "manifest.jsonl"), "--lake", str(tmp_path / "lake"), *TABLES, "--json"]
    assert run(command) == 0
    shown = capsys.readouterr()
    told = json.loads(shown.out)
    assert (told["new"], told["known"], told["commit"]) == (4, 0, 1) and told["messages"] > 2_500
    assert told["rows"]["packets"] > 1_000 and told["gaps"] == told["rows"]["gaps"] > 0
    assert f"{told['missing']:,} numbers were lost in {told['gaps']:,} gaps" in json.loads(shown.err)["warning"]
    assert run(command[:-1]) == 0
    assert "0 new files, 4 known" in capsys.readouterr().out


def test_a_lake_is_looked_after(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lake", "status", str(lake)]) == 0
    assert "packets" in capsys.readouterr().out
    assert run(["lake", "status", str(lake), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["marker"]["number"] == 1 and told["orphans"]["files"] == 0
    assert run(["--json", "lake", "verify", str(lake), "--deep"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert run(["lake", "ddl", str(lake)]) == 0
    assert "CREATE TABLE IF NOT EXISTS umdf.packets" in capsys.readouterr().out
    assert run(["lake", "compact", str(lake)]) == 0
    assert run(["lake", "vacuum", str(lake), "--days", "0"]) == 0
    assert run(["lake", "verify", str(lake)]) == 0


def test_a_row_is_explained_to_its_bits(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from umdf.lake.snapshot import open_snapshot

    row = open_snapshot(lake).arrow_table("execution_summary").to_pylist()[0]
    key = f"execution_summary:72:{row['seq_version']}:{row['sequence']}:{row['msg_index']}"
    assert run(["explain", "--lake", str(lake), "--row", key, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ts_recv"] == row["ts_recv"]
    fields = {line["name"]: line.get("value") for line in told["lines"]}
    assert fields["sequenceNumber"] == row["sequence"] and "ExecutionSummary_55" in fields


def test_damage_is_a_warning_and_with_strict_an_exit_code(
    day: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "garbage.pcap").write_bytes(b"no capture")
    inputs = [str(day / "capture"), str(tmp_path / "garbage.pcap")]
    assert run(["ingest", *inputs, "--lake", str(tmp_path / "lake"), *TABLES, "--strict"]) == 4
    said = capsys.readouterr().err
    assert said.count("garbage.pcap (this is no capture file") == 1
    assert said.splitlines()[-1] == "umdf: 1 faults in the files; the rest is in the lake"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["ingest", "nothing.pcap", "--lake", "LAKE"], 3, "nothing.pcap: no such file or directory; check the path"),
        (["ingest", ".", "--lake", "LAKE"], 3, "no capture in this directory; name a pcap or pcapng file"),
        (["ingest", "x.pcap", "--lake", "LAKE", "--tables", "mbo,nope"], 3, "no table nope; there are mbo, "),
        (["ingest", "x.pcap", "--lake", "x.pcap", "--plain"], 3, "x.pcap is not a directory; give a new or an empty"),
        (["ingest", "x.pcap", "--lake", "LAKE", "--config", "x.toml"], 3, "x.toml: stream 1: role = 'incremental'"),
        (["lake", "status", "LAKE"], 3, "LAKE is no lake; `umdf ingest CAPTURES --lake DIR` makes one"),
        (["lake", "compact", "LAKE"], 3, "LAKE is no lake"),
        (["explain", "x.pcap"], 3, "which packet?; give FILE and --packet, or --lake and --row"),
        (["explain", "--lake", "LAKE", "--row", "mbo:1"], 3, "mbo:1 is no row; write table:channel:seq_version"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_line(
    arguments: list[str], code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    if "x.pcap" in arguments:
        Path("x.pcap").write_bytes(b"x")
    Path("x.toml").write_text('[[stream]]\ngroup = "224.0.0.1"\nport = 1\nrole = "incremental"\n')
    assert run(arguments) == code
    shown = capsys.readouterr().err
    assert said in shown and shown.startswith("umdf: ") and shown.count("\n") == 1


def test_inputs_are_captures_and_not_what_still_grows(tmp_path: Path) -> None:
    names = ("a.pcap", "b.pcapng.zst", "c.pcap.gz", "d.pcap.part", "e.txt", "manifest.jsonl")
    for name in names:
        (tmp_path / name).write_text('{"file": "a.pcap"}\n')
    assert [path.name for path in inputs_of([tmp_path])] == ["a.pcap", "b.pcapng.zst", "c.pcap.gz"]
    assert inputs_of([tmp_path / "manifest.jsonl"]) == [tmp_path / "a.pcap"]
    assert inputs_of([tmp_path / "e.txt"]) == [tmp_path / "e.txt"]
    (tmp_path / "bad.jsonl").write_text("[1]")
    with pytest.raises(CaptureError, match="no manifest of captures"):
        inputs_of([tmp_path / "bad.jsonl"])
