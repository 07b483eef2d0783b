"""Bars and best prices of a group of instruments, interval by interval, as the day goes on.

What happened before a moment that a run says (`settle`) is final: its rows are written once, and of its trades only the
sums of each hour are kept. The rest is open: it is written to files that the next run replaces, and kept in the state.
So a state does not grow with the day.

The one rule: if something comes for an interval that is final (a bust of an older trade, an older time, a loss that
reaches back) then `is_late` says so, and the day is made again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.lake import bars as b
from umdf.lake.bars import Numbers
from umdf.lake.book_states import Section, States, section_of
from umdf.lake.columns import made_table
from umdf.lake.instruments import taken
from umdf.lake.levels import BBO
from umdf.market.calendar import DAY_NS
from umdf.market.events import MAYBE_BAD_BOOK, NULL

BEST_S = {"bbo_1s": 1, "bbo_1m": 60}
BARS_S = {"ohlcv_1s": 1, "ohlcv_1m": 60}
OPEN = ":open"  # behind the name of a table: rows of it that the next run replaces
TABLES = (*BEST_S, *BARS_S)  # that have both
HOUR_NS = 3600 * b.SECOND_NS
Records = NDArray[np.void]
Tables = dict[str, pa.Table]


class Intervals:
    def __init__(self, ids: Numbers, symbols: pa.Array, wanted: frozenset[str], trading_date: int) -> None:
        self.ids, self.symbols, self.wanted, self.trading_date = ids, symbols, wanted, trading_date
        self.settled = np.full(len(ids), NULL)  # before this, all is final
        self.busted = np.zeros(len(ids), np.int64)
        self.is_late = False
        self.day = np.empty(0, b.SUMS)  # of each instrument with a trade, once the run is finished
        self._trades: list[Records] = []
        self._hours: list[Records] = []
        self._best: dict[str, list[Records]] = {name: [] for name in BEST_S}

    def restore(self, place: Numbers, stored: States) -> None:
        np.maximum.at(self.settled, place, stored.head["settled"])
        np.add.at(self.busted, place, stored.head["busted"])
        for kept, name in ((self._trades, "trades"), (self._hours, "hours"), *((self._best[n], n) for n in BEST_S)):
            section = stored.sections[name]
            records = section.records.copy()
            records["place"] = section.owners(place)
            kept.append(records)

    def take_trades(self, log: Records) -> None:
        self.is_late |= bool((log["ts"] < self.settled[log["place"]]).any())
        self._trades.append(log)

    def take_best(self, name: str, rows: Records) -> None:
        self.is_late |= bool((rows["ts_interval"] <= self.settled[rows["place"]]).any())
        self._best[name].append(rows)

    def take_lost(self, place: Numbers, since: Numbers) -> None:
        self.is_late |= bool((since < self.settled[place]).any())

    def finish(self, lost: Numbers, settle: Numbers) -> Tables:
        """All rows that are new or open. `settle`: before when an instrument's rows are final now."""
        settle, found = np.maximum(settle, self.settled), {}
        log = _together(self._trades, b.TRADE)
        standing, busted, unmatched = b.standing(log)
        self.is_late |= bool((self.settled[unmatched] != NULL).any())  # the trade may be among those that are final
        self.busted += np.bincount(busted, minlength=len(self.ids))
        trades = b.in_order(log[standing])
        for name, seconds in BARS_S.items():
            records = b.sums(trades, seconds * b.SECOND_NS)
            self._split(found, name, records, self._bars(name, records, seconds * b.SECOND_NS, lost), settle, 0)
        is_final = trades["ts"] < settle[trades["place"]]
        self._hours = [b.joined(_together([*self._hours, b.sums(trades[is_final], HOUR_NS)], b.SUMS), HOUR_NS)]
        hours = b.joined(_together([*self._hours, b.sums(trades[~is_final], HOUR_NS)], b.SUMS), HOUR_NS)
        self.day = b.joined(hours, None)
        self.day["ts_interval"] = b.midnight_ns(self.trading_date)
        for name, records, size in (("ohlcv_1h", hours, HOUR_NS), ("ohlcv_1d", self.day, DAY_NS)):
            if name in self.wanted:
                found[name] = self._bars(name, records, size, lost)
        for name, seconds in BEST_S.items():
            self._best_prices(found, name, seconds, lost, settle)
        self._trades = [log[standing & (log["ts"] >= settle[log["place"]])]]
        self.settled = settle
        return found

    def _split(
        self, found: Tables, name: str, records: Records, rows: pa.Table, settle: Numbers, length_ns: int
    ) -> None:
        """Rows that are final, and rows that are open."""
        if name in self.wanted:
            is_final = records["ts_interval"] + length_ns < settle[records["place"]]
            found[name], found[name + OPEN] = rows.filter(pa.array(is_final)), rows.filter(pa.array(~is_final))

    def _bars(self, name: str, records: Records, size_ns: int, lost: Numbers) -> pa.Table:
        place, begins = records["place"], records["ts_interval"]
        columns: dict[str, Any] = {column: records[column] for column in b.SHOWN}
        columns |= {"ts_interval": begins, "instrument_id": self.ids[place]}
        columns["financial_volume"] = b.financial_volume(records)
        bad = b.touched(place, begins, begins + size_ns, lost)
        columns["flags"] = np.where(bad, MAYBE_BAD_BOOK, 0).astype(np.int32)
        return made_table(name, columns, self.symbols, place)

    def _best_prices(self, found: Tables, name: str, seconds: int, lost: Numbers, settle: Numbers) -> None:
        """The newest row of each interval; last trades go on from interval to interval."""
        every = _together(self._best[name], BBO)
        every = taken(every, np.lexsort((every["ts_interval"], every["place"])))
        _carry_trades(every)
        newest = np.append(b.starts_of(every["place"], every["ts_interval"])[1:], len(every)) - 1 if len(every) else []
        rows = taken(every, np.asarray(newest, np.int64))
        is_open = rows["ts_interval"] > settle[rows["place"]]
        is_last = np.zeros(len(rows), np.bool_)  # of those that are final: the next one goes on from it
        final = np.flatnonzero(~is_open)
        is_last[final[np.append(b.starts_of(rows["place"][final])[1:], len(final)) - 1] if len(final) else final] = True
        self._best[name] = [taken(rows, np.flatnonzero(is_open | is_last))]
        new = rows["ts_interval"] > self.settled[rows["place"]]  # others were written by an earlier run
        rows = taken(rows, np.flatnonzero(new))
        price, size = _last_trades(rows, lost)
        ends = rows["ts_interval"]
        bad = b.touched(rows["place"], ends - seconds * b.SECOND_NS, ends, lost)
        columns: dict[str, Any] = {
            column: rows[column] for column in BBO.names or () if column not in ("place", "ts_trade")
        }
        columns |= {"price": price, "size": size, "instrument_id": self.ids[rows["place"]]}
        columns["flags"] = rows["flags"] | np.where(bad, MAYBE_BAD_BOOK, 0).astype(np.int32)
        self._split(found, name, rows, made_table(name, columns, self.symbols, rows["place"]), settle, -1)

    def stored(self) -> dict[str, Section]:
        """Sections of the state, by place; a record is of nobody in particular any more."""
        parts = {"trades": _together(self._trades, b.TRADE), "hours": _together(self._hours, b.SUMS)}
        parts |= {name: _together(self._best[name], BBO) for name in BEST_S}
        found = {name: section_of(records["place"], records, len(self.ids)) for name, records in parts.items()}
        for section in found.values():
            section.records["place"] = 0
        return found


