"""Text tables: a drawn table on a terminal, tab-separated lines elsewhere.

Invariant: a terminal gets a table that fits its width, with a note about columns not shown; a pipe gets all columns.
Cells may contain text of the feed: control characters are escaped in both.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TextIO

from umdf.units import printable

PADDING = 2  # blanks after each column of a drawn table
MAX_VALUE_WIDTH = 32  # a time with its nanoseconds has 29; longer values are sentences and paths, which can be folded
MIN_FOLDED_WIDTH = 20
ELLIPSIS = "…"


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    styles: Mapping[str, str] | None = None,
    title: str = "",
    stream: TextIO | None = None,
    keep: Collection[str] = (),
    show_all: str = "print all with --json",
) -> None:
    """Print rows; `styles` maps the text of a cell to its colour, on a terminal only.

    If the terminal is too narrow, long texts are folded, then columns in the middle are left out (those in `keep`
    last), and a note below has their number and how to see all (`show_all`).
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
    if title:  # above the table: as its title it would be folded to its width
        console.print(Text(printable(title), "italic"), soft_wrap=True)
    for position, width in zip(columns_shown, widths, strict=True):
        name = ELLIPSIS if position is None else headers[position]
        table.add_column(Text(name), overflow="fold", width=width)  # a truncated path is useless
    for row in texts:
        shown = [ELLIPSIS if position is None else row[position] for position in columns_shown]
        table.add_row(*(Text(cell, (styles or {}).get(cell, "")) for cell in shown))
    console.print(table)
    hidden = [headers[position] for position in range(len(headers)) if position not in columns_shown]
    if hidden:
        console.print(Text(f"{len(hidden)} of {len(headers)} columns hidden; {show_all}"))


def fit_columns(
    natural_widths: Sequence[int], width: int, keep: Collection[int] = ()
) -> tuple[list[int | None], list[int]]:
    """The positions of the columns to draw, with None where some are left out; and the width of each.

    Columns of long texts are folded before any is left out; those in `keep` are folded from a smaller width. The first
    and the last columns are left out last.
    """
    max_unfolded = [
        MIN_FOLDED_WIDTH if position in keep else MAX_VALUE_WIDTH for position in range(len(natural_widths))
    ]
    min_widths = [
        natural if natural <= limit else MIN_FOLDED_WIDTH
        for natural, limit in zip(natural_widths, max_unfolded, strict=True)
    ]
    middle = (len(natural_widths) - 1) / 2
    droppable = sorted(
        range(len(natural_widths)), key=lambda position: (position in keep, abs(position - middle), -position)
    )
    columns_shown = _with_ellipses(range(len(natural_widths)), len(natural_widths))
    while (spare_width := width - _width_of(columns_shown, min_widths)) < 0 and len(droppable) > 1:
        droppable.pop(0)
        columns_shown = _with_ellipses(sorted(droppable), len(natural_widths))
    widths = [
        len(ELLIPSIS) if position is None else min(min_widths[position], max(width - PADDING, 1))
        for position in columns_shown
    ]
    growable = {index: natural_widths[position] for index, position in enumerate(columns_shown) if position is not None}
    for _ in range(spare_width):
        narrow = (index for index, limit in growable.items() if widths[index] < limit)
        index = min(narrow, key=widths.__getitem__, default=None)
        if index is None:
            break
        widths[index] += 1
    return columns_shown, widths


def _width_of(columns_shown: Sequence[int | None], min_widths: Sequence[int]) -> int:
    return sum(PADDING + (len(ELLIPSIS) if position is None else min_widths[position]) for position in columns_shown)


def _with_ellipses(kept_columns: Sequence[int], count: int) -> list[int | None]:
    """Positions in order, with None where one or more are left out."""
    result: list[int | None] = []
    for before, position in zip((-1, *kept_columns), (*kept_columns, count), strict=True):
        result += [None] if position > before + 1 else []
        result += [position] if position < count else []
    return result
