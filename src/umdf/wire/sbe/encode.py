"""Columns → packets: the inverse of `decode`, a whole batch at a time.

    encoder = Encoder(load())
    packets = encoder.encode(headers, [orders, trades])     # RecordBatches with the columns that decode gives
    packets.buffer, packets.start, packets.end

`packet` and `msg_index` give the position of each row. Absent values become the null value of their type, which callers
must not use as a value; constants and padding are filled in. `version` encodes as an older schema
version did, which has no later templates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from umdf.errors import EncodeError
from umdf.units import decimal_text
from umdf.wire.columns import exact, refuse_non_ascii, shown
from umdf.wire.sbe import tables_kernel as k
from umdf.wire.sbe.arrow import arrow_type
from umdf.wire.sbe.encode_kernel import scatter, scatter_bytes
from umdf.wire.sbe.layout import Column, Layout, Node
from umdf.wire.sbe.schema import REQUIRED, Group, Message, Part, Schema

MAX_PAYLOAD_BYTES = 65507  # what UDP carries over IPv4
HEADER_FIELDS = {"channel": (0, "u1"), "seq_version": (2, "<u2"), "sequence": (4, "<u4"), "sending_time": (8, "<u8")}

NULLS_IN_PLACE = "nulls_in_place"  # metadata of a RecordBatch of ours that holds null values where values are absent
TILE_ROWS = 4096  # rows that are written column by column before the next

Offsets = NDArray[np.int64]
ColumnWrite = tuple[int, NDArray[np.generic] | pa.Array]


@dataclass(frozen=True)
class EncodedPackets:
    buffer: NDArray[np.uint8]
    start: Offsets
    end: Offsets


@dataclass(frozen=True)
class _NodeRows:
    """The columns of one node, as arrays of the right type without nulls, and what follows each row."""

    node: Node
    count: int
    columns: list[pa.Array]
    children: list[tuple[NDArray[np.int32], _NodeRows]]  # offsets of the entries, the entries
    data: list[pa.Array]
    length: Offsets  # of each row: its block and everything after it


class Encoder:
    def __init__(self, schema: Schema, version: int | None = None) -> None:
        self.layout = Layout(schema)
        self.version = schema.version if version is None else version
        if not isinstance(self.version, int) or not 0 <= self.version <= 0xFFFF:
            raise EncodeError(f"version {shown(self.version)} does not fit the message header: 0 to {0xFFFF}")

    def encode(self, headers: Mapping[str, Any], batches: Iterable[pa.RecordBatch]) -> EncodedPackets:
        """Packets with these headers (channel, seq_version, sequence, sending_time: an array or one value each)."""
        tables = [self._message_rows(batch) for batch in batches if batch.num_rows]
        packets = max((int(packet.max()) + 1 for _, packet, _ in tables), default=0)
        packets = max([packets, *(len(value) for value in headers.values() if np.ndim(value))])
        first, lengths, orders = _order(tables, packets)
        ends = np.cumsum(lengths)
        offsets = ends - lengths + k.PACKET_HEADER * (1 + np.repeat(np.arange(packets), np.diff(first)))
        sizes = np.diff(np.concatenate([[0], ends])[first]) + k.PACKET_HEADER
        if packets and int(sizes.max()) > MAX_PAYLOAD_BYTES:
            raise EncodeError(
                f"packet {int(sizes.argmax())} would have {int(sizes.max())} bytes; UDP carries {MAX_PAYLOAD_BYTES}"
            )
        end = np.cumsum(sizes)
        start = end - sizes
        buffer = np.zeros(int(end[-1]) if packets else 0, np.uint8)
        named = HEADER_FIELDS.items()
        _write_columns(
            buffer,
            start,
            [(at, _header_column(headers.get(name, 0), kind, packets, name)) for name, (at, kind) in named],
        )
        for (rows, _, _), order in zip(tables, orders, strict=True):
            self._write_messages(buffer, rows, offsets[order], lengths[order])
        return EncodedPackets(buffer, start, end)

    def _message_rows(self, batch: pa.RecordBatch) -> tuple[_NodeRows, Offsets, Offsets]:
        metadata = batch.schema.metadata or {}
        node = self.layout.roots.get(int(metadata.get(b"template_id", -1)))
        if node is None:
            raise EncodeError("RecordBatch metadata has no known template_id", "use arrow_schema()")
        assert isinstance(node.block, Message)
        if node.block.since > self.version:
            raise EncodeError(f"{node.path} was added in version {node.block.since}, not in version {self.version}")
        columns = {name: batch.column(name) for name in batch.schema.names}
        for name in ("packet", "msg_index"):
            if name not in columns:
                raise EncodeError(f"{node.path}: column {name} is missing")
        packet, index = (_index_column(columns.pop(name), f"{node.path}.{name}") for name in ("packet", "msg_index"))
        in_place = NULLS_IN_PLACE.encode() in metadata
        return self._node_rows(node, columns, batch.num_rows, in_place), packet, index

    def _null(self, part: Part) -> int | None:
        """The value that means absent in this version."""
        return part.null_before if part.null is None and self.version < self.layout.schema.oldest else part.null

    def _node_rows(
        self, node: Node, columns_by_name: Mapping[str, pa.Array], count: int, nulls_in_place: bool
    ) -> _NodeRows:
        parts = (*node.block.groups, *node.block.data)
        unknown = columns_by_name.keys() - {column.name for column in node.columns} - {part.name for part in parts}
        if unknown:
            raise EncodeError(f"{node.path} has no column {min(unknown)!r}")
        columns = []
        for column in node.columns:
            array = columns_by_name.get(column.name)
            kind, null, name = arrow_type(column), self._null(column.part), f"{node.path}.{column.name}"
            is_absent = not column.field.in_version(self.version)
            if array is None or is_absent:
                array = pa.nulls(count, kind)
            if column.is_text:
                refuse_non_ascii(array, name)
            values = exact(array, kind, name)
            if null is not None and not column.is_text and not nulls_in_place:
                _refuse_null_values(column, values, null, name)
            if values.null_count:
                if null is None and column.field.presence == REQUIRED and not is_absent:
                    raise EncodeError(f"{name} is required and has no value in some row")
                values = pc.fill_null(values, b"" if column.is_text else null or 0)
            if column.is_text:
                _refuse_long_texts(column, values, name)
            columns.append(values)
        length = np.full(count, node.block.block_length_of(self.version), np.int64)
        children = []
        for group, child in zip(node.block.groups, node.children, strict=True):
            if group.since > self.version:
                continue
            offsets, entries = self._entries(
                group, self.layout.nodes[child], columns_by_name.get(group.name), count, nulls_in_place
            )
            ends = np.concatenate([[0], np.cumsum(entries.length)])
            length += group.length_size + group.count_size + ends[offsets[1:]] - ends[offsets[:-1]]
            children.append((offsets, entries))
        data = []
        for field in node.block.data:
            if field.since > self.version:
                continue
            array = columns_by_name.get(field.name)
            texts = exact(pa.nulls(count, pa.binary()) if array is None else array, pa.binary(), field.name)
            texts = pc.fill_null(texts, b"")
            sizes = np.diff(_offsets(texts))
            if count and int(sizes.max()) >= 1 << 8 * field.length_size:
                raise EncodeError(f"{node.path}.{field.name} of {int(sizes.max())} bytes does not fit its length")
            length += field.length_size + sizes
            data.append(texts)
        return _NodeRows(node, count, columns, children, data, length)

    def _entries(
        self, group: Group, node: Node, array: Any, count: int, nulls_in_place: bool
    ) -> tuple[NDArray[np.int32], _NodeRows]:
        if array is None:
            array = pa.array([[]] * count, pa.list_(pa.struct([])))
        lists = pc.fill_null(array, []) if array.null_count else array
        offsets = lists.offsets.to_numpy().astype(np.int32)
        offsets -= offsets[0]
        counts = np.diff(offsets)
        if count and int(counts.max()) >= 1 << 8 * group.count_size:
            raise EncodeError(f"{node.path}: {int(counts.max())} entries exceed its counter")
        if not node.block.block_length_of(self.version) and counts.any():
            raise EncodeError(f"{node.path}: entries of zero length are ambiguous")
        entries = lists.flatten()
        given = {entries.type.field(i).name: entries.field(i) for i in range(entries.type.num_fields)}
        return offsets, self._node_rows(node, given, len(entries), nulls_in_place)

    def _write_messages(self, buffer: NDArray[np.uint8], rows: _NodeRows, at: Offsets, lengths: Offsets) -> None:
        message = rows.node.block
        assert isinstance(message, Message)
        header = (k.SBE_LITTLE_ENDIAN, message.block_length_of(self.version), message.template_id)
        header = (*header, self.layout.schema.id, self.version)
        words: list[ColumnWrite] = [(0, lengths.astype("<u2"))]
        words += [(2 + 2 * i, np.array([value], "<u2")) for i, value in enumerate(header)]
        body = [(k.MESSAGE_HEADER + offset, values) for offset, values in self._block_columns(rows)]
        _write_columns(buffer, at, words + body)
        self._write_groups_and_data(buffer, rows, at + k.MESSAGE_HEADER)

    def _block_columns(self, rows: _NodeRows) -> list[ColumnWrite]:
        """The block of each row."""
        return [
            (column.part.offset, array if column.is_text else _values(array, column.dtype))
            for column, array in zip(rows.node.columns, rows.columns, strict=True)
            if column.field.in_version(self.version)
        ]

    def _write_groups_and_data(self, buffer: NDArray[np.uint8], rows: _NodeRows, at: Offsets) -> None:
        """What follows the blocks at these places: groups, then data."""
        at = at + rows.node.block.block_length_of(self.version)
        groups = [group for group in rows.node.block.groups if group.since <= self.version]
        for group, (offsets, entries) in zip(groups, rows.children, strict=True):
            block, counts = entries.node.block.block_length_of(self.version), np.diff(offsets)
            length = np.array([block], f"<u{group.length_size}")
            _write_columns(buffer, at, [(0, length), (group.length_size, counts.astype(f"<u{group.count_size}"))])
            at = at + group.length_size + group.count_size
            ends = np.concatenate([[0], np.cumsum(entries.length)])
            entry_offsets = np.repeat(at - ends[offsets[:-1]], counts) + ends[:-1]
            _write_columns(buffer, entry_offsets, self._block_columns(entries))
            self._write_groups_and_data(buffer, entries, entry_offsets)
            at = at + ends[offsets[1:]] - ends[offsets[:-1]]
        fields = [field for field in rows.node.block.data if field.since <= self.version]
        for field, texts in zip(fields, rows.data, strict=True):
            sizes = np.diff(_offsets(texts))
            _write_columns(buffer, at, [(0, sizes.astype(f"<u{field.length_size}")), (field.length_size, texts)])
            at = at + field.length_size + sizes


def _refuse_null_values(column: Column, array: pa.Array, null: int, name: str) -> None:
    """A value must not be read back as absent."""
    if array.null_count == len(array) or not (_values(array, column.dtype) == null).any():
        return
    if not pc.call_function("any", [pc.call_function("equal", [array, pa.scalar(null, array.type)])]).as_py():
        return  # used only where there is no value
    exponent, is_char = column.field.exponent, column.part.primitive == "char"
    value = shown(chr(null)) if is_char else null if exponent is None else decimal_text(null, exponent)
    raise EncodeError(f"{name}: {value} is the null value", "pass None instead")


def _refuse_long_texts(column: Column, texts: pa.Array, name: str) -> None:
    lengths = np.diff(_offsets(texts))
    if int(lengths.max(initial=0)) > column.part.length:
        longest = texts[int(lengths.argmax())].as_py().decode("utf-8", "backslashreplace")
        raise EncodeError(f"{name} holds at most {column.part.length} bytes, not {shown(longest)}")


def _order(tables: list[tuple[_NodeRows, Offsets, Offsets]], packets: int) -> tuple[Offsets, Offsets, list[Offsets]]:
    """Where each packet's messages start among all, the length of each message in order, and the place of each row."""
    counts = np.zeros(packets, np.int64)
    for _, packet, _ in tables:
        counts += np.bincount(packet, minlength=packets)
    first = np.concatenate([[0], np.cumsum(counts)])
    lengths = np.zeros(int(first[-1]), np.int64)
    orders = []
    for rows, packet, index in tables:
        if bool((index >= counts[packet]).any()):
            raise EncodeError(f"{rows.node.path}: msg_index does not count a packet's messages from 0 without gaps")
        orders.append(first[packet] + index)
        lengths[orders[-1]] = rows.length + k.MESSAGE_HEADER
    if len(lengths) and int(lengths.min()) == 0:
        raise EncodeError("two messages have the same packet and msg_index")
    return first, lengths, orders


