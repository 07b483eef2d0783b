"""Busts that were lost, as the exchange's totals show them.

A bust may concern a trade of any earlier time, so a lost one makes an earlier bar wrong. With its statistics the
exchange sends the quantity and the number of trades of the session so far, without busted ones. What the rows lack can
only grow while trades are lost: if it shrinks from one total to the next, or only its quantity changes, a bust was
lost. Not seen are a bust that is lost together with more trades of its instrument, and one without a later total.
"""

from __future__ import annotations

import numpy as np

from umdf.lake.books.bars import OTHER_VENUES, Numbers, run_starts
from umdf.lake.books.instrument_rows import RowsByBook
from umdf.market.families import NULL, TRADE_VOLUME, VWAP
from umdf.sync.book_trust_kernel import UNKNOWN_START


class TradeTotals:
    """Per instrument, in wire order."""

    def __init__(self, instruments: int, has_joined: bool = False) -> None:
        """`has_joined`: trades before the recording are missing, as the first totals show."""
        self.counted = np.zeros((instruments, 2), np.int64)  # quantity and number of trades in the rows
        self.missing = np.full((instruments, 2), NULL if has_joined else 0)  # the same, what the last totals had more
        self.ts_bust_lost = np.full(instruments, NULL)  # when totals last showed that a bust was lost before
        self.found_now = np.zeros(instruments, np.bool_)  # in this run

    def update(self, trades: RowsByBook, statistics: RowsByBook) -> None:
        """Apply the rows of a part of an epoch."""
        total_rows, published, ts = _totals(statistics)
        changes = np.concatenate([_changes(trades), np.zeros((len(total_rows), 2), np.int64)])
        if not len(changes):
            return
        owner = np.concatenate([trades.book, statistics.book[total_rows]]) >> 1
        order = np.lexsort((np.concatenate([trades.key, statistics.key[total_rows]]), owner))
        owner, changes = owner[order], changes[order]
        first = run_starts(owner)
        counted = np.cumsum(changes, axis=0)
        before = np.repeat(counted[first] - changes[first], np.diff(np.append(first, len(owner))), axis=0)
        counted += self.counted[owner] - before
        self.counted[owner] = counted  # the last one of an instrument stays
        at = np.flatnonzero(order >= len(trades))
        total = order[at] - len(trades)
        self._compare(owner[at], published[total] - counted[at], ts[total])

    def _compare(self, owner: Numbers, missing: Numbers, ts: Numbers) -> None:
        """Totals by instrument, in order."""
        if not len(owner):
            return
        first = run_starts(owner)
        previous = np.concatenate([missing[:1], missing[:-1]])
        previous[first] = self.missing[owner[first]]
        quantity, count = (missing - previous).T
        is_known = previous[:, 1] != NULL
        found = np.flatnonzero(is_known & ((count < 0) | (quantity < 0) | ((count == 0) & (quantity != 0))))
        self.ts_bust_lost[owner[found]] = ts[found]
        self.found_now[owner[found]] = True
        self.missing[owner] = missing

    def unverified_bars(self, loss_windows: Numbers) -> Numbers:
        """(instrument, since, until) of bars with trades of which a bust may have been lost; totals of an instrument
        that has lost nothing are not believed."""
        lost = np.unique(loss_windows[loss_windows[:, 1] <= self.ts_bust_lost[loss_windows[:, 0]], 0])
        return np.stack([lost, np.full(len(lost), UNKNOWN_START), self.ts_bust_lost[lost]], axis=1)

    def to_rows(self) -> Numbers:
        return np.concatenate([self.counted, self.missing, self.ts_bust_lost[:, None]], axis=1)

    def restore(self, instrument_index: Numbers, rows: Numbers) -> None:
        self.counted[instrument_index], self.missing[instrument_index] = rows[:, :2], rows[:, 2:4]
        self.ts_bust_lost[instrument_index] = rows[:, 4]


def _changes(trades: RowsByBook) -> Numbers:
    """By how much each row changes quantity and number of trades."""
    if not len(trades):
        return np.empty((0, 2), np.int64)
    action, size = trades.rows.column("action"), trades.rows.column("size")
    sign = np.select([action == ord("A"), action == ord("C")], [1, -1], 0).astype(np.int64)
    sign[np.isin(trades.rows.column("venue"), OTHER_VENUES)] = 0
    return np.stack([np.where(size == NULL, 0, size) * sign, sign], axis=1)


def _totals(statistics: RowsByBook) -> tuple[Numbers, Numbers, Numbers]:
    """Rows with totals; their quantity and number of trades, and when they were sent."""
    if not len(statistics):
        return np.empty(0, np.int64), np.empty((0, 2), np.int64), np.empty(0, np.int64)
    rows = statistics.rows
    size, count = rows.column("size"), rows.column("trade_count")
    is_total = np.isin(rows.column("stat_type"), (VWAP, TRADE_VOLUME)) & (rows.column("action") != ord("C"))
    is_total &= (size != NULL) & (count != NULL) & ~np.isin(rows.column("venue"), OTHER_VENUES)
    found = np.flatnonzero(is_total)
    return found, np.stack([size[found], count[found]], axis=1), statistics.units.ts_send[rows.unit[found]]
