"""Resets that are lost, or that what was sent before them follows: nothing that they clear comes back, or stays."""

from __future__ import annotations

from sync.test_channel import PETR4, VALE3, bids, channel_reset, events, snapshot, started, trust

from umdf.sync.gaps import Gap
from umdf.sync.trust import TrustLevel


def test_a_late_update_from_before_a_channel_reset_fills_no_new_book():
    """4.2.9: the reset has emptied all books, also those of which nothing had been received."""
    channel = started(1, (PETR4, 1, 10))
    channel.open_gap(Gap(1, 2, 2, 0))
    channel.apply(channel_reset(3))
    channel.apply_late(events(2, (VALE3, 1, 77)))
    assert bids(channel, VALE3) == []
    channel.apply(events(4, (VALE3, 1, 78)))
    assert bids(channel, VALE3) == [78] and trust(channel, VALE3)[0] == TrustLevel.HEALTHY


def test_a_snapshot_from_before_a_channel_reset_fills_no_new_book():
    channel = started(500, (PETR4, 40, 10))
    channel.apply(channel_reset(501))
    channel.apply_snapshots(snapshot(VALE3, 500, 9, 77))
    assert channel.book(VALE3) is None and trust(channel, VALE3)[0] == TrustLevel.HEALTHY
    channel.apply_snapshots(snapshot(VALE3, 501, 9, 78))
    assert bids(channel, VALE3) == [78]
