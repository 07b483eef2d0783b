"""The lake commit: files of many tables become visible together, exactly once.

    1. tasks write files that no reader sees        2. the lease is checked once more
    3. an intent, created only if its number is free, lists everything        4. each Delta table is committed from it
    5. a marker maps the commit to table versions: now readers see it

Invariant: after step 3 the commit will happen. The next process that opens the lake finishes it, and every step can
be repeated. Before step 3 nothing has happened, and the files are deleted as orphans.

A commit that cannot be finished is aborted by its marker, which keeps every table at its previous version. The marker
is created once, so a commit is either done or aborted. Tables that were already changed are rolled back by the next
commit; readers never see their versions.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from umdf.errors import UmdfError, require
from umdf.lake.commit import delta, ledger, log
from umdf.lake.commit.lake_snapshot import LakeSnapshot
from umdf.lake.commit.lease import STALE_S, Clock, Lease, Sleep, acquire
from umdf.lake.commit.log import Change, Intent, Marker
from umdf.lake.commit.repair import pending_commit_damage, size_damage
from umdf.lake.layout import LakePaths, create_lake_paths
from umdf.lake.parquet.data_files import FileAdd, FileStamp, stamp_of
from umdf.lake.schemas import tables

PARALLEL_TABLES = 8  # tables
BUG_HINT = "this is a bug, please report it"
FaultPoint = Callable[[str], None]  # called with the name of each step: tests stop the process there


def no_fault(step: str) -> None:
    return None


class Writer:
    """The only writer of a lake, from `open_writer` to `close`."""

    def __init__(self, paths: LakePaths, lease: Lease, what: str, clock: Clock, fault: FaultPoint) -> None:
        self.paths = paths
        self.lease = lease
        self.what = what
        self.clock = clock
        self._fault = fault
        self.snapshot = LakeSnapshot(paths, log.last_marker(paths))

    @property
    def stamp(self) -> FileStamp:
        """Stamp for the file names of the next commit."""
        return FileStamp(self.snapshot.number + 1, self.lease.token)

    def commit(
        self,
        changes: Iterable[Change] = (),
        entries: Iterable[ledger.LedgerEntry] = (),
        notes: Mapping[str, Any] | None = None,
        layout: int = 0,
    ) -> Marker:
        """Commit all changes or none. `entries` are their inputs; `notes` are stored in the marker. With a
        `layout`, every existing table gets the columns of that layout."""
        stamp = self.stamp
        all_changes = [*changes]
        written = ledger.write_entries(self.paths.root, stamp, entries)
        if written:
            all_changes.append(Change("ledger", (written,)))
        merged_changes = log.merge_changes(all_changes)
        if layout:
            changed = {change.table for change in merged_changes}
            existing = [name for name in tables() if delta.last_version(self.paths.table(name)) is not None]
            merged_changes += tuple(Change(name) for name in existing if name not in changed)
        self._check_changes(merged_changes)
        self.refuse_foreign_changes()
        intent = Intent(
            stamp.commit, stamp.token, self.what, self.clock(), merged_changes, {}, dict(notes or {}), layout
        )
        self._fault("files written")
        return self.commit_intent(intent)

    def replace_partition(self, table: str, adds: Iterable[FileAdd], **partition: Any) -> Change:
        """A change that replaces all files of a partition."""
        return Change(table, tuple(adds), tuple(self.snapshot.adds(table, **partition)))

    def commit_intent(self, intent: Intent) -> Marker:
        self.lease.check()
        self._fault("lease checked")
        if not log.create_intent(self.paths, intent):
            raise UmdfError(
                f"another writer created commit {intent.number}; nothing was committed", "run the command again"
            )
        self._fault("intent created")
        return self.finish(intent)

    def finish(self, intent: Intent) -> Marker:
        """Steps 4 and 5, which another process may have done in part."""
        before = log.last_marker(self.paths)
        if before.number >= intent.number:
            return self._decided_marker(intent.number)
        reached = {**before.versions, **intent.moved}
        changes = [change for change in intent.changes if change.table not in intent.moved]

        def commit(change: Change) -> int:
            self._fault(f"before {change.table}")
            if log.is_done(
                self.paths, intent.number
            ):  # by another process, which may have committed more, or aborted it
                return self._decided_marker(intent.number).versions[change.table]
            version = delta.commit(self.paths, intent, change, before.versions.get(change.table))
            self._fault(f"after {change.table}")
            return version

        delta.import_deltalake()
        with ThreadPoolExecutor(PARALLEL_TABLES) as pool:  # wait for the disk once, not per table
            versions = pool.map(commit, changes)
            reached |= {change.table: version for change, version in zip(changes, versions, strict=True)}
        marker = Marker(intent.number, intent.what, intent.ts_ns, reached, intent.notes)
        is_mine = log.create_marker(self.paths, marker)
        if not is_mine:
            self._decided_marker(intent.number)  # another process finished it, with an identical marker
        self._fault("marker created")
        follows = is_mine and self.snapshot.number + 1 == intent.number and not intent.moved
        known = self.snapshot.after(marker, intent.changes) if follows else None
        self.snapshot = known or LakeSnapshot(self.paths, log.last_marker(self.paths))
        return marker

    def _decided_marker(self, number: int) -> Marker:
        """The marker that another process created for this intent."""
        marker = log.marker(self.paths, number)
        if marker.aborted:
            raise UmdfError(
                f"commit {number} was aborted by another process; nothing was committed", "run the command again"
            )
        return marker

    def roll_forward(self) -> Intent | None:
        """Finish the commit that an earlier writer left unfinished."""
        intent = log.pending(self.paths)
        if intent is None:
            return None
        found = pending_commit_damage(self.paths, intent)
        if found:
            add, damage = found[0]
            raise UmdfError(
                f"{self.paths.table(add.table) / add.path} {damage}, and belongs to unfinished commit {intent.number}",
                "restore the file from a backup, or abort the commit with `umdf lake abort LAKE`",
            )
        try:
            self.finish(intent)
        except delta.TableError as error:
            raise _stuck_error(error, intent.number) from error
        return intent

    def abort(self) -> int | None:
        """Abort the unfinished commit, whatever its state, unless it is finished by now; returns its number."""
        number = log.pending_number(self.paths)
        if number is None:
            return None
        before = log.last_marker(self.paths)
        self.lease.check()
        self._fault("abort checked")
        abort_marker = Marker(number, f"abort of commit {number}", self.clock(), before.versions, aborted=True)
        is_mine = log.create_marker(self.paths, abort_marker)
        self._fault("abort created")
        self.snapshot = LakeSnapshot(self.paths, log.last_marker(self.paths))
        return number if is_mine or log.is_aborted(self.paths, number) else None

    def roll_back_aborted(self) -> list[str]:
        """Roll back the tables that an aborted commit changed, as a commit; returns their names."""
        moved = [name for name in tables() if self._is_moved_by_aborted(name)]
        if moved:
            changes = tuple(Change(name) for name in moved)
            self.commit_intent(Intent(self.stamp.commit, self.lease.token, "take back", self.clock(), changes))
        return moved

    def _is_moved_by_aborted(self, table: str) -> bool:
        version = self.snapshot.version(table)
        try:
            steps = delta.versions_after(self.paths.table(table), version)
            if not steps or not all(delta.is_from_aborted(self.paths, step) for step in steps):
                return False
            self.snapshot.adds(table)
            return True
        except delta.TableError:  # it must be rebuilt first
            return False

    def fence(self) -> None:
        """Use up the next number with an empty commit, so that an old writer that is only slow cannot take it."""
        self.commit_intent(Intent(self.stamp.commit, self.lease.token, "takeover", self.clock()))

    def refuse_foreign_changes(self) -> None:
        """Raise if another tool changed a table."""
        pending = log.pending_number(self.paths)
        for name in tables():
            version = self.snapshot.marker.versions.get(name)
            try:
                delta.refuse_damaged_log(self.paths, name, version)
                step = delta.foreign_version(self.paths, name, version, pending)
                if step is not None:
                    raise delta.foreign_error(name, version, step)
            except delta.TableError as error:
                raise (_stuck_error(error, pending) if pending else error) from error

    def _check_changes(self, changes: Iterable[Change]) -> None:
        """Catch bugs whose results would be hard to repair."""
        for change in changes:
            live_paths = {
                add.path for add in self.snapshot.adds(change.table)
            }  # or fail here if a log is damaged, not at a later commit
            removed, added = [remove.path for remove in change.removes], [add.path for add in change.adds]
            if set(removed) - live_paths or len({*removed, *added}) < len(removed) + len(added):
                raise UmdfError(f"{change.table}: the commit removes an unknown file or lists a file twice", BUG_HINT)
            for add in change.adds:
                if stamp_of(add.path.rpartition("/")[2]) != self.stamp:  # a vacuum would not recognise it either
                    raise UmdfError(
                        f"{change.table}/{add.path} was not written for commit {self.stamp.commit}", BUG_HINT
                    )
                if damage := size_damage(self.paths, add):
                    path = self.paths.table(add.table) / add.path
                    raise UmdfError(f"{path} {damage}; nothing was committed", "run the command again")

    def close(self) -> None:
        self.lease.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _stuck_error(error: UmdfError, number: int) -> UmdfError:
    hint = f"abort commit {number} with `umdf lake abort LAKE`, then {error.hint}"
    return UmdfError(error.reason, hint)


def open_writer(
    root: str | os.PathLike[str],
    what: str = "umdf",
    *,
    writer_wait_s: float = 0.0,
    stale_s: float = STALE_S,
    clock: Clock = time.time_ns,
    sleep: Sleep = time.sleep,
    fault: FaultPoint = no_fault,
    check: bool = True,
    abort: bool = False,
) -> Writer:
    """Become the writer of a lake, creating it if missing, and finish an unfinished commit.

    `check=False` tolerates tables that another tool changed or whose log is damaged, in order to repair them;
    `abort=True` aborts an unfinished commit instead of finishing it.
    """
    require("deltalake", "a lake")
    paths = create_lake_paths(root)
    lease = acquire(paths.leases, what, writer_wait_s=writer_wait_s, stale_s=stale_s, clock=clock, sleep=sleep)
    try:
        writer = Writer(paths, lease, what, clock, fault)
        lease.start_heartbeat()
        if check and not abort:
            writer.refuse_foreign_changes()
        pending = writer.abort() if abort else writer.roll_forward()
        if pending is None and lease.taken_over:
            writer.fence()
        writer.roll_back_aborted()
        return writer
    except BaseException:
        lease.release()
        raise


def accept(writer: Writer, table: str) -> Marker:
    """Keep another tool's change of a table: readers see it from the next marker on."""
    paths, before = writer.paths, writer.snapshot.version(table)
    delta.refuse_damaged_log(paths, table, before)
    version = delta.last_version(paths.table(table))
    if version == before or version is None:
        raise _unchanged_error(table, before)
    files_before, files_now = writer.snapshot.adds(table), delta.adds(paths, table, version)
    paths_before, paths_now = {add.path for add in files_before}, {add.path for add in files_now}
    adds, removes = (
        [add for add in files_now if add.path not in paths_before],
        [add for add in files_before if add.path not in paths_now],
    )
    return _commit_repair(writer, f"accept {table}", Change(table, tuple(adds), tuple(removes)), version)


def restore(writer: Writer, table: str) -> Marker:
    """Restore a table to the lake's last commit."""
    paths, before = writer.paths, writer.snapshot.version(table)
    delta.refuse_damaged_log(paths, table, before)
    if delta.last_version(paths.table(table)) == before:
        raise _unchanged_error(table, before)
    if before is None:
        raise UmdfError(f"{table} was not written by this lake", f"move {paths.table(table)} elsewhere")
    version = delta.restore(paths, table, before, writer.stamp.commit)
    return _commit_repair(writer, f"restore {table}", Change(table), version)


def _unchanged_error(table: str, version: int | None) -> UmdfError:
    where = (
        "is not in the lake" if version is None else f"is at version {version}, where the lake's last commit left it"
    )
    return UmdfError(f"nothing to do: table {table} {where}")


def _commit_repair(writer: Writer, what: str, change: Change, version: int) -> Marker:
    delta.invalidate_columns(writer.paths, change.table)
    stamp = writer.stamp
    intent = Intent(stamp.commit, stamp.token, what, writer.clock(), (change,), {change.table: version})
    return writer.commit_intent(intent)
