"""A lake commit: all tables or none, exactly once, wherever it is cut."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import deltalake
import polars as pl
import pyarrow as pa
import pytest
from lake.lake_rows import TABLES, append, day, entry, hashes, rows_of, write

from umdf.errors import UmdfError
from umdf.lake import atomic_files, schemas
from umdf.lake.admin import lake_status
from umdf.lake.commit import delta, ledger, vacuum
from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.commit.log import Change
from umdf.lake.commit.writer import Writer, accept, open_writer, restore
from umdf.lake.hashing import logical_hash

SHORT = ("mbo", "gaps")  # of both modes


class CutError(Exception):
    """The process ends here."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("undisturbed") / "lake"
    with open_writer(root) as writer:
        day(writer, range(3), SHORT)
    return hashes(root)


def test_what_is_committed_is_what_is_read(tmp_path: Path) -> None:
    with open_writer(tmp_path / "lake") as writer:
        marker = writer.commit(append(writer, 1), [entry(1)], {"x": [1]})
    snapshot = open_snapshot(tmp_path / "lake")
    assert (marker.number, snapshot.number, snapshot.marker.notes) == (1, 1, {"x": [1]})
    for name in TABLES:
        expected = rows_of(name, 50, 1)
        assert snapshot.rows(name) == 50
        assert snapshot.arrow_table(name).select(expected.schema.names).to_pylist() == expected.to_pylist()
        assert snapshot.logical_hash(name) == logical_hash(expected)
    assert snapshot.rows("news") == 0 and snapshot.arrow_table("news").num_rows == 0
    assert ledger.known_digests(snapshot, [entry(1).digest, entry(2).digest]) == {entry(1).digest}
    assert ledger.entries(snapshot) == [entry(1)]


def test_a_replace_table_has_only_the_last_rows_of_a_partition_and_an_earlier_commit_can_be_read(
    tmp_path: Path,
) -> None:
    with open_writer(tmp_path) as writer:
        day(writer, range(2))
    now, before = open_snapshot(tmp_path), open_snapshot(tmp_path, 1)
    assert now.logical_hash("gaps") == logical_hash(rows_of("gaps", 50, 1))
    assert before.logical_hash("gaps") == logical_hash(rows_of("gaps", 50, 0))
    assert (now.rows("mbo"), before.rows("mbo")) == (100, 50)


def steps_of_a_commit(root: Path) -> list[str]:
    steps: list[str] = []
    with open_writer(root, fault=steps.append) as writer:
        day(writer, range(1), SHORT)
    return steps


def test_a_commit_has_these_steps(tmp_path: Path) -> None:
    steps = steps_of_a_commit(tmp_path)
    assert sorted(steps) == sorted(STEPS)  # tables are committed side by side
    assert steps[:3] == STEPS[:3] and steps[-1] == STEPS[-1]
    assert all(steps.index(f"before {name}") < steps.index(f"after {name}") for name in SHORT)


STEPS = ["files written", "lease checked", "intent created"]
STEPS += [f"{when} {name}" for name in (*SHORT, "ledger") for when in ("before", "after")] + ["marker created"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("at", [1, 2], ids=["first commit", "second commit"])
def test_wherever_it_is_cut_the_lake_ends_as_if_it_had_not_been(
    step: str, at: int, tmp_path: Path, undisturbed: dict[str, str]
) -> None:
    seen = 0

    def cut(now: str) -> None:
        nonlocal seen
        seen += now == step
        if now == step and seen == at:
            raise CutError

    writer = open_writer(tmp_path, fault=cut)
    with pytest.raises(CutError):
        day(writer, range(3), SHORT)
    finished = at if step == "marker created" else at - 1
    visible = open_snapshot(tmp_path)  # nothing half-written: exactly the commits that are done
    assert visible.number == finished
    assert {name: visible.rows(name) for name in SHORT} == {
        name: (50 * min(finished, 1) if name == "gaps" else 50 * finished) for name in SHORT
    }
    writer.close()  # a lease that is let go; a dead process's is taken over below
    with open_writer(tmp_path) as again:
        day(again, range(3), SHORT)
        vacuum.delete_orphans(again)
    assert hashes(tmp_path) == undisturbed
    assert lake_status.verify(tmp_path, deep=True) == []
    status = lake_status.status(tmp_path)
    assert (status.orphans.files, status.pending, status.unknown) == (0, None, ())


CHILD = """
import os, signal, sys
from pathlib import Path
from lake.lake_rows import day
from umdf.lake.commit.writer import open_writer

def die(now):
    if now == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

day(open_writer(Path(sys.argv[1]), fault=die), range(3), ("mbo", "gaps"))
"""


@pytest.mark.parametrize("step", ["files written", "after mbo"])
def test_kill_9_is_survived(step: str, tmp_path: Path, undisturbed: dict[str, str]) -> None:
    environ = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path), step], env=environ)
    assert done.returncode == -signal.SIGKILL
    assert open_snapshot(tmp_path).rows("mbo") == 0
    with open_writer(tmp_path) as writer:  # its process is gone: no waiting for its heartbeat to grow old
        swept = vacuum.delete_orphans(writer)
        assert swept.files == (3 if step == "files written" else 0)
        day(writer, range(3), SHORT)
    assert hashes(tmp_path) == undisturbed


