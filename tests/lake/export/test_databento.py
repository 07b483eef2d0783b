"""Databento's shape: against databento's own writer of Parquet, and against the generator's truth."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lake.captures import truth

from umdf.errors import UmdfError
from umdf.lake.export.databento import DatabentoOptions, to_databento
from umdf.lake.export.databento_columns import SCHEMAS
from umdf.lake.export.job import ExportRequest, Options, export
from umdf.lake.schemas import table

FIRST, SECOND = date(2026, 11, 13), date(2026, 11, 16)
MBO = (
    "ts_event rtype publisher_id instrument_id action side price size channel_id order_id flags ts_in_delta sequence "
    "symbol ts_recv"
).split()
HOW_TO_RUN = "databento is not installed: pip install -c constraints.txt -e '.[export-tests]'"


@pytest.fixture(scope="module", params=["float", "fixed"])
def exported(request: pytest.FixtureRequest, whole: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    out = tmp_path_factory.mktemp("databento") / request.param
    export(whole.lake, "databento", out, list(SCHEMAS), options=Options(price_type=request.param))
    return request.param, out


def files_of(out: Path, schema: str) -> list[Path]:
    found = sorted(out.glob(f"bvmf-umdf-*.{schema}.*"))
    assert found, schema
    return found


@pytest.mark.parametrize("shape", SCHEMAS.values(), ids=lambda shape: shape.schema)
def test_databento_writes_the_same_parquet_from_the_same_records(
    shape: Any, exported: tuple[str, Path], tmp_path: Path
):
    databento = pytest.importorskip("databento", reason=HOW_TO_RUN)
    dbn = pytest.importorskip("databento_dbn", reason=HOW_TO_RUN)
    price_type, out = exported
    for path in files_of(out, shape.schema):
        ours = pq.read_table(path)
        store = databento.DBNStore.from_bytes(as_dbn(dbn, shape.schema, ours, price_type == "fixed"))
        store.to_parquet(tmp_path / "theirs.parquet", price_type=price_type)
        theirs = pq.read_table(tmp_path / "theirs.parquet")
        assert ours.schema == theirs.schema
        assert said_of(ours.schema) == said_of(theirs.schema)
        assert theirs.num_rows == ours.num_rows
        assert pandas.testing.assert_frame_equal(ours.to_pandas(), theirs.to_pandas()) is None


def said_of(schema: pa.Schema) -> dict[str, Any]:
    said = json.loads((schema.metadata or {})[b"pandas"])
    return {name: value for name, value in said.items() if name not in ("creator", "pandas_version")}


def as_dbn(dbn: Any, schema: str, rows: pa.Table, fixed: bool) -> bytes:
    """The records of a file in DBN, by the layouts of databento's own package."""
    from databento.common.constants import SCHEMA_STRUCT_MAP  # type: ignore[reportMissingImports]

    kind = SCHEMA_STRUCT_MAP[dbn.Schema.from_str(schema)]
    layout = np.dtype(kind._dtypes)
    records = np.zeros(rows.num_rows, layout)
    records["length"] = layout.itemsize // 4
    for name in kind._ordered_fields:
        column = rows.column(name)
        if name in kind._timestamp_fields:
            values = column.cast(pa.int64()).to_pylist()
            records[name] = [dbn.UNDEF_TIMESTAMP if value is None else value for value in values]
        elif name in kind._price_fields and not fixed:
            values = column.to_numpy()
            known = np.where(np.isnan(values), 0, values)
            records[name] = np.where(np.isnan(values), dbn.UNDEF_PRICE, np.rint(known * 1e9).astype(np.int64))
        elif layout[name].kind == "S":
            records[name] = [value.encode() for value in column.to_pylist()]
        else:
            records[name] = column.to_numpy()
    pairs = sorted(set(zip(*(rows.column(name).to_pylist() for name in ("symbol", "instrument_id")), strict=True)))
    always = {"start_date": date(2026, 1, 1), "end_date": date(2027, 1, 1)}
    mappings = [
        SimpleNamespace(raw_symbol=symbol, intervals=[SimpleNamespace(**always, symbol=str(number))])
        for symbol, number in pairs
    ]
    stypes = dbn.SType.RAW_SYMBOL, dbn.SType.INSTRUMENT_ID
    symbols = [symbol for symbol, _ in pairs]
    named = dbn.Schema.from_str(schema)
    head = dbn.Metadata("BVMF.UMDF", 0, *stypes, named, symbols=symbols, mappings=mappings, version=3)
    return bytes(head) + records.tobytes()


