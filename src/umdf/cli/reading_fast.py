"""FAST datagrams of a capture (or a raw stream) as what a command shows: framed, reassembled, decoded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.cli.found import Fault, Found, with_context
from umdf.transport.capture import PacketBatch
from umdf.wire.fast.batch import Batch
from umdf.wire.fast.decode import Decoder
from umdf.wire.fast.templates import TemplateSet
from umdf.wire.fast.view import rows
from umdf.wire.packet import Framer, Frames
from umdf.wire.reassembly import Drop, Limits, Messages, Reassembler

UNKNOWN_TEMPLATE = "D9"
WAIT_MS = 60_000


class FastReader:
    def __init__(self, templates: TemplateSet) -> None:
        self._decoder = Decoder(templates)
        self._framer = Framer()
        # Files may tell times badly, and nothing is late in a file: wait long for a chunk.
        self._reassembler = Reassembler(Limits(wait_ms=WAIT_MS))

    def decode(self, path: str, packets: PacketBatch, chosen: NDArray[np.int64]) -> FastDecoded:
        frames = self._framer.frames(packets.buffer, packets.start[chosen], packets.end[chosen])
        taken = self._reassembler.take(frames, packets.flow[chosen], packets.ts_ns[chosen])
        parts = [
            (messages, self._decoder.decode(messages.buffer, messages.start, messages.end))
            for messages in (taken.direct, taken.gathered)
            if len(messages)
        ]
        return FastDecoded(path, packets, chosen, frames, parts, taken.drops)

    def finish(self) -> list[str]:
        """What is still incomplete at the end of a file: why, a sentence each."""
        return [_told(drop) for drop in self._reassembler.finish()]


def _told(drop: Drop) -> str:
    chunks = f"{drop.chunks_seen} of {drop.no_chunks} chunks"
    return f"message {drop.msg_seq_num} was dropped with {chunks}: {drop.reason}"


@dataclass(frozen=True)
class FastDecoded:
    path: str
    packets: PacketBatch
    chosen: NDArray[np.int64]  # the datagrams of `frames`, by row of `packets`
    frames: Frames
    parts: list[tuple[Messages, Batch]]  # messages of one chunk, and of several
    drops: list[Drop]

    @property
    def count(self) -> int:
        return sum(sum(int(batch.rows[root.index]) for root in batch.layout.roots.values()) for _, batch in self.parts)

    def messages(self, names: bool) -> Iterator[Found]:
        shown = []
        for messages, batch in self.parts:
            frame = self.chosen[messages.packet]
            numbers = self.packets.number[frame].tolist()
            times = [ns or None for ns in self.packets.ts_ns[frame].tolist()]  # a raw stream has none
            orders, indexes = messages.order.tolist(), messages.msg_index.tolist()
            sequences = messages.msg_seq_num.tolist()
            for row in rows(batch):
                i, template = row.number, row.template
                where = numbers[i], times[i], row.sending_time_ns, None, None, sequences[i], indexes[i]
                found = Found(self.path, *where, template.id or 0, template.name, row.fields, row.fix)
                shown.append((orders[i], found))
        shown.sort(key=lambda pair: pair[0])
        return (found for _, found in shown)

    def tables(self, most: int | None) -> Iterator[tuple[str, pa.RecordBatch]]:
        orders = [
            messages.order[batch.message(batch.layout.roots[template_id])]
            for messages, batch in self.parts
            for template_id in batch.templates
        ]
        everything = np.sort(np.concatenate([*orders, np.empty(0, np.int64)]))
        taken = everything[: len(everything) if most is None else most]
        for messages, batch in self.parts:
            for template_id in batch.templates:
                root = batch.layout.roots[template_id]
                number = batch.message(root)
                count = int((messages.order[number] <= taken[-1]).sum()) if len(taken) else 0
                if count:
                    table = batch.record_batch(template_id).slice(0, count)
                    yield root.path, self._with_context(table, messages, number[:count])

    def _with_context(self, table: pa.RecordBatch, messages: Messages, number: NDArray[np.uint32]) -> pa.RecordBatch:
        frame = self.chosen[messages.packet[number]]
        context = {"packet": self.packets.number[frame], "ts_recv": self.packets.ts_ns[frame]}
        context |= {"sequence": messages.msg_seq_num[number], "msg_index": messages.msg_index[number]}
        return with_context(self.path, context, table, ["message"])

    def faults(self) -> Iterator[Fault]:
        for entry in self.frames.journal:
            number = int(self.packets.number[self.chosen[entry.packet]])
            yield Fault(self.path, number, entry.msg_index, entry.offset, None, None, None, entry.reason)
        for drop in self.drops:
            yield Fault(self.path, None, None, 0, None, None, None, _told(drop))
        for messages, batch in self.parts:
            for entry in batch.journal:
                if entry.refused and entry.code != UNKNOWN_TEMPLATE:
                    packet, index = int(messages.packet[entry.message]), int(messages.msg_index[entry.message])
                    number = int(self.packets.number[self.chosen[packet]])
                    reason = f"{entry.code}: {entry.reason}"
                    field = entry.field or None
                    yield Fault(self.path, number, index, entry.offset, entry.template_id, None, field, reason)

    def skipped(self) -> Iterator[str]:
        for _, batch in self.parts:
            for entry in batch.journal:
                if entry.code == UNKNOWN_TEMPLATE:
                    yield f"template {entry.template_id} is not in the file"

    def reported(self) -> Iterator[str]:
        for _, batch in self.parts:
            for entry in batch.journal:
                if not entry.refused:
                    yield f"{entry.code}, {entry.reason}"
