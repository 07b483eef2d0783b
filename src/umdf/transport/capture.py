"""Capture files, as batches of UDP payloads for the decoders.

    with open_capture("day.pcap.zst") as capture:
        for batch in capture: ...
    capture.counts, capture.warnings

The one rule: bad data is never an exception. A damaged or cut file yields everything that can be told apart from the
damage, and `warnings` says what is wrong and where, and how many bytes are unread. A datagram with a wrong checksum is
left out and counted, unless somebody asks for it.
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

from ..buffers import Pool
from ..errors import CaptureError
from . import capture_kernel as k
from . import frame_kernel as f
from .capture_walk import Header, Walk, Watch, is_magic
from .compression import decompressor
from .damage import Damage

__all__ = ["Capture", "Counts", "Damage", "Flow", "PacketBatch", "Split", "index", "open_capture"]

CHUNK_BYTES = 4 << 20
BATCH_PACKETS = 10_000
MOST_WRONG = 100  # checksums for each right one: where there are more, nobody has ever filled them in
COLUMNS = (k.START, k.END, k.TS_NS, k.NUMBER, k.OFFSET)  # of int64, each with room for a whole batch; then the flow


class Flow(NamedTuple):
    source: str
    source_port: int
    dest: str
    dest_port: int


OTHER_FLOWS = Flow("", 0, "", 0)  # index 0: whatever came after the first 65,535 flows


@dataclass(frozen=True, slots=True, eq=False)
class PacketBatch:
    """UDP payloads in one buffer, a row each. Whoever keeps a batch keeps its whole chunk of the file."""

    buffer: NDArray[np.uint8]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    ts_ns: NDArray[np.int64]  # receive time, UNIX; 0 where the file has none (pcapng simple packets)
    number: NDArray[np.int64]  # of the frame in the file, from 1, as Wireshark counts: skipped ones too
    offset: NDArray[np.int64]  # of the record in the (decompressed) file
    flow: NDArray[np.uint16]  # row of `flows`
    flows: list[Flow]  # of the whole capture so far; it grows
    corrupt: NDArray[np.bool_] | None = None  # the UDP checksum is wrong; None: nowhere

    def __len__(self) -> int:
        return len(self.start)

    def at(self, rows: NDArray[np.int64]) -> PacketBatch:
        """These rows."""
        start, end, ts_ns = self.start[rows], self.end[rows], self.ts_ns[rows]
        number, offset, flow = self.number[rows], self.offset[rows], self.flow[rows]
        corrupt = None if self.corrupt is None else self.corrupt[rows]
        return PacketBatch(self.buffer, start, end, ts_ns, number, offset, flow, self.flows, corrupt)

    def payload(self, row: int) -> bytes:
        return self.buffer[self.start[row] : self.end[row]].tobytes()


@dataclass(frozen=True)
class Counts:
    """What became of the records: each is in exactly one of the counts from `udp` on; `cut` is a part of `udp`."""

    records: int
    udp: int
    not_ip: int
    not_udp: int
    fragments: int
    malformed: int  # headers that are cut or contradict each other
    unknown_link: int  # link types that are not read, interfaces that the file does not describe
    wrong_checksum: int  # UDP, whole, and damaged on its way
    cut: int  # payloads of which the snap length has left only a part


@dataclass(frozen=True)
class Split:
    """A span of a file that can be read alone; it starts with a record. Without a header: the whole file."""

    path: str
    offset: int
    end: int | None
    number: int  # of its first packet
    header: Header | None
    damage: tuple[Damage, ...] | None = None  # what is unread in it, where somebody has read it before
    has_checksums: bool | None = None  # whether a wrong one tells of damage; None: nobody knows yet


Source = str | os.PathLike[str] | io.BufferedReader | Split


class Capture:
    """An open capture file; iterate once over its batches. Made by `open_capture`."""

    def __init__(
        self, source: Source, batch_packets: int, chunk_bytes: int, watch: Watch | None = None, corrupt: bool = False
    ) -> None:
        split = source if isinstance(source, Split) else None
        self._walk = Walk(source.path if isinstance(source, Split) else source, chunk_bytes, watch)
        self._first = split.number if split else 1
        self._has_checksums = split.has_checksums if split else None
        self._with_corrupt, self._corrupt, self._first_corrupt = corrupt, 0, 0
        try:
            if split and split.header and split.end is not None:
                self._walk.resume(split.header, split.offset, split.end, split.number - 1, split.damage)
            else:
                self._walk.begin()
        except BaseException:
            self._walk.close()
            raise
        self.flows: list[Flow] = [OTHER_FLOWS]
        self._room = max(batch_packets, 1)
        self._columns = Pool(most_kept=3)
        self._flow_rows = np.zeros((f.MOST_FLOWS + 1) * f.FLOW_BYTES, np.uint8)
        self._flow_index = np.zeros(f.FLOW_SLOTS, np.int32)
        state = self._walk.state
        state[k.FLOWS], state[k.FLOW_INDEX] = self._flow_rows.ctypes.data, self._flow_index.ctypes.data
        state[k.PARSE], state[k.ROOM] = 1, self._room

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._walk.close()

    @property
    def path(self) -> str:
        return self._walk.path

    @property
    def format(self) -> str:
        """Such as `pcap ns little-endian, gzip`; of pcapng, the byte order of the first section."""
        header = self._walk.header
        text = "cut in its header"
        if header:
            order = "big-endian" if header.big_endian else "little-endian"
            text = f"{header.kind} {order}"
            if header.kind == "pcap":
                text = f"pcap {'ns' if header.nanoseconds else 'µs'} {order}"
        return ", ".join(filter(None, (text, self._walk.source.name)))

    @property
    def warnings(self) -> list[Damage]:
        return self._walk.warnings

    @property
    def counts(self) -> Counts:
        state = self._walk.state
        outcomes = (f.NOT_IP, f.NOT_UDP, f.FRAGMENT, f.MALFORMED, f.UNKNOWN_LINK)
        tally = (int(state[k.TALLY - outcome]) for outcome in outcomes)
        records, udp = int(state[k.RECORDS]) - self._first + 1, int(state[k.UDP]) - self._corrupt
        return Counts(records, udp, *tally, wrong_checksum=self._corrupt, cut=int(state[k.CUT]))

    @property
    def read_bytes(self) -> int:
        """Of the (decompressed) file: its header, and all records so far."""
        return int(self._walk.state[k.READ_BYTES])

    @property
    def unread_bytes(self) -> int:
        """Of the (decompressed) file: what is damaged so far. With `read_bytes`, all of it once it has been read."""
        return sum(damage.unread_bytes for damage in self.warnings)

    @property
    def has_checksums(self) -> bool:
        """Whether a wrong checksum tells of damage: not where (nearly) all are wrong, because a network card was to
        fill them in, or because somebody has changed the addresses since."""
        right, wrong = int(self._walk.state[k.RIGHT_SUMS]), int(self._walk.state[k.WRONG_SUMS])
        return right * MOST_WRONG >= wrong if self._has_checksums is None else self._has_checksums

    def rest(self) -> Split:
        """What is behind the batches so far, to the end of the file."""
        walk = self._walk
        if walk.source.name or walk.header is None:
            return Split(walk.path, 0, None, 1, None)
        here, end = walk.offset, os.path.getsize(walk.path)
        return Split(walk.path, here, end, int(walk.state[k.RECORDS]) + 1, walk.header_here())

    def __iter__(self) -> Iterator[PacketBatch]:
        walk = self._walk
        while not walk.ended:
            columns = self._columns.take(self._room * (8 * len(COLUMNS) + 3))
            for place, slot in enumerate((*COLUMNS, k.FLOW)):
                walk.state[slot] = columns.address + place * self._room * 8
            walk.state[k.CHECKSUM] = walk.state[k.FLOW] + self._room * 2
            why = walk.walk()
            if walk.state[k.COUNT] and len(batch := self._batch(columns.array, int(walk.state[k.COUNT]))):
                yield batch
                del batch
            del columns  # ours no longer: it is used again once the caller lets go of the batch
            if not walk.ended:
                walk.go_on(why)
            if walk.ended:
                self._tell_left_out()

    def _batch(self, columns: NDArray[np.uint8], count: int) -> PacketBatch:
        for row in range(len(self.flows), int(self._walk.state[k.FLOWS_KNOWN]) + 1):
            self.flows.append(_flow(self._flow_rows[row * f.FLOW_BYTES :][: f.FLOW_BYTES].tobytes()))
        stride = self._room * 8
        start, end, ts_ns, number, offset = (
            columns[place * stride :][: count * 8].view(np.int64) for place in range(len(COLUMNS))
        )
        flow = columns[len(COLUMNS) * stride :][: count * 2].view(np.uint16)
        buffer = self._walk.buffer[: self._walk.filled]
        batch = PacketBatch(buffer, start, end, ts_ns, number, offset, flow, self.flows)
        if not self._walk.state[k.WRONG_SUMS] or not self.has_checksums:
            return batch
        corrupt = columns[(len(COLUMNS) * 8 + 2) * self._room :][:count] == f.WRONG
        wrong = np.flatnonzero(corrupt)
        if not len(wrong):
            return batch
        self._first_corrupt = self._first_corrupt if self._corrupt else int(offset[wrong[0]])
        self._corrupt += len(wrong)
        return replace(batch, corrupt=corrupt) if self._with_corrupt else batch.at(np.flatnonzero(~corrupt))

    def _tell_left_out(self) -> None:
        state = self._walk.state
        if self._corrupt and not self._with_corrupt:
            reason = f"a wrong UDP checksum, the first of {self._corrupt:,} datagrams that are left out for it"
            self.warnings.append(Damage(self.path, self._first_corrupt, reason))
        if state[k.FIRST_UNKNOWN] < 0:
            return
        link, packets = int(state[k.UNKNOWN_TYPE]), self.counts.unknown_link
        reason = f"link type {link} is not read" if link >= 0 else "the packet's interface is not described"
        self.warnings.append(Damage(self.path, int(state[k.FIRST_UNKNOWN]), f"{reason}; {packets} packets left out"))


def _flow(row: bytes) -> Flow:
    size = 4 if row[36] == 4 else 16
    source_port, dest_port = int.from_bytes(row[32:34], "big"), int.from_bytes(row[34:36], "big")
    return Flow(str(ip_address(row[:size])), source_port, str(ip_address(row[16 : 16 + size])), dest_port)


def open_capture(
    source: Source,
    *,
    batch_packets: int = BATCH_PACKETS,
    chunk_bytes: int = CHUNK_BYTES,
    watch: Watch | None = None,
    corrupt: bool = False,
) -> Capture:
    """Open a pcap or pcapng file (plain, gzip or zstd, whatever its name; `-` is stdin), or one split of it.

    A batch holds at most `batch_packets` and never more than what a chunk of `chunk_bytes` of the file holds; `watch`
    is shown what is read, as it is read. With `corrupt`, datagrams with a wrong checksum are in the batches, too, and
    marked there.
    """
    return Capture(source, batch_packets, chunk_bytes, watch, corrupt)


def is_capture(file: io.BufferedReader) -> bool:
    """Whether a file begins as a capture does, or is too short to tell; it is not read on."""
    head = file.peek(1)
    magic = bytearray(4)
    found = decompressor(io.BytesIO(head), head[:4]).readinto(memoryview(magic))
    return not found or is_magic(bytes(magic[:found]))


def damage_in(damages: Sequence[Damage], offset: int, end: int | None) -> tuple[Damage, ...]:
    """What a split must know of damage, to read just what was read before."""
    return tuple(
        one for one in damages if one.unread_bytes and offset <= one.offset and (end is None or one.offset < end)
    )


def index(path: str | os.PathLike[str], every_bytes: int = 64 << 20) -> list[Split]:
    """Splits of about `every_bytes` that together are the whole file, damage included. A compressed file is one."""
    walk = Walk(path, CHUNK_BYTES)
    try:
        walk.begin()
        if walk.source.name or walk.header is None:
            return [Split(walk.path, 0, None, 1, None)]
        if not os.path.isfile(walk.path):
            raise CaptureError(f"{walk.path}: only a regular file can be split", "save it to a file first")
        begun: list[tuple[int, int, Header]] = [(walk.offset, 1, walk.header_here())]
        walk.state[k.ROOM] = 1  # nothing is parsed, so nothing fills it
        while not walk.ended:
            walk.stop_at = begun[-1][0] + max(every_bytes, 1)
            why = walk.walk()
            if why == k.STOPPED:
                begun.append((walk.offset, int(walk.state[k.RECORDS]) + 1, walk.header_here()))
            else:
                walk.go_on(why)
        size = os.path.getsize(walk.path)
        if len(begun) > 1 and begun[-1][0] >= size:
            del begun[-1]
        ends = [offset for offset, _, _ in begun[1:]] + [size]
        return [
            Split(walk.path, offset, end, number, header, damage_in(walk.warnings, offset, end))
            for (offset, number, header), end in zip(begun, ends, strict=True)
        ]
    finally:
        walk.close()
