"""What the legacy BELL format shows for orders without a price (legacy 14.1)."""

from __future__ import annotations

from dataclasses import replace

from umdf.book.views import Book, Level

Levels = tuple[Level, ...]


def bell_prices(
    book: Book,
    tick: int,
    theoretical_opening: int | None = None,
    last_price: int | None = None,
    settlement: int | None = None,
) -> tuple[Levels, Levels]:
    """Bids and asks, where MOA and MOC orders have a price: one tick better than the best of their side; where the side
    has no price, the theoretical opening price, else the last traded price, else the settlement price.

    All prices are in units of 1e-9.
    """
    fallbacks = (price for price in (theoretical_opening, last_price, settlement) if price is not None)
    fallback_price = next(fallbacks, None)
    return _priced_side(book.bids, tick, fallback_price), _priced_side(book.asks, -tick, fallback_price)


def _priced_side(levels: Levels, step: int, fallback_price: int | None) -> Levels:
    best = next((level.price for level in levels if level.price is not None), None)
    shown = fallback_price if best is None else best + step
    return tuple(replace(level, price=shown) if level.price is None else level for level in levels)
