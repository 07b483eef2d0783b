"""The lake commit: files of many tables become visible together, exactly once.

    1. tasks write files that nobody sees           2. the lease is asked for once more
    3. an intent, created only if its number is free, lists everything        4. each Delta table is committed from it
    5. a marker maps the commit to table versions: now readers see it

The one rule: after step 3 the commit will happen. Whoever opens the lake next finishes it, and every step may be done
again. Before step 3 nothing has happened, and the files are swept.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from umdf.errors import UmdfError, require
from umdf.lake import delta, ledger, log
from umdf.lake.files import FileAdd, Stamp, stamp_of
from umdf.lake.layout import Home, create_home
from umdf.lake.lease import STALE_S, Clock, Lease, Sleep, acquire
from umdf.lake.log import Change, Intent, Marker
from umdf.lake.schemas import tables
from umdf.lake.snapshot import Snapshot

AT_ONCE = 8  # tables
FaultPoint = Callable[[str], None]  # called with the name of each step: tests end the process there


def no_fault(step: str) -> None:
    return None


class Writer:
    """The one writer of a lake, from `open_writer` to `close`."""

    def __init__(self, home: Home, lease: Lease, what: str, clock: Clock, fault: FaultPoint) -> None:
        self.home = home
        self.lease = lease
        self.what = what
        self.clock = clock
        self._fault = fault
        self.snapshot = Snapshot(home, log.last_marker(home))

    @property
    def stamp(self) -> Stamp:
        """For the names of the files of the next commit."""
        return Stamp(self.snapshot.number + 1, self.lease.token)

    def commit(
        self,
        changes: Iterable[Change] = (),
        entries: Iterable[ledger.Entry] = (),
        notes: Mapping[str, Any] | None = None,
    ) -> Marker:
        """All of this, or nothing. `entries` are the inputs it comes from; `notes` are kept in the marker."""
        stamp = self.stamp
        listed = [*changes]
        written = ledger.write(self.home.root, stamp, entries)
        if written:
            listed.append(Change("ledger", (written,)))
        whole = log.merged(listed)
        self._refuse_bad(whole)
        self.refuse_foreign()
        intent = Intent(stamp.commit, stamp.token, self.what, self.clock(), whole, notes=dict(notes or {}))
        self._fault("files written")
        return self.commit_intent(intent)

    def replacing(self, table: str, adds: Iterable[FileAdd], **partition: Any) -> Change:
        """A change that puts new files in the place of all files of a partition."""
        return Change(table, tuple(adds), tuple(self.snapshot.adds(table, **partition)))

    def commit_intent(self, intent: Intent) -> Marker:
        self.lease.check()
        self._fault("lease checked")
        if not log.create_intent(self.home, intent):
            raise UmdfError(f"another writer has made commit {intent.number}; nothing was committed", "run it again")
        self._fault("intent created")
        return self.finish(intent)

    def finish(self, intent: Intent) -> Marker:
        """Steps 4 and 5, however far they were done before, by whomever."""
        before = log.last_marker(self.home)
        if before.number >= intent.number:
            return log.marker(self.home, intent.number)
        reached = {**before.versions, **intent.moved}

        def commit(change: Change) -> int:
            self._fault(f"before {change.table}")
            version = delta.commit(self.home, intent, change, before.versions.get(change.table))
            self._fault(f"after {change.table}")
            return version

        delta.load()
        with ThreadPoolExecutor(AT_ONCE) as pool:  # the disk is waited for once, not for each table
            versions = pool.map(commit, intent.changes)
            reached |= {change.table: version for change, version in zip(intent.changes, versions, strict=True)}
        marker = Marker(intent.number, intent.what, intent.ts_ns, reached, intent.notes)
        is_mine = log.create_marker(self.home, marker)  # False: someone else has finished it, with the same words
        self._fault("marker created")
        follows = is_mine and self.snapshot.number + 1 == intent.number and not intent.moved
        known = self.snapshot.after(marker, intent.changes) if follows else None
        self.snapshot = known or Snapshot(self.home, log.last_marker(self.home))
        return marker

    def roll_forward(self) -> Intent | None:
        """Finish the commit that its writer could not."""
        intent = log.pending(self.home)
        if intent is None:
            return None
        for change in intent.changes:
            for add in change.adds:
                self._refuse_missing(add, f"commit {intent.number} was begun and lists it")
        self.finish(intent)
        return intent

    def fence(self) -> None:
        """Take the next number with an empty commit: an old writer that is only slow cannot use it any more."""
        self.commit_intent(Intent(self.stamp.commit, self.lease.token, "takeover", self.clock()))

    def refuse_foreign(self) -> None:
        """No table may have moved without us."""
        pending = log.pending(self.home)
        for name in tables():
            version = self.snapshot.marker.versions.get(name)
            step = delta.foreign(self.home, name, version, pending.number if pending else None)
            if step is not None:
                raise delta.foreign_fault(name, version, step)

    def _refuse_bad(self, changes: Iterable[Change]) -> None:
        """What only our own bug could bring about, and would be hard to mend."""
        for change in changes:
            there = {add.path for add in self.snapshot.adds(change.table)} if change.removes else set()
            removed, added = [remove.path for remove in change.removes], [add.path for add in change.adds]
            if set(removed) - there or len({*removed, *added}) < len(removed) + len(added):
                raise UmdfError(f"{change.table}: a commit removes what is not there, or names a file twice")
            for add in change.adds:
                if stamp_of(add.path.rpartition("/")[2]) != self.stamp:  # nor would a sweep know it as ours
                    raise UmdfError(f"{change.table}/{add.path} was not written for commit {self.stamp.commit}")
                self._refuse_missing(add, "it was to be committed")

    def _refuse_missing(self, add: FileAdd, why: str) -> None:
        path = self.home.table(add.table) / add.path
        size = path.stat().st_size if path.exists() else None
        if size != add.bytes:
            state = "is missing" if size is None else f"has {size} bytes instead of {add.bytes}"
            raise UmdfError(f"{path} {state}; {why}", "restore that file from a backup and run it again")

    def close(self) -> None:
        self.lease.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_writer(
    root: str | os.PathLike[str],
    what: str = "umdf",
    *,
    wait_s: float = 0.0,
    stale_s: float = STALE_S,
    clock: Clock = time.time_ns,
    sleep: Sleep = time.sleep,
    fault: FaultPoint = no_fault,
    check: bool = True,
) -> Writer:
    """Become the writer of a lake, which is made if it does not exist, and finish what the last one left undone.

    `check=False` lets a table that someone else has changed pass, to mend it.
    """
    require("deltalake", "a lake")
    home = create_home(root)
    lease = acquire(home.leases, what, wait_s=wait_s, stale_s=stale_s, clock=clock, sleep=sleep)
    try:
        writer = Writer(home, lease, what, clock, fault)
        lease.start_beating()
        if check:
            writer.refuse_foreign()
        if writer.roll_forward() is None and lease.taken_over:
            writer.fence()
        return writer
    except BaseException:
        lease.release()
        raise


def accept(writer: Writer, table: str) -> Marker:
    """Keep what someone else did to a table: readers see it from the next marker on."""
    return _mend(writer, f"accept {table}", table, lambda intent, version: delta.last_version(writer.home.table(table)))


def restore(writer: Writer, table: str) -> Marker:
    """Take a table back to where the last commit left it."""

    def take_back(intent: Intent, version: int | None) -> int | None:
        return None if version is None else delta.restore(writer.home, table, version, intent)

    return _mend(writer, f"restore {table}", table, take_back)


def _mend(writer: Writer, what: str, table: str, move: Callable[[Intent, int | None], int | None]) -> Marker:
    intent = Intent(writer.stamp.commit, writer.lease.token, what, writer.clock())
    delta.look_again(writer.home, table)
    version = move(intent, writer.snapshot.version(table))
    if version is None:
        raise UmdfError(f"the lake has never written {table}", f"move {writer.home.table(table)} away")
    return writer.commit_intent(replace(intent, moved={table: version}))
