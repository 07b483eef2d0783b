"""A file of a table: what is in it, what is said about it, and what becomes of half of one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lake.lake_rows import DAY, rows_of, write

from umdf.errors import UmdfError
from umdf.lake.parquet import file_writer
from umdf.lake.parquet.data_files import FileAdd, FileStamp, stamp_of
from umdf.lake.parquet.file_writer import FileWriter
from umdf.lake.query.name_lookup import time_column
from umdf.lake.schemas import tables

STAMP = FileStamp(12, 3)
WHERE = {"trading_date": DAY, "channel_id": 72}


@pytest.mark.parametrize("name", tables())
def test_rows_of_every_table_come_back(name: str, tmp_path: Path) -> None:
    rows = rows_of(name, 30)
    added = write(tmp_path, STAMP, name, rows)
    inside = [field for field in rows.schema.names if field not in tables()[name].partition]
    with pq.ParquetFile(tmp_path / name / added.path) as file:
        assert file.read().to_pylist() == rows.select(inside).to_pylist()
    assert added.rows == 30 and added.bytes == (tmp_path / name / added.path).stat().st_size
    assert FileAdd.from_json(json.loads(json.dumps(added.to_json()))) == added
    content = (tmp_path / name / added.path).read_bytes()
    assert added.digest == f"sha256:{hashlib.sha256(content).hexdigest()}"


def test_a_path_contains_partition_commit_token_task_and_attempt(tmp_path: Path) -> None:
    added = write(tmp_path, STAMP, "mbo", rows_of("mbo", 3), task=7, attempt=2)
    directory, _, name = added.path.rpartition("/")
    assert directory == "trading_date=2026-11-13/channel_id=72" and name.startswith("part-00000012-00000003-00007-2-")
    assert stamp_of(name) == STAMP and stamp_of("part-0.parquet") is None
    again = write(tmp_path, STAMP, "mbo", rows_of("mbo", 3), task=7, attempt=2)
    assert again.path != added.path
    nowhere = write(tmp_path, STAMP, "quarantine", rows_of("quarantine", 3), channel=None)
    assert "/channel_id=__HIVE_DEFAULT_PARTITION__/" in nowhere.path and nowhere.partition["channel_id"] is None


def test_statistics_are_those_of_the_rows(tmp_path: Path) -> None:
    rows = rows_of("mbo", 200)
    added = write(tmp_path, STAMP, "mbo", rows)
    stats = json.loads(added.stats)
    assert stats["numRecords"] == 200
    for name in ("instrument_id", "sequence", "ts_event", "ts_recv", "symbol"):
        values = [value for value in rows.column(name).to_pylist() if value is not None]
        assert added.bounds(name) == (min(values), max(values))
        assert stats["nullCount"][name] == 200 - len(values)
    assert added.bounds("price") is None


@pytest.mark.parametrize("name", tables())
def test_row_groups_have_bounds_of_what_readers_filter_on(name: str, tmp_path: Path) -> None:
    rows, known = rows_of(name, 60), tables()[name]
    added = write(tmp_path, STAMP, name, rows)
    group = pq.read_metadata(tmp_path / name / added.path).row_group(0)
    kept = {group.column(at).path_in_schema: group.column(at).statistics for at in range(group.num_columns)}
    asked = {*known.statistics_columns, *known.sort, time_column(known), "order_id", "trade_id"}
    for column in asked & set(known.file_schema.names):
        values = [value for value in rows.column(column).to_pylist() if value is not None]
        assert (kept[column].min, kept[column].max) == (min(values), max(values)), column
        assert kept[column].null_count == len(rows) - len(values), column


def test_batches_with_and_without_dictionaries_go_into_one_file(tmp_path: Path) -> None:
    rows = rows_of("mbo", 60)
    place = rows.schema.get_field_index("symbol")
    coded = rows.set_column(place, "symbol", rows.column("symbol").dictionary_encode())
    for first, second in ((coded, rows), (rows, coded)):
        with FileWriter(tmp_path, "mbo", STAMP, WHERE) as file:
            for batch in (*first.slice(0, 30).to_batches(), *second.slice(30).to_batches()):
                file.write(batch)
        with pq.ParquetFile(file.full_path) as written:
            assert written.read().column("symbol").to_pylist() == rows.column("symbol").to_pylist()
            assert written.schema_arrow.field("symbol").type == pa.utf8()


def test_what_does_not_shrink_is_not_packed_and_numbers_that_grow_are_deltas(tmp_path: Path) -> None:
    added = write(tmp_path, STAMP, "mbo", rows_of("mbo", 200))
    group = pq.read_metadata(tmp_path / "mbo" / added.path).row_group(0)
    columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    unpacked = {name for name, column in columns.items() if column.compression == "UNCOMPRESSED"}
    assert unpacked == {"ts_send", "ts_recv", "ts_event", "ts_insert", "order_id", "trade_id", "firm"}
    deltas = {name for name, column in columns.items() if "DELTA_BINARY_PACKED" in column.encodings}
    assert deltas == unpacked - {"firm"} | {"sequence", "rpt_seq", "msg_index", "update_action"}


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    with FileWriter(tmp_path, "mbo", STAMP, WHERE) as file:
        file.write(rows_of("mbo", 3).slice(3))
    assert file.added is None and list(tmp_path.rglob("*.parquet")) == []


def test_rows_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UmdfError, match="missing column price"):
        write(tmp_path, STAMP, "mbo", rows_of("mbo", 3).drop_columns(["price"]))
    with pytest.raises(UmdfError, match="unknown column colour"):
        write(tmp_path, STAMP, "mbo", rows_of("mbo", 3).append_column("colour", pa.array([1, 2, 3])))
    with pytest.raises(UmdfError, match="partitioned by trading_date, channel_id"):
        FileWriter(tmp_path, "mbo", STAMP, {"trading_date": DAY})
    assert list(tmp_path.rglob("*.parquet")) == []


def test_a_full_disk_is_a_clear_error_and_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class FillingDisk:
        """Takes the first bytes, then the disk is full."""

        def __init__(self, path: Path) -> None:
            self.file = path.open("wb")
            self.closed = False

        def write(self, content: bytes) -> int:
            if self.file.tell() > 8:
                raise OSError(28, "No space left on device")
            return self.file.write(content)

        def flush(self) -> None:
            self.file.flush()

        def close(self) -> None:
            self.closed = True
            self.file.close()

    monkeypatch.setattr(file_writer, "_sink", FillingDisk)
    with pytest.raises(UmdfError, match=r"cannot write .*: no space left on the disk; free some space"):
        write(tmp_path, STAMP, "mbo", rows_of("mbo", 50))
    assert list(tmp_path.rglob("*.parquet")) == []


def test_a_device_that_is_full_from_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writer, "_sink", lambda path: pa.OSFile("/dev/full", "wb"))
    with pytest.raises(UmdfError, match=r"cannot write .*[Nn]o space left"):
        write(tmp_path, STAMP, "mbo", rows_of("mbo", 50))


def test_a_lake_that_is_gone_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(
        UmdfError, match=r"cannot write .*: its directory no longer exists; check whether the lake was moved"
    ):
        write(tmp_path / "gone", STAMP, "mbo", rows_of("mbo", 3))
    assert not (tmp_path / "gone").exists()


def test_a_task_that_fails_leaves_no_half_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError), FileWriter(tmp_path, "mbo", STAMP, WHERE) as file:
        file.write(rows_of("mbo", 50))
        assert file.full_path.exists()
        raise ValueError
    assert not file.full_path.exists()
