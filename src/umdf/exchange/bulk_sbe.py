"""A bulk capture as Binary UMDF: version 16 by price and priority, version 10 by position."""

from __future__ import annotations

from typing import Any

import numpy as np

from umdf.exchange import bulk_layout_kernel as w
from umdf.exchange import bulk_places_kernel as k
from umdf.exchange.bulk_direct import Direct
from umdf.exchange.bulk_layout import FAMILY_OF_KIND, Laid, LayOut
from umdf.exchange.bulk_publisher import (
    INCREMENTAL,
    INSTRUMENTS,
    SEND_NS,
    SNAPSHOTS,
    Numbers,
    Packets,
    Piece,
    Publisher,
    limits,
)
from umdf.exchange.bulk_settings import POSITION
from umdf.market.rows import Events
from umdf.market.sbe_messages import SbeMessages
from umdf.wire.sbe.encode import Encoded, Encoder
from umdf.wire.sbe.loader import load

TEMPLATES = {
    k.ADD: 50, k.CHANGE: 50, k.DELETE: 51, k.DELETE_FROM: 52, k.DELETE_THRU: 52, k.EMPTY_BOOK: 9, k.CHANNEL_RESET: 11,
    k.SNAPSHOT_ORDER: 71, k.TRADE: 53, k.BUST: 57, k.SUMMARY: 55, k.OPENING: 15, k.THEORETICAL: 16, k.CLOSING: 17,
    k.SETTLEMENT: 28, k.HIGH: 24, k.LOW: 25, k.EXECUTION: 56, k.INTEREST: 29, k.LAST_PRICE: 27, k.IMBALANCE: 19,
    k.PRICE_BAND: 22, k.QUANTITY_BAND: 21, k.GROUP_PHASE: 10, k.STATE: 3, k.DEFINITION: 12, k.NEWS: 5,
    k.SNAPSHOT_HEADER: 30, k.HEARTBEAT: 2, k.SEQUENCE_RESET: 1,
}  # fmt: skip
HOW = {k.HEARTBEAT: w.BEAT, k.SEQUENCE_RESET: w.ALONE, k.CHANNEL_RESET: w.ALONE, k.NEWS: w.ALONE}
BY_LINE = 0  # a definition's length stands in its line
MESSAGE_HEADER, GROUP_HEADER = 12, 3
MOST_BYTES, MOST_MESSAGES, WINDOW_NS = 1_400, 18, 30_000
MOST_ORDERS, MOST_DEFINITIONS, MOST_IN_SNAPSHOT = 33, 4, 200
NO_WINDOW = 1 << 62
PRIORITY_VERSION, POSITION_VERSION = 16, 10


class SbePublisher(Publisher):
    wire, rpt_seq = "sbe", k.RPT_SBE
    versions = {"incremental": 273, "snapshot": 20_287, "instruments": 14_295}

    def __init__(self, settings: Any, listing: Any, manifest: Any, truth: Any) -> None:
        schema = load()
        self.schema_version = POSITION_VERSION if settings.generation == POSITION else PRIORITY_VERSION
        self.layout_versions = {"schema_version": self.schema_version}
        self._messages, self._encoder = SbeMessages(schema, self.schema_version), Encoder(schema, self.schema_version)
        roots = self._encoder.layout.roots
        self._block = {
            template: roots[template].block.block_length_of(self.schema_version) for template in TEMPLATES.values()
        }
        self._entry_bytes = roots[71].block.groups[0].block_length_of(self.schema_version)
        super().__init__(settings, listing, manifest, truth)
        header = settings.channel | self.versions[INCREMENTAL] << 16
        bounds = MOST_BYTES, MOST_MESSAGES, WINDOW_NS, SEND_NS
        self.direct: Direct | None = Direct(
            schema, self.schema_version, TEMPLATES, settings.trading_date, header, bounds
        )

    def publish(self, piece: Piece) -> None:
        if piece.stream == INCREMENTAL and self.direct is not None and self.direct.can(piece.lines):
            self._publish_directly(self.direct, piece)
        else:
            super().publish(piece)

    def _publish_directly(self, direct: Direct, piece: Piece) -> None:
        buffer, (start, end, sequence, ts_ns), self._following[INCREMENTAL] = direct.packets(
            piece.lines, self._following[INCREMENTAL]
        )
        kinds = np.bincount(piece.lines[:, k.KIND], minlength=k.KINDS)
        for kind in np.flatnonzero(kinds).tolist():
            if kind in TEMPLATES:
                self.counts[INCREMENTAL, FAMILY_OF_KIND[kind]] += int(kinds[kind])
        self._write(piece, Packets(buffer, start, end, ts_ns, sequence, sequence))

    def _layout(self, stream: str) -> LayOut:
        sizes = {kind: MESSAGE_HEADER + self._block[template] for kind, template in TEMPLATES.items()}
        sizes[k.SNAPSHOT_ORDER] += GROUP_HEADER
        sizes[k.DEFINITION] = BY_LINE
        messages, window = {SNAPSHOTS: (MOST_IN_SNAPSHOT, NO_WINDOW), INSTRUMENTS: (MOST_DEFINITIONS, NO_WINDOW)}.get(
            stream, (MOST_MESSAGES, WINDOW_NS)
        )
        return LayOut(
            w.lay_out_sbe,
            {kind: (size, HOW.get(kind, w.TOGETHER)) for kind, size in sizes.items()},
            limits(
                most_bytes=MOST_BYTES,
                most_messages=messages,
                window_ns=window,
                entry_bytes=self._entry_bytes,
                most_entries=MOST_ORDERS,
            ),
        )

    def _prepare(self, piece: Piece) -> None:
        chosen = np.flatnonzero(piece.lines[:, k.KIND] == k.DEFINITION)
        if len(chosen):
            which = piece.lines[chosen, k.ID]
            piece.lines[chosen, k.AUX] = self.listing.sbe_bytes(which, self._block[12])

    def _encode(self, events: Events) -> Encoded:
        headers, batches = self._messages.messages(events)
        assert not self._messages.left_out, self._messages.left_out
        return self._encoder.encode(headers, batches)

    def _packets(self, encoded: Any, laid: Laid, ts_ns: Numbers, stream: str) -> Packets:
        return Packets(encoded.buffer, encoded.start, encoded.end, ts_ns, laid.sequence, laid.sequence)
