"""Settlement prices: of what, when, and at which price (10.6).

before the session   286=4 731=1   the previous day's, final
during the session   286=4 731=3   the previous day's, updated by Market Surveillance
during the session   286=1 731=2   this day's, as a preview
after the session    286=1 731=1   this day's, final
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.instruments.instrument_types import InstrumentType, types_where
from umdf.exchange.instruments.listing import Listing
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.market import Market

Indices = NDArray[np.int64]
SESSION, PREVIOUS_DAY = 1, 4  # 286
FINAL, PREVIEW, UPDATED = 1, 2, 3  # 731
DAY_OF = {FINAL: SESSION, PREVIEW: SESSION, UPDATED: PREVIOUS_DAY}
PRICE_TYPE = 8  # bits of CODE of a settlement price: 286 below, 731 above
FIXED_AMOUNT = 3  # 423; never sent for an index


def settlement_code(price_type: int, day: int | None = None) -> int:
    """CODE of a settlement price of 731 = `price_type`."""
    return (DAY_OF[price_type] if day is None else day) | price_type << PRICE_TYPE


def is_settled(listing: Listing) -> NDArray[np.bool_]:
    """Derivatives and indexes (10.6, 10.10); equities have none."""
    return listing.of_types(types_where("is_settled"))


def previous_prices(market: Market, indices: Indices) -> Indices:
    """The final settlement prices of the previous day; of what has none the closing price."""
    final, closing = market.statistic_values(k.S_SETTLEMENT)[indices], market.instruments[indices, k.I_PREVIOUS_CLOSE]
    is_final = (final[:, k.V_PRESENT] != 0) & (final[:, k.V_CODE] == settlement_code(FINAL))
    return np.where(is_final, final[:, k.V_PRICE], closing)


def settlement_prices(market: Market, indices: Indices) -> Indices:
    """The price at which each would settle now.

    A contract that has traded settles at its average price, rounded to its tick. One that has not moves as the front
    of its chain does. An index settles at its last value.
    """
    listing, table = market.listing, market.instruments
    average, last = market.statistic_values(k.S_EXECUTION), market.statistic_values(k.S_INDEX_VALUE)
    previous, tick = table[:, k.I_PREVIOUS_CLOSE].copy(), listing.tick
    settled = market.statistic_values(k.S_PREVIOUS_SETTLEMENT)
    is_settled_before = settled[:, k.V_PRESENT] != 0
    previous[is_settled_before] = settled[is_settled_before, k.V_PRICE]
    traded = (average[:, k.V_PRESENT] != 0) & (average[:, k.V_PRICE] != k.NULL)
    prices = previous[indices]
    for place, index in enumerate(indices.tolist()):
        front = int(listing.driver[index])
        if listing.type[index] == InstrumentType.INDEX:
            if last[index, k.V_PRESENT]:
                prices[place] = last[index, k.V_PRICE]
        elif traded[index]:
            prices[place] = _at_tick(int(average[index, k.V_PRICE]), int(tick[index]))
        elif front != index and traded[front]:
            move = int(average[front, k.V_PRICE]) - int(previous[front])
            prices[place] = _at_tick(int(previous[index]) + move, int(tick[index]))
    return prices


def _at_tick(price: int, tick: int) -> int:
    return (price + tick // 2) // tick * tick
