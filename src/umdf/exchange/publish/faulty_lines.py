"""The lines of a stream behind a network with faults: a sink that wraps the sinks of the lines.

Every line gets the same packets, a little earlier or later. Lines lose packets independently and together, and can be
dead for a time. The chunks of one FAST message are lost together: whole messages are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.publish.sinks import Numbers, Packets, Sink

# Delay to the receiver, its jitter, and the skew of other lines than the first, which may also be the earlier ones.
DELAY_NS, JITTER_NS, SKEW_NS = 40_000, 20_000, 60_000
LossObserver = Callable[[str, Numbers, Numbers], None]  # line ("AB": both), first and last of each lost range


@dataclass(frozen=True)
class DeadLine:
    """A line that delivers nothing for a time."""

    line: str
    first_ns: int
    last_ns: int


@dataclass(frozen=True)
class Faults:
    loss: float = 0.0  # fraction of packets that each line loses by itself
    common_loss: float = 0.0  # fraction of packets at which all lines begin to lose a run
    max_common_run: int = 8
    dead_lines: tuple[DeadLine, ...] = ()


class FaultyLines:
    """`on_loss` is told of every range of sequences that a line, or all together, did not deliver."""

    def __init__(
        self,
        lines: Mapping[str, Sink],
        random: np.random.Generator,
        faults: Faults | None = None,
        on_loss: LossObserver | None = None,
    ) -> None:
        self._lines, self._random, self._faults, self._on_loss = lines, random, faults or Faults(), on_loss
        self._last_arrival_ns = dict.fromkeys(lines, 0)

    def write(self, packets: Packets) -> None:
        if not len(packets):
            return
        lost_by_line = self._draw_loss(packets)
        for number, (line, sink) in enumerate(self._lines.items()):
            spread = JITTER_NS + (SKEW_NS if number else 0)
            delay_ns = DELAY_NS + self._random.integers(0, spread, len(packets)) - (SKEW_NS // 2 if number else 0)
            arrival = np.maximum.accumulate(np.maximum(packets.ts_ns + delay_ns, self._last_arrival_ns[line]))
            self._last_arrival_ns[line] = int(arrival[-1])
            lost = lost_by_line[number]
            sink.write(packets.at(arrival).select(np.flatnonzero(~lost)) if lost.any() else packets.at(arrival))

    def _draw_loss(self, packets: Packets) -> NDArray[np.bool_]:
        """Which packets each line loses."""
        count, faults, random = len(packets), self._faults, self._random
        lost_by_line = np.zeros((len(self._lines), count), bool)
        if faults.loss or faults.common_loss:
            lost_on_all = np.zeros(count, bool)
            for start in np.flatnonzero(random.random(count) < faults.common_loss).tolist():
                lost_on_all[start : start + 1 + int(random.integers(faults.max_common_run))] = True
            lost_by_line = np.stack([(random.random(count) < faults.loss) | lost_on_all for _ in self._lines])
        for dead in faults.dead_lines:
            during = (packets.ts_ns >= dead.first_ns) & (packets.ts_ns <= dead.last_ns)
            lost_by_line[list(self._lines).index(dead.line)] |= during
        if lost_by_line.any():
            self._lose_whole_messages(packets, lost_by_line)
            self._report(packets, lost_by_line)
        return lost_by_line

    def _lose_whole_messages(self, packets: Packets, lost_by_line: NDArray[np.bool_]) -> None:
        first = packets.first_sequence
        if not (np.diff(first) == 0).any():
            return
        message = np.unique(first, return_inverse=True)[1]
        for lost in lost_by_line:
            lost_messages = np.zeros(int(message.max()) + 1, bool)
            np.logical_or.at(lost_messages, message, lost & (first > 0))
            lost |= lost_messages[message] & (first > 0)

    def _report(self, packets: Packets, lost_by_line: NDArray[np.bool_]) -> None:
        if self._on_loss is None:
            return
        reports = list(zip(self._lines, lost_by_line, strict=True))
        if len(self._lines) > 1:
            reports.append(("".join(self._lines), np.logical_and.reduce(lost_by_line)))
        for line, lost in reports:
            lost = lost & (packets.first_sequence > 0)
            if lost.any():
                firsts, lasts = packets.first_sequence[lost], packets.last_sequence[lost]
                starts_range = np.append(True, firsts[1:] > lasts[:-1] + 1)
                self._on_loss(line, firsts[starts_range], lasts[np.append(starts_range[1:], True)])

    def advance(self, now_ns: int) -> None:
        for sink in self._lines.values():
            sink.advance(now_ns)

    def close(self) -> None:
        for sink in self._lines.values():
            sink.close()
