"""`mbp_10` (and `mbp_1`) for Spark SQL, on days for which the lake does not store it: computed when read.

Invariant: only what a query needs is computed. The frame starts as a list of instruments and days, a function computes
the rows of each as a list, and only then the lists are expanded. So Spark applies filters on trading_date, channel_id,
instrument_id or symbol before the function, in any session, without a setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from umdf.lake.commit.lake_snapshot import LakeSnapshot, open_snapshot
from umdf.lake.dialects import sql_type
from umdf.lake.query.computed_rows import DerivedLevels, DeriveTask, partitions_to_derive
from umdf.lake.query.name_lookup import DERIVED_DEPTHS
from umdf.lake.query.table_reader import InstrumentFilter, Partition, Query, ReadStats, group_by_partition
from umdf.lake.runtime.session import context_of
from umdf.lake.schemas import table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY_COLUMNS = ("trading_date", "channel_id", "instrument_id", "symbol")  # of a row; known before it is computed
SLICE_EVENTS = 50_000  # rows of `mbo` whose levels are one Spark value: some 30 MB
MAX_READ_EVENTS = 400_000  # rows of `mbo` that are read together
DEFAULT_PARTITIONS = 8  # if the session does not report its parallelism


class LevelSlice(NamedTuple):
    """A slice of the rows of one instrument and day."""

    trading_date: date
    channel_id: int
    instrument_id: int
    events: int  # rows of `mbo` of the whole day
    slice_index: int

    @property
    def slice_count(self) -> int:
        return max(-(-self.events // SLICE_EVENTS), 1)


def derived_partitions(snapshot: LakeSnapshot, name: str) -> list[Partition]:
    """Channel-days whose rows of a table are computed on demand."""
    found = partitions_to_derive(snapshot, Query(table(name))) if name in DERIVED_DEPTHS else []
    return [part for part in found if None not in part]


def levels_frame(spark: SparkSession, snapshot: LakeSnapshot, name: str) -> DataFrame:
    """Every row of mbp_1 or mbp_10, stored or not."""
    stored, days = snapshot.spark_frame(spark, name), derived_partitions(snapshot, name)
    if not days:
        return stored
    made = _derived_frame(spark, snapshot, name, days)
    return stored.unionByName(made) if snapshot.adds(name) else made


def _derived_frame(spark: SparkSession, snapshot: LakeSnapshot, name: str, days: list[Partition]) -> DataFrame:
    from pyspark.sql import functions as f

    context = context_of(spark)
    slices = f"explode(sequence(0L, greatest((events - 1) DIV {SLICE_EVENTS}L, 0L))) AS slice_index"
    keys = (
        _instruments_frame(spark, snapshot, days)
        .selectExpr(*KEY_COLUMNS, "events", slices)
        .repartition(2 * context.defaultParallelism if context is not None else DEFAULT_PARTITIONS, *KEY_COLUMNS[:3])
        .sortWithinPartitions(*KEY_COLUMNS[:3], "slice_index")
    )
    arrow_udf: Any = f.arrow_udf
    make = arrow_udf(
        _slice_function(str(snapshot.paths.root), snapshot.number, name), f"ARRAY<{sql_type(row_struct_type(name))}>"
    )
    made = keys.select(*KEY_COLUMNS, make(*LevelSlice._fields).alias("rows"))
    # Not `inline`: Spark would first check for empty lists, computing all of them a second time.
    spread = made.select(*KEY_COLUMNS, f.inline_outer("rows")).where("msg_index IS NOT NULL")
    return spread.select(*table(name).schema.names)


def _instruments_frame(spark: SparkSession, snapshot: LakeSnapshot, days: list[Partition]) -> DataFrame:
    """KEY and `events`: from a table with one row per instrument and day, if there is one; otherwise from `mbo`."""
    from pyspark.sql import functions as f

    if set(days) <= set(group_by_partition(snapshot.adds("day_statistics"))):
        found = snapshot.spark_frame(spark, "day_statistics").selectExpr(*KEY_COLUMNS, "coalesce(events, 0) AS events")
    else:
        rows = snapshot.spark_frame(spark, "mbo").selectExpr(*KEY_COLUMNS, "1 AS events")
        states = snapshot.spark_frame(spark, "book_state")
        rows = rows.unionByName(states.selectExpr(*KEY_COLUMNS[:3], "CAST(NULL AS STRING) AS symbol", "0 AS events"))
        found = rows.groupBy(*KEY_COLUMNS[:3]).agg(f.max("symbol").alias("symbol"), f.sum("events").alias("events"))
    found = found.where("instrument_id IS NOT NULL")
    if set(days) == set(group_by_partition(snapshot.adds("mbo"))):
        return found
    return found.where(" OR ".join(f"(trading_date = DATE'{day}' AND channel_id = {channel})" for day, channel in days))


def row_struct_type(name: str) -> pa.StructType:
    """The type of a row without its KEY_COLUMNS; inside a Spark value every field is nullable."""
    return pa.struct(
        [pa.field(field.name, field.type) for field in table(name).schema if field.name not in KEY_COLUMNS]
    )


def _slice_function(root: str, commit: int, name: str) -> Any:
    """Runs on Spark's workers: the rows of each slice, as one list."""

    def make(
        batches: Iterator[tuple[pa.Array, pa.Array, pa.Array, pa.Array, pa.Array]],
    ) -> Iterator[pa.Array]:
        snapshot, levels, kind = open_snapshot(root, commit), DerivedLevels(Query(table(name))), row_struct_type(name)
        for columns in batches:
            for pack in group_slices(map(LevelSlice, *(column.to_pylist() for column in columns))):
                ids = frozenset(level_slice.instrument_id for level_slice in pack)
                yield from slice_rows(
                    pack, levels.derive(snapshot, DeriveTask(pack[0][:2], InstrumentFilter(ids)), ReadStats()), kind
                )

    return make


def group_slices(slices: Iterable[LevelSlice]) -> Iterator[list[LevelSlice]]:
    """Groups neighbouring slices of one channel-day, to be read together, and consecutive slices of an instrument."""
    group: list[LevelSlice] = []
    events = 0
    for level_slice in slices:
        is_same = bool(group) and level_slice[:3] == group[-1][:3]
        if (
            group
            and not is_same
            and (level_slice[:2] != group[-1][:2] or events + level_slice.events > MAX_READ_EVENTS)
        ):
            yield group
            group, events = [], 0
        group.append(level_slice)
        events += 0 if is_same else level_slice.events
    if group:
        yield group


def slice_rows(slices: list[LevelSlice], rows: pa.Table, kind: pa.StructType) -> Iterator[pa.Array]:
    """The rows of each slice, in the order of the slices."""
    ids = rows.column("instrument_id").to_numpy()
    order = np.argsort(ids, kind="stable")
    ids = ids[order]
    for level_slice in slices:
        first, last = (int(np.searchsorted(ids, level_slice.instrument_id, side)) for side in ("left", "right"))
        begin, end = (
            first + (last - first) * cut // level_slice.slice_count
            for cut in (level_slice.slice_index, level_slice.slice_index + 1)
        )
        own = rows.take(pa.array(order[begin:end]))
        columns = [own.column(field.name).combine_chunks().cast(field.type) for field in kind]
        values = pa.StructArray.from_arrays(columns, fields=list(kind))
        yield pa.ListArray.from_arrays(pa.array([0, own.num_rows], pa.int32()), values)
