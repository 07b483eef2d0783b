"""Group phases and instrument states: which instruments follow their group, which are separated, and the state of each.

Every rule is in a table (`phase_tables`). A group message never changes membership (legacy 14.6); the state of an
instrument is its own while it is separated, else its group's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from umdf.market.instruments import Group
from umdf.market.phase_history import IsUnbroken, PhaseHistory
from umdf.market.phase_tables import (
    DIFFERENT,
    EQUAL,
    FOLLOWING,
    GROUP_MESSAGE,
    INFER,
    INSTRUMENT_MESSAGE,
    KEEP,
    NEW,
    PRE_OPEN,
    REGULAR,
    REJOINS,
    REMOVE,
    SEPARATED,
    SEPARATES,
    SESSION_CHANGE,
    SNAPSHOT_STATUS,
    STORE,
    UNKNOWN,
)
from umdf.market.statistics_kernel import AUCTION_ENDS, NEW_SESSION

BEFORE_ALL = -1  # a sequence before all others
MAX_RESETS = 1 << 12


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
        self._histories: dict[Group, PhaseHistory] = {}
        # Statuses of snapshots that tell whether an instrument follows its group only beside the phase that the group
        # was in then, which is not known yet.
        self._uncompared: dict[int, Status] = {}
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
            self._uncompared.pop(instrument_id, None)

    def remove(self, instrument_ids: Iterable[int]) -> None:
        for instrument_id in instrument_ids:
            self._instrument_states.pop(instrument_id, None)
            self._uncompared.pop(instrument_id, None)

    def start_snapshot(self, instrument_id: int, sequence: int | None = None) -> None:
        """A snapshot, as of a sequence, replaces the state; if it has none, the instrument follows its group. A later
        status of the instrument stays."""
        own = self._instrument_states.get(instrument_id)
        if own is None or (sequence is not None and own.sequence > sequence):
            return
        self._uncompared.pop(instrument_id, None)
        if own.membership == SEPARATED:
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
            self._history(group).note(status.sequence, phase, is_change=not status.is_snapshot)
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
        is_explicit, is_known = status.event in (SEPARATES, REJOINS), phase not in (None, UNKNOWN)
        is_restated = status.is_snapshot or own.resets < self._resets  # it says all, whatever was known before
        self._uncompared.pop(instrument_id, None)
        if status.is_snapshot:
            if status.sequence is None or status.phase is not None or is_explicit:
                own.is_certain = is_explicit or is_known
            else:
                self._uncompared[instrument_id], own.is_certain = status, False
        elif status.event in (None, SEPARATES, REJOINS):
            is_comparable = is_known and not self.has_losses and (is_restated or own.is_certain)
            own.is_certain = is_explicit or is_comparable
        relation = EQUAL if status.state == phase else DIFFERENT
        event = status.event if status.event in (None, SEPARATES, REJOINS) else SESSION_CHANGE
        if is_restated:
            membership, action = SNAPSHOT_STATUS[event, relation]
        else:
            membership, action = INSTRUMENT_MESSAGE[event, own.membership, relation]
        own.membership, own.resets = membership, self._resets
        if action == INFER and group is not None and status.phase is None and relation == DIFFERENT:
            resets += self._set_phase(group, status.state, status)
        self._store_own(own, action, status)
        if action != KEEP:
            own.since = before.since if self.state_of(instrument_id).state == before.state else status.ts
        return resets

    def _store_own(self, own: _StoredState, action: str, status: Status) -> None:
        if action == STORE and status.state is not None:
            own.state, own.session, own.ts_open = status.state, status.session or REGULAR, status.ts_open
        elif action in (REMOVE, INFER):
            own.state, own.session, own.ts_open = UNKNOWN, None, None
        if action != KEEP:
            own.last_status_ts = status.ts

    def compare_statuses(self, is_unbroken: IsUnbroken, instrument_ids: Iterable[int] | None = None) -> None:
        """Find out whether instruments (default: all) follow their groups, of which a snapshot's status was received
        before the phase that the group was in then."""
        if not self._uncompared:
            return
        for instrument_id in [*self._uncompared] if instrument_ids is None else instrument_ids:
            status, group = self._uncompared.get(instrument_id), self._instruments.group_of(instrument_id)
            if status is None or status.sequence is None or group is None:
                continue
            phase = self._history(group).as_of(status.sequence, is_unbroken)
            if phase not in (None, UNKNOWN):
                own = self._instrument_states[instrument_id]
                relation = EQUAL if status.state == phase else DIFFERENT
                own.membership, action = SNAPSHOT_STATUS[None, relation]
                self._store_own(own, action, status)
                own.is_certain = True
                del self._uncompared[instrument_id]

    def _phase_as_of(self, group: Group, status: Status) -> int | None:
        """The phase that a status is to be compared with: a snapshot, or an update that waited for one, may be older
        than the group's last message. None if it is not known."""
        stored = self._group_states.get(group, _NO_STATE)
        if status.is_snapshot and status.phase is not None:  # 11.4: both come together
            return status.phase
        if status.sequence is None or status.sequence >= stored.sequence:
            return stored.state
        return self._history(group).last_until(status.sequence)

    # What is known as of which sequence.

    def _history(self, group: Group) -> PhaseHistory:
        return self._histories.setdefault(group, PhaseHistory())

    def note_phase(self, group: Group, after: int, until: int, phase: int, is_unbroken: IsUnbroken) -> None:
        """A snapshot loop showed the phase of the group as of one of these sequences."""
        self._history(group).note_shown(after, until, phase, is_unbroken)

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
        if is_for_groups:
            for history in self._histories.values():
                history.forget_from(sequence)
        for instrument_id, own in self._instrument_states.items():
            if own.sequence >= sequence or instrument_id in instrument_ids:
                own.is_certain &= not is_for_groups  # it may have been compared with a phase that was not right
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


_STORED_FIELDS = [name for name in _StoredState.__dataclass_fields__ if name not in ("sequence", "is_certain")]


def _state_to_tuple(place: _StoredState) -> tuple[object, ...]:
    return tuple(getattr(place, name) for name in _STORED_FIELDS)


def _state_from_tuple(fields: list[object]) -> _StoredState:
    return _StoredState(*fields)  # type: ignore[arg-type]
