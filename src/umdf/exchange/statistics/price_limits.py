"""Price and quantity bands of the day (10.9): which limits an instrument has, and how wide they are.

They do not change during the day. Bands in percent are around the last traded or the theoretical price.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.instruments.instrument_types import InstrumentType, types_where
from umdf.exchange.instruments.listing import Listing
from umdf.exchange.matching import memory_layout_kernel as k

Indices = NDArray[np.int64]
HARD_LIMITS, AUCTION_BAND, REJECTION_BAND, STATIC_LIMITS, REFERENCE_PRICE = 1, 2, 3, 4, 0  # 6939; 0: none is sent
PERCENT = 2 << k.BAND_LIMIT_TYPE
OF_LAST_PRICE, OF_THEORETICAL_PRICE = 1 << k.BAND_MIDPOINT, 3 << k.BAND_MIDPOINT
ONE_PERCENT = 1_000_000_000
# How wide the limits in prices are, in quarters of the range in which orders are.
HARD_WIDTH, STATIC_WIDTH, REJECTION_WIDTH = 8, 6, 5
REJECTION_PERCENT, AUCTION_PERCENT = 25, 10


@dataclass(frozen=True)
class PublishedStatistic:
    """A statistic of some instruments, as records of one kind."""

    statistic: int
    kind: int
    indices: Indices
    columns: dict[str, Any] = field(default_factory=dict)


def price_limits(listing: Listing, indices: Indices) -> Iterator[PublishedStatistic]:
    kinds = listing.type[indices]
    ordered = indices[np.isin(kinds, types_where("has_orders"))]
    equities = indices[np.isin(kinds, types_where("is_equity"))]
    others = np.setdiff1d(ordered, equities)
    static = others[~np.isin(listing.type[others], (InstrumentType.STRATEGY, InstrumentType.LENDING))]
    indicators = indices[kinds == InstrumentType.INDICATOR]
    reference = listing.reference_ticks[indicators] * listing.tick[indicators]
    traded_daily = {"size": 100_000 + equities, "other": 5_000_000}
    yield PublishedStatistic(k.S_HARD_LIMITS, k.PRICE_BAND, ordered, _prices(listing, HARD_LIMITS, HARD_WIDTH, ordered))
    columns = _prices(listing, STATIC_LIMITS, STATIC_WIDTH, static)
    yield PublishedStatistic(k.S_STATIC_LIMITS, k.PRICE_BAND, static, columns)
    columns = _prices(listing, REJECTION_BAND, REJECTION_WIDTH, equities)
    yield PublishedStatistic(k.S_REJECTION_BAND, k.PRICE_BAND, equities, columns)
    columns = _percent(REJECTION_BAND | OF_LAST_PRICE, REJECTION_PERCENT, len(others))
    yield PublishedStatistic(k.S_REJECTION_BAND, k.PRICE_BAND, others, columns)
    columns = _percent(AUCTION_BAND | OF_THEORETICAL_PRICE, AUCTION_PERCENT, len(equities))
    yield PublishedStatistic(k.S_AUCTION_BAND, k.PRICE_BAND, equities, columns)
    yield PublishedStatistic(k.S_QUANTITY_BAND, k.QUANTITY_BAND, equities, traded_daily)
    columns = {"code": REFERENCE_PRICE, "other": reference}
    yield PublishedStatistic(k.S_REFERENCE_PRICE, k.PRICE_BAND, indicators, columns)


def _prices(listing: Listing, code: int, width: int, at: Indices) -> dict[str, Any]:
    ticks, half = listing.reference_ticks[at], listing.bound_ticks[at] * width // 4
    return {"code": code, "price": (ticks - half) * listing.tick[at], "aux": (ticks + half) * listing.tick[at]}


def _percent(code: int, width: int, count: int) -> dict[str, Any]:
    half = np.full(count, width * ONE_PERCENT)
    return {"code": code | PERCENT, "price": -half, "aux": half}
