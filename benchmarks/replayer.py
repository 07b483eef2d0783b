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
from pathlib import Path

from benchmarks.measure import Result
from umdf.exchange.replayer.history import ChannelHistory
from umdf.exchange.replayer.server import ReplayerServer, ReplayerSettings
from umdf.exchange.replayer.service import ReplayService, ReplaySettings
from umdf.feed.feed_lines import ChannelKey
from umdf.feed.replay_client import ReplayClient, ReplayClientSettings, ReplayedMessages, Span
from umdf.feed.replay_source import ReplaySource
from umdf.sync.gaps import Gap
from umdf.transport.channels_file import ReplayerAddresses
from umdf.transport.tcp import Address, TcpLoop

MESSAGES, MESSAGE_BYTES, PART = 200_000, 100, 10_000
SINGLE_REQUESTS = 500
SESSIONS, OF_A_SESSION = 200, 500
GAP, GAPS = 1_000, 11


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
    for after_ms in (0, 25):
        healed_ms = sorted(_heal(after_ms) for _ in range(GAPS))[GAPS // 2] * 1e3
        target = 100 if after_ms == 0 else None
        yield Result(f"a gap of {GAP:,} replayed, available after {after_ms} ms", "", healed_ms, "ms", target)


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


def _heal(after_ms: int) -> float:
    """From the moment at which the replayer holds the last message of a gap until the client has all of them."""
    with tempfile.TemporaryDirectory() as directory:
        history, data = ChannelHistory(Path(directory)), random.Random(1).randbytes(MESSAGE_BYTES)
        service = ReplayService({"72": history}, ReplaySettings(after_ms), Everything(), time.time_ns)
        server = ReplayerServer(ReplayerSettings(("127.0.0.1", 0), "REPLAYER"), service)
        server.start()
        source = ReplaySource(ReplayerAddresses("CLIENT", "REPLAYER", (server.address,)))
        while not source.is_connected:
            time.sleep(0.001)
        history.append((sequence, time.time_ns(), data) for sequence in range(1, GAP + 1))
        started_s, found = time.perf_counter(), 0
        source.request(ChannelKey("fast", 72), Gap(0, 1, GAP, 0))
        while found < GAP:
            found += sum(map(len, source.take()))
            time.sleep(0.0005)
        seconds = time.perf_counter() - started_s
        source.close()
        server.stop()
        history.close()
        return seconds


def _one(client: ReplayClient, loop: TcpLoop, sequence: int) -> float:
    started_s = time.perf_counter()
    client.request(Span(72, sequence, sequence), time.time_ns())
    while not client.is_idle:
        loop.poll(0.05)
    client.take_outcomes()
    return time.perf_counter() - started_s
