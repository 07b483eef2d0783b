"""Bulk captures: messages per second from start to closed files, with both lines and the truth.

Publishing in ticks, on both lines by UDP: the CPU time of a tick, and packets per second of CPU time. The live
exchange: its start with 18,000 instruments, and packets per second of CPU time with everything that it does.
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Result
from umdf.exchange.bulk.capture import Summary, write_capture
from umdf.exchange.bulk.settings import SECOND_NS, BulkSettings
from umdf.exchange.instruments.listing import generate_listing
from umdf.exchange.live.exchange import Exchange
from umdf.exchange.live.settings import ExchangeSettings
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.market import Market
from umdf.exchange.publish.channel_settings import FAST, INCREMENTAL, STREAMS, ChannelSettings
from umdf.exchange.publish.fast_publisher import FastPublisher
from umdf.exchange.publish.publisher import JournalBatch, Publisher
from umdf.exchange.publish.sbe_publisher import SbePublisher
from umdf.exchange.publish.sinks import TeeSink, UdpSink
from umdf.transport.udp_sender import UdpDestination, UdpSender

MESSAGES = {"sbe": 4_000_000, "fast": 400_000}
WARM_MESSAGES = 20_000
INSTRUMENTS = 500
ROUNDS = 3
TARGETS = {"sbe": 1.0, "fast": 0.2}  # million messages a second, on 2 cores
NAMES = {"sbe": "Binary", "fast": "FIX/FAST"}
TICK_ORDERS, TICKS = (1, 20), 200
TICK_TARGET_US = 250.0  # of CPU, for each channel: a twentieth of a tick of 5 ms
BURST_PACKETS, BURST_TARGET = 600, 120.0  # of a tick of 5 ms; thousands a second of CPU
START_INSTRUMENTS, START_TARGET_S = 18_000, 10.0
LIVE_RATE, LIVE_TICKS, TICK_NS, LIVE_TARGET = 20_000, 1_000, 5_000_000, 20.0  # thousands a second of CPU
PACKET_SPACING_NS = 40_000  # so far apart that each order is a packet


def run() -> Iterator[Result]:
    for protocol, messages in MESSAGES.items():
        for generation in ("priority", "position"):
            _generate(protocol, generation, WARM_MESSAGES)
            best = min(
                (_generate(protocol, generation, messages) for _ in range(ROUNDS)),
                key=lambda summary: summary.elapsed_s,
            )
            rate = best.messages / best.elapsed_s / 1e6
            packets, megabytes = best.packets / best.elapsed_s / 1e3, best.bytes / best.elapsed_s / 1e6
            figure = f"{packets:.0f} k packets/s, {megabytes:.0f} MB/s"
            name = f"bulk capture, {NAMES[protocol]}, {generation}"
            yield Result(name, figure, rate, "M messages/s", TARGETS[protocol], at_least=True)
    yield from _ticks()
    yield from _live()


def _live() -> Iterator[Result]:
    """The whole exchange, from the order flow to both lines of a channel by UDP; and its start."""
    receivers = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in "AB"]
    for receiver in receivers:
        receiver.bind(("127.0.0.1", 0))
    lines = TeeSink([UdpSink(UdpSender(UdpDestination(*receiver.getsockname()))) for receiver in receivers])
    for instruments in (START_INSTRUMENTS // 10, START_INSTRUMENTS):  # the first loads the kernels
        settings = ExchangeSettings((ChannelSettings(72),), instruments=instruments, messages_per_s=LIVE_RATE)
        started = time.perf_counter()
        exchange = Exchange(settings, lambda _: dict.fromkeys(STREAMS, lines))
        start_s = time.perf_counter() - started
    yield Result(f"start with {START_INSTRUMENTS:,} instruments", "", start_s, "s", START_TARGET_S, at_least=False)
    exchange.advance(exchange.now_ns + 35 * SECOND_NS)  # into the open market
    (publisher,) = exchange.publication.publishers
    first, used_s = publisher.sequences()[0][3], time.thread_time()
    for _ in range(LIVE_TICKS):
        exchange.advance(exchange.now_ns + TICK_NS)
    used_s, packets = time.thread_time() - used_s, publisher.sequences()[0][3] - first
    rate, figure = (
        packets / used_s / 1e3,
        f"{used_s / packets * 1e6:.0f} µs of CPU a packet, with loops and matching",
    )
    yield Result("live exchange, Binary, both lines", figure, rate, "k packets/s of CPU", LIVE_TARGET, at_least=True)
    lines.close()
    for receiver in receivers:
        receiver.close()


def _ticks() -> Iterator[Result]:
    settings = BulkSettings(100_000, 1_000)
    listing = generate_listing(settings, np.random.default_rng(1))
    market = Market(listing, settings)
    market.start(settings.midnight_ns)
    market.instruments[:, k.I_STATE] = k.OPEN
    market.run_order_flow(40_000, 1 << 62)
    records = market.take_records()
    orders = records[np.isin(records[:, k.KIND], (k.ADD, k.CHANGE, k.DELETE))]
    orders[:, k.TS] = orders[0, k.TS] + PACKET_SPACING_NS * np.arange(len(orders))
    receivers = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in "AB"]
    for receiver in receivers:
        receiver.bind(("127.0.0.1", 0))
    lines = TeeSink([UdpSink(UdpSender(UdpDestination(*receiver.getsockname()))) for receiver in receivers])
    for publisher in (
        SbePublisher(ChannelSettings(72), listing, dict.fromkeys(STREAMS, lines)),
        FastPublisher(ChannelSettings(72, FAST), listing, dict.fromkeys(STREAMS, lines)),
    ):
        name = NAMES[publisher.protocol]
        for count in TICK_ORDERS:
            cpu_us = _tick_cpu_us(publisher, orders, count)
            title = f"tick of {count} orders, {name}, both lines"
            yield Result(title, "", cpu_us, "µs of CPU", TICK_TARGET_US, at_least=False)
        if publisher.protocol == FAST:
            continue  # its small messages share packets
        cpu_us = _tick_cpu_us(publisher, orders, BURST_PACKETS)
        rate, figure = BURST_PACKETS / cpu_us * 1e3, f"{cpu_us:.0f} µs of CPU for a tick of {BURST_PACKETS}"
        yield Result(f"burst of packets, {name}, both lines", figure, rate, "k/s of CPU", BURST_TARGET, at_least=True)
    lines.close()
    for receiver in receivers:
        receiver.close()


def _tick_cpu_us(publisher: Publisher, orders: NDArray[np.int64], count: int) -> float:
    """CPU time of a tick of some orders, after as many to get warm."""
    ticks = min(TICKS, len(orders) // (2 * count))
    used_s = 0.0
    for first in (0, ticks * count):
        started = time.thread_time()
        for at in range(first, first + ticks * count, count):
            part = orders[at : at + count]
            publisher.publish(JournalBatch(INCREMENTAL, part, int(part[-1, k.TS])))
        used_s = time.thread_time() - started
    return used_s / ticks * 1e6


def _generate(protocol: str, generation: str, messages: int) -> Summary:
    settings = BulkSettings(messages, INSTRUMENTS, protocol, generation)
    with tempfile.TemporaryDirectory() as directory:
        return write_capture(settings, Path(directory))
