"""`umdf query`: rows of a lake, by SQL on Spark, or by schema and symbols without it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umdf.cli.places import LakeOption
from umdf.cli.rows import cells_of, print_csv, print_json_lines, unique
from umdf.cli.spark_options import Conf, Cores, Master, Packed, session_options
from umdf.cli.tables import show_table
from umdf.cli.voice import JsonFlag, print_text, voice_of
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
MOST_SHOWN = 100  # rows of a table on the screen
QUICK_BYTES = 256 << 20  # more than this is better read by a Spark that starts slower


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
        typer.Option(help=f"So many rows at most; 0 is all. Else {MOST_SHOWN} as text, all otherwise.", min=0),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    parquet: Annotated[Path | None, typer.Option(help="Write a Parquet file.", metavar="FILE")] = None,
    chart: Annotated[Path | None, typer.Option(help="Draw them: a page of HTML.", metavar="FILE")] = None,
    y: Annotated[str, typer.Option(help="What the chart draws; else prices, or candles of bars.")] = "",
    master: Master = None,
    cores: Cores = None,
    packed: Packed = None,
    conf: Conf = None,
    as_json: JsonFlag = False,
) -> None:
    """Ask a lake: SQL on Spark, or with --schema a range of one table, at once and without Spark.

    In SQL every table is a view: prices are decimals, times TIMESTAMPs in UTC with their nanoseconds beside them
    (ts_event_ns), mbp_10 is made when it is asked for. A WHERE on trading_date, symbol, instrument_id or a _ns column
    skips files. --json prints an object a row.
    """
    asked = {"--symbols": symbols, "--start": start, "--end": end, "--columns": columns}
    if statement.strip() and schema:
        raise UsageError("SQL and --schema do not go together", "give one of them")
    if not statement.strip() and not schema:
        raise UsageError("nothing is asked", 'give a statement ("SELECT …") or --schema')
    if not schema and (given := [name for name, value in asked.items() if value]):
        raise UsageError(f"{', '.join(given)} belong to --schema", "in SQL, say it with WHERE")
    if sum((as_json, as_csv, parquet is not None, chart is not None)) > 1:
        raise UsageError("--json, --csv, --parquet and --chart do not go together", "give one of them")
    is_text = not (as_json or as_csv or parquet or chart)
    most = (MOST_SHOWN if is_text else None) if limit is None else limit or None
    if schema:
        found = _range(lake, schema, most, symbols=symbols, start=start, end=end, columns=columns,
                       stype_in=stype_in, exclude_stale=exclude_stale)  # fmt: skip
    else:
        found = _sql(lake, statement, most, session_options(master, cores, packed, conf))
    is_cut = most is not None and found.num_rows > most
    found = found.slice(0, most) if is_cut else found
    if parquet is not None:
        _write_parquet(found, parquet)
    elif chart is not None:
        _draw(found, chart, y, f"{schema} {symbols}" if schema else statement)
    elif as_json or as_csv:
        (print_json_lines if as_json else print_csv)(found)
    else:
        _show(found, f"{'--columns chooses, ' if schema else ''}--json or --csv shows all")
    if schema and start and start == end:
        voice_of(ctx).warn("--start is --end, which is not in the range: for one day say the next date")
    if is_cut and limit is None:
        voice_of(ctx).warn(f"only the first {most} rows are shown; --limit 0 shows all")


def _range(lake: Path, schema: str, most: int | None, **asked: Any) -> pa.Table:
    from umdf.lake.query.lake import Lake

    listed = {name: [part.strip() for part in asked.pop(name).split(",") if part.strip()] or None
              for name in ("symbols", "columns")}  # fmt: skip
    times = {name: asked.pop(name) or None for name in ("start", "end")}
    found = Lake(lake).get_range(schema, **listed, **times, **asked).to_arrow()
    return found if most is None else found.slice(0, most + 1)


def _sql(lake: Path, statement: str, most: int | None, options: dict[str, Any]) -> pa.Table:
    from umdf.lake.query.sql import names_in, register, run
    from umdf.lake.session import running
    from umdf.lake.snapshot import open_snapshot

    logging.getLogger(
        "SQLQueryContextLogger"
    ).disabled = True  # pyspark prints every failure there; we say it ourselves
    snapshot, names = open_snapshot(lake), names_in(statement)
    size = sum(add.bytes for name in names for add in snapshot.adds(name))
    with running(quick=size < QUICK_BYTES, **options) as spark:
        register(snapshot, spark, names=names)
        return run(spark, statement, None if most is None else most + 1)


def _show(found: pa.Table, show_all: str) -> None:
    if not found.num_rows:
        print("no rows")
    elif found.num_columns:
        show_table(unique(found.schema.names), cells_of(found), show_all=show_all)


def _write_parquet(found: pa.Table, path: Path) -> None:
    import pyarrow.parquet as pq

    with path.open("wb") as file:
        pq.write_table(found.rename_columns(unique(found.schema.names)), file, compression="zstd")
    print_text(f"{found.num_rows:,} rows in {path}")


def _draw(found: pa.Table, path: Path, y: str, title: str) -> None:
    from umdf.lake.chart import draw

    wanted = [name.strip() for name in y.split(",") if name.strip()] or None
    draw(found, wanted, " ".join(title.split())).save(path)
    print_text(f"{found.num_rows:,} rows drawn in {path}")
