"""The protocol of a packet, and the messages (or chunks of messages) that a FAST packet holds.

    protocol = detect_protocols(buffer, start, end)     # of each packet, from its content alone
    protocols = flows.add(protocol, flow)               # of each flow so far: used for damaged packets
    chunks = ChunkParser().parse(buffer, start, end)    # of FAST packets: a row for each technical header

Invariant: bad data is never an exception. Data that cannot be framed is a row of `Chunks.quarantine`; valid data before
it is among the rows. SBE packets are read by their own decoder.
"""

from __future__ import annotations

import struct
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import Memory, Pool
from umdf.wire import packet_kernel as k

REASONS = {
    k.HEADER_TRUNCATED: "the technical header needs {0} bytes, the packet has {1}",
    k.TRAILING_BYTES: "{1} trailing bytes are not a technical header",
    k.TOO_LONG: "a packet of {1} bytes is longer than {0}",
    k.LENGTH_PAST_END: "MsgLength {0} exceeds the packet: {1} bytes left",
    k.NO_CHUNK: "NoChunks is 0",
    k.CHUNK_OUT_OF_RANGE: "CurrentChunk {0} is not in 1 to {1}",
    k.EMPTY_MESSAGE: "MsgLength is 0",
}
PROBE_PACKETS = 1_000  # enough to detect the protocol of a file

# A file is taken for a stream by its first headers, where a real message has not too many chunks, or starts with its
# first: by chance one header in some 300 would, three in some 30 million.
PROBED_HEADERS = 3
MAX_PLAUSIBLE_CHUNKS = 4096
MAX_PLAUSIBLE_FIRST_CHUNK = 64


class Protocol(IntEnum):
    UNKNOWN = k.UNKNOWN
    SBE = k.SBE
    FAST = k.FAST


class PacketColumns(typing.Protocol):
    """The part of a capture's batch that this package needs."""

    @property
    def buffer(self) -> NDArray[np.uint8]: ...
    @property
    def start(self) -> NDArray[np.int64]: ...
    @property
    def end(self) -> NDArray[np.int64]: ...


