"""The statistics of the exchange in `day_statistics`."""

from __future__ import annotations

import numpy as np
from market.event_builders import PRICE, build_events, statistic

from umdf.lake.books.day_statistics import PublishedStatistics
from umdf.lake.books.instrument_rows import RowsByBook
from umdf.market.families import CLOSING_PRICE, NULL, SETTLEMENT_PRICE

CLOSE, SETTLEMENT = "exchange_close", "settlement_price"


def test_prices_of_the_previous_day_are_not_those_of_the_day() -> None:
    """10.5, 10.6: 286=4 is an entry from the previous business day, and may come after one of this day."""
    published = PublishedStatistics(1)
    for stat_type, flag, price, expected in (
        (CLOSING_PRICE, 4, 10, (None, None)),
        (SETTLEMENT_PRICE, 4, 11, (None, None)),
        (CLOSING_PRICE, 0, 12, (12, None)),
        (SETTLEMENT_PRICE, 1, 13, (12, 13)),
        (SETTLEMENT_PRICE, 4, 14, (12, 13)),
    ):
        events = build_events(statistic(1, stat_type, price, open_close_settl_flag=flag))
        published.update(RowsByBook(events, np.zeros(1, np.int32), np.zeros(1, np.int32), np.zeros(1, np.uint64)))
        found = [int(published.value(name)[0]) for name in (CLOSE, SETTLEMENT)]
        assert found == [NULL if value is None else value * PRICE for value in expected]
