"""Writes Parquet files of a table.

Invariant: no partial files. A file that could not be written completely is deleted, with one clear error.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from umdf.errors import UmdfError
from umdf.lake.atomic_files import make_directory, sync_directory, write_error
from umdf.lake.parquet.data_files import NULL_PARTITION, FileAdd, FileStamp, partition_values
from umdf.lake.parquet.flat_file_writer import ROW_GROUP_ROWS, Bounds, FlatFileWriter, is_flat, null_error
from umdf.lake.schemas import Table
from umdf.lake.schemas import table as table_named

# Integers that increase along the rows of an instrument: deltas take 20 % less space than a dictionary, and are read 2
# to 4 times as fast. All other columns have repeated values.
INCREASING = re.compile(r"ts_\w+|(\w+_)?sequence|(\w+_)?rpt_seq|order_id|trade_id|file_offset|index_seq|trade_volume")
# Small integers that change with every row: deltas take a fifth more space, but half the time to read.
SMALL_INTEGERS = re.compile(r"msg_index|messages|update_action")
# Columns that zstd does not shrink, or only by a sixth for a third of the column's writing time.
INCOMPRESSIBLE = re.compile(r"ts_(send|recv|event|insert)|order_id|trade_id|firm|buyer|seller")


# 1.4 GB/s on CPUs with SHA instructions (blake2b: 0.7), a tenth of the time to write a file.
DIGEST_ALGORITHM = "sha256"


class FileWriter:
    """Writes one file, batch by batch; `close` returns the file's entry, or None if there were no rows.

    with FileWriter(root, "mbo", stamp, {"trading_date": day, "channel_id": 72}, task=3, attempt=0) as file:
        file.write(batch)
    added = file.added
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        table: str,
        stamp: FileStamp,
        partition: Mapping[str, Any] | None = None,
        *,
        task: int = 0,
        attempt: int = 0,
        compressed: bool = True,
    ) -> None:
        self.table = table_named(table)
        self.partition = partition_values(self.table, partition or {})
        partition_directories = [
            f"{name}={NULL_PARTITION if value is None else value}" for name, value in self.partition.items()
        ]
        self.path = "/".join([*partition_directories, stamp.name(task, attempt)])
        self.root = Path(root)
        self.full_path = self.root / table / self.path
        self.added: FileAdd | None = None
        self.rows = 0
        self.is_compressed = compressed
        self._file: FlatFileWriter | ArrowFileWriter | None = None
        self._sink: DigestSink | None = None

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Partition columns are optional; strings may be dictionary-encoded."""
        if not rows.num_rows:
            return
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        table = _conform(table, self.table)
        try:
            if self._file is None:
                self._file = self._open()
            self._file.write(table)
        except OSError as error:
            self.discard()
            raise write_error(self.full_path, error) from error
        except UmdfError:
            self.discard()
            raise
        self.rows += rows.num_rows

    def close(self) -> FileAdd | None:
        if self._file is None or self._sink is None or self.added:
            return self.added
        try:
            self._file.close()
            self._sink.close()
            with self.full_path.open("rb+") as file:
                os.fsync(file.fileno())
            sync_directory(self.full_path.parent)
            size = self.full_path.stat().st_size
        except OSError as error:
            self.discard()
            raise write_error(self.full_path, error) from error
        bounds = self._file.bounds
        stats = _statistics(self.rows, {name: bounds[name] for name in self.table.statistics_columns if name in bounds})
        self._file = None
        digest = self._sink.digest()
        self.added = FileAdd(self.table.name, self.path, self.rows, size, self.partition, stats, digest)
        return self.added

    def discard(self) -> None:
        """Delete the incomplete file."""
        if self._sink is not None:
            try:
                self._sink.close()
            except OSError:  # it failed before; the file is deleted anyway
                pass
        if isinstance(self._file, ArrowFileWriter):
            self._file.discard()
        self._file = None
        self.full_path.unlink(missing_ok=True)

    def _open(self) -> FlatFileWriter | ArrowFileWriter:
        if not self.root.is_dir():
            raise FileNotFoundError(2, "No such file or directory", str(self.root))
        make_directory(self.full_path.parent)
        self._sink, schema = DigestSink(_sink(self.full_path)), self.table.file_schema
        name, statistics_columns = self.table.name, self.table.filter_columns
        delta_columns = frozenset(
            each.name for each in schema if pa.types.is_integer(each.type) and _is_delta_encoded(each)
        )
        if not is_flat(schema):
            return ArrowFileWriter(self._sink, schema, statistics_columns, name)
        compressed_columns = [
            each.name for each in schema if self.is_compressed and not INCOMPRESSIBLE.fullmatch(each.name)
        ]
        return FlatFileWriter(
            self._sink,
            schema,
            statistics_columns,
            delta_columns=delta_columns,
            compressed_columns=frozenset(compressed_columns),
            table=name,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


def write_file(
    root: str | os.PathLike[str],
    table: str,
    stamp: FileStamp,
    rows: pa.RecordBatch | pa.Table,
    partition: Mapping[str, Any] | None = None,
    *,
    task: int = 0,
    attempt: int = 0,
    compressed: bool = True,
) -> FileAdd | None:
    with FileWriter(root, table, stamp, partition, task=task, attempt=attempt, compressed=compressed) as file:
        file.write(rows)
    return file.added


def _is_delta_encoded(each: pa.Field) -> bool:
    return bool((INCREASING if each.type == pa.int64() else SMALL_INTEGERS).fullmatch(each.name))


def _sink(path: Path) -> Any:
    return pa.OSFile(str(path), "wb")


class DigestSink:
    """A file that is written sequentially, and its digest, without reading it again."""

    def __init__(self, file: Any) -> None:
        self._file, self._digest = file, hashlib.new(DIGEST_ALGORITHM)

    def write(self, content: Any) -> int:
        self._digest.update(content)
        return self._file.write(content)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def digest(self) -> str:
        return f"{DIGEST_ALGORITHM}:{self._digest.hexdigest()}"


class ArrowFileWriter:
    """Writes tables with lists, bytes or floats, which have few rows; same interface as `FlatFileWriter`."""

    def __init__(self, sink: Any, schema: pa.Schema, statistics_columns: Sequence[str], table: str = "a file") -> None:
        self._statistics_columns, self._schema, self._table = statistics_columns, schema, table
        self._footers: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            sink,
            schema,
            metadata_collector=self._footers,
            compression="zstd",
            write_statistics=list(statistics_columns),  # type: ignore[arg-type]
            write_page_checksum=True,
            store_schema=False,  # the schema is in schemas.py
        )

    def write(self, rows: pa.Table) -> None:
        for each in self._schema:
            absent = rows.column(each.name).null_count
            if absent and not each.nullable:
                raise null_error(self._table, each.name, absent, rows.num_rows)
        self._writer.write_table(rows.cast(self._schema), ROW_GROUP_ROWS)

    def close(self) -> None:
        self._writer.close()

    def discard(self) -> None:
        self._writer.is_open = False  # otherwise its destructor would write the footer, and warn

    @property
    def bounds(self) -> dict[str, Bounds]:
        """From the statistics that Parquet collected while writing."""
        footer, found = self._footers[0], dict[str, Bounds]()
        column_indices = {footer.schema.column(at).path: at for at in range(footer.num_columns)}
        for name in self._statistics_columns:
            statistics = [
                footer.row_group(group).column(column_indices[name]).statistics
                for group in range(footer.num_row_groups)
            ]
            if any(each is None for each in statistics):
                continue
            lows, highs = ([getattr(each, end) for each in statistics if each.has_min_max] for end in ("min", "max"))
            absent = sum(each.null_count for each in statistics)
            found[name] = absent, min(lows, default=None), max(highs, default=None)
        return found


def _conform(rows: pa.Table, table: Table) -> pa.Table:
    """Exactly the columns of a file, in order and with their types; strings may be dictionary-encoded."""
    schema = table.file_schema
    missing = [name for name in schema.names if name not in rows.schema.names]
    unknown = [name for name in rows.schema.names if name not in table.schema.names]
    if missing or unknown:
        problem = f"missing column {', '.join(missing)}" if missing else f"unknown column {', '.join(unknown)}"
        raise UmdfError(f"rows do not match the schema of {table.name}: {problem}", "this is a bug, please report it")
    columns = []
    for each in schema:
        column = rows.column(each.name)
        is_text = each.type == pa.utf8() and pa.types.is_dictionary(column.type)
        columns.append(column if column.type == each.type or is_text else column.cast(each.type))
    return pa.Table.from_arrays(columns, schema.names)


def _statistics(rows: int, bounds: Mapping[str, Bounds]) -> str:
    """Delta's statistics."""
    low = {name: least for name, (_, least, _) in bounds.items() if least is not None}
    high = {name: most for name, (_, _, most) in bounds.items() if most is not None}
    absent = {name: count for name, (count, _, _) in bounds.items()}
    stats = {"numRecords": rows, "minValues": low, "maxValues": high, "nullCount": absent}
    return json.dumps(stats, separators=(",", ":"))
