"""Ranges of tables against the same Delta tables as polars reads them."""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest
from lake.captures import rows as rows_of
from lake.query.query_lakes import FIRST, SECOND, delta, next_day
from lake.report_lake import write_lake
from lake.wire_order import epochs_of, place_of

import umdf
from umdf.lake.hashing import logical_hash
from umdf.lake.query.name_lookup import STREAM_ORDERED_TABLES
from umdf.lake.schemas import table, tables
from umdf.market.families import MAYBE_BAD_BOOK

RAW: dict[str, Any] = {"price_type": "fixed", "pretty_ts": False}
DERIVED_ON = FIRST  # mbp_10 is not stored of it


def as_rows(frame: polars.DataFrame, names: list[str]) -> list[tuple[Any, ...]]:
    return sorted(frame.select(names).rows(), key=str)


def same_rows(found: pa.Table, expected: polars.DataFrame) -> bool:
    ours = polars.from_arrow(found)
    assert isinstance(ours, polars.DataFrame)
    return as_rows(ours, found.schema.names) == as_rows(expected, found.schema.names)


@pytest.mark.parametrize("name", [name for name in tables() if name not in ("mbp_10", "control", "channel_state")])
def test_get_range_equals_the_delta_table_for_every_schema(lake: umdf.Lake, root: Path, name: str) -> None:
    if name not in lake.schemas():
        assert lake.get_range(name).to_arrow().equals(lake.get_range(name).arrow_schema.empty_table())
        return
    found = lake.get_range(name, **RAW).to_arrow()
    assert found.schema.equals(table(name).schema, check_metadata=False)
    assert found.num_rows == delta(root, name).height > 0
    assert logical_hash(found) == logical_hash(lake.snapshot.arrow_table(name))
    assert same_rows(found.select([n for n in found.schema.names if n != "content"]), delta(root, name))


@pytest.mark.parametrize("name", ["mbo", "mbp-1", "trades", "ohlcv-1s", "bbo_1s", "definition", "statistics", "gaps"])
def test_symbols_dates_and_instants_choose_rows(lake: umdf.Lake, root: Path, name: str) -> None:
    time = {"ohlcv-1s": "ts_interval", "bbo_1s": "ts_interval", "gaps": "ts_opened"}.get(name, "ts_recv")
    stored = delta(root, name.replace("-", "_"))
    symbols = ["PETR4", "WINZ26"]
    low, high = (int(value) for value in stored[time].quantile([0.3, 0.7]))  # type: ignore[union-attr]
    for start, end, chosen in (
        (None, None, polars.lit(True)),
        (FIRST, next_day(FIRST), polars.col("trading_date") == FIRST),
        ("2026-11-14", None, polars.col("trading_date") == SECOND),
        (None, str(SECOND), polars.col("trading_date") == FIRST),
        (low, high, (polars.col(time) >= low) & (polars.col(time) < high)),
        (None, high, polars.col(time) < high),
        (str(FIRST), high, (polars.col(time) < high)),
    ):
        found = lake.get_range(name, symbols, start, end, **RAW).to_arrow()
        expected = stored.filter(chosen & polars.col("symbol").is_in(symbols))
        assert same_rows(found, expected), (start, end)
        assert same_rows(lake.get_range(name, None, start, end, **RAW).to_arrow(), stored.filter(chosen))


def test_rows_come_in_feed_order(lake: umdf.Lake, root: Path) -> None:
    epochs = epochs_of(root)
    for name in sorted(STREAM_ORDERED_TABLES & set(lake.schemas())):
        found = lake.get_range(name, **RAW).to_arrow().to_pylist()
        keys = [(row["trading_date"], row["channel_id"], place_of(row, epochs)) for row in found]
        assert keys == sorted(keys), name
    for name, time in (("ohlcv_1s", "ts_interval"), ("definition", "ts_recv"), ("packets", "ts_recv")):
        found = lake.get_range(name, **RAW).to_arrow().to_pylist()
        keys = [(row["trading_date"], row["channel_id"], row[time]) for row in found]
        assert keys == sorted(keys), name


