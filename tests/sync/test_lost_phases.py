"""The phases of groups, whose changes no RptSeq numbers (11.4), come with the snapshot stream again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from market.event_builders import build_events, define, status
from sync.test_channel import PETR4, VALE3, events, rows, snapshot, started, trust

from umdf.market.families import SNAPSHOT
from umdf.market.phase_tables import OPEN, PRE_OPEN, REJOINS, SEPARATES
from umdf.market.rows import Events
from umdf.sync.channel import Channel
from umdf.sync.gaps import MARGIN_NS, Gap
from umdf.sync.snapshots import GroupPhases, Snapshots, find_snapshots
from umdf.sync.trust import TrustLevel


def test_the_phase_in_a_snapshot_loop_is_as_of_the_snapshot_before_it():
    """11.4: a group's message has no RptSeq, and its phase in a loop no sequence."""
    channel = started(1, (PETR4, 1, 10))
    channel.apply_instruments(build_events(define(PETR4, "PETR4", group="XX")))
    phase = build_events(status(security_group="XX", phase=17))
    phase.units.sequence[:], phase.units.ts_send[:], phase.units.ts_recv[:] = 2, 0, 0
    channel.apply(phase)
    channel.open_gap(Gap(1, 3, 5, 0))
    channel.apply_snapshots(snapshot(PETR4, 5, 1, 10))
    channel.apply_phases(GroupPhases(phase, after=4, until=6))
    channel.apply(events(6, (PETR4, 2, 11)))  # the phase is used now
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY
    assert channel.state_trust(PETR4).level == TrustLevel.UNVERIFIED
    channel.apply_phases(GroupPhases(phase, after=5, until=6))
    assert channel.state_trust(PETR4).level == TrustLevel.HEALTHY


def test_phases_that_follow_no_usable_snapshot_are_right_after_what_was_lost_well_before_them():
    """A client that joins in the pause between two loops does not wait for a third one."""
    channel = started(1, (PETR4, 1, 10))
    channel.apply_instruments(build_events(define(PETR4, "PETR4", group="XX")))
    channel.open_gap(Gap(1, 3, 5, 0))
    channel.apply_snapshots(snapshot(PETR4, 5, 1, 10))
    channel.apply(events(6, (PETR4, 2, 11)))
    phase = build_events(status(security_group="XX", phase=17))
    for sent_after_ns, until, is_certain in (
        (MARGIN_NS, 6, False),
        (MARGIN_NS + 1, 4, False),
        (MARGIN_NS + 1, 6, True),
    ):
        phase.units.ts_send[:], phase.units.ts_recv[:] = 6_000 + sent_after_ns, 0  # the first unit after it: 6,000
        channel.apply_phases(GroupPhases(phase, after=-1, until=until))
        assert channel.state_trust(PETR4).is_healthy == is_certain, (sent_after_ns, until)


# A snapshot's status without 1174 tells whether its instrument follows its group only beside the phase that the group
# was in then (11.4), which may be received later: a client that joins in the middle of a loop has it with the next one.


def snapshot_with_state(last: int, rpt_seq: int, state: int, event: int | None = None) -> Snapshots:
    found = snapshot(PETR4, last, rpt_seq, 10).events
    status_row = {"instrument_id": PETR4, "state": state, "flags": SNAPSHOT} | (
        {} if event is None else {"event": event}
    )
    return find_snapshots(Events(found.units, {**found.families, "status": rows("status", [status_row])}))


def phase_message(sequence: int, phase: int) -> Events:
    return at_sequence(build_events(status(security_group="XX", phase=phase)), sequence)


def own_message(sequence: int, state: int, rpt_seq: int, event: int | None = None) -> Events:
    """With its row of the family mbo, as every numbered update has one."""
    update = events(sequence, (PETR4, rpt_seq, 900 + sequence))
    row = {"instrument_id": PETR4, "state": state, "rpt_seq": rpt_seq} | ({} if event is None else {"event": event})
    return Events(update.units, {**update.families, "status": rows("status", [row])})


def at_sequence(found: Events, sequence: int) -> Events:
    units = found.units
    number = np.full(len(units), sequence)
    return Events(replace(units, sequence=number, ts_send=number * 1000, ts_recv=number * 1000), found.families)


def shown_phases(phase: int, after: int, until: int) -> GroupPhases:
    return GroupPhases(phase_message(until, phase), after, until)


def joined(*, is_defined: bool = True) -> Channel:
    """At sequence 100, in the middle of a snapshot loop: of another instrument the stream has come to 110."""
    channel = started(100, *((VALE3, 40 + number, number) for number in range(11)))
    if is_defined:
        define_all(channel)
    return channel


