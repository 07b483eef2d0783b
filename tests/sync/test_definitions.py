"""Definitions through gaps: what may have changed unseen is unverified, and what a complete list lacks was deleted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from market.event_builders import build_events, define

from tests.sync.test_channel import PETR4, VALE3, events, rows, started
from umdf.market.families import NULL
from umdf.market.rows import Events, Units
from umdf.sync.channel import Channel
from umdf.sync.definitions.list_loops import InstrumentList, ListLoops
from umdf.sync.gaps import MARGIN_NS, Gap
from umdf.sync.raw_units import RawUnits, data_units
from umdf.sync.unit_codecs import DecodedUnits

ITUB4, LOST_NS, LATER_NS = 7, 10**9, 10**10


def defined(*instruments: int) -> Channel:
    """A channel with definitions that has lost sequence 2."""
    channel = started(1, (PETR4, 1, 10))
    channel.apply_instruments(build_events(*(define(number, f"S{number}") for number in instruments), ts_send=0))
    channel.open_gap(Gap(1, 2, 2, LOST_NS))
    channel.apply(events(3, (PETR4, 2, 11)))
    return channel


def changed(sequence: int, action: str, instrument: int, symbol: str, ts_send: int) -> Events:
    found = build_events(define(instrument, symbol, action=action), ts_send=ts_send)
    return replace(found, units=replace(found.units, sequence=np.array([sequence])))


def listed(*instruments: int, ts: int = LATER_NS) -> InstrumentList:
    return InstrumentList(ts, ts, frozenset(instruments))


def symbol(channel: Channel, instrument: int = PETR4) -> str | None:
    return channel.state.instruments.symbol_of(instrument)


def test_definitions_are_unverified_after_a_gap_until_it_is_filled():
    channel = defined(PETR4)
    trust = channel.definition_trust(PETR4)
    assert not trust.is_healthy and "sequence 2 of epoch 1 was lost" in str(trust.reason)
    channel.apply_late(changed(2, "M", PETR4, "NEW", 2))
    assert channel.definition_trust(PETR4).is_healthy and symbol(channel) == "NEW"


def test_an_instrument_without_a_definition_is_not_healthy():
    assert "no definition" in str(started(1).definition_trust(PETR4).reason)


def test_a_list_that_was_sent_long_after_the_gap_answers_it():
    channel, sent_ns = defined(PETR4), 3_000  # the unit after the gap
    channel.apply_list(replace(listed(PETR4), ts_send=sent_ns + MARGIN_NS, ts_recv=LOST_NS))
    assert not channel.definition_trust(PETR4).is_healthy
    channel.apply_list(replace(listed(PETR4), ts_send=sent_ns + MARGIN_NS + 1, ts_recv=LOST_NS))
    assert channel.definition_trust(PETR4).is_healthy and channel.definition_gap() is None


def test_a_list_that_was_sent_long_after_a_gap_answers_it_although_the_gap_is_found_later():
    channel = defined(PETR4)
    channel.apply_list(listed(PETR4))
    channel.open_gap(Gap(1, 4, 4, 2 * LATER_NS))
    assert not channel.definition_trust(PETR4).is_healthy
    channel.apply(events(5, (PETR4, 3, 12)))  # sent long before the list
    assert channel.definition_trust(PETR4).is_healthy


def test_before_anything_follows_a_gap_the_time_of_receiving_a_list_counts():
    channel = defined(PETR4)
    channel.apply_list(listed(PETR4))
    channel.open_gap(Gap(1, 4, 4, 2 * LATER_NS))
    channel.apply_list(listed(PETR4, ts=2 * LATER_NS + MARGIN_NS))
    assert not channel.definition_trust(PETR4).is_healthy
    channel.apply_list(listed(PETR4, ts=2 * LATER_NS + MARGIN_NS + 1))
    assert channel.definition_trust(PETR4).is_healthy


def test_what_a_list_lacks_was_deleted():
    channel = defined(PETR4, VALE3)
    channel.apply_list(listed(VALE3))
    assert channel.state.instruments.ids() == [VALE3] and channel.deleted == {PETR4: 3}
    assert channel.book(PETR4) is None and channel.definition_trust(PETR4).is_healthy


def test_a_list_deletes_nothing_if_nothing_was_lost():
    channel = started(1, (PETR4, 1, 10))
    channel.apply_instruments(build_events(define(PETR4, "PETR4"), ts_send=0))
    channel.apply_list(listed(VALE3))
    assert channel.state.instruments.ids() == [PETR4]


def test_what_a_damaged_packet_has_made_up_is_gone_with_the_next_list():
    """It has a wrong SecurityID: no definition will ever come for that, and its book would be stale for ever."""
    channel = started(1, (PETR4, 1, 10))
    channel.apply_instruments(build_events(define(PETR4, "PETR4"), ts_send=0))
    channel.apply(events(2, (VALE3, 7, 11)))
    sent_ns = 2_000
    channel.apply_list(listed(PETR4, ts=sent_ns + MARGIN_NS))  # its definition may have been sent since
    assert channel.instrument_ids() == {PETR4, VALE3} and not channel.book_trust(VALE3).is_healthy
    channel.apply_list(listed(PETR4, ts=sent_ns + MARGIN_NS + 1))
    assert channel.instrument_ids() == {PETR4} and not channel.untrusted() and not channel.deleted


def test_an_instrument_that_is_heard_of_before_its_definition_stays():
    channel = started(1, (PETR4, 1, 10), (VALE3, 7, 11))
    channel.apply_list(listed(PETR4, VALE3))
    assert channel.instrument_ids() == {PETR4, VALE3}
    channel.apply_instruments(build_events(define(VALE3, "VALE3"), ts_send=0))
    channel.apply_list(listed(PETR4, ts=2 * LATER_NS))  # it has a definition: only a message deletes it (7.3)
    assert channel.instrument_ids() == {PETR4, VALE3}


def test_an_instrument_that_was_added_after_the_begin_of_a_list_stays():
    channel = defined(PETR4)
    channel.apply(changed(4, "A", ITUB4, "ITUB4", LATER_NS))
    channel.apply_list(listed(PETR4, ts=LATER_NS))
    assert channel.state.instruments.ids() == [PETR4, ITUB4] and not channel.definition_trust(PETR4).is_healthy
    assert channel.definition_trust(ITUB4).is_healthy  # its definition came after the gap
    channel.apply_list(listed(PETR4, ITUB4, ts=LATER_NS + 1))
    assert channel.definition_trust(PETR4).is_healthy


def test_an_older_definition_never_replaces_a_newer_one():
    channel = defined(PETR4)
    channel.apply(changed(4, "M", PETR4, "NEW", 4_000))
    channel.apply_late(changed(2, "M", PETR4, "OLD", 2_000))
    for ts_send in (3_000, 5_000):  # a loop may send just after a change what was before it
        channel.apply_instruments(build_events(define(PETR4, "OLD"), ts_send=ts_send))
        assert symbol(channel) == "NEW" and channel.definition_trust(PETR4).is_healthy
    channel.apply_instruments(build_events(define(PETR4, "NEWER"), ts_send=4_001 + MARGIN_NS))
    assert symbol(channel) == "NEWER"


def test_a_late_definition_is_older_than_a_list_that_answered_its_gap():
    channel = defined(PETR4)
    channel.apply_instruments(build_events(define(PETR4, "LIST"), ts_send=LATER_NS))
    channel.apply_list(listed(PETR4))
    channel.apply_late(changed(2, "D", PETR4, "OLD", 2_000))
    assert symbol(channel) == "LIST"


def test_a_new_numbering_needs_a_list_and_keeps_definitions_until_then():
    channel = started(1, (PETR4, 1, 10))
    channel.apply_instruments(build_events(define(PETR4, "PETR4"), define(VALE3, "VALE3"), ts_send=0))
    channel.start_epoch(2, 1, LOST_NS)
    assert symbol(channel) == "PETR4" and not channel.definition_trust(PETR4).is_healthy
    channel.apply_list(listed(PETR4))
    assert channel.definition_trust(PETR4).is_healthy and channel.state.instruments.ids() == [PETR4]


# Loops: numbers of units, each with the definition of an instrument of this number.


def loop(*numbers: int, total: int = 4, last: int = 4, epoch: int = 1, line: int = 0) -> tuple[RawUnits, DecodedUnits]:
    count, found = len(numbers), np.array(numbers, np.int64)
    ones, short = np.ones(count, np.int64), np.zeros(count, np.uint16)
    times = np.full(count, 100)
    lines = np.full(count, line, np.uint16)
    raw = data_units(np.empty(0, np.uint8), ones, ones, found, ones * epoch, times, short, lines)
    listing = [{"instrument_id": n, "action": ord("A"), "total_instruments": total, "is_last": int(n == last)}
               for n in numbers]  # fmt: skip
    units = Units(ones.astype(np.int16), ones * epoch, found, times, times)
    return raw, DecodedUnits(Events(units, {"definition": rows("definition", listing)}), np.zeros(count, np.bool_))


def lists(*parts: tuple[RawUnits, DecodedUnits]) -> list[list[int]]:
    loops = ListLoops()
    return [sorted(found.instrument_ids) for part in parts for _, found in loops.read(*part)]


def test_a_loop_without_a_hole_is_a_list_however_it_comes_in_calls():
    assert lists(loop(1, 2, 3, 4)) == lists(loop(1, 2), loop(3), loop(4)) == [[1, 2, 3, 4]]
    assert lists(loop(3, 4, 1, 2, 3, 4, 1)) == [[1, 2, 3, 4]]
    assert lists(loop(1, 2, 2, 1, 2, 3, 2, 3, 4)) == [[1, 2, 3, 4]]  # delivered twice
    assert lists(loop(1, 2, 3, 4, total=NULL)) == [[1, 2, 3, 4]]


@pytest.mark.parametrize("numbers", [(2, 3, 4), (1, 2, 4), (1, 2, 3), (1, 3, 2, 4)])
def test_a_loop_with_a_hole_is_no_list(numbers: tuple[int, ...]):
    assert lists(loop(*numbers)) == []


def test_parts_of_two_loops_are_no_list():
    assert lists(loop(1, 2), loop(3, 4, epoch=2)) == []
    assert lists(loop(1, 2), loop(3, 4, line=1)) == []
    assert lists(loop(1, 2, total=5), loop(3, 4)) == []


def test_a_list_has_as_many_instruments_as_it_states():
    assert lists(loop(1, 2, 3, 4, total=5)) == lists(loop(1, 2, 3, 4, total=3)) == []


def test_a_damaged_unit_is_a_hole():
    raw, decoded = loop(1, 2, 3, 4)
    decoded.damaged[1] = True
    assert lists((raw, decoded)) == []
