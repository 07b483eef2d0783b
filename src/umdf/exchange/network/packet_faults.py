"""What happens to single packets of one line: late, twice, damaged, in parts, renumbered. A sink that wraps a sink.

Packets are held until they arrive: they go on when `advance` reaches their time, so that they are in order of it.

Damage never changes a value inside a message that stays well-formed: a UDP checksum would show that, and nothing else
could.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable

import numpy as np

from umdf.exchange.network.faults import MS_NS, SECOND_NS, Faults
from umdf.exchange.network.renumbering import LineNumbering
from umdf.exchange.publish.channel_settings import FAST, SBE
from umdf.exchange.publish.sinks import Packets, Sink

SBE_HEADER = struct.Struct("<BBHI")  # channel, reserved, sequence version, sequence; then the sending time
FAST_HEADER = struct.Struct(">IHHH")  # MsgSeqNum, NoChunks, CurrentChunk, MsgLength
SBE_BLOCK_LENGTH_AT = 20  # behind the packet header and the framing header of the first message
MIN_SBE_MESSAGE_BYTES = 12  # framing and message header: less cannot be cut off between two messages
Held = tuple[int, int, bytes, int, int]  # arrival, a number of its own, content, first and last sequence
Damage = Callable[[bytes, np.random.Generator], bytes]


class PacketFaults:
    def __init__(
        self,
        sink: Sink,
        random: np.random.Generator,
        faults: Faults,
        line: str,
        protocol: str,
        start_ns: int,
        *,
        is_incremental: bool,
    ) -> None:
        self._sink, self._random, self._faults, self._protocol = sink, random, faults, protocol
        self._delay_ns = round((faults.delay_ms + (faults.skew_ms if line == "B" else 0)) * MS_NS)
        self._ends_ns = start_ns + round(faults.ends_s * SECOND_NS)
        own = [each for each in faults.renumberings if each.line == line and is_incremental]
        self._numbering = LineNumbering(protocol, own, start_ns) if own else None
        self._held: list[Held] = []
        self._count = 0

    def write(self, packets: Packets) -> None:
        data, columns = packets.buffer, (packets.start, packets.end, packets.ts_ns)
        rows = zip(*(c.tolist() for c in (*columns, packets.first_sequence, packets.last_sequence)), strict=True)
        for start, end, ts_ns, first, last in rows:
            content = data[start:end].tobytes()
            if ts_ns >= self._ends_ns:
                self._hold(ts_ns, content, first, last)
            else:
                self._send(ts_ns, content, first, last)

    def _send(self, ts_ns: int, content: bytes, first: int, last: int) -> None:
        faults, random = self._faults, self._random
        ts_ns += self._delay_ns
        if self._numbering is not None:
            for extra in self._numbering.before(content, ts_ns):
                self._hold(ts_ns, extra, 0, 0)
            content = self._numbering.renumbered(content, ts_ns)
        if self._protocol == FAST and is_chunk(content) and random.random() < faults.chunk_loss:
            return
        for share, damages in ((faults.corruption, CONTENT), (faults.header_corruption, HEADERS)):
            if share and random.random() < share:
                choices = damages[self._protocol]
                content = choices[int(random.integers(len(choices)))](content, random)
        if faults.reordering and random.random() < faults.reordering:
            ts_ns += self._lateness()
        self._hold(ts_ns, content, first, last)
        if faults.duplicates and random.random() < faults.duplicates:
            self._hold(ts_ns + self._lateness(), content, first, last)

    def _lateness(self) -> int:
        return int(self._random.integers(0, max(1, round(self._faults.late_ms * MS_NS))))

    def _hold(self, ts_ns: int, content: bytes, first: int, last: int) -> None:
        self._count += 1
        heapq.heappush(self._held, (ts_ns, self._count, content, first, last))

    def advance(self, now_ns: int) -> None:
        self._deliver(now_ns)
        self._sink.advance(now_ns)

    def _deliver(self, until_ns: float) -> None:
        arrived: list[Held] = []
        while self._held and self._held[0][0] <= until_ns:
            arrived.append(heapq.heappop(self._held))
        if arrived:
            ends = np.cumsum([len(held[2]) for held in arrived])
            ts_ns, first, last = (np.array([held[column] for held in arrived], np.int64) for column in (0, 3, 4))
            buffer = np.frombuffer(b"".join(held[2] for held in arrived), np.uint8)
            self._sink.write(Packets(buffer, np.append(0, ends[:-1]), ends, ts_ns, first, last))

    def close(self) -> None:
        self._deliver(float("inf"))
        self._sink.close()


def is_chunk(content: bytes) -> bool:
    """Whether a packet of FIX/FAST is a part of a message."""
    return len(content) >= FAST_HEADER.size and FAST_HEADER.unpack_from(content)[1] > 1


# Damage


def _with_header(content: bytes, layout: struct.Struct, **changes: int) -> bytes:
    if len(content) < layout.size:
        return content
    values = list(layout.unpack_from(content))
    for place, value in changes.items():
        values[int(place[1:])] = value
    return layout.pack(*values) + content[layout.size :]


def _truncated(content: bytes, random: np.random.Generator) -> bytes:
    """Ends within its last message."""
    return content[: -int(random.integers(1, MIN_SBE_MESSAGE_BYTES))]


def _impossible_block(content: bytes, random: np.random.Generator) -> bytes:
    at = SBE_BLOCK_LENGTH_AT
    return content if len(content) < at + 2 else content[:at] + struct.pack("<H", 60_000) + content[at + 2 :]


def _impossible_length(content: bytes, random: np.random.Generator) -> bytes:
    return _with_header(content, FAST_HEADER, _3=int(random.integers(2_000, 60_000)))


def _far_number(layout: struct.Struct, place: str) -> Damage:
    return lambda content, random: _with_header(content, layout, **{place: int(random.integers(10**6, 4 * 10**9))})


CONTENT: dict[str, tuple[Damage, ...]] = {SBE: (_truncated, _impossible_block), FAST: (_truncated, _impossible_length)}
HEADERS: dict[str, tuple[Damage, ...]] = {
    SBE: (
        lambda content, random: _with_header(content, SBE_HEADER, _0=int(random.integers(200, 256))),
        lambda content, random: _with_header(content, SBE_HEADER, _2=int(random.integers(30_000, 65_000))),
        _far_number(SBE_HEADER, "_3"),
    ),
    FAST: (
        _far_number(FAST_HEADER, "_0"),
        lambda content, random: _with_header(content, FAST_HEADER, _1=3, _2=int(random.integers(1, 4))),
    ),
}
