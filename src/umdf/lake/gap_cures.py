"""What the books of a task have to say of each gap: whom it hit, and when they came back.

It is open while a book is stale because of it, or in doubt. An Empty Book heals as well as a snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from umdf.lake import healing_kernel as h
from umdf.lake.healing import L_BOOK, L_EPOCH, L_FIRST_GAP, L_LAST_GAP, L_PLACE, LOSS, Numbers, Timeline, Told

if TYPE_CHECKING:
    from umdf.lake.book_rows import Epochs
    from umdf.lake.healing import BookRun
    from umdf.lake.snapshot_rows import SnapshotLines

STRETCH_BITS = 42  # of a place, below the number of its stretch


class GapLog:
    """The losses and the heals of a group of instruments."""

    def __init__(self) -> None:
        self._losses: list[Numbers] = []
        self._heals: list[Numbers] = []  # book, place, ts_recv
        self._stretch = 0
        self.losses = np.empty((0, LOSS), np.int64)
        self.cured_at = np.empty(0, np.int64)  # of each loss; -1: it is open, 0: by an Empty Book
        self.in_doubt: list[tuple[int, int]] = []  # epoch and first gap that a book has no answer to

    def note(self, told: Told, snapshots: SnapshotLines) -> None:
        later = self._stretch << STRETCH_BITS
        losses = told.lost.copy()
        losses[:, L_PLACE] += later
        heals = (snapshots.book[told.heals], told.heal_place + later, snapshots.ts_recv[told.heals])
        self._losses.append(losses)
        self._heals.append(np.stack(heals, axis=1).astype(np.int64))
        self._stretch += 1

    def finish(self, run: BookRun) -> None:
        """No more rows will come."""
        losses = np.concatenate([self.losses, *self._losses])
        heals = np.concatenate([np.empty((0, 3), np.int64), *self._heals])
        heals = heals[np.lexsort((heals[:, 1], heals[:, 0]))]
        stale = run.states[:, h.S_STALE] != 0
        cured = np.zeros(len(losses), np.int64)
        for at, loss in enumerate(losses.tolist()):
            first, last = np.searchsorted(heals[:, 0], [loss[L_BOOK], loss[L_BOOK] + 1])
            after = first + int(np.searchsorted(heals[first:last, 1], loss[L_PLACE]))
            cured[at] = heals[after, 2] if after < last else -int(stale[loss[L_BOOK]])
        self.losses, self.cured_at = losses, cured
        gaps = run.timeline.gaps.get(run.epoch)
        count = 0 if gaps is None else len(gaps[0])
        seen, known, doubt = (run.states[:, place] for place in (h.S_SEEN, h.S_GAPS, h.S_DOUBT))
        for book in np.flatnonzero((seen != 0) & ((known < count) | (doubt != 0))).tolist():
            self.in_doubt.append((run.epoch, max(int(known[book]) - int(doubt[book]), 0)))


class Cures:
    """What a task says of every gap that touched its instruments or that they have no answer to."""

    def __init__(self, timeline: Timeline, epochs: Epochs) -> None:
        self._timeline, self._epochs = timeline, epochs
        self._instruments: dict[tuple[int, int], set[int]] = {}
        self._cured: dict[tuple[int, int], int] = {}
        self._open: dict[tuple[int, int], int] = {}

    def add(self, log: GapLog, ids: Numbers) -> None:
        for loss, cured in zip(log.losses.tolist(), log.cured_at.tolist(), strict=True):
            for gap in range(loss[L_FIRST_GAP], loss[L_LAST_GAP]):
                key = loss[L_EPOCH], gap
                self._instruments.setdefault(key, set()).add(int(ids[loss[L_BOOK] >> 1]))
                self._cured[key] = max(self._cured.get(key, 0), cured)
                self._open[key] = self._open.get(key, 0) + (cured < 0)
        for epoch, first in log.in_doubt:
            gaps = self._timeline.gaps.get(epoch)  # none: an earlier run was already in doubt
            for gap in range(first, 0 if gaps is None else len(gaps[0])):
                self._open[epoch, gap] = self._open.get((epoch, gap), 0) + 1

    def to_json(self) -> list[dict[str, Any]]:
        found = []
        for epoch, gap in sorted(self._instruments.keys() | self._open.keys()):
            found.append(
                {
                    "seq_version": self._epochs.versions[epoch],
                    "first": int(self._timeline.gaps[epoch][0][gap]),
                    "instruments": sorted(self._instruments.get((epoch, gap), ())),
                    "open": self._open.get((epoch, gap), 0),
                    "ts_cured": self._cured.get((epoch, gap), 0) or None,
                }
            )
        return found
