"""Converts prices and times to the requested types; the lake stores both as BIGINT.

Invariant: "decimal" and timestamps are exact. decimal(19, 9) holds every BIGINT of 1e-9, timestamp[ns] every BIGINT
of nanoseconds. Spark's TIMESTAMP has microseconds, so each time has a column `<name>_ns` beside it. "float" is the
nearest double. The unit in the schema (umdf.lake.schemas) identifies prices and times, also inside lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.lake.query.arrays import int64_values, int_array, is_valid
from umdf.lake.query.name_lookup import check_choice
from umdf.market.families import NULL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PRICE, TIME, VOLUME = "1e-9", "ns since 1970 UTC", "1"  # units of columns
PRICE_TYPES = ("decimal", "fixed", "float")
DECIMAL, TIMESTAMP = pa.decimal128(19, 9), pa.timestamp("ns", "UTC")
MAX_EXACT_INT = 1 << 53  # integers up to this are exact as doubles
# decimal(19,0) × decimal(9,9) is decimal(29,9): no digit is lost.
SPARK_EXPRESSIONS = {
    (PRICE, "decimal"): "CAST(CAST({0} AS DECIMAL(19,0)) * 0.000000001BD AS DECIMAL(19,9))",
    (PRICE, "float"): "CAST(CAST({0} AS DECIMAL(19,0)) * 0.000000001BD AS DOUBLE)",
    (VOLUME, "float"): "CAST({0} AS DOUBLE)",
}
SPARK_TIME_EXPRESSION = "timestamp_micros(({0} - pmod({0}, 1000)) DIV 1000)"


@dataclass(frozen=True)
class OutputFormat:
    """The requested types of prices and times."""

    price_type: str = "decimal"
    pretty_ts: bool = True

    def __post_init__(self) -> None:
        check_choice("price_type", self.price_type, PRICE_TYPES)

    def schema(self, stored: pa.Schema) -> pa.Schema:
        return pa.schema([self._output_field(field) for field in stored])

    def to_table(self, rows: pa.Table) -> pa.Table:
        """Convert stored rows, whose schema has the units."""
        schema = self.schema(rows.schema)
        columns = [self._column(rows.column(at), rows.schema.field(at)) for at in range(rows.num_columns)]
        return pa.Table.from_arrays(columns, schema=schema)

    def to_spark(self, frame: DataFrame, stored: pa.Schema, columns: Sequence[str]) -> DataFrame:
        """Convert a frame of stored columns; columns that are not in `stored` are unchanged."""
        forms = []
        for name in columns:
            field = stored.field(name) if name in stored.names else None
            forms.append(f"{self._spark_expression(field, f'`{name}`') if field else f'`{name}`'} AS `{name}`")
            if field is not None and self.pretty_ts and unit_of(field) == TIME:
                forms.append(f"`{name}` AS `{name}_ns`")
        return frame.selectExpr(*forms)

    def _output_type(self, field: pa.Field) -> Any:
        kind: Any = field.type
        if pa.types.is_list(kind):
            return pa.list_(self._output_field(kind.value_field))
        if pa.types.is_struct(kind):
            return pa.struct([self._output_field(each) for each in kind])
        unit = unit_of(field)
        if unit == TIME and self.pretty_ts:
            return TIMESTAMP
        if unit == PRICE and self.price_type == "decimal":
            return DECIMAL
        return pa.float64() if unit in (PRICE, VOLUME) and self.price_type == "float" else kind

    def _output_field(self, field: pa.Field) -> pa.Field:
        kind = self._output_type(field)
        kept = {key: value for key, value in (field.metadata or {}).items() if kind == field.type or key == b"doc"}
        return pa.field(field.name, kind, field.nullable, kept or None)

    def _column(self, column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
        kind = self._output_type(field)
        return column if kind == field.type else pa.chunked_array([self._array(c, field) for c in column.chunks], kind)

    def _array(self, array: Any, field: pa.Field) -> pa.Array:
        kind = self._output_type(field)
        if kind == field.type:
            return array
        if pa.types.is_list(kind):
            values = self._array(array.flatten(), field.type.value_field)  # pyright: ignore[reportAttributeAccessIssue]
            lengths = int64_values(array.value_lengths())
            ends = np.cumsum(np.where(lengths == NULL, 0, lengths))
            offsets = int_array(np.concatenate([[0], ends]), pa.int32())
            return pa.ListArray.from_arrays(offsets, values, kind, mask=array.is_null() if array.null_count else None)
        if pa.types.is_struct(kind):
            parts = [self._array(array.field(at), each) for at, each in enumerate(field.type)]  # pyright: ignore[reportArgumentType]
            return pa.StructArray.from_arrays(parts, fields=list(kind))
        if kind == TIMESTAMP:
            return array.cast(TIMESTAMP)
        if not pa.types.is_integer(array.type):
            return array.cast(pa.float64())
        content = _to_decimal128(int64_values(array)) if kind == DECIMAL else to_float64(int64_values(array))
        validity = pa.py_buffer(np.packbits(is_valid(array), bitorder="little")) if array.null_count else None
        return pa.Array.from_buffers(kind, len(array), [validity, pa.py_buffer(content)])

    def _spark_expression(self, field: pa.Field, value: str, nesting: int = 0) -> str:
        kind: Any = field.type
        if pa.types.is_list(kind) and kind != self._output_type(field):  # structs that contain prices
            each = f"each{nesting}"
            parts = [
                f"'{one.name}', {self._spark_expression(one, f'{each}.`{one.name}`', nesting + 1)}"
                for one in kind.value_type
            ]
            return f"transform({value}, {each} -> named_struct({', '.join(parts)}))"
        if unit_of(field) == TIME and self.pretty_ts:
            return SPARK_TIME_EXPRESSION.format(value)
        return SPARK_EXPRESSIONS.get((unit_of(field), self.price_type), "{0}").format(value)


def unit_of(field: pa.Field) -> str:
    return (field.metadata or {}).get(b"unit", b"").decode()


def to_float64(values: NDArray[np.int64]) -> NDArray[np.float64]:
    """Integers of 1e-9 as the nearest doubles."""
    found = values / 1e9
    large = np.abs(values) >= MAX_EXACT_INT
    if large.any():
        found[large] = (values[large].astype(np.longdouble) / 10**9).astype(np.float64)
    return found


def _to_decimal128(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same integers as 128-bit decimals with a scale: nothing is divided."""
    wide = np.empty((len(values), 2), np.int64)
    wide[:, 0] = values
    np.right_shift(values, 63, out=wide[:, 1])
    return wide
