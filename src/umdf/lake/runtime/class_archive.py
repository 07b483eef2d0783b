"""Spark's classes in a JVM archive (class data sharing), which halves the time to start and to the first result.

    with_archive(settings, home)    Spark's settings, with the archive if there is one for this Java and Spark
    create()                        start a session, use it a little and store what it loaded: half a minute, 180 MB

Invariant: an archive is only an optimisation. The JVM checks whether it matches its jars, and starts without it if
not; so does this module.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import subprocess
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from umdf.errors import UmdfError
from umdf.lake.runtime import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# Newer releases accept no archive for Spark's class path, which lists a jar twice; our shim fixes that.
LAST_LENIENT_RELEASE = 17
DUMP_TIMEOUT_S = 300  # the JVM writes the archive when it exits
UNSAFE_CHARACTERS = " :"  # Spark splits options at spaces, the JVM archive lists at colons


def with_archive(settings: Mapping[str, str], home: Path) -> dict[str, str]:
    """For the Java in `home`. An archive option of the user is left alone."""
    archive, options = _existing_archive(home), settings.get(JAVA_OPTIONS, "")
    if archive is None or "Archive" in options:
        return dict(settings)
    return {**settings, JAVA_OPTIONS: f"{options} {_archive_option(archive)}".strip()}


def create() -> Path | None:
    """The archive for the current Java, created if missing; None if that is impossible."""
    try:
        home = java.java_home()
    except UmdfError:  # no Java: starting Spark reports it
        return None
    if archive := _existing_archive(home):
        return archive
    if home not in java.cache_directories() and (java.release_of(home / "bin" / "java") or 0) > LAST_LENIENT_RELEASE:
        return None
    for path in _archive_paths(home):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return _dump(home, path)
        except OSError:
            continue  # not writable
    return None


def _dump(home: Path, path: Path) -> Path | None:
    from umdf.lake.runtime.session import QUICK_START_SETTINGS, start_session, stop_session

    executable, base_archive, temporary = (
        home / "bin" / "java",
        _base_archive(path),
        path.with_suffix(f".{uuid.uuid4().hex}"),
    )
    if not _run_java(executable, "-Xshare:on", "-version"):  # a Java without its own base archive
        _run_java(executable, "-Xshare:dump", f"-XX:SharedArchiveFile={base_archive}")
    base_options = [f"-XX:SharedArchiveFile={base_archive}"] if base_archive.is_file() else []
    options = [*QUICK_START_SETTINGS[JAVA_OPTIONS].split(), *base_options, f"-XX:ArchiveClassesAtExit={temporary}"]
    try:
        conf: dict[str, Any] = {JAVA_OPTIONS: " ".join(options)}
        spark = start_session(cores=1, **conf)
        try:
            with tempfile.TemporaryDirectory() as directory:
                _exercise(spark, directory)
        finally:
            stop_session(spark, wait_s=DUMP_TIMEOUT_S)
        os.replace(temporary, path)
    except Exception:  # whatever is wrong, starting a session reports it
        temporary.unlink(missing_ok=True)
        return None
    return path


def _exercise(spark: SparkSession, directory: str) -> None:
    """Use a little of every Spark feature that a lake uses."""
    columns = "cast(id AS decimal(19, 9)) price", "timestamp_micros(id) ts", "cast(id % 7 AS string) symbol"
    rows = spark.range(100).selectExpr("id", *columns)
    rows.write.parquet(f"{directory}/rows")
    spark.read.schema(rows.schema).parquet(f"{directory}/rows").createOrReplaceTempView("used")
    query = "SELECT symbol, count(*) n, max(price) FROM used WHERE id > 10 GROUP BY symbol ORDER BY n DESC LIMIT 5"
    spark.sql(query).toArrow()
    spark.sql("SELECT a.symbol FROM used a JOIN used b ON a.id = b.id").collect()
    spark.sparkContext.parallelize([1, 2], 2).mapPartitions(_identity).collect()
    spark.range(2).mapInArrow(_identity, "id long").collect()
    stream = spark.readStream.schema(rows.schema).parquet(f"{directory}/rows").writeStream.foreachBatch(_count)
    stream = stream.option("checkpointLocation", f"{directory}/stream").trigger(availableNow=True)
    stream.start().awaitTermination()


def _identity(items: Any) -> Any:
    return items


def _count(frame: Any, number: int) -> None:
    frame.count()


def _archive_paths(home: Path) -> list[Path]:
    """Where an archive may be stored: one per Java and Spark version."""
    executable = home / "bin" / "java"
    try:
        identity = f"{executable.resolve()} {executable.stat().st_mtime_ns} {importlib.metadata.version('pyspark')}"
    except (OSError, importlib.metadata.PackageNotFoundError):
        return []
    name = f"spark-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.jsa"
    return [
        directory / name for directory in java.cache_directories() if not set(UNSAFE_CHARACTERS) & set(str(directory))
    ]


def _existing_archive(home: Path) -> Path | None:
    return next((path for path in _archive_paths(home) if path.is_file()), None)


def _base_archive(path: Path) -> Path:
    return path.with_suffix(".base.jsa")


def _archive_option(archive: Path) -> str:
    base = _base_archive(archive)
    return f"-XX:SharedArchiveFile={base}:{archive}" if base.is_file() else f"-XX:SharedArchiveFile={archive}"


def _run_java(executable: Path, *arguments: str) -> bool:
    try:
        return subprocess.run([executable, *arguments], capture_output=True, timeout=DUMP_TIMEOUT_S).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False
