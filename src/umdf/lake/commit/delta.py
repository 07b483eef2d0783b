"""Access to the Delta logs: through delta-rs, except for ordinary commits, which are written directly.

A commit to an existing table is the next JSON file in `_delta_log`; the first process to create that file wins
(Delta's protocol: add, remove, txn, commitInfo). delta-rs would read the table's whole log first, 10 ms for each of
twenty tables in every micro-batch. delta-rs creates tables, adds columns, writes checkpoints and restores versions.

Invariant: only lake commits change a table, and each carries the lake's ID and the commit number; a version with
neither was written by another tool. Committing the same number twice has no effect; what an aborted commit did to a
table is undone by the next commit.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from umdf.errors import UmdfError
from umdf.lake import atomic_files
from umdf.lake.commit import log
from umdf.lake.commit.delta_metadata import metadata_action
from umdf.lake.commit.log import Change, Intent
from umdf.lake.dialects import delta_schema
from umdf.lake.layout import LakePaths
from umdf.lake.older_layouts import table_of_layout
from umdf.lake.parquet.data_files import FileAdd, partition_text
from umdf.lake.schemas import Table
from umdf.lake.schemas import table as table_named

COMMIT_INFO_KEY = "umdf"  # in the commitInfo of every lake commit: lake ID and commit number
MAX_ATTEMPTS = 5
ENGINE = "umdf"
CHECKPOINT_EVERY = 100  # versions, as in delta-rs
_UP_TO_DATE_TABLES: set[tuple[str, Path]] = set()  # tables that have every column of this version, by lake


@dataclass(frozen=True)
class TableVersion:
    """One version of a table."""

    version: int
    operation: str
    engine: str
    lake_id: str = ""  # empty: not written by umdf
    number: int = 0


class TableError(UmdfError):
    """A table is not in the state of the lake's last commit: another tool changed it, or its log is damaged."""


def last_version(directory: Path) -> int | None:
    log = directory / "_delta_log"
    names = [path.name.split(".")[0] for path in log.glob("*.*")] if log.is_dir() else []
    return max((int(name) for name in names if name.isdigit()), default=None)


def versions_after(directory: Path, version: int | None) -> list[TableVersion]:
    """The versions of a table after `version`; all of them if it is None."""
    found: list[TableVersion] = []
    number = 0 if version is None else version + 1
    while (table_version := _read_version(directory, number)) is not None:
        found.append(table_version)
        number += 1
    return found


def _read_version(directory: Path, version: int) -> TableVersion | None:
    path = _log_file(directory, version)
    try:
        actions = list(map(json.loads, path.read_text().splitlines()))
        info = next((line["commitInfo"] for line in actions if "commitInfo" in line), {})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise _unreadable_error(directory, f"{path} is damaged") from error
    lake_id, _, number = str(info.get(COMMIT_INFO_KEY, "")).partition(":")
    return TableVersion(
        version, info.get("operation", "unknown"), info.get("engineInfo", "unknown"), lake_id, int(number or 0)
    )


def _log_file(directory: Path, version: int) -> Path:
    return directory / "_delta_log" / f"{version:020d}.json"


def foreign_version(paths: LakePaths, table: str, version: int | None, pending: int | None) -> TableVersion | None:
    """The first version after `version` that belongs neither to the pending commit nor to an aborted one."""
    for table_version in versions_after(paths.table(table), version):
        if (table_version.lake_id, table_version.number) != (paths.lake_id, pending) and not is_from_aborted(
            paths, table_version
        ):
            return table_version
    return None


def is_from_aborted(paths: LakePaths, table_version: TableVersion) -> bool:
    """Written by an aborted commit, before the abort or by a writer that had not noticed it."""
    return table_version.lake_id == paths.lake_id and log.is_aborted(paths, table_version.number)


def foreign_error(table: str, version: int | None, table_version: TableVersion) -> TableError:
    last_commit = "does not have the table" if version is None else f"has version {version}"
    return TableError(
        f"table {table} was changed outside umdf: version {table_version.version} is a {table_version.operation} by "
        f"{table_version.engine}, the lake's last commit {last_commit}",
        f"undo it with `umdf lake restore LAKE {table}`, or keep it with `umdf lake accept LAKE {table}`",
    )


