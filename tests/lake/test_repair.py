"""Damage that a user finds: it is named in one line, with the command that repairs it, and that command does."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable
from lake.captures import NO_BOOKS, files_of, ingest
from lake.captures import day as captured_day
from lake.captures import hashes as hashes_of_all
from lake.lake_rows import day, hashes

from umdf.cli.app import run
from umdf.errors import UmdfError
from umdf.lake.admin import lake_status
from umdf.lake.commit import delta, log
from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.commit.log import Intent
from umdf.lake.commit.repair import rebuild_lost_logs
from umdf.lake.commit.writer import accept, open_writer
from umdf.lake.layout import open_lake_paths

SHORT = ("mbo", "gaps")
Spoil = Callable[[Path], object]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sound") / "lake"
    with open_writer(root) as writer:
        day(writer, range(3), SHORT)
    return root


@pytest.fixture
def root(sound: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sound, tmp_path / "lake")


def entry(root: Path, version: int) -> Path:
    return root / "mbo" / "_delta_log" / f"{version:020d}.json"


LOGS: dict[str, tuple[Spoil, str]] = {
    "first entry": (lambda root: entry(root, 0).unlink(), "00000000000000000000.json is missing"),
    "middle entry": (lambda root: entry(root, 1).unlink(), "00000000000000000001.json is missing"),
    "last entry": (lambda root: entry(root, 2).unlink(), "00000000000000000002.json is missing"),
    "cut entry": (lambda root: entry(root, 1).write_text('{"add":'), "00000000000000000001.json is damaged"),
    "garbage": (lambda root: entry(root, 2).write_bytes(b"\xff\xfe"), "00000000000000000002.json is damaged"),
    "garbage behind": (lambda root: entry(root, 3).write_text("garbage"), "00000000000000000003.json is damaged"),
    "whole log": (lambda root: shutil.rmtree(root / "mbo" / "_delta_log"), "mbo/_delta_log is missing"),
}  # fmt: skip


@pytest.mark.parametrize("damage", LOGS)
def test_a_lost_log_is_named_and_made_again_from_the_lakes_own(root: Path, damage: str) -> None:
    before, (spoil, said) = hashes(root), LOGS[damage]
    spoil(root)
    [status] = [table for table in lake_status.status(root).tables if table.damage]
    assert status.name == "mbo" and said in status.damage and "`umdf lake rebuild LAKE`" in status.damage
    if damage != "garbage behind":  # readers do not need it
        [found] = lake_status.verify(root)
        assert said in found.reason and found.repair == "rebuild it with `umdf lake rebuild LAKE`"
    refused = pytest.raises(
        UmdfError, match=rf"table mbo cannot be read: .*{said}; rebuild it with `umdf lake rebuild LAKE`"
    )
    with refused, open_writer(root) as writer:
        day(writer, range(3, 4), SHORT)
    assert lake_status.status(root).pending is None
    with open_writer(root, check=False) as writer:
        assert rebuild_lost_logs(writer) == ["mbo"] and rebuild_lost_logs(writer) == []
        writer.refuse_foreign_changes()
        assert hashes(root) == before and lake_status.verify(root, deep=True) == []
        day(writer, range(3, 5), SHORT)
    now = open_snapshot(root)
    assert (now.number, now.rows("mbo")) == (6, 250)
    assert pl.read_delta(str(root / "mbo")).height == 250 and DeltaTable(root / "mbo").version() == now.version("mbo")
    assert open_snapshot(root, 4).rows("mbo") == 150
    with pytest.raises(
        UmdfError, match=r"table mbo cannot be read: version 2, of an earlier commit.*; read a later com"
    ):
        open_snapshot(root, 3).rows("mbo")


def test_a_log_that_is_being_made_again_can_be_stopped_at_any_time(root: Path) -> None:
    before = hashes(root)
    shutil.rmtree(root / "mbo" / "_delta_log")
    files = [
        add
        for intent in log.finished_intents(open_lake_paths(root), 1, 3)
        for change in intent.changes
        for add in change.adds
    ]
    with open_writer(root, check=False) as writer:
        stopped = Intent(writer.stamp.commit, writer.lease.token, "stopped", 0)
        mbo = [add for add in files if add.table == "mbo"]
        assert delta.rebuild_log(writer.paths, stopped, "mbo", mbo, 2) == 3  # and no commit
        assert rebuild_lost_logs(writer) == ["mbo"] and writer.snapshot.version("mbo") == 4
    assert hashes(root) == before and lake_status.verify(root) == []


def test_a_log_with_an_accepted_change_is_made_again_and_a_lost_one_of_an_older_lake_is_refused(root: Path) -> None:
    DeltaTable(root / "mbo").optimize.compact()
    with open_writer(root, check=False) as writer:
        accept(writer, "mbo")
    before = hashes(root)
    shutil.rmtree(root / "mbo" / "_delta_log")
    with open_writer(root, check=False) as writer:
        rebuild_lost_logs(writer)
    assert hashes(root) == before and len(open_snapshot(root).files("mbo")) == 1
    accepted = root / "_lake" / "intents" / "00000004.json"
    accepted.write_text(accepted.read_text().replace('"changes":[{"table":"mbo"', '"changes":[{"table":"gaps"'))
    shutil.rmtree(root / "mbo" / "_delta_log")
    with (
        open_writer(root, check=False) as writer,
        pytest.raises(UmdfError, match=r"commit 4 does not list its files; in"),
    ):
        rebuild_lost_logs(writer)


def test_a_lost_log_below_an_unfinished_commit_needs_an_abort_first(root: Path) -> None:
    (root / "_lake" / "markers-4" / "00000003.json").unlink()  # the commit is unfinished again
    entry(root, 1).unlink()
    entry(root, 2).unlink()
    for check in (True, False):
        with pytest.raises(
            UmdfError,
            match=r"1.json is missing; abort commit 3 with `umdf lake abort LAKE`, then rebuild it with `umdf lake reb",
        ):
            open_writer(root, check=check)
    open_writer(root, abort=True).close()
    with open_writer(root, check=False) as writer:
        assert rebuild_lost_logs(writer) == ["mbo"]
        day(writer, range(3), SHORT)
    assert open_snapshot(root).rows("mbo") == 150 and lake_status.verify(root) == []


COMMANDS = (["status"], ["verify"], ["vacuum"], ["compact"], ["restore", "mbo"], ["accept", "mbo"], ["abort"])
FILES: dict[str, tuple[Spoil, str]] = {
    "no lake.json": (lambda root: (root / "lake.json").unlink(), "lake.json is missing from an existing lake"),
    "garbage in lake.json": (lambda root: (root / "lake.json").write_bytes(b"\xff"), "lake.json is damaged"),
    "another lake.json": (lambda root: (root / "lake.json").write_text("[1]"), "lake.json is damaged"),
    "half a lake.json": (lambda root: (root / "lake.json").write_text('{"layout": 2}'), "lake.json is damaged"),
    "garbage in a marker": (
        lambda root: (root / "_lake/markers-4/00000003.json").write_bytes(b"\xff\0"),
        "markers/00000003.json is damaged",
    ),
    "another marker": (
        lambda root: (root / "_lake/markers-4/00000003.json").write_text('{"a": 1}'),
        "delete it, then run `umdf lake vacuum LAKE`, which restores it",
    ),
    "no markers": (
        lambda root: shutil.rmtree(root / "_lake/markers-4"),
        "markers/00000001.json is missing, but commit 3 follows it",
    ),
    "garbage in the lease": (
        lambda root: next((root / "_lake/leases").iterdir()).write_text("garbage"),
        "if no other process writes to this lake, delete that file",
    ),
    "a stranger": (lambda root: (root / "_lake/markers-4/notes.txt").write_text("mine"), ""),
    "no log": (lambda root: shutil.rmtree(root / "mbo" / "_delta_log"), "rebuild it with `umdf lake rebuild LAKE`"),
    "no table": (lambda root: shutil.rmtree(root / "mbo"), "lake/mbo is missing; rebuild it with `umdf lake rebuild"),
    "no ledger": (lambda root: shutil.rmtree(root / "ledger"), "ledger is missing; ingest the captures into a new"),
    "no file": (
        lambda root: open_snapshot(root).files("mbo")[0].unlink(),
        "rebuild it with `umdf lake rebuild LAKE --date 2026-11-13 --channel 72`",
    ),
    "a cut file": (
        lambda root: open_snapshot(root).files("mbo")[0].write_bytes(b"cut"),
        "rebuild it with `umdf lake rebuild LAKE --date 2026-11-13 --channel 72`",
    ),
    "a cut file of the ledger": (
        lambda root: open_snapshot(root).files("ledger")[0].write_bytes(b"cut"),
        "ingest the captures into a new lake",
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", FILES)
def test_whatever_is_damaged_every_command_says_so_in_a_line(
    root: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, said = FILES[damage]
    spoil(root)
    told = []
    for command in COMMANDS:
        code = run(["lake", command[0], str(root), *command[1:]])
        shown = capsys.readouterr()
        told.append(shown.out + shown.err)
        assert code in (0, 3) and "a bug" not in shown.err and shown.err.count("\n") == (code != 0), shown.err
    assert any(said in each for each in told), told


def test_a_marker_that_was_damaged_is_made_again(root: Path) -> None:
    before, marker = hashes(root), root / "_lake" / "markers-4" / "00000003.json"
    intact = marker.read_text()
    marker.unlink()
    assert lake_status.verify(root) == [] and lake_status.status(root).pending == 3
    assert run(["lake", "vacuum", str(root)]) == 0
    assert marker.read_text() == intact and hashes(root) == before


def test_rebuild_makes_a_lost_table_and_a_cut_file_again(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "lake"
    ingest(root, files_of(captured_day(tmp_path_factory.mktemp("captures"), 1_500)), tables=NO_BOOKS)
    before = hashes_of_all(root)
    shutil.rmtree(root / "status")
    open_snapshot(root).files("packets")[0].write_bytes(b"cut")
    assert run(["lake", "verify", str(root)]) == 3
    said = capsys.readouterr().err
    assert "2 damaged files" in said and "rebuild it with `umdf lake rebuild LAKE`" in said
    assert run(["lake", "rebuild", str(root), "--no-spark", "--json"]) == 0
    capsys.readouterr()
    assert lake_status.verify(root, deep=True) == []
    now = hashes_of_all(root)
    assert {name: now[name] for name in NO_BOOKS} == {name: before[name] for name in NO_BOOKS}


@pytest.mark.parametrize("name", ["a%20b", "a\nb", "a\\b", "a\x1bb"])
def test_a_directory_that_delta_would_misread_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UmdfError, match=r"unsupported lake path: (.|\n)*; readers of Delta"):
        open_writer(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["100% sure", "a[1]b", "a|b^c", "a b#c?d*e", "ção"])
def test_other_directories_are_lakes(tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    with open_writer(root) as writer:
        day(writer, range(2), SHORT)
    shutil.rmtree(root / "mbo" / "_delta_log")
    with open_writer(root, check=False) as writer:
        rebuild_lost_logs(writer)
        day(writer, range(3), SHORT)
    assert open_snapshot(root).arrow_table("mbo").num_rows == 150 and lake_status.verify(root) == []
