"""Resets that are lost, or that what was sent before them follows: nothing that they clear comes back, or stays."""

from __future__ import annotations

import numpy as np
import pytest
from market.event_builders import EventRow, build_events, define, statistic, status, trade
from sync.test_channel import PETR4, VALE3, bids, channel_reset, events, snapshot, started, trust

from umdf.market.families import LAST_PRICE, OPEN_INTEREST, SESSION_HIGH, SNAPSHOT, THEORETICAL_OPENING
from umdf.market.phase_tables import CLOSE, OPEN, PRE_OPEN
from umdf.market.rows import Events, merge_events
from umdf.sync.channel import Channel
from umdf.sync.gaps import Gap
from umdf.sync.gated_updates import RESET_LOST
from umdf.sync.snapshots import GroupPhases, Snapshots, find_snapshots
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


def test_a_theoretical_price_is_unverified_while_the_end_of_the_auction_may_be_lost():
    """10.7: the client deletes it when the group leaves pre-open, which no RptSeq tells."""
    channel = trading(phase=PRE_OPEN)
    channel.apply(unit(99, statistic(PETR4, THEORETICAL_OPENING, 10), rpt_seq=50))
    channel.open_gap(Gap(1, 100, 100, 0))
    channel.apply(events(101, (PETR4, 51, 999), (VALE3, 48, 998)))
    level, reason = trust(channel, PETR4)
    assert level == TrustLevel.UNVERIFIED and str(reason).startswith("its auction may be over")
    assert trust(channel, VALE3)[0] == TrustLevel.HEALTHY
    assert channel.untrusted().keys() == {PETR4, OTHER}
    channel.apply_phases(GroupPhases(build_events(status(security_group="XX", phase=PRE_OPEN)), after=102, until=102))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY


def test_a_loss_so_long_that_the_day_may_have_ended_leaves_statistics_unverified():
    """11.3: the end of a day is a sequence of phases, so a short loss cannot have all of it."""
    for lost_ns, level in ((60 * 10**9, TrustLevel.HEALTHY), (61 * 10**9, TrustLevel.UNVERIFIED)):
        channel = trading()
        channel.open_gap(Gap(1, 99, 2000, 98_000 + lost_ns))
        channel.apply(events(2001, (PETR4, 50, 999)))
        assert trust(channel, PETR4)[0] == level
        assert (PETR4 in channel.untrusted()) == (level == TrustLevel.UNVERIFIED)


def test_the_phase_in_one_snapshot_does_not_verify_the_statistics_of_the_other_members():
    """11.4: in FIX/FAST the phase of a group comes with the snapshot of each member."""
    channel = trading(protocol="fast", phase=CLOSE)
    channel.open_gap(Gap(1, 99, 99, 0))
    channel.apply(events(100, (PETR4, 50, 999), (VALE3, 48, 998)))
    channel.apply_snapshots(with_row(snapshot(VALE3, 101, 48, 147, 998), status(VALE3, phase=CLOSE, state=CLOSE)))
    assert trust(channel, VALE3)[0] == TrustLevel.HEALTHY
    assert trust(channel, PETR4) == (TrustLevel.UNVERIFIED, RESET_LOST)
    channel.apply_snapshots(with_row(snapshot(PETR4, 101, 50, 147, 999), status(PETR4, phase=CLOSE, state=CLOSE)))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY


def with_row(snapshots: Snapshots, row: EventRow) -> Snapshots:
    families = build_events(row).families
    return find_snapshots(Events(snapshots.events.units, {**snapshots.events.families, **families}))


@pytest.mark.parametrize("first", ["the reset", "the other"])
def test_a_reset_that_came_with_another_content_leaves_statistics_unverified(first: str):
    reset, other = unit(99, status(security_group="XX", phase=OPEN, event=4)), events(99, (VALE3, 48, 998))
    channel = trading()
    channel.apply(reset if first == "the reset" else other)
    channel.contradict(99, other if first == "the reset" else reset)
    channel.apply(events(100, (PETR4, 50, 999)))
    channel.apply_phases(GroupPhases(build_events(status(security_group="XX", phase=OPEN)), after=100, until=100))
    assert trust(channel, PETR4) == (TrustLevel.UNVERIFIED, RESET_LOST)
    channel.apply_snapshots(snapshot(PETR4, 100, 50, 147, 999))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY


def test_trades_seen_are_incomplete_after_a_lost_session_change_that_a_snapshot_has_answered():
    """The snapshot replaces the statistics, but our own totals may be those of two sessions."""
    channel = trading(phase=CLOSE)
    channel.apply(unit(99, trade(PETR4, 10, 100, 1), rpt_seq=50))
    assert not channel.trades_incomplete(PETR4)
    channel.open_gap(Gap(1, 100, 100, 0))  # the session change
    channel.apply(unit(101, status(security_group="XX", phase=OPEN)))
    channel.apply(unit(102, trade(PETR4, 10, 100, 2), rpt_seq=51))
    last = statistic(PETR4, LAST_PRICE, 10, size=100, flags=SNAPSHOT)
    channel.apply_snapshots(with_row(snapshot(PETR4, 102, 51, *range(101, 148)), last))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY
    assert channel.trades_incomplete(PETR4)


@pytest.mark.parametrize("together", [True, False])
def test_a_trade_after_an_impossible_update_is_counted_once(together: bool):
    channel = trading()
    update = "mbo", {"action": "U", "side": "B", "instrument_id": PETR4, "rpt_seq": 50, "flags": 128}
    parts = [unit(99, update), unit(100, trade(PETR4, 10, 100, 1), rpt_seq=51)]
    for part in [merge_events(parts)] if together else parts:
        channel.apply(part)
    assert trust(channel, PETR4)[0] == TrustLevel.STALE
    channel.apply_snapshots(snapshot(PETR4, 99, 50, 147))
    assert trust(channel, PETR4)[0] == TrustLevel.HEALTHY
    assert channel.state.statistics.tape.venues_of(PETR4)[ord("E")][1].trades == 1
