"""A bulk capture as FIX/FAST: today's templates by price and priority, the previous ones by position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from umdf.buffers import Pool
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.publish import fast_packet_kernel as g
from umdf.exchange.publish import unit_builder_kernel as w
from umdf.exchange.publish.channel_settings import FAST, INCREMENTAL, POSITION, SNAPSHOTS, ChannelSettings
from umdf.exchange.publish.direct_fast_encoder import DirectFastEncoder
from umdf.exchange.publish.publisher import (
    SEND_DELAY_NS,
    JournalBatch,
    Publisher,
    kernel_limits,
    sequence_of_records,
)
from umdf.exchange.publish.rpt_seq import COUNTED_BY_FAST
from umdf.exchange.publish.sinks import Numbers, Packets
from umdf.exchange.publish.unit_builder import FAMILY_OF_KIND, UnitBatch, UnitBuilder
from umdf.market.fast.messages import FastMessageMapper
from umdf.market.rows import Events
from umdf.wire.fast.encode.encoder import EncodedMessages, Encoder
from umdf.wire.fast.loader import load

PRIORITY_TEMPLATES, POSITION_TEMPLATES = (152, 153, 1149), (145, 147, 149)
UNIT_MODES = {
    **dict.fromkeys((k.GROUP_PHASE, k.STATE, k.NEWS, k.SEQUENCE_RESET, k.CHANNEL_RESET, k.EMPTY_BOOK), w.OWN_UNIT),
    k.HEARTBEAT: w.HEARTBEAT_UNIT,
    k.DEFINITION: w.DEFINITION_UNIT,
}
NOT_SENT = {k.EXECUTION_SUMMARY}  # FIX/FAST has no execution summary
NOT_IN_SNAPSHOTS = {k.GROUP_PHASE}  # the state of each instrument includes the phase (11.4)
MAX_ENTRIES, MAX_DEFINITIONS = 100, 5
MAX_BYTES, WINDOW_NS, LOOP_WINDOW_NS = 1_420, 30_000, 1 << 62


class FastPublisher(Publisher):
    protocol, counted = FAST, COUNTED_BY_FAST

    def __init__(self, settings: ChannelSettings, listing: Any, *more: Any) -> None:
        templates = load()
        self.template_ids = POSITION_TEMPLATES if settings.generation == POSITION else PRIORITY_TEMPLATES
        self.format_versions = {"templates": list(self.template_ids)}
        self.direct_encoder: DirectFastEncoder | None = None
        self._messages, self._encoder = FastMessageMapper(templates, *self.template_ids), Encoder(templates)
        self._pool = Pool()
        super().__init__(settings, listing, *more)
        self.direct_encoder = DirectFastEncoder(settings, self._encoder, self.template_ids[0], listing)

    def _publish_numbered(
        self, batch: JournalBatch, rpt_seq: Numbers, loop_times: Callable[[str, int], Numbers] | None
    ) -> Numbers:
        direct = self.direct_encoder
        if batch.stream == INCREMENTAL and direct is not None and direct.supports(batch.records):
            builder, first = self._unit_builders[INCREMENTAL], self._next_sequence[INCREMENTAL]
            units, next_sequence = builder.build(batch.records, rpt_seq, first, has_columns=False)
            ts_ns = units.ts_ns + SEND_DELAY_NS
            encoded = direct.encode(batch.records, rpt_seq, units, ts_ns)
            if encoded is not None:
                self._next_sequence[INCREMENTAL], self._last_sequence[INCREMENTAL] = next_sequence, next_sequence - 1
                self.counts[INCREMENTAL, "mbo"] += len(batch.records)
                self._write(batch, self._to_packets(encoded, units, ts_ns, True))
                return sequence_of_records(units.sequence, units.record_unit)
        return super()._publish_numbered(batch, rpt_seq, loop_times)

    def _unit_builder(self, stream: str) -> UnitBuilder:
        excluded = NOT_SENT | (NOT_IN_SNAPSHOTS if stream == SNAPSHOTS else set())
        kinds = {kind: (0, UNIT_MODES.get(kind, w.SHARED_UNIT)) for kind in FAMILY_OF_KIND if kind not in excluded}
        return UnitBuilder(
            w.build_messages, kinds, kernel_limits(max_entries=MAX_ENTRIES, max_messages=MAX_DEFINITIONS)
        )

    def _fill_sizes(self, batch: JournalBatch) -> None:
        pass  # nothing here depends on the length of a message

    def _encode(self, events: Events) -> EncodedMessages:
        return self._encoder.encode(self._messages.messages(events))

    def _to_packets(self, encoded: Any, units: UnitBatch, ts_ns: Numbers, is_paced: bool) -> Packets:
        count, size = len(encoded.start), len(encoded.buffer)
        assert count == len(units.sequence), "a message for each unit"
        max_packets = count + size // (MAX_BYTES - g.TECHNICAL_HEADER) + 1
        memory = self._pool.acquire(size + g.TECHNICAL_HEADER * (count + max_packets))
        packet_columns = np.empty((4, max_packets), np.int64)
        table = np.zeros(g.ARGUMENT_COUNT, np.int64)
        arrays = [np.ascontiguousarray(a, np.int64) for a in (encoded.start, encoded.end, units.sequence, ts_ns)]
        table[g.G_BUFFER], table[g.G_START : g.G_MESSAGES] = encoded.buffer.ctypes.data, [a.ctypes.data for a in arrays]
        table[g.G_MESSAGES], table[g.G_OUT], table[g.G_CAPACITY] = count, memory.address, memory.nbytes
        table[g.G_FIRST_BYTE : g.G_MAX_PACKETS], table[g.G_MAX_PACKETS] = (
            [row.ctypes.data for row in packet_columns],
            max_packets,
        )
        window = WINDOW_NS if is_paced else LOOP_WINDOW_NS
        table[g.G_MAX_BYTES], table[g.G_WINDOW_NS] = MAX_BYTES, window
        packet_count = int(g.build_packets(table.ctypes.data))
        assert packet_count >= 0, "there is room for every chunk"
        start, end, first, last = packet_columns[:, :packet_count]
        return Packets(memory.array, start, end, ts_ns[last], units.sequence[first], units.sequence[last])
