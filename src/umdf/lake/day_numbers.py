"""One row for each instrument and day: what its trades came to, beside what the exchange published."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.lake.bars import OTHER_VENUES, Numbers, financial_volume, starts_of, vwap
from umdf.lake.book_rows import Grouped
from umdf.lake.columns import made_table
from umdf.market import events as e
from umdf.market.events import MAYBE_BAD_BOOK, NULL

# Column of day_statistics: the statistics that say it, the best last, and in which of their columns.
PUBLISHED: dict[str, tuple[tuple[int, str], ...]] = {
    "exchange_open": ((e.OPENING_PRICE, "price"),),
    "exchange_high": ((e.SESSION_HIGH, "price"),),
    "exchange_low": ((e.SESSION_LOW, "price"),),
    "exchange_close": ((e.CLOSING_PRICE, "price"),),
    "exchange_vwap": ((e.VWAP, "price"),),
    "settlement_price": ((e.SETTLEMENT_PRICE, "price"),),
    "open_interest": ((e.OPEN_INTEREST, "size"),),
    "exchange_volume": ((e.VWAP, "size"), (e.TRADE_VOLUME, "size")),
    "exchange_trade_count": ((e.VWAP, "trade_count"), (e.TRADE_VOLUME, "trade_count")),
}
NAMES = tuple(PUBLISHED)


class Published:
    """The newest of what the incremental stream says, else what the snapshots said; NULL is unknown or deleted."""

    def __init__(self, instruments: int) -> None:
        self.newest = np.full((instruments, len(NAMES)), NULL)
        self.from_snapshots = np.full((instruments, len(NAMES)), NULL)
        self.is_said = np.zeros((instruments, len(NAMES)), np.int64)  # by the incremental stream, even if deleted since

    def take(self, rows: Grouped, *, snapshot: bool = False) -> None:
        """Statistics by instrument, in the order of the wire."""
        own, place = rows.rows, rows.book >> 1
        counts = ~np.isin(own.column("stream"), OTHER_VENUES)
        for number, sources in enumerate(PUBLISHED.values()):
            for stat_type, column in sources:
                some = np.flatnonzero(counts & (own.column("stat_type") == stat_type))
                if not len(some):
                    continue
                last = some[np.append(starts_of(place[some])[1:], len(some)) - 1]
                gone = own.column("action")[last] == ord("C")
                value = np.where(gone, NULL, own.column(column)[last])
                there = gone | (value != NULL)
                if snapshot:
                    self.from_snapshots[place[last[there]], number] = value[there]
                else:
                    self.newest[place[last[there]], number] = value[there]
                    self.is_said[place[last[there]], number] = 1

    def value(self, name: str) -> Numbers:
        number = NAMES.index(name)
        return np.where(self.is_said[:, number] != 0, self.newest[:, number], self.from_snapshots[:, number])

    def stored(self) -> Numbers:
        """A row for each instrument."""
        return np.concatenate([self.newest, self.from_snapshots, self.is_said], axis=1)

    def restore(self, places: Numbers, rows: Numbers) -> None:
        if len(rows):
            self.newest[places], self.from_snapshots[places], self.is_said[places] = np.split(rows, 3, axis=1)


def day_statistics(
    day: NDArray[np.void],
    busted: Numbers,
    published: Published,
    others: dict[str, Any],
    bad: NDArray[np.bool_],
    ids: Numbers,
    symbols: pa.Array,
) -> pa.Table:
    """A row for each instrument that had any row, trade or statistic. `day`: what its trades come to (`bars.SUMS`);
    `others`: columns as they are."""
    total = len(ids)
    columns: dict[str, Any] = {
        name: np.full(total, NULL) for name in "open high low close vwap financial_volume ts_first ts_last".split()
    }
    columns |= {"volume": np.zeros(total, np.int64), "trade_count": np.zeros(total, np.int64)}
    made = {"vwap": vwap(day), "financial_volume": financial_volume(day)}
    for name, values in columns.items():
        values[day["place"]] = made[name] if name in made else day[name]
    columns |= {name: published.value(name) for name in NAMES} | others
    columns |= {"busted": busted, "instrument_id": ids}
    columns["flags"] = np.where(bad, MAYBE_BAD_BOOK, 0).astype(np.int32)
    said = np.logical_or.reduce([columns[name] != NULL for name in NAMES])
    there = np.flatnonzero((others["events"] > 0) | said | (columns["trade_count"] > 0) | (busted > 0))
    chosen = {name: values[there] for name, values in columns.items()}
    return made_table("day_statistics", chosen, symbols, there)
