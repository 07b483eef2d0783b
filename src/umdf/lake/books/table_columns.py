"""Internal arrays → the columns of a table of the lake.

Invariant: internal absent values (the smallest number, an empty char) are NULL in the table. Strings with few distinct
values are dictionaries, which the Parquet writer uses directly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.buffers import buffer_address
from umdf.lake.books import table_columns_kernel as k
from umdf.lake.schemas import table as table_named
from umdf.market import arrow
from umdf.market.families import Column
from umdf.market.rows import Events

COLUMN_KINDS = {
    pa.int64(): "i64",
    pa.int32(): "i32",
    pa.int16(): "i16",
    pa.int8(): "i8",
    pa.date32(): "date",
    arrow.TYPES["volume"][0]: "volume",
}


def char_array(values: NDArray[np.uint8]) -> pa.Array:
    """One-character strings; 0 is NULL."""
    codes, values = np.full(k.NON_ASCII + 1, k.UNSEEN, np.uint8), np.ascontiguousarray(values)
    codes[0] = k.ABSENT
    indices = np.empty(len(values), np.uint8)
    count = k.encode_chars(buffer_address(values), len(values), buffer_address(codes), buffer_address(indices))
    used = np.flatnonzero(codes < count)
    used = used[np.argsort(codes[used])].tolist()
    letters = pa.array(["\ufffd" if letter == k.NON_ASCII else chr(letter) for letter in used], pa.utf8())
    absent = indices == k.ABSENT
    mask = absent if absent.any() else None
    return pa.DictionaryArray.from_arrays(pa.array(indices.view(np.int8), mask=mask), letters)


def symbol_column(symbols: pa.Array, symbol_rows: NDArray[Any]) -> pa.Array:
    """The symbols of instruments, from their indices in `symbols`."""
    known = symbols.is_valid().to_numpy(zero_copy_only=False)[symbol_rows] if symbols.null_count else None
    mask = None if known is None else ~known
    indices = pa.array(np.ascontiguousarray(symbol_rows, np.int32), mask=mask)
    return pa.DictionaryArray.from_arrays(indices, symbols.fill_null(""))


def table_from_columns(name: str, columns: Mapping[str, Any], symbols: pa.Array, symbol_rows: NDArray[Any]) -> pa.Table:
    """Rows of a table from numpy columns (chars as bytes, prices and times as integers) or Arrow arrays."""
    arrays = []
    for each in table_named(name).file_schema:
        if each.name == "symbol":
            arrays.append(symbol_column(symbols, symbol_rows))
            continue
        values = columns[each.name]
        arrays.append(values if isinstance(values, pa.Array) else _array(each, values))
    return pa.Table.from_arrays(arrays, table_named(name).file_schema.names)


def _array(each: pa.Field, values: NDArray[Any]) -> pa.Array:
    if each.type == pa.utf8():
        return char_array(values)
    return arrow.numbers_array(Column(each.name, COLUMN_KINDS[each.type], "", each.nullable), values)


def family_table(
    events: Events, name: str, flags: NDArray[np.int32], symbols: pa.Array, symbol_rows: NDArray[Any]
) -> pa.Table:
    """Rows of a family unchanged, except for new flags, and with symbols."""
    rows = events.rows(name)
    rows.columns["flags"] = flags
    batch = arrow.record_batch(events, name)
    names = [each for each in batch.schema.names if each not in table_named(name).partition]
    letters = {column.name for column in rows.family.columns if column.type == "char"}
    arrays = [char_array(rows.column(each)) if each in letters else batch.column(each) for each in names]
    return pa.Table.from_arrays([*arrays, symbol_column(symbols, symbol_rows)], [*names, "symbol"])
