"""Spark sessions that umdf starts: in this process or on a cluster, without setup, and cleaned up afterwards.

Invariant: a session passed by the caller is used as it is; it is neither changed nor stopped.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from umdf.errors import ConfigError, MissingPackageError, UmdfError, UsageError
from umdf.lake.runtime import class_archive, cluster, java, jvm
from umdf.lake.runtime.cluster import SparkMode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_TASK_FAILURES = 4  # local[N] alone fails at the first lost Python worker
STOP_TIMEOUT_S = 20
DEFAULT_WORKER_PYTHON = "python3"  # pyspark's default, if PYSPARK_PYTHON is not set
# Marks of lines that explain why Spark did not start.
ERROR_MARKERS = ("Application has been killed", "rror", "xception")
SOCKET_PATH_BYTES = 60  # a socket's path may have 107 bytes: Spark's file name takes the rest

# For every embedded session. Each line is here because its absence caused a problem.
SETTINGS = {
    "spark.app.name": "umdf",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    # On a bucketed table Spark may drop a repartition before mapInArrow, and split instruments: silently wrong books.
    "spark.sql.sources.bucketing.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",  # a stall between JVM and Python was observed on TCP
    "spark.python.worker.faulthandler.enabled": "true",  # shows where a kernel crashed
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Tables are read by their lists of files; a Spark job just to list them costs more than listing.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
}
# Starts in half the time, but halves the JVM's speed: for sessions that only run our own tasks.
QUICK_START_SETTINGS = {class_archive.JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
# Writes an offset in 10 ms instead of 40: the default starts a process per file, to query its permissions.
CHECKPOINT_FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
LOOPBACK_SETTINGS = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


def start_session(
    cores: int | None = None,
    memory: str = "2g",
    master: str | None = None,
    work: str | os.PathLike[str] | None = None,
    logs: str | os.PathLike[str] | None = None,
    quick: bool = False,
    environment: str | os.PathLike[str] | None = None,
    **conf: str,
) -> SparkSession:
    """Start a session: on this machine, or on the cluster that `master` names.

    `work` is for temporary files (in a new directory, removed at the end), `logs` for the output of Spark and the
    Python workers. `quick` starts faster and computes slower: for sessions that only run our own tasks. `environment`
    is the archive for the workers of a cluster (umdf.lake.runtime.environment_archive). `conf` are Spark
    properties, with `_` for `.` in their names, or as `**{"spark.x.y": "z"}`.
    """
    pyspark = _pyspark()
    archive = cluster.environment_archive(environment, cluster.spark_mode(master))
    if pyspark.SparkContext._active_spark_context is not None:
        raise UmdfError("a Spark session is already running in this process", "pass it as spark=")
    scratch = Path(tempfile.mkdtemp(prefix="umdf-spark-", dir=_directory(work)))
    log = (_directory(logs) or scratch) / f"spark-{os.getpid()}.log"
    settings = _settings(cores, memory, master, scratch, archive, {**(QUICK_START_SETTINGS if quick else {}), **conf})
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        home = java.java_home()
        settings = class_archive.with_archive(settings, home)
        with (
            log.open("ab") as log_file,
            _temporary_environment(_environment_variables(pyspark, settings["spark.master"], archive, home)),
        ):
            session = _start(pyspark, settings, log_file)
            cluster.await_executor(session, settings["spark.master"])
    except BaseException as error:
        fault = _start_error(error, log)  # may read the JVM's log
        _stop_gateway(pyspark)
        shutil.rmtree(scratch, ignore_errors=True)
        if isinstance(error, Exception):
            raise fault from error
        raise
    _restore_interrupt(interrupt)
    _OWN_SESSIONS[id(session)] = (scratch, log)
    return session


_OWN_SESSIONS: dict[int, tuple[Path, Path]] = {}  # sessions that this module started: their scratch and log


def session_log(spark: SparkSession) -> Path | None:
    """The log file of an embedded session."""
    return _OWN_SESSIONS[id(spark)][1] if id(spark) in _OWN_SESSIONS else None


def stop_session(spark: SparkSession, wait_s: float = STOP_TIMEOUT_S) -> None:
    """Stop an embedded session, its JVM and its Python workers. Other sessions are left alone; may be called twice."""
    if id(spark) not in _OWN_SESSIONS:
        return
    scratch, _ = _OWN_SESSIONS.pop(id(spark))
    try:
        spark.sparkContext.cancelAllJobs()
        spark.stop()
    except Exception:  # the JVM has ended already
        pass
    finally:
        _stop_gateway(_pyspark(), wait_s)
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def session_scope(spark: SparkSession | None = None, **options: Any) -> Iterator[SparkSession]:
    """The given session, unchanged; or an embedded one that ends with the block, also on Ctrl-C and SIGTERM."""
    if spark is not None:
        yield spark
        return
    mode = cluster.spark_mode(options.get("master"))
    with _exit_on_sigterm(), jvm.without_py4j_log():
        session, stop = _STARTERS[mode](options)
        try:
            yield session
        except Exception as error:
            raise _jvm_fault(session, error) or error from error
        finally:
            stop(session)


# For each mode, from the options of `session_scope`: a session, and the function that stops it.
_STARTERS: dict[SparkMode, Callable[[dict[str, Any]], tuple[SparkSession, Callable[[SparkSession], None]]]] = {
    SparkMode.LOCAL: lambda how: (start_session(**how), stop_session),
    SparkMode.CLUSTER: lambda how: (start_session(**how), stop_session),
    SparkMode.CONNECT: lambda how: (_connect(how), cluster.stop),
    SparkMode.SUBMITTED: lambda how: (_use_submitted(how), cluster.stop),
}


def _refuse_settings(options: dict[str, Any], owner: str) -> None:
    if setting_names := sorted(name for name in options if name.startswith("spark.")):
        raise UsageError(f"cannot set {', '.join(setting_names)}: they belong to {owner}", "set them there")


def _connect(options: dict[str, Any]) -> SparkSession:
    _pyspark()
    _refuse_settings(options, "the server")
    archive = cluster.environment_archive(options.get("environment"), SparkMode.CONNECT)
    return cluster.connect(options["master"], archive)


def _use_submitted(options: dict[str, Any]) -> SparkSession:
    _refuse_settings(options, "spark-submit")
    cluster.environment_archive(options.get("environment"), SparkMode.SUBMITTED)
    return cluster.submitted_session()


@contextmanager
def described_job(spark: SparkSession, description: str, group: str | None = None) -> Iterator[None]:
    """Jobs inside the block have this description in Spark's UI; a group can be polled and cancelled."""
    context = context_of(spark)
    if context is None:
        with _tag(spark, group):
            yield
        return
    names = ("spark.job.description", "spark.jobGroup.id", "spark.job.interruptOnCancel")
    before = [context.getLocalProperty(name) for name in names]
    values = [description, group or before[1], "true" if group else before[2]]
    try:
        for name, value in zip(names, values, strict=True):
            context.setLocalProperty(name, value)
        yield
    finally:
        for name, value in zip(names, before, strict=True):
            context.setLocalProperty(name, value)


