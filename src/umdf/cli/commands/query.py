"""`umdf query`: rows of a lake, by SQL on Spark, or by schema and symbols without it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umdf.cli.arguments import LakeOption
from umdf.cli.output import JsonFlag, print_escaped, printer_of
from umdf.cli.row_formats import print_csv, print_json_lines, text_rows, unique_names
from umdf.cli.spark_options import CoresOption, EnvironmentOption, MasterOption, SparkConfOption, spark_session_options
from umdf.cli.text_table import print_table
from umdf.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

EXAMPLES = (
    'umdf query "SELECT symbol, sum(size) AS traded FROM trades GROUP BY 1 ORDER BY 2 DESC LIMIT 5" --lake lake',
    'umdf query "SELECT * FROM gaps" --lake lake --json',
    'umdf query "SHOW TABLES" --lake lake',
    "umdf query --schema mbp_1 --symbols PETR4,VALE3 --start 2026-11-13 --lake lake",
    "umdf query --schema trades --symbols PETR4 --start 2026-11-13T13:00 --lake lake --parquet trades.parquet",
    "umdf query --schema ohlcv_1m --symbols WINZ26 --lake lake --chart chart.html",
)
MAX_ROWS_SHOWN = 100  # rows of a table on the screen
LOCAL_SPARK_BYTES = 256 << 20  # larger inputs are faster on a Spark session that starts slower


def query(
    ctx: typer.Context,
    lake: LakeOption,
    statement: Annotated[
        str, typer.Argument(help="A statement in Spark's SQL.", metavar="SQL", show_default=False)
    ] = "",
    schema: Annotated[str, typer.Option(help="Instead of SQL: a table, such as mbp_1.")] = "",
    symbols: Annotated[str, typer.Option(help="Symbols, with commas between them; else all.")] = "",
    start: Annotated[str, typer.Option(help="First trading date, or an instant (no zone is UTC).")] = "",
    end: Annotated[str, typer.Option(help="The date or instant behind the last one.")] = "",
    stype_in: Annotated[str, typer.Option(help="What symbols are: raw, parent or continuous.")] = "raw",
    columns: Annotated[str, typer.Option(help="Columns, with commas between them; else all.")] = "",
    exclude_stale: Annotated[bool, typer.Option("--exclude-stale", help="Leave out what may be wrong.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(help=f"So many rows at most; 0 is all. Else {MAX_ROWS_SHOWN} as text, all otherwise.", min=0),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    parquet: Annotated[Path | None, typer.Option(help="Write a Parquet file.", metavar="FILE")] = None,
    chart: Annotated[Path | None, typer.Option(help="Draw them: a page of HTML.", metavar="FILE")] = None,
    y: Annotated[str, typer.Option(help="What the chart draws; else prices, or candles of bars.")] = "",
    master: MasterOption = None,
    cores: CoresOption = None,
    packed: EnvironmentOption = None,
    conf: SparkConfOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Ask a lake: SQL on Spark, or with --schema a range of one table, at once and without Spark.

    In SQL every table is a view: prices are decimals, times TIMESTAMPs in UTC with their nanoseconds beside them
    (ts_event_ns), mbp_10 is made when it is asked for. A WHERE on trading_date, symbol, instrument_id or a _ns column
    skips files. --json prints an object a row.
    """
    filters = {"--symbols": symbols, "--start": start, "--end": end, "--columns": columns}
    if statement.strip() and schema:
        raise UsageError("SQL and --schema do not go together", "give one of them")
    if not statement.strip() and not schema:
        raise UsageError("nothing is asked", 'give a statement ("SELECT …") or --schema')
    if not schema and (unused := [name for name, value in filters.items() if value]):
        raise UsageError(f"{', '.join(unused)} belong to --schema", "in SQL, say it with WHERE")
    if sum((as_json, as_csv, parquet is not None, chart is not None)) > 1:
        raise UsageError("--json, --csv, --parquet and --chart do not go together", "give one of them")
    is_text = not (as_json or as_csv or parquet or chart)
    row_limit = (MAX_ROWS_SHOWN if is_text else None) if limit is None else limit or None
    if schema:
        rows = _read_range(lake, schema, row_limit, symbols=symbols, start=start, end=end, columns=columns,
                           stype_in=stype_in, exclude_stale=exclude_stale)  # fmt: skip
    else:
        rows = _run_sql(lake, statement, row_limit, spark_session_options(master, cores, packed, conf))
    is_truncated = row_limit is not None and rows.num_rows > row_limit
    rows = rows.slice(0, row_limit) if is_truncated else rows
    if parquet is not None:
        _write_parquet(rows, parquet)
    elif chart is not None:
        _write_chart(rows, chart, y, f"{schema} {symbols}" if schema else statement)
    elif as_json or as_csv:
        (print_json_lines if as_json else print_csv)(rows)
    else:
        _print_rows(rows, f"{'--columns chooses, ' if schema else ''}--json or --csv shows all")
    if schema and start and start == end:
        printer_of(ctx).warn("--start is --end, which is not in the range: for one day say the next date")
    if is_truncated and limit is None:
        printer_of(ctx).warn(f"only the first {row_limit} rows are shown; --limit 0 shows all")


def _read_range(lake: Path, schema: str, row_limit: int | None, **filters: Any) -> pa.Table:
    from umdf.lake.query.lake import Lake

    lists = {name: [part.strip() for part in filters.pop(name).split(",") if part.strip()] or None
             for name in ("symbols", "columns")}  # fmt: skip
    times = {name: filters.pop(name) or None for name in ("start", "end")}
    rows = Lake(lake).get_range(schema, **lists, **times, **filters).to_arrow()
    return rows if row_limit is None else rows.slice(0, row_limit + 1)


def _run_sql(lake: Path, statement: str, row_limit: int | None, options: dict[str, Any]) -> pa.Table:
    from umdf.lake.commit.lake_snapshot import open_snapshot
    from umdf.lake.query.sql import register, run_sql, tables_in
    from umdf.lake.runtime.session import session_scope

    logging.getLogger(
        "SQLQueryContextLogger"
    ).disabled = True  # pyspark logs every failure there; we print it ourselves
    snapshot, names = open_snapshot(lake), tables_in(statement)
    size = sum(add.bytes for name in names for add in snapshot.adds(name))
    with session_scope(quick=size < LOCAL_SPARK_BYTES, **options) as spark:
        register(snapshot, spark, names=names)
        return run_sql(spark, statement, None if row_limit is None else row_limit + 1)


def _print_rows(rows: pa.Table, how_to_see_all: str) -> None:
    if not rows.num_rows:
        print("no rows")
    elif rows.num_columns:
        print_table(unique_names(rows.schema.names), text_rows(rows), show_all=how_to_see_all)


def _write_parquet(rows: pa.Table, path: Path) -> None:
    import pyarrow.parquet as pq

    with path.open("wb") as file:
        pq.write_table(rows.rename_columns(unique_names(rows.schema.names)), file, compression="zstd")
    print_escaped(f"{rows.num_rows:,} rows in {path}")


def _write_chart(rows: pa.Table, path: Path, y: str, title: str) -> None:
    from umdf.lake.report.chart import draw

    columns = [name.strip() for name in y.split(",") if name.strip()] or None
    draw(rows, columns, " ".join(title.split())).save(path)
    print_escaped(f"{rows.num_rows:,} rows drawn in {path}")
