"""Group phases and instrument states: the tables of the two specifications, cell by cell."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from market.event_builders import MORNING_NS, EventRow, build_events, define, status

from umdf.market import phase_tables as p
from umdf.market.phases import InstrumentState, Status
from umdf.market.state import MarketState


def market_of(*rows: EventRow) -> MarketState:
    """Instruments 1 and 2 of group XX, 3 of YY, all from the list; then some rows."""
    market = MarketState(72)
    market.apply(build_events(define(1, "A"), define(2, "B"), define(3, "C", "YY")), "instruments")
    market.apply(build_events(*rows))
    return market


def group(phase: int, **more: Any) -> EventRow:
    return status(security_group="XX", phase=phase, **more)


def state_phase_separated(market: MarketState, instrument_id: int = 1) -> tuple[int, int, bool]:
    state = market.phases.state_of(instrument_id)
    return state.state, state.phase, state.separated


def test_nothing_is_known_before_the_first_status() -> None:
    assert market_of().phases.state_of(1) == InstrumentState(20, 20, False, None, None, None)


def test_a_group_message_is_the_state_of_all_members_and_of_no_other_group_11() -> None:
    market = market_of(group(2))
    assert [state_phase_separated(market, who) for who in (1, 2, 3)] == [(2, 2, False), (2, 2, False), (20, 20, False)]


def test_groups_of_other_exchanges_with_the_same_code_are_others_11_note() -> None:
    market = MarketState(72)
    market.apply(build_events(define(1, "A"), define(2, "B", security_exchange="XBSP")), "instruments")
    market.apply(build_events(group(17), group(4, security_exchange="XBSP")))
    assert [state_phase_separated(market, who)[0] for who in (1, 2)] == [17, 4]


# 1174 = 101 and 102 (11).


@pytest.mark.parametrize("state", [2, 17])
def test_101_separates_whatever_the_phase_is(state: int) -> None:
    market = market_of(group(17), status(1, state=state, event=101))
    assert state_phase_separated(market) == (state, 17, True) and state_phase_separated(market, 2) == (17, 17, False)
    market.apply(build_events(group(21)))
    assert state_phase_separated(market) == (state, 21, True) and state_phase_separated(market, 2) == (21, 21, False)


def test_102_rejoins_and_the_phase_may_be_inferred_11_note() -> None:
    market = market_of(status(1, state=2, event=101), status(1, state=17, event=102))
    assert state_phase_separated(market) == (17, 17, False)
    assert state_phase_separated(market, 2) == (17, 17, False)
    market.apply(build_events(group(4)))
    assert state_phase_separated(market) == (4, 4, False)


# Legacy 14.6, first table: an instrument's message on a feed without the event.


@pytest.mark.parametrize(
    ("before", "state", "separated"),
    [
        ("separated", 17, False),  # equal to the stored 625, separated: 326 is removed, it rejoins
        ("separated", 4, True),  # different, separated: 326 is replaced
        ("following", 17, True),  # equal, following: 326 is stored, it separates
        ("following", 4, True),  # different, following: 326 is stored, it separates
    ],
)
def test_an_instrument_message_without_event_legacy_14_6(before: str, state: int, separated: bool) -> None:
    market = market_of(group(17), *([status(1, state=2)] if before == "separated" else []))
    assert state_phase_separated(market) == ((2, 17, True) if before == "separated" else (17, 17, False))
    market.apply(build_events(status(1, state=state)))
    assert state_phase_separated(market) == (state, 17, separated)
    market.apply(build_events(group(21)))  # what it is told from now on shows what it is
    assert state_phase_separated(market) == (state if separated else 21, 21, separated)


# Legacy 14.6, second table: a group's message.


@pytest.mark.parametrize(
    ("before", "phase"),
    [("separated", 2), ("separated", 21), ("following", 21), ("following", 17)],
)
def test_a_group_message_never_changes_membership_legacy_14_6(before: str, phase: int) -> None:
    market = market_of(group(17), *([status(1, state=2)] if before == "separated" else []))
    market.apply(build_events(group(phase)))
    assert state_phase_separated(market) == ((2, phase, True) if before == "separated" else (phase, phase, False))


def test_the_transition_tables_are_complete() -> None:
    events = {None, p.SEPARATES, p.REJOINS, p.SESSION_CHANGE}
    assert set(p.INSTRUMENT_MESSAGE) == {(e, m, r) for e in events for m in p.MEMBERSHIPS for r in p.RELATIONS}
    assert set(p.GROUP_MESSAGE) == {(m, r) for m in p.MEMBERSHIPS for r in p.RELATIONS}
    assert set(p.SNAPSHOT_STATUS) == {(e, r) for e in events for r in p.RELATIONS}


# 1174 = 4 takes the place of 101 and 102: it says nothing of membership.


@pytest.mark.parametrize("before", ["separated", "following"])
def test_a_change_of_session_keeps_membership(before: str) -> None:
    market = market_of(group(17), *([status(1, state=2, event=101)] if before == "separated" else []))
    market.apply(build_events(status(1, state=17, event=4)))
    assert state_phase_separated(market) == (17, 17, before == "separated")


# 7.1: created during the session.


def test_an_instrument_whose_definition_was_missed_follows_its_group_when_it_is_modified() -> None:
    market = market_of(group(17))
    market.apply(build_events(define(9, "OLD", action="M")))
    assert state_phase_separated(market, 9) == (17, 17, False)


def test_an_instrument_created_today_is_unknown_until_its_own_first_status_7_1() -> None:
    for first, expected in [
        (group(17), (20, 20, False)),
        (group(21, event=4), (20, 20, False)),
        (status(9, state=2, event=101), (2, 17, True)),
        (status(9, state=17, event=102), (17, 17, False)),
        (status(9, state=17, event=4), (17, 17, False)),
        (status(9, state=2, event=4), (2, 17, True)),
    ]:
        market = market_of(group(17))
        market.apply(build_events(define(9, "NEW")))
        assert market.phases.state_of(9) == InstrumentState(20, 20, False, None, None, None)
        market.apply(build_events(status(1, state=4, event=101)))  # about another one
        assert state_phase_separated(market, 9) == (20, 20, False)
        market.apply(build_events(first))
        assert state_phase_separated(market, 9) == expected


def test_an_instrument_of_the_list_follows_its_group_even_if_the_phase_came_first_11_2() -> None:
    market = market_of(group(17))
    market.apply(build_events(define(9, "LATE")), "instruments")
    assert state_phase_separated(market, 9) == (17, 17, False)


def test_a_deleted_instrument_is_forgotten_and_starts_unknown_if_it_comes_again() -> None:
    market = market_of(group(17), status(1, state=2, event=101), define(1, "A", action="D"), define(1, "A"))
    assert state_phase_separated(market) == (20, 20, False)
    market.apply(build_events(define(1, "A"), define(1, "A", action="D")))
    assert market.phases.instrument_ids() == set()


# 11.4: a snapshot's status.


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"phase": 21, "state": 2, "event": 101}, (2, 21, True)),
        ({"phase": 21, "state": 21, "event": 101}, (21, 21, True)),
        ({"phase": 21, "state": 21, "event": 102}, (21, 21, False)),
        ({"phase": 21}, (21, 21, False)),
        ({"phase": 21, "state": 2}, (2, 21, True)),
        ({"phase": 21, "state": 21}, (21, 21, False)),
        ({"state": 17, "event": 102}, (17, 17, False)),  # Binary's SecurityStatus_3: the phase stands in template 10
        ({"state": 4, "event": 101}, (4, 20, True)),
    ],
)
def test_a_snapshot_sets_phase_and_state_together_11_4(row: dict[str, int], expected: tuple[int, int, bool]) -> None:
    market = MarketState(72)
    market.apply(build_events(define(1, "A")), "instruments")
    market.apply(build_events(("snapshot", {"instrument_id": 1}), status(1, **row)), "snapshot")
    assert state_phase_separated(market) == expected


def test_a_snapshot_of_an_earlier_sequence_cannot_undo_a_later_message_of_the_group() -> None:
    market = market_of(group(21, ts_event=MORNING_NS), group(17, ts_event=MORNING_NS + 9))
    old = status(1, phase=21, state=21, event=102, ts_event=MORNING_NS)
    market.apply(build_events(("snapshot", {"instrument_id": 1}), old), "snapshot")
    assert state_phase_separated(market) == (17, 17, False)
    new = status(1, phase=4, state=4, event=102, ts_event=MORNING_NS + 10)
    market.apply(build_events(("snapshot", {"instrument_id": 1}), new), "snapshot")
    assert state_phase_separated(market) == state_phase_separated(market, 2) == (4, 4, False)


def test_a_snapshot_without_a_status_is_of_an_instrument_that_follows() -> None:
    market = market_of(group(17), status(1, state=2, event=101))
    market.apply(build_events(("snapshot", {"instrument_id": 1})), "snapshot")
    assert state_phase_separated(market) == (17, 17, False)


def test_a_snapshot_of_an_earlier_sequence_cannot_undo_a_later_status_of_the_instrument() -> None:
    for sequence, shown in ((2, (2, 17, True)), (3, (17, 17, False))):
        market = MarketState(72, by_sequence=True)
        market.apply(build_events(define(1, "A")), "instruments")
        market.apply(build_events(group(17), status(1, state=2, event=101), status(1, state=2, event=101)))
        old = status(1, phase=17, state=17, event=102)
        market.apply(build_events(("snapshot", {"instrument_id": 1}), old), "snapshot", {1: sequence})
        assert state_phase_separated(market) == shown


def test_states_stay_after_a_channel_reset_13_9() -> None:
    market = market_of(group(17), status(1, state=2, event=101), ("control", {"kind": "R"}))
    assert state_phase_separated(market) == (2, 17, True) and state_phase_separated(market, 2) == (17, 17, False)


@pytest.mark.parametrize(("state", "separated"), [(17, False), (2, True)])
def test_after_a_channel_reset_a_state_that_is_sent_again_separates_nobody_13_9(state: int, separated: bool) -> None:
    """All states come once more, those that are their group's too, and on a feed without the event."""
    again = [("control", {"kind": "R"}), group(17), status(1, state=state), status(2, state=17, event=101)]
    market = market_of(group(17), *again)
    assert state_phase_separated(market) == (state, 17, separated) and state_phase_separated(market, 2) == (
        17,
        17,
        True,
    )
    market.apply(build_events(group(4)))
    assert state_phase_separated(market) == (state if separated else 4, 4, separated) and state_phase_separated(
        market, 2
    ) == (17, 4, True)


