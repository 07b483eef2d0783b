"""Tables for people and for pipes: a drawn table on a terminal, tab-separated lines elsewhere.

The one rule: a terminal gets a table that fits its width, and what is not shown is said below it; a pipe gets it all.
What the cells hold may come from the feed: characters that would steer a terminal are escaped in both.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TextIO

from umdf.units import printable

BESIDE = 2  # blanks behind each column of a drawn table
LONGEST_VALUE = 32  # a time with its nanoseconds has 29; what is longer are sentences and paths, which can be folded
LEAST_FOLDED = 20
ELLIPSIS = "…"


def show_table(
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
    heads, cells = list(map(printable, columns)), [list(map(printable, row)) for row in rows]
    if not out.isatty():
        for row in (heads, *cells):
            print("\t".join(cell.strip() for cell in row), file=out)
        return
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=out, highlight=False)
    natural = [max(map(cell_len, column)) for column in zip(heads, *cells, strict=True)]
    kept = [place for place, column in enumerate(columns) if column in keep]
    places, widths = fitted(natural, console.width, kept)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    if title:  # above the table and not part of it, which would fold it to the table's width
        console.print(Text(printable(title), "italic"), soft_wrap=True)
    for place, width in zip(places, widths, strict=True):
        name = ELLIPSIS if place is None else heads[place]
        table.add_column(Text(name), overflow="fold", width=width)  # a path cut short is of no use
    for row in cells:
        shown = [ELLIPSIS if place is None else row[place] for place in places]
        table.add_row(*(Text(cell, (styles or {}).get(cell, "")) for cell in shown))
    console.print(table)
    hidden = [heads[place] for place in range(len(heads)) if place not in places]
    if hidden:
        console.print(Text(f"{len(hidden)} of {len(heads)} columns are not shown; {show_all}"))


def fitted(natural: Sequence[int], width: int, keep: Collection[int] = ()) -> tuple[list[int | None], list[int]]:
    """Which columns are drawn, by place, with None where some are left out; and how wide each is drawn.

    Columns of long texts are folded before any is left out; those to keep also if they are of shorter ones. The first
    and the last columns stay longest.
    """
    longest = [LEAST_FOLDED if place in keep else LONGEST_VALUE for place in range(len(natural))]
    least = [wide if wide <= most else LEAST_FOLDED for wide, most in zip(natural, longest, strict=True)]
    middle = (len(natural) - 1) / 2
    leaving = sorted(range(len(natural)), key=lambda place: (place in keep, abs(place - middle), -place))
    places = _with_gaps(range(len(natural)), len(natural))
    while (room := width - _needed(places, least)) < 0 and len(leaving) > 1:
        leaving.pop(0)
        places = _with_gaps(sorted(leaving), len(natural))
    widths = [len(ELLIPSIS) if place is None else min(least[place], max(width - BESIDE, 1)) for place in places]
    growing = {at: natural[place] for at, place in enumerate(places) if place is not None}
    for _ in range(room):
        at = min((at for at, most in growing.items() if widths[at] < most), key=widths.__getitem__, default=None)
        if at is None:
            break
        widths[at] += 1
    return places, widths


def _needed(places: Sequence[int | None], least: Sequence[int]) -> int:
    return sum(BESIDE + (len(ELLIPSIS) if place is None else least[place]) for place in places)


def _with_gaps(kept: Sequence[int], count: int) -> list[int | None]:
    """Places in their order, with None where one or more are left out."""
    found: list[int | None] = []
    for before, place in zip((-1, *kept), (*kept, count), strict=True):
        found += [None] if place > before + 1 else []
        found += [place] if place < count else []
    return found
