"""`umdf query`: what is printed, written and drawn equals the tables; an invalid query is a one-line error."""

from __future__ import annotations

import csv
import io
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lake.captures import day, files_of, ingest
from lake.lake_commands import umdf

from umdf.cli.app import run
from umdf.cli.row_formats import json_rows, text_rows, unique_names
from umdf.errors import ConfigError
from umdf.lake.report.chart import MAX_CANDLES, draw

SQL = "SELECT symbol, count(*) AS n, sum(price * size) AS notional FROM trades WHERE price IS NOT NULL GROUP BY symbol"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tmp = tmp_path_factory.mktemp("query")
    ingest(tmp / "lake", files_of(day(tmp, 2_500, 12, seed=6)))
    return tmp / "lake"


@pytest.fixture(scope="module")
def trades(lake: Path) -> polars.DataFrame:
    return polars.read_delta(str(lake / "trades")).sort("sequence", "msg_index", "entry_index")


def test_sql_is_answered_by_spark(lake: Path, trades: polars.DataFrame) -> None:
    with umdf("query", "query", lake, SQL, "--json") as command:
        code, printed, said = command.finish()
    assert (code, said) == (0, "")
    found = {row["symbol"]: (row["n"], Decimal(row["notional"])) for row in map(json.loads, printed.splitlines())}
    price, size = polars.col("price"), polars.col("size")
    theirs = trades.filter(price.is_not_null()).group_by("symbol").agg(
        polars.len().alias("n"), (price.cast(polars.Int128) * size).sum().alias("notional")
    )  # fmt: skip
    assert found == {symbol: (n, Decimal(notional).scaleb(-9)) for symbol, n, notional in theirs.iter_rows()}


@pytest.mark.full_size
def test_a_sql_error_is_one_line(lake: Path) -> None:
    with umdf("sql error", "query", lake, "SELECT * FROM tradez") as command:
        code, printed, said = command.finish()
    assert (code, printed) == (2, "")
    assert said == "umdf: unknown table: tradez (line 1, column 15); did you mean trades?\n"


