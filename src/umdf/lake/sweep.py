"""What may be deleted: orphans (files that no commit ever listed) and, after a while, files that a commit has removed.

The one rule: only the lake's writer sweeps, and only files that no living process can still commit: those of older
leases, and those of this lease's finished commits. A name that is not ours is never touched.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from umdf.lake import durable, log
from umdf.lake.files import Stamp, stamp_of
from umdf.lake.layout import Home
from umdf.lake.lease import Clock
from umdf.lake.schemas import tables
from umdf.lake.snapshot import Snapshot
from umdf.lake.writer import Writer

RETENTION_S = 7 * 24 * 3600.0
PAGE = 1000  # commits between two marks of how far a vacuum has come


@dataclass(frozen=True)
class Swept:
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Stray:
    """A file below a table's directory that the lake's last commit does not have."""

    table: str
    path: Path
    bytes: int
    stamp: Stamp | None  # None: not our name
    committed: bool  # a commit added it, and a later one removed it


def strays(home: Home, snapshot: Snapshot) -> Iterator[Stray]:
    @lru_cache(maxsize=64)
    def listed(number: int) -> frozenset[tuple[str, str]]:
        intent = log.intent(home, number)
        changes = intent.changes if intent else ()
        return frozenset((change.table, add.path) for change in changes for add in change.adds)

    for name in tables():
        directory = home.table(name)
        if not directory.is_dir():
            continue
        there = {add.path for add in snapshot.adds(name)}
        for path in sorted(directory.rglob("*")):
            below = path.relative_to(directory).as_posix()
            if below.startswith("_delta_log") or below in there:
                continue
            try:
                found = path.stat()
            except FileNotFoundError:  # its task has given up, or someone else sweeps
                continue
            if stat.S_ISREG(found.st_mode):
                stamp = stamp_of(path.name)
                committed = stamp is not None and (name, below) in listed(stamp.commit)
                yield Stray(name, path, found.st_size, stamp, committed)


def sweep(writer: Writer) -> Swept:
    """Delete orphans. The writer has finished what was begun, so what no intent lists will never be listed."""
    writer.lease.check()
    last = writer.snapshot.number
    found = [stray for stray in strays(writer.home, writer.snapshot) if not stray.committed]
    orphans = [
        stray
        for stray in found
        if stray.stamp and (stray.stamp.token < writer.lease.token or stray.stamp.commit <= last)
    ]
    for stray in orphans:
        stray.path.unlink(missing_ok=True)
    return Swept(len(orphans), sum(stray.bytes for stray in orphans))


def vacuum(writer: Writer, retention_s: float = RETENTION_S, clock: Clock = time.time_ns) -> Swept:
    """Delete the files that commits older than `retention_s` have removed: earlier commits cannot be read any more."""
    writer.lease.check()
    home, swept = writer.home, []
    done = (durable.read(home.vacuumed) or {"commit": 0})["commit"]
    before_ns = clock() - int(retention_s * 1e9)
    for number in range(done + 1, writer.snapshot.number + 1):
        intent = log.intent(home, number)
        if intent is not None and intent.ts_ns > before_ns:
            break
        for remove in (remove for change in intent.changes for remove in change.removes) if intent else ():
            path = home.table(remove.table) / remove.path
            if path.exists():
                path.unlink()
                swept.append(remove.bytes)
        done = number
        if number % PAGE == 0:
            durable.replace(home.vacuumed, {"commit": number})
    durable.replace(home.vacuumed, {"commit": done})
    return Swept(len(swept), sum(swept))
