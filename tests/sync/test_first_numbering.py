"""Whether there were books before the first numbering that is received: that of a week begins with none, that of a
failover with those of before."""

from __future__ import annotations

from sync.test_channel import PETR4, VALE3, events, snapshot, started, trust

from umdf.sync.channel import Channel
from umdf.sync.trust import TrustLevel


def test_a_first_update_above_1_shows_that_a_first_numbering_from_1_is_that_of_a_failover():
    """There were books before it, of which nothing has been heard."""
    channel = started(1, (VALE3, 40, 77))
    assert trust(channel, VALE3)[0] == TrustLevel.STALE
    level, reason = trust(channel, PETR4)
    assert level == TrustLevel.UNVERIFIED and "epoch 1 has started" in str(reason)
    channel.apply_snapshots(snapshot(PETR4, 1, 7, 3))
    assert trust(channel, PETR4) == (TrustLevel.HEALTHY, None)


def test_a_first_numbering_from_1_is_that_of_a_week_if_the_first_update_has_1():
    channel = started(1, (VALE3, 1, 77))
    assert {trust(channel, number) for number in (VALE3, PETR4)} == {(TrustLevel.HEALTHY, None)}


def test_a_client_that_may_start_at_any_time_takes_no_first_numbering_for_that_of_a_week():
    channel = Channel(72, may_follow_failover=True)
    channel.start_epoch(1, 1, 0)
    channel.apply(events(1, (VALE3, 1, 77)))
    assert {trust(channel, number)[0] for number in (VALE3, PETR4)} == {TrustLevel.UNVERIFIED}
    for instrument, last in ((VALE3, 1), (PETR4, 7)):
        channel.apply_snapshots(snapshot(instrument, 1, last, 3))
        assert trust(channel, instrument) == (TrustLevel.HEALTHY, None)
