"""Books: maintaining them, rows of their best levels, memory, and one packet from the wire."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from sortedcontainers import SortedDict

from benchmarks import book_floor_kernel as f
from benchmarks import book_traffic_kernel as g
from benchmarks.book_packets import encode_packets
from benchmarks.book_traffic import Traffic, generate_traffic
from benchmarks.measure import Result
from umdf.book.engine import Books
from umdf.book.live import PacketApplier
from umdf.book.live_kernel import apply_packet, empty_call
from umdf.market.rows import Rows
from umdf.wire.sbe.layout import Layout
from umdf.wire.sbe.loader import load

EVENTS = 5_000_000
BATCH = 16_384  # rows
ROUNDS = 20  # a round takes a quarter of a second, and a burst of other load several
SORTED_EVENTS = 200_000
PACKET_EVENTS, PACKETS_UNTIMED, PACKET_ROUNDS = 900_000, 50_000, 8
ORDERS = 1 << 19
HASH_BITS = 20
SHIFT = 64 - HASH_BITS

Apply = Callable[[Rows], object]


def run() -> Iterator[Result]:
    yield from _packet()  # first: the cost of a packet must not be measured next to gigabytes of columns
    events = generate_traffic(EVENTS)
    best = _fastest(
        events,
        {
            "touch": lambda: _hash_floor(bare=False),
            "bare": lambda: _hash_floor(bare=True),
            "maintain": _maintain_apply,
            "top": lambda: _new_books().apply_top,
            "end": lambda: _depth_apply(_new_books(), "end"),
            "depth": lambda: _depth_apply(_new_books(), "event"),
        },
    )
    count = events.book_events

    def rate_text(name: str) -> str:
        return f"{best[name] / count * 1e9:.1f} ns/event, {count / best[name] / 1e6:.1f} M/s"

    figure = f"{rate_text('maintain')}; floor {best['touch'] / count * 1e9:.1f} ns"
    yield Result("books, maintain", figure, best["maintain"] / best["touch"], "× hash-touch floor", 2.0)
    yield Result("books, maintain", rate_text("bare"), best["maintain"] / best["bare"], "× bare floor")
    yield Result("books, top-of-book rows", rate_text("top"), best["top"] / best["maintain"], "× maintain", 1.1)
    yield Result("books, MBP-10 rows", rate_text("depth"), best["depth"] / best["maintain"], "× maintain", 2.2)
    yield Result("books, MBP-10 rows, per end", rate_text("end"), best["end"] / best["maintain"], "× maintain")
    yield _against_sortedcontainers(events)
    yield _memory(events)


def _new_books(orders: int = ORDERS) -> Books:
    """Books with capacity for everything, in prefaulted memory."""
    books = Books(orders=orders, levels=1 << 17, books=1024)
    books.arenas.prefault()
    return books


def _maintain_apply() -> Apply:
    return _new_books().apply


def _depth_apply(books: Books, per: str) -> Apply:
    return lambda rows: books.apply_depth(rows, 10, per)


def _hash_floor(bare: bool) -> Apply:
    """The least work of any book (`book_floor_kernel`)."""
    slots, orders = np.ones(1 << HASH_BITS, f.SLOT), np.ones(ORDERS, f.ORDER)
    keys, counts = np.ones(f.SIDES * f.SIDE_KEYS, np.int64), np.zeros(f.SIDES, np.int32)
    table = np.zeros(f.ARGUMENT_COUNT, np.int64)
    table[f.ORDERS :] = orders.ctypes.data, ORDERS - 1, slots.ctypes.data, SHIFT, counts.ctypes.data, keys.ctypes.data

    def touch(rows: Rows) -> None:
        columns = [rows.columns[name] for name in ("action", "instrument_id", "side", "order_id")]
        if bare:
            table[: f.ORDERS] = len(rows), *(column.ctypes.data for column in columns)
            f.touch_bare(table.ctypes.data)
        else:
            action, instrument, side, order_id = columns
            f.touch(action, instrument, side, order_id, orders, slots, np.uint64(SHIFT), counts, keys)

    return touch


def _fastest(events: Traffic, candidates: dict[str, Callable[[], Apply]]) -> dict[str, float]:
    """Seconds of each, with fresh books for every round. A batch is in the cache, as a decoder leaves it."""
    best = dict.fromkeys(candidates, float("inf"))
    batches = events.batches(BATCH)
    cached_columns = {name: np.empty(BATCH, values.dtype) for name, values in events.columns.items()}
    gc.disable()
    for number in range(ROUNDS + 1):
        for name, make in candidates.items():
            apply, elapsed = make(), 0.0
            for rows in batches:
                for column, values in rows.columns.items():
                    cached_columns[column][: len(rows)] = values
                rows = replace(rows, columns={name: values[: len(rows)] for name, values in cached_columns.items()})
                start = time.thread_time()
                apply(rows)
                elapsed += time.thread_time() - start
            if number:
                best[name] = min(best[name], elapsed)
    gc.enable()
    return best


def _against_sortedcontainers(events: Traffic) -> Result:
    """Against the obvious book in Python: a SortedDict of levels for each side, a dict of orders. The same events."""
    sample = Traffic({name: values[:SORTED_EVENTS] for name, values in events.columns.items()})
    ours_s = _fastest(sample, {"maintain": lambda: _new_books(SORTED_EVENTS // 2).apply})["maintain"]
    names = ("action", "side", "price", "size", "order_id", "instrument_id")
    rows = list(zip(*(events.columns[name][:SORTED_EVENTS].tolist() for name in names), strict=True))
    count, best = sum(row[0] in (g.A, g.C, g.M) for row in rows), float("inf")
    for _ in range(3):
        start = time.thread_time()
        _python_book(rows)
        best = min(best, time.thread_time() - start)
    figure = f"{best / count * 1e6:.2f} µs/event in Python"
    return Result("books against sortedcontainers", figure, best / ours_s, "× faster", 30, at_least=True)


def _python_book(rows: list[tuple[int, ...]]) -> None:
    books: dict[tuple[int, int], Any] = {}
    prices: dict[tuple[int, int], int] = {}
    for action, side, price, size, order_id, instrument in rows:
        if action == g.T or action == g.N:
            continue
        levels = books.get((instrument, side))
        if levels is None:
            levels = books[instrument, side] = SortedDict()
        if action == g.A:
            key = -price if side == g.B else price
            level = levels.get(key)
            if level is None:
                level = levels[key] = [0, {}]
            level[0] += size
            level[1][order_id] = size
            prices[instrument, order_id] = key
        elif action == g.M:
            level = levels[prices[instrument, order_id]]
            level[0] += size - level[1][order_id]
            level[1][order_id] = size
        else:
            key = prices.pop((instrument, order_id))
            level = levels[key]
            level[0] -= level[1].pop(order_id)
            if not level[1]:
                del levels[key]


def _memory(events: Traffic) -> Result:
    """Bytes of orders and their hash when they are full."""
    books = Books(orders=1 << 14)
    for rows in events.batches(64):
        books.apply(rows)
        if books.available_orders < 64:
            break
    figure = f"{books.order_count} living orders"
    return Result("books, memory when full", figure, books.order_bytes / books.order_count, "bytes an order", 64)


def _packet() -> Iterator[Result]:
    """A packet of six messages, decoded and applied in one call from Python."""
    contents, layout = encode_packets(generate_traffic(PACKET_EVENTS)), Layout(load())
    packet_buffer = np.zeros(4096, np.uint8)
    view, address, clock = packet_buffer.data, packet_buffer.ctypes.data, time.perf_counter_ns
    rounds: list[tuple[float, float, str]] = []
    for _ in range(PACKET_ROUNDS):
        live = PacketApplier(Books(orders=1 << 17, levels=1 << 16, books=1024), layout)
        live.books.arenas.prefault()
        table, elapsed, empty_call_ns = live.address, [], []
        gc.disable()
        for content in contents:
            size = len(content)
            view[:size] = content
            start = clock()
            status = apply_packet(address, size, table)
            elapsed.append(clock() - start)
            live.finish(status)
            start = clock()
            empty_call(address, size, table)
            empty_call_ns.append(clock() - start)
        gc.enable()
        median, tail = np.percentile(elapsed[PACKETS_UNTIMED:], [50, 99])
        empty, figure = (
            np.median(empty_call_ns[PACKETS_UNTIMED:]),
            f"p50 {median / 1e3:.2f} µs, p99 {tail / 1e3:.2f} µs",
        )
        rounds.append((median / empty, tail / median, figure))
    ratio, _, figure = min(rounds)
    yield Result("packet of 6 messages → books, p50", figure, ratio, "× an empty call", 3.0)
    _, ratio, figure = min(rounds, key=lambda one: one[1])
    yield Result("packet of 6 messages → books, p99", figure, ratio, "× p50", 2.0)
