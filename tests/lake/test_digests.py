"""Single bits that flip in the files of a lake: `verify --deep` finds each of them, readers those in pages."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from lake.lake_rows import day

from umdf.cli.app import run
from umdf.errors import UmdfError
from umdf.lake.admin import lake_status
from umdf.lake.admin.compaction import compact
from umdf.lake.commit.lake_snapshot import LakeSnapshot, open_snapshot
from umdf.lake.commit.ledger import entries
from umdf.lake.commit.writer import accept, open_writer, restore
from umdf.lake.parquet.file_reader import read_file
from umdf.lake.parquet.thrift import i32
from umdf.lake.query.table_reader import query_of, read_rows

NAMES = ("mbo", "trades", "definition", "gaps", "packets", "mbp_1", "ohlcv_1m", "book_state")
FLIPS = 40


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("flips") / "lake"
    with open_writer(made) as writer:
        day(writer, range(1), NAMES)
    return made


@pytest.fixture
def snapshot(root: Path) -> LakeSnapshot:
    return open_snapshot(root)


def page_data(path: Path) -> list[tuple[int, int]]:
    """Where the bytes of pages lie, without their headers: behind a header that has the CRC32 of all that follows."""
    content, found = path.read_bytes(), []
    with pq.ParquetFile(path) as file:
        groups = [file.metadata.row_group(group) for group in range(file.num_row_groups)]
    for column in (group.column(at) for group in groups for at in range(group.num_columns)):
        data, first = column.data_page_offset, column.dictionary_page_offset
        pages = [(data, (data if first is None else first) + column.total_compressed_size)]
        pages += [] if first is None else [(first, data)]
        found += [(_behind_header(content, start, end), end) for start, end in pages]
    return found


def _behind_header(content: bytes, start: int, end: int) -> int:
    for begun in range(start + 8, min(start + 100, end + 1)):
        checksum = zlib.crc32(content[begun:end])
        signed = checksum - (1 << 32) if checksum >> 31 else checksum
        if i32(signed)[1] in content[start:begun]:
            return begun
    raise AssertionError("this page has no checksum")


@contextmanager
def flipped(path: Path, place: int, bit: int) -> Iterator[None]:
    """Inside the block, one bit of the file is another one."""
    content = path.read_bytes()
    changed = bytearray(content)
    changed[place] ^= 1 << bit
    path.write_bytes(changed)
    try:
        yield
    finally:
        path.write_bytes(content)


def test_every_page_of_every_table_has_its_checksum(snapshot: LakeSnapshot) -> None:
    for name in (*NAMES, "ledger"):
        for path in snapshot.files(name):
            assert len(page_data(path)) >= pq.read_metadata(path).num_columns


@pytest.mark.parametrize("seed", range(FLIPS))
def test_verify_finds_a_bit_that_has_flipped_anywhere(root: Path, snapshot: LakeSnapshot, seed: int) -> None:
    chance = random.Random(seed)
    name = (*NAMES, "ledger")[seed % (len(NAMES) + 1)]
    [path] = snapshot.files(name)
    with flipped(path, chance.randrange(path.stat().st_size), chance.randrange(8)):
        [damage] = lake_status.verify(root, deep=True)
        assert damage.table == name and path.as_posix().endswith(damage.path)
    assert lake_status.verify(root, deep=True) == []


@pytest.mark.parametrize("seed", range(FLIPS))
def test_readers_notice_a_bit_that_has_flipped_in_a_page(snapshot: LakeSnapshot, seed: int) -> None:
    chance = random.Random(seed)
    name = NAMES[seed % len(NAMES)]
    [path] = snapshot.files(name)
    start, end = chance.choice(page_data(path))
    said = rf"cannot read .*{path.name}: .*`umdf lake verify LAKE --deep`.*`umdf lake rebuild LAKE`"
    with flipped(path, chance.randrange(start, end), chance.randrange(8)):
        with pytest.raises(UmdfError, match=said):
            read_rows(snapshot, query_of(name))
        with pytest.raises(UmdfError, match=said):
            snapshot.arrow_table(name)
        with pytest.raises(UmdfError, match=said):
            snapshot.logical_hash(name)
        with pytest.raises(UmdfError, match=said):
            read_file(path)


def test_what_cannot_be_read_is_neither_joined_nor_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_writer(tmp_path) as writer:
        day(writer, range(2), ("mbo", "trades"))
        for name in ("mbo", "ledger"):
            path = writer.snapshot.files(name)[1]
            damaged = flipped(path, page_data(path)[-1][1] - 1, 3)
            with damaged, pytest.raises(UmdfError, match=f"cannot read .*{path.name}"):
                compact(writer, ["mbo"]) if name == "mbo" else entries(writer.snapshot)
        assert compact(writer) is not None
    [path] = open_snapshot(tmp_path).files("trades")
    with flipped(path, page_data(path)[0][0], 0):
        assert run(["query", str(tmp_path), "--schema", "trades"]) == 3
        assert ": could not verify page integrity" in capsys.readouterr().err
        assert run(["lake", "verify", str(tmp_path), "--deep"]) == 3
        assert "has changed since it was written: its digest is sha256:" in capsys.readouterr().out


def test_digests_outlive_compaction_restore_and_what_others_do(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    with open_writer(tmp_path) as writer:
        day(writer, range(3), ("mbo", "trades"))
        compact(writer, ["trades"])
        assert lake_status.count_without_digest(tmp_path) == 0
        mine = writer.snapshot.version("mbo")
        assert mine is not None
    DeltaTable(tmp_path / "mbo").delete("instrument_id >= 0")
    with open_writer(tmp_path, check=False) as writer:
        restore(writer, "mbo")
    assert lake_status.count_without_digest(tmp_path) == 0 and open_snapshot(tmp_path).rows("mbo") == 150
    DeltaTable(tmp_path / "mbo").restore(mine - 1)  # two of three files
    with open_writer(tmp_path, check=False) as writer:
        accept(writer, "mbo")
    assert lake_status.count_without_digest(tmp_path) == 0 and len(open_snapshot(tmp_path).files("mbo")) == 2
    [path] = open_snapshot(tmp_path).files("trades")
    with flipped(path, 100, 0):
        assert [damage.table for damage in lake_status.verify(tmp_path, deep=True)] == ["trades"]
    DeltaTable(tmp_path / "mbo").optimize.compact()  # a file of someone else
    with open_writer(tmp_path, check=False) as writer:
        accept(writer, "mbo")
    assert lake_status.count_without_digest(tmp_path) == 1
    assert {damage.table for damage in lake_status.verify(tmp_path, deep=True)} <= {"mbo"}  # theirs may not be sorted


def test_files_of_an_older_lake_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_writer(tmp_path) as writer:
        day(writer, range(2), ("mbo",))
        intents = writer.paths.intents
    for path in intents.glob("*.json"):  # as umdf wrote them before it had digests
        said = json.loads(path.read_text())
        for change in said["changes"]:
            for add in (*change["adds"], *change["removes"]):
                del add["digest"]
        path.write_text(json.dumps(said))
    assert lake_status.verify(tmp_path, deep=True) == [] and lake_status.count_without_digest(tmp_path) == 4
    assert run(["lake", "verify", str(tmp_path), "--deep"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "no damage found\n" and "4 files have no stored digest" in shown.err
    assert run(["lake", "verify", str(tmp_path)]) == 0
    assert capsys.readouterr().err == ""
