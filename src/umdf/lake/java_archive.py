"""Spark's classes as the JVM keeps them (class data sharing): a session starts, and answers first, in half the time.

    used(settings, home)    Spark's settings, with the archive if one was made for this Java and this Spark
    make()                  start a session, use it a little and keep what it loaded: half a minute, 180 MB

The one rule: an archive is only a shortcut. The JVM itself looks whether it fits its jars, and starts without it where
it does not; so does everything here.
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
from umdf.lake import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = "spark.driver.extraJavaOptions"
LAST_PATIENT = 17  # newer ones take no archive for Spark's class path, which names a jar twice; our shim tidies it
KEEP_S = 300  # the JVM writes the archive when it ends
UNFIT = " :"  # Spark splits options at the one, the JVM archives at the other


def used(settings: Mapping[str, str], home: Path) -> dict[str, str]:
    """For the Java in `home`. Who says something of archives is left alone."""
    kept, given = _kept(home), settings.get(OPTIONS, "")
    if kept is None or "Archive" in given:
        return dict(settings)
    return {**settings, OPTIONS: f"{given} {_flag(kept)}".strip()}


def make() -> Path | None:
    """The archive for the Java at hand, made if there is none yet; None where there can be none."""
    try:
        home = java.java_home()
    except UmdfError:  # no Java: whoever starts Spark will be told
        return None
    if kept := _kept(home):
        return kept
    if home not in java.places() and (java.release_of(home / "bin" / "java") or 0) > LAST_PATIENT:
        return None
    for path in _paths(home):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return _made(home, path)
        except OSError:
            continue  # not a place that can be written to
    return None


def _made(home: Path, path: Path) -> Path | None:
    from umdf.lake.session import QUICK, embedded, shut_down

    executable, base, own = home / "bin" / "java", _base(path), path.with_suffix(f".{uuid.uuid4().hex}")
    if not _runs(executable, "-Xshare:on", "-version"):  # a Java without an archive of its own classes
        _runs(executable, "-Xshare:dump", f"-XX:SharedArchiveFile={base}")
    under = [f"-XX:SharedArchiveFile={base}"] if base.is_file() else []
    options = [*QUICK[OPTIONS].split(), *under, f"-XX:ArchiveClassesAtExit={own}"]
    try:
        conf: dict[str, Any] = {OPTIONS: " ".join(options)}
        spark = embedded(cores=1, **conf)
        try:
            with tempfile.TemporaryDirectory() as directory:
                _use(spark, directory)
        finally:
            shut_down(spark, wait_s=KEEP_S)
        os.replace(own, path)
    except Exception:  # whatever is wrong with Spark here, a session that is wanted will tell
        own.unlink(missing_ok=True)
        return None
    return path


def _use(spark: SparkSession, directory: str) -> None:
    """A little of everything that a lake asks of Spark."""
    columns = "cast(id AS decimal(19, 9)) price", "timestamp_micros(id) ts", "cast(id % 7 AS string) symbol"
    rows = spark.range(100).selectExpr("id", *columns)
    rows.write.parquet(f"{directory}/rows")
    spark.read.schema(rows.schema).parquet(f"{directory}/rows").createOrReplaceTempView("used")
    asked = "SELECT symbol, count(*) n, max(price) FROM used WHERE id > 10 GROUP BY symbol ORDER BY n DESC LIMIT 5"
    spark.sql(asked).toArrow()
    spark.sql("SELECT a.symbol FROM used a JOIN used b ON a.id = b.id").collect()
    spark.sparkContext.parallelize([1, 2], 2).mapPartitions(_same).collect()
    spark.range(2).mapInArrow(_same, "id long").collect()
    stream = spark.readStream.schema(rows.schema).parquet(f"{directory}/rows").writeStream.foreachBatch(_count)
    stream = stream.option("checkpointLocation", f"{directory}/stream").trigger(availableNow=True)
    stream.start().awaitTermination()


def _same(items: Any) -> Any:
    return items


def _count(frame: Any, number: int) -> None:
    frame.count()


def _paths(home: Path) -> list[Path]:
    """Where an archive may be kept: one for each Java and Spark."""
    executable = home / "bin" / "java"
    try:
        about = f"{executable.resolve()} {executable.stat().st_mtime_ns} {importlib.metadata.version('pyspark')}"
    except (OSError, importlib.metadata.PackageNotFoundError):
        return []
    name = f"spark-{hashlib.sha256(about.encode()).hexdigest()[:16]}.jsa"
    return [place / name for place in java.places() if not set(UNFIT) & set(str(place))]


def _kept(home: Path) -> Path | None:
    return next((path for path in _paths(home) if path.is_file()), None)


def _base(path: Path) -> Path:
    return path.with_suffix(".base.jsa")


def _flag(kept: Path) -> str:
    base = _base(kept)
    return f"-XX:SharedArchiveFile={base}:{kept}" if base.is_file() else f"-XX:SharedArchiveFile={kept}"


def _runs(executable: Path, *arguments: str) -> bool:
    try:
        return subprocess.run([executable, *arguments], capture_output=True, timeout=KEEP_S).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False
