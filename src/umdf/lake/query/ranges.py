"""A range of a table: a plan, which reads rows when one of its outputs is called.

Invariant: a range belongs to the commit of the lake at which it was created, and every output has the same rows. All
except Spark's are ordered: by date, by channel, then as in the feed. Only `to_spark` starts Spark, and only
`to_batches` uses bounded memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from umdf.errors import UmdfError, UsageError
from umdf.lake.commit.lake_snapshot import LakeSnapshot
from umdf.lake.parquet.data_files import FileAdd
from umdf.lake.query.arrays import empty_table, int64_values, take_rows
from umdf.lake.query.computed_rows import (
    BATCH_ROWS,
    DerivedLevels,
    DerivedRows,
    DeriveTask,
    derive_in_spark,
    derive_local,
    partitions_to_derive,
)
from umdf.lake.query.name_lookup import DERIVED_DEPTHS
from umdf.lake.query.ordering import MAX_BUFFERED_ROWS, ExternalSorter
from umdf.lake.query.price_styles import OutputFormat
from umdf.lake.query.symbols import Selection
from umdf.lake.query.table_reader import (
    Partition,
    Query,
    ReadStats,
    group_by_partition,
    iter_rows,
    read_partition,
    select_files,
)
from umdf.market.families import JOINED, MAYBE_BAD_BOOK

if TYPE_CHECKING:
    import pandas
    import polars
    from pyspark.sql import DataFrame, SparkSession

CONTINUOUS = pa.field("continuous", pa.utf8(), metadata={"doc": "continuous symbol that was requested"})
KEY = ("trading_date", "channel_id", "instrument_id")
KEY_DDL = "trading_date date, channel_id short, instrument_id long"
MAX_PUSHED_IDS = 1_000  # in a filter for Spark's Parquet reader


@dataclass(frozen=True, eq=False)
class Range:
    """The result of `Lake.get_range`. Nothing is read before one of the outputs is called."""

    snapshot: LakeSnapshot
    query: Query
    selection: Selection | None
    columns: Sequence[str]
    output_format: OutputFormat
    spark_session: Callable[[], SparkSession]
    derived: DerivedRows | None = None  # computes rows that are not stored
    stats: ReadStats = field(default_factory=ReadStats)  # files that the outputs have opened so far

    @property
    def schema(self) -> str:
        return self.query.table.name

    @property
    def commit(self) -> int:
        return self.snapshot.number

    @property
    def arrow_schema(self) -> pa.Schema:
        return self.output_format.schema(self._requested_schema)

    def to_arrow(self) -> pa.Table:
        asked = self._requested_schema
        parts = self._rows_by_partition()
        found = [
            self._with_continuous_names(parts[part], part).select(asked.names)
            for part in sorted(parts, key=_partition_sort_key)
        ]
        return self.output_format.to_table(pa.concat_tables([empty_table(asked), *found]))

    def to_batches(self, batch_size: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """The rows of `to_arrow`, in batches of at most `batch_size`. Nothing is read before the first one.

        Memory holds some hundred thousand rows; for derived rows, also those of the most active instrument. Rows that
        have to be sorted are kept in temporary files (TMPDIR).
        """
        if batch_size < 1:
            raise UsageError(f"invalid batch_size: {batch_size}", "use at least 1 (default 65,536)")
        return self._batches(batch_size)

    def _batches(self, batch_size: int) -> Iterator[pa.RecordBatch]:
        asked = self._requested_schema
        for part, batches in self._unsorted_rows():
            with ExternalSorter(self.derived.table if self.derived else self.query.table) as sorter:
                for rows in batches:
                    sorter.add(rows)
                for rows in sorter.tables():
                    for first in range(0, rows.num_rows, batch_size):
                        some = self._with_continuous_names(rows.slice(first, batch_size), part).select(asked.names)
                        yield from self.output_format.to_table(some).combine_chunks().to_batches(batch_size)

    def to_pandas(self) -> pandas.DataFrame:
        _import_package("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        frame: Any = _import_package("polars").from_arrow(self.to_arrow())
        return frame

    def to_spark(self) -> DataFrame:
        """Unordered rows. Each time, which has microseconds, has its nanoseconds beside it: `<name>_ns`."""
        spark = self.spark_session()
        return self.output_format.to_spark(self._spark_rows(spark), self._stored_schema, self.columns)

    def __repr__(self) -> str:
        asked = "every instrument" if self.selection is None else ", ".join(self.selection.requested[:5])
        files = len(select_files(self.snapshot, self.query))
        return f"<Range {self.schema} of {asked}, {self.query.span}: {files} files of commit {self.commit}>"

    @property
    def _stored_schema(self) -> pa.Schema:
        """Every column that the rows can have, with its stored type."""
        schema = self.derived.schema if self.derived else self.query.table.schema
        return schema.append(CONTINUOUS) if self.selection and self.selection.is_continuous else schema

    @property
    def _requested_schema(self) -> pa.Schema:
        return pa.schema([self._stored_schema.field(name) for name in self.columns])

    def _rows_by_partition(self) -> dict[Partition, pa.Table]:
        """The rows of each channel-day, as stored."""
        made = {} if self.derived is None else derive_local(self.derived, self.snapshot, self.stats)
        for part, adds in self._stored_files().items():
            made[part] = read_partition(self.snapshot, self.query, part, adds, self._columns_to_read, self.stats)
        return made

    def _unsorted_rows(self) -> Iterator[tuple[Partition, Iterator[pa.Table]]]:
        """The same, in unordered parts, with the columns that define the order."""
        stored, made = self._stored_files(), dict[Partition, list[DeriveTask]]()
        for task in self.derived.tasks(self.snapshot, MAX_BUFFERED_ROWS) if self.derived else ():
            made.setdefault(task.partition, []).append(task)
        for part in sorted({*stored, *made}, key=_partition_sort_key):
            if part in stored:
                asked = self.snapshot, self.query, part, stored[part], self._columns_to_read, self.stats
                yield part, iter_rows(*asked)
            if part in made:
                yield part, self._derived_rows(made[part])

    def _derived_rows(self, tasks: Sequence[DeriveTask]) -> Iterator[pa.Table]:
        assert self.derived is not None
        return (self.derived.derive(self.snapshot, task, self.stats) for task in tasks)

    @property
    def _columns_to_read(self) -> list[str]:
        names = {*self.columns, *(KEY if self.selection and self.selection.is_continuous else ())}
        return [name for name in self.query.table.schema.names if name in names]

    def _stored_files(self) -> dict[Partition, list[FileAdd]]:
        if self.derived is not None and not isinstance(self.derived, DerivedLevels):
            return {}
        self.stats.files += len(self.snapshot.adds(self.schema))
        return group_by_partition(select_files(self.snapshot, self.query))

    def _with_continuous_names(self, rows: pa.Table, part: Partition) -> pa.Table:
        """Add the symbols of continuous contracts; a contract with two symbols appears twice."""
        if self.selection is None or not self.selection.is_continuous:
            return rows
        own = self.selection.continuous_names.get(part, {})
        numbers_of: dict[str, list[int]] = {}
        for number, names in own.items():
            for name in names:
                numbers_of.setdefault(name, []).append(number)
        ids = int64_values(rows.column("instrument_id"))
        places = [np.flatnonzero(np.isin(ids, some)) for some in numbers_of.values()]
        which = np.repeat(np.arange(len(places)), [len(some) for some in places])
        every = np.concatenate([np.empty(0, np.int64), *places])
        order = np.argsort(every, kind="stable")
        names = pa.array(list(numbers_of), pa.utf8()).take(pa.array(which[order]))
        return take_rows(rows, every[order]).append_column(CONTINUOUS, names)

    def _spark_rows(self, spark: SparkSession) -> DataFrame:
        from pyspark.sql import functions as f

        if self.derived is not None:
            frame = derive_in_spark(self.derived, self.snapshot, spark)
            if isinstance(self.derived, DerivedLevels) and self.snapshot.adds(self.schema):
                frame = frame.unionByName(self._filtered_frame(spark))
        else:
            frame = self._filtered_frame(spark)
        selection = self.selection
        if selection is None or not selection.is_continuous:
            return frame
        named = [
            (*part, number, name)
            for part, own in selection.continuous_names.items()
            for number, names in own.items()
            for name in names
        ]
        return frame.join(f.broadcast(spark.createDataFrame(named, f"{KEY_DDL}, continuous string")), list(KEY))

    def _filtered_frame(self, spark: SparkSession) -> DataFrame:
        """The selected stored rows."""
        from pyspark.sql import functions as f

        question, table = self.query, self.query.table
        frame = self.snapshot.spark_frame(spark, table.name, select_files(self.snapshot, question))
        if (name := question.time_column((None, None))) is not None:
            low, high, time = question.span.start_ns, question.span.end_ns, f.col(name)
            for part in question.time.off:  # their rows are compared by another time
                is_part = (f.col("trading_date") == f.lit(part[0])) & (f.col("channel_id") == f.lit(part[1]))
                time = f.when(is_part, f.col(question.time_column(part) or name)).otherwise(time)
            frame = frame.filter(time >= low) if low is not None else frame
            frame = frame.filter(time < high) if high is not None else frame
        if question.exclude_stale:
            is_kept = f.col("flags").bitwiseAND(MAYBE_BAD_BOOK) == 0
            for part in question.continued:
                is_part = (f.col("trading_date") == f.lit(part[0])) & (f.col("channel_id") == f.lit(part[1]))
                is_kept |= is_part & (f.col("flags").bitwiseAND(JOINED) != 0)
            frame = frame.filter(is_kept)
        if question.filters is None:
            return frame
        every = set(question.filters.values())
        ids = frozenset().union(*(one.ids or () for one in every))
        if (
            "instrument_id" in table.schema.names
            and all(one.ids is not None for one in every)
            and len(ids) <= MAX_PUSHED_IDS
        ):
            frame = frame.filter(f.col("instrument_id").isin(sorted(ids)))
        symbols = next((one.symbols for one in every), None)
        if symbols is not None and "symbol" in table.schema.names:
            return frame.filter(f.col("symbol").isin(sorted(symbols)))
        if len(every) > 1 or len(ids) > MAX_PUSHED_IDS:  # IDs differ between days: the key selects them
            rows = [(*part, number) for part, one in question.filters.items() for number in one.ids or ()]
            pairs = spark.createDataFrame(rows, KEY_DDL)
            frame = frame.join(f.broadcast(pairs), list(KEY), "leftsemi")
        return frame


def derived_rows_of(snapshot: LakeSnapshot, question: Query) -> DerivedRows | None:
    """The rows of a table that are not stored but can be computed."""
    if question.table.name in DERIVED_DEPTHS and partitions_to_derive(snapshot, question):
        return DerivedLevels(question)
    return None


def _partition_sort_key(part: Partition) -> tuple[str, int]:
    return str(part[0] or ""), part[1] or -1


def _import_package(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UmdfError(f"cannot import {name}: {error}", f"pip install {name}, or use to_arrow()") from error
