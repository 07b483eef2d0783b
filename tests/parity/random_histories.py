"""One random history of orders, as events, in both generations: what every wire must carry to the same books."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from umdf.market import families as e
from umdf.market.rows import Events, Rows, Units

BASE_NS = 1_763_038_800_000_000_000
INSTRUMENTS = (200_000_000_001, 200_000_000_002, 200_000_000_003)
MS = 1_000_000
TICK = 10_000_000


@dataclass
class RestingOrder:
    """An order that rests, where a plain list in priority order is the book."""

    order_id: int
    price: int | None
    size: int
    firm: int
    ts_insert: int


@dataclass
class History:
    """Rows of the family mbo, one a unit; `position` says how the generation before names an entry."""

    by_position: bool
    rows: list[dict[str, int]] = field(default_factory=list)
    books: dict[tuple[int, str], list[RestingOrder]] = field(default_factory=dict)
    rpt_seq: dict[int, int] = field(default_factory=dict)

    def add_row(self, instrument: int, action: str, side: str, **columns: int) -> None:
        self.rpt_seq[instrument] = self.rpt_seq.get(instrument, 0) + 1
        codes = {"A": e.NEW, "M": e.CHANGE, "C": e.DELETE, "R": e.DELETE_THRU}
        row = {
            "instrument_id": instrument,
            "action": ord(action),
            "side": ord(side),
            "update_action": codes[action],
            "entry_type": ord("0" if side == "B" else "1"),
            "rpt_seq": self.rpt_seq[instrument],
            "ts_event": BASE_NS + len(self.rows) * MS,
            "flags": e.LAST,
        }
        self.rows.append(row | columns)

    def insert_position(self, orders: list[RestingOrder], side: str, new: RestingOrder) -> int:
        """Where a new order stands: without a price first, then by price, then by id (9.1)."""

        def key(order: RestingOrder) -> tuple[int, int, int]:
            worse = 0 if order.price is None else -order.price if side == "B" else order.price
            return order.price is not None, worse, order.order_id

        return sum(key(order) < key(new) for order in orders)


def random_history(seed: int, steps: int, by_position: bool) -> History:
    """Adds, changes, deletes and cleared sides. The seed alone decides what happens, not the generation."""
    rng, history = random.Random(seed), History(by_position)
    for step in range(steps):
        instrument, side = rng.choice(INSTRUMENTS), rng.choice("BA")
        orders = history.books.setdefault((instrument, side), [])
        roll, pick = rng.random(), rng.random()
        price = None if rng.random() < 0.05 else (1_000 + rng.randrange(-20, 20)) * TICK
        size, firm = 100 * rng.randint(1, 50), rng.randint(1, 300)
        if not orders or roll < 0.5:
            ts_insert = BASE_NS + step * MS
            order = RestingOrder(10_000 + step, price, size, firm, ts_insert)
            at = history.insert_position(orders, side, order)
            orders.insert(at, order)
            _add_row(history, instrument, "A", side, order, at)
        elif roll < 0.6:
            at = int(pick * len(orders))
            before, orders[at].size = orders[at].size, size
            prev = {} if by_position else {"prev_size": before}
            _add_row(history, instrument, "M", side, orders[at], at, **prev)
        elif roll < 0.98:
            at = int(pick * len(orders))
            _add_row(history, instrument, "C", side, orders.pop(at), at)
        else:
            orders.clear()
            history.add_row(instrument, "R", side, **({"position": 1} if by_position else {}))
    return history


def _add_row(
    history: History, instrument: int, action: str, side: str, order: RestingOrder, at: int, **more: int
) -> None:
    columns = {"size": order.size, "order_id": order.order_id, "firm": order.firm, "ts_insert": order.ts_insert}
    if order.price is not None:
        columns["price"] = order.price
    if history.by_position:
        columns["position"] = at + 1
    if action == "C":
        del columns["firm"], columns["ts_insert"]  # a delete names the order, not who it was
    history.add_row(instrument, action, side, **columns, **more)


def as_events(history: History) -> Events:
    count = len(history.rows)
    numbers = np.arange(count)
    columns = {}
    for name in (c.name for c in (*e.COMMON, *e.MBO.columns) if not c.is_text):
        column = e.MBO.column(name)
        if any(name in row for row in history.rows):
            columns[name] = np.array([row.get(name, column.null) for row in history.rows], column.dtype)
    first = np.zeros(count, np.uint16)
    rows = Rows(e.MBO, numbers.astype(np.uint32), first, first, columns)
    ts = BASE_NS + numbers * MS
    units = Units(np.full(count, 72, np.int16), np.ones(count, np.int64), numbers + 1, ts, ts + 1000)
    return Events(units, {"mbo": rows})
