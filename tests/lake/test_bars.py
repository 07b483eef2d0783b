"""Bars, best prices and trades with their best prices, against plain Python on random histories."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from umdf.lake.books import bars
from umdf.lake.books.intervals import OPEN_SUFFIX, IntervalTables
from umdf.lake.books.levels import NO_LAST_PRICE
from umdf.lake.books.state_columns import BookStates
from umdf.lake.books.state_record import BOOK_FIELDS, HEADER_FIELDS
from umdf.market.calendar import local_date
from umdf.market.families import CONDITIONS, MAYBE_BAD_BOOK, NULL
from umdf.sync.book_trust_kernel import UNKNOWN_START

IDS = np.array([11, 22, 33], np.int64)
SYMBOLS = pa.array(["ELEVEN", None, "THIRTY"], pa.utf8())
DATE = 20_770
NOON_NS = DATE * 86_400 * 10**9 + 15 * 3600 * 10**9
SIZES = {"ohlcv_1s": 1, "ohlcv_1m": 60, "ohlcv_1h": 3600}

trade = st.fixed_dictionaries(
    {
        "instrument_index": st.integers(0, 2),
        "ts": st.integers(0, 8 * 10**9).map(lambda ns: NOON_NS + ns),
        "price": st.one_of(st.just(NULL), st.integers(-3 * 10**12, 9 * 10**12)),
        "size": st.integers(1, 10**9),
        "trade_id": st.integers(1, 6),
        "conditions": st.sampled_from([0, 0, 0, CONDITIONS["1"], CONDITIONS["OUT_OF_SEQUENCE"], CONDITIONS["X"]]),
        "action": st.sampled_from([ord("A"), ord("A"), ord("A"), ord("C")]),
        "venue": st.sampled_from([0, ord("E"), ord("X")]),
    }
)


def log_of(trades: list[dict[str, int]]) -> Any:
    log = np.zeros(len(trades), bars.TRADE_DTYPE)
    for row, one in enumerate(trades):
        for name, value in one.items():
            log[name][row] = value
    return log


def plain_counted(trades: list[dict[str, int]]) -> tuple[list[dict[str, int]], list[int]]:
    """One after the other: a bust takes away the newest trade of its id that is left."""
    left: list[dict[str, int]] = []
    busted = [0, 0, 0]
    for one in trades:
        if one["action"] == ord("A"):
            left.append(one)
            continue
        same = [t for t in left if (t["instrument_index"], t["trade_id"]) == (one["instrument_index"], one["trade_id"])]
        if same:
            left = [t for t in left if t is not same[-1]]
            busted[one["instrument_index"]] += 1
    return [t for t in left if t["venue"] not in map(ord, "XOT")], busted


def plain_bars(trades: list[dict[str, int]], size_s: int) -> dict[tuple[int, int], dict[str, Any]]:
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for one in sorted(trades, key=lambda t: (t["ts"], t["trade_id"])):
        key = int(IDS[one["instrument_index"]]), one["ts"] // (size_s * 10**9) * size_s * 10**9
        bar = found.setdefault(
            key, {"open": None, "high": None, "low": None, "close": None, "volume": 0, "count": 0, "notional": 0}
        )
        price = None if one["price"] == NULL else one["price"]
        bar["volume"] += one["size"]
        bar["count"] += 1
        bar["notional"] += (price or 0) * one["size"]
        if price is not None and not one["conditions"] & NO_LAST_PRICE:
            bar["open"] = price if bar["open"] is None else bar["open"]
            bar["high"] = price if bar["high"] is None else max(bar["high"], price)
            bar["low"] = price if bar["low"] is None else min(bar["low"], price)
            bar["close"] = price
    return found


NOTHING_LOST = np.empty((0, 3), np.int64)
EVERYTHING = np.full(3, (1 << 63) - 1)


def made_of(trades: list[dict[str, int]], lost: Any = NOTHING_LOST) -> tuple[IntervalTables, dict[str, pa.Table]]:
    intervals = IntervalTables(IDS, SYMBOLS, frozenset([*SIZES, "ohlcv_1d"]), DATE)
    intervals.add_trades(log_of(trades))
    return intervals, intervals.finish(lost, EVERYTHING)


@given(st.lists(trade, max_size=40), st.sampled_from(sorted(SIZES)))
def test_bars_are_what_plain_python_makes_of_the_trades(trades: list[dict[str, int]], name: str):
    intervals, made = made_of(trades)
    true, busted = plain_counted(trades)
    assert intervals.busted_counts.tolist() == busted
    rows = made[name].to_pylist()
    expected = plain_bars(true, SIZES[name])
    assert [(row["instrument_id"], row["ts_interval"]) for row in rows] == sorted(expected)
    for row in rows:
        bar = expected[row["instrument_id"], row["ts_interval"]]
        assert [row[key] for key in ("open", "high", "low", "close")] == [
            bar[k] for k in ("open", "high", "low", "close")
        ]
        assert (row["volume"], row["trade_count"]) == (bar["volume"], bar["count"])
        exact = Fraction(bar["notional"], 10**5)
        assert abs(Fraction(str(row["financial_volume"])) * 10**4 - exact) <= Fraction(1, 2)
        assert row["symbol"] == {11: "ELEVEN", 22: None, 33: "THIRTY"}[row["instrument_id"]]


@given(st.lists(trade, max_size=30))
def test_a_day_is_one_bar_and_its_vwap_is_exact(trades: list[dict[str, int]]):
    intervals, made = made_of(trades)
    rows = made["ohlcv_1d"].to_pylist()
    true, _ = plain_counted(trades)
    assert {row["instrument_id"] for row in rows} == {int(IDS[one["instrument_index"]]) for one in true}
    for place, vwap in zip(
        intervals.day_bars["instrument_index"].tolist(), bars.vwap(intervals.day_bars).tolist(), strict=True
    ):
        own = [one for one in true if one["instrument_index"] == place]
        notional = sum(one["price"] * one["size"] for one in own if one["price"] != NULL)
        volume = sum(one["size"] for one in own)
        assert vwap == (2 * notional + volume) // (2 * volume)
    assert {row["ts_interval"] for row in rows} <= {bars.midnight_ns(DATE)}


def test_the_day_begins_at_midnight_in_sao_paulo():
    begins = bars.midnight_ns(DATE)
    assert local_date(begins) == DATE and local_date(begins - 1) == DATE - 1
    assert begins == DATE * 86_400 * 10**9 + 3 * 3600 * 10**9


window = st.tuples(st.integers(0, 2), st.integers(-1, 9), st.integers(0, 4))


@given(st.lists(trade, max_size=30), st.lists(window, max_size=4))
def test_a_bar_in_which_something_was_lost_says_so(trades: list[dict[str, int]], windows: list[tuple[int, int, int]]):
    """-1: since the beginning."""
    lost = sorted(
        (place, UNKNOWN_START if since < 0 else NOON_NS + since * 10**9, NOON_NS + (max(since, 0) + length) * 10**9)
        for place, since, length in windows
    )
    array = np.array(lost, np.int64).reshape(-1, 3)
    rows = made_of(trades, array)[1]["ohlcv_1s"].to_pylist()
    for row in rows:
        begins, ends = row["ts_interval"], row["ts_interval"] + 10**9
        hit = any(
            IDS[place] == row["instrument_id"] and (since == UNKNOWN_START or since < ends) and until >= begins
            for place, since, until in lost
        )
        assert bool(row["flags"] & MAYBE_BAD_BOOK) == hit


@given(st.lists(trade, max_size=40), st.integers(0, 9), st.integers(0, 40))
def test_a_day_in_two_runs_is_the_day_in_one_or_says_that_it_is_late(trades: list[Any], settle_s: int, cut: int):
    """What is final is written once; the rest is written again by the next run."""
    _, whole = made_of(trades)
    final_before_ns = NOON_NS + settle_s * 10**9
    first = IntervalTables(IDS, SYMBOLS, frozenset([*SIZES, "ohlcv_1d"]), DATE)
    first.add_trades(log_of(trades[:cut]))
    before = first.finish(NOTHING_LOST, np.full(3, final_before_ns))
    kept = first.to_sections()
    then = IntervalTables(IDS, SYMBOLS, first.table_names, DATE)
    nothing = np.zeros(len(IDS), np.int64)
    head = dict.fromkeys(HEADER_FIELDS, nothing) | {
        "final_before": nothing + final_before_ns,
        "busted": first.busted_counts,
    }
    numbers = IDS, nothing, nothing.astype(np.uint64), nothing, nothing.astype(np.int32)
    then.restore(np.arange(len(IDS)), BookStates(*numbers, head, dict.fromkeys(BOOK_FIELDS, nothing), kept))
    then.add_trades(log_of(trades[cut:]))
    after = then.finish(NOTHING_LOST, EVERYTHING)
    if any(one["ts"] < final_before_ns for one in trades[cut:]):
        assert then.has_late_rows
    if then.has_late_rows:
        return
    assert then.busted_counts.tolist() == plain_counted(trades)[1]
    for name in ("ohlcv_1s", "ohlcv_1h", "ohlcv_1d"):
        rows = after[name].to_pylist()
        if name + OPEN_SUFFIX in before:
            assert not after[name + OPEN_SUFFIX].num_rows
            rows += before[name].to_pylist()
        rows.sort(key=lambda row: (row["instrument_id"], row["ts_interval"]))
        assert rows == whole[name].to_pylist()
