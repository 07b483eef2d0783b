"""Several capture files as one, in the order of their receive times: a file a line, rolling files, or both.

The one rule: no packet is handed on before every file that may hold an older one has been read so far.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from .capture import Capture, PacketBatch, open_capture
from .damage import told

Path = str | os.PathLike[str]
Window = list[tuple[PacketBatch, NDArray[np.int64]]]


class _Source:
    """An open file: its batch at hand, and how far that is used up."""

    def __init__(self, path: Path) -> None:
        self.capture: Capture = open_capture(path)
        self._batches = iter(self.capture)
        self.batch: PacketBatch | None = None
        self.next()

    def next(self) -> None:
        self.batch, self.done = next(self._batches, None), 0
        if self.batch is not None:
            self.times = np.maximum.accumulate(self.batch.ts_ns)

    @property
    def first_ns(self) -> int:
        return int(self.times[self.done])

    @property
    def last_ns(self) -> int:
        return int(self.times[-1])


def windows(paths: Sequence[Path], damaged: list[str]) -> Iterator[tuple[Window, int]]:
    """Packets of all files up to a time, and that time, again and again until the files end."""
    waiting = sorted(((first_ns(path), number) for number, path in enumerate(paths)), reverse=True)
    open_sources: list[_Source] = []
    while waiting or open_sources:
        # A file is opened when the others have come to its first packet.
        reached = min((source.first_ns for source in open_sources), default=None)
        while waiting and (reached is None or waiting[-1][0] <= reached):
            source = _Source(paths[waiting.pop()[1]])
            if source.batch is not None:
                open_sources.append(source)
                reached = min(source.first_ns for source in open_sources)
            else:
                _close(source, damaged)
        if not open_sources:
            continue
        now_ns = min(source.last_ns for source in open_sources)
        if waiting:
            now_ns = min(now_ns, max(waiting[-1][0] - 1, reached or 0))
        window: Window = []
        for source in list(open_sources):
            assert source.batch is not None
            until = int(np.searchsorted(source.times, now_ns, side="right"))
            if until > source.done:
                window.append((source.batch, np.arange(source.done, until)))
                source.done = until
            if until == len(source.times):
                source.next()
                if source.batch is None:
                    open_sources.remove(source)
                    _close(source, damaged)
        yield window, now_ns


def _close(source: _Source, damaged: list[str]) -> None:
    damaged += told(source.capture.warnings)
    source.capture.close()


def first_ns(path: Path) -> int:
    """The receive time of the first packet of a file; 0 if it has none."""
    with open_capture(path, batch_packets=1, chunk_bytes=1 << 16) as capture:
        for batch in capture:
            return int(batch.ts_ns[0])
    return 0
