"""`umdf` in processes of their own, watched by a mark in their environment, and ended by their numbers only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MARK = "UMDF_TEST_MARK"
UMDF = "import sys; from umdf.cli.app import run; sys.exit(run(sys.argv[1:]))"


def until(condition: Callable[[], bool], seconds: float, every_s: float = 0.01) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True


class Command:
    """One `umdf …` and everything that it starts."""

    def __init__(self, mark: str, *words: str | Path) -> None:
        self.mark = f"{os.getpid()}-{mark}"
        self.process = subprocess.Popen(
            [sys.executable, "-c", UMDF, *map(str, words)],
            env={**os.environ, MARK: self.mark},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def finish(self, seconds: float = 300) -> tuple[int, str, str]:
        """Exit code, what it printed, what it complained of."""
        printed, said = self.process.communicate(timeout=seconds)
        return self.process.returncode, printed, said

    def kill(self) -> None:
        """kill -9 of the driver alone: the JVM and the workers have to notice."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def family(self) -> dict[int, str]:
        """The living processes that carry the mark, by number, with their command lines."""
        found = {}
        for directory in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if f"{MARK}={self.mark}".encode() not in (directory / "environ").read_bytes().split(b"\0"):
                    continue
                if (directory / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                    words = (directory / "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(directory.name)] = words.decode(errors="replace")
        return found

    def workers(self) -> list[int]:
        """Python workers of Spark: what its daemon has forked."""
        daemons = {pid for pid, words in self.family().items() if "pyspark.daemon" in words}
        return [pid for pid in daemons if _parent(pid) in daemons]


def _parent(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


@contextmanager
def umdf(mark: str, *words: str | Path) -> Iterator[Command]:
    """Nothing of it is left behind, whatever happens."""
    command = Command(mark, *words)
    try:
        yield command
    finally:
        if not command.ended:
            command.kill()
        for pipe in (command.process.stdout, command.process.stderr):
            if pipe:
                pipe.close()
        if not until(lambda: not command.family(), 60, 0.1):
            left = command.family()
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            raise AssertionError(f"left behind: {left}")
