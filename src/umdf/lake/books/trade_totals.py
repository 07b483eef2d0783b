"""Busts that were lost or may have been, as the exchange's totals show them.

A bust may concern a trade of any earlier time, so a lost one makes an earlier bar wrong. With its statistics the
exchange sends the quantity and the number of trades of the session so far, without busted ones. What the rows lack can
only grow while trades are lost: if it shrinks from one total to the next, or only its quantity changes, a bust was
lost. If it grows, or stays as it was, there may be a bust among what was lost together with more trades, unless RptSeq
shows that too few updates were lost for that. After the last total of an instrument nothing is known of busts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from umdf.lake.books.bars import OTHER_VENUES, Numbers, run_starts
from umdf.lake.books.gap_recovery import LostUpdates
from umdf.lake.books.instrument_rows import RowsByBook
from umdf.lake.books.replay import L_BOOK, L_SINCE, L_UNTIL, NO_END
from umdf.market.families import NULL, TRADE_VOLUME, VWAP
from umdf.sync.book_trust_kernel import UNKNOWN_COUNT, UNKNOWN_START

QUANTITY, TRADES, LOST = range(3)  # columns


class TradeTotals:
    """Per instrument, in wire order."""

    def __init__(self, instruments: int, has_joined: bool = False) -> None:
        """`has_joined`: trades before the recording are missing, as the first totals show."""
        # Quantity and number of trades in the rows; the number of updates that were lost.
        self.counted = np.zeros((instruments, 3), np.int64)
        # At the last totals: quantity and number of trades that the rows lack; the number of updates that were lost.
        self.missing = np.zeros((instruments, 3), np.int64)
        if has_joined:
            self.missing[:, :LOST] = NULL
        self.ts_bust_lost = np.full(instruments, NULL)  # when totals last showed that a bust was lost before
        self.ts_lost = np.full(instruments, NULL)  # until when updates were lost, the last time
        self.ts_unverified = np.full(instruments, NULL)  # until when a bust may have been lost, as totals leave it open
        self.found_now = np.zeros(instruments, np.bool_)  # in this run

    def update(self, trades: RowsByBook, statistics: RowsByBook, losses: Sequence[LostUpdates]) -> None:
        """Apply the rows of a part of an epoch, and what it lost."""
        total_rows, published, ts = _totals(statistics)
        lost_rows = _concatenate(losses)
        lost, traded, totals = len(lost_rows.key), len(trades), len(total_rows)
        if not lost + traded + totals:
            return
        changes = np.zeros((lost + traded + totals, 3), np.int64)
        changes[:lost, LOST] = lost_rows.count
        changes[lost : lost + traded, :LOST] = _changes(trades)
        owner = np.concatenate([lost_rows.book, trades.book, statistics.book[total_rows]]) >> 1
        # A row that shows a loss comes after it.
        order = np.lexsort((np.concatenate([lost_rows.key, trades.key, statistics.key[total_rows]]), owner))
        until = np.full(len(order), NULL)
        until[:lost] = lost_rows.until
        owner, changes, until = owner[order], changes[order], until[order]
        first = run_starts(owner)
        sizes = np.diff(np.append(first, len(owner)))
        counted = np.cumsum(changes, axis=0)
        counted += self.counted[owner] - np.repeat(counted[first] - changes[first], sizes, axis=0)
        self.counted[owner] = counted  # the last one of an instrument stays
        at = np.flatnonzero(order >= lost + traded)
        total = order[at] - lost - traded
        missing = np.column_stack([published[total] - counted[at, :LOST], counted[at, LOST]])
        self._compare(owner[at], missing, ts[total])
        np.maximum.at(self.ts_lost, owner, until)

    def add_losses(self, instrument_index: Numbers, until: int) -> None:
        """Any number of updates may have been lost until then."""
        self.counted[instrument_index, LOST] += UNKNOWN_COUNT
        self.ts_lost[instrument_index] = np.maximum(self.ts_lost[instrument_index], until)

    def _compare(self, owner: Numbers, missing: Numbers, ts: Numbers) -> None:
        """Totals by instrument, in order."""
        if not len(owner):
            return
        first = run_starts(owner)
        previous = np.concatenate([missing[:1], missing[:-1]])
        previous[first] = self.missing[owner[first]]
        quantity, trades, lost = (missing - previous).T
        is_known = previous[:, TRADES] != NULL
        found = np.flatnonzero(is_known & ((trades < 0) | (quantity < 0) | ((trades == 0) & (quantity != 0))))
        self.ts_bust_lost[owner[found]] = ts[found]
        self.found_now[owner[found]] = True
        # A bust and one more trade than the rows lack.
        is_possible = (lost > 0) & (~is_known | (lost >= trades + 2))
        self.ts_unverified[owner[is_possible]] = ts[is_possible]
        self.missing[owner] = missing

    def unverified_bars(self, loss_windows: Numbers, is_day_over: bool) -> Numbers:
        """(instrument, since, until) of bars with trades of which a bust was lost; totals of an instrument that has
        lost nothing do not count. At the end of the day also where one may have been lost."""
        owner, since, end = (loss_windows[:, column] for column in (L_BOOK, L_SINCE, L_UNTIL))
        lost = np.unique(owner[since <= self.ts_bust_lost[owner]])
        until = np.full(len(self.ts_lost), NULL)
        until[lost] = self.ts_bust_lost[lost]
        if is_day_over:
            np.maximum(until, self.ts_unverified, out=until)
            np.maximum(until, self.ts_lost, out=until, where=self.counted[:, LOST] > self.missing[:, LOST])
            until[owner[end == NO_END]] = NO_END
        some = np.flatnonzero(until != NULL)
        return np.stack([some, np.full(len(some), UNKNOWN_START), until[some]], axis=1)

    def to_rows(self) -> Numbers:
        times = self.ts_bust_lost, self.ts_lost, self.ts_unverified
        return np.column_stack([self.counted, self.missing, *times])

    def restore(self, instrument_index: Numbers, rows: Numbers) -> bool:
        """False: an older umdf has stored less, so that the day has to be rebuilt."""
        if rows.shape[1] != self.to_rows().shape[1]:
            return False
        self.counted[instrument_index], self.missing[instrument_index] = rows[:, :3], rows[:, 3:6]
        for times, values in zip((self.ts_bust_lost, self.ts_lost, self.ts_unverified), rows[:, 6:].T, strict=True):
            times[instrument_index] = values
        return True


def _concatenate(losses: Sequence[LostUpdates]) -> LostUpdates:
    if not losses:
        return LostUpdates(np.empty(0, np.int32), np.empty(0, np.uint64), *np.empty((2, 0), np.int64))
    columns = ([getattr(lost, name) for lost in losses] for name in ("book", "key", "count", "until"))
    return LostUpdates(*map(np.concatenate, columns))


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
