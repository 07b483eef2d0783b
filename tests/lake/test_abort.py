"""A commit that cannot be finished is dropped: wherever that is cut, whoever else still works on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable
from lake.lake_rows import append, day, entry, hashes

from umdf.errors import UmdfError
from umdf.lake.admin import lake_status
from umdf.lake.commit import delta, log, vacuum
from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.commit.log import Intent
from umdf.lake.commit.writer import FaultPoint, Writer, open_writer

SHORT = ("mbo", "gaps")
TABLES = (*SHORT, "ledger")
STEPS = ["abort checked", "abort created", "lease checked", "intent created"]
STEPS += [f"{when} {name}" for name in TABLES for when in ("before", "after")] + ["marker created"]


class CutError(Exception):
    """The process ends here."""


def cut_at(step: str) -> FaultPoint:
    def cut(now: str) -> None:
        if now == step:
            raise CutError

    return cut


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("undisturbed") / "lake"
    with open_writer(root) as writer:
        day(writer, range(2), SHORT)
    return hashes(root)


def begin(root: Path, done: int, step: str = "after ledger", *, damage: bool = True) -> Intent:
    """A lake with some commits, and one more that has moved tables, and that cannot be finished if it is damaged."""
    with open_writer(root) as writer:
        day(writer, range(done), SHORT)
    with open_writer(root, fault=cut_at(step)) as writer, pytest.raises(CutError):
        day(writer, range(done, done + 1), SHORT)
    begun = log.pending(writer.paths)
    assert begun is not None and begun.number == done + 1
    if damage:
        [lost] = [add for change in begun.changes for add in change.adds if add.table == "gaps"]
        os.truncate(root / "gaps" / lost.path, 10)
        with pytest.raises(UmdfError, match=r"gaps.* has 10 bytes instead of .*`umdf lake abort LAKE`"):
            open_writer(root)
    return begun


def refuse_leftovers(root: Path) -> None:
    """Readers of Delta alone see what readers of the lake see, and nothing is left to do."""
    snapshot = open_snapshot(root)
    for name, version in snapshot.marker.versions.items():
        table = DeltaTable(root / name)
        assert (table.version(), set(table.file_uris())) == (version, set(map(str, snapshot.files(name)))), name
    assert lake_status.verify(root, deep=True) == []
    status = lake_status.status(root)
    assert (status.orphans.files, status.pending, status.pending_damage, status.unknown) == (0, None, (), ())
    assert not any(table.changed_by or table.damage for table in status.tables)


def test_an_abort_has_these_steps(tmp_path: Path) -> None:
    begin(tmp_path, 1)
    steps: list[str] = []
    open_writer(tmp_path, abort=True, fault=steps.append).close()
    assert sorted(steps) == sorted(STEPS) and steps[:4] == STEPS[:4] and steps[-1] == STEPS[-1]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("done", [0, 1], ids=["tables were new", "tables were there"])
def test_wherever_an_abort_is_cut_the_lake_ends_as_if_the_commit_had_not_been_begun(
    step: str, done: int, tmp_path: Path, undisturbed: dict[str, str]
) -> None:
    begun, before = begin(tmp_path, done), {name: open_snapshot(tmp_path).rows(name) for name in TABLES}
    with pytest.raises(CutError):
        open_writer(tmp_path, abort=True, fault=cut_at(step))
    assert {name: open_snapshot(tmp_path).rows(name) for name in TABLES} == before
    if step == "abort checked":  # nothing has happened yet
        with pytest.raises(UmdfError, match=f"belongs to unfinished commit {begun.number}"):
            open_writer(tmp_path)
        open_writer(tmp_path, abort=True).close()
    with open_writer(tmp_path) as writer:  # an ordinary writer ends the abort, not the aborted commit
        assert log.is_aborted(writer.paths, begun.number)
        vacuum.delete_orphans(writer)
        refuse_leftovers(tmp_path)
        assert {name: writer.snapshot.rows(name) for name in TABLES} == before
        day(writer, range(2), SHORT)
        vacuum.vacuum(writer, 0.0)
    assert hashes(tmp_path) == undisturbed
    refuse_leftovers(tmp_path)


CHILD = """
import os, signal, sys
from umdf.lake.commit.writer import open_writer

def die(now):
    if now == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

