"""The live client: receives the channels of a file, and gives their books and events.

    live = umdf.Live("channels.toml")
    for row in live.subscribe(schema="trades", symbols=["PETR4"]): ...

    live.subscribe(schema="books", callback=on_book)   # or callbacks, for any number of schemas
    live.run()
    live.book("PETR4"), live.trust("PETR4")            # at any time

Everything happens in the caller's thread, inside `poll`, receiving too. Two speeds: books follow each packet
as it is received (`EarlyBooks`); everything else is done for what came in a few milliseconds together.
Callbacks and the bodies of loops may read books; nothing changes while they run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from umdf.book.views import Book
from umdf.buffers import buffer_address
from umdf.errors import CaptureError
from umdf.feed import early_books_kernel as k
from umdf.feed.channel_feed import SILENT_HEARTBEATS, ChannelFeed, ChannelTotals, FeedSettings
from umdf.feed.channel_states import FeedState
from umdf.feed.client import ChannelReport, FeedClient
from umdf.feed.events import EpochStarted, FeedEvent, GapOpened, RecorderStopped
from umdf.feed.feed_lines import RECOVERED_LINE, ChannelKey, FeedLine
from umdf.feed.line_silence import LineSilence
from umdf.feed.recorder import Recorder
from umdf.feed.replay_source import ReplaySource
from umdf.feed.subscriptions import Callback, Subscription, check_schema
from umdf.feed.tap import TapObserver
from umdf.market.state import InstrumentView
from umdf.market.statistics_view import mark_trades_seen
from umdf.sync.gaps import Gap
from umdf.sync.stream_detection import StreamKind
from umdf.sync.trust import Trust
from umdf.transport.channels_file import ChannelAddresses, LineAddress, read_channels, read_replayer, select_channels
from umdf.transport.udp_receiver import ReceivedPackets, ReceiverSettings, UdpReceiver

POLL_S = 0.02  # the wait for the other line: gaps are not found later than that (13.7)
NO_FLOWS = np.zeros((0, k.FLOW_WORDS), np.int64)


class RecoverySource(Protocol):
    """Recovers lost units on request, for example from a TCP replayer (5)."""

    def request(self, channel: ChannelKey, gap: Gap) -> None: ...

    def cancel(self, channel: ChannelKey) -> None:
        """Forget what was requested: the channel's numbering has started again."""
        ...

    def take(self) -> list[ReceivedPackets]:
        """Packets of the line `R` of a channel, with technical headers as they were sent."""
        ...


@dataclass(frozen=True)
class ChannelStatus:
    """A channel at a moment, for people and monitoring."""

    channel: ChannelKey
    state: FeedState
    epoch: int | None
    sequence: int
    instruments: int
    untrusted: int  # instruments that are not healthy
    recovered: int  # books, by snapshots
    messages: int
    packets: int  # received, of all lines
    bytes: int
    lost: int  # by the sockets of this machine
    dropped: int  # packets, or parts of them, that are not of this channel or cannot be framed
    latency_ns: int | None  # from the exchange's sending time to the receive time, of the last unit
    totals: ChannelTotals


