"""A bulk capture as FIX/FAST: today's templates by price and priority, the previous ones by position."""

from __future__ import annotations

from typing import Any

import numpy as np

from umdf.buffers import Pool
from umdf.exchange import bulk_datagram_kernel as g
from umdf.exchange import bulk_layout_kernel as w
from umdf.exchange import bulk_places_kernel as k
from umdf.exchange.bulk_layout import FAMILY_OF_KIND, Laid, LayOut
from umdf.exchange.bulk_publisher import INCREMENTAL, SNAPSHOTS, Numbers, Packets, Piece, Publisher, limits
from umdf.exchange.bulk_settings import POSITION
from umdf.market.fast_messages import FastMessages
from umdf.market.rows import Events
from umdf.wire.fast.encode import Encoded, Encoder
from umdf.wire.fast.loader import load

PRIORITY_TEMPLATES, POSITION_TEMPLATES = (152, 153, 1149), (145, 147, 149)
HOW = {
    **dict.fromkeys((k.GROUP_PHASE, k.STATE, k.NEWS, k.SEQUENCE_RESET, k.CHANNEL_RESET, k.EMPTY_BOOK), w.ALONE),
    k.HEARTBEAT: w.BEAT,
    k.DEFINITION: w.LISTED,
}
NOT_SENT = {k.SUMMARY}  # FIX/FAST has no execution summary
NOT_IN_SNAPSHOTS = {k.GROUP_PHASE}  # the phase stands with the state of each instrument (11.4)
MOST_ENTRIES, MOST_LISTED = 100, 5
MOST_BYTES, WINDOW_NS, LOOP_WINDOW_NS = 1_420, 30_000, 1 << 62


class FastPublisher(Publisher):
    wire, rpt_seq = "fast", k.RPT_FAST
    versions = {"incremental": 0, "snapshot": 0, "instruments": 0}  # FIX/FAST has none

    def __init__(self, settings: Any, listing: Any, manifest: Any, truth: Any) -> None:
        templates = load()
        self.template_ids = POSITION_TEMPLATES if settings.generation == POSITION else PRIORITY_TEMPLATES
        self.layout_versions = {"templates": list(self.template_ids)}
        self._messages, self._encoder = FastMessages(templates, *self.template_ids), Encoder(templates)
        self._pool = Pool()
        super().__init__(settings, listing, manifest, truth)

    def _layout(self, stream: str) -> LayOut:
        left_out = NOT_SENT | (NOT_IN_SNAPSHOTS if stream == SNAPSHOTS else set())
        kinds = {kind: (0, HOW.get(kind, w.TOGETHER)) for kind in FAMILY_OF_KIND if kind not in left_out}
        return LayOut(w.lay_out_fast, kinds, limits(most_entries=MOST_ENTRIES, most_messages=MOST_LISTED))

    def _prepare(self, piece: Piece) -> None:
        pass  # nothing here depends on the length of a message

    def _encode(self, events: Events) -> Encoded:
        return self._encoder.encode(self._messages.messages(events))

    def _packets(self, encoded: Any, laid: Laid, ts_ns: Numbers, stream: str) -> Packets:
        count, size = len(encoded.start), len(encoded.buffer)
        assert count == len(laid.sequence), "a message for each unit"
        datagrams = count + size // (MOST_BYTES - g.TECHNICAL_HEADER) + 1
        memory = self._pool.take(size + g.TECHNICAL_HEADER * (count + datagrams))
        places = np.empty((4, datagrams), np.int64)
        table = np.zeros(g.DATAGRAM, np.int64)
        held = [np.ascontiguousarray(a, np.int64) for a in (encoded.start, encoded.end, laid.sequence, ts_ns)]
        table[g.G_BUFFER], table[g.G_START : g.G_MESSAGES] = encoded.buffer.ctypes.data, [a.ctypes.data for a in held]
        table[g.G_MESSAGES], table[g.G_OUT], table[g.G_CAPACITY] = count, memory.address, memory.nbytes
        table[g.G_FIRST_BYTE : g.G_ROOM], table[g.G_ROOM] = [row.ctypes.data for row in places], datagrams
        window = WINDOW_NS if stream == INCREMENTAL else LOOP_WINDOW_NS
        table[g.G_MOST_BYTES], table[g.G_WINDOW_NS] = MOST_BYTES, window
        made = int(g.frame(table.ctypes.data))
        assert made >= 0, "there is room for every chunk"
        start, end, first, last = places[:, :made]
        return Packets(memory.array, start, end, ts_ns[last], laid.sequence[first], laid.sequence[last])
