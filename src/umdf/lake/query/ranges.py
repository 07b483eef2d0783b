"""A range of a table: a plan, which becomes rows when one of its outputs is asked for.

The one rule: a range belongs to the commit of the lake at which it was made, and every output has the same rows. All
but Spark's come in order: date by date, channel by channel, then as the feed had them. Only `to_spark` starts Spark,
only `to_batches` takes no more memory for more rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from umdf.errors import UmdfError, UsageError
from umdf.lake.files import FileAdd
from umdf.lake.query.arrays import no_rows, numbers, rows_at
from umdf.lake.query.made import BATCH_ROWS, Levels, Maker, Task, make_here, make_in_spark, parts_to_make
from umdf.lake.query.names import DERIVED
from umdf.lake.query.ordering import HELD_ROWS, Sorter
from umdf.lake.query.prices import Style
from umdf.lake.query.reading import Part, Question, Reading, by_part, chosen, read_part, read_pieces
from umdf.lake.query.symbols import Selection
from umdf.lake.snapshot import Snapshot
from umdf.market.events import MAYBE_BAD_BOOK

if TYPE_CHECKING:
    import pandas
    import polars
    from pyspark.sql import DataFrame, SparkSession

CONTINUOUS = pa.field("continuous", pa.utf8(), metadata={"doc": "the name by which it was asked for"})
KEY = ("trading_date", "channel_id", "instrument_id")
KEY_DDL = "trading_date date, channel_id short, instrument_id long"
MOST_IDS = 1_000  # in a filter that Spark hands to its Parquet reader


@dataclass(frozen=True, eq=False)
class Range:
    """What `Lake.get_range` gives. Nothing is read before one of the outputs."""

    snapshot: Snapshot
    question: Question
    selection: Selection | None
    columns: Sequence[str]
    style: Style
    session: Callable[[], SparkSession]
    maker: Maker | None = None  # of rows that are not stored
    reading: Reading = field(default_factory=Reading)  # what the outputs have opened so far

    @property
    def schema(self) -> str:
        return self.question.table.name

    @property
    def commit(self) -> int:
        return self.snapshot.number

    @property
    def arrow_schema(self) -> pa.Schema:
        return self.style.schema(self._asked)

    def to_arrow(self) -> pa.Table:
        asked = self._asked
        parts = self._parts()
        found = [self._named(parts[part], part).select(asked.names) for part in sorted(parts, key=_place)]
        return self.style.table(pa.concat_tables([no_rows(asked), *found]))

    def to_batches(self, batch_size: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """The rows of `to_arrow`, in batches of so many at most. Nothing is read before the first one is asked for.

        Memory holds some hundred thousand rows; of what is made on demand, also what its busiest instrument takes. What
        has to be sorted waits in temporary files (TMPDIR).
        """
        if batch_size < 1:
            raise UsageError(f"batch_size {batch_size}: at least one row is needed", "leave it out for 65,536")
        return self._batches(batch_size)

    def _batches(self, batch_size: int) -> Iterator[pa.RecordBatch]:
        asked = self._asked
        for part, pieces in self._pieces():
            with Sorter(self.maker.table if self.maker else self.question.table) as sorter:
                for rows in pieces:
                    sorter.take(rows)
                for rows in sorter.tables():
                    for first in range(0, rows.num_rows, batch_size):
                        some = self._named(rows.slice(first, batch_size), part).select(asked.names)
                        yield from self.style.table(some).combine_chunks().to_batches(batch_size)

    def to_pandas(self) -> pandas.DataFrame:
        _needs("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        frame: Any = _needs("polars").from_arrow(self.to_arrow())
        return frame

    def to_spark(self) -> DataFrame:
        """Rows in no order. Beside each time, which ends at the microsecond, stand its nanoseconds: `<name>_ns`."""
        spark = self.session()
        return self.style.spark(self._spark_rows(spark), self._stored, self.columns)

    def __repr__(self) -> str:
        asked = "every instrument" if self.selection is None else ", ".join(self.selection.asked[:5])
        files = len(chosen(self.snapshot, self.question))
        return f"<Range {self.schema} of {asked}, {self.question.span}: {files} files of commit {self.commit}>"

    @property
    def _stored(self) -> pa.Schema:
        """Every column that the rows can have, as it is stored."""
        schema = self.maker.schema if self.maker else self.question.table.schema
        return schema.append(CONTINUOUS) if self.selection and self.selection.is_continuous else schema

    @property
    def _asked(self) -> pa.Schema:
        return pa.schema([self._stored.field(name) for name in self.columns])

    def _parts(self) -> dict[Part, pa.Table]:
        """The rows of each trading date and channel, as they are stored."""
        made = {} if self.maker is None else make_here(self.maker, self.snapshot, self.reading)
        for part, adds in self._stored_parts().items():
            made[part] = read_part(self.snapshot, self.question, part, adds, self._columns_read, self.reading)
        return made

    def _pieces(self) -> Iterator[tuple[Part, Iterator[pa.Table]]]:
        """The same, piece by piece in no order, with what tells their order."""
        stored, made = self._stored_parts(), dict[Part, list[Task]]()
        for task in self.maker.tasks(self.snapshot, HELD_ROWS) if self.maker else ():
            made.setdefault(task.part, []).append(task)
        for part in sorted({*stored, *made}, key=_place):
            if part in stored:
                asked = self.snapshot, self.question, part, stored[part], self._columns_read, self.reading
                yield part, read_pieces(*asked)
            if part in made:
                yield part, self._made(made[part])

    def _made(self, tasks: Sequence[Task]) -> Iterator[pa.Table]:
        assert self.maker is not None
        return (self.maker.make(self.snapshot, task, self.reading) for task in tasks)

    @property
    def _columns_read(self) -> list[str]:
        names = {*self.columns, *(KEY if self.selection and self.selection.is_continuous else ())}
        return [name for name in self.question.table.schema.names if name in names]

    def _stored_parts(self) -> dict[Part, list[FileAdd]]:
        if self.maker is not None and not isinstance(self.maker, Levels):
            return {}
        self.reading.files += len(self.snapshot.adds(self.schema))
        return by_part(chosen(self.snapshot, self.question))

    def _named(self, rows: pa.Table, part: Part) -> pa.Table:
        """With the names of continuous contracts. One that has two names is there twice."""
        if self.selection is None or not self.selection.is_continuous:
            return rows
        own = self.selection.names.get(part, {})
        numbers_of: dict[str, list[int]] = {}
        for number, names in own.items():
            for name in names:
                numbers_of.setdefault(name, []).append(number)
        ids = numbers(rows.column("instrument_id"))
        places = [np.flatnonzero(np.isin(ids, some)) for some in numbers_of.values()]
        which = np.repeat(np.arange(len(places)), [len(some) for some in places])
        every = np.concatenate([np.empty(0, np.int64), *places])
        order = np.argsort(every, kind="stable")
        names = pa.array(list(numbers_of), pa.utf8()).take(pa.array(which[order]))
        return rows_at(rows, every[order]).append_column(CONTINUOUS, names)

    def _spark_rows(self, spark: SparkSession) -> DataFrame:
        from pyspark.sql import functions as f

        if self.maker is not None:
            frame = make_in_spark(self.maker, self.snapshot, spark)
            if isinstance(self.maker, Levels) and self.snapshot.adds(self.schema):
                frame = frame.unionByName(self._filtered(spark))
        else:
            frame = self._filtered(spark)
        selection = self.selection
        if selection is None or not selection.is_continuous:
            return frame
        named = [
            (*part, number, name)
            for part, own in selection.names.items()
            for number, names in own.items()
            for name in names
        ]
        return frame.join(f.broadcast(spark.createDataFrame(named, f"{KEY_DDL}, continuous string")), list(KEY))

    def _filtered(self, spark: SparkSession) -> DataFrame:
        """The stored rows that are wanted."""
        from pyspark.sql import functions as f

        question, table = self.question, self.question.table
        frame = self.snapshot.spark_frame(spark, table.name, chosen(self.snapshot, question))
        if question.time is not None:
            low, high = question.span.low, question.span.high
            frame = frame.filter(f.col(question.time) >= low) if low is not None else frame
            frame = frame.filter(f.col(question.time) < high) if high is not None else frame
        if question.exclude_stale:
            frame = frame.filter(f.col("flags").bitwiseAND(MAYBE_BAD_BOOK) == 0)
        if question.wanted is None:
            return frame
        every = set(question.wanted.values())
        ids = frozenset().union(*(one.ids or () for one in every))
        if "instrument_id" in table.schema.names and all(one.ids is not None for one in every) and len(ids) <= MOST_IDS:
            frame = frame.filter(f.col("instrument_id").isin(sorted(ids)))
        symbols = next((one.symbols for one in every), None)
        if symbols is not None and "symbol" in table.schema.names:
            return frame.filter(f.col("symbol").isin(sorted(symbols)))
        if len(every) > 1 or len(ids) > MOST_IDS:  # other numbers on other days: the key says which
            rows = [(*part, number) for part, one in question.wanted.items() for number in one.ids or ()]
            pairs = spark.createDataFrame(rows, KEY_DDL)
            frame = frame.join(f.broadcast(pairs), list(KEY), "leftsemi")
        return frame


def made_by(snapshot: Snapshot, question: Question) -> Maker | None:
    """What is not stored of a table, and can be made."""
    if question.table.name in DERIVED and parts_to_make(snapshot, question):
        return Levels(question)
    return None


def _place(part: Part) -> tuple[str, int]:
    return str(part[0] or ""), part[1] or -1


def _needs(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UmdfError(f"{name} cannot be loaded: {error}", f"pip install {name}, or use to_arrow()") from error
