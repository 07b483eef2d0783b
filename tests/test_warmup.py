"""Warming: every name in WARMERS is called, and the mark holds for exactly these sources."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from umdf.warmup import WARMERS

CALLED = "umdf.buffers:Pool"  # any callable without arguments


def python(program: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """A fresh process, because numba reads the place of its cache once."""
    environment = {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": ":".join(sys.path)}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)


def test_a_cache_is_cold_until_warmed_and_for_the_same_kernels_only(tmp_path: Path) -> None:
    program = f"""
from umdf.warmup import *
names = ({CALLED!r},)
print(is_warm(names))
warm_all(names)
print(is_warm(names), is_warm(()))
"""
    done = python(program, tmp_path / "cache")
    assert done.stdout.split() == ["False", "True", "False"], done.stderr
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["warm"]


@pytest.mark.parametrize("name", ["umdf.nothing:warm", "umdf.buffers:nothing"])
def test_a_warmer_that_does_not_exist_is_an_error(name: str, tmp_path: Path) -> None:
    done = python(f"from umdf.warmup import warm_all; warm_all([{name!r}])", tmp_path)
    assert done.returncode == 1 and "nothing" in done.stderr.splitlines()[-1]


def test_every_warm_function_is_in_warmers() -> None:
    package = Path(__file__).parent.parent / "src" / "umdf"
    found = {
        ".".join(path.relative_to(package.parent).with_suffix("").parts) + ":warm"
        for path in package.rglob("*.py")
        if "\ndef warm(" in path.read_text()
    }
    assert found == set(WARMERS)
