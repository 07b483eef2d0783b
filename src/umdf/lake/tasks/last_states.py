"""The phase and the state of every instrument, up to the end of the processed part of the day.

The incremental stream decides (rules in market/phases.py); if it never mentioned a group or an instrument, the newest
snapshot does, as for the statistics. So it does not matter into how many parts a day is divided.

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
from umdf.market.phases import SEPARATES, UNKNOWN, Phases, Status
from umdf.market.rows import Events, Numbers
from umdf.market.state import read_statuses

Codes = NDArray[np.int16]
_CREATED, _DELETED, _RESET = ord("A"), ord("D"), ord("R")
_NO_PHASES: dict[str, Any] = {"groups": [], "own": [], "resets": [[0]]}


class LastStates:
    """Of a channel-day. `stored` is the result of `to_json` after the previous part."""

    def __init__(self, stored: Mapping[str, Any], instruments: InstrumentList, versions: Sequence[int]) -> None:
        # Without the row for unknown instruments.
        self._group_of = dict(zip(instruments.ids.tolist(), instruments.groups[:-1], strict=True))
        self._ranks = {version: rank for rank, version in enumerate(versions)}
        stored_phases = stored.get("said") or _NO_PHASES
        self._deleted = set[int](stored.get("gone", ()))
        self._phases = Phases(self)
        self._phases.restore(stored_phases)
        # From the newest snapshots, with their times: the phases of groups, the states of separated instruments.
        self._snapshot_phases: dict[Group, list[int]] = {(one[0], one[1]): one[2:] for one in stored.get("groups", ())}
        self._snapshot_states: dict[int, list[int]] = {one[0]: one[1:] for one in stored.get("own", ())}

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
        for _, message in sorted(zip(positions, messages, strict=True), key=lambda pair: pair[0]):
            if isinstance(message, Status):
                self._phases.apply(message)
            elif message[0] == _RESET:
                self._phases.channel_reset()
            elif message[0] == _CREATED:
                self._deleted.discard(message[1])
                self._phases.mark_created([message[1]])
            elif message[0] == _DELETED:
                self._deleted.add(message[1])
                self._phases.remove([message[1]])

    def _wire_positions(self, events: Events, family: str) -> Iterator[tuple[int, ...]]:
        rows, units = events.rows(family), events.units
        ranks = [self._ranks.get(version, len(self._ranks)) for version in units.seq_version[rows.unit].tolist()]
        columns = units.sequence[rows.unit], rows.msg_index, rows.entry_index
        return zip(ranks, *(column.tolist() for column in columns), strict=True)

    def apply_snapshots(self, statuses: Events) -> None:
        """Apply rows of the snapshot stream, which repeats them all day: only the newest of each counts."""
        rows, units = statuses.rows("status"), statuses.units
        if not len(rows):
            return
        sent, ids = units.ts_send[rows.unit], rows.column("instrument_id")
        order = np.lexsort((sent, ids))
        # The last row of each instrument; rows of groups are few, so all of them are applied.
        last = np.append(ids[order][1:] != ids[order][:-1], True) | (ids[order] == NULL)
        newest_rows = order[last]
        messages = read_statuses(statuses.take({"status": newest_rows}), "snapshot")
        for ts, status in zip(sent[newest_rows].tolist(), messages, strict=True):
            self._apply_snapshot(ts, status)

    def _apply_snapshot(self, ts: int, status: Status) -> None:
        instrument_id = status.instrument_id
        group = self.group_of(instrument_id) if instrument_id is not None else status.group
        # Legacy 11 writes 326 for it.
        phase = status.state if status.phase is None and instrument_id is None else status.phase
        if group is not None and phase is not None and ts >= self._snapshot_phases.get(group, [NULL])[0]:
            self._snapshot_phases[group] = [ts, phase]
        if instrument_id is None or ts < self._snapshot_states.get(instrument_id, [NULL])[0]:
            return
        # 11.4: both may come together; without the event, a state that differs from the phase is separated.
        is_separated = status.event == SEPARATES or (
            status.event is None and phase is not None and status.state != phase
        )
        if is_separated and status.state is not None:
            self._snapshot_states[instrument_id] = [ts, status.state]
        else:
            self._snapshot_states.pop(instrument_id, None)

    def to_json(self) -> dict[str, Any]:
        return {
            "said": self._phases.export(),
            "groups": [[*group, *phase] for group, phase in sorted(self._snapshot_phases.items())],
            "own": [[who, *state] for who, state in sorted(self._snapshot_states.items())],
            "gone": sorted(self._deleted),
        }

    def final_states(self) -> dict[str, Any]:
        """Phases by group; states of separated instruments; instruments without a state yet, or any more."""
        groups = {group: phase for group, (_, phase) in self._snapshot_phases.items()}
        for group in self._phases.groups():
            if self._phases.phase_of(group) != UNKNOWN:
                groups[group] = self._phases.phase_of(group)
        named = self._phases.instrument_ids()
        states, without_state = (
            {
                instrument_id: state
                for instrument_id, (_, state) in self._snapshot_states.items()
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
        return {"groups": phases, "own": sorted(states.items()), "none": without_state}


def phases_and_states(
    final_states: Mapping[str, Any], ids: Numbers, groups: Sequence[Group | None]
) -> tuple[Codes, Codes]:
    """625 and 326 of some instruments; NULL if unknown."""
    phases = {(code, exchange): phase for code, exchange, phase in final_states.get("groups", ())}
    phase = np.array([NULL_I16 if group is None else phases.get(group, NULL_I16) for group in groups], np.int16)
    state, states = phase.copy(), dict(final_states.get("own", ()))
    for row in np.flatnonzero(np.isin(ids, [*states])).tolist():
        state[row] = states[int(ids[row])]
    has_no_state = np.isin(ids, final_states.get("none", []))
    for codes in (phase, state):
        codes[has_no_state] = NULL_I16
        codes[codes == UNKNOWN] = NULL_I16
    return phase, state
