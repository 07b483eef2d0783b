"""The lines of a stream behind a network with faults: a sink that wraps the sinks of the lines.

Every line gets the same packets, a little earlier or later. Lines lose packets independently and together, and can be
dead for a time. What happens to single packets beyond that is done by `packet_faults`, one for each line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.network.faults import SECOND_NS, Faults
from umdf.exchange.network.packet_faults import PacketFaults
from umdf.exchange.publish.channel_settings import INCREMENTAL, SBE
from umdf.exchange.publish.sinks import Numbers, Packets, Sink

# Delay to the receiver, its jitter, and the skew of other lines than the first, which may also be the earlier ones.
DELAY_NS, JITTER_NS, SKEW_NS = 40_000, 20_000, 60_000
LossObserver = Callable[[str, Numbers, Numbers], None]  # line ("AB": both), first and last of each lost range
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class StreamName:
    """Which stream the packets belong to, and when the times of its faults begin."""

    protocol: str = SBE
    stream: str = INCREMENTAL
    start_ns: int = 0


class CommonLoss:
    """What all lines lose: decided once for each packet, also where the lines come one by one (`proxy`)."""

    REMEMBERED = 1 << 16

    def __init__(self, random: np.random.Generator, faults: Faults) -> None:
        self._random, self._faults = random, faults
        self._decided: dict[int, bool] = {}  # by sequence, where lines come one by one
        self._left = 0  # packets of the run

    def of_together(self, count: int) -> Mask:
        """Of packets that all lines get at the same time."""
        lost = np.zeros(count, bool)
        for start in np.flatnonzero(self._random.random(count) < self._faults.common_loss).tolist():
            lost[start : start + 1 + int(self._random.integers(self._faults.max_run))] = True
        return lost

    def of_one(self, sequence: Numbers) -> Mask:
        """Of packets of one line: what was decided for another line counts for this one."""
        return np.array([self._of(number) for number in sequence.tolist()], bool)

    def _of(self, sequence: int) -> bool:
        found = self._decided.get(sequence) if sequence else False
        if found is None:
            if not self._left and self._random.random() < self._faults.common_loss:
                self._left = 1 + int(self._random.integers(self._faults.max_run))
            found, self._left = self._left > 0, max(self._left - 1, 0)
            self._decided[sequence] = found
            if len(self._decided) > self.REMEMBERED:
                del self._decided[next(iter(self._decided))]
        return found


class FaultyLines:
    """`on_loss` is told of every range of sequences that a line, or all together, did not deliver. `common`: lines that
    are written one by one share it."""

    def __init__(
        self,
        lines: Mapping[str, Sink],
        random: np.random.Generator,
        faults: Faults | None = None,
        on_loss: LossObserver | None = None,
        *,
        stream: StreamName | None = None,
        common: CommonLoss | None = None,
    ) -> None:
        self._random, self._faults, self._on_loss = random, faults or Faults(), on_loss
        self._stream, self._shared = stream or StreamName(), common
        self._common = common or CommonLoss(random, self._faults)
        self._lines = dict(lines)
        if self._faults.changes_packets:
            own, start_ns = random.spawn(len(lines)), self._stream.start_ns
            self._lines = {
                line: PacketFaults(
                    sink, draw, self._faults, line, self._stream.protocol, start_ns,
                    is_incremental=self._stream.stream == INCREMENTAL,
                )
                for (line, sink), draw in zip(lines.items(), own, strict=True)
            }  # fmt: skip
        self._last_arrival_ns = dict.fromkeys(lines, 0)
        self._burst_left = dict.fromkeys(lines, 0)

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
        faults, count = self._faults, len(packets)
        lost_by_line = np.zeros((len(self._lines), count), bool)
        if self._stream.stream != INCREMENTAL:
            if faults.loop_loss:
                lost_by_line = self._random.random((len(self._lines), count)) < faults.loop_loss
        elif faults.loss or faults.common_loss or faults.burst_loss:
            lost_by_line = self._draw_incremental_loss(packets)
        seconds = (packets.ts_ns - self._stream.start_ns) / SECOND_NS
        for number, line in enumerate(self._lines):
            for outage in faults.outages:
                if outage.covers(self._stream.stream, line):
                    lost_by_line[number] |= (seconds >= outage.from_s) & (seconds < outage.until_s)
        lost_by_line &= seconds < faults.ends_s
        if lost_by_line.any() and self._stream.stream == INCREMENTAL:
            self._lose_whole_messages(packets, lost_by_line)
            self._report(packets, lost_by_line)
        return lost_by_line

    def _draw_incremental_loss(self, packets: Packets) -> Mask:
        faults, count = self._faults, len(packets)
        is_alone = self._shared is not None
        lost_on_all = self._common.of_one(packets.first_sequence) if is_alone else self._common.of_together(count)
        alone = [(self._random.random(count) < faults.loss) | self._bursts(line, count) for line in self._lines]
        return np.stack(alone) | lost_on_all

    def _bursts(self, line: str, count: int) -> Mask:
        lost = np.zeros(count, bool)
        if self._faults.burst_loss:
            lost[: self._burst_left[line]] = True
            left = max(self._burst_left[line] - count, 0)
            for start in np.flatnonzero(self._random.random(count) < self._faults.burst_loss).tolist():
                end = start + 1 + int(self._random.integers(self._faults.max_run))
                lost[start:end], left = True, max(left, end - count)
            self._burst_left[line] = left
        return lost

    def _lose_whole_messages(self, packets: Packets, lost_by_line: NDArray[np.bool_]) -> None:
        """The chunks of one FAST message are lost together: whole messages are missing."""
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
