"""A lake of an older layout becomes one of this layout: the same rows under other names, wherever an upgrade is cut."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.schema import Field, PrimitiveType
from lake.captures import hashes
from lake.followed_days import FINISH
from lake.upgraded_rows import JUDGED_ANEW, LATER_COLUMNS, MARKERS, REWRITTEN, check_differences, renamed

from umdf.cli.app import run
from umdf.errors import UmdfError
from umdf.lake.admin import lake_status
from umdf.lake.admin.upgrade import upgrade
from umdf.lake.commit import log, vacuum
from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.commit.writer import FaultPoint, open_writer
from umdf.lake.hashing import logical_hash
from umdf.lake.ingest import ingest_captures
from umdf.lake.ingest_settings import IngestSettings
from umdf.lake.layout import LAYOUT, MARKER_DIRECTORIES, open_lake_paths
from umdf.lake.plan.frontier import FollowSettings
from umdf.lake.query.lake import Lake
from umdf.lake.runtime.local_runner import LocalRunner
from umdf.lake.schemas import table

ARCHIVES = Path(__file__).parent / "layouts"
EVERY_LAYOUT = pytest.mark.parametrize("layout", range(1, LAYOUT), indirect=True)
JUDGED_OTHERWISE = {1, 2}  # layouts whose umdf judged gaps and trust in another way
CUT_TABLES = ("mbo", "book_check", "ledger")  # renamed columns, renamed values, only descriptions
STEPS = ["markers copied", "files rewritten", "files written", "lease checked", "intent created"]
STEPS += [f"{when} {name}" for name in CUT_TABLES for when in ("before", "after")]
STEPS += ["marker created", "layout changed"]


class CutError(Exception):
    """The process ends here."""


def judged_anew(layout: int) -> set[str]:
    """The tables whose rows may differ. In layout 3 only states of instruments and prices of the previous day."""
    return {*JUDGED_ANEW} if layout in JUDGED_OTHERWISE else {"book_state", "day_statistics"}


def cut_at(step: str) -> FaultPoint:
    def cut(now: str) -> None:
        if now == step:
            raise CutError

    return cut


def captures(directory: Path, protocol: str) -> list[Path]:
    return sorted((directory / "captures" / protocol).glob("*.pcap"))


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The archive of each older layout, which no test changes."""
    found = {layout: tmp_path_factory.mktemp(f"layout-{layout}") for layout in range(1, LAYOUT)}
    for layout, directory in found.items():
        with tarfile.open(ARCHIVES / f"layout-{layout}.tar.gz") as archive:
            archive.extractall(directory, filter="data")
    return found


@pytest.fixture
def layout(request: pytest.FixtureRequest) -> int:
    """The first, where a test does not name EVERY_LAYOUT."""
    return getattr(request, "param", 1)


@pytest.fixture
def unpacked(archives: dict[int, Path], layout: int) -> Path:
    return archives[layout]


@pytest.fixture
def old(unpacked: Path, tmp_path: Path) -> Path:
    """A lake of an older layout to work on."""
    return Path(shutil.copytree(unpacked / "lake", tmp_path / "lake"))


def make_lake(root: Path, directory: Path) -> Path:
    """The lake of the archives, made by this umdf: they have the same captures."""
    runner, files = LocalRunner(1), captures(directory, "sbe")
    with open_writer(root) as writer:
        ingest_captures(captures(directory, "fast"), writer, runner, IngestSettings())
        for part in (files[:10], files[10:19]):
            ingest_captures(part, writer, runner, IngestSettings(follow=FollowSettings()))
    return root


