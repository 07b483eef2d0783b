"""All channels of a client: packets and clock ticks in, events and the lines to join out. No I/O and no clock.

    client = FeedClient(channels)
    client.receive(packets)               # of any channels
    for report in client.advance(now_ns): # what each channel applied and reports
    client.wanted_lines()                 # of all channels

A `GapOpened` among the events is also the request to a recovery source: a TCP replayer returns the units of such a span
as packets of the line `R`, which then fill the gap as any late line does. Snapshots need no request: their stream is
among the wanted lines while anything is missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import buffer_address
from umdf.errors import UsageError
from umdf.feed import early_books_kernel as k
from umdf.feed.channel_feed import ChannelFeed, FeedSettings
from umdf.feed.compilation import compile_all
from umdf.feed.early_books import EarlyBooks, flow_table
from umdf.feed.events import FeedEvent
from umdf.feed.feed_lines import ChannelKey, FeedLine
from umdf.feed.tap import Tap, TapObserver
from umdf.market.rows import Events
from umdf.sync.stream_detection import StreamKind
from umdf.transport.channels_file import ChannelAddresses
from umdf.transport.udp_receiver import ReceivedPackets
from umdf.wire.fast.loader import load as load_templates
from umdf.wire.fast.templates import TemplateSet
from umdf.wire.sbe.loader import load as load_schema


@dataclass(frozen=True)
class ChannelReport:
    """What one channel did in one step."""

    feed: ChannelFeed
    events: list[FeedEvent]
    batches: list[Events]  # market data of the incremental stream


class FeedClient:
    def __init__(
        self,
        channels: Sequence[ChannelAddresses],
        settings: FeedSettings | None = None,
        tap: TapObserver | None = None,
    ) -> None:
        """`tap` gets a record of each packet, with the books before and after it; packets are then applied one by
        one."""
        self.feeds: dict[ChannelKey, ChannelFeed] = {}
        self._taps: dict[ChannelKey, Tap] = {}
        self._tapped: defaultdict[ChannelKey, tuple[list[FeedEvent], list[Events]]] = defaultdict(lambda: ([], []))
        self._now_ns = 0
        self._fast_templates: dict[int, TemplateSet] = {}
        schemas, templates = {}, {}
        for channel in channels:
            own_sbe, own_fast = (channel.schema if channel.protocol == name else None for name in ("sbe", "fast"))
            schema = schemas.setdefault(own_sbe, None) or load_schema(own_sbe)
            template_set = templates.setdefault(own_fast, None) or load_templates(own_fast)
            schemas[own_sbe], templates[own_fast] = schema, template_set
            feed = ChannelFeed(channel, schema, template_set, settings)
            self.feeds[feed.key] = feed
            if channel.protocol == "fast":
                self._fast_templates[id(template_set)] = template_set
            if tap is not None:
                self._taps[feed.key] = Tap(feed, schema, template_set, tap)
        self.unknown = 0  # packets of lines that no channel has

    def warm(self) -> None:
        """Load everything that is compiled, and compile what is not: otherwise the first packets wait for it."""
        compile_all(self._fast_templates.values())

    def receive(self, packets: ReceivedPackets) -> None:
        names = packets.names
        feeds = [self.feeds.get(name.channel) if isinstance(name, FeedLine) else None for name in names]
        for feed in {id(feed): feed for feed in feeds if feed is not None}.values():
            rows = np.flatnonzero(np.array([each is feed for each in feeds])[packets.flow])
            tap = self._taps.get(feed.key)
            if tap is None:
                feed.receive(packets, names, rows)
                continue
            for row in rows.tolist():
                feed.receive(packets, names, np.array([row]))
                feed.advance(int(packets.ts_ns[row]))
                tap.record(packets, row, *self._take_tapped(feed))
        self.unknown += int(np.array([each is None for each in feeds])[packets.flow].sum())

    # Books that are updated as packets are received.

    def start_early_books(self) -> None:
        """From now on, for every channel that is not tapped. Packets go through `apply_early`, or the receiver's
        kernel, before they go to `receive`."""
        for key, feed in self.feeds.items():
            if key not in self._taps:
                feed.start_early_books()

    def early_flows(self, names: Sequence[Hashable]) -> NDArray[np.int64]:
        """The flow table of packets with these names. Those of streams that loop may wait."""
        flows: list[tuple[EarlyBooks, int] | bool] = []
        for name in names:
            feed = self.feeds.get(name.channel) if isinstance(name, FeedLine) else None
            if feed is None or not isinstance(name, FeedLine):
                flows.append(False)
                continue
            is_incremental = name.kind == StreamKind.INCREMENTAL
            early = feed.early if is_incremental else None
            flows.append(is_incremental if early is None else (early, feed.line_number(name)))
        return flow_table(flows)

    def apply_early(self, packets: ReceivedPackets) -> bool:
        """Apply what is certain of packets at once, in this order; returns whether `advance` is needed now."""
        flows, flow = self.early_flows(packets.names), np.ascontiguousarray(packets.flow, np.uint16)
        columns = [np.ascontiguousarray(each) for each in (packets.start, packets.end, packets.ts_ns)]
        addresses = map(buffer_address, (packets.buffer, *columns, flow))
        return bool(k.apply_rows_early(*addresses, len(packets), buffer_address(flows)))

    def advance(self, now_ns: int) -> list[ChannelReport]:
        """Apply everything that is in order by now; time does not go back."""
        self._now_ns = max(self._now_ns, now_ns)
        reports = []
        for feed in self.feeds.values():
            feed.advance(self._now_ns)
            if (tap := self._taps.get(feed.key)) is not None:
                tap.record_time(self._now_ns, *self._take_tapped(feed))
                report = ChannelReport(feed, *self._tapped.pop(feed.key))
            else:
                report = ChannelReport(feed, feed.take_events(), feed.take_batches())
            if report.events or report.batches:
                reports.append(report)
        return reports

    def _take_tapped(self, feed: ChannelFeed) -> tuple[list[FeedEvent], list[Events]]:
        """What a tapped channel did last; `advance` reports it too."""
        events, batches = feed.take_events(), feed.take_batches()
        all_events, all_batches = self._tapped[feed.key]
        all_events += events
        all_batches += batches
        return events, batches

    def wanted_lines(self) -> set[FeedLine]:
        return {line for feed in self.feeds.values() for line in feed.wanted_lines()}

    def find(self, symbol: str, channel: int | None = None) -> tuple[ChannelFeed, int]:
        """The channel and ID of an instrument; with several channels, the first that has it in the file's order."""
        for feed in self.feeds.values():
            if channel in (None, feed.key.number):
                number = feed.channel.state.instruments.id_of(symbol)
                if number is None and symbol.isascii() and symbol.isdigit() and int(symbol) in feed.instrument_ids():
                    number = int(symbol)
                if number is not None:
                    return feed, number
        raise UsageError(
            f"unknown instrument: {symbol}", "an instrument is known once its definition has been received"
        )
