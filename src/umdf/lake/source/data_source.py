"""Captures as DataFrames, without a lake: `spark.read.format("umdf")`.

    umdf.register_source(spark)
    spark.read.format("umdf").option("schema", "mbo").load("day/capture").where("symbol = 'PETR4'")
    spark.readStream.format("umdf").option("schema", "trades").load("recording")

Invariant: the rows are those of the lake's table of that name, without the flags that its books add to unverified rows.
docs/source.md has the options.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from umdf.errors import MissingPackageError, UsageError

try:
    from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
except ImportError as error:
    raise MissingPackageError("pyspark", "umdf.register_source") from error

from umdf.lake.dialects import spark_type
from umdf.lake.plan.input_paths import find_captures
from umdf.lake.runtime.session import with_this_python
from umdf.lake.source.filters import PushedFilters
from umdf.lake.source.options import SourceOptions
from umdf.lake.source.partition_plan import CaptureSet, plan_partitions, survey_files
from umdf.lake.source.partition_reader import Scan, read_partition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FORMAT = "umdf"


def register(spark: SparkSession) -> None:
    """Register `spark.read.format("umdf")` with a session; nothing else of the session changes."""
    with with_this_python(spark):
        spark.dataSource.register(UmdfSource)


class UmdfSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return spark_type(SourceOptions.parse(self.options).schema)

    def reader(self, schema: StructType) -> CaptureReader:
        return CaptureReader(select_columns(SourceOptions.parse(self.options), schema))

    def streamReader(self, schema: StructType) -> Any:
        from umdf.lake.source.stream_reader import RecordingReader

        return RecordingReader(select_columns(SourceOptions.parse(self.options), schema))


def select_columns(options: SourceOptions, schema: StructType) -> SourceOptions:
    """A schema from the caller selects columns; their types must be those of the family."""
    selected = options.with_columns(schema.fieldNames())
    known = spark_type(selected.schema)
    for given, own in zip(schema, known, strict=True):
        if given.dataType != own.dataType:
            reason = f"column {own.name} has type {own.dataType.simpleString()}, not {given.dataType.simpleString()}"
            raise UsageError(reason, "omit the schema and select columns with the option columns")
    return selected


class CaptureReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.scan = Scan(options.family, options.schema)

    @property
    def pushFilters(self) -> Any:
        return _FilterPushdown(self)

    def partitions(self) -> Sequence[InputPartition]:
        surveys = survey_files(find_captures([Path(path) for path in self.options.paths]).captures)
        captures = CaptureSet(surveys, self.options.configured_streams, self.options.span_units)
        return [InputPartition(work) for work in plan_partitions(captures, self.scan)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition.value, self.scan) if partition.value is not None else iter(())


class _FilterPushdown:
    """`pushFilters` as an object. While spark.sql.python.filterPushdown.enabled is off (its default), PySpark rejects a
    reader that overrides that method, which it detects by `__func__`. This works in both cases, and leaves the
    setting to the caller."""

    def __init__(self, reader: CaptureReader) -> None:
        self.reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        reader = self.reader
        reader.scan = Scan(reader.scan.family, reader.scan.schema, PushedFilters(filters, reader.scan.schema))
        return filters  # Spark evaluates them as well
