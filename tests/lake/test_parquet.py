"""Our Parquet files against readers that know nothing of us: Arrow, Polars, Spark (both of its readers)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from lake.parquet_rows import FLAT, Given, with_unreadable_neighbours, write_flat
from lake.parquet_rows import tables as tables_of
from numpy.typing import NDArray

from umdf.lake.parquet import column_encoding_kernel, flat_file_writer
from umdf.lake.parquet.flat_file_writer import ROW_GROUP_ROWS, FlatFileWriter, is_flat
from umdf.lake.schemas import tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK = pytest.mark.xdist_group("spark")
LARGEST, SMALLEST = np.iinfo(np.int64).max, np.iinfo(np.int64).min
LENGTHS = (1, 2, 7, 8, 9, 16, 17, 31, 32, 33, 127, 128, 129, 130, 257, 1000)
KINDS = {
    "i64": pa.int64(),
    "i32": pa.int32(),
    "i16": pa.int16(),
    "i8": pa.int8(),
    "date": pa.date32(),
    "text": pa.utf8(),
    "decimal": pa.decimal128(28, 4),
}


def numbers(shape: str, count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Columns as they are in tables, and as hard as they can be."""
    steps = random.integers(0, 1000, count)
    runs = np.repeat(random.integers(-5, 5, count), random.integers(1, 60, count))[:count]
    return {
        "constant": np.full(count, -3),
        "growing": 1_700_000_000_000_000_000 + np.cumsum(steps),
        "runs": runs,
        "few": random.integers(0, 3, count),
        "many": random.integers(-(1 << 40), 1 << 40, count),
        "prices": random.integers(1, 5000, count) * 10_000_000,
        "extreme": np.where(random.random(count) < 0.5, LARGEST, SMALLEST),
        "anything": random.integers(SMALLEST, LARGEST, count),
    }[shape].astype(np.int64)


SHAPES = "constant growing runs few many prices extreme anything".split()


def column(kind: str, shape: str, count: int, nulls: str, random: np.random.Generator) -> pa.Array:
    values = numbers(shape, count, random)
    mask = {"none": None, "all": np.ones(count, bool), "some": random.random(count) < 0.3}[nulls]
    if kind == "text":
        return pa.array([f"é{value}" if value % 3 else "" for value in values.tolist()], pa.utf8(), mask=mask)
    if kind == "decimal":
        return pa.array((values >> 4).tolist(), pa.int64(), mask=mask).cast(pa.decimal128(28, 0)).cast(KINDS[kind])
    small = values.astype({"i32": np.int32, "date": np.int32, "i16": np.int16, "i8": np.int8}.get(kind, np.int64))
    return pa.Array.from_pandas(small, mask=mask).cast(KINDS[kind])


def written(path: Path, rows: pa.Table, schema: pa.Schema | None = None, **how: Any) -> FlatFileWriter:
    with pa.OSFile(str(path), "wb") as sink:
        file = FlatFileWriter(sink, schema or rows.schema, rows.schema.names, **how)
        file.write(rows)
        file.close()
    return file


