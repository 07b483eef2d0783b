"""The files of a table: names, entries in a commit, order of rows.

Invariant: a file's name is unique (commit, lease token, task, attempt), so that files of a lost attempt can be
recognised, and readers see a file only when a commit lists it. Rows are sorted by the table's `sort`.
"""

from __future__ import annotations

import datetime
import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from umdf.errors import UmdfError
from umdf.lake.schemas import Table

TEXT_DICTIONARY = pa.dictionary(pa.int32(), pa.utf8())
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
FILE_NAME = re.compile(
    r"part-(?P<commit>\d{8,})-(?P<token>\d{8,})-(?P<task>\d+)-(?P<attempt>\d+)-[0-9a-f]{12}\.parquet"
)


@dataclass(frozen=True)
class FileStamp:
    """Identifies the writer of files: the commit that will list them, and the token of its lease."""

    commit: int
    token: int

    def name(self, task: int = 0, attempt: int = 0) -> str:
        return f"part-{self.commit:08d}-{self.token:08d}-{task:05d}-{attempt}-{uuid.uuid4().hex[:12]}.parquet"


def stamp_of(name: str) -> FileStamp | None:
    """The stamp in a file's name; None if umdf did not name it."""
    match = FILE_NAME.fullmatch(name)
    return FileStamp(int(match["commit"]), int(match["token"])) if match else None


@dataclass(frozen=True)
class FileAdd:
    """One file that a commit adds to (or removes from) a table."""

    table: str
    path: str  # relative to the table's directory
    rows: int
    bytes: int
    partition: dict[str, str | None] = field(default_factory=dict)
    stats: str = ""  # Delta's JSON: numRecords, minValues, maxValues, nullCount
    digest: str = ""  # `sha256:…` of its bytes as written. Only intents have it, except in old lakes

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> FileAdd:
        return cls(**content)

    def bounds(self, column: str) -> tuple[Any, Any] | None:
        """Minimum and maximum of a column, if known."""
        stats = json.loads(self.stats) if self.stats else {}
        low, high = stats.get("minValues", {}).get(column), stats.get("maxValues", {}).get(column)
        return None if low is None or high is None else (low, high)


def partition_text(value: Any) -> str | None:
    """A partition value as Delta writes it."""
    return None if value is None else value.isoformat() if isinstance(value, datetime.date) else str(value)


def partition_values(table: Table, values: Mapping[str, Any]) -> dict[str, str | None]:
    if set(values) != set(table.partition):
        raise UmdfError(
            f"{table.name} is partitioned by {', '.join(table.partition) or 'nothing'}, not {list(values)}",
            "this is a bug, please report it",
        )
    return {name: partition_text(values[name]) for name in table.partition}


def sort_rows(rows: pa.Table, table: Table) -> pa.Table:
    """Sort rows as the table requires. NULL comes first: internally it is the smallest number."""
    return rows.take(_sort_indices(rows, table))


def is_sorted(rows: pa.Table, table: Table) -> bool:
    keys = rows.select([name for name in table.sort if name in rows.schema.names])
    return keys.equals(keys.take(_sort_indices(rows, table)))


def _sort_indices(rows: pa.Table, table: Table) -> pa.Array:
    names = [name for name in table.sort if name in rows.schema.names]
    keys = [rows.column(name) for name in names]
    if names and all(pa.types.is_integer(key.type) and not key.null_count for key in keys):
        return pa.array(_integer_sort_indices([key.to_numpy() for key in keys]))
    plain = [key.cast(key.type.value_type) if pa.types.is_dictionary(key.type) else key for key in keys]
    options = pc.SortOptions([(name, "ascending", "at_start") for name in names])
    return pc.call_function("sort_indices", [pa.table(plain, names)], options)


def _integer_sort_indices(keys: list[NDArray[Any]]) -> NDArray[np.int64]:
    """Sorts by the first key first: rows of consecutive sorted files are then mostly in order."""
    order = np.argsort(keys[0], kind="stable")
    is_tie = np.ones(max(len(order) - 1, 0), np.bool_)
    for key in keys:
        sorted_key = key[order]
        if (is_tie & (sorted_key[1:] < sorted_key[:-1])).any():
            return np.lexsort(keys[::-1])
        is_tie &= sorted_key[1:] == sorted_key[:-1]
    return order