def refuse_damaged_log(paths: LakePaths, table: str, version: int | None) -> None:
    """The log must reach the version of the lake's last commit: a version after a hole could not be read."""
    directory = paths.table(table)
    if version is None or _log_file(directory, version).exists():
        return
    if not list(directory.glob(f"_delta_log/{version:020d}.checkpoint*")):
        raise _unreadable_error(directory, _log_damage(directory, version))


def _unreadable_error(directory: Path, reason: str, hint: str = "") -> TableError:
    is_lost = directory.name == "ledger" and not directory.is_dir()  # the only record of which captures the lake has
    repair = "ingest the captures into a new lake" if is_lost else "rebuild it with `umdf lake rebuild LAKE`"
    return TableError(f"table {directory.name} cannot be read: {reason}", hint or repair)


def _log_damage(directory: Path, version: int) -> str:
    """What a reader of this version needs and is missing or damaged; empty if no damage is found."""
    for directory_path in (directory, directory / "_delta_log"):
        if not directory_path.is_dir():
            return f"{directory_path} is missing"
    names = [path.name[:20] for path in directory.glob("_delta_log/*.checkpoint*")]
    first = max((int(name) + 1 for name in names if name.isdigit() and int(name) <= version), default=0)
    for number in range(first, version + 1):
        try:
            if _read_version(directory, number) is None:
                return f"{_log_file(directory, number)} is missing"
        except TableError:
            return f"{_log_file(directory, number)} is damaged"
    return ""


def import_deltalake() -> None:
    """Import delta-rs late, because it is slow, and never in two threads at once."""
    import deltalake.exceptions
    import deltalake.transaction  # noqa: F401


def commit(paths: LakePaths, intent: Intent, change: Change, version: int | None) -> int:
    """Apply an intent's change to one table that is at `version`; returns the new version."""
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

    table, directory = table_of_layout(change.table, paths.layout), paths.table(change.table)
    for _ in range(MAX_ATTEMPTS):
        refuse_damaged_log(paths, table.name, version)
        new_versions = versions_after(directory, version)
        done = [foreign_change for foreign_change in new_versions if _is_from_intent(paths, intent, foreign_change)]
        if done and done[-1].operation != "ADD COLUMN":
            return done[-1].version
        step = foreign_version(paths, table.name, version, intent.number)
        if step is not None:
            raise foreign_error(table.name, version, step)
        try:
            if version is None and not new_versions:
                _create(paths, directory, table, intent, change)
            else:
                last = new_versions[-1].version if new_versions else version
                assert last is not None
                full_change = change if len(new_versions) == len(done) else _with_rollback(paths, change, version, last)
                _append_commit(paths, directory, table, intent, full_change, last)
        except (CommitFailedError, TableNotFoundError, _VersionTakenError):
            continue  # another process was faster, perhaps with this very commit
        except DeltaError as error:
            raise _unreadable_error(directory, _first_line(error)) from error
        except OSError as error:
            raise UmdfError(f"table {table.name}: {error}", "run the command again to finish the commit") from error
    raise UmdfError(
        f"could not commit table {table.name} after {MAX_ATTEMPTS} attempts", "check that no other tool writes to it"
    )


def _with_rollback(paths: LakePaths, change: Change, version: int | None, last: int) -> Change:
    """The change, based on `version`, for a table that an aborted commit moved to `last`; it undoes that commit too."""
    files_before = adds(paths, change.table, version) if version is not None else []
    files_now = adds(paths, change.table, last)
    names, removed_paths = {add.path for add in files_now}, {remove.path for remove in change.removes}
    restored = [add for add in files_before if add.path not in names | removed_paths]
    kept_paths = {add.path for add in files_before} - removed_paths
    return replace(
        change, adds=(*change.adds, *restored), removes=tuple(add for add in files_now if add.path not in kept_paths)
    )


def _is_from_intent(paths: LakePaths, intent: Intent, table_version: TableVersion) -> bool:
    return (table_version.lake_id, table_version.number) == (paths.lake_id, intent.number)


