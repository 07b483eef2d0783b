"""Ten minutes of a quiet exchange, by a clock that the test moves: no stream is silent for longer than its heartbeat,
loops keep their pace, numbers have no holes. In `make soak` also in real time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import pytest
from exchange.channel_client import ChannelClient

from umdf.exchange.live.exchange import Exchange
from umdf.exchange.live.pacing import Pace, run_paced
from umdf.exchange.live.settings import ExchangeSettings
from umdf.exchange.publish.channel_settings import (
    FAST,
    INSTRUMENTS,
    MBP,
    POSITION,
    PRIORITY,
    SBE,
    SNAPSHOTS,
    STREAMS,
    ChannelSettings,
    Members,
)
from umdf.sync.raw_units import UnitKind

Sized = Callable[[int, int], int]
SECOND, MS = 10**9, 10**6
MINUTES = 10
PART_NS = 200 * MS  # of a loop
PACE: dict[str, Any] = {"snapshots_per_s": 20, "definitions_per_s": 40, "loop_pause_ms": 20_000}
CHANNELS = {
    "sbe": ChannelSettings(78, SBE, POSITION, members=Members(("FUT",)), **PACE),
    "fast": ChannelSettings(73, FAST, PRIORITY, MBP, 5, Members(("CS", "PS")), heartbeat_ms=3_000, **PACE),
}


@dataclass
class Run:
    exchange: Exchange
    tick_ns: int
    start_ns: int = 0
    clients: dict[str, ChannelClient] = field(default_factory=dict)


def start() -> Run:
    settings = ExchangeSettings(
        tuple(CHANNELS.values()), instruments=100, messages_per_s=2, start=datetime(2026, 11, 16, 11, 0)
    )
    clients = {name: ChannelClient(channel) for name, channel in CHANNELS.items()}
    sinks = {id(channel): clients[name].sinks for name, channel in CHANNELS.items()}
    exchange = Exchange(settings, lambda channel: sinks[id(channel)])
    return Run(exchange, 0, exchange.now_ns, clients)


@pytest.fixture(scope="module")
def run(sized: Sized) -> Run:
    """Ticks of 250 ms, in the full size of 5 ms."""
    started = start()
    started.tick_ns, end_ns = sized(250, 5) * MS, started.start_ns + MINUTES * 60 * SECOND
    while started.exchange.now_ns < end_ns:
        started.exchange.advance(started.exchange.now_ns + started.tick_ns)
    return started


def check_pace(run: Run, name: str, delay_ns: int) -> None:
    """`delay_ns` is how much later than it is due something may be sent."""
    client, settings = run.clients[name], CHANNELS[name]
    end_ns = run.start_ns + MINUTES * 60 * SECOND
    for stream in STREAMS:
        times = np.array([run.start_ns, *client.sinks[stream].ts_ns, end_ns])
        assert np.diff(times).max() <= settings.heartbeat_ns + delay_ns + PART_NS, stream
    units = client.units()
    numbered = units.sequence[units.kind == UnitKind.DATA]
    assert len(numbered) > 60 and (np.diff(numbered) == 1).all()
    members = int((settings.members.of(run.exchange.listing) & run.exchange.is_listed).sum())
    for stream, rate in ((SNAPSHOTS, settings.snapshots_per_s), (INSTRUMENTS, settings.definitions_per_s)):
        units = client.units(stream)
        data = client.events(units.take(units.kind == UnitKind.DATA), snapshot=stream == SNAPSHOTS)
        rows = data.rows("snapshot" if stream == SNAPSHOTS else "definition")
        times = data.units.ts_send[rows.unit]
        loops = np.flatnonzero(np.diff(times) > settings.loop_pause_ms * MS * 9 // 10)
        ids = np.split(rows.column("instrument_id"), loops + 1)
        assert all(len(set(loop.tolist())) == members == len(loop) for loop in ids[1:-1]), stream
        period_ns = SECOND * members // rate + settings.loop_pause_ms * MS
        starts = times[loops + 1]
        assert len(starts) >= MINUTES * 60 * SECOND // period_ns - 2, (stream, len(starts), period_ns)
        assert np.abs(np.diff(starts) - period_ns).max() <= 2 * (delay_ns + PART_NS), stream


@pytest.mark.parametrize("name", CHANNELS)
def test_heartbeats_and_loops_keep_their_pace_over_ten_minutes(run: Run, name: str) -> None:
    check_pace(run, name, run.tick_ns + 30 * MS)


@pytest.mark.full_size
def test_in_real_time_too() -> None:
    """The packets' own times: the exchange follows the clock, however late a tick is."""
    started = start()
    run_paced(started.exchange, time.sleep, Pace(duration_s=MINUTES * 60), lambda: False)
    for name in CHANNELS:
        check_pace(started, name, 500 * MS)
