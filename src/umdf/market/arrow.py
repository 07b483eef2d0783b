"""Events at the Arrow boundary: each family as a RecordBatch, NULL where a value is absent.

Invariant: nothing is copied that can be shared. A column of numbers keeps its memory; a validity bitmap is built only
if a value is absent; values of the packet are gathered from it.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.market.calendar import local_dates
from umdf.market.families import COMMON, FAMILIES, UNIT_COLUMNS, Column, Family
from umdf.market.rows import Events, Numbers, RepeatingGroup, Rows, Text, Units, strings_of

# Type of a column: its Arrow type, and the meaning of its numbers (unit, scale) for readers of the schema.
TYPES: dict[str, tuple[pa.DataType, dict[str, str]]] = {
    "i64": (pa.int64(), {}),
    "i32": (pa.int32(), {}),
    "i16": (pa.int16(), {}),
    "i8": (pa.int8(), {}),
    "price": (pa.int64(), {"unit": "1e-9", "scale": "9"}),
    "volume": (pa.decimal128(28, 4), {"unit": "1", "scale": "4"}),
    "ns": (pa.int64(), {"unit": "ns since 1970 UTC"}),
    "date": (pa.date32(), {"unit": "days since 1970"}),
    "char": (pa.utf8(), {}),
    "text": (pa.utf8(), {}),
}
JOINED = (
    Column("symbol", "text", "symbol of the instrument, from its latest definition (55)"),
    Column("trading_date", "date", "trading date: the date of ts_send in São Paulo"),
)


def _field(column: Column) -> pa.Field:
    kind, meaning = TYPES[column.type]
    return pa.field(column.name, kind, nullable=column.nullable, metadata={"doc": column.doc, **meaning})


def _list_field(name: str, columns: tuple[Column, ...]) -> pa.Field:
    entry = pa.struct([_field(column) for column in columns])
    return pa.field(name, pa.list_(pa.field("item", entry, nullable=False)), nullable=False)


def schema(family: Family, *, joined: bool = False) -> pa.Schema:
    """The columns of a family; with `joined`, also those that are looked up (a definition has its own symbol)."""
    return _schema(family.name, joined)


@cache
def _schema(name: str, joined: bool) -> pa.Schema:
    family = FAMILIES[name]
    fields = [_field(column) for column in (*COMMON, *family.columns)]
    fields += [_list_field(name, columns) for name, columns in family.lists.items()]
    fields += [_field(column) for column in _joined_columns(family)] if joined else []
    return pa.schema(fields, metadata={"family": family.name, "doc": family.doc})


def _joined_columns(family: Family) -> list[Column]:
    own = {column.name for column in family.columns}
    return [column for column in JOINED if column.name not in own]


class SymbolLookup(Protocol):
    def symbols_of(self, ids: Numbers, /) -> pa.Array: ...


def record_batch(events: Events, name: str, instruments: SymbolLookup | None = None) -> pa.RecordBatch:
    """The rows of a family. With `instruments`, also their symbols and trading dates."""
    rows, family = events.rows(name), FAMILIES[name]
    count = len(rows)
    own_units = count == len(events.units) and bool((rows.unit == np.arange(count)).all())  # a unit for each row
    arrays = [_common_array(column, rows, events.units, own_units) for column in COMMON]
    arrays += [_own_array(column, rows) for column in family.columns]
    arrays += [_list_array(family.lists[item], rows.lists.get(item), count) for item in family.lists]
    if instruments is not None:
        joins = {
            "symbol": lambda: instruments.symbols_of(rows.column("instrument_id")),
            "trading_date": lambda: numbers_array(JOINED[1], local_dates(events.units.ts_send)[rows.unit]),
        }
        arrays += [joins[column.name]() for column in _joined_columns(family)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema(family, joined=instruments is not None))


def _common_array(column: Column, rows: Rows, units: Units, own_units: bool) -> pa.Array:
    if column.name in UNIT_COLUMNS:
        of_unit: Numbers = getattr(units, column.name)
        return numbers_array(column, of_unit if own_units else of_unit[rows.unit])
    if column.name in ("msg_index", "entry_index"):
        return numbers_array(column, getattr(rows, column.name))
    return _own_array(column, rows)


def _own_array(column: Column, rows: Rows) -> pa.Array:
    if column.is_text:
        text = rows.texts.get(column.name)
        return pa.nulls(len(rows), pa.utf8()) if text is None else _text_array(text)
    values = rows.columns.get(column.name)
    if values is None and column.nullable:
        return pa.nulls(len(rows), TYPES[column.type][0])
    return numbers_array(column, rows.column(column.name))


def numbers_array(column: Column, values: Numbers) -> pa.Array:
    """A column of numbers (or chars), not copied, with a validity bitmap if values are absent."""
    values = np.ascontiguousarray(values, column.dtype)
    validity, nulls = _validity(values != column.null) if column.nullable else (None, 0)
    if column.type == "char":
        return _char_array(values, validity, nulls)
    kind = TYPES[column.type][0]
    content = _to_decimal128(values) if column.type == "volume" else values
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(content)], null_count=nulls)


def _validity(present: NDArray[np.bool_]) -> tuple[pa.Buffer | None, int]:
    nulls = len(present) - int(np.count_nonzero(present))
    return (pa.py_buffer(np.packbits(present, bitorder="little")), nulls) if nulls else (None, 0)


def _to_decimal128(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64 → the two halves of a 128-bit integer."""
    wide = np.empty((len(values), 2), np.int64)
    wide[:, 0] = values
    np.right_shift(values, 63, out=wide[:, 1])
    return wide