def define_all(channel: Channel) -> None:
    channel.apply_instruments(build_events(define(PETR4, "PETR4", group="XX"), define(VALE3, "VALE3", group="XX")))


def state_of(channel: Channel) -> tuple[int, bool] | None:
    """State and whether it is separated, if that is certain (of its statistics nothing is asked)."""
    state = channel.state.phases.state_of(PETR4)
    return (state.state, state.separated) if channel.phases.trust_of(PETR4, channel.gaps).is_healthy else None


def test_a_status_that_was_received_before_the_phase_of_its_group_is_compared_with_it_later():
    for phase, is_separated in ((OPEN, False), (PRE_OPEN, True)):
        channel = joined()
        channel.apply_snapshots(snapshot_with_state(105, 7, OPEN))
        assert state_of(channel) is None
        channel.apply_phases(shown_phases(phase, after=104, until=108))
        assert state_of(channel) == (OPEN, is_separated)
        channel.apply(phase_message(111, 2))
        assert state_of(channel) == (OPEN if is_separated else 2, is_separated)


def test_a_status_that_was_received_before_the_definition_of_its_instrument_is_compared_when_its_group_is_known():
    channel = joined(is_defined=False)
    channel.apply_snapshots(snapshot_with_state(105, 7, OPEN))
    channel.apply_phases(shown_phases(OPEN, after=104, until=108))
    assert state_of(channel) is None
    define_all(channel)
    assert state_of(channel) == (OPEN, False)


def test_a_phase_that_came_after_a_change_says_nothing_about_a_status_before_it():
    channel = joined()
    channel.apply_snapshots(snapshot_with_state(105, 7, OPEN))
    channel.apply(phase_message(111, OPEN))
    channel.apply_phases(shown_phases(OPEN, after=111, until=111))
    assert state_of(channel) is None, "as of 105, the phase is not known"
    channel.apply_snapshots(snapshot_with_state(111, 7, OPEN))
    assert state_of(channel) == (OPEN, False)


def test_a_phase_behind_a_gap_says_nothing_about_a_status_before_it_until_the_gap_is_filled():
    channel = joined()
    channel.apply_snapshots(snapshot_with_state(105, 70, OPEN))
    channel.open_gap(Gap(1, 111, 111, 0))
    channel.apply(events(112, (PETR4, 71, 112)))
    channel.apply_phases(shown_phases(OPEN, after=112, until=112))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY and state_of(channel) is None
    channel.apply_late(events(111, (VALE3, 51, 51)))
    assert state_of(channel) == (OPEN, False)


def test_a_status_is_not_compared_with_a_phase_from_before_a_loss():
    """The group has changed in the gap: to the phase that its member has."""
    channel = joined()
    channel.apply(phase_message(111, OPEN))
    channel.open_gap(Gap(1, 112, 113, 0))
    channel.apply(events(114, (VALE3, 51, 51)))
    channel.apply_snapshots(snapshot_with_state(114, 7, PRE_OPEN))
    channel.apply_phases(shown_phases(PRE_OPEN, after=114, until=114))
    assert state_of(channel) == (PRE_OPEN, False)
    channel.apply(phase_message(115, OPEN))
    assert state_of(channel) == (OPEN, False)


def test_what_a_status_without_event_changes_is_not_certain_if_what_was_before_is_not():
    """Legacy 14.6: the same state separates an instrument that follows its group, and lets a separated one follow."""
    channel = joined()
    channel.apply_snapshots(snapshot_with_state(105, 7, OPEN))
    channel.apply(phase_message(111, PRE_OPEN))
    channel.apply(own_message(112, PRE_OPEN, 8))
    channel.apply_phases(shown_phases(PRE_OPEN, after=112, until=112))
    assert state_of(channel) is None
    channel.apply(own_message(113, PRE_OPEN, 9, REJOINS))
    assert state_of(channel) == (PRE_OPEN, False)


def test_a_status_with_its_event_needs_no_phase():
    channel = joined()
    channel.apply_snapshots(snapshot_with_state(105, 7, OPEN, SEPARATES))
    channel.apply_phases(shown_phases(OPEN, after=104, until=108))
    assert state_of(channel) == (OPEN, True)


def test_a_status_is_not_compared_with_a_phase_that_came_with_two_contents():
    channel = joined()
    channel.apply(phase_message(111, PRE_OPEN))
    channel.apply_snapshots(snapshot_with_state(111, 7, OPEN))
    assert state_of(channel) == (OPEN, True)
    channel.contradict(111, phase_message(111, OPEN))
    channel.apply_snapshots(snapshot_with_state(112, 7, OPEN))
    channel.apply(events(112, (VALE3, 51, 51)))
    channel.apply_phases(shown_phases(OPEN, after=112, until=112))
    assert state_of(channel) == (OPEN, False)
