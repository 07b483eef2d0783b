"""The whole FAST message that a chunk of it belongs to, wherever in the file the other chunks are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from umdf.cli.reading import open_source
from umdf.cli.reading_fast import WAIT_MS
from umdf.transport.capture import PacketBatch
from umdf.wire.packet import Framer
from umdf.wire.reassembly import Limits, Reassembler


@dataclass(frozen=True)
class Chunk:
    flow: int  # as the file counts them
    packet: int
    msg_seq_num: int
    no_chunks: int
    content: bytes


@dataclass(frozen=True)
class Whole:
    content: bytes
    packets: tuple[int, ...]  # of its chunks, in their order


class Gatherer:
    """Reads a file for one message. A number comes again (4.2.6): which chunks belong together is not for us to say,
    the reassembler gives out whole messages."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.packet_of: dict[int, int] = {}  # chunk → where it came last
        self.copied: Whole | None = None  # the message that had been whole before our chunk came once more
        self._last: Whole | None = None
        self._framer = Framer()
        self._reassembler = Reassembler(Limits(wait_ms=WAIT_MS))

    def take(self, batch: PacketBatch) -> Whole | None:
        """The message, if this batch completes it."""
        chunk, mine = self.chunk, np.flatnonzero(batch.flow == self.chunk.flow)
        frames = self._framer.frames(batch.buffer, batch.start[mine], batch.end[mine])
        gathered = self._reassembler.take(frames, batch.flow[mine], batch.ts_ns[mine]).gathered
        spans = zip(gathered.order.tolist(), gathered.start.tolist(), gathered.end.tolist(), strict=True)
        whole = {row: gathered.buffer[start:end].tobytes() for row, start, end in spans}
        rows = np.flatnonzero((frames.msg_seq_num == chunk.msg_seq_num) & (frames.no_chunks == chunk.no_chunks))
        numbers = batch.number[mine][frames.packet[rows]].tolist()
        for row, number, current in zip(rows.tolist(), numbers, frames.current_chunk[rows].tolist(), strict=True):
            self.packet_of[current] = number
            if number == chunk.packet and self._last and chunk.content in self._last.content:
                self.copied = self._last
            if row in whole:
                packets = tuple(self.packet_of[each] for each in range(1, chunk.no_chunks + 1))
                self._last = Whole(whole[row], packets)
                if chunk.packet in packets:
                    return self._last
        return None

    @property
    def why_not(self) -> str:
        missing = [each for each in range(1, self.chunk.no_chunks + 1) if each not in self.packet_of]
        if not missing:
            return "its chunks in this file are of different messages"
        named = ", ".join(map(str, missing[:5])) + (" …" if len(missing) > 5 else "")
        return f"chunk{'s' if len(missing) > 1 else ''} {named} {'are' if len(missing) > 1 else 'is'} not in this file"


def whole_message(file: Path, chunk: Chunk) -> Whole | str:
    """The message; or why there is none."""
    gatherer = Gatherer(chunk)
    with open_source(file) as source:
        for batch in source:
            if found := gatherer.take(batch):
                return found
    return gatherer.copied or gatherer.why_not
