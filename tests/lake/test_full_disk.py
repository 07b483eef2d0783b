"""Disks that are full: one clear error, nothing half-done to be seen, and space is all that it takes to go on."""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lake.captures import ALL, day, files_of, hashes, ingest
from lake.lake_commands import UMDF

from umdf.errors import UmdfError
from umdf.lake import atomic_files
from umdf.lake.admin import lake_status
from umdf.lake.commit.lake_snapshot import open_snapshot

pytestmark = pytest.mark.xdist_group("lake-damage")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A day, and its lake."""
    tmp = tmp_path_factory.mktemp("disk")
    captured, root = day(tmp, 6_000, 20, loss=0.01, seed=31), tmp / "lake"
    ingest(root, files_of(captured))
    return captured, root


class FillingDisk:
    """The disk is full from the n-th file on, whoever writes it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, free: int) -> None:
        self.free, self.count = free, 0
        os_file, put = pa.OSFile, atomic_files._write

        def sink(path: Any, mode: str = "r", **more: Any) -> Any:
            return os_file("/dev/full", mode) if mode == "wb" and self._is_full() else os_file(path, mode, **more)

        def small(path: Path, text: str, name: Any) -> bool:
            if "leases" not in path.parts and self._is_full():
                raise atomic_files.write_error(path, OSError(28, "No space left on device"))
            return put(path, text, name)

        monkeypatch.setattr(pa, "OSFile", sink)
        monkeypatch.setattr(atomic_files, "_write", small)

    def _is_full(self) -> bool:
        self.count += 1
        return self.count > self.free


def test_a_disk_that_fills_up_at_any_file_is_one_clear_error_and_space_is_all_that_it_takes(
    sound: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sized: Callable[[int, int], int]
) -> None:
    captured, whole = sound
    inputs, root = files_of(captured), tmp_path / "lake"
    ingest(root, inputs[:4])
    before, expected = hashes(root), hashes(whole)
    shutil.copytree(root, tmp_path / "counted")
    with monkeypatch.context() as patch:
        needed = FillingDisk(patch, 1 << 60)
        ingest(tmp_path / "counted", inputs)
    # The first, the last (the marker, before it what the tables' logs say), and some between them.
    some = random.Random(1).sample(range(1, needed.count - 3), sized(2, 12))
    for free in sorted({0, *some, needed.count - 3, needed.count - 2, needed.count - 1}):
        own = tmp_path / f"filled-{free}"
        shutil.copytree(root, own)
        with monkeypatch.context() as patch:
            FillingDisk(patch, free)
            with pytest.raises(UmdfError, match=r"[Nn]o space left") as caught:
                ingest(own, inputs)
            assert "\n" not in str(caught.value)
        assert hashes(own) == before
        assert not list((own / "_lake" / "work").glob("*"))
        ingest(own, inputs)
        assert hashes(own) == expected
        status = lake_status.status(own)
        assert (status.orphans.files, status.pending) == (0, None)


LIMITED = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({{size}}, {resource.RLIM_INFINITY})); {UMDF}"


@pytest.mark.parametrize("size", [2_000, 30_000, 300_000])
def test_files_that_cannot_grow_in_whoever_writes_them_are_one_clear_error(
    sound: tuple[Path, Path], tmp_path: Path, size: int, soak: bool
) -> None:
    """The kernel refuses, also to what is not written in Python: Delta's log, Arrow's files."""
    if size != 30_000 and not soak:
        pytest.skip("only at full size: make soak")
    captured, whole = sound
    words = [
        "ingest",
        str(captured / "capture"),
        "--lake",
        str(tmp_path / "lake"),
        "--no-spark",
        "--tables",
        ",".join(ALL),
    ]
    # Python would keep bytecode that is cut at the limit, and fail to load it ever after.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", LIMITED.format(size=size), *words]
    child = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert child.returncode not in (0, 1), child
    assert child.stderr.count("\n") == 1 and "File too large" in child.stderr
    assert not (tmp_path / "lake" / "lake.json").exists() or open_snapshot(tmp_path / "lake").number == 0
    ingest(tmp_path / "lake", files_of(captured))
    assert hashes(tmp_path / "lake") == hashes(whole)
