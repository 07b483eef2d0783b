"""A sink that keeps what a FIX/FAST channel sends on its incremental stream, for the replayers."""

from __future__ import annotations

import numpy as np

from umdf.exchange.network.renumbering import SEQUENCE_RESET, template_id
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
        first = 0
        for at, row in enumerate(rows):
            # It has the last number of the old numbering, is not replayed itself (reference 1.2.1), and nothing
            # before it is served from now on (4.2.8): not even until the first message of the new numbering.
            if template_id(row[3]) == SEQUENCE_RESET:
                self._history.append(row[1:] for row in rows[first:at])
                self._history.start_epoch()
                first = at + 1
        self._history.append(row[1:] for row in rows[first:])

    def advance(self, now_ns: int) -> None:
        pass

    def close(self) -> None:
        self._history.close()
