"""Looking after a lake: what is deleted, what is joined, what is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from lake.lake_rows import TABLES, day, hashes, rows_of, write

from umdf.errors import UmdfError
from umdf.lake.admin import lake_status
from umdf.lake.admin.compaction import compact
from umdf.lake.commit import log, vacuum
from umdf.lake.commit.lake_snapshot import LakeSnapshot, open_snapshot
from umdf.lake.commit.log import Change
from umdf.lake.commit.writer import accept, no_fault, open_writer, restore
from umdf.lake.layout import LAYOUT
from umdf.lake.parquet.data_files import FileStamp


def test_files_in_flight_and_files_of_others_are_not_swept(tmp_path: Path) -> None:
    with open_writer(tmp_path) as writer:
        day(writer, range(2))
        flying = write(tmp_path, writer.stamp, "mbo", rows_of("mbo", 5), task=3, attempt=1)
        stranger = tmp_path / "mbo" / "notes.parquet"
        stranger.write_bytes(b"mine")
        late = write(tmp_path, FileStamp(1, writer.lease.token), "mbo", rows_of("mbo", 5))  # a lost attempt of commit 1
        assert vacuum.delete_orphans(writer) == vacuum.FileTotals(1, late.bytes)
        assert (tmp_path / "mbo" / flying.path).exists() and stranger.exists()
        writer.commit([Change("mbo", (flying,))])
    assert lake_status.status(tmp_path).unknown == (str(stranger),)
    assert lake_status.verify(tmp_path) == []


def test_vacuum_deletes_removed_files_after_their_time_and_nothing_else(tmp_path: Path) -> None:
    now = [10**18]
    with open_writer(tmp_path, clock=lambda: now[0]) as writer:
        day(writer, range(3))
        removed = lake_status.status(tmp_path).removed
        assert removed.files == 2  # of gaps
        assert vacuum.vacuum(writer, 3600, lambda: now[0]).files == 0
        assert vacuum.vacuum(writer, 3600, lambda: now[0] + 3601 * 10**9) == removed
        assert vacuum.vacuum(writer, 3600, lambda: now[0] + 9999 * 10**9).files == 0
    assert lake_status.verify(tmp_path) == [] and lake_status.status(tmp_path).removed.files == 0


WEEK_S, DAY_NS = 7 * 86400.0, 86400 * 10**9


def test_vacuum_keeps_what_another_engine_has_restored_until_it_is_removed_again(tmp_path: Path) -> None:
    """The first file of `gaps` is removed by commit 2, live again from commit 4 on, removed again by 5."""
    now = [10**18]
    with open_writer(tmp_path, clock=lambda: now[0]) as writer:
        day(writer, range(3))
        [first] = LakeSnapshot(writer.paths, log.marker(writer.paths, 1)).files("gaps")
    DeltaTable(tmp_path / "gaps").restore(0)
    with open_writer(tmp_path, clock=lambda: now[0], check=False) as writer:
        assert accept(writer, "gaps").number == 4 and writer.snapshot.files("gaps") == [first]
        now[0] += 8 * DAY_NS
        assert (vacuum.delete_orphans(writer).files, vacuum.vacuum(writer, WEEK_S, lambda: now[0]).files) == (0, 2)
    assert lake_status.verify(tmp_path) == [] and open_snapshot(tmp_path).rows("gaps") == 50
    with open_writer(tmp_path, clock=lambda: now[0]) as writer:
        day(writer, range(3, 4))
        now[0] += 6 * DAY_NS
        assert vacuum.vacuum(writer, WEEK_S, lambda: now[0]).files == 0  # commit 4 can be read for a week
        assert open_snapshot(tmp_path, 4).arrow_table("gaps").num_rows == 50
        now[0] += 2 * DAY_NS
        assert vacuum.vacuum(writer, WEEK_S, lambda: now[0]).files == 1 and not first.exists()
    assert lake_status.verify(tmp_path) == [] and lake_status.status(tmp_path).removed.files == 0


def test_a_file_that_was_removed_twice_stays_as_long_as_its_younger_commits(tmp_path: Path) -> None:
    now = [10**18]
    with open_writer(tmp_path, clock=lambda: now[0]) as writer:
        day(writer, range(2))
    DeltaTable(tmp_path / "gaps").restore(0)
    now[0] += 8 * DAY_NS
    with open_writer(tmp_path, clock=lambda: now[0], check=False) as writer:
        accept(writer, "gaps")
        day(writer, range(2, 3))
        assert vacuum.vacuum(writer, WEEK_S, lambda: now[0]).files == 0  # removed long ago, and just now
        assert open_snapshot(tmp_path, 3).arrow_table("gaps").num_rows == 50


def test_files_of_another_engine_are_kept_while_they_are_live_and_vacuumed_after_that(tmp_path: Path) -> None:
    now = [10**18]
    with open_writer(tmp_path, clock=lambda: now[0]) as writer:
        day(writer, range(3))
    DeltaTable(tmp_path / "mbo").optimize.compact()
    DeltaTable(tmp_path / "gaps").delete("first_sequence < 50")  # writes the rest of the rows to a file of its own
    with open_writer(tmp_path, clock=lambda: now[0], check=False) as writer:
        accept(writer, "mbo")
        accept(writer, "gaps")
        before, [mbo], [gaps] = hashes(tmp_path), writer.snapshot.files("mbo"), writer.snapshot.files("gaps")
        now[0] += 8 * DAY_NS
        # Three of mbo, three of gaps: also those that the other engine has removed.
        assert (vacuum.delete_orphans(writer).files, vacuum.vacuum(writer, WEEK_S, lambda: now[0]).files) == (0, 6)
        assert (
            lake_status.verify(tmp_path) == []
            and hashes(tmp_path) == before
            and lake_status.status(tmp_path).unknown == ()
        )
        day(writer, range(3, 4))
        now[0] += 8 * DAY_NS
        assert vacuum.vacuum(writer, WEEK_S, lambda: now[0]).files == 1
        assert mbo.exists() and not gaps.exists() and lake_status.verify(tmp_path) == []


def test_vacuum_keeps_what_our_own_restore_has_brought_back(tmp_path: Path) -> None:
    with open_writer(tmp_path) as writer:
        day(writer, range(3))
    before = hashes(tmp_path)
    DeltaTable(tmp_path / "gaps").restore(1)
    with open_writer(tmp_path, check=False) as writer:
        restore(writer, "gaps")
        assert (vacuum.delete_orphans(writer).files, vacuum.vacuum(writer, 0.0).files) == (0, 2)
        with pytest.raises(UmdfError, match="gaps is at version 4, where the lake's last commit left it"):
            restore(writer, "gaps")
    assert lake_status.verify(tmp_path) == [] and hashes(tmp_path) == before


def test_a_damaged_mark_of_vacuum_and_a_damaged_intent_delete_nothing_that_is_live(tmp_path: Path) -> None:
    with open_writer(tmp_path) as writer:
        day(writer, range(3))
        writer.paths.vacuumed.write_text("garbage")
        assert vacuum.vacuum(writer, 0.0).files == 2
        day(writer, range(3, 4))
        (writer.paths.intents / "00000003.json").write_text("[]")
        assert vacuum.delete_orphans(writer).files == 0
        assert vacuum.vacuum(writer, 0.0).files == 1
        day(writer, range(4, 5))
        (writer.paths.intents / "00000005.json").unlink()
        with pytest.raises(UmdfError, match=r"intents/00000005.json is missing; restore it from a backup"):
            vacuum.vacuum(writer, 0.0)
    assert lake_status.verify(tmp_path) == []


def test_compact_keeps_rows_and_order_in_fewer_files(tmp_path: Path) -> None:
    with open_writer(tmp_path) as writer:
        day(writer, range(3))
        before = hashes(tmp_path)
        assert compact(writer) is not None
        assert compact(writer) is None
    assert len(open_snapshot(tmp_path).files("mbo")) == 1
    assert hashes(tmp_path) == before
    assert lake_status.verify(tmp_path, deep=True) == []


def test_verify_names_what_is_missing_cut_or_unsorted(tmp_path: Path) -> None:
    with open_writer(tmp_path) as writer:
        day(writer, range(1))
        backwards = rows_of("status", 50).take(list(range(49, -1, -1)))
        writer.commit([Change("status", (write(tmp_path, writer.stamp, "status", backwards),))])
    snapshot = open_snapshot(tmp_path)
    snapshot.files("mbo")[0].unlink()
    trades = snapshot.files("trades")[0]
    trades.write_bytes(trades.read_bytes()[:-1])
    definition = snapshot.files("definition")[0]
    definition.write_bytes(bytes(definition.stat().st_size))
    found = {damage.table: damage.reason for damage in lake_status.verify(tmp_path, deep=True)}
    assert found["mbo"] == "is missing" and "bytes instead of" in found["trades"]
    assert found["definition"].startswith("cannot be read") and "not sorted by" in found["status"]
    assert "status" not in {damage.table for damage in lake_status.verify(tmp_path)}


def test_a_lake_of_another_layout_is_refused(tmp_path: Path) -> None:
    with open_writer(tmp_path / "lake"):
        pass
    newer = LAYOUT + 1
    (tmp_path / "lake" / "lake.json").write_text(f'{{"layout": {newer}, "lake_id": "x", "producer": "umdf 9.0"}}')
    for look in (open_snapshot, open_writer, lake_status.status, lake_status.verify):
        with pytest.raises(UmdfError, match=rf"has layout {newer} \(umdf 9.0\), this is umdf .*; use a newer version"):
            look(tmp_path / "lake")
    with pytest.raises(UmdfError, match="is not a umdf lake"):
        open_snapshot(tmp_path / "nowhere")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "holiday.jpg").write_bytes(b"")
    with pytest.raises(UmdfError, match="not empty and not a umdf lake"):
        open_writer(tmp_path / "full")


def test_the_log_says_what_was_done(tmp_path: Path) -> None:
    with open_writer(tmp_path, "umdf ingest") as writer:
        day(writer, range(1))
    intent = log.intent(writer.paths, 1)
    assert intent is not None and intent.what == "umdf ingest"
    assert [change.table for change in intent.changes] == [*TABLES, "ledger"]
    assert log.Intent.from_json(intent.to_json()) == intent
    assert no_fault("") is None
    assert "CREATE TABLE IF NOT EXISTS umdf.mbo" in lake_status.ddl(tmp_path)
