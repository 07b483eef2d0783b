"""Orders from Python into the matching engine, one at a time and in batches: per second of processor time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator

import numpy as np

from benchmarks.measure import Result
from umdf.errors import UsageError
from umdf.exchange.bulk.settings import BulkSettings
from umdf.exchange.instruments.listing import generate_listing
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.matching.order_entry import MatchingEngine
from umdf.exchange.matching.orders import CANCEL, ENTER, REQUEST, Requests

INSTRUMENTS, ROUNDS = 500, 3
ORDERS, BATCH, MAX_RESTING = 100_000, 4_000, 4_000
TARGETS = {"one at a time": 0.1, "in batches": 1.0}  # million orders a second


def run() -> Iterator[Result]:
    for name, enter in (("one at a time", _enter_each), ("in batches", _enter_batches)):
        best = float("inf")
        for _ in range(ROUNDS):
            engine, requests = _open_engine(), _requests()
            start_s = time.process_time()
            count = enter(engine, requests)
            best = min(best, (time.process_time() - start_s) / count)
        trades = int(engine.market.instruments[:, k.I_TRADES].sum())
        figure = f"{best * 1e6:.2f} µs each, {trades / ORDERS:.2f} trades an order"
        yield Result(f"orders from Python, {name}", figure, 1e-6 / best, "M orders/s", TARGETS[name], at_least=True)


def _open_engine() -> MatchingEngine:
    settings = BulkSettings(1_000_000, INSTRUMENTS)
    engine = MatchingEngine(generate_listing(settings, np.random.default_rng(1)), settings, settings.midnight_ns)
    for symbol in engine.market.listing.symbols[:INSTRUMENTS]:
        engine.set_state(symbol, k.OPEN)
    engine.take_records()
    return engine


def _requests() -> Requests:
    """Orders around the reference prices of instruments, by their activity."""
    dice, listing = np.random.default_rng(2), _open_engine().market.listing
    requests = np.zeros(ORDERS, REQUEST)
    share = listing.activity[:INSTRUMENTS]
    instrument = dice.choice(INSTRUMENTS, ORDERS, p=share / share.sum())
    requests["action"], requests["instrument"], requests["side"] = ENTER, instrument, dice.integers(0, 2, ORDERS)
    ticks = listing.reference_ticks[instrument] + dice.integers(-5, 6, ORDERS)
    requests["price"], requests["size"] = ticks * listing.tick[instrument], listing.lot[instrument]
    requests["firm"], requests["expires"] = dice.integers(1, 100, ORDERS), k.DAY
    return requests


def _enter_each(engine: MatchingEngine, requests: Requests) -> int:
    """Enter orders, and cancel those that have rested for long; how many requests that were."""
    symbols, resting, count = engine.market.listing.symbols, deque[int](), 0
    for _, index, side, price, size, firm, _, _, _, _, _, ts_ns in requests.tolist():
        count += 1
        try:
            result = engine.enter(symbols[index], side, price, size, firm=firm, ts_ns=ts_ns)
            if result.order_id:
                resting.append(result.order_id)
            if len(resting) > MAX_RESTING:
                count += 1
                engine.cancel(resting.popleft(), ts_ns)
        except UsageError:
            pass  # the side is full, or the order was traded
    engine.take_records()
    return count


def _enter_batches(engine: MatchingEngine, requests: Requests) -> int:
    """The same with an array for each batch, which cancels what rests of the one before."""
    cancels, count = np.zeros(0, REQUEST), 0
    for first in range(0, ORDERS, BATCH):
        batch = np.concatenate([cancels, requests[first : first + BATCH]])
        results = engine.enter_many(batch)
        order_ids = results["order_id"][results["order_id"] > 0]
        cancels = np.zeros(len(order_ids), REQUEST)
        cancels["action"], cancels["order_id"] = CANCEL, order_ids
        count += len(batch)
        engine.take_records()
    return count
