"""Symbols that are no names of files, or none at all: every instrument has its own file, inside of OUT."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lake.report_lake import DAY, NINE, write_lake

from umdf.cli.app import run
from umdf.lake.export.instrument_days import Instrument
from umdf.lake.export.nautilus_instruments import catalog_symbol

# By instrument; those without a name of their own go by their number.
SYMBOLS: dict[int, str | None] = {
    1: "X/Y", 2: "X-Y", 3: None, 4: "", 5: "   ", 6: " X-Y", 7: "../../up", 8: "X%2FY", 9: "A" * 300, 10: "PETR4",
    11: "instrument_id=3", 12: "\x1b[31m\0",
}  # fmt: skip
NAMES = {
    1: "X%2FY", 2: "X-Y", 3: "instrument_id=3", 4: "instrument_id=4", 5: "instrument_id=5", 6: "instrument_id=6",
    7: "..%2F..%2Fup", 8: "X%252FY", 9: "instrument_id=9", 10: "PETR4", 11: "instrument_id%3D3", 12: "%1B%5B31m%00",
}  # fmt: skip
LAST = 128
HOW_TO_RUN = "nautilus_trader is not installed: pip install -c constraints.txt -e '.[export-tests]'"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [{"channel_id": 72, "instrument_id": n, "symbol": symbol, "seq_version": 1, "ts_recv": NINE + n,
             "ts_send": NINE, "ts_event": NINE, "action": "A", "side": "B", "price": 10**9, "size": 100,
             "security_type": "CS", "tick": 10**7}
            for n, symbol in SYMBOLS.items()]  # fmt: skip
    trades = [row | {"sequence": 100 * n + row["instrument_id"]} for row in rows for n in range(row["instrument_id"])]
    orders = [row | {"order_id": row["sequence"], "flags": LAST, "update_action": 0} for row in trades]
    root = tmp_path_factory.mktemp("names") / "lake"
    write_lake(root, {"definition": rows, "trades": trades, "mbo": orders, "ohlcv_1d": rows}, DAY)
    return root


def export(root: Path, out: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    code = run(["export", str(root), "--json", *more, str(out)])
    said = capsys.readouterr()
    assert code == 0, said.err
    assert [path.name for path in out.parent.iterdir()] == [out.name]  # nothing is anywhere else
    return json.loads(said.out)


def test_every_instrument_has_a_file_of_its_own_and_what_is_reported_is_on_disk(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schemas = "trades,definition,ohlcv-1d"
    result = export(root, tmp_path / "out", capsys, "--format", "databento", "--schema", schemas)
    for number, name in NAMES.items():
        rows = pq.read_table(tmp_path / "out" / f"bvmf-umdf-20261113.trades.{name}.parquet").to_pylist()
        assert [row["instrument_id"] for row in rows] == [number] * number
        assert {row["symbol"] for row in rows} == {SYMBOLS[number] or ""}
    on_disk = {schema: [pq.read_table(path) for path in (tmp_path / "out").glob(f"*.{schema}*.parquet")]
               for schema in schemas.split(",")}  # fmt: skip
    assert result["rows"] == {schema: sum(rows.num_rows for rows in some) for schema, some in on_disk.items()}
    assert result["files"] == len(SYMBOLS) + 2 and result["rows"]["trades"] == sum(SYMBOLS)


def test_an_instrument_without_a_symbol_can_be_selected_by_its_number(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--symbols", "4,10", "--stype-in", "instrument_id", "--schema", "trades,definition")
    result = export(root, tmp_path / "out", capsys, "--format", "databento", *asked)
    assert result["rows"] == {"trades": 14, "definition": 2} and result["files"] == 3
    asked = ("--symbols", "../../up, X/Y", "--schema", "trades")
    assert export(root, tmp_path / "again" / "out", capsys, "--format", "databento", *asked)["rows"] == {"trades": 8}


def test_lobster_has_two_files_for_each_too(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = export(root, tmp_path / "out", capsys, "--format", "lobster", "--levels", "1")
    stem = f"{DAY}_0_86400000"
    lines = {number: list(csv.reader((tmp_path / "out" / f"{name}_{stem}_message_1.csv").open()))
             for number, name in NAMES.items()}  # fmt: skip
    assert {number: len(some) for number, some in lines.items()} == {number: number for number in NAMES}
    assert result["rows"] == {"messages": sum(NAMES)} and result["files"] == 2 * len(NAMES)


def test_a_nautilus_catalog_has_a_directory_for_each(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("nautilus_trader", reason=HOW_TO_RUN)
    from nautilus_trader.persistence.catalog import ParquetDataCatalog  # type: ignore[reportMissingImports]

    result = export(root, tmp_path / "out", capsys, "--format", "nautilus", "--schema", "trades")
    catalog = ParquetDataCatalog(str(tmp_path / "out"))
    names = {number: name.replace("%", "^").replace("=", "^_") for number, name in NAMES.items()}
    assert {one.id.symbol.value for one in catalog.instruments()} == set(names.values())
    for number, name in names.items():
        ticks = catalog.trade_ticks(instrument_ids=[f"{name}.BVMF"])
        assert [tick.instrument_id.symbol.value for tick in ticks] == [name] * number
    assert result["rows"] == {"Equity": len(NAMES), "TradeTick": sum(NAMES)}


@given(st.lists(st.builds(Instrument.from_definition, st.none() | st.text(st.characters(exclude_categories=["Cs"])),
                          st.integers(0, 9)), unique=True))  # fmt: skip
def test_no_two_instruments_share_a_name(instruments: list[Instrument]) -> None:
    names = {one.file_name for one in instruments}
    assert len(names) == len(instruments)
    assert all(name and "/" not in name and len(name) <= 200 and name.isascii() for name in names)
    assert len(set(map(catalog_symbol, instruments))) == len(instruments)
