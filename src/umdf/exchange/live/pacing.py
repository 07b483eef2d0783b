"""Runs an exchange at the pace of a clock: real time, or N times as fast."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

NEVER = 1 << 62
MAX_STEP_NS = 500_000_000  # of the simulated clock, so that loops and heartbeats keep their pace at any speed
# In real time, how late an exchange may be before its order flow gives way, and how much of the flow remains. Binary
# has heartbeats every second (9.2.2): a machine that is too slow has fewer orders, but nothing is silent for longer.
MAX_LAG_NS, FLOW_NS = 50_000_000, 10_000_000


class Advances(Protocol):
    @property
    def now_ns(self) -> int: ...

    def advance(self, now_ns: int) -> None: ...

    def skip_order_flow(self, until_ns: int) -> None: ...


@dataclass(frozen=True)
class Pace:
    speed: float = 1.0  # simulated seconds in a second
    tick_ms: int = 5
    duration_s: float | None = None  # simulated; None: without end

    @property
    def is_real_time(self) -> bool:
        return self.speed <= 1


def run_paced(
    exchange: Advances,
    wait: Callable[[float], None],
    pace: Pace,
    is_stopped: Callable[[], bool],
    clock_ns: Callable[[], int] = time.monotonic_ns,
) -> None:
    """Advance the exchange tick by tick, and call `wait` with the seconds in between. What is late is made up for: the
    next ticks are longer, and without a pause; in real time only orders of the flow are left out."""
    first_ns, started_ns = exchange.now_ns, clock_ns()
    end_ns = NEVER if pace.duration_s is None else first_ns + round(pace.duration_s * 1e9)
    tick_ns = pace.tick_ms * 1_000_000
    next_ns = started_ns
    while exchange.now_ns < end_ns and not is_stopped():
        is_late = first_ns + round((clock_ns() - started_ns) * pace.speed) > exchange.now_ns + MAX_STEP_NS
        next_ns = clock_ns() if is_late else max(next_ns + tick_ns, clock_ns())
        wait(max(next_ns - clock_ns(), 0) / 1e9)
        due_ns = first_ns + round((clock_ns() - started_ns) * pace.speed)
        if pace.is_real_time and due_ns > exchange.now_ns + MAX_LAG_NS:
            exchange.skip_order_flow(due_ns - FLOW_NS)
        exchange.advance(min(max(due_ns, exchange.now_ns), exchange.now_ns + MAX_STEP_NS, end_ns))
