"""Damage of a lake: how to find it, which command repairs it, and how a table's log is rebuilt.

Invariant: the lake's log lists the files of each table. A damaged Delta log is rebuilt from it; damaged files are
rebuilt from the captures (`umdf lake rebuild`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from umdf.errors import UmdfError
from umdf.lake.commit import delta, log
from umdf.lake.commit.log import Change, Intent
from umdf.lake.layout import LakePaths
from umdf.lake.parquet.data_files import FileAdd

if TYPE_CHECKING:
    from umdf.lake.commit.writer import Writer

REINGEST_HINT = "ingest the captures into a new lake"


def size_damage(paths: LakePaths, add: FileAdd) -> str:
    """What is wrong with a file's existence or size; empty if nothing is."""
    path = paths.table(add.table) / add.path
    size = path.stat().st_size if path.exists() else None
    if size == add.bytes:
        return ""
    return "is missing" if size is None else f"has {size} bytes instead of {add.bytes}"


def pending_commit_damage(paths: LakePaths, intent: Intent) -> list[tuple[FileAdd, str]]:
    """Damaged files of an unfinished commit, which prevent finishing it."""
    added = [add for change in intent.changes if change.table not in intent.moved for add in change.adds]
    return [(add, damage) for add in added if (damage := size_damage(paths, add))]


def repair_hint(add: FileAdd) -> str:
    """How to repair a damaged file: rebuild its channel-day, if it has one."""
    date, channel = add.partition.get("trading_date"), add.partition.get("channel_id")
    if date is None or channel is None:
        return REINGEST_HINT
    return f"rebuild it with `umdf lake rebuild LAKE --date {date} --channel {channel}`"


def rebuild_lost_logs(writer: Writer) -> list[str]:
    """Rebuild unreadable Delta logs, in one commit; returns the names of their tables.

    Their files may be missing too: the new log still lists them, and rebuilding the channel-days replaces them.
    """
    paths, versions = writer.paths, writer.snapshot.marker.versions
    lost = [name for name, version in versions.items() if _is_lost(writer, name, version)]
    if not lost:
        return []
    files = {name: _files_at(paths, name, writer.snapshot.number) for name in lost}
    new_log_intent = Intent(writer.stamp.commit, writer.lease.token, f"new log of {', '.join(lost)}", writer.clock())
    moved = {name: delta.rebuild_log(paths, new_log_intent, name, files[name], versions[name]) for name in lost}
    changes = tuple(Change(name) for name in lost)
    writer.commit_intent(
        Intent(new_log_intent.number, new_log_intent.token, new_log_intent.what, new_log_intent.ts_ns, changes, moved)
    )
    return lost


def _is_lost(writer: Writer, table: str, version: int) -> bool:
    try:
        delta.refuse_damaged_log(writer.paths, table, version)
        delta.versions_after(writer.paths.table(table), version)
        writer.snapshot.adds(table)
    except delta.TableError:
        return True
    return False


def _files_at(paths: LakePaths, table: str, last: int) -> list[FileAdd]:
    """The files of a table after a commit, according to the lake's log."""
    found: dict[str, FileAdd] = {}
    for intent in log.finished_intents(paths, 1, last):
        changes = [change for change in intent.changes if change.table == table]
        if table in intent.moved and not changes:
            raise UmdfError(
                f"the log of {table} is damaged and commit {intent.number} does not list its files", REINGEST_HINT
            )
        for change in changes:
            for remove in change.removes:
                found.pop(remove.path, None)
            found |= {add.path: add for add in change.adds}
    return list(found.values())
