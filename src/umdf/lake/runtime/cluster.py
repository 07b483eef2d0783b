"""Spark on other machines: kinds of masters, the Python environment of their workers, and shared storage.

Invariant: a worker that cannot access the driver's lake fails before it writes anything; otherwise its files would
land on its own disk, where no reader looks.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from umdf.errors import ConfigError, UmdfError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GATEWAY_PORT_VARIABLE = "PYSPARK_GATEWAY_PORT"  # set by spark-submit: the port of its JVM
ENVIRONMENT_ALIAS = "environment"  # name of the unpacked archive in a worker's directory
LOOPBACK_PREFIXES = ("127.", "localhost")
SHARED_STORAGE_HINT = "lake and captures must be mounted at the same path on every worker"
CONNECT_WAIT_S = 15.0
EXECUTOR_WAIT_S = 300.0
POLL_S = 0.2


class SparkMode(Enum):
    """Where the driver and the tasks run."""

    LOCAL = "this process, on this machine"
    CLUSTER = "this process, on a cluster"
    CONNECT = "a Spark Connect server"
    SUBMITTED = "this process, started by spark-submit"


MASTERS = {
    "local": SparkMode.LOCAL,
    "spark://": SparkMode.CLUSTER,
    "yarn": SparkMode.CLUSTER,
    "k8s://": SparkMode.CLUSTER,
    "sc://": SparkMode.CONNECT,
}


def spark_mode(master: str | None, environ: Mapping[str, str] = os.environ) -> SparkMode:
    if GATEWAY_PORT_VARIABLE in environ:
        if master is not None:
            raise UsageError(f"--master {master} conflicts with spark-submit, which sets the master", "remove --master")
        return SparkMode.SUBMITTED
    for prefix, mode in MASTERS.items():
        if master is None or master.startswith(prefix):
            return mode
    known = "use spark://HOST:PORT, yarn, k8s://…, sc://HOST:PORT, or omit --master to run locally"
    raise UsageError(f"unknown Spark master: {master}", known)


def environment_archive(archive: str | os.PathLike[str] | None, mode: SparkMode) -> Path | None:
    """The environment archive, if one was given: it must exist, and there must be a cluster to use it."""
    if archive is None:
        return None
    if mode not in (SparkMode.CLUSTER, SparkMode.CONNECT):
        hint = "with spark-submit, use --archives" if mode is SparkMode.SUBMITTED else "add --master"
        raise UsageError("--environment is only for a cluster", hint)
    path = Path(archive).absolute()
    if not path.is_file():
        raise ConfigError(f"environment archive not found: {archive}", f"create it with `umdf lake pack {archive}`")
    return path


def is_on_loopback(master: str) -> bool:
    """Whether the whole cluster is on this machine, so that no address must be reachable from elsewhere."""
    return master.startswith("local") or master.partition("://")[2].startswith(LOOPBACK_PREFIXES)


def worker_python(master: str, archive: Path | None, environ: Mapping[str, str] = os.environ) -> str:
    """The workers' interpreter: that of the archive; on a cluster PYSPARK_PYTHON; otherwise this one."""
    if archive:
        return f"./{ENVIRONMENT_ALIAS}/bin/python"
    own = sys.executable
    return own if master.startswith("local") else environ.get("PYSPARK_PYTHON") or own


def connect(master: str, archive: Path | None = None) -> SparkSession:
    """A new session on a Spark Connect server."""
    try:
        from pyspark.sql import SparkSession
        from pyspark.sql.connect.client import DefaultChannelBuilder

        grpc = importlib.import_module("grpc")  # an extra of pyspark
    except ImportError as error:
        reason = " ".join(str(error).split())
        raise UmdfError(f"cannot import Spark Connect: {reason}", "pip install 'pyspark[connect]==4.3.0'") from error
    try:
        # Checked first, because a session retries for ten minutes before it reports that no server is there.
        with DefaultChannelBuilder(master).toChannel() as channel:
            grpc.channel_ready_future(channel).result(timeout=CONNECT_WAIT_S)
        session = SparkSession.builder.remote(master).create()
        if archive:
            session.addArtifacts(f"{archive}#{ENVIRONMENT_ALIAS}", archive=True)
            session.conf.set("spark.sql.execution.pyspark.python", worker_python(master, archive))
        session.range(1).count()
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise UmdfError(
            f"no response from {master}: {reason}", "check that a Spark Connect server is running there"
        ) from error
    return session


def submitted_session() -> SparkSession:
    """The session of the spark-submit that started this process, with its settings."""
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate()


def stop(spark: SparkSession) -> None:
    """End a session from `connect` or `submitted_session`."""
    try:
        spark.stop()
    except Exception:  # the server has ended already
        pass


def await_executor(
    spark: SparkSession,
    master: str,
    wait_s: float = EXECUTOR_WAIT_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Raise if no executor starts: a standalone master whose workers lack resources would wait forever, silently."""
    if not master.startswith("spark://"):
        return
    context: Any = spark.sparkContext
    until = clock() + wait_s
    while len(context._jsc.sc().statusTracker().getExecutorInfos()) < 2:  # the driver is one of them
        if clock() > until:
            memory = context.getConf().get("spark.executor.memory", "1g")
            raise UmdfError(
                f"no executor from {master} after {wait_s:.0f} s",
                f"it needs a worker with a free core and {memory} of memory (--conf spark.executor.memory=…)",
            )
        sleep(POLL_S)


def refuse_unshared_lake(task: Any) -> None:
    """Called in the worker before a task writes to a lake: the lease of this ingest must be visible there."""
    if not isinstance(task, dict) or not {"root", "stamp"} <= task.keys():
        return
    _, token = task["stamp"]
    if not (Path(task["root"]) / "_lake" / "leases" / f"{token:08d}.json").is_file():
        raise UmdfError(f"worker {platform.node()} cannot access the lake {task['root']}", SHARED_STORAGE_HINT)
