"""Whatever is given to the Parquet writers comes back from every reader, and what cannot be written is refused."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lake.lake_rows import DAY, rows_of
from lake.parquet_rows import FLAT, NESTED, Given, tables, with_unreadable_neighbours, write_flat

from umdf.errors import UmdfError
from umdf.lake.parquet.data_files import FileStamp
from umdf.lake.parquet.file_writer import ArrowFileWriter, FileWriter
from umdf.lake.parquet.flat_file_writer import FlatFileWriter

WHERE = {"trading_date": DAY, "channel_id": 72}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Written over by each example."""
    return tmp_path_factory.mktemp("shapes") / "file.parquet"


def read_by_all(path: Path, schema: pa.Schema) -> dict[str, pa.Table]:
    """As Arrow, Polars and DuckDB read it."""
    return {
        "arrow": pq.read_table(path, page_checksum_verification=True),
        "polars": pl.read_parquet(path).to_arrow().cast(schema),
        "duckdb": duckdb.read_parquet(str(path)).to_arrow_table().cast(schema),
    }


@given(tables(FLAT))
def test_every_flat_table_comes_back_from_every_reader(path: Path, asked: Given) -> None:
    write_flat(path, asked)
    assert pq.read_metadata(path).num_row_groups == len(asked.calls)
    for reader, found in read_by_all(path, asked.rows.schema).items():
        assert found.equals(asked.rows), reader


@given(tables(NESTED | FLAT))
def test_every_nested_table_comes_back_from_every_reader(path: Path, asked: Given) -> None:
    schema = asked.rows.schema
    with pa.OSFile(str(path), "wb") as sink:
        file = ArrowFileWriter(sink, schema, ())
        for rows in asked.calls:
            file.write(rows)
        file.close()
    for reader, found in read_by_all(path, schema).items():
        assert found.equals(asked.rows), reader


@given(tables(FLAT), st.data())
def test_bounds_of_row_groups_are_those_of_their_rows(path: Path, asked: Given, data: st.DataObject) -> None:
    file = write_flat(path, asked)
    about, first = pq.read_metadata(path), 0
    for group in range(about.num_row_groups):
        rows = asked.rows.slice(first, about.row_group(group).num_rows)
        first += rows.num_rows
        for at, each in enumerate(asked.rows.schema):
            known, truth = about.row_group(group).column(at).statistics, bounds_of(rows.column(at))
            assert known.null_count == truth[0]
            if known.has_min_max:
                assert (known.min, known.max) == truth[1:]
            assert known.has_min_max == (truth[0] < rows.num_rows and not pa.types.is_decimal(each.type))
    name = data.draw(st.sampled_from(asked.rows.schema.names))
    column = asked.rows.column(name)
    if not pa.types.is_decimal(column.type):
        assert file.bounds[name] == stored(bounds_of(column))
        bound = data.draw(FLAT[column.type])
        for sign, compare in {"=": operator.eq, ">": operator.gt, "<=": operator.le}.items():
            where = compare(pc.field(name), pa.scalar(bound, column.type))
            truth = asked.rows.filter(where)
            assert ds.dataset(path).to_table(filter=where).equals(truth)
            assert found_by_duckdb(path, f"{name} {sign} ?", bound).cast(truth.schema).equals(truth)


def found_by_duckdb(path: Path, where: str, value: Any) -> pa.Table:
    found = duckdb.sql(f"SELECT * FROM read_parquet(?) WHERE {where}", params=[str(path), value])
    assert found is not None
    return found.to_arrow_table()


def bounds_of(column: pa.ChunkedArray) -> tuple[int, Any, Any]:
    values = [value for value in column.to_pylist() if value is not None]
    return column.null_count, min(values, default=None), max(values, default=None)


def stored(bounds: tuple[int, Any, Any]) -> tuple[int, Any, Any]:
    """A date as the number of its day."""
    low, high = ((each - DAY).days + pa.scalar(DAY).value if hasattr(each, "year") else each for each in bounds[1:])
    return bounds[0], low, high


@given(st.data())
def test_null_in_a_required_column_is_refused_and_nothing_of_it_written(path: Path, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(FLAT)))
    good, place = data.draw(st.lists(FLAT[kind], min_size=1, max_size=20)), data.draw(st.integers(0, 20))
    values = [*good[:place], None, *good[place:]]
    array = pa.array(values, kind)
    if kind == pa.utf8() and data.draw(st.booleans()):  # NULL is one of the texts, and no code is missing
        texts = [*dict.fromkeys(values)]
        codes = pa.array([texts.index(value) for value in values], pa.int8())
        array = pa.DictionaryArray.from_arrays(codes, pa.array(texts, kind))
        assert array.null_count == 0
    schema = pa.schema([pa.field("a", pa.int64(), False), pa.field("b", kind, False)])
    whole = pa.Table.from_arrays([pa.array(range(len(good))), pa.array(good, kind)], schema=schema)
    with pa.OSFile(str(path), "wb") as sink:
        file = FlatFileWriter(sink, schema, ["b"], table="trades")
        said = f"rows do not match the schema of trades: 1 of {len(values)} rows have NULL in b, which is not nullable"
        with pytest.raises(UmdfError, match=said):
            file.write(pa.table({"a": pa.array(range(len(values))), "b": array}))
        file.write(whole)
        file.close()
    assert pq.read_table(path).equals(whole)


@pytest.mark.parametrize(("name", "column"), [("mbo", "action"), ("definition", "legs"), ("book_state", "content")])
def test_a_table_with_null_in_a_required_column_leaves_no_file(tmp_path: Path, name: str, column: str) -> None:
    rows = rows_of(name, 20)
    at = rows.schema.get_field_index(column)
    bad = rows.column(at).to_pylist()
    bad[3] = None
    damaged = rows.set_column(at, column, pa.array(bad, rows.schema.field(at).type))
    file = FileWriter(tmp_path, name, FileStamp(1, 1), WHERE)
    file.write(rows)
    with pytest.raises(UmdfError, match=f"rows do not match the schema of {name}: 1 of 20 rows have NULL in {column}"):
        file.write(damaged)
    assert file.close() is None and list(tmp_path.rglob("*.parquet")) == []


def test_a_file_without_rows_is_a_file(path: Path) -> None:
    schema = pa.schema([pa.field("a", pa.int64(), False), pa.field("t", pa.utf8())])
    write_flat(path, Given([schema.empty_table()], schema.empty_table(), frozenset(), frozenset()))
    for reader, found in read_by_all(path, schema).items():
        assert found.equals(schema.empty_table()), reader


def test_readers_skip_row_groups_by_their_bounds(path: Path) -> None:
    """Those that are not wanted cannot be read: whoever tries fails."""
    rows, wanted = with_unreadable_neighbours(path)
    assert wanted.num_rows
    with pytest.raises(OSError):
        pq.read_table(path)
    for name in ("instrument_id", "ts_recv", "trade_date", "symbol"):
        value = wanted.column(name)[0].as_py()
        assert value not in [*rows.column(name).to_pylist()][: wanted.num_rows]
        found = {
            "arrow": ds.dataset(path).to_table(filter=pc.field(name) == value),
            "polars": pl.scan_parquet(path).filter(pl.col(name) == value).collect().to_arrow().cast(rows.schema),
            "duckdb": found_by_duckdb(path, f"{name} = ?", value).cast(rows.schema),
        }
        for reader, answer in found.items():
            assert answer.equals(rows.filter(pc.field(name) == value)), (reader, name)
