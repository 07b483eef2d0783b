"""The time from the wire to a book: until a callback that may read the book is called, beside a bare receive loop.

A process of its own sends prepared packets over loopback, so this needs an idle machine with two cores.
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np

from benchmarks.measure import Result
from benchmarks.receive import FIRST_PORT, PAYLOAD_BYTES, in_process
from umdf.cli.replay import expand_captures
from umdf.exchange.bulk.capture import write_capture
from umdf.exchange.bulk.settings import BulkSettings
from umdf.feed.channel_feed import ChannelFeed
from umdf.feed.events import BookChanged
from umdf.feed.feed_lines import feed_lines
from umdf.feed.live import Live
from umdf.feed.replay import captured_lines, loopback_channels, replayed_packets
from umdf.transport.channels_file import LOOPBACK
from umdf.wire.fast.loader import load as load_templates

PACKETS, RATE, WARM_UP = 10_000, 5_000, 1_000
SO_TIMESTAMPNS = 35


def run() -> Iterator[Result]:
    for protocol in ("sbe", "fast"):
        bare, (book, cpu_us, note) = _bare_loop(), _wire_to_book(protocol)
        for percent in (50, 90, 99):
            (of_loop, of_book) = (float(np.percentile(each, percent)) / 1e3 for each in (bare, book))
            figure = f"{of_book:,.1f} µs, bare loop {of_loop:,.1f} µs"
            target = 1.5 if (protocol, percent) == ("sbe", 50) else None
            name = f"wire → book, {protocol}, p{percent}, {RATE:,}/s"
            yield Result(name, figure, of_book / of_loop, "bare loop", target)
        yield Result(f"processor time, {protocol}, {RATE:,}/s", note, cpu_us, "µs a packet")


def _send(packets: list[bytes], port: int, ready: Event) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        ready.wait()
        start_s = time.monotonic()
        for number, packet in enumerate(packets):
            while (left_s := start_s + number / RATE - time.monotonic()) > 0:
                time.sleep(left_s)
            sender.sendto(packet, (LOOPBACK, port))


def _bare_loop() -> np.ndarray:
    """From the kernel's receive time to the return of `recvmsg`, of a loop that does nothing else."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        receiver.bind((LOOPBACK, FIRST_PORT))
        receiver.settimeout(0.5)
        process, ready = in_process(_send, [bytes(PAYLOAD_BYTES)] * PACKETS, FIRST_PORT)
        ready.set()
        times: list[int] = []
        while process.is_alive() and len(times) < PACKETS:
            try:
                _, controls, _, _ = receiver.recvmsg(2048, 64)
            except TimeoutError:  # not started yet, or the last ones were lost
                continue
            seconds, ns = np.frombuffer(controls[0][2], np.int64).tolist()
            times.append(time.time_ns() - (seconds * 10**9 + ns))
        process.join()
    return np.array(times[WARM_UP:])


def _wire_to_book(protocol: str) -> tuple[np.ndarray, float, str]:
    """Nanoseconds of each packet from the kernel's receive time to the first callback for it; the processor time of a
    packet, all work included; and how many were applied as they were received."""
    with tempfile.TemporaryDirectory() as directory:
        write_capture(BulkSettings(60_000, 500, protocol, lines="A"), Path(directory))
        paths = expand_captures([Path(directory) / "capture"])
        lines = captured_lines(paths, load_templates())
        channels = loopback_channels(lines, FIRST_PORT)
        wire: list[bytes] = []
        times: dict[int, int] = {}

        def on_book(change: BookChanged) -> None:
            if change.sequence not in times:
                times[change.sequence] = time.time_ns() - change.ts_recv

        with Live(channels) as live:
            live.subscribe(schema="books", callback=on_book)
            for packets in replayed_packets(paths, lines, []):
                kinds = np.array([getattr(name, "stream", "") == "incremental" for name in packets.names])
                is_incremental = kinds[packets.flow]
                if not wire:  # the start of the day is there at once: instruments, and the first incrementals
                    live.process([packets.take(np.flatnonzero(~is_incremental))], time.time_ns())
                rows = np.flatnonzero(is_incremental)
                wire += [
                    packets.buffer[a:b].tobytes() for a, b in zip(packets.start[rows], packets.end[rows], strict=True)
                ]
                if len(wire) >= PACKETS:
                    break
            (address,) = [where for channel in channels for line, where in feed_lines(channel).items()
                          if line.stream == "incremental"]  # fmt: skip
            process, ready = in_process(_send, wire[:PACKETS], address.port)
            live.poll(0.1)
            cpu_ns = time.process_time_ns()
            ready.set()
            while process.is_alive():
                live.poll(0.05)
            cpu_us = (time.process_time_ns() - cpu_ns) / 1e3 / PACKETS
            (feed,) = live.client.feeds.values()
            return np.array(list(times.values())[WARM_UP:]), cpu_us, _note(feed)


def _note(feed: ChannelFeed) -> str:
    units = f"{feed.totals.units:,} units"
    return units if feed.early is None else f"{units}, {feed.early.units:,} applied at once"
