"""Columns of Arrow as numpy sees them, and back.

The one rule: nothing here loads pandas. pa.array, pa.scalar, to_numpy and comparisons with Python values do, where it
is installed, and that is a quarter of a second: too much for a query whose answer is in a few megabytes.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.market.events import NULL
from umdf.units import EPOCH


def numbers(column: Any) -> NDArray[np.int64]:
    """Whole numbers (and dates, as days); what is absent is NULL, as inside."""
    array = one_array(column)
    if not len(array):
        return np.empty(0, np.int64)
    kind = f"i{array.type.bit_width // 8}"
    values = np.frombuffer(array.buffers()[1], kind, len(array), array.offset * array.type.bit_width // 8)
    values = values.astype(np.int64, copy=False)
    return values if not array.null_count else np.where(is_present(array), values, NULL)


def is_present(column: Any) -> NDArray[np.bool_]:
    array = one_array(column)
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    return np.unpackbits(bits, bitorder="little")[array.offset : array.offset + len(array)].astype(np.bool_)


def is_text(column: Any, wanted: Collection[str]) -> NDArray[np.bool_]:
    """Which texts are among some."""
    coded: Any = one_array(column).dictionary_encode()
    good = np.array([value in wanted for value in coded.dictionary.to_pylist()] + [False], np.bool_)
    places = numbers(coded.indices)
    return good[np.where(places == NULL, len(good) - 1, places)]


def texts_in(column: Any) -> list[str]:
    """Every text that occurs, sorted."""
    coded: Any = one_array(column).dictionary_encode()
    return sorted(filter(None, coded.dictionary.to_pylist()))


def one_array(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


INT64 = pa.int64()


def whole(values: NDArray[Any], kind: Any = INT64) -> pa.Array:
    """Numbers of which none is absent."""
    values = np.ascontiguousarray(values, f"i{kind.bit_width // 8}")
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def no_rows(schema: pa.Schema) -> pa.Table:
    return pa.Table.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)


def constant(value: date | int | None, kind: pa.DataType, count: int) -> pa.Array:
    if value is None:
        return pa.nulls(count, kind)
    number = (value - EPOCH).days if isinstance(value, date) else value
    return whole(np.full(count, number, np.int64), kind)


def rows_at(rows: pa.Table, places: NDArray[np.int64]) -> pa.Table:
    return rows.take(whole(places))


def rows_where(rows: pa.Table, chosen: NDArray[np.bool_]) -> pa.Table:
    """Rows of an instrument stand together in a file: mostly nothing has to be copied."""
    places = np.flatnonzero(chosen)
    if not len(places):
        return rows.slice(0, 0)
    first, count = int(places[0]), len(places)
    return rows.slice(first, count) if places[-1] - first + 1 == count else rows_at(rows, places)
