"""Arbitrates identical lines into one ordered stream without duplicates; what no line delivered is a gap.

    arbiter = LineArbiter()
    arbitrated = arbiter.arbitrate(units, now_ns)     # units of all lines as received
    arbitrated.units, arbitrated.gaps

Invariant: missing units become a gap only after a waiting time (13.7: 20 ms), so that the slower line can still
deliver them. Until then the units after them are held. Sequences are compared only within one epoch: a restart of the
sequence (a new sequence version, or a SequenceReset of FAST) is a new epoch, which ends all waiting in the old one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umdf.sync.raw_units import RawUnits, concat_units, empty_units

WAIT_MS = 20  # 13.7
FOREVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Gap:
    """Consecutive sequences that no line delivered."""

    epoch: int
    first: int
    last: int
    ts_recv: int  # receive time of the first unit after it

    def __str__(self) -> str:
        span = f"sequence {self.first}" if self.first == self.last else f"sequences {self.first} to {self.last}"
        return f"{span} of epoch {self.epoch}"


@dataclass(frozen=True, eq=False)
class ArbitrationResult:
    units: RawUnits  # in order, each sequence once
    gaps: list[Gap]  # in order
    gap_rows: list[int]  # per gap, the row of `units` after it
    duplicates: int
    late: int  # in a gap that was already reported, or of a finished epoch


from enum import IntEnum


class StepKind(IntEnum):
    EPOCH, GAP, GAP_FILLED, JOIN = range(4)


@dataclass(frozen=True)
class Step:
    before_row: int
    kind: StepKind
    epoch: int
    first: int
    last: int
    ts_recv: int


class LineArbiter:
    def __init__(self):
        self._old, self._epoch = OldArbiter(), None

    def arbitrate(self, units, now):
        return self._convert(self._old.arbitrate(units.take(units.kind == 0), now))

    def finish(self):
        return self._convert(self._old.finish())

    def _convert(self, r):
        steps = []
        for row, e in enumerate(r.units.epoch.tolist()):
            if e != self._epoch:
                first = self._epoch is None
                self._epoch = e
                steps.append(Step(row, StepKind.JOIN if first else StepKind.EPOCH, e, int(r.units.sequence[row]) if first else 1, 0, int(r.units.ts_recv[row])))
        steps += [Step(row, StepKind.GAP, g.epoch, g.first, g.last, g.ts_recv) for g, row in zip(r.gaps, r.gap_rows)]
        steps.sort(key=lambda s: (s.before_row, s.kind))
        r.__dict__["steps"] = steps
        r.__dict__["is_late"] = np.zeros(len(r.units), bool)
        return r


class OldArbiter:
    """Arbitrates the lines of one channel. Units held between calls are copied."""

    def __init__(self, wait_ms: int = WAIT_MS) -> None:
        self._wait_ns = wait_ms * 1_000_000
        self._ranks: dict[int, int] = {}  # ranks of epochs, in order of first appearance
        self._rank = -1  # rank of the last released unit
        self._last = 0
        self._gaps: list[tuple[int, int]] = []  # of the current epoch: first and last, in order
        self._waiting: RawUnits | None = None

    @property
    def waiting_count(self) -> int:
        """How many units wait for missing ones."""
        return 0 if self._waiting is None else len(self._waiting)

    def arbitrate(self, units: RawUnits, now_ns: int) -> ArbitrationResult:
        """The units that are in order now. No later unit may have a receive time before `now_ns`."""
        if self._waiting is not None:
            units, self._waiting = concat_units([self._waiting, units]), None
        rank = self._rank_of(units)
        order = np.lexsort((units.ts_recv, units.sequence, rank))
        sequence, rank = units.sequence[order], rank[order]
        is_duplicate = np.zeros(len(order), np.bool_)
        is_duplicate[1:] = (sequence[1:] == sequence[:-1]) & (rank[1:] == rank[:-1])
        is_old = (rank < self._rank) | ((rank == self._rank) & (sequence <= self._last))
        late = self._count_late(sequence[is_old & ~is_duplicate & (rank == self._rank)])
        is_new = ~(is_duplicate | is_old)
        counts = len(order) - int(is_new.sum()) - late, late
        return self._release(units, order[is_new], sequence[is_new], rank[is_new], now_ns, counts)

    def finish(self) -> ArbitrationResult:
        """No more units will come: everything missing is a gap."""
        waiting, self._waiting = self._waiting, None
        return self.arbitrate(empty_units() if waiting is None else waiting, FOREVER)

    def _rank_of(self, units: RawUnits) -> NDArray[np.int64]:
        found, first, which = np.unique(units.epoch, return_index=True, return_inverse=True)
        for at in np.argsort(units.ts_recv[first], kind="stable").tolist():
            self._ranks.setdefault(int(found[at]), len(self._ranks))
        return np.array([self._ranks[epoch] for epoch in found.tolist()], np.int64)[which]

    def _count_late(self, sequence: NDArray[np.int64]) -> int:
        """How many of these sequences were already reported as lost."""
        spans = np.array(self._gaps or [(0, -1)], np.int64)
        at = np.searchsorted(spans[:, 0], sequence, side="right") - 1
        return int(((at >= 0) & (sequence <= spans[at, 1])).sum())

    def _release(
        self,
        units: RawUnits,
        order: NDArray[np.int64],
        sequence: NDArray[np.int64],
        rank: NDArray[np.int64],
        now_ns: int,
        counts: tuple[int, int],
    ) -> ArbitrationResult:
        """Release contiguous units, and those after missing ones whose waiting time is over."""
        before_rank = np.concatenate([[self._rank], rank])[:-1]
        before = np.concatenate([[self._last], sequence])[:-1]
        # An epoch starts with 1; but joining in the middle of the first one is not a gap.
        begins = np.where(rank == 0, sequence, 1)
        expected = np.where(rank == before_rank, before + 1, begins)
        ready, gaps, gap_rows, epochs = len(order), [], [], list(self._ranks)
        for row in np.flatnonzero(sequence != expected).tolist():
            ts_recv = int(units.ts_recv[order[row]])
            if ts_recv > now_ns - self._wait_ns:
                ready = row
                break
            gaps.append(Gap(epochs[int(rank[row])], int(expected[row]), int(sequence[row]) - 1, ts_recv))
            gap_rows.append(row)
        if ready:
            if rank[ready - 1] != self._rank:
                self._gaps.clear()
            self._rank, self._last = int(rank[ready - 1]), int(sequence[ready - 1])
        self._gaps += [(gap.first, gap.last) for gap in gaps if self._ranks[gap.epoch] == self._rank]
        if ready < len(order):
            self._waiting = units.take(order[ready:]).compacted()
        return ArbitrationResult(units.take(order[:ready]), gaps, gap_rows, *counts)
