"""A lending book (1500=L) beside the ordinary one of its instrument, in the tables: neither hides the other, and both
go with the instrument (7.3, 9.8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from lake.staged_day import Day, arguments_of, read
from lake.test_books_task import final_books, orders_of
from sync.test_channel import PETR4, VALE3, channel_reset, empty_book, events, rows

from umdf.lake.tasks import books_task
from umdf.market.calendar import local_dates
from umdf.market.rows import Events, merge_events

TS = 1_800_000_000 * 10**9
LENT, SOLD = (PETR4, "B", 10), (PETR4, "B", 20)


def lent(sequence: int, rpt_seq: int, order_id: int) -> Events:
    found = events(sequence, (PETR4, rpt_seq, order_id))
    found.rows("mbo").columns["venue"] = np.array([ord("L")], np.uint8)
    return found


def ordinary(sequence: int, rpt_seq: int, order_id: int) -> Events:
    found = events(sequence, (PETR4, rpt_seq, order_id))
    found.rows("mbo").columns["venue"] = np.zeros(1, np.uint8)
    return found


def deletion(sequence: int) -> Events:
    found = rows("definition", [{"instrument_id": PETR4, "action": ord("D")}])
    return Events(ordinary(sequence, 1, 1).units, {"definition": found})


def tables_of(directory: Path, *parts: Events) -> tuple[list[tuple[int, str, int]], list[dict[str, int]]]:
    """The orders of all books at the end (instrument, side, order), and the rows of `mbp_1`."""
    times = [replace(part.units, ts_send=TS + part.units.sequence, ts_recv=TS + part.units.sequence) for part in parts]
    whole = merge_events([Events(units, part.families) for units, part in zip(times, parts, strict=True)])
    day = Day(61, "fast", int(local_dates(np.array([TS]))[0]), [whole])
    result = books_task.run(arguments_of(day, directory / "lake", directory / "stage"))
    assert result["stale"] == []
    orders = orders_of(final_books(read(directory / "lake", [result], "book_state")))
    return [(number, side, each[0]) for number, side, _, _, _, *each in orders], read(
        directory / "lake", [result], "mbp_1"
    ).to_pylist()


def test_an_empty_ordinary_book_does_not_hide_a_lending_book(tmp_path: Path) -> None:
    orders, _ = tables_of(tmp_path, lent(1, 1, 10), empty_book(2, PETR4))
    assert orders == [LENT]


def test_both_books_have_rows_of_their_own(tmp_path: Path) -> None:
    orders, best = tables_of(tmp_path, ordinary(1, 1, 20), lent(2, 1, 10))
    assert sorted(orders) == [LENT, SOLD]
    assert sorted(row["bid_px_00"] for row in best) == [100_000_000, 200_000_000]


@pytest.mark.parametrize("end", [deletion, channel_reset])
def test_a_deleted_instrument_has_no_book_of_either_kind(tmp_path: Path, end: Callable[[int], Events]) -> None:
    last = events(4, (VALE3, 1, 30))
    last.rows("mbo").columns["venue"] = np.zeros(1, np.uint8)
    orders, best = tables_of(tmp_path, ordinary(1, 1, 20), lent(2, 1, 10), end(3), last)
    assert orders == [(VALE3, "B", 30)]
    assert len([row for row in best if row["instrument_id"] == PETR4 and row["bid_px_00"] is None]) == 2