def _char_array(values: NDArray[np.uint8], validity: pa.Buffer | None, nulls: int) -> pa.Array:
    """One byte is one character: the column is the text itself, only the offsets are added."""
    if len(values) and values.max() > 127:  # not a character by itself: bad data
        return pa.array([None if value == 0 else chr(value) if value < 128 else "\ufffd" for value in values.tolist()])
    offsets = np.arange(len(values) + 1, dtype=np.int32)
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.utf8(), len(values), buffers, null_count=nulls)


def _text_array(text: Text) -> pa.Array:
    offsets, content = text
    first, last = int(offsets[0]), int(offsets[-1])
    used = content[first:last]
    if len(used) and used.max() > 127:  # may end in mid-character or not be UTF-8 at all: check each string
        return pa.array([string or None for string in strings_of(text)], pa.utf8())
    validity, nulls = _validity(np.diff(offsets) != 0)
    buffers = [validity, pa.py_buffer(np.ascontiguousarray(offsets, np.int32)), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.utf8(), len(offsets) - 1, buffers, null_count=nulls)


def _list_array(columns: tuple[Column, ...], group: RepeatingGroup | None, rows: int) -> pa.Array:
    """A list of structs for each row. No entries is an empty list, never NULL."""
    kind: Any = _list_field("", columns).type
    if group is None:
        empty = pa.array([], kind.value_type)
        return pa.ListArray.from_buffers(
            kind, rows, [None, pa.py_buffer(np.zeros(rows + 1, np.int32))], children=[empty]
        )
    count = int(group.offsets[-1])
    entries = [_entry_array(column, group, count) for column in columns]
    struct = pa.Array.from_buffers(kind.value_type, count, [None], null_count=0, children=entries)
    offsets = pa.py_buffer(np.ascontiguousarray(group.offsets, np.int32))
    return pa.ListArray.from_buffers(kind, rows, [None, offsets], null_count=0, children=[struct])


def _entry_array(column: Column, group: RepeatingGroup, count: int) -> pa.Array:
    if column.is_text:
        text = group.texts.get(column.name)
        return pa.nulls(count, pa.utf8()) if text is None else _text_array((text[0][: count + 1], text[1]))
    values = group.columns.get(column.name)
    return pa.nulls(count, TYPES[column.type][0]) if values is None else numbers_array(column, values[:count])