open_writer(sys.argv[1], fault=die, abort=True)
"""


@pytest.mark.parametrize("step", ["abort created", "after mbo"])
def test_an_abort_survives_kill_9(step: str, tmp_path: Path, undisturbed: dict[str, str]) -> None:
    begin(tmp_path, 1)
    done = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path), step])
    assert done.returncode == -signal.SIGKILL
    with open_writer(tmp_path) as writer:
        day(writer, range(2), SHORT)
    assert hashes(tmp_path) == undisturbed


def test_a_commit_is_either_done_or_aborted(tmp_path: Path) -> None:
    """The first marker decides, though both were on their way to make one."""
    begin(tmp_path, 1, damage=False)

    def finish(now: str) -> None:
        if now == "abort checked":
            open_writer(tmp_path, stale_s=-1.0).close()

    with open_writer(tmp_path, abort=True, fault=finish) as writer:
        assert writer.snapshot.number == 2 and not writer.snapshot.marker.aborted
    assert open_snapshot(tmp_path).rows("mbo") == 100


def test_a_slow_writer_cannot_finish_what_was_aborted(tmp_path: Path) -> None:
    other: list[Writer] = []

    def overtake(now: str) -> None:
        if now == "before gaps":
            other.append(open_writer(tmp_path, stale_s=-1.0, abort=True))

    slow = open_writer(tmp_path, fault=overtake)
    with pytest.raises(UmdfError, match="commit 1 was aborted by another process; nothing was committed"):
        day(slow, range(1), SHORT)
    day(other[0], range(1), SHORT)
    other[0].close()
    with open_writer(tmp_path) as writer:
        vacuum.delete_orphans(writer)
        assert (writer.snapshot.rows("mbo"), writer.snapshot.rows("gaps")) == (50, 50)
    refuse_leftovers(tmp_path)


@pytest.mark.parametrize("done", [0, 1], ids=["tables were new", "tables were there"])
def test_what_a_slow_writer_does_after_an_abort_is_taken_back(
    done: int, tmp_path: Path, undisturbed: dict[str, str]
) -> None:
    """It has seen no marker, and then slept; the next writer is at work already, or comes later."""
    begun = begin(tmp_path, done, "before mbo", damage=False)
    changes = {change.table: change for change in begun.changes}
    with open_writer(tmp_path, abort=True) as writer:
        versions = {**writer.snapshot.marker.versions}

    def late(table: str) -> None:
        assert delta.commit(writer.paths, begun, changes[table], versions.get(table)) > versions.get(table, -1)

    def wake(now: str) -> None:
        if now == "before mbo":
            late("mbo")

    with open_writer(tmp_path, fault=wake) as writer:
        writer.commit(append(writer, done, names=SHORT), [entry(done)])
    late_gaps = delta.last_version(tmp_path / "gaps")
    with pytest.raises(UmdfError, match="changed outside umdf"):  # it meets the next writer's commit
        late("gaps")
    assert delta.last_version(tmp_path / "gaps") == late_gaps
    with open_writer(tmp_path) as writer:
        day(writer, range(2), SHORT)
        vacuum.delete_orphans(writer)
    assert hashes(tmp_path) == undisturbed
    refuse_leftovers(tmp_path)


def test_a_table_that_moves_after_an_abort_is_taken_back_by_the_next_writer(tmp_path: Path) -> None:
    begun = begin(tmp_path, 1, "intent created", damage=False)
    open_writer(tmp_path, abort=True).close()
    home, [mbo] = open_snapshot(tmp_path).paths, [change for change in begun.changes if change.table == "mbo"]
    delta.commit(home, begun, mbo, 0)
    assert DeltaTable(tmp_path / "mbo").version() == 1 and open_snapshot(tmp_path).rows("mbo") == 50
    with open_writer(tmp_path) as writer:
        vacuum.delete_orphans(writer)
    refuse_leftovers(tmp_path)


def test_an_abort_lets_a_table_be_mended_that_someone_else_changed_meanwhile(tmp_path: Path) -> None:
    from umdf.lake.commit.writer import restore

    begin(tmp_path, 1, "intent created", damage=False)
    DeltaTable(tmp_path / "mbo").delete()
    for check in (True, False):
        with pytest.raises(
            UmdfError,
            match=r"abort commit 2 with `umdf lake abort LAKE`, then undo it with `umdf lake restore LAKE mbo`",
        ):
            open_writer(tmp_path, check=check)
    open_writer(tmp_path, abort=True).close()
    with pytest.raises(UmdfError, match=r"version 1 is a DELETE.*; undo it with `umdf lake restore LAKE mbo`"):
        open_writer(tmp_path)
    with open_writer(tmp_path, check=False) as writer:
        restore(writer, "mbo")
        day(writer, range(2), SHORT)
    assert open_snapshot(tmp_path).rows("mbo") == 100


def test_a_commit_whose_intent_cannot_be_read_is_reported_and_aborted(tmp_path: Path) -> None:
    begin(tmp_path, 1)
    (tmp_path / "_lake" / "intents" / "00000002.json").write_bytes(b"\xffgarbage")
    [damage] = lake_status.verify(tmp_path)
    assert "00000002.json is damaged" in damage.reason and "`umdf lake abort LAKE`" in damage.repair
    assert lake_status.status(tmp_path).pending == 2
    with pytest.raises(
        UmdfError,
        match=r"commit 2 is unfinished and cannot be read: .*00000002.json is damaged.*`umdf lake abort LAKE`",
    ):
        open_writer(tmp_path)
    with open_writer(tmp_path, abort=True) as writer:
        assert vacuum.delete_orphans(writer).files == 3
    refuse_leftovers(tmp_path)


def test_plain_delta_readers_see_a_killed_commit_by_halves_and_all_of_the_last_one_by_the_versions_of_its_marker(
    tmp_path: Path,
) -> None:
    """What docs/lake.md says about them."""
    begin(tmp_path, 1, "before gaps", damage=False)
    assert [DeltaTable(tmp_path / name).version() for name in SHORT] == [1, 0]
    marker = json.loads(max((tmp_path / "_lake" / "markers-4").glob("*.json")).read_text())
    tables = [DeltaTable(tmp_path / name, version=marker["versions"][name]) for name in SHORT]
    assert [table.to_pyarrow_table().num_rows for table in tables] == [50, 50]
    open_writer(tmp_path).close()
    assert [DeltaTable(tmp_path / name).version() for name in SHORT] == [1, 1]


def test_without_an_unfinished_commit_an_abort_does_nothing(tmp_path: Path) -> None:
    with open_writer(tmp_path) as writer:
        day(writer, range(1), SHORT)
    with open_writer(tmp_path, abort=True) as writer:
        assert writer.abort() is None and writer.snapshot.number == 1
