"""Packets → columns.

    decoder = Decoder(load())
    batch = decoder.decode(buffer, start, end)      # packets as (start, end) within one buffer
    batch.record_batch(50)                          # Order_MBO_50, zero-copy
    batch.quarantine                                # every message that is not among the rows, and why
    batch.other_versions                            # of messages that the schema was not written for

A batch owns its memory for as long as anything refers to it; memory that nothing refers to any more is reused.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache, cached_property
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import Memory, Pool, ReferenceWatch, buffer_address
from umdf.wire.sbe import tables_kernel as k
from umdf.wire.sbe.column_store import ColumnStore, StoreLayout, VarDataStore
from umdf.wire.sbe.decode_kernel import decode_packets
from umdf.wire.sbe.headers import PacketHeaders, read_packet_headers
from umdf.wire.sbe.layout import Column, Layout, Node
from umdf.wire.sbe.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

REASONS = {
    k.PACKET_CUT: "the packet header needs {need} bytes, the packet has {left}",
    k.PACKET_TOO_LONG: "a packet of {left} bytes is longer than {need}",
    k.HEADER_CUT: "a message header needs {need} bytes, {left} left in the packet",
    k.LENGTH_TOO_SMALL: "messageLength {need} is less than its own header of {left}",
    k.LENGTH_PAST_END: "messageLength {need} exceeds the packet: {left} bytes left",
    k.ENCODING_UNKNOWN: "encodingType {need:#06x} is not SBE 1.0 little-endian (0xeb50)",
    k.BLOCK_PAST_END: "blockLength {need} exceeds the message: {left} bytes left",
    k.GROUP_CUT: "the group's header needs {need} bytes, {left} left in the message",
    k.GROUP_PAST_END: "the group's entries need {need} bytes, {left} left in the message",
    k.GROUP_OF_NOTHING: "the group has {need} entries of zero bytes",
    k.DATA_CUT: "the length needs {need} bytes, {left} left in the message",
    k.DATA_PAST_END: "a length of {need} exceeds the message: {left} bytes left",
    k.TEMPLATE_UNKNOWN: "template {need} is not in the schema",
    k.SCHEMA_OTHER: "schema id {need} does not match",
}
SKIPPED_REASONS = (k.TEMPLATE_UNKNOWN, k.SCHEMA_OTHER)  # skipped by messageLength; nothing is wrong with them (3.3)


# The arguments that are written before and read after a call; far faster than numpy.
ARGUMENTS_HEAD = struct.Struct("<5q")
_TAIL_GAPS = k.VALIDITY - k.QUARANTINE_ROWS - 1, k.ANY_TRACKED - k.VALIDITY - 1, k.LOWEST_OTHER - k.ANY_TRACKED - 1
ARGUMENTS_TAIL = struct.Struct(
    f"<{8 * k.QUARANTINE_ROWS}xq{8 * _TAIL_GAPS[0]}xq{8 * _TAIL_GAPS[1]}xq{8 * _TAIL_GAPS[2]}xqq"
)
PacketArrays = tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]
NodeStores = dict[int, tuple[StoreLayout, Memory]]  # by node, the address of its columns
NO_WATCH = ReferenceWatch(None, ())  # has not begun, so it is never quiet
NO_DATA: dict[int, Memory | None] = {}
NO_QUARANTINE = np.empty((0, k.QUARANTINE_ROW), np.int64)


@dataclass(frozen=True)
class QuarantineRow:
    """A quarantine row: a message that was quarantined, or skipped because the schema does not know it."""

    packet: int  # within the batch
    msg_index: int
    offset: int  # within the packet
    template_id: int | None
    version: int | None
    field: str
    reason: str
    is_skipped: bool


@cache
def _arrow() -> ModuleType:
    """pyarrow only where it is needed; the import statement itself would cost half a microsecond each time."""
    from umdf.wire.sbe import arrow

    return arrow


class Decoder:
    """Decodes batches of packets by one schema. Not thread-safe: use one per thread."""

    def __init__(self, schema: Schema, *, validity: bool = True) -> None:
        self.layout = layout = Layout(schema)
        self._nodes, self._columns, self._parts = layout.node_table.copy(), layout.columns.copy(), layout.parts.copy()
        self._rows = self._nodes[:, k.N_ROWS]
        list_sizes = 2 * self._nodes[:, k.N_MAX_PENDING]  # places, and the tags of messages
        list_offsets = np.cumsum(list_sizes) - list_sizes
        self._row_offsets = np.empty(int(list_sizes.sum()), np.uint32)
        self._meta = np.empty(len(self._row_offsets), np.int64)
        self._nodes[:, k.N_ROW_OFFSETS] = self._row_offsets.ctypes.data + 4 * list_offsets
        self._nodes[:, k.N_META] = self._meta.ctypes.data + 8 * list_offsets
        self._stores = [ColumnStore(node) for node in layout.nodes]
        self._active_stores: list[ColumnStore] = []
        self._node_stores: NodeStores = {}  # what a batch gets
        self._watch = NO_WATCH
        self._data = [VarDataStore() for _ in layout.data]
        self._active_data: list[int] = []
        self._data_used, self._data_capacity, self._data_address = np.zeros((3, len(layout.data) + 1), np.int64)
        self._data_saved = np.zeros(2 * len(layout.data) + 1, np.int64)
        self._message_counts = Pool()
        self._quarantine = np.empty((256, k.QUARANTINE_ROW), np.int64)
        self._stack = np.zeros(4 * (k.MAX_DEPTH + 2), np.int64)
        self._arguments = np.zeros(k.ARGUMENTS, np.int64)
        for place, array in (
            (k.NODES, self._nodes),
            (k.COLUMNS, self._columns),
            (k.PARTS, self._parts),
            (k.NODE_OF_TEMPLATE, layout.node_of_template),
            (k.DATA_USED, self._data_used),
            (k.DATA_CAPACITY, self._data_capacity),
            (k.DATA_ADDRESS, self._data_address),
            (k.DATA_SAVED, self._data_saved),
            (k.QUARANTINE, self._quarantine),
            (k.STACK, self._stack),
        ):
            self._arguments[place] = array.ctypes.data
        self._arguments[k.NODE_COUNT], self._arguments[k.DATA_COUNT] = len(layout.nodes), len(layout.data)
        self._arguments[k.SCHEMA_ID], self._arguments[k.VALIDITY] = schema.id, validity
        self._arguments[k.QUARANTINE_CAPACITY] = len(self._quarantine)
        self._arguments[k.OLDEST], self._arguments[k.NEWEST] = schema.oldest, schema.version
        self._buffer, self._buffer_address = np.empty(0, np.uint8), 0
        self._arguments_address: int = self._arguments.ctypes.data
        self._arguments_view: memoryview = self._arguments.data

    def decode(self, buffer: NDArray[np.uint8], start: NDArray[np.int64], end: NDArray[np.int64]) -> Batch:
        """Decode the packets buffer[start[i]:end[i]]."""
        start, end = np.ascontiguousarray(start, np.int64), np.ascontiguousarray(end, np.int64)
        arguments, packets = self._arguments, len(start)
        assert packets == len(end)
        if buffer is not self._buffer:  # a chunk of a file is many batches
            assert buffer.flags.c_contiguous
            self._buffer, self._buffer_address = buffer, buffer_address(buffer)
        spans = buffer_address(start), buffer_address(end), packets
        ARGUMENTS_HEAD.pack_into(self._arguments_view, 8 * k.BUFFER, self._buffer_address, len(buffer), *spans)
        counts = self._message_counts.acquire(2 * packets)
        arguments[k.MESSAGES] = counts.address
        if not self._watch.is_unchanged():
            self._start_batch()
        for number in self._active_data:
            self._data_address[number] = self._data[number].start_batch()
        first = 0
        while True:
            arguments[k.FIRST] = first
            first = decode_packets(self._arguments_address)
            if first == packets:
                return Batch(self, (buffer, start, end), counts)
            if first < 0:
                raise ValueError("a packet lies outside the buffer")
            self._grow(int(arguments[k.FULL]))

    def _start_batch(self) -> None:
        """An earlier batch is still in use: leave it its memory."""
        self._node_stores, self._watch = {}, NO_WATCH  # which refer to it as well
        for store in self._active_stores:
            store.start_batch()
            self._set_addresses(store)
        self._publish_stores()

    def _publish_stores(self) -> None:
        self._node_stores = {store.node.index: (store.layout, store.allocated) for store in self._active_stores}
        self._watch = ReferenceWatch(self._node_stores, (store.allocated for store in self._active_stores))
        self._watch.start()

    def _set_addresses(self, store: ColumnStore) -> None:
        """Pass the addresses of this node's columns to the kernel."""
        base, table, node = store.allocated.address, store.layout, self._nodes[store.node.index]
        node[k.N_CAPACITY] = table.capacity
        if store.node.parent is None:
            node[k.N_PACKET], node[k.N_INDEX] = base + table.packet, base + table.index
        columns = self._columns[node[k.N_COLUMNS] : node[k.N_COLUMNS_END]]
        columns[:, k.C_VALUES] = [base + at for at in table.values]
        columns[:, k.C_TEXT] = [base + at for at in table.text]
        columns[:, k.C_BITMAP] = [base + at for at in table.bitmaps]
        self._parts[node[k.N_PARTS] : node[k.N_PARTS_END], k.P_OFFSETS] = [base + at for at in table.offsets]

    def _grow(self, full: int) -> None:
        if full >= 0:
            store = self._stores[full]
            if store.memory is None:
                self._active_stores.append(store)
            store.grow(int(self._rows[full]))
            self._set_addresses(store)
            self._publish_stores()
        elif full == k.QUARANTINE_FULL:
            self._quarantine = np.concatenate([self._quarantine, np.empty_like(self._quarantine)])
            self._arguments[k.QUARANTINE] = self._quarantine.ctypes.data
            self._arguments[k.QUARANTINE_CAPACITY] = len(self._quarantine)
        else:
            number = k.DATA_FULL - full
            if not self._data[number].capacity:
                self._active_data.append(number)
            self._data_address[number] = self._data[number].grow(int(self._data_used[number]))
            self._data_capacity[number] = self._data[number].capacity


