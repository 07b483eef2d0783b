"""Filters that Spark pushes down to the DataFrame source: which files, days and rows they leave.

The one rule: a filter is only ever used to read less. Spark evaluates every filter itself all the same, so what is not
understood here costs time, never a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute
from pyspark.sql import datasource as spark

pc: Any = pyarrow.compute  # its functions are made at run time


@dataclass(frozen=True)
class Kind:
    """How one kind of filter is evaluated: on a column, and on the least and the largest value of one."""

    rows: Callable[[pa.Array, Any], Any]
    span: Callable[[Any, Any, Any], bool]


KINDS: dict[type[spark.Filter], Kind] = {
    spark.EqualTo: Kind(lambda column, value: pc.equal(column, value), lambda low, high, v: low <= v <= high),
    spark.GreaterThan: Kind(lambda column, value: pc.greater(column, value), lambda low, high, v: high > v),
    spark.GreaterThanOrEqual: Kind(
        lambda column, value: pc.greater_equal(column, value), lambda low, high, v: high >= v
    ),
    spark.LessThan: Kind(lambda column, value: pc.less(column, value), lambda low, high, v: low < v),
    spark.LessThanOrEqual: Kind(lambda column, value: pc.less_equal(column, value), lambda low, high, v: low <= v),
    spark.In: Kind(
        lambda column, value: pc.is_in(column, value_set=value),
        lambda low, high, v: any(low <= one <= high for one in v),
    ),
}


@dataclass(frozen=True)
class Condition:
    column: str
    kind: type[spark.Filter]
    value: Any  # a scalar of Arrow with the column's type, or an array of them

    def admits(self, low: Any, high: Any) -> bool:
        """Whether a value between these may fulfil it."""
        known = self.value.to_pylist() if isinstance(self.value, pa.Array) else self.value.as_py()
        return KINDS[self.kind].span(low, high, known)


class Conditions:
    """All of them hold for every row that is wanted."""

    def __init__(self, filters: Iterable[spark.Filter] = (), schema: pa.Schema | None = None) -> None:
        understood = (_condition(one, schema) for one in filters) if schema is not None else ()
        self.all = [one for one in understood if one is not None]

    def admits(self, column: str, low: Any, high: Any = None) -> bool:
        """Whether a row with a value of this column between `low` and `high` (or `low` itself) may be wanted."""
        high = low if high is None else high
        return all(one.admits(low, high) for one in self.all if one.column == column)

    def are_about(self, column: str) -> bool:
        return any(one.column == column for one in self.all)

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Those that may be wanted."""
        for one in self.all:
            if not batch.num_rows:
                break
            batch = batch.filter(KINDS[one.kind].rows(batch.column(one.column), one.value))
        return batch


def _condition(given: spark.Filter, schema: pa.Schema) -> Condition | None:
    path, value = getattr(given, "attribute", ()), getattr(given, "value", None)
    if type(given) not in KINDS or len(path) != 1 or path[0] not in schema.names:
        return None
    kind = schema.field(path[0]).type
    try:
        if isinstance(given, spark.In):
            made: Any = pa.array([one for one in given.value if one is not None], kind)
        else:
            made = pa.scalar(value, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return None  # of another type than the column: Spark knows what is meant
    return Condition(path[0], type(given), made) if value is not None else None
