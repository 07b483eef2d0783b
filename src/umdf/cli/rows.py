"""Rows of Arrow tables for people and for programs: cells of text, JSON, CSV.

The one rule: every digit is kept. A decimal is a text without idle zeros, a time is UTC with as many digits as it has.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from umdf.cli.voice import json_text, print_json
from umdf.units import printable, utc_text, without_idle_zeros

if TYPE_CHECKING:
    import pyarrow as pa

UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def rows_of(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Values that JSON can carry."""
    for batch in table.to_batches():
        yield from zip(*(_values(column) for column in batch.columns), strict=True)


def _values(column: Any) -> list[Any]:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_timestamp(kind):  # not by way of datetime, which ends at the microsecond
        factor = UNIT_NS[kind.unit]
        numbers = column.cast(pa.int64()).to_pylist()
        return [None if number is None else _moment(number * factor) for number in numbers]
    return [_plain(value) for value in column.to_pylist()]


def _moment(ns: int) -> str:
    return without_idle_zeros(utc_text(ns)) if ns % 10**9 else utc_text(ns)[:19]


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if value == value and abs(value) != float("inf") else str(value)
        case Decimal():
            return without_idle_zeros(f"{value:f}")
        case bytes():
            return value.hex()
        case list() | tuple():
            return [_plain(each) for each in value]
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case _:
            return value.isoformat() if hasattr(value, "isoformat") else str(value)


def cells_of(table: pa.Table) -> list[tuple[str, ...]]:
    return [tuple(_cell(value) for value in row) for row in rows_of(table)]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json_text(value)


def print_json_lines(table: pa.Table) -> None:
    """An object a row."""
    names = unique(table.schema.names)
    for row in rows_of(table):
        print_json(dict(zip(names, row, strict=True)))


def print_csv(table: pa.Table) -> None:
    """Texts exactly as they are; on a terminal, what would steer it is escaped."""
    out, shown = csv.writer(sys.stdout, lineterminator="\n"), printable if sys.stdout.isatty() else str
    out.writerow(map(shown, table.schema.names))
    out.writerows(tuple(shown(_cell(value)) for value in row) for row in rows_of(table))


def unique(names: Sequence[str]) -> list[str]:
    """SQL may give two columns one name; no value may hide another."""
    found: list[str] = []
    for name in names:
        again = sum(name == each.partition("#")[0] for each in found)
        found.append(f"{name}#{again + 1}" if again else name)
    return found
