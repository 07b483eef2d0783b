"""The worked examples of order-depth books: 9.2, 9.2.1, 9.6 and 14, legacy 9.1, 9.4, 9.5; and what goes with them."""

from __future__ import annotations

from typing import Any

import pytest
from book.row_builders import PETR, order, price, rows, rows_of

from umdf.book import outcomes as o
from umdf.book.engine import Books
from umdf.book.views import Book, Level
from umdf.market.families import CHANGE, DELETE_FROM, DELETE_THRU, IMPLIED, LAST, RECOVERY, SNAPSHOT

Side = list[tuple[str | None, int | None, int]]

BIDS_9_2: Side = [("10.58", 3539, 5000), ("10.58", 3541, 4000), ("10.58", 3545, 3000), ("10.54", 3538, 4000)]
ASKS_9_2: Side = [("11.03", 3964, 7000), ("11.03", 3968, 2000), ("11.05", 3474, 1000)]
BIDS: Side = [("10.58", 3971, 5000), ("10.58", 3984, 4000), ("10.57", 3968, 3000), ("10.54", 3538, 4000)]
ASKS: Side = [("11.03", 3539, 7000), ("11.03", 3547, 2000), ("11.05", 3541, 1000)]


def book_of(books: Books, instrument_id: int = PETR) -> Book:
    book = books.book(instrument_id)
    assert book is not None
    return book


def orders_of(levels: tuple[Level, ...]) -> Side:
    return [(price_text(v), each.order_id, each.size) for v in levels for each in v.orders]


def price_text(level: Level) -> str | None:
    return None if level.price is None else f"{level.price / 1e9:.2f}"


def build_books(bids: Side, asks: Side, *, by_position: bool = False, reverse: bool = False) -> Books:
    """A book with these orders; by price and id they may come in any order."""
    written: list[dict[str, Any]] = []
    for side, entries in (("B", bids), ("A", asks)):
        for position, (px, order_id, size) in enumerate(entries, 1):
            more = {"position": position} if by_position else {}
            written.append({**order("A", side, 0, px, size), "order_id": order_id, **more})
    books = Books()
    assert set(books.apply(rows_of(written[::-1] if reverse else written)).codes) == {o.ADDED}
    return books


@pytest.mark.parametrize("reverse", [False, True])
def test_9_2_orders_stand_by_price_then_by_id_however_they_came(reverse: bool) -> None:
    book = book_of(build_books(BIDS_9_2, ASKS_9_2, reverse=reverse))
    assert orders_of(book.bids) == BIDS_9_2 and orders_of(book.asks) == ASKS_9_2
    assert book.stale is None and book.depth is None


def test_9_2_1_previous_size_keeps_the_prices_right() -> None:
    books = build_books(BIDS, ASKS)
    before = [[("10.58", 9000, 2), ("10.57", 3000, 1), ("10.54", 4000, 1)], [("11.03", 9000, 2), ("11.05", 1000, 1)]]
    assert [prices_of(side) for side in book_of(books).mbp(10)] == before
    done, top = books.apply_top(rows(order("M", "B", 3971, "10.58", 3000, prev_size=5000)))
    assert done.codes.tolist() == [o.CHANGED]
    book = book_of(books)
    assert prices_of(book.mbp(10)[0]) == [("10.58", 7000, 2), ("10.57", 3000, 1), ("10.54", 4000, 1)]
    assert orders_of(book.bids)[0] == ("10.58", 3971, 3000)
    [row] = list(top)
    assert (row["bid_px_00"], row["bid_sz_00"], row["bid_ct_00"]) == (price("10.58"), 7000, 2)
    assert (row["ask_px_00"], row["ask_sz_00"], row["ask_ct_00"]) == (price("11.03"), 9000, 2)


def prices_of(levels: tuple[Level, ...]) -> list[tuple[str | None, int, int | None]]:
    return [(price_text(v), v.size, v.count) for v in levels]


def test_9_2_1_a_previous_size_that_is_not_so_makes_the_book_stale() -> None:
    books = build_books(BIDS, ASKS)
    assert books.apply(rows(order("M", "B", 3971, "10.58", 3000, prev_size=4999))).failed.tolist() == [0]
    assert orders_of(book_of(books).bids) == BIDS
    assert str(book_of(books).stale) == "the previous size 4999 is not the size in the book, 5000"


