"""The pace of a running exchange, by a clock that the test moves."""

from __future__ import annotations

import pytest

from umdf.exchange.live.pacing import MAX_STEP_NS, Pace, run_paced

MS, SECOND = 1_000_000, 1_000_000_000


class Recorder:
    """Where an exchange is, the steps that brought it there, and what each of them takes."""

    def __init__(self, work_ns: int = 0) -> None:
        self.now_ns, self.clock_ns, self.work_ns = 0, 0, work_ns
        self.steps: list[int] = []
        self.waits: list[float] = []

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
    assert set(exchange.steps) == {5 * MS}


@pytest.mark.parametrize("speed", [60.0, 100_000.0])
def test_at_any_speed_no_step_is_longer_than_loops_and_heartbeats_allow(speed: float) -> None:
    exchange = Recorder(work_ns=MS)
    run(exchange, Pace(speed, duration_s=600))
    assert exchange.now_ns == 600 * SECOND and max(exchange.steps) <= MAX_STEP_NS
    assert exchange.clock_ns == pytest.approx(max(600 * SECOND / speed, 1_200 * MS), rel=0.02)


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
