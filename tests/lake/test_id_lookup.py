"""Against numpy, which does the same by comparing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umdf.lake.tasks import id_lookup_kernel as k
from umdf.lake.tasks.id_lookup import count_by_id, distinct_values, indices_of_ids, last_at_or_before, take_records

IDS = st.lists(st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 5, 9, -(2**63)]), max_size=60)


def check_ids(ids: np.ndarray) -> None:
    known, counts = np.unique(ids, return_counts=True)
    found, often = count_by_id(ids)
    order = np.argsort(found)
    assert found[order].tolist() == known.tolist() and often[order].tolist() == counts.tolist()
    assert indices_of_ids(known, ids).tolist() == np.searchsorted(known, ids).tolist()


@given(IDS)
def test_instruments_are_counted_and_found(ids: list[int]) -> None:
    check_ids(np.array(ids, np.int64))


@pytest.mark.parametrize("count", [k.MAX_IDS - 1, k.MAX_IDS, k.MAX_IDS + 1])
def test_more_instruments_than_the_table_has_room_for(count: int) -> None:
    check_ids(np.random.default_rng(1).permutation(np.repeat(np.arange(count) * 64 - 7, 2)))


@given(st.lists(st.integers(-50, 50), max_size=80), st.lists(st.integers(-60, 60), max_size=80), st.booleans())
def test_the_last_that_is_not_larger(keys: list[int], asked: list[int], in_order: bool) -> None:
    held, numbers = np.array(sorted(keys), np.int64), np.array(sorted(asked) if in_order else asked, np.int64)
    assert last_at_or_before(held, numbers).tolist() == (np.searchsorted(held, numbers, side="right") - 1).tolist()


@given(st.lists(st.lists(st.integers(0, 3), max_size=5), max_size=4))
def test_the_values_of_some_columns(columns: list[list[int]]) -> None:
    expected = sorted({value for column in columns for value in column})
    assert distinct_values(*(np.array(column, np.int32) for column in columns)) == expected


def test_records_at_some_rows() -> None:
    kind = np.dtype([("a", "i8"), ("b", "i4"), ("c", "u1")])
    records = np.array([(row, -row, row % 256) for row in range(300)], kind)
    rows = np.array([299, 0, 7, 7])
    assert take_records(records, rows).tolist() == records[rows].tolist()
    assert take_records(records[::3], rows[1:] // 3).tolist() == records[::3][rows[1:] // 3].tolist()
    assert (
        len(take_records(records, np.empty(0, np.int64))) == len(take_records(records[:0], np.empty(0, np.int64))) == 0
    )
