"""The ledger: every input of the lake, by content. Ingesting a known input again does nothing.

Invariant: an input is identified by its bytes. Its name, its path and Spark's batch numbers are only hints.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import date
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from umdf.errors import CaptureError, UmdfError
from umdf.lake.commit.lake_snapshot import LakeSnapshot
from umdf.lake.locations import local_path, stored_text
from umdf.lake.parquet.data_files import FileAdd, FileStamp, sort_rows
from umdf.lake.parquet.file_reader import read_file
from umdf.lake.schemas import table

DIGEST_ALGORITHM = "sha256"  # twice as fast as blake2b on CPUs with SHA instructions
DIGEST_PREFIX = 19  # characters of a digest that are shown
CHUNK_BYTES = 1 << 20
MAX_CACHED_FILES = 10_000  # files of the ledger table


@dataclass(frozen=True)
class LedgerEntry:
    """The part of an input that belongs to one channel, line and stream; an input without usable data has one entry."""

    digest: str
    size_bytes: int
    path: str | None = None
    trading_date: date | None = None
    channel_id: int | None = None
    line: str | None = None
    stream: str | None = None
    seq_version: int | None = None
    first_sequence: int | None = None
    last_sequence: int | None = None
    packets: int | None = None
    ts_first: int | None = None
    ts_last: int | None = None
    flow: str | None = None  # address:port; None in older lakes
    # Digest of the channel configuration (umdf.lake.plan.channel_config).
    channel_config: str | None = field(default=None, compare=False)
    content_digest: str | None = field(default=None, compare=False)  # of a compressed file: decompressed
    # Median of receive minus send time (umdf.lake.recording.capture_clock).
    clock_offset_ns: int | None = field(default=None, compare=False)


def digest_of(path: str | os.PathLike[str], size: int | None = None) -> tuple[str, int]:
    """Digest and size of a file as stored (compressed or not), or of its first `size` bytes."""
    return FileDigest(path, size).finish()


class FileDigest:
    """Digest of a file that is being read from its start; bytes that were not read are read at the end. The file may
    grow meanwhile: only its first `size` bytes count (its size now, or as many bytes as were read).

    `prefixes` are sizes in bytes; `prefix_digests` then has the digest of each such prefix.
    """

    def __init__(self, path: str | os.PathLike[str], size: int | None = None, prefixes: Iterable[int] = ()) -> None:
        self.path, self.size, self._digest = path, 0, hashlib.sha256()
        self.prefix_digests: dict[int, str] = {}
        self._prefixes = sorted(prefixes)
        try:
            self._target_bytes = os.path.getsize(path) if size is None else size
        except OSError as error:
            raise self._read_error(error) from error

    def update(self, content: bytes | memoryview) -> None:
        while self._prefixes and self.size + len(content) >= self._prefixes[0]:
            part = self._prefixes.pop(0) - self.size
            self._add(content[:part])
            self.prefix_digests[self.size] = self._digest_text()
            content = content[part:]
        self._add(content)

    def finish(self) -> tuple[str, int]:
        try:
            with Path(self.path).open("rb") as file:
                file.seek(self.size)
                while chunk := file.read(min(CHUNK_BYTES, max(self._target_bytes - self.size, 0))):
                    self.update(chunk)
        except OSError as error:
            raise self._read_error(error) from error
        return self._digest_text(), self.size

    def _add(self, content: bytes | memoryview) -> None:
        self._digest.update(content)
        self.size += len(content)

    def _digest_text(self) -> str:
        return f"{DIGEST_ALGORITHM}:{self._digest.hexdigest()}"

    def _read_error(self, error: OSError) -> CaptureError:
        return CaptureError(f"cannot read {self.path}: {error.strerror}")


def file_id(digest: str) -> int:
    """Identifies an input in `packets` and `quarantine`: the first 8 bytes of its digest, as a signed integer."""
    return int.from_bytes(bytes.fromhex(digest.partition(":")[2][:16]), "big", signed=True)


def known_digests(snapshot: LakeSnapshot, digests: Iterable[str]) -> set[str]:
    """Which of these inputs the lake has."""
    requested = pa.array(sorted(set(digests)), pa.utf8())
    found = snapshot.arrow_dataset("ledger").to_table(columns=["digest"], filter=pc.field("digest").isin(requested))
    return set(found.column("digest").to_pylist())


def entries(snapshot: LakeSnapshot) -> list[LedgerEntry]:
    return [entry for path in snapshot.files("ledger") for entry in _entries_of(path)]


@lru_cache(MAX_CACHED_FILES)
def _entries_of(path: Path) -> tuple[LedgerEntry, ...]:
    """Cached: a file never changes, and a stream reads the same ones repeatedly."""
    try:
        rows = read_file(path).drop_columns(["commit"]).to_pylist()
    except (OSError, UmdfError) as error:
        lost = f"{path}, which lists captures of the lake, cannot be read: {str(error).splitlines()[0]}"
        raise UmdfError(lost, "restore it from a backup, or ingest the captures into a new lake") from error
    return tuple(LedgerEntry(**row | {"path": row["path"] and str(local_path(row["path"]))}) for row in rows)


def write_entries(root: Path, stamp: FileStamp, added: Iterable[LedgerEntry]) -> FileAdd | None:
    """Write a commit's entries to a file of the ledger."""
    from umdf.lake.parquet.file_writer import write_file  # numba: readers do without it

    known_table = table("ledger")
    records = [
        asdict(entry) | {"path": entry.path and stored_text(entry.path), "commit": stamp.commit} for entry in added
    ]
    rows = pa.Table.from_pylist(records, known_table.schema)
    return write_file(root, "ledger", stamp, sort_rows(rows, known_table))
