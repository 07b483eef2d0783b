"""The gaps of a channel's current epoch: which sequences are missing, and whether they were filled later.

Invariant: a sequence is in `missing` as long as nothing has delivered it. A join counts as a gap before the first
sequence: what was sent before is not known, and a snapshot or an Empty Book answers for it like for any other gap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from umdf.market.families import NULL

NO_GAP = -1
FOREVER = int(np.iinfo(np.int64).max)
# What was sent before the first unit after a gap is in a list of instruments, or in phases of a snapshot stream, that
# were sent so much later, or, if there is no such unit yet, that were received so long after the gap was found.
MARGIN_NS = 500_000_000


class GapCause(StrEnum):
    LOSS = "loss"  # no line delivered it
    DAMAGE = "damage"  # it was delivered, but could not be decoded
    JOIN = "join"  # sent before the first unit that was received
    CONFLICT = "conflict"  # it came with two contents
    EPOCH = "epoch"  # the numbering started again: what the channel knew before does not count (4.2.8)


@dataclass(frozen=True)
class Gap:
    """Consecutive sequences that no line delivered."""

    epoch: int
    first: int
    last: int
    ts_recv: int  # receive time of the first unit after it
    cause: GapCause = GapCause.LOSS
    ts_before: int = field(default=NULL, compare=False)  # receive time of the last unit before it was found

    def __str__(self) -> str:
        span = f"sequence {self.first}" if self.first == self.last else f"sequences {self.first} to {self.last}"
        return f"{span} of epoch {self.epoch}"

    @property
    def reason(self) -> str:
        """Why a book that has not been heard of since is not certain."""
        if self.cause == GapCause.JOIN:
            return f"nothing was received before sequence {self.last + 1}"
        if self.cause == GapCause.EPOCH:
            return f"epoch {self.epoch} has started, and neither an update nor a snapshot has shown the book since"
        if self.cause == GapCause.CONFLICT:
            return f"{self} came with two contents and nothing came since that shows whether it was affected"
        verb = "was" if self.first == self.last else "were"
        return f"{self} {verb} lost and nothing came since that shows whether it was affected"


class LossTimes:
    """When something was last found missing. What is sent or received well after it, by a stream that repeats the
    state of a channel, has everything in it that was sent before the gap ended."""

    def __init__(self) -> None:
        self._found_ns = NULL  # by receive time
        self._sent_ns: int | None = NULL  # when the first unit after it was sent; None: there is none yet

    def open_gap(self, gap: Gap) -> None:
        found_ns = FOREVER if gap.ts_recv == NULL else gap.ts_recv
        self._found_ns, self._sent_ns = max(self._found_ns, found_ns), None

    def follow(self, ts_send: NDArray[np.int64]) -> bool:
        """Units that are applied in order; returns whether the first unit after a gap is among them."""
        is_first = self._sent_ns is None and len(ts_send) > 0
        if is_first:
            self._sent_ns = int(ts_send[0])
        return is_first

    def are_before(self, ts_send: int, ts_recv: int) -> bool:
        """Whether all losses were well before something that was sent and received at these times."""
        is_sent_later = self._sent_ns is not None and ts_send > self._sent_ns + MARGIN_NS
        return is_sent_later or ts_recv > self._found_ns + MARGIN_NS


class GapLedger:
    """The missing sequences of one epoch. Those of earlier epochs are only counted."""

    def __init__(self) -> None:
        self.opened: list[Gap] = []  # of all epochs
        self.filled_count = 0  # sequences that arrived after their gap was reported
        self._first: list[int] = []  # of the intervals that are still missing, sorted
        self._last: list[int] = []
        self._gaps: list[Gap] = []  # the gap of each
        self._ends: NDArray[np.int64] | None = None

    def start_epoch(self) -> None:
        self._first, self._last, self._gaps, self._ends = [], [], [], None

    def open(self, gap: Gap) -> None:
        """Report missing sequences; intervals never overlap."""
        if gap.cause not in (GapCause.JOIN, GapCause.EPOCH):
            self.opened.append(gap)
        at = bisect_left(self._first, gap.first)
        self._insert(at, gap.first, gap.last, gap)

    def is_missing(self, sequence: int) -> bool:
        at = bisect_right(self._first, sequence) - 1
        return at >= 0 and self._last[at] >= sequence

    def is_unbroken(self, first: int, last: int) -> bool:
        """Whether nothing is missing behind a sequence and up to another one."""
        at = bisect_right(self._last, first)
        return at == len(self._last) or self._first[at] > last

    def fill(self, sequence: int) -> bool:
        """A missing unit has arrived; returns whether it was missing."""
        if not self.is_missing(sequence):
            return False
        at = bisect_right(self._first, sequence) - 1
        first, last, gap = self._first.pop(at), self._last.pop(at), self._gaps.pop(at)
        if sequence < last:
            self._insert(at, sequence + 1, last, gap)
        if first < sequence:
            self._insert(at, first, sequence - 1, gap)
        self._ends = None
        self.filled_count += 1
        return True

    def _insert(self, at: int, first: int, last: int, gap: Gap) -> None:
        self._first.insert(at, first)
        self._last.insert(at, last)
        self._gaps.insert(at, gap)
        self._ends = None

    @property
    def latest(self) -> int:
        """The greatest missing sequence."""
        return self._last[-1] if self._last else NO_GAP

    def latest_before(self, sequence: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each sequence, the greatest missing one before it."""
        if not self._last:
            return np.full(len(sequence), NO_GAP, np.int64)
        if self._ends is None:
            self._ends = np.array([NO_GAP, *self._last], np.int64)
        return self._ends[np.searchsorted(self._ends[1:], sequence, side="left")]

    @property
    def missing(self) -> list[Gap]:
        """The gap of each interval that is still missing, in order."""
        return self._gaps

    @property
    def ends(self) -> list[int]:
        """The last sequence of each."""
        return self._last

    def first_after(self, verified: int) -> Gap | None:
        """The first gap with sequences after this one."""
        at = bisect_right(self._last, verified)
        return self._gaps[at] if at < len(self._gaps) else None
