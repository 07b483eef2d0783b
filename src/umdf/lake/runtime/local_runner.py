"""Runs the tasks of an ingest without Spark: in this process, or in a few local ones.

The baseline for Spark in benchmarks and tests: the same functions, arguments and files.
"""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from types import TracebackType
from typing import Any, Self

from umdf.errors import UmdfError
from umdf.lake.runtime.memory import retain_memory
from umdf.lake.runtime.spark_tasks import Progress, TaskAttempt, call_function


def run_locally(tasks: Sequence[Any], function: str) -> list[dict[str, Any]]:
    """Call `function` ("module:name") once per task, in this process; results in order."""
    return [_call(function, task, number) for number, task in enumerate(tasks)]


class LocalRunner:
    """As `umdf.lake.runtime.spark_tasks.run_tasks`, in local processes; with one, in this process."""

    def __init__(self, processes: int = 1) -> None:
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(processes, context, retain_memory) if processes > 1 else None
        self.parallel = processes

    def __call__(
        self, tasks: Sequence[Any], function: str, *, description: str = "tasks", progress: Progress | None = None
    ) -> list[dict[str, Any]]:
        done: list[dict[str, Any]] = []
        if self._pool is None:
            results: Any = (_call(function, task, number) for number, task in enumerate(tasks))
        else:
            results = self._pool.map(_call, [function] * len(tasks), tasks, range(len(tasks)))
        for result in results:
            done.append(result)
            if progress:
                progress(len(done), len(tasks))
        return done

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _call(function: str, task: Any, number: int) -> dict[str, Any]:
    description = task.get("description") if isinstance(task, dict) else None
    try:
        return call_function(function, task, TaskAttempt(number, 0))
    except UmdfError as error:
        raise UmdfError(f"{description or f'task {number}'}: {error.reason}", error.hint) from error
    except Exception as error:
        reason = " ".join("".join(traceback.format_exception_only(error)).split())
        fault = UmdfError(f"{description or f'task {number}'}: {reason}")
        fault.__notes__ = [traceback.format_exc()]
        raise fault from error
