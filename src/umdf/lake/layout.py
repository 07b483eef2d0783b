"""Where things are in a lake, and `lake.json`, which identifies it.

    lake.json                      layout and producer version, the lake's own id
    _lake/intents/00000012.json    what commit 12 does to every table
    _lake/markers-4/….json         of the same number: it is done, or aborted; the Delta version of every table after it
    _lake/leases/00000003.json     the one writer
    _lake/configs/….json           channel configurations that inputs were ingested with, by digest
    _lake/logs, _lake/work         Spark's logs; its temporary files
    _lake/lost                     what was left of Delta logs that were rebuilt
    <table>/_delta_log, <table>/trading_date=…/channel_id=…/part-….parquet

Invariant: a lake of another layout is refused before anything in it is read. `umdf lake upgrade` converts an older one
(umdf.lake.admin.upgrade); what the older layouts were is in umdf.lake.older_layouts.
"""

from __future__ import annotations

import os
import re
import uuid
from dataclasses import dataclass
from pathlib import Path

from umdf import __version__
from umdf.errors import ConfigError, UmdfError
from umdf.lake import atomic_files
from umdf.lake.locations import local_path

LAYOUT = 4
# An upgrade writes its marker where readers of the old layout do not look: `lake.json` alone decides what is read.
MARKER_DIRECTORIES = {1: "commits", 2: "markers", 3: "commit_markers", 4: "markers-4"}
PATH_FAULTS = {
    re.compile("[\ud800-\udfff]+"): "bytes that are not UTF-8",
    re.compile(r"[\x00-\x1f\x7f]"): "a control character",
    re.compile(r"%[0-9A-Fa-f]{2}"): "an escape sequence of URLs",
    re.compile(r"\\"): "a backslash",
}
ANOTHER_NAME = "readers of Delta tables would look elsewhere; use another name"


@dataclass(frozen=True)
class LakePaths:
    """An existing lake, of this layout unless an upgrade has opened it."""

    root: Path
    lake_id: str
    producer: str
    layout: int = LAYOUT
    first_commit: int = 0  # of an upgraded lake: earlier commits have the tables of the older layout

    def table(self, name: str) -> Path:
        return self.root / name

    @property
    def intents(self) -> Path:
        return self.root / "_lake" / "intents"

    @property
    def markers(self) -> Path:
        return self.root / "_lake" / MARKER_DIRECTORIES[self.layout]

    @property
    def leases(self) -> Path:
        return self.root / "_lake" / "leases"

    @property
    def logs(self) -> Path:
        return self.root / "_lake" / "logs"

    @property
    def work(self) -> Path:
        return self.root / "_lake" / "work"

    @property
    def vacuumed(self) -> Path:
        return self.root / "_lake" / "vacuumed.json"


def open_lake_paths(root: str | os.PathLike[str]) -> LakePaths:
    paths = open_any_layout(root)
    if paths.layout != LAYOUT:
        raise UmdfError(
            f"{root} has layout {paths.layout} (written by {paths.producer}); this is umdf {__version__}, which reads "
            f"and writes layout {LAYOUT}",
            f"convert the lake with `umdf lake upgrade {root}`",
        )
    return paths


def open_any_layout(root: str | os.PathLike[str]) -> LakePaths:
    """A lake of this layout or an older one; for an upgrade."""
    path = local_path(root).absolute()
    refuse_path(path)
    description = atomic_files.read_json(path / "lake.json") if path.is_dir() else None
    if description is None:
        raise _not_a_lake_error(
            path, f"{root} is not a umdf lake (no lake.json)", f"create one with `umdf ingest CAPTURE… --lake {root}`"
        )
    layout = description.get("layout")
    if layout not in MARKER_DIRECTORIES:
        age = "a newer" if isinstance(layout, int) and layout > LAYOUT else "another"
        raise UmdfError(
            f"{root} has layout {layout} ({description.get('producer', 'unknown')}), "
            f"this is umdf {__version__} with layout {LAYOUT}",
            f"use {age} version of umdf",
        )
    try:
        return LakePaths(
            path, description["lake_id"], description["producer"], layout, description.get("first_commit", 0)
        )
    except KeyError as error:
        raise UmdfError(f"{path / 'lake.json'} is damaged: {error} is missing", "restore it from a backup") from error


def set_layout(paths: LakePaths) -> None:
    """Make readers see the lake as `paths` says: the last step of an upgrade."""
    described = {"layout": paths.layout, "lake_id": paths.lake_id, "producer": f"umdf {__version__}"}
    atomic_files.replace(paths.root / "lake.json", described | {"first_commit": paths.first_commit})


def _not_a_lake_error(path: Path, reason: str, hint: str) -> UmdfError:
    if not (path / "_lake").is_dir():
        return UmdfError(reason, hint)
    reason_missing = f"{path / 'lake.json'} is missing from an existing lake"
    return UmdfError(reason_missing, "restore it from a backup, or ingest the captures into a new lake")


def refuse_path(path: Path) -> None:
    """Reject paths that Delta readers, which treat a table's directory as part of a URL, would look for elsewhere."""
    text = str(path)
    for fault, why in PATH_FAULTS.items():
        if found := fault.search(text):
            raise ConfigError(f"unsupported lake path: {text}: {why} ({found[0]!a})", ANOTHER_NAME)


def create_lake_paths(root: str | os.PathLike[str]) -> LakePaths:
    """Open a lake; create it if the directory is empty or does not exist."""
    path = local_path(root).absolute()
    refuse_path(path)
    if path.exists() and not path.is_dir():
        raise UmdfError(f"{root} is not a directory", "use a new or empty directory")
    if not (path / "lake.json").exists():
        if path.is_dir() and any(not entry.name.startswith(".lake.json") for entry in path.iterdir()):
            raise _not_a_lake_error(path, f"{root} is not empty and not a umdf lake", "use a new or empty directory")
        description = {"layout": LAYOUT, "lake_id": uuid.uuid4().hex, "producer": f"umdf {__version__}"}
        # If another process is faster, its lake is used.
        atomic_files.create_exclusively(path / "lake.json", description)
    return open_lake_paths(path)