def test_a_second_state_after_a_channel_reset_separates_again_legacy_14_6() -> None:
    reset: EventRow = ("control", {"kind": "R"})
    market = market_of(group(17), reset, status(1, state=17), status(1, state=17))
    assert state_phase_separated(market) == (17, 17, True)
    exported = MarketState.from_state(market.export())
    for one in (market, exported):
        one.apply(build_events(reset, status(1, state=17)))
        assert state_phase_separated(one) == (17, 17, False)


def test_a_separated_state_of_before_the_reset_ends_when_the_groups_is_sent_again() -> None:
    market = market_of(group(17), status(1, state=2, event=101), ("control", {"kind": "R"}), status(1, state=17))
    assert state_phase_separated(market) == (17, 17, False)


# 336, 342, and since when.


def test_session_and_open_time_come_with_each_status_and_absent_clears_them() -> None:
    market = market_of(group(21, trading_session=6, ts_open=77), status(1, state=21, event=101, ts_open=88))
    assert (market.phases.state_of(2).session, market.phases.state_of(2).ts_open) == (6, 77)
    assert (market.phases.state_of(1).session, market.phases.state_of(1).ts_open) == (1, 88)
    # 15.3: an auction that waits for its pair has no scheduled end any more.
    market.apply(build_events(status(1, state=21, event=101), group(17)))
    assert market.phases.state_of(1).ts_open is None
    assert (market.phases.state_of(2).session, market.phases.state_of(2).ts_open) == (1, None)


