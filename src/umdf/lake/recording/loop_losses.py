"""Missing numbers of the looping streams (snapshots, instruments), which number each loop from 1 (4.2.5, 4.2.6).

A loop begins where the version of the numbering changes, or where numbers begin again. It ends with a SequenceReset.
What the recording lacks at its own begin and end is no loss, and neither are the numbers of a loop that it joined. If a
loop's end is lost, nothing shows how many numbers it had: only its SequenceReset counts, so that never too many do.

Invariant: loops of tasks can be joined, however the stream is divided: a loop that is continued in the next task has no
end, and no number in both.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_LATE_NUMBERS = 16  # a packet may be overtaken by so many
MAX_PAUSE_NS = 60 * 10**9  # after a longer silence the recording has begun anew
MAX_REMEMBERED_UNITS = 1 << 15  # a packet that is delivered twice comes within so many
MAX_SAME_LOOPS = 3
MAX_LATER_LOOPS = 1_000  # that are searched for a repetition

Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Loop:
    """A loop, or the part of it that was recorded, on one line. Without numbers (`last` is 0): only its end."""

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
        epoch, first, last, ts_first, ts_last, has_end, missing = content
        return cls(epoch, first, last, ts_first, ts_last, has_end, [tuple(run) for run in missing])

    def missing_of(self, first: int, last: int) -> list[tuple[int, int]]:
        """Which of these numbers are not in it, as runs."""
        runs = [(first, min(last, self.first - 1))]
        for low, high, _ in islice(self.missing, bisect_left(self.missing, first, key=lambda run: run[1]), None):
            if low > last:
                break
            runs.append((max(low, first), min(high, last)))
        runs.append((max(first, self.last + 1), last))
        return [(low, high) for low, high in runs if low <= high]


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
        self._runs: list[tuple[Numbers, Numbers]] = []  # of the current loop: numbers and times
        self._epoch, self._last, self._has_end = 0, 0, False
        self._recent = np.empty(0, np.int64)  # contents

    def add(self, epoch: Numbers, number: Numbers, ts: Numbers, content: Numbers, is_end: Mask) -> None:
        """`content`: hashes of the units; `is_end`: the loop ends with this unit."""
        is_new = ~np.isin(content, self._recent)  # others were delivered twice: even a loop of the same sends new times
        is_first = np.zeros(len(content), np.bool_)
        is_first[np.unique(content, return_index=True)[1]] = True
        if not (is_new & is_first).all():
            rows = np.flatnonzero(is_new & is_first)
            epoch, number, ts, content, is_end = epoch[rows], number[rows], ts[rows], content[rows], is_end[rows]
        if not len(number):
            return
        self._recent = np.concatenate([self._recent, content])[-MAX_REMEMBERED_UNITS:]
        begins = (number[1:] <= number[:-1]) | (epoch[1:] != epoch[:-1]) | is_end[:-1]
        edges = [0, *(np.flatnonzero(begins) + 1).tolist(), len(number)]
        for low, high in pairwise(edges):
            self._add_run(int(epoch[low]), number[low:high], ts[low:high], bool(is_end[high - 1]))

    def end_loop(self, ts: int) -> None:
        """The loop has ended, with a message that is no unit. It may be the first that this task has of the loop."""
        self._has_end = bool(self._runs)
        if not self._runs and not self._loops:
            self._loops.append(Loop(self._epoch, 1, 0, ts, ts, True))

    def loops(self) -> list[Loop]:
        """Call it after the last unit."""
        self._close()
        return self._loops

    def _add_run(self, epoch: int, number: Numbers, ts: Numbers, is_end: bool) -> None:
        is_next = epoch == self._epoch and not self._has_end and int(number[0]) > self._last
        if self._runs and not is_next and not (epoch == self._epoch and self._is_late(number, int(ts[0]))):
            self._close()
        if not self._runs:
            self._epoch, self._last = epoch, 0
        self._runs.append((number, ts))
        self._last, self._has_end = max(self._last, int(number[-1])), self._has_end or is_end

    def _is_late(self, number: Numbers, ts: int) -> bool:
        """Whether these numbers belong to the current loop, and were overtaken by others."""
        first, last = int(number[0]), int(number[-1])
        if not self._last - MAX_LATE_NUMBERS <= first < self._last or (self._has_end and last > self._last):
            return False
        if self._has_send_times and ts > max(int(times.max()) for _, times in self._runs):
            return False
        seen = np.concatenate([numbers for numbers, _ in self._runs])
        return bool(seen.min() < first) and not np.isin(number, seen).any()

    def _close(self) -> None:
        if self._runs:
            number, ts = (np.concatenate(column) for column in zip(*self._runs, strict=True))
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
        if not part.last:
            if before is not None and not before.has_end and part.ts_first - before.ts_last <= MAX_PAUSE_NS:
                joined[-1] = replace(before, has_end=True)
            continue
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
    every = sorted((loop for loops in loops_by_line.values() for loop in loops), key=lambda loop: loop.ts_first)
    found: dict[str, list[LoopLoss]] = {}
    for line, loops in loops_by_line.items():
        other_lines = [other_loops for other, other_loops in loops_by_line.items() if other != line]
        found[line] = []
        for loop, runs in _missing_runs(loops):
            same = [other for other_loops in other_lines for other in _same_loops(loop, other_loops)] if runs else []
            for low, high, ts in runs:
                unfilled = [(low, high)]
                for other in same:
                    unfilled = [run for first, last in unfilled for run in other.missing_of(first, last)]
                found[line].append(LoopLoss(loop.epoch, low, high, ts, unfilled, _repetition(loop, low, high, every)))
    return found


def _missing_runs(loops: Sequence[Loop]) -> Iterator[tuple[Loop, list[tuple[int, int, int]]]]:
    """Each loop with its missing runs: within it, and before and after it where the recording has its neighbours."""
    have_ends = any(loop.has_end for loop in loops)
    for at, loop in enumerate(loops):
        before, after = loops[at - 1] if at else None, loops[at + 1] if at + 1 < len(loops) else None
        runs = list(loop.missing)
        if loop.first > 1 and before is not None and loop.ts_first - before.ts_last <= MAX_PAUSE_NS:
            runs.insert(0, (1, loop.first - 1, loop.ts_first))
        if not loop.has_end and have_ends and after is not None and after.ts_first - loop.ts_last <= MAX_PAUSE_NS:
            # Its SequenceReset is lost. How much before that, nobody knows: loops are of different lengths.
            runs.append((loop.last + 1, loop.last + 1, after.ts_first))
        yield loop, runs


def _same_loops(loop: Loop, others: Sequence[Loop]) -> list[Loop]:
    """The loops of another line that were received at the same time; at most two overlap with it by some packets."""
    place = bisect_right(others, loop.ts_last, key=lambda other: other.ts_first)
    near = others[max(place - MAX_SAME_LOOPS, 0) : place]
    return [other for other in near if other.epoch == loop.epoch and other.ts_last >= loop.ts_first]


def _repetition(loop: Loop, first: int, last: int, every: Sequence[Loop]) -> int | None:
    """When a later loop had sent these numbers."""
    place = bisect_right(every, loop.ts_last, key=lambda other: other.ts_first)
    later = islice(every, place, place + MAX_LATER_LOOPS)
    return next((each.ts_last for each in later if not each.missing_of(first, last)), None)
