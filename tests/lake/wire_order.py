"""The order of the wire, from what is in the tables alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lake.captures import rows

Row = dict[str, Any]
Key = tuple[Any, ...]


def epochs_of(root: Path) -> dict[int, int]:
    """Numberings by when they began."""
    begun: dict[int, int] = {}
    for row in rows(root, "packets"):
        if row["stream"] == "incremental" and row["seq_version"] is not None:
            begun[row["seq_version"]] = min(row["ts_recv"], begun.get(row["seq_version"], row["ts_recv"]))
    return {version: rank for rank, version in enumerate(sorted(begun, key=lambda version: begun[version]))}


def place_of(row: Row, epochs: dict[int, int]) -> Key:
    return epochs[row["seq_version"]], row["sequence"], row["msg_index"], row["entry_index"]
