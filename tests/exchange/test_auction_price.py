"""The price of an auction is what trying every tick says."""

from __future__ import annotations

import numpy as np
from exchange.auction_reference import Order, auction
from hypothesis import given
from hypothesis import strategies as st

from umdf.buffers import buffer_address
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.auction_price_kernel import R_IMBALANCE, R_TICKS, RESULT_WORDS, auction_price

PRICES = st.one_of(st.none(), st.integers(90, 110))
ORDERS = st.lists(st.tuples(PRICES, st.integers(1, 6)), max_size=9)


def side(orders: list[Order], sign: int) -> np.ndarray:
    """Orders as the market keeps them: the best last, by time within a price."""
    rows = np.zeros((len(orders) + 1, k.ORDER_BYTES // 8), np.int64)
    keyed = [(k.MARKET_ORDER_KEY if price is None else sign * price, size) for price, size in orders]
    for row, (key, size) in zip(rows, sorted(keyed, key=lambda order: order[0]), strict=False):
        row[k.O_KEY], row[k.O_SIZE] = key, size
    return rows


def price_of(bids: list[Order], asks: list[Order], reference: int) -> tuple[int, int, int]:
    sides, result = (side(bids, 1), side(asks, -1)), np.zeros(RESULT_WORDS, np.int64)
    volume = auction_price(
        buffer_address(sides[0]), len(bids), buffer_address(sides[1]), len(asks), reference, buffer_address(result)
    )
    return int(volume), int(result[R_TICKS]), int(result[R_IMBALANCE])


@given(ORDERS, ORDERS, st.integers(85, 115))
def test_the_price_is_what_trying_every_tick_says(bids: list[Order], asks: list[Order], reference: int) -> None:
    volume, ticks, imbalance = price_of(bids, asks, reference)
    expected = auction(bids, asks, reference)
    if expected is None:
        assert volume == 0
    else:
        assert volume == expected.volume and ticks in expected.prices
        assert imbalance == expected.imbalance[ticks]


def test_a_tick_between_the_orders_leaves_the_least() -> None:
    """Nothing is left between 99 and 101; of these prices 100 is the nearest to the reference."""
    assert price_of([(101, 5), (98, 3)], [(99, 5), (102, 2)], 100) == (5, 100, 0)
    assert price_of([(101, 5), (98, 3)], [(99, 5), (102, 2)], 120) == (5, 101, 0)


def test_buyers_that_are_left_over_pay_their_own_price() -> None:
    """The reference is nearer to 99, but the bid at 101 is not filled: nobody pays less than it."""
    assert price_of([(101, 9)], [(99, 5)], 99) == (5, 101, 4)


def test_market_orders_alone_have_no_price() -> None:
    assert price_of([(None, 5)], [(None, 5)], 100)[0] == 0
    assert price_of([(None, 5)], [(None, 4), (103, 5)], 100) == (5, 103, -4)
