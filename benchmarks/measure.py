"""Timing: the candidates take turns, and the fastest of several rounds counts.

Machines are noisy, so the result is a ratio of two candidates measured in the same rounds.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

ROUNDS = 5
MIN_TOTAL_S = 2.0  # short candidates get more rounds: other load on the machine can spoil five of them


@dataclass(frozen=True)
class Result:
    """One line of the table."""

    name: str
    figure: str  # what was measured, in its own unit
    ratio: float
    unit: str  # what the ratio is of
    target: float | None = None  # None: no target
    at_least: bool = False  # the ratio should be no less than the target; otherwise no more

    @property
    def met(self) -> bool:
        if self.target is None:
            return True
        return self.ratio >= self.target if self.at_least else self.ratio <= self.target


def fastest(
    candidates: Mapping[str, Callable[[], object]], rounds: int = ROUNDS, clock: Callable[[], float] = time.thread_time
) -> dict[str, float]:
    """Seconds of each candidate: the minimum over interleaved rounds, after one unmeasured round. There are at least
    `rounds`, and enough to take MIN_TOTAL_S together."""
    best = dict.fromkeys(candidates, float("inf"))
    for candidate in candidates.values():
        candidate()
    gc.disable()
    try:
        first = time.monotonic()
        while rounds > 0 or time.monotonic() - first < MIN_TOTAL_S:
            for name, candidate in candidates.items():
                start_s = clock()
                candidate()
                best[name] = min(best[name], clock() - start_s)
            rounds -= 1
    finally:
        gc.enable()
    return best