@pytest.mark.parametrize("by_position", [False, True], ids=["9.6", "legacy 9.5"])
def test_delete_thru_empties_a_side(by_position: bool) -> None:
    books = build_books(BIDS, ASKS, by_position=by_position)
    more = {"position": 1} if by_position else {}
    thru = {"instrument_id": PETR, "action": "R", "side": "B", "update_action": DELETE_THRU, **more}
    assert books.apply(rows(thru)).codes.tolist() == [o.CLEARED]
    assert orders_of(book_of(books).bids) == [] and orders_of(book_of(books).asks) == ASKS
    assert books.apply(rows(thru)).codes.tolist() == [o.CLEARED]  # legacy 14.3: also if it is empty
    assert book_of(books).stale is None


LEGACY_BIDS: Side = [("10.58", None, 5000), ("10.58", None, 4000), ("10.57", None, 3000), ("10.54", None, 4000)]
LEGACY_ASKS: Side = [("11.03", None, 7000), ("11.03", None, 2000), ("11.05", None, 1000)]


def legacy() -> Books:
    books = Books()
    books.set_depth(PETR, 0)  # 264 is absent: orders
    written = []
    for side, entries in (("B", LEGACY_BIDS), ("A", LEGACY_ASKS)):
        for position, (px, _, size) in enumerate(entries, 1):
            written.append({**order("A", side, 0, px, size), "order_id": None, "position": position})
    books.apply(rows_of(written))
    return books


def test_legacy_9_1_orders_stand_by_position() -> None:
    book = book_of(legacy())
    assert orders_of(book.bids) == LEGACY_BIDS and orders_of(book.asks) == LEGACY_ASKS
    assert book.by_position and book.stale is None


def test_legacy_9_an_entry_at_a_position_shifts_the_others() -> None:
    """Ten bids; one more at position 4, then the seventh is deleted."""
    books = Books()
    ten = [order("A", "B", n, str(20 - n), n, position=n) for n in range(1, 11)]
    books.apply(rows_of(ten))
    books.apply(rows(order("A", "B", 99, "16.5", 99, position=4)))
    assert [size for _, _, size in orders_of(book_of(books).bids)] == [1, 2, 3, 99, 4, 5, 6, 7, 8, 9, 10]
    books.apply(rows({"instrument_id": PETR, "action": "C", "side": "B", "position": 7}))
    assert [size for _, _, size in orders_of(book_of(books).bids)] == [1, 2, 3, 99, 4, 5, 7, 8, 9, 10]


@pytest.mark.parametrize("action", ["C", "R"])
def test_legacy_9_4_delete_from_takes_everything_up_to_the_top(action: str) -> None:
    books = legacy()
    row = {"instrument_id": PETR, "action": action, "side": "B", "position": 3, "update_action": DELETE_FROM}
    assert books.apply(rows(row)).codes.tolist() == [o.DELETED]
    assert orders_of(book_of(books).bids) == [("10.54", None, 4000)]
    assert orders_of(book_of(books).asks) == LEGACY_ASKS


F24, N24, SPREAD = 1, 2, 3


def implied_moments(*, by_position: bool) -> Books:
    """Moments 1 to 4 of 14.1; the id of an implied order is larger than that of any ordinary one."""
    books = Books()

    def new(instrument: int, side: str, order_id: int, px: str, size: int, flags: int = 0) -> dict[str, Any]:
        more = {"position": 1} if by_position else {}
        return {**order("A", side, order_id, px, size, flags=flags), "instrument_id": instrument, **more}

    books.apply(rows(new(F24, "B", 100, "6.99", 10), new(N24, "A", 101, "7.34", 10)))
    books.apply(rows(new(SPREAD, "A", 1 << 62, "0.35", 10, IMPLIED)))
    books.apply(rows(new(SPREAD, "A", 102, "0.35", 15)))
    return books


@pytest.mark.parametrize("by_position", [False, True])
def test_14_1_an_implied_order_stands_last_at_its_price(by_position: bool) -> None:
    books = implied_moments(by_position=by_position)
    assert [(each.size, each.implied) for each in book_of(books, SPREAD).asks[0].orders] == [(15, False), (10, True)]
    assert orders_of(book_of(books, F24).bids) == [("6.99", 100, 10)]
    assert orders_of(book_of(books, N24).asks) == [("7.34", 101, 10)]


