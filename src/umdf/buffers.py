"""Memory that is used again once nobody looks at it.

Fresh memory doubles the time of a kernel (page faults), yet a buffer that a caller's array still shows must never be
written to again. A `Pool` keeps its buffers and hands one out only while it alone refers to it.
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64  # what Arrow recommends


def aligned(owner: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The part of `owner` that starts at a 64-byte boundary."""
    shift = -owner.ctypes.data % ALIGNMENT
    return owner[shift : len(owner) - ALIGNMENT + shift]


class Pool:
    """Hands out byte buffers; a buffer comes back by itself when every view of it is gone."""

    def __init__(self, most_kept: int = 4) -> None:
        # The owners, not the slices handed out: a view of a view refers to the owner.
        self._owners: list[NDArray[np.uint8]] = []
        self._most_kept = most_kept

    def take(self, nbytes: int) -> NDArray[np.uint8]:
        """At least `nbytes` that nobody else looks at, uninitialised."""
        for index in self._unused():
            if len(self._owners[index]) >= nbytes + ALIGNMENT:
                return aligned(self._owners[index])
            del self._owners[index]  # too small for what is wanted now
            break
        if len(self._owners) == self._most_kept:
            del self._owners[0]
        self._owners.append(np.empty(nbytes + ALIGNMENT, np.uint8))
        return aligned(self._owners[-1])

    def _unused(self) -> list[int]:
        return [index for index, owner in enumerate(self._owners) if sys.getrefcount(owner) <= _UNUSED]


def _count_unused() -> int:
    """What getrefcount says in `_unused` of a buffer that only the pool holds (it differs between Pythons)."""
    owners = [np.empty(1, np.uint8)]
    return next(sys.getrefcount(owner) for index, owner in enumerate(owners))


_UNUSED = _count_unused()
