"""The auction price rule, tick by tick: slow, and obviously what it says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Order = tuple[int | None, int]  # price in ticks (None: a market order), size


@dataclass(frozen=True)
class Auction:
    volume: int
    prices: frozenset[int]  # several if they are equally near to the reference
    imbalance: dict[int, int]  # at each of the prices, positive if buyers are left


def auction(bids: Iterable[Order], asks: Iterable[Order], reference: int) -> Auction | None:
    """Most quantity; then least left over; then nearest to the reference; all with a better price are filled."""
    bids, asks = list(bids), list(asks)
    limits = [price for price, _ in (*bids, *asks) if price is not None]
    if not limits:
        return None
    results = []
    for price in range(min(limits), max(limits) + 1):
        bought = sum(size for limit, size in bids if limit is None or limit >= price)
        sold = sum(size for limit, size in asks if limit is None or limit <= price)
        results.append((price, min(bought, sold), bought - sold))
    volume = max(result[1] for result in results)
    if volume == 0:
        return None
    most = [(price, left) for price, matched, left in results if matched == volume]
    least_left = min(abs(left) for _, left in most)
    best = {price: left for price, left in most if abs(left) == least_left}
    fair = {
        price: left
        for price, left in best.items()
        if _all_better_filled(bids, volume, lambda limit, at=price: limit > at, -1)
        and _all_better_filled(asks, volume, lambda limit, at=price: limit < at, 1)
    }
    distance = min(abs(price - reference) for price in fair)
    nearest = {price: left for price, left in fair.items() if abs(price - reference) == distance}
    return Auction(volume, frozenset(nearest), nearest)


def _all_better_filled(orders: list[Order], volume: int, is_better, sign: int) -> bool:
    """Whether a volume, given to orders by priority, fills all with a better price; market orders are first."""
    for price, size in sorted(orders, key=lambda order: (order[0] is not None, sign * (order[0] or 0))):
        if price is not None and is_better(price) and size > volume:
            return False
        volume = max(volume - size, 0)
    return True
