"""Two identical lines → one stream without duplicates, in order; what neither line had is a gap.

    lines = Lines()
    merged = lines.take(pieces, now_ns)     # pieces of all lines as they came
    merged.pieces, merged.gaps

The one rule: a hole is believed only when its wait is over (13.7: 20 ms), so that the slower line can still fill it.
Until then what comes behind it is held. Numbers are compared within one epoch only: a restart of numbering (a new
sequence version, or a SequenceReset of FAST) is a new epoch, and what is still open in the old one is closed by it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umdf.sync.pieces import Pieces, joined, no_pieces

WAIT_MS = 20  # 13.7
FOREVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Gap:
    """Numbers that came on no line."""

    epoch: int
    first: int
    last: int
    ts_recv: int  # when the first one behind it came

    def __str__(self) -> str:
        span = f"sequence {self.first}" if self.first == self.last else f"sequences {self.first} to {self.last}"
        return f"{span} of epoch {self.epoch}"


@dataclass(frozen=True, eq=False)
class Merged:
    pieces: Pieces  # in order, each number once
    gaps: list[Gap]  # in order
    before: list[int]  # for each gap, the row of `pieces` that it stands before
    duplicates: int
    late: int  # behind a gap that was already believed, or of an epoch that is over


class Lines:
    """The lines of one channel. What is held between calls is in memory of its own."""

    def __init__(self, wait_ms: int = WAIT_MS) -> None:
        self._wait_ns = wait_ms * 1_000_000
        self._ranks: dict[int, int] = {}  # of the epochs, in the order in which they first came
        self._rank = -1  # of the last number that was given out
        self._last = 0
        self._gaps: list[tuple[int, int]] = []  # of the epoch at hand: first and last, in order
        self._held: Pieces | None = None

    @property
    def held(self) -> int:
        """How many pieces wait behind a hole."""
        return 0 if self._held is None else len(self._held)

    def take(self, pieces: Pieces, now_ns: int) -> Merged:
        """What is in order now. Nothing that comes later may have a receive time before `now_ns`."""
        if self._held is not None:
            pieces, self._held = joined([self._held, pieces]), None
        rank = self._rank_of(pieces)
        order = np.lexsort((pieces.ts_recv, pieces.sequence, rank))
        sequence, rank = pieces.sequence[order], rank[order]
        again = np.zeros(len(order), np.bool_)
        again[1:] = (sequence[1:] == sequence[:-1]) & (rank[1:] == rank[:-1])
        old = (rank < self._rank) | ((rank == self._rank) & (sequence <= self._last))
        late = self._late(sequence[old & ~again & (rank == self._rank)])
        fresh = ~(again | old)
        counts = len(order) - int(fresh.sum()) - late, late
        return self._cut(pieces, order[fresh], sequence[fresh], rank[fresh], now_ns, counts)

    def finish(self) -> Merged:
        """No more will come: every hole is a gap."""
        held, self._held = self._held, None
        return self.take(no_pieces() if held is None else held, FOREVER)

    def _rank_of(self, pieces: Pieces) -> NDArray[np.int64]:
        found, first, which = np.unique(pieces.epoch, return_index=True, return_inverse=True)
        for at in np.argsort(pieces.ts_recv[first], kind="stable").tolist():
            self._ranks.setdefault(int(found[at]), len(self._ranks))
        return np.array([self._ranks[epoch] for epoch in found.tolist()], np.int64)[which]

    def _late(self, sequence: NDArray[np.int64]) -> int:
        """How many of these numbers were already believed to be lost."""
        spans = np.array(self._gaps or [(0, -1)], np.int64)
        at = np.searchsorted(spans[:, 0], sequence, side="right") - 1
        return int(((at >= 0) & (sequence <= spans[at, 1])).sum())

    def _cut(
        self,
        pieces: Pieces,
        order: NDArray[np.int64],
        sequence: NDArray[np.int64],
        rank: NDArray[np.int64],
        now_ns: int,
        counts: tuple[int, int],
    ) -> Merged:
        """Give out what is contiguous, and what stands behind a hole whose wait is over."""
        before_rank = np.concatenate([[self._rank], rank])[:-1]
        before = np.concatenate([[self._last], sequence])[:-1]
        # A numbering begins with 1; but where we join in the middle of our first one, that is no gap.
        begins = np.where(rank == 0, sequence, 1)
        expected = np.where(rank == before_rank, before + 1, begins)
        ready, gaps, places, epochs = len(order), [], [], list(self._ranks)
        for row in np.flatnonzero(sequence != expected).tolist():
            came = int(pieces.ts_recv[order[row]])
            if came > now_ns - self._wait_ns:
                ready = row
                break
            gaps.append(Gap(epochs[int(rank[row])], int(expected[row]), int(sequence[row]) - 1, came))
            places.append(row)
        if ready:
            if rank[ready - 1] != self._rank:
                self._gaps.clear()
            self._rank, self._last = int(rank[ready - 1]), int(sequence[ready - 1])
        self._gaps += [(gap.first, gap.last) for gap in gaps if self._ranks[gap.epoch] == self._rank]
        if ready < len(order):
            self._held = pieces.at(order[ready:]).packed()
        return Merged(pieces.at(order[:ready]), gaps, places, *counts)
