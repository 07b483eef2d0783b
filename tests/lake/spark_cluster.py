"""A standalone Spark cluster, or a Spark Connect server, on loopback; its processes are ended by their numbers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lake.lake_commands import until

from umdf.lake.runtime import java

DEPLOY = "org.apache.spark.deploy"
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
START_S = 180
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.master.rest.enabled=false"


class Standalone:
    """A master and its workers; `url` is what `--master` wants."""

    def __init__(self, directory: Path, memory: str = "1g") -> None:
        import pyspark

        self.directory, self.memory, self.url = directory, memory, ""
        self.home = Path(pyspark.__file__).parent
        self.processes: list[subprocess.Popen[bytes]] = []
        directory.mkdir(parents=True, exist_ok=True)

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "JAVA_HOME": str(java.java_home()),
            "SPARK_HOME": str(self.home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.directory / "local"),
            "SPARK_WORKER_DIR": str(self.directory / "work"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK,
        }

    def start_master(self) -> None:
        log = self.start("master", f"{DEPLOY}.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        heard(log, "New state: ALIVE")
        self.url = heard(log, r"Starting Spark master at (\S+)")

    def start_workers(self, count: int, cores: int = 1) -> list[int]:
        """Their process numbers, once the master knows them."""
        first = len(self.processes)
        words = ("--host", "127.0.0.1", "--webui-port", "0", "-c", str(cores), "-m", self.memory, self.url)
        logs = [self.start(f"worker-{first + n}", f"{DEPLOY}.worker.Worker", *words) for n in range(count)]
        for log in logs:
            heard(log, "Successfully registered")
        return [process.pid for process in self.processes[first:]]

    def start(self, name: str, *words: str, **environment: str) -> Path:
        """A process of Spark; the file that it talks to."""
        log = self.directory / f"{name}.log"
        command = [str(self.home / "bin" / "spark-class"), *words]
        with log.open("wb") as said:
            self.processes.append(
                subprocess.Popen(
                    command, env=self.environment() | environment, stdout=said, stderr=said, start_new_session=True
                )
            )
        return log

    def living(self) -> list[int]:
        """The process numbers of the workers that there are."""
        return [process.pid for process in self.processes[1:] if process.poll() is None]

    def kill_worker(self, pid: int) -> int:
        """kill -9 of a worker, its executors and their Python, as if its machine were gone; how many there were."""
        [process] = [process for process in self.processes[1:] if process.pid == pid]
        doomed = [pid, *descendants(pid)]
        for each in doomed:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        process.wait()
        return len(doomed)

    def end(self) -> None:
        for process in reversed(self.processes):
            left = descendants(process.pid) if process.poll() is None else []
            process.kill()
            process.wait()
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@contextmanager
def standalone(directory: Path, workers: int = 2) -> Iterator[Standalone]:
    """Nothing of it is left behind, whatever happens."""
    cluster = Standalone(directory)
    try:
        cluster.start_master()
        cluster.start_workers(workers)
        yield cluster
    finally:
        cluster.end()


@contextmanager
def connect_server(directory: Path, python: str) -> Iterator[str]:
    """A Spark Connect server whose workers run this Python; its URL."""
    server = Standalone(directory)
    settings = ("connect.grpc.binding.address=127.0.0.1", "connect.grpc.binding.port=0", "ui.enabled=false")
    words = [word for setting in settings for word in ("--conf", f"spark.{setting}")]
    words += ["--master", "local[2,4]", "--class", CONNECT, "spark-internal"]
    try:
        log = server.start("connect", f"{DEPLOY}.SparkSubmit", *words, PYSPARK_PYTHON=python, SPARK_DAEMON_MEMORY="1g")
        port = heard(log, r"Spark Connect server started at: \S*:(\d+)")
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.end()


def heard(log: Path, pattern: str) -> str:
    """What a process says, once it says it; its first group, if the pattern has one."""
    found: list[re.Match[str]] = []

    def said() -> bool:
        found.extend(re.finditer(pattern, log.read_text(errors="replace")))
        return bool(found)

    assert until(said, START_S, 0.1), log.read_text()
    return found[0].group(found[0].lastindex or 0)


def descendants(pid: int) -> list[int]:
    """The living processes below one, by their parents' numbers."""
    parents: dict[int, int] = {}
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(directory.name)] = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]


def pythons(pid: int) -> list[int]:
    """The Python workers below a worker of the cluster."""
    found = []
    for each in descendants(pid):
        with suppress(OSError):
            if b"pyspark.daemon" in Path(f"/proc/{each}/cmdline").read_bytes():
                found.append(each)
    return found
