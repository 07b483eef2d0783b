"""Columns of a table, against the slow and obvious way."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from umdf.lake.books.table_columns import char_array


@given(st.lists(st.integers(0, 255), max_size=300))
def test_letters_come_out_as_they_went_in_and_no_letter_is_null(values: list[int]) -> None:
    column = char_array(np.array(values, np.uint8))
    column.validate(full=True)
    slow = [None if value == 0 else chr(value) if value < 128 else "\ufffd" for value in values]
    assert column.to_pylist() == slow
    assert len(column.dictionary) == len({letter for letter in slow if letter is not None})


def test_every_letter_at_once() -> None:
    values = np.tile(np.arange(256, dtype=np.uint8), 3)[::-1]  # backwards: not one piece of memory
    assert char_array(values).to_pylist()[:256] == ["\ufffd"] * 128 + [chr(value) for value in range(127, 0, -1)] + [
        None
    ]
