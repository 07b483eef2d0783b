"""Capture files, as batches of UDP payloads for the decoders.

    with open_capture("day.pcap.zst") as capture:
        for batch in capture: ...
    capture.counts, capture.warnings

Invariant: bad data is never an exception. A damaged or truncated file yields everything that can be distinguished from
the damage, and `warnings` has the reason, the offset and the number of unread bytes. A packet with a wrong checksum is
skipped and counted, unless it is requested.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from types import TracebackType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from umdf.transport.capture_reader import ByteObserver, CaptureReader, Header, is_magic

from ..buffers import Pool
from ..errors import CaptureError
from . import capture_kernel as k
from . import frame_kernel as f
from .compression import decompressor
from .damage import Damage

__all__ = ["Capture", "Counts", "Damage", "Flow", "PacketBatch", "Split", "open_capture", "split_capture"]

BUFFER_BYTES = 4 << 20
BATCH_PACKETS = 10_000
MOST_WRONG = 100  # wrong checksums per right one: with more, they were never filled in
COLUMNS = (k.START, k.END, k.TS_NS, k.NUMBER, k.OFFSET)  # int64 columns of a batch; then the flow


class Flow(NamedTuple):
    source: str
    source_port: int
    dest: str
    dest_port: int


OVERFLOW_FLOW = Flow("", 0, "", 0)  # index 0: everything after the first 65,535 flows


@dataclass(frozen=True, slots=True, eq=False)
class PacketBatch:
    """UDP payloads in one buffer, one row each. Keeping a batch keeps its whole chunk of the file in memory."""

    buffer: NDArray[np.uint8]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    ts_ns: NDArray[np.int64]  # receive time, UNIX; 0 if the file has none (pcapng simple packets)
    number: NDArray[np.int64]  # of the frame in the file, from 1, as in Wireshark, including skipped frames
    offset: NDArray[np.int64]  # of the record in the (decompressed) file
    flow: NDArray[np.uint16]  # row of `flows`
    flows: list[Flow]  # of the whole capture so far; grows
    corrupt: NDArray[np.bool_] | None = None  # wrong UDP checksums; None: there are none
    is_verified: NDArray[np.bool_] | None = None  # right UDP checksums; None: not checked

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: NDArray[np.int64]) -> PacketBatch:
        """A batch with only these rows."""
        start, end, ts_ns = self.start[rows], self.end[rows], self.ts_ns[rows]
        number, offset, flow = self.number[rows], self.offset[rows], self.flow[rows]
        masks = (None if mask is None else mask[rows] for mask in (self.corrupt, self.is_verified))
        return PacketBatch(self.buffer, start, end, ts_ns, number, offset, flow, self.flows, *masks)

    def payload(self, row: int) -> bytes:
        return self.buffer[self.start[row] : self.end[row]].tobytes()


@dataclass(frozen=True)
class Counts:
    """Counts of records: each record is in exactly one count from `udp` on; `truncated` is a part of `udp`."""

    records: int
    udp: int
    not_ip: int
    not_udp: int
    fragments: int
    malformed: int  # headers that are truncated or contradict each other
    unknown_link: int  # unsupported link types, and interfaces without a description
    wrong_checksum: int  # complete UDP packets that were damaged in transit
    truncated: int  # payloads truncated by the snap length


@dataclass(frozen=True)
class Split:
    """A byte range of a file that can be read by itself; it starts with a record. Without a header: the whole file."""

    path: str
    offset: int
    end: int | None
    number: int  # of its first packet
    header: Header | None
    damage: tuple[Damage, ...] | None = None  # unread parts, if it was read before
    has_checksums: bool | None = None  # whether a wrong one means damage; None: not known yet


Source = str | os.PathLike[str] | io.BufferedReader | Split


class Capture:
    """An open capture file; iterate once over its batches. Created by `open_capture`."""

    def __init__(
        self,
        source: Source,
        batch_packets: int,
        buffer_bytes: int,
        observer: ByteObserver | None = None,
        corrupt: bool = False,
    ) -> None:
        split = source if isinstance(source, Split) else None
        self._reader = CaptureReader(source.path if isinstance(source, Split) else source, buffer_bytes, observer)
        self._first_number = split.number if split else 1
        self._has_checksums = split.has_checksums if split else None
        self._with_corrupt, self._corrupt, self._first_corrupt = corrupt, 0, 0
        try:
            if split and split.header and split.end is not None:
                self._reader.start_split(split.header, split.offset, split.end, split.number - 1, split.damage)
            else:
                self._reader.read_header()
        except BaseException:
            self._reader.close()
            raise
        self.flows: list[Flow] = [OVERFLOW_FLOW]
        self._capacity = max(batch_packets, 1)
        self._column_pool = Pool(max_buffers=3)
        self._flow_rows = np.zeros((f.MAX_FLOWS + 1) * f.FLOW_BYTES, np.uint8)
        self._flow_index = np.zeros(f.FLOW_SLOTS, np.int32)
        state = self._reader.state
        state[k.FLOWS], state[k.FLOW_INDEX] = self._flow_rows.ctypes.data, self._flow_index.ctypes.data
        state[k.PARSE], state[k.CAPACITY] = 1, self._capacity

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._reader.close()

    @property
    def path(self) -> str:
        return self._reader.path

    @property
    def format(self) -> str:
        """For example `pcap ns little-endian, gzip`; for pcapng, the byte order of the first section."""
        header = self._reader.header
        text = "cut in its header"
        if header:
            order = "big-endian" if header.big_endian else "little-endian"
            text = f"{header.kind} {order}"
            if header.kind == "pcap":
                text = f"pcap {'ns' if header.nanoseconds else 'µs'} {order}"
        return ", ".join(filter(None, (text, self._reader.source.name)))

    @property
    def warnings(self) -> list[Damage]:
        return self._reader.warnings

    @property
    def counts(self) -> Counts:
        state = self._reader.state
        outcomes = (f.NOT_IP, f.NOT_UDP, f.FRAGMENT, f.MALFORMED, f.UNKNOWN_LINK)
        outcome_counts = (int(state[k.OUTCOME_COUNTS - outcome]) for outcome in outcomes)
        records, udp = int(state[k.RECORDS]) - self._first_number + 1, int(state[k.UDP]) - self._corrupt
        return Counts(records, udp, *outcome_counts, wrong_checksum=self._corrupt, truncated=int(state[k.TRUNCATED]))

    @property
    def read_bytes(self) -> int:
        """Bytes of the (decompressed) file in its header and all records so far."""
        return int(self._reader.state[k.READ_BYTES])

    @property
    def unread_bytes(self) -> int:
        """Damaged bytes of the (decompressed) file so far. At the end, together with `read_bytes`, the whole file."""
        return sum(damage.unread_bytes for damage in self.warnings)

    @property
    def has_checksums(self) -> bool:
        """Whether a wrong checksum means damage: not if (nearly) all are wrong, because the network card should have
        filled them in, or because the addresses were changed later."""
        right, wrong = int(self._reader.state[k.RIGHT_SUMS]), int(self._reader.state[k.WRONG_SUMS])
        return right * MOST_WRONG >= wrong if self._has_checksums is None else self._has_checksums

    def remaining(self) -> Split:
        """The part after the batches so far, to the end of the file."""
        reader = self._reader
        if reader.source.name or reader.header is None:
            return Split(reader.path, 0, None, 1, None)
        offset, end = reader.offset, os.path.getsize(reader.path)
        return Split(reader.path, offset, end, int(reader.state[k.RECORDS]) + 1, reader.current_header())

    def __iter__(self) -> Iterator[PacketBatch]:
        reader = self._reader
        while not reader.is_finished:
            columns = self._column_pool.acquire(self._capacity * (8 * len(COLUMNS) + 3))
            for position, slot in enumerate((*COLUMNS, k.FLOW)):
                reader.state[slot] = columns.address + position * self._capacity * 8
            reader.state[k.CHECKSUM] = reader.state[k.FLOW] + self._capacity * 2
            outcome = reader.read_records()
            if reader.state[k.COUNT] and len(batch := self._batch(columns.array, int(reader.state[k.COUNT]))):
                yield batch
                del batch
            del columns  # released: reused once the caller drops the batch
            if not reader.is_finished:
                reader.go_on(outcome)
            if reader.is_finished:
                self._report_left_out()

    def _batch(self, columns: NDArray[np.uint8], count: int) -> PacketBatch:
        for row in range(len(self.flows), int(self._reader.state[k.FLOW_COUNT]) + 1):
            self.flows.append(_parse_flow(self._flow_rows[row * f.FLOW_BYTES :][: f.FLOW_BYTES].tobytes()))
        stride = self._capacity * 8
        start, end, ts_ns, number, offset = (
            columns[place * stride :][: count * 8].view(np.int64) for place in range(len(COLUMNS))
        )
        flow = columns[len(COLUMNS) * stride :][: count * 2].view(np.uint16)
        buffer = self._reader.buffer[: self._reader.filled_bytes]
        checksums = columns[(len(COLUMNS) * 8 + 2) * self._capacity :][:count]
        is_verified = checksums == f.RIGHT
        batch = PacketBatch(buffer, start, end, ts_ns, number, offset, flow, self.flows, None, is_verified)
        if not self._reader.state[k.WRONG_SUMS] or not self.has_checksums:
            return batch
        corrupt = checksums == f.WRONG
        wrong = np.flatnonzero(corrupt)
        if not len(wrong):
            return batch
        self._first_corrupt = self._first_corrupt if self._corrupt else int(offset[wrong[0]])
        self._corrupt += len(wrong)
        return replace(batch, corrupt=corrupt) if self._with_corrupt else batch.take(np.flatnonzero(~corrupt))

    def _report_left_out(self) -> None:
        state = self._reader.state
        if self._corrupt and not self._with_corrupt:
            reason = f"wrong UDP checksum; {self._corrupt:,} packets skipped because of it"
            self.warnings.append(Damage(self.path, self._first_corrupt, reason))
        if state[k.FIRST_UNKNOWN_OFFSET] < 0:
            return
        link, packets = int(state[k.UNKNOWN_LINK_TYPE]), self.counts.unknown_link
        reason = f"unsupported link type {link}" if link >= 0 else "the packet's interface is not described"
        self.warnings.append(
            Damage(self.path, int(state[k.FIRST_UNKNOWN_OFFSET]), f"{reason}; {packets:,} packets skipped")
        )


def _parse_flow(row: bytes) -> Flow:
    size = 4 if row[36] == 4 else 16
    source_port, dest_port = int.from_bytes(row[32:34], "big"), int.from_bytes(row[34:36], "big")
    return Flow(str(ip_address(row[:size])), source_port, str(ip_address(row[16 : 16 + size])), dest_port)


def open_capture(
    source: Source,
    *,
    batch_packets: int = BATCH_PACKETS,
    buffer_bytes: int = BUFFER_BYTES,
    observer: ByteObserver | None = None,
    corrupt: bool = False,
) -> Capture:
    """Open a pcap or pcapng file (plain, gzip or zstd, whatever its name; `-` is stdin), or one split of it.

    A batch has at most `batch_packets`, and never more than fit in a buffer of `buffer_bytes` of the file; `observer`
    receives the bytes as they are read. With `corrupt`, packets with a wrong checksum are included and marked.
    """
    return Capture(source, batch_packets, buffer_bytes, observer, corrupt)


def is_capture(file: io.BufferedReader) -> bool:
    """Whether a file starts like a capture, or is too short to tell; its position does not change."""
    head = file.peek(1)
    magic = bytearray(4)
    found = decompressor(io.BytesIO(head), head[:4]).readinto(memoryview(magic))
    return not found or is_magic(bytes(magic[:found]))


def damage_in(damages: Sequence[Damage], offset: int, end: int | None) -> tuple[Damage, ...]:
    """The damage inside a split, which it needs to read exactly what was read before."""
    return tuple(
        one for one in damages if one.unread_bytes and offset <= one.offset and (end is None or one.offset < end)
    )


def split_capture(path: str | os.PathLike[str], split_bytes: int = 64 << 20) -> list[Split]:
    """Splits of about `split_bytes` that together cover the whole file, damage included. A compressed file has one."""
    reader = CaptureReader(path, BUFFER_BYTES)
    try:
        reader.read_header()
        if reader.source.name or reader.header is None:
            return [Split(reader.path, 0, None, 1, None)]
        if not os.path.isfile(reader.path):
            raise CaptureError(f"cannot split {reader.path}: not a regular file", "save it to a file first")
        starts: list[tuple[int, int, Header]] = [(reader.offset, 1, reader.current_header())]
        reader.state[k.CAPACITY] = 1  # nothing is parsed, so nothing fills it
        while not reader.is_finished:
            reader.stop_at = starts[-1][0] + max(split_bytes, 1)
            outcome = reader.read_records()
            if outcome == k.STOPPED:
                starts.append((reader.offset, int(reader.state[k.RECORDS]) + 1, reader.current_header()))
            else:
                reader.go_on(outcome)
        size = os.path.getsize(reader.path)
        if len(starts) > 1 and starts[-1][0] >= size:
            del starts[-1]
        ends = [offset for offset, _, _ in starts[1:]] + [size]
        return [
            Split(reader.path, offset, end, number, header, damage_in(reader.warnings, offset, end))
            for (offset, number, header), end in zip(starts, ends, strict=True)
        ]
    finally:
        reader.close()
