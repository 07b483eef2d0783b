"""What does not fit a record of the journal: details of forward and lending trades and orders, and composite prices.

A record refers to them by number: a trade in the bits of CODE above `DETAILS`, a composite price in OTHER. The details
of an order are found by its id.
"""

from __future__ import annotations

from dataclasses import dataclass, field

DETAILS = 32  # a trade's CODE: its conditions below, the number of its details above


@dataclass(frozen=True)
class TradeDetails:
    """Of a forward: days until delivery and rate; of a lending pre-contract: 13.1."""

    seller_days: int | None = None  # 287
    interest_rate: int | None = None  # 37014
    early_termination: int | None = None  # 37019
    contract_info: int | None = None  # 37024: 1 pre-contract, 2 intention
    grace_date: int | None = None  # 37025, days since 1970
    expire_date: int | None = None  # 432
    cert_indicator: int | None = None  # 37023


@dataclass(frozen=True)
class OrderDetails:
    """Of a lending offer (13.1)."""

    expire_date: int | None = None
    early_termination: int | None = None
    cert_indicator: int | None = None
    conditions: int = 0  # 276: limited, all or none


@dataclass(frozen=True)
class CompositePrice:
    """A price within a composite (269=D): the row of the underlying, its price, and 0 for a trade's, 1 for the average
    of the top of the book (37018)."""

    index: int
    price: int
    price_type: int = 0


@dataclass
class JournalDetails:
    trades: list[TradeDetails] = field(default_factory=lambda: [TradeDetails()])  # number 0: none
    composites: list[tuple[CompositePrice, ...]] = field(default_factory=list)
    orders: dict[int, OrderDetails] = field(default_factory=dict)

    def add_trade(self, details: TradeDetails) -> int:
        """What to add to the CODE of the trade's record."""
        self.trades.append(details)
        return len(self.trades) - 1 << DETAILS

    def add_composite(self, prices: tuple[CompositePrice, ...]) -> int:
        self.composites.append(prices)
        return len(self.composites) - 1
