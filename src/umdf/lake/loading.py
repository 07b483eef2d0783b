"""What the tasks of an ingest need, loaded before the first of them: modules and kernels. It takes a worker more than a
second, which a stream has while Spark plans it."""

from __future__ import annotations

from typing import Any

from umdf.kernels import compile_kernels
from umdf.lake import books_task, channel_task, decode_task, survey  # noqa: F401
from umdf.lake.spark_tasks import TaskAttempt


def load(task: Any, attempt: TaskAttempt) -> dict[str, Any]:
    compile_kernels()
    return {}