def test_trades_are_those_of_the_truth(exported: tuple[str, Path], whole: Any):
    price_type, out = exported
    unit = 1 if price_type == "fixed" else 1e9
    for day, capture in whole.captures.items():
        expected = defaultdict(list)
        for row in truth(capture, "trades").to_pylist():
            expected[row["instrument_id"]].append((row["ts_event"], row["price"], row["size"], row["side"]))
        found = defaultdict(list)
        for path in sorted(out.glob(f"bvmf-umdf-{day:%Y%m%d}.trades.*")):
            for row in pq.read_table(path).to_pylist():
                assert (row["action"], row["depth"], row["rtype"]) == ("T", 0, 0)
                price = round(row["price"] * unit)
                found[row["instrument_id"]].append((row["ts_event"].value, price, row["size"], row["side"]))
        assert found == expected


def test_pandas_reads_the_index(exported: tuple[str, Path]):
    _, out = exported
    frame = pandas.read_parquet(files_of(out, "mbo")[0])
    assert frame.index.name == "ts_recv" and [*frame.columns, "ts_recv"] == MBO
    bars = pandas.read_parquet(files_of(out, "ohlcv-1m")[0])
    assert bars.index.name == "ts_event"


def test_every_row_of_the_lake_is_exported(exported: tuple[str, Path], whole: Any):
    """Every row of mbo, with its times, numbers and absent values, read by hand."""
    price_type, out = exported
    rows = whole.lake.get_range("mbo", None, FIRST, SECOND, price_type="fixed", pretty_ts=False).to_arrow().to_pylist()
    by_symbol = defaultdict(list)
    for row in rows:
        by_symbol[row["symbol"]].append(row)
    by_symbol.pop(None, None)  # a channel reset is of no instrument
    for symbol, expected in by_symbol.items():
        found = pq.read_table(out / f"bvmf-umdf-20261113.mbo.{symbol}.parquet").to_pylist()
        assert len(found) == len(expected)
        for theirs, ours in zip(found, expected, strict=True):
            assert theirs["ts_recv"].value == ours["ts_recv"] and theirs["ts_event"].value == ours["ts_event"]
            assert theirs["ts_in_delta"] == ours["ts_recv"] - ours["ts_send"]
            assert theirs["action"] == ours["action"] and theirs["side"] == ours["side"]
            assert theirs["size"] == (ours["size"] or 0) and theirs["order_id"] == (ours["order_id"] or 0)
            assert theirs["flags"] == ours["flags"] & 255 and theirs["publisher_id"] == 65_000
            if price_type == "fixed":
                assert theirs["price"] == ((1 << 63) - 1 if ours["price"] is None else ours["price"])
            else:
                nothing = theirs["price"] != theirs["price"]
                assert nothing == (ours["price"] is None) and (nothing or theirs["price"] == ours["price"] / 1e9)


