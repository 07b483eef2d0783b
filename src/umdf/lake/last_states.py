"""The phase and the state of every instrument, as far as the day has come.

The incremental stream has the word (market/phases.py has its rules); what it never said of a group or of an instrument
is what the newest snapshot says, as with the statistics. So it does not matter in how many parts a day came.

The one rule: the work grows with the statuses, not with the instruments: who is never named follows its group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.lake.listed import Listed
from umdf.market.events import NULL, NULL_I16
from umdf.market.instruments import Group
from umdf.market.phases import NEW, SEPARATES, UNKNOWN, Phases, Status
from umdf.market.rows import Events, Numbers
from umdf.market.state import statuses_of

Codes = NDArray[np.int16]
_CREATED, _DELETED, _RESET = ord("A"), ord("D"), ord("R")
_NOTHING_SAID: dict[str, Any] = {"groups": [], "own": [], "resets": [[0]]}


class LastStates:
    """Of a channel-day. `stored` is what `to_json` gave after the part before this one."""

    def __init__(self, stored: Mapping[str, Any], known: Listed, versions: Sequence[int]) -> None:
        self._group_of = dict(zip(known.ids.tolist(), known.groups[:-1], strict=True))  # without the row of nobody
        self._ranks = {version: rank for rank, version in enumerate(versions)}
        said = stored.get("said") or _NOTHING_SAID
        self._created = {who for who, *_, membership, _ in said["own"] if membership == NEW}
        self._gone = set[int](stored.get("gone", ()))
        self._phases = Phases(self)
        self._phases.restore(said)
        # What the newest snapshots said, and when: the phases of groups, the states of instruments that have their own.
        self._groups: dict[Group, list[int]] = {(one[0], one[1]): one[2:] for one in stored.get("groups", ())}
        self._own: dict[int, list[int]] = {one[0]: one[1:] for one in stored.get("own", ())}

    # As `Phases` asks for them.

    def group_of(self, instrument_id: int) -> Group | None:
        return self._group_of.get(instrument_id)

    def members(self, group: Group) -> Iterable[int]:
        """Those who were created today: a group's message changes the membership of nobody else."""
        return [who for who in self._created if self.group_of(who) == group]

    def take(self, controls: Events, definitions: Events, statuses: Events) -> None:
        """What the incremental stream says, of all three families in the order of the wire."""
        told: list[tuple[int, int] | Status] = []
        for events, family, column in ((controls, "control", "kind"), (definitions, "definition", "action")):
            rows = events.rows(family)
            told += zip(rows.column(column).tolist(), rows.column("instrument_id").tolist(), strict=True)
        told += statuses_of(statuses, "incremental")
        families = (controls, "control"), (definitions, "definition"), (statuses, "status")
        places = [place for events, family in families for place in self._places(events, family)]
        for _, one in sorted(zip(places, told, strict=True), key=lambda pair: pair[0]):
            if isinstance(one, Status):
                self._phases.apply(one)
            elif one[0] == _RESET:
                self._phases.channel_reset()
            elif one[0] == _CREATED:
                self._created.add(one[1])
                self._gone.discard(one[1])
                self._phases.created([one[1]])
            elif one[0] == _DELETED:
                self._gone.add(one[1])
                self._phases.deleted([one[1]])

    def _places(self, events: Events, family: str) -> Iterator[tuple[int, ...]]:
        rows, units = events.rows(family), events.units
        ranks = [self._ranks.get(version, len(self._ranks)) for version in units.seq_version[rows.unit].tolist()]
        columns = units.sequence[rows.unit], rows.msg_index, rows.entry_index
        return zip(ranks, *(column.tolist() for column in columns), strict=True)

    def take_snapshots(self, statuses: Events) -> None:
        """What the snapshot stream says, which repeats itself all day: only the newest of each is looked at."""
        rows, units = statuses.rows("status"), statuses.units
        if not len(rows):
            return
        sent, ids = units.ts_send[rows.unit], rows.column("instrument_id")
        order = np.lexsort((sent, ids))
        # Of an instrument the last row; groups have none and are few, so all of theirs are looked at.
        last = np.append(ids[order][1:] != ids[order][:-1], True) | (ids[order] == NULL)
        chosen = order[last]
        told = statuses_of(statuses.at({"status": chosen}), "snapshot")
        for ts, status in zip(sent[chosen].tolist(), told, strict=True):
            self._hold(ts, status)

    def _hold(self, ts: int, status: Status) -> None:
        who = status.instrument_id
        group = self.group_of(who) if who is not None else status.group
        phase = status.state if status.phase is None and who is None else status.phase  # legacy 11 writes 326 for it
        if group is not None and phase is not None and ts >= self._groups.get(group, [NULL])[0]:
            self._groups[group] = [ts, phase]
        if who is None or ts < self._own.get(who, [NULL])[0]:
            return
        # 11.4: both may come together; without the event a state that differs from the phase is a separated one.
        apart = status.event == SEPARATES or (status.event is None and phase is not None and status.state != phase)
        if apart and status.state is not None:
            self._own[who] = [ts, status.state]
        else:
            self._own.pop(who, None)

    def to_json(self) -> dict[str, Any]:
        return {
            "said": self._phases.export(),
            "groups": [[*group, *said] for group, said in sorted(self._groups.items())],
            "own": [[who, *said] for who, said in sorted(self._own.items())],
            "gone": sorted(self._gone),
        }

    def ends(self) -> dict[str, Any]:
        """Phases by group; instruments that have a state of their own; those that have none yet, or no longer."""
        groups = {group: phase for group, (_, phase) in self._groups.items()}
        for group in self._phases.groups():
            if self._phases.phase_of(group) != UNKNOWN:
                groups[group] = self._phases.phase_of(group)
        named = self._phases.named()
        own, none = {who: state for who, (_, state) in self._own.items() if who not in named}, sorted(self._gone)
        for who in sorted(named):
            found, group = self._phases.of(who), self.group_of(who)
            if found.separated:
                own[who] = found.state
            elif group is not None and found.phase != self._phases.phase_of(group):  # created, and nothing since
                none.append(who)
        phases = [[*group, phase] for group, phase in sorted(groups.items())]
        return {"groups": phases, "own": sorted(own.items()), "none": none}


def phases_and_states(ends: Mapping[str, Any], ids: Numbers, groups: Sequence[Group | None]) -> tuple[Codes, Codes]:
    """625 and 326 of some instruments; NULL is unknown."""
    phases = {(code, exchange): phase for code, exchange, phase in ends.get("groups", ())}
    phase = np.array([NULL_I16 if group is None else phases.get(group, NULL_I16) for group in groups], np.int16)
    state, own = phase.copy(), dict(ends.get("own", ()))
    for place in np.flatnonzero(np.isin(ids, [*own])).tolist():
        state[place] = own[int(ids[place])]
    nobody = np.isin(ids, ends.get("none", []))
    for codes in (phase, state):
        codes[nobody] = NULL_I16
        codes[codes == UNKNOWN] = NULL_I16
    return phase, state
