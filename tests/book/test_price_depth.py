"""The worked examples of price-depth books and of the top of book: 9.3, 9.3.1, 9.7; legacy 9.2, 9.2.1, 9.6, 14.1."""

from __future__ import annotations

from typing import Any

import pytest
from book.row_builders import PETR, level, order, price, rows, rows_of

from umdf.book import outcomes as o
from umdf.book.bell import bell_prices
from umdf.book.engine import Books
from umdf.book.views import Book, Level
from umdf.market.families import DELETE_FROM, DELETE_THRU, OVERLAY

Prices = list[tuple[int | None, int, str | None]]  # number of orders, size, price: as the tables have them
GENERATIONS = pytest.mark.parametrize("by_position", [False, True], ids=["by price", "by position"])


def book_of(books: Books) -> Book:
    book = books.book(PETR)
    assert book is not None
    return book


def price_levels(levels: tuple[Level, ...]) -> Prices:
    return [(v.count, v.size, None if v.price is None else f"{v.price / 1e9:.2f}") for v in levels]


def build_books(bids: Prices, asks: Prices, *, by_position: bool, depth: int | None = None) -> Books:
    books, written = Books(), []
    if depth is not None:
        books.set_depth(PETR, depth)
    for side, entries in (("B", bids), ("A", asks)):
        for position, (count, size, px) in enumerate(entries, 1):
            written.append(level("A", side, px, size, count, **({"position": position} if by_position else {})))
    assert set(books.apply(rows_of(written)).codes) <= {o.ADDED}
    return books


@GENERATIONS
def test_9_3_and_legacy_9_2_one_entry_for_each_price(by_position: bool) -> None:
    bids: Prices = [(2, 9000, "10.58"), (1, 3000, "10.57"), (1, 4000, "10.54")]
    asks: Prices = [(2, 9000, "11.03"), (1, 1000, "11.05")]
    books = build_books(bids, asks, by_position=by_position)
    book = book_of(books)
    assert price_levels(book.bids) == bids and price_levels(book.asks) == asks
    assert book.depth == 10 and book.by_position == by_position  # 9.3: the default


@GENERATIONS
def test_9_3_1_and_legacy_9_2_1_the_bottom_row(by_position: bool) -> None:
    def at(position: int) -> dict[str, int]:
        return {"position": position} if by_position else {}

    bids: Prices = [(2, 9000, "10.58"), (1, 3000, "10.57"), (1, 4000, "10.54"), (4, 10000, "10.53"), (3, 8000, "10.50")]
    books = build_books(bids, [], by_position=by_position, depth=5)
    # A better price: the bottom row is gone without a word.
    assert books.apply(rows(level("A", "B", "10.60", 1000, 1, **at(1)))).codes.tolist() == [o.ADDED]
    assert price_levels(book_of(books).bids) == [(1, 1000, "10.60"), *bids[:4]]
    # A price is deleted: the last row is missing …
    books.apply(rows(level("C", "B", None if by_position else "10.57", None, None, **at(3))))
    left: Prices = [(1, 1000, "10.60"), bids[0], *bids[2:4]]
    assert price_levels(book_of(books).bids) == left
    # … until it is sent again.
    books.apply(rows(level("A", "B", "10.50", 8000, 3, **at(5))))
    assert price_levels(book_of(books).bids) == [*left, bids[4]]
    assert book_of(books).stale is None


@GENERATIONS
def test_a_level_beyond_the_depth_is_not_kept(by_position: bool) -> None:
    books = build_books([(1, 1, "10.00"), (1, 2, "9.00")], [], by_position=by_position, depth=2)
    more = {"position": 3} if by_position else {}
    assert books.apply(rows(level("A", "B", "8.00", 3, 1, **more))).codes.tolist() == [o.NO_CHANGE]
    assert price_levels(book_of(books).bids) == [(1, 1, "10.00"), (1, 2, "9.00")]


@GENERATIONS
def test_a_level_without_price_is_first_and_counts_in_the_depth(by_position: bool) -> None:
    books = build_books([(1, 1, "10.00"), (1, 2, "9.00")], [], by_position=by_position, depth=2)
    more = {"position": 1} if by_position else {}
    books.apply(rows(level("A", "B", None, 500, 3, **more)))
    assert price_levels(book_of(books).bids) == [(3, 500, None), (1, 1, "10.00")]


@GENERATIONS
def test_a_change_updates_size_and_number_of_orders(by_position: bool) -> None:
    books = build_books([(2, 9000, "10.58"), (1, 3000, "10.57")], [], by_position=by_position)
    more = {"position": 1} if by_position else {}
    assert books.apply(rows(level("M", "B", "10.58", 7000, 1, **more))).codes.tolist() == [o.CHANGED]
    assert price_levels(book_of(books).bids) == [(1, 7000, "10.58"), (1, 3000, "10.57")]


