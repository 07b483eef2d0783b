"""Looking after a lake: what is deleted, what is joined, what is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from lake.lake_rows import TABLES, day, hashes, rows_of, write

from umdf.errors import UmdfError
from umdf.lake import care, log, sweep
from umdf.lake.compaction import compact
from umdf.lake.files import Stamp
from umdf.lake.log import Change
from umdf.lake.snapshot import open_snapshot
from umdf.lake.writer import no_fault, open_writer


def test_files_in_flight_and_files_of_others_are_not_swept(tmp_path: Path) -> None:
    with open_writer(tmp_path) as writer:
        day(writer, range(2))
        flying = write(tmp_path, writer.stamp, "mbo", rows_of("mbo", 5), task=3, attempt=1)
        stranger = tmp_path / "mbo" / "notes.parquet"
        stranger.write_bytes(b"mine")
        late = write(tmp_path, Stamp(1, writer.lease.token), "mbo", rows_of("mbo", 5))  # a lost attempt of commit 1
        assert sweep.sweep(writer) == sweep.Swept(1, late.bytes)
        assert (tmp_path / "mbo" / flying.path).exists() and stranger.exists()
        writer.commit([Change("mbo", (flying,))])
    assert care.status(tmp_path).unknown == (str(stranger),)
    assert care.verify(tmp_path) == []


def test_vacuum_deletes_removed_files_after_their_time_and_nothing_else(tmp_path: Path) -> None:
    now = [10**18]
    with open_writer(tmp_path, clock=lambda: now[0]) as writer:
        day(writer, range(3))
        removed = care.status(tmp_path).removed
        assert removed.files == 2  # of gaps
        assert sweep.vacuum(writer, 3600, lambda: now[0]).files == 0
        assert sweep.vacuum(writer, 3600, lambda: now[0] + 3601 * 10**9) == removed
        assert sweep.vacuum(writer, 3600, lambda: now[0] + 9999 * 10**9).files == 0
    assert care.verify(tmp_path) == [] and care.status(tmp_path).removed.files == 0


def test_compact_keeps_rows_and_order_in_fewer_files(tmp_path: Path) -> None:
    with open_writer(tmp_path) as writer:
        day(writer, range(3))
        before = hashes(tmp_path)
        assert compact(writer) is not None
        assert compact(writer) is None
    assert len(open_snapshot(tmp_path).files("mbo")) == 1
    assert hashes(tmp_path) == before
    assert care.verify(tmp_path, deep=True) == []


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
    found = {damage.table: damage.reason for damage in care.verify(tmp_path, deep=True)}
    assert found["mbo"] == "is missing" and "bytes instead of" in found["trades"]
    assert found["definition"].startswith("cannot be read") and "not sorted by" in found["status"]
    assert "status" not in {damage.table for damage in care.verify(tmp_path)}


def test_a_lake_of_another_layout_is_refused(tmp_path: Path) -> None:
    with open_writer(tmp_path / "lake"):
        pass
    (tmp_path / "lake" / "lake.json").write_text('{"layout": 2, "lake_id": "x", "producer": "umdf 9.0"}')
    for look in (open_snapshot, open_writer, care.status, care.verify):
        with pytest.raises(UmdfError, match=r"made by a newer umdf \(umdf 9.0, layout 2\)"):
            look(tmp_path / "lake")
    with pytest.raises(UmdfError, match="is no lake"):
        open_snapshot(tmp_path / "nowhere")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "holiday.jpg").write_bytes(b"")
    with pytest.raises(UmdfError, match="neither empty nor a lake"):
        open_writer(tmp_path / "full")


def test_the_log_says_what_was_done(tmp_path: Path) -> None:
    with open_writer(tmp_path, "umdf ingest") as writer:
        day(writer, range(1))
    intent = log.intent(writer.home, 1)
    assert intent is not None and intent.what == "umdf ingest"
    assert [change.table for change in intent.changes] == [*TABLES, "ledger"]
    assert log.Intent.from_json(intent.to_json()) == intent
    assert no_fault("") is None
    assert "CREATE TABLE IF NOT EXISTS umdf.mbo" in care.ddl(tmp_path)
