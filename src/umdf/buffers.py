"""Memory that is reused once nothing refers to it.

Fresh memory doubles the time of a kernel (page faults), but a buffer that a caller's array still refers to must never
be overwritten. A `Pool` keeps its buffers and returns one only if nothing else refers to it.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64  # as Arrow recommends
_address: Callable[[Any], int] = ctypes.addressof
_c_buffer: Callable[[Any], Any] = ctypes.c_char.from_buffer


def buffer_address(array: NDArray[np.generic]) -> int:
    """The address of an array: as `array.ctypes.data`, in a quarter of the time for writable arrays."""
    try:
        return _address(_c_buffer(array))
    except (TypeError, ValueError):  # not writable, or empty
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
    """Provides memory, which becomes available again when nothing else refers to it."""

    def __init__(self, max_buffers: int = 4) -> None:
        self._buffers: list[Memory] = []
        self._max_buffers = max_buffers

    def acquire(self, nbytes: int) -> Memory:
        """At least `nbytes` of uninitialised memory that nothing else refers to."""
        buffers = self._buffers
        for index in range(len(buffers)):
            if _reference_counts(buffers, index) == _UNUSED_COUNTS:
                if buffers[index].nbytes >= nbytes:
                    return buffers[index]
                del buffers[index]  # too small now
                break
        if len(buffers) == self._max_buffers:
            del buffers[0]
        buffers.append(Memory(nbytes))
        return buffers[-1]


class ReferenceWatch:
    """Detects whether new references to some memories, or to the object that uses them, were created since the start.
    Faster for several memories at once than releasing them and acquiring them again."""

    def __init__(self, view: object, memories: Iterable[Memory]) -> None:
        self._watched = [view, *(part for memory in memories for part in (memory.array, memory.base))]
        self._counts: list[int] = []

    def start(self) -> None:
        """Start watching; not in `__init__`, whose own arguments would count."""
        self._counts = [*map(_reference_count, self._watched)]

    def is_unchanged(self) -> bool:
        return [*map(_reference_count, self._watched)] == self._counts


def _reference_counts(kept: list[Memory], index: int) -> tuple[int, int, int]:
    """Reference counts of a memory: of itself, of the array (for Arrow buffers), of the bytes (for views)."""
    return _reference_count(kept[index]), _reference_count(kept[index].array), _reference_count(kept[index].base)


_reference_count = sys.getrefcount
_UNUSED_COUNTS = _reference_counts([Memory(1)], 0)  # with only the pool's reference; differs between Python versions
