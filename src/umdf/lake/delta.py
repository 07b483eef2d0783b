"""Everything that touches Delta's own log, through delta-rs.

The one rule: a table moves only by our commits, each of which carries the lake's id and the commit's number; what
carries neither was done by someone else. Committing the same number twice is committing it once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from umdf.errors import UmdfError
from umdf.lake.dialects import delta_schema
from umdf.lake.files import FileAdd, partition_text
from umdf.lake.layout import Home
from umdf.lake.log import Change, Intent
from umdf.lake.schemas import Table
from umdf.lake.schemas import table as table_named

TAG = "umdf"  # in the commitInfo of every commit of ours: lake id and number
TRIES = 5


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
        except (CommitFailedError, TableNotFoundError):  # someone was quicker: perhaps with this very commit
            continue
        except OSError as error:
            raise UmdfError(f"table {table.name}: {error}", "run it again: the commit will be finished") from error
    raise UmdfError(f"table {table.name} could not be committed in {TRIES} tries", "is someone else writing to it?")


def _is_of(home: Home, intent: Intent, step: Step) -> bool:
    return (step.lake_id, step.number) == (home.lake_id, intent.number)


def _properties(home: Home, intent: Intent, *, final: bool = True) -> Any:
    from deltalake import CommitProperties
    from deltalake.transaction import Transaction

    # Without retries the commit is the very next version, or fails: a retry could land behind a stranger's.
    transactions = [Transaction(f"umdf-{home.lake_id}", intent.number)] if final else None
    tag = {TAG: f"{home.lake_id}:{intent.number}"}
    return CommitProperties(custom_metadata=tag, max_commit_retries=0, app_transactions=transactions)


def _actions(home: Home, intent: Intent, change: Change) -> list[Any]:
    from deltalake.transaction import AddAction, RemoveAction

    moment_ms = intent.ts_ns // 1_000_000
    adds = [
        AddAction(add.path, add.bytes, add.partition, moment_ms, change.data_change, add.stats) for add in change.adds
    ]
    removes = [
        RemoveAction(remove.path, change.data_change, moment_ms, remove.bytes, remove.partition)
        for remove in change.removes
    ]
    return [*adds, *removes]


def _create(home: Home, directory: Path, table: Table, intent: Intent, change: Change) -> None:
    from deltalake.transaction import create_table_with_add_actions

    create_table_with_add_actions(
        str(directory),
        delta_schema(table.schema),
        _actions(home, intent, change),
        mode="error",
        partition_by=list(table.partition),
        name=table.name,
        description=table.doc,
        configuration={"delta.dataSkippingStatsColumns": ",".join(table.statistics)} if table.statistics else {},
        commit_properties=_properties(home, intent),
    )


def _append(home: Home, directory: Path, table: Table, intent: Intent, change: Change, version: int) -> None:
    from deltalake import DeltaTable
    from deltalake.exceptions import CommitFailedError

    delta = DeltaTable(directory)
    if delta.version() != version:  # it has moved since we looked
        raise CommitFailedError(f"version {delta.version()} instead of {version}")
    there = {field.name for field in delta.schema().fields}
    late = [field for field in delta_schema(table.schema).fields if field.name not in there]
    if late:  # a column that this version of umdf has added: older rows have NULL in it
        delta.alter.add_columns(late, commit_properties=_properties(home, intent, final=False))
        delta = DeltaTable(directory, version=version + 1)
    delta.create_write_transaction(
        _actions(home, intent, change),
        mode="append",
        schema=delta.schema(),
        partition_by=list(table.partition),
        commit_properties=_properties(home, intent),
    )


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
