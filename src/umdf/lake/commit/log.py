"""The lake's log: numbered intents (what a commit does) and markers (that it is done).

Invariant: an intent is created only if its number is free and the previous commit is done. From then on the commit
will happen, whichever process finishes it, unless its marker says that it was aborted: the marker is created once
and decides. Readers see the last marker, never an intent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from umdf.errors import UmdfError
from umdf.lake import atomic_files
from umdf.lake.layout import LakePaths
from umdf.lake.parquet.data_files import FileAdd


@dataclass(frozen=True)
class Change:
    """What a commit does to one table."""

    table: str
    adds: tuple[FileAdd, ...] = ()
    removes: tuple[FileAdd, ...] = ()
    data_change: bool = True  # False: the same rows in other files

    def to_json(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "adds": [add.to_json() for add in self.adds],
            "removes": [remove.to_json() for remove in self.removes],
            "data_change": self.data_change,
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Change:
        adds, removes = (tuple(map(FileAdd.from_json, content[name])) for name in ("adds", "removes"))
        return cls(content["table"], adds, removes, content["data_change"])


@dataclass(frozen=True)
class Intent:
    number: int
    token: int
    what: str
    ts_ns: int
    changes: tuple[Change, ...] = ()
    moved: dict[str, int] = field(default_factory=dict)  # tables already at these versions by their changes
    notes: dict[str, Any] = field(default_factory=dict)
    layout: int = 0  # of an upgrade: every table gets the columns of this layout

    def to_json(self) -> dict[str, Any]:
        fields = {name: value for name, value in vars(self).items() if name != "layout" or value}
        return fields | {"changes": [change.to_json() for change in self.changes]}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Intent:
        return cls(**{**content, "changes": tuple(map(Change.from_json, content["changes"]))})


@dataclass(frozen=True)
class Marker:
    """The lake after a commit. Number 0 is the empty lake."""

    number: int = 0
    what: str = ""
    ts_ns: int = 0
    versions: dict[str, int] = field(default_factory=dict)  # of every table that exists
    notes: dict[str, Any] = field(default_factory=dict)
    aborted: bool = False  # the intent was dropped: every table is at its version of the previous commit


def merge_changes(changes: Iterable[Change]) -> tuple[Change, ...]:
    """One change per table, without empty ones."""
    found: dict[str, Change] = {}
    for change in changes:
        before = found.get(change.table)
        if before is not None and before.data_change != change.data_change:
            raise UmdfError(f"{change.table}: a commit cannot both change and move rows")
        if before is not None:
            adds, removes = (*before.adds, *change.adds), (*before.removes, *change.removes)
            change = replace(change, adds=adds, removes=removes)
        found[change.table] = change
    return tuple(change for change in found.values() if change.adds or change.removes)


_FILE_NAME = re.compile(r"\d{8,}\.json")


def _path(directory: Path, number: int) -> Path:
    return directory / f"{number:08d}.json"


def last_number(directory: Path) -> int:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return 0
    return max((int(name[:-5]) for name in names if _FILE_NAME.fullmatch(name)), default=0)  # others are incomplete


def last_marker(paths: LakePaths) -> Marker:
    number = last_number(paths.markers)
    if not number:
        return Marker()
    try:
        return marker(paths, number)
    except atomic_files.DamagedError as error:
        raise UmdfError(
            error.reason,
            f"delete it, then run `umdf lake vacuum LAKE`, which restores it from {_path(paths.intents, number)}",
        ) from error


def marker(paths: LakePaths, number: int) -> Marker:
    found = atomic_files.read_json_as(_path(paths.markers, number), lambda content: Marker(**content))
    if found is None:
        raise UmdfError(f"the lake has no commit {number}", f"the last one is {last_number(paths.markers)}")
    return found


def is_done(paths: LakePaths, number: int) -> bool:
    return _path(paths.markers, number).exists()


def is_aborted(paths: LakePaths, number: int) -> bool:
    return is_done(paths, number) and marker(paths, number).aborted


def intent(paths: LakePaths, number: int) -> Intent | None:
    """The intent of a commit; None if there is no such commit, or it was aborted."""
    return (
        None if is_aborted(paths, number) else atomic_files.read_json_as(_path(paths.intents, number), Intent.from_json)
    )


def finished_intents(paths: LakePaths, first: int, last: int) -> Iterator[Intent]:
    """The intents of finished commits, in order."""
    for number in range(first, last + 1):
        finished = intent(paths, number)
        if finished is not None:
            yield finished
        elif not is_aborted(paths, number):
            raise UmdfError(f"{_path(paths.intents, number)} is missing", "restore it from a backup")


def pending_number(paths: LakePaths) -> int | None:
    """Number of the unfinished commit; there is at most one."""
    last_begun, last_done = last_number(paths.intents), last_number(paths.markers)
    if last_begun > last_done + 1:
        lost = f"{_path(paths.markers, last_done + 1)} is missing, but commit {last_begun} follows it"
        raise UmdfError(lost, "restore it from a backup, or ingest the captures into a new lake")
    return last_begun if last_begun > last_done else None


def pending(paths: LakePaths) -> Intent | None:
    number = pending_number(paths)
    if number is None:
        return None
    try:
        return intent(paths, number)
    except atomic_files.DamagedError as error:
        raise UmdfError(
            f"commit {number} is unfinished and cannot be read: {error.reason}", "abort it with `umdf lake abort LAKE`"
        ) from error


def create_intent(paths: LakePaths, new_intent: Intent) -> bool:
    return atomic_files.create_exclusively(_path(paths.intents, new_intent.number), new_intent.to_json())


def create_marker(paths: LakePaths, new_marker: Marker) -> bool:
    return atomic_files.create_exclusively(_path(paths.markers, new_marker.number), vars(new_marker))