def test_an_intent_whose_files_are_gone_is_a_clear_error(tmp_path: Path) -> None:
    def cut(now: str) -> None:
        if now == "intent created":
            raise CutError

    writer = open_writer(tmp_path, fault=cut)
    with pytest.raises(CutError):
        day(writer, range(1))
    writer.close()
    lost = next((tmp_path / "trades").rglob("part-*.parquet"))
    lost.unlink()
    with pytest.raises(UmdfError, match=r"trades.*is missing, and belongs to unfinished commit 1"):
        open_writer(tmp_path)
    assert open_snapshot(tmp_path).number == 0


def test_two_processes_that_finish_the_same_commit_commit_it_once(tmp_path: Path) -> None:
    """A slow writer goes on with its intent while the next one rolls it forward."""
    other: list[Writer] = []

    def overtake(now: str) -> None:
        if now == "before trades" and not other:
            other.append(open_writer(tmp_path, stale_s=-1.0))
            assert other[0].snapshot.number == 1

    slow = open_writer(tmp_path, fault=overtake)
    day(slow, range(1))
    assert open_snapshot(tmp_path).rows("trades") == 50
    assert delta.last_version(tmp_path / "trades") == 0
    with pytest.raises(UmdfError, match="taken over by"):
        day(slow, range(1, 2))
    day(other[0], range(1, 2))
    assert open_snapshot(tmp_path).rows("trades") == 100


def test_a_slow_writer_cannot_use_its_number_after_a_takeover(tmp_path: Path) -> None:
    """It has asked for its lease, then slept; the next writer sweeps its files, so its commit must fail."""
    other: list[Writer] = []

    def sleep(now: str) -> None:
        if now == "lease checked":
            other.append(open_writer(tmp_path, stale_s=-1.0))
            assert vacuum.delete_orphans(other[0]).files == 5

    slow = open_writer(tmp_path, fault=sleep)
    with pytest.raises(UmdfError, match="another writer created commit 1; nothing was committed"):
        day(slow, range(1))
    day(other[0], range(1))
    assert open_snapshot(tmp_path).number == 2 and lake_status.verify(tmp_path) == []


