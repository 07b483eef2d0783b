"""The whole FAST message of a chunk, wherever in the file its other chunks are."""

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
    flow: int  # as numbered in the file
    packet: int
    msg_seq_num: int
    no_chunks: int
    content: bytes


@dataclass(frozen=True)
class WholeMessage:
    content: bytes
    packets: tuple[int, ...]  # of its chunks, in their order


class ChunkCollector:
    """Searches a file for one message. Sequences may repeat (4.2.6): the reassembler decides which chunks belong
    together."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.packet_by_chunk: dict[int, int] = {}  # chunk → packet of its last occurrence
        self.duplicate: WholeMessage | None = None  # the message that was complete before our chunk was repeated
        self._last_message: WholeMessage | None = None
        self._chunk_parser = ChunkParser()
        self._reassembler = Reassembler(Limits(wait_ms=CHUNK_WAIT_MS))

    def take(self, batch: PacketBatch) -> WholeMessage | None:
        """The message, if this batch completes it."""
        chunk, flow_rows = self.chunk, np.flatnonzero(batch.flow == self.chunk.flow)
        chunks = self._chunk_parser.parse(batch.buffer, batch.start[flow_rows], batch.end[flow_rows])
        completed_messages = self._reassembler.add(chunks, batch.flow[flow_rows], batch.ts_ns[flow_rows]).multi_chunk
        spans = zip(
            completed_messages.order.tolist(),
            completed_messages.start.tolist(),
            completed_messages.end.tolist(),
            strict=True,
        )
        completed = {row: completed_messages.buffer[start:end].tobytes() for row, start, end in spans}
        rows = np.flatnonzero((chunks.msg_seq_num == chunk.msg_seq_num) & (chunks.no_chunks == chunk.no_chunks))
        numbers = batch.number[flow_rows][chunks.packet[rows]].tolist()
        for row, number, current in zip(rows.tolist(), numbers, chunks.current_chunk[rows].tolist(), strict=True):
            self.packet_by_chunk[current] = number
            if number == chunk.packet and self._last_message and chunk.content in self._last_message.content:
                self.duplicate = self._last_message
            if row in completed:
                packets = tuple(self.packet_by_chunk[number] for number in range(1, chunk.no_chunks + 1))
                self._last_message = WholeMessage(completed[row], packets)
                if chunk.packet in packets:
                    return self._last_message
        return None

    @property
    def failure(self) -> str:
        missing = [number for number in range(1, self.chunk.no_chunks + 1) if number not in self.packet_by_chunk]
        if not missing:
            return "the chunks in this file belong to different messages"
        listed = ", ".join(map(str, missing[:5])) + (" …" if len(missing) > 5 else "")
        return f"chunk{'s' if len(missing) > 1 else ''} {listed} {'are' if len(missing) > 1 else 'is'} not in this file"


def reassemble_message(file: Path, chunk: Chunk) -> WholeMessage | str:
    """The message, or why it is incomplete."""
    collector = ChunkCollector(chunk)
    with open_source(file) as source:
        for batch in source:
            if message := collector.take(batch):
                return message
    return collector.duplicate or collector.failure
