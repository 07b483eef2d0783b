"""The tasks of an ingest on Spark: `run_tasks` with its session.

A small one that has nobody beside it is done by the driver, if Spark runs here too: Spark takes 40 ms for it, and a
stream has one in every micro-batch.
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
        self.parallel = parallelism(self.spark)  # the executors of a cluster come, and go, one by one
        return done


def parallelism(spark: SparkSession) -> int:
    """How many tasks Spark can run at once, as far as it knows now."""
    context = context_of(spark)
    if context is not None:
        return context.defaultParallelism
    from pyspark.sql.functions import spark_partition_id

    # A server does not say; but it cuts a range in so many pieces.
    return spark.range(MAX_CORES).select(spark_partition_id()).distinct().count()
