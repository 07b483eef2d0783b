"""The options of `spark.read.format("umdf")`, checked before anything is read.

Invariant: an unknown option is rejected, with a suggestion.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pyarrow as pa

from umdf.errors import UsageError, did_you_mean
from umdf.lake.plan.input_paths import read_channel_config
from umdf.lake.schemas import table
from umdf.market.families import FAMILIES

PACKETS = "packets"
READABLE_SCHEMAS = (*FAMILIES, PACKETS)
# Packets (Binary) or messages (FAST) per partition, which is decoded in memory as a whole.
DEFAULT_SPAN_UNITS = 1 << 16
MAX_FILES = "maxFilesPerTrigger"
OPTIONS = {
    "schema": "family of events (or packets) to read",
    "path": "capture, directory, manifest or pattern: the argument of load()",
    "paths": "several paths: the list given to load()",
    "columns": "columns to read, comma-separated",
    "channels": "channel addresses: the TOML file of `umdf ingest --channels`",
    "spanSequences": "packets (Binary) or messages (FAST) per partition",
    MAX_FILES: "stream only: maximum files per micro-batch",
}


@dataclass(frozen=True)
class SourceOptions:
    family: str
    paths: tuple[str, ...]
    columns: tuple[str, ...]  # in this order
    channels: str | None
    span_units: int
    max_files: int | None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        lowercase_options = {key.lower(): value for key, value in options.items()}
        known = {name.lower() for name in OPTIONS}
        for name in lowercase_options:
            if name not in known:
                raise UsageError(f"unknown option: {name}", _suggestion(name, OPTIONS))
        family = lowercase_options.get("schema")
        if family is None:
            raise UsageError("no schema", 'use .option("schema", "mbo")')
        if family not in READABLE_SCHEMAS:
            raise UsageError(f"unknown schema: {family}", _suggestion(family, READABLE_SCHEMAS))
        return cls(
            family,
            _paths(lowercase_options),
            _columns(lowercase_options.get("columns"), table(family).schema),
            lowercase_options.get("channels"),
            _positive_int("spanSequences", lowercase_options) or DEFAULT_SPAN_UNITS,
            _positive_int(MAX_FILES, lowercase_options),
        )

    @property
    def schema(self) -> pa.Schema:
        """Schema of the columns that are read."""
        return pa.schema([table(self.family).schema.field(name) for name in self.columns])

    @property
    def configured_streams(self) -> Mapping[tuple[str, int], Mapping[str, Any]]:
        return read_channel_config(Path(self.channels) if self.channels else None)

    def with_columns(self, names: Iterable[str]) -> SourceOptions:
        """With only these columns, from a schema that the caller passed."""
        columns = _columns(",".join(names), table(self.family).schema)
        return SourceOptions(self.family, self.paths, columns, self.channels, self.span_units, self.max_files)


def _paths(options: Mapping[str, str]) -> tuple[str, ...]:
    paths = [options["path"]] if "path" in options else []
    if "paths" in options:
        paths += json.loads(options["paths"])
    if not paths:
        raise UsageError("no path", 'use .load("day/capture")')
    return tuple(paths)


def _columns(column_list: str | None, schema: pa.Schema) -> tuple[str, ...]:
    if column_list is None:
        return tuple(schema.names)
    names = [name.strip() for name in column_list.split(",") if name.strip()]
    for name in names:
        if name not in schema.names:
            raise UsageError(f"unknown column: {name}", _suggestion(name, schema.names))
    if not names or len(set(names)) < len(names):
        raise UsageError(f"invalid columns {column_list!r}: empty or repeated names")
    return tuple(names)


def _positive_int(name: str, options: Mapping[str, str]) -> int | None:
    value = options.get(name.lower())
    if value is None:
        return None
    if not value.isdecimal() or int(value) < 1:
        raise UsageError(f"invalid {name}: {value!r}", "use a number of at least 1")
    return int(value)


def _suggestion(name: str, known: Iterable[str]) -> str:
    matches = get_close_matches(name, {each.lower(): each for each in known}, 3, 0.6)
    return did_you_mean(matches) if matches else f"available: {', '.join(known)}"
