"""Statistics and the tape, against a slow and obvious reference, and rule by rule."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from market.event_builders import MORNING_NS, PRICE, EventRow, build_events, bust, define, statistic, status, trade
from market.statistics_reference import Reference, assert_equal

from umdf.market import families as e
from umdf.market.families import CONDITIONS, FAMILIES, NULL
from umdf.market.rows import Rows
from umdf.market.state import MarketState
from umdf.market.statistics import Statistics
from umdf.market.statistics_kernel import OPERATION
from umdf.market.statistics_view import describe_statistics
from umdf.market.tape import Tape, TradeTotals

WHO, VENUE = st.integers(1, 2), st.sampled_from([None, "E", "E"])
AMOUNT = st.integers(1, 9)


@st.composite
def event_rows(draw: st.DrawFn) -> EventRow:
    family = draw(
        st.sampled_from(
            ["trades"] * 4 + ["bust"] * 2 + ["statistics"] * 4 + ["imbalance", "price_band", "snapshot"] + ["reset"]
        )
    )
    row: dict[str, Any] = {"instrument_id": draw(WHO), "ts_event": MORNING_NS + draw(st.integers(0, 5))}
    if family in ("trades", "bust"):
        row |= {"action": "C" if family == "bust" else "A", "side": "N", "venue": draw(VENUE)}
        row |= {"price": draw(AMOUNT) * PRICE, "size": draw(AMOUNT), "trade_id": draw(AMOUNT), "buyer": draw(AMOUNT)}
        row["conditions"] = draw(st.sampled_from([0, 0, 0, CONDITIONS["1"], CONDITIONS["OUT_OF_SEQUENCE"], 1]))
        return "trades", row
    if family == "statistics":
        row |= {"stat_type": draw(st.sampled_from([*e.STATISTICS, 77])), "venue": draw(VENUE)}
        row |= {"action": draw(st.sampled_from("AAC")), "price": draw(AMOUNT) * PRICE, "size": draw(AMOUNT)}
        row |= {"trade_id": draw(AMOUNT), "open_close_settl_flag": draw(st.sampled_from([None, 0, 1, 3, 4, 5]))}
        row |= {"settl_price_type": draw(st.sampled_from([None, 1, 2, 3])), "underlying_id": draw(AMOUNT)}
    elif family == "imbalance":
        row |= {"action": draw(st.sampled_from("AC")), "side": "B", "size": draw(AMOUNT), "conditions": 0}
    elif family == "price_band":
        row |= {"entry_type": draw(st.sampled_from("gh")), "price_band_type": draw(st.sampled_from([None, 1, 2, 3, 4]))}
        row |= {"low_limit_price": draw(AMOUNT) * PRICE}
    elif family == "reset":
        if draw(st.integers(0, 3)) == 0:
            return "control", {"kind": "R"}
        return "status", {"instrument_id": row["instrument_id"], "state": 4, "event": 4}
    return family, row


@given(st.lists(event_rows(), max_size=60), st.data())
def test_any_history_is_as_the_reference_says_after_every_step(history: list[EventRow], data: st.DataObject) -> None:
    market, reference = MarketState(72), Reference()
    while history:
        size = data.draw(st.integers(1, max(1, len(history))), "rows in the batch")
        batch, history = history[:size], history[size:]
        market.apply(build_events(*batch))
        for happening in batch:
            reference.apply(happening)
        assert_equal(market.statistics, reference)


@given(st.lists(event_rows(), max_size=80), st.lists(st.integers(1, 79), max_size=4))
def test_how_a_history_is_cut_into_batches_does_not_matter(history: list[EventRow], cuts: list[int]) -> None:
    whole, parts = MarketState(72), MarketState(72)
    whole.apply(build_events(*history))
    places = [0, *sorted(cut for cut in cuts if cut < len(history)), len(history)]
    for first, last in itertools.pairwise(places):
        parts.apply(build_events(*history[first:last], ts_send=MORNING_NS + first))
    assert whole.to_tables() == parts.to_tables()
    restored = MarketState.from_state(whole.export())
    assert restored.to_tables() == whole.to_tables()
    again = [trade(1, 5, 5, 5), statistic(2, e.SESSION_HIGH, 7), bust(1, 5)]
    whole.apply(build_events(*again))
    restored.apply(build_events(*again))
    assert restored.to_tables() == whole.to_tables()


def view(*rows: EventRow) -> dict[str, dict[str, Any]]:
    market = MarketState(72)
    market.apply(build_events(*rows))
    return describe_statistics(market.statistics, 1)


def test_every_286_with_every_731_is_a_settlement_price_of_its_own_10_6() -> None:
    flags, kinds = [None, 0, 1, 3, 4, 5], [None, 1, 2, 3]
    combinations = list(itertools.product(flags, kinds))
    rows = [
        statistic(1, e.SETTLEMENT_PRICE, price, open_close_settl_flag=flag, settl_price_type=kind, venue="A")
        for price, (flag, kind) in enumerate(combinations, 1)
    ]
    found = view(*rows, *[statistic(1, e.SETTLEMENT_PRICE, 99, open_close_settl_flag=1, settl_price_type=2)])
    for price, (flag, kind) in enumerate(combinations, 1):
        name = f"settlement price {'-' if flag is None else flag}/{'-' if kind is None else kind} @A"
        assert found[name]["price"] == str(price)
    assert found["settlement price 1/2 @E"]["price"] == "99"
    assert len(found) == len(combinations) + 1


def test_closing_prices_are_kept_by_286_and_venues_apart_10_5() -> None:
    rows = [
        statistic(1, e.CLOSING_PRICE, 10 + flag, open_close_settl_flag=flag, venue=s)
        for flag in (0, 3, 4)
        for s in "ET"
    ]
    found = view(*rows)
    assert sorted(found) == [f"closing price {flag} @{s}" for flag in (0, 3, 4) for s in "ET"]
    assert found["closing price 4 @T"]["price"] == "14"


def test_a_trade_volume_keeps_count_quantity_and_financial_volume_10_2() -> None:
    row = statistic(1, e.TRADE_VOLUME, size=300, trade_count=7, financial_volume=123_456_789, currency="BRL", venue="O")
    volume = view(row)["trade volume @O"]
    assert volume["financial_volume"] == "12345.6789" and volume["currency"] == "BRL"
    assert volume["trade_count"] == 7 and volume["size"] == 300


def test_bands_are_kept_by_type_and_the_quantity_band_apart_10_9() -> None:
    bands = [("price_band", {"instrument_id": 1, "entry_type": "g", "price_band_type": k, "low_limit_price": k * PRICE})
             for k in (1, 2, 3, 4)]  # fmt: skip
    reference = ("price_band", {"instrument_id": 1, "entry_type": "g", "trading_reference_price": 5 * PRICE})
    quantity = ("price_band", {"instrument_id": 1, "entry_type": "h", "max_trade_vol": 1000})
    found = view(*bands, reference, quantity, bands[0])
    assert [
        found[f"price band {name}"]["low_limit_price"] for name in ("hard", "auction", "rejection", "static")
    ] == list("1234")
    assert found["reference price"]["trading_reference_price"] == "5"
    assert found["quantity band"]["max_trade_vol"] == 1000


# What moves the last price, and what does not (NOTES; 10.1; 13.4).


def test_a_published_last_price_is_the_last_price_and_no_trade() -> None:
    found = view(trade(1, 10, 1, 1, ts_event=5), statistic(1, e.LAST_PRICE, 12, size=3, ts_event=4))
    assert found["last price published @E"]["price"] == "12" and "last trade @E" not in found
    assert found["trades seen @E"]["trades"] == 1 and found["trades seen @E"]["high"] == "10"


@pytest.mark.parametrize("condition", ["1", "OUT_OF_SEQUENCE"])
def test_leg_trades_and_trades_out_of_sequence_count_but_do_not_move_the_last_price(condition: str) -> None:
    found = view(trade(1, 10, 1, 1), trade(1, 50, 2, 2, conditions=CONDITIONS[condition]))
    assert found["last trade @E"]["price"] == "10"
    assert found["trades seen @E"] | {"trades": 2, "quantity": 3, "high": "50"} == found["trades seen @E"]


def test_the_trade_received_last_need_not_be_the_last_10_1_note_1() -> None:
    late = view(trade(1, 10, 1, 7, ts_event=100), trade(1, 11, 1, 6, ts_event=99))
    assert late["last trade @E"]["price"] == "10"
    same_time = view(trade(1, 10, 1, 7, ts_event=100), trade(1, 11, 1, 6, ts_event=100))
    assert same_time["last trade @E"]["price"] == "10"
    assert view(trade(1, 10, 1, 7, ts_event=100), trade(1, 11, 1, 8, ts_event=100))["last trade @E"]["price"] == "11"


def test_a_bust_marks_the_trade_and_restores_nothing_13_4() -> None:
    found = view(trade(1, 10, 1, 1), statistic(1, e.SESSION_HIGH, 20), trade(1, 20, 4, 2), bust(1, 2))
    assert found["last trade @E"]["price"] == "20" and found["last trade @E"]["is_busted"]
    assert found["high @E"]["price"] == "20"
    seen = found["trades seen @E"]
    assert (seen["trades"], seen["quantity"], seen["high"], seen["busts"]) == (1, 1, "10", 1)
    assert view(bust(1, 2))["trades seen @E"]["unknown_busts"] == 1


def test_delete_from_busts_the_trade_that_it_names_12_6() -> None:
    """A trade has no position that a deletion could start from (10.1): 279=4 is about the trade with its 1003."""
    seen = view(trade(1, 10, 1, 1), trade(1, 20, 4, 2), trade(1, 30, 1, 3), bust(1, 2, update_action=4))
    totals = seen["trades seen @E"]
    assert (totals["trades"], totals["quantity"], totals["busts"], totals["unknown_busts"]) == (2, 2, 1, 0)


def test_busting_the_first_trade_leaves_the_second_as_first() -> None:
    seen = view(trade(1, 10, 1, 1), trade(1, 5, 1, 2), trade(1, 20, 1, 3), bust(1, 1))["trades seen @E"]
    assert (seen["first"], seen["high"], seen["low"], seen["vwap"]) == ("5", "20", "5", "12.5")


def test_the_same_trade_sent_again_is_the_last_and_a_new_last_price_is_not_busted() -> None:
    again = view(trade(1, 10, 1, 7, ts_event=100), trade(1, 11, 1, 7, ts_event=100))
    assert again["last trade @E"]["price"] == "11"
    found = view(trade(1, 10, 1, 7), bust(1, 7), statistic(1, e.LAST_PRICE, 9))
    assert not found["last price published @E"]["is_busted"]
    found = view(trade(1, 10, 1, 7, ts_event=1), bust(1, 7), trade(1, 10, 1, 8, ts_event=2))
    assert not found["last trade @E"]["is_busted"]


def test_a_deleted_last_price_is_none() -> None:
    found = view(statistic(1, e.LAST_PRICE, 9), statistic(1, e.LAST_PRICE, action="C"))
    assert [name for name in found if name.startswith("last")] == []


def test_the_count_is_exact_beyond_64_bits() -> None:
    price, size = 9_000_000_000, 10**15
    rows = [trade(1, price, size, i) for i in range(5)] + [trade(1, -price, 3, 9), bust(1, 0)]
    market = MarketState(72)
    market.apply(build_events(*rows))
    ((_, count),) = market.statistics.tape.venues_of(1).values()
    assert count.notional == 4 * price * PRICE * size - 3 * price * PRICE
    assert count.quantity == 4 * size + 3 and count.low == -price * PRICE


def test_vwap_is_rounded_half_to_even() -> None:
    assert [TradeTotals(1, 2, n, None, None, None, 0, 0).vwap for n in (1, 3, 5, -1)] == [0, 2, 2, 0]
    assert TradeTotals(0, 0, 0, None, None, None, 0, 0).vwap is None


# What makes statistics go away.


def one_of_each(who: int) -> list[EventRow]:
    rows = [
        statistic(who, kind, 5, open_close_settl_flag=1, settl_price_type=1, underlying_id=8) for kind in e.STATISTICS
    ]
    rows.append(("imbalance", {"instrument_id": who, "action": "A", "side": "B", "size": 5, "conditions": 0}))
    rows.append(("price_band", {"instrument_id": who, "entry_type": "g", "price_band_type": 1}))
    return [*rows, trade(who, 5, 5, 5)]


def statistic_types_of(market: MarketState, who: int) -> set[int | str]:
    """Types of statistics, and the names of the other families."""
    found: set[int | str] = {key >> 8 & 0xFFFF for key, _ in market.statistics.latest["statistics"].values_of(who)}
    found |= {name for name in ("imbalance", "price_band") if market.statistics.latest[name].values_of(who)}
    return found | {"last" for last, _ in market.statistics.tape.venues_of(who).values() if last is not None}


EVERYTHING = {*e.STATISTICS, "imbalance", "price_band", "last"}
# 11.3, written out once more: 269 = 2, 3, 4, 4 (286=5), 7, 8, 9, B.
RESET = {"last", 100, 101, 1, 2, 5, 4, 13, 6}


def test_1174_4_on_an_instrument_resets_exactly_the_types_of_11_3() -> None:
    market = MarketState(72)
    market.apply(build_events(*one_of_each(1), *one_of_each(2), status(1, state=4, event=4)))
    assert statistic_types_of(market, 1) == EVERYTHING - RESET
    assert statistic_types_of(market, 2) == EVERYTHING


def test_1174_4_on_a_group_resets_all_members_separated_ones_too() -> None:
    market = MarketState(72)
    market.apply(build_events(define(1, "A"), define(2, "B"), define(3, "C", "YY")), "instruments")
    rows = [*one_of_each(1), *one_of_each(2), *one_of_each(3), status(2, state=2, event=101)]
    market.apply(build_events(*rows, status(security_group="XX", phase=4, event=4)))
    assert [statistic_types_of(market, who) for who in (1, 2)] == [EVERYTHING - RESET] * 2
    assert statistic_types_of(market, 3) == EVERYTHING


def test_what_comes_after_a_reset_in_the_same_batch_stays() -> None:
    market = MarketState(72)
    market.apply(
        build_events(*one_of_each(1), status(1, state=4, event=4), statistic(1, e.SESSION_LOW, 3), trade(1, 9, 1, 1))
    )
    assert statistic_types_of(market, 1) == EVERYTHING - RESET | {e.SESSION_LOW, "last"}


def test_top_and_imbalance_go_when_the_phase_leaves_pre_open_10_7() -> None:
    market = MarketState(72)
    market.apply(build_events(*[define(who, str(who)) for who in (1, 2, 3)], define(4, "4", "YY")), "instruments")
    rows = [status(security_group="XX", phase=21), status(2, state=21, event=101), status(3, state=18, event=101)]
    rows += [row for who in (1, 2, 3, 4) for row in one_of_each(who)]
    market.apply(build_events(*rows, status(security_group="XX", phase=17)))
    gone = EVERYTHING - {e.THEORETICAL_OPENING, "imbalance"}
    # The second is in an auction of its own; the fourth is of another group.
    assert [statistic_types_of(market, who) for who in (1, 2, 3, 4)] == [gone, EVERYTHING, gone, EVERYTHING]


def test_top_and_imbalance_go_by_message_too_legacy_14_8() -> None:
    market = MarketState(72)
    delete = ("imbalance", {"instrument_id": 1, "action": "C", "side": "N", "conditions": 0})
    market.apply(build_events(*one_of_each(1), statistic(1, e.THEORETICAL_OPENING, action="C"), delete))
    assert statistic_types_of(market, 1) == EVERYTHING - {e.THEORETICAL_OPENING, "imbalance"}
    market.apply(build_events(statistic(1, e.THEORETICAL_OPENING, action="C"), delete))  # again: nothing happens
    assert statistic_types_of(market, 1) == EVERYTHING - {e.THEORETICAL_OPENING, "imbalance"}


def test_a_channel_reset_empties_all_an_empty_book_only_the_book_4_2_9() -> None:
    market = MarketState(72)
    empty_book = ("mbo", {"instrument_id": 1, "action": "R", "side": "N", "entry_type": "J"})
    market.apply(build_events(*one_of_each(1), *one_of_each(2), empty_book))
    assert statistic_types_of(market, 1) == EVERYTHING
    market.apply(build_events(("control", {"kind": "R"})))
    assert statistic_types_of(market, 1) == statistic_types_of(market, 2) == set()
    ((_, count),) = market.statistics.tape.venues_of(1).values()
    assert count.trades == 1  # our own count: nobody sends those trades again


def test_a_snapshot_replaces_the_statistics_of_its_instrument() -> None:
    market = MarketState(72)
    start = ("snapshot", {"instrument_id": 1, "flags": e.SNAPSHOT})
    market.apply(build_events(*one_of_each(1), *one_of_each(2), start, statistic(1, e.OPEN_INTEREST, size=9)))
    assert statistic_types_of(market, 1) == {e.OPEN_INTEREST}
    assert statistic_types_of(market, 2) == EVERYTHING


def test_a_snapshot_of_no_instrument_forgets_nothing() -> None:
    market = MarketState(72)
    market.apply(build_events(*one_of_each(1), ("snapshot", {}), ("definition", {"action": "D"})))
    assert statistic_types_of(market, 1) == EVERYTHING


def test_a_deleted_instrument_takes_its_statistics_with_it_7_3() -> None:
    market = MarketState(72)
    market.apply(build_events(define(1, "A"), *one_of_each(1)))
    changes = market.apply(build_events(define(1, "A", action="D"), statistic(1, e.SESSION_LOW, 2)))
    assert changes.deleted == [1]
    assert statistic_types_of(market, 1) == {e.SESSION_LOW}


def test_many_instruments_and_keys_grow_the_memory(sized: Callable[[int, int], int]) -> None:
    count = sized(20_000, 1_000_000)
    rng = np.random.default_rng(4)
    ids = rng.integers(1, count // 8, count)
    kinds = rng.choice(np.array([4, 5, 13, 9], np.int16), count)
    prices = rng.integers(1, 1000, count)
    zeros = np.zeros(count, np.uint16)
    rows = Rows(FAMILIES["statistics"], np.arange(count, dtype=np.uint32), zeros, zeros,
                {"instrument_id": ids, "stat_type": kinds, "price": prices, "action": np.full(count, 65, np.uint8),
                 "venue": np.full(count, 69, np.uint8)})  # fmt: skip
    batch = build_events()
    batch.families = {"statistics": rows}
    statistics = Statistics()
    statistics.apply(batch, [])
    expected = dict(zip(zip(ids.tolist(), kinds.tolist(), strict=True), prices.tolist(), strict=True))
    slots = statistics.latest["statistics"].present_slots()
    price = [column.name for column in statistics.latest["statistics"].columns].index("price")
    found = {(int(slot[0]), int(slot[1]) >> 8 & 0xFFFF): int(slot[6 + price]) for slot in slots}
    assert found == expected
    assert NULL not in found.values()


def tape_rows(*rows: EventRow) -> Rows:
    return build_events(*rows).rows("trades")


def test_trades_of_a_finished_session_leave_the_log() -> None:
    market, size = MarketState(72), 700
    for _ in range(20):
        market.apply(build_events(*(trade(1 + n % 3, 10 + n % 5, 1, n) for n in range(size))))
        assert len(market.statistics.tape._log) <= 2048
        market.apply(build_events(*(bust(1, 3 * n) for n in range(5))))
        (_, totals) = market.statistics.tape.venues_of(1)[ord("E")]
        assert (totals.busts, totals.unknown_busts) == (5, 0) and totals.trades == size // 3 + 1 - 5
        market.apply(build_events(*(status(who, state=4, event=4) for who in (1, 2, 3))))


@given(st.lists(st.tuples(st.integers(1, 3), AMOUNT, st.booleans()), max_size=300), st.integers(1, 40))
def test_a_full_log_forgets_the_oldest_trades_and_keeps_the_totals(
    history: list[tuple[int, int, bool]], size: int
) -> None:
    """Against a log that forgets nothing: equal, but for busts of trades that were forgotten."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("umdf.market.tape.INITIAL_LOG_ROWS", 8)
        small, large = Tape(max_log_rows=32), Tape()
    none = np.empty((0, OPERATION), np.int64)
    made: list[EventRow] = []
    for number, (who, amount, is_bust) in enumerate(history):
        # A bust is of one of the last trades: those are never forgotten.
        made.append(bust(who, number - 1 - amount) if is_bust else trade(who, amount, amount, number))
    for first in range(0, len(made), size):
        for tape in (small, large):
            tape.apply(tape_rows(*made[first : first + size]), none)
    assert small.all_venues() == large.all_venues()
    assert len(small._log) <= 32
