"""Snapshots, and phases of groups from snapshot streams, that wait until the incremental stream has reached them.

Each is used at its turn: when the stream has reached its sequence, and not before it was received. Nothing but updates
that affect it may be applied between its turn and its use, so `next_use` says where a batch of updates has to stop.

Invariant: memory is bounded by bytes. If it is exceeded, the oldest snapshots are dropped, which is as if they had been
lost: whatever needs them stays as it is until the next loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from umdf.market.families import NULL
from umdf.market.phase_tables import SESSION_CHANGE
from umdf.market.rows import Events
from umdf.sync.snapshots import GroupPhases, Snapshots

Numbers = NDArray[np.int64]
ALONE_FAMILIES = ("definition", "control")
DEFAULT_BYTES = 128 << 20
MAX_PHASES = 1 << 10


@dataclass(eq=False)
class _Waiting:
    """Snapshots of which some still wait, and their turns: sequences of the incremental stream."""

    number: int  # in order of arrival
    snapshots: Snapshots
    turn: Numbers
    book: Numbers
    nbytes: int = 0  # of what was compacted; 0: it is still a part of its batch


@dataclass
class SnapshotQueue:
    max_bytes: int = DEFAULT_BYTES
    dropped: int = 0  # snapshots and phases, because there was no room
    _dropped_latest: int = 0  # the greatest sequence among them
    _count: int = 0
    _snapshots: list[_Waiting] = field(default_factory=list)
    _phases: list[tuple[int, int, GroupPhases]] = field(default_factory=list)  # turn, number

    def __bool__(self) -> bool:
        return bool(self._snapshots or self._phases)

    def add(self, snapshots: Snapshots, received: int | Numbers) -> None:
        """Complete snapshots, each received when the stream was at a sequence. Older ones of the same books whose turn
        has not come by then are not needed any more."""
        book = snapshots.instrument_id << 1 | snapshots.is_lending
        received = np.broadcast_to(received, len(book))
        chosen = snapshots.is_complete
        order = np.argsort(book[chosen], kind="stable")
        books, since = book[chosen][order], received[chosen][order]
        for older in self._snapshots:
            at = np.minimum(np.searchsorted(books, older.book), len(books) - 1)
            older.snapshots.is_complete[(books[at] == older.book) & (older.turn > since[at])] = False
        self._count += 1
        turn = np.maximum(snapshots.last_sequence, received)
        self._snapshots.append(_Waiting(self._count, snapshots, turn, book))

    def add_phases(self, phases: GroupPhases, received: int) -> None:
        self._count += 1
        self._phases.append((max(phases.until, received), self._count, phases))
        if len(self._phases) > MAX_PHASES:
            del self._phases[0]
            self.dropped += 1

    def clear(self) -> None:
        self._snapshots, self._phases, self._dropped_latest = [], [], 0

    def limit(self) -> None:
        """Copy what still waits out of its batch, and drop the oldest if there is no room. Call it after `take`."""
        for waiting in self._snapshots:
            if not waiting.nbytes:
                kept = waiting.snapshots.is_complete
                waiting.turn, waiting.book = waiting.turn[kept], waiting.book[kept]
                waiting.snapshots = waiting.snapshots.compacted()
                waiting.nbytes = waiting.snapshots.events.nbytes
        total = sum(waiting.nbytes for waiting in self._snapshots)
        while total > self.max_bytes:
            oldest = self._snapshots.pop(0)
            total -= oldest.nbytes
            is_waiting = oldest.snapshots.is_complete
            self.dropped += int(is_waiting.sum())
            self._dropped_latest = max(self._dropped_latest, int(oldest.snapshots.last_sequence[is_waiting].max()))

    def take(self, sequence: int) -> Iterator[tuple[Snapshots, NDArray[np.bool_]] | GroupPhases]:
        """Those whose turn has come, in order: some rows of snapshots, at most one of each book at once, or phases."""
        turns: list[tuple[int, int, int, _Waiting | GroupPhases]] = [
            (turn, number, 0, phases) for turn, number, phases in self._phases if turn <= sequence
        ]
        self._phases = [found for found in self._phases if found[0] > sequence]
        for waiting in self._snapshots:
            snapshots = waiting.snapshots
            rows = np.flatnonzero(snapshots.is_complete & (waiting.turn <= sequence)).tolist()
            turns += [(int(waiting.turn[row]), waiting.number, row, waiting) for row in rows]
            snapshots.is_complete[rows] = False
        self._snapshots = [waiting for waiting in self._snapshots if waiting.snapshots.is_complete.any()]
        chosen: list[int] = []
        books, current = set[int](), None
        for _, _, row, found in sorted(turns, key=lambda some: some[:3]):
            if current is not None and (found is not current or int(current.book[row]) in books):
                yield current.snapshots, _mask(current, chosen)
                chosen, books, current = [], set(), None
            if isinstance(found, GroupPhases):
                yield found
            else:
                current = found
                chosen.append(row)
                books.add(int(found.book[row]))
        if current is not None:
            yield current.snapshots, _mask(current, chosen)

    def ignore_arrival(self) -> None:
        """Let all be used when the stream has reached their own sequence."""
        for waiting in self._snapshots:
            waiting.turn = waiting.snapshots.last_sequence
        self._phases = [(phases.until, number, phases) for _, number, phases in self._phases]

    def latest(self) -> int:
        """The greatest sequence of a snapshot that waits; 0 if none does."""
        found = [
            waiting.snapshots.last_sequence[waiting.snapshots.is_complete].max()
            for waiting in self._snapshots
            if waiting.snapshots.is_complete.any()
        ]
        return int(max([*found, self._dropped_latest]))

    def waiting(self) -> Iterator[tuple[Snapshots, Numbers]]:
        """Snapshots of which some wait, and the turn of each."""
        for waiting in self._snapshots:
            yield waiting.snapshots, waiting.turn

    def phase_turns(self) -> list[int]:
        return [turn for turn, *_ in self._phases]


def _mask(waiting: _Waiting, rows: list[int]) -> NDArray[np.bool_]:
    mask = np.zeros(len(waiting.turn), np.bool_)
    mask[rows] = True
    return mask


class BatchCuts:
    """Where a batch of events has to be cut, so that its parts give what its units would give one by one."""

    def __init__(self, events: Events) -> None:
        self._events, self._sequence, self.count = events, events.units.sequence, len(events.units)
        alone = [events.rows(name).unit for name in ALONE_FAMILIES]
        status, book = events.rows("status"), events.rows("mbo")
        is_wide = (status.column("instrument_id") == NULL) | (status.column("event") == SESSION_CHANGE)
        alone += [status.unit[is_wide], book.unit[book.column("instrument_id") == NULL]]
        # What concerns many instruments, or ends what was known of one, is a part alone.
        self._alone = np.unique(np.concatenate(alone)).astype(np.int64)
        self._cuts = np.unique(np.concatenate([self._alone, self._alone + 1, [self.count]]))
        self._ids: Numbers | None = None
        self._keys: Numbers | None = None  # of each instrument's units: its index and the unit

    def next(self, first: int) -> int:
        """The end of a part that starts with this unit, as far as snapshots do not matter."""
        return int(self._cuts[np.searchsorted(self._cuts, first, side="right")])

    def unit_behind(self, turn: Numbers) -> Numbers:
        """The first unit behind a turn."""
        return np.searchsorted(self._sequence, turn, side="right")

    def next_use(self, instrument_ids: Numbers, turn: Numbers, first: int) -> int:
        """The first unit, from `first` on, before which one of these snapshots has to be used: one behind its turn with
        something of its instrument."""
        if self._ids is None or self._keys is None:
            self._ids, self._keys = self._index()
        behind = np.maximum(self.unit_behind(turn), first)
        at = np.searchsorted(self._ids, instrument_ids)
        known = at < len(self._ids)
        known[known] = self._ids[at[known]] == instrument_ids[known]
        wanted = at[known] * (self.count + 1) + behind[known]
        found = (
            self._keys[np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)] if len(wanted) else wanted
        )
        is_same = (found >= wanted) & (found // (self.count + 1) == at[known])
        return int((found[is_same] % (self.count + 1)).min(initial=self.count))

    def _index(self) -> tuple[Numbers, Numbers]:
        rows = [some for some in self._events.families.values() if len(some)]
        if not rows:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        ids, at = np.unique(np.concatenate([some.column("instrument_id") for some in rows]), return_inverse=True)
        unit = np.concatenate([some.unit for some in rows]).astype(np.int64)
        return ids, np.unique(at * (self.count + 1) + unit)
