"""Everything that touches Delta's own log: through delta-rs, but for the commit that is made again and again.

A commit to a table that exists is one file of JSON lines, the next in `_delta_log`, which whoever creates it first has
(Delta's protocol: add, remove, txn, commitInfo). delta-rs would read the whole table's log for it, 10 ms for each of
twenty tables in every micro-batch of a stream. It creates tables, adds columns, writes checkpoints and restores.

The one rule: a table moves only by our commits, each of which carries the lake's id and the commit's number; what
carries neither was done by someone else. Committing the same number twice is committing it once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from umdf.errors import UmdfError
from umdf.lake import durable
from umdf.lake.dialects import delta_schema
from umdf.lake.files import FileAdd, partition_text
from umdf.lake.layout import Home
from umdf.lake.log import Change, Intent
from umdf.lake.schemas import Table
from umdf.lake.schemas import table as table_named

TAG = "umdf"  # in the commitInfo of every commit of ours: lake id and number
TRIES = 5
ENGINE = "umdf"
CHECKPOINT_EVERY = 100  # versions, as delta-rs has it
_COMPLETE: set[tuple[str, Path]] = set()  # tables that have all columns of this version of umdf, by lake


@dataclass(frozen=True)
class Step:
    """One version of a table."""

    version: int
    operation: str
    engine: str
    lake_id: str = ""  # empty: not one of ours
    number: int = 0


def last_version(directory: Path) -> int | None:
    log = directory / "_delta_log"
    names = [path.name.split(".")[0] for path in log.glob("*.*")] if log.is_dir() else []
    return max((int(name) for name in names if name.isdigit()), default=None)


def steps_after(directory: Path, version: int | None) -> list[Step]:
    """The versions of a table that follow one; all of them if it is None."""
    found: list[Step] = []
    number = 0 if version is None else version + 1
    while (step := _step(directory, number)) is not None:
        found.append(step)
        number += 1
    return found


def _step(directory: Path, version: int) -> Step | None:
    path = directory / "_delta_log" / f"{version:020d}.json"
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return None
    info = next((said["commitInfo"] for said in map(json.loads, lines) if "commitInfo" in said), {})
    lake_id, _, number = str(info.get(TAG, "")).partition(":")
    return Step(version, info.get("operation", "unknown"), info.get("engineInfo", "unknown"), lake_id, int(number or 0))


def foreign(home: Home, table: str, version: int | None, pending: int | None) -> Step | None:
    """The first step after `version` that is neither ours nor of the commit that is being finished."""
    for step in steps_after(home.table(table), version):
        if (step.lake_id, step.number) != (home.lake_id, pending):
            return step
    return None


def foreign_fault(table: str, version: int | None, step: Step) -> UmdfError:
    ours = "has no such table" if version is None else f"left it at version {version}"
    return UmdfError(
        f"table {table} was changed by someone else: version {step.version} is a {step.operation} of {step.engine}, "
        f"and the lake's last commit {ours}",
        f"`umdf lake restore LAKE {table}` takes it back, `umdf lake accept LAKE {table}` keeps it",
    )


def load() -> None:
    """delta-rs takes its time, so it comes late; and it must not come twice at once, in two threads."""
    import deltalake.exceptions
    import deltalake.transaction  # noqa: F401


def commit(home: Home, intent: Intent, change: Change, version: int | None) -> int:
    """Bring one table from `version` to where the intent wants it; the version it then has."""
    from deltalake.exceptions import CommitFailedError, TableNotFoundError

    table, directory = table_named(change.table), home.table(change.table)
    for _ in range(TRIES):
        done = [step for step in steps_after(directory, version) if _is_of(home, intent, step)]
        if done and done[-1].operation != "ADD COLUMN":
            return done[-1].version
        step = foreign(home, table.name, version, intent.number)
        if step is not None:
            raise foreign_fault(table.name, version, step)
        try:
            if version is None:
                _create(home, directory, table, intent, change)
            else:
                _append(home, directory, table, intent, change, version + len(done))
        except (CommitFailedError, TableNotFoundError, _TakenError):
            continue  # someone was quicker: perhaps with this very commit
        except OSError as error:
            raise UmdfError(f"table {table.name}: {error}", "run it again: the commit will be finished") from error
    raise UmdfError(f"table {table.name} could not be committed in {TRIES} tries", "is someone else writing to it?")


def _is_of(home: Home, intent: Intent, step: Step) -> bool:
    return (step.lake_id, step.number) == (home.lake_id, intent.number)


def _app(home: Home) -> str:
    return f"umdf-{home.lake_id}"


def _properties(home: Home, intent: Intent, *, final: bool = True) -> Any:
    from deltalake import CommitProperties
    from deltalake.transaction import Transaction

    # Without retries the commit is the very next version, or fails: a retry could land behind a stranger's.
    transactions = [Transaction(_app(home), intent.number)] if final else None
    tag = {TAG: f"{home.lake_id}:{intent.number}"}
    return CommitProperties(custom_metadata=tag, max_commit_retries=0, app_transactions=transactions)


def _create(home: Home, directory: Path, table: Table, intent: Intent, change: Change) -> None:
    from deltalake.transaction import AddAction, create_table_with_add_actions

    assert not change.removes  # of a table that does not exist
    moment_ms = intent.ts_ns // 1_000_000
    adds = [
        AddAction(add.path, add.bytes, add.partition, moment_ms, change.data_change, add.stats) for add in change.adds
    ]
    create_table_with_add_actions(
        str(directory),
        delta_schema(table.schema),
        adds,
        mode="error",
        partition_by=list(table.partition),
        name=table.name,
        description=table.doc,
        configuration={"delta.dataSkippingStatsColumns": ",".join(table.statistics)} if table.statistics else {},
        commit_properties=_properties(home, intent),
    )


def _append(home: Home, directory: Path, table: Table, intent: Intent, change: Change, version: int) -> None:
    if (home.lake_id, directory) not in _COMPLETE:
        version += _add_columns(home, directory, table, intent, version)
        _COMPLETE.add((home.lake_id, directory))
    following = version + 1
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in _lines(home, table, intent, change))
    if not durable.create_text_once(directory / "_delta_log" / f"{following:020d}.json", text):
        raise _TakenError
    if following % CHECKPOINT_EVERY == 0:
        _checkpoint(directory)


class _TakenError(Exception):
    """Someone else has made this version."""


def _add_columns(home: Home, directory: Path, table: Table, intent: Intent, version: int) -> int:
    """Columns that this version of umdf has added: older rows have NULL in them. How many versions that took."""
    from deltalake import DeltaTable

    delta = DeltaTable(directory)
    if delta.version() != version:  # it has moved since we looked
        raise _TakenError
    there = {field.name for field in delta.schema().fields}
    late = [field for field in delta_schema(table.schema).fields if field.name not in there]
    if late:
        delta.alter.add_columns(late, commit_properties=_properties(home, intent, final=False))
    return int(bool(late))


def _lines(home: Home, table: Table, intent: Intent, change: Change) -> Iterator[dict[str, Any]]:
    moment_ms, data_change = intent.ts_ns // 1_000_000, change.data_change
    about = {"partitionBy": json.dumps(list(table.partition)), "mode": "Append"}
    info = {"timestamp": moment_ms, "operation": "WRITE", "operationParameters": about, "engineInfo": ENGINE}
    yield {"commitInfo": info | {TAG: f"{home.lake_id}:{intent.number}"}}
    for add in change.adds:
        about = {"path": add.path, "partitionValues": add.partition, "size": add.bytes, "modificationTime": moment_ms}
        yield {"add": about | {"dataChange": data_change, "stats": add.stats}}
    for remove in change.removes:
        about = {"path": remove.path, "partitionValues": remove.partition, "size": remove.bytes}
        about |= {"deletionTimestamp": moment_ms, "extendedFileMetadata": True}
        yield {"remove": about | {"dataChange": data_change}}
    yield {"txn": {"appId": _app(home), "version": intent.number, "lastUpdated": moment_ms}}


def _checkpoint(directory: Path) -> None:
    """So that readers need not read every commit since the table was created."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        delta = DeltaTable(directory)
        delta.create_checkpoint()
        delta.cleanup_metadata()
    except (DeltaError, OSError):  # the commit is done, and the next checkpoint will be as good
        return


def look_again(home: Home, table: str) -> None:
    """Someone else has changed the table: its columns, too, perhaps."""
    _COMPLETE.discard((home.lake_id, home.table(table)))


def restore(home: Home, table: str, version: int, intent: Intent) -> int:
    """Take a table back to a version, as a commit of ours."""
    from deltalake import DeltaTable

    delta = DeltaTable(home.table(table))
    delta.restore(version, commit_properties=_properties(home, intent))
    found = last_version(home.table(table))
    assert found is not None
    return found


def adds(home: Home, table: str, version: int) -> list[FileAdd]:
    """The files of a table at a version."""
    from deltalake import DeltaTable

    said = DeltaTable(home.table(table), version=version).get_add_actions(flatten=True)
    found = pa.RecordBatchReader.from_stream(said).read_all()  # pa.table() would load pandas: a quarter of a second
    return [_file_add(table, row) for row in found.to_pylist()]


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
