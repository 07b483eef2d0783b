"""Exports as a whole: what is refused, what is left behind, and the command line."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from umdf.cli.app import run
from umdf.errors import UmdfError
from umdf.lake.export.databento_columns import SCHEMAS
from umdf.lake.export.job import FORMATS, ExportRequest, Options, export
from umdf.lake.schemas import tables

FIRST, SECOND = date(2026, 11, 13), date(2026, 11, 16)
TRADES = ["export", "--format", "databento", "--schema", "trades"]


@pytest.mark.parametrize(
    ("format", "schemas", "asked", "reason", "hint"),
    [
        ("lobster", [], {"symbols": ["WINZ62"]}, "unknown symbol: 'WINZ62'", "did you mean WINZ26"),
        ("databento", [], {"start": "2027-01-01"}, "no data from 2027-01-01", "2026-11-13, 2026-11-16"),
        ("databento", [], {"start": SECOND, "end": FIRST}, "start 2026-11-16 is after end 2026-11-13", "the next date"),
        ("databento", [], {"start": FIRST, "end": FIRST}, "nothing to export", "use another range"),
        ("databento", [], {"start": "soon"}, "invalid start: 'soon'", "2026-11-13"),
        ("databento", ["mbp-2"], {}, "unknown schema: 'mbp-2'", "mbp_1"),
        ("databento", ["gaps"], {}, "Databento's Parquet cannot represent gaps", "mbo, mbp_1, mbp_10, trades"),
        ("lobster", ["trades"], {}, "LOBSTER cannot represent trades", "it supports mbo"),
        ("nautilus", ["mbp_10"], {}, "a Nautilus catalog cannot represent mbp_10", "mbo, mbp_1, trades, ohlcv_1s"),
        ("csv", [], {}, "unknown format: 'csv'", "databento, lobster, nautilus"),
        ("databento", [], {"stype_in": "continuous"}, "unsupported stype_in: 'continuous'", "raw, parent or"),
        ("databento", [], {"channel": 9}, "nothing to export: no rows of trades", "another range"),
        (
            "databento",
            [],
            {"start": "2026-11-13T03:00:00", "end": "2026-11-13T04:00:00"},
            "nothing to export: no rows of trades",
            "another range",
        ),
    ],
)
def test_an_impossible_export_is_one_clear_error_and_leaves_no_files(
    whole: Any, tmp_path: Path, format: str, schemas: list[str], asked: dict[str, Any], reason: str, hint: str
):
    with pytest.raises(UmdfError) as error:
        export(whole.lake, format, tmp_path / "out", schemas, ExportRequest(**asked))
    assert reason in error.value.reason and hint in error.value.hint
    assert not list(tmp_path.iterdir())


def test_an_export_replaces_only_an_export_and_only_by_force(whole: Any, tmp_path: Path):
    out, asked = tmp_path / "out", ExportRequest(["WINZ26"])
    out.mkdir()  # an empty directory is as good as none
    export(whole.lake, "databento", out, ["trades"], asked)
    before = sorted(path.name for path in out.iterdir())
    with pytest.raises(UmdfError, match="already exists; replace it with --force"):
        export(whole.lake, "databento", out, ["mbo"], asked)
    assert sorted(path.name for path in out.iterdir()) == before
    export(whole.lake, "databento", out, ["mbo"], asked, force=True)
    assert {path.name.split(".")[1] for path in out.glob("*.parquet")} == {"mbo"}
    with pytest.raises(UmdfError):
        export(whole.lake, "databento", out, ["trades"], ExportRequest(["WINZ26"], channel=9), force=True)
    assert {path.name.split(".")[1] for path in out.glob("*.parquet")} == {"mbo"}  # a failure takes nothing away
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_other_peoples_files_are_never_replaced(whole: Any, tmp_path: Path):
    (tmp_path / "mine.txt").write_text("mine")
    for out in (tmp_path, tmp_path / "mine.txt"):
        with pytest.raises(UmdfError, match="exists and is not a umdf export"):
            export(whole.lake, "databento", out, ["trades"], force=True)
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_symbols_that_are_listed_on_one_of_the_days_only_are_exported_there(whole: Any, tmp_path: Path):
    """The days have the same symbols but for those that were listed in mid-session."""
    first, second = (set(whole.lake.symbols(day)) for day in (FIRST, SECOND))
    export(whole.lake, "databento", tmp_path / "out", ["definition"], ExportRequest(sorted(first | second)))
    for day, symbols in ((FIRST, first), (SECOND, second)):
        rows = pq.read_table(tmp_path / "out" / f"bvmf-umdf-{day:%Y%m%d}.definition.parquet")
        assert set(rows.column("symbol").to_pylist()) == symbols


def test_a_parent_is_all_its_contracts(whole: Any, tmp_path: Path):
    report = export(whole.lake, "databento", tmp_path / "out", ["mbo"], ExportRequest(["WIN.FUT"], stype_in="parent"))
    contracts = {"WINZ26", "WING27", "WINJ27"}
    assert {path.name.split(".")[2] for path in (tmp_path / "out").glob("*.parquet")} == contracts
    assert report.rows["mbo"] == len(whole.lake.get_range("mbo", sorted(contracts)).to_arrow())


def test_a_window_has_the_rows_that_were_received_in_it(whole: Any, tmp_path: Path):
    rows = whole.lake.get_range("mbo", "WINZ26", FIRST, SECOND, pretty_ts=False, columns=["ts_recv"]).to_arrow()
    times = sorted(rows.column("ts_recv").to_pylist())
    low, high = times[len(times) // 4], times[len(times) // 2]
    export(whole.lake, "databento", tmp_path / "out", ["mbo"], ExportRequest(["WINZ26"], low, high))
    (path,) = (tmp_path / "out").glob("*.parquet")
    found = [ts.value for ts in pq.read_table(path).column("ts_recv").to_pylist()]
    assert sorted(found) == [ts for ts in times if low <= ts < high]


def flags_in(out: Path) -> list[int]:
    return [flag for path in out.glob("*.parquet") for flag in pq.read_table(path).column("flags").to_pylist()]


def test_stale_rows_are_marked_or_left_out(lossy: Any, tmp_path: Path):
    """Databento's rows carry the doubt themselves."""
    for name, stale in (("all", False), ("sure", True)):
        export(lossy.lake, "databento", tmp_path / name, ["mbp_1"], ExportRequest(exclude_stale=stale))
    flags = {name: flags_in(tmp_path / name) for name in ("all", "sure")}
    assert any(flag & 4 for flag in flags["all"]) and not any(flag & 4 for flag in flags["sure"])
    assert len(flags["sure"]) == sum(not flag & 4 for flag in flags["all"])


