"""Raw files of consecutive framed messages without packets (`.bin`), as batches like those of a capture.

    with open_raw_stream("messages.bin.zst", FastFraming()) as stream:
        for batch in stream: ...
    stream.warnings

Invariant: bad data is never an exception. A damaged or truncated stream yields every message before the damage, and
`warnings` has the reason and the offset. Nothing after the damage is read: without packets it is unknown where the next
message starts, and a wrong guess would be shown as right.

The package `wire` knows how messages are framed; it passes a `Framing`.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from types import TracebackType
from typing import BinaryIO, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from ..buffers import Pool
from ..errors import CaptureError
from .capture import BATCH_PACKETS, BUFFER_BYTES, OVERFLOW_FLOW, Flow, PacketBatch
from .compression import decompressor
from .damage import Damage
from .input_file import open_input

Int64Column = NDArray[np.int64]


class Framing(Protocol):
    """How a stream is divided into units (a header and its message)."""

    name: str
    max_unit_bytes: int  # maximum size of a unit

    def matches(self, head: NDArray[np.uint8]) -> bool: ...

    def parse_units(
        self, buffer: NDArray[np.uint8], position: int, max_units: int
    ) -> tuple[Int64Column, Int64Column, int, int, str]:
        """Starts, ends, where it stopped, the minimum size of the unit there, and what is wrong with it."""
        ...


class RawStream:
    """An open raw file; iterate once over its batches, in which each unit is a packet. Created by `open_raw_stream`."""

    def __init__(
        self, source: str | os.PathLike[str] | BinaryIO, framing: Framing, batch_packets: int, buffer_bytes: int
    ) -> None:
        self.warnings: list[Damage] = []
        self.flows: list[Flow] = [OVERFLOW_FLOW]  # a raw file has no addresses: everything is one flow
        self._framing = framing
        self._capacity = max(batch_packets, 1)
        self._buffer_bytes = max(buffer_bytes, framing.max_unit_bytes)  # so that any unit fits
        self._pool = Pool(max_buffers=3)
        self._is_exhausted = False
        self._owns_file = isinstance(source, str | os.PathLike)
        self._open(source)
        try:
            self._read_first_buffer()
        except BaseException:
            self.close()
            raise

    def _open(self, source: str | os.PathLike[str] | BinaryIO) -> None:
        if not isinstance(source, str | os.PathLike):
            self.path = str(getattr(source, "name", "the stream"))
            # Only what compression needs: a file with `peek`.
            self._file = cast(io.BufferedReader, source if hasattr(source, "peek") else io.BufferedReader(source))  # type: ignore[type-var]
        else:
            self.path = os.fspath(source)
            self._file = open_input(source)
        self._caller_file = None if self._owns_file else source

    def _read_first_buffer(self) -> None:
        """Read the first chunk and check that it matches the framing."""
        try:
            self._source = decompressor(self._file, self._file.peek(4)[:4])
        except OSError as error:
            raise CaptureError(
                f"cannot read {self.path}: {error.strerror or error}", "check the path and its permissions"
            ) from None
        self._offset = 0  # of the chunk in the (decompressed) file
        self._position = 0  # in the chunk
        self._filled = 0
        self._buffer = self._pool.acquire(self._buffer_bytes).array[: self._buffer_bytes]
        self._fill(0)
        head = self._buffer[: self._filled]
        if not len(head) and not self._source.damage:
            raise CaptureError(f"{self.path} is empty", "check that it was written and closed")
        if not self._framing.matches(head):
            start = head[:16].tobytes().hex(" ")
            why = self._source.damage or f"it starts with {start}"
            raise CaptureError(
                f"{self.path} is not a raw stream of {self._framing.name} ({why})",
                "supported: captures (pcap, pcapng) and raw streams, plain or compressed with gzip or zstd",
            )

    def __enter__(self) -> RawStream:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, unless it was passed open."""
        self._is_exhausted = True
        self._position = self._filled = 0
        if self._owns_file:
            self._file.close()
        elif self._file is not self._caller_file and not self._file.closed:
            self._file.detach()

    def __iter__(self) -> Iterator[PacketBatch]:
        number = 1
        while True:
            buffer = self._buffer[: self._filled]
            start, end, position, needed, reason = self._framing.parse_units(buffer, self._position, self._capacity)
            self._position = position
            if len(start):
                yield self._batch(buffer, start, end, number)
                number += len(start)
            if reason:
                del buffer, start, end
                self._report_damage(position, f"{reason}; nothing behind it is read", self._unread(position))
                return
            if len(start) == self._capacity:
                continue
            del buffer, start, end  # released: the chunk is reused once the caller drops the batch
            if not self._refill():
                self._warn_if_truncated(needed)
                return

    def _batch(self, buffer: NDArray[np.uint8], start: Int64Column, end: Int64Column, number: int) -> PacketBatch:
        count = len(start)
        times, numbers = np.zeros(count, np.int64), np.arange(number, number + count, dtype=np.int64)
        flow = np.zeros(count, np.uint16)
        return PacketBatch(buffer, start, end, times, numbers, self._offset + start, flow, self.flows)

    def _refill(self) -> bool:
        """Load the next chunk, after the start of a unit that was split; False at the end."""
        if self._is_exhausted:
            return False
        carried = self._filled - self._position
        buffer = self._pool.acquire(self._buffer_bytes).array[: self._buffer_bytes]
        buffer[:carried] = self._buffer[self._position : self._filled]
        self._offset += self._position
        self._position, self._buffer = 0, buffer
        self._fill(carried)
        return self._filled > carried

    def _fill(self, at: int) -> None:
        view = self._buffer.data
        while at < len(self._buffer):
            count = self._source.readinto(view[at:])
            if count == 0:
                self._is_exhausted = True
                break
            at += count
        self._filled = at

    def _warn_if_truncated(self, needed: int) -> None:
        left = self._filled - self._position
        if self._source.damage:
            self._report_damage(self._position, self._source.damage, left)
        elif left:
            self._report_damage(
                self._position, f"the file ends inside a message, after {left} of at least {needed} bytes", left
            )

    def _report_damage(self, position: int, reason: str, unread_bytes: int) -> None:
        self.warnings.append(Damage(self.path, self._offset + position, reason, unread_bytes))

    def _unread(self, position: int) -> int:
        """How many bytes follow a position: the rest is read and ignored."""
        count = self._filled - position
        while not self._is_exhausted and (
            got := self._source.readinto(self._pool.acquire(self._buffer_bytes).array.data)
        ):
            count += got
        return count


def open_raw_stream(
    source: str | os.PathLike[str] | BinaryIO,
    framing: Framing,
    *,
    batch_packets: int = BATCH_PACKETS,
    buffer_bytes: int = BUFFER_BYTES,
) -> RawStream:
    """Open a raw file (plain, gzip or zstd, whatever its name), or use one that is already open.

    A file whose first headers do not match is a CaptureError. A batch has at most `batch_packets` units, and never more
    than fit in a buffer of `buffer_bytes` of the file.
    """
    return RawStream(source, framing, batch_packets, buffer_bytes)
