"""Events between the stages: what goes in comes out, bucket by bucket, whatever columns a batch has."""

from __future__ import annotations

import errno
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umdf.errors import UmdfError
from umdf.lake.stream.staging_file_pool import StagingFilePool
from umdf.lake.tasks import staging
from umdf.lake.tasks.staging import (
    BUCKETS,
    NO_INSTRUMENT,
    StagedFile,
    StagedWriter,
    bucket_of,
    read_staged,
    staged_batches,
)
from umdf.market.families import FAMILIES, NULL
from umdf.market.rows import Events, RepeatingGroup, Rows, Units, strings_of, text_column

ALL = range(BUCKETS + 1)


def events(family: str, ids: list[int], sequence: int = 1, **columns: Any) -> Events:
    """A unit and a row for each id; texts and lists are given as such."""
    count = len(ids)
    numbers = np.arange(sequence, sequence + count, dtype=np.int64)
    units = Units(np.full(count, 72, np.int16), np.full(count, 3), numbers, numbers + 1_000, numbers + 2_000)
    texts = {name: value for name, value in columns.items() if isinstance(value, tuple)}
    lists = {name: value for name, value in columns.items() if isinstance(value, RepeatingGroup)}
    own = {name: value for name, value in columns.items() if name not in (*texts, *lists)}
    own["instrument_id"] = np.array(ids, np.int64)
    place = np.zeros(count, np.uint16)
    return Events(
        units, {family: Rows(FAMILIES[family], np.arange(count, dtype=np.uint32), place, place, own, texts, lists)}
    )


def written(tmp_path: Path, *parts: Events) -> list[StagedFile]:
    writer = StagedWriter(tmp_path / "staged", "one")
    for part in parts:
        writer.add(part)
    return [StagedFile.from_json(made.to_json()) for made in writer.close()]


def test_every_instrument_is_in_one_bucket_and_rows_without_one_stand_alone() -> None:
    ids = np.array([1, 1, 2, NULL, 10**12, -5])
    buckets = bucket_of(ids)
    assert buckets[0] == buckets[1] and buckets[3] == NO_INSTRUMENT
    assert (buckets[[0, 2, 4, 5]] < BUCKETS).all()
    spread = np.bincount(bucket_of(100_000_000 + np.arange(10_000) * 7), minlength=BUCKETS)
    assert spread.min() > 50 and spread.max() < 400


def test_rows_come_back_by_bucket_in_the_order_of_the_wire(tmp_path: Path) -> None:
    ids = [5, 9, 5, 7, NULL, 9, 5]
    staged = written(
        tmp_path, events("mbo", ids, size=np.arange(7)), events("mbo", [5, 9], 100, size=np.array([70, 71]))
    )
    found = []
    for bucket in ALL:
        read = read_staged(staged, "mbo", [bucket])
        rows = read.rows("mbo")
        if len(rows):
            assert (bucket_of(rows.column("instrument_id")) == bucket).all()
            found += list(
                zip(
                    rows.column("instrument_id").tolist(),
                    read.units.sequence.tolist(),
                    rows.column("size").tolist(),
                    strict=True,
                )
            )
    assert sorted(found) == sorted([*zip(ids, range(1, 8), range(7), strict=True), (5, 100, 70), (9, 101, 71)])
    assert [row for row in found if row[0] == 5] == [(5, 1, 0), (5, 3, 2), (5, 7, 6), (5, 100, 70)]
    assert not read_staged(staged, "trades", ALL).families


