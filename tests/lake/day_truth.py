"""A lake beside what the generator of its captures says has happened."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
from lake.captures import rows, truth
from lake.wire_order import Key

from umdf.lake.books.state_columns import decode_states, restore_books
from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.market.families import LAST, SNAPSHOT

pc: Any = pyarrow.compute  # its functions are made at run time


def columns(table: pa.Table, *names: str) -> list[Key]:
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def final_orders(root: Path) -> dict[tuple[int, str], list[Key]]:
    """Of every book at the end of the day, from its stored state: price, size, order id, firm in their order."""
    states = open_snapshot(root).arrow_table("book_state")
    ends = states.filter(pc.equal(pc.bit_wise_and(states["flags"], SNAPSHOT | LAST), 0))
    books, found = restore_books(decode_states(ends)), {}
    for instrument_id, lending in books.instruments():
        book = books.book(instrument_id, lending=lending)
        assert book is not None
        for side, levels in (("B", book.bids), ("A", book.asks)):
            orders = [(level.price, o.size, o.order_id, o.firm) for level in levels for o in level.orders]
            if orders:
                found[instrument_id, side] = orders
    return found


def check_is_the_truth(captured: Path, root: Path) -> None:
    """Trades, bars and final books of a day without loss."""
    snapshot, true = open_snapshot(root), truth(captured, "trades")
    trades = snapshot.arrow_table("trades")
    is_made = pc.equal(trades["action"], "A")
    names = ("instrument_id", "trade_id", "price", "size", "buyer", "seller")
    assert sorted(columns(trades.filter(is_made), *names)) == sorted(columns(true, *names))
    busts = columns(trades.filter(pc.invert(is_made)), "instrument_id", "trade_id")
    assert Counter(busts) == Counter(columns(true.filter(true["busted"]), "instrument_id", "trade_id"))

    stood = true.filter(pc.invert(true["busted"]))
    volumes: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for instrument_id, size in columns(stood, "instrument_id", "size"):
        volumes[instrument_id][0] += 1
        volumes[instrument_id][1] += size
    for name in ("ohlcv_1s", "ohlcv_1m", "ohlcv_1h", "ohlcv_1d", "day_statistics"):
        sums: dict[int, list[int]] = defaultdict(lambda: [0, 0])
        for row in rows(root, name):
            sums[row["instrument_id"]][0] += row["trade_count"] or 0
            sums[row["instrument_id"]][1] += row["volume"] or 0
        assert {key: value for key, value in sums.items() if value[0]} == volumes, name
    states = {who: said for who, *said in columns(truth(captured, "states"), "instrument_id", "phase", "state")}
    said = {row["instrument_id"]: [row["last_phase"], row["last_state"]] for row in rows(root, "day_statistics")}
    assert said == {who: states.get(who, [None, None]) for who in said}

    books: dict[tuple[int, str], list[Key]] = defaultdict(list)
    ordered = truth(captured, "final_orders").sort_by([(name, "ascending") for name in ("instrument_id", "position")])
    for instrument_id, side, *order in columns(ordered, "instrument_id", "side", "price", "size", "order_id", "firm"):
        books[instrument_id, side].append(tuple(order))
    assert final_orders(root) == books
    assert snapshot.rows("gaps") == snapshot.rows("quarantine") == 0
    assert {row["verdict"] for row in rows(root, "book_check")} == {"equal"}
