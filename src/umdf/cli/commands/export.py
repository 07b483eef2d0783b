"""`umdf export`: rows of a lake in other formats."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from umdf.cli.arguments import LakeOption
from umdf.cli.output import JsonFlag, print_escaped, print_json, printer_of
from umdf.cli.text_table import print_table

if TYPE_CHECKING:
    from umdf.lake.export.job import ExportReport

EXAMPLES = (
    "umdf export --lake lake --format databento --schema mbo,trades --symbols PETR4 out    Parquet as Databento's",
    "umdf export --lake lake --format lobster --symbols PETR4 --start 2026-11-13 out       messages and books as CSV",
    "umdf export --lake lake --format nautilus --schema mbo,trades,ohlcv-1m catalog        a ParquetDataCatalog",
)


class Format(StrEnum):
    DATABENTO = "databento"
    LOBSTER = "lobster"
    NAUTILUS = "nautilus"


def export(
    ctx: typer.Context,
    out: Annotated[Path, typer.Argument(help="A new directory for the files.", metavar="OUT")],
    lake: LakeOption,
    format: Annotated[Format, typer.Option(help="Whose format.")],
    schema: Annotated[str, typer.Option(help="Schemas, with commas between them; else what the format is for.")] = "",
    symbols: Annotated[str, typer.Option(help="Symbols, with commas between them; else all.")] = "",
    stype_in: Annotated[str, typer.Option(help="What symbols are: raw, parent (DOL.FUT) or instrument_id.")] = "raw",
    start: Annotated[str, typer.Option(help="First trading date, or an instant (no zone is UTC).")] = "",
    end: Annotated[str, typer.Option(help="The date or instant behind the last one.")] = "",
    exclude_stale: Annotated[
        bool, typer.Option("--exclude-stale", help="Leave out what may be wrong, where the format cannot say so.")
    ] = False,
    channel: Annotated[int | None, typer.Option(help="Only this channel, where a symbol is on several.")] = None,
    publisher_id: Annotated[int, typer.Option(help="Databento: publisher_id of every row.")] = 65_000,
    price_type: Annotated[str, typer.Option(help="Databento: prices as float or fixed (1e-9).")] = "float",
    wide: Annotated[bool, typer.Option("--wide", help="Databento: uint64 where it has uint32.")] = False,
    levels: Annotated[int, typer.Option(help="LOBSTER: levels of the book.", min=1)] = 10,
    rounded: Annotated[bool, typer.Option("--round", help="LOBSTER: round prices to 0.0001.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an export that is there.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Export a range of a lake: Databento-shaped Parquet, LOBSTER's CSV, a Nautilus catalog.

    OUT appears when all of it is written. What a format has no place for is left out, counted and told; an instrument's
    day that may be wrong is an error in formats without a mark for doubt (with --exclude-stale it is left out).
    """
    from umdf.lake.export.job import ExportRequest, Options
    from umdf.lake.export.job import export as export_range
    from umdf.lake.query.lake import Lake

    selection = ExportRequest(
        _split_commas(symbols) or None, start or None, end or None, stype_in, exclude_stale, channel
    )
    options = Options(publisher_id, price_type, wide, levels, rounded)
    report = export_range(Lake(lake), format.value, out, _split_commas(schema), selection, options, force)
    if report.skipped:
        printer_of(ctx).warn(f"left out, as they may be wrong: {', '.join(report.skipped)}")
    print_json(report.to_json()) if as_json else _print_report(report)


def _split_commas(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _print_report(report: ExportReport) -> None:
    print_table(("what", "rows"), [(what, f"{rows:,}") for what, rows in report.rows.items()])
    for why, rows in report.left_out.items():
        print(f"left out: {rows:,} {why}")
    print_escaped(f"{report.files:,} files in {report.out}, from commit {report.commit}")
