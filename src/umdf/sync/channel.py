"""One channel: its books and its market state, through gaps, late joins and resets.

    channel.open_gap(gap)                # units are missing
    channel.apply(events)                # events of the incremental stream, in order, each unit once
    channel.apply_late(events)           # units of a reported gap that arrived after all
    channel.contradict(sequence, events) # a unit came with two contents
    channel.apply_snapshots(snapshots)   # snapshots of the snapshot stream
    channel.apply_instruments(events)    # definitions of the instrument stream
    channel.apply_list(instruments)      # a loop of it that was received completely
    channel.book_trust(instrument_id)    # healthy, unverified or stale, with the reason

Invariant: nothing wrong is shown as right. A book is healthy only if its whole history is known: from its first update
(83 RptSeq 1), from an Empty Book, or from a snapshot and everything after it. A stale book stays as it was, and its
updates wait; missing ones that arrive, or a snapshot, recover it. Nothing is applied or counted twice. A batch of units
gives what its units would give one by one.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from umdf.book.memory_layout_kernel import CONTRADICTED
from umdf.book.views import Book
from umdf.market.families import NULL
from umdf.market.phases import Phases
from umdf.market.rows import Events
from umdf.market.state import MarketState
from umdf.sync import update_gate_kernel as k
from umdf.sync.definitions.definition_trust import DefinitionTrust, deletions
from umdf.sync.definitions.list_loops import InstrumentList
from umdf.sync.gaps import Gap, GapCause, GapLedger
from umdf.sync.gated_updates import GatedUpdates
from umdf.sync.look_ahead import LookAhead
from umdf.sync.snapshot_queue import BatchCuts, SnapshotQueue
from umdf.sync.snapshots import GroupPhases, Snapshots
from umdf.sync.trust import Trust, unverified


class Channel:
    def __init__(self, number: int, *, statuses_have_rpt_seq: bool = True, may_follow_failover: bool = False) -> None:
        """`may_follow_failover`: a first numbering from 1 may be that of a failover, which books were before. Otherwise
        it is taken for that of a week until the first update shows an RptSeq above 1."""
        self.number, self._may_follow_failover, self._is_week_assumed = number, may_follow_failover, False
        self._statuses_have_rpt_seq = statuses_have_rpt_seq
        self._notes_cancels = False
        self._queue = SnapshotQueue()
        self.gaps = GapLedger()
        self.epoch: int | None = None
        self.sequence = 0  # the last one applied or given up
        self.ts_send = self._ts_recv = NULL  # of the last unit applied
        self.silent_s: float | None = None  # how long all lines have been silent, if for too long (4.1.1)
        self.messages = self.recovered = 0  # of the books; books recovered by a snapshot
        self._reset(MarketState(number, by_sequence=True))

    def _reset(self, state: MarketState) -> None:
        self._updates = GatedUpdates(state, self.gaps, statuses_have_rpt_seq=self._statuses_have_rpt_seq)
        if self._notes_cancels:
            self._updates.removed = []
        self.books, self.trust, self.phases = self._updates.books, self._updates.trust, self._updates.phases
        self.state, self.ahead, self._definitions = state, LookAhead(self.trust), DefinitionTrust()
        self._queue.clear()

    # Input, in the order of the incremental stream.

    def start_epoch(self, epoch: int, first: int, ts_recv: int) -> None:
        """A numbering starts: that of the first unit ever received, or a new one, after which everything is
        synchronised as at the start of the day (4.2.8). Instruments are kept."""
        is_first = self.epoch is None
        self.epoch, self.sequence, self._is_week_assumed = epoch, first - 1, False
        if is_first:
            if first > 1:
                self._open(Gap(epoch, 1, first - 1, ts_recv, GapCause.JOIN))
                self.state.phases.has_unknown_start = True
            elif self._may_follow_failover:
                self._follow_failover(epoch, ts_recv)
            self._is_week_assumed = not self.gaps.missing
            return
        instruments = self.state.instruments
        state = MarketState(self.number, by_sequence=True)
        state.instruments, state.phases = instruments, Phases(instruments)
        self._reset(state)
        state.phases.has_unknown_start = True
        self.gaps.start_epoch()
        self._open(Gap(epoch, 0, 0, ts_recv, GapCause.EPOCH))

    def _follow_failover(self, epoch: int, ts_recv: int) -> None:
        self.gaps.open(Gap(epoch, 0, 0, ts_recv, GapCause.EPOCH))
        self.state.phases.has_unknown_start = True

    def _check_assumed_week(self, events: Events) -> None:
        rpt_seq = events.rows("mbo").column("rpt_seq")
        numbers = rpt_seq[rpt_seq != NULL]
        self._is_week_assumed = not len(numbers)
        if len(numbers) and numbers[0] > 1 and self.epoch is not None:
            self._follow_failover(self.epoch, int(events.units.ts_recv[0]))

    def _open(self, gap: Gap) -> None:
        self.gaps.open(replace(gap, ts_before=self._ts_recv))
        self._definitions.open_gap(gap)

    def open_gap(self, gap: Gap) -> None:
        """Units are missing: every instrument is unverified until an update or snapshot shows that it is unaffected."""
        self._open(gap)
        self.state.phases.has_losses = True
        self.sequence = max(self.sequence, gap.last)
        self._use_snapshots()

    def apply(self, events: Events) -> None:
        """Events of the incremental stream, in order, each sequence once."""
        count = len(events.units)
        if count == 1 and not self._queue:
            self._apply_part(events)
            return
        cuts, first = BatchCuts(events), 0
        while first < count:
            end = self._next_cut(cuts, first)
            if end == first:  # snapshots are used between two units
                self.sequence = int(events.units.sequence[first]) - 1
                self._use_snapshots()
                continue
            self._apply_part(events if (first, end) == (0, count) else events.of_units(np.arange(first, end)))
            first = end

    def _next_cut(self, cuts: BatchCuts, first: int) -> int:
        end = cuts.next(first)
        behind = (int(cuts.unit_behind(np.array(turn))) for turn in self._queue.phase_turns())
        end = min([end, *(at for at in behind if at >= first)])
        for snapshots, turn in self._queue.waiting():
            rows = np.flatnonzero(snapshots.is_complete & (cuts.unit_behind(turn) < end))
            if len(rows):
                rows = rows[self._is_needed(snapshots, rows)]
            if len(rows):
                end = min(end, cuts.next_use(snapshots.instrument_id[rows], turn[rows], first))
        return end

    def _apply_part(self, events: Events) -> None:
        units = events.units
        if len(units):
            self.sequence, self.ts_send = max(self.sequence, int(units.sequence[-1])), int(units.ts_send[-1])
            self._ts_recv = int(units.ts_recv[-1])
        if self._is_week_assumed:
            self._check_assumed_week(events)
        groups = self.phases.groups_after_losses(events, self.gaps) if "status" in events.families else []
        self._updates.apply(events)
        if (last_list := self._definitions.follow(events)) is not None:
            self.apply_list(last_list)
        self._updates.suspect_members(groups, self.sequence)  # another one, which is lost, may have reset some (11.3)
        self.messages += len(events.rows("mbo"))
        self._note_undefined()
        if self._queue:
            self._use_snapshots()

    def apply_late(self, events: Events) -> None:
        """Units of reported gaps, in order: what was waiting for them can follow. Together they have the result of one
        after the other, but for changes of definitions, and while snapshots wait."""
        defined = np.unique(events.rows("definition").unit).tolist()
        bounds = sorted({0, *defined, *(unit + 1 for unit in defined), len(events.units)})
        for first, end in pairwise(bounds):
            while first < end:
                units = np.arange(first, first + 1 if self._queue else end)
                self._apply_late_part(events.of_units(units))
                first += len(units)

    def _apply_late_part(self, events: Events) -> None:
        part = self._definitions.newer_late(self._updates.without_deleted(events))
        for sequence in part.units.sequence.tolist():
            self.gaps.fill(sequence)
        self._updates.suspect_resets(part)
        waiting = self._updates.apply(part)
        self._definitions.note(part)
        self.messages += len(part.rows("mbo"))
        self._updates.retry(waiting)
        self.phases.compare_statuses(self.gaps)
        self._use_snapshots()

    def contradict(self, sequence: int, events: Events | None, ts_recv: int = NULL) -> None:
        """A unit that was applied came again with other content (`events`): nobody knows which is right, so everything
        that it may have affected is stale until a later snapshot shows it. None: the other content is not known."""
        if sequence > self.sequence or self.epoch is None or self.gaps.is_missing(sequence):
            return
        self._open(Gap(self.epoch, sequence, sequence, ts_recv, GapCause.CONFLICT))
        self.state.phases.has_losses = True
        families = {} if events is None else events.families
        named = {number for rows in families.values() for number in rows.column("instrument_id").tolist()}
        book, status = (families.get(name) for name in ("mbo", "status"))
        is_for_all = book is not None and bool((book.column("instrument_id") == NULL).any())
        is_for_groups = status is not None and bool((status.column("instrument_id") == NULL).any())
        self.trust.mark_stale(named - {NULL}, sequence, CONTRADICTED, is_for_all=is_for_all)
        self.state.phases.mark_unverified(sequence, named, is_for_groups=is_for_groups)
        self._updates.suspect_contradicted(sequence, self.sequence, is_for_groups=is_for_groups)

    def apply_instruments(self, events: Events) -> None:
        """Events of the instrument stream, which repeats the start-of-day list."""
        definitions = {"definition": self._definitions.newer_listed(events.rows("definition"), events.units)}
        changes = self._updates.apply_state(events.take(definitions), "instruments")
        self.phases.compare_statuses(self.gaps, changes.added)

    def apply_list(self, found: InstrumentList) -> None:
        """A complete list of the instrument stream. After a gap, what it lacks was deleted (7.3). What was heard of
        before it without a definition does not exist: the packet was damaged."""
        has_definition_gap = self.definition_gap() is not None
        self._note_undefined()
        if not self._definitions.verify(found, self.gaps) or self.epoch is None:
            return
        made_up = self._definitions.never_defined(found, self.state.instruments, self.ts_send) & self.instrument_ids()
        # Updates before a deletion that was lost may have come after an earlier list that lacked the instrument.
        left = self._updates.deleted.keys() & self.instrument_ids()
        known = {*self.state.instruments.ids(), *left} if has_definition_gap else set[int]()
        if gone := sorted((known - found.instrument_ids) | made_up):
            self._updates.apply_state(deletions(self.number, self.epoch, self.sequence, found, gone))
            for number in made_up:
                del self._updates.deleted[number]

    def _note_undefined(self) -> None:
        if self.trust.created and self.ts_send != NULL:
            self._definitions.note_undefined(self.trust.created, self.state.instruments, self.ts_send)
            self.trust.created.clear()

    def apply_snapshots(self, snapshots: Snapshots, received: int | NDArray[np.int64] | None = None) -> None:
        """Snapshots of the current epoch, received when the stream was at a sequence (default: now). Only instruments
        that are not healthy use them. A snapshot that is ahead waits."""
        if snapshots.is_complete.any():
            self._queue.add(snapshots, self.sequence if received is None else received)
            self._use_snapshots()
            self._queue.limit()

    def apply_phases(self, phases: GroupPhases, received: int | None = None) -> None:
        """Phases of groups from a snapshot stream of the current epoch."""
        self._queue.add_phases(phases, self.sequence if received is None else received)
        self._use_snapshots()

    def forget_snapshots(self) -> None:
        """The snapshots that wait are of another epoch."""
        self._queue.clear()

    def use_all_snapshots(self) -> None:
        """No more units will be applied: the order of arrival does not matter any more."""
        self._queue.ignore_arrival()
        self._use_snapshots()

    def finish(self) -> None:
        """No more units will come. A snapshot that is ahead shows that units before it are missing."""
        ahead = self._queue.latest()
        if self.epoch is not None and ahead > self.sequence:
            self.open_gap(Gap(self.epoch, self.sequence + 1, ahead, NULL))

    def note_cancels(self) -> None:
        """From now on, `complete_cancels` will be called for events that were applied."""
        self._notes_cancels, self._updates.removed = True, []

    def complete_cancels(self, events: Events) -> None:
        """Give cancels that state no price (Binary before version 11) what they removed from healthy books."""
        self._updates.complete_cancels(events)

    def note_early(self, removed: NDArray[np.void]) -> None:
        """A client may apply updates to healthy books before `apply` gets them (`umdf.feed.early_books`), which then
        changes nothing more: RptSeq tells. `removed`: what cancels among them have removed, as `removed_from` has it,
        with wire keys."""
        self._updates.early_removed = np.concatenate([self._updates.early_removed, removed])

    # What the channel shows.

    @property
    def dropped_snapshots(self) -> int:
        """Snapshots that were ahead of the stream and for which there was no room."""
        return self._queue.dropped

    def instrument_ids(self) -> set[int]:
        """The instruments that have a book."""
        return set(self.books.keys()[0].tolist())

    @property
    def deleted(self) -> dict[int, int]:
        """Instruments that were deleted during the session, and the sequence (7.3)."""
        return {number: at for number, at in self._updates.deleted.items() if number not in self.instrument_ids()}

    def book(self, instrument_id: int) -> Book | None:
        """An instrument's book; its lending book, if the ordinary one has no orders (9.8)."""
        return self.books.shown_book(instrument_id)

    def book_trust(self, instrument_id: int) -> Trust:
        """Trust in an instrument's book and statistics."""
        return self._updates.book_trust(instrument_id, self.silent_s)

    def untrusted(self) -> dict[int, Trust]:
        """`book_trust` of all instruments whose books are not healthy."""
        return self._updates.untrusted(self.silent_s)

    def has_uncertain_state(self) -> bool:
        """Whether `state_trust` of any instrument with a healthy book is not healthy."""
        ids = {*self.state.instruments.ids(), *self.instrument_ids()}
        return self.phases.has_uncertain(ids, self.gaps)

    def state_trust(self, instrument_id: int) -> Trust:
        """Trust in an instrument's phase and state."""
        trust = self.book_trust(instrument_id)
        return self.phases.trust_of(instrument_id, self.gaps) if trust.is_healthy else trust

    def definition_gap(self) -> Gap | None:
        """The first gap in which definitions may have changed unseen."""
        return self._definitions.first_gap(self.gaps)

    def definition_trust(self, instrument_id: int) -> Trust:
        """Trust in an instrument's definition, and in that it still exists."""
        if instrument_id not in self.state.instruments and instrument_id not in self._updates.deleted:
            return unverified("no definition of it was received")
        return self._definitions.trust_of(instrument_id, self.gaps)

    def trades_incomplete(self, instrument_id: int) -> bool:
        """Whether trades of the session may be missing from those seen."""
        number = self.trust.shown_number(instrument_id)
        if number < 0:
            return self.trust.is_incomplete or not self.book_trust(instrument_id).is_healthy
        return bool(self.trust.states[number, k.S_INCOMPLETE]) or not self.book_trust(instrument_id).is_healthy

    # Snapshots.

    def _use_snapshots(self) -> None:
        """Use those whose turn has come."""
        for found in self._queue.take(self.sequence):
            if isinstance(found, GroupPhases):
                self._apply_group_phases(found)
            else:
                self._recover(*found)

    def _apply_group_phases(self, phases: GroupPhases) -> None:
        """Phases follow a snapshot that tells up to where they are right. Those that do not, as those of the first loop
        after a join, or that follow one from before a gap, are still right after what was lost well before them."""
        units, lost_until = phases.events.units, self.gaps.latest
        if lost_until <= phases.until and self._definitions.losses.are_before(
            int(units.ts_send.min()), int(units.ts_recv.min())
        ):
            phases = replace(phases, after=max(phases.after, lost_until))
        self._updates.suspect_members(self.phases.apply_snapshot(phases, self.gaps), self.sequence)
        self.phases.compare_statuses(self.gaps)

    def _is_needed(self, snapshots: Snapshots, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these snapshots their books can use: not those that are older than the book, or that a healthy book
        does not need."""
        ids, lending = snapshots.instrument_id[rows], snapshots.is_lending[rows]
        sequence, updates = snapshots.last_sequence[rows], self._updates
        found = self.trust.examine(ids, lending, sequence, self.gaps.latest)
        for row in np.flatnonzero(found != k.TOO_OLD).tolist():
            instrument_id, at = int(ids[row]), int(sequence[row])
            if found[row] == k.NOT_NEEDED and (
                at >= updates.suspects.get(instrument_id, at + 1)
                or self.phases.needs_snapshot(instrument_id, self.gaps)
            ):
                found[row] = k.NEEDED
            if at < max(updates.deleted.get(instrument_id, 0), updates.waiting.dropped_until(instrument_id)):
                found[row] = k.TOO_OLD
        return found == k.NEEDED

    def _recover(self, snapshots: Snapshots, is_selected: NDArray[np.bool_]) -> None:
        """Apply the snapshots that help, then the updates after them that are waiting."""
        rows = np.flatnonzero(is_selected)
        rows = rows[self._is_needed(snapshots, rows)]
        if not len(rows):
            return
        replaced, sequences = np.zeros(len(snapshots), np.bool_), dict[int, int]()
        compared: dict[int, tuple[tuple[int, bool, bool], Hashable]] = {}
        content_of = self._updates.content_of
        lending, last_rpt_seq = snapshots.is_lending, snapshots.header.column("last_rpt_seq")
        for row in rows.tolist():
            instrument_id, sequence = int(snapshots.instrument_id[row]), int(snapshots.last_sequence[row])
            number = self.trust.number_of(instrument_id, bool(lending[row]), create=True)
            # The same RptSeq does not prove that the book is the same: a reset may be among what was lost.
            if self.trust.is_known(number, int(last_rpt_seq[row])):
                is_ahead = self.books.rpt_seq(number) != int(last_rpt_seq[row])
                compared[number] = (key := (instrument_id, bool(lending[row]), is_ahead)), content_of(*key)
            replaced[row], sequences[instrument_id] = True, sequence
            if sequence >= self._updates.suspects.get(instrument_id, sequence + 1):
                del self._updates.suspects[instrument_id]
                self.trust.states[number, k.S_INCOMPLETE] = 1  # trades seen may be of the session before too
        self._replace(snapshots, replaced, sequences)
        changed = [number for number, (key, content) in compared.items() if content_of(*key) != content]
        self.trust.states[changed, k.S_INCOMPLETE] = 1

    def _replace(self, snapshots: Snapshots, is_selected: NDArray[np.bool_], sequences: dict[int, int]) -> None:
        events = snapshots.events_of(is_selected)
        self.trust.set_depths(events.rows("snapshot"))
        self.books.apply(events.rows("mbo"))
        surprised = self.phases.groups_surprised(events, self.gaps)
        self._updates.apply_state(events, "snapshot", sequences)
        self._updates.suspect_members(surprised, self.gaps.latest, sequences)
        lending, last_rpt_seq = snapshots.is_lending, snapshots.header.column("last_rpt_seq")
        for row in np.flatnonzero(is_selected).tolist():
            instrument_id = int(snapshots.instrument_id[row])
            number = self.trust.number_of(instrument_id, bool(lending[row]))
            self.trust.set_recovered(number, int(last_rpt_seq[row]), sequences[instrument_id])
            self.phases.verify_instrument(instrument_id, sequences[instrument_id])
        self.phases.compare_statuses(self.gaps, sequences)
        self._updates.waiting.forget_dropped(sequences)
        self._updates.retry(sequences, sequences)
        self.recovered += len(sequences)
