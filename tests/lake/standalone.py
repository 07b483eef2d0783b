"""A standalone Spark cluster on loopback, of processes that are ended by their numbers only."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lake.lake_commands import until

from umdf.lake import java

DEPLOY = "org.apache.spark.deploy"
START_S = 120
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
        log = self._start("master", f"{DEPLOY}.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        assert until(lambda: self._found(log, r"Starting Spark master at (\S+)"), START_S, 0.1), log.read_text()
        assert until(lambda: self._found(log, "New state: ALIVE"), START_S, 0.1), log.read_text()
        self.url = str(self._found(log, r"Starting Spark master at (\S+)"))

    def start_workers(self, count: int, cores: int = 1) -> list[int]:
        """Their process numbers, once the master knows them."""
        first = len(self.processes)
        words = ("--host", "127.0.0.1", "--webui-port", "0", "-c", str(cores), "-m", self.memory, self.url)
        logs = [self._start(f"worker-{first + n}", f"{DEPLOY}.worker.Worker", *words) for n in range(count)]
        for log in logs:
            assert until(lambda log=log: self._found(log, "Successfully registered"), START_S, 0.1), log.read_text()
        return [process.pid for process in self.processes[first:]]

    def living(self) -> list[int]:
        """The process numbers of the workers that there are."""
        return [process.pid for process in self.processes[1:] if process.poll() is None]

    def kill_worker(self, pid: int) -> int:
        """kill -9 of a worker, its executors and their Python, as if its machine were gone; how many there were."""
        assert pid in self.living()
        doomed = [pid, *descendants(pid)]
        for each in doomed:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        return len(doomed)

    def end(self) -> None:
        for process in reversed(self.processes):
            left = descendants(process.pid) if process.poll() is None else []
            process.kill()
            process.wait()
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _start(self, name: str, *words: str) -> Path:
        log = self.directory / f"{name}.log"
        with log.open("wb") as said:
            command = [str(self.home / "bin" / "spark-class"), *words]
            self.processes.append(
                subprocess.Popen(command, env=self.environment(), stdout=said, stderr=said, start_new_session=True)
            )
        return log

    @staticmethod
    def _found(log: Path, pattern: str) -> str | None:
        match = re.search(pattern, log.read_text(errors="replace"))
        return match.group(match.lastindex or 0) if match else None


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
