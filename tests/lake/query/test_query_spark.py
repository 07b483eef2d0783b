"""`to_spark`: the rows of `to_arrow`, in the caller's session, which is neither changed nor ended."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lake.query.query_docs import examples, run
from lake.query.query_lakes import FIRST, next_day

import umdf
from umdf.lake.runtime import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.xdist_group("spark")  # one session, in one process
RAW: dict[str, Any] = {"price_type": "fixed", "pretty_ts": False}


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    work = tmp_path_factory.mktemp("work")
    with session.session_scope(cores=2, memory="1g", work=work, quick=True) as own:
        yield own


@pytest.fixture(scope="module")
def lake(root: Path, spark: SparkSession) -> umdf.Lake:
    return umdf.Lake(root, spark)


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()), key=str)


def same(plan: Any) -> int:
    expected = plan.to_arrow().to_pylist()
    assert rows(plan.to_spark()) == sorted((tuple(row.values()) for row in expected), key=str)
    return len(expected)


def test_the_same_rows_as_in_arrow(lake: umdf.Lake) -> None:
    names = ["trading_date", "channel_id", "sequence", "instrument_id", "symbol", "price", "flags"]
    more: dict[str, Any] = {"columns": names, **RAW}
    low, high = sorted(lake.get_range("trades", **RAW).to_arrow().column("ts_recv").to_pylist())[50:201:150]
    assert same(lake.get_range("trades", ["PETR4", "WINZ26"], **more))
    assert same(lake.get_range("trades", None, low, high, exclude_stale=True, **more))
    assert same(lake.get_range("mbo", "WIN.FUT", FIRST, next_day(FIRST), stype_in="parent", **more))
    continuous = {"stype_in": "continuous", **RAW, "columns": [*names, "continuous"]}
    assert same(lake.get_range("trades", ["WIN.c.0", "WIN.v.0"], **continuous))
    assert same(lake.get_range("gaps", **RAW, columns=["first_sequence", "missing", "cause"]))
    assert same(lake.definitions(FIRST, columns=["symbol", "instrument_id"]))
    assert same(lake.get_range("news", None, FIRST, next_day(FIRST), columns=["headline"]))


def test_derived_rows_are_computed_by_spark_tasks(lake: umdf.Lake) -> None:
    """Levels that are not stored (Friday) beside stored ones (Monday), and a join."""
    names = ["trading_date", "channel_id", "sequence", "instrument_id", "bid_px_00", "ask_sz_09", "flags"]
    assert same(lake.get_range("mbp_10", ["PETR4", "VALE3"], columns=names, **RAW)) > 100
    joined = ["trading_date", "sequence", "trade_id", "price", "quote_sequence", "bid_px_00", "ask_px_00"]
    assert same(lake.trades_with_quotes(columns=joined, **RAW)) > 100
    assert same(lake.trades_with_quotes(["WIN.c.0"], stype_in="continuous", columns=["price", "continuous"], **RAW)) > 0


def test_decimals_timestamps_and_the_nanoseconds_beside_them(lake: umdf.Lake, spark: SparkSession) -> None:
    plan = lake.get_range("trades", "PETR4", columns=["ts_recv", "price", "sequence"])
    frame = plan.to_spark()
    assert [kind for _, kind in frame.dtypes] == ["timestamp", "bigint", "decimal(19,9)", "bigint"]
    assert frame.columns == ["ts_recv", "ts_recv_ns", "price", "sequence"]
    exact = lake.get_range("trades", "PETR4", columns=["ts_recv", "price", "sequence"], **RAW).to_arrow().to_pylist()
    found = {(row["ts_recv_ns"], row["price"], row["sequence"]) for row in frame.collect()}
    assert found == {(row["ts_recv"], Decimal(row["price"]).scaleb(-9), row["sequence"]) for row in exact}
    micros = frame.selectExpr("unix_micros(ts_recv) AS us", "ts_recv_ns").collect()
    assert micros and all(row["us"] == row["ts_recv_ns"] // 1000 for row in micros)
    floats = lake.get_range("trades", "PETR4", price_type="float", columns=["price"])
    assert sorted(row[0] for row in floats.to_spark().collect()) == sorted(floats.to_arrow().column(0).to_pylist())
    legs = lake.definitions(FIRST, columns=["symbol", "legs"])
    shown = {row["symbol"]: [leg["leg_ratio"] for leg in row["legs"]] for row in legs.to_spark().collect()}
    assert shown == {row["symbol"]: [leg["leg_ratio"] for leg in row["legs"]] for row in legs.to_arrow().to_pylist()}
    assert [Decimal(1), Decimal(1)] in shown.values()


def test_the_session_of_the_caller_stays_as_it_is(root: Path, spark: SparkSession) -> None:
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "America/Sao_Paulo")
    before = {row["key"]: row["value"] for row in own.sql("SET").collect()}
    plan = umdf.Lake(root, own).get_range("trades", "PETR4", columns=["ts_recv"])
    frame = plan.to_spark()
    assert frame.sparkSession is own and frame.count() == plan.to_arrow().num_rows
    micros = {row[0] for row in frame.selectExpr("unix_micros(ts_recv)").collect()}
    assert micros == {value.value // 1000 for value in plan.to_pandas()["ts_recv"]}
    assert {row["key"]: row["value"] for row in own.sql("SET").collect()} == before
    assert spark.range(3).count() == 3


def test_the_examples_with_spark_run(root: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root.parent)
    found: list[dict[str, Any]] = []
    for example in examples(spark=True):
        found.append({"umdf": umdf, "spark": spark})
        run(example, found[-1])
    assert found and found[0]["frame"].count() > 0


def test_an_existing_spark_session_is_not_used_unless_passed(root: Path, spark: SparkSession) -> None:
    with pytest.raises(umdf.UmdfError, match="already running in this process; pass it as spark="):
        umdf.Lake(root).get_range("trades", "PETR4").to_spark()
