"""Growth, memory, states, checksums, what is said from outside, and rows that make no sense at all."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from book.random_rows import KINDS, declare_depths, history
from book.reference_book import ReferenceBook, ReferenceBooks
from book.row_builders import PETR, level, order, rows, rows_of
from hypothesis import given
from hypothesis import strategies as st

from umdf.book import memory_layout_kernel as k
from umdf.book import outcomes as o
from umdf.book.engine import MBO_COLUMNS, Books
from umdf.book.input_row_kernel import set_columns
from umdf.book.views import Book
from umdf.buffers import buffer_address
from umdf.market.families import MBO, OUT_OF_RANGE
from umdf.market.rows import Rows

MASK = (1 << 64) - 1


def book_of(books: Books, instrument_id: int = PETR) -> Book:
    book = books.book(instrument_id)
    assert book is not None
    return book


def checksum(book: ReferenceBook) -> int:
    """As documented, in plain Python."""
    value = 0x243F6A8885A308D3
    for number, side in enumerate("BA"):
        for e in book.sides[side]:
            words = [e["size"], e["order_count"]] if book.aggregated else [e["order_id"], e["size"], e["firm"]]
            nulls = [0, -(1 << 31)] if book.aggregated else [-(1 << 63), 0, -(1 << 63)]
            for word, null in zip([number, e["price"], *words], [0, -(1 << 63), *nulls], strict=True):
                value = (value ^ (null if word is None else word) & MASK) * 0x9E3779B97F4A7C15 & MASK
                value ^= value >> 32
    return value - (1 << 64) if value >> 63 else value


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**32))
def test_the_checksum_is_the_documented_one(kind: str, seed: int) -> None:
    reference, books = ReferenceBooks(), Books()
    declare_depths(kind, reference, books)
    books.apply(rows_of(history(Random(seed), kind, 40, reference)))
    for (instrument, lending), book in reference.books.items():
        found = books.book(instrument, lending=lending)
        assert found is None or found.checksum == checksum(book)


def test_equal_books_have_equal_checksums_however_they_came() -> None:
    by_price, by_position = Books(), Books()
    by_price.apply(rows(order("A", "B", 2, "10", 7), order("A", "B", 1, "10", 9), order("M", "B", 1, None, 5)))
    by_position.apply(rows(order("A", "B", 2, "10", 7, position=1), order("A", "B", 1, "10", 5, position=1)))
    assert book_of(by_price).checksum == book_of(by_position).checksum
    by_price.apply(rows(order("M", "B", 1, None, 6)))
    assert book_of(by_price).checksum != book_of(by_position).checksum


def test_everything_grows_from_nothing() -> None:
    books = Books(orders=1, levels=1, books=1)
    written = [
        {**order("A", "BA"[n % 2], n, 1_000 + n * 7 % 500, 1 + n), "instrument_id": n % 97} for n in range(1, 20_000)
    ]
    assert set(books.apply(rows_of(written)).codes) == {o.ADDED}
    assert books.order_count == len(written) == sum(len(book_of(books, i).entries) for i, _ in books.instruments())
    deletes = [{**row, "action": "C"} for row in written[::-1]]
    assert set(books.apply(rows_of(deletes)).codes) == {o.DELETED}
    assert books.order_count == 0


def test_a_living_order_takes_at_most_64_bytes() -> None:
    """Of memory for orders and their hash, when it is full."""
    books = Books(orders=1000)
    room = books.available_orders
    books.apply(rows_of([order("A", "B", n, 100 + n % 50, 1) for n in range(1, room + 1)]))
    assert books.available_orders == 0 and books.order_count == room
    assert books.order_bytes / room <= 64


def test_a_state_is_columns_that_arrow_takes_and_goes_on_where_it_stopped() -> None:
    books = Books()
    books.apply(
        rows(
            order("A", "B", 1, "10", 5, rpt_seq=1), order("A", "A", 2, None, 6, rpt_seq=3), level("A", "B", None, 1, 1)
        )
    )
    state = books.state()
    assert pa.table(state.books).num_rows == 1 and pa.table(state.entries).num_rows == 2
    again = Books.from_state(state)
    assert again.rows_applied == 3
    for these in (books, again):
        assert str(book_of(these).stale) == "rpt_seq 3 after 1"
        these.apply(rows(order("C", "B", 1, "10", None, rpt_seq=4)))
        assert book_of(these).bids == () and book_of(these).rpt_seq == 4


def test_a_deleted_instrument_has_no_book_and_may_come_back() -> None:
    books = Books(orders=1, levels=1, books=1)
    both = [order("A", "B", 1, "10", 5, rpt_seq=8), {**order("A", "B", 1, "10", 5), "instrument_id": 7}]
    books.apply(rows_of(both))
    assert books.delete(PETR) and not books.delete(PETR)
    assert books.book(PETR) is None and books.order_count == 1 and books.instruments() == [(7, False)]
    books.apply(rows(order("A", "B", 2, "11", 6, rpt_seq=1)))
    assert [each.order_id for v in book_of(books).bids for each in v.orders] == [2]
    assert book_of(books).stale is None and len(book_of(books, 7).bids) == 1


def test_an_empty_ordinary_book_does_not_hide_a_lending_book() -> None:
    books = Books()
    books.set_depth(PETR, 0)  # as a definition declares it
    books.apply(rows({"instrument_id": PETR, "action": "N", "side": "N"}))  # a statistic without 1500
    shown = books.shown_book(PETR)
    assert shown is not None and not shown.lending
    books.apply(rows(order("A", "B", 1, "10", 5, venue="L")))
    shown = books.shown_book(PETR)
    assert shown is not None and shown.lending and len(shown.bids) == 1
    books.apply(rows(order("C", "B", 1, "10", 5, venue="L")))
    shown = books.shown_book(PETR)
    assert shown is not None and shown.lending and shown.bids == ()
    books.apply(rows(order("A", "B", 2, "11", 6)))
    shown = books.shown_book(PETR)
    assert shown is not None and not shown.lending
    assert books.shown_book(7) is None


def test_a_deleted_instrument_has_no_lending_book_either() -> None:
    books = Books()
    books.apply(rows(order("A", "B", 1, "10", 5, venue="L")))
    assert books.delete_instrument(PETR) and not books.delete_instrument(PETR)
    assert books.shown_book(PETR) is None and books.instruments() == [] and books.order_count == 0
    books.apply(rows(order("A", "B", 1, "10", 5), order("A", "B", 1, "10", 5, venue="L")))
    assert books.delete_instrument(PETR) and books.instruments() == []


def test_a_depth_declared_later_truncates_the_book() -> None:
    books = Books()
    books.apply(rows(*(level("A", "B", str(px), 1, 1) for px in range(10, 16))))
    books.set_depth(PETR, 2)
    assert [v.price for v in book_of(books).bids] == [15 * 10**9, 14 * 10**9] and book_of(books).depth == 2


def test_mark_stale_makes_a_book_stale() -> None:
    books = Books()
    books.apply(rows(order("A", "B", 1, "10", 5)))
    books.mark_stale(PETR)
    assert str(book_of(books).stale) == "messages are known to be lost"
    _, top = books.apply_top(rows(order("M", "B", 1, None, 6)))
    assert [row["flags"] & 4 for row in top] == [4]


def test_outcomes_and_ladders_in_use_are_not_overwritten() -> None:
    books = Books()
    first, top = books.apply_top(rows(order("A", "B", 1, "10", 5)))
    kept = list(top)
    for n in range(2, 9):
        books.apply_top(rows(order("A", "B", n, str(10 + n), 5), order("C", "B", n - 1, None, None)))
    assert first.codes.tolist() == [o.ADDED] and list(top) == kept


def noise(random: np.random.Generator, count: int) -> Rows:
    """Any bytes in any column, with enough sense that something happens."""
    columns = {}
    for name in MBO_COLUMNS:
        kind = MBO.column(name).dtype
        columns[name] = random.integers(0, 256, count * kind.itemsize, dtype=np.uint8).view(kind).copy()
    few = random.random(count) < 0.9
    for name, values in (
        ("action", b"AMCRTNF"),
        ("side", b"BAN"),
        ("venue", b"LE"),
        ("update_action", bytes(range(7))),
    ):
        columns[name][few] = random.choice(np.frombuffer(values, np.uint8), few.sum())
    for name, most in (("instrument_id", 4), ("order_id", 40), ("price", 30), ("position", 12), ("size", 50)):
        some = random.random(count) < 0.9
        columns[name][some] = random.integers(-2, most, some.sum())
    some = random.random(count) < 0.3
    columns["position"][some] = -(1 << 31)
    columns["rpt_seq"][random.random(count) < 0.8] = -(1 << 63)
    columns["flags"][random.random(count) < 0.5] &= ~32
    empty = np.zeros(count, np.uint16)
    return Rows(MBO, empty.astype(np.uint32), empty, empty, columns)


@given(seed=st.integers(0, 2**32), said=st.sampled_from([None, 0, 1, 3]), depth=st.sampled_from([0, 1, 10]))
def test_random_rows_never_break_the_books(seed: int, said: int | None, depth: int) -> None:
    random = np.random.default_rng(seed)
    books = Books(orders=1, levels=1, books=1)
    if said is not None:
        for instrument in range(-2, 4):
            books.set_depth(instrument, said)
    for _ in range(3):
        some = noise(random, 200)
        done = books.apply_depth(some, depth, "end")[0] if depth else books.apply(some)
        assert all(code in o.OUTCOMES or code in o.REASONS for code in done.codes.tolist())
    total = 0
    for instrument, lending in books.instruments():
        book = books.book(instrument, lending=lending)
        assert book is not None
        assert book.stale is None or str(book.stale)
        total += 0 if book.depth else len(book.entries)
        if not book.by_position:
            for levels, sign in ((book.bids, -1), (book.asks, 1)):
                keys = [(v.price is not None, sign * (v.price or 0)) for v in levels]
                assert keys == sorted(set(keys))
    assert total == books.order_count
    assert [book.checksum for book in all_of(Books.from_state(books.state()))] == [b.checksum for b in all_of(books)]


def all_of(books: Books) -> list[Book]:
    found = [books.book(instrument, lending=lending) for instrument, lending in books.instruments()]
    return [book for book in found if book is not None]


def test_a_value_that_does_not_fit_is_impossible_and_no_priceless_order() -> None:
    books = Books()
    outcomes = books.apply(rows(order("A", "B", 1, None, 5, flags=OUT_OF_RANGE), order("A", "B", 2, None, 5)))
    assert outcomes.codes.tolist() == [k.VALUE_OUT_OF_RANGE, o.ADDED]
    assert str(book_of(books).stale) == "a price or a size that is out of range"


def _gaps(values: np.ndarray) -> np.ndarray:
    wider = np.zeros((len(values), 2), values.dtype)
    wider[:, 0] = values
    return wider[:, 0]


def _frozen(values: np.ndarray) -> np.ndarray:
    copy = values.copy()
    copy.setflags(write=False)
    return copy


@pytest.mark.parametrize("made", [_gaps, _frozen, lambda values: values.astype(np.float64)])
def test_columns_may_be_strided_or_read_only(made: Callable[[np.ndarray], np.ndarray]) -> None:
    some = rows(order("A", "B", 1, "10.00", 100), order("A", "A", 2, "10.05", 300), order("C", "B", 1, "10.00", 100))
    plain, other = Books(), Books()
    wanted = plain.apply(some).codes.tolist()
    for name in ("size", "side", "flags"):
        some.columns[name] = made(some.columns[name])
    del some.columns["order_count"]
    assert other.apply(some).codes.tolist() == wanted == [o.ADDED, o.ADDED, o.DELETED]
    assert book_of(other).checksum == book_of(plain).checksum


def test_columns_of_the_family_are_taken_as_they_are() -> None:
    columns = [np.zeros(3, MBO.column(name).dtype) for name in MBO_COLUMNS]
    table = np.zeros(k.TABLE_WORDS, np.int64)
    table[k.ROWS] = 3
    assert set_columns(buffer_address(table), *columns)
    assert table[k.COLUMNS : k.COLUMNS + len(MBO_COLUMNS)].tolist() == [column.ctypes.data for column in columns]
    assert not set_columns(buffer_address(table), *columns[:-1], columns[-1][:2])
    with pytest.raises(TypeError):
        set_columns(buffer_address(table), *columns[:-1], columns[-1].astype(np.int64))


def test_a_book_from_the_start_expects_rpt_seq_1() -> None:
    books = Books(requires_full_history=True)
    books.apply(rows(order("A", "B", 1, "10", 5, rpt_seq=1), order("A", "B", 2, "10", 5, rpt_seq=2)))
    assert book_of(books).stale is None
    books = Books(requires_full_history=True)
    books.apply(rows(order("A", "B", 1, "10", 5, rpt_seq=7)))
    assert str(book_of(books).stale) == "it starts at rpt_seq 7: what came before is not known"
    books.apply(rows({"instrument_id": PETR, "action": "R", "side": "N"}, order("A", "B", 3, "10", 5, rpt_seq=9)))
    assert book_of(books).stale is None  # an Empty Book is a start as good as any
