"""What comes after a requested moment tells whether a loss before it concerned a book."""

from __future__ import annotations

import pytest
from sync.test_channel import PETR4, VALE3, channel_reset, empty_book, events, snapshot, started, trust

from umdf.market.rows import Events
from umdf.sync.channel import Channel
from umdf.sync.gaps import Gap
from umdf.sync.session import look_ahead
from umdf.sync.trust import TrustLevel

MANY, FEW = 40, 32  # updates of a book
MOMENT = 60


def unverified_channel(count: int = MANY) -> Channel:
    """Two books; then losses, and nothing more up to the moment."""
    channel = started(1, *[(PETR4, number, number) for number in range(1, count + 1)])
    channel.apply(events(count + 1, (VALE3, 1, 1)))
    channel.open_gap(Gap(1, count + 2, MOMENT, 0))
    assert trust(channel, PETR4)[0] == trust(channel, VALE3)[0] == TrustLevel.UNVERIFIED
    return channel


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ([events(61, (PETR4, 41, 90))], TrustLevel.HEALTHY),
        ([events(61, (VALE3, 7, 90)), events(62, (PETR4, 41, 90), (PETR4, 50, 91))], TrustLevel.HEALTHY),
        ([events(61, (PETR4, 42, 90))], TrustLevel.UNVERIFIED),
        ([events(61, (PETR4, 42, 90)), events(62, (PETR4, 41, 90))], TrustLevel.UNVERIFIED),  # the first one tells
        ([events(61, (PETR4, 1, 90))], TrustLevel.UNVERIFIED),
        ([empty_book(61, PETR4), events(62, (PETR4, 41, 90))], TrustLevel.UNVERIFIED),
        ([channel_reset(61), events(62, (PETR4, 41, 90))], TrustLevel.UNVERIFIED),
        ([events(61, (PETR4, 41, 90), epoch=2)], TrustLevel.UNVERIFIED),  # another numbering
        ([], TrustLevel.UNVERIFIED),
    ],
)
def test_an_update_that_continues_rpt_seq_verifies_its_book(later: list[Events], expected: TrustLevel) -> None:
    channel = unverified_channel()
    for each in later:
        look_ahead(channel, each)
    assert trust(channel, PETR4)[0] == expected
    assert trust(channel, VALE3)[0] == TrustLevel.UNVERIFIED  # it had few updates, or none came


def test_it_proves_nothing_for_a_book_with_few_updates() -> None:
    channel = unverified_channel(FEW)
    look_ahead(channel, events(61, (PETR4, FEW + 1, 90)))
    assert trust(channel, PETR4)[0] == TrustLevel.UNVERIFIED


def test_a_stale_book_stays_stale_until_a_snapshot_of_the_moment() -> None:
    channel = unverified_channel()
    channel.apply(events(61, (PETR4, 50, 90)))
    look_ahead(channel, events(62, (PETR4, 51, 91)))
    assert trust(channel, PETR4)[0] == TrustLevel.STALE
    channel.apply_snapshots(snapshot(PETR4, 61, 50, 90))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY


def test_a_unit_whose_number_may_be_damaged_proves_nothing() -> None:
    """An earlier unit with a number that is too high follows by RptSeq too: it is what the book lacks."""
    channel = unverified_channel()
    early = events(62, (PETR4, 41, 90))
    early.units.ts_send[:] = 1
    look_ahead(channel, events(61, (VALE3, 7, 90)))
    look_ahead(channel, early)
    assert trust(channel, PETR4)[0] == TrustLevel.UNVERIFIED
    channel = unverified_channel()
    look_ahead(channel, events(62, (PETR4, 41, 90)))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY
    channel.ahead.contradict(62, 62)
    assert trust(channel, PETR4)[0] == TrustLevel.UNVERIFIED