def test_since_is_when_the_state_became_what_it_is() -> None:
    market = market_of(group(17, ts_event=3))
    assert market.phases.state_of(1).since == 3
    market.apply(build_events(group(17, ts_event=4)))
    assert market.phases.state_of(1).since == 3
    market.apply(build_events(status(1, state=17, event=101, ts_event=5)))
    assert market.phases.state_of(1).since == 3
    market.apply(build_events(status(1, state=2, event=101, ts_event=6), group(21, ts_event=7)))
    assert market.phases.state_of(1).since == 6
    market.apply(build_events(status(1, state=21, event=102, ts_event=9)))
    assert market.phases.state_of(1).since == 9 and market.phases.state_of(2).since == 7


def test_unknown_codes_and_instruments_are_stored() -> None:
    market = market_of(
        status(77, state=99, event=55), status(77, state=3, event=101), status(None, state=5), group(250)
    )
    assert state_phase_separated(market, 77) == (3, 20, True) and state_phase_separated(market) == (250, 250, False)


@st.composite
def a_status(draw: st.DrawFn) -> EventRow:
    phase = draw(st.sampled_from([2, 17, 21]))
    if draw(st.booleans()):
        return group(phase)
    return status(draw(st.integers(1, 2)), state=phase, event=draw(st.sampled_from([None, 101, 102, 4])))


@given(st.lists(a_status(), max_size=30))
def test_who_follows_shows_its_groups_phase_and_who_is_separated_its_own(history: list[EventRow]) -> None:
    market, own = market_of(), dict[int, int]()
    for happening in history:
        market.apply(build_events(happening))
        row = happening[1]
        if row["instrument_id"] is not None:
            own[row["instrument_id"]] = row["state"]
        for who in (1, 2):
            state = market.phases.state_of(who)
            assert state.phase == market.phases.phase_of(("XX", "BVMF"))
            assert state.state == (own[who] if state.separated else state.phase)


@pytest.mark.parametrize(("late", "final"), [(p.SEPARATES, False), (p.REJOINS, True)])
def test_a_status_that_comes_late_cannot_undo_a_later_one(late: int, final: bool) -> None:
    """An auction of 6 ms: the slower line brings its start when its end is known already."""
    market = market_of(group(17))
    newest = p.REJOINS if late == p.SEPARATES else p.SEPARATES
    for event, sequence in ((newest, 13_795), (late, 13_062)):
        state = 21 if event == p.SEPARATES else 17
        market.phases.apply(Status(1, None, state=state, event=event, sequence=sequence))
    assert market.phases.state_of(1).separated is final
    assert market.phases.state_of(1).state == (21 if final else 17)
