"""A book for people and tests: levels, orders, the top, and whether it can be trusted.

These are row objects, made when asked for; nothing hot goes through here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from umdf.book import memory_layout_kernel as k
from umdf.book.outcomes import Stale
from umdf.book.state_kernel import ENTRY_BYTES, checksum_entries
from umdf.buffers import buffer_address
from umdf.market.families import NULL, NULL_I32

ENTRY_DTYPE = np.dtype(
    [
        ("price", "i8"), ("size", "i8"), ("order_id", "i8"), ("firm", "i8"), ("ts_insert", "i8"), ("count", "i4"),
        ("side", "u1"), ("implied", "u1"), ("spare", "u2"),
    ]
)  # fmt: skip
assert ENTRY_DTYPE.itemsize == ENTRY_BYTES


@dataclass(frozen=True)
class Order:
    order_id: int | None
    size: int
    firm: int | None
    ts_insert: int | None
    implied: bool


@dataclass(frozen=True)
class Level:
    """`price` is in units of 1e-9, None for orders without a price; `orders` is empty in a price-depth book."""

    price: int | None
    size: int
    count: int | None
    orders: tuple[Order, ...] = ()


@dataclass(frozen=True)
class Top:
    bid: Level | None
    ask: Level | None


@dataclass(frozen=True, eq=False)
class Book:
    """What a book was when it was asked for."""

    instrument_id: int
    lending: bool
    rpt_seq: int | None  # None: whatever comes next is accepted
    depth: int | None  # None: orders
    by_position: bool
    stale: Stale | None
    entries: NDArray[np.void]

    @cached_property
    def bids(self) -> tuple[Level, ...]:
        return tuple(self._levels(k.BID))

    @cached_property
    def asks(self) -> tuple[Level, ...]:
        return tuple(self._levels(k.ASK))

    @property
    def top(self) -> Top:
        return Top(next(iter(self.bids), None), next(iter(self.asks), None))

    @property
    def checksum(self) -> int:
        """64 bits over all entries in their order (`checksum_entries`): equal for equal books, however they came."""
        entries = self.entries
        return checksum_entries(buffer_address(entries), len(entries), int(self.depth is not None))

    def mbp(self, depth: int) -> tuple[tuple[Level, ...], tuple[Level, ...]]:
        """The best levels of both sides without their orders."""
        bids, asks = ([Level(v.price, v.size, v.count) for v in side[:depth]] for side in (self.bids, self.asks))
        return tuple(bids), tuple(asks)

    def _levels(self, side: int) -> Iterator[Level]:
        """Neighbours with one price are a level."""
        entries = self.entries[self.entries["side"] == side].tolist()
        if self.depth is not None:
            for price, size, _, _, _, count, *_ in entries:
                yield Level(_none_if_null(price), size, None if count == NULL_I32 else count)
            return
        for price, group in groupby(entries, lambda entry: entry[0]):
            orders = tuple(
                Order(_none_if_null(order_id), size, _none_if_null(firm), _none_if_null(ts_insert), bool(implied))
                for _, size, order_id, firm, ts_insert, _, _, implied, _ in group
            )
            yield Level(_none_if_null(price), sum(order.size for order in orders), len(orders), orders)


def _none_if_null(value: int) -> int | None:
    return None if value == NULL else value
