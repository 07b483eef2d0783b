"""A batch as Arrow RecordBatches, without a copy of what was decoded; only constants are written out here.

The first column is the message's number in the batch. A decimal is its mantissa and `name.exponent`; an optional
group is a boolean column (present or not); a sequence is a list of structs. Text that is not valid UTF-8 (R2) is
shown with replacement characters: the bytes themselves are in `Batch.text`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from umdf.wire.fast.decode.batch import Batch
from umdf.wire.fast.layout import DTYPES, Column, Constant, Layout, ListColumn, Node, RowItem
from umdf.wire.fast.templates import ASCII, BYTES, DECIMAL, INT32, INT64, UNICODE, Decimal, Value

TYPES = {
    "int32": pa.int32(),
    "uInt32": pa.uint32(),
    "int64": pa.int64(),
    "uInt64": pa.uint64(),
    ASCII: pa.string(),
    UNICODE: pa.string(),
    BYTES: pa.binary(),
}


def arrow_schema(layout: Layout, template_id: int) -> pa.Schema:
    return pa.schema([pa.field("message", pa.uint32(), nullable=False), *_fields(layout, layout.roots[template_id])])


def record_batch(batch: Batch, root: Node) -> pa.RecordBatch:
    """The messages of one template."""
    assert root.template.id is not None
    rows = int(batch.rows[root.index])
    numbers = batch.message(root) if rows else np.zeros(0, np.uint32)
    message = pa.Array.from_buffers(pa.uint32(), rows, [None, pa.py_buffer(numbers)])
    arrays = [message, *_arrays(batch, root)]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(batch.layout, root.template.id))


def _fields(layout: Layout, node: Node) -> list[pa.Field]:
    fields = []
    for item in node.items:
        nullable = item.bit >= 0
        if isinstance(item, Column):
            fields.append(pa.field(item.name, TYPES[item.type], nullable))
        elif isinstance(item, Constant):
            fields += [pa.field(name, TYPES[type], nullable) for name, type, _ in _constant_columns(item)]
        elif isinstance(item, ListColumn):
            entries = pa.struct(_fields(layout, layout.nodes[item.child]))
            fields.append(pa.field(item.name, pa.list_(pa.field("item", entries, nullable=False)), nullable))
        else:
            fields.append(pa.field(item.name, pa.bool_(), nullable=False))
    return fields


def _constant_columns(constant: Constant) -> list[tuple[str, str, Value]]:
    """The columns of a constant: two if it is a decimal."""
    if constant.field.type != DECIMAL:
        return [(constant.name, constant.field.type, constant.value)]
    assert isinstance(constant.value, Decimal)
    exponent, mantissa = constant.value
    return [(constant.name, INT64, mantissa), (f"{constant.name}.exponent", INT32, exponent)]


def _arrays(batch: Batch, node: Node) -> list[pa.Array]:
    rows = int(batch.rows[node.index])
    arrays = []
    for item in node.items:
        if isinstance(item, Constant):
            arrays += [
                _constant_array(value, type, rows, _validity(batch, node, item))
                for _, type, value in _constant_columns(item)
            ]
        elif isinstance(item, ListColumn):
            arrays.append(_list(batch, node, item))
        elif not rows:
            arrays.append(pa.nulls(0, TYPES[item.type] if isinstance(item, Column) else pa.bool_()))
        elif not isinstance(item, Column):
            arrays.append(pa.Array.from_buffers(pa.bool_(), rows, [None, _validity(batch, node, item)]))
        elif item.is_text:
            arrays.append(_text(batch, node, item))
        else:
            values = pa.py_buffer(batch.values(node, item))
            arrays.append(pa.Array.from_buffers(TYPES[item.type], rows, [_validity(batch, node, item), values]))
    return arrays


def _validity(batch: Batch, node: Node, item: RowItem) -> pa.Buffer | None:
    bitmap = batch.bitmap(node, item) if batch.rows[node.index] else None
    return None if bitmap is None else pa.py_buffer(bitmap)


def _text(batch: Batch, node: Node, column: Column) -> pa.Array:
    rows = int(batch.rows[node.index])
    offsets, content = batch.text(node, column)
    buffers = [_validity(batch, node, column), pa.py_buffer(offsets), pa.py_buffer(content)]
    array = pa.Array.from_buffers(TYPES[column.type], rows, buffers)
    if column.type != UNICODE:
        return array
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        parts = pa.Array.from_buffers(pa.binary(), rows, buffers).to_pylist()
        return pa.array([None if part is None else part.decode("utf-8", "replace") for part in parts], pa.string())
    return array


def _list(batch: Batch, node: Node, item: ListColumn) -> pa.Array:
    rows, child = int(batch.rows[node.index]), batch.layout.nodes[item.child]
    fields = _fields(batch.layout, child)
    entries = pa.StructArray.from_buffers(
        pa.struct(fields), int(batch.rows[child.index]), [None], children=_arrays(batch, child)
    )
    kind = pa.list_(pa.field("item", entries.type, nullable=False))
    offsets = batch.offsets(node, item) if rows else np.zeros(1, np.int32)
    return pa.ListArray.from_buffers(
        kind, rows, [_validity(batch, node, item), pa.py_buffer(offsets)], children=[entries]
    )


def _constant_array(value: Value, type: str, rows: int, validity: pa.Buffer | None) -> pa.Array:
    """The same value in every row, except where the bitmap marks it absent. Built from buffers, because Arrow would
    import pandas to inspect a Python value."""
    if type in DTYPES:
        return pa.Array.from_buffers(TYPES[type], rows, [validity, pa.py_buffer(np.full(rows, value, DTYPES[type]))])
    assert isinstance(value, str | bytes)
    content = value.encode() if isinstance(value, str) else value
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(len(content))
    return pa.Array.from_buffers(TYPES[type], rows, [validity, pa.py_buffer(offsets), pa.py_buffer(content * rows)])
