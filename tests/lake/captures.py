"""Small captures, ingests of them, and what is in a lake afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from umdf.exchange.bulk.capture import write_capture
from umdf.exchange.bulk.settings import BulkSettings
from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.commit.writer import open_writer
from umdf.lake.hashing import logical_hash
from umdf.lake.ingest import TABLES, ingest_captures
from umdf.lake.ingest_result import IngestResult
from umdf.lake.ingest_settings import IngestSettings, TaskRunner
from umdf.lake.runtime.local_runner import LocalRunner

ALL = frozenset(TABLES)
NO_BOOKS = frozenset(
    {"packets", "gaps", "quality", "quarantine", "definition", "status", "execution_summary", "snapshot"}
)
# Which file a packet was in, where that file was, and which commit brought it: not what happened in the market.
OF_FILES = {
    "packets": {"file_id", "file_offset"},
    "quarantine": {"file_id", "file_offset"},
    "quality": {"clock_offset_ns"},  # measured per file
    "ledger": {"commit", "path"},
}


@cache
def _written(directory: Path, settings: BulkSettings) -> Path:
    write_capture(settings, directory)
    return directory


def day(tmp: Path, messages: int = 4_000, instruments: int = 12, protocol: str = "sbe", **more: Any) -> Path:
    """A capture with its truth beside it; files roll, so that there are several of each stream."""
    settings = BulkSettings(messages, instruments, protocol, roll_s=more.pop("roll_s", 8), **more)
    return _written(tmp / f"day-{abs(hash(settings))}", settings)


def files_of(day: Path) -> list[Path]:
    return sorted((day / "capture").glob("*.pcap"))


def truth(day: Path, name: str) -> pa.Table:
    return pq.read_table(day / "truth" / f"{name}.parquet")


def ingest(
    root: Path, files: Sequence[Path], run: TaskRunner | None = None, tables: frozenset[str] = ALL, **more: Any
) -> IngestResult:
    with open_writer(root) as writer:
        return ingest_captures(files, writer, run or LocalRunner(1), IngestSettings(tables=tables, **more))


def hashes(root: Path, files_too: bool = True, **partition: Any) -> dict[str, str]:
    """Of every table; `files_too`: also in which files the packets were."""
    snapshot = open_snapshot(root)
    found = {}
    for name in (*TABLES, "ledger"):
        where = {} if name == "ledger" else partition
        skip = OF_FILES.get(name, set()) if name == "ledger" or not files_too else set()
        found[name] = logical_hash(snapshot.arrow_table(name, **where), skip)
    return found


def rows(root: Path, name: str) -> list[dict[str, Any]]:
    return open_snapshot(root).arrow_table(name).to_pylist()