@contextmanager
def _tag(spark: SparkSession, group: str | None) -> Iterator[None]:
    """A Spark Connect server has no job groups, but can interrupt jobs by tag."""
    if group is None:
        yield
        return
    spark.addTag(group)
    try:
        yield
    finally:
        spark.removeTag(group)


def cancel(spark: SparkSession, group: str) -> None:
    context = context_of(spark)
    if context is None:
        spark.interruptTag(group)
    else:
        context.cancelJobGroup(group)


def context_of(spark: SparkSession) -> Any:
    """The SparkContext; None for a Spark Connect session, which has none."""
    try:
        return spark.sparkContext
    except Exception:
        return None


@contextmanager
def with_this_python(spark: SparkSession) -> Iterator[None]:
    """Functions passed to Spark inside the block run in this interpreter, unless another one was chosen.

    A session created without PYSPARK_PYTHON uses the python3 of the PATH, which may lack umdf. A function (and a data
    source) keeps the interpreter that its session has when it is passed."""
    context = context_of(spark)
    if context is None or context.pythonExec != DEFAULT_WORKER_PYTHON or not context.master.startswith("local"):
        yield
        return
    context.pythonExec = sys.executable
    try:
        yield
    finally:
        context.pythonExec = DEFAULT_WORKER_PYTHON


def _pyspark() -> Any:
    try:
        import pyspark
    except ImportError as error:
        raise MissingPackageError("pyspark", "Spark") from error
    return pyspark


def _directory(path: str | os.PathLike[str] | None) -> Path | None:
    if path is None:
        return None
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot create {path}: {error.strerror}") from error
    return Path(path).absolute()


