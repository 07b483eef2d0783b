"""Missing numbers of the looping streams (snapshots, instruments), which number each loop from 1 (4.2.5, 4.2.6).

A loop begins where the version of the numbering changes, or where a number comes again with other content: within a
loop each number is sent once. It ends with a SequenceReset. What the recording lacks at its own begin and end is no
loss, and neither are the numbers of a loop that it joined.

Invariant: loops of tasks can be joined, however the stream is divided: a loop that is continued in the next task has no
end, and no number in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_LATE_NUMBERS = 16  # a packet may be overtaken by so many
MAX_PAUSE_NS = 60 * 10**9  # after a longer silence the recording has begun anew

Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Loop:
    """A loop, or the part of it that was recorded, on one line."""

    epoch: int
    first: int
    last: int
    ts_first: int
    ts_last: int
    has_end: bool
    missing: list[tuple[int, int, int]] = field(default_factory=list)  # first, last, time of the next packet

    def to_json(self) -> list[Any]:
        return list(vars(self).values())

    @classmethod
    def from_json(cls, content: Sequence[Any]) -> Loop:
        *fields, missing = content
        return cls(*fields, [tuple(run) for run in missing])

    def missing_of(self, first: int, last: int) -> list[tuple[int, int]]:
        """Which of these numbers are not in it, as runs."""
        runs = [(first, min(last, self.first - 1)), *((low, high) for low, high, _ in self.missing)]
        runs.append((max(first, self.last + 1), last))
        clipped = [(max(low, first), min(high, last)) for low, high in runs]
        return [(low, high) for low, high in clipped if low <= high]


@dataclass(frozen=True)
class LoopLoss:
    """Numbers of a loop that a line did not deliver."""

    epoch: int
    first: int
    last: int
    ts_after: int  # of the next packet
    unfilled: list[tuple[int, int]]  # what no other line delivered: first and last
    ts_repeated: int | None  # when a later loop had sent them again

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    @property
    def filled(self) -> int:
        return self.count - sum(last - first + 1 for first, last in self.unfilled)


class LoopTracker:
    """Divides the units of one line of a looping stream, in order, into loops."""

    def __init__(self, has_send_times: bool) -> None:
        """`has_send_times`: times are send times, which show what was overtaken; otherwise receive times."""
        self._has_send_times = has_send_times
        self._loops: list[Loop] = []
        self._runs: list[tuple[Numbers, Numbers, Numbers]] = []  # of the current loop: numbers, times, contents
        self._epoch, self._last, self._has_end = 0, 0, False

    def add(self, epoch: Numbers, number: Numbers, ts: Numbers, content: Numbers, is_end: Mask) -> None:
        """`content`: hashes of the units; `is_end`: the loop ends with this unit."""
        if not len(number):
            return
        begins = (number[1:] <= number[:-1]) | (epoch[1:] != epoch[:-1]) | is_end[:-1]
        edges = [0, *(np.flatnonzero(begins) + 1).tolist(), len(number)]
        for low, high in pairwise(edges):
            run = number[low:high], ts[low:high], content[low:high]
            self._add_run(int(epoch[low]), run, bool(is_end[high - 1]))

    def end_loop(self) -> None:
        """The loop has ended, with a message that is no unit."""
        self._has_end = bool(self._runs)

    def loops(self) -> list[Loop]:
        """Call it after the last unit."""
        self._close()
        return self._loops

    def _add_run(self, epoch: int, run: tuple[Numbers, Numbers, Numbers], is_end: bool) -> None:
        if self._runs and epoch == self._epoch and (self._has_end or run[0][0] <= self._last):
            seen, contents = (np.concatenate([each[at] for each in self._runs]) for at in (0, 2))
            new = ~np.isin(run[2], contents)  # others were delivered twice
            run = run[0][new], run[1][new], run[2][new]
            if len(run[0]) and not self._is_late(run[0], int(run[1][0]), seen):
                self._close()
        elif epoch != self._epoch:
            self._close()
        if not len(run[0]):
            return
        if not self._runs:
            self._epoch, self._last, self._has_end = epoch, 0, False
        self._runs.append(run)
        self._last, self._has_end = max(self._last, int(run[0].max())), self._has_end or is_end

    def _is_late(self, number: Numbers, ts: int, seen: Numbers) -> bool:
        """Whether these numbers belong to the current loop, and were overtaken by others."""
        is_hole = seen.min() < number[0] < self._last and self._last - int(number[0]) <= MAX_LATE_NUMBERS
        is_older = not self._has_send_times or ts <= max(int(each[1].max()) for each in self._runs)
        is_beyond_end = self._has_end and int(number[-1]) > self._last
        return bool(is_hole) and is_older and not is_beyond_end and not np.isin(number, seen).any()

    def _close(self) -> None:
        if self._runs:
            number, ts = (np.concatenate([each[at] for each in self._runs]) for at in (0, 1))
            order = np.argsort(number, kind="stable")
            number, times = number[order], ts[order]
            holes = np.flatnonzero(np.diff(number) > 1)
            missing = [(int(number[at]) + 1, int(number[at + 1]) - 1, int(times[at + 1])) for at in holes.tolist()]
            ends = int(number[0]), int(number[-1]), int(ts.min()), int(ts.max())
            self._loops.append(Loop(self._epoch, *ends, self._has_end, missing))
        self._runs, self._has_end = [], False


def join_loops(parts: Iterable[Loop]) -> list[Loop]:
    """The loops of one line, in order, from the parts that tasks have read."""
    joined: list[Loop] = []
    for part in sorted(parts, key=lambda loop: (loop.ts_first, loop.first)):
        before = joined[-1] if joined else None
        if before is None or not _continues(before, part):
            joined.append(part)
            continue
        hole = [(before.last + 1, part.first - 1, part.ts_first)] if part.first > before.last + 1 else []
        missing = [*before.missing, *hole, *part.missing]
        joined[-1] = replace(before, last=part.last, ts_last=part.ts_last, has_end=part.has_end, missing=missing)
    return joined


def _continues(before: Loop, part: Loop) -> bool:
    is_same = before.epoch == part.epoch and not before.has_end and part.first > before.last
    return is_same and part.ts_first - before.ts_last <= MAX_PAUSE_NS


def find_losses(loops_by_line: dict[str, list[Loop]]) -> dict[str, list[LoopLoss]]:
    """What each line of one stream lost; the loops are joined."""
    found: dict[str, list[LoopLoss]] = {}
    for line, loops in loops_by_line.items():
        others = [loop for other, each in loops_by_line.items() if other != line for loop in each]
        every = [loop for each in loops_by_line.values() for loop in each]
        found[line] = [
            LoopLoss(
                loop.epoch,
                low,
                high,
                ts,
                _unfilled(low, high, [other for other in others if _is_same_loop(loop, other)]),
                _repetition(loop, low, high, every),
            )
            for loop, (low, high, ts) in _missing_runs(loops)
        ]
    return found


def _missing_runs(loops: Sequence[Loop]) -> Iterable[tuple[Loop, tuple[int, int, int]]]:
    """Each loop with its missing runs: within it, and before and after it if it was recorded to its end."""
    for at, loop in enumerate(loops):
        before, after = loops[at - 1] if at else None, loops[at + 1] if at + 1 < len(loops) else None
        if loop.first > 1 and before is not None and _follows(before, loop):
            yield loop, (1, loop.first - 1, loop.ts_first)
        for run in loop.missing:
            yield loop, run
        if not loop.has_end and after is not None and _follows(loop, after):
            last = _usual_end(loops, at)
            if last > loop.last:
                yield loop, (loop.last + 1, last, after.ts_first)


def _follows(before: Loop, loop: Loop) -> bool:
    return loop.ts_first - before.ts_last <= MAX_PAUSE_NS


def _usual_end(loops: Sequence[Loop], at: int) -> int:
    """The last number of the nearest loop that was recorded to its end; 0 if there is none."""
    nearest = sorted((abs(other - at), loop.last) for other, loop in enumerate(loops) if loop.has_end)
    return nearest[0][1] if nearest else 0


def _is_same_loop(loop: Loop, other: Loop) -> bool:
    return loop.epoch == other.epoch and loop.ts_first <= other.ts_last and other.ts_first <= loop.ts_last


def _repetition(loop: Loop, first: int, last: int, every: Iterable[Loop]) -> int | None:
    later = (each for each in every if each.ts_first > loop.ts_last)
    return min((each.ts_last for each in later if not each.missing_of(first, last)), default=None)


def _unfilled(first: int, last: int, others: Sequence[Loop]) -> list[tuple[int, int]]:
    runs = [(first, last)]
    for other in others:
        runs = [run for low, high in runs for run in other.missing_of(low, high)]
    return runs