def test_mbp_10_is_derived_where_it_is_not_stored(lake: umdf.Lake, root: Path) -> None:
    """Monday's mbp_10 is stored, Friday's is not; its first level is what mbp_1 shows."""
    assert set(delta(root, "mbp_10")["trading_date"]) == {SECOND}
    whole = lake.get_range("mbp_10", **RAW).to_arrow()
    assert set(whole.column("trading_date").to_pylist()) == {FIRST, SECOND} and "mbp_10" in lake.schemas()
    monday = lake.get_range("mbp_10", start=SECOND, **RAW).to_arrow()
    assert same_rows(monday, delta(root, "mbp_10"))
    names = ["channel_id", "instrument_id", "seq_version", "sequence", "msg_index", "entry_index", "flags", "symbol"]
    names += [f"{side}_{part}_00" for side in ("bid", "ask") for part in ("px", "sz", "ct")]
    made = lake.get_range("mbp_10", start=FIRST, end=next_day(FIRST), **RAW).to_arrow()
    deep = {tuple(row.values()) for row in made.select(names).to_pylist()}
    top = delta(root, "mbp_1", trading_date=FIRST).select(names).rows()
    assert top and set(top) <= deep
    low, high = sorted(made.column("ts_recv").to_pylist())[100:300:199]
    some = lake.get_range("mbp-10", "PETR4", low, high, exclude_stale=True, **RAW)
    rows = [row for row in made.to_pylist() if row["symbol"] == "PETR4" and low <= row["ts_recv"] < high]
    assert some.to_arrow().to_pylist() == [row for row in rows if not row["flags"] & MAYBE_BAD_BOOK] != []


def test_mbp_1_is_derived_where_it_is_not_stored(tmp_path: Path) -> None:
    from lake.captures import ALL, day, files_of, ingest

    one = day(tmp_path, 2_000, 12, loss=0.02)
    ingest(tmp_path / "with", files_of(one), tables=ALL - {"mbp_10"})
    ingest(tmp_path / "without", files_of(one), tables=ALL - {"mbp_10", "mbp_1"})
    stored, made = (umdf.Lake(tmp_path / name).get_range("mbp-1").to_arrow() for name in ("with", "without"))
    assert made.equals(stored) and made.num_rows > 0


def test_stale_rows_can_be_left_out(lake: umdf.Lake, root: Path) -> None:
    stored = delta(root, "mbo")
    clean = stored.filter(polars.col("flags").cast(polars.Int64) & MAYBE_BAD_BOOK == 0)
    assert 0 < clean.height < stored.height
    assert same_rows(lake.get_range("mbo", exclude_stale=True, **RAW).to_arrow(), clean)


def test_columns_come_in_the_requested_order(lake: umdf.Lake) -> None:
    found = lake.get_range("trades", "PETR4", columns=["price", "symbol", "ts_event"], **RAW).to_arrow()
    assert found.schema.names == ["price", "symbol", "ts_event"]
    whole = lake.get_range("trades", "PETR4", **RAW).to_arrow()
    assert found.equals(whole.select(["price", "symbol", "ts_event"]))


def test_every_output_has_the_same_rows(lake: umdf.Lake) -> None:
    plan = lake.get_range("trades", ["PETR4", "WINZ26"], FIRST)
    arrow = plan.to_arrow()
    assert arrow.schema.equals(plan.arrow_schema)
    assert arrow.schema.field("price").type == pa.decimal128(19, 9)
    assert arrow.schema.field("ts_recv").type == pa.timestamp("ns", "UTC")
    assert pa.Table.from_pandas(plan.to_pandas(), arrow.schema, preserve_index=False).equals(arrow)
    polar = plan.to_polars()
    assert polar.schema["price"] == polars.Decimal(19, 9) and polar.schema["ts_recv"] == polars.Datetime("ns", "UTC")
    assert polar.to_arrow().cast(arrow.schema).equals(arrow)
    assert "trades of PETR4, WINZ26, from 2026-11-13: " in repr(plan) and plan.commit == lake.commit


@pytest.fixture
def many_files(tmp_path: Path) -> Iterator[Path]:
    """Four dates of two channels; on each, two files of two instruments each, hours apart."""
    for number in range(4):
        day = FIRST + datetime.timedelta(days=number)
        for half in range(2):
            rows = [
                {
                    "channel_id": channel,
                    "instrument_id": 100 * channel + 10 * half + n,
                    "symbol": f"C{channel}{half}{n}",
                }
                | {
                    "seq_version": 1,
                    "sequence": 10 * half + n,
                    "ts_recv": noon(day) + half * 3_600 * 10**9 + n,
                    "price": n,
                }
                for channel in (1, 2)
                for n in range(2)
            ]
            listed = [row | {"action": "A"} for row in rows]
            write_lake(tmp_path, {"trades": rows, "definition": listed}, day)
    yield tmp_path


def noon(day: datetime.date) -> int:
    return int(datetime.datetime(day.year, day.month, day.day, 12, tzinfo=datetime.UTC).timestamp()) * 10**9


