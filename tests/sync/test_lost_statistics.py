"""Statistics that a lost message may have reset: of an instrument whose RptSeq has started again, because an Empty Book
leaves them as they are (4.2.9), and of the members of a group (11.3)."""

from __future__ import annotations

from market.event_builders import build_events, define, status
from sync.test_channel import PETR4, VALE3, channel_reset, events, snapshot, started, trust

from umdf.sync.gaps import Gap
from umdf.sync.trust import TrustLevel


def test_the_first_update_after_a_late_start_verifies_no_statistics_before_it():
    channel = started(500, (PETR4, 1, 10))
    assert trust(channel, PETR4) == (
        TrustLevel.UNVERIFIED,
        "a message was lost that may have reset its statistics",
    )
    channel.apply_snapshots(snapshot(PETR4, 500, 1, 10))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY


def test_the_first_update_of_a_new_epoch_does_not_either():
    """4.2.8: the statistics of the session come with the snapshots."""
    channel = started(1, (PETR4, 1, 10))
    channel.start_epoch(2, 1, 0)
    channel.apply(events(1, (PETR4, 1, 10), epoch=2))
    assert trust(channel, PETR4)[0] == TrustLevel.UNVERIFIED
    channel.apply_snapshots(snapshot(PETR4, 1, 1, 10))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY


def test_the_first_update_of_a_day_and_the_one_after_a_channel_reset_do():
    channel = started(1, (PETR4, 1, 10))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY
    channel.open_gap(Gap(1, 2, 4, 0))
    channel.apply(channel_reset(5))
    channel.apply(events(6, (PETR4, 1, 11), (VALE3, 1, 12)))
    assert trust(channel, PETR4)[0] == trust(channel, VALE3)[0] == TrustLevel.HEALTHY


def test_after_a_loss_the_next_message_of_a_group_leaves_the_statistics_of_its_members_unverified():
    """Another message of the group may be lost, and RptSeq does not number them."""
    channel = started(1, *((PETR4, number, number) for number in range(1, 41)))
    channel.apply_instruments(build_events(define(PETR4, "PETR4", group="XX")))

    def apply_phase(sequence: int) -> TrustLevel:
        phase = build_events(status(security_group="XX", phase=17))
        phase.units.sequence[:], phase.units.ts_send[:], phase.units.ts_recv[:] = sequence, 0, 0
        channel.apply(phase)
        return trust(channel, PETR4)[0]

    assert apply_phase(41) == TrustLevel.HEALTHY
    channel.open_gap(Gap(1, 42, 44, 0))
    channel.apply(events(45, (PETR4, 41, 41)))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY
    assert apply_phase(46) == TrustLevel.UNVERIFIED
    channel.apply_snapshots(snapshot(PETR4, 46, 41, *range(1, 42)))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY
    assert apply_phase(47) == TrustLevel.HEALTHY


def test_trades_may_be_missing_from_a_book_that_a_snapshot_brings_back_as_it_was():
    """An Empty Book was lost, and what followed has come to the same orders and RptSeq."""
    orders = (PETR4, 1, 10), (PETR4, 2, 11), (PETR4, 3, 12)
    channel = started(1, *orders)
    assert not channel.trades_incomplete(PETR4)
    channel.open_gap(Gap(1, 4, 5, 0))
    channel.apply(events(6, (PETR4, 2, 11)))
    channel.apply_snapshots(snapshot(PETR4, 7, 3, 10, 11, 12))
    channel.apply(events(7, (VALE3, 1, 20)))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY
    assert channel.trades_incomplete(PETR4)
