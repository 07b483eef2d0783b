"""What the books say of each gap, beside a slow obvious reference; and that it does not matter how a day is cut."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lake.gap_reference import Place, lines_of, reference_gaps
from lake.staged_day import ALL_BUCKETS, Day, arguments_of, day_of, hashes, read, states_of

from umdf.errors import UmdfError
from umdf.exchange.bulk.capture import write_capture
from umdf.exchange.bulk.settings import TRADING_DATE, BulkSettings
from umdf.lake.books.gap_recovery import MAX_LISTED, merge_gap_records
from umdf.lake.plan.gap_timeline import Gap as DayGap
from umdf.lake.plan.gap_timeline import gap_rows
from umdf.lake.plan.planner import ChannelDay
from umdf.lake.schemas import REPLACE, table
from umdf.lake.tasks import books_task
from umdf.market.families import LAST, MAYBE_BAD_BOOK, NULL, SNAPSHOT
from umdf.market.rows import Events, Rows
from umdf.sync.gaps import Gap
from umdf.sync.snapshots import Snapshots

Makes = Callable[[str], Day]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Makes:
    """A day in which books and a channel are emptied and instruments come and go; each made once."""
    made: dict[str, Day] = {}

    def day(protocol: str) -> Day:
        if protocol not in made:
            directory = tmp_path_factory.mktemp("capture")
            write_capture(BulkSettings(5_000, 25, protocol, channel_reset=True, seed=7), directory)
            made[protocol] = day_of(directory, TRADING_DATE)
        return made[protocol]

    return day


# Days with holes


def lossy(day: Day, chance: random.Random, holes: int = 40, snapshots: float = 0.3) -> Day:
    """Without some numbers, chosen so that much is in doubt when it is emptied or deleted; with few snapshots."""
    numbers = np.concatenate([events.units.sequence for events in day.incremental])
    last = int(numbers.max())
    near = [line["sequence"] + step for line in lines_of(day) if line["kind"] != "row" for step in (-2, -1, 1, 2)]
    some = [chance.randint(30, last - 1) for _ in range(holes)] + chance.sample(near, min(len(near), holes))
    gone = np.array(sorted({number for number in some if 30 < number < last} & set(numbers.tolist())))
    found = Day(day.channel_id, day.protocol, day.trading_date, definitions=day.definitions)
    for events in day.incremental:
        found.incremental.append(_kept(events, ~np.isin(events.units.sequence, gone)))
    for every in day.snapshots:
        lot = np.array([chance.random() < snapshots for _ in range(len(every))], np.bool_)
        found.snapshots.append(every.only(lot))
    version = int(day.incremental[0].units.seq_version[0])
    for number in gone.tolist():
        if found.gaps and found.gaps[-1].last == number - 1:
            found.gaps[-1] = replace(found.gaps[-1], last=number)
        else:
            found.gaps.append(Gap(version, number, number, 0))
    return found


def _kept(events: Events, chosen: Any) -> Events:
    return Events(
        events.units, events.take({name: chosen[rows.unit] for name, rows in events.families.items()}).families
    )


def numbered_again(day: Day, number: int) -> Day:
    """The numbers behind `number` as those of a second epoch."""
    found = Day(day.channel_id, day.protocol, day.trading_date, definitions=day.definitions)
    for events in day.incremental:
        later, units = events.units.sequence > number, events.units
        version, sequence = units.seq_version + later, units.sequence - number * later
        found.incremental.append(Events(replace(units, seq_version=version, sequence=sequence), events.families))
    for every in day.snapshots:
        later = every.last_sequence > number
        columns = {
            **every.header.columns,
            "last_sequence": every.last_sequence - number * later,
            "last_seq_version": every.last_epoch + later,
        }
        header = Rows(every.header.family, every.header.unit, every.header.msg_index, every.header.entry_index, columns)
        events = Events(every.events.units, {**every.events.families, "snapshot": header})
        found.snapshots.append(Snapshots(events, header, every.is_complete, every.complete_unit))
    for gap in day.gaps:
        if gap.first <= number < gap.last:
            found.gaps += [replace(gap, last=number), Gap(gap.epoch + 1, 1, gap.last - number, 0)]
        else:
            moved = replace(gap, epoch=gap.epoch + 1, first=gap.first - number, last=gap.last - number)
            found.gaps.append(gap if gap.last <= number else moved)
    return found


def part_of(day: Day, since: Place, until: Place, root: Path, stage: Path, **more: Any) -> dict[str, Any]:
    """Arguments of a run for what is behind `since` and up to `until`."""
    versions = [epoch["seq_version"] for epoch in day.epochs]
    cut = Day(day.channel_id, day.protocol, day.trading_date, definitions=day.definitions)

    def is_within(version: Any, number: Any) -> Any:
        rank = np.array([versions.index(one) if one != NULL else 0 for one in version.tolist()], np.int64)
        place = rank << 40 | number
        return (place > (since[0] << 40 | since[1])) & (place <= (until[0] << 40 | until[1]))

    for events in day.incremental:
        cut.incremental.append(_kept(events, is_within(events.units.seq_version, events.units.sequence)))
    for every in day.snapshots:
        chosen = every.is_complete & is_within(every.last_epoch, every.last_sequence)
        cut.snapshots.append(every.only(chosen))
    cut.gaps = [gap for gap in day.gaps if (versions.index(gap.epoch), gap.first) <= until]
    timeline = cut.timeline | {"epochs": [dict(epoch) for epoch in day.epochs[: until[0] + 1]]}
    timeline["epochs"][-1]["last"] = until[1]
    return arguments_of(cut, root, stage, **more) | {"timeline": timeline}


# Tests


def gap_results(day: Day, merged: list[dict[str, Any]]) -> dict[Place, tuple[list[int], int, int | None]]:
    versions = [epoch["seq_version"] for epoch in day.epochs]
    assert all(each["affected"] == len(each["instruments"]) for each in merged)
    return {
        (versions.index(each["seq_version"]), each["first"]): (each["instruments"], each["open"], each["ts_recovered"])
        for each in merged
    }


@pytest.mark.parametrize(  # a snapshot of FAST does not say its epoch
    ("protocol", "second"), [("sbe", False), ("fast", False), ("sbe", True)], ids=["sbe", "fast", "sbe-numbered-again"]
)
def test_gaps_are_those_of_a_reference_that_keeps_every_book(
    clean: Makes, tmp_path: Path, protocol: str, second: bool, sized: Callable[[int, int], int]
) -> None:
    """Also in several runs, with the state between them, and in several tasks."""
    for seed in range(sized(1, 12)):
        chance = random.Random(seed)
        day, root, stage = lossy(clean(protocol), chance), tmp_path / f"lake-{seed}", tmp_path / f"stage-{seed}"
        last = day.epochs[0]["last"]
        if second:
            day = numbered_again(day, last // 2)
        expected = reference_gaps(day)
        end = len(day.epochs) - 1, day.epochs[-1]["last"]
        whole = books_task.run(part_of(day, (0, 0), end, root, stage))
        assert gap_results(day, merge_gap_records([], [whole["gaps"]])) == expected
        assert any(affected for affected, _, _ in expected.values())
        assert {bool(still) for _, still, _ in expected.values()} == {True, False}
        _compare_runs(day, root, stage, chance, whole, expected)


def _compare_runs(day: Day, root: Path, stage: Path, chance: random.Random, whole: Any, expected: Any) -> None:
    edges: list[Place] = [(rank, number) for rank, number in _seen(day) if chance.random() < 0.002][:5]
    edges = [(0, 0), *edges, (len(day.epochs) - 1, day.epochs[-1]["last"])]
    merged: list[dict[str, Any]] = []
    runs, state = [], None
    for number, (since, until) in enumerate(pairwise(edges)):
        final_before = {"final_before_ns": 0} if until != edges[-1] else {}
        arguments = part_of(day, since, until, root, stage / str(number), state_in=state, **final_before)
        cut = chance.randint(1, 60)
        packs = [ALL_BUCKETS] if number % 2 else [ALL_BUCKETS[:cut], ALL_BUCKETS[cut:]]
        run = [books_task.run(arguments | {"buckets": pack}) for pack in packs]
        merged = merge_gap_records(merged, [result["gaps"] for result in run])
        state = states_of(root, run)
        runs.append(run)
    assert gap_results(day, merged) == expected
    for name in books_task.TABLES:
        if name != "book_state":
            earlier = [] if table(name).mode == REPLACE else [result for run in runs[:-1] for result in run]
            assert hashes(root, runs[-1], [name], earlier) == hashes(root, [whole], [name]), name
    happened, ends = (_states(root, [result for run in runs for result in run], is_end) for is_end in (False, True))
    assert happened == _states(root, [whole], False)
    assert {key: ends[key] for key in _states(root, runs[-1], True)} == _states(root, [whole], True)


def _seen(day: Day) -> list[Place]:
    """The ends of events: where a run can end."""
    versions = [epoch["seq_version"] for epoch in day.epochs]
    found = set[Place]()
    for events in day.incremental:
        rows, units = events.rows("mbo"), events.units
        for unit in rows.unit[rows.column("flags") & LAST != 0].tolist():
            found.add((versions.index(int(units.seq_version[unit])), int(units.sequence[unit])))
    return sorted(found)


def _states(root: Path, manifests: list[dict[str, Any]], is_end: bool) -> dict[Any, Any]:
    rows = read(root, manifests, "book_state").to_pylist()
    chosen = [row for row in rows if (row["flags"] & (SNAPSHOT | LAST) == 0) == is_end]
    if is_end:
        return {row["instrument_id"]: row for row in chosen}  # the last one of each
    return {tuple(row[name] for name in table("book_state").sort if name in row): row for row in chosen}


@pytest.mark.parametrize("protocol", ["sbe", "fast"])
def test_a_deleted_instrument_is_no_longer_unverified(clean: Makes, tmp_path: Path, protocol: str) -> None:
    """Numbers are lost before it is deleted, so that it is in doubt, and behind that; no snapshot comes."""
    whole = clean(protocol)
    deleted = {line["id"]: line["sequence"] for line in lines_of(whole) if line["kind"] == "delete"}
    had = {line["id"] for line in lines_of(whole) if line["kind"] == "row"}
    assert deleted.keys() & had
    version = whole.epochs[0]["seq_version"]
    holes = [number + step for number in deleted.values() for step in (-1, 1)]
    holes = sorted({number for number in holes if number not in deleted.values()})
    day = replace(
        whole,
        incremental=[_kept(events, ~np.isin(events.units.sequence, holes)) for events in whole.incremental],
        gaps=[Gap(version, number, number, 0) for number in holes],
        snapshots=[],
    )
    result = books_task.run(arguments_of(day, tmp_path / "lake", tmp_path / "stage"))
    stale = {one["instrument_id"] for one in result["stale"]}
    assert stale and not stale & deleted.keys()
    states = _states(tmp_path / "lake", [result], True)
    flagged = {number for number, row in states.items() if row["flags"] & MAYBE_BAD_BOOK}
    assert flagged == stale and deleted.keys() & states.keys()
    books = len(states.keys() - deleted.keys())
    assert max(gap["open"] for gap in result["gaps"]) <= books


def test_a_run_whose_timeline_has_forgotten_older_gaps_fails(clean: Makes, tmp_path: Path) -> None:
    day = replace(lossy(clean("sbe"), random.Random(1)), snapshots=[])
    middle = _seen(day)[len(_seen(day)) // 2]
    first = books_task.run(part_of(day, (0, 0), middle, tmp_path / "lake", tmp_path / "first"))
    end = 0, day.epochs[0]["last"]
    forgetful = replace(day, gaps=[gap for gap in day.gaps if gap.first > middle[1]])
    rest = part_of(
        forgetful, middle, end, tmp_path / "lake", tmp_path / "rest", state_in=states_of(tmp_path / "lake", [first])
    )
    with pytest.raises(UmdfError, match=r"unverified because of a gap at .* that the timeline does not have"):
        books_task.run(rest)


def _record(first: int, affected: list[int], still: int, recovered: int | None) -> dict[str, Any]:
    return {"seq_version": 1, "first": first, "instruments": affected, "open": still, "ts_recovered": recovered}


def test_gap_records_of_tasks_and_runs_are_merged() -> None:
    tasks = [[_record(5, [3, 1], 2, None), _record(9, [], 1, 40)], [_record(5, [2], 1, 50)]]
    before = merge_gap_records([], tasks)
    assert [(each["first"], each["instruments"], each["open"], each["ts_recovered"]) for each in before] == [
        (5, [1, 2, 3], 3, 50),
        (9, [], 1, 40),
    ]
    after = merge_gap_records(before, [[_record(5, [1, 4], 0, 30)], [_record(20, [], 7, None)]])
    assert [(each["first"], each["affected"], each["open"], each["ts_recovered"]) for each in after] == [
        (5, 4, 0, 50),
        (9, 0, 0, 40),  # nobody speaks of it any more
        (20, 0, 7, None),
    ]
    assert merge_gap_records(after, []) == after  # no task was run
    many = merge_gap_records(after, [[_record(20, list(range(MAX_LISTED + 5)), 0, 60)]])[-1]
    assert (len(many["instruments"]), many["affected"]) == (MAX_LISTED, MAX_LISTED + 5)


def test_rows_of_the_table_have_how_each_gap_was_recovered() -> None:
    gaps = [DayGap(1, number, number + 1, ts_recv=10, ts_send=20, ts_before=5) for number in (1, 5, 9, 20, 30)]
    day = ChannelDay(72, 0, "sbe", ["A"], [(1, 3, 40)], [0])
    many = list(range(MAX_LISTED + 1))
    merged = merge_gap_records([], [[_record(5, [1], 0, 50), _record(9, [], 0, 40), _record(20, many, 1, 60)]])
    rows = gap_rows(day, gaps, merged)
    names = ("first_sequence", "cause", "recovered_by", "ts_opened", "ts_recovered", "affected", "instruments")
    assert [tuple(row[name] for name in names) for row in rows] == [
        (1, "join", "rpt_seq", 20, 20, 0, []),
        (5, "loss", "snapshot", 20, 50, 1, [1]),
        (9, "loss", "rpt_seq", 20, 40, 0, []),
        (20, "loss", None, 20, None, MAX_LISTED + 1, None),
        (30, "loss", "rpt_seq", 20, 20, 0, []),  # no book was there that it could have put in doubt
    ]
