"""Trades → bars (`ohlcv_1s`, `1m`, `1h`, `1d`) and what a day was (`day_statistics`).

The rules of what counts:
- a busted trade counts nowhere, wherever its bust came; both rows stay in `trades`;
- leg trades and trades out of sequence are trades with a volume that never move the last price: they are in volume,
  count and financial volume, not in open, high, low and close, which are NULL if there is nothing else;
- trades of other venues (1500 = X ex-pit, O exercise, T termo) do not count; the exchange's last price is no trade;
- a trade is of the interval of its ts_event (ts_send where that is absent). Open and close are the first and the last
  by time, then trade id, then the order of the wire: the last received need not be the last (10.1 NOTE 1);
- the interval of `1d` is the trading date in São Paulo;
- a bar has MAYBE_BAD_BOOK if something of its instrument was lost while it lasted, so trades may be missing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.lake.healing_kernel import BEGINNING
from umdf.lake.levels import MOVES_NOTHING
from umdf.market.calendar import DAY_NS, transitions
from umdf.market.events import NULL

Numbers = NDArray[np.int64]
OTHER_VENUES = [ord(stream) for stream in "XOT"]
SECOND_NS = 10**9
TO_VOLUME = 10**5  # price (1e-9) · size → financial volume (1e-4)
GREATEST = (1 << 63) - 1
# A trade or a bust, as bars need it; `place` is that of the instrument in its group.
TRADE = np.dtype(
    [("ts", "i8"), ("price", "i8"), ("size", "i8"), ("trade_id", "i8"), ("place", "i4"), ("conditions", "i4"),
     ("action", "u1"), ("stream", "u1"), ("spare", "u2"), ("spare_2", "u4")]
)  # fmt: skip


# What the trades of an interval come to; prices are NULL where nothing moved them. `place` as in TRADE.
# Σ price · size = notional_high · 1e5 + notional_low, exactly.
SUMS = np.dtype(
    [("place", "i4"), ("spare", "i4")]
    + [(name, "i8") for name in ("ts_interval open high low close volume trade_count notional_high notional_low "
       "ts_first ts_last").split()]
)  # fmt: skip
SHOWN = "open high low close volume trade_count ts_first ts_last".split()


def standing(log: NDArray[np.void]) -> tuple[NDArray[np.bool_], Numbers, Numbers]:
    """Of all trades and busts, of each instrument in the order of the wire: which are trades that no bust took away;
    and the places of busted trades, and of busts that have no trade."""
    stands = log["action"] == ord("A")
    busted, unmatched = _busted(log)
    stands[busted] = False
    return stands, log["place"][busted], log["place"][unmatched]


def in_order(trades: NDArray[np.void]) -> NDArray[np.void]:
    """The trades that count, by instrument, time, trade id and wire."""
    trades = trades[~np.isin(trades["stream"], OTHER_VENUES)]
    return trades[np.lexsort((trades["trade_id"], trades["ts"], trades["place"]))]


def _busted(log: NDArray[np.void]) -> tuple[Numbers, Numbers]:
    """The trades that a later bust of the same trade id takes away, each the newest that is left; busts of nothing."""
    busts = np.flatnonzero((log["action"] == ord("C")) & (log["trade_id"] != NULL))
    if not len(busts):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    wanted = set(zip(log["place"][busts].tolist(), log["trade_id"][busts].tolist(), strict=True))
    rows = np.flatnonzero(np.isin(log["trade_id"], log["trade_id"][busts]))
    left_of: dict[tuple[int, int], list[int]] = {}
    found, unmatched = [], []
    for row, place, trade_id, action in zip(
        rows.tolist(), *(log[name][rows].tolist() for name in ("place", "trade_id", "action")), strict=True
    ):
        if (place, trade_id) not in wanted:
            continue
        left = left_of.setdefault((place, trade_id), [])
        if action == ord("A"):
            left.append(row)
        elif left:
            found.append(left.pop())
        elif action == ord("C"):
            unmatched.append(row)
    return np.array(sorted(found), np.int64), np.array(unmatched, np.int64)


def sums(trades: NDArray[np.void], size_ns: int) -> NDArray[np.void]:
    """What trades (`in_order`) come to in each interval."""
    interval = trades["ts"] // size_ns
    first = starts_of(trades["place"], interval)
    found = np.zeros(len(first), SUMS)
    if not len(first):
        return found
    moves = (trades["conditions"] & MOVES_NOTHING == 0) & (trades["price"] != NULL)
    size = np.where(trades["size"] == NULL, 0, trades["size"])
    high, low = np.divmod(np.where(trades["price"] == NULL, 0, trades["price"]), TO_VOLUME)
    found["place"], found["ts_interval"] = trades["place"][first], interval[first] * size_ns
    _fill_prices(found, first, moves, *(trades["price"] for _ in range(4)))
    found["volume"], found["trade_count"] = np.add.reduceat(size, first), np.diff(np.append(first, len(trades)))
    found["notional_high"] = np.add.reduceat(high * size, first)
    found["notional_low"] = np.add.reduceat(low * size, first)
    found["ts_first"] = trades["ts"][first]
    found["ts_last"] = trades["ts"][np.append(first[1:], len(trades)) - 1]
    return found


def joined(parts: NDArray[np.void], size_ns: int | None) -> NDArray[np.void]:
    """Sums of parts of intervals as those of whole ones; without a size, of all that an instrument has. What comes
    later in time must not stand before what comes earlier."""
    parts = parts[np.lexsort((parts["ts_interval"], parts["place"]))]
    interval = parts["ts_interval"] // size_ns if size_ns else np.zeros(len(parts), np.int64)
    first = starts_of(parts["place"], interval)
    found = parts[first].copy()
    if not len(first):
        return found
    _fill_prices(found, first, parts["close"] != NULL, *(parts[name] for name in ("open", "high", "low", "close")))
    for name in ("volume", "trade_count", "notional_high", "notional_low"):
        found[name] = np.add.reduceat(parts[name], first)
    found["ts_last"] = parts["ts_last"][np.append(first[1:], len(parts)) - 1]
    return found


def _fill_prices(
    found: NDArray[np.void],
    first: Numbers,
    moves: NDArray[np.bool_],
    opens: Numbers,
    highs: Numbers,
    lows: Numbers,
    closes: Numbers,
) -> None:
    number = np.arange(len(moves))
    begin = np.minimum.reduceat(np.where(moves, number, GREATEST), first)
    end = np.maximum.reduceat(np.where(moves, number, -1), first)
    any_move = end >= 0
    found["open"] = np.where(any_move, opens[np.where(any_move, begin, 0)], NULL)
    found["high"] = np.where(any_move, np.maximum.reduceat(np.where(moves, highs, NULL), first), NULL)
    found["low"] = np.where(any_move, np.minimum.reduceat(np.where(moves, lows, GREATEST), first), NULL)
    found["close"] = np.where(any_move, closes[np.maximum(end, 0)], NULL)


def financial_volume(records: NDArray[np.void]) -> Numbers:
    """Σ price · size in units of 1e-4, rounded half up."""
    return records["notional_high"] + (2 * records["notional_low"] + TO_VOLUME) // (2 * TO_VOLUME)


def vwap(records: NDArray[np.void]) -> Numbers:
    """Σ price · size / Σ size, in units of 1e-9, rounded half up; NULL without a volume."""
    size = np.maximum(records["volume"], 1)
    whole, rest = np.divmod(records["notional_high"], size)
    found = whole * TO_VOLUME + (2 * (rest * TO_VOLUME + records["notional_low"]) + size) // (2 * size)
    return np.where(records["volume"] > 0, found, NULL)


def starts_of(*columns: NDArray[Any]) -> Numbers:
    """Where runs of equal values begin."""
    if not len(columns[0]):
        return np.empty(0, np.int64)
    begins = np.ones(len(columns[0]), np.bool_)
    begins[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return np.flatnonzero(begins)


def midnight_ns(trading_date: int) -> int:
    """When a date begins in São Paulo."""
    when, offsets = transitions()
    noon = trading_date * DAY_NS + DAY_NS // 2  # no transition happens around noon
    return trading_date * DAY_NS - int(offsets[np.searchsorted(when, noon, side="right")])


def touched(place: NDArray[Any], begins: Numbers, ends: Numbers, lost: Numbers) -> NDArray[np.bool_]:
    """Which intervals (sorted by instrument, then time) meet a time in which something was lost."""
    bad = np.zeros(len(place), np.bool_)
    edges = np.searchsorted(place, [lost[:, 0], lost[:, 0] + 1]) if len(lost) else np.zeros((2, 0), np.int64)
    for (_, since, until), first, last in zip(lost.tolist(), *edges.tolist(), strict=True):
        some = slice(first, last)
        bad[some] |= (ends[some] > since) & (begins[some] <= until) if since != BEGINNING else begins[some] <= until
    return bad
