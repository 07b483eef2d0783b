"""How the tests are run: `--soak` reaches the fixtures and hypothesis, groups stay together."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from hypothesis import settings


def test_sizes_and_examples_follow_the_same_switch(soak: bool, sized: Callable[[int, int], int]) -> None:
    assert sized(1, 2) == (2 if soak else 1)
    assert settings.default is not None
    assert settings.default.max_examples == (1_000 if soak else 25)


def test_tests_of_one_file_run_in_one_process(tmp_path: Path) -> None:
    """With some versions of pytest and pytest-xdist, `--dist loadgroup` ignores groups silently, and `make test` takes
    twice as long."""
    shutil.copy(Path(__file__).parent / "conftest.py", tmp_path)
    (tmp_path / "test_group.py").write_text(
        "import os, pytest\n"
        '@pytest.mark.parametrize("case", range(6))\n'
        "def test_process(case, tmp_path_factory):\n"
        '    with open(tmp_path_factory.getbasetemp().parent / "workers", "a") as file:\n'
        '        file.write(os.environ["PYTEST_XDIST_WORKER"] + "\\n")\n'
    )
    base = tmp_path / "base"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "--dist",
        "loadgroup",
        "--no-loadscope-reorder",
        f"--basetemp={base}",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    workers = (base / "workers").read_text().split()
    assert len(workers) == 6 and len(set(workers)) == 1
