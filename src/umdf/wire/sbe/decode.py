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

from umdf.buffers import Memory, buffer_address
from umdf.wire.sbe import tables_kernel as k
from umdf.wire.sbe.batch_memory import BatchMemory, MemorySlot, RowLists
from umdf.wire.sbe.column_store import StoreLayout
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
    k.LENGTH_PAST_END: "messageLength {need} goes past the packet, {left} left",
    k.ENCODING_UNKNOWN: "encodingType {need:#06x} is not SBE 1.0 little-endian (0xeb50)",
    k.BLOCK_PAST_END: "blockLength {need} goes past the message, {left} left",
    k.GROUP_CUT: "the group's header needs {need} bytes, {left} left in the message",
    k.GROUP_PAST_END: "the group's entries need {need} bytes, {left} left in the message",
    k.GROUP_OF_NOTHING: "the group says {need} entries of no bytes",
    k.DATA_CUT: "the length needs {need} bytes, {left} left in the message",
    k.DATA_PAST_END: "a length of {need} goes past the message, {left} left",
    k.TEMPLATE_UNKNOWN: "template {need} is not in the schema",
    k.SCHEMA_OTHER: "schema id {need} is another's",
}
SKIPPED_REASONS = (k.TEMPLATE_UNKNOWN, k.SCHEMA_OTHER)  # skipped by messageLength; nothing is wrong with them (3.3)


# The arguments that are written before and read after a call; far faster than numpy.
ARGUMENTS_HEAD = struct.Struct("<5q")
_TAIL_GAPS = k.VALIDITY - k.QUARANTINE_ROWS - 1, k.ANY_TRACKED - k.VALIDITY - 1, k.LOWEST_OTHER - k.ANY_TRACKED - 1
ARGUMENTS_TAIL = struct.Struct(
    f"<{8 * k.QUARANTINE_ROWS}xq{8 * _TAIL_GAPS[0]}xq{8 * _TAIL_GAPS[1]}xq{8 * _TAIL_GAPS[2]}xqq"
)
PacketArrays = tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]
MAX_SLOTS = 4  # batches whose memory is reused; more that are in use at a time get memory of their own
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
        self.layout = Layout(schema)
        self._validity = validity
        self._lists = RowLists(self.layout)
        self._slots: list[MemorySlot] = []
        self._buffer, self._buffer_address = np.empty(0, np.uint8), 0

    def decode(self, buffer: NDArray[np.uint8], start: NDArray[np.int64], end: NDArray[np.int64]) -> Batch:
        """Decode the packets buffer[start[i]:end[i]]."""
        start, end = np.ascontiguousarray(start, np.int64), np.ascontiguousarray(end, np.int64)
        packets = len(start)
        assert packets == len(end)
        if buffer is not self._buffer:  # a chunk of a file is many batches
            assert buffer.flags.c_contiguous
            self._buffer, self._buffer_address = buffer, buffer_address(buffer)
        slot, first, has_grown = self._free_slot(), 0, False
        # No variable for the memory of the slot: it would be another reference, which the slot counts.
        if slot.memory.message_counts.nbytes < 2 * packets:
            slot.memory.reserve_packets(packets)
            has_grown = True
        spans = buffer_address(start), buffer_address(end), packets
        ARGUMENTS_HEAD.pack_into(slot.memory.arguments_view, 8 * k.BUFFER, self._buffer_address, len(buffer), *spans)
        while True:
            slot.memory.arguments[k.FIRST] = first
            first = decode_packets(slot.memory.arguments_address)
            if first == packets or first < 0:
                break
            slot.memory.grow(int(slot.memory.arguments[k.FULL]))
            has_grown = True
        if has_grown:
            slot.watch()
        if first < 0:
            raise ValueError("a packet lies outside the buffer")
        return Batch(self.layout, slot.memory, (buffer, start, end))

    def _free_slot(self) -> MemorySlot:
        """Memory that no earlier batch needs any more."""
        for slot in self._slots:
            if slot.is_free():
                return slot
        if len(self._slots) == MAX_SLOTS:
            del self._slots[0]  # its batch keeps it
        self._slots.append(MemorySlot(self.layout, self._lists, self._validity))
        return self._slots[-1]


class Batch:
    """The decoded columns of some packets; everything is computed on demand."""

    def __init__(self, layout: Layout, memory: BatchMemory, source: PacketArrays) -> None:
        lines, validity, unusual, *others = ARGUMENTS_TAIL.unpack_from(memory.arguments_view)
        self._packets, self.memory = source, memory
        self.layout = layout
        self.rows: NDArray[np.int64] = memory.rows.copy()  # by node
        self.packets = len(source[1])
        self.has_validity = bool(validity)
        # The lowest and the highest version of messages that the schema does not serve.
        self.other_versions: tuple[int, int] | None = None if others[0] == k.NO_OTHER else (others[0], others[1])
        # Of each column, whether something unusual happened to its presence (see the kernel); None: to no column.
        self.tracked_columns = memory.columns[:, k.C_TRACKED].copy() if unusual else None
        self._quarantine_lines = memory.quarantine[:lines].copy() if lines else NO_QUARANTINE

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
        return self.memory.message_counts.array[: 2 * self.packets].view(np.uint16)

    def store_of(self, node: Node) -> tuple[StoreLayout, Memory]:
        """The layout and memory of a node with rows."""
        return self.memory.store_of(node.index)

    def data(self, number: int) -> NDArray[np.uint8]:
        """The bytes of all texts of one variable data field."""
        memory = self.memory.data(number)
        return np.empty(0, np.uint8) if memory is None else memory.array

    def has_bitmap(self, node: Node, column: int) -> bool:
        """Whether the kernel has written which rows of a column are present; otherwise all are."""
        if node.columns[column].part.null is not None:
            return self.has_validity
        return self._is_tracked(node, column)

    def _is_tracked(self, node: Node, column: int) -> bool:
        return self.tracked_columns is not None and bool(self.tracked_columns[node.first_column + column])

    def tracked(self, node: Node) -> bytes:
        """Of each column of a node, whether something unusual happened to its presence; empty: to none."""
        if self.tracked_columns is None:
            return b""
        return self.tracked_columns[node.first_column : node.first_column + len(node.columns)].tobytes()

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
