"""How much memory of its own a task takes, and that it keeps it, and what it has loaded, for the next one.

Pages of mapped files do not count: the system takes them back whenever it likes, and at one touch maps the 2 MB around
it, so that of staged files some five times as much is mapped as is read.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
from functools import cache
from threading import Event, Thread
from types import TracebackType
from typing import Self

import pyarrow as pa

SAMPLE_INTERVAL_S = 0.05
STATM = "/proc/self/statm"
# mallopt's: from which size memory is asked of the system and given back alone; what is given back when it is free at
# the end; how much more is asked for than is needed; whether each thread has memory of its own.
M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD, M_ARENA_MAX = -3, -1, -2, -8
MALLOC_OPTIONS = {M_MMAP_THRESHOLD: 1 << 30, M_TRIM_THRESHOLD: (1 << 31) - 1, M_TOP_PAD: 64 << 20, M_ARENA_MAX: 1}


@cache
def retain_memory() -> None:
    """Columns come and go, megabytes each: without this the system clears new pages for all of them, for a tenth of the
    time of a task. What a task has had is used by the next one, and given back when the worker ends."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not the C library that has it
        return
    for what, value in MALLOC_OPTIONS.items():
        mallopt(what, value)
    pa.set_memory_pool(pa.system_memory_pool())  # its own allocator would give memory back


@cache
def freeze_loaded_objects(kind: str) -> None:
    """What the first piece of work of a kind has loaded stays. PySpark's daemon collects garbage after every task:
    without this it looks each time through every object of all modules, for 30 to 90 ms."""
    gc.collect()
    gc.freeze()


def private_bytes() -> int:
    """What this process has now; where nobody says so, the most that it ever had, mapped files included."""
    try:
        with open(STATM) as file:
            resident, shared = map(int, file.read().split()[1:3])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


class PeakMemory(Thread):
    """The most that was seen in a block."""

    def __init__(self) -> None:
        super().__init__(name="umdf-memory", daemon=True)
        self.bytes = private_bytes()
        self._stopped = Event()

    def run(self) -> None:
        while not self._stopped.wait(SAMPLE_INTERVAL_S):
            self.bytes = max(self.bytes, private_bytes())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self.join()
        self.bytes = max(self.bytes, private_bytes())