def test_a_column_that_a_batch_does_not_have_is_null_there(tmp_path: Path) -> None:
    legs = RepeatingGroup(
        np.array([0, 2, 2], np.int32), {"leg_id": np.array([7, 8], np.int64)}, {"leg_symbol": text_column(["A", "B"])}
    )
    first = events("definition", [5, 9], symbol=text_column(["X", "Y"]), legs=legs, tick=np.array([1, 2], np.int64))
    second = events("definition", [5], 10, isin=text_column(["BR"]), round_lot=np.array([100], np.int64))
    together = written(tmp_path / "a", first, second)
    apart = [*written(tmp_path / "b", first), *written(tmp_path / "c", second)]
    for staged in (together, apart):
        read = read_staged(staged, "definition", ALL)
        rows = read.rows("definition")
        order = np.argsort(read.units.sequence)
        assert rows.column("tick")[order].tolist() == [1, 2, NULL]
        assert rows.column("round_lot")[order].tolist() == [NULL, NULL, 100]
        assert [strings_of(rows.texts["symbol"])[at] for at in order] == ["X", "Y", ""]
        assert [strings_of(rows.texts["isin"])[at] for at in order] == ["", "", "BR"]
        mine = rows.lists["legs"].take(order)
        assert mine.offsets.tolist() == [0, 2, 2, 2] and mine.columns["leg_id"].tolist() == [7, 8]
        assert strings_of(mine.texts["leg_symbol"]) == ["A", "B"]
        assert mine.columns["leg_ratio"].tolist() == [NULL, NULL]
    names = {tuple(batch.schema.names) for _, _, batch in staged_batches(apart, "definition", ALL)}
    assert len(names) == 1


def slow_bucket(instrument_id: int) -> int:
    return NO_INSTRUMENT if instrument_id == NULL else (instrument_id * 0x9E3779B97F4A7C15 % 2**64) >> 58


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1) | st.sampled_from([5, 9, NULL]), max_size=40), max_size=5))
def test_rows_of_all_parts_stand_by_bucket_and_instrument_and_in_their_order(parts: list[list[int]]) -> None:
    numbers = iter(range(1 << 20))
    known = [(slow_bucket(one), next(numbers), one) for part in parts for one in part]
    with TemporaryDirectory() as directory:
        first = 1
        some: list[Events] = []
        for part in parts:
            one = events("mbo", part, first, side=np.array([number & 0xFF for number in part], np.uint8))
            one.families["mbo"].unit[:] = one.families["mbo"].unit[::-1]  # a packet of its own, in any order
            some.append(one)
            first += len(part)
        staged = written(Path(directory), *some)
        read = read_staged(staged, "mbo", ALL)
        rows = read.rows("mbo")
        expected = sorted(known, key=lambda each: (each[0], each[2], each[1]))
        assert rows.column("instrument_id").tolist() == [one for _, _, one in expected]
        assert rows.column("side").tolist() == [one & 0xFF for _, _, one in expected]
        sequence = np.concatenate([np.empty(0, np.int64), *(one.units.sequence[::-1] for one in some)])
        assert read.units.sequence.tolist() == sequence[[place for _, place, _ in expected]].tolist()
        assert read.units.channel_id.tolist() == [72] * len(known)
        assert sum((Counter(file.rows) for file in staged), Counter()) == Counter(bucket for bucket, _, _ in known)
        for bucket in {bucket for bucket, _, _ in known}:
            own = read_staged(staged, "mbo", [bucket]).rows("mbo").column("instrument_id").tolist()
            assert own == [one for there, _, one in expected if there == bucket]


def test_neighbouring_buckets_come_together(tmp_path: Path) -> None:
    ids = {bucket: next(one for one in range(1, 10_000) if slow_bucket(one) == bucket) for bucket in (3, 7, 8, 20, 30)}
    staged = written(tmp_path, events("mbo", [*ids.values(), *ids.values()]))
    found = [
        (rows, batch.column("instrument_id").to_pylist())
        for _, rows, batch in staged_batches(staged, "mbo", [7, 20, 3, 30])
    ]
    assert found == [({3: 2, 7: 2}, [ids[3]] * 2 + [ids[7]] * 2), ({20: 2, 30: 2}, [ids[20]] * 2 + [ids[30]] * 2)]


