"""Random histories of books of every kind, mostly possible, with everything that can go wrong in between."""

from __future__ import annotations

from random import Random
from typing import Any

from book.reference_book import (
    DELETE_FROM,
    IMPLIED,
    LAST,
    OVERLAY,
    RECOVERY,
    SNAPSHOT,
    Entry,
    ReferenceBook,
    ReferenceBooks,
)

KINDS = ("orders", "orders by position", "prices", "prices by position", "top", "lending")
INSTRUMENTS = (11, 12, -5)
DEPTHS = {"prices": 4, "prices by position": 4, "top": 1}
PRICES = [None, *range(95, 106)]


def history(random: Random, kind: str, steps: int, books: ReferenceBooks | None = None) -> list[Entry]:
    """Rows; the reference books that they are made after are left at the end of them."""
    books = books or ReferenceBooks()
    made: list[Entry] = []
    while len(made) < steps:
        for row in _random_event(random, kind, books):
            books.apply(row)
            made.append(row)
    return made


def declare_depths(kind: str, *targets: Any) -> None:
    """What snapshots would say, for the kinds that need it."""
    if kind in DEPTHS:
        for instrument in INSTRUMENTS:
            for target in targets:
                if isinstance(target, ReferenceBooks):
                    target.book(instrument).said = DEPTHS[kind]
                else:
                    target.set_depth(instrument, DEPTHS[kind])


def _random_event(random: Random, kind: str, books: ReferenceBooks) -> list[Entry]:
    instrument, lending = random.choice(INSTRUMENTS), kind == "lending"
    book = books.book(instrument, lending)
    row: Entry = {"instrument_id": instrument, "venue": "L" if lending else random.choice("E\0")}
    row["rpt_seq"] = _rpt_seq(random, book)
    row["flags"] = random.choice((0, LAST)) | (RECOVERY if random.random() < 0.04 else 0)
    chance = random.random()
    if chance < 0.01:
        return [{**row, "action": "R", "side": "N", "rpt_seq": None}]  # Empty Book
    if chance < 0.015:
        return [{**row, "instrument_id": None, "rpt_seq": None, "action": "R", "side": "N"}]  # channel reset
    if chance < 0.02:
        return [{**row, "instrument_id": None, "action": random.choice("TNA"), "side": "B"}]
    if chance < 0.05:
        return _snapshot(random, kind, row)
    if chance < 0.07:
        position = 1 if "position" in kind else None
        return [{**row, "action": "R", "side": random.choice("BA"), "position": position, "update_action": 3}]
    if chance < 0.13:
        return [{**row, "action": random.choice("TNF"), "side": "N", "price": 100, "size": 5}]
    if chance < 0.14:
        return [{**row, "action": random.choice("AXRMC"), "side": random.choice("XB"), "order_id": 7}]
    return [{**row, **_entry(random, kind, book)}]


def _rpt_seq(random: Random, book: ReferenceBook) -> int | None:
    following = (book.rpt_seq or 0) + 1
    chance = random.random()
    if chance < 0.94:
        return following
    return random.choice((None, following + random.randint(1, 3), following - random.randint(1, 3)))


def _snapshot(random: Random, kind: str, row: Entry) -> list[Entry]:
    """Where it starts, then its entries, in order."""
    start = {
        **row,
        "action": "R",
        "side": "N",
        "flags": SNAPSHOT,
        "rpt_seq": random.choice((None, random.randint(0, 9))),
    }
    rows, copy = [start], ReferenceBook()
    if kind in DEPTHS:
        copy.said = DEPTHS[kind]
    for _ in range(random.randint(0, 5)):
        entry = {**row, "rpt_seq": start["rpt_seq"], **_entry(random, kind, copy), "flags": SNAPSHOT}
        copy.apply(entry, 0)
        rows.append(entry)
    rows[-1] = {**rows[-1], "flags": SNAPSHOT | random.choice((0, LAST))}
    return rows


