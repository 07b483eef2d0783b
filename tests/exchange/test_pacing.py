"""The pace of a running exchange, by a clock that the test moves."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise

import pytest

from umdf.exchange.live.exchange import Exchange
from umdf.exchange.live.pacing import FLOW_NS, MAX_LAG_NS, MAX_STEP_NS, Pace, run_paced
from umdf.exchange.live.settings import ExchangeSettings
from umdf.exchange.publish.channel_settings import SBE, STREAMS, ChannelSettings, Members
from umdf.exchange.publish.sinks import Packets

MS, SECOND = 1_000_000, 1_000_000_000


class Recorder:
    """Where an exchange is, the steps that brought it there, and what each of them takes."""

    def __init__(self, work_ns: int = 0) -> None:
        self.now_ns, self.clock_ns, self.work_ns = 0, 0, work_ns
        self.steps: list[int] = []
        self.waits: list[float] = []
        self.skipped: list[int] = []

    def skip_order_flow(self, until_ns: int) -> None:
        self.skipped.append(until_ns - self.now_ns)

    def advance(self, now_ns: int) -> None:
        self.steps.append(now_ns - self.now_ns)
        self.now_ns = now_ns
        self.clock_ns += self.work_ns

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.clock_ns += round(seconds * 1e9)


def run(exchange: Recorder, pace: Pace) -> None:
    run_paced(exchange, exchange.wait, pace, lambda: False, lambda: exchange.clock_ns)


def test_ten_minutes_at_real_time_are_ticks_of_the_same_length() -> None:
    exchange = Recorder(work_ns=2 * MS)
    run(exchange, Pace(tick_ms=5, duration_s=600))
    assert exchange.now_ns == 600 * SECOND == exchange.clock_ns - 2 * MS
    assert set(exchange.steps) == {5 * MS} and not exchange.skipped


@pytest.mark.parametrize("speed", [60.0, 100_000.0])
def test_at_any_speed_no_step_is_longer_than_loops_and_heartbeats_allow(speed: float) -> None:
    exchange = Recorder(work_ns=MS)
    run(exchange, Pace(speed, duration_s=600))
    assert exchange.now_ns == 600 * SECOND and max(exchange.steps) <= MAX_STEP_NS
    assert exchange.clock_ns == pytest.approx(max(600 * SECOND / speed, 1_200 * MS), rel=0.02)
    assert not exchange.skipped


def test_what_is_late_is_made_up_for_without_a_pause() -> None:
    exchange = Recorder()
    exchange.clock_ns = 0
    halted = [False]

    def wait(seconds: float) -> None:
        exchange.wait(seconds)
        if exchange.now_ns >= SECOND and not halted[0]:
            halted[0], exchange.clock_ns = True, exchange.clock_ns + 3 * SECOND

    run_paced(exchange, wait, Pace(duration_s=10), lambda: False, lambda: exchange.clock_ns)
    assert exchange.clock_ns == pytest.approx(10 * SECOND, rel=0.001)
    assert exchange.steps.count(MAX_STEP_NS) in (5, 6) and exchange.waits.count(0.0) >= 5
    assert exchange.skipped[0] == 3 * SECOND + 5 * MS - FLOW_NS


class SlowMachine:
    """An exchange whose order flow takes longer than it simulates, and when it has sent what, by the clock."""

    def __init__(self, slowness: float, fixed_ns: int) -> None:
        self.clock_ns, self._slowness, self._fixed_ns, self._skipped_until_ns = 0, slowness, fixed_ns, 0
        self.sent_ns: dict[str, list[int]] = {stream: [] for stream in STREAMS}
        channel = ChannelSettings(78, SBE, members=Members(("SPOT",)), loop_pause_ms=5_000)
        settings = ExchangeSettings((channel,), instruments=100, messages_per_s=20, start=datetime(2026, 11, 16, 11))
        self._exchange = Exchange(settings, lambda _: {stream: _Clocked(self, stream) for stream in STREAMS})
        self.trading_ns = 0

    @property
    def now_ns(self) -> int:
        return self._exchange.now_ns

    def skip_order_flow(self, until_ns: int) -> None:
        self._skipped_until_ns = until_ns
        self._exchange.skip_order_flow(until_ns)

    def advance(self, now_ns: int) -> None:
        flow_ns = max(now_ns - max(self.now_ns, self._skipped_until_ns), 0)
        self.clock_ns += self._fixed_ns + round(self._slowness * flow_ns)
        self.trading_ns += flow_ns
        self._exchange.advance(now_ns)

    def wait(self, seconds: float) -> None:
        self.clock_ns += round(seconds * 1e9)


class _Clocked:
    def __init__(self, machine: SlowMachine, stream: str) -> None:
        self._machine, self._sent_ns = machine, machine.sent_ns[stream]

    def write(self, packets: Packets) -> None:
        if len(packets):
            self._sent_ns.append(self._machine.clock_ns)

    def advance(self, now_ns: int) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("slowness", "fixed_ms"), [(0.1, 1), (3.0, 20), (5.0, 50)])
def test_no_stream_is_silent_for_longer_than_a_heartbeat_however_slow_the_machine_is(
    slowness: float, fixed_ms: int
) -> None:
    """Binary 9.2.2: by the clock of the machine, not by that of the exchange. What gives way is the order flow."""
    machine = SlowMachine(slowness, fixed_ms * MS)
    run_paced(machine, machine.wait, Pace(duration_s=30), lambda: False, lambda: machine.clock_ns)
    for stream in STREAMS:
        times = [0, *machine.sent_ns[stream]]
        assert len(times) > 20 and max(b - a for a, b in pairwise(times)) <= 1_250 * MS, stream
    assert abs(machine.clock_ns - 30 * SECOND) <= MAX_LAG_NS * max(slowness, 1) + fixed_ms * MS
    assert machine.trading_ns > (29 * SECOND if slowness < 1 else SECOND // 2)
