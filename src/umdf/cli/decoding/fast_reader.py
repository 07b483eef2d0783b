"""FAST packets of a capture or a raw stream: split into chunks, reassembled, decoded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.cli.decoding.messages import DecodedMessage, QuarantineEntry, with_source_columns
from umdf.transport.capture import PacketBatch
from umdf.wire.fast.decode.batch import Batch
from umdf.wire.fast.decode.decoder import Decoder
from umdf.wire.fast.templates import TemplateSet
from umdf.wire.fast.view import rows
from umdf.wire.packet import ChunkParser, Chunks
from umdf.wire.reassembly import DroppedMessage, Limits, Messages, Reassembler

UNKNOWN_TEMPLATE = "D9"
CHUNK_WAIT_MS = 60_000


class FastReader:
    def __init__(self, templates: TemplateSet) -> None:
        self._decoder = Decoder(templates)
        self._chunk_parser = ChunkParser()
        # The times of a file may be imprecise, and nothing is late in a file: wait long for a chunk.
        self._reassembler = Reassembler(Limits(wait_ms=CHUNK_WAIT_MS))

    def decode(self, path: str, packets: PacketBatch, packet_rows: NDArray[np.int64]) -> FastDecodedBatch:
        chunks = self._chunk_parser.parse(packets.buffer, packets.start[packet_rows], packets.end[packet_rows])
        reassembled = self._reassembler.add(chunks, packets.flow[packet_rows], packets.ts_ns[packet_rows])
        parts = [
            (messages, self._decoder.decode(messages.buffer, messages.start, messages.end))
            for messages in (reassembled.single_chunk, reassembled.multi_chunk)
            if len(messages)
        ]
        return FastDecodedBatch(path, packets, packet_rows, chunks, parts, reassembled.dropped)

    def finish(self) -> list[str]:
        """The messages that are incomplete at the end of a file, each with the reason."""
        return [_drop_text(drop) for drop in self._reassembler.finish()]


def _drop_text(drop: DroppedMessage) -> str:
    chunks = f"{drop.chunks_received} of {drop.no_chunks} chunks"
    return f"message {drop.msg_seq_num} dropped with {chunks}: {drop.reason}"


@dataclass(frozen=True)
class FastDecodedBatch:
    path: str
    packets: PacketBatch
    packet_rows: NDArray[np.int64]  # the packets of `chunks`, as rows of `packets`
    chunks: Chunks
    parts: list[tuple[Messages, Batch]]  # messages of one chunk, and of several
    dropped: list[DroppedMessage]

    @property
    def count(self) -> int:
        return sum(sum(int(batch.rows[root.index]) for root in batch.layout.roots.values()) for _, batch in self.parts)

    def messages(self, names: bool) -> Iterator[DecodedMessage]:
        by_order = []
        for messages, batch in self.parts:
            packet_rows = self.packet_rows[messages.packet]
            numbers = self.packets.number[packet_rows].tolist()
            times = [ns or None for ns in self.packets.ts_ns[packet_rows].tolist()]  # a raw stream has none
            orders, indexes = messages.order.tolist(), messages.msg_index.tolist()
            sequences = messages.msg_seq_num.tolist()
            for row in rows(batch):
                i, template = row.number, row.template
                location = numbers[i], times[i], row.sending_time_ns, None, None, sequences[i], indexes[i]
                message = DecodedMessage(self.path, *location, template.id or 0, template.name, row.fields, row.fix)
                by_order.append((orders[i], message))
        by_order.sort(key=lambda pair: pair[0])
        return (message for _, message in by_order)

    def tables(self, limit: int | None) -> Iterator[tuple[str, pa.RecordBatch]]:
        orders = [
            messages.order[batch.message(batch.layout.roots[template_id])]
            for messages, batch in self.parts
            for template_id in batch.templates
        ]
        all_orders = np.sort(np.concatenate([*orders, np.empty(0, np.int64)]))
        first_orders = all_orders[: len(all_orders) if limit is None else limit]
        for messages, batch in self.parts:
            for template_id in batch.templates:
                root = batch.layout.roots[template_id]
                message_rows = batch.message(root)
                count = int((messages.order[message_rows] <= first_orders[-1]).sum()) if len(first_orders) else 0
                if count:
                    table = batch.record_batch(template_id).slice(0, count)
                    yield root.path, self._with_source_columns(table, messages, message_rows[:count])

    def _with_source_columns(
        self, table: pa.RecordBatch, messages: Messages, message_rows: NDArray[np.uint32]
    ) -> pa.RecordBatch:
        packet_rows = self.packet_rows[messages.packet[message_rows]]
        context = {"packet": self.packets.number[packet_rows], "ts_recv": self.packets.ts_ns[packet_rows]}
        context |= {"sequence": messages.msg_seq_num[message_rows], "msg_index": messages.msg_index[message_rows]}
        return with_source_columns(self.path, context, table, ["message"])

    def quarantine(self) -> Iterator[QuarantineEntry]:
        for entry in self.chunks.quarantine:
            frame_number = int(self.packets.number[self.packet_rows[entry.packet]])
            yield QuarantineEntry(
                self.path, frame_number, entry.msg_index, entry.offset, None, None, None, entry.reason
            )
        for drop in self.dropped:
            yield QuarantineEntry(self.path, None, None, 0, None, None, None, _drop_text(drop))
        for messages, batch in self.parts:
            for entry in batch.quarantine:
                if entry.is_quarantined and entry.code != UNKNOWN_TEMPLATE:
                    packet, index = int(messages.packet[entry.message]), int(messages.msg_index[entry.message])
                    frame_number = int(self.packets.number[self.packet_rows[packet]])
                    reason = f"{entry.code}: {entry.reason}"
                    field = entry.field or None
                    yield QuarantineEntry(
                        self.path, frame_number, index, entry.offset, entry.template_id, None, field, reason
                    )

    def skip_reasons(self) -> Iterator[str]:
        for _, batch in self.parts:
            for entry in batch.quarantine:
                if entry.code == UNKNOWN_TEMPLATE:
                    yield f"unknown template {entry.template_id}"

    def anomalies(self) -> Iterator[str]:
        for _, batch in self.parts:
            for entry in batch.quarantine:
                if not entry.is_quarantined:
                    yield f"{entry.code}, {entry.reason}"