def test_an_implied_order_stands_last_even_if_its_id_is_the_smallest() -> None:
    books = Books()
    books.apply(rows(order("A", "A", 5, "0.35", 10, flags=IMPLIED), order("A", "A", 9, "0.35", 15)))
    books.apply(rows(order("A", "A", 4, "0.35", 1, flags=IMPLIED), order("A", "A", 8, "0.35", 2)))
    assert [order_id for _, order_id, _ in orders_of(book_of(books).asks)] == [8, 9, 4, 5]


def test_14_3_a_match_with_an_implied_order_by_price() -> None:
    """DELETE of the 15, CHANGE of the implied 10 to 5, CHANGE of both legs, in one message."""
    books = implied_moments(by_position=False)
    change = {"update_action": CHANGE, "prev_size": 10}
    done = books.apply(
        rows(
            {**order("C", "A", 102, "0.35", None), "instrument_id": SPREAD},
            {**order("M", "A", 1 << 62, "0.35", 5, flags=IMPLIED, **change), "instrument_id": SPREAD},
            {**order("M", "B", 100, "6.99", 5, **change), "instrument_id": F24},
            {**order("M", "A", 101, "7.34", 5, flags=LAST, **change), "instrument_id": N24},
        )
    )
    assert done.codes.tolist() == [o.DELETED, o.CHANGED, o.CHANGED, o.CHANGED]
    assert_after_the_match(books)


def test_14_3_a_match_with_an_implied_order_by_position_as_printed() -> None:
    books = implied_moments(by_position=True)
    spread = {"instrument_id": SPREAD, "side": "A"}
    done = books.apply(
        rows(
            {**spread, "action": "C", "update_action": DELETE_FROM, "size": 25, "position": 2},
            {**order("M", "B", 100, "6.99", 5, position=1), "instrument_id": F24},
            {**order("M", "A", 101, "7.34", 5, position=1), "instrument_id": N24},
        )
    )
    assert done.codes.tolist() == [o.DELETED, o.CHANGED, o.CHANGED]
    assert book_of(books, SPREAD).asks == ()
    books.apply(rows({**order("A", "A", 1 << 62, "0.35", 5, flags=IMPLIED, position=1), "instrument_id": SPREAD}))
    assert_after_the_match(books)


def assert_after_the_match(books: Books) -> None:
    [level] = book_of(books, SPREAD).asks
    assert [(each.size, each.implied) for each in level.orders] == [(5, True)]
    assert orders_of(book_of(books, F24).bids) == [("6.99", 100, 5)]
    assert orders_of(book_of(books, N24).asks) == [("7.34", 101, 5)]
    assert all(book_of(books, instrument).stale is None for instrument in (F24, N24, SPREAD))


def test_an_event_of_several_instruments_shows_all_of_them_at_its_end() -> None:
    books = implied_moments(by_position=False)
    _, top = books.apply_top(
        rows(
            {**order("C", "A", 102, "0.35", None), "instrument_id": SPREAD},
            {**order("M", "B", 100, "6.99", 5), "instrument_id": F24},
            {**order("M", "A", 101, "7.34", 5, flags=LAST), "instrument_id": N24},
        ),
        per="end",
    )
    assert [(row["row"], row["instrument_id"]) for row in top] == [(6, SPREAD), (6, F24), (6, N24)]


@pytest.mark.parametrize("side", ["B", "A"])
def test_orders_without_price_stand_first(side: str) -> None:
    """MOA and MOC orders form the level before all others; the smaller id is first (9.1)."""
    books = Books()
    books.apply(rows(*(order("A", side, order_id, px, 100) for order_id, px in ((4, "9.00"), (7, None), (6, None)))))
    found = book_of(books).bids if side == "B" else book_of(books).asks
    assert orders_of(found) == [(None, 6, 100), (None, 7, 100), ("9.00", 4, 100)]


