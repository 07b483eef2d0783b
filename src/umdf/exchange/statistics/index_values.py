"""Index values (269=3): Σ theoretical quantity × last price of the underlyings, divided by the index's reducer.

A value follows each trade of an underlying (B7.2). The sums are integers, so a value is exact to its last digit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.instruments.definitions import whole_units
from umdf.exchange.instruments.instrument_types import InstrumentType
from umdf.exchange.instruments.listing import Listing
from umdf.exchange.matching import memory_layout_kernel as k

Numbers = NDArray[np.int64]
PRICE_UNIT, POINT_UNIT = 100_000, 10_000_000  # prices in sums are in 1e-4; values are in hundredths of a point


@dataclass
class Index:
    row: int  # of the listing
    members: Numbers
    quantities: Numbers  # of each row of the listing
    reducer: int
    sum: int = 0
    seq: int = 0  # 37100


@dataclass(frozen=True)
class IndexUpdates:
    """Values in the order of the trades that caused them."""

    rows: Numbers
    values: Numbers
    seqs: Numbers


@dataclass
class IndexValues:
    listing: Listing
    indexes: list[Index] = field(default_factory=list)
    last: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))  # prices of all rows, 1e-4

    def __post_init__(self) -> None:
        """Values at the reference prices."""
        listing = self.listing
        self.last = listing.reference_ticks * listing.tick // PRICE_UNIT
        for row, spec in enumerate(listing.instruments):
            if spec.type == InstrumentType.INDEX and spec.underlyings:
                members = np.array([listing.index_of(underlying.symbol) for underlying in spec.underlyings], np.int64)
                quantities = np.zeros(listing.capacity, np.int64)
                quantities[members] = [whole_units(underlying.quantity) for underlying in spec.underlyings]
                index = Index(row, members, quantities, max(1, whole_units(spec.divisor)))
                index.sum = int((quantities * self.last).sum())
                self.indexes.append(index)

    def value(self, index: Index, total: int | Numbers) -> Numbers:
        """In 1e-9, rounded to hundredths."""
        unit = index.reducer * 100  # of the sums, for a hundredth of a point
        return (np.asarray(total, np.int64) + unit // 2) // unit * POINT_UNIT

    def current(self) -> IndexUpdates:
        """The value of every index once more, with the next number."""
        for index in self.indexes:
            index.seq += 1
        return IndexUpdates(
            np.array([index.row for index in self.indexes], np.int64),
            np.array([int(self.value(index, index.sum)) for index in self.indexes], np.int64),
            np.array([index.seq for index in self.indexes], np.int64),
        )

    def on_trades(self, records: Numbers) -> IndexUpdates:
        """The values after each trade among records of the journal."""
        code = np.where(records[:, k.CODE] == k.NULL, 0, records[:, k.CODE])
        trades = records[(records[:, k.KIND] == k.TRADE) & (code & k.NEVER_LAST_PRICE == 0)]
        rows, prices = trades[:, k.INSTRUMENT], trades[:, k.PRICE] // PRICE_UNIT
        previous = self._previous_prices(rows, prices)
        parts: list[tuple[Numbers, Index, Numbers, Numbers]] = []
        for index in self.indexes:
            quantity = index.quantities[rows]
            at = np.flatnonzero(quantity)
            if len(at):
                sums = index.sum + np.cumsum(quantity[at] * (prices[at] - previous[at]))
                seqs = index.seq + np.arange(1, len(at) + 1)
                index.sum, index.seq = int(sums[-1]), int(seqs[-1])
                parts.append((at, index, self.value(index, sums), seqs))
        if not parts:
            none = np.zeros(0, np.int64)
            return IndexUpdates(none, none, none)
        trade = np.concatenate([at for at, _, _, _ in parts])
        order = np.argsort(trade, kind="stable")
        return IndexUpdates(
            np.concatenate([np.full(len(at), index.row) for at, index, _, _ in parts])[order],
            np.concatenate([values for _, _, values, _ in parts])[order],
            np.concatenate([seqs for _, _, _, seqs in parts])[order],
        )

    def _previous_prices(self, rows: Numbers, prices: Numbers) -> Numbers:
        """The last price of each trade's instrument before it; and take over the newest ones."""
        order = np.argsort(rows, kind="stable")
        sorted_rows, sorted_prices = rows[order], prices[order]
        before = np.empty(len(rows), np.int64)
        before[1:] = sorted_prices[:-1]
        first = np.ones(len(rows), bool)
        first[1:] = sorted_rows[1:] != sorted_rows[:-1]
        before[first] = self.last[sorted_rows[first]]
        previous = np.empty(len(rows), np.int64)
        previous[order] = before
        self.last[rows] = prices  # of several of one instrument the last one counts
        return previous
