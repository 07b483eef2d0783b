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

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from umdf.errors import UsageError
from umdf.feed.channel_feed import ChannelFeed, FeedSettings, TapRecord
from umdf.feed.events import FeedEvent
from umdf.feed.feed_lines import ChannelKey, FeedLine
from umdf.market.rows import Events
from umdf.transport.channels_file import ChannelAddresses
from umdf.transport.udp_receiver import ReceivedPackets
from umdf.wire.fast.loader import load as load_templates
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
        tap: Callable[[TapRecord], None] | None = None,
    ) -> None:
        """`tap` gets the books before and after each packet; packets are then applied one by one."""
        self.feeds: dict[ChannelKey, ChannelFeed] = {}
        self._is_tapped, self._now_ns = tap is not None, 0
        schemas, templates = {}, {}
        for channel in channels:
            own_sbe, own_fast = (channel.schema if channel.protocol == name else None for name in ("sbe", "fast"))
            schema = schemas.setdefault(own_sbe, None) or load_schema(own_sbe)
            template_set = templates.setdefault(own_fast, None) or load_templates(own_fast)
            schemas[own_sbe], templates[own_fast] = schema, template_set
            feed = ChannelFeed(channel, schema, template_set, settings, tap)
            self.feeds[feed.key] = feed
        self.unknown = 0  # packets of lines that no channel has

    def receive(self, packets: ReceivedPackets) -> None:
        names = packets.names
        feeds = [self.feeds.get(name.channel) if isinstance(name, FeedLine) else None for name in names]
        for feed in {id(feed): feed for feed in feeds if feed is not None}.values():
            rows = np.flatnonzero(np.array([each is feed for each in feeds])[packets.flow])
            if not self._is_tapped:
                feed.receive(packets, names, rows)
                continue
            for row in rows:
                feed.receive(packets, names, rows[rows == row])
                feed.advance(int(packets.ts_ns[row]))
        self.unknown += int(np.array([each is None for each in feeds])[packets.flow].sum())

    def advance(self, now_ns: int) -> list[ChannelReport]:
        """Apply everything that is in order by now; time does not go back."""
        self._now_ns = max(self._now_ns, now_ns)
        reports = []
        for feed in self.feeds.values():
            feed.advance(self._now_ns)
            report = ChannelReport(feed, feed.take_events(), feed.take_batches())
            if report.events or report.batches:
                reports.append(report)
        return reports

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
        raise UsageError(f"unknown instrument: {symbol}", "instruments are known once their definitions came")
