"""The visible levels of books: `mbp_1` and `mbp_10`, `tbbo`, `bbo_1s` and `bbo_1m`.

Invariant: only ends of events are shown, never a half-applied event. `mbp_N` has a row where the best N levels differ
from those at the end of the previous event, and also where their trust (MAYBE_BAD_BOOK) changes, so that the newest
row always shows whether they can be trusted. A book that was recovered by a snapshot has a row with the flag SNAPSHOT,
at the last sequence that the snapshot holds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.lake.books.instrument_rows import Epochs, RowsByBook, event_times
from umdf.lake.books.replay import POSITION_BITS, Numbers, ReplayResult
from umdf.lake.books.snapshot_rows import BookSnapshots
from umdf.lake.books.table_columns import table_from_columns
from umdf.lake.tasks.id_lookup import last_at_or_before, take_records
from umdf.market.families import CONDITIONS, FROM_BOOK, LAST, MAYBE_BAD_BOOK, MBO, NULL, NULL_I32, SNAPSHOT

BID, ASK, NEITHER = ord("B"), ord("A"), ord("N")
IS_BOOK_CHANGE = np.zeros(256, np.bool_)
IS_BOOK_CHANGE[[ord(action) for action in "AMCR"]] = True
IS_UPDATE = IS_BOOK_CHANGE.copy()
IS_UPDATE[ord("T")] = True
RECOVERY_MSG_INDEX = 1 << 16  # after every message of its packet
SECOND_NS = 10**9
NO_LAST_PRICE = CONDITIONS["1"] | CONDITIONS["OUT_OF_SEQUENCE"]
BBO_DTYPE = np.dtype(
    [(name, "i8") for name in "ts_interval ts_event seq_version sequence price size ts_trade".split()]
    + [(f"{side}_{part}_00", "i4" if part == "ct" else "i8") for part in ("px", "sz", "ct") for side in ("bid", "ask")]
    + [("flags", "i4"), ("instrument_index", "i4")]
)


class LadderHistory:
    """The ladder that was visible at each position of a book."""

    def __init__(self, result: ReplayResult) -> None:
        self.result = result
        self._keys = result.ladder_book.astype(np.int64) << POSITION_BITS | (result.ladder_position + 1)

    def index_at(self, book: NDArray[Any], position: NDArray[Any]) -> Numbers:
        """Index of the last ladder at or before a position. There always is one: the ladder at the start."""
        return last_at_or_before(self._keys, book.astype(np.int64) << POSITION_BITS | (position + 1))

    def version_numbers(self, depth: int) -> Numbers:
        """A number per ladder that changes when the best `depth` levels do."""
        records, book = self.result.ladders, self.result.ladder_book
        changed = np.zeros(len(records), np.bool_)
        changed[1:] = book[1:] != book[:-1]
        for name in level_columns(depth):
            column = records[name]
            changed[1:] |= column[1:] != column[:-1]
        return np.cumsum(changed, dtype=np.int64)


def level_columns(depth: int) -> list[str]:
    return [f"{side}_{part}_{n:02}" for n in range(depth) for part in ("px", "sz", "ct") for side in ("bid", "ask")]


def mbp_table(
    rows: RowsByBook,
    snapshots: BookSnapshots,
    result: ReplayResult,
    depth: int,
    ids: Numbers,
    symbols: pa.Array,
    epochs: Epochs,
) -> pa.Table:
    """Rows of mbp_1 or mbp_10. A snapshot from before a join is not shown: its book is unverified."""
    history, ends = LadderHistory(result), np.flatnonzero(result.is_event_end)
    is_shown = ~result.is_before_join
    recoveries = result.recovery_snapshots[is_shown]
    book = np.concatenate([rows.book[ends], snapshots.book[recoveries]])
    position = np.concatenate([2 * ends + 1, result.recovery_position[is_shown]])
    row = np.concatenate([ends, np.full(len(recoveries), -1)])
    snapshot = np.concatenate([np.full(len(ends), -1), recoveries])
    bad = np.concatenate([result.bad[ends] != 0, np.zeros(len(recoveries), np.bool_)])
    epoch = np.concatenate([rows.epoch[ends], snapshots.epoch[recoveries]])
    level = np.concatenate([history.index_at(rows.book[ends], 2 * ends + 1), result.recovery_ladder[is_shown]])
    if len(recoveries):
        order = np.argsort(book.astype(np.int64) << POSITION_BITS | position, kind="stable")
        book, position, row, snapshot = book[order], position[order], row[order], snapshot[order]
        bad, epoch, level = bad[order], epoch[order], level[order]
    version = history.version_numbers(depth)
    now = version[level]
    before, was_bad = np.roll(now, 1), np.roll(bad, 1)
    first = np.ones(len(book), np.bool_)
    first[1:] = book[1:] != book[:-1]
    before[first] = version[history.index_at(book[first], np.full(int(first.sum()), -1))]
    was_bad[first] = result.initial_bad[book[first]] != 0
    old_epoch = np.roll(epoch, 1)
    old_epoch[first] = result.initial_epoch[book[first]]
    is_new_epoch = (old_epoch >= 0) & (old_epoch != epoch)  # a new epoch: nothing that was shown remains
    emitted = np.flatnonzero((now != before) | (bad != was_bad) | is_new_epoch)
    book, row, snapshot, level = book[emitted], row[emitted], snapshot[emitted], level[emitted]
    cause = _last_change(rows, row, ((now != before) | is_new_epoch)[emitted])
    columns = _common_columns(rows, snapshots, row, snapshot, epochs)
    # Each is the end of an event for its book, whose mark may be on a message of another instrument, or on one without
    # any effect on the book (56 after a trade) that carries another time.
    columns["flags"] = columns["flags"] & ~FROM_BOOK | LAST | np.where(bad[emitted], MAYBE_BAD_BOOK, 0).astype(np.int32)
    # The flag of the row that price and size are of.
    columns["flags"] |= np.where(cause >= 0, _column_at(rows, cause, "flags"), 0).astype(np.int32) & FROM_BOOK
    columns |= {name: _column_at(rows, cause, name) for name in ("price", "size")}
    columns |= {name: _column_at(rows, cause, name) for name in ("action", "side")}
    columns["action"][cause < 0], columns["side"][cause < 0] = ord("R"), NEITHER
    ladders = take_records(result.ladders, level)
    columns |= {name: ladders[name] for name in level_columns(depth)}
    columns["depth"] = _change_depth(columns, depth)
    columns["instrument_id"] = ids[book >> 1]
    return table_from_columns(f"mbp_{depth}", columns, symbols, book >> 1)


def _last_change(rows: RowsByBook, row: Numbers, changed: NDArray[np.bool_]) -> Numbers:
    """For each row the last row of its book that changed the ladder, if it changed; otherwise the row itself. -1: a new
    epoch has removed everything."""
    if not len(rows):
        return row
    is_change = IS_BOOK_CHANGE[rows.rows.column("action")]
    last = np.maximum.accumulate(np.where(is_change, np.arange(len(rows)), -1))[row]
    ours = (last >= 0) & (rows.book[last] == rows.book[row]) & (rows.epoch[last] == rows.epoch[row])
    return np.where(row < 0, -1, np.where(changed, np.where(ours, last, -1), row))


def _column_at(rows: RowsByBook, row_indices: Numbers, name: str) -> NDArray[Any]:
    """A column of the family at some rows; NULL (0 for characters) at -1."""
    if not len(rows):
        column = MBO.column(name)
        return np.full(len(row_indices), column.null if column.nullable else 0, column.dtype)
    values = rows.rows.column(name)[row_indices]
    if values.dtype != np.uint8:
        values[row_indices < 0] = np.iinfo(values.dtype).min
    return values


def _common_columns(
    rows: RowsByBook, snapshots: BookSnapshots, row: Numbers, snapshot: Numbers, epochs: Epochs
) -> dict[str, NDArray[Any]]:
    """The common columns of rows, and of snapshots as if they were rows of the incremental stream."""
    is_recovery = snapshot >= 0
    if not len(rows):
        columns = {name: np.full(len(row), NULL) for name in ("ts_send", "ts_recv", "seq_version", "sequence")}
        columns |= {name: np.zeros(len(row), np.int32) for name in ("msg_index", "entry_index", "flags")}
        columns |= {name: np.full(len(row), NULL) for name in ("ts_event", "rpt_seq")}
    else:
        units, own = rows.units, rows.rows
        columns = {
            name: getattr(units, name)[own.unit[row]] for name in ("ts_send", "ts_recv", "seq_version", "sequence")
        }
        columns |= {name: getattr(own, name)[row].astype(np.int32) for name in ("msg_index", "entry_index")}
        columns |= {name: own.column(name)[row] for name in ("ts_event", "rpt_seq", "flags")}
    if is_recovery.any():
        snapshot_rows, versions = snapshot[is_recovery], np.array(epochs.versions, np.int64)
        columns["ts_send"][is_recovery], columns["ts_recv"][is_recovery] = (
            snapshots.ts_send[snapshot_rows],
            snapshots.ts_recv[snapshot_rows],
        )
        columns["seq_version"][is_recovery] = versions[snapshots.epoch[snapshot_rows]]
        columns["sequence"][is_recovery] = snapshots.last_sequence[snapshot_rows]
        columns["msg_index"][is_recovery], columns["entry_index"][is_recovery] = RECOVERY_MSG_INDEX, 0
        columns["ts_event"][is_recovery], columns["rpt_seq"][is_recovery] = NULL, snapshots.last_rpt_seq[snapshot_rows]
        columns["flags"][is_recovery] = SNAPSHOT | LAST
    return columns


def _change_depth(columns: dict[str, NDArray[Any]], depth: int) -> NDArray[np.int32]:
    """Index of the changed price among the shown levels of its side; NULL if it is not among them."""
    price, side = columns["price"], columns["side"]
    better = np.zeros(len(price), np.int32)
    for level in range(depth):
        bid, ask = columns[f"bid_px_{level:02}"], columns[f"ask_px_{level:02}"]
        sizes = np.where(side == BID, columns[f"bid_sz_{level:02}"], columns[f"ask_sz_{level:02}"])
        own = np.where(side == BID, bid, -ask)
        change_price = np.where(side == BID, price, -price)
        is_unpriced = (np.where(side == BID, bid, ask) == NULL) & (sizes != NULL)  # MOA and MOC orders come first
        better += (sizes != NULL) & (price != NULL) & (is_unpriced | (own > change_price))
    known = (side != NEITHER) & (columns["action"] != ord("R")) & (better < depth)
    return np.where(known, better, NULL_I32).astype(np.int32)


def tbbo_table(
    trades: RowsByBook,
    mbo_rows_before: Numbers,
    result: ReplayResult,
    flags: NDArray[np.int32],
    ids: Numbers,
    symbols: pa.Array,
) -> pa.Table:
    """`tbbo`: every trade (busts excluded) with the best prices at the end of the last event before it.

    `mbo_rows_before`: how many rows of mbo precede each trade.
    """
    own = trades.rows
    trade_rows = np.flatnonzero(own.column("action") == ord("A"))
    book = trades.book[trade_rows]
    level = LadderHistory(result).index_at(book, 2 * mbo_rows_before[trade_rows])
    units = trades.units
    columns: dict[str, Any] = {
        name: getattr(units, name)[own.unit[trade_rows]] for name in ("ts_send", "ts_recv", "seq_version", "sequence")
    }
    columns |= {name: getattr(own, name)[trade_rows].astype(np.int32) for name in ("msg_index", "entry_index")}
    names = "ts_event rpt_seq action side price size trade_id buyer seller conditions trade_date".split()
    columns |= {name: own.column(name)[trade_rows] for name in names}
    columns |= {name: result.ladders[name][level] for name in level_columns(1)}
    columns |= {"flags": flags[trade_rows], "instrument_id": ids[book >> 1]}
    return table_from_columns("tbbo", columns, symbols, book >> 1)


def bbo_records(
    rows: RowsByBook,
    times: Numbers,
    result: ReplayResult,
    trades: RowsByBook,
    mbo_rows_before_trade: Numbers,
    interval_s: int,
) -> NDArray[np.void]:
    """Rows of `bbo_1s` or `bbo_1m`: for every interval in which a book was updated (A M C R) or had a trade.

    They have the best prices after the event of the last such row of the interval, in wire order, and the last trade
    that moved the last price up to that row (NULL: none yet in this span). `ts_interval` is the end of the interval.
    """
    if not len(rows):
        return np.empty(0, BBO_DTYPE)
    counted = np.flatnonzero(IS_UPDATE[rows.rows.column("action")] & (times != NULL) & _is_staged(rows))
    if not len(counted):
        return np.empty(0, BBO_DTYPE)
    interval, book = times[counted] // (interval_s * SECOND_NS), rows.book[counted]
    if ((interval[1:] < interval[:-1]) & (book[1:] == book[:-1])).any():  # rare: time runs backwards
        order = np.lexsort((interval, book))  # stable: in wire order within an interval
        counted, interval, book = counted[order], interval[order], book[order]
    ends = np.ones(len(counted), np.bool_)
    ends[:-1] = (interval[1:] != interval[:-1]) | (book[1:] != book[:-1])
    last_rows = counted[ends]
    records = np.zeros(len(last_rows), BBO_DTYPE)
    records["ts_interval"] = (interval[ends] + 1) * (interval_s * SECOND_NS)
    records["ts_event"] = times[last_rows]
    unit = rows.rows.unit[last_rows]
    records["seq_version"], records["sequence"] = rows.units.seq_version[unit], rows.units.sequence[unit]
    records["instrument_index"] = rows.book[last_rows] >> 1
    records["flags"] = np.where(result.bad[last_rows] != 0, MAYBE_BAD_BOOK, 0)
    level = LadderHistory(result).index_at(
        rows.book[last_rows], 2 * _event_end_rows(rows, times, result, last_rows) + 1
    )
    ladders = take_records(result.ladders, level)
    for name in level_columns(1):
        records[name] = ladders[name]
    records["price"], records["size"], records["ts_trade"] = _last_trades(
        rows, last_rows, trades, mbo_rows_before_trade
    )
    return records


def _event_end_rows(rows: RowsByBook, times: Numbers, result: ReplayResult, at: Numbers) -> Numbers:
    """The row that ends the event of each row: often one that changes no order, such as a statistic after an auction.
    The row itself if that one was lost."""
    ends = np.flatnonzero(result.is_event_end)
    if not len(ends):
        return at
    following = ends[np.minimum(np.searchsorted(ends, at), len(ends) - 1)]
    same = (rows.book[following] == rows.book[at]) & (times[following] == times[at])
    return np.where((following >= at) & same, following, at)


def _is_staged(rows: RowsByBook) -> NDArray[np.bool_]:
    return np.ones(len(rows), np.bool_) if rows.is_synthetic is None else ~rows.is_synthetic


def _last_trades(
    rows: RowsByBook, at: Numbers, trades: RowsByBook, mbo_rows_before_trade: Numbers
) -> NDArray[np.int64]:
    """Price, size and time of the last trade of the same book up to each row; NULL if there was none in this span."""
    result = np.full((3, len(at)), NULL)
    if len(trades):
        own = trades.rows
        moves = (own.column("action") == ord("A")) & (own.column("conditions") & NO_LAST_PRICE == 0)
        some = np.flatnonzero(moves & (own.column("price") != NULL))
        last = np.searchsorted(mbo_rows_before_trade[some], at, side="right") - 1
        found = (last >= 0) & (trades.book[some][last] == rows.book[at]) if len(some) else np.zeros(len(at), np.bool_)
        trade = some[last[found]]
        result[:, found] = own.column("price")[trade], own.column("size")[trade], event_times(own, trades.units)[trade]
    return result
