"""Runs functions as Spark tasks: each writes its files itself and returns one small result.

Invariant: a job is collected exactly once, because running it again would write its files again. A function that fails
is not retried (it would fail again); a lost worker is, up to session.MAX_TASK_FAILURES.
"""

from __future__ import annotations

import importlib
import json
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from umdf.errors import UmdfError
from umdf.lake.runtime.cluster import SHARED_STORAGE_HINT, refuse_unshared_lake
from umdf.lake.runtime.memory import PeakMemory, freeze_loaded_objects, retain_memory
from umdf.lake.runtime.session import cancel, context_of, described_job, session_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S = 0.2
RESULT_SCHEMA = pa.schema([("task", pa.int64()), ("result", pa.utf8())])
Progress = Callable[[int, int], None]  # done, total


@dataclass(frozen=True)
class TaskAttempt:
    """The task and attempt in which a function runs, which make file names unique per attempt."""

    task: int
    attempt: int


@dataclass(frozen=True)
class TaskFailure:
    """The outcome of a failed task, instead of a result."""

    task: int
    description: str
    reason: str
    hint: str = ""
    trace: str = ""

    def error(self) -> UmdfError:
        return UmdfError(f"{self.description}: {self.reason}", self.hint)


def run_tasks(
    spark: SparkSession,
    tasks: Sequence[Any],
    function: str,
    *,
    description: str = "tasks",
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """As `task_outcomes`, but one failure fails all."""
    done = task_outcomes(spark, tasks, function, description=description, progress=progress)
    failures = [outcome for outcome in done if isinstance(outcome, TaskFailure)]
    if failures:
        first = failures[0].error()
        more = f" (and {len(failures) - 1} more of {len(tasks)} tasks)" if len(failures) > 1 else ""
        first.__notes__ = [failure.trace for failure in failures if failure.trace]
        raise UmdfError(first.reason + more, first.hint) from first
    return [outcome for outcome in done if not isinstance(outcome, TaskFailure)]


def task_outcomes(
    spark: SparkSession,
    tasks: Sequence[Any],
    function: str,
    *,
    description: str = "tasks",
    progress: Progress | None = None,
) -> list[dict[str, Any] | TaskFailure]:
    """Call `function` ("module:name") as `function(task, attempt) -> dict` once per task; results in order.

    A task is any picklable value; if it is a dict, its "description" names it in errors. `progress` is called
    with the number of finished tasks, from this thread.
    """
    if not tasks:
        return []
    context, count = context_of(spark), len(tasks)
    if context is not None:  # each task gets only its arguments; and planning a query takes 50 ms
        work: Any = context.parallelize(list(enumerate(tasks)), count).mapPartitions(_TaskFunction(function).results)
    else:  # a Spark Connect server runs only queries
        runner = _TaskFunction(function, tuple(tasks))
        work = spark.range(0, count, 1, count).mapInArrow(runner, "task long, result string")
    rows = _collect(spark, work, f"{description} ({count} tasks)", count, progress)
    found = {task: json.loads(result) for task, result in rows}
    if len(rows) != len(tasks) or len(found) != len(tasks):
        raise UmdfError(
            f"{description}: {len(tasks)} tasks returned {len(rows)} results", "this is a bug, please report it"
        )
    return [_outcome(index, _name_of(task, index), found[index]) for index, task in enumerate(tasks)]


def _name_of(task: Any, index: int) -> str:
    description = task.get("description") if isinstance(task, dict) else None
    return str(description or f"task {index}")


def _outcome(task: int, name: str, result: dict[str, Any]) -> dict[str, Any] | TaskFailure:
    return TaskFailure(task, name, **result["failed"]) if "failed" in result else result["made"]


class _TaskFunction:
    """Sent to the workers by reference, so only names and arguments are transferred; in a query, the arguments of all
    tasks."""

    def __init__(self, function: str, tasks: tuple[Any, ...] = ()) -> None:
        self.function = function
        self.tasks = tasks
        self.__name__ = function

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            own = ((number, self.tasks[number]) for number in batch.column(0).to_pylist())
            for number, result in self.results(own):
                yield pa.RecordBatch.from_pydict({"task": [number], "result": [result]}, RESULT_SCHEMA)

    def results(self, tasks: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, str]]:
        from pyspark import TaskContext

        retain_memory()
        context = TaskContext.get()
        attempt = context.attemptNumber() if context else 0
        for number, task in tasks:
            yield number, json.dumps(self._call(task, TaskAttempt(number, attempt)))
        freeze_loaded_objects(self.function)

    def _call(self, task: Any, attempt: TaskAttempt) -> dict[str, Any]:
        try:
            refuse_unshared_lake(task)
            return {"made": call_function(self.function, task, attempt)}
        except UmdfError as error:
            is_file_missing = isinstance(error.__cause__, FileNotFoundError)
            return {
                "failed": {
                    "reason": error.reason,
                    "hint": error.hint or (SHARED_STORAGE_HINT if is_file_missing else ""),
                }
            }
        except Exception as error:
            reason = " ".join("".join(traceback.format_exception_only(error)).split())
            return {"failed": {"reason": reason, "trace": traceback.format_exc()}}


