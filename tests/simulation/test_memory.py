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
from simulation.comparison import differences
from simulation.scenario import MEMBERS, Scenario, random_scenario
from simulation.whole_system import MS, SECOND, Simulation

from umdf.exchange.live import schedule as s
from umdf.exchange.network.faults import Faults
from umdf.exchange.publish.channel_settings import FAST, SBE, ChannelSettings

PHASES = {"pre_open": "00:02", "open": "00:04", "close": "23:50"}
TIMETABLE = s.Timetable(
    {s.EQUITIES: PHASES, s.DERIVATIVES: PHASES},
    {"morning": "00:01", "settlement": "23:52", "end_of_day": "23:55"},
    frozenset(),
)
HOUR = 3_600 * SECOND
MAX_GROWTH = 1.05
DAY_H = 24


STEPS_MS = 1_000, 5_000, 10_000  # long ones, as every step costs the same, however few packets come
HEARTBEAT_S = 10.0


def quiet_day() -> Scenario:
    """About 20 packets a second, half of each protocol, on two lines, with losses on one line and on both."""
    scenario = random_scenario(1, 0.0)
    loops: dict[str, Any] = {
        "snapshots_per_s": 20,
        "definitions_per_s": 20,
        "loop_pause_ms": 20_000,
        "heartbeat_ms": round(1_000 * HEARTBEAT_S),
    }
    channels = ChannelSettings(72, SBE, members=MEMBERS, **loops), ChannelSettings(73, FAST, members=MEMBERS, **loops)
    faults = Faults(
        loss=0.01, common_loss=0.002, duplicates=0.01, reordering=0.01, late_ms=5.0, ends_s=(DAY_H - 1.0) * 3_600
    )
    settings = replace(
        scenario.settings, channels=channels, messages_per_s=18, start=datetime(2026, 11, 16, 0, 5), faults=faults,
        addresses=tuple(replace(each, heartbeat_s=HEARTBEAT_S) for each in scenario.settings.addresses),
        timetable=TIMETABLE,
    )  # fmt: skip
    return replace(scenario, settings=settings, keeps_joined=False, joins_after_s=0.0)


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run(directory: Path, hours: int) -> tuple[list[int], Simulation]:
    """The memory after each hour."""
    simulation, draw = Simulation(quiet_day(), directory, keeps_history=False), random.Random(1)
    now_ns, found = simulation.exchange.now_ns, list[int]()
    for _ in range(hours):
        end_ns = now_ns + HOUR
        while now_ns < end_ns:
            now_ns += draw.choice(STEPS_MS) * MS
            simulation.step(now_ns)
        simulation.exchange.engine.trades.clear()  # those of the session, kept for busts: not the client's memory
        found.append(resident_bytes())
        print(f"hour {len(found)}: {found[-1] >> 10} KiB", flush=True)
    return found, simulation


@pytest.mark.full_size
def test_memory_does_not_grow_in_24_hours(tmp_path: Path) -> None:
    memory, simulation = run(tmp_path, DAY_H)
    assert memory[-1] <= MAX_GROWTH * memory[1], [each >> 20 for each in memory]
    for channel in simulation.channels.values():
        totals = channel.feed.totals
        assert totals.gaps > 100 and totals.units > 500_000
    assert differences(simulation) == []
