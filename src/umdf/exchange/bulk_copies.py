"""A stream as it arrives on its lines: the same packets, a little earlier or later on each, and some of them lost.

Each line loses packets by itself; now and then both lose the same ones, so that there are gaps. What was lost is told
to the truth. The chunks of one FAST message are lost together: what is missing is always whole messages.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.bulk_files import Series
from umdf.exchange.bulk_truth import Truth

Numbers = NDArray[np.int64]
LATENCY_NS, JITTER_NS, SKEW_NS = 40_000, 20_000, 60_000  # to the recorder; the second line may also be the earlier one
LOST_TOGETHER = 0.05  # of the loss: starts of a stretch that every line loses
LONGEST_STRETCH = 8


class Copies:
    def __init__(self, wire: str, series: list[Series], truth: Truth, loss: float, random: np.random.Generator) -> None:
        self._wire, self.series, self._truth, self._loss, self._random = wire, series, truth, loss, random
        self._arrived = [0] * len(series)
        self.packets = 0

    def write(
        self,
        buffer: Any,
        start: Numbers,
        end: Numbers,
        ts_ns: Numbers,
        first: Numbers | None = None,
        last: Numbers | None = None,
    ) -> None:
        """Packets with the numbers that each holds, from first to last (0: none). Without numbers nothing is lost."""
        count = len(start)
        if not count:
            return
        self.packets += count
        gone = np.zeros((len(self.series), count), bool)
        if self._loss and first is not None and last is not None:
            gone = self._lose(first, last)
        for line, series in enumerate(self.series):
            spread = JITTER_NS + (SKEW_NS if line else 0)
            late = LATENCY_NS + self._random.integers(0, spread, count) - (SKEW_NS // 2 if line else 0)
            arrival = np.maximum.accumulate(np.maximum(ts_ns + late, self._arrived[line]))
            self._arrived[line] = int(arrival[-1])
            if gone[line].any():
                kept = np.flatnonzero(~gone[line])
                series.write(buffer, start[kept], end[kept], arrival[kept])
            else:
                series.write(buffer, start, end, arrival)

    def _lose(self, first: Numbers, last: Numbers) -> NDArray[np.bool_]:
        count = len(first)
        together = np.zeros(count, bool)
        for at in np.flatnonzero(self._random.random(count) < self._loss * LOST_TOGETHER).tolist():
            together[at : at + 1 + int(self._random.integers(LONGEST_STRETCH))] = True
        gone = np.stack([(self._random.random(count) < self._loss) | together for _ in self.series])
        message = np.unique(first, return_inverse=True)[1] if (np.diff(first) == 0).any() else None
        for line, lost in enumerate(gone):
            if message is not None:  # chunks of one message
                whole = np.zeros(int(message.max()) + 1, bool)
                np.logical_or.at(whole, message, lost & (first > 0))
                lost |= whole[message] & (first > 0)
            self._tell(self.series[line].flow.line, lost, first, last)
        if len(self.series) > 1:
            self._tell("".join(series.flow.line for series in self.series), np.logical_and.reduce(gone), first, last)
        return gone

    def _tell(self, line: str, lost: NDArray[np.bool_], first: Numbers, last: Numbers) -> None:
        """Neighbours as one range."""
        lost = lost & (first > 0)
        if not lost.any():
            return
        firsts, lasts = first[lost], last[lost]
        begins = np.ones(len(firsts), bool)
        begins[1:] = firsts[1:] > lasts[:-1] + 1
        ends = np.append(begins[1:], True)
        self._truth.note_loss(self._wire, line, firsts[begins], lasts[ends])

    def close_if_old(self, now_ns: int) -> None:
        for series in self.series:
            series.close_if_old(now_ns)

    def close(self) -> None:
        for series in self.series:
            series.close()
