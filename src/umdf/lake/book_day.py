"""The day of a group of instruments as it goes on: books, trades, best prices, losses; and what it comes to at the end.

    day = GroupDay(ids, symbols, depths, timeline, epochs, depth, stored)
    day.advance(mbo, trades, statistics, snapshots, more=False)  -> tables of this stretch, final
    day.finish()                                                 -> tables of the whole day

The one rule: a day in several stretches, or in several runs with the state between them, is the day in one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.errors import UmdfError
from umdf.lake import bars as b
from umdf.lake import healing_kernel as h
from umdf.lake.book_rows import HINT, Epochs, Grouped, times_of
from umdf.lake.book_state import HEAD_NAMES, LOST, NO_BOOK, PUBLISHED, Stored, book_in, state_table
from umdf.lake.book_states import Section, States, books_in, books_of, section_of
from umdf.lake.columns import family_table
from umdf.lake.day_numbers import Published, day_statistics
from umdf.lake.files import in_order
from umdf.lake.gap_cures import Timeline
from umdf.lake.healing import FOREVER, L_BOOK, L_SINCE, L_UNTIL, BookRun, Numbers, Told, places_in
from umdf.lake.instruments import distinct
from umdf.lake.intervals import BEST_S, OPEN, Intervals
from umdf.lake.levels import tops_by_interval, updates, with_tops
from umdf.lake.schemas import table
from umdf.lake.snapshot_rows import SnapshotLines
from umdf.market.events import LAST, MAYBE_BAD_BOOK, NULL, SNAPSHOT

MINUTE_NS = 60 * b.SECOND_NS
LAST_KEY = (1 << 64) - 1  # of an epoch
Tables = dict[str, pa.Table]
# What a state has of a book as it is.
_KEPT = {"known": h.S_RPT_SEQ, "stale": h.S_STALE, "doubt": h.S_DOUBT, "ts": h.S_TS, "seen": h.S_SEEN}


@dataclass(eq=False)
class Group:
    """Some instruments, sorted: what is known of them without their rows."""

    ids: Numbers
    symbols: pa.Array
    depths: Mapping[int, int]  # 264 of those whose definition says it
    last_phase: NDArray[np.int16]
    last_state: NDArray[np.int16]


class GroupDay:
    def __init__(
        self,
        group: Group,
        timeline: Timeline,
        epochs: Epochs,
        trading_date: int,
        wanted: frozenset[str],
        stored: States | None = None,
    ) -> None:
        self.group, self.timeline, self.epochs = group, timeline, epochs
        self.trading_date, self.wanted = trading_date, wanted
        self.ids, count = group.ids, len(group.ids)
        depth = 10 if "mbp_10" in wanted else 1
        self.run = BookRun(group.ids, timeline, depth, books_of(stored) if stored is not None else None)
        self.last_key = np.full(2 * count, -1, np.int64).astype(np.uint64)  # behind every key, until there is one
        self.has_row = np.zeros(2 * count, np.bool_)
        self.last_epoch = np.zeros(2 * count, np.int32)
        self.events, self.in_doubt, self.losses = np.zeros((3, 2 * count), np.int64)
        self.intervals = Intervals(group.ids, group.symbols, wanted, trading_date)
        self.lost: list[Numbers] = []
        self.published = Published(count)
        self.happened: list[Stored] = []
        self.gaps = self.run.log
        for instrument_id, levels in group.depths.items():
            self.run.books.set_depth(instrument_id, levels)
        if stored is not None:
            self._restore(stored)

    def _restore(self, stored: States) -> None:
        head, run, timeline = stored.head, self.run, self.timeline
        place = np.searchsorted(self.ids, stored.instrument_id)
        book = 2 * place + head["lending"]
        epochs = self.epochs.ranks(head["epoch"])
        run.epoch = max(run.epoch, int(epochs.max(initial=-1)))
        for name, column in _KEPT.items():
            run.states[book, column] = head[name]
        run.shown_bad[book] = head["shown_bad"]
        shown = np.flatnonzero(head["shown_epoch"] != NULL)
        run.shown_epoch[book[shown]] = self.epochs.ranks(head["shown_epoch"][shown])
        owed = stored.sections["owed"]
        owing = np.repeat(np.arange(len(stored)), owed.counts)
        for epoch in np.unique(epochs).tolist():
            own = np.flatnonzero(epochs == epoch)
            run.states[book[own], h.S_GAPS] = timeline.gaps_before(epoch, head["covered"][own], within=True)
            doubt = own[head["doubt"][own] != 0]
            run.states[book[doubt], h.S_FROM] = timeline.gaps_at(epoch, head["doubt_from"][doubt])
            some = np.flatnonzero(epochs[owing] == epoch)
            self.gaps.restore(book[owing[some]], epoch, owed.records[some])
        self.last_key[book], self.last_epoch[book] = stored.key, self.epochs.ranks(stored.seq_version)
        self.has_row[book] = True
        self.events[book], self.in_doubt[book] = head["events"], head["events_in_doubt"]
        self.losses[book] = head["losses"]
        self.intervals.restore(place, stored)
        lost = stored.sections["lost"]
        self.lost.append(np.stack([lost.owners(book), lost.records["since"], lost.records["until"]], axis=1))
        published = stored.sections["published"]
        said = np.flatnonzero(published.counts)
        self.published.restore(place[said], published.records["value"].reshape(len(said), -1))

    def advance(
        self, mbo: Grouped, trades: Grouped, statistics: Grouped, snapshots: SnapshotLines, *, more: bool = False
    ) -> Tables:
        """A stretch: rows of every instrument, its trades, its statistics, its snapshots."""
        some = mbo, trades, statistics
        epochs = distinct(*(each.epoch for each in (*some, snapshots)))
        if len(epochs) < 2:
            return self._advance(*some, snapshots, more=more)
        found: dict[str, list[pa.Table]] = defaultdict(list)
        for epoch in epochs:  # each for itself: books end with their numbering
            limits = (epoch - 1, LAST_KEY), (epoch, LAST_KEY)
            mine = mbo.between(*limits), trades.between(*limits), statistics.between(*limits)
            made = self._advance(*mine, snapshots.between(*limits), more=more and epoch == epochs[-1])
            for name, rows in made.items():
                found[name].append(rows)
        whole = {name: pa.concat_tables(parts).unify_dictionaries() for name, parts in found.items()}
        return {name: in_order(rows, table(name)) for name, rows in whole.items()}

    def _advance(
        self, mbo: Grouped, trades: Grouped, statistics: Grouped, snapshots: SnapshotLines, *, more: bool
    ) -> Tables:
        self._refuse_older(mbo)
        told = self.run.run(mbo, snapshots, more=more)
        times = times_of(mbo.rows, mbo.units) if len(mbo) else np.empty(0, np.int64)
        place, trade_bad = self._beside(mbo, told, trades)
        _, statistic_bad = self._beside(mbo, told, statistics)
        self.lost.append(told.lost)
        self.intervals.take_lost(told.lost[:, L_BOOK] >> 1, told.lost[:, L_SINCE])
        np.add.at(self.losses, told.lost[:, L_BOOK], 1)
        staged = np.flatnonzero(~mbo.made) if mbo.made is not None else None
        books = mbo.book if staged is None else mbo.book[staged]
        bad = told.bad if staged is None else told.bad[staged]
        self.events += np.bincount(books, minlength=len(self.events))
        self.in_doubt += np.bincount(books[bad != 0], minlength=len(self.events))
        if len(mbo):
            real = np.arange(len(mbo)) if mbo.made is None else np.flatnonzero(~mbo.made | told.emptied)
            own = mbo.book[real]
            ends = real[np.append(own[1:] != own[:-1], True)] if len(real) else real
            self.last_key[mbo.book[ends]], self.last_epoch[mbo.book[ends]] = mbo.key[ends], mbo.epoch[ends]
            self.has_row[mbo.book[ends]] = True
        self._keep_heals(told, snapshots)
        self._keep_made(mbo, told)
        if len(statistics):
            self.published.take(statistics)
        if len(trades):
            self.intervals.take_trades(trade_log(trades))
        for name, seconds in BEST_S.items():
            if name in self.wanted:
                self.intervals.take_best(name, tops_by_interval(mbo, times, told, trades, place, seconds))
        return self._tables(mbo, staged, told, trades, place, trade_bad, statistics, statistic_bad, snapshots)

    def _tables(
        self,
        mbo: Grouped,
        staged: Numbers | None,
        told: Told,
        trades: Grouped,
        place: Numbers,
        trade_bad: NDArray[np.bool_],
        statistics: Grouped,
        statistic_bad: NDArray[np.bool_],
        snapshots: SnapshotLines,
    ) -> Tables:
        found: Tables = {}
        symbols, wanted = self.group.symbols, self.wanted
        for name, depth in (("mbp_1", 1), ("mbp_10", 10)):
            if name in wanted:
                found[name] = updates(mbo, snapshots, told, depth, self.ids, symbols, self.epochs)
        if "book_check" in wanted and len(snapshots):
            found["book_check"] = told.checks.table(snapshots, self.ids, symbols)
        trade_flags = _flagged(trades, trade_bad)
        if "tbbo" in wanted and len(trades):
            found["tbbo"] = with_tops(trades, place, told, trade_flags, self.ids, symbols)
        if "mbo" in wanted and len(mbo):
            flags, events, book = _flagged(mbo, told.bad != 0), mbo.events, mbo.book
            if staged is not None:
                events = events.at({"mbo": staged})
                flags, book = flags[staged], book[staged]
            found["mbo"] = family_table(events, "mbo", flags, symbols, book >> 1)
        if "trades" in wanted and len(trades):
            found["trades"] = family_table(trades.events, "trades", trade_flags, symbols, trades.book >> 1)
        if "statistics" in wanted and len(statistics):
            flags = _flagged(statistics, statistic_bad)
            found["statistics"] = family_table(statistics.events, "statistics", flags, symbols, statistics.book >> 1)
        return found

    def _refuse_older(self, mbo: Grouped) -> None:
        """What comes must be behind what came before."""
        first = b.starts_of(mbo.book)
        book = mbo.book[first]
        known = self.has_row[book]
        older = (mbo.epoch[first] == self.last_epoch[book]) & (mbo.key[first] <= self.last_key[book])
        wrong = np.flatnonzero(known & (older | (mbo.epoch[first] < self.last_epoch[book])))
        if len(wrong):
            number, at = int(self.ids[book[wrong[0]] >> 1]), int(mbo.key[first[wrong[0]]]) >> 32
            last = int(self.last_key[book[wrong[0]]]) >> 32
            raise UmdfError(f"rows of instrument {number} are out of order in mbo: sequence {at} after {last}", HINT)

    def _beside(self, mbo: Grouped, told: Told, others: Grouped) -> tuple[Numbers, NDArray[np.bool_]]:
        """How many rows of mbo come before each row of another family, and whether its book may be wrong there."""
        if not len(others):
            return np.empty(0, np.int64), np.empty(0, np.bool_)
        size = len(self.epochs.versions)
        groups = [some.book * np.int32(size) + some.epoch for some in (mbo, others)]
        place = places_in(groups[0], mbo.key, groups[1], others.key, behind=False)
        bad = told.begun_bad[others.book] != 0
        if len(mbo):
            here = np.minimum(place, len(mbo) - 1)
            itself = (place < len(mbo)) & (groups[0][here] == groups[1]) & (mbo.key[here] == others.key)
            before = np.maximum(place - 1, 0)
            follows = (place > 0) & (mbo.book[before] == others.book)
            bad = np.where(itself, told.bad[here] != 0, np.where(follows, told.bad[before] != 0, bad))
        return place, bad

    def _keep_heals(self, told: Told, snapshots: SnapshotLines) -> None:
        if "book_state" not in self.wanted or not len(told.heals):
            return
        books = self.run.said  # any engine will do: a snapshot alone says what its book is
        for line in told.heals.tolist():
            book, rpt_seq = int(snapshots.book[line]), int(snapshots.last_rpt_seq[line])
            instrument_id, lending = int(self.ids[book >> 1]), book & 1
            books.delete(instrument_id, lending=bool(lending))  # an earlier one may have said of what kind it is
            books.apply(snapshots.rows_of(np.array([line]))[0])
            header, entries = book_in(books, instrument_id, lending)
            head = dict.fromkeys(HEAD_NAMES, 0) | {"lending": lending, "known": rpt_seq, "ts": NULL}
            head |= {"ts_send": int(snapshots.ts_send[line]), "ts_recv": int(snapshots.ts_recv[line])}
            key = int(snapshots.last_sequence[line]) << 32 | 0xFFFFFFFF
            version = self.epochs.versions[int(snapshots.epoch[line])]
            stored = Stored(instrument_id, version, key, rpt_seq, SNAPSHOT, head, header, {"entries": entries})
            self.happened.append(stored)

    def _keep_made(self, mbo: Grouped, told: Told) -> None:
        """What emptied a book without a row of its own."""
        if "book_state" not in self.wanted or mbo.made is None:
            return
        units, own = mbo.units, mbo.rows
        for row in np.flatnonzero(mbo.made & told.emptied).tolist():
            unit, book = own.unit[row], int(mbo.book[row])
            head = dict.fromkeys(HEAD_NAMES, 0) | {"lending": book & 1, "known": NULL}
            head |= {"ts": int(own.column("ts_event")[row])}
            head |= {"ts_send": int(units.ts_send[unit]), "ts_recv": int(units.ts_recv[unit])}
            about = int(self.ids[book >> 1]), int(units.seq_version[unit]), int(mbo.key[row])
            self.happened.append(Stored(*about, NULL, LAST, head, NO_BOOK[0]))

    def finish(self, settle_ns: int | None = None) -> Tables:
        """The tables of the whole day, as far as they are new or open. `settle_ns`: before this nothing more will come;
        None: nothing more at all."""
        self.run.finish()
        lost, place_of = self._lost(), len(self.ids)
        settle = np.full(place_of, FOREVER if settle_ns is None else settle_ns // MINUTE_NS * MINUTE_NS)
        if settle_ns is not None:  # what is in doubt may yet turn out to be whole
            doubt = lost[lost[:, L_UNTIL] == FOREVER]
            np.minimum.at(settle, doubt[:, L_BOOK], doubt[:, L_SINCE] // MINUTE_NS * MINUTE_NS)
        found = self.intervals.finish(lost, settle)
        if "day_statistics" in self.wanted:
            columns = {"events": self.events, "events_in_doubt": self.in_doubt, "losses": self.losses}
            others: dict[str, Any] = {name: values.reshape(-1, 2).sum(axis=1) for name, values in columns.items()}
            others |= {"last_phase": self.group.last_phase, "last_state": self.group.last_state}
            bad = np.zeros(place_of, np.bool_)
            bad[lost[:, L_BOOK]] = True
            trades = self.intervals.day, self.intervals.busted
            found["day_statistics"] = day_statistics(*trades, self.published, others, bad, self.ids, self.group.symbols)
        if "book_state" in self.wanted:
            found["book_state"] = state_table(self.happened)
            found["book_state" + OPEN] = self._states().table()
        return found

    def stale(self) -> list[dict[str, Any]]:
        """What cannot be trusted at the end."""
        found = []
        for book in np.flatnonzero(self.run.bad_now()).tolist():
            instrument_id, symbol = int(self.ids[book >> 1]), self.group.symbols[book >> 1].as_py()
            is_stale = bool(self.run.states[book, h.S_STALE])
            of_book = self.run.books.book(instrument_id, lending=bool(book & 1))
            reason = str(of_book.stale) if of_book is not None and of_book.stale else "messages are known to be lost"
            if not is_stale:
                reason = "messages were lost and nothing came since that shows whether they touched it"
            found.append({"instrument_id": instrument_id, "symbol": symbol, "is_stale": is_stale, "reason": reason})
        return found

    def _lost(self) -> Numbers:
        """(instrument, since, until) of everything that is missing, and of what may be."""
        states = self.run.states
        doubt = np.flatnonzero(states[:, h.S_DOUBT])
        since = self.timeline.since(self.run.epoch, states[doubt, h.S_FROM], states[doubt, h.S_TS])
        open_ones = np.stack([doubt, since, np.full(len(doubt), FOREVER)], axis=1)
        lost = np.concatenate([np.empty((0, 3), np.int64), *self.lost, open_ones])
        lost[:, L_BOOK] >>= 1
        return lost[np.argsort(lost[:, L_BOOK], kind="stable")]

    def _states(self) -> States:
        """The state of every book, and of every instrument that had a day."""
        states, of_day = self.run.states, self.intervals.stored()
        had_day = np.logical_or.reduce([part.counts > 0 for part in of_day.values()])
        # A snapshot alone may have shown that nothing is missing.
        is_known = (states[:, h.S_SEEN] != 0) | (states[:, h.S_GAPS] != 0) | (self.events != 0)
        is_known[::2] |= had_day
        books = np.flatnonzero(is_known)
        place, states, has_row = books >> 1, states[books], self.has_row[books]
        is_first = np.append(True, place[1:] != place[:-1])[: len(books)]  # the day is the instrument's, not the book's
        header, entries = books_in(self.run.books, self.ids, books)
        nothing, row_of = np.zeros(len(books), np.int64), np.full(len(self.has_row), -1)
        row_of[books] = np.arange(len(books))
        lost, (owing, owed) = np.concatenate([np.empty((0, 3), np.int64), *self.lost]), self.gaps.stored()
        sections = {"entries": entries, "lost": section_of(row_of[lost[:, 0]], _windows(lost), len(books))}
        sections["owed"] = section_of(row_of[owing], owed, len(books))
        first = np.flatnonzero(is_first)
        for name, part in of_day.items():
            own, counts = part.at(place[first]), nothing.copy()
            counts[first] = own.counts
            sections[name] = Section(counts, own.records)
        said = self.published.stored()[place[first]]
        sections["published"] = Section(is_first * np.int64(said.shape[1]), said.ravel().view(PUBLISHED))
        versions, shown = np.array([*self.epochs.versions, NULL]), self.run.shown_epoch[books]
        gaps = self.timeline.gaps.get(self.run.epoch, (np.empty(0, np.int64),) * 2)
        doubt, covered = states[:, h.S_DOUBT] != 0, states[:, h.S_GAPS]
        head = {name: states[:, column] for name, column in _KEPT.items()}
        head |= {
            "lending": books & 1,
            "shown_bad": self.run.shown_bad[books].astype(np.int64),
            "shown_epoch": versions[shown],
            "epoch": nothing + self._version(),
            "doubt_from": _numbers_at(gaps[0], np.where(doubt, states[:, h.S_FROM], -1)),
            "covered": _numbers_at(gaps[1], covered - 1),
            "events": self.events[books],
            "events_in_doubt": self.in_doubt[books],
            "losses": self.losses[books],
            "ts_send": nothing + NULL,
            "ts_recv": nothing + NULL,
            "settled": self.intervals.settled[place],
            "busted": np.where(is_first, self.intervals.busted[place], 0),
        }
        return States(
            self.ids[place],
            np.where(has_row, versions[self.last_epoch[books]], self._version()),
            np.where(has_row, self.last_key[books], np.uint64(0)),
            states[:, h.S_RPT_SEQ],
            np.where((states[:, h.S_STALE] != 0) | doubt, MAYBE_BAD_BOOK, 0).astype(np.int32),
            head,
            header,
            sections,
        )

    def _version(self) -> int:
        return self.epochs.versions[max(self.run.epoch, 0)] if self.epochs.versions else 0


def trade_log(trades: Grouped) -> NDArray[np.void]:
    """What bars need of trades and busts."""
    rows = trades.rows
    log = np.zeros(len(trades), b.TRADE)
    log["ts"], log["place"] = times_of(rows, trades.units), trades.book >> 1
    for name in ("price", "size", "trade_id", "conditions", "action", "stream"):
        log[name] = rows.column(name)
    return log


def _flagged(rows: Grouped, bad: NDArray[np.bool_]) -> NDArray[np.int32]:
    if not len(rows):
        return np.empty(0, np.int32)
    return rows.rows.column("flags") | np.where(bad, MAYBE_BAD_BOOK, 0).astype(np.int32)


def _numbers_at(values: Numbers, places: Numbers) -> Numbers:
    """0 where there is no place."""
    return np.append(values, 0)[np.where((places >= 0) & (places < len(values)), places, len(values))]


def _windows(lost: Numbers) -> NDArray[np.void]:
    found = np.zeros(len(lost), LOST)
    found["since"], found["until"] = lost[:, 1], lost[:, 2]
    return found
