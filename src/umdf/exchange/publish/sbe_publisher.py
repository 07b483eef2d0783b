"""A bulk capture as Binary UMDF: version 16 by price and priority, version 10 by position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.publish import unit_builder_kernel as w
from umdf.exchange.publish.channel_settings import INCREMENTAL, INSTRUMENTS, SBE, SNAPSHOTS, ChannelSettings
from umdf.exchange.publish.direct_encoder import DirectEncoder
from umdf.exchange.publish.publisher import (
    SEND_DELAY_NS,
    JournalBatch,
    Publisher,
    kernel_limits,
    sequence_of_records,
)
from umdf.exchange.publish.rpt_seq import COUNTED_BY_SBE
from umdf.exchange.publish.sinks import Numbers, Packets
from umdf.exchange.publish.unit_builder import FAMILY_OF_KIND, UnitBatch, UnitBuilder
from umdf.market.rows import Events
from umdf.market.sbe.messages import SbeMessageMapper
from umdf.wire.sbe.encode import EncodedPackets, Encoder
from umdf.wire.sbe.loader import load

TEMPLATES = {
    k.ADD: 50, k.CHANGE: 50, k.DELETE: 51, k.DELETE_FROM: 52, k.DELETE_THRU: 52, k.EMPTY_BOOK: 9, k.CHANNEL_RESET: 11,
    k.SNAPSHOT_ORDER: 71, k.TRADE: 53, k.BUST: 57, k.EXECUTION_SUMMARY: 55, k.OPENING: 15, k.THEORETICAL: 16,
    k.CLOSING: 17, k.SETTLEMENT: 28, k.HIGH: 24, k.LOW: 25, k.EXECUTION: 56, k.OPEN_INTEREST: 29, k.LAST_PRICE: 27,
    k.IMBALANCE: 19, k.PRICE_BAND: 22, k.QUANTITY_BAND: 21, k.GROUP_PHASE: 10, k.STATE: 3, k.DEFINITION: 12, k.NEWS: 5,
    k.SNAPSHOT_HEADER: 30, k.HEARTBEAT: 2, k.SEQUENCE_RESET: 1,
}  # fmt: skip
UNIT_MODES = {
    k.HEARTBEAT: w.HEARTBEAT_UNIT,
    k.SEQUENCE_RESET: w.OWN_UNIT,
    k.CHANNEL_RESET: w.OWN_UNIT,
    k.NEWS: w.OWN_UNIT,
}
SIZE_IN_RECORD = 0  # the length of a definition is in its record
MESSAGE_HEADER, GROUP_HEADER = 12, 3
MAX_BYTES, MAX_MESSAGES, WINDOW_NS = 1_400, 18, 8_000
MAX_ORDERS, MAX_DEFINITIONS, MAX_SNAPSHOT_MESSAGES = 33, 4, 200
NO_WINDOW = 1 << 62


class SbePublisher(Publisher):
    protocol, counted = SBE, COUNTED_BY_SBE

    def __init__(self, settings: ChannelSettings, listing: Any, *more: Any) -> None:
        self._schema = load()
        self.schema_version = settings.schema_version
        self.format_versions = {"schema_version": self.schema_version}
        self._messages = SbeMessageMapper(self._schema, self.schema_version)
        self._encoder = Encoder(self._schema, self.schema_version)
        roots = self._encoder.layout.roots
        self._block_bytes = {
            template: roots[template].block.block_length_of(self.schema_version) for template in TEMPLATES.values()
        }
        self._entry_bytes = roots[71].block.groups[0].block_length_of(self.schema_version)
        super().__init__(settings, listing, *more)
        self.direct_encoder: DirectEncoder | None = self._direct_encoder(listing.trading_date)

    def _direct_encoder(self, trading_date: int) -> DirectEncoder:
        packet_limits = MAX_BYTES, MAX_MESSAGES, WINDOW_NS, SEND_DELAY_NS
        channel, ids = self.settings.channel, self.listing.instrument_ids
        return DirectEncoder(self._schema, self.schema_version, TEMPLATES, trading_date, channel, packet_limits, ids)

    def set_trading_date(self, trading_date: int) -> None:
        super().set_trading_date(trading_date)
        self.direct_encoder = self._direct_encoder(trading_date)

    def _publish_numbered(
        self, batch: JournalBatch, rpt_seq: Numbers, loop_times: Callable[[str, int], Numbers] | None
    ) -> Numbers:
        direct = self.direct_encoder
        if batch.stream == INCREMENTAL and direct is not None and direct.supports(batch.records):
            return self._publish_direct(direct, batch, rpt_seq)
        return super()._publish_numbered(batch, rpt_seq, loop_times)

    def _publish_direct(self, direct: DirectEncoder, batch: JournalBatch, rpt_seq: Numbers) -> Numbers:
        buffer, (start, end, sequence, ts_ns), record_packet, self._next_sequence[INCREMENTAL] = direct.encode(
            batch.records, rpt_seq, self._next_sequence[INCREMENTAL], self.seq_versions[INCREMENTAL]
        )
        kind_counts = np.bincount(batch.records[:, k.KIND], minlength=k.KINDS)
        for kind in np.flatnonzero(kind_counts).tolist():
            if kind in TEMPLATES:
                self.counts[INCREMENTAL, FAMILY_OF_KIND[kind]] += int(kind_counts[kind])
        self._last_sequence[INCREMENTAL] = self._next_sequence[INCREMENTAL] - 1
        self._write(batch, Packets(buffer, start, end, ts_ns, sequence, sequence))
        return sequence_of_records(sequence, record_packet)

    def _unit_builder(self, stream: str) -> UnitBuilder:
        sizes = {kind: MESSAGE_HEADER + self._block_bytes[template] for kind, template in TEMPLATES.items()}
        sizes[k.SNAPSHOT_ORDER] += GROUP_HEADER
        sizes[k.DEFINITION] = SIZE_IN_RECORD
        messages, window = {
            SNAPSHOTS: (MAX_SNAPSHOT_MESSAGES, NO_WINDOW),
            INSTRUMENTS: (MAX_DEFINITIONS, NO_WINDOW),
        }.get(stream, (MAX_MESSAGES, WINDOW_NS))
        return UnitBuilder(
            w.build_packets,
            {kind: (size, UNIT_MODES.get(kind, w.SHARED_UNIT)) for kind, size in sizes.items()},
            kernel_limits(
                max_bytes=MAX_BYTES,
                max_messages=messages,
                window_ns=window,
                entry_bytes=self._entry_bytes,
                max_entries=MAX_ORDERS,
            ),
        )

    def _fill_sizes(self, batch: JournalBatch) -> None:
        rows = np.flatnonzero(batch.records[:, k.KIND] == k.DEFINITION)
        if len(rows):
            numbers = batch.records[rows, k.OTHER]
            batch.records[rows, k.AUX] = self.listing.definitions.sbe_bytes(numbers, self._block_bytes[12])

    def _encode(self, events: Events) -> EncodedPackets:
        headers, batches = self._messages.messages(events)
        assert not self._messages.unmapped_rows, self._messages.unmapped_rows
        return self._encoder.encode(headers, batches)

    def _to_packets(self, encoded: Any, units: UnitBatch, ts_ns: Numbers, is_paced: bool) -> Packets:
        return Packets(encoded.buffer, encoded.start, encoded.end, ts_ns, units.sequence, units.sequence)
