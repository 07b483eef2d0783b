"""Applies the updates of a channel to its books and its market state, as far as trust allows; the rest waits.

Invariants: an update is applied if its book is not stale and it is the next one (5.2.2), and it is applied and counted
once. What belongs to an update that waits (its trade, its statistic, its status) waits with it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from umdf.book.cancels import NOTHING_REMOVED, complete_cancels, removed_from
from umdf.book.engine import Books
from umdf.book.memory_layout_kernel import VENUE_LENDING
from umdf.market.families import NULL
from umdf.market.instruments import Group
from umdf.market.phase_tables import SESSION_CHANGE
from umdf.market.phases import BEFORE_ALL
from umdf.market.rows import Events, Rows, no_units
from umdf.market.state import BatchChanges, MarketState, Stream
from umdf.market.statistics import StatisticReset
from umdf.market.statistics_kernel import NEW_SESSION
from umdf.sync import update_gate_kernel as k
from umdf.sync.gaps import GapLedger
from umdf.sync.phase_trust import PhaseTrust
from umdf.sync.trust import HEALTHY, BookTrust, Trust, unverified
from umdf.sync.waiting_updates import WaitingUpdates, rows_after

CHANNEL_RESET = ord("R")  # of the family control
GATED_FAMILIES = ("trades", "statistics", "imbalance", "price_band", "status")  # they wait with their book
CLEARED_FAMILIES = ("trades", "statistics", "imbalance")  # of them, resets clear something
RESET_LOST = "a message was lost that may have reset its statistics"


def silent(silent_s: float) -> Trust:
    return unverified(f"nothing was received on any line for {silent_s:.0f} s")


class GatedUpdates:
    """Of one epoch of a channel."""

    def __init__(self, state: MarketState, gaps: GapLedger, *, statuses_have_rpt_seq: bool) -> None:
        self.books = Books(requires_full_history=True)
        self.trust = BookTrust(self.books)
        self.state = state
        self.phases = PhaseTrust(state, statuses_have_rpt_seq=statuses_have_rpt_seq)
        self.waiting = WaitingUpdates()
        self.deleted: dict[int, int] = {}  # instruments, and how far the stream was then
        self.suspects: dict[int, int] = {}  # instruments whose statistics may be wrong, since this sequence
        self.removed: list[NDArray[np.void]] | None = None  # by cancels; `row` is a wire key. None: not noted
        self.early_removed = NOTHING_REMOVED  # by updates that `apply` does not have yet
        self._gaps = gaps

    def apply(self, events: Events, resets: Sequence[StatisticReset] = ()) -> list[int]:
        """Apply what may be applied; returns the instruments of which something waits. `resets` are further ones."""
        rows = events.rows("mbo")
        stale_before = self._stale_before(events)
        if not len(rows):
            if stale_before:
                none = np.zeros(0, np.bool_)
                self._apply_some(events, none, none, stale_before, resets, none)
            else:
                self._apply_now(events, resets)
            return []
        sequence = events.units.sequence[rows.unit]
        gap_before = self._gaps.latest_before(sequence)
        restarted = self._restarted(rows, sequence, gap_before)
        decisions = self.trust.gate(rows, sequence, gap_before)
        self.suspects.update((book, at) for row, book, at in restarted if decisions[row] == k.APPLY)
        if not decisions.any() and not stale_before:
            self._apply_now(events, resets)
            return []
        ids, is_unverified = rows.column("instrument_id"), decisions == k.APPLY_UNVERIFIED
        for row in np.flatnonzero(decisions == k.EMPTIED_UNVERIFIED).tolist():
            self.suspects[int(ids[row])] = int(sequence[row])
        waits, is_old = decisions == k.WAIT, decisions == k.OLD
        later = self._drop_emptied(ids, sequence, decisions, waits, is_old)
        waiting_ids = np.unique(ids[waits])
        if waits.any() or is_old.any() or stale_before:
            self._apply_some(events, waits, is_old, stale_before, resets, is_unverified)
        else:
            self._apply_now(events, resets, is_unverified)
        if later is not None:
            self.apply(later)
        return waiting_ids.tolist()

    def _restarted(
        self, rows: Rows, sequence: NDArray[np.int64], gap_before: NDArray[np.int64]
    ) -> list[tuple[int, int, int]]:
        """The rows with RptSeq 1 after a loss, with instrument and sequence: an Empty Book may have been lost before
        them, which leaves the statistics as they are (4.2.9), and those were not received."""
        found, since = list[tuple[int, int, int]](), self.trust.empty_until
        ids, lending = rows.column("instrument_id"), rows.column("venue") == VENUE_LENDING
        for row in np.flatnonzero((rows.column("rpt_seq") == 1) & (gap_before > since)).tolist():
            number = self.trust.number_of(int(ids[row]), bool(lending[row]))
            is_known = number >= 0 and self.trust.states[number, k.S_VERIFIED] >= gap_before[row]
            before = (ids[:row] == ids[row]) & (lending[:row] == lending[row]) & (sequence[:row] > gap_before[row])
            if not is_known and not before.any():
                found.append((row, int(ids[row]), int(sequence[row])))
        return found

    def suspect_resets(self, late: Events) -> None:
        """Rows that come after the resets that should have cleared them leave statistics and totals that are wrong."""
        for name in CLEARED_FAMILIES if self.phases.has_resets_since(int(late.units.sequence.min())) else ():
            rows = late.rows(name)
            ids, sequence = rows.column("instrument_id"), late.units.sequence[rows.unit]
            for instrument_id in np.unique(ids).tolist():
                first = int(sequence[ids == instrument_id].min())
                self._suspect(instrument_id, self.phases.resets_since(instrument_id, first))

    def _suspect(self, instrument_id: int, resets: Sequence[tuple[int, int]]) -> None:
        """Of an instrument these resets (sequence and kind) were not applied where they belong."""
        if not resets:
            return
        last = max(when for when, _ in resets)
        self.suspects[instrument_id] = max(last, self.suspects.get(instrument_id, last))
        for lending in (False, True):
            number = self.trust.number_of(instrument_id, lending)
            if number >= 0 and any(kind == NEW_SESSION for _, kind in resets):
                self.trust.states[number, k.S_INCOMPLETE] = 1

    def suspect_members(self, groups: Iterable[Group], until: int, answered: Mapping[int, int] | None = None) -> None:
        """A message up to this sequence that is lost may have reset the statistics of these groups; `answered`: the
        sequences of snapshots that have been used."""
        members = (number for group in groups for number in self.state.instruments.members(group))
        known = answered or {}
        self.suspects.update((number, until) for number in members if known.get(number, BEFORE_ALL) < until)

    def suspect_contradicted(self, sequence: int, until: int, *, is_for_groups: bool) -> None:
        """A unit that came with two contents has cleared statistics, or its other content may have been to do so."""
        if is_for_groups or self.phases.has_reset_at(sequence):
            self.suspects.update(dict.fromkeys(self.state.instruments.ids(), until))

    def without_deleted(self, late: Events) -> Events:
        """Late events, without those of instruments that have been deleted since: they would create them again."""
        if not self.deleted or int(late.units.sequence.min()) >= max(self.deleted.values()):
            return late
        kept = {}
        for name, rows in late.families.items():
            deleted = [self.deleted.get(number, -1) for number in rows.column("instrument_id").tolist()]
            kept[name] = late.units.sequence[rows.unit] >= np.array(deleted, np.int64)
        return late.take(kept)

    def _drop_emptied(
        self,
        ids: NDArray[np.int64],
        sequence: NDArray[np.int64],
        decisions: NDArray[np.uint8],
        waits: NDArray[np.bool_],
        is_old: NDArray[np.bool_],
    ) -> Events | None:
        """What waits for books that are emptied is out of date, but not what is later, if the Empty Book came late."""
        is_empty = decisions >= k.EMPTIED
        emptied = np.unique(ids[is_empty])
        if not len(emptied):
            return None
        if emptied[0] == NULL:  # such a message is applied alone
            self.waiting.clear()
            self.suspects.clear()
            last_reset = sequence[ids == NULL].max(keepdims=True)
            self.trust.is_incomplete |= int(self._gaps.latest_before(last_reset)[0]) > self.trust.empty_until
            self.trust.empty_until = int(last_reset[0])
            return None
        last = dict(zip(ids[is_empty].tolist(), sequence[is_empty].tolist(), strict=True))
        for row in np.flatnonzero(waits & np.isin(ids, emptied)).tolist():
            if sequence[row] < last[int(ids[row])]:
                waits[row], is_old[row] = False, True
        older = self.waiting.take(emptied)
        self.waiting.forget_dropped(emptied.tolist())
        return None if older is None else rows_after(older, emptied, last)

    # Trust in books and statistics: of one instrument, and, in arrays, of all.

    def book_trust(self, instrument_id: int, silent_s: float | None) -> Trust:
        number = self.trust.shown_number(instrument_id)
        verified = self.trust.empty_until
        if number >= 0:
            verified = max(verified, int(self.trust.states[number, k.S_VERIFIED]))
        gap = self._gaps.first_after(verified)
        if number >= 0:
            trust = self.trust.trust_of(number, gap)
        else:
            trust = HEALTHY if gap is None else unverified(gap.reason)
        if trust.is_healthy and instrument_id in self.suspects:
            trust = unverified(RESET_LOST)
        if trust.is_healthy and (reason := self.phases.lost_reset_reason(instrument_id, self._gaps)):
            trust = unverified(reason)
        return silent(silent_s) if trust.is_healthy and silent_s is not None else trust

    def untrusted(self, silent_s: float | None) -> dict[int, Trust]:
        """`book_trust` of every instrument that is defined or has a book, if it is not healthy."""
        trust, gaps = self.trust, self._gaps
        ids, numbers = trust.shown_books()
        without_book = np.setdiff1d(np.array(self.state.instruments.ids(), np.int64), ids)
        all_ids = np.concatenate([ids, without_book])
        verified = np.full(len(all_ids), self.trust.empty_until)
        verified[: len(ids)] = np.maximum(trust.states[numbers, k.S_VERIFIED], self.trust.empty_until)
        is_stale = np.zeros(len(all_ids), np.bool_)
        is_stale[: len(ids)] = trust.states[numbers, k.S_STALE] != 0
        found = {int(ids[row]): trust.trust_of(int(numbers[row]), None) for row in np.flatnonzero(is_stale).tolist()}
        by_gap = [unverified(gap.reason) for gap in gaps.missing]
        first_gap = np.searchsorted(gaps.ends, verified, side="right")
        chosen = np.flatnonzero(~is_stale & (first_gap < len(by_gap)))
        found |= {
            number: by_gap[gap]
            for number, gap in zip(all_ids[chosen].tolist(), first_gap[chosen].tolist(), strict=True)
        }
        if others := self.suspects.keys() - found.keys():
            found |= dict.fromkeys(others & set(all_ids.tolist()), unverified(RESET_LOST))
        for number, reason in self.phases.lost_reset_reasons(all_ids.tolist(), gaps).items():
            found.setdefault(number, unverified(reason))
        return found if silent_s is None else dict.fromkeys(all_ids.tolist(), silent(silent_s)) | found

    # Rows without RptSeq: nothing but their place tells whether they come before or after what waits.

    def _stale_before(self, events: Events) -> set[int]:
        """The instruments with such rows whose books were stale before these events."""
        found = set[int]()
        for name, rows in events.families.items():
            if name in GATED_FAMILIES and name != "status":
                ids = rows.column("instrument_id")[rows.column("rpt_seq") == NULL]
                found.update(ids.tolist())
        return {number for number in found if self._is_stale(number)}

    def _is_stale(self, instrument_id: int) -> bool:
        numbers = [self.trust.number_of(instrument_id, lending) for lending in (False, True)]
        return any(number >= 0 and self.trust.states[number, k.S_STALE] for number in numbers)

    def _unnumbered_waits(self, some: Rows, book: Rows, waits: NDArray[np.bool_], stale: set[int]) -> NDArray[np.bool_]:
        """Which rows without RptSeq wait: those of books that are stale at their place."""
        found = np.zeros(len(some), np.bool_)
        ids, orders = some.column("instrument_id"), some.wire_order
        book_ids, book_orders = book.column("instrument_id"), book.wire_order
        for row in np.flatnonzero(some.column("rpt_seq") == NULL).tolist():
            earlier = np.flatnonzero((book_ids == ids[row]) & (book_orders < orders[row]))
            found[row] = waits[earlier[-1]] if len(earlier) else int(ids[row]) in stale
        return found

    # Applying.

    def _apply_some(
        self,
        events: Events,
        waits: NDArray[np.bool_],
        is_old: NDArray[np.bool_],
        stale_before: set[int],
        resets: Sequence[StatisticReset],
        is_unverified: NDArray[np.bool_],
    ) -> None:
        """Apply all but some rows of the family mbo, and what belongs to them."""
        book = events.rows("mbo")
        orders, masks = book.wire_order, {"mbo": waits}
        applied = {name: np.ones(len(some), np.bool_) for name, some in events.families.items()}
        applied["mbo"] = ~(waits | is_old)
        for name in GATED_FAMILIES:
            if name in events.families:
                some = events.families[name]
                own = some.wire_order
                is_waiting = np.isin(own, orders[waits])
                if name != "status":
                    is_waiting |= self._unnumbered_waits(some, book, waits, stale_before)
                masks[name] = is_waiting
                applied[name] = ~(is_waiting | np.isin(own, orders[is_old]))
        self._apply_now(events.take(applied), resets, is_unverified[applied["mbo"]])
        if any(mask.any() for mask in masks.values()):
            self.waiting.add(events.take(masks))

    def _apply_now(
        self, events: Events, resets: Sequence[StatisticReset], is_unverified: NDArray[np.bool_] | None = None
    ) -> None:
        rows = events.rows("mbo")
        if len(rows):
            outcomes = self.books.apply(rows)
            if self.removed is not None and outcomes.removed is not None:
                is_known = np.ones(len(rows), np.bool_) if is_unverified is None else ~is_unverified
                self.removed.append(removed_from(outcomes, wire_keys(events, rows), is_known))
            if outcomes.codes.min() < 0:
                sequence = events.units.sequence[rows.unit]
                events = self._hold_back(events, rows, self.trust.mark_impossible(rows, sequence, outcomes))
        self.apply_state(events, resets=resets)

    def _hold_back(self, events: Events, rows: Rows, first_rows: NDArray[np.int64]) -> Events:
        """An impossible row and everything after it of its instrument: a snapshot may be older than some of it. Returns
        the rest."""
        orders, masks = rows.wire_order, {name: np.zeros(len(some), np.bool_) for name, some in events.families.items()}
        for row in first_rows.tolist():
            instrument_id = int(rows.column("instrument_id")[row])
            for name in ("mbo", *GATED_FAMILIES):
                if name in events.families:
                    some = events.families[name]
                    masks[name] |= (some.column("instrument_id") == instrument_id) & (some.wire_order >= orders[row])
        if not len(first_rows):
            return events
        self.waiting.add(events.take(masks))
        return events.take({name: ~mask for name, mask in masks.items()})

    def content_of(self, instrument_id: int, lending: bool, is_ahead: bool) -> Hashable:
        """What trades would have changed. A book that is ahead of the stream (`early_removed`) cannot be compared."""
        book = None if is_ahead else self.books.book(instrument_id, lending=lending)
        venues = self.state.statistics.tape.venues_of(instrument_id).items()
        return book and book.checksum, *((venue, last and last.price) for venue, (last, _) in venues)

    def apply_state(
        self,
        events: Events,
        stream: Stream = "incremental",
        as_of: dict[int, int] | None = None,
        resets: Sequence[StatisticReset] = (),
    ) -> BatchChanges:
        instruments, groups, defined = self.state.instruments, dict[int, Group | None](), BEFORE_ALL
        if "definition" in events.families:
            rows = events.rows("definition")
            groups = {number: instruments.group_of(number) for number in rows.column("instrument_id").tolist()}
            if stream == "incremental":
                defined = int(events.units.sequence[rows.unit[0]])
        changes = self.state.apply(events, stream, as_of, resets)
        for instrument_id in (*changes.added, *changes.modified):
            # Messages of its group that came before the definition did not reach the instrument.
            if instruments.group_of(instrument_id) != groups[instrument_id]:
                self._suspect(instrument_id, self.phases.resets_since(instrument_id, defined, groups[instrument_id]))
        for instrument_id in changes.deleted:
            for lending in (False, True):
                self.trust.forget(instrument_id, lending)
            self.books.delete_instrument(instrument_id)
            self.waiting.discard([instrument_id])
            self.suspects.pop(instrument_id, None)
            if stream == "incremental":
                self.deleted[instrument_id] = int(events.units.sequence[-1])
        for instrument_id in (*changes.added, *changes.modified):
            depth = self.state.instruments.depth_of(instrument_id, self.state.channel)
            if depth is not None:
                self.trust.set_depth(instrument_id, depth)
        for instrument_id in changes.new_sessions:
            for lending in (False, True):
                number = self.trust.number_of(instrument_id, lending)
                if number >= 0 and not self.trust.states[number, k.S_STALE]:
                    self.trust.states[number, k.S_INCOMPLETE] = 0
        return changes

    def complete_cancels(self, events: Events) -> None:
        """Give cancels that state no price (Binary before version 11) what they removed from healthy books."""
        noted, early = self.removed or [], self.early_removed
        if not noted and not len(early):
            return
        if len(early) and len(events.units):
            is_due = early["row"] >> 32 <= events.units.sequence[-1]
            noted, self.early_removed = [*noted, early[is_due]], early[~is_due]
        self.removed, rows = [], events.rows("mbo")
        removed = np.concatenate([NOTHING_REMOVED, *noted])
        _, index, at = np.intersect1d(wire_keys(events, rows), removed["row"], return_indices=True)
        removed = removed[at]
        removed["row"] = index
        complete_cancels(rows, [removed])

    def retry(self, instrument_ids: Iterable[int], after: dict[int, int] | None = None) -> None:
        """Feed waiting updates of some instruments again, with `after` only those after a sequence."""
        ids = np.array(sorted(instrument_ids), np.int64)
        for instrument_id in ids.tolist():
            for lending in (False, True):
                number = self.trust.number_of(instrument_id, lending)
                if number >= 0:
                    self.trust.retry(number)
        events = self.waiting.take(ids) if len(ids) else None
        if after is None:
            if events is not None:
                self.suspect_resets(events)
                self.apply(events)
            return
        events = Events(no_units(), {}) if events is None else rows_after(events, ids, after)
        resets = [
            StatisticReset(_order_after(events, sequence), instrument_id, kind)
            for instrument_id in ids.tolist()
            for sequence, kind in self.phases.resets_since(instrument_id, after[instrument_id])
        ]
        if resets or len(events.units):
            self.apply(events, resets)


def wire_keys(events: Events, rows: Rows) -> NDArray[np.int64]:
    """A number for each row that no other row of the family has in this epoch."""
    return events.units.sequence[rows.unit].astype(np.int64) << 32 | rows.wire_order & 0xFFFF_FFFF


def _order_after(events: Events, sequence: int) -> int:
    """The position in wire order behind the unit of a sequence."""
    return (int(np.searchsorted(events.units.sequence, sequence, side="right")) << 32) - 1


def resets_many(events: Events) -> NDArray[np.bool_]:
    """Which units have a channel reset, or the change of a group's trading session (11.3)."""
    found = np.zeros(len(events.units), np.bool_)
    control, status = events.rows("control"), events.rows("status")
    found[control.unit[control.column("kind") == CHANNEL_RESET]] = True
    is_change = (status.column("instrument_id") == NULL) & (status.column("event") == SESSION_CHANGE)
    found[status.unit[is_change]] = True
    return found