def _settings(
    cores: int | None, memory: str, master: str | None, scratch: Path, archive: Path | None, conf: Mapping[str, str]
) -> dict[str, str]:
    cores = cores or len(os.sched_getaffinity(0))
    if cores < 1:
        raise UsageError(f"invalid number of cores: {cores}", "use at least 1")
    settings = {
        **SETTINGS,
        "spark.master": master or f"local[{cores},{MAX_TASK_FAILURES}]",
        "spark.driver.memory": memory,
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    if archive:
        settings["spark.archives"] = f"{archive}#{cluster.ENVIRONMENT_ALIAS}"
    if cluster.is_on_loopback(settings["spark.master"]):
        settings |= LOOPBACK_SETTINGS
    if settings["spark.master"].startswith("local"):
        settings["spark.sql.streaming.checkpointFileManagerClass"] = CHECKPOINT_FILE_MANAGER
        settings["spark.sql.shuffle.partitions"] = str(2 * cores)
        if len(os.fsencode(scratch)) <= SOCKET_PATH_BYTES:  # remote workers have no such directory
            settings["spark.python.unix.domain.socket.dir"] = str(scratch)
    return settings | {_setting_name(name): str(value) for name, value in conf.items()}


def _setting_name(name: str) -> str:
    return name if "." in name else name.replace("_", ".")


def _environment_variables(pyspark: Any, master: str, archive: Path | None, home: Path) -> dict[str, str | None]:
    """Environment variables while Spark starts; None removes one."""
    return {
        "JAVA_HOME": str(home),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),  # not another Spark installation of this machine
        "PYSPARK_PYTHON": cluster.worker_python(master, archive),  # otherwise workers use the system's python3
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1" if cluster.is_on_loopback(master) else os.environ.get("SPARK_LOCAL_IP"),
        "PYSPARK_SUBMIT_ARGS": None,
        "SPARK_REMOTE": None,
    }


@contextmanager
def _temporary_environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}

    def set_variables(values: Mapping[str, str | None]) -> None:
        for name, value in values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    set_variables(variables)
    try:
        yield
    finally:
        set_variables(before)


def _start(pyspark: Any, settings: Mapping[str, str], log_file: Any) -> SparkSession:
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    conf = pyspark.SparkConf(loadDefaults=False).setAll(list(settings.items()))
    # Before the SparkContext does it: only then its output (and that of the workers) goes to a file.
    gateway = launch_gateway(conf, {"stdout": log_file, "stderr": log_file})
    try:
        context = pyspark.SparkContext(conf=conf, gateway=gateway)
        context._accumulatorServer.handle_error = lambda request, address: None  # prints tracebacks of a lost JVM
        return SparkSession(context)
    except BaseException:
        pyspark.SparkContext._gateway = gateway  # so that it is stopped, however far it came
        raise


def _start_error(error: BaseException, log: Path) -> UmdfError:
    if isinstance(error, UmdfError):
        return error
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
    error_lines = next(filter(None, ([line for line in lines if word in line] for word in ERROR_MARKERS)), lines)
    try:
        reason = str(error).splitlines()[0]
    except Exception:  # there is no message, or the JVM has ended
        reason = type(error).__name__
    return UmdfError(f"Spark failed to start: {reason} {' '.join(error_lines[:1])}".strip(), "run `umdf doctor`")


def _jvm_fault(spark: SparkSession, error: Exception) -> UmdfError | None:
    """The error to report instead if the JVM of an embedded session has ended, whatever py4j raised."""
    if id(spark) not in _OWN_SESSIONS:
        return None
    how = jvm.how_it_ended(getattr(_pyspark().SparkContext._gateway, "proc", None), error)
    hint = f"run the command again to continue after the last commit; see Spark's log in {session_log(spark)}"
    return UmdfError(f"Spark's JVM has ended ({how})", hint) if how else None


def _stop_gateway(pyspark: Any, wait_s: float = STOP_TIMEOUT_S) -> None:
    """pyspark keeps the JVM until Python exits; here it ends with the session, so that another one can be started."""
    context = pyspark.SparkContext
    gateway = context._gateway
    if gateway is None:
        return
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    try:
        gateway.shutdown()
    except Exception:
        pass
    if process is not None:
        if process.stdin:
            process.stdin.close()  # closing this pipe ends the JVM, and that ends the Python workers
        try:
            process.wait(wait_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    context._gateway = context._jvm = context._active_spark_context = None


def _restore_interrupt(handler: Any) -> None:
    """Undo pyspark's Ctrl-C handler, which calls the JVM in the middle of another call."""
    try:
        signal.signal(signal.SIGINT, handler)
    except ValueError:  # not the main thread, where pyspark has set none either
        pass


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """SIGTERM unwinds the stack as Ctrl-C does."""

    def end(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    try:
        before = signal.signal(signal.SIGTERM, end)
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
