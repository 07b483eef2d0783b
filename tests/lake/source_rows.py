"""Rows of the DataFrame source without Spark, and those of the lake beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute

from umdf.lake.commit.lake_snapshot import open_snapshot
from umdf.lake.source.filters import PushedFilters
from umdf.lake.source.options import SourceOptions
from umdf.lake.source.partition_plan import CaptureSet, plan_partitions, survey_files
from umdf.lake.source.partition_reader import PartitionTask, Scan, read_partition
from umdf.lake.source.stream_reader import RecordingReader
from umdf.market.families import MAYBE_BAD_BOOK

pc: Any = pyarrow.compute
SPAN_NUMBERS = 500  # several partitions even of a small day


def options(family: str, path: Any = "", **more: Any) -> SourceOptions:
    given = {"schema": family, "path": str(path), "spanSequences": str(SPAN_NUMBERS)}
    return SourceOptions.parse(given | {name: str(value) for name, value in more.items()})


def works(
    files: Sequence[Path], family: str, filters: Iterable[Any] = (), **more: Any
) -> tuple[list[PartitionTask], Scan]:
    asked = options(family, **more)
    wanted = Scan(family, asked.schema, PushedFilters(filters, asked.schema))
    return plan_partitions(CaptureSet(survey_files(files), asked.configured_streams, asked.span_units), wanted), wanted


def read(files: Sequence[Path], family: str, filters: Iterable[Any] = (), **more: Any) -> pa.Table:
    made, wanted = works(files, family, filters, **more)
    found = [batch for work in made for batch in read_partition(work, wanted)]
    return pa.Table.from_batches(found, wanted.schema)


def of_lake(root: Path, family: str) -> pa.Table:
    """A table of the lake without what only books can tell."""
    return without_bad_book_flag(open_snapshot(root).arrow_table(family))


def without_bad_book_flag(rows: pa.Table) -> pa.Table:
    if "flags" not in rows.schema.names:
        return rows
    place = rows.schema.get_field_index("flags")
    known = pc.bit_wise_and(rows["flags"], pa.scalar(~MAYBE_BAD_BOOK, pa.int32()))
    return rows.set_column(place, rows.schema.field(place), known)


def streamed(directory: Path, family: str, ends: Sequence[int], **more: Any) -> list[pa.Table]:
    """The micro-batches that end after so many files."""
    reader = RecordingReader(options(family, directory, **more))
    found, start = [], reader.initialOffset()
    for end in ends:
        offset = reader.latestOffset(start, _limit(end - start["files"]))
        # Spark asks a new process to read, and may ask twice: nothing may hang on this one.
        parts = reader.partitions(start, offset)
        again = RecordingReader(reader.options)
        rows = [batch for part in parts for batch in again.read(part)]
        found.append(pa.Table.from_batches(rows, reader.scan.schema))
        start = offset
    return found


def _limit(files: int) -> Any:
    from pyspark.sql.streaming.datasource import ReadMaxFiles

    return ReadMaxFiles(files)
