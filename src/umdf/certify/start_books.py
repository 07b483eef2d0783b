"""The books that are seeded before sections, so that the level numbers of the script come true.

B1, B2 and B6 have five BID orders on three prices, the third of which is the Closing price. Their sizes count: those
above the Closing price total less than 100 together with the MOA order of B1.4, and those at it bring them over 100.
So an ASK of 100 at the Closing price trades there and nowhere else, and takes every BID above it, which is why the two
BIDs of B2.9 and B6.6 at one tick above the Closing price are first and second.
"""

from __future__ import annotations

from umdf.certify.observation import ASK, BID
from umdf.certify.operations import Enter, Operation
from umdf.exchange.matching.orders import MOC

MOA_SIZE = 20  # of B1.4
BIDS = ((2, 20), (1, 10), (1, 10), (0, 30), (0, 30))  # ticks above the Closing price, size
BEST_ASK = 3  # ticks above the Closing price: above the best BID, and above the BIDs of B2.9 and B6.6


def _orders(side: int, orders: tuple[tuple[int, int], ...], order_name: str) -> tuple[Operation, ...]:
    return tuple(Enter(f"{order_name} {number}", side, ticks, size) for number, (ticks, size) in enumerate(orders, 1))


def _of_auction(asks: tuple[tuple[int, int], ...]) -> tuple[Operation, ...]:
    return _orders(BID, BIDS, "start BID") + _orders(ASK, asks, "start ASK")


PRE_OPEN = _of_auction(((BEST_ASK, 100),))  # B1
OPEN_MARKET = _of_auction(((BEST_ASK, 50), (BEST_ASK, 50)))  # B2, B6
ONE_OF_EACH = _orders(BID, ((0, 100),), "start BID") + _orders(
    ASK, ((1, 100),), "start ASK"
)  # B4: entered, then paused
CLOSING_CALL: tuple[Operation, ...] = (Enter("start MOC", BID, None, 100, order_type=MOC),)  # B5
