"""Copies of a packet: which came first."""

from __future__ import annotations

import numpy as np

from umdf.lake.tasks.duplicates import DuplicateTracker, first_arrivals_by_key


def test_the_first_copy_by_number_is_the_first_copy_by_comparison() -> None:
    chance = np.random.default_rng(1)
    for _ in range(200):
        count, room = int(chance.integers(0, 60)), 30
        number = 1_000 + chance.integers(0, room, count)
        came, line = chance.integers(0, 6, count), chance.integers(0, 3, count).astype(np.uint8)
        expected = first_arrivals_by_key(number, came, line)
        assert DuplicateTracker(1_000, room).first_arrivals(number, came, line).tolist() == expected.tolist()
        for row in expected.tolist():
            mine = np.flatnonzero(number == number[row])
            assert min((came[each], line[each], each) for each in mine) == (came[row], line[row], row)
        assert len(expected) == len(np.unique(number))
