"""Traces a row of a table back to its packet: the file, its offset and packet number.

Invariant: files are identified by content. `packets` has the digest of a file, and the file must still have it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from umdf.errors import CaptureError, UmdfError, UsageError
from umdf.lake.commit import ledger
from umdf.lake.commit.lake_snapshot import LakeSnapshot, open_snapshot
from umdf.lake.schemas import ROW_KEY, table
from umdf.transport.capture import open_capture

KEY = ("channel_id", *ROW_KEY)  # channel, seq_version, sequence, msg_index, entry_index
MIN_KEY_PARTS = 3  # parts of a key


@dataclass(frozen=True)
class Origin:
    path: str
    digest: str
    offset: int  # of the record in the (decompressed) file
    packet: int  # packet number in the file, from 1
    line: str
    ts_recv: int
    row: dict[str, Any]


def parse_row(text: str) -> tuple[str, tuple[int, ...]]:
    """`mbo:72:273:1005:2:0` → table and key; message and entry may be omitted."""
    name, *parts = text.split(":")
    try:
        key = tuple(int(part) for part in parts)
    except ValueError:
        key = ()
    if not MIN_KEY_PARTS <= len(key) <= len(KEY):
        raise UsageError(
            f"invalid row: {text}",
            "use TABLE:CHANNEL:SEQ_VERSION:SEQUENCE[:MSG_INDEX[:ENTRY_INDEX]], for example mbo:72:273:1005:2",
        )
    table(name)
    return name, key


def find_origin(lake: str | os.PathLike[str], name: str, key: tuple[int, ...]) -> Origin:
    """The origin of a row; if several rows have the key, of the first one."""
    snapshot = open_snapshot(lake)
    row = _row(snapshot, name, key)
    packet = _packet(snapshot, row)
    digest, path = _file(snapshot, packet["file_id"])
    number = _number(path, packet["file_offset"])
    return Origin(path, digest, packet["file_offset"], number, packet["line"] or "", packet["ts_recv"], row)


def _row(snapshot: LakeSnapshot, name: str, key: tuple[int, ...]) -> dict[str, Any]:
    names = [column for column in KEY if column in table(name).schema.names]
    if len(names) < MIN_KEY_PARTS or "ts_recv" not in table(name).schema.names:
        raise UsageError(f"rows of {name} come from many packets", "use an event table, such as mbo or trades")
    condition = pc.scalar(True)
    for column, value in zip(KEY[1:], key[1:], strict=False):
        if column in names:
            condition = condition & (pc.field(column) == value)
    found = snapshot.arrow_dataset(name, channel_id=key[0]).to_table(filter=condition)
    if not found.num_rows:
        raise UmdfError(
            f"no row {':'.join(map(str, key))} in {name}",
            "the key is channel, seq_version, sequence, msg_index, entry_index",
        )
    return found.slice(0, 1).to_pylist()[0]


def _packet(snapshot: LakeSnapshot, row: dict[str, Any]) -> dict[str, Any]:
    """The packet received then that starts with this sequence (Binary), or with one not far below it (FAST)."""
    partition = {"channel_id": row["channel_id"], "trading_date": row["trading_date"]}
    condition = (pc.field("ts_recv") == row["ts_recv"]) & (pc.field("sequence") <= row["sequence"])
    found = snapshot.arrow_dataset("packets", **partition).to_table(
        filter=condition & (pc.field("disposition") != "corrupt")
    )
    if not found.num_rows:
        raise UmdfError(
            f"the table packets has no entry for sequence {row['sequence']} of channel {row['channel_id']}",
            "ingest with the table packets",
        )
    keys: Any = [("sequence", "descending"), ("line", "ascending")]
    return found.sort_by(keys).slice(0, 1).to_pylist()[0]


def _file(snapshot: LakeSnapshot, file_id: int) -> tuple[str, str]:
    for digest, path in {(entry.digest, entry.path or ""): None for entry in ledger.entries(snapshot)}:
        if ledger.file_id(digest) == file_id:
            if not os.path.isfile(path):
                raise CaptureError(f"the row's capture no longer exists: {path}", f"restore it (digest {digest})")
            return digest, path
    raise UmdfError(f"the ledger has no file {file_id}", "this is a bug, please report it")


def _number(path: str, offset: int) -> int:
    with open_capture(path) as capture:
        for batch in capture:
            at = int(batch.offset.searchsorted(offset))
            if at < len(batch) and batch.offset[at] == offset:
                return int(batch.number[at])
    raise CaptureError(f"no packet at offset {offset} of {path}", "check that it is the file that was ingested")


def as_json(row: dict[str, Any]) -> dict[str, Any]:
    """Without absent values; dates and decimals as strings."""
    plain = (int, str, float, bool, list)
    return {name: value if isinstance(value, plain) else str(value) for name, value in row.items() if value is not None}