def call_function(function: str, task: Any, attempt: TaskAttempt) -> dict[str, Any]:
    """The result of `function` ("module:name"), and its memory use."""
    module, _, name = function.partition(":")
    with PeakMemory() as peak:
        result = getattr(importlib.import_module(module), name)(task, attempt)
    return result | {"peak_memory_bytes": peak.bytes}


class _CollectThread(threading.Thread):
    """Runs the action in another thread: Ctrl-C must not interrupt a call between Python and the JVM."""

    def __init__(self, spark: SparkSession, work: Any, description: str, group: str) -> None:
        super().__init__(name="umdf-collect", daemon=True)
        self.session, self.work, self.description, self.group = spark, work, description, group
        self.rows: list[Any] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with described_job(self.session, self.description, self.group):
                self.rows = self.work.collect()
        except BaseException as error:
            self.error = error


class _ConnectProgress:
    """Receives the number of finished tasks from a Spark Connect server."""

    def __init__(self, spark: SparkSession) -> None:
        self.session = spark
        self.done = 0

    def __call__(self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        self.done = max(self.done, sum(stage.num_completed_tasks for stage in stages or ()))

    def start(self) -> None:
        self.session.registerProgressHandler(self)  # type: ignore[arg-type]

    def stop(self) -> None:
        self.session.removeProgressHandler(self)  # type: ignore[arg-type]


class _StatusPoller(threading.Thread):
    """Polls Spark for the number of finished tasks."""

    def __init__(self, context: Any, group: str) -> None:
        super().__init__(name="umdf-progress", daemon=True)
        self.context, self.group = context, group
        self.done = 0
        self.stopped = threading.Event()

    def run(self) -> None:
        tracker = self.context.statusTracker()
        while not self.stopped.wait(POLL_S):
            try:
                jobs = filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup(self.group)))
                stages = filter(None, (tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds))
                self.done = max(self.done, sum(stage.numCompletedTasks for stage in stages))
            except Exception:  # the session ended meanwhile
                return

    def stop(self) -> None:
        self.stopped.set()
        self.join()


def _collect(spark: SparkSession, work: Any, description: str, total: int, progress: Progress | None) -> list[Any]:
    context = context_of(spark)
    group = f"umdf-{uuid.uuid4()}"
    thread = _CollectThread(spark, work, description, group)
    counter = (_ConnectProgress(spark) if context is None else _StatusPoller(context, group)) if progress else None
    reported = -1
    if counter:
        counter.start()
    thread.start()
    try:
        while thread.is_alive():
            thread.join(POLL_S)
            if progress and counter and counter.done != reported:
                reported = min(counter.done, total)
                progress(reported, total)
    except BaseException:
        cancel(spark, group)
        raise
    finally:
        if counter:
            counter.stop()
    if thread.error:
        raise _spark_error(thread.error, description, spark) from thread.error
    if progress and reported != total:
        progress(total, total)
    return thread.rows


def _spark_error(error: BaseException, description: str, spark: SparkSession) -> UmdfError:
    """One line of the many that Spark prints when a worker was lost too often."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    error_lines = [line for line in lines if "Python worker" in line or "Exception:" in line or "Error:" in line]
    log = session_log(spark)
    hint = f"more in {log}" if log else "more in Spark's log"
    return UmdfError(
        f"{description}: Spark job failed: {(error_lines or lines or [type(error).__name__])[0][:300]}", hint
    )