def test_a_table_with_a_foreign_change_is_named_with_what_to_do(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    with open_writer(tmp_path) as writer:
        day(writer, range(2))
    DeltaTable(tmp_path / "mbo").delete()
    assert open_snapshot(tmp_path).rows("mbo") == 100  # readers stay at the lake's version
    with pytest.raises(
        UmdfError, match=r"table mbo was changed outside umdf: version 2 is a DELETE.*umdf lake restore LAKE mbo"
    ):
        open_writer(tmp_path)
    assert [table.name for table in lake_status.status(tmp_path).tables if table.changed_by] == ["mbo"]
    with open_writer(tmp_path, check=False) as writer:
        restore(writer, "mbo")
    with open_writer(tmp_path) as writer:
        assert writer.snapshot.rows("mbo") == 100
    DeltaTable(tmp_path / "mbo").delete()
    with open_writer(tmp_path, check=False) as writer:
        accept(writer, "mbo")
    with open_writer(tmp_path) as writer:
        assert writer.snapshot.rows("mbo") == 0
        day(writer, range(2, 3))
    assert open_snapshot(tmp_path).rows("mbo") == 50


def test_a_table_that_changes_during_our_commit_is_not_overwritten(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    def touch(now: str) -> None:
        if now == "before mbo" and delta.last_version(tmp_path / "mbo") == 0:
            DeltaTable(tmp_path / "mbo").delete()

    with open_writer(tmp_path) as writer:
        day(writer, range(1))
    with open_writer(tmp_path, fault=touch) as writer, pytest.raises(UmdfError, match="changed outside umdf"):
        day(writer, range(1, 2))
    assert open_snapshot(tmp_path).number == 1


def test_a_commit_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with open_writer(tmp_path) as writer:
        changes = append(writer, 0)
        writer.commit(changes)
        with pytest.raises(UmdfError, match="was not written for commit 2"):
            writer.commit(changes)
        new = write(tmp_path, writer.stamp, "mbo", rows_of("mbo", 5))
        with pytest.raises(UmdfError, match="removes an unknown file"):
            writer.commit([Change("mbo", (), (new,))])
        (tmp_path / "mbo" / new.path).write_bytes(b"cut")
        with pytest.raises(UmdfError, match="has 3 bytes instead of"):
            writer.commit([Change("mbo", (new,))])
    assert open_snapshot(tmp_path).number == 1


def test_a_full_disk_before_the_intent_is_a_clear_error_and_the_lake_is_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*paths: object) -> None:
        raise OSError(28, "No space left on device")

    with open_writer(tmp_path) as writer:
        day(writer, range(1), SHORT)
        monkeypatch.setattr(atomic_files.os, "link", full)
        with pytest.raises(UmdfError, match=r"cannot write .*00000002.json: no space left on the disk; free some"):
            day(writer, range(1, 2), SHORT)
        monkeypatch.undo()
        day(writer, range(1, 2), SHORT)
    assert open_snapshot(tmp_path).rows("mbo") == 100
    assert [path.name for path in (tmp_path / "_lake").rglob(".*")] == []


def test_a_column_that_came_later_is_null_in_older_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import polars

    today = schemas.tables()["mbo"]
    older = dataclasses.replace(today, schema=pa.schema([field for field in today.schema if field.name != "ts_insert"]))
    steps: list[str] = []
    with open_writer(tmp_path, fault=steps.append) as writer:
        with monkeypatch.context() as patch:
            patch.setitem(schemas.tables(), "mbo", older)
            writer.commit([Change("mbo", (write(tmp_path, writer.stamp, "mbo", old_rows(0)),))])
        writer.commit([Change("mbo", (write(tmp_path, writer.stamp, "mbo", rows_of("mbo", 50, 1)),))])
        writer.commit([Change("mbo", (write(tmp_path, writer.stamp, "mbo", rows_of("mbo", 50, 2)),))])
    snapshot = open_snapshot(tmp_path)
    assert snapshot.version("mbo") == 3  # one step more: the column
    expected = [*old_rows(0).to_batches(), *rows_of("mbo", 50, 1).to_batches(), *rows_of("mbo", 50, 2).to_batches()]
    assert snapshot.logical_hash("mbo") == logical_hash(expected)
    assert polars.read_delta(str(tmp_path / "mbo"))["ts_insert"].null_count() >= 50


def old_rows(seed: int) -> pa.Table:
    return rows_of("mbo", 50, seed).drop_columns(["ts_insert"])


def test_other_engines_read_the_log_that_we_write_and_it_has_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "CHECKPOINT_EVERY", 4)
    with open_writer(tmp_path) as writer:
        day(writer, range(7), SHORT)
    snapshot = open_snapshot(tmp_path)
    for name in SHORT:
        rows, theirs = snapshot.arrow_table(name), deltalake.DeltaTable(tmp_path / name)
        assert theirs.version() == 6 and (tmp_path / name / "_delta_log" / "_last_checkpoint").exists()
        assert {step["umdf"].partition(":")[2] for step in theirs.history()} == {str(n) for n in range(1, 8)}
        assert theirs.transaction_version(f"umdf-{snapshot.paths.lake_id}") == 7
        assert sorted(theirs.file_uris()) == sorted(map(str, snapshot.files(name)))
        polars = pl.read_delta(str(tmp_path / name))
        assert (polars.height, polars["channel_id"].unique().to_list()) == (rows.num_rows, [72])
        assert polars["sequence" if name == "mbo" else "first_sequence"].sum() == sum(
            value or 0 for value in rows.column("sequence" if name == "mbo" else "first_sequence").to_pylist()
        )