def _app_id(paths: LakePaths) -> str:
    return f"umdf-{paths.lake_id}"


def _commit_properties(paths: LakePaths, number: int, *, final: bool = True) -> Any:
    from deltalake import CommitProperties
    from deltalake.transaction import Transaction

    # Without retries the commit is the very next version, or fails: a retry could land after another tool's commit.
    transactions = [Transaction(_app_id(paths), number)] if final else None
    tag = {COMMIT_INFO_KEY: f"{paths.lake_id}:{number}"}
    return CommitProperties(custom_metadata=tag, max_commit_retries=0, app_transactions=transactions)


def _create(paths: LakePaths, directory: Path, table: Table, intent: Intent, change: Change) -> None:
    from deltalake.exceptions import DeltaError
    from deltalake.transaction import AddAction, create_table_with_add_actions

    assert not change.removes  # the table does not exist yet
    moment_ms = intent.ts_ns // 1_000_000
    adds = [
        AddAction(add.path, add.bytes, add.partition, moment_ms, change.data_change, add.stats) for add in change.adds
    ]
    skipping = (
        {"delta.dataSkippingStatsColumns": ",".join(table.statistics_columns)} if table.statistics_columns else {}
    )
    try:
        create_table_with_add_actions(
            str(directory),
            delta_schema(table.schema),
            adds,
            mode="error",
            partition_by=list(table.partition),
            name=table.name,
            description=table.doc,
            configuration=skipping,
            commit_properties=_commit_properties(paths, intent.number),
        )
    except DeltaError as error:
        if "already exists" in str(error):  # created since we looked
            raise _VersionTakenError from error
        raise


def _append_commit(
    paths: LakePaths, directory: Path, table: Table, intent: Intent, change: Change, version: int
) -> None:
    actions = _actions(paths, table, intent, change)
    if intent.layout:
        actions = chain(actions, [metadata_action(directory, table, version)])
    elif (paths.lake_id, directory) not in _UP_TO_DATE_TABLES:
        version += _add_columns(paths, directory, table, intent, version)
        _UP_TO_DATE_TABLES.add((paths.lake_id, directory))
    following = version + 1
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in actions)
    if not atomic_files.create_text_exclusively(directory / "_delta_log" / f"{following:020d}.json", text):
        raise _VersionTakenError
    if following % CHECKPOINT_EVERY == 0:
        _checkpoint(directory)


class _VersionTakenError(Exception):
    """Another process created this version."""


def _add_columns(paths: LakePaths, directory: Path, table: Table, intent: Intent, version: int) -> int:
    """Add the columns that are new in this version of umdf (NULL in older rows); returns the versions this took."""
    from deltalake import DeltaTable

    delta = DeltaTable(directory)
    if delta.version() != version:  # changed since we looked
        raise _VersionTakenError
    known_names = {field.name for field in delta.schema().fields}
    new_fields = [field for field in delta_schema(table.schema).fields if field.name not in known_names]
    if new_fields:
        delta.alter.add_columns(new_fields, commit_properties=_commit_properties(paths, intent.number, final=False))
    return int(bool(new_fields))


def _actions(paths: LakePaths, table: Table, intent: Intent, change: Change) -> Iterator[dict[str, Any]]:
    moment_ms, data_change = intent.ts_ns // 1_000_000, change.data_change
    about = {"partitionBy": json.dumps(list(table.partition)), "mode": "Append"}
    info = {"timestamp": moment_ms, "operation": "WRITE", "operationParameters": about, "engineInfo": ENGINE}
    yield {"commitInfo": info | {COMMIT_INFO_KEY: f"{paths.lake_id}:{intent.number}"}}
    for add in change.adds:
        about = {"path": add.path, "partitionValues": add.partition, "size": add.bytes, "modificationTime": moment_ms}
        yield {"add": about | {"dataChange": data_change, "stats": add.stats}}
    for remove in change.removes:
        about = {"path": remove.path, "partitionValues": remove.partition, "size": remove.bytes}
        about |= {"deletionTimestamp": moment_ms, "extendedFileMetadata": True}
        yield {"remove": about | {"dataChange": data_change}}
    yield {"txn": {"appId": _app_id(paths), "version": intent.number, "lastUpdated": moment_ms}}


