"""The tasks of an ingest on Spark: `run_tasks` with its session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from umdf.lake.session import context_of
from umdf.lake.tasks import Progress, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkRunner:
    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        context = context_of(spark)
        self.parallel = context.defaultParallelism if context is not None else 2

    def __call__(
        self, tasks: Sequence[Any], function: str, *, description: str = "tasks", progress: Progress | None = None
    ) -> list[dict[str, Any]]:
        return run_tasks(self.spark, tasks, function, description=description, progress=progress)
