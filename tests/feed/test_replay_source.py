"""Gaps of a FIX/FAST channel, filled by a replayer: in memory with an injected clock, and over real sockets."""

from __future__ import annotations

import random
import time
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest
from feed.free_ports import free_udp_ports
from feed.live_truth import SECOND_NS, Follower, LiveDay, is_line, without, write_day

from umdf.exchange.publish.sinks import Packets
from umdf.exchange.replayer.connection import CompIds, ReplayerConnection, ReplayerId
from umdf.exchange.replayer.history import ChannelHistory
from umdf.exchange.replayer.history_sink import HistorySink
from umdf.exchange.replayer.retention import WEEK, Profile
from umdf.exchange.replayer.server import ReplayerServer, ReplayerSettings
from umdf.exchange.replayer.service import ReplayService, ReplaySettings, Switch
from umdf.feed.events import GapOpened
from umdf.feed.feed_lines import ChannelKey, FeedLine
from umdf.feed.live import Live
from umdf.feed.replay_client import ReplayClient, ReplayClientSettings, ReplayedMessages, ReplayFailure, Span
from umdf.feed.replay_source import ReplaySource, rebuilt_packets
from umdf.sync.gaps import Gap
from umdf.transport.channels_file import ChannelAddresses, LineAddress, ReplayerAddresses
from umdf.transport.tcp import TcpLoop
from umdf.transport.udp_receiver import ReceivedPackets
from umdf.wire.fix.message import FixMessage
from umdf.wire.packet import ChunkParser

MS = 1_000_000
PATIENCE_S = 30


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> LiveDay:
    """Without a channel reset: one that was lost is not applied late, and waits for a snapshot (5.2.2)."""
    return write_day(tmp_path_factory.mktemp("fast") / "day", "fast", channel_reset=False)


@pytest.fixture(scope="module")
def history(day: LiveDay, tmp_path_factory: pytest.TempPathFactory) -> ChannelHistory:
    """What line A of the day carried."""
    own = ChannelHistory(tmp_path_factory.mktemp("history"))
    sink = HistorySink(own)
    for packets in day.packets():
        kept = packets.take(np.flatnonzero(is_line(packets, "incremental", "A")))
        zeros = np.zeros(len(kept), np.int64)
        sink.write(Packets(kept.buffer, kept.start, kept.end, kept.ts_ns, zeros, zeros))
    return own


