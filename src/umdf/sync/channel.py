"""One channel: its books and its market state, through gaps, late joins and resets.

Invariant: nothing wrong is shown as right. A book is healthy only if its whole history is known: from its first update
(83 RptSeq 1), from an Empty Book, or from a snapshot and everything after it. After a gap in the stream every
instrument is unverified until its next update follows by RptSeq (5.2.2), or a snapshot covers the gap.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from umdf.book.engine import Books
from umdf.book.views import Book
from umdf.market.families import NULL, SNAPSHOT
from umdf.market.phases import Phases
from umdf.market.rows import Events, Rows
from umdf.market.state import MarketState, Stream
from umdf.sync.arbitration import Gap
from umdf.sync.snapshots import Snapshots

MAX_HISTORY_ROWS = 2_000_000  # kept for snapshots older than the applied updates
CLEAR, NEITHER = ord("R"), ord("N")


class Channel:
    def __init__(self, number: int) -> None:
        self.number = number
        self.books = Books(requires_full_history=True)
        self.state = MarketState(number)
        self.gaps: list[Gap] = []
        self.epoch: int | None = None
        self.sequence = 0  # the last one applied
        self.ts_send = NULL
        self.recovered = 0  # books recovered by a snapshot
        self.messages = 0
        self.are_phases_unverified = True  # phases of groups have no RptSeq to detect a loss
        self._unverified: dict[int, Gap] = {}
        self._history: deque[Events] = deque()
        self._history_rows = 0
        self._waiting: list[Snapshots] = []  # newer than the applied updates

    def apply_instruments(self, events: Events) -> None:
        """Events of the instrument stream, which repeats the start-of-day list."""
        self._apply_state(events.take({"definition": np.ones(len(events.rows("definition")), np.bool_)}), "instruments")

    def apply_incremental(self, events: Events) -> None:
        """Events of the incremental stream, in order, each sequence once."""
        units = events.units
        if not len(units):
            return
        if self.epoch is not None and units.seq_version[0] != self.epoch:
            self._start_epoch()
        self.epoch, self.sequence = int(units.seq_version[-1]), int(units.sequence[-1])
        self.ts_send = int(units.ts_send[-1])
        self._apply(events)
        self._add_history(events)
        self._recover_waiting()

    def apply_gap(self, gap: Gap) -> None:
        """Units were lost: every instrument is unverified until an update or snapshot shows that it is unaffected."""
        self.gaps.append(gap)
        self.sequence = gap.last  # passed, although not received
        self._unverified = dict.fromkeys(self.instrument_ids(), gap)
        self.are_phases_unverified = True
        self._recover_waiting()

    def apply_snapshots(self, snapshots: Snapshots) -> None:
        """Snapshots of the snapshot stream. Only books that are not healthy use them."""
        self._apply_group_phases(snapshots.events)
        is_needed = snapshots.is_complete & self._needs_snapshot(snapshots.instrument_id)
        if self.epoch is not None:
            of_epoch = (snapshots.last_epoch == NULL) | (snapshots.last_epoch == self.epoch)
            is_needed &= of_epoch
        is_ahead = (
            is_needed & (snapshots.last_sequence > self.sequence)
            if self.epoch is not None
            else np.zeros_like(is_needed)
        )
        if is_ahead.any():
            self._waiting.append(Snapshots(snapshots.events, snapshots.header, is_ahead))
        self._recover(snapshots, is_needed & ~is_ahead)

    def finish(self) -> None:
        """At the end, snapshots newer than the stream are the latest state of their instruments."""
        for found in self._waiting:
            self._recover(found, found.is_complete & self._needs_snapshot(found.instrument_id))
        self._waiting.clear()

    def distrust_reason(self, instrument_id: int) -> str | None:
        """Why an instrument's book and state may be wrong; None if they are right."""
        book = self.book(instrument_id)
        reason = None if book is None or book.stale is None else str(book.stale)
        if reason is None and (gap := self._unverified.get(instrument_id)):
            reason = f"{gap} were lost and nothing came since that shows whether they touched it"
        return reason

    def instrument_ids(self) -> set[int]:
        """The instruments that have a book."""
        return {instrument_id for instrument_id, _ in self.books.instruments()}

    def book(self, instrument_id: int) -> Book | None:
        """An instrument's book; on a lending channel, the lending book."""
        return self.books.shown_book(instrument_id)

    def _start_epoch(self) -> None:
        """A new epoch: synchronise as at the start of the day (4.2.8). Instruments are kept."""
        self.books, instruments = Books(requires_full_history=True), self.state.instruments
        self.state = MarketState(self.number)
        self.state.instruments, self.state.phases = instruments, Phases(instruments)
        self.are_phases_unverified = True
        self._unverified.clear()
        self._history.clear()
        self._waiting.clear()
        self._history_rows = 0

    def _apply(self, events: Events) -> None:
        rows = events.rows("mbo")
        if self._unverified and len(rows):
            touched = np.unique(rows.column("instrument_id")[rows.column("rpt_seq") != NULL])
            for instrument_id in touched.tolist():
                self._unverified.pop(instrument_id, None)  # if its RptSeq has a gap, the book itself detects it
        self._set_depths(events)
        self.books.apply(rows)
        self._apply_state(events)
        self.messages += len(rows)

    def _apply_state(self, events: Events, stream: Stream = "incremental") -> None:
        changes = self.state.apply(events, stream)
        for instrument_id in changes.deleted:
            self.books.delete_instrument(instrument_id)
            self._unverified.pop(instrument_id, None)
        for instrument_id in (*changes.added, *changes.modified):
            depth = self.state.instruments.depth_of(instrument_id, self.number)
            if depth is not None:
                self.books.set_depth(instrument_id, depth)

    def _apply_group_phases(self, events: Events) -> None:
        """Phases of groups precede the snapshots of instruments and are independent of them."""
        of_groups = events.rows("status").column("instrument_id") == NULL
        if self.are_phases_unverified and of_groups.any():
            self.state.apply(events.take({"status": of_groups}), "snapshot")
            self.are_phases_unverified = False

    def _set_depths(self, events: Events) -> None:
        """264 of a snapshot determines the book type (9.1)."""
        header = events.rows("snapshot")
        depth = header.column("depth")
        for row in np.flatnonzero(depth != np.iinfo(np.int32).min).tolist():
            self.books.set_depth(int(header.column("instrument_id")[row]), int(depth[row]))

    def _add_history(self, events: Events) -> None:
        self._history.append(events)
        self._history_rows += len(events.rows("mbo"))
        while self._history_rows > MAX_HISTORY_ROWS:
            self._history_rows -= len(self._history.popleft().rows("mbo"))

    def _needs_snapshot(self, instrument_id: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which instruments are unknown, stale or unverified."""
        books = (self.book(number) for number in instrument_id.tolist())
        needs = np.array([book is None or book.stale is not None for book in books], np.bool_)
        if self._unverified:
            needs |= np.isin(instrument_id, list(self._unverified))
        return needs

    def _recover_waiting(self) -> None:
        for snapshots in list(self._waiting):
            reached = snapshots.is_complete & (snapshots.last_sequence <= self.sequence)
            if reached.any():
                self._recover(snapshots, reached & self._needs_snapshot(snapshots.instrument_id))
                snapshots.is_complete[reached] = False
            if not snapshots.is_complete.any():
                self._waiting.remove(snapshots)

    def _recover(self, snapshots: Snapshots, is_selected: NDArray[np.bool_]) -> None:
        """Apply the snapshots, then the updates after them that were already applied before."""
        if not is_selected.any():
            return
        events = snapshots.events_of(is_selected)
        self._set_depths(events)
        self.books.apply(events.rows("mbo"))
        self._apply_state(events, "snapshot")
        order = np.argsort(snapshots.instrument_id[is_selected], kind="stable")
        instrument_id, last = snapshots.instrument_id[is_selected][order], snapshots.last_sequence[is_selected][order]
        for past in self._history:
            after = {name: _is_after_snapshot(rows, past, instrument_id, last) for name, rows in past.families.items()}
            replayed = past.take(after)
            if replayed.families:
                self.books.apply(replayed.rows("mbo"))
                self._apply_state(replayed)
        self._verify(instrument_id, last)
        self.recovered += int(is_selected.sum())

    def _verify(self, instrument_id: NDArray[np.int64], last: NDArray[np.int64]) -> None:
        """A snapshot verifies a book if nothing was lost between it and the following updates."""
        gap_after = max((gap.last for gap in self.gaps if gap.epoch == self.epoch), default=0)
        for number, sequence in zip(instrument_id.tolist(), last.tolist(), strict=True):
            if sequence >= gap_after:
                self._unverified.pop(number, None)


def _is_after_snapshot(
    rows: Rows, events: Events, instrument_id: NDArray[np.int64], last: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which rows belong to these (sorted) instruments and are newer than their snapshot."""
    mine = rows.column("instrument_id")
    at = np.minimum(np.searchsorted(instrument_id, mine), len(instrument_id) - 1)
    return (instrument_id[at] == mine) & (events.units.sequence[rows.unit] > last[at]) & _is_incremental(rows)


def _is_incremental(rows: Rows) -> NDArray[np.bool_]:
    return rows.column("flags") & SNAPSHOT == 0
