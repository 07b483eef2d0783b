"""What a client makes of the packets of one published channel: our decoders and the book engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from umdf.book.engine import Books
from umdf.book.views import Book
from umdf.exchange.publish.channel_settings import FAST, INCREMENTAL, MBO, SNAPSHOTS, STREAMS, TOB, ChannelSettings
from umdf.exchange.publish.sinks import Packets
from umdf.exchange.truth.book_history import BookHistory
from umdf.market.rows import Events
from umdf.sync.raw_units import RawUnits, UnitKind
from umdf.sync.unit_codecs import FastUnits, SbeUnits, UnitCodec
from umdf.wire.fast.decode.decoder import Decoder as FastDecoder
from umdf.wire.fast.loader import load as load_templates
from umdf.wire.sbe.decode import Decoder as SbeDecoder
from umdf.wire.sbe.loader import load as load_schema
from umdf.wire.sbe.schema import OtherVersions

SCHEMA, TEMPLATES = load_schema(), load_templates()


class KeptPackets:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.ts_ns: list[int] = []
        self.sequences: list[tuple[int, int]] = []
        self.advanced_ns = 0

    def write(self, packets: Packets) -> None:
        for start, end in zip(packets.start.tolist(), packets.end.tolist(), strict=True):
            self.payloads.append(packets.buffer[start:end].tobytes())
        self.ts_ns += packets.ts_ns.tolist()
        self.sequences += zip(packets.first_sequence.tolist(), packets.last_sequence.tolist(), strict=True)

    def advance(self, now_ns: int) -> None:
        self.advanced_ns = now_ns

    def close(self) -> None:
        pass


class ChannelClient:
    def __init__(self, settings: ChannelSettings) -> None:
        self.settings = settings
        self.sinks = {stream: KeptPackets() for stream in STREAMS}

    def units(self, stream: str = INCREMENTAL) -> RawUnits:
        """All packets or messages of a stream, in order."""
        codec, sink = self._codec(), self.sinks[stream]
        sizes = [len(payload) for payload in sink.payloads]
        end = np.cumsum(sizes).astype(np.int64)
        buffer = np.frombuffer(b"".join(sink.payloads), np.uint8)
        times = np.array(sink.ts_ns, np.int64)
        self._last_codec = codec
        return codec.read(buffer, end - np.array(sizes, np.int64), end, times, 0, is_looping=stream != INCREMENTAL)[0]

    def events(self, units: RawUnits, *, snapshot: bool = False) -> Events:
        decoded = self._last_codec.decode(units, snapshot=snapshot)
        assert not decoded.damaged.any()
        return decoded.events

    def _codec(self) -> UnitCodec:
        if self.settings.protocol == FAST:
            return FastUnits(FastDecoder(TEMPLATES), TEMPLATES, self.settings.channel)
        return SbeUnits(SbeDecoder(SCHEMA), OtherVersions(SCHEMA), self.settings.channel)

    @property
    def declared_depth(self) -> int | None:
        return {MBO: None, TOB: 1}.get(self.settings.book_type, self.settings.depth)

    def at(self, sequences: list[int], instrument_ids: list[int]) -> Iterator[tuple[int, Books]]:
        """The books after each of some sequences of the incremental stream, in ascending order."""
        units, books, first = self.units(), Books(), 0
        if self.declared_depth is not None:
            for instrument_id in instrument_ids:
                books.set_depth(instrument_id, self.declared_depth)
        units = units.take(units.kind == UnitKind.DATA)
        assert (units.sequence == np.arange(1, len(units) + 1)).all(), "numbering has no holes"
        for sequence in sequences:
            events = self.events(units.take(slice(first, sequence)))
            first = sequence
            books.apply(events.rows("mbo"))
            definitions = events.rows("definition")
            for row in np.flatnonzero(definitions.column("action") == ord("D")).tolist():
                books.delete_instrument(int(definitions.column("instrument_id")[row]))
            yield sequence, books

    def snapshots(self) -> Iterator[tuple[dict[str, int], list[tuple[Any, ...]]]]:
        """Every snapshot: its header, and its levels or orders as (side, price, size, count, order id)."""
        units = self.units(SNAPSHOTS)
        events = self.events(units.take(units.kind == UnitKind.DATA), snapshot=True)
        headers, mbo = events.rows("snapshot"), events.rows("mbo")
        names = ("instrument_id", "last_sequence", "total_snapshots", "depth", "total_bids", "total_offers")
        entries: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
        owner = np.searchsorted(headers.wire_order, mbo.wire_order, "right") - 1
        columns = [mbo.column(name).tolist() for name in ("action", "side", "price", "size", "order_count", "order_id")]
        for header, action, *entry in zip(owner.tolist(), *columns, strict=True):
            if chr(action) == "A":
                entries[header].append((chr(entry[0]), *entry[1:]))
        for number in range(len(headers)):
            yield {name: int(headers.column(name)[number]) for name in names}, entries[number]


def rows_of(book: Book | None) -> list[tuple[Any, ...]]:
    """The content of a book: side, price, size, and the order id or the number of orders."""
    if book is None:
        return []
    rows: list[tuple[Any, ...]] = []
    for side, levels in (("B", book.bids), ("A", book.asks)):
        for level in levels:
            if book.depth is None:
                rows += [(side, level.price, order.size, order.order_id) for order in level.orders]
            else:
                rows.append((side, level.price, level.size, level.count))
    return rows


def true_rows(history: BookHistory, settings: ChannelSettings, instrument: int, sequence: int) -> list[tuple[Any, ...]]:
    """What a book of a channel contains at a sequence, from the exchange's own orders: rows as of `rows_of`."""
    book = history.book_at(settings.protocol, instrument, sequence, settings.channel)
    if settings.book_type == MBO:
        sides = (("B", book.bids), ("A", book.asks))
        return [(side, order.price, order.size, order.order_id) for side, orders in sides for order in orders]
    depth = settings.depth or 1
    return [(side, level.price, level.size, level.orders) for side in "BA" for level in book.levels(side, depth)]
