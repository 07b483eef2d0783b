"""`umdf lake upgrade`: a lake of an older layout gets the column names, values and descriptions of this one.

    1. the old lake's unfinished commit is finished        2. files of tables with renamed columns are written anew
    3. one commit puts them in the place of the old ones and gives every Delta table its new columns; its marker is
       written to the directory of the new layout, with all earlier ones        4. `lake.json` gets the new number

Invariant: rows, their order and their partitions stay as they are. Until step 4, which is atomic, readers of the old
layout see the old lake: its markers, and the versions of its tables, are untouched. An upgrade that was killed is taken
up by the next one. The old files stay until a vacuum.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from umdf.errors import UmdfError, require
from umdf.lake import atomic_files
from umdf.lake.admin.compaction import with_missing_columns
from umdf.lake.commit import log
from umdf.lake.commit.delta_metadata import foreign_columns
from umdf.lake.commit.lease import STALE_S, Clock, Lease, Sleep, acquire
from umdf.lake.commit.log import Change, Intent
from umdf.lake.commit.repair import pending_commit_damage
from umdf.lake.commit.writer import FaultPoint, Writer, no_fault
from umdf.lake.layout import LAYOUT, LakePaths, open_any_layout, set_layout
from umdf.lake.older_layouts import renamed_rows, renames_since, table_of_layout
from umdf.lake.parquet.data_files import FileAdd, FileStamp
from umdf.lake.parquet.file_reader import open_file
from umdf.lake.parquet.file_writer import FileWriter
from umdf.lake.runtime.local_runner import LocalRunner
from umdf.lake.runtime.spark_tasks import TaskAttempt
from umdf.lake.schemas import table

if TYPE_CHECKING:
    from umdf.lake.ingest_settings import TaskRunner

TASK = "umdf.lake.admin.upgrade:run"


@dataclass(frozen=True)
class UpgradeResult:
    old_layout: int
    layout: int
    commit: int
    tables: tuple[str, ...]  # whose files were rewritten
    files: int
    rows: int
    bytes: int  # of the new files


def upgrade(
    root: str | os.PathLike[str],
    *,
    run_tasks: TaskRunner | None = None,
    wait_s: float = 0.0,
    stale_s: float = STALE_S,
    clock: Clock = time.time_ns,
    sleep: Sleep = time.sleep,
    fault: FaultPoint = no_fault,
) -> UpgradeResult | None:
    """Bring a lake to the current layout; None if it has it already."""
    require("deltalake", "a lake")
    paths = open_any_layout(root)
    if paths.layout == LAYOUT:
        return None
    lease = acquire(paths.leases, "upgrade", writer_wait_s=wait_s, stale_s=stale_s, clock=clock, sleep=sleep)
    try:
        lease.start_heartbeat()
        paths = open_any_layout(root)
        if paths.layout == LAYOUT:  # by another process, while we waited
            return None
        return _Upgrade(paths, lease, clock, fault, run_tasks or LocalRunner()).run()
    except UmdfError as error:
        if "`umdf lake" not in error.hint:
            raise
        # Other commands of this version refuse the lake while it has the old layout.
        hint = f"repair the lake with {paths.producer}, which wrote it, and run `umdf lake upgrade {root}` again"
        raise UmdfError(error.reason, hint) from error
    finally:
        lease.release()


class _Upgrade:
    def __init__(self, paths: LakePaths, lease: Lease, clock: Clock, fault: FaultPoint, run_tasks: TaskRunner) -> None:
        self.old, self.new = paths, replace(paths, layout=LAYOUT)
        self.lease, self.clock, self.fault, self.run_tasks = lease, clock, fault, run_tasks
        self.renames = renames_since(paths.layout)

    def run(self) -> UpgradeResult:
        begun = self._finish_pending()
        self._copy_markers()
        writer = Writer(self.new, self.lease, f"upgrade to layout {self.new.layout}", self.clock, self.fault)
        if begun is None:
            number = writer.commit(self._rewrite_files(writer), layout=self.new.layout).number
        else:
            number = writer.finish(begun).number
        self.lease.check()
        set_layout(replace(self.new, first_commit=number))
        self.fault("layout changed")
        shutil.rmtree(self.old.markers, ignore_errors=True)
        return self._result(number)

    def _finish_pending(self) -> Intent | None:
        """Finish what the last writer left undone; an upgrade that was begun is returned, to be finished as such."""
        writer = Writer(self.old, self.lease, "upgrade", self.clock, self.fault)
        writer.refuse_foreign_changes()
        pending = log.pending(self.old)
        if pending is not None and pending.layout:
            if not pending_commit_damage(self.new, pending):
                return pending
            writer.abort()  # its files are damaged, and can be written again
            return None
        if pending is not None:
            writer.roll_forward()
        elif self.lease.taken_over:
            writer.fence()
        return None

    def _copy_markers(self) -> None:
        """What the old log has decided holds for the new one, whatever an earlier upgrade has left there."""
        try:
            atomic_files.make_directory(self.new.markers)
            for path in sorted(self.old.markers.glob("*.json")):
                copy = self.new.markers / path.name
                if not copy.exists() or not copy.samefile(path):
                    copy.unlink(missing_ok=True)
                    os.link(path, copy)
            atomic_files.sync_directory(self.new.markers)
        except OSError as error:
            raise atomic_files.write_error(self.new.markers, error) from error
        self.fault("markers copied")

    def _rewrite_files(self, writer: Writer) -> list[Change]:
        files = [add for name in self.renames for add in writer.snapshot.adds(name)]
        for name in self.renames:
            version = writer.snapshot.version(name)
            if version is not None and (unknown := foreign_columns(self.new.table(name), table(name), version)):
                raise UmdfError(
                    f"table {name} has columns that umdf did not write: {', '.join(unknown)}",
                    "copy them to a table of your own and drop them: an upgrade writes the files of this table anew",
                )
        files.sort(key=lambda add: -add.bytes)  # the longest first
        results = self.run_tasks([self._task(writer, add) for add in files], TASK, description="upgrade")
        self.fault("files rewritten")
        return [
            Change(add.table, (FileAdd.from_json(result["file"]),), (add,))
            for add, result in zip(files, results, strict=True)
        ]

    def _task(self, writer: Writer, add: FileAdd) -> dict[str, Any]:
        return {
            "description": f"{add.table}/{add.path}",
            "root": str(self.new.root),
            "stamp": [writer.stamp.commit, writer.stamp.token],
            "layout": self.old.layout,
            "table": add.table,
            "partition": add.partition,
            "path": str(self.new.table(add.table) / add.path),
        }

    def _result(self, number: int) -> UpgradeResult:
        intent = log.intent(self.new, number)
        adds = [add for change in intent.changes for add in change.adds] if intent else []
        names = tuple(sorted({add.table for add in adds}))
        rows, size = sum(add.rows for add in adds), sum(add.bytes for add in adds)
        return UpgradeResult(self.old.layout, self.new.layout, number, names, len(adds), rows, size)


def run(task: dict[str, Any], attempt: TaskAttempt) -> dict[str, Any]:
    """{"root", "stamp", "layout", "table", "partition", "path"} → {"file"}: one file, row group by row group."""
    name, layout = task["table"], task["layout"]
    old_schema = table_of_layout(name, layout).file_schema
    texts = [each.name for each in old_schema if each.type == pa.utf8()]
    new_file = FileWriter(
        task["root"], name, FileStamp(*task["stamp"]), task["partition"], task=attempt.task, attempt=attempt.attempt
    )
    with new_file, open_file(task["path"], read_dictionary=texts) as file:
        for group in range(file.num_row_groups):
            rows = with_missing_columns(file.read_row_group(group), old_schema)
            for renames in renames_since(layout)[name]:
                rows = renamed_rows(rows, renames)
            new_file.write(rows)
    assert new_file.added is not None  # a commit lists no file without rows
    return {"file": new_file.added.to_json()}
