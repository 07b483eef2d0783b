"""One row per instrument and day: totals of its trades, beside the statistics that the exchange published."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.lake.books.bars import OTHER_VENUES, Numbers, financial_volume, run_starts, vwap
from umdf.lake.books.instrument_rows import RowsByBook
from umdf.lake.books.table_columns import table_from_columns
from umdf.market import families as e
from umdf.market.families import NULL

# Column of day_statistics: the statistics that have it, in increasing priority, and their column.
STATISTIC_SOURCES: dict[str, tuple[tuple[int, str], ...]] = {
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
OF_PREVIOUS_DAY = 4  # 286: a closing or settlement price that is not of this day (10.5, 10.6)
PUBLISHED_COLUMNS = tuple(STATISTIC_SOURCES)


class PublishedStatistics:
    """The newest values of the incremental stream, or else of snapshots; NULL if unknown or deleted."""

    def __init__(self, instruments: int) -> None:
        self.incremental_values = np.full((instruments, len(PUBLISHED_COLUMNS)), NULL)
        self.snapshot_values = np.full((instruments, len(PUBLISHED_COLUMNS)), NULL)
        # Set by the incremental stream, even if deleted since.
        self.has_incremental = np.zeros((instruments, len(PUBLISHED_COLUMNS)), np.int64)

    def update(self, rows: RowsByBook, *, snapshot: bool = False) -> None:
        """Apply statistics, by instrument, in wire order."""
        own, instrument_index = rows.rows, rows.book >> 1
        counts = ~np.isin(own.column("venue"), OTHER_VENUES)
        counts &= own.column("open_close_settl_flag") != OF_PREVIOUS_DAY
        for number, sources in enumerate(STATISTIC_SOURCES.values()):
            for stat_type, column in sources:
                some = np.flatnonzero(counts & (own.column("stat_type") == stat_type))
                if not len(some):
                    continue
                last = some[np.append(run_starts(instrument_index[some])[1:], len(some)) - 1]
                is_deleted = own.column("action")[last] == ord("C")
                value = np.where(is_deleted, NULL, own.column(column)[last])
                has_value = is_deleted | (value != NULL)
                if snapshot:
                    self.snapshot_values[instrument_index[last[has_value]], number] = value[has_value]
                else:
                    self.incremental_values[instrument_index[last[has_value]], number] = value[has_value]
                    self.has_incremental[instrument_index[last[has_value]], number] = 1

    def value(self, name: str) -> Numbers:
        number = PUBLISHED_COLUMNS.index(name)
        return np.where(
            self.has_incremental[:, number] != 0, self.incremental_values[:, number], self.snapshot_values[:, number]
        )

    def to_rows(self) -> Numbers:
        """One row per instrument."""
        return np.concatenate([self.incremental_values, self.snapshot_values, self.has_incremental], axis=1)

    def restore(self, instrument_index: Numbers, rows: Numbers) -> None:
        if len(rows):
            (
                self.incremental_values[instrument_index],
                self.snapshot_values[instrument_index],
                self.has_incremental[instrument_index],
            ) = np.split(rows, 3, axis=1)


def day_statistics(
    day_bars: NDArray[np.void],
    busted: Numbers,
    published: PublishedStatistics,
    extra_columns: dict[str, Any],
    flags: NDArray[np.int32],
    ids: Numbers,
    symbols: pa.Array,
) -> pa.Table:
    """One row per instrument with any row, trade or statistic. `day_bars`: its aggregated trades (`bars.BAR_DTYPE`);
    `extra_columns` are added unchanged."""
    total = len(ids)
    columns: dict[str, Any] = {
        name: np.full(total, NULL) for name in "open high low close vwap financial_volume ts_first ts_last".split()
    }
    columns |= {"volume": np.zeros(total, np.int64), "trade_count": np.zeros(total, np.int64)}
    computed = {"vwap": vwap(day_bars), "financial_volume": financial_volume(day_bars)}
    for name, values in columns.items():
        values[day_bars["instrument_index"]] = computed[name] if name in computed else day_bars[name]
    columns |= {name: published.value(name) for name in PUBLISHED_COLUMNS} | extra_columns
    columns |= {"busted": busted, "instrument_id": ids, "flags": flags}
    has_published = np.logical_or.reduce([columns[name] != NULL for name in PUBLISHED_COLUMNS])
    has_row = np.flatnonzero(
        (extra_columns["events"] > 0) | has_published | (columns["trade_count"] > 0) | (busted > 0)
    )
    chosen = {name: values[has_row] for name, values in columns.items()}
    return table_from_columns("day_statistics", chosen, symbols, has_row)
