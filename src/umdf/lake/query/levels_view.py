"""`mbp_10` (and `mbp_1`) for Spark's SQL, on the days for which a lake does not store it: made when asked for.

The one rule: nothing is made that a query does not ask for. The frame begins as a list of instruments and days, a
function makes the rows of each, and only then they are spread out. So Spark itself puts a filter on trading_date,
channel_id, instrument_id or symbol in front of the function, in any session, without a setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from umdf.lake.dialects import sql_type
from umdf.lake.query.made import Levels, Task, parts_to_make
from umdf.lake.query.names import DERIVED
from umdf.lake.query.reading import Part, Question, Reading, Wanted, by_part
from umdf.lake.schemas import table
from umdf.lake.session import context_of
from umdf.lake.snapshot import Snapshot, open_snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY = ("trading_date", "channel_id", "instrument_id", "symbol")  # of a row; known before it is made
CHUNK_EVENTS = 50_000  # rows of `mbo` whose books are one value to Spark: some 30 MB
PACK_EVENTS = 400_000  # rows of `mbo` that are read together
SLICES = 8  # of a session that does not say how many tasks it runs at a time


class Piece(NamedTuple):
    """Of the rows of one instrument and day."""

    trading_date: date
    channel_id: int
    instrument_id: int
    events: int  # rows of `mbo` of the whole day
    piece: int

    @property
    def pieces(self) -> int:
        return max(-(-self.events // CHUNK_EVENTS), 1)


def days_to_make(snapshot: Snapshot, name: str) -> list[Part]:
    """Dates and channels whose rows of a table are made on demand."""
    found = parts_to_make(snapshot, Question(table(name))) if name in DERIVED else []
    return [part for part in found if None not in part]


def frame(spark: SparkSession, snapshot: Snapshot, name: str) -> DataFrame:
    """Every row of mbp_1 or mbp_10, stored or not."""
    stored, days = snapshot.spark_frame(spark, name), days_to_make(snapshot, name)
    if not days:
        return stored
    made = _made(spark, snapshot, name, days)
    return stored.unionByName(made) if snapshot.adds(name) else made


def _made(spark: SparkSession, snapshot: Snapshot, name: str, days: list[Part]) -> DataFrame:
    from pyspark.sql import functions as f

    context = context_of(spark)
    pieces = f"explode(sequence(0L, greatest((events - 1) DIV {CHUNK_EVENTS}L, 0L))) AS piece"
    keys = (
        _instruments(spark, snapshot, days)
        .selectExpr(*KEY, "events", pieces)
        .repartition(2 * context.defaultParallelism if context is not None else SLICES, *KEY[:3])
        .sortWithinPartitions(*KEY[:3], "piece")
    )
    arrow_udf: Any = f.arrow_udf
    make = arrow_udf(_maker(str(snapshot.home.root), snapshot.number, name), f"ARRAY<{sql_type(value_type(name))}>")
    made = keys.select(*KEY, make(*Piece._fields).alias("rows"))
    # Not `inline`: Spark would look first whether there are rows, and make them all a second time to find out.
    spread = made.select(*KEY, f.inline_outer("rows")).where("msg_index IS NOT NULL")
    return spread.select(*table(name).schema.names)


def _instruments(spark: SparkSession, snapshot: Snapshot, days: list[Part]) -> DataFrame:
    """KEY and `events`. A table of one row an instrument and day has them, if it is there; `mbo` always has."""
    from pyspark.sql import functions as f

    if set(days) <= set(by_part(snapshot.adds("day_statistics"))):
        found = snapshot.spark_frame(spark, "day_statistics").selectExpr(*KEY, "coalesce(events, 0) AS events")
    else:
        rows = snapshot.spark_frame(spark, "mbo").selectExpr(*KEY, "1 AS events")
        states = snapshot.spark_frame(spark, "book_state")
        rows = rows.unionByName(states.selectExpr(*KEY[:3], "CAST(NULL AS STRING) AS symbol", "0 AS events"))
        found = rows.groupBy(*KEY[:3]).agg(f.max("symbol").alias("symbol"), f.sum("events").alias("events"))
    found = found.where("instrument_id IS NOT NULL")
    if set(days) == set(by_part(snapshot.adds("mbo"))):
        return found
    return found.where(" OR ".join(f"(trading_date = DATE'{day}' AND channel_id = {channel})" for day, channel in days))


def value_type(name: str) -> pa.StructType:
    """What a row is beside its KEY; inside a value of Spark's everything may be absent."""
    return pa.struct([pa.field(field.name, field.type) for field in table(name).schema if field.name not in KEY])


def _maker(root: str, commit: int, name: str) -> Any:
    """What Spark's workers run: for each piece its rows, as one list."""

    def make(
        batches: Iterator[tuple[pa.Array, pa.Array, pa.Array, pa.Array, pa.Array]],
    ) -> Iterator[pa.Array]:
        snapshot, levels, kind = open_snapshot(root, commit), Levels(Question(table(name))), value_type(name)
        for columns in batches:
            for pack in packs(map(Piece, *(column.to_pylist() for column in columns))):
                ids = frozenset(piece.instrument_id for piece in pack)
                yield from lists(pack, levels.make(snapshot, Task(pack[0][:2], Wanted(ids)), Reading()), kind)

    return make


def packs(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Neighbours of one channel and day, to be read together; the pieces of an instrument that follow each other."""
    pack: list[Piece] = []
    events = 0
    for piece in pieces:
        is_same = bool(pack) and piece[:3] == pack[-1][:3]
        if pack and not is_same and (piece[:2] != pack[-1][:2] or events + piece.events > PACK_EVENTS):
            yield pack
            pack, events = [], 0
        pack.append(piece)
        events += 0 if is_same else piece.events
    if pack:
        yield pack


def lists(pack: list[Piece], rows: pa.Table, kind: pa.StructType) -> Iterator[pa.Array]:
    """The rows of each piece, in the order of the pieces."""
    ids = rows.column("instrument_id").to_numpy()
    order = np.argsort(ids, kind="stable")
    ids = ids[order]
    for piece in pack:
        first, last = (int(np.searchsorted(ids, piece.instrument_id, side)) for side in ("left", "right"))
        begin, end = (first + (last - first) * cut // piece.pieces for cut in (piece.piece, piece.piece + 1))
        own = rows.take(pa.array(order[begin:end]))
        columns = [own.column(field.name).combine_chunks().cast(field.type) for field in kind]
        values = pa.StructArray.from_arrays(columns, fields=list(kind))
        yield pa.ListArray.from_arrays(pa.array([0, own.num_rows], pa.int32()), values)
