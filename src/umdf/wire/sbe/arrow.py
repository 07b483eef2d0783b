"""Decoded columns as Arrow, without a copy.

A message is a row; a group is a list of structs; a field of several parts is `field.part`. Columns keep what was sent:
integers and codes as they are (a single char as its code), decimals as their mantissa, times as their number. Their
meaning is in each field's metadata: tag, type, exponent, time_unit, date.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from umdf.wire.sbe.decode import Batch
from umdf.wire.sbe.ipc_header import UNKNOWN_NULLS, IpcHeader
from umdf.wire.sbe.layout import Column, Layout, Node
from umdf.wire.sbe.schema import Data

KEY_FIELDS = [pa.field("packet", pa.uint32(), nullable=False), pa.field("msg_index", pa.uint16(), nullable=False)]


def arrow_type(column: Column) -> pa.DataType:
    return pa.binary() if column.is_text else pa.from_numpy_dtype(column.dtype)


def _field(column: Column) -> pa.Field:
    field = column.field
    metadata = {"tag": str(field.tag), "type": field.type}
    if column.part.primitive == "char":
        metadata["char"] = str(column.part.length)
    if field.exponent is not None:
        metadata["exponent"] = str(field.exponent)
    if field.time_unit is not None:
        metadata["time_unit"] = str(field.time_unit)
    if field.is_date:
        metadata["date"] = "days"
    return pa.field(column.name, arrow_type(column), metadata=metadata)


def _data_field(data: Data) -> pa.Field:
    return pa.field(data.name, pa.binary(), metadata={"tag": str(data.tag), "type": data.type})


def _node_fields(layout: Layout, node: Node) -> list[pa.Field]:
    fields = [_field(column) for column in node.columns]
    for group, child in zip(node.block.groups, node.children, strict=True):
        entry = pa.struct(_node_fields(layout, layout.nodes[child]))
        fields.append(pa.field(group.name, pa.list_(pa.field("item", entry, nullable=False)), nullable=False))
    return fields + [_data_field(data) for data in node.block.data]


def arrow_schema(layout: Layout, template_id: int) -> pa.Schema:
    """The columns of one template's RecordBatch."""
    schema = layout.arrow_schemas.get(template_id)
    if schema is None:
        node = layout.roots[template_id]
        metadata = {"template_id": str(template_id), "name": node.path, "schema_version": str(layout.schema.version)}
        schema = pa.schema(KEY_FIELDS + _node_fields(layout, node), metadata=metadata)
        layout.arrow_schemas[template_id] = schema
    return schema


def record_batch(batch: Batch, template_id: int) -> pa.RecordBatch:
    """The messages of one template."""
    node = batch.layout.roots[template_id]
    rows = batch.rows.item(node.index)
    if not rows:
        return pa.RecordBatch.from_pylist([], schema=arrow_schema(batch.layout, template_id))
    table, memory = batch.store_of(node)
    if not table.offsets:
        if not batch.has_validity:
            batch.fill_retired(node)
        key = batch.has_validity, batch.tracked(node)
        envelope = table.ipc_headers.get(key)
        if envelope is None:
            envelope = table.ipc_headers[key] = _ipc_header(batch, node, arrow_schema(batch.layout, template_id))
        return envelope.record_batch(memory.array, rows)
    schema = arrow_schema(batch.layout, template_id)
    whole = pa.py_buffer(memory.array)
    own = [
        pa.Array.from_buffers(KEY_FIELDS[0].type, rows, [None, whole.slice(table.packet, 4 * rows)], null_count=0),
        pa.Array.from_buffers(KEY_FIELDS[1].type, rows, [None, whole.slice(table.index, 2 * rows)], null_count=0),
    ]
    return pa.RecordBatch.from_arrays(own + _arrays(batch, node, schema.types[2:]), schema=schema)


def _ipc_header(batch: Batch, node: Node, schema: pa.Schema) -> IpcHeader:
    """A message without groups or data: its columns are one block of memory."""
    table = batch.store_of(node)[0]
    buffers = [
        (table.header_bytes, 0),
        (table.packet, 4 * table.capacity),
        (table.header_bytes, 0),
        (table.index, 2 * table.capacity),
    ]
    nulls = [0, 0]
    for i, column in enumerate(node.columns):
        known = batch.has_bitmap(node, i)
        nulls.append(UNKNOWN_NULLS if known else 0)
        buffers.append((table.bitmaps[i], table.capacity // 8 if known else 0))
        size = column.part.size * table.capacity
        if column.is_text:
            buffers += [(table.values[i], 4 * (table.capacity + 1)), (table.text[i], size)]
        else:
            buffers.append((table.values[i], size))
    return IpcHeader(schema, table.header_bytes, table.nbytes, nulls, buffers)


def _arrays(batch: Batch, node: Node, types: list[pa.DataType]) -> list[pa.Array]:
    rows = int(batch.rows[node.index])
    if not rows:
        return [pa.array([], kind) for kind in types]
    table, memory = batch.store_of(node)
    if not batch.has_validity:
        batch.fill_retired(node)
    whole, arrays = pa.py_buffer(memory.array), []
    for i, (column, kind) in enumerate(zip(node.columns, types, strict=False)):
        validity = whole.slice(table.bitmaps[i], (rows + 7) // 8) if batch.has_bitmap(node, i) else None
        if column.is_text:
            buffers = [validity, whole.slice(table.values[i], 4 * (rows + 1)), whole.slice(table.text[i])]
        else:
            buffers = [validity, whole.slice(table.values[i], column.part.size * rows)]
        arrays.append(pa.Array.from_buffers(kind, rows, buffers, null_count=0 if validity is None else -1))
    parts = zip(table.offsets, types[len(node.columns) :], [*node.children, *node.data], strict=True)
    for i, (place, kind, number) in enumerate(parts):
        offsets = whole.slice(place, 4 * (rows + 1))
        if i < len(node.children):
            entries = _arrays(batch, batch.layout.nodes[number], [f.type for f in kind.value_type])
            count = int(batch.rows[number])
            entry = pa.Array.from_buffers(kind.value_type, count, [None], null_count=0, children=entries)
            arrays.append(pa.ListArray.from_buffers(kind, rows, [None, offsets], null_count=0, children=[entry]))
        else:
            # Null and empty are encoded the same way (3.5), and read as null.
            lengths = np.diff(np.frombuffer(offsets, np.int32))
            validity = pa.py_buffer(np.packbits(lengths != 0, bitorder="little"))
            arrays.append(pa.Array.from_buffers(kind, rows, [validity, offsets, pa.py_buffer(batch.data(number))]))
    return arrays
