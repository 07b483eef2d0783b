"""Rows and files for the tests of the lake: small, of every type that tables have, and the same for the same seed."""

from __future__ import annotations

import datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from umdf.lake.commit import ledger
from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.commit.log import Change
from umdf.lake.commit.writer import Writer
from umdf.lake.hashing import logical_hash
from umdf.lake.parquet.data_files import FileAdd, FileStamp, sort_rows
from umdf.lake.parquet.file_writer import write_file
from umdf.lake.schemas import table

DAY = datetime.date(2026, 11, 13)
TABLES = ("mbo", "trades", "definition", "gaps")


@cache
def rows_of(name: str, count: int, seed: int = 0, channel: int | None = 72) -> pa.Table:
    """Sorted rows of a table, some values absent."""
    random = np.random.default_rng([seed, len(name), count])
    known = table(name)
    columns = [_column(field, count, random) for field in known.schema]
    rows = pa.Table.from_arrays(columns, schema=known.schema)
    for column, value in (("trading_date", DAY), ("channel_id", channel)):
        if column in known.schema.names:
            field = known.schema.field(column)
            rows = rows.set_column(known.schema.get_field_index(column), field, pa.array([value] * count, field.type))
    return sort_rows(rows, known)


def _column(field: pa.Field, count: int, random: np.random.Generator) -> pa.Array:
    numbers = random.integers(0, 1000 if field.name == "sequence" else 100, count)
    absent = random.random(count) < (0.2 if field.nullable and field.name not in ("sequence", "instrument_id") else 0)
    return pa.array([None if gone else _value(field.type, int(n)) for n, gone in zip(numbers, absent, strict=True)],
                    field.type)  # fmt: skip


def _value(kind: Any, number: int) -> Any:
    if pa.types.is_list(kind):
        return [_value(kind.value_type, number + item) for item in range(number % 3)]
    if pa.types.is_struct(kind):
        return {field.name: _value(field.type, number) for field in kind}
    if pa.types.is_string(kind):
        return f"T{number}"
    if pa.types.is_binary(kind):
        return bytes([number % 256])
    if pa.types.is_date(kind):
        return DAY + datetime.timedelta(days=number)
    return Decimal(number) if pa.types.is_decimal(kind) else number % 128


def write(root: Path, stamp: FileStamp, name: str, rows: pa.Table, channel: int | None = 72, **where: Any) -> FileAdd:
    partition = {"trading_date": DAY, "channel_id": channel} if table(name).partition else {}
    added = write_file(root, name, stamp, rows, partition, **where)
    assert added is not None
    return added


def append(writer: Writer, seed: int, count: int = 50, names: tuple[str, ...] = TABLES) -> list[Change]:
    """Files for a commit: `gaps` is replaced, the others get more rows."""
    made = []
    for name in names:
        added = write(writer.paths.root, writer.stamp, name, rows_of(name, count, seed))
        replaced = table(name).mode == "replace"
        made.append(
            writer.replace_partition(name, [added], trading_date=DAY, channel_id=72)
            if replaced
            else Change(name, (added,))
        )
    return made


def entry(seed: int) -> ledger.LedgerEntry:
    return ledger.LedgerEntry(f"blake2b-256:{seed:064x}", 1000 + seed, f"day-{seed}.pcap", channel_id=72, line="A")


def day(writer: Writer, seeds: range, names: tuple[str, ...] = TABLES) -> None:
    """A commit for each seed, as an ingest would: inputs that the lake knows are passed over."""
    for seed in seeds:
        if not ledger.known_digests(writer.snapshot, [entry(seed).digest]):
            writer.commit(append(writer, seed, names=names), [entry(seed)], {"seed": seed})


def hashes(root: Path) -> dict[str, str]:
    snapshot = open_snapshot(root)
    ledger_rows = snapshot.arrow_table("ledger").drop_columns(["commit"])
    return {name: snapshot.logical_hash(name) for name in TABLES} | {"ledger": logical_hash(ledger_rows)}
