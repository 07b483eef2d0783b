"""The options of every command that runs on Spark, and the session they configure."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from umdf.errors import UsageError, require

MASTER_HELP = "Spark master: spark://…, yarn, k8s://…, sc://… (default: Spark in this process)"
MasterOption = Annotated[str | None, typer.Option(help=MASTER_HELP, metavar="URL")]
CoresOption = Annotated[int | None, typer.Option(help="Maximum cores (default: all)", metavar="N", min=1)]
LocalCoresOption = Annotated[
    int | None, typer.Option(help="Maximum cores (default: all; 1 with --no-spark)", metavar="N", min=1)
]
EnvironmentOption = Annotated[
    Path | None, typer.Option(help="Environment archive for cluster workers, from `umdf lake pack`", metavar="FILE")
]
SparkConfOption = Annotated[
    list[str] | None, typer.Option(help="Spark configuration property; may be repeated", metavar="KEY=VALUE")
]


def spark_session_options(
    master: str | None, cores: int | None, environment: Path | None, conf: Sequence[str] | None, no_spark: bool = False
) -> dict[str, Any]:
    """For umdf.lake.runtime.session.session_scope; conflicting options are rejected before anything is created."""
    from umdf.lake.runtime.cluster import environment_archive, spark_mode

    if not no_spark:
        require("pyspark", "Spark")
    environment_archive(environment, spark_mode(master))
    settings = dict(map(_parse_conf, conf or ()))
    if cores and master and not master.startswith("local"):
        settings.setdefault("spark.cores.max", str(cores))
    return {"master": master, "cores": cores, "environment": environment, **settings}


@contextmanager
def open_lake_session(lake: Path, options: Mapping[str, Any]) -> Iterator[Any]:
    """A session for the writer of a lake, which holds the temporary files and logs of Spark."""
    from umdf.lake.runtime.session import session_scope

    work = lake / "_lake" / "work"
    for stale in work.glob("umdf-spark-*"):  # left by a writer that was killed
        shutil.rmtree(stale, ignore_errors=True)
    with session_scope(work=work, logs=lake / "_lake" / "logs", **options) as session:
        yield session


def _parse_conf(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.startswith("spark."):
        raise UsageError(f"invalid --conf: {text}", "use KEY=VALUE, for example spark.executor.memory=4g")
    return key, value
