"""The lake's own log: numbered intents (what a commit does) and markers (that it is done).

The one rule: an intent is created only if its number is free and the commit before it is done; from then on the commit
will happen, whoever finishes it. Readers see the last marker, never an intent.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
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
    moved: dict[str, int] = field(default_factory=dict)  # tables that are already at these versions
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


def _path(directory: Path, number: int) -> Path:
    return directory / f"{number:08d}.json"


def last_number(directory: Path) -> int:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return 0
    return max((int(name[:-5]) for name in names if name[0] != "."), default=0)  # a dot: it is still being written


def last_marker(home: Home) -> Marker:
    number = last_number(home.commits)
    return marker(home, number) if number else Marker()


def marker(home: Home, number: int) -> Marker:
    said = durable.read(_path(home.commits, number))
    if said is None:
        raise UmdfError(f"the lake has no commit {number}", f"the last one is {last_number(home.commits)}")
    return Marker(**said)


def intent(home: Home, number: int) -> Intent | None:
    said = durable.read(_path(home.intents, number))
    return Intent.from_json(said) if said else None


def pending(home: Home) -> Intent | None:
    """The commit that was begun and is not done; there is at most one."""
    number = last_number(home.intents)
    return intent(home, number) if number > last_number(home.commits) else None


def create_intent(home: Home, made: Intent) -> bool:
    return durable.create_once(_path(home.intents, made.number), made.to_json())


def create_marker(home: Home, made: Marker) -> bool:
    return durable.create_once(_path(home.commits, made.number), vars(made))
