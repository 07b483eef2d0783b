"""Memory that ends where a page without access begins, for a process that tests run on its own."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
from numpy.typing import NDArray
from wire.sbe.mutations import mutated
from wire.sbe.packet_builders import NESTED, SCHEMA, assert_consistent

from umdf import buffers
from umdf.buffers import ALIGNMENT
from umdf.wire.sbe.decode import Decoder

PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_maps: list[mmap.mmap] = []  # alive for as long as the process


def _whole_pages(nbytes: int) -> NDArray[np.uint8]:
    """At least so many bytes; the last one is the last that may be touched."""
    size = -(-nbytes // PAGE) * PAGE
    memory = mmap.mmap(-1, size + PAGE)
    _maps.append(memory)
    array = np.frombuffer(memory, np.uint8)
    assert _libc.mprotect(ctypes.c_void_p(array.ctypes.data + size), ctypes.c_size_t(PAGE), 0) == 0, "mprotect failed"
    return np.frombuffer(memory, np.uint8, size)


def guarded(nbytes: int) -> NDArray[np.uint8]:
    """So many bytes, of which the last one is the last that may be touched."""
    pages = _whole_pages(nbytes)
    return pages[len(pages) - nbytes :]


class GuardedMemory(buffers.Memory):
    """As `Memory`, but for where it ends."""

    __slots__ = ()

    def __init__(self, nbytes: int) -> None:
        self.base = _whole_pages(nbytes)
        first = len(self.base) - -(-nbytes // ALIGNMENT) * ALIGNMENT
        self.array = self.base[first : first + nbytes]
        self.address = self.array.ctypes.data
        self.nbytes = nbytes


def decode_in_guarded_memory(seed: int, count: int) -> None:
    """Decode damaged packets one by one, each at the very end of its buffer, and in a batch with guarded tables."""
    buffers.Memory = GuardedMemory  # type: ignore[misc]
    random, place = np.random.default_rng(seed), guarded(1 << 16)
    for schema in (SCHEMA, NESTED):
        decoder = Decoder(schema)
        buffer, start, end = mutated(schema, count // 2, random)
        for first, last in zip(start.tolist(), end.tolist(), strict=True):
            packet = place[len(place) - (last - first) :]
            packet[:] = buffer[first:last]
            assert len(decoder.decode(packet, np.array([0]), np.array([last - first])).sequence) == 1
        whole = guarded(len(buffer))
        whole[:] = buffer
        for _ in range(3):
            assert_consistent(decoder.decode(whole, start, end))
    print(f"guarded {count} packets")


def read_past_the_end() -> None:
    """Read one byte too many, as a decoder without checks would."""
    place = guarded(100)
    ctypes.string_at(place.ctypes.data, 101)