@pytest.fixture(scope="module")
def expected(archives: dict[int, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_lake(tmp_path_factory.mktemp("expected") / "lake", archives[1])


def versions_in(root: Path, directory: str) -> dict[str, int]:
    return json.loads(max((root / "_lake" / directory).glob("*.json")).read_text())["versions"]


def delta_tables(root: Path, directory: str) -> dict[str, DeltaTable]:
    """As the last marker of a directory says, by deltalake alone."""
    return {name: DeltaTable(root / name, version=version) for name, version in versions_in(root, directory).items()}


def rows_of(name: str, found: pa.Table) -> list[str]:
    # In the state of an open day are names of files, and in the ledger names of directories: they differ.
    left_out = {"channel_state": {"content"}, "ledger": {"path"}}.get(name, set()) | LATER_COLUMNS.get(name, set())
    names = sorted(set(found.column_names) - left_out)
    return sorted(repr([row[column] for column in names]) for row in found.select(names).to_pylist())


def old_lake(root: Path) -> dict[str, Any]:
    """What a reader of layout 1 reads: columns and files of each table. Files never change."""
    assert json.loads((root / "lake.json").read_text())["layout"] == 1
    found = {
        name: (json.loads(each.schema().to_json()), sorted(each.file_uris()))
        for name, each in delta_tables(root, "commits").items()
    }
    assert all(Path(file).exists() for _, files in found.values() for file in files)
    return found


def known_hashes(root: Path) -> dict[str, str]:
    """Hashes of the columns that older layouts had too."""
    snapshot = open_snapshot(root)
    return hashes(root) | {
        name: logical_hash(snapshot.arrow_table(name), {"path", "commit", *columns})
        for name, columns in LATER_COLUMNS.items()
    }


@cache
def expected_hashes(expected: Path) -> dict[str, str]:
    return known_hashes(expected)


@cache
def expected_schema(expected: Path, name: str) -> Any:
    return json.loads(DeltaTable(expected / name).schema().to_json())


def check_upgraded(root: Path, expected: Path, number: int = 4, layout: int = 1) -> None:
    found, made = known_hashes(root), expected_hashes(expected)
    assert {name for name in found if found[name] != made[name]} <= judged_anew(layout)
    assert lake_status.verify(root, deep=True) == [] and lake_status.count_without_digest(root) == 0
    snapshot = open_snapshot(root)
    assert (snapshot.number, snapshot.paths.first_commit, snapshot.paths.layout) == (number, number, LAYOUT)
    for name, each in delta_tables(root, MARKER_DIRECTORIES[LAYOUT]).items():
        assert DeltaTable(root / name).version() == each.version()
        assert json.loads(each.schema().to_json()) == expected_schema(expected, name)
        assert each.metadata().description == table(name).doc
        assert set(each.file_uris()) == set(map(str, snapshot.files(name)))
    status = lake_status.status(root)
    assert (status.pending, status.pending_damage, status.unknown) == (None, (), ())
    assert not any(each.changed_by or each.damage for each in status.tables)


@EVERY_LAYOUT
def test_the_rows_of_every_table_are_those_of_a_new_lake_under_the_renaming(
    layout: int, unpacked: Path, old: Path, expected: Path
) -> None:
    before = {name: each.to_pyarrow_table() for name, each in delta_tables(unpacked / "lake", MARKERS[layout]).items()}
    result = upgrade(old)
    assert result is not None and (result.old_layout, result.layout, result.commit) == (layout, LAYOUT, 4)
    assert set(result.tables) == REWRITTEN[layout]
    assert result.rows == sum(len(before[name]) for name in REWRITTEN[layout])
    after, made = delta_tables(old, MARKER_DIRECTORIES[LAYOUT]), delta_tables(expected, MARKER_DIRECTORIES[LAYOUT])
    assert after.keys() == before.keys() == made.keys()
    for name, rows in before.items():
        found = after[name].to_pyarrow_table()
        assert found.column_names == made[name].to_pyarrow_table().column_names == table(name).schema.names
        assert rows_of(name, renamed(layout, name, rows)) == rows_of(name, found), name
        if name in judged_anew(layout):
            check_differences(name, found.to_pylist(), made[name].to_pyarrow_table().to_pylist())
        else:
            assert rows_of(name, found) == rows_of(name, made[name].to_pyarrow_table()), name
    check_upgraded(old, expected, layout=layout)
    if layout in JUDGED_OTHERWISE:
        assert after["book_check"].to_pyarrow_table().column("verdict").to_pylist().count("unverified") == 9
        assert before["gaps"].column("cause").to_pylist().count("start") == 1
    else:
        unchanged = hashes(old).keys() - judged_anew(layout)
        assert all(hashes(old)[name] == hashes(expected)[name] for name in unchanged), "in every column"
    assert {row["venue"] for row in after["trades"].to_pyarrow_table().to_pylist()} == {"E", None}


@EVERY_LAYOUT
def test_files_keep_their_partition_and_the_order_of_their_rows(layout: int, old: Path) -> None:
    upgrade(old)
    intent = log.intent(open_lake_paths(old), 4)
    assert intent is not None and intent.layout == LAYOUT
    changes = {change.table: change for change in intent.changes}
    assert {name for name, change in changes.items() if change.adds} == REWRITTEN[layout]
    assert changes.keys() == versions_in(old, MARKER_DIRECTORIES[LAYOUT]).keys()
    for name in REWRITTEN[layout]:
        change = changes[name]
        for new, replaced in zip(change.adds, change.removes, strict=True):
            assert (new.partition, new.rows) == (replaced.partition, replaced.rows)
            before, after = (pq.ParquetFile(old / name / each.path) for each in (replaced, new))
            rows = renamed(layout, name, before.read())
            if name == "channel_state":  # its content has other words
                rows = rows.drop_columns(["content"])
            assert rows.to_pylist() == after.read().select(rows.column_names).to_pylist()
            assert before.metadata.num_row_groups == after.metadata.num_row_groups
            assert json.loads(replaced.stats) == json.loads(new.stats) and new.digest.startswith("sha256:")


def test_an_upgrade_has_these_steps(old: Path) -> None:
    steps: list[str] = []
    upgrade(old, fault=steps.append)
    names = [f"{when} {name}" for name in versions_in(old, MARKER_DIRECTORIES[LAYOUT]) for when in ("before", "after")]
    assert sorted(steps) == sorted({*STEPS, *names}) and steps[:5] == STEPS[:5] and steps[-2:] == STEPS[-2:]


QUICK = {"files rewritten", "after mbo", "layout changed"}  # others: make soak


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=() if step in QUICK else pytest.mark.full_size) for step in STEPS]
)
def test_wherever_an_upgrade_is_cut_it_is_an_old_lake_or_a_new_one(step: str, old: Path, expected: Path) -> None:
    before = old_lake(old)
    with pytest.raises(CutError):
        upgrade(old, fault=cut_at(step))
    if step != "layout changed":
        assert old_lake(old) == before
        with pytest.raises(UmdfError, match="umdf lake upgrade"):
            open_snapshot(old)
        assert upgrade(old) is not None
    assert upgrade(old) is None
    check_upgraded(old, expected)
    with open_writer(old) as writer:
        vacuum.delete_orphans(writer)
        vacuum.vacuum(writer, 0.0)
    status = lake_status.status(old)
    assert (status.orphans.files, status.removed.files) == (0, 0)
    assert lake_status.verify(old) == []


