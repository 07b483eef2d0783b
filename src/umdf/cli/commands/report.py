"""`umdf report`: one day of a lake as an HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from umdf.cli.arguments import LakeOption
from umdf.cli.output import JsonFlag, print_json
from umdf.units import printable

EXAMPLES = (
    "umdf report --lake lake --date 2026-11-13                     writes report-2026-11-13.html",
    "umdf report --lake lake --out day.html                        the last day that the lake has",
    "umdf report --lake lake --date 2026-11-13 --json | jq .gaps   the same numbers, no page",
)


def report(
    lake: LakeOption,
    date_text: Annotated[str, typer.Option("--date", help="Trading date, as 2026-11-13; else the lake's last.")] = "",
    out: Annotated[Path | None, typer.Option(help="The page; else report-DATE.html here.", metavar="FILE")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Report a day: is it whole, what was traded, what each line lost, gaps and their cures, books against snapshots.

    The page is one HTML file that needs nothing else. With --json the numbers are printed, and a page is written only
    where --out says so.
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
        print(*map(printable, report_data.summary), f"page\t{printable(str(path))}", sep="\n")
