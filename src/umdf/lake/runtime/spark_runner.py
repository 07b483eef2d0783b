"""Runs the tasks of an ingest on Spark: `run_tasks` with its session.

A single small task runs in the driver, if Spark runs on this machine: Spark needs 40 ms for it, and a stream has one in
every micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from umdf.lake.runtime.local_runner import run_locally
from umdf.lake.runtime.session import context_of
from umdf.lake.runtime.spark_tasks import Progress, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
MAX_CORES = 4096
DRIVER_STEP = "channel"


class SparkRunner:
    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.parallel = parallelism(spark)
        context = context_of(spark)
        self.is_local = context is not None and context.master.startswith("local")

    def __call__(
        self, tasks: Sequence[Any], function: str, *, description: str = "tasks", progress: Progress | None = None
    ) -> list[dict[str, Any]]:
        if description == DRIVER_STEP and len(tasks) == 1 and self.is_local:
            done = run_locally(tasks, function)
            if progress:
                progress(1, 1)
            return done
        done = run_tasks(self.spark, tasks, function, description=description, progress=progress)
        self.parallel = parallelism(self.spark)  # executors of a cluster come and go
        return done


def parallelism(spark: SparkSession) -> int:
    """How many tasks Spark can currently run in parallel."""
    context = context_of(spark)
    if context is not None:
        return context.defaultParallelism
    from pyspark.sql.functions import spark_partition_id

    # A Spark Connect server does not report it; but it divides a range into as many partitions.
    return spark.range(MAX_CORES).select(spark_partition_id()).distinct().count()
