"""The whole system in one process with one clock: exchange → faulty network → client, and the replayer beside it.

    simulation = Simulation(random_scenario(seed, busy_s=6.0), directory)
    simulation.run(busy_s=6.0, quiet_s=5.0)

After every step each healthy book is compared with the exchange's at the sequence that the client has reached.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from simulation.scenario import Scenario, operate
from simulation.true_books import EVERY, EndBooks, Row, TrueBooks

from umdf.book import memory_layout_kernel as k
from umdf.book.views import Book
from umdf.exchange.live.exchange import Exchange
from umdf.exchange.live.outputs import sinks_of
from umdf.exchange.network.faulty_replayer import FaultyReplayer, is_replayer_down
from umdf.exchange.publish.publisher import Publisher
from umdf.exchange.publish.sinks import Packets, Sink
from umdf.exchange.replayer.connection import CompIds, ReplayerConnection, ReplayerId
from umdf.exchange.replayer.history import ChannelHistory
from umdf.exchange.replayer.history_sink import HistorySink
from umdf.exchange.replayer.retention import SESSION, Profile
from umdf.exchange.replayer.service import ReplayService, ReplaySettings
from umdf.exchange.truth.book_history import BookHistory
from umdf.feed.channel_feed import ChannelFeed, FeedSettings
from umdf.feed.client import FeedClient
from umdf.feed.events import EpochStarted, FeedEvent, GapOpened
from umdf.feed.feed_lines import RECOVERED_LINE, ChannelKey, FeedLine, feed_lines
from umdf.feed.recorder import Recorder
from umdf.feed.replay_client import ReplayClient, ReplayClientSettings, ReplayedMessages, Span
from umdf.feed.replay_source import rebuilt_packets
from umdf.transport.channels_file import ChannelAddresses, LineAddress
from umdf.transport.udp_receiver import ReceivedPackets

MS, SECOND = 1_000_000, 1_000_000_000


class NetworkEnd:
    """Where a line of the network ends: its packets wait until they arrive."""

    def __init__(self, line: FeedLine, arrivals: list[tuple[int, int, FeedLine, bytes]]) -> None:
        self._line, self._arrivals = line, arrivals

    def write(self, packets: Packets) -> None:
        for start, end, ts_ns in zip(packets.start.tolist(), packets.end.tolist(), packets.ts_ns.tolist(), strict=True):
            content = packets.buffer[start:end].tobytes()
            # Arrivals of one moment keep the order in which they were written.
            heapq.heappush(self._arrivals, (ts_ns, next(_numbers), self._line, content))

    def advance(self, now_ns: int) -> None:
        pass

    def close(self) -> None:
        pass


_numbers = iter(range(1 << 62))


@dataclass
class FollowedChannel:
    """A channel of the client beside the exchange's own books."""

    feed: ChannelFeed
    publisher: Publisher
    truth: TrueBooks | EndBooks
    ids: np.ndarray  # by row of the listing
    epoch: int | None = None  # of the publisher, that of the client's numbering
    unseen: set[int] = field(default_factory=set)  # changed since they were compared
    compared: int = 0
    doubted: int = 0

    def compare(self, count: int) -> list[str]:
        """Differences of the books that are healthy and may have changed."""
        channel = self.feed.channel
        if channel.epoch is None or self.epoch is None:
            return []
        assert isinstance(self.truth, TrueBooks)
        self.unseen |= self.truth.advance(self.epoch, channel.sequence)
        if EVERY in self.unseen:
            self.unseen = {row for row in range(count) if self.publisher.is_member[row]}
        return self._compare_unseen()

    def compare_all(self) -> list[str]:
        """Differences of all books that are healthy."""
        self.unseen = set(np.flatnonzero(self.publisher.is_member).tolist())
        return self._compare_unseen()

    def _compare_unseen(self) -> list[str]:
        channel, found = self.feed.channel, list[str]()
        for row in sorted(self.unseen):
            if not self.publisher.is_member[row]:
                self.unseen.discard(row)
                continue
            number = int(self.ids[row])
            if not channel.book_trust(number).is_healthy:
                self.doubted += 1
                continue
            shown, right = shown_rows(channel.book(number)), self.truth.rows(row)
            self.unseen.discard(row)
            self.compared += 1
            if shown != right:
                found.append(f"{self.feed.key} {number} at {self.epoch}/{channel.sequence}: {shown} is not {right}")
        return found