def test_a_strategy_has_a_record_for_each_leg(exported: tuple[str, Path], whole: Any):
    _, out = exported
    rows = pq.read_table(out / "bvmf-umdf-20261113.definition.parquet").to_pylist()
    for row in whole.lake.get_range("definition", None, FIRST, SECOND, price_type="fixed").to_arrow().to_pylist():
        own = [one for one in rows if one["symbol"] == row["symbol"] and one["ts_recv"] == row["ts_recv"]]
        assert len(own) == max(1, len(row["legs"]))
        for index, leg in enumerate(row["legs"]):
            assert own[index]["leg_index"] == index and own[index]["leg_raw_symbol"] == leg["leg_symbol"]
            assert own[index]["leg_side"] == {1: "B", 2: "A"}[leg["leg_side"]] and own[index]["instrument_class"] == "S"
    assert {row["instrument_class"] for row in rows} >= {"F", "K", "S"}


def one_row(name: str, **values: Any) -> pa.Table:
    known = table(name)
    must = {"flags": 0, "action": "A", "side": "B", "msg_index": 0, "entry_index": 0, "conditions": 0, "stat_type": 1}
    row = {"ts_recv": 10, "ts_send": 5, "ts_event": 4, "instrument_id": 7, "symbol": "PETR4", "sequence": 1} | must
    row = {field.name: None for field in known.schema} | row | values
    return pa.Table.from_pylist([{name: row[name] for name in known.schema.names}], known.schema)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"instrument_id": 200_000_000_000}, "PETR4: instrument_id 200000000000 does not fit Databento's uint32"),
        ({"size": 1 << 32}, "PETR4: size 4294967296 does not fit Databento's uint32"),
        ({"channel_id": 300}, "PETR4: channel_id 300 does not fit Databento's uint8"),
    ],
)
def test_a_number_that_does_not_fit_is_an_error_and_never_truncated(values: dict[str, Any], reason: str):
    with pytest.raises(UmdfError) as error:
        to_databento(one_row("mbo", **values), "mbo")
    assert error.value.reason == reason


def test_wide_columns_hold_the_exchanges_own_numbers():
    made, _ = to_databento(
        one_row("mbo", instrument_id=200_000_000_000, order_id=-1), "mbo", DatabentoOptions(is_wide=True)
    )
    row = made.to_pylist()[0]
    assert row["instrument_id"] == 200_000_000_000 and made.schema.field("size").type == pa.uint64()
    assert row["order_id"] == (1 << 64) - 1  # unsigned on the wire


def test_a_delay_that_does_not_fit_is_clamped():
    made, _ = to_databento(one_row("mbo", ts_recv=10**10, ts_send=0), "mbo")
    assert made.column("ts_in_delta").to_pylist() == [(1 << 31) - 1]


def test_rows_without_a_databento_counterpart_are_left_out_and_counted():
    assert to_databento(one_row("trades", action="C"), "trades")[1] == 1
    assert to_databento(one_row("statistics", stat_type=100), "statistics")[1] == 1
    assert to_databento(one_row("status", instrument_id=None, phase=17), "status")[1] == 1


@pytest.mark.parametrize(("state", "action", "trading"), [(17, 7, "Y"), (21, 1, "N"), (2, 9, "N"), (20, 0, "~")])
def test_states_become_status_actions(state: int, action: int, trading: str):
    row = to_databento(one_row("status", state=state), "status")[0].to_pylist()[0]
    assert (row["action"], row["is_trading"]) == (action, trading)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (Options(publisher_id=70_000), "publisher ID out of range: 70000"),
        (Options(price_type="decimal"), "invalid price type: decimal"),
    ],
)
def test_invalid_options_are_rejected(whole: Any, tmp_path: Path, options: Options, reason: str):
    with pytest.raises(UmdfError) as error:
        export(whole.lake, "databento", tmp_path / "out", ["trades"], ExportRequest(start=FIRST, end=SECOND), options)
    assert error.value.reason == reason and not list(tmp_path.iterdir())


def test_the_documentation_lists_every_converted_column():
    text = (Path(__file__).parents[3] / "docs" / "export.md").read_text()
    renamed = [field.name for shape in SCHEMAS.values() for field in shape.fields if field.source != field.name]
    assert len(renamed) > 50 and [name for name in renamed if f"`{name}`" not in text] == []
