"""The lake at its last finished commit; a commit in progress is not visible.

Invariant: tables are read from their list of files, with the declared schema. An empty table is an empty frame, and a
column that older files lack is NULL.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from umdf.errors import ConfigError, UmdfError
from umdf.lake.commit import delta, log
from umdf.lake.commit.log import Change, Marker
from umdf.lake.dialects import spark_type
from umdf.lake.hashing import LogicalHash
from umdf.lake.layout import LakePaths, open_lake_paths
from umdf.lake.parquet.data_files import FileAdd, partition_text
from umdf.lake.parquet.file_reader import SPARK_CHECKSUM_OPTION, TableFiles
from umdf.lake.schemas import Table
from umdf.lake.schemas import table as table_named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class LakeSnapshot:
    """One commit of a lake. Partition filters are keyword arguments: a value, or a list of values."""

    def __init__(self, paths: LakePaths, marker: Marker) -> None:
        self.paths = paths
        self.marker = marker
        self._files_by_table: dict[str, tuple[FileAdd, ...]] = {}  # loaded on first use

    def after(self, marker: Marker, changes: Iterable[Change]) -> LakeSnapshot:
        """The snapshot after a commit with these changes, without reading the tables' logs again."""
        found, changed = LakeSnapshot(self.paths, marker), {change.table: change for change in changes}
        for name, adds in self._files_by_table.items():
            if name not in changed and self.marker.versions.get(name) == marker.versions.get(name):
                found._files_by_table[name] = adds
            elif name in changed:
                gone = {remove.path for remove in changed[name].removes}
                left = [add for add in adds if add.path not in gone]
                found._files_by_table[name] = tuple(sorted([*left, *changed[name].adds], key=lambda add: add.path))
        return found

    @property
    def number(self) -> int:
        return self.marker.number

    def version(self, table: str) -> int | None:
        """Version of the Delta table; None if it was never written."""
        return self.marker.versions.get(table_named(table).name)

    def adds(self, table: str, **partition: Any) -> list[FileAdd]:
        """The files of a table with their rows, bytes and statistics."""
        known = table_named(table)
        partition_texts = {name: _partition_texts(known, name, value) for name, value in partition.items()}
        if table not in self._files_by_table:
            self._files_by_table[table] = self._read_adds(table)
        found = self._files_by_table[table]
        return [add for add in found if all(add.partition[name] in texts for name, texts in partition_texts.items())]

    def files(self, table: str, **partition: Any) -> list[Path]:
        return [self.paths.table(table) / add.path for add in self.adds(table, **partition)]

    def rows(self, table: str, **partition: Any) -> int:
        return sum(add.rows for add in self.adds(table, **partition))

    def arrow_dataset(self, table: str, **partition: Any) -> TableFiles:
        import pyarrow.dataset as ds  # imports pandas, 0.5 s

        known, files = table_named(table), self.files(table, **partition)
        if not files:
            return TableFiles(ds.dataset(known.schema.empty_table()), files)
        partitioning: Any = ds.partitioning(known.partition_schema, flavor="hive") if known.partition else None
        checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
        found = ds.dataset(
            [str(path) for path in files],
            known.schema,
            ds.ParquetFileFormat(default_fragment_scan_options=checked),
            partitioning=partitioning,
            partition_base_dir=str(self.paths.table(table)),
        )
        return TableFiles(found, files)

    def arrow_table(self, table: str, **partition: Any) -> pa.Table:
        return self.arrow_dataset(table, **partition).to_table()

    def spark_frame(
        self, spark: SparkSession, table: str, adds: Sequence[FileAdd] | None = None, **partition: Any
    ) -> DataFrame:
        """`adds`: read only these files, which the caller selected by their statistics."""
        known = table_named(table)
        chosen = self.adds(table, **partition) if adds is None else adds
        files = [self.paths.table(table) / add.path for add in chosen]
        kind = spark_type(known.schema)
        if not files:
            return spark.createDataFrame([], kind)
        reader = (
            spark.read.schema(kind)
            .option("basePath", str(self.paths.table(table)))
            .option(SPARK_CHECKSUM_OPTION, "true")
        )
        # Paths, not patterns: a directory name may contain brackets. Spark puts partition columns last.
        return reader.option("__globPaths__", "false").parquet(*map(str, files)).select(known.schema.names)

    def logical_hash(self, table: str, **partition: Any) -> str:
        """Independent of the order of rows and columns and of the division into files."""
        total = LogicalHash()
        for batch in self.arrow_dataset(table, **partition).to_batches(batch_size=1 << 16):
            total.add(batch)
        return total.hexdigest()

    def _read_adds(self, table: str) -> tuple[FileAdd, ...]:
        version = self.version(table)
        return (
            () if version is None else tuple(sorted(delta.adds(self.paths, table, version), key=lambda add: add.path))
        )


def _partition_texts(table: Table, name: str, value: Any) -> set[str | None]:
    if name not in table.partition:
        raise ConfigError(
            f"{table.name} is not partitioned by {name}",
            f"it is partitioned by {', '.join(table.partition) or 'nothing'}",
        )
    values = value if isinstance(value, (list, tuple, set)) else [value]
    return {partition_text(each) for each in values}


def open_snapshot(root: str | os.PathLike[str], number: int | None = None) -> LakeSnapshot:
    """The lake at its last finished commit, or at an earlier one that is not vacuumed yet."""
    paths = open_lake_paths(root)
    if number is not None and number < paths.first_commit:
        raise UmdfError(
            f"commit {number} cannot be read: it was made before the lake was upgraded to layout {paths.layout}",
            f"read commit {paths.first_commit} or a later one",
        )
    return LakeSnapshot(paths, log.last_marker(paths) if number is None else log.marker(paths, number))
