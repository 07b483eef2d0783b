"""Surveys the files of the next micro-batch while the current one leaves a core idle.

The books tasks of a micro-batch end at different times, and during its commit no task runs at all: a third of a
stream's time, about as long as the surveys take. A survey depends only on the file's content, so doing it early
decides nothing.

Invariant: this is only a hint. A survey is used if its file is unchanged; otherwise, or if anything failed, the
micro-batch does its own survey and reports errors.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import Any

from umdf.lake.ingest_settings import TaskRunner
from umdf.lake.plan.inputs import SURVEY_TASK, pack_survey_tasks, survey_task
from umdf.transport.recording import MANIFEST, read_manifest

# After the books tasks of this micro-batch were submitted: Spark runs tasks in that order.
START_DELAY_S = 0.05
UNCOMPRESSED_SUFFIXES = (".pcap", ".pcapng")
MAX_PREFETCHED_FILES = 64  # if the recording is far ahead and a micro-batch has no limit


class SurveyPrefetch:
    """`work` is the directory for decompressed files."""

    def __init__(self, recording: Path, work: Path, split_bytes: int, max_files: int | None) -> None:
        self._recording, self._work, self._split_bytes, self._max_files = (
            recording,
            work,
            split_bytes,
            max_files or MAX_PREFETCHED_FILES,
        )
        self._surveys: dict[str, dict[str, Any]] = {}
        self._thread: Thread | None = None

    def start(self, runner: TaskRunner, batch_paths: Sequence[str]) -> None:
        """Survey the files that follow those of this micro-batch, in a thread."""
        if self._thread is None and batch_paths:
            self._thread = Thread(target=self._prefetch, args=(runner, batch_paths[-1]), name="umdf-ahead", daemon=True)
            self._thread.start()

    def take(self, path: str) -> dict[str, Any] | None:
        """The survey of a file, if there is one. Waits for surveys in progress."""
        self.wait()
        survey = self._surveys.pop(path, None)
        if survey is None or survey["packed"]:  # its decompressed copy is not used
            return None
        file_stat = os.stat(path)
        return (
            survey if (file_stat.st_size, file_stat.st_mtime_ns) == (survey["size_bytes"], survey["mtime_ns"]) else None
        )

    def wait(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _prefetch(self, runner: TaskRunner, last: str) -> None:
        try:
            time.sleep(START_DELAY_S)
            files = [str(path) for path in read_manifest(self._recording / MANIFEST).files]
            next_paths = files[files.index(last) + 1 :][: self._max_files]
            tasks = [
                survey_task(path, self._work, self._split_bytes)
                for path in next_paths
                if path.endswith(UNCOMPRESSED_SUFFIXES)
            ]
            results = runner(pack_survey_tasks(tasks, runner.parallel), SURVEY_TASK, description="survey ahead")
            self._surveys = {survey["path"]: survey for result in results for survey in result["surveys"]}
        except Exception:  # the session ended or a file is missing: the micro-batch will report it
            self._surveys = {}
