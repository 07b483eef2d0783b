"""Rows of Arrow tables as text cells, JSON or CSV.

Invariant: every digit is kept. A decimal is a text without trailing zeros, a time is UTC with as many digits as it has.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from umdf.cli.output import json_text, print_json
from umdf.units import printable, strip_trailing_zeros, utc_text

if TYPE_CHECKING:
    import pyarrow as pa

UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def json_rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Rows of values that JSON can represent."""
    for batch in table.to_batches():
        yield from zip(*(_values(column) for column in batch.columns), strict=True)


def _values(column: Any) -> list[Any]:
    import pyarrow as pa

    arrow_type = column.type
    if pa.types.is_timestamp(arrow_type):  # not as datetime, which has only microseconds
        factor = UNIT_NS[arrow_type.unit]
        numbers = column.cast(pa.int64()).to_pylist()
        return [None if number is None else _time_text(number * factor) for number in numbers]
    return [_json_value(value) for value in column.to_pylist()]


def _time_text(ns: int) -> str:
    return strip_trailing_zeros(utc_text(ns)) if ns % 10**9 else utc_text(ns)[:19]


def _json_value(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if value == value and abs(value) != float("inf") else str(value)
        case Decimal():
            return strip_trailing_zeros(f"{value:f}")
        case bytes():
            return value.hex()
        case list() | tuple():
            return [_json_value(item) for item in value]
        case dict():
            return {name: _json_value(item) for name, item in value.items()}
        case _:
            return value.isoformat() if hasattr(value, "isoformat") else str(value)


def text_rows(table: pa.Table) -> list[tuple[str, ...]]:
    return [tuple(_cell(value) for value in row) for row in json_rows(table)]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json_text(value)


def print_json_lines(table: pa.Table) -> None:
    """Print one object per row."""
    names = unique_names(table.schema.names)
    for row in json_rows(table):
        print_json(dict(zip(names, row, strict=True)))


def print_csv(table: pa.Table) -> None:
    """Print texts exactly as they are; on a terminal, with control characters escaped."""
    out, escape = csv.writer(sys.stdout, lineterminator="\n"), printable if sys.stdout.isatty() else str
    out.writerow(map(escape, table.schema.names))
    out.writerows(tuple(escape(_cell(value)) for value in row) for row in json_rows(table))


def unique_names(names: Sequence[str]) -> list[str]:
    """Names of columns made unique: SQL may return two columns of one name, and no value may hide another."""
    result: list[str] = []
    for name in names:
        repeats = sum(name == item.partition("#")[0] for item in result)
        result.append(f"{name}#{repeats + 1}" if repeats else name)
    return result
