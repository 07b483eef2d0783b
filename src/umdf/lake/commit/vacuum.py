"""Deletes orphans (files that no commit listed) and, after the retention time, files that a commit removed.

Invariant: only the lake's writer deletes, and only files that no running process can still commit: those of older
leases, and those of this lease's finished commits. A file of the last commit is never deleted, even if it had been
removed before; a file with a foreign name that no lake commit removed is never touched.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from umdf.lake import atomic_files
from umdf.lake.commit import delta, log
from umdf.lake.commit.lake_snapshot import LakeSnapshot
from umdf.lake.commit.lease import Clock
from umdf.lake.commit.writer import Writer
from umdf.lake.layout import LakePaths
from umdf.lake.parquet.data_files import FileStamp, stamp_of
from umdf.lake.schemas import tables

RETENTION_S = 7 * 24 * 3600.0
COMMITS_PER_MARK = 1000  # commits between two updates of vacuumed.json


@dataclass(frozen=True)
class FileTotals:
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class UnlistedFile:
    """A file in a table's directory that is not in the lake's last commit."""

    table: str
    path: Path
    bytes: int
    stamp: FileStamp | None  # None: not a name of umdf
    committed: bool  # a commit added it, and a later one removed it


def find_unlisted(paths: LakePaths, snapshot: LakeSnapshot) -> Iterator[UnlistedFile]:
    @lru_cache(maxsize=64)
    def paths_added_by(number: int) -> frozenset[tuple[str, str]] | None:
        try:
            intent = log.intent(paths, number)
        except atomic_files.DamagedError:
            return None
        changes = intent.changes if intent else ()
        return frozenset((change.table, add.path) for change in changes for add in change.adds)

    def is_committed(stamp: FileStamp, table: str, path: str) -> bool:
        known = paths_added_by(stamp.commit)
        return known is None or (table, path) in known  # None: unknown, and a file that may be committed is kept

    for name in tables():
        directory = paths.table(name)
        if not directory.is_dir():
            continue
        try:
            live_paths = {add.path for add in snapshot.adds(name)}
        except delta.TableError:  # unknown which of its files are live
            continue
        for path in sorted(directory.rglob("*")):
            below = path.relative_to(directory).as_posix()
            if below.startswith("_delta_log") or below in live_paths:
                continue
            try:
                found = path.stat()
            except FileNotFoundError:  # deleted by its failed task or another process
                continue
            if stat.S_ISREG(found.st_mode):
                stamp = stamp_of(path.name)
                committed = stamp is not None and is_committed(stamp, name, below)
                yield UnlistedFile(name, path, found.st_size, stamp, committed)


def delete_orphans(writer: Writer) -> FileTotals:
    """Delete orphans. The writer has finished pending commits, so a file that no intent lists never will be listed."""
    writer.lease.check()
    last = writer.snapshot.number
    found = [stray for stray in find_unlisted(writer.paths, writer.snapshot) if not stray.committed]
    orphans = [
        stray
        for stray in found
        if stray.stamp and (stray.stamp.token < writer.lease.token or stray.stamp.commit <= last)
    ]
    for stray in orphans:
        stray.path.unlink(missing_ok=True)
    return FileTotals(len(orphans), sum(stray.bytes for stray in orphans))


def vacuum(writer: Writer, retention_s: float = RETENTION_S, clock: Clock = time.time_ns) -> FileTotals:
    """Delete the files that commits older than `retention_s` removed; earlier commits are then no longer readable.

    A removed file may have been restored since (another tool restored the table, and that was accepted): then it is
    live, or a later commit removed it again, and that commit counts.
    """
    writer.lease.check()
    paths, last, deleted_bytes = writer.paths, writer.snapshot.number, list[int]()
    done = _last_vacuumed(paths)
    before_ns = clock() - int(retention_s * 1e9)
    in_use = _files_in_use(writer, done, before_ns)
    for intent in log.finished_intents(paths, done + 1, last):
        if intent.ts_ns > before_ns:
            break
        for remove in (remove for change in intent.changes for remove in change.removes):
            path = paths.table(remove.table) / remove.path
            is_ours = path.resolve().is_relative_to(paths.root.resolve())  # other tools may add files from elsewhere
            if (remove.table, remove.path) not in in_use and is_ours and path.exists():
                path.unlink()
                deleted_bytes.append(remove.bytes)
        done = intent.number
        if done % COMMITS_PER_MARK == 0:
            atomic_files.replace(paths.vacuumed, {"commit": done})
    atomic_files.replace(paths.vacuumed, {"commit": done})
    return FileTotals(len(deleted_bytes), sum(deleted_bytes))


def _last_vacuumed(paths: LakePaths) -> int:
    """The last commit whose removed files are deleted; a value that is too low only costs time."""
    try:
        return atomic_files.read_json_as(paths.vacuumed, lambda content: int(content["commit"])) or 0
    except atomic_files.DamagedError:
        return 0


def _files_in_use(writer: Writer, done: int, before_ns: int) -> set[tuple[str, str]]:
    """Of the files that a commit before `before_ns` removed, those that a later commit had or has."""
    paths, snapshot = writer.paths, writer.snapshot
    found = {(name, add.path) for name in tables() for add in snapshot.adds(name)}
    for intent in log.finished_intents(paths, done + 1, snapshot.number):
        if intent.ts_ns > before_ns:
            found |= {(change.table, remove.path) for change in intent.changes for remove in change.removes}
    pending = log.pending(paths)
    return found | {(change.table, add.path) for change in (pending.changes if pending else ()) for add in change.adds}
