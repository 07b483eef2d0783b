"""Text tables: a drawn table on a terminal, tab-separated lines elsewhere.

Invariant: a terminal gets a table that fits its width, with the names of columns not shown; a pipe gets all columns.
Cells may contain text of the feed: control characters are escaped in both.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TextIO

from umdf.units import printable

PADDING = 2  # blanks after each column of a drawn table
MAX_VALUE_WIDTH = 32  # a time with its nanoseconds has 29; longer values are sentences and paths, which can be folded
MIN_FOLDED_WIDTH = 18
MAX_HIDDEN_NAMES = 8  # columns that the note below a table names
NUMBER = re.compile(r"-?[\d,]+(\.\d+)?( [kMGT]?B)?")


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    styles: Mapping[str, str] | None = None,
    title: str = "",
    stream: TextIO | None = None,
    keep: Collection[str] = (),
    show_all: str = "print all with --json",
) -> None:
    """Print rows; `styles` maps the text of a cell to its color, on a terminal only.

    A drawn table has numbers on the right. If the terminal is too narrow, long texts are folded, then columns in the
    middle are left out (those in `keep` last), and a note below names them and says how to see all (`show_all`).
    """
    out = stream if stream is not None else sys.stdout
    headers, texts = list(map(printable, columns)), [list(map(printable, row)) for row in rows]
    if not out.isatty():
        for row in (headers, *texts):
            print("\t".join(cell.strip() for cell in row), file=out)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=out, highlight=False)
    is_number = [_is_number_column([row[position] for row in texts]) for position in range(len(headers))]
    texts = _with_equal_decimals(texts, is_number)
    kept_columns = [position for position, column in enumerate(columns) if column in keep]
    columns_shown, widths = fit_columns(_natural_widths(headers, texts), console.width, kept_columns)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    if title:  # above the table: as its title it would be folded to its width
        console.print(Text(printable(title), "italic"), soft_wrap=True)
    for position, width in zip(columns_shown, widths, strict=True):
        justify = "right" if is_number[position] else "left"
        # Folded, because a truncated path is useless.
        table.add_column(Text(headers[position]), overflow="fold", width=width, justify=justify)
    for row in texts:
        table.add_row(*(Text(row[position], (styles or {}).get(row[position], "")) for position in columns_shown))
    console.print(table)
    hidden = [headers[position] for position in range(len(headers)) if position not in columns_shown]
    if hidden:
        more = f" and {len(hidden) - MAX_HIDDEN_NAMES} more" if len(hidden) > MAX_HIDDEN_NAMES else ""
        console.print(Text(f"hidden: {', '.join(hidden[:MAX_HIDDEN_NAMES])}{more}; {show_all}"))


def terminal_width(stream: TextIO) -> int | None:
    """The width to which tables are drawn; None if the stream is not a terminal."""
    from rich.console import Console

    return Console(file=stream).width if stream.isatty() else None


def fits(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> bool:
    """Whether a table needs neither folding nor hidden columns."""
    natural = _natural_widths(list(map(printable, columns)), [list(map(printable, row)) for row in rows])
    return width is None or sum(natural) + PADDING * len(natural) <= width


def _natural_widths(headers: Sequence[str], texts: Sequence[Sequence[str]]) -> list[int]:
    from rich.cells import cell_len

    return [max(map(cell_len, column)) for column in zip(headers, *texts, strict=True)]


def _is_number_column(cells: Sequence[str]) -> bool:
    return any(cells) and all(not cell or NUMBER.fullmatch(cell) for cell in cells)


def _with_equal_decimals(texts: Sequence[Sequence[str]], is_number: Sequence[bool]) -> list[list[str]]:
    """The rows with zeros added to numbers, so that decimal points are below each other."""
    columns = [
        _pad_decimals(column) if number else list(column)
        for column, number in zip(zip(*texts, strict=True), is_number, strict=False)
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def _pad_decimals(cells: Sequence[str]) -> list[str]:
    decimals = max(len(cell.partition(".")[2]) for cell in cells)
    if not decimals or any(cell.endswith("B") for cell in cells):  # sizes have their own units
        return list(cells)
    whole = [cell if "." in cell or not cell else f"{cell}." for cell in cells]
    return [cell and cell + "0" * (decimals - len(cell.partition(".")[2])) for cell in whole]


def fit_columns(natural_widths: Sequence[int], width: int, keep: Collection[int] = ()) -> tuple[list[int], list[int]]:
    """The positions of the columns to draw, and the width of each.

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
    while (spare_width := width - sum(PADDING + min_widths[each] for each in droppable)) < 0 and len(droppable) > 1:
        droppable.pop(0)
    columns_shown = sorted(droppable)
    widths = [min(min_widths[position], max(width - PADDING, 1)) for position in columns_shown]
    for _ in range(spare_width):
        growable = (index for index, each in enumerate(columns_shown) if widths[index] < natural_widths[each])
        index = min(growable, key=widths.__getitem__, default=None)
        if index is None:
            break
        widths[index] += 1
    return columns_shown, widths
