"""Binary packets of a capture, decoded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.cli.decoding.messages import DecodedMessage, QuarantineEntry, with_source_columns
from umdf.transport.capture import PacketBatch
from umdf.wire.sbe.decode import Batch, Decoder
from umdf.wire.sbe.export import to_readable
from umdf.wire.sbe.layout import Node
from umdf.wire.sbe.schema import Message, OtherVersions, Schema
from umdf.wire.sbe.view import Values, fix_fields, rows, with_packet_header


class SbeReader:
    def __init__(self, schema: Schema) -> None:
        self._decoder = Decoder(schema)
        self._versions = OtherVersions(schema)

    def decode(self, path: str, packets: PacketBatch, packet_rows: NDArray[np.int64]) -> SbeDecodedBatch:
        batch = self._decoder.decode(packets.buffer, packets.start[packet_rows], packets.end[packet_rows])
        self._versions.add(batch.other_versions)
        return SbeDecodedBatch(path, packets, packet_rows, batch)

    def notices(self) -> list[str]:
        """Notices about all that was decoded, to be printed once."""
        return self._versions.notices()


@dataclass(frozen=True)
class SbeDecodedBatch:
    path: str
    packets: PacketBatch
    packet_rows: NDArray[np.int64]  # the packets of `batch`, as rows of `packets`
    batch: Batch

    @property
    def count(self) -> int:
        return sum(int(self.batch.rows[node.index]) for node in self.batch.layout.roots.values())

    def messages(self, names: bool) -> Iterator[DecodedMessage]:
        batch = self.batch
        numbers, times = self.packets.number[self.packet_rows].tolist(), self.packets.ts_ns[self.packet_rows].tolist()
        sent, channels, versions = batch.sending_time.tolist(), batch.channel.tolist(), batch.seq_version.tolist()
        sequences = batch.sequence.tolist()
        for row in rows(batch, names=names, dates=True):
            packet, message = row.packet, batch.layout.message_of(row.node)
            location = (
                numbers[packet],
                times[packet],
                sent[packet],
                channels[packet],
                versions[packet],
                sequences[packet],
            )
            fix = partial(_fix_tags, message, row.fields, sequences[packet], sent[packet])
            yield DecodedMessage(
                self.path, *location, row.msg_index, message.template_id, message.name, row.fields, fix
            )

    def _wire_order(self, node: Node) -> NDArray[np.int64]:
        return self.batch.packet(node).astype(np.int64) << 16 | self.batch.msg_index(node)

    def tables(self, limit: int | None) -> Iterator[tuple[str, pa.RecordBatch]]:
        batch = self.batch
        locations = {template_id: self._wire_order(batch.layout.roots[template_id]) for template_id in batch.templates}
        all_locations = np.sort(np.concatenate([*locations.values(), np.empty(0, np.int64)]))
        last = all_locations[: len(all_locations) if limit is None else limit]
        for template_id, location in locations.items():
            count = int((location <= last[-1]).sum()) if len(last) else 0
            if count:
                table = to_readable(batch.record_batch(template_id).slice(0, count))
                yield batch.layout.roots[template_id].path, self._with_source_columns(table)

    def _with_source_columns(self, table: pa.RecordBatch) -> pa.RecordBatch:
        packet = table.column("packet").to_numpy()
        packet_rows = self.packet_rows[packet]
        context = {"packet": self.packets.number[packet_rows], "ts_recv": self.packets.ts_ns[packet_rows]}
        context["ts_send"] = self.batch.sending_time[packet]
        for name in ("channel", "seq_version", "sequence"):
            context[name] = getattr(self.batch, name)[packet]
        return with_source_columns(self.path, context, table, ["packet"])

    def quarantine(self) -> Iterator[QuarantineEntry]:
        for entry in self.batch.quarantine:
            if not entry.is_skipped:
                number = int(self.packets.number[self.packet_rows[entry.packet]])
                location = number, entry.msg_index, entry.offset, entry.template_id, entry.version
                yield QuarantineEntry(self.path, *location, entry.field or None, entry.reason)

    def skip_reasons(self) -> Iterator[str]:
        return (entry.reason for entry in self.batch.quarantine if entry.is_skipped)

    def anomalies(self) -> Iterator[str]:
        return iter(())


def _fix_tags(message: Message, values: Values, sequence: int, sending_time_ns: int) -> Iterator[tuple[int, str]]:
    return with_packet_header(fix_fields(message, values), sequence, sending_time_ns)
