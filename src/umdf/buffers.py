"""Memory that is used again once nothing refers to it.

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
_c_buffer: Callable[[Any], Any] = ctypes.c_char.from_buffer


def buffer_address(array: NDArray[np.generic]) -> int:
    """Where an array's bytes are: as `array.ctypes.data`, in a quarter of the time where it can be written to."""
    try:
        return _address(_c_buffer(array))
    except (TypeError, ValueError):  # it cannot, or is empty
        return array.ctypes.data


class Memory:
    """An aligned buffer. It is in use while anything refers to it or to a view of its array."""

    __slots__ = ("address", "array", "base", "nbytes")

    def __init__(self, nbytes: int) -> None:
        # Every view, however indirect, refers to the array that owns the bytes.
        self.base: NDArray[np.uint8] = np.empty(nbytes + ALIGNMENT, np.uint8)
        padding = -self.base.ctypes.data % ALIGNMENT
        self.array = self.base[padding : padding + nbytes]
        self.address: int = self.array.ctypes.data
        self.nbytes = nbytes


class Pool:
    """Hands out memory; it comes back by itself when nobody else refers to it."""

    def __init__(self, max_buffers: int = 4) -> None:
        self._buffers: list[Memory] = []
        self._max_buffers = max_buffers

    def acquire(self, nbytes: int) -> Memory:
        """At least `nbytes` that nobody else looks at, uninitialised."""
        buffers = self._buffers
        for index in range(len(buffers)):
            if _reference_counts(buffers, index) == _UNUSED_COUNTS:
                if buffers[index].nbytes >= nbytes:
                    return buffers[index]
                del buffers[index]  # too small for what is wanted now
                break
        if len(buffers) == self._max_buffers:
            del buffers[0]
        buffers.append(Memory(nbytes))
        return buffers[-1]


class ReferenceWatch:
    """Tells whether anybody has begun to look at some memories, or to refer to the object that shows them, since the
    watch began. Quicker for several memories at once than to let go of them and to ask their pools again."""

    def __init__(self, view: object, memories: Iterable[Memory]) -> None:
        self._watched = [view, *(part for memory in memories for part in (memory.array, memory.base))]
        self._counts: list[int] = []

    def start(self) -> None:
        """From now on; not in `__init__`, whose own arguments would count."""
        self._counts = [*map(_reference_count, self._watched)]

    def is_unchanged(self) -> bool:
        return [*map(_reference_count, self._watched)] == self._counts


def _reference_counts(kept: list[Memory], index: int) -> tuple[int, int, int]:
    """Who refers to a memory: to itself, to the array (an Arrow buffer does), to the bytes (every view does)."""
    return _reference_count(kept[index]), _reference_count(kept[index].array), _reference_count(kept[index].base)


_reference_count = sys.getrefcount
_UNUSED_COUNTS = _reference_counts([Memory(1)], 0)  # when only the pool does; it differs between Pythons
