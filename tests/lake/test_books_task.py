"""The books task on staged bulk captures: equal to the truth, honest about loss, whatever way the work is cut."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lake.staged_day import ALL_BUCKETS, Day, arguments_of, day_of, hashes, read, staged_files, states_of

from umdf.book.engine import Books
from umdf.errors import UmdfError
from umdf.exchange.bulk.capture import write_capture
from umdf.exchange.bulk.settings import TRADING_DATE, BulkSettings
from umdf.lake.books import state_columns
from umdf.lake.books.derived_levels import derive_mbp_10
from umdf.lake.books.state_record import decode_state_rows
from umdf.lake.hashing import logical_hash
from umdf.lake.parquet.data_files import is_sorted
from umdf.lake.schemas import REPLACE, table
from umdf.lake.tasks import books_task
from umdf.market.families import LAST, MAYBE_BAD_BOOK, SNAPSHOT

KINDS = [("sbe", "priority"), ("sbe", "position"), ("fast", "priority"), ("fast", "position")]
NAMES = [f"{protocol}-{generation}" for protocol, generation in KINDS]
INSTRUMENTS = 16


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory, sized: Callable[[int, int], int]) -> Any:
    """Captures by what they are asked for, each made and decoded once."""
    made: dict[Any, tuple[Path, Day]] = {}

    def capture(
        protocol: str = "sbe", generation: str = "priority", loss: float = 0.0, reset: bool = False, seed: int = 3
    ):
        key = protocol, generation, loss, reset, seed
        if key not in made:
            directory = tmp_path_factory.mktemp("capture")
            settings = BulkSettings(
                sized(3_000, 5_000), INSTRUMENTS, protocol, generation, loss=loss, channel_reset=reset, seed=seed
            )
            write_capture(settings, directory)
            made[key] = directory, day_of(directory, TRADING_DATE)
        return made[key]

    return capture


def truth_of(directory: Path, name: str) -> pa.Table:
    return pq.read_table(directory / "truth" / f"{name}.parquet")


def _mask(rows: pa.Table, name: str, test: Callable[[Any], bool]) -> pa.Array:
    return pa.array([test(value) for value in rows.column(name).to_pylist()], pa.bool_())


def final_books(states: pa.Table) -> Books:
    ends = states.filter(_mask(states, "flags", lambda flags: not flags & (SNAPSHOT | LAST)))
    return state_columns.restore_books(state_columns.decode_states(ends))


def orders_of(books: Books) -> list[tuple[Any, ...]]:
    found = []
    for instrument_id, lending in sorted(books.instruments()):
        book = books.book(instrument_id, lending=lending)
        assert book is not None
        for side, levels in (("A", book.asks), ("B", book.bids)):
            orders = [(level.price, order) for level in levels for order in level.orders]
            found += [
                (instrument_id, side, n, price, o.size, o.order_id, o.firm) for n, (price, o) in enumerate(orders, 1)
            ]
    return found


ORDER = ("instrument_id", "side", "position", "price", "size", "order_id", "firm")


def columns(rows: pa.Table, names: Any) -> list[tuple[Any, ...]]:
    return list(zip(*(rows.column(name).to_pylist() for name in names), strict=True))


@pytest.mark.parametrize("reset", [False, True], ids=["", "reset"])
@pytest.mark.parametrize(("protocol", "generation"), KINDS, ids=NAMES)
def test_a_clean_day_comes_to_the_truth(tmp_path: Path, captures: Any, protocol: str, generation: str, reset: bool):
    directory, day = captures(protocol, generation, reset=reset)
    result = books_task.run(arguments_of(day, tmp_path / "lake", tmp_path / "stage"))
    root = tmp_path / "lake"
    assert result["stale"] == [] and result["gaps"] == []
    orders = truth_of(directory, "final_orders").sort_by([(name, "ascending") for name in ORDER[:3]])
    assert orders_of(final_books(read(root, [result], "book_state"))) == columns(orders, ORDER)
    checks = read(root, [result], "book_check")
    assert set(checks["verdict"].to_pylist()) == {"equal"}
    assert checks.num_rows == sum(int(found.is_complete.sum()) for found in day.snapshots)
    for name in books_task.TABLES:
        rows = read(root, [result], name)
        assert rows.num_rows == result["rows"][name], name
        for file in result["files"][name]:
            assert is_sorted(pq.ParquetFile(root / name / file["path"]).read(), table(name)), name
        if "flags" in rows.schema.names:
            assert not any(flags & MAYBE_BAD_BOOK for flags in rows["flags"].to_pylist()), name
    _compare_trades(root, result, directory)


def _compare_trades(root: Path, result: dict[str, Any], directory: Path) -> None:
    """Sums by instrument, in plain Python over the truth."""
    true = truth_of(directory, "trades").to_pylist()
    expected: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for trade in true:
        sums = expected[trade["instrument_id"]]
        if trade["busted"]:
            sums[3] += 1
        else:
            sums[0] += 1
            sums[1] += trade["size"]
            sums[2] += trade["price"] * trade["size"]
    trades = read(root, [result], "trades")
    made = trades.filter(_mask(trades, "action", lambda action: action == "A"))
    names = ("instrument_id", "trade_id", "price", "size")
    assert sorted(columns(made, names)) == sorted(
        (t["instrument_id"], t["trade_id"], t["price"], t["size"]) for t in true
    )
    for name in ("day_statistics", "ohlcv_1s", "ohlcv_1m", "ohlcv_1h", "ohlcv_1d"):
        found: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
        bars = 0
        for row in read(root, [result], name).to_pylist():
            if row["trade_count"]:
                sums = found[row["instrument_id"]]
                sums[0] += row["trade_count"]
                sums[1] += row["volume"]
                sums[2] += int(row["financial_volume"] * 10**4)
                bars += 1
            if name == "day_statistics":
                assert row["busted"] == expected[row["instrument_id"]][3]
        assert bars
        for instrument_id, (count, volume, notional, _) in expected.items():
            if count:
                assert found[instrument_id][:2] == [count, volume]
                assert abs(found[instrument_id][2] - notional / 10**5) <= bars  # each bar is rounded once
    day = read(root, [result], "day_statistics").to_pylist()
    for row in day:
        count, volume, notional, _ = expected[row["instrument_id"]]
        if count:
            assert row["vwap"] == (2 * notional + volume) // (2 * volume)


@pytest.mark.parametrize("seed", [4])
@pytest.mark.parametrize(("protocol", "generation"), KINDS, ids=NAMES)
def test_with_loss_nothing_wrong_is_shown_as_right(
    tmp_path: Path, captures: Any, protocol: str, generation: str, seed: int
):
    """What is not flagged is in the tables of the same day without loss, exactly so."""
    _, whole = captures(protocol, generation, seed=seed)
    _, day = captures(protocol, generation, 0.02, seed=seed)
    assert day.gaps
    clean = books_task.run(arguments_of(whole, tmp_path / "clean", tmp_path / "stage"))
    lossy = books_task.run(arguments_of(day, tmp_path / "lossy", tmp_path / "stage-2"))
    flagged, recovered = 0, 0
    for name in ("mbo", "mbp_1", "tbbo", "trades", "bbo_1s", "bbo_1m", "ohlcv_1s", "ohlcv_1m", "ohlcv_1h", "ohlcv_1d"):
        rows = read(tmp_path / "lossy", [lossy], name)
        if name == "mbp_1":
            rows = _without_restored(rows)
        there = _rows(read(tmp_path / "clean", [clean], name))
        bits = np.array(rows["flags"].to_pylist())
        assert 0 < np.count_nonzero(bits & MAYBE_BAD_BOOK) < len(bits), name
        right = rows.filter(pa.array((bits & (MAYBE_BAD_BOOK | SNAPSHOT)) == 0))
        if name.startswith("bbo"):  # the last trade is absent where it may have been lost
            unknown = right.filter(_mask(right, "price", lambda price: price is None))
            right, others = (
                right.filter(_mask(right, "price", lambda price: price is not None)),
                read(tmp_path / "clean", [clean], name),
            )
            kept = [column for column in right.schema.names if column not in ("price", "size")]
            assert _rows(unknown.select(kept)) <= _rows(others.select(kept))
        assert not (strange := _rows(right) - there), (name, sorted(strange, key=str)[:3])
        flagged += int(np.count_nonzero(bits & MAYBE_BAD_BOOK))
        recovered += int(np.count_nonzero(bits & SNAPSHOT))
    assert flagged and recovered


def _without_restored(rows: pa.Table) -> pa.Table:
    """Without rows that only say that the same best levels are trusted again."""
    levels = [name for name in rows.schema.names if name[:4] in ("bid_", "ask_")]
    every = rows.select(["instrument_id", "flags", *levels]).to_pylist()
    is_restored = [
        before["flags"] & MAYBE_BAD_BOOK != 0
        and not row["flags"] & MAYBE_BAD_BOOK
        and all(before[name] == row[name] for name in ("instrument_id", *levels))
        for before, row in zip([{"flags": 0}, *every], every, strict=False)
    ]
    return rows.filter(pa.array([not each for each in is_restored]))


def _rows(rows: pa.Table) -> set[tuple[Any, ...]]:
    return set(columns(rows, [name for name in rows.schema.names if name not in {"ts_recv"}]))


def test_after_a_recovery_rows_are_trusted_again_and_books_end_as_they_should(tmp_path: Path, captures: Any):
    directory, day = captures(loss=0.02)
    result = books_task.run(arguments_of(day, tmp_path / "lake", tmp_path / "stage"))
    rows = read(tmp_path / "lake", [result], "mbp_1").to_pylist()
    back = 0
    for row, following in pairwise(rows):
        if row["flags"] & SNAPSHOT:
            assert not row["flags"] & MAYBE_BAD_BOOK
            back += following["instrument_id"] == row["instrument_id"] and not following["flags"] & MAYBE_BAD_BOOK
    assert back
    bad = {one["instrument_id"] for one in result["stale"]}
    found = [
        row for row in orders_of(final_books(read(tmp_path / "lake", [result], "book_state"))) if row[0] not in bad
    ]
    orders = truth_of(directory, "final_orders").sort_by([(name, "ascending") for name in ORDER[:3]])
    assert found == [row for row in columns(orders, ORDER) if row[0] not in bad] and found
    said = {(gap["seq_version"], gap["first"]) for gap in result["gaps"]}
    assert said <= {(gap.epoch, gap.first) for gap in day.gaps} and said
    assert any(gap["instruments"] and gap["ts_recovered"] for gap in result["gaps"])


def test_a_day_that_begins_in_the_middle_is_stale_until_its_snapshots(tmp_path: Path, captures: Any):
    _, whole = captures()
    first = _cut(whole)
    late = whole.part(first, 1 << 60)
    alone = arguments_of(late, tmp_path / "lake", tmp_path / "stage") | {"snapshots": []}
    result = books_task.run(alone)
    rows = read(tmp_path / "lake", [result], "mbo").to_pylist()
    seen: set[int] = set()
    for row in rows:
        begins_right = row["rpt_seq"] == 1 and row["instrument_id"] not in seen
        seen.add(row["instrument_id"])
        assert (
            begins_right
            or row["flags"] & MAYBE_BAD_BOOK
            or row["instrument_id"] in {other["instrument_id"] for other in rows if other["rpt_seq"] == 1}
        )
    recovered = books_task.run(arguments_of(late, tmp_path / "lake", tmp_path / "stage-2"))
    assert len(recovered["stale"]) < len(result["stale"])


@pytest.mark.parametrize("loss", [0.0, 0.02])
@pytest.mark.parametrize("protocol", ["sbe", "fast"])
def test_spans_and_packs_of_buckets_do_not_matter(tmp_path: Path, captures: Any, protocol: str, loss: float):
    _, day = captures(protocol, loss=loss, reset=not loss)
    root, one = tmp_path / "lake", arguments_of(day, tmp_path / "lake", tmp_path / "stage")
    expected = hashes(root, [books_task.run(one)], books_task.TABLES)
    many = arguments_of(day, root, tmp_path / "spans", spans=7)
    assert hashes(root, [books_task.run(many)], books_task.TABLES) == expected
    packs = [ALL_BUCKETS[:5], ALL_BUCKETS[5:40], ALL_BUCKETS[40:]]
    manifests = [books_task.run(many | {"buckets": pack}) for pack in packs]
    assert hashes(root, manifests, books_task.TABLES) == expected


def test_small_groups_and_stretches_do_not_matter(tmp_path: Path, captures: Any, monkeypatch: pytest.MonkeyPatch):
    _, day = captures(loss=0.02)
    root, arguments = tmp_path / "lake", arguments_of(day, tmp_path / "lake", tmp_path / "stage", spans=9)
    expected = hashes(root, [books_task.run(arguments)], books_task.TABLES)
    monkeypatch.setattr(books_task, "MAX_RANGE_ROWS", 300)
    monkeypatch.setattr(books_task, "BUFFERED_ROWS", 100)
    assert hashes(root, [books_task.run(arguments)], books_task.TABLES) == expected


@pytest.mark.parametrize("loss", [0.0, 0.02])
@pytest.mark.parametrize("protocol", ["sbe", "fast"])
def test_a_day_in_two_halves_with_the_state_between_is_the_day_in_one(
    tmp_path: Path, captures: Any, protocol: str, loss: float
):
    _, day = captures(protocol, loss=loss)
    root = tmp_path / "lake"
    whole = books_task.run(arguments_of(day, root, tmp_path / "stage"))
    cut = _cut(day)
    first = books_task.run(arguments_of(day.part(0, cut), root, tmp_path / "first", final_before_ns=_sent(day, cut)))
    states = states_of(root, [first])
    for kept in (pq.ParquetFile(path).read() for path in states):  # many at once are what they are one by one
        assert kept.column("content").to_pylist() == [one.encode() for one in decode_state_rows(kept)]
        assert state_columns.decode_states(kept).to_table().equals(kept)
    second = books_task.run(arguments_of(day.part(cut + 1, 1 << 60), root, tmp_path / "second", state_in=states))
    assert not second["is_late"]
    for name in books_task.TABLES:
        earlier = [] if table(name).mode == REPLACE else [first]
        if name == "book_state":
            ends = (_ends(read(root, some, name)) for some in ([whole], [second]))
            assert next(ends) == next(ends)
        else:
            assert hashes(root, [second], [name], earlier) == hashes(root, [whole], [name]), name


def _sent(day: Day, number: int) -> int:
    """When a number was sent, and a little before."""
    found = [events.units.ts_send[events.units.sequence == number] for events in day.incremental]
    return int(np.concatenate(found)[0]) - 5 * 10**9


def _ends(states: pa.Table) -> list[dict[str, Any]]:
    return states.filter(_mask(states, "flags", lambda flags: not flags & (SNAPSHOT | LAST))).to_pylist()


def _cut(day: Day) -> int:
    """The end of a packet in the middle whose last row ends its event."""
    events = max(day.incremental, key=lambda events: len(events.rows("mbo")))
    rows = events.rows("mbo")
    ends = np.flatnonzero(rows.column("flags") & LAST)
    return int(events.units.sequence[rows.unit[ends[len(ends) // 2]]])


def test_rows_that_are_split_or_out_of_order_fail_the_job(tmp_path: Path, captures: Any):
    _, day = captures()
    arguments = arguments_of(day, tmp_path / "lake", tmp_path / "stage", spans=3)
    with pytest.raises(
        UmdfError, match=r"rows of instrument \d+ are out of order in \w+: sequence \d+ .* after sequence"
    ):
        books_task.run(arguments | {"staged": arguments["staged"][::-1]})
    with pytest.raises(UmdfError, match="out of order"):
        books_task.run(arguments | {"staged": arguments["staged"] * 2})
    mixed = [dict(staged) for staged in arguments["staged"]]
    for staged in mixed:  # the batches are said to be those of other buckets
        staged["rows"] = {str((int(bucket) + 1) % 65): count for bucket, count in staged["rows"].items()}
    with pytest.raises(UmdfError, match=r"instrument \d+ are in bucket \d+ instead of \d+ \("):
        books_task.run(arguments | {"staged": mixed})
    assert not [path for path in (tmp_path / "lake").rglob("*.parquet")]


@pytest.mark.parametrize("loss", [0.0, 0.02])
@pytest.mark.parametrize(("protocol", "generation"), KINDS, ids=NAMES)
def test_derived_mbp_10_equals_stored_mbp_10(
    tmp_path: Path, captures: Any, protocol: str, generation: str, loss: float
):
    _, day = captures(protocol, generation, loss, reset=not loss)
    tables = [*books_task.TABLES, "mbp_10"]
    result = books_task.run(arguments_of(day, tmp_path / "lake", tmp_path / "stage", tables=tables))
    mbo, states, stored = (read(tmp_path / "lake", [result], name) for name in ("mbo", "book_state", "mbp_10"))
    derived = derive_mbp_10(mbo, states)
    assert derived.num_rows == stored.num_rows > 0
    assert logical_hash(derived) == logical_hash(stored)
    top = books_task.run(arguments_of(day, tmp_path / "top", tmp_path / "stage-2"))
    assert hashes(tmp_path / "top", [top], ["mbp_1", "tbbo"]) == hashes(tmp_path / "lake", [result], ["mbp_1", "tbbo"])


def test_only_the_tables_that_are_wanted_are_written(tmp_path: Path, captures: Any):
    _, day = captures()
    arguments = arguments_of(day, tmp_path / "lake", tmp_path / "stage", tables=["ohlcv_1m", "mbo"])
    assert set(books_task.run(arguments)["files"]) == {"ohlcv_1m", "mbo"}


def test_a_task_without_rows_writes_nothing(tmp_path: Path, captures: Any):
    _, day = captures()
    arguments = arguments_of(day, tmp_path / "lake", tmp_path / "stage") | {
        "staged": [],
        "snapshots": staged_files([], tmp_path, "none"),
    }
    result = books_task.run(arguments)
    assert result["files"] == {} and result["open"] == {}