def damaged(day: LiveDay, seed: int, share: float) -> list[ReceivedPackets]:
    """Without some packets on both lines, and without any snapshot but at the start and the end."""
    draw, lost, found = random.Random(seed), dict[int, bool](), []
    batches = list(day.packets(iter(lambda: draw.randint(1, 40), 0)))
    start, end = int(batches[0].ts_ns[0]), int(batches[-1].ts_ns[-1])
    for packets in batches:
        chunks = ChunkParser().parse(packets.buffer, packets.start, packets.end)
        first = np.full(len(packets), -1)
        first[chunks.packet[::-1]] = chunks.msg_seq_num[::-1]
        incremental = is_line(packets, "incremental", "A") | is_line(packets, "incremental", "B")
        is_late = packets.ts_ns > start + (end - start) // 4
        # At the end of the day nothing is lost: nothing would show it.
        may_lose = incremental & is_late & (packets.ts_ns < end - (end - start) // 3)
        may_lose_snapshots = is_line(packets, "snapshot", "A") & is_late & (packets.ts_ns < end - (end - start) // 3)
        is_lost = np.array([lost.setdefault(key, draw.random() < share) for key in first.tolist()])
        found.append(without(packets, (may_lose & is_lost) | may_lose_snapshots))
    return found


class ReplayedFollower(Follower):
    """A follower whose gaps are requested from a replayer, with 2 ms for a round trip."""

    def connect(self, history: ChannelHistory, *switches: Switch) -> None:
        settings = ReplaySettings(switches=set(switches))
        service = ReplayService({"72": history}, settings, Profile(WEEK), lambda: self.now_ns + SECOND_NS)
        self.replay = ReplayClient(ReplayClientSettings("CLIENT", "REPLAYER"))
        self.server = ReplayerConnection(ReplayerId("REPLAYER"), CompIds(frozenset()), service, self.now_ns)
        self.asked, self.failures = 0, list[ReplayFailure]()

    def receive(self, packets: ReceivedPackets) -> None:
        if self.now_ns and self.replay.wants_connection(self.now_ns):
            self.replay.open(self.now_ns)
        super().receive(packets)
        self.exchange_with_replayer()

    def exchange_with_replayer(self) -> None:
        gaps = [event for event in self.events if isinstance(event, GapOpened)]
        for event in gaps[self.asked :]:
            self.replay.request(Span(72, event.gap.first, event.gap.last), self.now_ns)
        self.asked = len(gaps)
        while True:
            data = self.replay.take_output(self.now_ns)
            self.server.receive(data, self.now_ns)
            answer = self.server.take_output(self.now_ns)
            self.replay.receive(answer, self.now_ns)
            if not data and not answer:
                break
        for outcome in self.replay.take_outcomes():
            if isinstance(outcome, ReplayedMessages):
                packets = rebuilt_packets(outcome, self.now_ns + 2 * MS)
                packets.names[0] = FeedLine(self.feed.key, "incremental", "R")
                self.receive_recovered(packets)
            else:
                self.failures.append(outcome)


@pytest.mark.parametrize("share", [0.01, 0.1])
def test_gaps_are_filled_without_snapshots(day: LiveDay, history: ChannelHistory, share: float, sized) -> None:
    for seed in range(sized(2, 20)):
        follower = ReplayedFollower(day)
        follower.connect(history)
        for packets in damaged(day, seed, share):
            follower.receive(packets)
        follower.tick(follower.now_ns + SECOND_NS // 2)
        follower.exchange_with_replayer()
        follower.tick(follower.now_ns + SECOND_NS // 2)
        totals = follower.feed.totals
        assert totals.gaps > 0 and totals.filled == totals.missing and not follower.failures
        # An Empty Book behind a gap leaves statistics unverified, which the last snapshots answer. What is replayed of
        # an instrument that is deleted by now does not create it again.
        follower.assert_all_right()


def test_a_replayer_that_refuses_leaves_the_gaps_to_snapshots(day: LiveDay, history: ChannelHistory) -> None:
    follower = ReplayedFollower(day)
    follower.connect(history, Switch.NO_RESOURCES)
    for packets in damaged(day, 1, 0.02):
        follower.receive(packets)
    for _ in range(4):  # it is asked three more times (5.2)
        follower.tick(follower.now_ns + 150 * MS)
        follower.exchange_with_replayer()
    assert follower.feed.totals.missing == sum(len(failure.span) for failure in follower.failures)
    assert follower.feed.totals.filled == 0 and follower.untrusted > 0


def test_large_messages_are_rebuilt_in_chunks() -> None:
    data = random.Random(1).randbytes(5_000)
    packets = rebuilt_packets(ReplayedMessages(72, ((7, data), (8, b"x"))), 5)
    chunks = ChunkParser().parse(packets.buffer, packets.start, packets.end)
    assert not chunks.quarantine
    assert chunks.msg_seq_num.tolist() == [7, 7, 7, 7, 8] and chunks.no_chunks.tolist() == [4, 4, 4, 4, 1]
    parts = [packets.buffer[first:last].tobytes() for first, last in zip(chunks.start, chunks.end, strict=True)]
    assert b"".join(parts) == data + b"x"


def test_a_source_takes_the_second_address_if_the_first_does_not_answer(tmp_path: Path) -> None:
    own = ChannelHistory(tmp_path)
    own.append((sequence, 1, b"%d" % sequence) for sequence in range(1, 1_001))
    service = ReplayService({"72": own}, ReplaySettings(), Profile(WEEK), lambda: SECOND_NS)
    server = ReplayerServer(ReplayerSettings(("127.0.0.1", 0), "REPLAYER"), service)
    server.start()
    source = ReplaySource(ReplayerAddresses("CLIENT", "REPLAYER", (("127.0.0.1", 1), server.address)))
    try:
        source.request(ChannelKey("sbe", 72), Gap(0, 1, 5, 0))  # Binary is not served
        source.request(ChannelKey("fast", 72), Gap(0, 101, 1_000, 0))
        found: list[int] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < 900 and time.monotonic() < deadline:
            for packets in source.take():
                found += ChunkParser().parse(packets.buffer, packets.start, packets.end).msg_seq_num.tolist()
            time.sleep(0.01)
        assert found == list(range(101, 1_001)) and not source.failures and not source.notices()
    finally:
        source.close()
        server.stop()


def test_a_replayer_that_cannot_be_reached_is_a_notice() -> None:
    channel = ChannelAddresses(72, "fast", {"incremental": (LineAddress("A", "127.0.0.1", free_udp_ports(1)[0]),)})
    with Live([channel]) as live:
        assert live.notices() == []
        live.replay = ReplaySource(ReplayerAddresses("CLIENT", "REPLAYER", (("127.0.0.1", 1),)))
        deadline = time.monotonic() + PATIENCE_S
        while not live.notices() and time.monotonic() < deadline:
            time.sleep(0.01)
        (notice,) = live.notices()
    assert notice.startswith("no session with the TCP Replayer, gaps are left to snapshots: cannot connect")


def test_a_source_can_end_before_it_is_woken_and_be_closed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    source = ReplaySource(ReplayerAddresses("CLIENT", "REPLAYER", (("127.0.0.1", 1),)))
    wake = source._loop.wake
    monkeypatch.setattr(source._loop, "wake", lambda: (source._thread.join(), wake()))
    source.close()
    source.close()


class Mute(ReplayerConnection):
    """A replayer whose session works, and which never answers a request."""

    def _on_message(self, message: FixMessage, now_ns: int) -> None:
        pass


def test_a_source_leaves_a_replayer_that_does_not_answer(tmp_path: Path) -> None:
    own = ChannelHistory(tmp_path)
    own.append((sequence, 1, b"%d" % sequence) for sequence in range(1, 101))
    service = ReplayService({"72": own}, ReplaySettings(), Profile(WEEK), lambda: SECOND_NS)
    replayer, comp_ids = ReplayerId("REPLAYER"), CompIds(frozenset())
    mute, stop = TcpLoop(), Event()
    address = mute.listen(("127.0.0.1", 0), lambda: Mute(replayer, comp_ids, service, time.time_ns()))
    thread = Thread(target=mute.run, args=(stop,))
    server = ReplayerServer(ReplayerSettings(("127.0.0.1", 0), "REPLAYER"), service)
    thread.start()
    server.start()
    settings = ReplayClientSettings("CLIENT", "REPLAYER", timeout_ms=200)
    source = ReplaySource(ReplayerAddresses("CLIENT", "REPLAYER", (address, server.address)), settings)
    try:
        found, deadline = 0, time.monotonic() + PATIENCE_S
        source.request(ChannelKey("fast", 72), Gap(0, 1, 100, 0))
        while not found and time.monotonic() < deadline:
            if source.failures:  # all attempts have timed out
                source.failures.clear()
                source.request(ChannelKey("fast", 72), Gap(0, 1, 100, 0))
            found = sum(map(len, source.take()))
            time.sleep(0.01)
        assert found == 100 and server.session_count == 1
    finally:
        source.close()
        stop.set()
        thread.join()
        mute.close()
        server.stop()
