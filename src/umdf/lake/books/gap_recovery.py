"""For each gap: which books it affected, and when the last unverified or stale book was recovered.

Every gap after a book's last row is unanswered for that book. It is answered if the book's next update follows by
RptSeq, or if a snapshot shows that nothing is missing. If updates are missing, the gap has affected the book, and stays
unanswered until a snapshot or an Empty Book. A new epoch answers everything.

Invariant: the result for a gap does not depend on how a day is divided into runs and tasks. So unanswered gaps are
stored in the books' state, by the first sequences of the gaps, and `merge_gap_records` merges the records of runs and
tasks. A timeline has all gaps of the day up to the end of the run, not only those of the run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from umdf.errors import UmdfError
from umdf.market.families import NULL
from umdf.sync import book_trust_kernel as trust

if TYPE_CHECKING:
    from umdf.lake.books.instrument_rows import Epochs

Numbers = NDArray[np.int64]
GapRecord = dict[str, Any]  # the record of one gap
SEND_DELAY_NS = 10**9
MAX_LISTED = 1_000  # instruments that are listed per gap
ROW_BITS = 40  # bits for a row or a gap, below those of the book
# In a stored book: the first sequences of the gaps that made it stale.
UNANSWERED_DTYPE = np.dtype([("first", "i8"), ("last", "i8")])
_NO_GAPS = np.empty((0, 3), np.int64)


@dataclass(frozen=True)
class Timeline:
    """The timeline of a channel-day: gaps by epoch, last sequence and start of each epoch."""

    gaps: dict[int, tuple[Numbers, Numbers]] = field(default_factory=dict)  # by epoch rank: first, last, sorted
    last_sequence: dict[int, int] = field(default_factory=dict)  # by epoch rank
    epoch_starts: dict[int, int] = field(default_factory=dict)  # by epoch rank
    sent_before: dict[int, Numbers] = field(default_factory=dict)  # as `gaps`: when the unit before each was sent
    joined: dict[int, int] = field(default_factory=dict)  # epochs whose gap 0 is a join: when the next unit was sent

    def missing_since(self, epoch: int, gap: Numbers, ts: Numbers) -> Numbers:
        """Since when updates may be missing because of a gap, for a book whose last row was at `ts`: an event may
        happen a little before the unit that precedes its message is sent."""
        sent = self.sent_before.get(epoch, np.empty(0, np.int64))
        known = (gap < len(sent)) & (ts != trust.UNKNOWN_START)
        when = sent[np.minimum(gap, len(sent) - 1)] if len(sent) else ts
        return np.where(known & (when != NULL), np.maximum(ts, when - SEND_DELAY_NS), ts)

    def loss_windows(
        self,
        epoch: int,
        book: NDArray[np.int32 | np.int64],
        gaps: tuple[Numbers, Numbers],
        since: Numbers,
        until: Numbers,
    ) -> Numbers:
        """(book, since, until) for some losses: `gaps` (from, to) are the gaps that are to blame, `since` the time of
        the book's last row. A join is not among them: what was before it is missing for all (`IntervalTables`)."""
        first, _ = gaps
        if epoch in self.joined:
            is_join = first == 0
            lost = np.flatnonzero(self.are_losses(epoch, gaps))
            since = np.where(is_join & (since == trust.UNKNOWN_START), self.joined[epoch], since)
            book, first, since, until = book[lost], np.maximum(first[lost], 1), since[lost], until[lost]
        return np.stack([book, self.missing_since(epoch, first, since), until], axis=1).astype(np.int64)

    def are_losses(self, epoch: int, gaps: tuple[Numbers, Numbers]) -> NDArray[np.bool_]:
        """Whether the gaps (from, to) of each loss are not only a join."""
        first, last = gaps
        return (first != 0) | (last > 1) if epoch in self.joined else np.ones(len(first), np.bool_)

    def are_before_join(self, epoch: NDArray[np.int32], sequence: Numbers) -> NDArray[np.bool_]:
        """Which positions are before a join, so that what was sent until it is not known."""
        found = np.zeros(len(sequence), np.bool_)
        for joined in self.joined:
            found |= (epoch == joined) & (sequence < self.gaps[joined][1][0])
        return found

    def count(self, epoch: int) -> int:
        return len(self.gaps[epoch][0]) if epoch in self.gaps else 0

    def gaps_before(self, epoch: int, sequence: Numbers, *, within: bool = False) -> Numbers:
        """How many gaps of an epoch end before each sequence; `within`: or at it."""
        gaps = self.gaps.get(epoch)
        if gaps is None:
            return np.zeros(len(sequence), np.int64)
        return np.searchsorted(gaps[1], sequence, side="right" if within else "left").astype(np.int64)

    def gaps_started_by(self, epoch: int, sequence: Numbers) -> Numbers:
        """How many gaps of an epoch start at or before each sequence."""
        gaps = self.gaps.get(epoch)
        if gaps is None:
            return np.zeros(len(sequence), np.int64)
        return np.searchsorted(gaps[0], sequence, side="right").astype(np.int64)

    def gaps_at(self, epoch: int, numbers: Numbers) -> Numbers:
        """Indices of the gaps with these first sequences, from an earlier run."""
        firsts = self.gaps[epoch][0] if epoch in self.gaps else np.empty(0, np.int64)
        at = np.searchsorted(firsts, numbers)
        strange = np.append(firsts, NULL)[at] != numbers
        if strange.any():
            reason = f"a book is unverified because of a gap at {numbers[strange][0]} that the timeline does not have"
            raise UmdfError(reason, "this is a bug, please report it")
        return at


