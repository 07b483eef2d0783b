"""Captures as a DataFrame, without a lake between: `spark.read.format("umdf")`.

    umdf.register_source(spark)
    spark.read.format("umdf").option("schema", "mbo").load("day/capture").where("symbol = 'PETR4'")
    spark.readStream.format("umdf").option("schema", "trades").load("recording")

The one rule: what comes out are the rows of the lake's table of that name, before its books say which are in doubt.
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
from umdf.lake.given import inputs_of
from umdf.lake.session import this_python
from umdf.lake.source_filters import Conditions
from umdf.lake.source_options import Options
from umdf.lake.source_plan import Captures, partitions, surveys_of
from umdf.lake.source_tasks import Wanted, batches

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FORMAT = "umdf"


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("umdf")` known to a session; nothing else of it is touched."""
    with this_python(spark):
        spark.dataSource.register(UmdfSource)


class UmdfSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return spark_type(Options.of(self.options).schema)

    def reader(self, schema: StructType) -> CaptureReader:
        return CaptureReader(chosen(Options.of(self.options), schema))

    def streamReader(self, schema: StructType) -> Any:
        from umdf.lake.source_stream import RecordingReader

        return RecordingReader(chosen(Options.of(self.options), schema))


def chosen(options: Options, schema: StructType) -> Options:
    """A schema that the caller gave names the columns that are read; types are the family's."""
    asked = options.with_columns(schema.fieldNames())
    known = spark_type(asked.schema)
    for given, own in zip(schema, known, strict=True):
        if given.dataType != own.dataType:
            reason = f"column {own.name} is {own.dataType.simpleString()}, not {given.dataType.simpleString()}"
            raise UsageError(reason, "leave the types to the source: name columns with the option columns")
    return asked


class CaptureReader(DataSourceReader):
    def __init__(self, options: Options) -> None:
        self.options = options
        self.wanted = Wanted(options.family, options.schema)

    @property
    def pushFilters(self) -> Any:
        return _Pushing(self)

    def partitions(self) -> Sequence[InputPartition]:
        surveys = surveys_of(inputs_of([Path(path) for path in self.options.paths]).captures)
        captures = Captures(surveys, self.options.named, self.options.span_numbers)
        return [InputPartition(work) for work in partitions(captures, self.wanted)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(partition.value, self.wanted) if partition.value is not None else iter(())


class _Pushing:
    """`pushFilters` as a value. While spark.sql.python.filterPushdown.enabled is off (its default), PySpark refuses a
    reader that has a method of its own by that name, and asks for its `__func__` to find out. We work in both cases,
    and the setting is the caller's."""

    def __init__(self, reader: CaptureReader) -> None:
        self.reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        reader = self.reader
        reader.wanted = Wanted(reader.wanted.family, reader.wanted.schema, Conditions(filters, reader.wanted.schema))
        return filters  # Spark evaluates them, too
