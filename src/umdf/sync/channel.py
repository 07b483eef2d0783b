"""One channel: its books and its market state, kept true through gaps, late joins and resets.

The one rule: nothing wrong is shown as right. A book is sound only if its whole history is known: from its first update
(83 RptSeq 1), from an Empty Book, or from a snapshot and everything after it. After a gap in the stream every
instrument is in doubt until its next update follows on by RptSeq (5.2.2), or a snapshot covers the gap.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from umdf.book.engine import Books
from umdf.book.views import Book
from umdf.market.events import NULL, SNAPSHOT
from umdf.market.phases import Phases
from umdf.market.rows import Events, Rows
from umdf.market.state import MarketState, Stream
from umdf.sync.lines import Gap
from umdf.sync.snapshots import Snapshots

HISTORY_ROWS = 2_000_000  # kept for snapshots that are older than what was already applied
CLEAR, NEITHER = ord("R"), ord("N")


class Channel:
    def __init__(self, number: int) -> None:
        self.number = number
        self.books = Books(from_the_start=True)
        self.state = MarketState(number)
        self.gaps: list[Gap] = []
        self.epoch: int | None = None
        self.sequence = 0  # the last that was applied
        self.ts_send = NULL
        self.healed = 0  # books that a snapshot brought back
        self.messages = 0
        self.phases_in_doubt = True  # phases of groups have no RptSeq that would tell of a loss
        self._doubtful: dict[int, Gap] = {}
        self._history: deque[Events] = deque()
        self._history_rows = 0
        self._waiting: list[Snapshots] = []  # ahead of what was applied

    def instruments(self, events: Events) -> None:
        """Of the instrument stream: the start-of-day list, again and again."""
        self._apply_state(events.at({"definition": np.ones(len(events.rows("definition")), np.bool_)}), "instruments")

    def incremental(self, events: Events) -> None:
        """Of the incremental stream, in order, each number once."""
        units = events.units
        if not len(units):
            return
        if self.epoch is not None and units.seq_version[0] != self.epoch:
            self._start_again()
        self.epoch, self.sequence = int(units.seq_version[-1]), int(units.sequence[-1])
        self.ts_send = int(units.ts_send[-1])
        self._apply(events)
        self._keep(events)
        self._heal_waiting()

    def gap(self, gap: Gap) -> None:
        """Numbers were lost: no instrument is certain until something shows that it was not touched."""
        self.gaps.append(gap)
        self.sequence = gap.last  # passed, though not seen
        self._doubtful = dict.fromkeys(self.instrument_ids(), gap)
        self.phases_in_doubt = True
        self._heal_waiting()

    def snapshots(self, found: Snapshots) -> None:
        """Of the snapshot stream. Only what is not sound is taken from it."""
        self._take_phases(found.events)
        wanted = found.complete & self._needs(found.instrument_id)
        if self.epoch is not None:
            of_epoch = (found.last_epoch == NULL) | (found.last_epoch == self.epoch)
            wanted &= of_epoch
        ahead = wanted & (found.last_sequence > self.sequence) if self.epoch is not None else np.zeros_like(wanted)
        if ahead.any():
            self._waiting.append(Snapshots(found.events, found.header, ahead))
        self._heal(found, wanted & ~ahead)

    def finish(self) -> None:
        """Snapshots that the stream never reached are the newest that is known of their instruments."""
        for found in self._waiting:
            self._heal(found, found.complete & self._needs(found.instrument_id))
        self._waiting.clear()

    def doubt(self, instrument_id: int) -> str | None:
        """Why what is shown of an instrument may be wrong; None if it is right."""
        book = self.book(instrument_id)
        reason = None if book is None or book.stale is None else str(book.stale)
        if reason is None and (gap := self._doubtful.get(instrument_id)):
            reason = f"{gap} were lost and nothing came since that shows whether they touched it"
        return reason

    def instrument_ids(self) -> set[int]:
        """The instruments that have a book."""
        return {instrument_id for instrument_id, _ in self.books.instruments()}

    def book(self, instrument_id: int) -> Book | None:
        """An instrument's book, on a lending channel that of the lenders."""
        return self.books.book(instrument_id) or self.books.book(instrument_id, lending=True)

    def _start_again(self) -> None:
        """Numbering began anew: synchronise as at the start of the day (4.2.8). Instruments stay."""
        self.books, instruments = Books(from_the_start=True), self.state.instruments
        self.state = MarketState(self.number)
        self.state.instruments, self.state.phases = instruments, Phases(instruments)
        self.phases_in_doubt = True
        self._doubtful.clear()
        self._history.clear()
        self._waiting.clear()
        self._history_rows = 0

    def _apply(self, events: Events) -> None:
        rows = events.rows("mbo")
        if self._doubtful and len(rows):
            touched = np.unique(rows.column("instrument_id")[rows.column("rpt_seq") != NULL])
            for instrument_id in touched.tolist():
                self._doubtful.pop(instrument_id, None)  # if its RptSeq skips, the book itself says so
        self._set_depths(events)
        self.books.apply(rows)
        self._apply_state(events)
        self.messages += len(rows)

    def _apply_state(self, events: Events, stream: Stream = "incremental") -> None:
        changes = self.state.apply(events, stream)
        for instrument_id in changes.deleted:
            self.books.delete(instrument_id)
            self._doubtful.pop(instrument_id, None)
        for instrument_id in (*changes.added, *changes.modified):
            depth = self.state.instruments.depth_of(instrument_id, self.number)
            if depth is not None:
                self.books.set_depth(instrument_id, depth)

    def _take_phases(self, events: Events) -> None:
        """The phases of groups stand before the snapshots of instruments, and for themselves."""
        of_groups = events.rows("status").column("instrument_id") == NULL
        if self.phases_in_doubt and of_groups.any():
            self.state.apply(events.at({"status": of_groups}), "snapshot")
            self.phases_in_doubt = False

    def _set_depths(self, events: Events) -> None:
        """264 of a snapshot says what its book is (9.1)."""
        header = events.rows("snapshot")
        depth = header.column("depth")
        for row in np.flatnonzero(depth != np.iinfo(np.int32).min).tolist():
            self.books.set_depth(int(header.column("instrument_id")[row]), int(depth[row]))

    def _keep(self, events: Events) -> None:
        self._history.append(events)
        self._history_rows += len(events.rows("mbo"))
        while self._history_rows > HISTORY_ROWS:
            self._history_rows -= len(self._history.popleft().rows("mbo"))

    def _needs(self, instrument_id: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which instruments are unknown, stale or in doubt."""
        books = (self.book(number) for number in instrument_id.tolist())
        needs = np.array([book is None or book.stale is not None for book in books], np.bool_)
        if self._doubtful:
            needs |= np.isin(instrument_id, list(self._doubtful))
        return needs

    def _heal_waiting(self) -> None:
        for found in list(self._waiting):
            reached = found.complete & (found.last_sequence <= self.sequence)
            if reached.any():
                self._heal(found, reached & self._needs(found.instrument_id))
                found.complete[reached] = False
            if not found.complete.any():
                self._waiting.remove(found)

    def _heal(self, found: Snapshots, chosen: NDArray[np.bool_]) -> None:
        """Put the snapshots in place, then everything after them that was already applied."""
        if not chosen.any():
            return
        events = found.of(chosen)
        self._set_depths(events)
        self.books.apply(events.rows("mbo"))
        self._apply_state(events, "snapshot")
        order = np.argsort(found.instrument_id[chosen], kind="stable")
        instrument_id, last = found.instrument_id[chosen][order], found.last_sequence[chosen][order]
        for past in self._history:
            after = {name: _after(rows, past, instrument_id, last) for name, rows in past.families.items()}
            again = past.at(after)
            if again.families:
                self.books.apply(again.rows("mbo"))
                self._apply_state(again)
        self._settle(instrument_id, last)
        self.healed += int(chosen.sum())

    def _settle(self, instrument_id: NDArray[np.int64], last: NDArray[np.int64]) -> None:
        """A snapshot answers a doubt if nothing was lost between it and what follows."""
        gap_after = max((gap.last for gap in self.gaps if gap.epoch == self.epoch), default=0)
        for number, sequence in zip(instrument_id.tolist(), last.tolist(), strict=True):
            if sequence >= gap_after:
                self._doubtful.pop(number, None)


def _after(rows: Rows, events: Events, instrument_id: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows are of these (sorted) instruments and newer than their snapshot."""
    mine = rows.column("instrument_id")
    at = np.minimum(np.searchsorted(instrument_id, mine), len(instrument_id) - 1)
    return (instrument_id[at] == mine) & (events.units.sequence[rows.unit] > last[at]) & _live(rows)


def _live(rows: Rows) -> NDArray[np.bool_]:
    return rows.column("flags") & SNAPSHOT == 0
