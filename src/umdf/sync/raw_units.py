"""Undecoded packets or messages: where their bytes are, and what is known without decoding them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.sync.raw_units_kernel import gather_bytes, hash_contents


class UnitKind(IntEnum):
    DATA = 0  # a numbered unit
    HEARTBEAT = 1  # of Binary (Sequence_2): it uses up no number
    RESET = 2  # a SequenceReset of FAST
    RECOVERED = 3  # a numbered unit that was requested: it fills a gap, and says nothing about a line


@dataclass(frozen=True, eq=False)
class RawUnits:
    """One row per unit: packets of Binary, messages of FAST."""

    buffer: NDArray[np.uint8]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    sequence: NDArray[np.int64]
    epoch: NDArray[np.int64]  # the epoch of `sequence`
    ts_recv: NDArray[np.int64]
    msg_index: NDArray[np.uint16]  # of a FAST message, its index in the packet
    line: NDArray[np.uint16]
    kind: NDArray[np.uint8]  # UnitKind
    next_sequence: NDArray[np.int64]  # that a heartbeat announces, or the first after a reset; else 0
    content_key: NDArray[np.int64]  # distinguishes contents of the same number; 0: unknown, equal to everything

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: NDArray[Any] | slice) -> RawUnits:
        """These rows (indices, a mask, or a slice), in this order, with the same buffer."""
        columns = (getattr(self, column.name)[rows] for column in fields(self)[1:])
        return RawUnits(self.buffer, *columns)

    def compacted(self) -> RawUnits:
        """The same rows with their own buffer, without other bytes, so that they can be kept."""
        size = self.end - self.start
        end = np.cumsum(size)
        start = np.ascontiguousarray(end - size)
        buffer = np.empty(int(end[-1]) if len(end) else 0, np.uint8)
        source = np.ascontiguousarray(self.start), np.ascontiguousarray(size)
        addresses = (array.ctypes.data for array in (self.buffer, *source, buffer, start))
        gather_bytes(*addresses, len(self))
        return RawUnits(buffer, start, end, *(getattr(self, column.name) for column in fields(self)[3:]))


def concat_units(parts: list[RawUnits]) -> RawUnits:
    """Concatenate, in this order."""
    if len(parts) == 1:
        return parts[0]
    compacted = [part.compacted() for part in parts]
    shift = np.cumsum([0, *(len(part.buffer) for part in compacted)])
    buffer = np.concatenate([part.buffer for part in compacted])
    start = np.concatenate([part.start + at for part, at in zip(compacted, shift, strict=False)])
    end = np.concatenate([part.end + at for part, at in zip(compacted, shift, strict=False)])
    rest = (np.concatenate([getattr(part, column.name) for part in compacted]) for column in fields(RawUnits)[3:])
    return RawUnits(buffer, start, end, *rest)


def data_units(
    buffer: NDArray[np.uint8],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    sequence: NDArray[np.int64],
    epoch: NDArray[np.int64],
    ts_recv: NDArray[np.int64],
    msg_index: NDArray[np.uint16],
    line: NDArray[np.uint16],
) -> RawUnits:
    """Numbered units, of which no content keys are known."""
    count = len(start)
    others = np.zeros(count, np.uint8), np.zeros(count, np.int64), np.zeros(count, np.int64)
    return RawUnits(buffer, start, end, sequence, epoch, ts_recv, msg_index, line, *others)


def empty_units() -> RawUnits:
    number, short = np.empty(0, np.int64), np.empty(0, np.uint16)
    return data_units(np.empty(0, np.uint8), number, number, number, number, number, short, short)


def content_keys(buffer: NDArray[np.uint8], start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    """A hash of the bytes of each unit: positive, and never 0."""
    keys = np.empty(len(start), np.int64)
    start, end = np.ascontiguousarray(start), np.ascontiguousarray(end)
    hash_contents(buffer.ctypes.data, start.ctypes.data, end.ctypes.data, len(start), keys.ctypes.data)
    return keys
