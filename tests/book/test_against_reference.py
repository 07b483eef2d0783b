"""Whatever happens, in whatever pieces it comes: the engine is equal to the slow, obvious book after every step."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest
from book.random_rows import KINDS, declare_depths, history
from book.reference_book import IMPLIED, LAST, WORDS, ReferenceBook, ReferenceBooks
from book.row_builders import order, rows_of
from hypothesis import given
from hypothesis import strategies as st

from umdf.book.engine import Books
from umdf.book.ladders import Ladders
from umdf.book.views import Book
from umdf.market.families import NULL, NULL_I32

SEEDS = st.integers(0, 2**32)
STEPS = st.integers(1, 80)


def assert_equal(book: Book, reference: ReferenceBook) -> None:
    for side, levels in (("B", book.bids), ("A", book.asks)):
        assert [(v.price, v.size, v.count) for v in levels] == reference.levels(side)
        if not reference.aggregated:
            assert [
                (v.price, o.order_id, o.size, o.firm, o.ts_insert, o.implied) for v in levels for o in v.orders
            ] == [
                (e["price"], e["order_id"], e["size"], e["firm"], e["ts_insert"], bool(e["flags"] & IMPLIED))
                for e in reference.sides[side]
            ]
    assert book.rpt_seq == reference.rpt_seq
    stale = reference.stale
    assert (book.stale and (book.stale.reason, book.stale.row)) == (stale and (WORDS[stale[0]], stale[1]))
    assert book.stale is None or str(book.stale)


def ladder_dicts(ladders: Ladders) -> list[dict[str, Any]]:
    """The rows as the reference writes them."""
    found = []
    for row in ladders:
        sides = {}
        for side in ("bid", "ask"):
            levels = [tuple(row[f"{side}_{what}_{i:02}"] for what in ("px", "sz", "ct")) for i in range(ladders.depth)]
            absent = (NULL, NULL, NULL_I32)
            count = sum(level != absent for level in levels)
            assert levels[count:] == [absent] * (ladders.depth - count)
            sides[side] = [(_known(p), s, None if c == NULL_I32 else c) for p, s, c in levels[:count]]
        found.append({"row": row["row"], "instrument_id": row["instrument_id"], "flags": row["flags"], **sides})
    return found


def _known(value: int) -> int | None:
    return None if value == NULL else value


def expected_ladders(made: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"row": m["row"], "instrument_id": m["key"][0], "flags": m["flags"], "bid": m["bids"], "ask": m["asks"]}
        for m in made
    ]


@pytest.mark.parametrize("kind", KINDS)
@given(seed=SEEDS, steps=STEPS)
def test_every_row_has_the_same_effect_as_in_the_reference_book(kind: str, seed: int, steps: int) -> None:
    rows = history(Random(seed), kind, steps, _prepared_reference(kind))
    books, reference = Books(orders=1, levels=1, books=1), _prepared_reference(kind)
    declare_depths(kind, books)
    for row in rows:
        outcome, _ = reference.apply(row)
        assert books.apply(rows_of([row])).codes.tolist() == [outcome]
        if row["instrument_id"] is None:
            for (instrument, lending), book in reference.books.items():
                assert_equal(_there(books, instrument, lending), book)
        else:
            lending = row["venue"] == "L"
            assert_equal(_there(books, row["instrument_id"], lending), reference.book(row["instrument_id"], lending))


def _prepared_reference(kind: str) -> ReferenceBooks:
    reference = ReferenceBooks()
    declare_depths(kind, reference)
    return reference


def _there(books: Books, instrument: int, lending: bool) -> Book:
    book = books.book(instrument, lending=lending)
    assert book is not None
    return book


@pytest.mark.parametrize("kind", KINDS)
@given(
    seed=SEEDS,
    steps=STEPS,
    depth=st.sampled_from([1, 2, 3, 10]),
    per=st.sampled_from(["event", "end"]),
    cuts=st.lists(st.integers(0, 80), max_size=3),
)
def test_batch_boundaries_restored_states_and_views_change_nothing(
    kind: str, depth: int, per: str, seed: int, steps: int, cuts: list[int]
) -> None:
    rows = history(Random(seed), kind, steps, _prepared_reference(kind))
    books, reference = Books(orders=1, levels=1, books=1), _prepared_reference(kind)
    declare_depths(kind, books)
    outcomes: list[int] = []
    wanted: list[int] = []
    made: list[dict[str, Any]] = []
    ladders: list[dict[str, Any]] = []
    for first, last in _batches(sorted(cuts), len(rows)):
        piece = rows[first:last]
        codes, rows_made = books.apply_depth(rows_of(piece), depth, per)
        outcomes += codes.codes.tolist()
        ladders += ladder_dicts(rows_made)
        for row in piece:
            outcome, more = reference.apply(row, depth, per)
            wanted.append(outcome)
            made += more
        books = Books.from_state(books.state())
    assert outcomes == wanted
    assert ladders == expected_ladders(made)
    for (instrument, lending), book in reference.books.items():
        if books.book(instrument, lending=lending) is not None:
            assert_equal(_there(books, instrument, lending), book)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=SEEDS, steps=STEPS, ways=st.lists(st.sampled_from(["top", "top", "three", "plain", "delete"]), max_size=12))
def test_rows_are_right_whatever_was_done_in_between(kind: str, seed: int, steps: int, ways: list[str]) -> None:
    """What is kept of a book for its next row is not trusted after anybody else has changed it."""
    rows = history(Random(seed), kind, steps, _prepared_reference(kind))
    books, reference = Books(orders=1, levels=1, books=1), _prepared_reference(kind)
    declare_depths(kind, books)
    for place, way in enumerate(ways):
        if way == "delete":
            key = next(iter(reference.books), (0, False))
            assert books.delete(key[0], lending=key[1]) == (reference.books.pop(key, None) is not None)
            continue
        piece = rows[place * len(rows) // len(ways) : (place + 1) * len(rows) // len(ways)]
        depth = 3 if way == "three" else 1
        made = [row for entry in piece for row in reference.apply(entry, depth)[1]]
        if way == "plain":
            books.apply(rows_of(piece))
        else:
            rows_made = ladder_dicts(books.apply_depth(rows_of(piece), depth)[1])
            assert sorted(rows_made, key=_of_book) == sorted(expected_ladders(made), key=_of_book)


@pytest.mark.parametrize("per", ["event", "end"])
@pytest.mark.parametrize("kept", [0, 300])
def test_output_grows_for_any_number_of_channel_resets(per: str, kept: int) -> None:
    """A reset makes a row of every book, so there may be far more rows than came; `kept` are pending before."""
    books, reference = Books(), ReferenceBooks()
    before = [{**order("A", "B", 1, 100, 1), "instrument_id": -n, "flags": 0} for n in range(1, kept + 1)]
    reset = {"instrument_id": None, "action": "R", "side": "N", "rpt_seq": None, "flags": LAST}
    round_ = [{**order("A", "A", 1, 101, 1), "instrument_id": n, "flags": 0} for n in range(1, 9)] + [reset]
    for piece in (before, round_ * 200):
        made = [row for entry in piece for row in reference.apply(entry, 1, per)[1]]
        assert ladder_dicts(books.apply_top(rows_of(piece), per)[1]) == expected_ladders(made)
    assert len(made) >= 8 * 200 * (2 if per == "event" else 1)


def _of_book(row: dict[str, Any]) -> tuple[int, int]:
    """A channel reset makes a row of every book, in an order that a deleted one may have changed."""
    return row["row"], row["instrument_id"]


def _batches(cuts: list[int], count: int) -> list[tuple[int, int]]:
    places = [0, *(min(cut, count) for cut in cuts), count]
    return list(pairwise(places))
