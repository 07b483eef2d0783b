"""Statistics of an instrument whose RptSeq has started again: an Empty Book leaves them as they are (4.2.9)."""

from __future__ import annotations

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
