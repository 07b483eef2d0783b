"""Definitions: the list, changes during the day, and what held at a moment."""

from __future__ import annotations

import pickle
import time

import numpy as np
from market.event_builders import MORNING_NS, PRICE, EventRow, build_events, define

from umdf.market.families import DEFINITION, FAMILIES
from umdf.market.instruments import DefinitionChanges, Instruments
from umdf.market.rows import Events, RepeatingGroup, Rows, Units, text_column


def apply(instruments: Instruments, *rows: EventRow, ts: int = MORNING_NS, intraday: bool = False) -> DefinitionChanges:
    events = build_events(*rows, ts_send=ts)
    return instruments.apply(events.rows("definition"), events.units, intraday=intraday)


def test_the_list_is_complete_when_393_is_reached() -> None:
    instruments = Instruments()
    apply(instruments, define(1, "A", total_instruments=3), define(2, "B", total_instruments=3))
    assert not instruments.is_complete and instruments.total_instruments == 3
    apply(instruments, define(2, "B", total_instruments=3), define(1, "A", total_instruments=3))
    assert not instruments.is_complete  # the same again
    apply(instruments, define(3, "C", total_instruments=3, is_last=1))
    assert instruments.is_complete and instruments.has_last_fragment and instruments.ids() == [1, 2, 3]


def test_the_cyclic_list_changes_nothing() -> None:
    instruments = Instruments()
    rows = [define(i, f"S{i}", legs=[{"leg_id": i, "leg_symbol": "L"}], total_instruments=2) for i in (1, 2)]
    assert apply(instruments, *rows).added == [1, 2]
    again = apply(instruments, *[(name, {**row, "total_instruments": 5, "is_last": 1}) for name, row in rows], ts=99)
    assert (again.added, again.modified, again.deleted) == ([], [], [])
    assert instruments.as_of(1, MORNING_NS - 10**12) is not None


def test_as_of_returns_the_definition_valid_at_a_time() -> None:
    instruments = Instruments()
    apply(instruments, define(1, "OLD", tick=PRICE))
    assert apply(instruments, define(1, "NEW", tick=2 * PRICE, action="M"), ts=1000, intraday=True).modified == [1]
    assert apply(instruments, define(1, "NEW", action="D"), ts=2000, intraday=True).deleted == [1]
    assert apply(instruments, define(1, "AGAIN"), define(2, "TODAY"), ts=3000, intraday=True).added == [1, 2]
    symbols = [
        None if (d := instruments.as_of(1, ts)) is None else d.symbol for ts in (-5, 999, 1000, 1999, 2000, 2999, 3000)
    ]
    assert symbols == ["OLD", "OLD", "NEW", "NEW", None, None, "AGAIN"]
    assert instruments.as_of(2, 2999) is None and instruments.as_of(2, 3001) is not None
    assert instruments.as_of(77, 0) is None


def test_symbols_and_ids_follow_changes() -> None:
    instruments = Instruments()
    apply(instruments, define(1, "A"), define(2, "B"))
    apply(instruments, define(1, "C", action="M"), define(2, "B", action="D"), intraday=True)
    assert (instruments.id_of("A"), instruments.id_of("C"), instruments.id_of("B")) == (None, 1, None)
    assert instruments.symbols_of(np.array([1, 2, 1, 99])).to_pylist() == ["C", None, "C", None]
    apply(instruments, define(99, "Z"), intraday=True)
    assert instruments.symbols_of(np.array([99, 1])).to_pylist() == ["Z", "C"]
    assert instruments.symbols_of(np.array([], np.int64)).to_pylist() == []


def test_groups_are_known_by_code_and_exchange_11_note() -> None:
    instruments = Instruments()
    apply(instruments, define(1, "A", "XX"), define(2, "B", "XX", security_exchange="XBSP"), define(3, "C", None))
    apply(instruments, define(4, "D", "XX", security_exchange="BVMF"))
    assert list(instruments.members(("XX", "BVMF"))) == [1, 4] and list(instruments.members(("XX", "XBSP"))) == [2]
    apply(instruments, define(1, "A", "YY", action="M"), define(4, "D", action="D"), intraday=True)
    assert list(instruments.members(("XX", "BVMF"))) == [] and instruments.groups() == [("XX", "XBSP"), ("YY", "BVMF")]
    assert instruments.group_of(3) is None and instruments.group_of(2) == ("XX", "XBSP")