CHILD = """
import os, signal, sys
from umdf.lake.admin.upgrade import upgrade

def die(now):
    if now == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

upgrade(sys.argv[1], fault=die)
"""


@pytest.mark.parametrize(
    "step",
    ["after mbo", *(pytest.param(step, marks=pytest.mark.full_size) for step in ("files rewritten", "marker created"))],
)
def test_an_upgrade_survives_kill_9(step: str, old: Path, expected: Path) -> None:
    before = old_lake(old)
    done = subprocess.run([sys.executable, "-c", CHILD, str(old), step])
    assert done.returncode == -signal.SIGKILL and old_lake(old) == before
    upgrade(old)  # commit 4 keeps a writer out that is only slow, if nothing was begun
    check_upgraded(old, expected, 5 if step == "files rewritten" else 4)


def test_files_of_a_killed_upgrade_that_are_damaged_are_written_again(old: Path, expected: Path) -> None:
    with pytest.raises(CutError):
        upgrade(old, fault=cut_at("after mbo"))
    [path] = sorted((old / "packets").glob("trading_date=*/channel_id=72/part-00000004-*"))[:1]
    os.truncate(path, 10)
    upgrade(old)
    check_upgraded(old, expected, 5)
    assert log.is_aborted(open_lake_paths(old), 4)


def unfinish(root: Path) -> list[Path]:
    """Commit 3 is begun and not finished: its marker is missing, and `mbo` has not been committed. Its files."""
    intent = json.loads((root / "_lake" / "intents" / "00000003.json").read_text())
    [mbo] = [change for change in intent["changes"] if change["table"] == "mbo"]
    (root / "_lake" / "commits" / "00000003.json").unlink()
    max((root / "mbo" / "_delta_log").glob("*.json")).unlink()
    return [root / "mbo" / add["path"] for add in mbo["adds"]]


def test_a_commit_of_the_old_layout_that_was_begun_is_finished_first(old: Path, expected: Path) -> None:
    unfinish(old)
    upgrade(old)
    check_upgraded(old, expected)


def test_a_commit_that_cannot_be_finished_stops_the_upgrade(old: Path) -> None:
    os.truncate(unfinish(old)[0], 10)
    before = old_lake(old)
    with pytest.raises(UmdfError, match=r"has 10 bytes .* commit 3; repair the lake with umdf 0\.1\.0, which wrote"):
        upgrade(old)
    assert old_lake(old) == before


