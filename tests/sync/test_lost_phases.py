"""The phases of groups, whose changes no RptSeq numbers (11.4), come with the snapshot stream again."""

from __future__ import annotations

from market.event_builders import build_events, define, status
from sync.test_channel import PETR4, events, snapshot, started, trust

from umdf.sync.gaps import MARGIN_NS, Gap
from umdf.sync.snapshots import GroupPhases
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
