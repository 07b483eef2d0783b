"""The same history through FAST (both generations) and Binary (versions 8, 10, 15, 16): the same books."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from parity.random_histories import History, as_events, random_history

from umdf.book.engine import Books
from umdf.market.fast.events import FastEventMapper
from umdf.market.fast.messages import FastMessageMapper
from umdf.market.rows import Events
from umdf.market.sbe.events import SbeEventMapper
from umdf.market.sbe.messages import SbeMessageMapper
from umdf.wire.fast.decode.decoder import Decoder as FastDecoder
from umdf.wire.fast.encode.encoder import Encoder as FastEncoder
from umdf.wire.fast.loader import load as load_templates
from umdf.wire.sbe.decode import Decoder as SbeDecoder
from umdf.wire.sbe.encode import Encoder as SbeEncoder
from umdf.wire.sbe.loader import load as load_schema

SCHEMA, TEMPLATES = load_schema(), load_templates()
SBE, FAST = SbeDecoder(SCHEMA), FastDecoder(TEMPLATES, generated=())
Wire = Callable[[Events], Events]


def through_sbe(version: int) -> Wire:
    encoder, messages, mapper = (
        SbeEncoder(SCHEMA, version),
        SbeMessageMapper(SCHEMA, version),
        SbeEventMapper(SBE.layout),
    )

    def carry(events: Events) -> Events:
        encoded = encoder.encode(*messages.messages(events))
        mapper.reset()
        return mapper.events(SBE.decode(encoded.buffer, encoded.start, encoded.end))

    return carry


def through_fast(incremental: int, snapshot: int) -> Wire:
    encoder, mapper = FastEncoder(TEMPLATES), FastEventMapper(FAST.layout)
    messages = FastMessageMapper(TEMPLATES, incremental=incremental, snapshot=snapshot)

    def carry(events: Events) -> Events:
        encoded = encoder.encode(messages.messages(events))
        return mapper.events(FAST.decode(encoded.buffer, encoded.start, encoded.end))

    return carry


PRIORITY = {"SBE 16": through_sbe(16), "SBE 15": through_sbe(15), "FAST 152": through_fast(152, 153)}
POSITION = {"SBE 8": through_sbe(8), "SBE 10": through_sbe(10), "FAST 145": through_fast(145, 147)}


def book_contents(books: Books) -> list[tuple[object, ...]]:
    """Every order of every book in priority order."""
    found: list[tuple[object, ...]] = []
    for instrument_id, _ in sorted(books.instruments()):
        book = books.book(instrument_id)
        assert book is not None
        assert book.stale is None, str(book.stale)
        for side, levels in (("B", book.bids), ("A", book.asks)):
            for level in levels:
                key = instrument_id, side, level.price
                found += [(*key, order.order_id, order.size, order.firm, order.ts_insert) for order in level.orders]
    return found


def truth(history: History) -> list[tuple[object, ...]]:
    return [
        (instrument, side, order.price, order.order_id, order.size, order.firm, order.ts_insert)
        for instrument, side in sorted(history.books, key=lambda key: (key[0], key[1] != "B"))
        for order in history.books[instrument, side]
    ]


@pytest.mark.parametrize("by_position", [False, True], ids=["priority", "position"])
@given(seed=st.integers(0, 1 << 32), steps=st.integers(1, 120))
def test_both_protocols_carry_the_same_book(by_position: bool, seed: int, steps: int):
    history = random_history(seed, steps, by_position)
    events, expected = as_events(history), truth(history)
    for name, carry in (POSITION if by_position else PRIORITY).items():
        books, carried = Books(), carry(events)
        assert len(carried.rows("mbo")) == len(history.rows), name
        books.apply(carried.rows("mbo"))
        assert book_contents(books) == expected, name


@given(seed=st.integers(0, 1 << 32))
def test_both_generations_end_in_the_same_book(seed: int):
    ends = []
    for by_position in (False, True):
        books = Books()
        books.apply(as_events(random_history(seed, 80, by_position)).rows("mbo"))
        ends.append(book_contents(books))
    assert ends[0] == ends[1]


@given(seed=st.integers(0, 1 << 32))
def test_the_shared_projection_is_equal_row_by_row(seed: int):
    """DESIGN: instrument, order within it, action, side, price, size, order id, firm are equal; times cut to ms."""
    events = as_events(random_history(seed, 60, by_position=False))
    rows = [carry(events).rows("mbo") for carry in PRIORITY.values()]
    for name in ("instrument_id", "action", "side", "price", "size", "order_id", "firm", "rpt_seq", "ts_event"):
        columns = [row.column(name) for row in rows]
        assert all(np.array_equal(columns[0], column) for column in columns[1:]), name