def test_a_lost_priority_is_a_delete_and_a_new_id() -> None:
    """13.4: whatever loses priority comes back with another id, behind the others."""
    books = build_books(BIDS, ASKS)
    books.apply(rows(order("C", "B", 3971, "10.58", 5000), order("A", "B", 3999, "10.58", 6000)))
    assert orders_of(book_of(books).bids)[:2] == [("10.58", 3984, 4000), ("10.58", 3999, 6000)]


def test_lending_is_a_book_of_its_own() -> None:
    books = build_books(BIDS, ASKS)
    books.apply(rows(order("A", "B", 1, "0.5", 10, venue="L"), order("A", "B", 2, "0.4", 10, venue="L")))
    lending = books.book(PETR, lending=True)
    assert lending is not None and orders_of(lending.bids) == [("0.50", 1, 10), ("0.40", 2, 10)]
    assert orders_of(book_of(books).bids) == BIDS


def test_a_retransmitted_order_replaces_what_is_there() -> None:
    books = build_books(BIDS, ASKS)
    assert books.apply(rows(order("A", "B", 3971, "10.57", 1, flags=RECOVERY))).codes.tolist() == [o.REPLACED]
    assert orders_of(book_of(books).bids)[1:3] == [("10.57", 3968, 3000), ("10.57", 3971, 1)]
    assert book_of(books).stale is None
    assert books.apply(rows(order("A", "B", 3971, "10.57", 1))).failed.tolist() == [0]
    assert "3971 is already in the book" in str(book_of(books).stale)


def test_a_retransmitted_order_is_seen_where_it_stood_and_where_it_stands() -> None:
    books = build_books([("10.00", 1, 5), ("9.00", 2, 5), ("8.00", 3, 5)], [])
    for px, seen in (("9.00", 0), ("11.00", 1), ("9.00", 1), ("9.00", 0), ("7.00", 0)):
        _, top = books.apply_top(rows(order("A", "B", 2, px, 6, flags=RECOVERY)))
        assert len(top) == seen, px


def test_a_snapshot_makes_a_stale_book_right_and_what_it_holds_is_old() -> None:
    books = build_books(BIDS, ASKS)
    books.apply(rows(order("C", "B", 1, None, None, rpt_seq=7)))
    assert str(book_of(books).stale) == "order 1 is not in the book"
    start = {"instrument_id": PETR, "action": "R", "side": "N", "flags": SNAPSHOT, "rpt_seq": 20}
    books.apply(rows(start, order("A", "B", 8, "10", 5, flags=SNAPSHOT | LAST, rpt_seq=20)))
    assert book_of(books).stale is None and orders_of(book_of(books).bids) == [("10.00", 8, 5)]
    done = books.apply(rows(order("C", "B", 8, None, None, rpt_seq=20), order("A", "B", 9, "10", 1, rpt_seq=21)))
    assert done.codes.tolist() == [o.ALREADY_APPLIED, o.ADDED] and book_of(books).rpt_seq == 21


@pytest.mark.parametrize("reset", [False, True], ids=["Empty Book", "channel reset"])
def test_rpt_seq_restarts_after_an_empty_book_and_after_a_channel_reset(reset: bool) -> None:
    books = build_books(BIDS, ASKS)
    books.apply(rows(order("C", "B", 1, None, None, rpt_seq=7)))
    books.apply(rows({"instrument_id": None if reset else PETR, "action": "R", "side": "N"}))
    assert book_of(books).stale is None and not book_of(books).bids and not book_of(books).asks
    books.apply(rows(order("A", "B", 1, "10", 1, rpt_seq=3), order("A", "B", 2, "10", 1, rpt_seq=4)))
    assert book_of(books).stale is None and book_of(books).rpt_seq == 4


def test_rpt_seq_that_skips_makes_stale_but_the_row_counts() -> None:
    books = build_books(BIDS, ASKS)
    trade = {"instrument_id": PETR, "action": "T", "side": "N"}
    books.apply(rows({**trade, "rpt_seq": 5}, {**trade, "rpt_seq": 6, "action": "N"}))
    assert book_of(books).stale is None
    books.apply(rows(order("C", "B", 3971, None, None, rpt_seq=9)))
    stale = book_of(books).stale
    assert stale is not None and str(stale) == "rpt_seq 9 after 6" and stale.row == 9
    assert orders_of(book_of(books).bids) == BIDS[1:]
