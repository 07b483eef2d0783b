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
from umdf.market.phase_tables import CLOSE, FINAL_CLOSING_CALL, PRE_CLOSE, UNKNOWN
from umdf.market.rows import Events
from umdf.market.state import MarketState, read_statuses
from umdf.market.statistics_kernel import NEW_SESSION
from umdf.sync.gaps import Gap, GapCause, GapLedger
from umdf.sync.snapshots import GroupPhases
from umdf.sync.trust import HEALTHY, Trust, unverified

# A group in one of these may be told to reset its statistics at the end of the day (11.3), which no RptSeq reveals.
BEFORE_END_OF_DAY = (CLOSE, PRE_CLOSE, FINAL_CLOSING_CALL, UNKNOWN)


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
            if before in BEFORE_END_OF_DAY and before != UNKNOWN and self._loss_since(group, gaps):
                surprised.append(group)
            if phase != before:
                self._state.apply(phases.events.take({"status": np.arange(len(rows)) == row}), "snapshot")
                if before != UNKNOWN and group not in surprised:
                    surprised.append(group)
            known.verify_group(group, after)
        return surprised

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

    def resets_since(self, instrument_id: int, sequence: int) -> list[tuple[int, int]]:
        """Sequences and kinds of the messages after a sequence that cleared statistics of the instrument."""
        phases, group = self._state.phases, self._state.instruments.group_of(instrument_id)
        return [
            (when, kind)
            for when, of_group, of_instrument, kind in phases.statistic_resets
            if when > sequence and (of_instrument == instrument_id or (of_group is not None and of_group == group))
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

    def reset_reason_at_end_of_day(self, instrument_id: int, gaps: GapLedger) -> str | None:
        """Why the statistics may have been reset by a message that was lost."""
        return self._reset_reason_of_group(self._state.instruments.group_of(instrument_id), gaps)

    def reset_reasons_at_end_of_day(self, instrument_ids: Iterable[int], gaps: GapLedger) -> dict[int, str]:
        """The same of all instruments for which there is such a reason."""
        instruments = self._state.instruments
        reasons = {group: self._reset_reason_of_group(group, gaps) for group in (None, *instruments.groups())}
        if not any(reasons.values()):
            return {}
        found = ((number, reasons.get(instruments.group_of(number))) for number in instrument_ids)
        return {number: reason for number, reason in found if reason}

    def _reset_reason_of_group(self, group: Group | None, gaps: GapLedger) -> str | None:
        if group is None:
            is_any_reset = any(kind == NEW_SESSION for *_, kind in self._state.phases.statistic_resets)
            return (
                "its statistics may have been reset with those of its group, which is not known"
                if is_any_reset
                else None
            )
        if self._state.phases.phase_of(group) not in BEFORE_END_OF_DAY:
            return None
        gap = self._loss_since(group, gaps)
        return None if gap is None else f"its statistics may have been reset: {gap.reason}"

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
