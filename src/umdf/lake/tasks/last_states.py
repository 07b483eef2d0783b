"""The phase and the state of every instrument, up to the end of the processed part of the day.

The incremental stream decides (rules in market/phases.py); if it never mentioned a group or an instrument, the newest
snapshot does, as for the statistics. So it does not matter into how many parts a day is divided.

After a gap the phase of a group is unverified, and its members have no state, until the group's next message or a
snapshot of a sequence behind the gap answers (11.4). An instrument's own status has an RptSeq in Binary: if one is
lost, its book says so. In FAST it has none, and what was before a join nobody knows: there the own state is unverified
too.

Invariant: the work grows with the statuses, not with the instruments: an instrument that is never mentioned follows
its group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.lake.tasks.instrument_list import InstrumentList
from umdf.market.families import NULL, NULL_I16
from umdf.market.instruments import Group
from umdf.market.phase_tables import REJOINS, SEPARATES, UNKNOWN
from umdf.market.phases import Phases, Status
from umdf.market.rows import Events, Numbers
from umdf.market.state import read_statuses

Codes = NDArray[np.int16]
_CREATED, _DELETED, _RESET = ord("A"), ord("D"), ord("R")
_NO_PHASES: dict[str, Any] = {"groups": [], "own": [], "resets": [[0]]}
SEQUENCE_BITS = 40  # of a position in the incremental stream: rank of the epoch, sequence
NOWHERE = -1  # a position before everything


class StreamGaps:
    """The gaps of a channel-day so far, by position. As after a gap, what was known before an epoch starts does not
    count in it (4.2.8)."""

    def __init__(
        self, gaps: Sequence[tuple[int, int, int]] = (), join: int = NOWHERE, later_epochs: Sequence[int] = ()
    ) -> None:
        """(epoch's rank, first, last) of each; the position where a join ends; the ranks of epochs that started."""
        starts = [rank << SEQUENCE_BITS for rank in later_epochs]
        ends = [rank << SEQUENCE_BITS | last for rank, _, last in gaps]
        self.ends = np.sort(np.array([*ends, *starts], np.int64))
        self.start = max([join, *starts])  # nothing before it is known

    @property
    def last(self) -> int:
        """The end of the last one."""
        return int(self.ends[-1]) if len(self.ends) else NOWHERE

    def lie_between(self, position: int, until: int) -> bool:
        at = np.searchsorted(self.ends, [position, until], side="right")
        return bool(at[1] > at[0])


class LastStates:
    """Of a channel-day. `stored` is the result of `to_json` after the previous part; `has_rpt_seq`: own statuses do."""

    def __init__(
        self,
        stored: Mapping[str, Any],
        instruments: InstrumentList,
        versions: Sequence[int],
        gaps: StreamGaps | None = None,
        has_rpt_seq: bool = True,
    ) -> None:
        self._gaps, self._has_rpt_seq, self._ids = gaps or StreamGaps(), has_rpt_seq, instruments.ids
        # Without the row for unknown instruments.
        self._group_of = dict(zip(instruments.ids.tolist(), instruments.groups[:-1], strict=True))
        self._ranks = {version: rank for rank, version in enumerate(versions)}
        stored_phases = stored.get("phases") or _NO_PHASES
        self._deleted = set[int](stored.get("deleted", ()))
        self._phases = Phases(self)
        self._phases.restore(stored_phases)
        # From the newest snapshots, with their times: the phases of groups, the states of separated instruments. The
        # last number is the position that the snapshot is as of.
        self._snapshot_phases: dict[Group, list[int]] = {
            (one[0], one[1]): [*one[2:], NOWHERE][:3] for one in stored.get("snapshot_phases", ())
        }
        self._snapshot_states: dict[int, list[int]] = {
            one[0]: [*one[1:], NOWHERE][:3] for one in stored.get("snapshot_states", ())
        }
        # Positions of the last message of each group and instrument, and of the last snapshot of each instrument.
        self._phase_at: dict[Group, int] = {(one[0], one[1]): one[2] for one in stored.get("phase_at", ())}
        self._own_at: dict[int, int] = dict(stored.get("own_at", ()))
        self._snapshot_at: dict[int, int] = dict(stored.get("snapshot_at", ()))
        # Whether they follow their group was inferred from a phase that was unverified then.
        self._unverified_members = set[int](stored.get("unverified_members", ()))

    # The interface that `Phases` needs.

    def group_of(self, instrument_id: int) -> Group | None:
        return self._group_of.get(instrument_id)

    def members(self, group: Group) -> Iterable[int]:
        """None are needed: a group's message changes the membership of no instrument."""
        return ()

    def apply(self, controls: Events, definitions: Events, statuses: Events) -> None:
        """Apply rows of the incremental stream, of all three families, in wire order."""
        messages: list[tuple[int, int] | Status] = []
        for events, family, column in ((controls, "control", "kind"), (definitions, "definition", "action")):
            rows = events.rows(family)
            messages += zip(rows.column(column).tolist(), rows.column("instrument_id").tolist(), strict=True)
        messages += read_statuses(statuses, "incremental")
        families = (controls, "control"), (definitions, "definition"), (statuses, "status")
        positions = [place for events, family in families for place in self._wire_positions(events, family)]
        for place, message in sorted(zip(positions, messages, strict=True), key=lambda pair: pair[0]):
            position = place[0] << SEQUENCE_BITS | place[1]
            if isinstance(message, Status):
                self._note_position(message, position)
                self._phases.apply(message)
            elif message[0] == _RESET:
                self._phases.channel_reset()
            elif message[0] == _CREATED:
                self._deleted.discard(message[1])
                self._own_at[message[1]] = position
                self._phases.mark_created([message[1]])
            elif message[0] == _DELETED:
                self._deleted.add(message[1])
                self._phases.remove([message[1]])

    def _note_position(self, status: Status, position: int) -> None:
        instrument_id = status.instrument_id
        group = status.group if instrument_id is None else self.group_of(instrument_id)
        if instrument_id is not None:
            self._own_at[instrument_id] = position
            explicit = status.event in (SEPARATES, REJOINS)
            is_verified = group is None or not self._gaps.lie_between(self._phase_at.get(group, NOWHERE), position)
            (self._unverified_members.discard if explicit or is_verified else self._unverified_members.add)(
                instrument_id
            )
        if group is not None and (instrument_id is None or status.phase is not None or status.event == REJOINS):
            self._phase_at[group] = position

    def _wire_positions(self, events: Events, family: str) -> Iterator[tuple[int, ...]]:
        rows, units = events.rows(family), events.units
        ranks = [self._ranks.get(version, len(self._ranks)) for version in units.seq_version[rows.unit].tolist()]
        columns = units.sequence[rows.unit], rows.msg_index, rows.entry_index
        return zip(ranks, *(column.tolist() for column in columns), strict=True)

    def apply_snapshots(self, statuses: Events, held: tuple[Numbers, Numbers]) -> None:
        """Apply rows of the snapshot stream, which repeats them all day: only the newest of each counts. `held`: when
        snapshots were sent, and the positions that they are as of; a status is as of the last one sent until then."""
        rows, units = statuses.rows("status"), statuses.units
        if not len(rows):
            return
        sent, ids = units.ts_send[rows.unit], rows.column("instrument_id")
        by_time = np.argsort(held[0], kind="stable")
        positions = np.maximum.accumulate(np.append(NOWHERE, held[1][by_time]))
        as_of = positions[np.searchsorted(held[0][by_time], sent, side="right")]
        order = np.lexsort((sent, ids))
        # The last row of each instrument; rows of groups are few, so all of them are applied.
        last = np.append(ids[order][1:] != ids[order][:-1], True) | (ids[order] == NULL)
        newest_rows = order[last]
        messages = read_statuses(statuses.take({"status": newest_rows}), "snapshot")
        for ts, at, status in zip(sent[newest_rows].tolist(), as_of[newest_rows].tolist(), messages, strict=True):
            self._apply_snapshot(ts, at, status)

    def _apply_snapshot(self, ts: int, as_of: int, status: Status) -> None:
        instrument_id = status.instrument_id
        group = self.group_of(instrument_id) if instrument_id is not None else status.group
        # Legacy 11 writes 326 for it.
        phase = status.state if status.phase is None and instrument_id is None else status.phase
        if group is not None and phase is not None and ts >= self._snapshot_phases.get(group, [NULL])[0]:
            self._snapshot_phases[group] = [ts, phase, as_of]
        if instrument_id is None or ts < self._snapshot_states.get(instrument_id, [NULL])[0]:
            return
        if self._gaps.last != NOWHERE:  # otherwise nothing needs an answer
            self._snapshot_at[instrument_id] = as_of
        # 11.4: both may come together; without the event, a state that differs from the phase is separated.
        is_separated = status.event == SEPARATES or (
            status.event is None and phase is not None and status.state != phase
        )
        if is_separated and status.state is not None:
            self._snapshot_states[instrument_id] = [ts, status.state, as_of]
        else:
            self._snapshot_states.pop(instrument_id, None)

    def to_json(self) -> dict[str, Any]:
        return {
            "phases": self._phases.export(),
            "snapshot_phases": [[*group, *phase] for group, phase in sorted(self._snapshot_phases.items())],
            "snapshot_states": [[who, *state] for who, state in sorted(self._snapshot_states.items())],
            "deleted": sorted(self._deleted),
            "phase_at": [[*group, at] for group, at in sorted(self._phase_at.items())],
            "own_at": sorted(self._own_at.items()),
            "snapshot_at": sorted(self._snapshot_at.items()),
            "unverified_members": sorted(self._unverified_members),
        }

    def final_states(self) -> dict[str, Any]:
        """Phases by group; states of separated instruments; instruments without a state yet, or any more; those whose
        own state is unverified. A group whose phase is unverified is left out."""
        last_gap = self._gaps.last
        groups = {group: phase for group, (_, phase, at) in self._snapshot_phases.items() if at >= last_gap}
        for group in self._phases.groups():
            is_verified = self._phase_at.get(group, NOWHERE) >= last_gap
            if self._phases.phase_of(group) != UNKNOWN and is_verified:
                groups[group] = self._phases.phase_of(group)
        # After a gap a snapshot behind it knows better than earlier messages.
        named = {
            who
            for who in self._phases.instrument_ids()
            if self._own_at.get(who, NOWHERE) >= last_gap or self._snapshot_at.get(who, NOWHERE) < last_gap
        }
        states, without_state = (
            {
                instrument_id: state
                for instrument_id, (_, state, _) in self._snapshot_states.items()
                if instrument_id not in named
            },
            sorted(self._deleted),
        )
        for who in sorted(named):
            found, group = self._phases.state_of(who), self.group_of(who)
            if found.separated:
                states[who] = found.state
            elif group is not None and found.phase != self._phases.phase_of(group):  # created, without a status since
                without_state.append(who)
        phases = [[*group, phase] for group, phase in sorted(groups.items())]
        return {
            "groups": phases,
            "own": sorted(states.items()),
            "none": without_state,
            "unverified": self._unverified_instruments(),
        }

    def _unverified_instruments(self) -> list[int]:
        """Those for whose own state no answer came since the gaps that matter for it."""
        answered = {
            who
            for who in self._unverified_members
            if self._snapshot_at.get(who, NOWHERE) >= max(self._gaps.last, self._own_at.get(who, NOWHERE))
        }
        found = self._unverified_members - answered
        limit = self._gaps.start if self._has_rpt_seq else self._gaps.last
        if limit != NOWHERE:
            known = (self._own_at, self._snapshot_at)
            found |= {who for who in self._ids.tolist() if all(at.get(who, NOWHERE) < limit for at in known)}
        return sorted(found)


def phases_and_states(
    final_states: Mapping[str, Any], ids: Numbers, groups: Sequence[Group | None]
) -> tuple[Codes, Codes]:
    """625 and 326 of some instruments; NULL if unknown."""
    phases = {(code, exchange): phase for code, exchange, phase in final_states.get("groups", ())}
    phase = np.array([NULL_I16 if group is None else phases.get(group, NULL_I16) for group in groups], np.int16)
    state, states = phase.copy(), dict(final_states.get("own", ()))
    for row in np.flatnonzero(np.isin(ids, [*states])).tolist():
        state[row] = states[int(ids[row])]
    state[np.isin(ids, final_states.get("unverified", []))] = NULL_I16
    has_no_state = np.isin(ids, final_states.get("none", []))
    for codes in (phase, state):
        codes[has_no_state] = NULL_I16
        codes[codes == UNKNOWN] = NULL_I16
    return phase, state
