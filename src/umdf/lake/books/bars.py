"""Trades → bars (`ohlcv_1s`, `1m`, `1h`, `1d`) and daily totals (`day_statistics`).

Which trades count:
- a busted trade never counts, whenever the bust came; both rows stay in `trades`;
- leg trades and out-of-sequence trades have a volume but never move the last price: they are in volume, count and
  financial volume, not in open, high, low and close, which are NULL if there are no other trades;
- trades of other venues (1500 = X ex-pit, O exercise, T termo) do not count; the exchange's last price is not a trade;
- a trade belongs to the interval of its ts_event (ts_send if absent). Open and close are the first and the last by
  time, then trade ID, then wire order: the last one received need not be the last trade (10.1 NOTE 1);
- the interval of `1d` is the trading date in São Paulo;
- a bar has MAYBE_BAD_BOOK if data of its instrument was lost during its interval, so trades may be missing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.lake.books.instrument_rows import RowsByBook, event_times
from umdf.lake.books.levels import NO_LAST_PRICE
from umdf.market.calendar import DAY_NS, transitions
from umdf.market.families import JOINED, MAYBE_BAD_BOOK, NULL
from umdf.sync.book_trust_kernel import UNKNOWN_START

Numbers = NDArray[np.int64]
OTHER_VENUES = [ord(venue) for venue in "XOT"]
SECOND_NS = 10**9
PRICE_TO_VOLUME = 10**5  # price (1e-9) · size → financial volume (1e-4)
INT64_MAX = (1 << 63) - 1
# A trade or a bust, as input of bars; `instrument_index` is the instrument's index in its range.
TRADE_DTYPE = np.dtype(
    [("ts", "i8"), ("price", "i8"), ("size", "i8"), ("trade_id", "i8"), ("instrument_index", "i4"),
     ("conditions", "i4"), ("action", "u1"), ("venue", "u1"), ("padding", "u2"), ("padding_2", "u4")]
)  # fmt: skip


# Aggregated trades of an interval; prices are NULL if no trade moved them. `instrument_index`
# as in TRADE_DTYPE. Σ price · size = notional_high · 1e5 + notional_low, exactly.
BAR_DTYPE = np.dtype(
    [("instrument_index", "i4"), ("padding", "i4")]
    + [(name, "i8") for name in ("ts_interval open high low close volume trade_count notional_high notional_low "
       "ts_first ts_last").split()]
)  # fmt: skip
BAR_COLUMNS = "open high low close volume trade_count ts_first ts_last".split()


def match_busts(trades: NDArray[np.void]) -> tuple[NDArray[np.bool_], Numbers, Numbers]:
    """For all trades and busts, in wire order per instrument: which are trades without a bust; and the indices of
    busted trades, and of busts without a trade."""
    is_valid = trades["action"] == ord("A")
    busted, unmatched = _find_busted(trades)
    is_valid[busted] = False
    return is_valid, trades["instrument_index"][busted], trades["instrument_index"][unmatched]


def sort_trades(trades: NDArray[np.void]) -> NDArray[np.void]:
    """The trades that count, by instrument, time, trade ID and wire order."""
    trades = trades[~np.isin(trades["venue"], OTHER_VENUES)]
    return trades[np.lexsort((trades["trade_id"], trades["ts"], trades["instrument_index"]))]


def _find_busted(trades: NDArray[np.void]) -> tuple[Numbers, Numbers]:
    """Trades with a later bust of the same trade ID (each bust takes the newest one left); busts without a trade."""
    busts = np.flatnonzero((trades["action"] == ord("C")) & (trades["trade_id"] != NULL))
    if not len(busts):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    busted_keys = set(zip(trades["instrument_index"][busts].tolist(), trades["trade_id"][busts].tolist(), strict=True))
    rows = np.flatnonzero(np.isin(trades["trade_id"], trades["trade_id"][busts]))
    open_trades: dict[tuple[int, int], list[int]] = {}
    busted, unmatched = [], []
    for row, instrument_index, trade_id, action in zip(
        rows.tolist(),
        *(trades[name][rows].tolist() for name in ("instrument_index", "trade_id", "action")),
        strict=True,
    ):
        if (instrument_index, trade_id) not in busted_keys:
            continue
        candidates = open_trades.setdefault((instrument_index, trade_id), [])
        if action == ord("A"):
            candidates.append(row)
        elif candidates:
            busted.append(candidates.pop())
        elif action == ord("C"):
            unmatched.append(row)
    return np.array(sorted(busted), np.int64), np.array(unmatched, np.int64)


def aggregate_trades(trades: NDArray[np.void], size_ns: int) -> NDArray[np.void]:
    """Aggregate trades (`sort_trades`) by interval."""
    interval = trades["ts"] // size_ns
    first = run_starts(trades["instrument_index"], interval)
    bars = np.zeros(len(first), BAR_DTYPE)
    if not len(first):
        return bars
    sets_price = (trades["conditions"] & NO_LAST_PRICE == 0) & (trades["price"] != NULL)
    size = np.where(trades["size"] == NULL, 0, trades["size"])
    high, low = np.divmod(np.where(trades["price"] == NULL, 0, trades["price"]), PRICE_TO_VOLUME)
    bars["instrument_index"], bars["ts_interval"] = trades["instrument_index"][first], interval[first] * size_ns
    _fill_prices(bars, first, sets_price, *(trades["price"] for _ in range(4)))
    bars["volume"], bars["trade_count"] = np.add.reduceat(size, first), np.diff(np.append(first, len(trades)))
    bars["notional_high"] = np.add.reduceat(high * size, first)
    bars["notional_low"] = np.add.reduceat(low * size, first)
    bars["ts_first"] = trades["ts"][first]
    bars["ts_last"] = trades["ts"][np.append(first[1:], len(trades)) - 1]
    return bars


def merge_bars(parts: NDArray[np.void], size_ns: int | None) -> NDArray[np.void]:
    """Merge partial bars of the same interval; without a size, all bars of an instrument. The parts must be in order of
    time."""
    parts = parts[np.lexsort((parts["ts_interval"], parts["instrument_index"]))]
    interval = parts["ts_interval"] // size_ns if size_ns else np.zeros(len(parts), np.int64)
    first = run_starts(parts["instrument_index"], interval)
    bars = parts[first].copy()
    if not len(first):
        return bars
    _fill_prices(bars, first, parts["close"] != NULL, *(parts[name] for name in ("open", "high", "low", "close")))
    for name in ("volume", "trade_count", "notional_high", "notional_low"):
        bars[name] = np.add.reduceat(parts[name], first)
    bars["ts_last"] = parts["ts_last"][np.append(first[1:], len(parts)) - 1]
    return bars


def _fill_prices(
    bars: NDArray[np.void],
    first: Numbers,
    sets_price: NDArray[np.bool_],
    opens: Numbers,
    highs: Numbers,
    lows: Numbers,
    closes: Numbers,
) -> None:
    number = np.arange(len(sets_price))
    begin = np.minimum.reduceat(np.where(sets_price, number, INT64_MAX), first)
    end = np.maximum.reduceat(np.where(sets_price, number, -1), first)
    has_price = end >= 0
    bars["open"] = np.where(has_price, opens[np.where(has_price, begin, 0)], NULL)
    bars["high"] = np.where(has_price, np.maximum.reduceat(np.where(sets_price, highs, NULL), first), NULL)
    bars["low"] = np.where(has_price, np.minimum.reduceat(np.where(sets_price, lows, INT64_MAX), first), NULL)
    bars["close"] = np.where(has_price, closes[np.maximum(end, 0)], NULL)


def financial_volume(records: NDArray[np.void]) -> Numbers:
    """Σ price · size in units of 1e-4, rounded half up."""
    return records["notional_high"] + (2 * records["notional_low"] + PRICE_TO_VOLUME) // (2 * PRICE_TO_VOLUME)


def vwap(records: NDArray[np.void]) -> Numbers:
    """Σ price · size / Σ size, in units of 1e-9, rounded half up; NULL without a volume."""
    size = np.maximum(records["volume"], 1)
    whole, rest = np.divmod(records["notional_high"], size)
    found = whole * PRICE_TO_VOLUME + (2 * (rest * PRICE_TO_VOLUME + records["notional_low"]) + size) // (2 * size)
    return np.where(records["volume"] > 0, found, NULL)


def run_starts(*columns: NDArray[Any]) -> Numbers:
    """Indices where runs of equal values start."""
    if not len(columns[0]):
        return np.empty(0, np.int64)
    begins = np.ones(len(columns[0]), np.bool_)
    begins[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return np.flatnonzero(begins)


def midnight_ns(trading_date: int) -> int:
    """When a date starts in São Paulo."""
    when, offsets = transitions()
    noon = trading_date * DAY_NS + DAY_NS // 2  # clocks do not change around noon
    return trading_date * DAY_NS - int(offsets[np.searchsorted(when, noon, side="right")])


def overlaps_loss(
    instrument_index: NDArray[Any], begins: Numbers, ends: Numbers, loss_windows: Numbers
) -> NDArray[np.bool_]:
    """Which intervals (sorted by instrument, then time) overlap a loss window."""
    bad = np.zeros(len(instrument_index), np.bool_)
    edges = (
        np.searchsorted(instrument_index, [loss_windows[:, 0], loss_windows[:, 0] + 1])
        if len(loss_windows)
        else np.zeros((2, 0), np.int64)
    )
    for (_, since, until), first, last in zip(loss_windows.tolist(), *edges.tolist(), strict=True):
        some = slice(first, last)
        bad[some] |= (ends[some] > since) & (begins[some] <= until) if since != UNKNOWN_START else begins[some] <= until
    return bad


def trust_flags(bad: NDArray[np.bool_], is_joined: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Of rows for which data was lost, and of those that begin before the recording."""
    return np.where(bad, MAYBE_BAD_BOOK, np.where(is_joined, MAYBE_BAD_BOOK | JOINED, 0)).astype(np.int32)


def trade_records(trades: RowsByBook) -> NDArray[np.void]:
    """Trades and busts, as input of bars."""
    rows = trades.rows
    log = np.zeros(len(trades), TRADE_DTYPE)
    log["ts"], log["instrument_index"] = event_times(rows, trades.units), trades.book >> 1
    for name in ("price", "size", "trade_id", "conditions", "action", "venue"):
        log[name] = rows.column(name)
    return log
