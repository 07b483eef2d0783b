"""What could be seen of books: `mbp_1` and `mbp_10`, `tbbo`, `bbo_1s` and `bbo_1m`.

The one rule: only the ends of events are shown, never a half-applied event. `mbp_N` has a row where the best N levels
are others than at the end of the event before, and also where they begin or cease to be trusted (MAYBE_BAD_BOOK), so
that the newest row always says whether it can be. A book that comes back by a snapshot has a row with the flag
SNAPSHOT, at the number up to which the snapshot holds everything.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.lake.book_rows import Epochs, Grouped, times_of
from umdf.lake.columns import made_table
from umdf.lake.healing import PLACE_BITS, Numbers, Told
from umdf.lake.instruments import last_before, taken
from umdf.lake.snapshot_rows import SnapshotLines
from umdf.market.events import CONDITIONS, LAST, MAYBE_BAD_BOOK, MBO, NULL, NULL_I32, SNAPSHOT

BID, ASK, NEITHER = ord("B"), ord("A"), ord("N")
CHANGES = np.zeros(256, np.bool_)
CHANGES[[ord(action) for action in "AMCR"]] = True
UPDATES = CHANGES.copy()
UPDATES[ord("T")] = True
HEAL_MSG_INDEX = 1 << 16  # behind every message of its packet
SECOND_NS = 10**9
MOVES_NOTHING = CONDITIONS["1"] | CONDITIONS["OUT_OF_SEQUENCE"]
BBO = np.dtype(
    [(name, "i8") for name in "ts_interval ts_event seq_version sequence price size ts_trade".split()]
    + [(f"{side}_{part}_00", "i4" if part == "ct" else "i8") for part in ("px", "sz", "ct") for side in ("bid", "ask")]
    + [("flags", "i4"), ("place", "i4")]  # place: of the instrument in its group
)


class Shown:
    """Which ladder was to be seen at a place of a book."""

    def __init__(self, told: Told) -> None:
        self.told = told
        self._keys = told.ladder_book.astype(np.int64) << PLACE_BITS | (told.ladder_place + 1)

    def at(self, book: NDArray[Any], place: NDArray[Any]) -> Numbers:
        """The last one that stands there or before. There always is one: what there was to see at the start."""
        return last_before(self._keys, book.astype(np.int64) << PLACE_BITS | (place + 1))

    def versions(self, depth: int) -> Numbers:
        """Of each ladder: a number that changes when the best `depth` levels do."""
        records, book = self.told.ladders, self.told.ladder_book
        changed = np.zeros(len(records), np.bool_)
        changed[1:] = book[1:] != book[:-1]
        for name in level_names(depth):
            column = records[name]
            changed[1:] |= column[1:] != column[:-1]
        return np.cumsum(changed, dtype=np.int64)


def level_names(depth: int) -> list[str]:
    return [f"{side}_{part}_{n:02}" for n in range(depth) for part in ("px", "sz", "ct") for side in ("bid", "ask")]


def updates(
    rows: Grouped, snapshots: SnapshotLines, told: Told, depth: int, ids: Numbers, symbols: pa.Array, epochs: Epochs
) -> pa.Table:
    """Rows of mbp_1 or mbp_10."""
    shown, ends, heals = Shown(told), np.flatnonzero(told.is_end), told.heals
    book = np.concatenate([rows.book[ends], snapshots.book[heals]])
    place = np.concatenate([2 * ends + 1, told.heal_place])
    row = np.concatenate([ends, np.full(len(heals), -1)])
    line = np.concatenate([np.full(len(ends), -1), heals])
    bad = np.concatenate([told.bad[ends] != 0, np.zeros(len(heals), np.bool_)])
    epoch = np.concatenate([rows.epoch[ends], snapshots.epoch[heals]])
    level = np.concatenate([shown.at(rows.book[ends], 2 * ends + 1), told.heal_ladder])
    if len(heals):
        order = np.argsort(book.astype(np.int64) << PLACE_BITS | place, kind="stable")
        book, place, row, line = book[order], place[order], row[order], line[order]
        bad, epoch, level = bad[order], epoch[order], level[order]
    version = shown.versions(depth)
    now = version[level]
    before, was_bad = np.roll(now, 1), np.roll(bad, 1)
    first = np.ones(len(book), np.bool_)
    first[1:] = book[1:] != book[:-1]
    before[first] = version[shown.at(book[first], np.full(int(first.sum()), -1))]
    was_bad[first] = told.begun_bad[book[first]] != 0
    old_epoch = np.roll(epoch, 1)
    old_epoch[first] = told.begun_epoch[book[first]]
    anew = (old_epoch >= 0) & (old_epoch != epoch)  # a new numbering: nothing is left of what was shown
    chosen = np.flatnonzero((now != before) | (bad != was_bad) | anew)
    book, row, line, level = book[chosen], row[chosen], line[chosen], level[chosen]
    led = _change_before(rows, row, ((now != before) | anew)[chosen])
    columns = _common(rows, snapshots, row, line, epochs)
    columns["flags"] = columns["flags"] | np.where(bad[chosen], MAYBE_BAD_BOOK, 0).astype(np.int32)
    columns |= {name: _of_row(rows, led, name) for name in ("price", "size")}
    columns |= {name: _of_row(rows, led, name) for name in ("action", "side")}
    columns["action"][led < 0], columns["side"][led < 0] = ord("R"), NEITHER
    ladders = taken(told.ladders, level)
    columns |= {name: ladders[name] for name in level_names(depth)}
    columns["depth"] = _depth_of(columns, depth)
    columns["instrument_id"] = ids[book >> 1]
    return made_table(f"mbp_{depth}", columns, symbols, book >> 1)


def _change_before(rows: Grouped, row: Numbers, changed: NDArray[np.bool_]) -> Numbers:
    """For each row the last one of its book that changed it, where something changed; else itself. -1: a new numbering
    began, and took with it all that there was."""
    if not len(rows):
        return row
    is_change = CHANGES[rows.rows.column("action")]
    last = np.maximum.accumulate(np.where(is_change, np.arange(len(rows)), -1))[row]
    ours = (last >= 0) & (rows.book[last] == rows.book[row]) & (rows.epoch[last] == rows.epoch[row])
    return np.where(row < 0, -1, np.where(changed, np.where(ours, last, -1), row))


def _of_row(rows: Grouped, places: Numbers, name: str) -> NDArray[Any]:
    """A column of the family at some rows; NULL at -1, or 0 of a letter."""
    if not len(rows):
        column = MBO.column(name)
        return np.full(len(places), column.null if column.nullable else 0, column.dtype)
    values = rows.rows.column(name)[places]
    if values.dtype != np.uint8:
        values[places < 0] = np.iinfo(values.dtype).min
    return values


def _common(
    rows: Grouped, snapshots: SnapshotLines, row: Numbers, line: Numbers, epochs: Epochs
) -> dict[str, NDArray[Any]]:
    """The common columns of rows, and of snapshots as if they were rows of the incremental stream."""
    healed = line >= 0
    if not len(rows):
        found = {name: np.full(len(row), NULL) for name in ("ts_send", "ts_recv", "seq_version", "sequence")}
        found |= {name: np.zeros(len(row), np.int32) for name in ("msg_index", "entry_index", "flags")}
        found |= {name: np.full(len(row), NULL) for name in ("ts_event", "rpt_seq")}
    else:
        units, own = rows.units, rows.rows
        found = {
            name: getattr(units, name)[own.unit[row]] for name in ("ts_send", "ts_recv", "seq_version", "sequence")
        }
        found |= {name: getattr(own, name)[row].astype(np.int32) for name in ("msg_index", "entry_index")}
        found |= {name: own.column(name)[row] for name in ("ts_event", "rpt_seq", "flags")}
    if healed.any():
        lines, versions = line[healed], np.array(epochs.versions, np.int64)
        found["ts_send"][healed], found["ts_recv"][healed] = snapshots.ts_send[lines], snapshots.ts_recv[lines]
        found["seq_version"][healed] = versions[snapshots.epoch[lines]]
        found["sequence"][healed] = snapshots.last_sequence[lines]
        found["msg_index"][healed], found["entry_index"][healed] = HEAL_MSG_INDEX, 0
        found["ts_event"][healed], found["rpt_seq"][healed] = NULL, snapshots.last_rpt_seq[lines]
        found["flags"][healed] = SNAPSHOT | LAST
    return found


def _depth_of(columns: dict[str, NDArray[Any]], depth: int) -> NDArray[np.int32]:
    """How many levels of its side are better than the price of the change; absent if none of those shown is it."""
    price, side = columns["price"], columns["side"]
    better = np.zeros(len(price), np.int32)
    for level in range(depth):
        bid, ask = columns[f"bid_px_{level:02}"], columns[f"ask_px_{level:02}"]
        sizes = np.where(side == BID, columns[f"bid_sz_{level:02}"], columns[f"ask_sz_{level:02}"])
        own = np.where(side == BID, bid, -ask)
        worth = np.where(side == BID, price, -price)
        priceless = (np.where(side == BID, bid, ask) == NULL) & (sizes != NULL)  # MOA and MOC orders stand first
        better += (sizes != NULL) & (price != NULL) & (priceless | (own > worth))
    known = (side != NEITHER) & (columns["action"] != ord("R")) & (better < depth)
    return np.where(known, better, NULL_I32).astype(np.int32)


def with_tops(
    trades: Grouped, place: Numbers, told: Told, flags: NDArray[np.int32], ids: Numbers, symbols: pa.Array
) -> pa.Table:
    """`tbbo`: every trade (no bust) with the best prices at the end of the last event before it.

    `place` is how many rows of mbo come before each trade.
    """
    own = trades.rows
    made = np.flatnonzero(own.column("action") == ord("A"))
    book = trades.book[made]
    level = Shown(told).at(book, 2 * place[made])
    units = trades.units
    columns: dict[str, Any] = {
        name: getattr(units, name)[own.unit[made]] for name in ("ts_send", "ts_recv", "seq_version", "sequence")
    }
    columns |= {name: getattr(own, name)[made].astype(np.int32) for name in ("msg_index", "entry_index")}
    names = "ts_event rpt_seq action side price size trade_id buyer seller conditions trade_date".split()
    columns |= {name: own.column(name)[made] for name in names}
    columns |= {name: told.ladders[name][level] for name in level_names(1)}
    columns |= {"flags": flags[made], "instrument_id": ids[book >> 1]}
    return made_table("tbbo", columns, symbols, book >> 1)


def tops_by_interval(
    rows: Grouped, times: Numbers, told: Told, trades: Grouped, trade_place: Numbers, interval_s: int
) -> NDArray[np.void]:
    """Rows of `bbo_1s` or `bbo_1m`: for every interval in which a book was updated (A M C R) or had a trade.

    They carry the best prices after the event of the last such row of the interval, in the order of the wire, and the
    last trade that moved the last price up to that row (NULL: none yet in this stretch). `ts_interval` is the end of
    the interval.
    """
    if not len(rows):
        return np.empty(0, BBO)
    counted = np.flatnonzero(UPDATES[rows.rows.column("action")] & (times != NULL) & _staged(rows))
    if not len(counted):
        return np.empty(0, BBO)
    interval, book = times[counted] // (interval_s * SECOND_NS), rows.book[counted]
    if ((interval[1:] < interval[:-1]) & (book[1:] == book[:-1])).any():  # seldom: a time that runs backwards
        order = np.lexsort((interval, book))  # stable: in the order of the wire within an interval
        counted, interval, book = counted[order], interval[order], book[order]
    ends = np.ones(len(counted), np.bool_)
    ends[:-1] = (interval[1:] != interval[:-1]) | (book[1:] != book[:-1])
    at = counted[ends]
    found = np.zeros(len(at), BBO)
    found["ts_interval"] = (interval[ends] + 1) * (interval_s * SECOND_NS)
    found["ts_event"] = times[at]
    unit = rows.rows.unit[at]
    found["seq_version"], found["sequence"] = rows.units.seq_version[unit], rows.units.sequence[unit]
    found["place"] = rows.book[at] >> 1
    found["flags"] = np.where(told.bad[at] != 0, MAYBE_BAD_BOOK, 0)
    level = Shown(told).at(rows.book[at], 2 * _ends_of(rows, times, told, at) + 1)
    ladders = taken(told.ladders, level)
    for name in level_names(1):
        found[name] = ladders[name]
    found["price"], found["size"], found["ts_trade"] = _last_trades(rows, at, trades, trade_place)
    return found


def _ends_of(rows: Grouped, times: Numbers, told: Told, at: Numbers) -> Numbers:
    """The row that ends the event of each row: often one that moves no order, the statistics behind an auction. If it
    was lost there is none."""
    ends = np.flatnonzero(told.is_end)
    if not len(ends):
        return at
    following = ends[np.minimum(np.searchsorted(ends, at), len(ends) - 1)]
    same = (rows.book[following] == rows.book[at]) & (times[following] == times[at])
    return np.where((following >= at) & same, following, at)


def _staged(rows: Grouped) -> NDArray[np.bool_]:
    return np.ones(len(rows), np.bool_) if rows.made is None else ~rows.made


def _last_trades(rows: Grouped, at: Numbers, trades: Grouped, trade_place: Numbers) -> NDArray[np.int64]:
    """Price, size and time of the last trade of the same book up to each row; NULL: there was none in this stretch."""
    result = np.full((3, len(at)), NULL)
    if len(trades):
        own = trades.rows
        moves = (own.column("action") == ord("A")) & (own.column("conditions") & MOVES_NOTHING == 0)
        some = np.flatnonzero(moves & (own.column("price") != NULL))
        last = np.searchsorted(trade_place[some], at, side="right") - 1
        found = (last >= 0) & (trades.book[some][last] == rows.book[at]) if len(some) else np.zeros(len(at), np.bool_)
        trade = some[last[found]]
        result[:, found] = own.column("price")[trade], own.column("size")[trade], times_of(own, trades.units)[trade]
    return result