def _index_column(array: pa.Array, name: str) -> Offsets:
    """Packets and messages are counted from 0."""
    places = exact(array, pa.int64(), name)
    if places.null_count or int(_values(places, np.dtype(np.int64)).min(initial=0)) < 0:
        raise EncodeError(f"{name} counts from 0 and has a value in every row")
    return places.to_numpy()


def _header_column(value: Any, kind: str, packets: int, name: str) -> NDArray[np.generic]:
    column = np.atleast_1d(np.asarray(value))
    try:
        exact = column.astype(kind)
    except (OverflowError, TypeError, ValueError):
        exact = np.zeros(0, kind)
    if len(column) not in (1, packets) or not np.array_equal(exact, column):
        raise EncodeError(f"header {name}: expected one value, or one per packet ({packets}), of {exact.dtype}")
    return exact


def _values(array: pa.Array, dtype: np.dtype[np.generic]) -> NDArray[np.generic]:
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)


def _offsets(texts: pa.Array) -> NDArray[np.int32]:
    return np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, 4 * texts.offset)


def _write_columns(buffer: NDArray[np.uint8], offsets: Offsets, writes: list[ColumnWrite]) -> None:
    """Write each of these (offset, one value per place or one for all) at each place. A block of places at a time, so
    that the output stays in the cache until the last column is written."""
    offsets = np.ascontiguousarray(offsets)
    columns = [(offset, *_column_source(values, len(offsets))) for offset, values in writes]
    target, places = buffer.ctypes.data, offsets.ctypes.data
    for first in range(0, len(offsets), TILE_ROWS):
        count = min(TILE_ROWS, len(offsets) - first)
        for offset, size, step, values, content, _ in columns:
            if content is None:
                scatter(target, places + 8 * first, count, offset, size, values + step * first, step)
            elif content:
                scatter_bytes(target, places + 8 * first, count, offset, values + 4 * first, content)


def _column_source(values: NDArray[np.generic] | pa.Array, count: int) -> tuple[int, int, int, int | None, Any]:
    """Where a column's values are: size, step, address, the address of their bytes, and what keeps them alive."""
    if not isinstance(values, np.ndarray):
        content = values.buffers()[2]
        offsets = _offsets(values)
        return 4, 4, offsets.ctypes.data, content.address if content else 0, (values, offsets)
    values = np.ascontiguousarray(values)
    is_constant = len(values) == 1 and count != 1
    assert is_constant or len(values) == count
    return values.itemsize, 0 if is_constant else values.itemsize, values.ctypes.data, None, values