def test_a_range_needs_no_spark_and_every_form_has_the_same_rows(
    lake: Path,
    trades: polars.DataFrame,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("umdf.lake.runtime.session.start_session", None)  # starting Spark would fail
    symbol = trades["symbol"].mode()[0]
    own = trades.filter(polars.col("symbol") == symbol)
    wanted = [
        (ns, Decimal(price).scaleb(-9), size) for ns, price, size in own.select("ts_event", "price", "size").iter_rows()
    ]
    command = [
        "query",
        str(lake),
        "--schema",
        "trades",
        "--symbols",
        symbol,
        "--columns",
        "ts_event,price,size",
    ]

    def numbers(rows: list[Any]) -> list[Any]:
        return [(_ns(moment), Decimal(price), int(size)) for moment, price, size in rows]

    assert run([*command, "--json"]) == 0
    assert numbers([list(json.loads(line).values()) for line in capsys.readouterr().out.splitlines()]) == wanted
    assert run([*command, "--csv"]) == 0
    head, *rows = csv.reader(io.StringIO(capsys.readouterr().out))
    assert head == ["ts_event", "price", "size"] and numbers(rows) == wanted
    assert run([*command, "--limit", "0"]) == 0
    shown = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert shown[0] == head and numbers(shown[1:]) == wanted
    assert run([*command, "--parquet", str(tmp_path / "x.parquet")]) == 0
    written = pq.read_table(tmp_path / "x.parquet")
    assert written.column("ts_event").cast(pa.int64()).to_pylist() == [ns for ns, _, _ in wanted]
    assert written.column("price").to_pylist() == [price for _, price, _ in wanted]
    capsys.readouterr()
    assert run(["query", str(lake), "--schema", "mbo"]) == 0
    said = capsys.readouterr()
    assert said.out.count("\n") == 101 and "showing the first 100 rows; use --limit 0 for all" in said.err
    assert run(["query", str(lake), "--schema", "mbo", "--limit", "7"]) == 0
    said = capsys.readouterr()
    assert said.out.count("\n") == 8 and not said.err, "who asks for seven knows that there may be more"
    assert run(["query", str(lake), "--schema", "news", "--start", "2026-11-13", "--symbols", symbol]) == 0
    assert capsys.readouterr().out == "no rows\n"


def _ns(text: str) -> int:
    whole, _, fraction = text.partition(".")
    seconds = (polars.Series([whole]).str.to_datetime("%Y-%m-%d %H:%M:%S").dt.epoch("s"))[0]
    return seconds * 10**9 + int(fraction.ljust(9, "0"))


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "nothing to query; pass a SQL statement or --schema TABLE"),
        (["SELECT 1", "--schema", "mbo"], 2, "SQL cannot be combined with --schema; use one of them"),
        (["SELECT 1", "--symbols", "X"], 2, "--symbols can only be used with --schema; in SQL, use WHERE"),
        (["--schema", "mbo", "--csv", "--json"], 2, "only one of --json, --csv, --parquet and --chart can be used"),
        (["--schema", "mbp_3"], 2, "unknown schema: 'mbp_3'; did you mean mbp_1 or mbp_10?"),
        (["--schema", "trades", "--symbols", "QQQ"], 3, "unknown symbol: 'QQQ'"),
        (["--schema", "trades", "--start", "yesterday"], 2, "invalid start: 'yesterday'"),
        (["--schema", "trades", "--columns", "prize"], 2, "unknown column of trades: 'prize'; did you mean price"),
        (["--schema", "gaps", "--chart", "x.html"], 3, "no rows to plot"),
        (["--schema", "definition", "--chart", "x.html", "--chart-y", "symbol"], 2, "symbol is not a numeric column"),
        (["--schema", "trades", "--parquet", "no/such/place.parquet"], 3, "access no/such/place.parquet: No such file"),
    ],
)  # fmt: skip
def test_an_invalid_query_is_a_one_line_error(
    arguments: list[str], code: int, said: str, lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run(["query", str(lake), *arguments]) == code
    shown = capsys.readouterr().err
    if "--json" in arguments:
        shown = json.loads(shown)["error"]
    assert said in shown and shown.count("\n") <= 1
    assert not list(tmp_path.iterdir())


def test_values_keep_their_digits() -> None:
    rows = pa.table({
        "ts": pa.array([1_763_038_800_000_000_001, 1_763_038_800_000_000_000, None], pa.timestamp("ns", "UTC")),
        "px": pa.array([Decimal("38.110000000"), Decimal("-0.000000001"), None], pa.decimal128(19, 9)),
        "more": pa.array([[{"a": Decimal("1.50")}], [], None], pa.list_(pa.struct([("a", pa.decimal128(5, 2))]))),
        "raw": pa.array([b"\x01\xff", b"", None]),
        "x": pa.array([float("nan"), 1.5, None]),
    })  # fmt: skip
    assert list(json_rows(rows)) == [
        ("2025-11-13 13:00:00.000000001", "38.11", [{"a": "1.5"}], "01ff", "nan"),
        ("2025-11-13 13:00:00", "-0.000000001", [], "", 1.5),
        (None, None, None, None, None),
    ]
    assert text_rows(rows)[0] == ("2025-11-13 13:00:00.000000001", "38.11", '[{"a": "1.5"}]', "01ff", "nan")
    assert unique_names(["a", "b", "a", "a"]) == ["a", "b", "a#2", "a#3"]


SECOND = 10**9
NOON = 1_763_046_000 * SECOND  # 12:00 in São Paulo


def bars(count: int, **more: Any) -> pa.Table:
    times = pa.array([NOON + 60 * SECOND * at for at in range(count)], pa.timestamp("ns", "UTC"))
    prices = {name: [Decimal(10 + at % 7 + extra) for at in range(count)] for name, extra in
              (("open", 1), ("high", 3), ("low", 0), ("close", 2))}  # fmt: skip
    return pa.table({"ts_interval": times, **prices, **more})


def test_bars_are_drawn_as_candlesticks_in_sao_paulo_time() -> None:
    drawn = draw(bars(30), title="<b> & co").to_html()
    assert drawn.count("<rect") == 30 and "<title>&lt;b&gt; &amp; co</title>" in drawn
    assert "2025-11-13 12:00:00: 11 13 10 12" in drawn and ">12:05</text>" in drawn
    assert draw(bars(30)).to_html().count('class="up"') == 30
    assert "<rect" not in draw(bars(MAX_CANDLES + 1)).to_html(), "so many are a line"
    two = pa.concat_tables([bars(5, symbol=["A"] * 5), bars(5, symbol=["B"] * 5)])
    assert draw(two).to_html().count("<figure>") == 2 and "<script" not in draw(two).to_html()


def test_a_line_holds_its_value_and_breaks_where_it_is_absent() -> None:
    rows = pa.table({"ts_event": [NOON + at * SECOND for at in range(5)], "price": [1.0, 2.0, None, 1.0, 2.0]})
    [path] = re.findall(r'class="plot s0" d="(M[^"]*)"', draw(rows).to_html())
    assert path.count("M") == 2 and path.count("V") == 2 and "L" not in path
    many = pa.table(
        {"ts_event": [NOON + at * SECOND for at in range(50_000)], "size": [at % 1000 for at in range(50_000)]}
    )
    drawn = draw(many).to_html()
    assert len(drawn) < 200_000 and ">1,000</text>" in drawn
    with pytest.raises(ConfigError, match="too many series: 9"):
        draw(pa.concat_tables([pa.table({"ts_event": [1], "price": [1.0], "symbol": [str(at)]}) for at in range(9)]))
    with pytest.raises(ConfigError, match="no time column"):
        draw(pa.table({"price": [1.0]}))
    with pytest.raises(ConfigError, match="no numeric column to plot"):
        draw(pa.table({"ts_event": pa.array([1], pa.timestamp("ns")), "symbol": ["A"]}))
    assert "No values" in draw(pa.table({"ts_event": [1], "price": pa.nulls(1, pa.float64())})).to_html()
