"""A day of the whole system with losses: memory does not grow. `make soak` runs 24 simulated hours."""

from __future__ import annotations

import gc
import os
import random
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from simulation.scenario import HEARTBEAT_MS, MEMBERS, Scenario, random_scenario
from simulation.whole_system import MS, SECOND, Simulation

from umdf.exchange.live import schedule as s
from umdf.exchange.network.faults import Faults
from umdf.exchange.publish.channel_settings import FAST, SBE, ChannelSettings
from umdf.feed.channel_states import FeedState

PHASES = {"pre_open": "00:02", "open": "00:04", "close": "23:50"}
TIMETABLE = s.Timetable(
    {s.EQUITIES: PHASES, s.DERIVATIVES: PHASES},
    {"morning": "00:01", "settlement": "23:52", "end_of_day": "23:55"},
    frozenset(),
)
HOUR = 3_600 * SECOND
MAX_GROWTH = 1.05


def quiet_day() -> Scenario:
    """About 20 packets a second on each line, with losses on one line and on both."""
    scenario = random_scenario(1, 0.0)
    loops: dict[str, Any] = {
        "snapshots_per_s": 20,
        "definitions_per_s": 20,
        "loop_pause_ms": 20_000,
        "heartbeat_ms": HEARTBEAT_MS,
    }
    channels = ChannelSettings(72, SBE, members=MEMBERS, **loops), ChannelSettings(73, FAST, members=MEMBERS, **loops)
    faults = Faults(loss=0.01, common_loss=0.002, duplicates=0.01, reordering=0.01, late_ms=5.0)
    settings = replace(
        scenario.settings, channels=channels, messages_per_s=60, start=datetime(2026, 11, 16, 0, 5), faults=faults,
        timetable=TIMETABLE,
    )  # fmt: skip
    return replace(scenario, settings=settings, keeps_joined=False, joins_after_s=0.0)


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run(directory: Path, hours: float, first_hours: float) -> tuple[int, int, Simulation]:
    """The memory after the first hours, and at the end."""
    simulation, draw = Simulation(quiet_day(), directory, keeps_history=False), random.Random(1)
    start_ns = now_ns = simulation.exchange.now_ns
    found: list[int] = []
    for end_ns in (start_ns + round(first_hours * HOUR), start_ns + round(hours * HOUR)):
        while now_ns < end_ns:
            now_ns += draw.choice((200, 500, 1_000)) * MS
            simulation.step(now_ns)
        found.append(resident_bytes())
    return found[0], found[1], simulation


@pytest.mark.full_size
def test_memory_does_not_grow_in_24_hours(tmp_path: Path) -> None:
    first, last, simulation = run(tmp_path, 24.0, 2.0)
    assert last <= MAX_GROWTH * first, f"{first >> 20} MiB after 2 hours, {last >> 20} MiB after 24"
    for channel in simulation.channels.values():
        totals = channel.feed.totals
        assert totals.gaps > 100 and totals.units > 100_000
        assert channel.feed.state in (FeedState.LIVE, FeedState.RECOVERING)
