"""The TCP Replayer and its client over loopback: messages a second, and one message from request to answer.

The server runs in a process of its own, as it does beside an exchange.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.measure import Result
from umdf.cli.replay import expand_captures
from umdf.exchange.bulk.capture import write_capture
from umdf.exchange.bulk.settings import BulkSettings
from umdf.exchange.publish.sinks import Packets
from umdf.exchange.replayer.history import ChannelHistory
from umdf.exchange.replayer.history_sink import HistorySink
from umdf.exchange.replayer.server import ReplayerServer, ReplayerSettings
from umdf.exchange.replayer.service import ReplayService, ReplaySettings
from umdf.feed.live import Live
from umdf.feed.replay import captured_lines, loopback_channels, replayed_packets
from umdf.feed.replay_client import ReplayClient, ReplayClientSettings, ReplayedMessages, Span
from umdf.feed.replay_source import ReplaySource
from umdf.sync.trust import TrustLevel
from umdf.transport.channels_file import ChannelAddresses, ReplayerAddresses
from umdf.transport.tcp import Address, TcpLoop
from umdf.transport.udp_receiver import ReceivedPackets
from umdf.wire.fast.loader import load as load_templates
from umdf.wire.packet import ChunkParser

MESSAGES, MESSAGE_BYTES, PART = 200_000, 100, 10_000
SINGLE_REQUESTS = 500
SESSIONS, OF_A_SESSION = 200, 500
GAP, GAPS = 1_000, 11
DAY_MESSAGES, DAY_INSTRUMENTS, GAP_AFTER = 20_000, 200, 5_000
FIRST_PORT, PATIENCE_S = 47_101, 10.0


class Everything:
    def oldest_ns(self, now_ns: int) -> int:
        return 0


def serve(directory: str) -> None:
    """Until standard input ends."""
    history, data = ChannelHistory(Path(directory)), random.Random(1).randbytes(MESSAGE_BYTES)
    history.append((sequence, 1, data) for sequence in range(1, MESSAGES + 1))
    service = ReplayService({"72": history}, ReplaySettings(0), Everything(), time.time_ns)
    server = ReplayerServer(ReplayerSettings(("127.0.0.1", 0), "REPLAYER"), service)
    server.start()
    print(server.address[1], flush=True)
    sys.stdin.read()
    server.stop()


def run() -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-c", f"from benchmarks.replayer import serve; serve({directory!r})"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, **pipes, text=True, env=dict(os.environ)) as process:  # type: ignore[call-overload]
            assert process.stdout is not None and process.stdin is not None
            yield from _measure(("127.0.0.1", int(process.stdout.readline())))
            process.stdin.close()


def _measure(address: Address) -> Iterator[Result]:
    client = ReplayClient(ReplayClientSettings("CLIENT", "REPLAYER", max_messages=MESSAGES))
    loop = TcpLoop()
    client.open(time.time_ns())
    loop.connect(address, client)
    while not client.is_active:
        loop.poll(0.01)
    started_s, found = time.perf_counter(), 0
    for first in range(1, MESSAGES + 1, PART):
        client.request(Span(72, first, first + PART - 1), time.time_ns())
    while not client.is_idle:
        loop.poll(0.05)
        found += sum(
            len(outcome.messages) for outcome in client.take_outcomes() if isinstance(outcome, ReplayedMessages)
        )
    rate = found / (time.perf_counter() - started_s)
    assert found == MESSAGES
    yield Result("replayer, 2,000 messages a request", f"{rate:,.0f} messages/s", rate / 1e3, "k messages/s", 150, True)
    times_s = sorted(_one(client, loop, number + 1) for number in range(SINGLE_REQUESTS))
    p50_ms, p99_ms = times_s[len(times_s) // 2] * 1e3, times_s[len(times_s) * 99 // 100] * 1e3
    yield Result("replayer, one message, p50", f"p99 {p99_ms:.2f} ms", p50_ms, "ms", 1)
    loop.close()
    yield _sessions(address)
    with tempfile.TemporaryDirectory() as directory:
        day = _lossy_day(Path(directory))
    for after_ms in (0, 25):
        healed_ms = sorted(_heal(day, after_ms) for _ in range(GAPS))[GAPS // 2] * 1e3
        target = 100 if after_ms == 0 else None
        yield Result(f"a gap of {GAP:,} healed, available after {after_ms} ms", "in the books", healed_ms, "ms", target)


def _sessions(address: Address) -> Result:
    """Many clients at once, each with a session and a request of its own."""
    loop, clients = TcpLoop(), [ReplayClient(ReplayClientSettings(f"C{n}", "REPLAYER")) for n in range(SESSIONS)]
    started_s, found = time.perf_counter(), 0
    for number, client in enumerate(clients, 1):
        client.request(Span(72, number, number + OF_A_SESSION - 1), time.time_ns())
        client.open(time.time_ns())
        loop.connect(address, client)
    while not all(client.is_idle for client in clients):
        loop.poll(0.05)
        for client in clients:
            client.tick(time.time_ns())
            found += sum(len(each.messages) for each in client.take_outcomes() if isinstance(each, ReplayedMessages))
    seconds = time.perf_counter() - started_s
    loop.close()
    assert found == SESSIONS * OF_A_SESSION
    return Result(
        f"{SESSIONS} sessions of {OF_A_SESSION} messages each", f"{found / seconds:,.0f} messages/s", seconds, "s"
    )


@dataclass
class LossyDay:
    """A FIX/FAST channel with a gap: its messages, and a day's packets before and after the gap."""

    channels: list[ChannelAddresses]
    messages: list[tuple[int, bytes]]
    before: list[ReceivedPackets]
    after: list[ReceivedPackets]