def test_a_change_of_a_price_that_is_not_there_makes_stale() -> None:
    books = build_books([(2, 9000, "10.58")], [], by_position=False)
    assert books.apply(rows(level("M", "B", "10.57", 7000, 1))).failed.tolist() == [0]
    assert str(book_of(books).stale) == "the price 10.57 is not among the 1 of the side"


@GENERATIONS
def test_9_7_an_overlay_replaces_inserts_and_removes_the_top(by_position: bool) -> None:
    more: dict[str, Any] = {"update_action": OVERLAY, **({"position": 1} if by_position else {})}
    books = Books()
    done = books.apply(
        rows(
            level("M", "B", None, None, None, **more),
            level("M", "B", "10.00", 100, 1, **more),
            level("M", "B", "10.01", 200, 2, **more),
            level("M", "A", "10.02", 300, 3, **more),
        )
    )
    assert done.codes.tolist() == [o.NO_CHANGE, o.ADDED, o.REPLACED, o.ADDED]
    book = book_of(books)
    assert price_levels(book.bids) == [(2, 200, "10.01")] and price_levels(book.asks) == [(3, 300, "10.02")]
    assert book.depth == 1 and book.top.bid == book.bids[0] and book.top.ask == book.asks[0]
    assert books.apply(rows(level("M", "B", None, None, None, **more))).codes.tolist() == [o.DELETED]
    assert books.apply(rows(level("M", "B", None, 700, 7, **more))).codes.tolist() == [o.ADDED]  # MOA/MOC orders
    assert price_levels(book_of(books).bids) == [(7, 700, None)] and book_of(books).stale is None


@pytest.mark.parametrize(
    "ending",
    [
        {"action": "C"},
        {"action": "C", "price": "10.00"},
        {"action": "C", "position": 1},
        {"action": "C", "update_action": DELETE_FROM, "position": 1},
        {"action": "C", "update_action": DELETE_FROM},
        {"action": "R", "update_action": DELETE_THRU},
        {"action": "M", "update_action": OVERLAY},
    ],
    ids=str,
)
def test_every_kind_of_delete_removes_the_top(ending: dict[str, Any]) -> None:
    books = Books()
    books.apply(rows(level("M", "B", "10.00", 100, 1, update_action=OVERLAY)))
    books.apply(rows({"instrument_id": PETR, "side": "B", **ending}))
    assert book_of(books).bids == () and book_of(books).stale is None


# Legacy 14.1: orders without price, and what BELL shows instead; the tick is 0.05.

TICK = price("0.05")
MBO_BIDS = [
    (8400, None),
    (3900, None),
    (11000, None),
    (300, None),
    (300, "50.00"),
    *[(1100, "23.20")] * 2,
    (1200, "23.20"),
]
MBO_ASKS = [
    *((1500, None), (1000, None), (100, None), (3000, "22.50"), (2000, "22.50")),
    *((100, "22.78"), (17700, "22.78"), (200, "22.89"), (500, "22.89")),
]


@GENERATIONS
def test_legacy_14_1_bell_prices_of_an_order_depth_book(by_position: bool) -> None:
    books, written = Books(), []
    for side, first_id, entries in (("B", 1, MBO_BIDS), ("A", 100, MBO_ASKS)):
        for position, (size, px) in enumerate(entries, 1):
            more = {"position": position} if by_position else {}
            written.append(order("A", side, first_id + position, px, size, **more))
    books.apply(rows_of(written))
    sides = bell_prices(book_of(books), TICK)
    found = [[(each.size, v.price) for v in side for each in v.orders] for side in sides]
    wanted = [
        [(size, price(px or instead)) for size, px in entries]
        for entries, instead in ((MBO_BIDS, "50.05"), (MBO_ASKS, "22.45"))
    ]
    assert found == wanted


@GENERATIONS
def test_legacy_14_1_bell_prices_of_a_price_depth_book(by_position: bool) -> None:
    bids: Prices = [(4, 23600, None), (1, 300, "50.00"), (3, 3400, "23.20")]
    asks: Prices = [(3, 2600, None), (2, 5000, "22.50"), (2, 17800, "22.78"), (2, 700, "22.89")]
    books = build_books(bids, asks, by_position=by_position)
    assert price_levels(book_of(books).bids) == bids and price_levels(book_of(books).asks) == asks
    bell = bell_prices(book_of(books), TICK)
    assert [price_levels(side) for side in bell] == [
        [(4, 23600, "50.05"), *bids[1:]],
        [(3, 2600, "22.45"), *asks[1:]],
    ]


@pytest.mark.parametrize(
    ("known", "wanted"), [((7, 8, 9), 7), ((None, 8, 9), 8), ((None, None, 9), 9), ((None, None, None), None)]
)
def test_legacy_14_1_without_any_price_the_auctions_price_is_shown(
    known: tuple[int | None, int | None, int | None], wanted: int | None
) -> None:
    books = build_books([(4, 23600, None)], [], by_position=False)
    assert bell_prices(book_of(books), TICK, *known)[0][0].price == wanted
