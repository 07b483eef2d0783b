"""The whole FAST message that a chunk of it belongs to, wherever in the file the other chunks are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from umdf.cli.decoding.fast_reader import CHUNK_WAIT_MS
from umdf.cli.decoding.files import open_source
from umdf.transport.capture import PacketBatch
from umdf.wire.packet import ChunkParser
from umdf.wire.reassembly import Limits, Reassembler


@dataclass(frozen=True)
class Chunk:
    flow: int  # as the file counts them
    packet: int
    msg_seq_num: int
    no_chunks: int
    content: bytes


@dataclass(frozen=True)
class WholeMessage:
    content: bytes
    packets: tuple[int, ...]  # of its chunks, in their order


class ChunkCollector:
    """Reads a file for one message. A number comes again (4.2.6): which chunks belong together is not for us to say,
    the reassembler gives out whole messages."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.packet_by_chunk: dict[int, int] = {}  # chunk → where it came last
        self.duplicate: WholeMessage | None = None  # the message that had been whole before our chunk came once more
        self._last_message: WholeMessage | None = None
        self._framer = ChunkParser()
        self._reassembler = Reassembler(Limits(wait_ms=CHUNK_WAIT_MS))

    def take(self, batch: PacketBatch) -> WholeMessage | None:
        """The message, if this batch completes it."""
        chunk, flow_rows = self.chunk, np.flatnonzero(batch.flow == self.chunk.flow)
        frames = self._framer.parse(batch.buffer, batch.start[flow_rows], batch.end[flow_rows])
        completed_messages = self._reassembler.add(frames, batch.flow[flow_rows], batch.ts_ns[flow_rows]).multi_chunk
        spans = zip(
            completed_messages.order.tolist(),
            completed_messages.start.tolist(),
            completed_messages.end.tolist(),
            strict=True,
        )
        completed = {row: completed_messages.buffer[start:end].tobytes() for row, start, end in spans}
        rows = np.flatnonzero((frames.msg_seq_num == chunk.msg_seq_num) & (frames.no_chunks == chunk.no_chunks))
        numbers = batch.number[flow_rows][frames.packet[rows]].tolist()
        for row, number, current in zip(rows.tolist(), numbers, frames.current_chunk[rows].tolist(), strict=True):
            self.packet_by_chunk[current] = number
            if number == chunk.packet and self._last_message and chunk.content in self._last_message.content:
                self.duplicate = self._last_message
            if row in completed:
                packets = tuple(self.packet_by_chunk[each] for each in range(1, chunk.no_chunks + 1))
                self._last_message = WholeMessage(completed[row], packets)
                if chunk.packet in packets:
                    return self._last_message
        return None

    @property
    def failure(self) -> str:
        missing = [each for each in range(1, self.chunk.no_chunks + 1) if each not in self.packet_by_chunk]
        if not missing:
            return "its chunks in this file are of different messages"
        listed = ", ".join(map(str, missing[:5])) + (" …" if len(missing) > 5 else "")
        return f"chunk{'s' if len(missing) > 1 else ''} {listed} {'are' if len(missing) > 1 else 'is'} not in this file"


def reassemble_message(file: Path, chunk: Chunk) -> WholeMessage | str:
    """The message; or why there is none."""
    gatherer = ChunkCollector(chunk)
    with open_source(file) as source:
        for batch in source:
            if message := gatherer.take(batch):
                return message
    return gatherer.duplicate or gatherer.failure
