"""A table of columns as an Arrow IPC message: Arrow then opens the whole RecordBatch in one call, without a copy.

Building an Arrow array costs about 2 µs of Python per column: for a batch of a few thousand rows, as much as decoding
it. So each table keeps space before its columns for the header of an IPC message. The header is built once for each
table layout (its buffers are declared as long as their capacity); only the number of rows is written for a batch.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

CONTINUATION = 0xFFFFFFFF  # starts an encapsulated message (Arrow columnar format, "Encapsulated message format")
UNKNOWN_NULLS = -1


class IpcHeader:
    """The header of an IPC message, with the positions of a table's columns.

    `nulls` is a number for each column, `buffers` are (offset, bytes) in Arrow's order; the first `header_bytes` of the
    table's `nbytes` are for the header.
    """

    def __init__(
        self, schema: pa.Schema, header_bytes: int, nbytes: int, nulls: list[int], buffers: list[tuple[int, int]]
    ) -> None:
        # One row, because a flatbuffer leaves out numbers that are zero.
        sample = pa.RecordBatch.from_arrays([pa.nulls(1, f.type) for f in schema], schema=schema).serialize()
        size = int(np.frombuffer(sample, np.int32, 1, 4)[0])
        assert size + 8 <= header_bytes, "the table keeps too little room for its header"
        self._schema = schema
        self._header = np.zeros(header_bytes // 8, np.int64)
        self._header_bytes = self._header.view(np.uint8)
        self._header_bytes[8 : 8 + size] = np.frombuffer(sample, np.uint8, size, 8)
        self._header.view(np.uint32)[0] = CONTINUATION
        self._header.view(np.int32)[1] = header_bytes - 8
        message = 8 + self._load_u32(8)
        self._header[self._field(message, 3) // 8] = nbytes - header_bytes
        batch = self._field(message, 2)
        batch += self._load_u32(batch)
        self._rows_index = self._field(batch, 0) // 8
        at, count = self._vector(self._field(batch, 1))
        assert count == len(nulls) == len(schema)
        self._node_rows = self._header[at : at + 2 * count : 2]
        self._header[at + 1 : at + 2 * count : 2] = nulls
        at, count = self._vector(self._field(batch, 2))
        assert count == len(buffers)
        self._header[at : at + 2 * count].reshape(-1, 2)[:] = [(place - header_bytes, size) for place, size in buffers]

    # A flatbuffer: a table starts with the distance to its vtable, which has the offset of each field.

    def _load_u32(self, at: int) -> int:
        return int(self._header_bytes[at : at + 4].view(np.uint32)[0])

    def _field(self, table: int, number: int) -> int:
        vtable = table - int(self._header_bytes[table : table + 4].view(np.int32)[0])
        return table + int(self._header_bytes[vtable + 4 + 2 * number :][:2].view(np.uint16)[0])

    def _vector(self, at: int) -> tuple[int, int]:
        """Where the structs of two int64 start, and how many there are."""
        at += self._load_u32(at)
        return (at + 4) // 8, self._load_u32(at)

    def record_batch(self, memory: NDArray[np.uint8], rows: int) -> pa.RecordBatch:
        """A batch of this many rows, with its columns in `memory`."""
        self._header[self._rows_index] = rows
        self._node_rows[:] = rows
        memory[: len(self._header_bytes)] = self._header_bytes
        return pa.ipc.read_record_batch(pa.py_buffer(memory), self._schema)