def test_lists_and_texts_of_one_bucket_are_those_of_its_rows(tmp_path: Path) -> None:
    ids = list(range(1, 60))
    sizes = [number % 3 for number in ids]
    offsets = np.cumsum([0, *sizes]).astype(np.int32)
    owners = np.repeat(ids, sizes)
    legs = RepeatingGroup(offsets, {"leg_id": owners}, {"leg_symbol": text_column([f"L{owner}" for owner in owners])})
    staged = written(
        tmp_path, events("definition", ids, symbol=text_column([f"S{number}" for number in ids]), legs=legs)
    )
    for bucket in staged[0].rows:
        rows = read_staged(staged, "definition", [bucket]).rows("definition")
        own = rows.column("instrument_id").tolist()
        assert own == [number for number in ids if slow_bucket(number) == bucket]
        assert strings_of(rows.texts["symbol"]) == [f"S{number}" for number in own]
        inside = [number for number in own for _ in range(number % 3)]
        assert np.diff(rows.lists["legs"].offsets).tolist() == [number % 3 for number in own]
        assert rows.lists["legs"].columns["leg_id"].tolist() == inside
        assert strings_of(rows.lists["legs"].texts["leg_symbol"]) == [f"L{number}" for number in inside]


def test_what_does_not_fit_in_memory_is_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "MAX_BUFFERED_BYTES", 1_000)
    parts = [events("mbo", [5, 9, 5], at) for at in range(1, 300, 3)]
    staged = written(tmp_path, *parts)
    assert len(staged) > 5 and len({file.path for file in staged}) == len(staged)
    read = read_staged(staged, "mbo", [int(bucket_of(np.array([5]))[0])])
    mine = read.units.sequence[read.rows("mbo").column("instrument_id") == 5]
    assert mine.tolist() == [at for start in range(1, 300, 3) for at in (start, start + 2)]


def test_a_full_disk_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    writer = StagedWriter(tmp_path, "one")
    writer.add(events("mbo", [5]))
    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(UmdfError, match="no space left on the disk"):
        writer.close()


def test_a_file_that_is_written_over_holds_only_what_is_new(tmp_path: Path) -> None:
    old = written(tmp_path, events("mbo", [5, 9] * 500, size=np.arange(1000)))
    file_pool = StagingFilePool(tmp_path / "file_pool")
    file_pool.release([(file.family, Path(file.path)) for file in old])
    assert not Path(old[0].path).exists()
    writer = StagedWriter(tmp_path / "staged", "two", file_pool)
    writer.add(events("mbo", [9, 5], 7, size=np.array([1, 2])))
    [made] = writer.close()
    assert not list(file_pool.directory.iterdir()) and Path(made.path).stat().st_size > 16_000, "it was not used"
    read = read_staged([made], "mbo", ALL)
    assert sorted(zip(read.units.sequence.tolist(), read.rows("mbo").column("size").tolist(), strict=True)) == [
        (7, 1),
        (8, 2),
    ]


def test_spare_files_are_taken_once_by_kind_the_longest_first_and_few_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_pool, names = StagingFilePool(tmp_path / "file_pool"), iter(range(100))

    def file(size: int) -> Path:
        path = tmp_path / f"made-{next(names)}"
        path.write_bytes(bytes(size))
        return path

    assert not file_pool.acquire("mbo", tmp_path / "none"), "there is not even a directory"
    file_pool.release([("mbo", file(10)), ("trades", file(30)), ("mbo", file(20))])
    assert file_pool.acquire("mbo", tmp_path / "a") and (tmp_path / "a").stat().st_size == 20
    assert file_pool.acquire("mbo", tmp_path / "b") and (tmp_path / "b").stat().st_size == 10
    assert not file_pool.acquire("mbo", tmp_path / "c") and file_pool.acquire("trades", tmp_path / "c")
    monkeypatch.setattr("umdf.lake.stream.staging_file_pool.MAX_POOL_BYTES", 50)
    file_pool.release([("mbo", file(size)) for size in (10, 40, 20)])
    assert [path.stat().st_size for path in file_pool.directory.iterdir()] == [40]
    file_pool.clear()
    assert not file_pool.directory.exists()
