"""Ranges in batches: the rows of `to_arrow` in the same order, in memory that does not grow with them."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lake.query.query_lakes import FIRST, SECOND
from lake.report_lake import write_lake

import umdf
from umdf.cli.app import run
from umdf.lake.commit.log import Change
from umdf.lake.commit.writer import open_writer
from umdf.lake.parquet.file_writer import FileWriter
from umdf.lake.query import ordering
from umdf.lake.query.ordering import ExternalSorter
from umdf.lake.query.table_reader import sort_rows
from umdf.lake.schemas import table, tables


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Everything above 150 rows is sorted in files; where they are."""
    monkeypatch.setattr(ExternalSorter.__init__, "__defaults__", (150,))
    monkeypatch.setattr(ordering, "RUN_BATCH_ROWS", 16)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def whole(plan: Any, batch_size: int = 100) -> pa.Table:
    batches = list(plan.to_batches(batch_size))
    assert all(0 < batch.num_rows <= batch_size for batch in batches)
    return pa.Table.from_batches(batches, plan.arrow_schema)


@pytest.mark.parametrize("name", list(tables()))
def test_to_batches_gives_the_rows_of_to_arrow_in_order(lake: umdf.Lake, small: Path, name: str) -> None:
    plan = lake.get_range(name)
    assert whole(plan).equals(plan.to_arrow())
    assert not list(small.iterdir())


def test_to_batches_equals_to_arrow_for_joins_definitions_and_continuous_contracts(
    lake: umdf.Lake, small: Path
) -> None:
    for plan in (
        lake.trades_with_quotes(price_type="float"),
        lake.trades_with_quotes(["PETR4", "WINZ26"], quotes="mbp-10", by="ts_recv"),
        lake.definitions("2026-11-16"),
        lake.get_range("mbo", ["WIN.c.0"], stype_in="continuous"),
        lake.get_range("mbp-10", ["PETR4", "WINZ26"], FIRST, columns=["price", "symbol"]),
        lake.get_range("mbo", "PETR4", FIRST, SECOND, exclude_stale=True, price_type="fixed", pretty_ts=False),
    ):
        assert whole(plan).equals(plan.to_arrow()) and plan.to_arrow().num_rows


def test_nothing_is_read_before_the_first_batch_and_nothing_is_left_behind(lake: umdf.Lake, small: Path) -> None:
    plan = lake.get_range("mbo")
    batches = plan.to_batches(10)
    assert plan.stats.files_opened == 0
    assert next(batches).num_rows == 10 and list(small.iterdir())
    batches.close()  # type: ignore[attr-defined]
    assert not list(small.iterdir())
    with pytest.raises(umdf.UmdfError, match="invalid batch_size: 0; use at least 1"):
        plan.to_batches(0)


def test_a_full_temporary_directory_is_one_clear_error(
    lake: umdf.Lake, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pa.ipc, "new_file", full)
    with pytest.raises(umdf.UmdfError, match=r"cannot sort rows in .*: No space left on device; .* TMPDIR"):
        list(lake.get_range("mbo").to_batches())


INSTRUMENTS, ROWS = 40, 1_000


@pytest.fixture(scope="module")
def many_groups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Instrument after instrument, each in a row group of its own, all of them over the whole day."""
    root = tmp_path_factory.mktemp("groups")
    write_lake(root, {"definition": [{"channel_id": 1, "instrument_id": 1, "symbol": "S", "action": "A"}]})
    schema = table("trades").file_schema
    with open_writer(root) as writer:
        blank = {each.name: None if each.nullable else "" if each.type == pa.utf8() else 0 for each in schema}
        with FileWriter(root, "trades", writer.stamp, {"trading_date": FIRST, "channel_id": 1}) as file:
            for n in range(INSTRUMENTS):
                rows = pa.Table.from_pylist([blank | {"instrument_id": n, "seq_version": 1}] * ROWS, schema)
                at = schema.get_field_index("sequence")
                file.write(rows.set_column(at, schema.field(at), pa.array(np.arange(ROWS) * INSTRUMENTS + n)))
        assert file.added is not None
        writer.commit([Change("trades", (file.added,))])
    return root


def test_memory_does_not_grow_with_the_rows(many_groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in Arrow's own pool, which holds every row."""
    monkeypatch.setattr(ExternalSorter.__init__, "__defaults__", (2 * ROWS,))
    monkeypatch.setattr(ordering, "RUN_BATCH_ROWS", 64)
    plan = umdf.Lake(many_groups).get_range("trades")
    before, most, found = pa.total_allocated_bytes(), 0, 0
    for batch in plan.to_batches(ROWS):
        assert batch.column("sequence").to_pylist() == list(range(found, found + batch.num_rows))
        most, found = max(most, pa.total_allocated_bytes() - before), found + batch.num_rows
    assert found == INSTRUMENTS * ROWS
    assert most < plan.to_arrow().nbytes / 4


KEYS = st.tuples(st.integers(1, 3), st.integers(0, 9), st.integers(0, 4), st.integers(0, 1))


@given(st.lists(st.lists(KEYS, max_size=40), max_size=8), st.integers(1, 30))
def test_a_sorter_sorts_as_in_memory_also_where_keys_are_equal(pieces: list[list[Any]], held_rows: int) -> None:
    number, taken = 0, []
    names = ("seq_version", "ts_recv", "sequence", "msg_index")
    for piece in pieces:
        columns = {name: pa.array([row[at] for row in piece], pa.int64()) for at, name in enumerate(names)}
        columns["entry_index"] = pa.array([0] * len(piece), pa.int64())
        columns["place"] = pa.array(range(number, number + len(piece)), pa.int64())
        taken.append(pa.table(columns))
        number += len(piece)
    with ExternalSorter(table("trades"), held_rows) as sorter:
        for rows in taken:
            sorter.add(rows)
        found = [place for rows in sorter.tables() for place in rows.column("place").to_pylist()]
    expected = sort_rows(pa.concat_tables(taken), table("trades")).column("place").to_pylist() if taken else []
    assert found == expected


def test_an_empty_range_has_no_rows(lake: umdf.Lake) -> None:
    noon = "2026-11-13T12:45:05"
    for start, end in ((FIRST, FIRST), (noon, noon), ("2030-01-01", "2030-01-01")):
        for plan in (
            lake.get_range("mbp-10", ["PETR4"], start, end),
            lake.get_range("packets", None, start, end),
            lake.get_range("trades", "WIN.c.0", start, end, stype_in="continuous"),
            lake.trades_with_quotes(None, start, end),
        ):
            assert plan.to_arrow().equals(plan.arrow_schema.empty_table()) and not list(plan.to_batches())
        assert lake.continuous_contracts("WIN.c.0", start, end).num_rows == 0


def test_the_command_explains_an_empty_result(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["query", str(root), "--schema", "trades", "--start", "2026-11-13", "--end", "2026-11-13"]
    assert run(command) == 0
    said = capsys.readouterr()
    assert said.out == "no rows\n" and "empty range: --end is exclusive; for one day, use the next" in said.err
    assert run([*command, "--json"]) == 0
    said = capsys.readouterr()
    assert not said.out and "warning" in json.loads(said.err)
