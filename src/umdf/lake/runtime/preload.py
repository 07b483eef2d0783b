"""Loads the modules and kernels of the tasks before the first one runs. This takes a worker more than a second, which a
stream has while Spark plans the query."""

from __future__ import annotations

from typing import Any

from umdf.kernels import compile_kernels
from umdf.lake.runtime.spark_tasks import TaskAttempt
from umdf.lake.tasks import (
    books_task,  # noqa: F401
    channel_task,  # noqa: F401
    decode_task,  # noqa: F401
    survey,  # noqa: F401
)


def load(task: Any, attempt: TaskAttempt) -> dict[str, Any]:
    compile_kernels()
    return {}