@dataclass(frozen=True, eq=False)
class LostUpdates:
    """Losses that a row or a snapshot showed; not what was sent before a join."""

    book: NDArray[np.int32]
    key: NDArray[np.uint64]  # of the row or the snapshot
    count: Numbers  # at most so many updates (`trust.UNKNOWN_COUNT`)
    until: Numbers  # when they had happened


class GapLog:
    """Collects the answers of a group's books. Gaps are numbered within their epoch."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        # (book, gaps from, to) of the current epoch: gaps that made the book stale.
        self.affecting_gaps = _NO_GAPS
        self.unverified = _NO_GAPS  # (book, gaps from, to) that are unverified at the end of the run
        self.epoch = -1  # at the end of the run
        self.affected: dict[int, list[Numbers]] = defaultdict(list)  # by epoch: (book, gaps from, to)
        self.recovered_ts: dict[int, Numbers] = {}  # by epoch: time of the last answer to each gap

    def add_rows(
        self, epoch: int, book: Numbers, answers: NDArray[np.uint8], first: Numbers, last: Numbers, ts: Numbers
    ) -> None:
        """Rows by book, in order: the answers of `book_trust_kernel.track_trust` to the gaps `first` to `last`."""
        answered, missed = np.flatnonzero(answers & trust.ANSWERED), np.flatnonzero(answers & trust.MISSED)
        self._mark_recovered(epoch, first[answered], last[answered], ts[answered])
        lost = np.stack([book[missed], first[missed], last[missed]], axis=1)
        lost, at = lost[lost[:, 2] > lost[:, 1]], missed[last[missed] > first[missed]]
        if len(lost):
            self.affected[epoch].append(lost)
        if not len(lost) and not len(self.affecting_gaps):
            return
        unanswered = np.concatenate([self.affecting_gaps, lost])
        key = unanswered[:, 0] << ROW_BITS | np.concatenate([np.zeros(len(self.affecting_gaps), np.int64), at + 1])
        emptied = np.flatnonzero(answers & trust.EMPTIED)
        following = np.searchsorted(book[emptied] << ROW_BITS | (emptied + 1), key)
        by = np.append(emptied, -1)[following]
        is_answered = (by >= 0) & (book[by] == unanswered[:, 0])
        self._mark_recovered(epoch, unanswered[is_answered, 1], unanswered[is_answered, 2], ts[by[is_answered]])
        self.affecting_gaps = unanswered[~is_answered]

    def add_snapshots(
        self, epoch: int, book: Numbers, ts: Numbers, answered: tuple[Numbers, Numbers], missed: tuple[Numbers, Numbers]
    ) -> None:
        """Snapshots of different books, with the gaps (from, to) that each answers, and those for which it shows that
        updates are missing. All unanswered gaps of these books are then answered."""
        self._mark_recovered(epoch, *answered, ts)
        lost = np.stack([book, *missed], axis=1)
        lost = lost[lost[:, 2] > lost[:, 1]]
        if len(lost):
            self.affected[epoch].append(lost)
        if len(self.affecting_gaps):
            order = np.argsort(book)
            at = np.minimum(np.searchsorted(book[order], self.affecting_gaps[:, 0]), len(book) - 1)
            is_answered = book[order][at] == self.affecting_gaps[:, 0]
            answered_gaps, self.affecting_gaps = self.affecting_gaps[is_answered], self.affecting_gaps[~is_answered]
            self._mark_recovered(epoch, answered_gaps[:, 1], answered_gaps[:, 2], ts[order][at[is_answered]])

    def end_epoch(self, epoch: int, unverified: Numbers) -> None:
        """An epoch has ended, which answers all its gaps."""
        over = np.concatenate([self.affecting_gaps, unverified])
        ts = self._timeline.epoch_starts.get(epoch + 1, NULL)
        self._mark_recovered(epoch, over[:, 1], over[:, 2], np.full(len(over), ts))
        self.affecting_gaps = _NO_GAPS

    def finish(self, epoch: int, unverified: Numbers) -> None:
        """Call it at the end of the run."""
        self.epoch, self.unverified = epoch, unverified

    def to_state(self) -> tuple[Numbers, NDArray[np.void]]:
        """Unanswered gaps at the end of the run: the book, and the first sequences of its gaps."""
        unanswered = self.affecting_gaps[np.lexsort(self.affecting_gaps.T[::-1])]
        found = np.zeros(len(unanswered), UNANSWERED_DTYPE)
        if len(unanswered):
            firsts = self._timeline.gaps[self.epoch][0]
            found["first"], found["last"] = firsts[unanswered[:, 1]], firsts[unanswered[:, 2] - 1]
        return unanswered[:, 0], found

    def restore(self, book: Numbers, epoch: int, stored: NDArray[np.void]) -> None:
        first, last = (self._timeline.gaps_at(epoch, stored[name]) for name in ("first", "last"))
        self.affecting_gaps = np.concatenate([self.affecting_gaps, np.stack([book, first, last + 1], axis=1)])

    def _mark_recovered(self, epoch: int, first: Numbers, last: Numbers, ts: Numbers) -> None:
        gaps, which = _expand_ranges(first, last)
        if len(gaps):
            recovered_ts = self.recovered_ts.setdefault(epoch, np.full(len(self._timeline.gaps[epoch][0]), NULL))
            np.maximum.at(recovered_ts, gaps, ts[which])


def first_unanswered(states: Numbers) -> Numbers:
    """The first unanswered gap of each book, from its state, or else the next gap to come."""
    return np.where(states[:, trust.S_UNVERIFIED] != 0, states[:, trust.S_FIRST_GAP], states[:, trust.S_GAPS])


def _expand_ranges(first: Numbers, last: Numbers) -> tuple[Numbers, Numbers]:
    """Every number of some ranges, and the index of its range."""
    size = np.maximum(last - first, 0)
    which = np.repeat(np.arange(len(size)), size)
    return np.arange(len(which)) + np.repeat(first - (np.cumsum(size) - size), size), which


class GapRecoveries:
    """The result of a task for the gaps, in one run."""

    def __init__(self, timeline: Timeline, epochs: Epochs) -> None:
        self._timeline, self._epochs = timeline, epochs
        self._affected: dict[int, list[Numbers]] = defaultdict(list)  # (instrument_id, gaps from, to)
        count = {epoch: len(gaps[0]) for epoch, gaps in timeline.gaps.items()}
        self._recovered_ts = {epoch: np.full(some, NULL) for epoch, some in count.items()}
        # Differences: their cumulative sum is the number of open books per gap.
        self._open = {epoch: np.zeros(some + 1, np.int64) for epoch, some in count.items()}

    def add(self, log: GapLog, ids: Numbers) -> None:
        for epoch, recovered_ts in log.recovered_ts.items():
            np.maximum(self._recovered_ts[epoch], recovered_ts, out=self._recovered_ts[epoch])
        for epoch, some in log.affected.items():
            affected = np.concatenate(some)
            affected[:, 0] = ids[affected[:, 0] >> 1]
            self._affected[epoch].append(affected)
        instrument, first, last = _merge_overlaps(np.concatenate([log.affecting_gaps, log.unverified]))
        if len(instrument):
            np.add.at(self._open[log.epoch], first, 1)
            np.add.at(self._open[log.epoch], last, -1)

    def to_json(self) -> list[GapRecord]:
        found = []
        for epoch in sorted(self._timeline.gaps):
            affected = self._instruments_by_gap(epoch)
            known = zip(
                self._timeline.gaps[epoch][0].tolist(),
                np.cumsum(self._open[epoch]).tolist(),
                self._recovered_ts[epoch].tolist(),
                strict=False,
            )
            for gap, (first, still, recovered_ts) in enumerate(known):
                if gap in affected or still or recovered_ts != NULL:
                    about = {"seq_version": self._epochs.versions[epoch], "first": first}
                    answer = {"open": still, "ts_recovered": None if recovered_ts == NULL else recovered_ts}
                    found.append(about | {"instruments": affected.get(gap, [])} | answer)
        return found

    def _instruments_by_gap(self, epoch: int) -> dict[int, list[int]]:
        """The instruments that each gap has affected, sorted."""
        affected = np.concatenate([_NO_GAPS, *self._affected[epoch]])
        gaps, which = _expand_ranges(affected[:, 1], affected[:, 2])
        pairs = np.unique(np.stack([gaps, affected[which, 0]], axis=1), axis=0)
        every, start = np.unique(pairs[:, 0], return_index=True)
        parts = np.split(pairs[:, 1], start[1:])
        return {gap: ids.tolist() for gap, ids in zip(every.tolist(), parts, strict=False)}


def _merge_overlaps(unanswered: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """(book, gaps from, to) → (instrument, gaps from, to), each gap once per instrument."""
    instrument, first, last = unanswered[:, 0] >> 1, unanswered[:, 1], unanswered[:, 2]
    order = np.lexsort((first, instrument))
    instrument, first, last = instrument[order], first[order], last[order]
    reached = np.maximum.accumulate(instrument << ROW_BITS | last)[:-1] & ((1 << ROW_BITS) - 1)
    first[1:] = np.maximum(first[1:], np.where(instrument[1:] == instrument[:-1], reached, 0))
    return instrument, first, np.maximum(first, last)


def merge_gap_records(before: Sequence[GapRecord], task_records: Sequence[Iterable[GapRecord]]) -> list[GapRecord]:
    """Merge the gap records of earlier runs with those of all tasks of this run:
    {"seq_version", "first", "instruments", "affected", "open", "ts_recovered"} per gap. `instruments` has the lowest
    IDs, if there are more than MAX_LISTED. A gap without a record of this run is open for no book."""
    if not task_records:
        return list(before)
    found: dict[tuple[int, int], GapRecord] = {}
    for each in before:
        found[each["seq_version"], each["first"]] = each | {"instruments": set(each["instruments"]), "open": 0}
    for each in (each for task in task_records for each in task):
        key = each["seq_version"], each["first"]
        now = found.setdefault(key, dict(zip(("seq_version", "first"), key, strict=True)) | _empty_record())
        new = set(each["instruments"]) - now["instruments"]
        now["instruments"] |= new
        now["affected"] += len(new)
        now["open"] += each["open"]
        times = [ts for ts in (now["ts_recovered"], each["ts_recovered"]) if ts is not None]
        now["ts_recovered"] = max(times, default=None)
    listed = {key: sorted(each["instruments"])[:MAX_LISTED] for key, each in found.items()}
    return [found[key] | {"instruments": listed[key]} for key in sorted(found)]


def _empty_record() -> GapRecord:
    return {"instruments": set(), "affected": 0, "open": 0, "ts_recovered": None}