@EVERY_LAYOUT
def test_an_upgraded_lake_goes_on_where_the_old_one_stopped(
    layout: int, unpacked: Path, old: Path, tmp_path: Path
) -> None:
    upgrade(old)
    files, whole, upgraded = captures(unpacked, "sbe"), tmp_path / "whole", hashes(old, channel_id=74)
    with open_writer(old) as writer:
        # The lake knows where the files of the archive were made, not where they are now.
        outcome = ingest_captures(files, writer, LocalRunner(1), IngestSettings(follow=FINISH))
        # The recording lacks sequence 1: before layout 3 umdf did not judge that it is joined; and until then it did
        # not store what tells whether a bust may have been lost.
        assert (outcome.new, outcome.known, outcome.rebuilt_days) == (1, 19, [(72, 20_770)])
    with open_writer(whole) as writer:
        for part in (captures(unpacked, "fast"), files):
            ingest_captures(part, writer, LocalRunner(1), IngestSettings())
    # The SBE day is rebuilt, or continued from its state, and is that of a new lake in every column; the FAST day
    # stays as it was upgraded.
    for channel, expected in ((72, hashes(whole, channel_id=72)), (74, upgraded)):
        found = hashes(old, channel_id=channel)
        assert {name for name in found if found[name] != expected[name]} <= {"ledger"}, channel
    assert known_hashes(old)["ledger"] == known_hashes(whole)["ledger"]
    assert lake_status.verify(old, deep=True) == []


@EVERY_LAYOUT
def test_a_lake_of_an_older_layout_is_refused_by_readers_and_writers(
    layout: int, old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(old.rglob("*"))
    uses: tuple[Callable[[Path], Any], ...] = (
        open_snapshot, open_writer, lake_status.status, lake_status.verify, Lake,
        lambda root: open_writer(root, abort=True),
    )  # fmt: skip
    for use in uses:
        with pytest.raises(
            UmdfError, match=rf"has layout {layout} \(written by umdf 0\.1\.0\).*`umdf lake upgrade {old}`"
        ):
            use(old)
    for command in (["lake", "status", str(old)], ["lake", "vacuum", str(old)], ["lake", "abort", str(old)]):
        assert run(command) == 3
        assert f"`umdf lake upgrade {old}`" in capsys.readouterr().err
    assert sorted(old.rglob("*")) == before


def test_the_command_upgrades_once(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lake", "upgrade", str(old), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) | {"rows": 0, "bytes": 0, "files": 0} == {
        "old_layout": 1, "layout": LAYOUT, "commit": 4, "tables": sorted(REWRITTEN[1]),
        "files": 0, "rows": 0, "bytes": 0,
    }  # fmt: skip
    before = sorted(old.rglob("*"))
    assert run(["lake", "upgrade", str(old)]) == 0
    assert f"has layout {LAYOUT} already: nothing to do" in capsys.readouterr().out
    assert sorted(old.rglob("*")) == before
    (old / "lake.json").write_text('{"layout": 99, "lake_id": "x", "producer": "umdf 9.0"}')
    assert run(["lake", "upgrade", str(old)]) == 3
    assert "has layout 99 (umdf 9.0), this is umdf " in capsys.readouterr().err
    assert run(["lake", "upgrade", str(old / "mbo")]) == 3


def test_commits_before_the_upgrade_cannot_be_read(old: Path) -> None:
    upgrade(old)
    assert open_snapshot(old, 4).rows("mbo") == open_snapshot(old).rows("mbo")
    for number in (1, 3):
        with pytest.raises(
            UmdfError, match=f"commit {number} cannot be read.* layout {LAYOUT}; read commit 4 or a later one"
        ):
            open_snapshot(old, number)


def test_foreign_columns_are_not_lost(old: Path) -> None:
    """A table that is written anew is refused; one that is not keeps them."""
    fields = json.loads(DeltaTable(old / "gaps").schema().to_json())["fields"]
    assert "note" not in {field["name"] for field in fields}
    for name in ("quality", "gaps"):
        DeltaTable(old / name).alter.add_columns(Field("note", PrimitiveType("string")))
        marker = max((old / "_lake" / "commits").glob("*.json"))
        content = json.loads(marker.read_text())
        content["versions"][name] += 1  # as if it had been accepted
        marker.write_text(json.dumps(content))
        if name == "quality":
            copy = Path(shutil.copytree(old, old.parent / "copy"))
            upgrade(copy)
            assert "note" in {field.name for field in DeltaTable(copy / name).schema().fields}
    with pytest.raises(UmdfError, match="table gaps has columns that umdf did not write: note"):
        upgrade(old)
