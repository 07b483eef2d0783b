"""What a FIX/FAST channel published on its incremental stream: an append-only log of messages, with an index.

DIRECTORY/channel-072/0001.index, 0001.messages, …: a pair of files for each epoch, of which only the newest is served
(nothing before a SequenceReset, 4.2.8). Messages are kept without the technical header, whole (5.2 item 6).

An index entry is written after its message, so after a kill the log is cut behind the last entry whose message is
whole. Sequences are contiguous: the entry of a sequence is found by arithmetic, and nothing is kept in memory.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock

import numpy as np
from numpy.typing import NDArray

from umdf.errors import UmdfError

ENTRY = np.dtype(
    [("sequence", "<i8"), ("ts_ns", "<i8"), ("offset", "<i8"), ("size", "<u4"), ("crc", "<u4")]
)  # crc: of the message and the number
MAX_MISSING = 100_000  # consecutive sequences that may be absent, after an exchange was killed
Entries = NDArray[np.void]
_NAME = re.compile(r"(\d{4,})\.index")


class ChannelHistory:
    """The log of one channel. One thread may write while others read."""

    def __init__(self, directory: Path) -> None:
        self._lock = RLock()  # files are exchanged when an epoch starts
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        epochs = sorted(int(found[1]) for path in directory.iterdir() if (found := _NAME.fullmatch(path.name)))
        self.epoch = epochs[-1] if epochs else 1
        self._open()
        for epoch in epochs[:-1]:
            self._remove(epoch)

    def _paths(self, epoch: int) -> tuple[Path, Path]:
        return self._directory / f"{epoch:04}.index", self._directory / f"{epoch:04}.messages"

    def _open(self) -> None:
        index, messages = self._paths(self.epoch)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._index, self._messages = os.open(index, flags, 0o600), os.open(messages, flags, 0o600)
        count = self._cut_damaged_end(os.fstat(self._index).st_size // ENTRY.itemsize)
        ends = self._entries(0, 1), self._entries(max(count - 1, 0), 1)
        self.first = int(ends[0]["sequence"][0]) if count else 0  # 0: empty
        self.last = int(ends[1]["sequence"][0]) if count else 0
        self._bytes = int(ends[1]["offset"][0] + ends[1]["size"][0]) if count else 0

    def _cut_damaged_end(self, count: int) -> int:
        """Remove entries at the end whose message is not whole; the number of those that stay."""
        while count:
            entry = self._entries(count - 1, 1)
            if self._message(entry[0]) is not None or not entry["size"][0]:
                break
            count -= 1
        os.ftruncate(self._index, count * ENTRY.itemsize)
        last = self._entries(count - 1, 1)[0] if count else None
        os.ftruncate(self._messages, int(last["offset"] + last["size"]) if last is not None else 0)
        return count

    def _entries(self, first: int, count: int) -> Entries:
        data = os.pread(self._index, count * ENTRY.itemsize, first * ENTRY.itemsize)
        return np.frombuffer(data[: len(data) // ENTRY.itemsize * ENTRY.itemsize], ENTRY)

    def _message(self, entry: np.void) -> bytes | None:
        size = int(entry["size"])
        data = os.pread(self._messages, size, int(entry["offset"]))
        return data if size and len(data) == size and _crc(int(entry["sequence"]), data) == int(entry["crc"]) else None

    # Writing

    def append(self, messages: Iterable[tuple[int, int, bytes]]) -> None:
        """Append messages: sequence, when it was sent, and its bytes. A lower sequence starts a new epoch."""
        with self._lock:
            batch = _Batch(self.last, self._bytes)
            for sequence, ts_ns, data in messages:
                if batch.last and sequence <= batch.last:
                    self._write(batch)
                    self.start_epoch()
                    batch = _Batch(0, 0)
                if batch.last and sequence - batch.last - 1 > MAX_MISSING:
                    raise UmdfError(
                        f"sequence {sequence} is far beyond the history, which ends at {batch.last}: {self._directory}",
                        "use another directory, or reset the channel",
                    )
                batch.add(sequence, ts_ns, data)
            self._write(batch)

    def _write(self, batch: _Batch) -> None:
        if not batch.entries:
            return
        sizes = os.fstat(self._messages).st_size, os.fstat(self._index).st_size
        try:
            _write_all(self._messages, b"".join(batch.parts))
            _write_all(self._index, np.array(batch.entries, ENTRY).tobytes())
        except OSError as error:
            os.ftruncate(self._messages, sizes[0])
            os.ftruncate(self._index, sizes[1])
            reason = f"the replayer's history cannot be written: {self._directory}: {error.strerror}"
            raise UmdfError(reason, "free space, and start the exchange again") from error
        self.first, self.last, self._bytes = self.first or batch.entries[0][0], batch.last, batch.bytes

    def start_epoch(self) -> None:
        """Begin again: nothing before is served from now on."""
        with self._lock:
            old = self.epoch
            self.close()
            self.epoch += 1
            self._open()
            self._remove(old)

    def _remove(self, epoch: int) -> None:
        for path in self._paths(epoch):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        os.close(self._index)
        os.close(self._messages)

    # Reading

    def entries(self, first: int, last: int) -> Entries:
        """The index entries of those sequences that the log has."""
        with self._lock:
            first, last = max(first, self.first), min(last, self.last)
            is_empty = not self.last or first > last
            return np.empty(0, ENTRY) if is_empty else self._entries(first - self.first, last - first + 1)

    def read(self, entries: Entries) -> list[tuple[int, bytes]]:
        """The messages of consecutive entries, with their sequences; damaged ones are left out."""
        if not len(entries):
            return []
        begin, end = int(entries["offset"][0]), int(entries["offset"][-1] + entries["size"][-1])
        with self._lock:
            data = os.pread(self._messages, end - begin, begin)
        rows = zip(*(entries[name].tolist() for name in ("sequence", "offset", "size", "crc")), strict=True)
        found = ((sequence, data[at - begin : at - begin + size], crc) for sequence, at, size, crc in rows if size)
        return [(sequence, part) for sequence, part, crc in found if _crc(sequence, part) == crc]

    def first_since(self, ts_ns: int) -> int:
        """The first sequence sent at or after a time; behind the last if there is none."""
        with self._lock:
            low, high = 0, self.last - self.first + 1 if self.last else 0
            while low < high:
                middle = (low + high) // 2
                if int(self._entries(middle, 1)["ts_ns"][0]) < ts_ns:
                    low = middle + 1
                else:
                    high = middle
            return self.first + low


@dataclass
class _Batch:
    """Messages to be written, behind the last sequence and the bytes that are written."""

    last: int
    bytes: int
    entries: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    parts: list[bytes] = field(default_factory=list)

    def add(self, sequence: int, ts_ns: int, data: bytes) -> None:
        if self.last:  # never sent by this process: an answer names them as not available
            self.entries += [(missing, ts_ns, self.bytes, 0, 0) for missing in range(self.last + 1, sequence)]
        self.entries.append((sequence, ts_ns, self.bytes, len(data), _crc(sequence, data)))
        self.parts.append(data)
        self.last, self.bytes = sequence, self.bytes + len(data)


def _crc(sequence: int, data: bytes) -> int:
    return zlib.crc32(data, sequence & 0xFFFFFFFF)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
