"""The exchange's book of any instrument at any sequence is the one that the book engine rebuilds from the capture."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from parity.truth import RebuiltChannels, orders_of

from umdf.exchange.bulk.capture import write_capture
from umdf.exchange.bulk.settings import BulkSettings
from umdf.exchange.instruments.listing import generate_listing
from umdf.exchange.truth.book_history import BookHistory
from umdf.sync.session import Until

KINDS = [("sbe", "priority"), ("sbe", "position"), ("fast", "priority"), ("fast", "position")]


@pytest.mark.parametrize(("protocol", "generation"), KINDS, ids=[f"{w}-{g}" for w, g in KINDS])
def test_books_at_random_sequences_are_those_of_the_engine(tmp_path: Path, protocol: str, generation: str) -> None:
    history, settings = BookHistory(), BulkSettings(6_000, 20, protocol, generation, channel_reset=True, seed=3)
    write_capture(settings, tmp_path, history=history)
    index_of = {
        int(number): index
        for index, number in enumerate(generate_listing(settings, np.random.default_rng([3, 0])).security_id)
    }
    last = max(
        row["last_sequence"] for row in RebuiltChannels(tmp_path, ("instruments",)).truth("sequences").to_pylist()
        if row["stream"] == "incremental"
    )  # fmt: skip
    compared = 0
    for sequence in sorted({*random.Random(8).sample(range(1, last), 5), last}):
        rebuilt = RebuiltChannels(tmp_path, ("instruments", "incremental"), Until(sequence=sequence))
        [channel] = rebuilt.replayed.session.channels.values()
        for number in channel.instrument_ids():
            book = history.book_at(protocol, index_of[number], sequence)
            expected = [
                (number, side, position, order.price, order.size, order.order_id, order.firm)
                for side, orders in (("B", book.bids), ("A", book.asks))
                for position, order in enumerate(orders, 1)
            ]
            assert [row for row in orders_of(channel) if row[0] == number] == expected, (sequence, number)
            compared += len(expected)
    assert compared > 500