def test_only_files_that_can_have_rows_are_opened(many_files: Path) -> None:
    lake = umdf.Lake(many_files)
    assert len(lake.snapshot.adds("trades")) == 16
    cases: list[tuple[dict[str, Any], int, int]] = [
        ({}, 16, 32),
        ({"start": FIRST, "end": next_day(FIRST)}, 4, 8),  # by partition
        ({"symbols": "C111"}, 4, 4),  # by the statistics of files
        ({"symbols": ["C111", "C200"], "start": FIRST, "end": next_day(FIRST)}, 2, 2),
        ({"symbols": 110, "stype_in": "instrument_id"}, 4, 4),
        ({"start": noon(FIRST), "end": noon(FIRST) + 3_600 * 10**9}, 2, 4),  # by time
        ({"start": noon(FIRST) + 3_600 * 10**9, "end": noon(FIRST) + 3_600 * 10**9 + 1}, 2, 2),
    ]
    for asked, files, rows in cases:
        plan = lake.get_range("trades", **asked)
        assert plan.stats.files_opened == 0
        assert plan.to_arrow().num_rows == rows, asked
        assert (plan.stats.files, plan.stats.files_opened) == (16, files), asked


def test_only_row_groups_that_can_have_rows_are_read(tmp_path: Path) -> None:
    from umdf.lake.commit.log import Change
    from umdf.lake.commit.writer import open_writer
    from umdf.lake.parquet.file_writer import FileWriter

    listed = [{"channel_id": 1, "instrument_id": n, "symbol": f"S{n}", "action": "A"} for n in range(5)]
    write_lake(tmp_path, {"definition": listed})
    with open_writer(tmp_path) as writer:
        schema = table("trades").file_schema
        blank = {each.name: None if each.nullable else "" if each.type == pa.utf8() else 0 for each in schema}
        with FileWriter(tmp_path, "trades", writer.stamp, {"trading_date": FIRST, "channel_id": 1}) as file:
            for n in range(5):
                rows = [
                    blank | {"instrument_id": n, "symbol": f"S{n}", "sequence": m, "seq_version": 1} for m in range(9)
                ]
                file.write(pa.Table.from_pylist(rows, schema))
        assert file.added is not None
        writer.commit([Change("trades", (file.added,))])
    plan = umdf.Lake(tmp_path).get_range("trades", "S3")
    assert plan.to_arrow().column("symbol").to_pylist() == ["S3"] * 9
    assert (plan.stats.files_opened, plan.stats.row_groups, plan.stats.row_groups_read) == (1, 5, 1)


def test_a_lake_stays_at_its_commit_until_it_is_refreshed(tmp_path: Path) -> None:
    trade = {"channel_id": 1, "instrument_id": 1, "symbol": "A", "seq_version": 1}
    write_lake(tmp_path, {"trades": [trade | {"sequence": 1}], "definition": [trade | {"action": "A"}]})
    lake = umdf.Lake(tmp_path)
    before = lake.get_range("trades")
    write_lake(tmp_path, {"trades": [trade | {"sequence": 2}]})
    assert lake.commit == 1 and lake.get_range("trades").to_arrow().num_rows == 1
    assert lake.refresh().commit == 2 and lake.get_range("trades").to_arrow().num_rows == 2
    assert (
        before.to_arrow().num_rows == 1 and umdf.Lake(tmp_path, commit=1).get_range("trades").to_arrow().num_rows == 1
    )
    for path in (tmp_path / "trades").rglob("*.parquet"):
        path.unlink()
    with pytest.raises(
        umdf.UmdfError, match=r"trades: .*parquet no longer exists, it was vacuumed .*; call lake.refresh\(\)"
    ):
        lake.get_range("trades").to_arrow()


def test_schemas_dates_and_symbols_of_a_lake(lake: umdf.Lake, root: Path) -> None:
    assert lake.dates() == [FIRST, SECOND]
    listed = delta(root, "definition")
    assert lake.symbols() == sorted(set(listed["symbol"]))
    assert lake.symbols("2026-11-16") == sorted(set(listed.filter(polars.col("trading_date") == SECOND)["symbol"]))
    assert {"mbo", "mbp_1", "mbp_10", "ohlcv_1m", "gaps", "packets"} <= set(lake.schemas())
    assert str(root) in repr(lake) and len(rows_of(root, "ledger")) > 0


LIGHT = """
import sys, umdf
umdf.Lake(sys.argv[1]).get_range("mbp-1", "PETR4", "2026-11-13", "2026-11-14").to_arrow()
print(*sorted({"pandas", "pyspark", "numba", "polars", "pyarrow.dataset"} & set(sys.modules)))
"""


def test_without_spark_nothing_heavy_is_loaded(root: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT, str(root)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
