"""Filters that Spark pushes down to the DataFrame source: which files, days and rows remain.

Invariant: a filter is only used to read less. Spark evaluates every filter itself as well, so a filter that is not
understood here costs time, but never changes the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute
from pyspark.sql import datasource as spark

pc: Any = pyarrow.compute  # its functions are created at run time


@dataclass(frozen=True)
class FilterRule:
    """How one kind of filter is evaluated: on a column, and on its minimum and maximum."""

    mask: Callable[[pa.Array, Any], Any]
    may_match: Callable[[Any, Any, Any], bool]


FILTER_RULES: dict[type[spark.Filter], FilterRule] = {
    spark.EqualTo: FilterRule(lambda column, value: pc.equal(column, value), lambda low, high, v: low <= v <= high),
    spark.GreaterThan: FilterRule(lambda column, value: pc.greater(column, value), lambda low, high, v: high > v),
    spark.GreaterThanOrEqual: FilterRule(
        lambda column, value: pc.greater_equal(column, value), lambda low, high, v: high >= v
    ),
    spark.LessThan: FilterRule(lambda column, value: pc.less(column, value), lambda low, high, v: low < v),
    spark.LessThanOrEqual: FilterRule(
        lambda column, value: pc.less_equal(column, value), lambda low, high, v: low <= v
    ),
    spark.In: FilterRule(
        lambda column, value: pc.is_in(column, value_set=value),
        lambda low, high, v: any(low <= one <= high for one in v),
    ),
}


@dataclass(frozen=True)
class PushedFilter:
    column: str
    filter_type: type[spark.Filter]
    value: Any  # an Arrow scalar of the column's type, or an array

    def may_match(self, low: Any, high: Any) -> bool:
        """Whether a value between these may match."""
        known = self.value.to_pylist() if isinstance(self.value, pa.Array) else self.value.as_py()
        return FILTER_RULES[self.filter_type].may_match(low, high, known)


class PushedFilters:
    """A conjunction of filters."""

    def __init__(self, filters: Iterable[spark.Filter] = (), schema: pa.Schema | None = None) -> None:
        understood = (_parse_filter(one, schema) for one in filters) if schema is not None else ()
        self.filters = [one for one in understood if one is not None]

    def may_match(self, column: str, low: Any, high: Any = None) -> bool:
        """Whether a row whose value of this column is between `low` and `high` (or is `low`) may match."""
        high = low if high is None else high
        return all(one.may_match(low, high) for one in self.filters if one.column == column)

    def constrains(self, column: str) -> bool:
        return any(one.column == column for one in self.filters)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that may match."""
        for one in self.filters:
            if not batch.num_rows:
                break
            batch = batch.filter(FILTER_RULES[one.filter_type].mask(batch.column(one.column), one.value))
        return batch


def _parse_filter(spark_filter: spark.Filter, schema: pa.Schema) -> PushedFilter | None:
    path, value = getattr(spark_filter, "attribute", ()), getattr(spark_filter, "value", None)
    if type(spark_filter) not in FILTER_RULES or len(path) != 1 or path[0] not in schema.names:
        return None
    kind = schema.field(path[0]).type
    try:
        if isinstance(spark_filter, spark.In):
            arrow_value: Any = pa.array([one for one in spark_filter.value if one is not None], kind)
        else:
            arrow_value = pa.scalar(value, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return None  # not of the column's type: left to Spark
    return PushedFilter(path[0], type(spark_filter), arrow_value) if value is not None else None
