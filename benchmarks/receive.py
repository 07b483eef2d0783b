"""Receiving: losses at the rates of B3, a late join.

A process of its own sends prepared packets over loopback. Losses are counts; they need an idle machine with two cores.
A late join is measured without sockets: packets come at the times of a capture, and processing takes its CPU time.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Result
from umdf.cli.replay import expand_captures
from umdf.exchange.bulk.capture import write_capture
from umdf.exchange.bulk.settings import BulkSettings
from umdf.feed.channel_states import FeedState
from umdf.feed.client import FeedClient
from umdf.feed.replay import captured_lines, loopback_channels, replayed_packets
from umdf.transport.channels_file import LOOPBACK, LineAddress
from umdf.transport.udp_receiver import ReceivedPackets, UdpReceiver
from umdf.transport.udp_sender import UdpDestination, UdpSender
from umdf.wire.fast.loader import load as load_templates

FIRST_PORT, PAYLOAD_BYTES, LINES = 47_001, 444, 2
BURST_RATE, BURSTS, BURST_S = 236_000, 10, 0.1
SUSTAINED_RATE, SUSTAINED_S = 40_000, 5.0
STEP_S = 0.001
LOOP_END_BYTES = 16 + 4 + 8  # a Binary packet with nothing but SequenceReset_1
JOIN_INSTRUMENTS, JOIN_MESSAGES, POLL_NS = 18_000, 720_000, 20_000_000


def run() -> Iterator[Result]:
    lost, sent = _losses(BURST_RATE, BURSTS, BURST_S)
    yield Result("UDP, 236,000/s in bursts of 100 ms", f"{sent:,} sent", lost, "datagrams lost", 0)
    lost, sent = _losses(SUSTAINED_RATE, 1, SUSTAINED_S)
    yield Result("UDP, 40,000/s sustained", f"{sent:,} sent", lost, "datagrams lost", 0)
    yield from _late_join(JOIN_INSTRUMENTS, JOIN_MESSAGES)


def _late_join(instruments: int, messages: int) -> Iterator[Result]:
    """A client that joins in the middle of a day, until it is live; and the memory that it has then."""
    with tempfile.TemporaryDirectory() as directory:
        write_capture(BulkSettings(messages, instruments), Path(directory))
        paths = expand_captures([Path(directory) / "capture"])
        lines = captured_lines(paths, load_templates())
        windows = list(replayed_packets(paths, lines, []))
        start_ns = int(windows[0].ts_ns[0]) // 2 + int(windows[-1].ts_ns[-1]) // 2
        before, client = _resident_bytes(), FeedClient(loopback_channels(lines, FIRST_PORT))
        (feed,) = client.feeds.values()
        free_ns = start_ns  # when the client has processed what came
        for packets in windows:
            first = int(np.searchsorted(packets.ts_ns, start_ns))
            while first < len(packets) and feed.state != FeedState.LIVE:
                now_ns = max(free_ns, int(packets.ts_ns[first]) + POLL_NS)
                last = int(np.searchsorted(packets.ts_ns, now_ns, "right"))
                cpu_ns = time.thread_time_ns()
                client.receive(packets.take(slice(first, last)))
                client.advance(now_ns)
                free_ns, first = now_ns + time.thread_time_ns() - cpu_ns, last
        used = _resident_bytes() - before
        loop_s = _loop_s(windows, start_ns)
        assert feed.state == FeedState.LIVE, "the day is too short for the instruments"
        orders = sum(len(book.entries) for number in feed.instrument_ids() if (book := feed.channel.book(number)))
        took_s = (free_ns - start_ns) / 1e9
        figure = f"{took_s:.1f} s, a snapshot loop takes {loop_s:.1f} s"
        yield Result(f"late join, {instruments:,} instruments", figure, took_s - loop_s, "s after one loop", 1)
        figure = f"{orders:,} orders, {used >> 20} MiB"
        yield Result("memory of a client", figure, used / instruments / 1024, "KiB an instrument")
        yield Result("memory of a client", figure, used / max(1, orders), "bytes an order")


def _loop_s(windows: list[ReceivedPackets], start_ns: int) -> float:
    """The length of a snapshot loop with its pause: from one SequenceReset_1 to the next, after the join."""
    resets: list[int] = []
    for packets in windows:
        kinds = np.array([getattr(name, "stream", "") == "snapshot" for name in packets.names])
        rows = np.flatnonzero(kinds[packets.flow] & (packets.end - packets.start == LOOP_END_BYTES))
        resets += packets.ts_ns[rows].tolist()
    after = [at for at in resets if at > start_ns][:4]
    return float(np.diff(after if len(after) > 1 else resets).max()) / 1e9


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _send_bursts(rate: int, bursts: int, seconds: float, ready: Event) -> None:
    """In steps of a millisecond, each line its half."""
    senders = [UdpSender(UdpDestination(LOOPBACK, FIRST_PORT + line)) for line in range(LINES)]
    count = int(rate * STEP_S / LINES)
    end = PAYLOAD_BYTES * np.arange(1, count + 1)
    buffer = np.zeros(PAYLOAD_BYTES * count, np.uint8)
    ready.wait()
    for _ in range(bursts):
        start_s = time.monotonic()
        for step in range(round(seconds / STEP_S)):
            while time.monotonic() < start_s + step * STEP_S:
                pass
            for sender in senders:
                sender.send(buffer, end - PAYLOAD_BYTES, end)
        time.sleep(0.2)


def in_process(target: Any, *arguments: Any) -> tuple[Any, Event]:
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=target, args=(*arguments, ready))
    process.start()
    return process, ready


def _losses(rate: int, bursts: int, seconds: float) -> tuple[int, int]:
    sent = int(rate * STEP_S / LINES) * LINES * round(seconds / STEP_S) * bursts
    with UdpReceiver() as receiver:
        for line in range(LINES):
            receiver.join(line, LineAddress("AB"[line], LOOPBACK, FIRST_PORT + line))
        process, ready = in_process(_send_bursts, rate, bursts, seconds)
        ready.set()
        received = 0
        while process.is_alive() or received < sent:
            batches = receiver.take(0.5)
            received += sum(map(len, batches))
            if not batches and not process.is_alive():
                break
    return sent - received, sent
