"""Resets that are lost, or that what was sent before them follows: nothing that they clear comes back, or stays."""

from __future__ import annotations

import numpy as np
import pytest
from market.event_builders import EventRow, build_events, define, statistic, status
from sync.test_channel import PETR4, VALE3, bids, channel_reset, events, snapshot, started, trust

from umdf.market.families import OPEN_INTEREST, SESSION_HIGH
from umdf.market.phases import CLOSE, OPEN
from umdf.market.rows import Events
from umdf.sync.channel import Channel
from umdf.sync.gaps import Gap
from umdf.sync.gated_updates import RESET_LOST
from umdf.sync.trust import TrustLevel

OTHER = 7


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


def unit(sequence: int, *rows: EventRow, rpt_seq: int | None = None) -> Events:
    """A unit with these rows; with `rpt_seq`, the first one has it, and its instrument."""
    events = build_events(*rows)
    units = events.units.take(np.zeros(1, np.int64))
    units.sequence[:], units.ts_send[:], units.ts_recv[:] = sequence, sequence * 1000, sequence * 1000
    families = dict(events.families)
    if rpt_seq is not None:
        name, values = rows[0]
        families[name].columns["rpt_seq"][:1] = rpt_seq
        consumed = {"action": "N", "side": "N", "instrument_id": values["instrument_id"], "rpt_seq": rpt_seq}
        families |= build_events(("mbo", {**consumed, "flags": 128})).families
    for some in families.values():
        some.msg_index[:], some.unit[:] = some.unit, 0
    return Events(units, families)


def trading(*, protocol: str = "sbe", phase: int = OPEN) -> Channel:
    """Up to sequence 99; PETR4 and VALE3 are in the group XX and have so many updates that RptSeq proves something."""
    channel = Channel(72, statuses_have_rpt_seq=protocol == "sbe")
    channel.start_epoch(1, 1, 0)
    channel.apply_instruments(build_events(define(PETR4, "PETR4"), define(VALE3, "VALE3"), define(OTHER, "O", "YY")))
    channel.apply(unit(1, status(security_group="XX", phase=phase)))
    channel.apply(unit(2, status(security_group="YY", phase=OPEN)))
    for instrument, first in ((PETR4, 3), (VALE3, 50)):
        channel.apply(events(first, *((instrument, number, 100 + number) for number in range(1, 48))))
    channel.apply(unit(97, statistic(PETR4, SESSION_HIGH, 10), rpt_seq=48))
    channel.apply(unit(98, statistic(PETR4, OPEN_INTEREST, size=5), rpt_seq=49))
    return channel


@pytest.mark.parametrize("statuses", ["of the group", "of the instrument"])
def test_a_late_statistic_from_before_a_session_change_is_not_one_of_the_new_session(statuses: str):
    """11.3; in FIX/FAST a status has no RptSeq that would have it wait."""
    channel = trading(protocol="fast")
    channel.open_gap(Gap(1, 99, 99, 0))
    whose = status(security_group="XX", phase=CLOSE, event=4) if statuses == "of the group" else status(PETR4, event=4)
    channel.apply(unit(100, whose))
    channel.apply_late(unit(99, statistic(PETR4, SESSION_HIGH, 11), rpt_seq=50))
    assert trust(channel, PETR4) == (TrustLevel.UNVERIFIED, RESET_LOST)
    assert channel.trades_incomplete(PETR4)


def test_a_list_that_shows_an_instrument_in_another_group_shows_that_it_missed_a_reset():
    """7.2: its new definition was lost, so a message of its new group did not reset its statistics."""
    channel = trading()
    channel.open_gap(Gap(1, 99, 99, 0))
    channel.apply_snapshots(snapshot(PETR4, 99, 50, 147))
    channel.apply(unit(100, status(security_group="YY", phase=CLOSE, event=4)))
    later = build_events(define(PETR4, "PETR4", "YY"), ts_send=10**12)
    channel.apply_instruments(later)
    assert trust(channel, PETR4) == (TrustLevel.UNVERIFIED, RESET_LOST)
    channel.apply_snapshots(snapshot(PETR4, 100, 50, 147))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY


def test_a_late_definition_in_another_group_shows_that_the_instrument_missed_a_reset():
    channel = trading()
    channel.open_gap(Gap(1, 99, 99, 0))
    channel.apply(events(100, (PETR4, 50, 999)))
    channel.apply(unit(101, status(security_group="YY", phase=CLOSE, event=4)))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY
    channel.apply_late(unit(99, define(PETR4, "PETR4", "YY", action="M")))
    assert trust(channel, PETR4) == (TrustLevel.UNVERIFIED, RESET_LOST)
