"""The live exchange: what it publishes agrees with its own state, in both protocols, through the steps of its days."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exchange.reference_client import Client, messages_of, ops_of_fast, ops_of_sbe

from umdf.exchange.live.outputs import Captures, sinks_of, udp_lines
from umdf.exchange.live.running_market import RunningMarket
from umdf.exchange.live.settings import ExchangeSettings, read_settings
from umdf.exchange.truth.tables import final_orders
from umdf.transport.channels_file import LineAddress

ROOT = Path(__file__).parents[2]
OPS = {"sbe": ops_of_sbe, "fast": ops_of_fast}
SECOND, MINUTE, HOUR = 10**9, 60 * 10**9, 3600 * 10**9


def small(**more: Any) -> ExchangeSettings:
    settings = read_settings(ROOT / "examples" / "exchange.toml")
    return replace(settings, **{"instruments": 100, "messages_per_s": 15, **more})


def run(directory: Path, settings: ExchangeSettings, duration_ns: int, tick_ns: int) -> RunningMarket:
    captures = Captures(directory / "capture")
    running = RunningMarket(settings, sinks_of(settings, [captures.open_line]))
    end_ns = running.now_ns + duration_ns
    while running.now_ns < end_ns:
        running.advance(min(running.now_ns + tick_ns, end_ns))
    running.close()
    return running


def replayed(directory: Path, protocol: str) -> Client:
    client = Client(False)
    for stream in ("instruments", "incremental"):
        for message in messages_of(directory, protocol, stream):
            for op in OPS[protocol](message):
                client.take(op, protocol)
    return client


@pytest.mark.parametrize("protocol", ["sbe", "fast"])
def test_the_books_of_a_morning_are_those_of_the_exchange(tmp_path: Path, protocol: str) -> None:
    settings = small(start=datetime(2026, 11, 16, 9, 44, 50))
    channels = [(c, a) for c, a in zip(settings.channels, settings.addresses, strict=True) if c.protocol == protocol]
    settings = replace(settings, channels=(channels[0][0],), addresses=(channels[0][1],))
    running = run(tmp_path, settings, 16 * MINUTE, 10 * SECOND)
    orders = final_orders(running.market)
    columns = [orders[name] for name in ("instrument_id", "side", "position", "price", "size", "order_id", "firm")]
    lists = (column.tolist() if isinstance(column, np.ndarray) else column.to_pylist() for column in columns)
    rows = zip(*lists, strict=True)
    members = set(running.listing.security_id[settings.channels[0].members.of(running.listing)].tolist())
    assert replayed(tmp_path, protocol).orders() == {row for row in rows if row[0] in members}
    assert running.records > 1_000


def test_a_client_on_loopback_receives_every_number_in_order(tmp_path: Path) -> None:
    """Line A of the incremental stream to a plain socket: nothing is missing, nothing comes twice."""
    settings = small(start=datetime(2026, 11, 16, 9, 59, 58))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        receiver.bind(("127.0.0.1", 0))
        line = LineAddress("A", "127.0.0.1", receiver.getsockname()[1])
        (address,) = (replace(a, streams={**a.streams, "incremental": (line,)}) for a in settings.addresses[:1])
        settings = replace(settings, channels=settings.channels[:1], addresses=(address,))
        running = RunningMarket(settings, sinks_of(settings, [udp_lines(ttl=0)]))
        received: list[bytes] = []
        receiver.setblocking(False)
        for _ in range(30):
            running.advance(running.now_ns + SECOND)
            with contextlib.suppress(BlockingIOError):
                while True:
                    received.append(receiver.recv(2_000))
        running.close()
    assert all(len(packet) <= 1_400 for packet in received)
    numbers = [int.from_bytes(packet[4:8], "little") for packet in received]
    numbered = [number for number in numbers if number]  # a heartbeat has none
    assert numbered == list(range(1, len(numbered) + 1)) and len(numbered) > 50
