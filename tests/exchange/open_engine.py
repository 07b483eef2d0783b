"""A matching engine with open instruments, short ways to enter orders, and what its books and journal contain."""

from __future__ import annotations

import numpy as np

from umdf.exchange.bulk.settings import BulkSettings
from umdf.exchange.instruments.listing import generate_listing
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.order_entry import MatchingEngine
from umdf.exchange.matching.orders import EntryResult

SETTINGS = BulkSettings(1_000, 12)
START_NS, CENT, REAL = SETTINGS.midnight_ns, 10_000_000, 10**9
SYMBOL = "PETR4"


def engine(*open_symbols: str) -> MatchingEngine:
    exchange = MatchingEngine(generate_listing(SETTINGS, np.random.default_rng(1)), SETTINGS, START_NS)
    for symbol in open_symbols:
        exchange.set_state(symbol, k.OPEN)
    exchange.take_records()
    return exchange


def enter(exchange: MatchingEngine, side: int, price: float | None, size: int, **more: object) -> EntryResult:
    """`price` in cents."""
    arguments = {"firm": 1, "ts_ns": START_NS} | more
    return exchange.enter(SYMBOL, side, None if price is None else round(price * CENT), size, **arguments)  # type: ignore[arg-type]


def content(exchange: MatchingEngine) -> list[list[tuple]]:
    book = exchange.book(SYMBOL)
    return [
        [(None if o.price is None else o.price // CENT, o.size, o.hidden) for o in side]
        for side in (book.bids, book.asks)
    ]


def kinds(records: np.ndarray) -> list[int]:
    return records[:, k.KIND].tolist()


def rows(records: np.ndarray, kind: int, *columns: int) -> list[list[int]]:
    return records[records[:, k.KIND] == kind][:, columns].tolist()
