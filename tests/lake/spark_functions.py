"""Functions that Spark tasks run in the tests; workers import this file by name."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from lake.lake_rows import rows_of, write

from umdf.errors import UmdfError
from umdf.lake.parquet.data_files import FileStamp
from umdf.lake.runtime.spark_tasks import TaskAttempt


def answer(task: dict[str, Any], place: TaskAttempt) -> dict[str, Any]:
    return {"n": task["n"], "task": place.task, "attempt": place.attempt, "python": sys.executable, "pid": os.getpid()}


def dying(task: dict[str, Any], place: TaskAttempt) -> dict[str, Any]:
    """The worker is lost at the first attempt of one task."""
    if task["n"] == 1 and place.attempt == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer(task, place)


def doomed(task: dict[str, Any], place: TaskAttempt) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def failing(task: dict[str, Any], place: TaskAttempt) -> dict[str, Any]:
    if task["n"] == 1:
        raise UmdfError("no space left on the disk", "free some")
    if task["n"] == 2:
        raise ValueError("two\nlines")
    return {}


def writing(task: dict[str, Any], place: TaskAttempt) -> dict[str, Any]:
    """Writes a file, as the pipeline's tasks do. The first attempt at one of them dies after it has written."""
    stamp = FileStamp(task["commit"], task["token"])
    added = write(task["root"], stamp, "mbo", rows_of("mbo", 50, task["n"]), task=place.task, attempt=place.attempt)
    if task["n"] == 1 and place.attempt == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"file": added.to_json()}


def sleeping(task: dict[str, Any], place: TaskAttempt) -> dict[str, Any]:
    with open(task["started"], "w") as file:
        file.write(str(os.getpid()))
    time.sleep(300)
    return {}
