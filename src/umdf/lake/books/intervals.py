"""Bars and best prices of a group of instruments, by interval, in several runs over a day.

Everything before a time that a run sets (`final_before`) is final: its rows are written once, and of its trades only
the sums of each hour are kept. The rest is open: it is written to files that the next run replaces, and kept in the
state. So the state does not grow with the day.

Invariant: if data arrives for a final interval (a bust of an older trade, an older time, a gap that reaches back),
`has_late_rows` is set and the day is rebuilt.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.lake.books import bars
from umdf.lake.books.bars import Numbers
from umdf.lake.books.levels import BBO_DTYPE
from umdf.lake.books.state_columns import BookStates, RecordSection, group_records
from umdf.lake.books.table_columns import table_from_columns
from umdf.lake.tasks.id_lookup import take_records
from umdf.market.calendar import DAY_NS
from umdf.market.families import MAYBE_BAD_BOOK, NULL

BBO_INTERVALS_S = {"bbo_1s": 1, "bbo_1m": 60}
BAR_INTERVALS_S = {"ohlcv_1s": 1, "ohlcv_1m": 60}
OPEN_SUFFIX = ":open"  # suffix of a table's name: rows that the next run replaces
INTERVAL_TABLES = (*BBO_INTERVALS_S, *BAR_INTERVALS_S)  # tables with final and open rows
HOUR_NS = 3600 * bars.SECOND_NS
Records = NDArray[np.void]
Tables = dict[str, pa.Table]


class IntervalTables:
    def __init__(
        self, ids: Numbers, symbols: pa.Array, table_names: frozenset[str], trading_date: int, joined_ns: int = NULL
    ) -> None:
        self.ids, self.symbols, self.table_names, self.trading_date = ids, symbols, table_names, trading_date
        self.joined_ns = joined_ns  # what was before is not in the recording
        self.final_before = np.full(len(ids), NULL)  # everything before is final
        self.busted_counts = np.zeros(len(ids), np.int64)
        self.has_late_rows = False
        self.day_bars = np.empty(0, bars.BAR_DTYPE)  # per instrument with a trade, set by `finish`
        self._trades: list[Records] = []
        self._hour_bars: list[Records] = []
        self._bbo: dict[str, list[Records]] = {name: [] for name in BBO_INTERVALS_S}

    def restore(self, instrument_index: Numbers, states: BookStates) -> None:
        np.maximum.at(self.final_before, instrument_index, states.header["final_before"])
        np.add.at(self.busted_counts, instrument_index, states.header["busted"])
        for target, name in (
            (self._trades, "trades"),
            (self._hour_bars, "hours"),
            *((self._bbo[n], n) for n in BBO_INTERVALS_S),
        ):
            section = states.sections[name]
            records = section.records.copy()
            records["instrument_index"] = section.owners(instrument_index)
            target.append(records)

    def add_trades(self, trades: Records) -> None:
        self.has_late_rows |= bool((trades["ts"] < self.final_before[trades["instrument_index"]]).any())
        self._trades.append(trades)

    def add_bbo(self, name: str, rows: Records) -> None:
        self.has_late_rows |= bool((rows["ts_interval"] <= self.final_before[rows["instrument_index"]]).any())
        self._bbo[name].append(rows)

    def check_losses(self, instrument_index: Numbers, since: Numbers) -> None:
        self.has_late_rows |= bool((since < self.final_before[instrument_index]).any())

    def check_bars(self, instrument_index: Numbers) -> None:
        """All bars of these instruments have changed."""
        final = [hours["instrument_index"] for hours in self._hour_bars]
        self.has_late_rows |= any(np.isin(each, instrument_index).any() for each in final)

    def finish(self, loss_windows: Numbers, final_before: Numbers, unverified_bars: Numbers | None = None) -> Tables:
        """All rows that are new or open. `final_before`: per instrument, the time before which rows are now final.
        `unverified_bars`: like loss windows, but of bars only."""
        bar_windows = loss_windows if unverified_bars is None else np.concatenate([loss_windows, unverified_bars])
        final_before, found = np.maximum(final_before, self.final_before), {}
        trade_log = _concat_records(self._trades, bars.TRADE_DTYPE)
        is_valid, busted, unmatched = bars.match_busts(trade_log)
        # The trade may already be final.
        self.has_late_rows |= bool((self.final_before[unmatched] != NULL).any())
        self.busted_counts += np.bincount(busted, minlength=len(self.ids))
        trades = bars.sort_trades(trade_log[is_valid])
        for name, seconds in BAR_INTERVALS_S.items():
            records = bars.aggregate_trades(trades, seconds * bars.SECOND_NS)
            self._split_final(
                found,
                name,
                records,
                self._bar_table(name, records, seconds * bars.SECOND_NS, bar_windows),
                final_before,
                0,
            )
        is_final = trades["ts"] < final_before[trades["instrument_index"]]
        self._hour_bars = [
            bars.merge_bars(
                _concat_records([*self._hour_bars, bars.aggregate_trades(trades[is_final], HOUR_NS)], bars.BAR_DTYPE),
                HOUR_NS,
            )
        ]
        hours = bars.merge_bars(
            _concat_records([*self._hour_bars, bars.aggregate_trades(trades[~is_final], HOUR_NS)], bars.BAR_DTYPE),
            HOUR_NS,
        )
        self.day_bars = bars.merge_bars(hours, None)
        self.day_bars["ts_interval"] = bars.midnight_ns(self.trading_date)
        for name, records, size in (("ohlcv_1h", hours, HOUR_NS), ("ohlcv_1d", self.day_bars, DAY_NS)):
            if name in self.table_names:
                found[name] = self._bar_table(name, records, size, bar_windows)
        for name, seconds in BBO_INTERVALS_S.items():
            self._add_bbo_tables(found, name, seconds, loss_windows, final_before)
        self._trades = [trade_log[is_valid & (trade_log["ts"] >= final_before[trade_log["instrument_index"]])]]
        self.final_before = final_before
        return found

    def _split_final(
        self, tables: Tables, name: str, records: Records, rows: pa.Table, final_before: Numbers, length_ns: int
    ) -> None:
        """Split rows into final and open ones."""
        if name in self.table_names:
            is_final = records["ts_interval"] + length_ns < final_before[records["instrument_index"]]
            tables[name], tables[name + OPEN_SUFFIX] = rows.filter(pa.array(is_final)), rows.filter(pa.array(~is_final))

    def _bar_table(self, name: str, records: Records, size_ns: int, loss_windows: Numbers) -> pa.Table:
        instrument_index, begins = records["instrument_index"], records["ts_interval"]
        columns: dict[str, Any] = {column: records[column] for column in bars.BAR_COLUMNS}
        columns |= {"ts_interval": begins, "instrument_id": self.ids[instrument_index]}
        columns["financial_volume"] = bars.financial_volume(records)
        bad = bars.overlaps_loss(instrument_index, begins, begins + size_ns, loss_windows)
        columns["flags"] = bars.trust_flags(bad, begins < self.joined_ns)
        return table_from_columns(name, columns, self.symbols, instrument_index)

    def _add_bbo_tables(
        self, tables: Tables, name: str, seconds: int, loss_windows: Numbers, final_before: Numbers
    ) -> None:
        """The newest row of each interval; last trades carry over to later intervals."""
        every = _concat_records(self._bbo[name], BBO_DTYPE)
        every = take_records(every, np.lexsort((every["ts_interval"], every["instrument_index"])))
        _carry_last_trades(every)
        newest = (
            np.append(bars.run_starts(every["instrument_index"], every["ts_interval"])[1:], len(every)) - 1
            if len(every)
            else []
        )
        rows = take_records(every, np.asarray(newest, np.int64))
        is_open = rows["ts_interval"] > final_before[rows["instrument_index"]]
        is_last = np.zeros(len(rows), np.bool_)  # the last final row, from which the next run continues
        final = np.flatnonzero(~is_open)
        is_last[
            final[np.append(bars.run_starts(rows["instrument_index"][final])[1:], len(final)) - 1]
            if len(final)
            else final
        ] = True
        self._bbo[name] = [take_records(rows, np.flatnonzero(is_open | is_last))]
        new = rows["ts_interval"] > self.final_before[rows["instrument_index"]]  # others are from an earlier run
        rows = take_records(rows, np.flatnonzero(new))
        price, size = _known_last_trades(rows, loss_windows)
        ends = rows["ts_interval"]
        bad = bars.overlaps_loss(rows["instrument_index"], ends - seconds * bars.SECOND_NS, ends, loss_windows)
        columns: dict[str, Any] = {
            column: rows[column] for column in BBO_DTYPE.names or () if column not in ("instrument_index", "ts_trade")
        }
        columns |= {"price": price, "size": size, "instrument_id": self.ids[rows["instrument_index"]]}
        columns["flags"] = rows["flags"] | np.where(bad, MAYBE_BAD_BOOK, 0).astype(np.int32)
        self._split_final(
            tables,
            name,
            rows,
            table_from_columns(name, columns, self.symbols, rows["instrument_index"]),
            final_before,
            -1,
        )

    def to_sections(self) -> dict[str, RecordSection]:
        """Sections of the state, by instrument; records no longer have an instrument index."""
        parts = {
            "trades": _concat_records(self._trades, bars.TRADE_DTYPE),
            "hours": _concat_records(self._hour_bars, bars.BAR_DTYPE),
        }
        parts |= {name: _concat_records(self._bbo[name], BBO_DTYPE) for name in BBO_INTERVALS_S}
        found = {
            name: group_records(records["instrument_index"], records, len(self.ids)) for name, records in parts.items()
        }
        for section in found.values():
            section.records["instrument_index"] = 0
        return found


def _concat_records(parts: list[Records], kind: np.dtype[np.void]) -> Records:
    """As bytes: numpy takes longer to find the common type of many parts than to join them."""
    return np.frombuffer(bytearray().join(part.tobytes() for part in parts), kind)


def _carry_last_trades(rows: Records) -> None:
    """A row without a last trade gets that of the previous row."""
    begins = np.zeros(len(rows), np.int64)
    starts = bars.run_starts(rows["instrument_index"])
    begins[starts] = starts
    last = np.maximum.accumulate(np.where(rows["price"] != NULL, np.arange(len(rows)), np.maximum.accumulate(begins)))
    for name in ("price", "size", "ts_trade"):
        rows[name] = rows[name][last]


def _known_last_trades(rows: Records, loss_windows: Numbers) -> tuple[Numbers, Numbers]:
    """Price and size of the last trade; NULL if data was lost since, which may have been a trade."""
    price, size, when = (rows[name].copy() for name in ("price", "size", "ts_trade"))
    edges = (
        np.searchsorted(rows["instrument_index"], [loss_windows[:, 0], loss_windows[:, 0] + 1])
        if len(loss_windows)
        else np.zeros((2, 0), np.int64)
    )
    for (_, since, until), first, end in zip(loss_windows.tolist(), *edges.tolist(), strict=True):
        unknown = np.flatnonzero((rows["ts_event"][first:end] >= since) & (when[first:end] <= until)) + first
        price[unknown], size[unknown] = NULL, NULL
    return price, size