def shown_rows(book: Book | None) -> list[Row]:
    if book is None:
        return []
    last = ["price", "size", "order_id" if book.depth is None else "count"]
    rows = list(zip(*(book.entries[name].tolist() for name in ("side", *last)), strict=True))
    return [(name, *row[1:]) for side, name in ((k.BID, "B"), (k.ASK, "A")) for row in rows if row[0] == side]


class Simulation:
    def __init__(
        self, scenario: Scenario, directory: Path, *, records: bool = False, keeps_history: bool = True
    ) -> None:
        """Without a history books are compared at the end only, and nothing grows with time."""
        self._keeps_history = keeps_history
        self.scenario, self.random, settings = scenario, scenario.random, scenario.settings
        self.truth, self.log, self.counts = BookHistory(), list[str](), Counter[str]()
        self._arrivals: list[tuple[int, int, FeedLine, bytes]] = []
        self._histories: dict[str, ChannelHistory] = {}
        self._directory = directory
        open_sinks = sinks_of(settings, [self._open_history], [self._open_end])
        self.exchange = Exchange(settings, open_sinks, self.truth if keeps_history else None)
        self.client = FeedClient(
            settings.addresses, FeedSettings(keeps_joined=scenario.keeps_joined or records, wait_ms=scenario.wait_ms)
        )
        self.channels = {
            feed.key: FollowedChannel(
                feed,
                publisher,
                TrueBooks(publisher, self.truth) if keeps_history else EndBooks(publisher, self.exchange.market),
                self.exchange.listing.security_id,
            )
            for feed, publisher in zip(self.client.feeds.values(), self.exchange.publication.publishers, strict=True)
        }
        self.lines: list[Hashable] = [line for feed in self.client.feeds.values() for line in feed.lines]
        self.recorder = Recorder(directory / "recording", self._recorded_lines()) if records else None
        self.events: list[FeedEvent] = []
        self.joins_ns = settings.start_ns + round(scenario.joins_after_s * SECOND)
        self._connect_replayer()

    def _open_end(self, channel: ChannelAddresses, stream: str, line: LineAddress) -> Sink:
        return NetworkEnd(FeedLine(ChannelKey(channel.protocol, channel.number), stream, line.line), self._arrivals)

    def _open_history(self, channel: ChannelAddresses, stream: str, line: LineAddress) -> Sink | None:
        if (channel.protocol, stream, line.line) != ("fast", "incremental", "A"):
            return None
        history = self._histories[str(channel.number)] = ChannelHistory(self._directory / f"history-{channel.number}")
        return HistorySink(history)

    def _recorded_lines(self) -> dict[FeedLine, LineAddress]:
        lines = {
            line: where for channel in self.scenario.settings.addresses for line, where in feed_lines(channel).items()
        }
        for line, where in list(lines.items()):
            if line.stream == "incremental" and line.line == "A":
                lines[FeedLine(line.channel, line.stream, RECOVERED_LINE)] = replace(where, line=RECOVERED_LINE)
        return lines

    # The replayer

    def _connect_replayer(self) -> None:
        self.replay = ReplayClient(ReplayClientSettings("CLIENT", "REPLAYER", timeout_ms=300))
        self._comp_ids = CompIds(frozenset())
        self._service = ReplayService(self._histories, ReplaySettings(), Profile(SESSION), lambda: self.exchange.now_ns)
        self._server: FaultyReplayer | None = None
        self._has_ended = False

    def _exchange_with_replayer(self, now_ns: int) -> list[ReceivedPackets]:
        """Bytes to and from the replayer; what it has brought."""
        faults, start_ns = self.scenario.settings.faults, self.scenario.settings.start_ns
        assert faults is not None
        if self.replay.wants_connection(now_ns):
            self.replay.open(now_ns)
            if self._has_ended or is_replayer_down(faults, start_ns, now_ns):
                self.replay.close("cannot connect")
            else:
                inner = ReplayerConnection(ReplayerId("REPLAYER"), self._comp_ids, self._service, now_ns)
                draw = np.random.default_rng([self.scenario.seed, 9, self.replay.counts.connections])
                self._server = FaultyReplayer(inner, draw, faults, start_ns)
        self.replay.tick(now_ns)
        if self._server is not None:
            self._server.tick(now_ns)
        while self._server is not None:
            data = self.replay.take_output(now_ns)
            self._server.receive(data, now_ns)
            answer = self._server.take_output(now_ns)
            self.replay.receive(answer, now_ns)
            if self._server.is_closed or self.replay.is_closed:
                self._server.close("disconnected")
                self._server = None
                self.replay.close("disconnected")
            elif not data and not answer and not self._server.has_work:
                break
        found = []
        for outcome in self.replay.take_outcomes():
            if isinstance(outcome, ReplayedMessages):
                found.append(rebuilt_packets(outcome, now_ns))
                self.counts["replayed"] += len(outcome.messages)
            else:
                self.counts["not replayed"] += len(outcome.span)
        return found

    # Time

    def step(self, now_ns: int) -> None:
        self.exchange.advance(now_ns)
        self._step_client(now_ns)

    def _step_client(self, now_ns: int) -> None:
        batches = [*self._take_arrivals(now_ns), *self._exchange_with_replayer(now_ns)]
        for packets in batches:
            self.client.receive(packets)
            if self.recorder is not None:
                self.recorder.write(packets)
        for report in self.client.advance(now_ns):
            self._follow(report.feed, report.events, now_ns)
        if not self._keeps_history:
            return
        count = len(self.exchange.listing)
        wrong = [each for channel in self.channels.values() for each in channel.compare(count)]
        assert not wrong, f"seed {self.scenario.seed}: a healthy book is wrong: {wrong[0]}"

    def _take_arrivals(self, now_ns: int) -> list[ReceivedPackets]:
        joined, arrived = self.client.wanted_lines(), list[tuple[int, int, FeedLine, bytes]]()
        while self._arrivals and self._arrivals[0][0] <= now_ns:
            arrival = heapq.heappop(self._arrivals)
            if arrival[2] in joined and arrival[0] >= self.joins_ns:
                arrived.append(arrival)
        if not arrived:
            return []
        end = np.cumsum([len(content) for _, _, _, content in arrived])
        flow = np.array([self.lines.index(line) for _, _, line, _ in arrived], np.uint16)
        buffer = np.frombuffer(b"".join(content for _, _, _, content in arrived), np.uint8)
        ts_ns = np.array([ts_ns for ts_ns, _, _, _ in arrived], np.int64)
        return [ReceivedPackets(buffer, np.append(0, end[:-1]), end, ts_ns, flow, self.lines)]

    def _follow(self, feed: ChannelFeed, events: list[FeedEvent], now_ns: int) -> None:
        channel = self.channels[feed.key]
        if self._keeps_history:
            self.events += events
        for event in events:
            if isinstance(event, GapOpened) and feed.key.protocol == "fast":
                self.replay.request(Span(feed.key.number, event.gap.first, event.gap.last), now_ns)
            if isinstance(event, EpochStarted) and feed.key.protocol == "fast":
                self.replay.cancel(feed.key.number)
            if isinstance(event, EpochStarted):
                channel.epoch = channel.publisher.epoch
                channel.unseen = set(np.flatnonzero(channel.publisher.is_member).tolist())

    def run(self, busy_s: float, quiet_s: float) -> None:
        start_ns = self.scenario.settings.start_ns
        self._run_until(start_ns + round(busy_s * SECOND), self.scenario.operations_per_s)
        self.exchange.settings = replace(self.exchange.settings, messages_per_s=0)
        self._run_until(start_ns + round((busy_s + quiet_s) * SECOND), 0.0)
        self.exchange.close()  # what the network holds arrives now; the replayer is gone
        self._has_ended, self._server = True, None
        self.replay.close("disconnected")
        self._step_client(self.exchange.now_ns + 100 * MS)
        if self.recorder is not None:
            self.recorder.close()

    def _run_until(self, end_ns: int, operations_per_s: float) -> None:
        now_ns, random = self.exchange.now_ns, self.random
        while now_ns < end_ns:
            step_ns = random.choice((2, 5, 10, 20, 20, 50)) * MS
            if random.random() < operations_per_s * step_ns / SECOND:
                self.log.append(
                    f"{(now_ns - self.scenario.settings.start_ns) / 1e9:.3f} {operate(self.exchange, random)}"
                )
            now_ns = min(now_ns + step_ns, end_ns)
            self.step(now_ns)