def detect_protocols(buffer: NDArray[np.uint8], start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The `Protocol` of each packet buffer[start[i]:end[i]].

    SBE has encodingType 0xEB50 in its first framing header and a plausible messageLength; FAST is a chain of
    technical headers and messages that ends where the packet ends. The rest is unknown; so is a lone packet header.
    """
    arguments, _alive = _arguments(buffer, start, end)
    protocol = np.empty(len(start), np.uint8)
    arguments[k.PROTOCOL] = protocol.ctypes.data
    if k.detect_protocols(arguments.ctypes.data) == k.OUTSIDE_BUFFER:
        raise ValueError("a packet lies outside the buffer")
    return protocol


class FlowProtocols:
    """The protocol of each flow, by the majority of its recognized packets so far.

    So a damaged packet goes to its flow's decoder and is quarantined there, instead of vanishing as unknown.
    """

    def __init__(self) -> None:
        self._counts = np.zeros((0, len(Protocol)), np.int64)

    def add(self, protocol: NDArray[np.uint8], flow: NDArray[np.uint16]) -> NDArray[np.uint8]:
        """Count the packets of a batch; the `Protocol` of every flow number so far."""
        count = max(len(self._counts), int(flow.max()) + 1 if len(flow) else 0)
        new = np.bincount(flow.astype(np.int64) * len(Protocol) + protocol, minlength=count * len(Protocol))
        grown = new.reshape(count, len(Protocol))
        grown[: len(self._counts)] += self._counts
        self._counts = grown
        return self.protocols()

    def protocols(self) -> NDArray[np.uint8]:
        """By flow number. A tie is SBE, whose marker is less likely to occur by chance."""
        sbe, fast = self._counts[:, Protocol.SBE], self._counts[:, Protocol.FAST]
        verdict = np.where(sbe >= fast, np.uint8(Protocol.SBE), np.uint8(Protocol.FAST))
        verdict[(sbe == 0) & (fast == 0)] = Protocol.UNKNOWN
        return verdict


def detect_flow_protocols(protocol: NDArray[np.uint8], flow: NDArray[np.uint16]) -> NDArray[np.uint8]:
    """The `Protocol` of every flow number, from one batch."""
    return FlowProtocols().add(protocol, flow)


class FileProtocol(NamedTuple):
    """The protocols of a file's first packets; `protocol` is the majority of the recognized ones."""

    protocol: Protocol
    sbe: int
    fast: int
    unknown: int


def detect_file_protocol(batches: Iterable[PacketColumns], packets: int = PROBE_PACKETS) -> FileProtocol:
    """Detect the protocol of a file from its first packets. Reads no more batches than needed."""
    counts, left = np.zeros(len(Protocol), np.int64), packets
    for batch in batches:
        protocol = detect_protocols(batch.buffer, batch.start[:left], batch.end[:left])
        counts += np.bincount(protocol, minlength=len(Protocol))
        left -= len(protocol)
        if left <= 0:
            break
    unknown, sbe, fast = counts.tolist()
    protocol = Protocol.UNKNOWN if sbe + fast == 0 else Protocol.SBE if sbe >= fast else Protocol.FAST
    return FileProtocol(protocol, sbe, fast, unknown)


@dataclass(frozen=True)
class QuarantineRow:
    """A quarantine row: a part of a packet that is not among the rows."""

    packet: int  # within the batch
    msg_index: int
    offset: int  # within the packet
    msg_seq_num: int | None
    reason: str
    skipped_bytes: int  # from the offset on: this header and its message, or the rest of the packet


@dataclass(frozen=True, eq=False)
class Chunks:
    """A row for each technical header: a message, or a chunk of one."""

    buffer: NDArray[np.uint8]
    packets: int  # packets in the batch
    multi_chunk_rows: int  # rows that are chunks of several
    start: NDArray[np.int64]  # of the FAST bytes, after the header
    end: NDArray[np.int64]
    packet: NDArray[np.uint32]
    msg_seq_num: NDArray[np.uint32]
    no_chunks: NDArray[np.uint16]
    current_chunk: NDArray[np.uint16]
    msg_index: NDArray[np.uint16]  # index in the packet
    quarantine_lines: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def quarantine(self) -> list[QuarantineRow]:
        """The data that is not among the rows, in order."""
        return [
            QuarantineRow(
                packet,
                index,
                offset,
                sequence if sequence >= 0 else None,
                REASONS[reason].format(first, second),
                skipped,
            )
            for packet, index, offset, sequence, reason, first, second, skipped in self.quarantine_lines.tolist()
        ]


_TECHNICAL_HEADER = struct.Struct(">IHHH")

# The columns of Frames in one piece of memory, widest first, so that each is aligned.
_COLUMNS = (
    (k.START, np.int64),
    (k.END, np.int64),
    (k.PACKET, np.uint32),
    (k.MSG_SEQ_NUM, np.uint32),
    (k.NO_CHUNKS, np.uint16),
    (k.CURRENT_CHUNK, np.uint16),
    (k.MSG_INDEX, np.uint16),
)
_ROW_BYTES = sum(np.dtype(kind).itemsize for _, kind in _COLUMNS)


class ChunkParser:
    """Finds the messages of FAST packets, in memory that is reused. Not thread-safe: use one per thread."""

    def __init__(self) -> None:
        self._pool = Pool()
        self._capacity = 4096  # a multiple of 64, as are its doubles
        self._quarantine = np.empty((256, k.QUARANTINE_ROW), np.int64)

    def parse(self, buffer: NDArray[np.uint8], start: NDArray[np.int64], end: NDArray[np.int64]) -> Chunks:
        """The chunks of the FAST packets buffer[start[i]:end[i]]; `packet` is the i."""
        arguments, _alive = _arguments(buffer, start, end)
        while self._capacity < len(start):
            self._capacity *= 2
        memory = self._pool.acquire(self._capacity * _ROW_BYTES)
        while True:
            for slot, column in zip(_COLUMNS, self._columns(memory), strict=True):
                arguments[slot[0]] = column.ctypes.data
            arguments[k.CAPACITY] = self._capacity
            arguments[k.QUARANTINE], arguments[k.QUARANTINE_CAPACITY] = (
                self._quarantine.ctypes.data,
                len(self._quarantine),
            )
            arguments[k.FIRST] = k.parse_packets(arguments.ctypes.data)
            if arguments[k.FIRST] == k.OUTSIDE_BUFFER:
                raise ValueError("a packet lies outside the buffer")
            if arguments[k.FULL] == k.NOTHING_FULL:
                break
            if arguments[k.FULL] == k.ROWS_FULL:
                memory = self._grow(memory, int(arguments[k.ROWS]))
            else:
                self._quarantine = np.concatenate([self._quarantine, np.empty_like(self._quarantine)])
        rows = int(arguments[k.ROWS])
        columns = (column[:rows] for column in self._columns(memory))
        lines = self._quarantine[: arguments[k.QUARANTINE_ROWS]].copy()
        return Chunks(buffer, len(start), int(arguments[k.MULTI_CHUNK_ROWS]), *columns, lines)  # type: ignore[arg-type]

    def _columns(self, memory: Memory) -> list[NDArray[typing.Any]]:
        columns, at = [], 0
        for _, kind in _COLUMNS:
            size = self._capacity * np.dtype(kind).itemsize
            columns.append(memory.array[at : at + size].view(kind))
            at += size
        return columns

    def _grow(self, memory: Memory, rows: int) -> Memory:
        before = self._columns(memory)
        self._capacity *= 2
        grown = self._pool.acquire(self._capacity * _ROW_BYTES)
        for old, new in zip(before, self._columns(grown), strict=True):
            new[:rows] = old[:rows]
        return grown


class ParsedUnits(NamedTuple):
    """Units found in a part of a stream, and the start of the next one."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    position: int
    needed_bytes: int  # bytes of the unit at `position`, if known
    reason: str  # the fault there; if empty, only more bytes (or more rows) are needed


class FastFraming:
    """FAST messages with their technical headers, one after the other, without packets: how a raw file is framed."""

    name = "FAST messages with technical headers"
    max_unit_bytes = k.MAX_UNIT_BYTES  # bytes of a unit

    def matches(self, head: NDArray[np.uint8]) -> bool:
        """Whether a file that starts with these bytes is such a stream: its first headers chain, as far as they go."""
        units = self.parse_units(head, 0, PROBED_HEADERS)
        offsets = [*units.start.tolist(), units.position][:PROBED_HEADERS]
        whole = [at for at in offsets if at + k.TECHNICAL_HEADER <= len(head)]
        headers = [_TECHNICAL_HEADER.unpack_from(head.data, at) for at in whole]
        return bool(headers) and all(
            0 < current_chunk <= no_chunks
            and length
            and (no_chunks <= MAX_PLAUSIBLE_CHUNKS or current_chunk <= MAX_PLAUSIBLE_FIRST_CHUNK)
            for _, no_chunks, current_chunk, length in headers
        )

    def parse_units(self, buffer: NDArray[np.uint8], position: int, max_units: int) -> ParsedUnits:
        """At most `max_units` units from `position` on; a unit is one header and its message."""
        start, end = np.empty((2, max_units), np.int64)
        arguments = np.zeros(k.ARGUMENTS, np.int64)
        assert buffer.flags.c_contiguous and 0 <= position <= len(buffer)
        arguments[k.BUFFER], arguments[k.BUFFER_SIZE], arguments[k.POSITION] = buffer.ctypes.data, len(buffer), position
        arguments[k.START], arguments[k.END], arguments[k.CAPACITY] = start.ctypes.data, end.ctypes.data, max_units
        units = k.parse_stream(arguments.ctypes.data)
        position, needed, reason, number = (int(arguments[slot]) for slot in (k.POSITION, k.NEEDED, k.REASON, k.NUMBER))
        text = REASONS[reason].format(needed, number) if reason != k.VALID else ""
        return ParsedUnits(start[:units], end[:units], position, needed, text)


def _arguments(
    buffer: NDArray[np.uint8], start: NDArray[np.int64], end: NDArray[np.int64]
) -> tuple[NDArray[np.int64], tuple[NDArray[np.int64], ...]]:
    """The kernels' table for some packets, and the arrays that it points to, which must outlive the call."""
    assert buffer.flags.c_contiguous and buffer.dtype == np.uint8 and len(start) == len(end)
    start, end = np.ascontiguousarray(start, np.int64), np.ascontiguousarray(end, np.int64)
    arguments = np.zeros(k.ARGUMENTS, np.int64)
    arguments[k.BUFFER : k.PACKETS + 1] = (
        buffer.ctypes.data,
        len(buffer),
        start.ctypes.data,
        end.ctypes.data,
        len(start),
    )
    return arguments, (start, end)
