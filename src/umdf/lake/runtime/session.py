"""A Spark session of our own: inside this process or on a cluster, started without set-up, ended without a trace.

Invariant: a session that the caller gave is used as it is; nothing of it is changed, and it is never ended.
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

MAX_TASK_FAILURES = 4  # plain local[N] gives up at the first lost Python worker
STOP_TIMEOUT_S = 20
DEFAULT_WORKER_PYTHON = "python3"  # what pyspark takes if PYSPARK_PYTHON is not set
# What a line has that explains why Spark did not start.
ERROR_MARKERS = ("Application has been killed", "rror", "xception")
SOCKET_PATH_BYTES = 60  # a socket's whole path may have 107: Spark's own name for it takes the rest

# For every embedded session. Each line is there because its absence cost something.
SETTINGS = {
    "spark.app.name": "umdf",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    # On a bucketed table a repartition before mapInArrow may vanish, and instruments come split: silent wrong books.
    "spark.sql.sources.bucketing.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",  # a stall between JVM and Python was seen on TCP
    "spark.python.worker.faulthandler.enabled": "true",  # a crash of a kernel says where
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A table is read by its list of files; a Spark job only to look at each of them costs more than looking.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
}
# Half the time to start, and half the speed of what then runs in the JVM: for sessions that only drive our own tasks.
QUICK_START_SETTINGS = {class_archive.JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
# Writes an offset in 10 ms instead of 40: the usual one starts a program for each file, to ask for its permissions.
CHECKPOINT_FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
LOOPBACK_SETTINGS = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


def start_session(
    cores: int | None = None,
    memory: str = "2g",
    master: str | None = None,
    work: str | os.PathLike[str] | None = None,
    logs: str | os.PathLike[str] | None = None,
    quick: bool = False,
    packed: str | os.PathLike[str] | None = None,
    **conf: str,
) -> SparkSession:
    """Start a session: on this machine, or on the cluster that `master` names.

    `work` holds temporary files (a directory of its own there, removed at the end), `logs` what Spark and the Python
    workers say. `quick` starts sooner and computes slower: for sessions that only drive our own tasks. `packed` is the
    environment for the workers of a cluster (umdf.lake.runtime.environment_archive). `conf` are Spark's own settings,
    by their names with `_` for `.`, or as `**{"spark.x.y": "z"}`.
    """
    pyspark = _pyspark()
    archive = cluster.environment_archive(packed, cluster.spark_mode(master))
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
        fault = _start_error(error, log)  # the JVM may have to be asked for its words
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
    """Where the words of an embedded session go."""
    return _OWN_SESSIONS[id(spark)][1] if id(spark) in _OWN_SESSIONS else None


def stop_session(spark: SparkSession, wait_s: float = STOP_TIMEOUT_S) -> None:
    """End an embedded session, its JVM and its Python workers. Another session is left alone; twice is once."""
    if id(spark) not in _OWN_SESSIONS:
        return
    scratch, _ = _OWN_SESSIONS.pop(id(spark))
    try:
        spark.sparkContext.cancelAllJobs()
        spark.stop()
    except Exception:  # the JVM is gone already: that is what was wanted
        pass
    finally:
        _stop_gateway(_pyspark(), wait_s)
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def session_scope(spark: SparkSession | None = None, **options: Any) -> Iterator[SparkSession]:
    """The given session, untouched; or an embedded one that ends with the block, also on Ctrl-C and on SIGTERM."""
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


# For each way, from the options of `session_scope`: a session, and what ends it.
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
    return cluster.connect(options["master"], cluster.environment_archive(options.get("packed"), SparkMode.CONNECT))


def _use_submitted(options: dict[str, Any]) -> SparkSession:
    _refuse_settings(options, "spark-submit")
    cluster.environment_archive(options.get("packed"), SparkMode.SUBMITTED)
    return cluster.submitted_session()


@contextmanager
def described_job(spark: SparkSession, description: str, group: str | None = None) -> Iterator[None]:
    """What is run inside is described so to whoever looks at Spark. A group can be asked about and cancelled."""
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
    """A server knows no groups, but can be asked to interrupt what has a tag."""
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
    """The SparkContext; None if the session is a connection to a server, which has none."""
    try:
        return spark.sparkContext
    except Exception:
        return None


@contextmanager
def with_this_python(spark: SparkSession) -> Iterator[None]:
    """What is handed to Spark inside is run by the interpreter that runs this, where nobody has chosen another one.

    A session that was made without PYSPARK_PYTHON takes the python3 of the PATH, which need not have umdf. A function
    (and a data source) keeps the interpreter that its session has when it is handed over."""
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
        if len(os.fsencode(scratch)) <= SOCKET_PATH_BYTES:  # workers elsewhere have no such directory
            settings["spark.python.unix.domain.socket.dir"] = str(scratch)
    return settings | {_setting_name(name): str(value) for name, value in conf.items()}


def _setting_name(name: str) -> str:
    return name if "." in name else name.replace("_", ".")


def _environment_variables(pyspark: Any, master: str, archive: Path | None, home: Path) -> dict[str, str | None]:
    """Environment variables while Spark starts; None takes one away."""
    return {
        "JAVA_HOME": str(home),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),  # another Spark of this machine is none of our business
        "PYSPARK_PYTHON": cluster.worker_python(master, archive),  # without it, workers are the system's python3
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
    # Before the SparkContext would do it, because only so its words (and the workers') go to a file.
    gateway = launch_gateway(conf, {"stdout": log_file, "stderr": log_file})
    try:
        context = pyspark.SparkContext(conf=conf, gateway=gateway)
        context._accumulatorServer.handle_error = lambda request, address: None  # prints tracebacks of a lost JVM
        return SparkSession(context)
    except BaseException:
        pyspark.SparkContext._gateway = gateway  # to be ended, however far it came
        raise


def _start_error(error: BaseException, log: Path) -> UmdfError:
    if isinstance(error, UmdfError):
        return error
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
    error_lines = next(filter(None, ([line for line in lines if word in line] for word in ERROR_MARKERS)), lines)
    try:
        reason = str(error).splitlines()[0]
    except Exception:  # nothing was said, or the JVM is gone and cannot be asked any more
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
    """pyspark keeps the JVM until Python ends; here it ends with the session, so that another one can be started."""
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
            process.stdin.close()  # the JVM ends when this pipe does, and the Python workers when the JVM does
        try:
            process.wait(wait_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    context._gateway = context._jvm = context._active_spark_context = None


def _restore_interrupt(handler: Any) -> None:
    """pyspark's own handler of Ctrl-C talks to the JVM in the middle of whatever was being said to it."""
    try:
        signal.signal(signal.SIGINT, handler)
    except ValueError:  # not the main thread: pyspark has set none either
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
