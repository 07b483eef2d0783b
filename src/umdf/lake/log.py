"""The lake's own log: numbered intents (what a commit does) and markers (that it is done).

The one rule: an intent is created only if its number is free and the commit before it is done; from then on the commit
will happen, whoever finishes it, unless a marker says that it was aborted: the marker, created only once, decides.
Readers see the last marker, never an intent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from umdf.errors import UmdfError
from umdf.lake import durable
from umdf.lake.files import FileAdd
from umdf.lake.layout import Home


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
    def from_json(cls, said: dict[str, Any]) -> Change:
        adds, removes = (tuple(map(FileAdd.from_json, said[name])) for name in ("adds", "removes"))
        return cls(said["table"], adds, removes, said["data_change"])


@dataclass(frozen=True)
class Intent:
    number: int
    token: int
    what: str
    ts_ns: int
    changes: tuple[Change, ...] = ()
    moved: dict[str, int] = field(default_factory=dict)  # tables already at these versions; their changes say how
    notes: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "changes": [change.to_json() for change in self.changes]}

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Intent:
        return cls(**{**said, "changes": tuple(map(Change.from_json, said["changes"]))})


@dataclass(frozen=True)
class Marker:
    """The lake after a commit. Number 0 is the empty lake."""

    number: int = 0
    what: str = ""
    ts_ns: int = 0
    versions: dict[str, int] = field(default_factory=dict)  # of every table that exists
    notes: dict[str, Any] = field(default_factory=dict)
    aborted: bool = False  # the intent of this number was dropped: every table is where the commit before left it


def merged(changes: Iterable[Change]) -> tuple[Change, ...]:
    """One change for each table, without those that change nothing."""
    found: dict[str, Change] = {}
    for change in changes:
        before = found.get(change.table)
        if before is not None and before.data_change != change.data_change:
            raise UmdfError(f"{change.table}: a commit either changes rows or moves them, not both")
        if before is not None:
            adds, removes = (*before.adds, *change.adds), (*before.removes, *change.removes)
            change = replace(change, adds=adds, removes=removes)
        found[change.table] = change
    return tuple(change for change in found.values() if change.adds or change.removes)


_NAME = re.compile(r"\d{8,}\.json")


def _path(directory: Path, number: int) -> Path:
    return directory / f"{number:08d}.json"


def last_number(directory: Path) -> int:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return 0
    return max((int(name[:-5]) for name in names if _NAME.fullmatch(name)), default=0)  # others are being written


def last_marker(home: Home) -> Marker:
    number = last_number(home.commits)
    if not number:
        return Marker()
    try:
        return marker(home, number)
    except durable.DamagedError as error:
        raise UmdfError(
            error.reason, f"delete it: `umdf lake vacuum LAKE` then makes it again from {_path(home.intents, number)}"
        ) from error


def marker(home: Home, number: int) -> Marker:
    found = durable.read_as(_path(home.commits, number), lambda said: Marker(**said))
    if found is None:
        raise UmdfError(f"the lake has no commit {number}", f"the last one is {last_number(home.commits)}")
    return found


def is_done(home: Home, number: int) -> bool:
    return _path(home.commits, number).exists()


def is_aborted(home: Home, number: int) -> bool:
    return is_done(home, number) and marker(home, number).aborted


def intent(home: Home, number: int) -> Intent | None:
    """What a commit did or does; None if there is no such commit, or it was aborted."""
    return None if is_aborted(home, number) else durable.read_as(_path(home.intents, number), Intent.from_json)


def done_intents(home: Home, first: int, last: int) -> Iterator[Intent]:
    """What finished commits did, one after the other."""
    for number in range(first, last + 1):
        made = intent(home, number)
        if made is not None:
            yield made
        elif not is_aborted(home, number):
            raise UmdfError(f"{_path(home.intents, number)} is missing", "restore it from a backup")


def pending_number(home: Home) -> int | None:
    """Of the commit that was begun and is not done; there is at most one."""
    begun, done = last_number(home.intents), last_number(home.commits)
    if begun > done + 1:
        lost = f"{_path(home.commits, done + 1)} is missing, and commit {begun} was begun after it"
        raise UmdfError(lost, "restore it from a backup, or ingest the captures into a new lake")
    return begun if begun > done else None


def pending(home: Home) -> Intent | None:
    number = pending_number(home)
    if number is None:
        return None
    try:
        return intent(home, number)
    except durable.DamagedError as error:
        raise UmdfError(
            f"commit {number} was begun, and {error.reason}", "`umdf lake abort LAKE` drops that commit"
        ) from error


def create_intent(home: Home, made: Intent) -> bool:
    return durable.create_once(_path(home.intents, made.number), made.to_json())


def create_marker(home: Home, made: Marker) -> bool:
    return durable.create_once(_path(home.commits, made.number), vars(made))
