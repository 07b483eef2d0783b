"""The options of `spark.read.format("umdf")`, checked before anything is read.

The one rule: an option that is not known is refused, with the nearest that is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pyarrow as pa

from umdf.errors import UsageError
from umdf.lake.given import named_streams
from umdf.lake.schemas import table
from umdf.market.events import FAMILIES

PACKETS = "packets"
READABLE = (*FAMILIES, PACKETS)
SPAN_NUMBERS = 1 << 16  # packets (Binary) or messages (FAST) of a partition: its rows are held until it is decoded
MAX_FILES = "maxFilesPerTrigger"
OPTIONS = {
    "schema": "which family of events (or packets) to read",
    "path": "a capture, a directory, a manifest or a pattern: what load() is given",
    "paths": "several of them: what load() is given",
    "columns": "the columns to read, with commas between them",
    "config": "groups and ports of channels: the TOML file of `umdf ingest --config`",
    "spanNumbers": "how many packets (Binary) or messages (FAST) make a partition",
    MAX_FILES: "of a stream: how many files a micro-batch takes at most",
}


@dataclass(frozen=True)
class Options:
    family: str
    paths: tuple[str, ...]
    columns: tuple[str, ...]  # in their order
    config: str | None
    span_numbers: int
    max_files: int | None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Options:
        said = {key.lower(): value for key, value in given.items()}
        known = {name.lower() for name in OPTIONS}
        for name in said:
            if name not in known:
                raise UsageError(f"the umdf source has no option {name}", _nearest(name, OPTIONS))
        family = said.get("schema")
        if family is None:
            raise UsageError("the umdf source needs to know what to read", 'say .option("schema", "mbo")')
        if family not in READABLE:
            raise UsageError(f"the umdf source has no schema {family}", _nearest(family, READABLE))
        return cls(
            family,
            _paths(said),
            _columns(said.get("columns"), table(family).schema),
            said.get("config"),
            _positive("spanNumbers", said) or SPAN_NUMBERS,
            _positive(MAX_FILES, said),
        )

    @property
    def schema(self) -> pa.Schema:
        """Of the columns that are read."""
        return pa.schema([table(self.family).schema.field(name) for name in self.columns])

    @property
    def named(self) -> Mapping[tuple[str, int], Mapping[str, Any]]:
        return named_streams(Path(self.config) if self.config else None)

    def with_columns(self, names: Iterable[str]) -> Options:
        """Only these: a schema that the caller gave."""
        columns = _columns(",".join(names), table(self.family).schema)
        return Options(self.family, self.paths, columns, self.config, self.span_numbers, self.max_files)


def _paths(said: Mapping[str, str]) -> tuple[str, ...]:
    found = [said["path"]] if "path" in said else []
    if "paths" in said:
        found += json.loads(said["paths"])
    if not found:
        raise UsageError("the umdf source was given no path", 'say .load("day/capture")')
    return tuple(found)


def _columns(given: str | None, schema: pa.Schema) -> tuple[str, ...]:
    if given is None:
        return tuple(schema.names)
    names = [name.strip() for name in given.split(",") if name.strip()]
    for name in names:
        if name not in schema.names:
            raise UsageError(f"no column {name}", _nearest(name, schema.names))
    if not names or len(set(names)) < len(names):
        raise UsageError(f"columns {given!r}: each is named once, and at least one is", "")
    return tuple(names)


def _positive(name: str, said: Mapping[str, str]) -> int | None:
    given = said.get(name.lower())
    if given is None:
        return None
    if not given.isdecimal() or int(given) < 1:
        raise UsageError(f"{name} {given!r} is no number from 1 on")
    return int(given)


def _nearest(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, {each.lower(): each for each in known}, 3, 0.6)
    return f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
