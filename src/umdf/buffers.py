"""Memory that is used again once nobody looks at it.

Fresh memory doubles the time of a kernel (page faults), yet a buffer that a caller's array still shows must never be
written to again. A `Pool` keeps its buffers and hands one out only while it alone refers to it.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64  # what Arrow recommends
_address: Callable[[Any], int] = ctypes.addressof
_shared: Callable[[Any], Any] = ctypes.c_char.from_buffer


def address_of(array: NDArray[np.generic]) -> int:
    """Where an array's bytes are: as `array.ctypes.data`, in a quarter of the time where it can be written to."""
    try:
        return _address(_shared(array))
    except (TypeError, ValueError):  # it cannot, or is empty
        return array.ctypes.data


class Memory:
    """An aligned buffer. It is in use while anything refers to it or to a view of its array."""

    __slots__ = ("address", "array", "nbytes", "owner")

    def __init__(self, nbytes: int) -> None:
        # Every view, however indirect, refers to the array that owns the bytes.
        self.owner: NDArray[np.uint8] = np.empty(nbytes + ALIGNMENT, np.uint8)
        shift = -self.owner.ctypes.data % ALIGNMENT
        self.array = self.owner[shift : shift + nbytes]
        self.address: int = self.array.ctypes.data
        self.nbytes = nbytes


class Pool:
    """Hands out memory; it comes back by itself when nobody else refers to it."""

    def __init__(self, most_kept: int = 4) -> None:
        self._kept: list[Memory] = []
        self._most_kept = most_kept

    def take(self, nbytes: int) -> Memory:
        """At least `nbytes` that nobody else looks at, uninitialised."""
        kept = self._kept
        for index in range(len(kept)):
            if _holders(kept, index) == _UNUSED:
                if kept[index].nbytes >= nbytes:
                    return kept[index]
                del kept[index]  # too small for what is wanted now
                break
        if len(kept) == self._most_kept:
            del kept[0]
        kept.append(Memory(nbytes))
        return kept[-1]


class Watch:
    """Tells whether anybody has begun to look at some memories, or to refer to the object that shows them, since the
    watch began. Quicker for several memories at once than to let go of them and to ask their pools again."""

    def __init__(self, shows: object, memories: Iterable[Memory]) -> None:
        self._watched = [shows, *(part for memory in memories for part in (memory.array, memory.owner))]
        self._counts: list[int] = []

    def begin(self) -> None:
        """From now on; not in `__init__`, whose own arguments would count."""
        self._counts = [*map(_count, self._watched)]

    def is_quiet(self) -> bool:
        return [*map(_count, self._watched)] == self._counts


def _holders(kept: list[Memory], index: int) -> tuple[int, int, int]:
    """Who refers to a memory: to itself, to the array (an Arrow buffer does), to the bytes (every view does)."""
    return _count(kept[index]), _count(kept[index].array), _count(kept[index].owner)


_count = sys.getrefcount
_UNUSED = _holders([Memory(1)], 0)  # when only the pool does; it differs between Pythons
