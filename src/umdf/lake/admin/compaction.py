"""Merges the small files of a partition, for example those that a stream wrote during a day.

Invariant: the rows stay the same, in other files. A compaction is an ordinary commit that changes no data.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from umdf.errors import UmdfError
from umdf.lake.commit.log import Change, Marker
from umdf.lake.commit.repair import repair_hint, size_damage
from umdf.lake.commit.writer import Writer
from umdf.lake.parquet.data_files import TEXT_DICTIONARY, FileAdd, FileStamp, sort_rows
from umdf.lake.parquet.file_reader import read_file
from umdf.lake.parquet.file_writer import write_file
from umdf.lake.plan.segments import ChannelDayKey, date_of
from umdf.lake.runtime.local_runner import LocalRunner
from umdf.lake.runtime.spark_tasks import TaskAttempt
from umdf.lake.schemas import table, tables

if TYPE_CHECKING:
    from umdf.lake.ingest_settings import TaskRunner

COMPACT_BYTES = 64 << 20  # per compacted file; some ten times as much in memory
TASK = "umdf.lake.admin.compaction:run"


def compact(
    writer: Writer,
    names: Iterable[str] | None = None,
    target_bytes: int = COMPACT_BYTES,
    days: Collection[ChannelDayKey] | None = None,
    run_tasks: TaskRunner | None = None,
) -> Marker | None:
    """Merge the small files of each partition, in order, or only those of some channel-days; None if there was nothing
    to merge."""
    day_partitions = None if days is None else {(date_of(date).isoformat(), str(channel)) for channel, date in days}
    groups = [
        group for name in names or tables() for group in _compaction_groups(writer, name, target_bytes, day_partitions)
    ]
    groups.sort(key=lambda group: -sum(add.bytes for add in group))  # the longest first
    if not groups:
        return None
    for add in (add for group in groups for add in group):
        if damage := size_damage(writer.paths, add):
            raise UmdfError(f"{writer.paths.table(add.table) / add.path} {damage}", repair_hint(add))
    results = (run_tasks or LocalRunner())([_task(writer, group) for group in groups], TASK, description="compact")
    changes = [
        Change(group[0].table, (FileAdd.from_json(result["file"]),), tuple(group), data_change=False)
        for group, result in zip(groups, results, strict=True)
    ]
    return writer.commit(changes)


def _compaction_groups(
    writer: Writer, name: str, target_bytes: int, days: set[tuple[str, str]] | None
) -> list[list[FileAdd]]:
    by_partition: dict[tuple[tuple[str, str | None], ...], list[FileAdd]] = defaultdict(list)
    for add in writer.snapshot.adds(name):
        is_wanted = days is None or not add.partition or tuple(add.partition.values()) in days
        if add.bytes < target_bytes and is_wanted:
            by_partition[tuple(add.partition.items())].append(add)
    return [group for files in by_partition.values() for group in _groups(files, target_bytes)]


def _groups(files: list[FileAdd], target_bytes: int) -> list[list[FileAdd]]:
    """Groups files that are neighbours by first sequence, as many as fit; a single file is left alone."""
    groups: list[list[FileAdd]] = []
    size = 0
    for add in sorted(files, key=lambda add: (add.bounds("sequence") or (0,), add.path)):
        if not groups or size + add.bytes > target_bytes:
            groups.append([])
            size = 0
        groups[-1].append(add)
        size += add.bytes
    return [group for group in groups if len(group) > 1]


def _task(writer: Writer, group: list[FileAdd]) -> dict[str, Any]:
    name, stamp = group[0].table, writer.stamp
    return {
        "description": f"files of {name}",
        "root": str(writer.paths.root),
        "stamp": [stamp.commit, stamp.token],
        "table": name,
        "partition": group[0].partition,
        "paths": [str(writer.paths.table(name) / add.path) for add in group],
    }


def run(task: dict[str, Any], attempt: TaskAttempt) -> dict[str, Any]:
    """{"root", "stamp", "table", "partition", "paths"} → {"file"}."""
    known_table = table(task["table"])
    texts = [each.name for each in known_table.file_schema if each.type == pa.utf8()]
    parts = [read_file(path, read_dictionary=texts) for path in task["paths"]]
    whole = pa.concat_tables(
        [with_missing_columns(part, known_table.file_schema) for part in parts]
    ).unify_dictionaries()
    del parts
    rows = sort_rows(whole.combine_chunks(), known_table)
    stamp, partition = FileStamp(*task["stamp"]), task["partition"]
    added = write_file(
        task["root"], known_table.name, stamp, rows, partition, task=attempt.task, attempt=attempt.attempt
    )
    assert added is not None  # each of the files has rows
    return {"file": added.to_json()}


def with_missing_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """A column that an older version of umdf did not have is NULL; strings are dictionary-encoded."""
    kinds = [TEXT_DICTIONARY if each.type == pa.utf8() else each.type for each in schema]
    columns = [
        rows.column(each.name).cast(kind) if each.name in rows.schema.names else pa.nulls(len(rows), kind)
        for each, kind in zip(schema, kinds, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema.names)
