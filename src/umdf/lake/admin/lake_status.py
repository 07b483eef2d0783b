"""Status, verification and DDL of a lake. Invariant: read-only, and based on what readers see."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from umdf.errors import UmdfError
from umdf.lake.commit import delta, ledger, log, vacuum
from umdf.lake.commit.file_digests import FileDigests, current_digest
from umdf.lake.commit.lake_snapshot import LakeSnapshot, open_snapshot
from umdf.lake.commit.lease import LeaseRecord, is_dead, latest_lease
from umdf.lake.commit.log import Marker
from umdf.lake.commit.repair import pending_commit_damage, repair_hint
from umdf.lake.dialects import create_schema, create_table, notes
from umdf.lake.layout import LakePaths, open_lake_paths
from umdf.lake.parquet.data_files import FileAdd, is_sorted
from umdf.lake.recording.capture_clock import is_clock_off, largest_offset
from umdf.lake.schemas import table, tables


@dataclass(frozen=True)
class FileDamage:
    table: str
    path: str
    reason: str
    repair: str = ""  # how to repair it


@dataclass(frozen=True)
class TableStatus:
    name: str
    mode: str
    version: int | None
    files: int
    rows: int
    bytes: int
    partitions: int
    changed_by: str = ""  # the tool that changed it since the last commit
    damage: str = ""  # why it cannot be read, and how to repair it


@dataclass(frozen=True)
class ClockOffset:
    """A channel-day with a recording whose clock is off."""

    trading_date: str
    channel_id: int
    line: str
    offset_ns: int


@dataclass(frozen=True)
class LakeStatus:
    lake_id: str
    producer: str
    marker: Marker
    pending: int | None  # an unfinished commit
    pending_damage: tuple[FileDamage, ...]  # why it cannot be finished
    writer: LeaseRecord | None  # the current writer
    tables: tuple[TableStatus, ...]
    orphans: vacuum.FileTotals
    removed: vacuum.FileTotals  # to be deleted by a vacuum
    unknown: tuple[str, ...]  # files in table directories with foreign names
    clocks: tuple[ClockOffset, ...]  # recordings whose clock is off


def status(root: str | os.PathLike[str]) -> LakeStatus:
    paths = open_lake_paths(root)
    snapshot, pending, lease = open_snapshot(root), log.pending_number(paths), latest_lease(paths.leases)
    found = list(vacuum.find_unlisted(paths, snapshot))
    writing = lease is not None and not lease.released and not is_dead(lease.owner)
    orphans = [] if writing else [stray for stray in found if stray.stamp and not stray.committed]
    return LakeStatus(
        paths.lake_id,
        paths.producer,
        snapshot.marker,
        pending,
        _pending_damage(paths),
        lease if writing else None,
        tuple(_table_status(snapshot, name, pending) for name in tables()),
        _totals(orphans),
        _totals(
            [stray for stray in found if stray.committed and stray.stamp and stray.stamp.commit <= snapshot.number]
        ),
        tuple(str(stray.path) for stray in found if stray.stamp is None),
        _clock_offsets(snapshot),
    )


def _clock_offsets(snapshot: LakeSnapshot) -> tuple[ClockOffset, ...]:
    found: dict[tuple[str, int, str], list[int | None]] = {}
    try:
        entries = ledger.entries(snapshot)
    except UmdfError:  # the ledger is damaged, as the status of its table says
        return ()
    for entry in entries:
        if entry.trading_date is not None and is_clock_off(entry.clock_offset_ns):
            key = entry.trading_date.isoformat(), entry.channel_id or 0, entry.line or ""
            found.setdefault(key, []).append(entry.clock_offset_ns)
    return tuple(ClockOffset(*key, largest_offset(offsets) or 0) for key, offsets in sorted(found.items()))


def _pending_damage(paths: LakePaths) -> tuple[FileDamage, ...]:
    """Damage that prevents an unfinished commit from being finished."""
    abort = "abort the unfinished commit with `umdf lake abort LAKE`"
    try:
        intent = log.pending(paths)
    except UmdfError as error:
        return (FileDamage("", str(paths.intents), error.reason, error.hint),)
    found = pending_commit_damage(paths, intent) if intent else []
    return tuple(FileDamage(add.table, add.path, f"{what} (of the unfinished commit)", abort) for add, what in found)


def _totals(files: list[vacuum.UnlistedFile]) -> vacuum.FileTotals:
    return vacuum.FileTotals(len(files), sum(stray.bytes for stray in files))


def _table_status(snapshot: LakeSnapshot, name: str, pending: int | None) -> TableStatus:
    version = snapshot.version(name)
    try:
        adds, step = snapshot.adds(name), delta.foreign_version(snapshot.paths, name, version, pending)
    except delta.TableError as error:
        return TableStatus(name, table(name).mode, version, 0, 0, 0, 0, damage=str(error))
    return TableStatus(
        name,
        table(name).mode,
        version,
        len(adds),
        sum(add.rows for add in adds),
        sum(add.bytes for add in adds),
        len({tuple(add.partition.items()) for add in adds}),
        f"{step.operation} of {step.engine}" if step else "",
    )


def verify(root: str | os.PathLike[str], deep: bool = False) -> list[FileDamage]:
    """Check that every file of the last commit exists, with the right size and row count. Deep: also compare its
    digest, and read its rows."""
    snapshot = open_snapshot(root)
    digests = FileDigests(snapshot.paths) if deep else None
    found = [*_pending_damage(snapshot.paths)]
    for name in tables():
        try:
            adds = snapshot.adds(name)
        except delta.TableError as error:
            found.append(FileDamage(name, "_delta_log", error.reason, error.hint))
            continue
        for add in adds:
            reason = _file_damage(snapshot, add, digests)
            if reason:
                found.append(FileDamage(name, add.path, reason, repair_hint(add)))
    return found


def count_without_digest(root: str | os.PathLike[str]) -> int:
    """How many files of the last commit have no stored digest: an older umdf or another tool wrote them."""
    snapshot = open_snapshot(root)
    digests, count = FileDigests(snapshot.paths), 0
    for name in tables():
        try:
            count += sum(not digests.digest_of(add) for add in snapshot.adds(name))
        except delta.TableError:  # `verify` reports the table
            continue
    return count


def _file_damage(snapshot: LakeSnapshot, add: FileAdd, digests: FileDigests | None) -> str:
    """What is wrong with a file; empty if nothing is. Without digests only its footer is read."""
    path, known = snapshot.paths.table(add.table) / add.path, table(add.table)
    if not path.exists():
        return "is missing"
    if path.stat().st_size != add.bytes:
        return f"has {path.stat().st_size} bytes instead of {add.bytes}"
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            rows = file.metadata.num_rows
            if rows != add.rows:
                return f"has {rows} rows instead of {add.rows}"
            if digests is None:
                return ""
            written = digests.digest_of(add)
            now = current_digest(path, written) if written else ""
            if now != written:
                return f"has changed since it was written: its digest is {now}, not {written}"
            for group in range(file.num_row_groups):
                read = file.read_row_group(group)
                if not is_sorted(read, known):
                    return f"row group {group} is not sorted by {', '.join(known.sort)}"
    except (OSError, pa.ArrowException) as error:
        return f"cannot be read: {str(error).splitlines()[0]}"
    return ""


def ddl(
    root: str | os.PathLike[str], dialect: str = "spark", catalog: str = "umdf", location: str | None = None
) -> str:
    """Statements for every table that was written; `location` is the lake's URL as seen by the catalog."""
    snapshot = open_snapshot(root)
    parts = [notes(dialect, catalog), create_schema(dialect, catalog)]
    for name in tables():
        if snapshot.version(name) is not None:
            table_location = f"{location.rstrip('/')}/{name}" if location else snapshot.paths.table(name)
            parts.append(create_table(table(name), table_location, dialect, catalog))
    return "\n".join(parts)
