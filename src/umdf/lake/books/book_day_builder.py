"""The day of a group of instruments, span by span: books, trades, best prices, gaps; and the tables of the whole day.

    day = BookDayBuilder(instruments, timeline, epochs, trading_date, table_names, stored)
    day.advance(mbo, trades, statistics, snapshots, more=False)  -> tables of this span, final
    day.finish()                                                 -> tables of the whole day

Invariant: processing a day in several spans, or in several runs with stored state, gives the same result as in one.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.errors import UmdfError
from umdf.lake.books import bars
from umdf.lake.books.day_losses import loss_windows_by_instrument, untrusted_books
from umdf.lake.books.day_statistics import PublishedStatistics, day_statistics
from umdf.lake.books.gap_recovery import Timeline
from umdf.lake.books.instrument_rows import HINT, Epochs, InstrumentSet, RowsByBook, event_times
from umdf.lake.books.intervals import BBO_INTERVALS_S, OPEN_SUFFIX, IntervalTables
from umdf.lake.books.levels import bbo_records, mbp_table, tbbo_table
from umdf.lake.books.positions import merge_positions
from umdf.lake.books.replay import L_BOOK, L_SINCE, L_UNTIL, NO_END, BookReplay, Numbers, ReplayResult
from umdf.lake.books.snapshot_rows import BookSnapshots
from umdf.lake.books.state_columns import (
    BookStates,
    RecordSection,
    book_contents,
    group_records,
    loss_records,
    restore_books,
    sequences_at,
)
from umdf.lake.books.state_record import EMPTY_BOOK, HEADER_FIELDS, PUBLISHED_DTYPE, BookState, read_book, state_table
from umdf.lake.books.table_columns import family_table
from umdf.lake.books.trade_totals import TradeTotals
from umdf.lake.parquet.data_files import sort_rows
from umdf.lake.schemas import table
from umdf.lake.tasks.id_lookup import distinct_values
from umdf.market.families import LAST, MAYBE_BAD_BOOK, NULL, SNAPSHOT
from umdf.sync import book_trust_kernel as trust

MINUTE_NS = 60 * bars.SECOND_NS
LAST_KEY = (1 << 64) - 1  # the largest key of an epoch
Tables = dict[str, pa.Table]
# Fields of a book that its state stores unchanged.
_STATE_COLUMNS = {
    "known": trust.S_RPT_SEQ,
    "stale": trust.S_STALE,
    "unverified": trust.S_UNVERIFIED,
    "ts": trust.S_TS,
    "seen": trust.S_SEEN,
}


class BookDayBuilder:
    def __init__(
        self,
        instruments: InstrumentSet,
        timeline: Timeline,
        epochs: Epochs,
        trading_date: int,
        table_names: frozenset[str],
        stored: BookStates | None = None,
    ) -> None:
        self.instruments, self.timeline, self.epochs = instruments, timeline, epochs
        self.trading_date, self.table_names = trading_date, table_names
        self.ids, count = instruments.ids, len(instruments.ids)
        depth = 10 if "mbp_10" in table_names else 1
        books = restore_books(stored) if stored is not None else None
        self.replay = BookReplay(instruments.ids, timeline, depth, books)
        self.last_key = np.full(2 * count, -1, np.int64).astype(np.uint64)  # larger than every key, until there is one
        self.has_row = np.zeros(2 * count, np.bool_)
        self.last_epoch = np.zeros(2 * count, np.int32)
        self.events, self.unverified_events, self.loss_counts = np.zeros((3, 2 * count), np.int64)
        joined_ns = max(timeline.joined.values(), default=NULL)
        self.intervals = IntervalTables(instruments.ids, instruments.symbols, table_names, trading_date, joined_ns)
        self.loss_windows: list[Numbers] = []
        self.published = PublishedStatistics(count)
        self.trade_totals = TradeTotals(count, has_joined=bool(timeline.joined))
        self.book_events: list[BookState] = []
        self.gap_log = self.replay.gap_log
        for instrument_id, levels in instruments.depths.items():
            self.replay.books.set_depth(instrument_id, levels)
        if stored is not None:
            self._restore(stored)

    def _restore(self, stored: BookStates) -> None:
        head, replay, timeline = stored.header, self.replay, self.timeline
        instrument_index = np.searchsorted(self.ids, stored.instrument_id)
        book = 2 * instrument_index + head["lending"]
        epochs = self.epochs.ranks(head["epoch"])
        replay.epoch = max(replay.epoch, int(epochs.max(initial=-1)))
        for name, column in _STATE_COLUMNS.items():
            replay.states[book, column] = head[name]
        replay.last_bad[book] = head["shown_bad"]
        shown = np.flatnonzero(head["shown_epoch"] != NULL)
        replay.last_shown_epoch[book[shown]] = self.epochs.ranks(head["shown_epoch"][shown])
        unanswered = stored.sections["unanswered"]
        gap_owner = np.repeat(np.arange(len(stored)), unanswered.counts)
        for epoch in np.unique(epochs).tolist():
            own = np.flatnonzero(epochs == epoch)
            replay.states[book[own], trust.S_GAPS] = timeline.gaps_before(epoch, head["covered"][own], within=True)
            unverified = own[head["unverified"][own] != 0]
            first_gap = timeline.gaps_at(epoch, head["unverified_from"][unverified])
            replay.states[book[unverified], trust.S_FIRST_GAP] = first_gap
            some = np.flatnonzero(epochs[gap_owner] == epoch)
            self.gap_log.restore(book[gap_owner[some]], epoch, unanswered.records[some])
        self.last_key[book], self.last_epoch[book] = stored.key, self.epochs.ranks(stored.seq_version)
        self.has_row[book] = True
        self.events[book], self.unverified_events[book] = head["events"], head["untrusted_events"]
        self.loss_counts[book] = head["gaps"]
        self.intervals.restore(instrument_index, stored)
        lost = stored.sections["loss_windows"]
        self.loss_windows.append(np.stack([lost.owners(book), lost.records["since"], lost.records["until"]], axis=1))
        published = stored.sections["published"]
        owner = instrument_index[np.flatnonzero(published.counts)]
        values = published.records["value"].reshape(len(owner), -1)
        width = self.published.to_rows().shape[1]
        self.published.restore(owner, values[:, :width])
        self.intervals.has_late_rows |= not self.trade_totals.restore(owner, values[:, width:])

    def advance(
        self,
        mbo: RowsByBook,
        trades: RowsByBook,
        statistics: RowsByBook,
        snapshots: BookSnapshots,
        *,
        more: bool = False,
    ) -> Tables:
        """Process a span: rows of every instrument, its trades, statistics and snapshots."""
        families = mbo, trades, statistics
        epochs = distinct_values(*(each.epoch for each in (*families, snapshots)))
        if len(epochs) < 2:
            return self._advance_epoch(*families, snapshots, more=more)
        tables: dict[str, list[pa.Table]] = defaultdict(list)
        for epoch in epochs:  # separately: books end with their epoch
            limits = (epoch - 1, LAST_KEY), (epoch, LAST_KEY)
            families_of_epoch = mbo.between(*limits), trades.between(*limits), statistics.between(*limits)
            epoch_tables = self._advance_epoch(
                *families_of_epoch, snapshots.between(*limits), more=more and epoch == epochs[-1]
            )
            for name, rows in epoch_tables.items():
                tables[name].append(rows)
        merged = {name: pa.concat_tables(parts).unify_dictionaries() for name, parts in tables.items()}
        return {name: sort_rows(rows, table(name)) for name, rows in merged.items()}

    def _advance_epoch(
        self, mbo: RowsByBook, trades: RowsByBook, statistics: RowsByBook, snapshots: BookSnapshots, *, more: bool
    ) -> Tables:
        self._check_not_older(mbo)
        result = self.replay.apply(mbo, snapshots, more=more)
        times = event_times(mbo.rows, mbo.units) if len(mbo) else np.empty(0, np.int64)
        mbo_rows_before, trade_bad = self._book_trust_at(mbo, result, trades)
        _, statistic_bad = self._book_trust_at(mbo, result, statistics)
        self._add_ended_losses()
        self._add_losses(result.loss_windows)
        staged = np.flatnonzero(~mbo.is_synthetic) if mbo.is_synthetic is not None else None
        books = mbo.book if staged is None else mbo.book[staged]
        bad = result.bad if staged is None else result.bad[staged]
        self.events += np.bincount(books, minlength=len(self.events))
        self.unverified_events += np.bincount(books[bad != 0], minlength=len(self.events))
        if len(mbo):
            real = np.arange(len(mbo))
            if mbo.is_synthetic is not None:
                real = np.flatnonzero(~mbo.is_synthetic | result.is_emptied)
            own = mbo.book[real]
            ends = real[np.append(own[1:] != own[:-1], True)] if len(real) else real
            self.last_key[mbo.book[ends]], self.last_epoch[mbo.book[ends]] = mbo.key[ends], mbo.epoch[ends]
            self.has_row[mbo.book[ends]] = True
        self._record_recoveries(result, snapshots)
        self._record_resets(mbo, result)
        if len(statistics):
            self.published.update(statistics)
        self.trade_totals.update(trades, statistics, result.lost_updates)
        if len(trades):
            self.intervals.add_trades(bars.trade_records(trades))
        for name, seconds in BBO_INTERVALS_S.items():
            if name in self.table_names:
                self.intervals.add_bbo(name, bbo_records(mbo, times, result, trades, mbo_rows_before, seconds))
        return self._tables(
            mbo, staged, result, trades, mbo_rows_before, trade_bad, statistics, statistic_bad, snapshots
        )

    def _add_ended_losses(self) -> None:
        """What was lost at the end of epochs that are over."""
        for lost in self.replay.ended_losses:
            self._add_losses(lost)
            self.trade_totals.add_losses(lost[:, L_BOOK] >> 1, int(lost[:, L_UNTIL].max(initial=NULL)))
        self.replay.ended_losses = []

    def _add_losses(self, loss_windows: Numbers) -> None:
        self.loss_windows.append(loss_windows)
        self.intervals.check_losses(loss_windows[:, L_BOOK] >> 1, loss_windows[:, L_SINCE])
        np.add.at(self.loss_counts, loss_windows[:, L_BOOK], 1)

    def _tables(
        self,
        mbo: RowsByBook,
        staged: Numbers | None,
        result: ReplayResult,
        trades: RowsByBook,
        mbo_rows_before: Numbers,
        trade_bad: NDArray[np.bool_],
        statistics: RowsByBook,
        statistic_bad: NDArray[np.bool_],
        snapshots: BookSnapshots,
    ) -> Tables:
        tables: Tables = {}
        symbols, wanted = self.instruments.symbols, self.table_names
        for name, depth in (("mbp_1", 1), ("mbp_10", 10)):
            if name in wanted:
                tables[name] = mbp_table(mbo, snapshots, result, depth, self.ids, symbols, self.epochs)
        if "book_check" in wanted and len(snapshots):
            tables["book_check"] = result.checks.to_table(snapshots, self.ids, symbols)
        trade_flags = _with_maybe_bad(trades, trade_bad)
        if "tbbo" in wanted and len(trades):
            tables["tbbo"] = tbbo_table(trades, mbo_rows_before, result, trade_flags, self.ids, symbols)
        if "mbo" in wanted and len(mbo):
            flags, events, book = _with_maybe_bad(mbo, result.bad != 0), mbo.events, mbo.book
            if staged is not None:
                events = events.take({"mbo": staged})
                flags, book = flags[staged], book[staged]
            tables["mbo"] = family_table(events, "mbo", flags, symbols, book >> 1)
        if "trades" in wanted and len(trades):
            tables["trades"] = family_table(trades.events, "trades", trade_flags, symbols, trades.book >> 1)
        if "statistics" in wanted and len(statistics):
            flags = _with_maybe_bad(statistics, statistic_bad)
            tables["statistics"] = family_table(statistics.events, "statistics", flags, symbols, statistics.book >> 1)
        return tables

    def _check_not_older(self, mbo: RowsByBook) -> None:
        """Rows must come after those of earlier spans."""
        first = bars.run_starts(mbo.book)
        book = mbo.book[first]
        known = self.has_row[book]
        older = (mbo.epoch[first] == self.last_epoch[book]) & (mbo.key[first] <= self.last_key[book])
        wrong = np.flatnonzero(known & (older | (mbo.epoch[first] < self.last_epoch[book])))
        if len(wrong):
            number, at = int(self.ids[book[wrong[0]] >> 1]), int(mbo.key[first[wrong[0]]]) >> 32
            last = int(self.last_key[book[wrong[0]]]) >> 32
            raise UmdfError(f"rows of instrument {number} are out of order in mbo: sequence {at} after {last}", HINT)

    def _book_trust_at(
        self, mbo: RowsByBook, result: ReplayResult, others: RowsByBook
    ) -> tuple[Numbers, NDArray[np.bool_]]:
        """How many rows of mbo precede each row of another family, and whether its book may be wrong there."""
        if not len(others):
            return np.empty(0, np.int64), np.empty(0, np.bool_)
        size = len(self.epochs.versions)
        groups = [some.book * np.int32(size) + some.epoch for some in (mbo, others)]
        mbo_rows_before = merge_positions(groups[0], mbo.key, groups[1], others.key, behind=False)
        bad = result.initial_bad[others.book] != 0
        if len(mbo):
            here = np.minimum(mbo_rows_before, len(mbo) - 1)
            itself = (mbo_rows_before < len(mbo)) & (groups[0][here] == groups[1]) & (mbo.key[here] == others.key)
            before = np.maximum(mbo_rows_before - 1, 0)
            follows = (mbo_rows_before > 0) & (mbo.book[before] == others.book)
            bad = np.where(itself, result.bad[here] != 0, np.where(follows, result.bad[before] != 0, bad))
        return mbo_rows_before, bad

    def _record_recoveries(self, result: ReplayResult, snapshots: BookSnapshots) -> None:
        if "book_state" not in self.table_names or not len(result.recovery_snapshots):
            return
        books = self.replay.snapshot_books  # any engine will do: a snapshot alone defines its book
        for snapshot in result.recovery_snapshots.tolist():
            book, rpt_seq = int(snapshots.book[snapshot]), int(snapshots.last_rpt_seq[snapshot])
            instrument_id, lending = int(self.ids[book >> 1]), book & 1
            books.delete(instrument_id, lending=bool(lending))  # an earlier one may have set its book type
            books.apply(snapshots.rows_of(np.array([snapshot]))[0])
            header, entries = read_book(books, instrument_id, lending)
            head = dict.fromkeys(HEADER_FIELDS, 0) | {"lending": lending, "known": rpt_seq, "ts": NULL}
            head |= {"ts_send": int(snapshots.ts_send[snapshot]), "ts_recv": int(snapshots.ts_recv[snapshot])}
            key = int(snapshots.last_sequence[snapshot]) << 32 | 0xFFFFFFFF
            version = self.epochs.versions[int(snapshots.epoch[snapshot])]
            stored = BookState(instrument_id, version, key, rpt_seq, SNAPSHOT, head, header, {"entries": entries})
            self.book_events.append(stored)

    def _record_resets(self, mbo: RowsByBook, result: ReplayResult) -> None:
        """Record resets and deletions that emptied a book without a row of `mbo`."""
        if "book_state" not in self.table_names or mbo.is_synthetic is None or not len(mbo):
            return
        units, own = mbo.units, mbo.rows
        for row in np.flatnonzero(mbo.is_synthetic & result.is_emptied).tolist():
            unit, book = own.unit[row], int(mbo.book[row])
            head = dict.fromkeys(HEADER_FIELDS, 0) | {"lending": book & 1, "known": NULL}
            head |= {"ts": int(own.column("ts_event")[row])}
            head |= {"ts_send": int(units.ts_send[unit]), "ts_recv": int(units.ts_recv[unit])}
            key_fields = int(self.ids[book >> 1]), int(units.seq_version[unit]), int(mbo.key[row])
            self.book_events.append(BookState(*key_fields, NULL, LAST, head, EMPTY_BOOK[0]))

    def finish(self, final_before_ns: int | None = None) -> Tables:
        """The tables of the whole day, as far as they are new or open. `final_before_ns`: no earlier events will come;
        None: no more events at all."""
        self.replay.finish()
        self._add_ended_losses()
        loss_windows, instrument_count = loss_windows_by_instrument(self.replay, self.loss_windows), len(self.ids)
        final_minute_ns = NO_END if final_before_ns is None else final_before_ns // MINUTE_NS * MINUTE_NS
        final_before = np.full(instrument_count, final_minute_ns)
        if final_before_ns is not None:  # unverified books may still turn out to be healthy
            unverified = loss_windows[loss_windows[:, L_UNTIL] == NO_END]
            since = np.maximum(unverified[:, L_SINCE], 0)  # it may be unknown
            np.minimum.at(final_before, unverified[:, L_BOOK], since // MINUTE_NS * MINUTE_NS)
        unverified_bars = self.trade_totals.unverified_bars(loss_windows, is_over := final_before_ns is None)
        own = unverified_bars[:, L_BOOK]
        self.intervals.check_bars(own[self.trade_totals.found_now[own] | is_over])
        tables = self.intervals.finish(loss_windows, final_before, unverified_bars)
        if "day_statistics" in self.table_names:
            columns = {"events": self.events, "unverified_events": self.unverified_events, "gaps": self.loss_counts}
            extra_columns: dict[str, Any] = {name: each.reshape(-1, 2).sum(axis=1) for name, each in columns.items()}
            extra_columns |= {"last_phase": self.instruments.last_phase, "last_state": self.instruments.last_state}
            bad = np.zeros(instrument_count, np.bool_)
            bad[loss_windows[:, L_BOOK]] = True
            flags = bars.trust_flags(bad, np.full(instrument_count, bool(self.timeline.joined)))
            trades = self.intervals.day_bars, self.intervals.busted_counts
            tables["day_statistics"] = day_statistics(
                *trades, self.published, extra_columns, flags, self.ids, self.instruments.symbols
            )
        if "book_state" in self.table_names:
            tables["book_state"] = state_table(self.book_events)
            tables["book_state" + OPEN_SUFFIX] = self._book_states().to_table()
        return tables

    def untrusted_books(self) -> list[dict[str, Any]]:
        """The books that may be wrong at the end, with reasons."""
        return untrusted_books(self.replay, self.instruments.symbols)

    def _book_states(self) -> BookStates:
        """The state of every book, and of every instrument with data of the day."""
        states, day_sections = self.replay.states, self.intervals.to_sections()
        has_day_data = np.logical_or.reduce([part.counts > 0 for part in day_sections.values()])
        # A snapshot without a row may have shown that nothing is missing.
        is_known = (states[:, trust.S_SEEN] != 0) | (states[:, trust.S_GAPS] != 0) | (self.events != 0)
        is_known[::2] |= has_day_data
        books = np.flatnonzero(is_known)
        instrument_index, states, has_row = books >> 1, states[books], self.has_row[books]
        # The day's data belong to the instrument, not to a book.
        is_first = np.append(True, instrument_index[1:] != instrument_index[:-1])[: len(books)]
        header, entries = book_contents(self.replay.books, self.ids, books)
        nothing, row_of = np.zeros(len(books), np.int64), np.full(len(self.has_row), -1)
        row_of[books] = np.arange(len(books))
        loss_windows = np.concatenate([np.empty((0, 3), np.int64), *self.loss_windows])
        gap_owner, unanswered = self.gap_log.to_state()
        sections = {"entries": entries}
        sections["loss_windows"] = group_records(row_of[loss_windows[:, 0]], loss_records(loss_windows), len(books))
        sections["unanswered"] = group_records(row_of[gap_owner], unanswered, len(books))
        first = np.flatnonzero(is_first)
        for name, part in day_sections.items():
            own, counts = part.take(instrument_index[first]), nothing.copy()
            counts[first] = own.counts
            sections[name] = RecordSection(counts, own.records)
        every = np.concatenate([self.published.to_rows(), self.trade_totals.to_rows()], axis=1)
        statistics = every[instrument_index[first]]
        sections["published"] = RecordSection(
            is_first * np.int64(statistics.shape[1]), statistics.ravel().view(PUBLISHED_DTYPE)
        )
        versions, shown = np.array([*self.epochs.versions, NULL]), self.replay.last_shown_epoch[books]
        gaps = self.timeline.gaps.get(self.replay.epoch, (np.empty(0, np.int64),) * 2)
        unverified, covered = states[:, trust.S_UNVERIFIED] != 0, states[:, trust.S_GAPS]
        state_header = {name: states[:, column] for name, column in _STATE_COLUMNS.items()}
        state_header |= {
            "lending": books & 1,
            "shown_bad": self.replay.last_bad[books].astype(np.int64),
            "shown_epoch": versions[shown],
            "epoch": nothing + self._current_seq_version(),
            "unverified_from": sequences_at(gaps[0], np.where(unverified, states[:, trust.S_FIRST_GAP], -1)),
            "covered": sequences_at(gaps[1], covered - 1),
            "events": self.events[books],
            "untrusted_events": self.unverified_events[books],
            "gaps": self.loss_counts[books],
            "ts_send": nothing + NULL,
            "ts_recv": nothing + NULL,
            "final_before": self.intervals.final_before[instrument_index],
            "busted": np.where(is_first, self.intervals.busted_counts[instrument_index], 0),
        }
        return BookStates(
            self.ids[instrument_index],
            np.where(has_row, versions[self.last_epoch[books]], self._current_seq_version()),
            np.where(has_row, self.last_key[books], np.uint64(0)),
            states[:, trust.S_RPT_SEQ],
            np.where((states[:, trust.S_STALE] != 0) | unverified, MAYBE_BAD_BOOK, 0).astype(np.int32),
            state_header,
            header,
            sections,
        )

    def _current_seq_version(self) -> int:
        return self.epochs.versions[max(self.replay.epoch, 0)] if self.epochs.versions else 0


def _with_maybe_bad(rows: RowsByBook, bad: NDArray[np.bool_]) -> NDArray[np.int32]:
    if not len(rows):
        return np.empty(0, np.int32)
    return rows.rows.column("flags") | np.where(bad, MAYBE_BAD_BOOK, 0).astype(np.int32)