class Batch:
    """The decoded columns of some packets; everything is computed on demand."""

    def __init__(self, decoder: Decoder, source: PacketArrays, counts: Memory) -> None:
        lines, validity, unusual, *others = ARGUMENTS_TAIL.unpack_from(decoder._arguments_view)
        self._packets, self._counts = source, counts
        self.layout = decoder.layout
        self.rows: NDArray[np.int64] = decoder._rows.copy()  # by node
        self.packets = len(source[1])
        self.has_validity = bool(validity)
        self._node_stores, self._data = decoder._node_stores, NO_DATA
        if decoder._active_data:
            self._data = {number: decoder._data[number].memory for number in decoder._active_data}
        # The lowest and the highest version of messages that the schema does not serve.
        self.other_versions: tuple[int, int] | None = None if others[0] == k.NO_OTHER else (others[0], others[1])
        self._tracked = decoder._columns[:, k.C_TRACKED].copy() if unusual else None
        self._quarantine_lines = decoder._quarantine[:lines].copy() if lines else NO_QUARANTINE

    @cached_property
    def templates(self) -> list[int]:
        """The ids of the templates that have rows."""
        rows = self.rows.tolist()
        return [template for template, index in self.layout.root_indexes if rows[index]]

    @cached_property
    def headers(self) -> PacketHeaders:
        """The packet headers as columns, read on first use: the buffer must still hold the packets then."""
        return read_packet_headers(*self._packets)

    sending_time = property(lambda self: self.headers.sending_time)
    sequence = property(lambda self: self.headers.sequence)
    seq_version = property(lambda self: self.headers.seq_version)
    channel = property(lambda self: self.headers.channel)

    @property
    def messages(self) -> NDArray[np.uint16]:
        """The number of messages in each packet, valid or not."""
        return self._counts.array[: 2 * self.packets].view(np.uint16)

    def store_of(self, node: Node) -> tuple[StoreLayout, Memory]:
        """The layout and memory of a node with rows."""
        return self._node_stores[node.index]

    def data(self, number: int) -> NDArray[np.uint8]:
        """The bytes of all texts of one variable data field."""
        memory = self._data.get(number)
        return np.empty(0, np.uint8) if memory is None else memory.array

    def has_bitmap(self, node: Node, column: int) -> bool:
        """Whether the kernel has written which rows of a column are present; otherwise all are."""
        if node.columns[column].part.null is not None:
            return self.has_validity
        return self._is_tracked(node, column)

    def _is_tracked(self, node: Node, column: int) -> bool:
        return self._tracked is not None and bool(self._tracked[node.first_column + column])

    def tracked(self, node: Node) -> bytes:
        """For each column, whether something unusual happened to its presence (see the kernel); nothing: to none."""
        if self._tracked is None:
            return b""
        return self._tracked[node.first_column : node.first_column + len(node.columns)].tobytes()

    def packet(self, node: Node) -> NDArray[np.uint32]:
        """For each row of a message, the packet it came in."""
        return self._column_bytes(node, "packet", 4).view(np.uint32)

    def msg_index(self, node: Node) -> NDArray[np.uint16]:
        """For each row of a message, its index in the packet."""
        return self._column_bytes(node, "index", 2).view(np.uint16)

    def _column_bytes(self, node: Node, name: str, width: int) -> NDArray[np.uint8]:
        if not self.rows[node.index]:
            return np.empty(0, np.uint8)
        table, memory = self.store_of(node)
        place = getattr(table, name)
        return memory.array[place : place + width * int(self.rows[node.index])]

    def values(self, node: Node, column: Column) -> NDArray[np.generic]:
        """A column of numbers as it was sent, null values included."""
        assert not column.is_text
        if not self.rows[node.index]:
            return np.empty(0, column.dtype)
        number, (table, memory) = node.columns.index(column), self.store_of(node)
        place, nbytes = table.values[number], column.part.size * int(self.rows[node.index])
        values = memory.array[place : place + nbytes].view(column.dtype)
        if column.is_retired and not self._is_tracked(node, number):
            values[:] = np.asarray(column.part.null).astype(column.dtype)  # the kernel wrote nothing: no row has it
        return values

    def fill_retired(self, node: Node) -> None:
        """Write the values that the kernel left out, for readers of values without presence."""
        for column in node.columns:
            if column.is_retired:
                self.values(node, column)

    def record_batch(self, template_id: int) -> pa.RecordBatch:
        """The messages of one template as Arrow, without a copy."""
        return _arrow().record_batch(self, template_id)

    @cached_property
    def quarantine(self) -> list[QuarantineRow]:
        """The messages that are not among the rows, in order."""
        return [
            QuarantineRow(
                packet,
                index,
                offset,
                template if template >= 0 else None,
                version if version >= 0 else None,
                self.layout.part_name(part) if part >= 0 else "",
                REASONS[reason].format(need=need % (1 << 64), left=left),  # the widest group's size takes 64 bits
                reason in SKIPPED_REASONS,
            )
            for packet, index, offset, template, version, reason, part, need, left in self._quarantine_lines.tolist()
        ]
