"""One channel: its books and its market state, through gaps, late joins and resets.

    channel.open_gap(gap)                # units are missing
    channel.apply(events)                # events of the incremental stream, in order, each unit once
    channel.apply_late(events)           # units of a reported gap that arrived after all
    channel.apply_snapshots(snapshots)   # snapshots of the snapshot stream
    channel.book_trust(instrument_id)    # healthy, unverified or stale, with the reason

Invariant: nothing wrong is shown as right. A book is healthy only if its whole history is known: from its first update
(83 RptSeq 1), from an Empty Book, or from a snapshot and everything after it. A stale book stays as it was, and its
updates wait; missing ones that arrive, or a snapshot, recover it. Nothing is applied or counted twice.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from umdf.book.engine import Books
from umdf.book.views import Book
from umdf.market.families import NULL
from umdf.market.phases import BEFORE_ALL, Phases
from umdf.market.rows import Events, Rows, Units
from umdf.market.state import BatchChanges, MarketState, Stream
from umdf.market.statistics import StatisticReset
from umdf.sync import update_gate_kernel as k
from umdf.sync.gaps import Gap, GapCause, GapLedger
from umdf.sync.phase_trust import PhaseTrust
from umdf.sync.snapshots import GroupPhases, Snapshots
from umdf.sync.trust import HEALTHY, NEW_STATE, BookTrust, Trust, unverified
from umdf.sync.waiting_updates import WaitingUpdates, rows_after

LENDING = ord("L")
GATED_FAMILIES = ("trades", "statistics", "imbalance", "price_band", "status")  # they wait with their book


class Channel:
    def __init__(self, number: int, *, statuses_have_rpt_seq: bool = True) -> None:
        self.number = number
        self._statuses_have_rpt_seq = statuses_have_rpt_seq
        self.gaps = GapLedger()
        self.epoch: int | None = None
        self.sequence = 0  # the last one applied or given up
        self.ts_send = NULL
        self.silent_s: float | None = None  # how long all lines have been silent, if for too long (4.1.1)
        self.recovered = 0  # books recovered by a snapshot
        self.messages = 0
        self._instruments_until = k.UNVERIFIED_FROM_START  # books that do not exist are empty as of this sequence
        self._reset(MarketState(number, by_sequence=True))

    def _reset(self, state: MarketState) -> None:
        self.books = Books(requires_full_history=True)
        self.trust = BookTrust(self.books)
        self.state = state
        self.phases = PhaseTrust(state, statuses_have_rpt_seq=self._statuses_have_rpt_seq)
        self._waiting = WaitingUpdates()
        self._ahead: list[Snapshots] = []  # newer than the applied updates
        self._phases_ahead: list[GroupPhases] = []
        self._deleted: dict[int, int] = {}  # instruments, and how far the stream was then
        self._suspects: dict[int, int] = {}  # instruments whose statistics may be wrong, since this sequence

    # Input, in the order of the incremental stream.

    def start_epoch(self, epoch: int, first: int, ts_recv: int) -> None:
        """A numbering starts: that of the first unit ever received, or a new one, after which everything is
        synchronised as at the start of the day (4.2.8). Instruments are kept."""
        is_first = self.epoch is None
        self.epoch, self.sequence = epoch, first - 1
        if is_first:
            if first > 1:
                self.gaps.open(Gap(epoch, 1, first - 1, ts_recv, GapCause.JOIN))
            return
        instruments = self.state.instruments
        state = MarketState(self.number, by_sequence=True)
        state.instruments, state.phases = instruments, Phases(instruments)
        self._reset(state)
        self._instruments_until = k.UNVERIFIED_FROM_START
        self.gaps.start_epoch()
        self.gaps.open(Gap(epoch, 0, 0, ts_recv, GapCause.EPOCH))

    def open_gap(self, gap: Gap) -> None:
        """Units are missing: every instrument is unverified until an update or snapshot shows that it is unaffected."""
        self.gaps.open(gap)
        self.state.phases.has_losses = True
        self.sequence = max(self.sequence, gap.last)

    def apply(self, events: Events) -> None:
        """Events of the incremental stream, in order, each sequence once."""
        units = events.units
        if len(units):
            self.sequence, self.ts_send = max(self.sequence, int(units.sequence[-1])), int(units.ts_send[-1])
        self._apply_gated(events)
        self.messages += len(events.rows("mbo"))
        self._use_snapshots_ahead()

    def apply_late(self, events: Events) -> None:
        """Units of reported gaps: what was waiting for them can follow."""
        for sequence in events.units.sequence.tolist():
            self.gaps.fill(sequence)
        waiting = self._apply_gated(events)
        self.messages += len(events.rows("mbo"))
        self._retry(waiting)
        self._use_snapshots_ahead()

    def apply_instruments(self, events: Events) -> None:
        """Events of the instrument stream, which repeats the start-of-day list."""
        definitions = {"definition": np.ones(len(events.rows("definition")), np.bool_)}
        changes = self._apply_state(events.take(definitions), "instruments")
        for instrument_id in changes.added:  # what its group was told before its definition came was not told to it
            if resets := self.phases.resets_since(instrument_id, BEFORE_ALL):
                self._suspects[instrument_id] = max(when for when, _ in resets)

    def apply_snapshots(self, snapshots: Snapshots, phases: GroupPhases | None = None) -> None:
        """Snapshots of the current epoch. Only instruments that are not healthy use them."""
        if phases is not None and len(phases.after):
            self._phases_ahead.append(phases)
        if snapshots.is_complete.any():
            newer = snapshots.instrument_id[snapshots.is_complete]
            for older in self._ahead:
                older.is_complete[np.isin(older.instrument_id, newer)] = False
            self._ahead.append(snapshots)
        self._use_snapshots_ahead()

    def finish(self) -> None:
        """No more units will come. A snapshot that is ahead shows that units before it are missing."""
        ahead = max((int(some.last_sequence[some.is_complete].max()) for some in self._ahead), default=0)
        if self.epoch is not None and ahead > self.sequence:
            self.open_gap(Gap(self.epoch, self.sequence + 1, ahead, NULL))
            self._use_snapshots_ahead()

    # What the channel shows.

    def instrument_ids(self) -> set[int]:
        """The instruments that have a book."""
        return {instrument_id for instrument_id, _ in self.books.instruments()}

    def book(self, instrument_id: int) -> Book | None:
        """An instrument's book; its lending book, if the ordinary one has no orders (9.8)."""
        return self.books.shown_book(instrument_id)

    def _shows_lending(self, instrument_id: int) -> bool:
        book = self.books.shown_book(instrument_id)
        return book is not None and book.lending

    def book_trust(self, instrument_id: int) -> Trust:
        """Trust in an instrument's book and statistics."""
        number = self.trust.number_of(instrument_id, self._shows_lending(instrument_id))
        verified = self._instruments_until
        if number >= 0:
            verified = max(verified, int(self.trust.states[number, k.S_VERIFIED]))
        gap = self.gaps.first_after(verified)
        trust = self.trust.trust_of(number, gap) if number >= 0 else HEALTHY if gap is None else unverified(gap.reason)
        if trust.is_healthy and instrument_id in self._suspects:
            trust = unverified("a message was lost that may have reset its statistics")
        if trust.is_healthy and (reason := self.phases.end_of_day_doubt(instrument_id, self.gaps)):
            trust = unverified(reason)
        if trust.is_healthy and self.silent_s is not None:
            trust = unverified(f"nothing was received on any line for {self.silent_s:.0f} s")
        return trust

    def state_trust(self, instrument_id: int) -> Trust:
        """Trust in an instrument's phase and state."""
        trust = self.book_trust(instrument_id)
        return self.phases.trust_of(instrument_id, self.gaps) if trust.is_healthy else trust

    def trades_incomplete(self, instrument_id: int) -> bool:
        """Whether trades of the session may be missing from those seen."""
        number = self.trust.number_of(instrument_id, self._shows_lending(instrument_id))
        if number < 0:
            return not self.book_trust(instrument_id).is_healthy
        return bool(self.trust.states[number, k.S_INCOMPLETE]) or not self.book_trust(instrument_id).is_healthy

    # Updates.

    def _apply_gated(self, events: Events, resets: Sequence[StatisticReset] = ()) -> list[int]:
        """Apply what may be applied; returns the instruments of which something waits."""
        rows = events.rows("mbo")
        if not len(rows):
            self._apply_now(events, resets)
            return []
        sequence = events.units.sequence[rows.unit]
        decisions = self.trust.gate(rows, sequence, self.gaps.latest_before(sequence))
        if not decisions.any():
            self._apply_now(events, resets)
            return []
        ids = rows.column("instrument_id")
        for row in np.flatnonzero(decisions == k.EMPTIED_IN_DOUBT).tolist():
            self._suspects[int(ids[row])] = int(sequence[row])
        emptied = np.unique(ids[decisions >= k.EMPTIED])
        later: Events | None = None
        if len(emptied):
            if emptied[0] == NULL:
                self._waiting.clear()
                self._suspects.clear()
                self._instruments_until = int(sequence[ids == NULL].max())
            elif (older := self._waiting.take(emptied)) is not None:  # all of it, unless the Empty Book is late
                is_empty = decisions >= k.EMPTIED
                last = dict(zip(ids[is_empty].tolist(), sequence[is_empty].tolist(), strict=True))
                later = rows_after(older, emptied, last)
                self._waiting.forget_dropped(emptied.tolist())
        waits, is_old = decisions == k.WAIT, decisions == k.OLD
        waiting_ids = np.unique(ids[waits])
        if waits.any() or is_old.any():
            self._apply_some(events, waits, is_old, waiting_ids, resets)
        else:
            self._apply_now(events, resets)
        if later is not None:
            self._apply_gated(later)
        return waiting_ids.tolist()

    def _apply_some(
        self,
        events: Events,
        waits: NDArray[np.bool_],
        is_old: NDArray[np.bool_],
        waiting_ids: NDArray[np.int64],
        resets: Sequence[StatisticReset],
    ) -> None:
        """Apply all but some rows of the family mbo, and what belongs to them."""
        orders, masks = events.rows("mbo").wire_order, {"mbo": waits}
        applied = {name: np.ones(len(some), np.bool_) for name, some in events.families.items()}
        applied["mbo"] = ~(waits | is_old)
        for name in GATED_FAMILIES:
            if name in events.families:
                some = events.families[name]
                own = some.wire_order
                is_waiting = np.isin(own, orders[waits])
                if name != "status":  # without RptSeq nothing else tells where it belongs
                    unnumbered = some.column("rpt_seq") == NULL
                    is_waiting |= unnumbered & np.isin(some.column("instrument_id"), waiting_ids)
                masks[name] = is_waiting
                applied[name] = ~(is_waiting | np.isin(own, orders[is_old]))
        self._apply_now(events.take(applied), resets)
        if waits.any():
            self._waiting.add(events.take(masks))

    def _apply_now(self, events: Events, resets: Sequence[StatisticReset]) -> None:
        rows = events.rows("mbo")
        if len(rows):
            outcomes = self.books.apply(rows)
            if outcomes.codes.min() < 0:
                sequence = events.units.sequence[rows.unit]
                self._hold_back(events, rows, self.trust.mark_impossible(rows, sequence, outcomes))
        self._apply_state(events, resets=resets)

    def _hold_back(self, events: Events, rows: Rows, first_rows: NDArray[np.int64]) -> None:
        """An impossible row and everything after it of its instrument: a snapshot may be older than some of it."""
        orders, masks = rows.wire_order, {name: np.zeros(len(some), np.bool_) for name, some in events.families.items()}
        for row in first_rows.tolist():
            instrument_id = int(rows.column("instrument_id")[row])
            for name in ("mbo", *GATED_FAMILIES):
                if name in events.families:
                    some = events.families[name]
                    masks[name] |= (some.column("instrument_id") == instrument_id) & (some.wire_order >= orders[row])
        if len(first_rows):
            self._waiting.add(events.take(masks))

    def _apply_state(
        self,
        events: Events,
        stream: Stream = "incremental",
        as_of: dict[int, int] | None = None,
        resets: Sequence[StatisticReset] = (),
    ) -> BatchChanges:
        changes = self.state.apply(events, stream, as_of, resets)
        self._follow_definitions(changes)
        for instrument_id in changes.new_sessions:
            for lending in (False, True):
                number = self.trust.number_of(instrument_id, lending)
                if number >= 0 and not self.trust.states[number, k.S_STALE]:
                    self.trust.states[number, k.S_INCOMPLETE] = 0
        return changes

    def _follow_definitions(self, changes: BatchChanges) -> None:
        for instrument_id in changes.deleted:
            for lending in (False, True):
                self.trust.forget(instrument_id, lending)
            self.books.delete_instrument(instrument_id)
            self._waiting.discard([instrument_id])
            self._deleted[instrument_id] = self.sequence
        for instrument_id in (*changes.added, *changes.modified):
            depth = self.state.instruments.depth_of(instrument_id, self.number)
            if depth is not None:
                self.books.set_depth(instrument_id, depth)

    def _retry(self, instrument_ids: Iterable[int], after: dict[int, int] | None = None) -> None:
        """Feed waiting updates of some instruments again, with `after` only those after a sequence."""
        ids = np.array(sorted(instrument_ids), np.int64)
        for instrument_id in ids.tolist():
            for lending in (False, True):
                number = self.trust.number_of(instrument_id, lending)
                if number >= 0:
                    self.trust.retry(number)
        events = self._waiting.take(ids) if len(ids) else None
        if after is None:
            if events is not None:
                self._apply_gated(events)
            return
        events = Events(_NO_UNITS, {}) if events is None else rows_after(events, ids, after)
        resets = [
            StatisticReset(_order_after(events, sequence), instrument_id, kind)
            for instrument_id in ids.tolist()
            for sequence, kind in self.phases.resets_since(instrument_id, after[instrument_id])
        ]
        if resets or len(events.units):
            self._apply_gated(events, resets)

    # Snapshots.

    def _use_snapshots_ahead(self) -> None:
        if self._phases_ahead:
            waiting = []
            for phases in self._phases_ahead:
                reached = phases.until <= self.sequence
                if reached.any():
                    self._apply_group_phases(phases, reached)
                if not reached.all():
                    waiting.append(phases.take(~reached))
            self._phases_ahead = waiting
        for snapshots in list(self._ahead):
            reached = snapshots.is_complete & (snapshots.last_sequence <= self.sequence)
            if reached.any():
                self._recover(snapshots, reached)
                snapshots.is_complete[reached] = False
            if not snapshots.is_complete.any():
                self._ahead.remove(snapshots)

    def _apply_group_phases(self, phases: GroupPhases, is_selected: NDArray[np.bool_]) -> None:
        for group in self.phases.apply_snapshot(phases.take(is_selected)):
            for instrument_id in self.state.instruments.members(group):
                self._suspects[instrument_id] = self.sequence

    def _recover(self, snapshots: Snapshots, is_selected: NDArray[np.bool_]) -> None:
        """Apply the snapshots that help, then the updates after them that are waiting."""
        replaced = np.zeros(len(snapshots), np.bool_)
        sequences: dict[int, int] = {}
        compared: dict[int, tuple[tuple[int, bool], Hashable]] = {}
        lending = snapshots.is_lending
        last_rpt_seq = snapshots.header.column("last_rpt_seq")
        for row in snapshots.newest(is_selected):
            instrument_id, sequence = int(snapshots.instrument_id[row]), int(snapshots.last_sequence[row])
            if sequence < self._deleted.get(instrument_id, 0):
                continue
            number = self.trust.number_of(instrument_id, bool(lending[row]))
            state = self.trust.states[number] if number >= 0 else NEW_STATE
            verified = max(int(state[k.S_VERIFIED]), self._instruments_until)
            is_suspect = instrument_id in self._suspects and sequence >= self._suspects[instrument_id]
            is_known = state[k.S_APPLIED] > k.UNVERIFIED_FROM_START
            is_healthy = not state[k.S_STALE] and self.gaps.latest <= verified and (is_known or self.gaps.latest < 0)
            if sequence < state[k.S_APPLIED] or sequence < self._waiting.dropped_until(instrument_id):
                continue
            if is_healthy and is_known and not is_suspect and not self.phases.needs_snapshot(instrument_id, self.gaps):
                continue
            # The same RptSeq does not prove that the book is the same: a reset may be among what was lost.
            if not state[k.S_STALE] and is_known and state[k.S_RPT_SEQ] == last_rpt_seq[row]:
                compared[number] = (key := (instrument_id, bool(lending[row]))), self._content(*key)
            replaced[row], sequences[instrument_id] = True, sequence
            self._suspects.pop(instrument_id, None)
        if replaced.any():
            self._replace(snapshots, replaced, sequences)
        changed = [number for number, (key, content) in compared.items() if self._content(*key) != content]
        self.trust.states[changed, k.S_INCOMPLETE] = 1

    def _content(self, instrument_id: int, lending: bool) -> Hashable:
        """What trades would have changed."""
        book = self.books.book(instrument_id, lending=lending)
        venues = self.state.statistics.tape.venues_of(instrument_id).items()
        return book and book.checksum, *((venue, last and last.price) for venue, (last, _) in venues)

    def _replace(self, snapshots: Snapshots, is_selected: NDArray[np.bool_], sequences: dict[int, int]) -> None:
        events = snapshots.events_of(is_selected)
        self._set_depths(events)
        self.books.apply(events.rows("mbo"))
        self._apply_state(events, "snapshot", sequences)
        lending, last_rpt_seq = snapshots.is_lending, snapshots.header.column("last_rpt_seq")
        for row in np.flatnonzero(is_selected).tolist():
            instrument_id = int(snapshots.instrument_id[row])
            number = self.trust.number_of(instrument_id, bool(lending[row]), create=True)
            self.trust.set_recovered(number, int(last_rpt_seq[row]), sequences[instrument_id])
            self.phases.verify_instrument(instrument_id, sequences[instrument_id])
        self._waiting.forget_dropped(sequences)
        self._retry(sequences, sequences)
        self.recovered += len(sequences)

    def _set_depths(self, events: Events) -> None:
        """264 of a snapshot determines the book type (9.1)."""
        header = events.rows("snapshot")
        depth = header.column("depth")
        for row in np.flatnonzero(depth != np.iinfo(np.int32).min).tolist():
            self.books.set_depth(int(header.column("instrument_id")[row]), int(depth[row]))


_NO_UNITS = Units(*[np.empty(0, np.int64)] * 5)


def _order_after(events: Events, sequence: int) -> int:
    """The position in wire order behind the unit of a sequence."""
    return (int(np.searchsorted(events.units.sequence, sequence, side="right")) << 32) - 1
