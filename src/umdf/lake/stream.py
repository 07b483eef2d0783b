"""A growing recording into a lake, with Structured Streaming: each micro-batch of closed files is one `advance`.

    with open_writer(root, "stream") as writer:
        stream = Stream(spark, recording, writer, Settings(follow=Follow()))
        stream.run(once=True)            # or until it is stopped
        stream.finish()                  # the recording is over: take what was still held back

Offsets and checkpoint are Spark's: an offset is a number of files that the manifest lists as closed, and a digest of
what it says of them, so that a manifest that was begun anew is noticed. A batch that is done again, after a crash or
for a new manifest, brings files that the lake knows, and is a no-op.

The one rule: what is in the lake is decided by the lake alone. Spark's batch number and checkpoint are only hints.
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
from umdf.lake import durable, sweep
from umdf.lake.advance import Runner, Settings, Stage, advance, no_progress
from umdf.lake.ahead import Ahead
from umdf.lake.compaction import compact
from umdf.lake.frontier import Follow
from umdf.lake.memory import keep_loaded
from umdf.lake.outcome import Outcome
from umdf.lake.schemas import tables
from umdf.lake.segments import Day
from umdf.lake.spare import Spare
from umdf.lake.spark_run import SparkRunner
from umdf.lake.tasks import Progress
from umdf.lake.writer import Writer
from umdf.transport.recording import MANIFEST, closed_files, has_manifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 1
LOAD = "umdf.lake.loading:load"
MARK = "umdf.json"  # in a checkpoint: of which lake and recording it is
ONLY_INGEST = "captures that do not grow any more are for `umdf ingest`"
NAME_ANOTHER = "name the directory that a recorder writes to"


@dataclass(frozen=True)
class Batch:
    """What a micro-batch came to."""

    number: int
    files: int
    seconds: float
    committed_ns: int
    outcome: Outcome
    lag_s: tuple[float, float] | None = None  # of its newest and of its oldest message: from the wire to the tables


@dataclass
class Lag:
    """How long messages take from the wire to the tables.

    A message came at ts_recv of the recorder's clock. A file is closed when its last packet has come, so the least
    difference between the two is how far that clock is from ours; a simulated day is far from it.
    """

    shift_ns: int | None = None
    reached: dict[Any, int] = field(default_factory=dict)  # the frontier of each day

    def learn(self, outcome: Outcome) -> None:
        shifts = [closed - last for closed, last in outcome.closings]
        self.shift_ns = min([*shifts, *([] if self.shift_ns is None else [self.shift_ns])], default=None)

    def of(self, outcome: Outcome, now_ns: int) -> tuple[float, float] | None:
        moved = [(self.reached.get(day), edge.ts_recv) for day, edge in outcome.open_days.items() if edge.rank >= 0]
        self.reached |= {day: edge.ts_recv for day, edge in outcome.open_days.items() if edge.rank >= 0}
        moved = [(before or after, after) for before, after in moved if before != after]
        if not moved or self.shift_ns is None:
            return None
        newest, oldest = (
            now_ns - self.shift_ns - pick for pick in (max(b for _, b in moved), min(a for a, _ in moved))
        )
        return newest / 1e9, oldest / 1e9


class Stream:
    def __init__(
        self,
        spark: SparkSession,
        recording: str | os.PathLike[str],
        writer: Writer,
        settings: Settings,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        max_files: int | None = None,
        stage: Stage = no_progress,
        told: Callable[[Batch], None] = lambda batch: None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.spark, self.writer, self.stage, self.told, self.clock = spark, writer, stage, told, clock
        self.recording, self.max_files = Path(recording).absolute(), max_files
        self.settings = settings if settings.follow else replace(settings, follow=Follow())
        refuse_unreadable(self.recording)
        self.run_tasks: Runner = (runner := SparkRunner(spark))
        self.checkpoint = _checkpoint(writer, self.recording, checkpoint)
        work = writer.home.work / "ingest-ahead"
        self._spare = Spare(writer.home.work / "ingest-spare") if runner.is_here else None
        self._ahead = Ahead(self.recording, work, self.settings.split_bytes, max_files)
        self.batches, self.lag = 0, Lag()
        self.is_holding = False  # whether something waits for more files
        self._small: list[tuple[str, Day]] = []  # tables of days that are over, still in many files
        self._writing = Lock()  # the lake has one writer, and we are two threads
        self._fault: BaseException | None = None
        self._stopped = Event()

    def run(self, *, once: bool = False, every_s: float = 0.0) -> None:
        """`once`: all files that are closed now, in micro-batches; else until it is stopped."""
        from umdf.lake.closed_files import FORMAT, ClosedFiles  # it needs pyspark

        Thread(target=self._load, daemon=True).start()
        sweep.sweep(self.writer)
        self._clear()
        self.spark.dataSource.register(ClosedFiles)
        source = self.spark.readStream.format(FORMAT).option("recording", str(self.recording))
        if self.max_files:
            source = source.option("max_files", str(self.max_files))
        how: dict[str, Any] = {"availableNow": True} if once else {"processingTime": f"{every_s} seconds"}
        stream = source.load().writeStream.foreachBatch(self._batch).trigger(**how)
        query = stream.option("checkpointLocation", str(self.checkpoint)).queryName("umdf stream").start()
        try:
            self._await(query)
        finally:
            query.stop()
            self._ahead.end()
            self._clear()
        self._tidy()

    def _load(self) -> None:
        """Workers that are ready when the first micro-batch comes; if they are not, that loads what it needs."""
        try:
            self.run_tasks([{}] * self.run_tasks.parallel, LOAD, description="load")
        except Exception:  # the session ends: whoever runs a task next will say so
            pass

    def _await(self, query: StreamingQuery) -> None:
        """In a thread of its own: Ctrl-C would break a call of the JVM in two, and py4j would cry out."""
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
            self._tidy(1)
        if faults:
            raise self._said(faults[0]) from faults[0]

    def stop(self) -> None:
        """End `run`, from another thread, behind the micro-batch that it is in."""
        self._stopped.set()

    def _batch(self, frame: DataFrame, number: int) -> None:
        try:
            self.take([row.path for row in frame.collect()], number)
        except BaseException as error:
            self._fault = error
            raise

    def take(self, paths: Sequence[str], number: int = 0) -> Outcome:
        """One micro-batch."""
        begun = time.monotonic()

        def stage(step: str, tasks: int) -> Progress | None:
            if step == "books":  # the last step: what is behind it leaves cores idle
                self._ahead.begin(self.run_tasks, paths)
            return self.stage(step, tasks)

        with self._writing:
            known = self._ahead.survey
            outcome = advance(paths, self.writer, self.run_tasks, self.settings, stage, ahead=known, spare=self._spare)
        self._small += [(name, day) for day in outcome.closed_days for name in tables()]
        self.is_holding = bool(outcome.open_days)
        self.lag.learn(outcome)
        keep_loaded("stream")
        now, self.batches = self.clock(), self.batches + 1
        lag = self.lag.of(outcome, now)
        self.told(Batch(number, len(paths), time.monotonic() - begun, now, outcome, lag))
        return outcome

    def finish(self) -> Outcome:
        """No more files will come: what was held back, because something for its place might have come, is final."""
        assert self.settings.follow is not None
        self.settings = replace(self.settings, follow=replace(self.settings.follow, finish=True))
        outcome = self.take([], self.batches)
        self._tidy()
        self._clear()
        return outcome

    def _clear(self) -> None:
        if self._spare is not None:
            self._spare.clear()

    def _tidy(self, most: int | None = None) -> None:
        """Join the files of days that are over, table by table, beside the micro-batches: none waits for more than a
        table or so many."""
        while self._small and most != 0:
            most = None if most is None else most - 1
            with self._writing:
                name, day = self._small.pop(0)
                compact(self.writer, [name], days=[day], run_tasks=self.run_tasks)

    def _said(self, error: Exception) -> BaseException:
        """What went wrong, in our words if they are ours."""
        if isinstance(self._fault, UmdfError):
            return self._fault
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        ours = [line for line in lines if "umdf.errors." in line]
        reason = ours[-1].partition("umdf.errors.")[2].partition(": ")[2] if ours else (lines or ["Spark gave up"])[0]
        return UmdfError(f"{self.recording}: the stream has stopped: {reason[:300]}", "start it again: it goes on")


def refuse_unreadable(recording: Path) -> None:
    """Only a manifest says which files are closed, in an order to which the next ones are added."""
    if closed_files(recording) and not has_manifest(recording):
        raise CaptureError(f"{recording} has no {MANIFEST}: nobody says which files are closed", ONLY_INGEST)
    if not has_manifest(recording):
        raise CaptureError(f"{recording} is no recording: it has no {MANIFEST}, and no captures", NAME_ANOTHER)


def wait_for_manifest(
    recording: Path, tell: Callable[[str], None], sleep: Callable[[float], None] = time.sleep
) -> None:
    """A recorder lists its first file when that is closed: until then there is nothing to follow."""
    if not has_manifest(recording):
        tell(f"waiting for {recording / MANIFEST}: no file of the recording is closed yet (Ctrl-C ends it)")
    while not has_manifest(recording):
        sleep(POLL_S)


def _checkpoint(writer: Writer, recording: Path, given: str | os.PathLike[str] | None) -> Path:
    """Where Spark keeps its offsets; one of another lake or recording is refused."""
    name = hashlib.sha256(str(recording).encode()).hexdigest()[:16]
    path = Path(given).absolute() if given else writer.home.root / "_lake" / "streams" / name
    mine = {"lake_id": writer.home.lake_id, "recording": str(recording)}
    said = durable.read(path / MARK) if path.is_dir() else None
    if said is None and path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigError(f"{path} is no checkpoint of ours", "give a new or an empty directory")
    if said is not None and said != mine:
        what = "another lake" if said.get("lake_id") != mine["lake_id"] else f"{said.get('recording')}"
        raise ConfigError(f"{path} is a checkpoint of {what}", "give another --checkpoint, or leave it out")
    if said is None:
        durable.create_once(path / MARK, mine)
    return path
