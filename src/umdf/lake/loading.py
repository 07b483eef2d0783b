"""What the tasks of an ingest need, loaded before the first of them: modules and kernels. It takes a worker more than a
second, which a stream has while Spark plans it."""

from __future__ import annotations

from typing import Any

from umdf.kernels import compile_entries
from umdf.lake import books_task, channel_task, decode_task, survey  # noqa: F401
from umdf.lake.tasks import Place


def load(task: Any, place: Place) -> dict[str, Any]:
    compile_entries()
    return {}
