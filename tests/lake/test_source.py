"""Captures as a DataFrame: the rows of the lake's tables, however they are asked for."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from lake.captures import day, files_of, ingest
from lake.source_rows import SPAN_NUMBERS, of_lake, read, without_bad_book_flag, works
from pyspark.sql import datasource as pushed

import umdf
from umdf.errors import UmdfError
from umdf.lake.hashing import logical_hash
from umdf.lake.source.options import PACKETS, READABLE_SCHEMAS, SourceOptions
from umdf.lake.source.partition_reader import SPAN
from umdf.transport.capture import open_capture

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.xdist_group("spark")  # one session, in one process
DAYS: dict[str, dict[str, Any]] = {
    "sbe": {"loss": 0.01},
    "fast": {"protocol": "fast", "loss": 0.01},
    "sbe-one-line": {"lines": "A", "channel_reset": True},
    "fast-one-line": {"protocol": "fast", "lines": "A", "channel_reset": True},
}
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
Made = Callable[[str], tuple[Path, Path]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, sized: Callable[[int, int], int]) -> Made:
    """A day by its kind, and the lake that it came to; each made once."""
    tmp = tmp_path_factory.mktemp("source")
    known: dict[str, tuple[Path, Path]] = {}

    def make(kind: str) -> tuple[Path, Path]:
        if kind not in known:
            captured, root = day(tmp, sized(4_000, 80_000), sized(12, 60), roll_s=3, seed=5, **DAYS[kind]), tmp / kind
            ingest(root, files_of(captured), tables=frozenset(READABLE_SCHEMAS))
            known[kind] = captured, root
        return known[kind]

    return make


@pytest.fixture(scope="module")
def spark(shared_spark: SparkSession) -> Iterator[SparkSession]:
    own = shared_spark.newSession()
    with pytest.MonkeyPatch.context() as patch:
        # A session as SparkSession.builder makes it where no environment is activated and PYSPARK_PYTHON is not set:
        # its workers are the python3 of the PATH, which need not have umdf.
        patch.setattr(own.sparkContext, "pythonExec", "python3")
        before = dict(own.conf.getAll)
        umdf.register_source(own)
        assert dict(own.conf.getAll) == before and own.sparkContext.pythonExec == "python3"
        yield own


def frame(spark: SparkSession, family: str, path: Any, **options: str) -> DataFrame:
    reader = spark.read.format("umdf").option("schema", family).option("spanSequences", str(SPAN_NUMBERS))
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(path if isinstance(path, list) else str(path))


# Rows are the lake's


@pytest.mark.parametrize("kind", DAYS)
def test_every_family_has_the_rows_of_the_lake(made: Made, kind: str) -> None:
    captured, root = made(kind)
    seen = 0
    for family in READABLE_SCHEMAS:
        rows, expected = read(files_of(captured), family), of_lake(root, family)
        assert rows.schema.equals(expected.schema), family
        assert (rows.num_rows, logical_hash(rows)) == (expected.num_rows, logical_hash(expected)), family
        seen += rows.num_rows > 0
        if "symbol" in rows.schema.names and family not in ("control", "news", "status"):
            assert rows["symbol"].null_count == rows["instrument_id"].null_count, family
    assert seen >= 11
    assert len(works(files_of(captured), "mbo")[0]) > 2


@pytest.mark.parametrize("kind", ["sbe", pytest.param("fast", marks=pytest.mark.full_size)])
def test_spark_reads_the_same(spark: SparkSession, made: Made, kind: str) -> None:
    captured, root = made(kind)
    for family in ("mbo", "definition", "snapshot", PACKETS):
        found = frame(spark, family, captured / "capture").toArrow()
        expected = of_lake(root, family)
        assert (found.num_rows, logical_hash(found)) == (expected.num_rows, logical_hash(expected)), family


def test_what_a_lake_makes_on_demand_is_made_by_this_python_too(spark: SparkSession, made: Made) -> None:
    lake = umdf.Lake(made("sbe")[1], spark)
    symbol = lake.symbols()[0]
    assert lake.get_range("mbp_10", symbol).to_spark().count() == lake.get_range("mbp_10", symbol).to_arrow().num_rows


def test_several_paths_can_be_loaded(spark: SparkSession, made: Made) -> None:
    captured, root = made("sbe")
    expected = of_lake(root, "trades").num_rows
    directory = captured / "capture"
    for path in (
        directory.as_uri(),
        f"{directory}/*.pcap",
        directory / "manifest.jsonl",
        [str(file) for file in files_of(captured)],
    ):
        assert frame(spark, "trades", path, columns="sequence").count() == expected, path


@pytest.mark.parametrize("kind", ["sbe", "fast"])
def test_compressed_files_are_read_and_nothing_is_left_behind(
    made: Made, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured, root = made(kind)
    for file in files_of(captured):
        (tmp_path / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes(), 1))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    packed = sorted(tmp_path.glob("*.gz"))
    for family in ("mbo", "definition"):
        assert logical_hash(read(packed, family)) == logical_hash(of_lake(root, family))
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize("kind", ["sbe", "fast"])
def test_a_damaged_packet_is_read_from_the_other_line(made: Made, kind: str, tmp_path: Path) -> None:
    captured, _ = made(kind)
    shutil.copytree(captured / "capture", tmp_path / "capture")
    files = sorted((tmp_path / "capture").glob("*incremental-A.pcap"))
    content = bytearray(files[0].read_bytes())
    with open_capture(files[0]) as capture:
        batch = next(iter(capture))
        places = [int(offset) + 16 + 42 for offset in batch.offset[20:60:10]]  # record and frame headers before it
    for place in places:
        content[place + 16 : place + 40] = b"\xff" * 24
        content[place - 2 : place] = bytes(2)  # no checksum tells of it
    files[0].write_bytes(bytes(content))
    damaged = sorted((tmp_path / "capture").glob("*.pcap"))
    ingest(tmp_path / "lake", damaged, tables=frozenset(READABLE_SCHEMAS))
    for family in ("mbo", "trades", PACKETS):
        expected = of_lake(tmp_path / "lake", family)
        assert logical_hash(without_bad_book_flag(read(damaged, family))) == logical_hash(expected), family
    dispositions = read(damaged, PACKETS)["disposition"].to_pylist()
    assert dispositions.count("corrupt") > 0


# Less is read when less is asked for


def test_a_filter_leaves_out_partitions_and_rows(made: Made) -> None:
    captured, root = made("sbe")
    files, every = files_of(captured), of_lake(root, "mbo").sort_by("sequence")
    spans = len(works(files, "mbo")[0])
    middle, symbol = every["sequence"][every.num_rows // 2].as_py(), every["symbol"][100].as_py()
    came = max(every["ts_recv"].to_pylist())
    date = every["trading_date"][0].as_py()
    cases: list[tuple[list[pushed.Filter], Callable[[dict[str, Any]], bool], int | None]] = [
        ([pushed.EqualTo(("channel_id",), 1)], lambda row: False, 0),
        ([pushed.LessThan(("trading_date",), date)], lambda row: False, 0),
        ([pushed.EqualTo(("trading_date",), date)], lambda row: True, spans),
        ([pushed.EqualTo(("symbol",), "NOBODY")], lambda row: False, 0),
        ([pushed.EqualTo(("symbol",), symbol)], lambda row: row["symbol"] == symbol, spans),
        ([pushed.In(("symbol",), ("NOBODY", symbol, None))], lambda row: row["symbol"] == symbol, spans),
        ([pushed.EqualTo(("sequence",), middle)], lambda row: row["sequence"] == middle, 1),
        ([pushed.GreaterThan(("ts_recv",), came - 1_000_000)], lambda row: row["ts_recv"] > came - 1_000_000, None),
        (
            [pushed.GreaterThanOrEqual(("ts_recv",), came), pushed.LessThanOrEqual(("ts_recv",), came)],
            lambda row: row["ts_recv"] == came,
            None,
        ),
        ([pushed.EqualTo(("action",), "T")], lambda row: row["action"] == "T", spans),
    ]
    for filters, holds, parts in cases:
        chosen, _ = works(files, "mbo", filters)
        assert len(chosen) == parts if parts is not None else 0 < len(chosen) < spans, filters
        expected = pa.Table.from_pylist([row for row in every.to_pylist() if holds(row)], every.schema)
        assert logical_hash(read(files, "mbo", filters)) == logical_hash(expected), filters


def test_a_filter_that_is_not_understood_leaves_everything(made: Made) -> None:
    captured, root = made("sbe")
    files, rows = files_of(captured), of_lake(root, "trades").num_rows
    for other in (
        pushed.Not(pushed.EqualTo(("symbol",), "X")),
        pushed.IsNotNull(("symbol",)),
        pushed.EqualTo(("symbol",), None),
        pushed.EqualNullSafe(("symbol",), None),
        pushed.EqualTo(("price", "nested"), 1),
        pushed.EqualTo(("channel_id",), 1 << 40),
        pushed.StringStartsWith(("symbol",), "X"),
    ):
        assert read(files, "trades", [other]).num_rows == rows, other


def test_pushed_down_or_not_a_query_gives_the_same(spark: SparkSession, made: Made, soak: bool) -> None:
    captured, root = made("fast")
    every = of_lake(root, "mbo").to_pylist()
    symbol, came = every[50]["symbol"], every[len(every) // 2]["ts_recv"]
    queries: dict[str, Callable[[dict[str, Any]], bool]] = {
        f"symbol = '{symbol}' AND action <> 'C'": lambda row: row["symbol"] == symbol and row["action"] != "C",
        f"ts_recv >= {came} AND channel_id = 72 AND trading_date = '2026-11-13'": lambda row: row["ts_recv"] >= came,
        f"symbol LIKE '{symbol[:3]}%' OR price IS NULL": lambda row: (
            (row["symbol"] or "").startswith(symbol[:3]) or row["price"] is None
        ),
        "channel_id = 71": lambda row: False,
    }
    before = spark.conf.get(PUSHDOWN)
    try:
        for setting in ("false", "true"):
            spark.conf.set(PUSHDOWN, setting)
            for query, holds in list(queries.items())[: None if soak or setting == "true" else 1]:
                found = frame(spark, "mbo", captured / "capture").where(query).toArrow()
                expected = pa.Table.from_pylist([row for row in every if holds(row)], of_lake(root, "mbo").schema)
                assert logical_hash(found) == logical_hash(expected), (setting, query)
    finally:
        spark.conf.set(PUSHDOWN, str(before))


def test_only_the_columns_that_are_named_are_read(spark: SparkSession, made: Made) -> None:
    captured, root = made("sbe")
    expected = of_lake(root, "mbo").select(["price", "symbol"])
    for found in (
        frame(spark, "mbo", captured / "capture", columns="price, symbol"),
        spark.read.format("umdf")
        .schema("price BIGINT, symbol STRING")
        .option("schema", "mbo")
        .load(str(captured / "capture")),
    ):
        assert found.columns == ["price", "symbol"]
        assert logical_hash(found.toArrow()) == logical_hash(expected)
    [first, *_], _ = works(files_of(captured), "mbo", columns="price,size")
    assert first.kind == SPAN and first.symbols is None  # nobody looks for definitions then


# Bad input


BAD_OPTIONS: list[tuple[dict[str, str], str]] = [
    ({"path": "x"}, "no schema; use .option"),
    ({"path": "x", "schema": "mb0"}, "unknown schema: mb0; did you mean mbo?"),
    ({"path": "x", "schema": "ohlcv_1m"}, "unknown schema: ohlcv_1m; available: mbo, "),
    ({"schema": "mbo"}, "no path; use .load"),
    ({"path": "x", "schema": "mbo", "colums": "price"}, "unknown option: colums; did you mean columns?"),
    ({"path": "x", "schema": "mbo", "columns": "prise"}, "unknown column: prise; did you mean price?"),
    ({"path": "x", "schema": "mbo", "columns": "price,price"}, "empty or repeated names"),
    ({"path": "x", "schema": "mbo", "spanSequences": "0"}, "invalid spanSequences: '0'; use a number"),
    ({"path": "x", "schema": "mbo", "maxFilesPerTrigger": "many"}, "invalid maxFilesPerTrigger: 'many'; use a number"),
]


@pytest.mark.parametrize(("given", "said"), BAD_OPTIONS)
def test_an_invalid_option_is_rejected(given: dict[str, str], said: str) -> None:
    with pytest.raises(UmdfError) as error:
        SourceOptions.parse(given)
    assert said in str(error.value)


def test_spark_says_what_is_wrong_in_one_line(spark: SparkSession, made: Made, tmp_path: Path) -> None:
    captured, _ = made("sbe")
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.pcap").write_text("this is no capture")
    (tmp_path / "bad.toml").write_text("[[channel]]\nnumber = 1\n")
    good = captured / "capture"
    plain = spark.read.format("umdf")
    cases: list[tuple[Callable[[], DataFrame], str]] = [
        (lambda: plain.load(str(good)), "no schema; use .option"),
        (lambda: frame(spark, "trade", good), "unknown schema: trade; did you mean trades?"),
        (lambda: frame(spark, "mbo", tmp_path / "nothing"), "no such file or directory; check the path"),
        (lambda: frame(spark, "mbo", "s3://bucket/day"), "unsupported URL: s3:"),
        (lambda: frame(spark, "mbo", f"{tmp_path}/*.none"), "no files match"),
        (lambda: frame(spark, "mbo", tmp_path / "empty"), "no captures in "),
        (lambda: frame(spark, "mbo", tmp_path / "text.pcap"), "text.pcap: not a capture file"),
        (lambda: frame(spark, "mbo", good, channels=str(tmp_path / "bad.toml")), "channel 1: has no stream"),
        (lambda: frame(spark, "mbo", good, channels=str(tmp_path / "none.toml")), "No such file"),
        (
            lambda: spark.read.format("umdf").schema("price DOUBLE").option("schema", "mbo").load(str(good)),
            "column price has type bigint, not double",
        ),
    ]
    for ask, said in cases:
        with pytest.raises(Exception, match=r"umdf\.errors") as error:
            ask().count()
        assert said in str(error.value), said


def test_dropping_a_flag_keeps_the_others() -> None:
    rows = pa.table({"flags": pa.array([4 | 128, 128, 0], pa.int32())})
    assert without_bad_book_flag(rows)["flags"].to_pylist() == [128, 128, 0]
