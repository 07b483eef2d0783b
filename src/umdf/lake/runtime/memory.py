"""Memory of tasks: measuring it, and keeping it, with everything loaded, for the next task.

Pages of mapped files do not count: the system can reclaim them at any time, and a single access maps 2 MB, so that
some five times as much of the staged files is mapped as is read.
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
# Parameters of mallopt: size from which blocks are mapped individually; free memory at the end of the heap that is
# returned; extra memory per request; number of arenas.
M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD, M_ARENA_MAX = -3, -1, -2, -8
MALLOC_OPTIONS = {M_MMAP_THRESHOLD: 1 << 30, M_TRIM_THRESHOLD: (1 << 31) - 1, M_TOP_PAD: 64 << 20, M_ARENA_MAX: 1}


@cache
def retain_memory() -> None:
    """Keep freed memory in the process. Tasks allocate and free columns of megabytes: otherwise the system clears new
    pages for all of them, a tenth of a task's time. The memory is returned when the worker ends."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return
    for what, value in MALLOC_OPTIONS.items():
        mallopt(what, value)
    pa.set_memory_pool(pa.system_memory_pool())  # its own allocator would return memory to the system


@cache
def freeze_loaded_objects(kind: str) -> None:
    """Exempt what the first task of a kind loaded from garbage collection. PySpark's daemon collects after every task,
    which otherwise visits every object of all modules, for 30 to 90 ms."""
    gc.collect()
    gc.freeze()


def private_bytes() -> int:
    """Private memory of this process; if the system does not report it, its peak, including mapped files."""
    try:
        with open(STATM) as file:
            resident, shared = map(int, file.read().split()[1:3])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


class PeakMemory(Thread):
    """Peak memory within a `with` block."""

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
