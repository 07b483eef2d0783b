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

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.lake.columns import made_table
from umdf.lake.healing_kernel import BEGINNING
from umdf.lake.levels import MOVES_NOTHING
from umdf.market.calendar import DAY_NS, transitions
from umdf.market.events import MAYBE_BAD_BOOK, NULL

Numbers = NDArray[np.int64]
OTHER_VENUES = [ord(stream) for stream in "XOT"]
SECOND_NS = 10**9
SIZES_S = {"ohlcv_1s": 1, "ohlcv_1m": 60, "ohlcv_1h": 3600, "ohlcv_1d": 0}
TO_VOLUME = 10**5  # price (1e-9) · size → financial volume (1e-4)
GREATEST = (1 << 63) - 1
# A trade or a bust, as bars need it; `place` is that of the instrument in its group.
TRADE = np.dtype(
    [("ts", "i8"), ("price", "i8"), ("size", "i8"), ("trade_id", "i8"), ("place", "i4"), ("conditions", "i4"),
     ("action", "u1"), ("stream", "u1"), ("spare", "u2"), ("spare_2", "u4")]
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Counted:
    """The trades that count, by instrument, time, trade id and wire; and how many were busted."""

    trades: NDArray[np.void]
    busted: Numbers  # by instrument

    @property
    def moves(self) -> NDArray[np.bool_]:
        return (self.trades["conditions"] & MOVES_NOTHING == 0) & (self.trades["price"] != NULL)


def counted(log: NDArray[np.void], instruments: int) -> Counted:
    """`log`: all trades and busts of a day, of each instrument in the order of the wire."""
    alive = (log["action"] == ord("A")) & ~np.isin(log["stream"], OTHER_VENUES)
    busted = np.zeros(instruments, np.int64)
    for row in _busted(log).tolist():
        busted[log["place"][row]] += 1
        alive[row] = False
    trades = log[alive]
    order = np.lexsort((trades["trade_id"], trades["ts"], trades["place"]))
    return Counted(trades[order], busted)


def _busted(log: NDArray[np.void]) -> Numbers:
    """The trades that a later bust of the same trade id takes away: each the newest that is left."""
    busts = np.flatnonzero((log["action"] == ord("C")) & (log["trade_id"] != NULL))
    if not len(busts):
        return np.empty(0, np.int64)
    wanted = set(zip(log["place"][busts].tolist(), log["trade_id"][busts].tolist(), strict=True))
    rows = np.flatnonzero(np.isin(log["trade_id"], log["trade_id"][busts]))
    standing: dict[tuple[int, int], list[int]] = {}
    found = []
    for row, place, trade_id, action in zip(
        rows.tolist(), *(log[name][rows].tolist() for name in ("place", "trade_id", "action")), strict=True
    ):
        if (place, trade_id) not in wanted:
            continue
        left = standing.setdefault((place, trade_id), [])
        if action == ord("A"):
            left.append(row)
        elif left:
            found.append(left.pop())
    return np.array(sorted(found), np.int64)


@dataclass(frozen=True, eq=False)
class Sums:
    """What trades come to, group by group; NULL where nothing moved the price."""

    first: Numbers  # the first trade of each group
    open: Numbers
    high: Numbers
    low: Numbers
    close: Numbers
    volume: Numbers
    trade_count: Numbers
    financial_volume: Numbers  # in units of 1e-4, rounded half up
    notional_high: Numbers  # Σ price · size = notional_high · 1e5 + notional_low, exactly
    notional_low: Numbers
    ts_first: Numbers
    ts_last: Numbers

    @property
    def vwap(self) -> Numbers:
        """Σ price · size / Σ size, in units of 1e-9, rounded half up; NULL without a volume."""
        size = np.maximum(self.volume, 1)
        whole, rest = np.divmod(self.notional_high, size)
        found = whole * TO_VOLUME + (2 * (rest * TO_VOLUME + self.notional_low) + size) // (2 * size)
        return np.where(self.volume > 0, found, NULL)


def summed(counted: Counted, first: Numbers) -> Sums:
    """Groups of trades, each from one of `first` to the next."""
    trades, moves = counted.trades, counted.moves
    price, number = trades["price"], np.arange(len(trades))
    size = np.where(trades["size"] == NULL, 0, trades["size"])
    opens = np.minimum.reduceat(np.where(moves, number, GREATEST), first)
    closes = np.maximum.reduceat(np.where(moves, number, -1), first)
    any_move = closes >= 0
    priced = np.where(price == NULL, 0, price)
    high, low = np.divmod(priced, TO_VOLUME)
    notional_high, notional_low = np.add.reduceat(high * size, first), np.add.reduceat(low * size, first)
    last = np.append(first[1:], len(trades)) - 1
    return Sums(
        first,
        np.where(any_move, price[np.where(any_move, opens, 0)], NULL),
        np.where(any_move, np.maximum.reduceat(np.where(moves, price, NULL), first), NULL),
        np.where(any_move, np.minimum.reduceat(np.where(moves, price, GREATEST), first), NULL),
        np.where(any_move, price[np.maximum(closes, 0)], NULL),
        np.add.reduceat(size, first),
        np.diff(np.append(first, len(trades))),
        notional_high + (2 * notional_low + TO_VOLUME) // (2 * TO_VOLUME),
        notional_high,
        notional_low,
        trades["ts"][first],
        trades["ts"][last],
    )


def bars(name: str, counted: Counted, lost: Numbers, trading_date: int, ids: Numbers, symbols: pa.Array) -> pa.Table:
    """Rows of one of the tables of SIZES_S. `lost`: (instrument, from, to) where something is missing."""
    trades, size_ns = counted.trades, SIZES_S[name] * SECOND_NS
    interval = trades["ts"] // size_ns if size_ns else np.zeros(len(trades), np.int64)
    first = starts_of(trades["place"], interval)
    if not len(first):
        return made_table(name, _no_bars(name), symbols, np.empty(0, np.int32))
    sums, place = summed(counted, first), trades["place"][first]
    begins = interval[first] * size_ns if size_ns else np.full(len(first), midnight_ns(trading_date))
    columns: dict[str, Any] = {
        column: getattr(sums, column)
        for column in "open high low close volume trade_count financial_volume ts_first ts_last".split()
    }
    bad = touched(place, begins, begins + (size_ns or DAY_NS), lost)
    columns |= {"ts_interval": begins, "instrument_id": ids[place]}
    columns["flags"] = np.where(bad, MAYBE_BAD_BOOK, 0).astype(np.int32)
    return made_table(name, columns, symbols, place)


def _no_bars(name: str) -> dict[str, Any]:
    names = "open high low close volume trade_count financial_volume ts_first ts_last ts_interval instrument_id flags"
    return {column: np.empty(0, np.int64) for column in names.split()}


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
