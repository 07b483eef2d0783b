"""Group phases and instrument states: which instruments follow their group, which are separated, and the state of each.

Every rule is in the tables below; the diagram and the tables in docs/phases.md are generated from them. A group message
never changes membership (legacy 14.6); the state of an instrument is its own while it is separated, else its group's.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from umdf.market.instruments import Group
from umdf.market.statistics_kernel import AUCTION_ENDS, NEW_SESSION

# 625 and 326 (11.1, 11.2): the group's name of a phase, the instrument's name of the same state.
PAUSE, CLOSE, OPEN, PRE_CLOSE, UNKNOWN, PRE_OPEN, FINAL_CLOSING_CALL = 2, 4, 17, 18, 20, 21, 101
PHASES = {
    PAUSE: ("pause", "pause"),
    CLOSE: ("close", "close"),
    OPEN: ("open", "open"),
    PRE_CLOSE: ("pre-close", "forbidden"),
    UNKNOWN: ("unknown", "unknown"),
    PRE_OPEN: ("pre-open", "reserved"),
    FINAL_CLOSING_CALL: ("final closing call", "final closing call"),
}
REGULAR, NON_REGULAR = 1, 6  # 336
SESSION_CHANGE, SEPARATES, REJOINS = 4, 101, 102  # 1174

BEFORE_ALL = -1  # a sequence before all others
MAX_RESETS = 1 << 12
MAX_HISTORY = 16  # phases of a group: a snapshot is older than the last message by a few at most
# Membership. An instrument follows by default (11.2); one that was created during the session is unknown until its own
# first status, whatever its group's messages say (7.1).
FOLLOWING, SEPARATED, NEW = "following", "separated", "new"
MEMBERSHIPS = (FOLLOWING, SEPARATED, NEW)
# How 326 compares with the stored 625. A phase that is not known is different from every state.
EQUAL, DIFFERENT = "equal", "different"
RELATIONS = (EQUAL, DIFFERENT)
# Effect on the instrument's own state.
STORE, REMOVE, KEEP, INFER = "store 326", "remove 326", "keep", "remove 326, 625 is 326"

# An instrument's own message (48 and 326): 1174, membership, relation → membership, what to do.
Transition = tuple[str, str]
INSTRUMENT_MESSAGE: dict[tuple[int | None, str, str], Transition] = {
    # With the event nothing is inferred (11); the phase may be inferred from a rejoin (11 NOTE).
    **{(SEPARATES, m, r): (SEPARATED, STORE) for m in MEMBERSHIPS for r in RELATIONS},
    **{(REJOINS, m, r): (FOLLOWING, INFER) for m in MEMBERSHIPS for r in RELATIONS},
    # A feed without the event: the first table of legacy 14.6. New counts as following, as by default.
    (None, SEPARATED, EQUAL): (FOLLOWING, REMOVE),
    (None, SEPARATED, DIFFERENT): (SEPARATED, STORE),
    (None, FOLLOWING, EQUAL): (SEPARATED, STORE),
    (None, FOLLOWING, DIFFERENT): (SEPARATED, STORE),
    (None, NEW, EQUAL): (SEPARATED, STORE),
    (None, NEW, DIFFERENT): (SEPARATED, STORE),
    # Another event (4: the session changes) replaces 101 and 102 and leaves membership unchanged.
    (SESSION_CHANGE, SEPARATED, EQUAL): (SEPARATED, STORE),
    (SESSION_CHANGE, SEPARATED, DIFFERENT): (SEPARATED, STORE),
    **{(SESSION_CHANGE, FOLLOWING, r): (FOLLOWING, KEEP) for r in RELATIONS},
    # As a new instrument's first status it still ends the unknown state (7.1), with what a snapshot's would say.
    (SESSION_CHANGE, NEW, EQUAL): (FOLLOWING, REMOVE),
    (SESSION_CHANGE, NEW, DIFFERENT): (SEPARATED, STORE),
}
# A group's message (1151 and 625): the second table of legacy 14.6. 625 is stored in every case.
GROUP_MESSAGE: dict[tuple[str, str], str] = {
    (SEPARATED, EQUAL): SEPARATED,
    (SEPARATED, DIFFERENT): SEPARATED,
    (FOLLOWING, EQUAL): FOLLOWING,
    (FOLLOWING, DIFFERENT): FOLLOWING,
    (NEW, EQUAL): NEW,
    (NEW, DIFFERENT): NEW,
}
# A snapshot's status (11.4: 625 and 326 may come together), and the first one after a channel reset, when the states of
# all instruments are sent again (13.9). It replaces what was known of the instrument, so membership does not matter;
# without the event, a state that differs from the phase is a separated one.
SNAPSHOT_STATUS: dict[tuple[int | None, str], Transition] = {
    **{(SEPARATES, r): (SEPARATED, STORE) for r in RELATIONS},
    **{(REJOINS, r): (FOLLOWING, INFER) for r in RELATIONS},
    (None, EQUAL): (FOLLOWING, REMOVE),
    (None, DIFFERENT): (SEPARATED, STORE),
    (SESSION_CHANGE, EQUAL): (FOLLOWING, REMOVE),
    (SESSION_CHANGE, DIFFERENT): (SEPARATED, STORE),
}


@dataclass(frozen=True, slots=True)
class Status:
    """A row of the family `status`, with None where a value is absent."""

    instrument_id: int | None
    group: Group | None
    phase: int | None = None
    state: int | None = None
    event: int | None = None
    session: int | None = None
    ts_open: int | None = None
    ts: int | None = None
    is_snapshot: bool = False
    sequence: int | None = None  # it is as of this sequence of the incremental stream; None if not known


@dataclass(frozen=True, slots=True)
class InstrumentState:
    """The current state of an instrument."""

    state: int  # the effective state: its own when separated, else its group's
    phase: int  # of its group
    separated: bool
    session: int | None
    ts_open: int | None
    since: int | None  # start of the state


@dataclass(slots=True)
class _StoredState:
    """The stored state of a group, or of an instrument itself."""

    state: int = UNKNOWN
    session: int | None = None
    ts_open: int | None = None
    since: int | None = None
    last_status_ts: int | None = None  # time of its last status
    membership: str = FOLLOWING
    resets: int = 0  # channel resets before its last status
    sequence: int = BEFORE_ALL  # what is stored is right as of this sequence
    is_certain: bool = True  # of an instrument: whether it is certain that it follows its group, or that it does not
    history: list[tuple[int, int]] = field(default_factory=list)  # of a group: earlier phases, and since which sequence


_NO_STATE = _StoredState()
StatisticResets = list[tuple[int, int]]  # instrument and kind of operation: statistics to clear


class GroupMembership(Protocol):
    """The members of each group, as `Instruments` knows them."""

    def group_of(self, instrument_id: int) -> Group | None: ...

    def members(self, group: Group) -> Iterable[int]: ...


class Phases:
    """Phases and states of all groups and instruments of a channel. A channel reset leaves them as they are until they
    are sent again (13.9)."""

    def __init__(self, instruments: GroupMembership) -> None:
        self._instruments = instruments
        self._group_states: dict[Group, _StoredState] = {}
        self._instrument_states: dict[int, _StoredState] = {}
        self._resets = 0
        # Whether messages were lost since the last channel reset: without 1174 nobody knows then what a status means,
        # because after a channel reset, which may be among them, it does not separate the instrument.
        self.has_losses = False
        self.has_unknown_start = False  # messages before the first one, of this epoch, are not known
        # Channel resets up to the last one that came after losses: a status from before it may be out of date, because
        # what waited for the books that it emptied was never applied.
        self._resets_after_losses = 0
        # Statistics that messages have cleared: sequence, group or instrument, kind of operation.
        self.statistic_resets: deque[tuple[int, Group | None, int | None, int]] = deque(maxlen=MAX_RESETS)

    def channel_reset(self) -> None:
        self._resets += 1
        if self.has_losses or self.has_unknown_start:
            self._resets_after_losses = self._resets
        self.has_losses = self.has_unknown_start = False

    # Instruments come and go.

    def mark_created(self, instrument_ids: Iterable[int], sequence: int = BEFORE_ALL) -> None:
        """During the session: phase and state are invalid and unknown until the first status (7.1). A definition that
        comes late does not undo a later status."""
        for instrument_id in instrument_ids:
            if BEFORE_ALL < sequence <= self.sequence_of_instrument(instrument_id):
                continue
            self._instrument_states[instrument_id] = _StoredState(membership=NEW, resets=self._resets)

    def remove(self, instrument_ids: Iterable[int]) -> None:
        for instrument_id in instrument_ids:
            self._instrument_states.pop(instrument_id, None)

    def start_snapshot(self, instrument_id: int, sequence: int | None = None) -> None:
        """A snapshot, as of a sequence, replaces the state; if it has none, the instrument follows its group. A later
        status of the instrument stays."""
        own = self._instrument_states.get(instrument_id)
        is_later = own is not None and sequence is not None and own.sequence > sequence
        if own is not None and own.membership == SEPARATED and not is_later:
            del self._instrument_states[instrument_id]

    # Statuses.

    def apply(self, status: Status) -> StatisticResets:
        """Apply a status; returns the statistics that it clears."""
        if status.group is not None:
            return self._apply_group_message(status.group, status)
        return [] if status.instrument_id is None else self._apply_instrument_message(status.instrument_id, status)

    def _apply_group_message(self, group: Group, status: Status) -> StatisticResets:
        phase = status.state if status.phase is None else status.phase  # legacy 11 writes 326 for it
        members = list(self._instruments.members(group))
        resets: StatisticResets = []
        if phase is not None:
            for instrument_id in members:
                own = self._instrument_states.get(instrument_id)
                if own is not None:
                    own.membership = GROUP_MESSAGE[own.membership, EQUAL if own.state == phase else DIFFERENT]
            resets = self._set_phase(group, phase, status)
        if status.event == SESSION_CHANGE:
            # Binary reference 9.2.6: "to reset some statistics for this group". Being separated is about states, the
            # trading session ends for every member.
            resets += [(instrument_id, NEW_SESSION) for instrument_id in members]
            self._log_reset(status, group, None, NEW_SESSION)
        return resets

    def _log_reset(self, status: Status, group: Group | None, instrument_id: int | None, kind: int) -> None:
        if status.sequence is not None and not status.is_snapshot:
            self.statistic_resets.append((status.sequence, group, instrument_id, kind))

    def _set_phase(self, group: Group, phase: int, status: Status) -> StatisticResets:
        stored = self._group_states.setdefault(group, _StoredState())
        is_old = stored.last_status_ts is not None and (status.ts is None or status.ts < stored.last_status_ts)
        if status.sequence is not None:
            self.note_phase(group, status.sequence, phase)
            if status.sequence < stored.sequence:  # a snapshot, or an update that waited for one
                return []
            stored.sequence = status.sequence
        if status.is_snapshot and stored.state != UNKNOWN and is_old:
            return []  # a snapshot is as of its own time: it cannot undo a later status of the group
        left_auction = stored.state == PRE_OPEN and phase != PRE_OPEN
        if phase != stored.state:
            stored.state, stored.since = phase, status.ts
        stored.session, stored.ts_open, stored.last_status_ts = status.session or REGULAR, status.ts_open, status.ts
        if not left_auction:
            return []
        self._log_reset(status, group, None, AUCTION_ENDS)
        # 10.7 NOTE: for each instrument in the group whose own state is not pre-open.
        members = self._instruments.members(group)
        return [
            (instrument_id, AUCTION_ENDS) for instrument_id in members if self._own_state(instrument_id) != PRE_OPEN
        ]

    def _own_state(self, instrument_id: int) -> int | None:
        own = self._instrument_states.get(instrument_id)
        return own.state if own is not None and own.membership == SEPARATED else None

    def _apply_instrument_message(self, instrument_id: int, status: Status) -> StatisticResets:
        resets: StatisticResets = []
        if status.event == SESSION_CHANGE:
            resets = [(instrument_id, NEW_SESSION)]
            self._log_reset(status, None, instrument_id, NEW_SESSION)
        group = self._instruments.group_of(instrument_id)
        if group is not None and status.phase is not None:
            resets += self._set_phase(group, status.phase, status)
        before, own = self.state_of(instrument_id), self._instrument_states.setdefault(instrument_id, _StoredState())
        if status.sequence is not None:
            if status.sequence < own.sequence:
                return resets  # a snapshot, or a unit that came late: a later status of the instrument is known
            own.sequence = status.sequence
        if status.state is None:
            if status.phase is not None and own.membership == NEW:
                own.membership = FOLLOWING
            return resets
        phase = UNKNOWN if group is None else self._phase_as_of(group, status)
        if status.is_snapshot or status.event in (None, SEPARATES, REJOINS):
            is_explicit = status.event in (SEPARATES, REJOINS)
            is_known = phase not in (None, UNKNOWN)  # what 326 is compared with
            own.is_certain = is_explicit or (is_known and (status.is_snapshot or not self.has_losses))
        relation = EQUAL if status.state == phase else DIFFERENT
        event = status.event if status.event in (None, SEPARATES, REJOINS) else SESSION_CHANGE
        if status.is_snapshot or own.resets < self._resets:
            membership, action = SNAPSHOT_STATUS[event, relation]
        else:
            membership, action = INSTRUMENT_MESSAGE[event, own.membership, relation]
        own.membership, own.resets = membership, self._resets
        if action == INFER and group is not None and status.phase is None and relation == DIFFERENT:
            resets += self._set_phase(group, status.state, status)
        if action == STORE:
            own.state, own.session, own.ts_open = status.state, status.session or REGULAR, status.ts_open
        elif action in (REMOVE, INFER):
            own.state, own.session, own.ts_open = UNKNOWN, None, None
        if action != KEEP:
            own.last_status_ts = status.ts
            own.since = before.since if self.state_of(instrument_id).state == before.state else status.ts
        return resets

    def _phase_as_of(self, group: Group, status: Status) -> int | None:
        """The phase that a status is to be compared with: a snapshot, or an update that waited for one, may be older
        than the group's last message. None if it is not known."""
        stored = self._group_states.get(group, _NO_STATE)
        if status.is_snapshot and status.phase is not None:  # 11.4: both come together
            return status.phase
        if status.sequence is None or status.sequence >= stored.sequence:
            return stored.state
        return next((phase for since, phase in reversed(stored.history) if since <= status.sequence), None)

    # What is known as of which sequence.

    def note_phase(self, group: Group, sequence: int, phase: int) -> None:
        """The group was in this phase as of a sequence, perhaps an earlier one."""
        history = self._group_states.setdefault(group, _StoredState()).history
        if (sequence, phase) not in history:
            insort(history, (sequence, phase))
            del history[:-MAX_HISTORY]

    def is_certain(self, instrument_id: int) -> bool:
        own = self._instrument_states.get(instrument_id, _NO_STATE)
        return own.is_certain and own.resets >= self._resets_after_losses

    def sequence_of_group(self, group: Group) -> int:
        return self._group_states.get(group, _NO_STATE).sequence

    def sequence_of_instrument(self, instrument_id: int) -> int:
        return self._instrument_states.get(instrument_id, _NO_STATE).sequence

    def mark_unverified(self, sequence: int, instrument_ids: Iterable[int], *, is_for_groups: bool) -> None:
        """What was stored with this sequence or later, and the states of these instruments, may be wrong; the phases
        of all groups too, if it was for groups."""
        for stored in self._group_states.values():
            if stored.sequence >= sequence or is_for_groups:
                stored.sequence = min(stored.sequence, sequence - 1)
        for instrument_id, own in self._instrument_states.items():
            if own.sequence >= sequence or instrument_id in instrument_ids:
                own.sequence = min(own.sequence, sequence - 1)

    def verify_group(self, group: Group, sequence: int) -> None:
        """What is stored was right as of this sequence."""
        stored = self._group_states.setdefault(group, _StoredState())
        stored.sequence = max(stored.sequence, sequence)

    def verify_instrument(self, instrument_id: int, sequence: int) -> None:
        own = self._instrument_states.setdefault(instrument_id, _StoredState())
        own.sequence = max(own.sequence, sequence)

    # Queries.

    def state_of(self, instrument_id: int) -> InstrumentState:
        own, group = self._instrument_states.get(instrument_id, _NO_STATE), self._instruments.group_of(instrument_id)
        group_state = _NO_STATE if group is None else self._group_states.get(group, _NO_STATE)
        if own.membership == NEW:
            return InstrumentState(UNKNOWN, UNKNOWN, False, None, None, None)
        if own.membership == SEPARATED:
            return InstrumentState(own.state, group_state.state, True, own.session, own.ts_open, own.since)
        known = [since for since in (group_state.since, own.since) if since is not None]
        since = max(known) if known else None
        return InstrumentState(
            group_state.state, group_state.state, False, group_state.session, group_state.ts_open, since
        )

    def phase_of(self, group: Group) -> int:
        return self._group_states.get(group, _NO_STATE).state

    def groups(self) -> list[Group]:
        """Groups with any status so far."""
        return list(self._group_states)

    def instrument_ids(self) -> set[int]:
        """Instruments with a status of their own, defined or not."""
        return set(self._instrument_states)

    def export(self) -> dict[str, list[tuple[object, ...]]]:
        return {
            "groups": [(*group, *_state_to_tuple(place)) for group, place in sorted(self._group_states.items())],
            "own": [
                (instrument_id, *_state_to_tuple(place))
                for instrument_id, place in sorted(self._instrument_states.items())
            ],
            "resets": [(self._resets,)],
        }

    def restore(self, state: dict[str, list[tuple[object, ...]]]) -> None:
        self._group_states = {
            (str(code), str(exchange)): _state_from_tuple(rest) for code, exchange, *rest in state["groups"]
        }
        self._instrument_states = {
            int(str(instrument_id)): _state_from_tuple(rest) for instrument_id, *rest in state["own"]
        }
        [(resets,)] = state["resets"]
        self._resets = int(str(resets))


_STORED_FIELDS = [
    name for name in _StoredState.__dataclass_fields__ if name not in ("sequence", "is_certain", "history")
]


def _state_to_tuple(place: _StoredState) -> tuple[object, ...]:
    return tuple(getattr(place, name) for name in _STORED_FIELDS)


def _state_from_tuple(fields: list[object]) -> _StoredState:
    return _StoredState(*fields)  # type: ignore[arg-type]
