"""How much memory of its own a task takes.

Pages of mapped files do not count: the system takes them back whenever it likes, and at one touch maps the 2 MB around
it, so that of staged files some five times as much is mapped as is read.
"""

from __future__ import annotations

import os
import resource
from threading import Event, Thread
from types import TracebackType
from typing import Self

EVERY_S = 0.01
STATM = "/proc/self/statm"


def own_bytes() -> int:
    """What this process has now; where nobody says so, the most that it ever had, mapped files included."""
    try:
        with open(STATM) as file:
            resident, shared = map(int, file.read().split()[1:3])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


class Peak(Thread):
    """The most that was seen in a block."""

    def __init__(self) -> None:
        super().__init__(name="umdf-memory", daemon=True)
        self.bytes = own_bytes()
        self._over = Event()

    def run(self) -> None:
        while not self._over.wait(EVERY_S):
            self.bytes = max(self.bytes, own_bytes())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self.join()
        self.bytes = max(self.bytes, own_bytes())
