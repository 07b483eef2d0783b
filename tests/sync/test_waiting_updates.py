"""Updates that wait: in wire order when they are taken, and never more bytes than allowed."""

from __future__ import annotations

import numpy as np
from sync.test_channel import PETR4, VALE3, events

from umdf.sync.waiting_updates import NOTHING_DROPPED, WaitingUpdates, rows_after


def taken(waiting: WaitingUpdates, *instruments: int) -> list[tuple[int, int]]:
    found = waiting.take(np.array(sorted(instruments)))
    if found is None:
        return []
    rows = found.rows("mbo")
    return list(zip(found.units.sequence[rows.unit].tolist(), rows.column("rpt_seq").tolist(), strict=True))


def test_updates_are_taken_in_wire_order_whenever_they_came():
    waiting = WaitingUpdates()
    waiting.add(events(10, (PETR4, 5, 1), (VALE3, 1, 2), (PETR4, 6, 3)))
    waiting.add(events(4, (PETR4, 4, 4)))
    assert taken(waiting, PETR4) == [(4, 4), (10, 5), (12, 6)]
    assert taken(waiting, PETR4) == [] and taken(waiting, VALE3) == [(11, 1)]
    assert waiting.nbytes == 0 and len(waiting) == 0


def test_taking_some_frees_their_memory():
    waiting = WaitingUpdates()
    waiting.add(events(1, *((PETR4, number, number) for number in range(1, 1000)), (VALE3, 1, 2)))
    before = waiting.nbytes
    taken(waiting, PETR4)
    assert 0 < waiting.nbytes < before / 50


def test_the_oldest_are_dropped_and_it_is_remembered_until_a_snapshot_replaces_them():
    waiting = WaitingUpdates(max_bytes=20_000)
    for first in range(1, 400, 10):
        waiting.add(events(first, *((PETR4, first + at, first + at) for at in range(10))))
    assert waiting.nbytes <= 20_000
    dropped = waiting.dropped_until(PETR4)
    assert dropped > NOTHING_DROPPED
    left = taken(waiting, PETR4)
    assert left[0][0] == dropped + 1 and left[-1][0] == 400
    assert waiting.dropped_until(PETR4) == dropped
    waiting.forget_dropped([PETR4])
    assert waiting.dropped_until(PETR4) == NOTHING_DROPPED


def test_only_updates_after_the_snapshot_of_their_instrument_are_left():
    found = rows_after(events(10, (PETR4, 5, 1), (VALE3, 1, 2), (PETR4, 6, 3)), np.array([PETR4]), {PETR4: 10})
    assert found.units.sequence[found.rows("mbo").unit].tolist() == [11, 12]
