"""Tables for people and for pipes: a drawn table on a terminal, tab-separated lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TextIO


def show_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    styles: Mapping[str, str] | None = None,
    title: str = "",
    stream: TextIO | None = None,
) -> None:
    """Print rows; `styles` colours whole cells by their text, on a terminal only."""
    out = stream if stream is not None else sys.stdout
    if not out.isatty():
        for row in (columns, *rows):
            print("\t".join(" ".join(cell.split()) for cell in row), file=out)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")  # a path cut short is of no use
    for row in rows:
        table.add_row(*(Text(cell, (styles or {}).get(cell, "")) for cell in row))
    Console(file=out).print(table)