def _entry(random: Random, kind: str, book: ReferenceBook) -> Entry:
    side = random.choice("BA")
    there = book.sides[side]
    action = random.choices("AMC", (5, 2, 4) if len(there) < 8 else (3, 2, 6))[0]
    row: Entry = {"action": action, "side": side, "size": random.choice((0, 1, 5, 10, 10, 10, None, -3))}
    if random.random() < 0.9:
        row["size"] = random.randint(1, 20)
    if kind in ("orders", "lending"):
        return _order(random, book, row, there)
    if kind == "orders by position":
        row = {**row, "firm": random.randint(1, 9), "order_id": random.choice((None, random.randint(1, 50)))}
        return _placed(random, row, there, _near(random, there))
    row["order_count"] = random.choice((None, 1, 2, 3, 3, -1)) if random.random() < 0.2 else random.randint(1, 9)
    if kind == "prices by position":
        return _placed(random, row, there, random.choice(PRICES))
    if random.random() < (0.6 if kind == "top" else 0.05):
        row = {**row, "action": random.choice("AM"), "update_action": OVERLAY}
        row["price"] = random.choice(PRICES)
        if random.random() < 0.3:
            row["price"] = row["size"] = None
        return row
    if action == "A":
        row["price"] = random.choice(PRICES)
    elif there and random.random() < 0.9:
        entry = random.choice(there)
        row["price"] = entry["price"]
        _previous(random, row, entry)
    else:
        row["price"] = random.choice(PRICES)
    if random.random() < 0.03:
        row["position"] = random.randint(0, 2)
    if random.random() < 0.03:
        row["update_action"] = random.choice((0, 1, 2, DELETE_FROM))
    return row


def _order(random: Random, book: ReferenceBook, row: Entry, there: list[Entry]) -> Entry:
    row["firm"], row["ts_insert"] = random.choice((None, 3, 114)), random.choice((None, 1_700_000_000))
    if row["action"] == "A":
        ids = [e["order_id"] or 0 for s in "BA" for e in book.sides[s]]
        row["order_id"] = max(ids, default=0) + 1 if random.random() < 0.6 else random.randint(1, 60)
        row["price"] = random.choice(PRICES)
        row["flags"] = random.choice((0, LAST, 0, IMPLIED)) | (RECOVERY if random.random() < 0.1 else 0)
        if there and random.random() < 0.1:  # sent again, perhaps at another price
            row["order_id"], row["flags"] = random.choice(there)["order_id"], row["flags"] | RECOVERY
    elif there and random.random() < 0.9:
        entry = random.choice(there)
        row["order_id"] = entry["order_id"]
        row["price"] = random.choice((entry["price"], entry["price"], None, 100))
        _previous(random, row, entry)
    else:
        row["order_id"] = random.choice((None, random.randint(1, 60)))
    if random.random() < 0.02:
        row["position"] = random.randint(0, 3)
    if random.random() < 0.02:
        row["update_action"] = random.choice((DELETE_FROM, OVERLAY))
    return row


def _near(random: Random, there: list[Entry]) -> int | None:
    """Often a price that is there, so that levels have several orders."""
    return random.choice(there)["price"] if there and random.random() < 0.6 else random.choice(PRICES)


def _placed(random: Random, row: Entry, there: list[Entry], price: int | None) -> Entry:
    adds = row["action"] == "A"
    row["position"] = random.randint(1, max(len(there) + adds, 1)) if random.random() < 0.95 else random.randint(0, 12)
    if adds:
        row["price"] = price
    elif 1 <= row["position"] <= len(there):
        entry = there[row["position"] - 1]
        row["price"] = random.choice((None, entry["price"], entry["price"], entry["price"], 100))
        _previous(random, row, entry)
    if random.random() < 0.08:
        row["update_action"] = random.choice((DELETE_FROM, DELETE_FROM, OVERLAY))
        if row["update_action"] == OVERLAY and random.random() < 0.5:
            row["price"] = row["size"] = None
    return row


def _previous(random: Random, row: Entry, entry: Entry) -> None:
    if row["action"] == "M":
        row["prev_size"] = random.choice((None, entry["size"], entry["size"], entry["size"], 4))
