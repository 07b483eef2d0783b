"""Phases and states at the end of a day: as the market model has them, in however many parts the day came."""

from __future__ import annotations

import json
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from market.event_builders import EventRow, build_events, define, status

from umdf.lake.tasks.channel_task import split_by_time
from umdf.lake.tasks.instrument_list import InstrumentList, build_instrument_list
from umdf.lake.tasks.last_states import SEQUENCE_BITS, LastStates, StreamGaps, phases_and_states
from umdf.market.families import NULL_I16
from umdf.market.phase_tables import UNKNOWN
from umdf.market.rows import Events
from umdf.market.state import MarketState
from umdf.sync.gaps import MARGIN_NS

LIST = build_events(define(1, "A"), define(2, "B"), define(3, "C", "YY"), define(4, "D", "YY"))
LATER = {5: "XX", 6: "YY"}  # instruments that are created during the day
STATES = (2, 4, 17, 21)
IDS = np.arange(1, 7)
NO_SNAPSHOTS = np.empty(0, np.int64), np.empty(0, np.int64)


def history(random: Random, count: int) -> list[EventRow]:
    alive, made = {1, 2, 3, 4}, list[EventRow]()
    while len(made) < count:
        chance = random.random()
        if chance < 0.05:
            made.append(("control", {"kind": "R"}))
        elif chance < 0.1:
            made.append(("control", {"kind": "H"}))
        elif chance < 0.3:
            new = random.choice([who for who in LATER if who not in alive] or [0])
            if new:
                made.append(define(new, f"N{new}", LATER[new], action="A"))
                alive.add(new)
        elif chance < 0.35 and len(alive) > 2:
            alive.remove(who := random.choice(sorted(alive)))
            made.append(("definition", {"instrument_id": who, "action": "D"}))
        elif chance < 0.6:
            made.append(status(security_group=random.choice(("XX", "YY")), phase=random.choice(STATES)))
        else:
            who, event = random.choice(sorted(alive)), random.choice((None, None, 101, 102, 4))
            made.append(status(who, state=random.choice(STATES), event=event))
    return made


def known(*parts: Events) -> InstrumentList:
    return build_instrument_list([part.rows("definition") for part in (LIST, *parts)], 72)


def ends_of(states: LastStates, names: InstrumentList) -> list[tuple[int | None, int | None]]:
    said = json.loads(json.dumps(states.final_states()))
    found = phases_and_states(said, IDS, [names.groups[row] for row in names.rows_of(IDS).tolist()])
    return [(_known(phase), _known(state)) for phase, state in zip(*(each.tolist() for each in found), strict=True)]


def _known(code: int) -> int | None:
    return None if code in (NULL_I16, UNKNOWN) else code


@given(seed=st.integers(0, 2**32), count=st.integers(0, 40), cuts=st.lists(st.integers(0, 40), max_size=3))
def test_they_are_those_of_the_market_model_in_any_number_of_parts(seed: int, count: int, cuts: list[int]) -> None:
    rows = history(Random(seed), count)
    market = MarketState(72)
    market.apply(LIST, "instruments")
    market.apply(build_events(*rows))
    expected: list[tuple[int | None, int | None]] = []
    for who in IDS.tolist():
        state = market.phases.state_of(who)
        is_alive = who in market.instruments
        expected.append((_known(state.phase), _known(state.state)) if is_alive else (None, None))
    stored: dict[str, Any] = {}
    places = [0, *sorted(min(cut, count) for cut in cuts), count]
    names = known(build_events(*rows))
    states = LastStates(stored, names, [1])
    for first, last in pairwise(places):
        part = build_events(*rows[first:last])
        states = LastStates(json.loads(json.dumps(stored)), names, [1])
        states.apply(part, part, part)
        stored = states.to_json()
    assert ends_of(states, names) == expected


def test_what_the_stream_lacks_comes_from_the_newest_snapshot() -> None:
    names = known()
    states = LastStates({}, names, [1])
    said = build_events(status(security_group="XX", phase=17))
    states.apply(said, said, said)
    older = build_events(status(1, phase=4, state=4), status(3, phase=21, state=21), status(4, phase=21, state=2))
    newer = build_events(status(security_group="YY", phase=17), status(2, phase=4, state=2, event=101), ts_send=1 << 62)
    states.apply_snapshots(newer, NO_SNAPSHOTS)
    states = LastStates(json.loads(json.dumps(states.to_json())), names, [1])
    states.apply_snapshots(older, NO_SNAPSHOTS)
    # 1: its group's message counts; 2: apart; 3: the newer phase of its group; 4: apart, since 326 is not 625.
    assert ends_of(states, names)[:4] == [(17, 17), (17, 2), (17, 17), (17, 2)]


def test_a_newer_snapshot_replaces_an_older_one() -> None:
    names, states = known(), LastStates({}, known(), [1])
    states.apply_snapshots(build_events(status(3, phase=21, state=2, event=101)), NO_SNAPSHOTS)
    assert ends_of(states, names)[2] == (21, 2)
    states.apply_snapshots(build_events(status(3, phase=4, state=4), ts_send=1 << 62), NO_SNAPSHOTS)
    assert ends_of(states, names)[2] == (4, 4)


def test_what_was_known_before_an_epoch_does_not_count_in_it() -> None:
    """4.2.8: a client synchronizes as at the start of the day. What was sent last before a failover is not known."""
    names = known()
    states = LastStates({}, names, [1, 2], StreamGaps(later_epochs=[1]))
    before = build_events(status(security_group="XX", phase=17), status(security_group="YY", phase=17))
    states.apply(before, before, before)
    assert [phase for phase, _ in ends_of(states, names)[:4]] == [None] * 4
    held = np.array([0]), np.array([1 << SEQUENCE_BITS | 20])
    states.apply_snapshots(build_events(status(security_group="XX", phase=4), status(1, state=4, event=102)), held)
    assert ends_of(states, names)[:4] == [(4, 4), (4, None), (None, None), (None, None)]


def test_a_definition_in_a_later_loop_replaces_one_of_the_incremental_stream() -> None:
    """7.2: a change was lost. What a loop sends just after a change may be of before it."""
    change = build_events(define(1, "A", "XX", action="M"), ts_send=10**12)
    for later_ns, group in ((MARGIN_NS, "XX"), (MARGIN_NS + 1, "YY")):
        listed = build_events(define(1, "A", "YY"), ts_send=10**12 + later_ns)
        earlier, later = split_by_time(listed, change)
        parts = [events.rows("definition") for events in (earlier, change, later)]
        assert build_instrument_list(parts, 72).groups[0] == (group, "BVMF")
    earlier, later = split_by_time(LIST, build_events())
    assert len(earlier.rows("definition")) == 4 and not len(later.rows("definition"))