class Live:
    def __init__(
        self,
        channels: str | PathLike[str] | Sequence[ChannelAddresses],
        *,
        only: Sequence[str] = (),
        record: str | PathLike[str] | None = None,
        settings: FeedSettings | None = None,
        receiver_settings: ReceiverSettings | None = None,
        sources: Sequence[RecoverySource] = (),
        tap: TapObserver | None = None,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`only`: channels by number, or protocol and number (sbe:72), instead of all. `record`: a directory for
        everything that is received; all streams then stay joined. Channels are received from now on: an address that
        cannot be received is an error here. A [replayer] of the file fills gaps of FIX/FAST channels."""
        if isinstance(channels, str | PathLike):
            addresses, replayer = read_channels(Path(channels)), read_replayer(Path(channels))
        else:
            addresses, replayer = list(channels), None
        addresses = select_channels(addresses, only)
        settings = settings or FeedSettings(keeps_joined=record is not None)
        self.client, self._now_ns = FeedClient(addresses, settings, tap), now_ns
        self.client.start_early_books()
        self.client.warm()
        self.receiver = UdpReceiver(receiver_settings)
        self.replay = ReplaySource(replayer) if replayer is not None else None
        self._sources = [*sources, *([self.replay] if self.replay is not None else [])]
        self._addresses = {line: where for feed in self.client.feeds.values() for line, where in feed.lines.items()}
        self._joined: set[FeedLine] = set()
        self._line_silence = LineSilence(now_ns)
        self._subscriptions: list[Subscription] = []
        self._reports_changes = False
        self._flows = NO_FLOWS
        self.recorder = Recorder(Path(record), self._recorded_lines()) if record is not None else None
        self._is_closed = self.is_ending = False
        try:
            self._join_and_leave()
        except BaseException:
            self.close()
            raise

    def _recorded_lines(self) -> dict[FeedLine, LineAddress]:
        """Every line; and what a recovery source returns, in files of its own, as late packets of line A's group:
        FIX/FAST packets do not state their channel."""
        lines = dict(self._addresses)
        for line, where in self._addresses.items():
            if line.kind == StreamKind.INCREMENTAL and line.line == "A":
                recovered = FeedLine(line.channel, line.stream, RECOVERED_LINE)
                lines[recovered] = replace(where, line=RECOVERED_LINE)
        return lines

    def __enter__(self) -> Live:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # What a user asks for.

    def subscribe(self, *, schema: str, symbols: Sequence[str] = (), callback: Callback | None = None) -> Iterator[Any]:
        """Items of a schema as they happen, of all symbols or some; with a callback, each is passed to it at once."""
        subscription = Subscription(check_schema(schema), frozenset(symbols), callback)
        self._subscriptions.append(subscription)
        if subscription.wants_changes:
            self._reports_changes = True
            for feed in self.client.feeds.values():
                if feed.early is not None:
                    feed.early.reports_changes = True
        return self._items(subscription)

    def _items(self, subscription: Subscription) -> Iterator[Any]:
        while not self._is_closed or subscription.waiting:
            while subscription.waiting:
                yield subscription.waiting.popleft()
            if not self._is_closed:
                self.poll(POLL_S)

    def run(self, seconds: float | None = None) -> None:
        """Receive for some time, or until `close` is called by a callback."""
        until_ns = None if seconds is None else self._now_ns() + int(seconds * 1e9)
        while not self._is_closed and not self.is_ending and (until_ns is None or self._now_ns() < until_ns):
            self.poll(POLL_S)

    def end(self) -> None:
        """Have `run` return as soon as it has processed what it is about; for handlers of signals."""
        self.is_ending = True

    def book(self, symbol: str, channel: int | None = None) -> Book | None:
        """The book of a symbol, None before anything is known of it. Read its `trust` too."""
        feed, number = self.client.find(symbol, channel)
        return feed.channel.book(number)

    def trust(self, symbol: str, channel: int | None = None) -> Trust:
        feed, number = self.client.find(symbol, channel)
        return feed.channel.book_trust(number)

    def state_trust(self, symbol: str, channel: int | None = None) -> Trust:
        feed, number = self.client.find(symbol, channel)
        return feed.channel.state_trust(number)

    def definition_trust(self, symbol: str, channel: int | None = None) -> Trust:
        feed, number = self.client.find(symbol, channel)
        return feed.channel.definition_trust(number)

    def instrument(self, symbol: str, channel: int | None = None) -> InstrumentView:
        """Phase, state and statistics of a symbol. Read `state_trust` too; statistics have the trust of the book, and
        `trades seen` says whether trades of the session may be missing."""
        feed, number = self.client.find(symbol, channel)
        view = feed.channel.state.instrument(number)
        mark_trades_seen(view.statistics, incomplete=feed.channel.trades_incomplete(number))
        return view

    def status(self) -> list[ChannelStatus]:
        counts, result = self.receiver.counts(), []
        for feed in self.client.feeds.values():
            found = [counts[line] for line in feed.lines if line in counts]
            sums = (sum(getattr(each, name) for each in found) for name in ("packets", "bytes", "lost"))
            result.append(_status(feed, *sums))
        return result

    def notices(self) -> list[str]:
        """Warnings about this machine, the traffic and the recording."""
        limits_s = {key: SILENT_HEARTBEATS * feed.addresses.heartbeat_s for key, feed in self.client.feeds.items()}
        notices = [
            *self.receiver.notices(),
            *(n for feed in self.client.feeds.values() for n in feed.session.notices()),
            *self._line_silence.notices(self.receiver.counts(), self._joined, limits_s),
            *(self.replay.notices() if self.replay is not None else []),
        ]
        if self.recorder is not None and self.recorder.failure:
            notices.append(f"recording stopped: {self.recorder.failure}")
        return notices

    # What happens.

    def poll(self, timeout_s: float) -> int:
        """Receive what has come, or wait for it, and process it; returns the number of packets. If books have changed
        and a loop waits for that, it returns at once: what else the packets bring is processed by a later call."""
        receiver, until_ns, outcome = self.receiver, time.time_ns() + int(timeout_s * 1e9), k.CHANGED
        while outcome == k.CHANGED and not receiver.is_collected:
            if len(receiver.names) != len(self._flows):
                self._flows = self.client.early_flows(receiver.names)
            timeout_ms = max(0, (until_ns - time.time_ns() + 999_999) // 1_000_000)
            if receiver.received_here:
                timeout_ms = min(timeout_ms, k.BATCH_MS)
            arguments = buffer_address(self._flows), int(self._reports_changes), until_ns
            outcome = receiver.receive_here(k.receive_early, timeout_ms, *arguments)
            is_waited_for = self._reports_changes and self._report_changes()
            if self._is_closed or (is_waited_for and outcome == k.CHANGED):
                return receiver.received_here
        return self.process(receiver.take_received(), self._now_ns())

    def _report_changes(self) -> bool:
        """Report books that were changed as packets were received; returns whether a loop waits for them."""
        for feed in self.client.feeds.values():
            if changes := feed.early_changes():
                for subscription in self._subscriptions:
                    subscription.offer_changes(feed, changes)
        return any(each.waiting for each in self._subscriptions if each.callback is None)

    def process(self, batches: Sequence[ReceivedPackets], now_ns: int) -> int:
        """Packets as if they had been received here; `poll` calls it with what the sockets have."""
        recovered = [packets for source in self._sources for packets in source.take()]
        events: list[FeedEvent] = []
        for packets in (*batches, *recovered):
            self.client.receive(packets)
            events += self._record(packets, now_ns)
        if self.recorder is not None:
            events += self._record(None, now_ns)
        reports = self.client.advance(now_ns)
        for report in reports:
            for event in report.events:
                for source in self._sources:
                    if isinstance(event, GapOpened):
                        source.request(event.channel, event.gap)
                    elif isinstance(event, EpochStarted):
                        source.cancel(event.channel)
        if events and self.client.feeds:
            reports.append(ChannelReport(next(iter(self.client.feeds.values())), events, []))
        for report in reports:
            for subscription in self._subscriptions:
                subscription.offer(report)
        self._join_and_leave()
        return sum(map(len, batches))

    def _record(self, packets: ReceivedPackets | None, now_ns: int) -> list[FeedEvent]:
        """Record packets; if that is not possible any more, recording ends and the books go on."""
        if self.recorder is None or self.recorder.failure:
            return []
        try:
            self.recorder.write(packets) if packets is not None else self.recorder.advance(now_ns)
        except (CaptureError, OSError) as error:
            self.recorder.fail(str(error))
            return [RecorderStopped(str(error))]
        return []

    def _join_and_leave(self) -> None:
        wanted = self.client.wanted_lines()
        if wanted != self._joined:
            for line in sorted(wanted - self._joined, key=str):
                self.receiver.join(line, self._addresses[line])
                self._joined.add(line)
            for line in self._joined - wanted:
                self.receiver.leave(line)
            self._joined = wanted

    def close(self) -> None:
        """Leave all lines, and finish the recording, with what was received and is not processed yet."""
        self._is_closed = True
        if self.replay is not None:
            self.replay.close()
        self.receiver.close()
        for packets in self.receiver.take_received():
            self._record(packets, self._now_ns())
        if self.recorder is not None:
            self.recorder.close()


def _status(feed: ChannelFeed, packets: int, size: int, lost: int) -> ChannelStatus:
    channel = feed.channel
    counts = len(channel.state.instruments), feed.untrusted_count, channel.recovered, channel.messages
    place = channel.epoch, channel.sequence
    return ChannelStatus(
        feed.key, feed.state, *place, *counts, packets, size, lost, feed.dropped, feed.latency_ns, feed.totals
    )