def table_of(count: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    made = {
        f"{kind}_{shape}_{nulls}": column(kind, shape, count, nulls, random)
        for kind, shape, nulls in itertools.product(KINDS, SHAPES, ("none", "some", "all"))
    }
    return pa.table(made)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("growing", [False, True])
@pytest.mark.parametrize("count", LENGTHS)
def test_every_column_comes_back(tmp_path: Path, count: int, growing: bool, packed: bool) -> None:
    rows = table_of(count, count)
    names = frozenset(rows.schema.names)
    path = tmp_path / "file.parquet"
    written(
        path, rows, delta_columns=names if growing else frozenset(), compressed_columns=names if packed else frozenset()
    )
    assert pq.read_table(path).equals(rows)
    found = pl.read_parquet(path)
    assert found.equals(pl.from_arrow(rows))  # type: ignore[arg-type]


@pytest.mark.parametrize("growing", [False, True])
def test_row_groups_slices_and_chunks(tmp_path: Path, growing: bool) -> None:
    count = 2 * ROW_GROUP_ROWS + 77
    random = np.random.default_rng(5)
    shapes = "i64 prices, i64 anything, i32 few, i8 runs, i64 growing, date many"
    kinds = itertools.product((each.split() for each in shapes.split(", ")), ("none", "some"))
    every = {f"{a}_{b}_{c}": column(a, b, count + 13, c, random) for (a, b), c in kinds}
    letters = pa.array(random.integers(0, 3, count + 13).astype(np.int8), mask=random.random(count + 13) < 0.1)
    every["letter"] = pa.DictionaryArray.from_arrays(letters, pa.array(["A", "B", "unused", "N"]))
    whole = pa.table(every)
    rows = pa.concat_tables([whole.slice(13, 1001), whole.slice(1014)])
    names = frozenset(rows.schema.names)
    path = tmp_path / "file.parquet"
    schema = pa.schema([each if each.name != "letter" else pa.field("letter", pa.utf8()) for each in rows.schema])
    written(path, rows, schema, delta_columns=names if growing else frozenset())
    assert pq.read_table(path).equals(rows.cast(schema))
    about = pq.ParquetFile(path).metadata
    assert (about.num_rows, about.num_row_groups) == (count, 3)
    assert pl.read_parquet(path).equals(pl.from_arrow(rows.cast(schema)))  # type: ignore[arg-type]


def test_files_say_of_themselves_what_arrow_would_say(tmp_path: Path) -> None:
    rows = table_of(1000, 1)
    fields = [pa.field(each.name, each.type, "_none" not in each.name) for each in rows.schema]
    rows = rows.cast(pa.schema(fields))
    file = written(tmp_path / "ours.parquet", rows)
    pq.write_table(rows, tmp_path / "theirs.parquet", store_schema=False)
    ours, theirs = (pq.ParquetFile(tmp_path / f"{who}.parquet") for who in ("ours", "theirs"))
    assert ours.schema.equals(theirs.schema) and ours.schema_arrow.equals(theirs.schema_arrow)
    for at, each in enumerate(rows.schema):
        own, other = (found.metadata.row_group(0).column(at) for found in (ours, theirs))
        assert own.statistics.null_count == other.statistics.null_count == file.bounds[each.name][0]
        if pa.types.is_decimal(each.type):  # written as they are, and without bounds
            continue
        if not pa.types.is_date(each.type):  # of any year
            assert (own.statistics.min, own.statistics.max) == (other.statistics.min, other.statistics.max)
        assert own.num_values == other.num_values
        size = ours.metadata.row_group(0).column(at).total_compressed_size
        assert size <= 1.1 * other.total_uncompressed_size + 64, each.name


def test_bounds_are_of_the_whole_file(tmp_path: Path) -> None:
    parts = [{"a": [5, None, 7], "t": ["m", "z", None]}, {"a": [None, 9, -1], "t": ["b", None, None]}]
    schema = pa.schema([("a", pa.int64()), ("t", pa.utf8())])
    with pa.OSFile(str(tmp_path / "f"), "wb") as sink:
        file = FlatFileWriter(sink, schema, ["a", "t"])
        for part in parts:
            file.write(pa.table(part, schema))
        file.close()
    assert file.bounds == {"a": (2, -1, 9), "t": (3, "b", "z")}
    assert pq.read_table(tmp_path / "f").to_pydict() == {key: parts[0][key] + parts[1][key] for key in ("a", "t")}


def test_a_dictionary_that_is_too_large_is_given_up_and_the_next_one_is_not(tmp_path: Path) -> None:
    count = 2 * column_encoding_kernel.MAX_DICTIONARY_VALUES + 2
    many = pa.array(np.arange(count) * 1_000_003 % 1_000_000_007)
    late = pa.array(np.where(np.arange(count) < 5_000, 1, np.arange(count)))
    over = pa.array(np.arange(count) // 2 * (1 << 20))  # one more than there is room for
    most = pa.array(np.maximum(np.arange(count) - 2, 0) // 2 * (1 << 20))
    rows = pa.table({"many": many, "few": pa.array(np.arange(count) % 7), "late": late, "most": most, "over": over})
    written(tmp_path / "f", rows)
    assert pq.read_table(tmp_path / "f").equals(rows)
    group = pq.ParquetFile(tmp_path / "f").metadata.row_group(0)
    encodings = {group.column(at).path_in_schema: group.column(at).encodings for at in range(5)}
    has_dictionary = {name for name, used in encodings.items() if "RLE_DICTIONARY" in used}
    assert has_dictionary == {"few", "most"}


@pytest.mark.parametrize("distinct", [30_000, 50_000])
def test_more_texts_than_a_dictionary_has_room_for(tmp_path: Path, distinct: int) -> None:
    texts = [None if n % 11 == 0 else f"text {n % distinct}" for n in range(60_000)]
    rows = pa.table({"t": pa.array(texts), "u": pa.array([text or "" for text in texts])})
    rows = rows.cast(pa.schema([pa.field("t", pa.utf8()), pa.field("u", pa.utf8(), False)]))
    file = written(tmp_path / "f", rows)
    assert pq.read_table(tmp_path / "f").equals(rows)
    assert file.bounds["t"] == (len(texts) - len([*filter(None, texts)]), *(f(filter(None, texts)) for f in (min, max)))


def test_which_tables_are_flat() -> None:
    arrows = {name for name, table in tables().items() if not is_flat(table.file_schema)}
    assert arrows >= {"definition", "book_state"} and not arrows & {"mbo", "mbp_1", "packets", "trades", "bbo_1s"}


def read_by_spark(spark: SparkSession, path: Path, schema: pa.Schema, where: str = "TRUE") -> Iterator[pa.Table]:
    """As both of its readers read it."""
    for vectorized in ("true", "false"):
        spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
        yield spark.read.parquet(str(path)).where(where).toArrow().cast(schema)


@SPARK
def test_spark_reads_them_with_both_of_its_readers(spark: SparkSession, tmp_path: Path) -> None:
    rows = table_of(1000, 3)
    rows = rows.select([name for name in rows.schema.names if not name.startswith("date")])  # Spark's years end at 9999
    rows = rows.append_column("day", pa.array([n % 400 for n in range(1000)], pa.int32()).cast(pa.date32()))
    names = frozenset(name for name in rows.schema.names if "growing" in name or "anything" in name)
    written(tmp_path / "file.parquet", rows, delta_columns=names, compressed_columns=names)
    for found in read_by_spark(spark, tmp_path / "file.parquet", rows.schema):
        assert found.equals(rows)


@SPARK
def test_spark_reads_whatever_is_given(spark: SparkSession, tmp_path: Path, sized: Callable[[int, int], int]) -> None:
    numbers = itertools.count()

    @settings(max_examples=sized(5, 100))
    @given(tables_of(FLAT))
    def check(asked: Given) -> None:
        path = tmp_path / f"{next(numbers)}.parquet"  # Spark remembers what a file was
        write_flat(path, asked)
        for found in read_by_spark(spark, path, asked.rows.schema):
            assert found.equals(asked.rows)

    check()


@SPARK
def test_spark_skips_row_groups_by_their_bounds(spark: SparkSession, tmp_path: Path) -> None:
    rows, wanted = with_unreadable_neighbours(tmp_path / "file.parquet")
    for name in ("instrument_id", "ts_recv", "trade_date", "symbol"):
        value = wanted.column(name)[0].as_py()
        where = f"{name} = {value if isinstance(value, int) else repr(str(value))}"
        for found in read_by_spark(spark, tmp_path / "file.parquet", rows.schema, where):
            assert found.equals(rows.filter(pc.field(name) == value))


def test_memory_of_a_column_is_of_its_thread(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    every = [table_of(257, seed) for seed in range(8)]

    def check(seed: int) -> bool:
        written(tmp_path / f"{seed}", every[seed])
        return pq.read_table(tmp_path / f"{seed}").equals(every[seed])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(check, range(8)))
    assert flat_file_writer._scratch().stamp > 0
