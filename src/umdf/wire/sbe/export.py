"""Decoded messages as tables for other programs: exact decimals, dates and readable text instead of numbers and codes.

Times stay nanoseconds (or seconds) since the epoch and codes stay numbers, exactly as sent.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from umdf.wire.sbe.schema import SIZES

INT64_DIGITS = 19  # of the largest int64
CHARACTERS = pa.array([chr(code) for code in range(256)])


def to_readable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A RecordBatch of `decode` with its decimals as decimal128, its dates as date32 and its texts as strings."""
    arrays = [_readable(array, field) for array, field in zip(batch.columns, batch.schema, strict=True)]
    fields = [
        pa.field(field.name, array.type, field.nullable, field.metadata)
        for array, field in zip(arrays, batch.schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, batch.schema.metadata))


def _readable(array: pa.Array, field: pa.Field) -> pa.Array:
    metadata = field.metadata or {}
    if pa.types.is_list(array.type):
        struct = array.values
        inner = struct.type
        parts = [_readable(struct.field(i), inner.field(i)) for i in range(inner.num_fields)]
        entries = pa.StructArray.from_arrays(parts, names=[inner.field(i).name for i in range(inner.num_fields)])
        return pa.ListArray.from_arrays(array.offsets, entries)
    if pa.types.is_binary(array.type):
        return _text(array)
    if b"exponent" in metadata:
        return _decimal(array, -int(metadata[b"exponent"]))
    if b"date" in metadata:
        return array.cast(pa.int32()).cast(pa.date32())
    if metadata.get(b"char") == b"1":
        return CHARACTERS.take(array)
    return array


def _decimal(array: pa.Array, scale: int) -> pa.Array:
    """int64 mantissas as decimal128: sign-extended, so that nothing is computed digit by digit."""
    mantissas = np.frombuffer(array.buffers()[1], np.int64, len(array), array.offset * SIZES["int64"])
    wide = np.empty((len(array), 2), np.int64)
    wide[:, 0] = mantissas
    wide[:, 1] = mantissas >> 63
    validity = None
    if array.null_count:
        validity = pa.py_buffer(np.packbits(array.is_valid().to_numpy(zero_copy_only=False), bitorder="little"))
    return pa.Array.from_buffers(pa.decimal128(INT64_DIGITS, scale), len(array), [validity, pa.py_buffer(wide)])


def _text(array: pa.Array) -> pa.Array:
    try:
        return pc.cast(array, pa.string())
    except pa.ArrowInvalid:  # not UTF-8 somewhere: keep the bytes readable
        texts = [None if value is None else value.decode("utf-8", "backslashreplace") for value in array.to_pylist()]
        return pa.array(texts, pa.string())
