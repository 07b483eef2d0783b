"""The options that every command on Spark has, and the session that they ask for."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from umdf.errors import UsageError, require

MASTERS = "A Spark cluster (spark://…, yarn, k8s://…, sc://…); else Spark inside this process."
Master = Annotated[str | None, typer.Option(help=MASTERS, metavar="URL")]
Cores = Annotated[int | None, typer.Option(help="Cores to use; else all.", min=1)]
Packed = Annotated[
    Path | None, typer.Option(help="What the cluster's workers run: see `umdf lake pack`.", metavar="FILE")
]
Conf = Annotated[list[str] | None, typer.Option(help="A setting of Spark; can be repeated.", metavar="KEY=VALUE")]


def session_options(
    master: str | None, cores: int | None, packed: Path | None, conf: Sequence[str] | None, plain: bool = False
) -> dict[str, Any]:
    """For umdf.lake.session.running; what cannot be meant is refused before anything is made."""
    from umdf.lake.cluster import archive_of, way_of

    if not plain:
        require("pyspark", "Spark")
    archive_of(packed, way_of(master))
    settings = dict(map(_setting, conf or ()))
    if cores and master and not master.startswith("local"):
        settings.setdefault("spark.cores.max", str(cores))
    return {"master": master, "cores": cores, "packed": packed, **settings}


@contextmanager
def lake_session(lake: Path, how: Mapping[str, Any]) -> Iterator[Any]:
    """For the one writer of a lake, which has Spark's temporary files and words."""
    from umdf.lake.session import running

    work = lake / "_lake" / "work"
    for left in work.glob("umdf-spark-*"):  # a writer that was killed has left it
        shutil.rmtree(left, ignore_errors=True)
    with running(work=work, logs=lake / "_lake" / "logs", **how) as session:
        yield session


def _setting(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not equals or not name.startswith("spark."):
        raise UsageError(f"--conf {given}: no setting of Spark", "as in --conf spark.executor.memory=4g")
    return name, value
