"""Surveys of the files that the next micro-batch of a stream will bring, made while this one leaves a core idle.

The books of a micro-batch end at different times, and while its commit is made nothing runs at all: a third of the time
of a stream, and about what surveys take. They depend on the files' content only, so nothing is decided by them early.

Invariant: this is a hint. A survey is used if its file still is what it was; else, or if anything went wrong, the
micro-batch makes its own and says what is wrong.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import Any

from umdf.lake.ingest import TaskRunner
from umdf.lake.plan.inputs import SURVEY_TASK, pack_survey_tasks, survey_task
from umdf.transport.recording import MANIFEST, read_manifest

# Behind the books of this micro-batch: Spark takes tasks in the order in which they were handed in.
START_DELAY_S = 0.05
UNCOMPRESSED_SUFFIXES = (".pcap", ".pcapng")
MAX_PREFETCHED_FILES = 64  # of a recording that is far ahead of us, if nobody says how many files a micro-batch has


class SurveyPrefetch:
    """`work` is where a file would be unpacked."""

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
        """Look at what comes behind the files of this micro-batch."""
        if self._thread is None and batch_paths:
            self._thread = Thread(target=self._prefetch, args=(runner, batch_paths[-1]), name="umdf-ahead", daemon=True)
            self._thread.start()

    def take(self, path: str) -> dict[str, Any] | None:
        """Of a file, if it has been made. Waits for those that are being made."""
        self.wait()
        survey = self._surveys.pop(path, None)
        if survey is None or survey["packed"]:  # it was unpacked for nobody
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
            answers = runner(pack_survey_tasks(tasks, runner.parallel), SURVEY_TASK, description="survey ahead")
            self._surveys = {survey["path"]: survey for answer in answers for survey in answer["surveys"]}
        except Exception:  # a session that ends, a file that is gone: whoever needs the file will say so
            self._surveys = {}
