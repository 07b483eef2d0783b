"""`umdf query`: rows of a lake, by SQL on Spark, or by schema and symbols without it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umdf.cli.arguments import EndOption, LakeArgument, StartOption, SymbolsOption, split_list
from umdf.cli.output import JsonFlag, counted, print_escaped, printer_of
from umdf.cli.row_formats import print_csv, print_json_lines, text_rows, unique_names
from umdf.cli.spark_options import CoresOption, EnvironmentOption, MasterOption, SparkConfOption, spark_session_options
from umdf.cli.text_table import print_table
from umdf.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

EXAMPLES = (
    "umdf query lake \"SELECT symbol, sum(size) AS traded FROM trades WHERE action = 'A' GROUP BY 1\"",
    'umdf query lake "SELECT * FROM gaps" --json',
    'umdf query lake "SHOW TABLES"',
    "umdf query lake --schema mbp_1 --symbols PETR4,VALE3 --start 2026-11-13",
    "umdf query lake --schema trades --symbols PETR4 --start 2026-11-13T13:00 --parquet trades.parquet",
    "umdf query lake --schema ohlcv_1m --symbols WINZ26 --chart chart.html",
)
MAX_ROWS_SHOWN = 100  # rows of a table on the screen
_BEST_LEVELS = "symbol bid_sz_00 bid_px_00 ask_px_00 ask_sz_00"
# Columns that a narrow terminal shows before all others.
MAIN_COLUMNS = {
    "mbo": "ts_event symbol action side price size",
    "trades": "ts_event symbol side price size trade_id",
    "tbbo": "ts_event symbol side price size bid_px_00 ask_px_00",
    "mbp_1": f"ts_event {_BEST_LEVELS}",
    "mbp_10": f"ts_event {_BEST_LEVELS}",
    "bbo_1s": f"ts_interval {_BEST_LEVELS}",
    "bbo_1m": f"ts_interval {_BEST_LEVELS}",
    **dict.fromkeys(("ohlcv_1s", "ohlcv_1m", "ohlcv_1h", "ohlcv_1d"), "ts_interval symbol open high low close volume"),
    "day_statistics": "trading_date symbol open high low close volume trade_count",
    "statistics": "ts_event symbol stat_type price size",
    "status": "ts_event symbol security_group phase state",
    "definition": "symbol asset security_type tick maturity_date strike_price",
    "imbalance": "ts_event symbol side price size",
    "gaps": "stream first_sequence missing cause recovered_by affected",
    "quality": "channel_id stream line packets lost duplicates first_arrivals",
    "packets": "stream line sequence ts_recv disposition messages",
    "book_check": "symbol sequence verdict difference",
    "quarantine": "sequence file_offset reason",
    "ledger": "path channel_id stream line packets",
}
LOCAL_SPARK_BYTES = 256 << 20  # larger inputs are faster on a Spark session that starts slower


def query(
    ctx: typer.Context,
    lake: LakeArgument,
    statement: Annotated[str, typer.Argument(help="Spark SQL statement", metavar="SQL", show_default=False)] = "",
    schema: Annotated[
        str, typer.Option(help="Read this schema (a table of the lake) instead of SQL, such as mbp_1", metavar="TABLE")
    ] = "",
    symbols: SymbolsOption = "",
    start: StartOption = "",
    end: EndOption = "",
    stype_in: Annotated[
        str,
        typer.Option(help="Symbology of --symbols: raw, parent, continuous or instrument_id", metavar="STYPE"),
    ] = "raw",
    columns: Annotated[str, typer.Option(help="Columns, comma-separated (default: all)", metavar="COLUMNS")] = "",
    exclude_stale: Annotated[
        bool, typer.Option("--exclude-stale", help="Skip rows that may be wrong (unverified or stale)")
    ] = False,
    time: Annotated[
        str,
        typer.Option(
            help="What --start and --end are compared with: receive or exchange time, or auto (default): receive time, "
            "but exchange time where the capture clock is off",
            metavar="TIME",
        ),
    ] = "auto",
    limit: Annotated[
        int | None,
        typer.Option(
            help=f"Maximum rows, 0 for all (default: {MAX_ROWS_SHOWN} for text, otherwise all)", metavar="N", min=0
        ),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV")] = False,
    parquet: Annotated[Path | None, typer.Option(help="Write a Parquet file", metavar="FILE")] = None,
    chart: Annotated[Path | None, typer.Option(help="Write a chart, as an HTML page", metavar="FILE")] = None,
    chart_y: Annotated[
        str,
        typer.Option(help="Columns to plot (default: prices; candlesticks for bars)", metavar="COLUMNS"),
    ] = "",
    master: MasterOption = None,
    cores: CoresOption = None,
    environment: EnvironmentOption = None,
    conf: SparkConfOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Query a lake: SQL on Spark, or a range of one table without Spark.

    In SQL every table is a view: prices are DECIMAL, times are TIMESTAMP in UTC with a nanosecond column beside each
    (ts_event_ns), and mbp_10 is computed on demand. Filters on trading_date, symbol, instrument_id or a _ns column skip
    files. --json prints one object per row.

    The table trades keeps trades that are busted later (action A) and has a row for each bust (action C); ohlcv_1d and
    day_statistics have the volume without them.
    """
    filters = {"--symbols": symbols, "--start": start, "--end": end, "--columns": columns}
    if statement.strip() and schema:
        raise UsageError("SQL cannot be combined with --schema", "use one of them")
    if not statement.strip() and not schema:
        raise UsageError("nothing to query", "pass a SQL statement or --schema TABLE")
    if not schema and (unused := [name for name, value in filters.items() if value]):
        raise UsageError(f"{', '.join(unused)} can only be used with --schema", "in SQL, use WHERE and the column list")
    if sum((as_json, as_csv, parquet is not None, chart is not None)) > 1:
        raise UsageError("only one of --json, --csv, --parquet and --chart can be used")
    is_text = not (as_json or as_csv or parquet or chart)
    row_limit = (MAX_ROWS_SHOWN if is_text else None) if limit is None else limit or None
    if schema:
        rows = _read_range(lake, schema, row_limit, symbols=symbols, start=start, end=end, columns=columns,
                           stype_in=stype_in, exclude_stale=exclude_stale, time=time)  # fmt: skip
    else:
        rows = _run_sql(lake, statement, row_limit, spark_session_options(master, cores, environment, conf))
    is_truncated = row_limit is not None and rows.num_rows > row_limit
    rows = rows.slice(0, row_limit) if is_truncated else rows
    if parquet is not None:
        _write_parquet(rows, parquet)
    elif chart is not None:
        _write_chart(rows, chart, split_list(chart_y), f"{schema} {symbols}" if schema else statement)
    elif as_json or as_csv:
        (print_json_lines if as_json else print_csv)(rows)
    else:
        choose = "choose with --columns, or " if schema and not columns else ""
        main_columns = "" if columns else MAIN_COLUMNS.get(schema.replace("-", "_"), "")
        _print_rows(rows, main_columns.split(), f"{choose}print all with --json or --csv")
    if schema and start and start == end:
        printer_of(ctx).warn("empty range: --end is exclusive; for one day, use the next date as --end")
    if is_truncated and limit is None:
        printer_of(ctx).warn(f"showing the first {row_limit} rows; use --limit 0 for all")


def _read_range(lake: Path, schema: str, row_limit: int | None, **filters: Any) -> pa.Table:
    from umdf.lake.query.lake import Lake

    lists = {name: split_list(filters.pop(name)) or None for name in ("symbols", "columns")}
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


def _print_rows(rows: pa.Table, main_columns: list[str], how_to_see_all: str) -> None:
    if not rows.num_rows:
        print("no rows")
    elif rows.num_columns:
        print_table(unique_names(rows.schema.names), text_rows(rows), keep=main_columns, show_all=how_to_see_all)


def _write_parquet(rows: pa.Table, path: Path) -> None:
    import pyarrow.parquet as pq

    with path.open("wb") as file:
        pq.write_table(rows.rename_columns(unique_names(rows.schema.names)), file, compression="zstd")
    print_escaped(f"wrote {counted(rows.num_rows, 'row')} to {path}")


def _write_chart(rows: pa.Table, path: Path, columns: list[str], title: str) -> None:
    from umdf.lake.report.chart import draw

    draw(rows, columns or None, " ".join(title.split())).save(path)
    print_escaped(f"wrote a chart of {counted(rows.num_rows, 'row')} to {path}")
