"""Arrow columns as numpy arrays, and back.

Invariant: nothing here imports pandas. pa.array, pa.scalar, to_numpy and comparisons with Python values do, if it is
installed, which takes 0.25 s: too long for a query that reads a few megabytes.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.market.families import NULL
from umdf.units import EPOCH


def int64_values(column: Any) -> NDArray[np.int64]:
    """Integers (and dates, as days); absent values are the internal NULL."""
    array = to_array(column)
    if not len(array):
        return np.empty(0, np.int64)
    kind = f"i{array.type.bit_width // 8}"
    values = np.frombuffer(array.buffers()[1], kind, len(array), array.offset * array.type.bit_width // 8)
    values = values.astype(np.int64, copy=False)
    return values if not array.null_count else np.where(is_valid(array), values, NULL)


def is_valid(column: Any) -> NDArray[np.bool_]:
    array = to_array(column)
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    return np.unpackbits(bits, bitorder="little")[array.offset : array.offset + len(array)].astype(np.bool_)


def is_in(column: Any, values: Collection[str]) -> NDArray[np.bool_]:
    """Which strings are among `values`."""
    encoded: Any = to_array(column).dictionary_encode()
    is_member = np.array([value in values for value in encoded.dictionary.to_pylist()] + [False], np.bool_)
    indices = int64_values(encoded.indices)
    return is_member[np.where(indices == NULL, len(is_member) - 1, indices)]


def distinct_texts(column: Any) -> list[str]:
    """The distinct strings, sorted."""
    encoded: Any = to_array(column).dictionary_encode()
    return sorted(filter(None, encoded.dictionary.to_pylist()))


def to_array(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


INT64 = pa.int64()


def int_array(values: NDArray[Any], kind: Any = INT64) -> pa.Array:
    """An array without NULLs."""
    values = np.ascontiguousarray(values, f"i{kind.bit_width // 8}")
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def empty_table(schema: pa.Schema) -> pa.Table:
    return pa.Table.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)


def constant_array(value: date | int | None, kind: pa.DataType, count: int) -> pa.Array:
    if value is None:
        return pa.nulls(count, kind)
    number = (value - EPOCH).days if isinstance(value, date) else value
    return int_array(np.full(count, number, np.int64), kind)


def take_rows(rows: pa.Table, indices: NDArray[np.int64]) -> pa.Table:
    return rows.take(int_array(indices))


def filter_rows(rows: pa.Table, mask: NDArray[np.bool_]) -> pa.Table:
    """Rows of an instrument are adjacent in a file: mostly nothing has to be copied."""
    indices = np.flatnonzero(mask)
    if not len(indices):
        return rows.slice(0, 0)
    first, count = int(indices[0]), len(indices)
    return rows.slice(first, count) if indices[-1] - first + 1 == count else take_rows(rows, indices)
