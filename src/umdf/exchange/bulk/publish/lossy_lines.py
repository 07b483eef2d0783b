"""A stream as it arrives on its lines: the same packets, a little earlier or later on each, and some of them lost.

Each line loses packets independently; now and then both lose the same ones, so that there are gaps. The truth records
what was lost. The chunks of one FAST message are lost together: whole messages are missing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.bulk.publish.capture_files import RollingFiles
from umdf.exchange.bulk.truth import Truth

Numbers = NDArray[np.int64]
# Delay to the recorder, its jitter, and the skew of the second line, which may also be the earlier one.
CAPTURE_DELAY_NS, JITTER_NS, SKEW_NS = 40_000, 20_000, 60_000
COMMON_LOSS_SHARE = 0.05  # of the loss: starts of a run of packets that every line loses
MAX_LOST_RUN = 8


class LossyLines:
    def __init__(
        self, protocol: str, files: list[RollingFiles], truth: Truth, loss: float, random: np.random.Generator
    ) -> None:
        self._protocol, self.files, self._truth, self._loss, self._random = protocol, files, truth, loss, random
        self._last_arrival_ns = [0] * len(files)
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
        """Write packets with their first and last sequences (0: none). Without sequences nothing is lost."""
        count = len(start)
        if not count:
            return
        self.packets += count
        lost_by_line = np.zeros((len(self.files), count), bool)
        if self._loss and first is not None and last is not None:
            lost_by_line = self._draw_loss(first, last)
        for line, files in enumerate(self.files):
            spread = JITTER_NS + (SKEW_NS if line else 0)
            delay_ns = CAPTURE_DELAY_NS + self._random.integers(0, spread, count) - (SKEW_NS // 2 if line else 0)
            arrival = np.maximum.accumulate(np.maximum(ts_ns + delay_ns, self._last_arrival_ns[line]))
            self._last_arrival_ns[line] = int(arrival[-1])
            if lost_by_line[line].any():
                received = np.flatnonzero(~lost_by_line[line])
                files.write(buffer, start[received], end[received], arrival[received])
            else:
                files.write(buffer, start, end, arrival)

    def _draw_loss(self, first: Numbers, last: Numbers) -> NDArray[np.bool_]:
        count = len(first)
        lost_on_all = np.zeros(count, bool)
        for start_index in np.flatnonzero(self._random.random(count) < self._loss * COMMON_LOSS_SHARE).tolist():
            lost_on_all[start_index : start_index + 1 + int(self._random.integers(MAX_LOST_RUN))] = True
        lost_by_line = np.stack([(self._random.random(count) < self._loss) | lost_on_all for _ in self.files])
        message = np.unique(first, return_inverse=True)[1] if (np.diff(first) == 0).any() else None
        for line, lost in enumerate(lost_by_line):
            if message is not None:  # chunks of one message
                lost_messages = np.zeros(int(message.max()) + 1, bool)
                np.logical_or.at(lost_messages, message, lost & (first > 0))
                lost |= lost_messages[message] & (first > 0)
            self._record_loss(self.files[line].flow.line, lost, first, last)
        if len(self.files) > 1:
            self._record_loss(
                "".join(files.flow.line for files in self.files), np.logical_and.reduce(lost_by_line), first, last
            )
        return lost_by_line

    def _record_loss(self, line: str, lost: NDArray[np.bool_], first: Numbers, last: Numbers) -> None:
        """Record lost sequences, consecutive ones as one range."""
        lost = lost & (first > 0)
        if not lost.any():
            return
        firsts, lasts = first[lost], last[lost]
        starts_range = np.ones(len(firsts), bool)
        starts_range[1:] = firsts[1:] > lasts[:-1] + 1
        ends = np.append(starts_range[1:], True)
        self._truth.add_loss(self._protocol, line, firsts[starts_range], lasts[ends])

    def close_if_due(self, now_ns: int) -> None:
        for files in self.files:
            files.close_if_due(now_ns)

    def close(self) -> None:
        for files in self.files:
            files.close()
