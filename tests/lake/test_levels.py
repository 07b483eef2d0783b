"""mbp_1, tbbo, bbo and the flags of mbo, against plain Python that reads `mbo` row by row and knows no engine."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lake.staged_day import Day, arguments_of, day_of, read

from umdf.exchange.bulk.capture import write_capture
from umdf.exchange.bulk.settings import TRADING_DATE, BulkSettings
from umdf.lake.tasks import books_task
from umdf.market.families import CONDITIONS, FROM_BOOK, LAST, MAYBE_BAD_BOOK, NULL

Top = tuple[int | None, ...]  # bid and ask: price, size, number of orders
LEVELS = ("bid_px_00", "bid_sz_00", "bid_ct_00", "ask_px_00", "ask_sz_00", "ask_ct_00")
KEY = ("seq_version", "sequence", "msg_index", "entry_index")


class PlainBook:
    """Orders by id; the top is looked for among all of them."""

    def __init__(self) -> None:
        self.orders: dict[tuple[str, int], tuple[int | None, int]] = {}

    def apply(self, row: dict[str, Any]) -> None:
        side, order = row["side"], (row["side"], row["order_id"])
        if row["action"] in "AM":
            self.orders[order] = row["price"], row["size"]
        elif row["action"] == "C":
            del self.orders[order]
        elif row["action"] == "R":
            self.orders = {key: value for key, value in self.orders.items() if side not in ("N", key[0])}

    def top(self) -> Top:
        return (*self._best("B"), *self._best("A"))

    def _best(self, side: str) -> Top:
        mine = [order for key, order in self.orders.items() if key[0] == side]
        if not mine:
            return None, None, None
        prices = {price for price, _ in mine}
        known = [price for price in prices if price is not None]
        best = None if None in prices else max(known) if side == "B" else min(known)
        sizes = [size for price, size in mine if price == best]
        return best, sum(sizes), len(sizes)


@pytest.fixture(scope="module", params=["sbe", "fast"])
def clean(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    directory = tmp_path_factory.mktemp("day")
    write_capture(BulkSettings(6_000, 30, request.param, seed=5), directory)
    result = books_task.run(arguments_of(day_of(directory, TRADING_DATE), directory / "lake", directory / "stage"))
    names = ("mbo", "mbp_1", "tbbo", "trades", "bbo_1s", "bbo_1m")
    return {name: read(directory / "lake", [result], name).to_pylist() for name in names}


def walked(rows: list[dict[str, Any]]) -> Any:
    """Each row with the top before its event, and whether its event ends with it (then also the top after it)."""
    books: dict[int, PlainBook] = defaultdict(PlainBook)
    shown: dict[int, Top] = defaultdict(lambda: (None,) * 6)
    for number, row in enumerate(rows):
        instrument = row["instrument_id"]
        books[instrument].apply(row)
        following = rows[number + 1] if number + 1 < len(rows) else None
        same = following is not None and following["instrument_id"] == instrument
        ends = row["flags"] & LAST or not (same and following and following["ts_event"] == row["ts_event"])
        before = shown[instrument]
        if ends:
            shown[instrument] = books[instrument].top()
        yield row, before, bool(ends), shown[instrument]


def test_mbp_1_has_every_change_of_the_top_at_the_end_of_an_event(clean: dict[str, list[dict[str, Any]]]):
    expected = [
        (row["instrument_id"], *(row[name] for name in KEY), *after)
        for row, before, ends, after in walked(clean["mbo"])
        if ends and before != after
    ]
    found = [
        (row["instrument_id"], *(row[name] for name in KEY), *(row[name] for name in LEVELS)) for row in clean["mbp_1"]
    ]
    known = {row[:5] for row in expected} | {
        (row["instrument_id"], *(row[name] for name in KEY)) for row in clean["mbo"]
    }
    deleted = [row for row in found if row[:5] not in known]  # by its definition (7.3): no row of mbo says so
    assert deleted and all(row[5:] == (None,) * 6 for row in deleted)
    assert [row for row in found if row[:5] in known] == expected


def test_every_row_of_mbp_1_is_the_last_of_its_event_wherever_the_mark_is(clean: dict[str, list[dict[str, Any]]]):
    """In Binary the mark may be on a message of another instrument, or on one without any effect on the book."""
    assert clean["mbp_1"] and all(row["flags"] & LAST for row in clean["mbp_1"])


def test_a_row_of_mbp_1_has_the_flag_of_the_cancel_whose_price_it_shows(tmp_path: Path) -> None:
    """Binary version 10 deletes without a price, and the event may end with another message."""
    write_capture(BulkSettings(3_000, 10, "sbe", generation="position", seed=5), tmp_path)
    result = books_task.run(arguments_of(day_of(tmp_path, TRADING_DATE), tmp_path / "lake", tmp_path / "stage"))
    mbo, mbp = (read(tmp_path / "lake", [result], name).to_pylist() for name in ("mbo", "mbp_1"))
    changes, ends = defaultdict[int, list[dict[str, Any]]](list), dict[tuple[Any, ...], dict[str, Any]]()
    for row in sorted(mbo, key=lambda row: [row[name] for name in KEY]):
        if row["action"] in "AMCR":
            changes[row["instrument_id"]].append(row)
        if changes[row["instrument_id"]]:
            ends[row["instrument_id"], *(row[name] for name in KEY)] = changes[row["instrument_id"]][-1]
    shown = [
        (row, ends.get((row["instrument_id"], *(row[name] for name in KEY)))) for row in mbp if row["action"] == "C"
    ]
    assert all(
        change is not None
        and (row["price"], row["size"]) == (change["price"], change["size"])
        and row["flags"] & FROM_BOOK == change["flags"] & FROM_BOOK
        for row, change in shown
    )
    assert any(row["flags"] & FROM_BOOK and row["msg_index"] != change["msg_index"] for row, change in shown if change)


def test_a_trade_has_the_top_before_its_event(clean: dict[str, list[dict[str, Any]]]):
    before = {(row["instrument_id"], *(row[name] for name in KEY)): top for row, top, _, _ in walked(clean["mbo"])}
    assert len(clean["tbbo"]) == sum(trade["action"] == "A" for trade in clean["trades"]) > 0
    for row in clean["tbbo"]:
        key = row["instrument_id"], *(row[name] for name in KEY)
        assert tuple(row[name] for name in LEVELS) == before[key]


@pytest.mark.parametrize(("name", "seconds"), [("bbo_1s", 1), ("bbo_1m", 60)])
def test_best_prices_are_those_after_the_last_update_of_the_interval(
    clean: dict[str, list[dict[str, Any]]], name: str, seconds: int
):
    nothing = CONDITIONS["1"] | CONDITIONS["OUT_OF_SEQUENCE"]
    moving = {
        (trade["instrument_id"], *(trade[key] for key in KEY)): (trade["price"], trade["size"])
        for trade in clean["trades"]
        if trade["action"] == "A" and not trade["conditions"] & nothing
    }
    expected: dict[tuple[int, int], tuple[Any, ...]] = {}
    last: dict[int, tuple[Any, Any]] = defaultdict(lambda: (None, None))
    for row, _, _, after in walked(clean["mbo"]):
        instrument = row["instrument_id"]
        last[instrument] = moving.get((instrument, *(row[key] for key in KEY)), last[instrument])
        interval = ((row["ts_event"] or 0) // (seconds * 10**9) + 1) * seconds * 10**9
        if row["action"] in "AMCRT":
            expected[instrument, interval] = row["ts_event"], row["sequence"], *last[instrument], *after
        elif (instrument, interval) in expected:  # a row that moves no order may end the event of those that did
            expected[instrument, interval] = *expected[instrument, interval][:4], *after
    found = {
        (row["instrument_id"], row["ts_interval"]): (
            row["ts_event"], row["sequence"], row["price"], row["size"], *(row[level] for level in LEVELS),
        )
        for row in clean[name]
    }  # fmt: skip
    assert found == expected and found


def plain_flags(day: Day) -> dict[tuple[int, ...], bool]:
    """Which rows may be wrong: from an update that does not follow on, until a snapshot covers what was lost; and from
    a gap on, if the book had so few updates that a lost Empty Book could have had as many."""
    snapshots: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for found in day.snapshots:
        numbers = found.instrument_id, found.last_sequence, found.header.column("last_rpt_seq"), found.is_complete
        for instrument, sequence, rpt_seq, complete in zip(*(column.tolist() for column in numbers), strict=True):
            if complete:
                snapshots[instrument].append((sequence, 0 if rpt_seq == NULL else rpt_seq))
    flags: dict[tuple[int, ...], bool] = {}
    known: dict[int, int | None] = defaultdict(int)
    stale: dict[int, bool] = defaultdict(bool)
    reached: dict[int, int] = defaultdict(int)
    doubted_since: dict[int, int] = {}  # the first gap that RptSeq does not answer
    for events in day.incremental:
        rows = events.rows("mbo")
        order = np.arange(len(rows))
        sequence = events.units.sequence[rows.unit]
        for at in order.tolist():
            instrument, rpt_seq, number = (
                int(rows.column("instrument_id")[at]),
                int(rows.column("rpt_seq")[at]),
                sequence[at],
            )
            for held, said in sorted(snapshots[instrument]):
                if reached[instrument] <= held < number and (stale[instrument] or (known[instrument] or 0) < said):
                    stale[instrument], known[instrument] = False, said
                if instrument in doubted_since and doubted_since[instrument] <= held < number:
                    del doubted_since[instrument]
            covered = max([held for held, _ in snapshots[instrument] if held < number], default=0)
            gaps = [gap.first for gap in day.gaps if max(reached[instrument], covered) < gap.last < number]
            reached[instrument] = int(number)
            if chr(rows.column("action")[at]) == "R" and chr(rows.column("side")[at]) == "N":
                stale[instrument], known[instrument] = False, None
                doubted_since.pop(instrument, None)
            elif rpt_seq != NULL:
                before = known[instrument]
                if gaps and not stale[instrument] and 0 < (before or 0) <= 32 and rpt_seq == (before or 0) + 1:
                    doubted_since.setdefault(instrument, gaps[0])
                stale[instrument] |= before is not None and rpt_seq != before + 1
                known[instrument] = rpt_seq
            flags[instrument, int(number), int(rows.msg_index[at]), int(rows.entry_index[at])] = (
                stale[instrument] or instrument in doubted_since
            )
    return flags


@pytest.mark.parametrize("seed", [1, 4, pytest.param(2, marks=pytest.mark.full_size)])
@pytest.mark.parametrize("protocol", ["sbe", "fast"])
def test_rows_are_flagged_from_a_loss_until_a_snapshot_and_not_one_more(tmp_path: Path, protocol: str, seed: int):
    write_capture(BulkSettings(8_000, 40, protocol, loss=0.03, seed=seed), tmp_path)
    day = day_of(tmp_path, TRADING_DATE)
    result = books_task.run(arguments_of(day, tmp_path / "lake", tmp_path / "stage", tables=["mbo"]))
    expected = plain_flags(day)
    rows = [row for row in read(tmp_path / "lake", [result], "mbo").to_pylist() if row["instrument_id"] is not None]
    found = {
        (row["instrument_id"], row["sequence"], row["msg_index"], row["entry_index"]): bool(
            row["flags"] & MAYBE_BAD_BOOK
        )
        for row in rows
    }
    assert found == {key: value for key, value in expected.items() if key[0] != NULL}
    assert 0 < sum(found.values()) < len(found)
