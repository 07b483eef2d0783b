"""All of a channel together: the order of the wire over all families, the view, the tables, the stored state."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from market.event_builders import MORNING_NS, PRICE, EventRow, build_events, bust, define, statistic, status, trade

from umdf.market import families as e
from umdf.market.rows import Events, Rows
from umdf.market.state import MarketState


def day() -> list[EventRow]:
    """A short day: the auction, the session, an instrument that is halted, the end."""
    return [
        define(1, "PETR4", feeds=[{"channel": 72, "depth": 0}]),
        define(2, "VALE3"),
        status(security_group="XX", phase=21, ts_open=MORNING_NS + 60, ts_event=MORNING_NS),
        status(1, state=21, event=102, ts_event=MORNING_NS),  # its first: it was created in this session (7.1)
        statistic(1, e.THEORETICAL_OPENING, 10, size=100, venue=None),
        ("imbalance", {"instrument_id": 1, "action": "A", "side": "B", "size": 40, "conditions": 1 << 8}),
        ("price_band", {"instrument_id": 1, "entry_type": "g", "price_band_type": 1, "low_limit_price": 8 * PRICE}),
        status(security_group="XX", phase=17, ts_event=MORNING_NS + 60),
        trade(1, 10, 100, 1, ts_event=MORNING_NS + 61, conditions=1),
        statistic(1, e.OPENING_PRICE, 10, open_close_settl_flag=0),
        statistic(1, e.VWAP, 10, size=100, trade_count=1),
        status(2, state=2, event=101, ts_event=MORNING_NS + 70),
        trade(1, 11, 100, 2, ts_event=MORNING_NS + 80),
        bust(1, 1),
        statistic(1, e.SESSION_LOW, 11),
    ]


def test_the_view_of_an_instrument_is_readable() -> None:
    market = MarketState(72)
    changes = market.apply(build_events(*day()))
    assert changes.added == [1, 2] and changes.deleted == [] and changes.channel_resets == 0
    view = market.instrument(1)
    assert (view.symbol, view.state, view.phase, view.separated, view.depth) == ("PETR4", 17, 17, False, 0)
    assert view.since == MORNING_NS + 60 and view.ts_open is None and view.session == 1
    assert view.statistics["vwap @E"] | {"price": "10", "size": 100, "trade_count": 1} == view.statistics["vwap @E"]
    assert view.statistics["last trade @E"]["price"] == "11" and not view.statistics["last trade @E"]["is_busted"]
    assert view.statistics["trades seen @E"]["vwap"] == "11" and "theoretical opening" not in view.statistics
    assert "imbalance" not in view.statistics and view.statistics["price band hard"]["low_limit_price"] == "8"
    assert (market.instrument(2).state, market.instrument(2).separated) == (2, True)
    assert market.instrument(404).symbol is None and market.instrument(404).statistics == {}


def test_the_tables_are_sorted_by_instrument_and_typed() -> None:
    market = MarketState(72)
    market.apply(build_events(*reversed([statistic(i, e.SESSION_LOW, i, currency="BRL") for i in range(1, 9)]), *day()))
    tables = market.to_tables()
    assert tables["statistics"]["instrument_id"].to_pylist() == sorted(
        tables["statistics"]["instrument_id"].to_pylist()
    )
    assert tables["statistics"].schema.field("financial_volume").type == pa.decimal128(28, 4)
    assert set(tables["statistics"]["currency"].to_pylist()) == {"BRL", None}
    assert (
        tables["last"].to_pylist()[0] | {"instrument_id": 1, "venue": "E", "price": 11 * PRICE}
        == tables["last"].to_pylist()[0]
    )
    assert tables["trades_seen"].to_pylist()[0]["notional"] == 1100 * PRICE
    assert [row["state"] for row in tables["states"].to_pylist()] == [17, 2]
    assert sorted(tables) == ["imbalance", "last", "price_band", "states", "statistics", "trades_seen"]


def test_families_are_applied_in_the_order_of_the_wire_not_one_after_another() -> None:
    market = MarketState(72)
    market.apply(
        build_events(
            define(1, "A"),
            status(security_group="XX", phase=21),
            statistic(1, e.THEORETICAL_OPENING, 10, venue=None),
            status(security_group="XX", phase=17),
            statistic(1, e.THEORETICAL_OPENING, 12, venue=None),  # of the next auction
            status(1, state=21, event=101),
            define(1, "A", action="D"),
            trade(1, 5, 5, 5),
            define(1, "A2"),
            status(1, state=17, event=101),
        )
    )
    view = market.instrument(1)
    assert view.symbol == "A2" and view.separated and "theoretical opening" not in view.statistics
    assert view.statistics["trades seen @E"]["trades"] == 1


def test_a_snapshot_starts_before_the_entries_at_its_own_place() -> None:
    """FAST: the start and the first entry of a W message have the same place."""
    batch, zero = build_events(statistic(1, e.SESSION_LOW, 5)), np.zeros(1, np.uint16)
    start = Rows(e.SNAPSHOT_FAMILY, np.zeros(1, np.uint32), zero, zero, {"instrument_id": np.array([1])})
    market = MarketState(72)
    market.apply(build_events(statistic(1, e.SESSION_HIGH, 7)))
    changes = market.apply(Events(batch.units, {**batch.families, "snapshot": start}), "snapshot")
    assert changes.snapshots == [1] and list(market.instrument(1).statistics) == ["low @E"]


def test_a_restored_state_continues_like_the_original() -> None:
    history = [*day(), *day()[2:]]
    for cut in range(0, len(history), 5):
        whole, part = MarketState(72), MarketState(72)
        whole.apply(build_events(*history))
        part.apply(build_events(*history[:cut]))
        part = MarketState.from_state(pickle.loads(pickle.dumps(part.export())))
        part.apply(build_events(*history[cut:], ts_send=MORNING_NS + cut))
        assert part.to_tables() == whole.to_tables()


def test_an_empty_batch_and_unrelated_families_change_nothing() -> None:
    market = MarketState(72)
    market.apply(build_events(*day()))
    before = market.to_tables()
    market.apply(build_events())
    market.apply(build_events(("news", {"part_number": 1}), ("control", {"kind": "H"}), ("control", {"kind": "S"})))
    assert market.to_tables() == before


@st.composite
def event_rows(draw: st.DrawFn) -> EventRow:
    who: Any = draw(st.integers(1, 3))
    kind = draw(
        st.sampled_from(["define", "delete", "status", "group", "statistic", "trade", "snapshot", "reset", "imbalance"])
    )
    phase = draw(st.sampled_from([2, 17, 21]))
    happening: dict[str, EventRow] = {
        "define": define(who, draw(st.sampled_from("ABC")), draw(st.sampled_from(["XX", "YY"]))),
        "delete": define(who, "A", action="D"),
        "status": status(who, state=phase, event=draw(st.sampled_from([None, 4, 101, 102]))),
        "group": status(
            security_group=draw(st.sampled_from(["XX", "YY"])), phase=phase, event=draw(st.sampled_from([None, 4]))
        ),
        "statistic": statistic(who, draw(st.sampled_from(list(e.STATISTICS))), draw(st.integers(1, 9))),
        "trade": trade(who, draw(st.integers(1, 9)), 1, draw(st.integers(1, 9))),
        "snapshot": ("snapshot", {"instrument_id": who}),
        "reset": ("control", {"kind": "R"}),
        "imbalance": ("imbalance", {"instrument_id": who, "action": "A", "side": "B", "conditions": 0}),
    }
    return happening[kind]


@given(st.lists(event_rows(), max_size=50), st.sets(st.integers(1, 49), max_size=5))
def test_the_result_does_not_depend_on_batch_boundaries(history: list[EventRow], cuts: set[int]) -> None:
    whole, parts, rows = MarketState(72), MarketState(72), MarketState(72)
    changed = whole.apply(build_events(*history))
    places = [0, *sorted(cut for cut in cuts if cut < len(history)), len(history)]
    deleted = []
    for first, last in itertools.pairwise(places):
        deleted += parts.apply(build_events(*history[first:last], ts_send=MORNING_NS + first)).deleted
    for place, happening in enumerate(history):
        rows.apply(build_events(happening, ts_send=MORNING_NS + place))
    assert whole.to_tables() == parts.to_tables() == rows.to_tables()
    assert deleted == changed.deleted
    assert all(whole.instruments.get(who) == rows.instruments.get(who) for who in (1, 2, 3))
