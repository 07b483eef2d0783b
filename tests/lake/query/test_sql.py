"""Spark SQL over a lake, against polars, which reads the same tables as Delta and knows nothing of us."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars
import pyarrow as pa
import pytest
from lake.captures import ALL, day, files_of, ingest

from umdf.errors import ConfigError, UmdfError
from umdf.lake.admin import lake_status
from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.query import levels_view, sql
from umdf.lake.query.levels_view import SLICE_EVENTS, LevelSlice
from umdf.lake.query.price_styles import PRICE, TIME, unit_of
from umdf.lake.schemas import tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")  # one session, in one process
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return day(tmp_path_factory.mktemp("capture"), 3_000, 12, loss=0.01, seed=3)


@pytest.fixture(scope="module")
def lake(capture: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("lakes") / "lake"
    ingest(root, files_of(capture), tables=ALL - {"mbp_10"})
    return root


@pytest.fixture(scope="module")
def registered(lake: Path, spark: SparkSession) -> sql.Registration:
    return sql.register(lake, spark)


def shown(value: Any, field: pa.Field) -> Any:
    """A stored value as a view should show it; written without looking at how it does."""
    if value is None:
        return None
    if isinstance(value, list):
        inside: Any = field.type.value_type  # pyright: ignore[reportAttributeAccessIssue]
        if not pa.types.is_struct(inside):
            return tuple(value)
        return tuple(tuple(shown(each[one.name], one) for one in inside) for each in value)
    if unit_of(field) == PRICE:
        return Decimal(value).scaleb(-9)
    return EPOCH + timedelta(microseconds=value // 1000) if unit_of(field) == TIME else value


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(tuple(each.values()) if isinstance(each, dict) else each for each in value)
    return value


def expected_rows(frame: polars.DataFrame, name: str) -> Counter[tuple[Any, ...]]:
    fields = list(tables()[name].schema)
    found: Counter[tuple[Any, ...]] = Counter()
    for row in frame.to_dicts():
        cells: list[Any] = []
        for field in fields:
            cells.append(shown(row[field.name], field))
            if unit_of(field) == TIME:
                cells.append(row[field.name])
        found[tuple(cells)] += 1
    return found


def rows_in(rows: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(
        tuple(plain(value) for value in row) for row in zip(*(c.to_pylist() for c in rows.columns), strict=True)
    )


def in_delta(root: Path, name: str) -> polars.DataFrame:
    return polars.read_delta(str(root / name))


def test_every_view_is_its_delta_table_with_decimals_and_timestamps(
    registered: sql.Registration, spark: SparkSession, lake: Path
) -> None:
    assert registered.views == tuple(tables()) and not registered.reads_delta
    snapshot = open_snapshot(lake)
    for name in tables():
        view = spark.table(name)
        kinds = dict(view.dtypes)
        for field in tables()[name].schema:
            wanted = {PRICE: "decimal(19,9)", TIME: "timestamp"}.get(unit_of(field))
            assert wanted is None or kinds[field.name] == wanted
            assert unit_of(field) != TIME or kinds[f"{field.name}_ns"] == "bigint"
        if snapshot.version(name) is not None:
            assert rows_in(view.toArrow()) == expected_rows(in_delta(lake, name), name), name
        elif name != "mbp_10":
            assert view.count() == 0, name


def test_spark_sql_and_polars_give_the_same_results(
    registered: sql.Registration, spark: SparkSession, lake: Path
) -> None:
    col = polars.col
    trades = in_delta(lake, "trades").filter((col("action") == "A") & col("price").is_not_null())
    theirs = trades.group_by("symbol").agg(
        (col("price").cast(polars.Int128) * col("size")).sum().alias("notional"),
        col("size").sum(),
        polars.len().alias("n"),
    )
    found = sql.run_sql(
        spark,
        "SELECT symbol, sum(price * size) AS notional, sum(size) AS size, count(*) AS n FROM trades "
        "WHERE action = 'A' AND price IS NOT NULL GROUP BY symbol",
    )
    assert found.num_rows == theirs.height > 3
    ours = {row["symbol"]: (row["notional"], row["size"], row["n"]) for row in found.to_pylist()}
    assert ours == {
        row["symbol"]: (Decimal(row["notional"]).scaleb(-9), row["size"], row["n"]) for row in theirs.to_dicts()
    }
    joined = sql.run_sql(
        spark,
        "SELECT count(*) AS n, max(t.ts_event) AS last "
        "FROM trades t JOIN definition d USING (instrument_id, trading_date) "
        "WHERE d.action = 'A' AND t.ts_event >= TIMESTAMP '2026-11-13 00:00:00' AND t.trading_date = DATE '2026-11-13'",
    )
    listed = in_delta(lake, "definition").filter(col("action") == "A").select("instrument_id", "trading_date")
    both = in_delta(lake, "trades").join(listed, on=["instrument_id", "trading_date"])
    last = both["ts_event"].max()
    assert isinstance(last, int)
    assert joined.to_pylist() == [{"n": both.height, "last": EPOCH + timedelta(microseconds=last // 1000)}]
    assert sql.run_sql(spark, "SELECT * FROM mbo ORDER BY sequence", 3).num_rows == 3


def test_files_are_skipped_by_partition_and_statistics(
    registered: sql.Registration, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    spark.sql(
        "SELECT price FROM mbo WHERE trading_date = DATE'2026-11-13' AND ts_recv_ns > 5 AND symbol = 'X'"
    ).explain()
    plan = capsys.readouterr().out
    assert "PartitionFilters: [isnotnull(trading_date" in plan
    assert "GreaterThan(ts_recv,5)" in plan and "EqualTo(symbol,X)" in plan
    assert "ReadSchema: struct<ts_recv:bigint,price:bigint,symbol:string>" in plan


def test_derived_mbp_10_equals_stored_mbp_10(
    registered: sql.Registration, spark: SparkSession, lake: Path, capture: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    ingest(tmp_path, files_of(capture), tables=ALL)
    stored = in_delta(tmp_path, "mbp_10")
    assert stored.height > 1_000
    assert rows_in(spark.table("mbp_10").toArrow()) == expected_rows(stored, "mbp_10")
    symbol = stored["symbol"][0]
    one = spark.sql(f"SELECT * FROM mbp_10 WHERE symbol = '{symbol}' AND trading_date = DATE'2026-11-13'")
    one.explain()
    plan = capsys.readouterr().out
    assert rows_in(one.toArrow()) == expected_rows(stored.filter(polars.col("symbol") == symbol), "mbp_10")
    assert plan.count("ArrowEvalPython") == 1, "rows are made once"
    asked = plan.partition("ArrowEvalPython")[2]  # below it: before rows are made
    assert f"EqualTo(symbol,{symbol})" in asked and "PartitionFilters: [isnotnull(trading_date" in asked
    assert not levels_view.derived_partitions(open_snapshot(tmp_path), "mbp_10")


def test_levels_are_derived_without_day_statistics_and_only_for_days_not_stored(
    spark: SparkSession, capture: Path, tmp_path: Path
) -> None:
    root = tmp_path / "few [1] é"  # no pattern, no URL
    ingest(root, files_of(capture), tables=frozenset({"mbo", "book_state"}))
    ingest(tmp_path / "all", files_of(capture), tables=ALL)
    few, whole = open_snapshot(root), open_snapshot(tmp_path / "all")
    for name in ("mbp_1", "mbp_10"):
        assert levels_view.derived_partitions(few, name) == [(date(2026, 11, 13), 72)]
        assert not levels_view.derived_partitions(whole, name)
        made = levels_view.levels_frame(spark, few, name).toArrow()
        assert made.schema.names == tables()[name].schema.names and made.num_rows == whole.rows(name)
        assert rows_in(made) == rows_in(whole.arrow_table(name))
    empty = tmp_path / "none"
    ingest(empty, files_of(capture), tables=frozenset({"gaps"}))
    assert levels_view.levels_frame(spark, open_snapshot(empty), "mbp_10").count() == 0


def test_the_slices_of_an_instrument_add_up_to_its_rows() -> None:
    busy = [LevelSlice(EPOCH.date(), 72, 7, 3 * SLICE_EVENTS, index) for index in range(3)]
    calm = [LevelSlice(EPOCH.date(), 72, number, 10, 0) for number in (8, 9)]
    other = [LevelSlice(EPOCH.date(), 73, 9, 390_000, 0), LevelSlice(EPOCH.date(), 73, 10, 20_000, 0)]
    assert list(levels_view.group_slices([*busy, *calm, *other])) == [[*busy, *calm], other[:1], other[1:]]
    kind = levels_view.row_struct_type("mbp_10")
    ids = pa.array([9, 7, 7, 8, 7, 7, 7], pa.int64())
    numbers = pa.array(range(7), pa.int64())
    rows = pa.table({"instrument_id": ids} | {
        field.name: numbers.cast(field.type) if field.name == "sequence" else pa.nulls(7, field.type)
        for field in kind
    })  # fmt: skip
    found = list(levels_view.slice_rows([*busy, *calm], rows, kind))
    assert [[row["sequence"] for row in one[0].as_py()] for one in found] == [[1], [2, 4], [5, 6], [3], [0]]


def test_refresh_shows_the_newest_commit_and_only_that(spark: SparkSession, capture: Path, tmp_path: Path) -> None:
    first, *rest = files_of(capture)
    ingest(tmp_path, [first])
    views = sql.register(tmp_path, spark, names=["packets", "trades"], prefix="growing_")
    count = "SELECT count(*) AS n FROM growing_packets"
    before = in_delta(tmp_path, "packets").height
    assert sql.run_sql(spark, count).to_pylist() == [{"n": before}] and not views.refresh()
    ingest(tmp_path, rest)
    assert sql.run_sql(spark, count).to_pylist() == [{"n": before}], "a view stays at its commit"
    assert views.refresh() and views.commit == 2
    after = in_delta(tmp_path, "packets").height
    assert sql.run_sql(spark, count).to_pylist() == [{"n": after}] and after > before


def test_the_session_stays_as_it_was_and_times_do_not_depend_on_it(spark: SparkSession, lake: Path) -> None:
    own = spark.newSession()
    for name, value in (("timeZone", "America/Sao_Paulo"), ("ansi", "false")):
        own.conf.set({"timeZone": "spark.sql.session.timeZone", "ansi": "spark.sql.ansi.enabled"}[name], value)
    before, functions = dict(own.conf.getAll), own.sql("SHOW USER FUNCTIONS").count()
    sql.register(lake, own, names=["mbo", "definition", "mbp_10"])
    sql.run_sql(own, "SELECT count(*) FROM mbp_10")
    assert dict(own.conf.getAll) == before and own.sql("SHOW USER FUNCTIONS").count() == functions
    assert own.sql("SELECT current_database()").head()[0] == "default"  # type: ignore[index]
    found = sql.run_sql(
        own, "SELECT unix_micros(max(ts_send)) AS us, max(ts_send_ns) AS ns, sum(price) AS sum FROM mbo"
    )
    raw = in_delta(lake, "mbo")
    [row] = found.to_pylist()
    assert row["us"] == row["ns"] // 1000 and row["ns"] == raw["ts_send"].max()
    assert row["sum"] == Decimal(sum(raw["price"].drop_nulls().to_list())).scaleb(-9)


def test_a_session_with_delta_reads_delta(spark: SparkSession, lake: Path, registered: sql.Registration) -> None:
    """Delta's jar cannot be had here: another source of that name shows what it would be asked for."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class DeltaRows(DataSourceReader):
        def __init__(self, options: Any) -> None:
            self.path, self.version = options["path"], int(options.get("versionAsOf", -1))

        def read(self, partition: InputPartition) -> Any:
            from deltalake import DeltaTable

            yield from DeltaTable(self.path, version=self.version).to_pyarrow_table().to_batches()

    class Delta(DataSource):
        @classmethod
        def name(cls) -> str:
            return "delta"

        def schema(self) -> Any:
            from umdf.lake.dialects import spark_type
            from umdf.lake.schemas import table

            return spark_type(table(Path(self.options["path"]).name).schema)

        def reader(self, schema: Any) -> DataSourceReader:
            return DeltaRows(self.options)

    own = spark.newSession()
    assert not sql.register(lake, own, names=["trades"]).reads_delta
    own.conf.set("spark.sql.sources.default", "delta")
    assert not sql.register(lake, own, names=["trades"]).reads_delta, "it says so, and cannot"
    own.dataSource.register(Delta)
    views = sql.register(lake, own, names=["trades", "gaps", "news", "mbp_10"])
    assert views.reads_delta
    for name in ("trades", "gaps"):
        assert rows_in(own.table(name).toArrow()) == rows_in(spark.table(name).toArrow())
    assert own.table("mbp_10").count() == spark.table("mbp_10").count()


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("SELECT * FROM tradez", r"unknown table: tradez \(line 1, column 15\); did you mean trades\?"),
        ("SELECT * FROM q7", r"unknown table: q7 .*; available: mbo, trades"),
        ("SELECT prise FROM trades", r"unknown column: prise \(line 1, column 8\); did you mean .*price"),
        ("SELEC 1", r"SQL syntax error at 'SELEC' \(line 1, column 1\)"),
        ("SELECT (1", r"SQL syntax error at end of input"),
        ("", "empty SQL statement"),
        ("SELECT 1 / (price - price) FROM trades", "Spark cannot run the query: Division by zero"),
        ("SELECT nosuch(1)", "Spark cannot run the query: .*nosuch"),
        ("SELECT sum(side, 1) FROM trades GROUP BY", "SQL syntax error"),
    ],
)
def test_a_spark_error_becomes_one_line(
    statement: str, said: str, registered: sql.Registration, spark: SparkSession
) -> None:
    with pytest.raises(UmdfError, match=said) as caught:
        sql.run_sql(spark, statement)
    assert "\n" not in str(caught.value) and "SQLSTATE" not in str(caught.value) and len(str(caught.value)) < 600