def test_every_format_names_tables_that_the_lake_has():
    for format in FORMATS.values():
        assert set(format.default_tables) <= set(format.tables) <= set(tables())
    assert set(FORMATS["databento"].tables) == set(SCHEMAS)


def test_the_command_reports_written_and_left_out_rows(whole: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run([*TRADES, str(whole.root), str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert (
        said.startswith("table\trows\ntrades\t")
        and "skipped " in said
        and f"files to {tmp_path / 'out'} (commit 2)" in said
    )
    assert run(["--json", *TRADES, str(whole.root), "--symbols", "WINZ26, WING27", str(tmp_path / "json")]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["format"] == "databento" and said["commit"] == 2 and said["rows"]["trades"] > 0
    note = json.loads((tmp_path / "json" / "_export.json").read_text())
    assert note["schemas"] == ["trades"] and note["rows"] == said["rows"]


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (["--symbols", "WINZ62"], 3, "umdf: unknown symbol: 'WINZ62'; did you mean WINZ26"),
        (["--schema", "gaps"], 2, "umdf: Databento's Parquet cannot represent gaps; it supports mbo"),
        (["--start", "2027-01-01"], 3, "umdf: no data from 2027-01-01; available dates: 2026-11-13, 2026-11-16"),
        (["--publisher-id", "-1"], 2, "umdf: publisher ID out of range: -1; use 0 to 65535"),
    ],
)
def test_the_command_refuses_in_one_line(
    whole: Any, tmp_path: Path, more: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
):
    assert run([*TRADES, str(whole.root), *more, str(tmp_path / "out")]) == code
    printed = capsys.readouterr()
    assert printed.err.startswith(said) and printed.err.count("\n") == 1 and not printed.out
    assert not list(tmp_path.iterdir())


def test_the_command_refuses_what_is_not_a_lake(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run([*TRADES, "nowhere", str(tmp_path / "out")]) == 3
    printed = capsys.readouterr()
    said = "umdf: nowhere is not a umdf lake (no lake.json); create one with `umdf ingest CAPTURE… --lake nowhere`\n"
    assert printed.err == said and not printed.out
    assert not list(tmp_path.iterdir())


def test_options_have_the_defaults_of_the_command():
    from umdf.lake.export.databento import PUBLISHER_ID

    assert Options().publisher_id == PUBLISHER_ID