def _together(parts: list[Records], kind: np.dtype[np.void]) -> Records:
    """As bytes: to find out that many parts have one type takes numpy longer than to join them."""
    return np.frombuffer(bytearray().join(part.tobytes() for part in parts), kind)


def _carry_trades(rows: Records) -> None:
    """A row without a last trade has that of the row before."""
    begins = np.zeros(len(rows), np.int64)
    starts = b.starts_of(rows["place"])
    begins[starts] = starts
    last = np.maximum.accumulate(np.where(rows["price"] != NULL, np.arange(len(rows)), np.maximum.accumulate(begins)))
    for name in ("price", "size", "ts_trade"):
        rows[name] = rows[name][last]


def _last_trades(rows: Records, lost: Numbers) -> tuple[Numbers, Numbers]:
    """Price and size of the last trade. If something was lost since then it may have been a trade: it is not known."""
    price, size, when = (rows[name].copy() for name in ("price", "size", "ts_trade"))
    edges = np.searchsorted(rows["place"], [lost[:, 0], lost[:, 0] + 1]) if len(lost) else np.zeros((2, 0), np.int64)
    for (_, since, until), first, end in zip(lost.tolist(), *edges.tolist(), strict=True):
        unknown = np.flatnonzero((rows["ts_event"][first:end] >= since) & (when[first:end] <= until)) + first
        price[unknown], size[unknown] = NULL, NULL
    return price, size
