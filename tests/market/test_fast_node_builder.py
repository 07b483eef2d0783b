"""Values for the encoder: decimals, digits, dates, and what is refused."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umdf.errors import EncodeError
from umdf.market import families as e
from umdf.market.fast.messages import FastMessageMapper
from umdf.market.fast.node_builder import digit_array, split_decimals
from umdf.market.rows import Events, Rows, Units
from umdf.wire.fast.decode.decoder import Decoder
from umdf.wire.fast.encode.encoder import Encoder
from umdf.wire.fast.loader import load

TEMPLATES = load()


@given(
    st.lists(st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(-(10**6), 10**6).map(lambda v: v * 10**7), max_size=20)
)
def test_decimals_are_exact_and_as_short_as_two_decimals_allow(values: list[int]) -> None:
    mantissas, exponents = split_decimals(np.array(values, np.int64), -9)
    for value, mantissa, exponent in zip(values, mantissas.tolist(), exponents.tolist(), strict=True):
        assert Decimal(mantissa).scaleb(exponent) == Decimal(value).scaleb(-9)
        assert exponent == -2 or (-9 <= exponent < -2 and mantissa % 10)


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=30), st.sampled_from([0, 9]))
def test_digits_are_those_of_python(values: list[int | None], width: int) -> None:
    valid = np.array([value is not None for value in values], np.bool_)
    numbers = np.array([value or 0 for value in values], np.int64)
    wanted = [None if v is None else (f"{v:0{width}}" if v >= 0 else f"-{-v:0{width}}").encode() for v in values]
    assert digit_array(numbers, valid, width).to_pylist() == wanted


def events(columns: dict[str, list[int]], instrument: list[int]) -> Events:
    count = len(instrument)
    zero = np.zeros(1, np.int64)
    units = Units(np.zeros(1, np.int16), zero, np.ones(1, np.int64), zero, zero)
    held = {name: np.array(values, e.MBO.column(name).dtype) for name, values in columns.items()}
    held["instrument_id"] = np.array(instrument, np.int64)
    held["ts_event"] = np.full(count, 86_400_000_000_000, np.int64)
    places = np.arange(count, dtype=np.uint16)
    return Events(units, {"mbo": Rows(e.MBO, np.zeros(count, np.uint32), np.zeros(count, np.uint16), places, held)})


def test_an_empty_book_uses_the_template_that_can_encode_it() -> None:
    clear = {"action": [ord("R")], "side": [ord("N")]}
    assert list(FastMessageMapper(TEMPLATES).messages(events(clear, [5]))) == [152]
    assert list(FastMessageMapper(TEMPLATES).messages(events(clear, [e.NULL]))) == [81]
    assert list(FastMessageMapper(TEMPLATES, 145, 147, 149).messages(events(clear, [5]))) == [81]


def test_279_follows_from_the_action_where_it_is_not_given() -> None:
    given_actions = {"action": [ord(letter) for letter in "AMCR"], "side": [ord("B")] * 4}
    encoded = Encoder(TEMPLATES).encode(FastMessageMapper(TEMPLATES).messages(events(given_actions, [5] * 4)))
    batch = Decoder(TEMPLATES).decode(encoded.buffer, encoded.start, encoded.end)
    entries = batch.to_messages()[0].values["MDEntries"]
    assert [entry["MDUpdateAction"] for entry in entries] == [e.NEW, e.CHANGE, e.DELETE, e.DELETE_THRU]


def test_two_events_cannot_be_the_same_entry() -> None:
    twice = events({"action": [65, 65], "side": [66, 66]}, [5, 5])
    twice.rows("mbo").entry_index[:] = 0
    with pytest.raises(EncodeError, match="same message and entry"):
        FastMessageMapper(TEMPLATES).messages(twice)
