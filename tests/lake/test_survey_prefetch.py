"""Surveys that are made before they are asked for are those that would be made then; or there are none."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from lake.captures import day, files_of

from umdf.lake.plan.inputs import pack_survey_tasks, survey_task
from umdf.lake.runtime.local_runner import LocalRunner
from umdf.lake.runtime.spark_tasks import TaskAttempt
from umdf.lake.stream.survey_prefetch import SurveyPrefetch
from umdf.lake.tasks import survey
from umdf.lake.tasks.survey import SPLIT_BYTES
from umdf.transport.recording import MANIFEST

RUN = LocalRunner(1)


@pytest.fixture(scope="module")
def tmp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("days")


@pytest.fixture
def recording(tmp: Path, tmp_path: Path) -> Path:
    """Eight files; the last one is packed, though its name does not say so."""
    files = files_of(day(tmp))[:8]
    lines = []
    for file in files:
        shutil.copy(file, tmp_path)
        lines.append(json.dumps({"file": file.name}))
    (tmp_path / MANIFEST).write_text("\n".join(lines) + "\n")
    (tmp_path / files[-1].name).write_bytes(gzip.compress(files[-1].read_bytes()))
    return tmp_path


def ahead_of(recording: Path, most: int | None = None) -> tuple[SurveyPrefetch, list[str]]:
    paths = [str(recording / json.loads(line)["file"]) for line in (recording / MANIFEST).read_text().splitlines()]
    return SurveyPrefetch(recording, recording / "work", SPLIT_BYTES, most), paths


def test_the_files_behind_those_of_this_micro_batch(recording: Path) -> None:
    ahead, paths = ahead_of(recording, 3)
    assert ahead.take(paths[3]) is None  # nobody has looked
    ahead.start(RUN, paths[:2])
    for path in paths[2:5]:
        expected = survey.run(survey_task(path, Path(), SPLIT_BYTES), TaskAttempt(0, 0))
        assert ahead.take(path) == expected
        assert ahead.take(path) is None  # once
    assert ahead.take(paths[1]) is None and ahead.take(paths[5]) is None  # known already; too far ahead


def test_a_file_that_has_changed_or_is_packed_is_left_to_whoever_needs_it(recording: Path) -> None:
    ahead, paths = ahead_of(recording)
    ahead.start(RUN, paths[:1])
    ahead.wait()
    os.utime(paths[1], ns=(1, 1))
    assert ahead.take(paths[1]) is None
    with open(paths[2], "ab") as file:
        file.write(b"more")
    assert ahead.take(paths[2]) is None
    assert ahead.take(paths[3]) is not None
    assert ahead.take(paths[-1]) is None


class Failing:
    parallel = 1

    def __call__(self, tasks: Sequence[Any], function: str, **_: Any) -> list[dict[str, Any]]:
        raise RuntimeError("the session has ended")


def test_errors_of_a_prefetch_are_not_reported(recording: Path) -> None:
    ahead, paths = ahead_of(recording)
    ahead.start(Failing(), paths[:1])
    assert ahead.take(paths[1]) is None
    ahead.start(RUN, ["of another recording"])
    assert ahead.take(paths[1]) is None
    Path(paths[1]).unlink()
    ahead.start(RUN, paths[:1])
    assert ahead.take(paths[2]) is None


def test_files_are_packed_into_tasks(recording: Path) -> None:
    _, paths = ahead_of(recording)
    tasks = pack_survey_tasks([survey_task(path, Path(), SPLIT_BYTES) for path in paths], 2)
    assert [file["path"] for task in tasks for file in task["files"]] == paths
    assert 4 <= len(tasks) <= len(paths) and pack_survey_tasks([], 2) == []
