"""Statistics besides those of trades: limits, closing and settlement prices, volumes, indexes."""