def _lossy_day(directory: Path) -> LossyDay:
    write_capture(BulkSettings(DAY_MESSAGES, DAY_INSTRUMENTS, "fast", lines="A", snapshot_loops=1), directory)
    paths = expand_captures([directory / "capture"])
    lines = captured_lines(paths, load_templates())
    windows = list(replayed_packets(paths, lines, [], max_rows=DAY_MESSAGES))
    history, before, after = ChannelHistory(directory / "history"), list[ReceivedPackets](), list[ReceivedPackets]()
    for packets in windows:
        kinds = np.array([getattr(name, "stream", "") for name in packets.names])[packets.flow]
        sent = packets.take(np.flatnonzero(kinds == "incremental"))
        zeros = np.zeros(len(sent), np.int64)
        HistorySink(history).write(Packets(sent.buffer, sent.start, sent.end, sent.ts_ns, zeros, zeros))
        chunks = ChunkParser().parse(packets.buffer, packets.start, packets.end)
        first = np.zeros(len(packets), np.int64)
        first[chunks.packet[::-1]] = chunks.msg_seq_num[::-1]
        first[kinds != "incremental"] = 0
        place = np.maximum.accumulate(first)  # what comes on other streams after the gap is left out
        first[kinds != "incremental"] = np.where(place <= GAP_AFTER, 0, DAY_MESSAGES)[kinds != "incremental"]
        before.append(packets.take(np.flatnonzero((first <= GAP_AFTER) & (kinds != "snapshot"))))
        after.append(packets.take(np.flatnonzero((first > GAP_AFTER + GAP) & (first <= GAP_AFTER + 2 * GAP))))
    messages = history.read(history.entries(1, history.last))
    history.close()
    return LossyDay(loopback_channels(lines, FIRST_PORT), messages, before, after)


def _heal(day: LossyDay, after_ms: int) -> float:
    """From the moment at which the replayer has the last message of a gap, and the client receives the next one, until
    the client's books have all of them. It waits 20 ms for the other line before it requests the gap (13.7)."""
    with tempfile.TemporaryDirectory() as directory:
        history, number = ChannelHistory(Path(directory)), day.channels[0].number
        service = ReplayService({str(number): history}, ReplaySettings(after_ms), Everything(), time.time_ns)
        server = ReplayerServer(ReplayerSettings(("127.0.0.1", 0), "REPLAYER"), service)
        server.start()
        source = ReplaySource(ReplayerAddresses("CLIENT", "REPLAYER", (server.address,)))
        with Live(day.channels, sources=[source]) as live:
            (feed,) = live.client.feeds.values()
            for packets in day.before:
                live.process([_received_now(packets)], time.time_ns())
            while not source.is_connected:
                live.poll(0.001)
            assert feed.totals.missing == 0
            now_ns, started_s = time.time_ns(), time.perf_counter()
            history.append((sequence, now_ns, data) for sequence, data in day.messages[: GAP_AFTER + GAP])
            for packets in day.after:
                live.process([_received_now(packets)], time.time_ns())
            while feed.totals.filled < GAP:
                live.poll(0.005)
                assert time.perf_counter() < started_s + PATIENCE_S, "the gap was not filled"
            seconds = time.perf_counter() - started_s
            assert feed.totals.missing == GAP
            assert not any(feed.channel.book_trust(each).level == TrustLevel.STALE for each in feed.instrument_ids())
        source.close()
        server.stop()
        history.close()
        return seconds


def _received_now(packets: ReceivedPackets) -> ReceivedPackets:
    return replace(packets, ts_ns=np.full(len(packets), time.time_ns()))


def _one(client: ReplayClient, loop: TcpLoop, sequence: int) -> float:
    started_s = time.perf_counter()
    client.request(Span(72, sequence, sequence), time.time_ns())
    while not client.is_idle:
        loop.poll(0.05)
    client.take_outcomes()
    return time.perf_counter() - started_s
