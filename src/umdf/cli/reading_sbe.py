"""Binary packets of a capture as what a command shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.cli.found import Fault, Found, with_context
from umdf.transport.capture import PacketBatch
from umdf.wire.sbe.decode import Batch, Decoder
from umdf.wire.sbe.export import readable
from umdf.wire.sbe.layout import Node
from umdf.wire.sbe.schema import Message, OtherVersions, Schema
from umdf.wire.sbe.view import Values, fix_fields, rows, with_packet_header


class SbeReader:
    def __init__(self, schema: Schema) -> None:
        self._decoder = Decoder(schema)
        self._versions = OtherVersions(schema)

    def decode(self, path: str, packets: PacketBatch, chosen: NDArray[np.int64]) -> SbeDecoded:
        batch = self._decoder.decode(packets.buffer, packets.start[chosen], packets.end[chosen])
        self._versions.add(batch.other_versions)
        return SbeDecoded(path, packets, chosen, batch)

    def notices(self) -> list[str]:
        """What to say once about all that was decoded."""
        return self._versions.notices()


@dataclass(frozen=True)
class SbeDecoded:
    path: str
    packets: PacketBatch
    chosen: NDArray[np.int64]  # the packets of `batch`, by row of `packets`
    batch: Batch

    @property
    def count(self) -> int:
        return sum(int(self.batch.rows[node.index]) for node in self.batch.layout.roots.values())

    def messages(self, names: bool) -> Iterator[Found]:
        batch = self.batch
        numbers, times = self.packets.number[self.chosen].tolist(), self.packets.ts_ns[self.chosen].tolist()
        sent, channels, versions = batch.sending_time.tolist(), batch.channel.tolist(), batch.seq_version.tolist()
        sequences = batch.sequence.tolist()
        for row in rows(batch, names=names, dates=True):
            packet, message = row.packet, batch.layout.message_of(row.node)
            where = numbers[packet], times[packet], sent[packet], channels[packet], versions[packet], sequences[packet]
            fix = partial(_fix, message, row.fields, sequences[packet], sent[packet])
            yield Found(self.path, *where, row.msg_index, message.template_id, message.name, row.fields, fix)

    def _place(self, node: Node) -> NDArray[np.int64]:
        return self.batch.packet(node).astype(np.int64) << 16 | self.batch.msg_index(node)

    def tables(self, most: int | None) -> Iterator[tuple[str, pa.RecordBatch]]:
        batch = self.batch
        places = {template_id: self._place(batch.layout.roots[template_id]) for template_id in batch.templates}
        everything = np.sort(np.concatenate([*places.values(), np.empty(0, np.int64)]))
        last = everything[: len(everything) if most is None else most]
        for template_id, place in places.items():
            count = int((place <= last[-1]).sum()) if len(last) else 0
            if count:
                table = readable(batch.record_batch(template_id).slice(0, count))
                yield batch.layout.roots[template_id].path, self._with_context(table)

    def _with_context(self, table: pa.RecordBatch) -> pa.RecordBatch:
        packet = table.column("packet").to_numpy()
        frame = self.chosen[packet]
        context = {"packet": self.packets.number[frame], "ts_recv": self.packets.ts_ns[frame]}
        context["ts_send"] = self.batch.sending_time[packet]
        for name in ("channel", "seq_version", "sequence"):
            context[name] = getattr(self.batch, name)[packet]
        return with_context(self.path, context, table, ["packet"])

    def faults(self) -> Iterator[Fault]:
        for entry in self.batch.journal:
            if not entry.skipped:
                number = int(self.packets.number[self.chosen[entry.packet]])
                place = number, entry.msg_index, entry.offset, entry.template_id, entry.version
                yield Fault(self.path, *place, entry.field or None, entry.reason)

    def skipped(self) -> Iterator[str]:
        return (entry.reason for entry in self.batch.journal if entry.skipped)

    def reported(self) -> Iterator[str]:
        return iter(())


def _fix(message: Message, values: Values, sequence: int, sending_time_ns: int) -> Iterator[tuple[int, str]]:
    return with_packet_header(fix_fields(message, values), sequence, sending_time_ns)
