"""Tables for people and for pipes: a drawn table on a terminal, tab-separated lines elsewhere.

The one rule: a terminal gets a table that fits its width, and what is not shown is said below it; a pipe gets it all.
What the cells hold may come from the feed: characters that would steer a terminal are escaped in both.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TextIO

from umdf.units import printable

PADDING = 2  # blanks behind each column of a drawn table
MAX_VALUE_WIDTH = 32  # a time with its nanoseconds has 29; what is longer are sentences and paths, which can be folded
MIN_FOLDED_WIDTH = 20
ELLIPSIS = "…"


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    styles: Mapping[str, str] | None = None,
    title: str = "",
    stream: TextIO | None = None,
    keep: Collection[str] = (),
    show_all: str = "--json shows all",
) -> None:
    """Print rows; `styles` colours whole cells by their text, on a terminal only.

    Where a terminal is too narrow, long texts are folded, then columns in the middle are left out (those in `keep`
    last), and a line below says how many, and how to see all (`show_all`).
    """
    out = stream if stream is not None else sys.stdout
    headers, texts = list(map(printable, columns)), [list(map(printable, row)) for row in rows]
    if not out.isatty():
        for row in (headers, *texts):
            print("\t".join(cell.strip() for cell in row), file=out)
        return
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=out, highlight=False)
    natural_widths = [max(map(cell_len, column)) for column in zip(headers, *texts, strict=True)]
    kept_columns = [position for position, column in enumerate(columns) if column in keep]
    columns_shown, widths = fit_columns(natural_widths, console.width, kept_columns)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    if title:  # above the table and not part of it, which would fold it to the table's width
        console.print(Text(printable(title), "italic"), soft_wrap=True)
    for place, width in zip(columns_shown, widths, strict=True):
        name = ELLIPSIS if place is None else headers[place]
        table.add_column(Text(name), overflow="fold", width=width)  # a path cut short is of no use
    for row in texts:
        shown = [ELLIPSIS if place is None else row[place] for place in columns_shown]
        table.add_row(*(Text(cell, (styles or {}).get(cell, "")) for cell in shown))
    console.print(table)
    hidden = [headers[place] for place in range(len(headers)) if place not in columns_shown]
    if hidden:
        console.print(Text(f"{len(hidden)} of {len(headers)} columns are not shown; {show_all}"))


def fit_columns(
    natural_widths: Sequence[int], width: int, keep: Collection[int] = ()
) -> tuple[list[int | None], list[int]]:
    """Which columns are drawn, by place, with None where some are left out; and how wide each is drawn.

    Columns of long texts are folded before any is left out; those to keep also if they are of shorter ones. The first
    and the last columns stay longest.
    """
    max_unfolded = [
        MIN_FOLDED_WIDTH if position in keep else MAX_VALUE_WIDTH for position in range(len(natural_widths))
    ]
    min_widths = [
        wide if wide <= limit else MIN_FOLDED_WIDTH for wide, limit in zip(natural_widths, max_unfolded, strict=True)
    ]
    middle = (len(natural_widths) - 1) / 2
    droppable = sorted(range(len(natural_widths)), key=lambda place: (place in keep, abs(place - middle), -place))
    columns_shown = _with_ellipses(range(len(natural_widths)), len(natural_widths))
    while (spare_width := width - _width_of(columns_shown, min_widths)) < 0 and len(droppable) > 1:
        droppable.pop(0)
        columns_shown = _with_ellipses(sorted(droppable), len(natural_widths))
    widths = [
        len(ELLIPSIS) if place is None else min(min_widths[place], max(width - PADDING, 1)) for place in columns_shown
    ]
    growable = {at: natural_widths[place] for at, place in enumerate(columns_shown) if place is not None}
    for _ in range(spare_width):
        at = min((at for at, most in growable.items() if widths[at] < most), key=widths.__getitem__, default=None)
        if at is None:
            break
        widths[at] += 1
    return columns_shown, widths


def _width_of(columns_shown: Sequence[int | None], min_widths: Sequence[int]) -> int:
    return sum(PADDING + (len(ELLIPSIS) if position is None else min_widths[position]) for position in columns_shown)


def _with_ellipses(kept_columns: Sequence[int], count: int) -> list[int | None]:
    """Places in their order, with None where one or more are left out."""
    result: list[int | None] = []
    for before, position in zip((-1, *kept_columns), (*kept_columns, count), strict=True):
        result += [None] if position > before + 1 else []
        result += [position] if position < count else []
    return result