@pytest.mark.parametrize(("more", "gone"), [((), "book_state"), (("day_statistics",), "mbo")], ids=["spark", "python"])
def test_a_missing_file_is_named_in_the_error(
    more: tuple[str, ...], gone: str, spark: SparkSession, capture: Path, tmp_path: Path
) -> None:
    """Whether Spark's own reader misses it, or the function that makes books in its workers."""
    ingest(tmp_path, files_of(capture), tables=frozenset({"mbo", "book_state", *more}))
    sql.register(tmp_path, spark, names=["mbp_10"], prefix="broken_")
    for add in open_snapshot(tmp_path).adds(gone):
        (tmp_path / gone / add.path).unlink()
    with pytest.raises(
        UmdfError, match=rf"{gone}/trading_date=.*|Spark cannot run the query: .*{gone}.*trading_date"
    ) as caught:
        sql.run_sql(spark, "SELECT count(*) FROM broken_mbp_10")
    assert "\n" not in str(caught.value)


def test_invalid_registrations_raise_clear_errors(spark: SparkSession, lake: Path, tmp_path: Path) -> None:
    with pytest.raises(UmdfError, match="no Delta support, which database=umdf needs"):
        sql.register(lake, spark, "umdf")
    with pytest.raises(UmdfError, match="unknown table: mb0"):
        sql.register(lake, spark, names=["mb0"])
    with pytest.raises(ConfigError, match="invalid prefix: 'a b'"):
        sql.register(lake, spark, prefix="a b")
    with pytest.raises(UmdfError, match="is not a umdf lake"):
        sql.register(tmp_path, spark)


def test_only_tables_named_in_a_statement_are_registered() -> None:
    assert sql.tables_in("select * from Trades t join definition using (symbol)") == ["trades", "definition"]
    assert sql.tables_in("SHOW TABLES") == list(tables())


@pytest.mark.parametrize("dialect", ["spark", "unity", "hive"])
def test_spark_itself_can_read_the_ddl(dialect: str, spark: SparkSession, lake: Path) -> None:
    text = lake_status.ddl(lake, dialect, "umdf", "s3://bucket/b3's lake/")
    parser = spark._jsparkSession.sessionState().sqlParser()  # type: ignore[attr-defined]
    code = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    statements = [one.strip() for one in code.split(";\n") if one.strip()]
    assert len(statements) == 1 + len(open_snapshot(lake).marker.versions)
    for statement in statements:
        # Spark knows Hive's statement, and that only Hive can run this form of it.
        said = str(
            parser.parsePlan(statement.replace("STORED BY 'io.delta.hive.DeltaStorageHandler'", "STORED AS ORC"))
        )
        assert "umdf" in said
    assert "LOCATION 's3://bucket/b3\\'s lake/mbo'" in text
