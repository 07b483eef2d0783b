"""`umdf report`: one day of a lake as an HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from umdf.cli.arguments import LakeArgument
from umdf.cli.output import JsonFlag, print_json
from umdf.units import printable

EXAMPLES = (
    "umdf report lake --date 2026-11-13                     writes report-2026-11-13.html",
    "umdf report lake --out day.html                        the lake's last day",
    "umdf report lake --date 2026-11-13 --json | jq .gaps   the figures only",
)


def report(
    lake: LakeArgument,
    date_text: Annotated[
        str, typer.Option("--date", help="Trading date, YYYY-MM-DD (default: the lake's last)", metavar="DATE")
    ] = "",
    out: Annotated[Path | None, typer.Option(help="File to write (default: report-DATE.html)", metavar="FILE")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a report of one trading day: completeness, trading activity, loss per line, gaps and how they were
    recovered, books checked against snapshots.

    The report is one self-contained HTML file. With --json the figures are printed instead, and a file is written only
    if --out is given.
    """
    from umdf.cli.time_options import parse_trading_date
    from umdf.lake.report.day_report import day_report
    from umdf.lake.report.page import render_page

    report_data = day_report(lake, parse_trading_date(date_text))
    path = out or (None if as_json else Path(f"report-{report_data.trading_date}.html"))
    if path is not None:
        path.write_text(render_page(report_data), encoding="utf-8")
    if as_json:
        print_json(report_data.to_json() | {"page": str(path) if path else None})
    else:
        print(*map(printable, report_data.summary), f"wrote {printable(str(path))}", sep="\n")