def _checkpoint(directory: Path) -> None:
    """Write a checkpoint, so that readers need not read every commit since the table was created."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        delta = DeltaTable(directory)
        delta.create_checkpoint()
        delta.cleanup_metadata()
    except (DeltaError, OSError):  # the commit is done, and a later checkpoint does as well
        return


def invalidate_columns(paths: LakePaths, table: str) -> None:
    """Another tool changed the table, perhaps its columns too."""
    _UP_TO_DATE_TABLES.discard((paths.lake_id, paths.table(table)))


def restore(paths: LakePaths, table: str, version: int, number: int) -> int:
    """Restore a table to a version, as part of a lake commit."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        DeltaTable(paths.table(table)).restore(version, commit_properties=_commit_properties(paths, number))
    except (DeltaError, OSError) as error:
        raise _unreadable_error(
            paths.table(table), _log_damage(paths.table(table), version) or _first_line(error)
        ) from error
    found = last_version(paths.table(table))
    assert found is not None
    return found


def rebuild_log(paths: LakePaths, intent: Intent, table: str, files: Iterable[FileAdd], last_known_version: int) -> int:
    """Write a new log for a table whose log is damaged, listing these files; returns its version, which is a new one.

    What is left of the old log is kept in `_lake/lost`. If this is interrupted, the log is still damaged.
    """
    from deltalake import DeltaTable

    directory, work = paths.table(table), paths.work / f"log-{table}"
    version = max(last_known_version, last_version(directory) or 0) + 1
    shutil.rmtree(work, ignore_errors=True)
    atomic_files.make_directory(work)
    _create(paths, work, table_named(table), intent, Change(table, tuple(files)))
    DeltaTable(work).create_checkpoint()
    new_log, zero, number = work / "_delta_log", f"{0:020d}", f"{version:020d}"
    for path in list(new_log.glob(f"{zero}*")):
        path.rename(new_log / path.name.replace(zero, number))
    last = json.loads((new_log / "_last_checkpoint").read_text())
    (new_log / "_last_checkpoint").write_text(json.dumps(last | {"version": version}))
    atomic_files.sync_files(new_log)
    old_log = paths.root / "_lake" / "lost" / f"{table}-{number}"
    atomic_files.make_directory(old_log.parent)
    atomic_files.make_directory(directory)
    if (directory / "_delta_log").exists():
        (directory / "_delta_log").rename(old_log)
    new_log.rename(directory / "_delta_log")
    atomic_files.sync_directory(directory)
    shutil.rmtree(work)
    invalidate_columns(paths, table)
    return version


def adds(paths: LakePaths, table: str, version: int) -> list[FileAdd]:
    """The files of a table at a version."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        actions = DeltaTable(paths.table(table), version=version).get_add_actions(flatten=True)
    except (DeltaError, OSError) as error:
        reason = _log_damage(paths.table(table), version) or _first_line(error)
        if log.last_marker(paths).versions.get(table) != version:
            older = f"version {version}, of an earlier commit: {reason}"
            raise _unreadable_error(paths.table(table), older, "read a later commit") from error
        raise _unreadable_error(paths.table(table), reason) from error
    found = pa.RecordBatchReader.from_stream(actions).read_all()  # pa.table() would import pandas, 0.25 s
    return [_file_add(table, row) for row in found.to_pylist()]


def _first_line(error: Exception) -> str:
    """Without the trace that delta-rs appends."""
    return str(error).partition("\n")[0]


def _file_add(table: str, row: dict[str, Any]) -> FileAdd:
    def part(prefix: str) -> dict[str, Any]:
        return {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)}

    low, high, absent = (
        {name: value for name, value in part(prefix).items() if value is not None}
        for prefix in ("min.", "max.", "null_count.")
    )
    stats = {"numRecords": row["num_records"], "minValues": low, "maxValues": high, "nullCount": absent}
    partition = {name: partition_text(value) for name, value in part("partition.").items()}
    return FileAdd(table, row["path"], row["num_records"], row["size_bytes"], partition, json.dumps(stats, default=str))