def test_strategies_on_options_have_no_strike_12_3() -> None:
    instruments = Instruments()
    kinds = {1: 90, 2: 140, 3: 141, 4: 40, 5: None}
    apply(instruments, *[define(i, str(i), security_sub_type=kind, strike_price=0) for i, kind in kinds.items()])
    strikes = [definition.strike_price for i in kinds if (definition := instruments.get(i))]
    assert strikes == [None, None, None, 0, 0]


def test_legs_underlyings_and_feeds() -> None:
    instruments = Instruments()
    legs = [{"leg_id": 7, "leg_symbol": "L7", "leg_ratio": PRICE, "leg_side": 1}, {"leg_id": 8, "leg_side": 2}]
    feeds = [{"channel": 72, "depth": 0}, {"channel": 101, "feed_type": "STD", "depth": 10}, {"channel": 9}]
    apply(
        instruments,
        define(1, "A"),
        define(2, "B", legs=legs, feeds=feeds, underlyings=[{"underlying_id": 5}]),
        define(3, "C"),
    )
    definition = instruments.get(2)
    assert definition is not None and [leg["leg_id"] for leg in definition.legs] == [7, 8]
    assert definition.legs[1] == {
        "leg_id": 8,
        "leg_symbol": None,
        "leg_ratio": None,
        "leg_side": 2,
        "leg_security_type": None,
    }
    assert definition.underlyings[0]["underlying_id"] == 5 and definition.as_dict()["symbol"] == "B"
    depths = [instruments.depth_of(2, channel) for channel in (72, 101, 9, 5)]
    assert depths == [0, 10, 0, None] and instruments.depth_of(1, 72) is None


def test_a_modification_of_what_was_never_seen_adds_it_and_a_deletion_does_nothing() -> None:
    instruments = Instruments()
    changed = apply(instruments, define(1, "A", action="M"), define(2, "B", action="D"), intraday=True)
    assert (changed.added, changed.deleted) == ([1], [])


def test_a_range_of_rows_reads_its_own_texts_and_groups() -> None:
    rows = [define(i, f"S{i}", legs=[{"leg_id": 10 * i, "leg_symbol": f"L{i}"}] * (i % 3)) for i in range(8)]
    events, instruments = build_events(*rows), Instruments()
    instruments.apply(events.rows("definition"), events.units, 3, 6, intraday=False)
    assert instruments.ids() == [3, 4, 5]
    for i in (3, 4, 5):
        definition = instruments.get(i)
        assert definition is not None and definition.symbol == f"S{i}"
        assert [leg["leg_symbol"] for leg in definition.legs] == [f"L{i}"] * (i % 3)


def test_instruments_can_be_pickled_with_their_past() -> None:
    instruments = Instruments()
    apply(instruments, define(1, "A"))
    instruments.symbols_of(np.array([1]))
    copy = pickle.loads(pickle.dumps(instruments))
    assert copy.symbols_of(np.array([1, 2])).to_pylist() == ["A", None] and copy.as_of(1, 5).symbol == "A"


def test_twenty_thousand_instruments_load_in_about_a_second() -> None:
    count, per_packet = 20_000, 4
    unit = np.arange(count, dtype=np.uint32) // per_packet
    columns = {
        column.name: np.arange(count).astype(column.dtype) for column in DEFINITION.columns if not column.is_text
    }
    columns |= {"instrument_id": np.arange(count), "action": np.full(count, ord("A"), np.uint8)}
    texts = {column.name: text_column([f"{column.name[:3]}{i}" for i in range(count)])
             for column in DEFINITION.columns if column.is_text}  # fmt: skip
    feeds = RepeatingGroup(np.arange(count + 1, dtype=np.int32), {"channel": np.full(count, 72, np.int16)})
    rows = Rows(
        FAMILIES["definition"], unit, unit.astype(np.uint16), unit.astype(np.uint16), columns, texts, {"feeds": feeds}
    )
    units = Units(*[np.arange(count, dtype=np.int64)] * 5)
    started = time.process_time()
    instruments = Instruments()
    instruments.apply(Events(units, {"definition": rows}).rows("definition"), units, intraday=False)
    assert len(instruments) == count
    assert time.process_time() - started < 3  # about a second, on a machine that does other things too
