from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from umdf import doctor
from umdf.cli.app import run

UMDF = [sys.executable, "-c", "from umdf.cli import main; main()"]


def test_piped_it_prints_a_tab_separated_line_per_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor"]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["check", "status", "details", "fix"]
    assert len(lines) == 1 + len(doctor.CHECKS) and {len(line) for line in lines} == {4}


def test_json_has_the_same_findings(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] is True
    assert [set(check) for check in said["checks"]] == [{"check", "status", "details", "fix"}] * len(doctor.CHECKS)


def test_a_failed_check_exits_with_3(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "CHECKS", (lambda: doctor.python((3, 9, 0)), doctor.open_files))
    assert run(["doctor"]) == 3
    out, err = capsys.readouterr()
    assert out.splitlines()[1].startswith("python\terror\tPython 3.9.0")
    assert err == "umdf: failed checks: python; apply the fixes listed above, then run `umdf doctor` again\n"


def cache_found(*argv: str, **environment: str) -> str:
    done = subprocess.run(
        [*UMDF, "doctor", "--json", *argv], env=os.environ | environment, capture_output=True, check=True
    )
    return next(check["details"] for check in json.loads(done.stdout)["checks"] if check["check"] == "kernel cache")


def test_an_empty_cache_is_reported_and_not_filled(tmp_path: Path) -> None:
    for _ in range(2):
        assert cache_found(NUMBA_CACHE_DIR=str(tmp_path / "cache")).startswith("not compiled: ")


def test_after_a_fix_the_cache_is_warm() -> None:
    assert cache_found("--fix").startswith("compiled: ")
    assert cache_found().startswith("compiled: ")


def test_an_unwritable_cache_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert cache_found(NUMBA_CACHE_DIR=str(tmp_path / "file" / "cache")).startswith("not writable: ")
