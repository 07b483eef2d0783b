"""Loads a growing recording into a lake, with Structured Streaming: each micro-batch of closed files is one call of
`ingest_captures`.

    with open_writer(root, "stream") as writer:
        stream = StreamIngest(spark, recording, writer, IngestSettings(follow=FollowSettings()))
        stream.run(once=True)            # or until it is stopped
        stream.finish()                  # the recording is complete: process what was held back

Offsets and checkpoint are Spark's: an offset is the number of files that the manifest lists as closed, and a digest of
their lines, so that a manifest that was started anew is noticed. A batch that is repeated, after a crash or for a new
manifest, has files that the lake knows, and does nothing.

Invariant: only the lake decides what it contains. Spark's batch number and checkpoint are only hints.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any

from umdf.errors import CaptureError, ConfigError, UmdfError
from umdf.lake import atomic_files
from umdf.lake.admin.compaction import compact
from umdf.lake.commit import vacuum
from umdf.lake.commit.writer import Writer
from umdf.lake.ingest import ingest_captures
from umdf.lake.ingest_result import IngestResult
from umdf.lake.ingest_settings import IngestSettings, StepProgress, TaskRunner, no_progress
from umdf.lake.plan.frontier import FollowSettings
from umdf.lake.plan.segments import ChannelDayKey
from umdf.lake.runtime.memory import freeze_loaded_objects
from umdf.lake.runtime.spark_runner import SparkRunner
from umdf.lake.runtime.spark_tasks import Progress
from umdf.lake.schemas import tables
from umdf.lake.stream.staging_file_pool import StagingFilePool
from umdf.lake.stream.survey_prefetch import SurveyPrefetch
from umdf.transport.recording import MANIFEST, closed_files, has_manifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 1
PRELOAD_TASK = "umdf.lake.runtime.preload:load"
CHECKPOINT_MARK = "umdf.json"  # in a checkpoint: its lake and recording
USE_INGEST_HINT = "use `umdf ingest` for captures that no longer grow"
RECORDING_HINT = "pass the directory that the recorder writes to"


@dataclass(frozen=True)
class MicroBatch:
    """The result of a micro-batch."""

    number: int
    files: int
    seconds: float
    committed_ns: int
    outcome: IngestResult
    lag_s: tuple[float, float] | None = None  # of its newest and its oldest message, from the wire to the tables


@dataclass
class LagMeter:
    """How long messages take from the wire to the tables.

    ts_recv is in the recorder's clock. A file is closed right after its last packet, so the smallest difference
    between the two times is the offset of that clock from ours; a simulated day has a large one.
    """

    clock_offset_ns: int | None = None
    frontiers_ns: dict[Any, int] = field(default_factory=dict)  # the frontier of each day

    def calibrate(self, outcome: IngestResult) -> None:
        shifts = [closed - last for closed, last in outcome.closings]
        self.clock_offset_ns = min(
            [*shifts, *([] if self.clock_offset_ns is None else [self.clock_offset_ns])], default=None
        )

    def measure(self, outcome: IngestResult, now_ns: int) -> tuple[float, float] | None:
        moved = [
            (self.frontiers_ns.get(day), edge.ts_recv) for day, edge in outcome.open_days.items() if edge.rank >= 0
        ]
        self.frontiers_ns |= {day: edge.ts_recv for day, edge in outcome.open_days.items() if edge.rank >= 0}
        moved = [(before or after, after) for before, after in moved if before != after]
        if not moved or self.clock_offset_ns is None:
            return None
        newest, oldest = (
            now_ns - self.clock_offset_ns - pick for pick in (max(b for _, b in moved), min(a for a, _ in moved))
        )
        return newest / 1e9, oldest / 1e9


class StreamIngest:
    def __init__(
        self,
        spark: SparkSession,
        recording: str | os.PathLike[str],
        writer: Writer,
        settings: IngestSettings,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        max_files: int | None = None,
        on_step: StepProgress = no_progress,
        on_batch: Callable[[MicroBatch], None] = lambda batch: None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.spark, self.writer, self.on_step, self.on_batch, self.clock = spark, writer, on_step, on_batch, clock
        self.recording, self.max_files = Path(recording).absolute(), max_files
        self.settings = settings if settings.follow else replace(settings, follow=FollowSettings())
        refuse_without_manifest(self.recording)
        self.run_tasks: TaskRunner = (runner := SparkRunner(spark))
        self.checkpoint = _open_checkpoint(writer, self.recording, checkpoint)
        work = writer.paths.work / "ingest-ahead"
        self._file_pool = StagingFilePool(writer.paths.work / "ingest-file-pool") if runner.is_local else None
        self._prefetch = SurveyPrefetch(self.recording, work, self.settings.split_bytes, max_files)
        self.batches, self.lag = 0, LagMeter()
        self.has_open_days = False  # whether some data waits for more files
        self._uncompacted: list[tuple[str, ChannelDayKey]] = []  # tables of complete days that still have many files
        self._write_lock = Lock()  # the lake has one writer, used by two threads
        self._fault: BaseException | None = None
        self._stopped = Event()

    def run(self, *, once: bool = False, interval_s: float = 0.0) -> None:
        """`once`: process all files that are closed now, in micro-batches; otherwise run until stopped."""
        from umdf.lake.stream.closed_files import FORMAT, ClosedFiles  # needs pyspark

        Thread(target=self._preload_workers, daemon=True).start()
        vacuum.delete_orphans(self.writer)
        self._clear_file_pool()
        self.spark.dataSource.register(ClosedFiles)
        source = self.spark.readStream.format(FORMAT).option("recording", str(self.recording))
        if self.max_files:
            source = source.option("max_files", str(self.max_files))
        trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": f"{interval_s} seconds"}
        stream = source.load().writeStream.foreachBatch(self._batch).trigger(**trigger)
        query = stream.option("checkpointLocation", str(self.checkpoint)).queryName("umdf stream").start()
        try:
            self._await(query)
        finally:
            query.stop()
            self._prefetch.wait()
            self._clear_file_pool()
        self._compact_closed_days()

    def _preload_workers(self) -> None:
        """Start workers and load modules before the first micro-batch; if this fails, the micro-batch loads them."""
        try:
            self.run_tasks([{}] * self.run_tasks.parallel, PRELOAD_TASK, description="load")
        except Exception:  # the session ends: the next task reports it
            pass

    def _await(self, query: StreamingQuery) -> None:
        """Waits in another thread: Ctrl-C would interrupt a call to the JVM, and py4j would log errors."""
        faults, ended = list[Exception](), Event()

        def watch() -> None:
            try:
                while not query.awaitTermination(POLL_S):
                    if self._stopped.is_set() and not query.status["isTriggerActive"]:
                        break
            except Exception as error:
                faults.append(error)
            finally:
                ended.set()

        Thread(target=watch, daemon=True).start()
        while not ended.wait(POLL_S):
            self._compact_closed_days(1)
        if faults:
            raise self._stream_error(faults[0]) from faults[0]

    def stop(self) -> None:
        """End `run`, from another thread, after the current micro-batch."""
        self._stopped.set()

    def _batch(self, frame: DataFrame, number: int) -> None:
        try:
            self.process_batch([row.path for row in frame.collect()], number)
        except BaseException as error:
            self._fault = error
            raise

    def process_batch(self, paths: Sequence[str], number: int = 0) -> IngestResult:
        """One micro-batch."""
        started = time.monotonic()

        def on_step(step: str, tasks: int) -> Progress | None:
            if step == "books":  # the last step: from here on cores are idle
                self._prefetch.start(self.run_tasks, paths)
            return self.on_step(step, tasks)

        with self._write_lock:
            prefetched = self._prefetch.take
            outcome = ingest_captures(
                paths,
                self.writer,
                self.run_tasks,
                self.settings,
                on_step,
                prefetched=prefetched,
                file_pool=self._file_pool,
            )
        self._uncompacted += [(name, day) for day in outcome.closed_days for name in tables()]
        self.has_open_days = bool(outcome.open_days)
        self.lag.calibrate(outcome)
        freeze_loaded_objects("stream")
        now, self.batches = self.clock(), self.batches + 1
        lag = self.lag.measure(outcome, now)
        self.on_batch(MicroBatch(number, len(paths), time.monotonic() - started, now, outcome, lag))
        return outcome

    def finish(self) -> IngestResult:
        """No more files will come: process what was held back for files that might still have come."""
        assert self.settings.follow is not None
        self.settings = replace(self.settings, follow=replace(self.settings.follow, finish=True))
        outcome = self.process_batch([], self.batches)
        self._compact_closed_days()
        self._clear_file_pool()
        return outcome

    def _clear_file_pool(self) -> None:
        if self._file_pool is not None:
            self._file_pool.clear()

    def _compact_closed_days(self, max_tables: int | None = None) -> None:
        """Compact complete days, table by table: no micro-batch waits for more than `max_tables`."""
        while self._uncompacted and max_tables != 0:
            max_tables = None if max_tables is None else max_tables - 1
            with self._write_lock:
                name, day = self._uncompacted.pop(0)
                compact(self.writer, [name], days=[day], run_tasks=self.run_tasks)

    def _stream_error(self, error: Exception) -> BaseException:
        """The error, with our own message if umdf raised it."""
        if isinstance(self._fault, UmdfError):
            return self._fault
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        ours = [line for line in lines if "umdf.errors." in line]
        reason = (
            ours[-1].partition("umdf.errors.")[2].partition(": ")[2] if ours else (lines or ["Spark job failed"])[0]
        )
        return UmdfError(f"{self.recording}: stream failed: {reason[:300]}", "start it again to resume")


def refuse_without_manifest(recording: Path) -> None:
    """A stream needs a manifest: it lists the closed files, in an order that only grows at its end."""
    if closed_files(recording) and not has_manifest(recording):
        raise CaptureError(f"{recording} has no {MANIFEST}, so closed files are unknown", USE_INGEST_HINT)
    if not has_manifest(recording):
        raise CaptureError(f"{recording} is not a recording (no {MANIFEST}, no captures)", RECORDING_HINT)


def wait_for_manifest(
    recording: Path, report: Callable[[str], None], sleep: Callable[[float], None] = time.sleep
) -> None:
    """Wait until a recorder has closed its first file and listed it."""
    if not has_manifest(recording):
        report(f"waiting for {recording / MANIFEST}: no file of the recording is closed yet (stop with Ctrl-C)")
    while not has_manifest(recording):
        sleep(POLL_S)


def _open_checkpoint(writer: Writer, recording: Path, directory: str | os.PathLike[str] | None) -> Path:
    """Spark's checkpoint directory; an error if it belongs to another lake or recording."""
    name = hashlib.sha256(str(recording).encode()).hexdigest()[:16]
    path = Path(directory).absolute() if directory else writer.paths.root / "_lake" / "streams" / name
    expected = {"lake_id": writer.paths.lake_id, "recording": str(recording)}
    stored = atomic_files.read_json(path / CHECKPOINT_MARK) if path.is_dir() else None
    if stored is None and path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigError(f"{path} is not a umdf checkpoint", "use a new or empty directory")
    if stored is not None and stored != expected:
        what = "another lake" if stored.get("lake_id") != expected["lake_id"] else f"{stored.get('recording')}"
        raise ConfigError(f"checkpoint {path} belongs to {what}", "use another --checkpoint, or omit it")
    if stored is None:
        atomic_files.create_exclusively(path / CHECKPOINT_MARK, expected)
    return path
