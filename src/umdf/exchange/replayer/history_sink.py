"""A sink that keeps what a FIX/FAST channel sends on its incremental stream, for the replayers."""

from __future__ import annotations

import numpy as np

from umdf.exchange.publish.sinks import Packets
from umdf.exchange.replayer.history import ChannelHistory
from umdf.wire.packet import ChunkParser
from umdf.wire.reassembly import Reassembler


class HistorySink:
    """Takes the packets of one line; chunks become whole messages again (5.2.1)."""

    def __init__(self, history: ChannelHistory) -> None:
        self._history, self._chunk_parser, self._reassembler = history, ChunkParser(), Reassembler()

    def write(self, packets: Packets) -> None:
        start, end = np.ascontiguousarray(packets.start), np.ascontiguousarray(packets.end)
        chunks = self._chunk_parser.parse(packets.buffer, start, end)
        found = self._reassembler.add(chunks, np.zeros(len(packets), np.uint16))
        rows = [
            (order, sequence, ts_ns, bytes(messages.buffer[first:last]))
            for messages in (found.single_chunk, found.multi_chunk)
            for order, sequence, ts_ns, first, last in zip(
                messages.order.tolist(), messages.msg_seq_num.tolist(), packets.ts_ns[messages.packet].tolist(),
                messages.start.tolist(), messages.end.tolist(), strict=True,
            )
        ]  # fmt: skip
        rows.sort(key=lambda row: row[0])
        self._history.append(row[1:] for row in rows)

    def advance(self, now_ns: int) -> None:
        pass

    def close(self) -> None:
        self._history.close()
