"""Snapshots in a stream: whole or not, by what their headers say."""

from __future__ import annotations

import numpy as np
import pytest

from umdf.market.families import FAMILIES, NULL
from umdf.market.rows import Events, Rows, Units
from umdf.sync.snapshots import find_snapshots


def rows(family: str, units: list[int], **columns: list[int]) -> Rows:
    found = FAMILIES[family]
    numbers = {name: np.array(values, found.column(name).dtype) for name, values in columns.items()}
    zeros = np.zeros(len(units), np.uint16)
    return Rows(found, np.array(units, np.uint32), zeros, zeros, numbers)


def stream(bids: int, offers: int, stats: int, *, said: tuple[int, int, int]) -> Events:
    """Instrument 5 whole with nothing in it, then instrument 6 with this much, each row a packet."""
    units = 20
    header = rows(
        "snapshot",
        [0, 1],
        instrument_id=[5, 6],
        last_sequence=[40, 41],
        total_bids=[0, said[0]],
        total_offers=[0, said[1]],
        total_stats=[0, said[2]],
    )
    actions = [ord("R"), ord("R"), *[ord("A")] * (bids + offers)]
    sides = [*map(ord, "NN" + "B" * bids + "A" * offers)]
    places = [0, 1, *range(2, 2 + bids + offers)]
    book = rows("mbo", places, action=actions, side=sides, instrument_id=[5, *[6] * (1 + bids + offers)])
    first = 2 + bids + offers
    statistics = rows("statistics", list(range(first, first + stats)), instrument_id=[6] * stats)
    numbers = [np.zeros(units, np.int64)] * 5
    return Events(Units(*numbers), {"snapshot": header, "mbo": book, "statistics": statistics})


def test_a_snapshot_with_all_that_its_header_states_is_complete():
    found = find_snapshots(stream(2, 1, 3, said=(2, 1, 3)))
    assert found.is_complete.tolist() == [True, True]
    assert found.incomplete_from == 20
    assert found.last_sequence.tolist() == [40, 41]
    assert found.last_epoch.tolist() == [NULL, NULL]


@pytest.mark.parametrize("said", [(3, 1, 3), (2, 2, 3), (2, 1, 4), (1, 1, 3)])
def test_a_snapshot_with_another_count_is_not(said: tuple[int, int, int]):
    found = find_snapshots(stream(2, 1, 3, said=said))
    assert found.is_complete.tolist() == [True, False]
    assert found.incomplete_from == 1  # its other packets may still come


def test_the_rows_of_one_snapshot_are_found():
    events = find_snapshots(stream(2, 1, 3, said=(2, 1, 3))).events_of(np.array([False, True]))
    assert events.rows("mbo").column("instrument_id").tolist() == [6] * 4
    assert len(events.rows("statistics")) == 3
    assert len(events.rows("snapshot")) == 1


def test_a_snapshot_without_totals_is_complete():
    header = rows("snapshot", [0], instrument_id=[5], last_sequence=[1])
    events = Events(Units(*[np.zeros(1, np.int64)] * 5), {"snapshot": header})
    assert find_snapshots(events).is_complete.tolist() == [True]


def test_rows_before_the_first_header_belong_to_none():
    header = rows("snapshot", [3], instrument_id=[5], last_sequence=[1], total_stats=[0])
    status = rows("status", [0, 1], instrument_id=[NULL, 5])
    found = find_snapshots(Events(Units(*[np.zeros(4, np.int64)] * 5), {"snapshot": header, "status": status}))
    assert found.is_complete.tolist() == [True]
    assert not found.events_of(np.array([True])).rows("status")
