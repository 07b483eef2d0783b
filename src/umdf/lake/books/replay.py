"""Replays the books of some instruments over a span of a day: their ladders, their trust, and snapshot checks.

Rows come by book, so that a book stays in the CPU cache. Every snapshot is applied where it belongs, after the last
row that it holds (369), not where it arrived. There it is compared with the rebuilt book, and replaces it if that is
stale, unverified or unknown.

Invariant: nothing wrong is shown as right. A book is healthy from its first update (83 RptSeq 1), from an Empty Book
or from a snapshot; after a gap it is unverified until its next update follows (5.2.2) or a snapshot covers the gap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umdf.book.cancels import complete_cancels, removed_from
from umdf.book.engine import Books
from umdf.book.ladders import ladder_dtype
from umdf.buffers import buffer_address
from umdf.lake.books import replay_kernel as k
from umdf.lake.books.gap_recovery import GapLog, LostUpdates, Timeline, first_unanswered
from umdf.lake.books.instrument_rows import RowsByBook, event_ends, event_times, select_book_columns
from umdf.lake.books.positions import merge_positions
from umdf.lake.books.snapshot_checks import SnapshotChecks, Verdict, compare_snapshots, initial_verdicts
from umdf.lake.books.snapshot_rows import BookSnapshots
from umdf.lake.tasks.id_lookup import distinct_values, take_records
from umdf.market.families import LAST, NULL, NULL_I32
from umdf.market.rows import Rows
from umdf.sync import book_trust_kernel as trust
from umdf.sync.rpt_seq_kernel import SHORT_HISTORY

Numbers = NDArray[np.int64]
POSITION_BITS = 40  # of a position in `LadderHistory`
NO_END = (1 << 63) - 1
L_BOOK, L_SINCE, L_UNTIL = range(3)  # a loss window: the book, its start and end
LOSS_COLUMNS = 3


@dataclass(eq=False)
class ReplayResult:
    """The result of a span. Positions order everything of a book: row i is at 2 i + 1, a snapshot before it at 2 i."""

    bad: NDArray[np.uint8]  # per row: bits IS_STALE and IS_UNVERIFIED, after it
    is_event_end: NDArray[np.bool_]  # per row: whether its event ends for its book
    ladders: NDArray[np.void]  # by (book, position): the ladder from there on
    ladder_book: NDArray[np.int32]
    ladder_position: Numbers
    recovery_snapshots: Numbers  # indices of the snapshots that replaced a book
    recovery_position: Numbers
    recovery_ladder: Numbers  # the ladder after each: there may be several at one position
    is_before_join: NDArray[np.bool_]  # per recovery: what follows until the recording begins is unknown
    loss_windows: Numbers  # rows of LOSS_COLUMNS, in which data is or may be missing
    lost_updates: list[LostUpdates]
    checks: SnapshotChecks
    initial_bad: NDArray[np.uint8]  # per book, before the first row
    initial_epoch: NDArray[np.int32]  # epoch of the last shown ladder of each book; -1: none
    is_emptied: NDArray[np.bool_]  # per row: whether it emptied a known book


class BookReplay:
    """The books of a group of instruments, with their state from span to span."""

    def __init__(self, ids: Numbers, timeline: Timeline, depth: int, books: Books | None = None) -> None:
        self.ids, self.timeline, self.depth = ids, timeline, depth
        self.books = books or Books(requires_full_history=True)
        self.snapshot_books = Books()
        self.states = np.zeros((2 * len(ids), trust.STATE_COLUMNS), np.int64)
        self.last_bad = np.zeros(2 * len(ids), np.uint8)  # as `ReplayResult.bad`, for each book's last row or recovery
        self.last_shown_epoch = np.full(2 * len(ids), -1, np.int32)
        self.always_recovers = False  # every snapshot replaces its book: rows and snapshots are those of tables
        self.epoch = -1  # rank of the books' epoch
        self.gap_log = GapLog(timeline)
        self.ended_losses: list[Numbers] = []  # `open_losses` of epochs that are over

    def apply(self, rows: RowsByBook, snapshots: BookSnapshots, *, more: bool = False) -> ReplayResult:
        """Apply the rows of a span; `more`: others follow, so the last row need not end its event."""
        return _BatchReplay(self, rows, snapshots, more).run()

    def start_epoch(self, epoch: int) -> None:
        """A new epoch: everything is reset as at the start of a day (4.2.8)."""
        if self.epoch >= 0 and epoch != self.epoch:
            self.gap_log.end_epoch(self.epoch, self.unanswered_gaps())
            until = self.timeline.epoch_starts.get(self.epoch + 1, NO_END)
            self.ended_losses.append(self.open_losses(self.unanswered_gaps(), until))
            self.books = Books(requires_full_history=True)
            self.states[:] = 0
        self.epoch = epoch

    def finish(self) -> None:
        """No more rows will come in this run. Books of a finished epoch have ended; those with gaps after their last
        row are unverified."""
        if 0 <= self.epoch < max(self.timeline.epoch_starts, default=-1):
            self.start_epoch(max(self.timeline.epoch_starts))
        unanswered = self.unanswered_gaps()
        book, first, last = unanswered.T
        self.states[book, trust.S_UNVERIFIED] = np.maximum(self.states[book, trust.S_UNVERIFIED], trust.UNVERIFIED)
        self.states[book, trust.S_FIRST_GAP], self.states[book, trust.S_GAPS] = first, last
        self.gap_log.finish(self.epoch, unanswered)

    def unanswered_gaps(self) -> Numbers:
        """(book, gaps from, to) without an answer yet, and without proof that the gap affected the book."""
        states, count = self.states, self.timeline.count(self.epoch)
        first = first_unanswered(states)
        books = np.flatnonzero((states[:, trust.S_SEEN] == trust.ACTIVE) & (first < count))
        return np.stack([books, first[books], np.full(len(books), count)], axis=1)

    def gaps_of_unseen(self) -> Numbers:
        """(book, gaps from, to) of instruments that were never heard of: all their updates may have been in gaps."""
        is_unseen = (self.states[:, trust.S_SEEN] == trust.UNSEEN).reshape(-1, 2).all(axis=1)
        books = 2 * np.flatnonzero(is_unseen)
        first = self.states[books, trust.S_GAPS]
        return np.stack([books, first, np.full(len(books), self.timeline.count(self.epoch))], axis=1)[
            first < self.timeline.count(self.epoch)
        ]

    def open_losses(self, unanswered: Numbers, until: int) -> Numbers:
        """(book, since, until) of what may be missing in these gaps (book, from, to)."""
        book, first, last = unanswered.T
        since = np.where(self.states[book, trust.S_SEEN] == trust.UNSEEN, NULL, self.states[book, trust.S_TS])
        return self.timeline.loss_windows(self.epoch, book, (first, last), since, np.full(len(book), until))

    def current_ladders(self) -> NDArray[np.void]:
        """The current ladder of every book."""
        kind = ladder_dtype(self.depth)
        records = np.zeros(2 * len(self.ids), kind)
        ids, lending = np.repeat(self.ids, 2), np.tile(np.array([0, 1], np.int64), len(self.ids))
        arguments = np.zeros(k.LADDER_ARGUMENTS, np.int64)
        arguments[k.TABLE], arguments[k.BOOKS] = self.books.arenas.address, len(ids)
        arguments[k.IDS], arguments[k.LENDING] = buffer_address(ids), buffer_address(lending)
        arguments[k.DEPTH], arguments[k.STRIDE] = self.depth, kind.itemsize
        arguments[k.OUT] = buffer_address(records) + 24
        if len(ids):
            k.write_ladders(buffer_address(arguments))
        records["instrument_id"] = ids
        return records

    def current_bad(self) -> NDArray[np.uint8]:
        stale, unverified = self.states[:, trust.S_STALE] != 0, self.states[:, trust.S_UNVERIFIED] != 0
        return (stale * trust.IS_STALE + unverified * trust.IS_UNVERIFIED).astype(np.uint8)


class _BatchReplay:
    def __init__(self, replay: BookReplay, rows: RowsByBook, snapshots: BookSnapshots, more: bool) -> None:
        self.replay, self.rows, self.snapshots = replay, rows, snapshots
        count = len(rows)
        self.family = select_book_columns(rows.rows) if count else None
        self.times = event_times(rows.rows, rows.units) if count else np.empty(0, np.int64)
        self.sequence = (rows.key >> np.uint64(32)).astype(np.int64)
        self.bad = np.zeros(count, np.uint8)
        self.emptied = np.zeros(count, np.bool_)
        self.is_end = event_ends(rows, self.times, more)
        self.ladders: list[NDArray[np.void]] = []
        self.ladder_books: list[NDArray[np.int32]] = []
        self.ladder_positions: list[Numbers] = []
        self.recovery_snapshots: list[Numbers] = []
        self.recovery_positions: list[Numbers] = []
        self.recovery_turns: list[Numbers] = []  # length of `ladders` at each recovery
        self.loss_windows: list[Numbers] = []
        self.lost_updates: list[LostUpdates] = []
        self.removed: list[NDArray[np.void]] = []  # by cancels of `rows`, as `removed_from` returns it
        self.checks = SnapshotChecks(len(snapshots))

    def run(self) -> ReplayResult:
        replay, initial = self.replay, (self.replay.last_bad.copy(), self.replay.last_shown_epoch.copy())
        books = np.arange(2 * len(replay.ids), dtype=np.int32)
        self._add_ladders(replay.current_ladders(), books, np.full(len(books), -1))
        epochs = distinct_values(self.rows.epoch, self.snapshots.epoch)
        for epoch in (epoch for epoch in epochs if epoch >= max(replay.epoch, 0)):
            before = replay.epoch
            replay.start_epoch(epoch)
            rows = np.arange(len(self.rows)) if epochs == [epoch] else np.flatnonzero(self.rows.epoch == epoch)
            if before not in (-1, epoch):
                self._clear_ladders(epoch)
            self._replay_epoch(epoch, rows, np.flatnonzero(self.snapshots.epoch == epoch))
        complete_cancels(self.rows.events.rows("mbo"), [] if replay.always_recovers else self.removed)
        self.checks.add_unknown_epochs(self.snapshots)
        book, position = np.concatenate(self.ladder_books), np.concatenate(self.ladder_positions)
        key, records = book.astype(np.int64) << POSITION_BITS | (position + 1), np.concatenate(self.ladders)
        turn = np.repeat(np.arange(len(self.ladders)), [len(each) for each in self.ladders])
        order = np.argsort(key, kind="stable")
        loss_windows = np.concatenate([np.empty((0, LOSS_COLUMNS), np.int64), *self.loss_windows])
        recoveries = self.recovery_snapshots, self.recovery_positions, self.recovery_turns
        recovery_snapshots, positions, turns = (np.concatenate([np.empty(0, np.int64), *some]) for some in recoveries)
        recovery_keys = self.snapshots.book[recovery_snapshots].astype(np.int64) << POSITION_BITS | (positions + 1)
        ladder = np.searchsorted(key[order], recovery_keys, side="right") - 1
        while (later := turn[order][ladder] >= turns).any():
            ladder[later] -= 1
        epoch, last = self.snapshots.epoch[recovery_snapshots], self.snapshots.last_sequence[recovery_snapshots]
        is_before_join = replay.timeline.are_before_join(epoch, last)
        self._update_last_shown(recovery_snapshots, positions, is_before_join)
        shown = take_records(records, order), book[order], position[order]
        recoveries = recovery_snapshots, positions, ladder, is_before_join
        losses = loss_windows, self.lost_updates
        return ReplayResult(self.bad, self.is_end, *shown, *recoveries, *losses, self.checks, *initial, self.emptied)

    def _update_last_shown(
        self, recovery_snapshots: Numbers, positions: Numbers, is_before_join: NDArray[np.bool_]
    ) -> None:
        book = self.rows.book
        last = np.flatnonzero(np.append(book[1:] != book[:-1], True)) if len(book) else np.empty(0, np.int64)
        newest = np.full(len(self.replay.last_bad), -1)
        newest[book[last]], self.replay.last_bad[book[last]] = last, self.bad[last]
        recovered_books = self.snapshots.book[recovery_snapshots]
        is_last = positions > 2 * newest[recovered_books] + 1
        bits = np.where(is_before_join, trust.IS_UNVERIFIED, 0).astype(np.uint8)
        self.replay.last_bad[recovered_books[is_last]] = bits[is_last]
        np.maximum.at(self.replay.last_shown_epoch, book[self.is_end], self.rows.epoch[self.is_end])
        np.maximum.at(self.replay.last_shown_epoch, recovered_books, self.snapshots.epoch[recovery_snapshots])

    def _add_ladders(self, records: NDArray[np.void], book: NDArray[np.int32], position: Numbers) -> None:
        self.ladders.append(records)
        self.ladder_books.append(book)
        self.ladder_positions.append(position)

    def _clear_ladders(self, epoch: int) -> None:
        """Empty ladders for the books of a finished epoch."""
        books = np.arange(2 * len(self.replay.ids), dtype=np.int32)
        empty = np.zeros(len(books), kind := ladder_dtype(self.replay.depth))
        for name in (kind.names or ())[4:]:
            empty[name] = NULL_I32 if "_ct_" in name else NULL
        self._add_ladders(empty, books, 2 * self._epoch_starts(epoch))

    def _epoch_starts(self, epoch: int) -> Numbers:
        """Where the rows of each book start in an epoch, or would start."""
        of_epoch = self.rows.book.astype(np.int64) << 16 | self.rows.epoch
        return np.searchsorted(of_epoch, np.arange(2 * len(self.replay.ids)) << 16 | epoch)

    def _replay_epoch(self, epoch: int, rows: Numbers, snapshot_rows: Numbers) -> None:
        replay, snapshots = self.replay, self.snapshots
        book, key = self.rows.book[rows], self.rows.key[rows]
        edges = np.searchsorted(book, np.arange(2 * len(replay.ids) + 1))
        gaps = replay.timeline.gaps_before(epoch, self.sequence[rows])
        snapshot_books = snapshots.book[snapshot_rows]
        positions = merge_positions(book, key, snapshot_books, snapshots.key[snapshot_rows], behind=True)
        rank = np.arange(len(snapshot_rows)) - np.searchsorted(snapshot_books, snapshot_books)
        reached, ends = edges[:-1].copy(), edges[1:]
        starts = self._epoch_starts(epoch)
        for turn in range(int(rank.max(initial=-1)) + 1):
            now = np.flatnonzero(rank == turn)
            here = snapshot_books[now]
            until = reached.copy()
            until[here] = positions[now]
            self._apply(rows, gaps, reached, until)
            reached = until
            before = np.where(positions[now] > edges[here], _values_at(rows, positions[now] - 1) + 1, starts[here])
            self._check_snapshots(epoch, snapshot_rows[now], 2 * before)
        self._apply(rows, gaps, reached, ends)

    def _apply(self, rows: Numbers, gaps: Numbers, first: Numbers, last: Numbers) -> None:
        size = last - first
        total = int(size.sum())
        if not total:
            return
        assert self.family is not None
        if total == len(self.rows):
            some, chosen, own_gaps = None, self.family, gaps
        else:
            offsets = np.cumsum(size) - size
            inside = np.arange(total) + np.repeat(first - offsets, size)
            some, own_gaps = rows[inside], gaps[inside]
            chosen = self.family.take(some)
        book = self.rows.book if some is None else self.rows.book[some]
        times = self.times if some is None else self.times[some]
        flags = chosen.column("flags")
        # Events end with the rows of a book, which a snapshot may divide: what follows are those of another book.
        ends = np.append(book[1:] != book[:-1], True)
        ends |= self.is_end if some is None else self.is_end[some]
        chosen = Rows(chosen.family, chosen.unit, chosen.msg_index, chosen.entry_index, dict(chosen.columns))
        chosen.columns["flags"] = np.where(ends, flags | LAST, flags & ~LAST).astype(np.int32)
        base = self.replay.books.rows_applied
        outcomes, ladders = self.replay.books.apply_depth(chosen, self.replay.depth, "end")
        first_gap = own_gaps.copy()
        bad, lost_from, count, answers = self._track_trust(chosen, book, outcomes.codes, first_gap, times, some)
        lost = np.flatnonzero(lost_from != NULL)
        if len(lost):
            key = self.rows.key[lost if some is None else some[lost]]
            shown = LostUpdates(book[lost], key, count[lost], times[lost])
            self._add_losses(shown, (first_gap[lost], own_gaps[lost]), lost_from[lost])
        answering = np.flatnonzero(answers)
        if len(answering):
            sent = self.rows.units.ts_send[chosen.unit[answering]]
            books, answered_gaps = book[answering].astype(np.int64), (first_gap[answering], own_gaps[answering])
            self.replay.gap_log.add_rows(self.replay.epoch, books, answers[answering], *answered_gaps, sent)
            emptied = answering[answers[answering] & trust.EMPTIED != 0]
            self.emptied[emptied if some is None else some[emptied]] = True
        self.removed.append(removed_from(outcomes, some, bad == 0))
        records = ladders.records  # not written to while it is read here
        local = records["row"] - base
        there = local if some is None else some[local]
        self._add_ladders(records, book[local], 2 * there + 1)
        self.bad[slice(None) if some is None else some] = bad

    def _track_trust(
        self,
        rows: Rows,
        book: NDArray[np.int32],
        outcomes: NDArray[np.int8],
        gaps: Numbers,
        times: Numbers,
        some: Numbers | None,
    ) -> tuple[NDArray[np.uint8], Numbers, Numbers, NDArray[np.uint8]]:
        count = len(rows)
        bad, answers = np.zeros((2, count), np.uint8)
        lost_from, lost_updates = np.zeros((2, count), np.int64)
        columns = [np.ascontiguousarray(rows.column(name)) for name in ("action", "side", "flags", "rpt_seq")]
        for mask, bit in ((self.rows.is_synthetic, trust.IS_SYNTHETIC), (self.rows.is_deletion, trust.IS_DELETED)):
            if mask is not None:
                columns[2] = columns[2] | np.where(mask if some is None else mask[some], np.int32(bit), np.int32(0))
        held = [np.ascontiguousarray(outcomes), gaps, np.ascontiguousarray(times)]
        arguments = np.zeros(trust.TRUST_ARGUMENTS, np.int64)
        arguments[trust.ROWS], book = count, np.ascontiguousarray(book)
        arrays = [book, *columns, *held, self.replay.states, bad, lost_from, lost_updates, answers]
        arguments[trust.BOOK :] = [buffer_address(array) for array in arrays]
        trust.track_trust(buffer_address(arguments))
        return bad, lost_from, lost_updates, answers

    def _check_snapshots(self, epoch: int, snapshot_rows: Numbers, positions: Numbers) -> None:
        """Compare snapshots of different books with the current books; recover those that need it."""
        replay, snapshots = self.replay, self.snapshots
        states = replay.states[snapshots.book[snapshot_rows]]
        gaps = replay.timeline.gaps_before(epoch, snapshots.last_sequence[snapshot_rows], within=True)
        is_ahead = snapshots.last_sequence[snapshot_rows] > replay.timeline.last_sequence.get(epoch, NO_END)
        # A snapshot inside a gap is ahead of a book that has lost the beginning of it.
        begun = replay.timeline.gaps_started_by(epoch, snapshots.last_sequence[snapshot_rows])
        verdict, is_unverified = initial_verdicts(states, snapshots.last_rpt_seq[snapshot_rows], begun, is_ahead)
        if replay.always_recovers:
            verdict[:] = Verdict.STALE
        compared = np.flatnonzero(verdict == Verdict.EQUAL)
        if len(compared):
            result = compare_snapshots(replay, snapshots, snapshot_rows[compared])
            different = compared[result.first_difference >= 0]
            verdict[different] = np.where(is_unverified[different], Verdict.UNVERIFIED, Verdict.DIFFERENT)
            self.checks.add_comparisons(snapshot_rows[compared], result)
        self.checks.add_verdicts(snapshot_rows, verdict, states[:, trust.S_RPT_SEQ], snapshots)
        is_recovered = np.isin(verdict, Verdict.RECOVERS)
        is_verified = is_recovered | (verdict == Verdict.EQUAL)
        self._log_answers(epoch, snapshot_rows[is_verified], states[is_verified], gaps[is_verified])
        verified_books = snapshots.book[snapshot_rows[is_verified]]
        replay.states[verified_books, trust.S_UNVERIFIED] = 0
        known_gaps = replay.states[verified_books, trust.S_GAPS]
        replay.states[verified_books, trust.S_GAPS] = np.maximum(gaps[is_verified], known_gaps)
        if is_recovered.any():
            blamed = first_unanswered(states[is_recovered]), gaps[is_recovered]
            self._recover(snapshot_rows[is_recovered], positions[is_recovered], blamed)

    def _log_answers(self, epoch: int, snapshot_rows: Numbers, states: Numbers, gaps: Numbers) -> None:
        """Log the gaps that snapshots answer. After an Empty Book RptSeq starts again (4.2.9)."""
        replay, snapshots = self.replay, self.snapshots
        first = first_unanswered(states)
        missed = snapshots.last_rpt_seq[snapshot_rows] > np.maximum(states[:, trust.S_RPT_SEQ], 0)
        begun = replay.timeline.gaps_started_by(epoch, snapshots.last_sequence[snapshot_rows])
        is_unanswered = missed | (states[:, trust.S_SEEN] == trust.ACTIVE)
        answered, affected = (first, np.where(is_unanswered, gaps, first)), (first, np.where(missed, begun, first))
        books = snapshots.book[snapshot_rows].astype(np.int64)
        if len(books):
            replay.gap_log.add_snapshots(epoch, books, snapshots.ts_send[snapshot_rows], answered, affected)

    def _add_losses(self, lost: LostUpdates, gaps: tuple[Numbers, Numbers], since: Numbers) -> None:
        replay = self.replay
        self.loss_windows.append(replay.timeline.loss_windows(replay.epoch, lost.book, gaps, since, lost.until))
        own = np.flatnonzero(replay.timeline.are_losses(replay.epoch, gaps))
        self.lost_updates.append(LostUpdates(lost.book[own], lost.key[own], lost.count[own], lost.until[own]))

    def _recover(self, snapshot_rows: Numbers, positions: Numbers, gaps: tuple[Numbers, Numbers]) -> None:
        replay, snapshots = self.replay, self.snapshots
        rows, offsets = snapshots.rows_of(snapshot_rows)
        books = snapshots.book[snapshot_rows]
        for snapshot in snapshot_rows[snapshots.depth[snapshot_rows] != NULL_I32].tolist():
            book = int(snapshots.book[snapshot])
            replay.books.set_depth(int(replay.ids[book >> 1]), int(snapshots.depth[snapshot]), lending=bool(book & 1))
        base = replay.books.rows_applied
        _, ladders = replay.books.apply_depth(rows, replay.depth, "end")
        records = ladders.records.copy()
        which = np.searchsorted(offsets, records["row"] - base, side="right") - 1
        self._add_ladders(records, books[which], positions[which])
        known, rpt_seq = replay.states[books, trust.S_RPT_SEQ], rows.column("rpt_seq")[offsets[:-1]]
        missed = known != rpt_seq
        seen = replay.states[books, trust.S_SEEN] != trust.UNSEEN
        begin = np.where(seen, replay.states[books, trust.S_TS], trust.UNKNOWN_START)
        count = np.where((known > SHORT_HISTORY) & (rpt_seq > known), rpt_seq - known, trust.UNKNOWN_COUNT)
        own = snapshot_rows[missed]
        shown = LostUpdates(books[missed], snapshots.key[own], count[missed], snapshots.ts_send[own])
        self._add_losses(shown, (gaps[0][missed], gaps[1][missed]), begin[missed])
        replay.states[books, trust.S_RPT_SEQ] = rpt_seq
        replay.states[books, trust.S_STALE] = 0
        replay.states[books, trust.S_SEEN] = trust.ACTIVE
        replay.states[books, trust.S_TS] = np.maximum(begin, replay.states[books, trust.S_TS])
        self.recovery_snapshots.append(snapshot_rows)
        self.recovery_positions.append(positions)
        self.recovery_turns.append(np.full(len(snapshot_rows), len(self.ladders)))


def _values_at(values: Numbers, indices: Numbers) -> Numbers:
    """Values at some indices; arbitrary ones for indices out of range."""
    return values[np.clip(indices, 0, len(values) - 1)] if len(values) else np.zeros(len(indices), np.int64)
