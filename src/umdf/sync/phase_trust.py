"""Trust in the phases of groups and the states of instruments.

After a gap both are unverified until a message or a snapshot answers. A group's messages have no RptSeq: only its next
message, or its phase in a snapshot loop that is as of a later sequence, shows what it is (11.4). An instrument's own
status has a RptSeq in Binary, so its book vouches for it; in FIX/FAST it has none.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from umdf.market.families import NULL
from umdf.market.instruments import Group
from umdf.market.phase_tables import CLOSE, FINAL_CLOSING_CALL, PRE_CLOSE, PRE_OPEN, UNKNOWN
from umdf.market.rows import Events
from umdf.market.state import MarketState, read_statuses
from umdf.market.statistics_kernel import NEW_SESSION
from umdf.sync.gaps import Gap, GapCause, GapLedger
from umdf.sync.snapshots import GroupPhases
from umdf.sync.trust import HEALTHY, Trust, unverified

# A group in one of these may be told to reset its statistics at the end of the day (11.3), which no RptSeq reveals.
BEFORE_END_OF_DAY = (CLOSE, PRE_CLOSE, FINAL_CLOSING_CALL, UNKNOWN)
MAX_LOSS_NS = 60 * 10**9  # from another phase to such a message it takes longer


class PhaseTrust:
    def __init__(self, state: MarketState, *, statuses_have_rpt_seq: bool) -> None:
        self._state, self._statuses_have_rpt_seq = state, statuses_have_rpt_seq

    def apply_snapshot(self, phases: GroupPhases, gaps: GapLedger) -> list[Group]:
        """Apply the phases of groups from a snapshot loop. Returns the groups of which a message was lost, or one that
        changes nothing but statistics may have been."""
        rows, surprised, after, until = phases.events.rows("status"), [], phases.after, phases.until
        for row, status in enumerate(read_statuses(phases.events, "snapshot")):
            group = status.group
            phase, known = status.state if status.phase is None else status.phase, self._state.phases
            if group is None or phase is None:
                continue
            known.note_phase(group, after, until, phase, gaps.is_unbroken)
            if known.sequence_of_group(group) > after:
                continue  # nobody knows whether the message or the snapshot loop is newer
            before = known.phase_of(group)
            if before != UNKNOWN and self._lost_reset(group, gaps):
                surprised.append(group)
            if phase != before:
                self._state.apply(phases.events.take({"status": np.arange(len(rows)) == row}), "snapshot")
                if before != UNKNOWN and group not in surprised:
                    surprised.append(group)
            known.verify_group(group, after)
        return surprised

    def groups_surprised(self, snapshots: Events, gaps: GapLedger) -> list[Group]:
        """The groups whose phases come with these snapshots of instruments, as in FIX/FAST (11.4), and of which a
        message was lost that may have reset the statistics of the other members."""
        rows, found, instruments = snapshots.rows("status"), dict[Group, None](), self._state.instruments
        has_phase = rows.column("phase") != rows.family.column("phase").null
        if not has_phase.any() or all(gap.cause in (GapCause.JOIN, GapCause.EPOCH) for gap in gaps.missing):
            return []
        for status in read_statuses(snapshots.take({"status": has_phase}), "snapshot"):
            group = None if status.instrument_id is None else instruments.group_of(status.instrument_id)
            if group is None or group in found or (before := self._state.phases.phase_of(group)) == UNKNOWN:
                continue
            if self._lost_reset(group, gaps) or (status.phase != before and self._loss_since(group, gaps)):
                found[group] = None
        return list(found)

    def verify_instrument(self, instrument_id: int, sequence: int) -> None:
        """A snapshot of this sequence had the state of the instrument."""
        self._state.phases.verify_instrument(instrument_id, sequence)

    def compare_statuses(self, gaps: GapLedger, instrument_ids: Iterable[int] | None = None) -> None:
        """Find out whether instruments (default: all) follow their groups, if a snapshot has left it open."""
        self._state.phases.compare_statuses(gaps.is_unbroken, instrument_ids)

    def needs_snapshot(self, instrument_id: int, gaps: GapLedger) -> bool:
        """Whether only a snapshot can tell what the instrument's own state is."""
        if not self._state.phases.is_certain(instrument_id):
            return True
        if self._statuses_have_rpt_seq or gaps.latest < 0:
            return False
        return self._state.phases.sequence_of_instrument(instrument_id) < gaps.latest

    def trust_of(self, instrument_id: int, gaps: GapLedger) -> Trust:
        """Of an instrument with a healthy book."""
        phases, group = self._state.phases, self._state.instruments.group_of(instrument_id)
        if group is None:
            return unverified("no definition of it was received, so its group is not known")
        if gap := gaps.first_after(phases.sequence_of_group(group)):
            return unverified(f"its group's phase is not certain: {gap.reason}")
        if not phases.is_certain(instrument_id):
            return unverified("messages were lost, and its last status does not tell whether it follows its group")
        if not self._statuses_have_rpt_seq and (gap := gaps.first_after(phases.sequence_of_instrument(instrument_id))):
            return unverified(gap.reason)
        return HEALTHY

    def has_resets_since(self, sequence: int) -> bool:
        """Whether a message after a sequence has cleared statistics."""
        return any(when > sequence for when, *_ in self._state.phases.statistic_resets)

    def has_reset_at(self, sequence: int) -> bool:
        return any(when == sequence for when, *_ in self._state.phases.statistic_resets)

    def resets_since(
        self, instrument_id: int, sequence: int, former_group: Group | None = None
    ) -> list[tuple[int, int]]:
        """Sequences and kinds of the messages after a sequence that cleared statistics of the instrument, or of a group
        in which it may have been then."""
        groups = {self._state.instruments.group_of(instrument_id), former_group} - {None}
        return [
            (when, kind)
            for when, of_group, of_instrument, kind in self._state.phases.statistic_resets
            if when > sequence and (of_instrument == instrument_id or of_group in groups)
        ]

    def has_uncertain(self, instrument_ids: Iterable[int], gaps: GapLedger) -> bool:
        """Whether `trust_of` is not healthy for any of these instruments."""
        phases, instruments, latest = self._state.phases, self._state.instruments, gaps.latest
        if any(phases.sequence_of_group(group) < latest for group in instruments.groups()):
            return True
        needs_status = not self._statuses_have_rpt_seq and latest >= 0
        return any(
            instruments.group_of(number) is None
            or not phases.is_certain(number)
            or (needs_status and phases.sequence_of_instrument(number) < latest)
            for number in instrument_ids
        )

    def lost_reset_reason(self, instrument_id: int, gaps: GapLedger) -> str | None:
        """Why the statistics may have been reset by a message that was lost."""
        group = self._state.instruments.group_of(instrument_id)
        if reason := self._reset_reason_of_group(group, gaps):
            return reason
        reason = self._auction_reason_of_group(group, gaps)
        return reason if reason and self._state.statistics.has_auction_values(instrument_id) else None

    def lost_reset_reasons(self, instrument_ids: Iterable[int], gaps: GapLedger) -> dict[int, str]:
        """The same of all instruments for which there is such a reason."""
        instruments, found = self._state.instruments, dict[int, str]()
        groups = (None, *instruments.groups())
        reasons = {group: self._reset_reason_of_group(group, gaps) for group in groups}
        in_auction = {group: self._auction_reason_of_group(group, gaps) for group in groups}
        is_any_in_auction = any(in_auction.values())
        with_auction_values = self._state.statistics.with_auction_values() if is_any_in_auction else set[int]()
        for number in instrument_ids if is_any_in_auction or any(reasons.values()) else ():
            group = instruments.group_of(number)
            of_auction = in_auction.get(group) if number in with_auction_values else None
            if reason := reasons.get(group) or of_auction:
                found[number] = reason
        return found

    def _reset_reason_of_group(self, group: Group | None, gaps: GapLedger) -> str | None:
        if group is None:
            is_any_reset = any(kind == NEW_SESSION for *_, kind in self._state.phases.statistic_resets)
            return (
                "its statistics may have been reset with those of its group, which is not known"
                if is_any_reset
                else None
            )
        gap = self._lost_reset(group, gaps)
        return None if gap is None else f"its statistics may have been reset: {gap.reason}"

    def _auction_reason_of_group(self, group: Group | None, gaps: GapLedger) -> str | None:
        """Why the theoretical prices and imbalances of a group may be those of an auction that is over (10.7)."""
        if group is None or self._state.phases.phase_of(group) != PRE_OPEN:
            return None
        gap = self._loss_since(group, gaps)
        return None if gap is None else f"its auction may be over: {gap.reason}"

    def _lost_reset(self, group: Group, gaps: GapLedger) -> Gap | None:
        """The loss in which the statistics of a group may have been reset: at the end of the day, or in a time so long
        that the day may have come to its end."""
        gap = self._loss_since(group, gaps)
        if gap is None or self._state.phases.phase_of(group) in BEFORE_END_OF_DAY:
            return gap
        return gap if gap.ts_before != NULL and gaps.missing[-1].ts_recv > gap.ts_before + MAX_LOSS_NS else None

    def groups_after_losses(self, events: Events, gaps: GapLedger) -> list[Group]:
        """The groups that have messages among these events, and may have had others before them that were lost."""
        if gaps.latest < 0:
            return []
        statuses = read_statuses(
            events.take({"status": events.rows("status").column("instrument_id") == NULL}), "incremental"
        )
        groups = {status.group for status in statuses if status.group is not None}
        return [group for group in groups if self._loss_since(group, gaps)]

    def _loss_since(self, group: Group, gaps: GapLedger) -> Gap | None:
        """The first gap after what is known of a group; a join loses nothing."""
        gap = gaps.first_after(self._state.phases.sequence_of_group(group))
        while gap is not None and gap.cause in (GapCause.JOIN, GapCause.EPOCH):
            gap = gaps.first_after(gap.last)
        return gap
