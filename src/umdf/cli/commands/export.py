"""`umdf export`: rows of a lake in other formats."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from umdf.cli.arguments import EndOption, LakeArgument, StartOption, SymbolsOption, split_list
from umdf.cli.output import JsonFlag, counted, print_escaped, print_json, printer_of
from umdf.cli.text_table import print_table

if TYPE_CHECKING:
    from umdf.lake.export.job import ExportReport

EXAMPLES = (
    "umdf export lake out --format databento --schema mbo,trades --symbols PETR4   Databento-style Parquet",
    "umdf export lake out --format lobster --symbols PETR4 --start 2026-11-13      LOBSTER messages and books",
    "umdf export lake catalog --format nautilus --schema mbo,trades,ohlcv-1m       a NautilusTrader ParquetDataCatalog",
)


class Format(StrEnum):
    DATABENTO = "databento"
    LOBSTER = "lobster"
    NAUTILUS = "nautilus"


def export(
    ctx: typer.Context,
    lake: LakeArgument,
    out: Annotated[Path, typer.Argument(help="Directory to create", metavar="OUT")],
    format: Annotated[Format, typer.Option(help="Output format: databento, lobster or nautilus", metavar="FORMAT")],
    schema: Annotated[
        str,
        typer.Option(
            help="Schemas (tables of the lake) to export, comma-separated (default: by format)", metavar="TABLES"
        ),
    ] = "",
    symbols: SymbolsOption = "",
    start: StartOption = "",
    end: EndOption = "",
    stype_in: Annotated[
        str,
        typer.Option(help="Symbology of --symbols: raw, parent (DOL.FUT) or instrument_id", metavar="STYPE"),
    ] = "raw",
    exclude_stale: Annotated[
        bool,
        typer.Option(
            "--exclude-stale",
            help="Skip rows that may be wrong (unverified or stale); whole days if the format cannot mark them",
        ),
    ] = False,
    channel: Annotated[
        int | None, typer.Option(help="Only this channel, if a symbol is on several", metavar="N")
    ] = None,
    publisher_id: Annotated[int, typer.Option(help="Databento: publisher_id of every row", metavar="N")] = 65_000,
    price_type: Annotated[
        str,
        typer.Option(help="Databento: price representation, float or fixed (units of 1e-9)", metavar="float|fixed"),
    ] = "float",
    wide_integers: Annotated[
        bool, typer.Option("--wide-integers", help="Databento: write uint64 where Databento has uint32")
    ] = False,
    levels: Annotated[int, typer.Option(help="LOBSTER: book levels", metavar="N", min=1)] = 10,
    round_prices: Annotated[bool, typer.Option("--round-prices", help="LOBSTER: round prices to 0.0001")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing export")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Export a range of a lake as Databento-style Parquet, LOBSTER CSV or a NautilusTrader catalog.

    OUT appears only when the export is complete. Rows that the format cannot represent are skipped and counted. If the
    format cannot mark stale data, an instrument-day that may be wrong is an error, unless --exclude-stale skips it.
    """
    from umdf.lake.export.job import ExportRequest, Options
    from umdf.lake.export.job import export as export_range
    from umdf.lake.query.lake import Lake

    selection = ExportRequest(split_list(symbols) or None, start or None, end or None, stype_in, exclude_stale, channel)
    options = Options(publisher_id, price_type, wide_integers, levels, round_prices)
    report = export_range(Lake(lake), format.value, out, split_list(schema), selection, options, force)
    if report.skipped:
        printer_of(ctx).warn(f"skipped, may be wrong: {', '.join(report.skipped)}")
    print_json(report.to_json()) if as_json else _print_report(report)


def _print_report(report: ExportReport) -> None:
    print_table(("table", "rows"), [(table, f"{rows:,}") for table, rows in report.rows.items()])
    for why, rows in report.left_out.items():
        print(f"skipped {counted(rows, 'row')}: {why}")
    print_escaped(f"wrote {counted(report.files, 'file')} to {report.out} (commit {report.commit})")
