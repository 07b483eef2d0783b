"""Several capture files as one, in order of receive time: one file per line, rolling files, or both.

Invariant: no packet is returned before every file that may have an older one has been read that far.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from .capture import Capture, PacketBatch, open_capture
from .damage import damage_messages

Path = str | os.PathLike[str]
Window = list[tuple[PacketBatch, NDArray[np.int64]]]


class _Source:
    """An open file: its current batch, and how much of it was used."""

    def __init__(self, path: Path) -> None:
        self.capture: Capture = open_capture(path)
        self._batches = iter(self.capture)
        self.batch: PacketBatch | None = None
        self.advance()

    def advance(self) -> None:
        self.batch, self.next_row = next(self._batches, None), 0
        if self.batch is not None:
            self.times = np.maximum.accumulate(self.batch.ts_ns)

    @property
    def first_ns(self) -> int:
        return int(self.times[self.next_row])

    @property
    def last_ns(self) -> int:
        return int(self.times[-1])


def merged_windows(paths: Sequence[Path], warnings: list[str]) -> Iterator[tuple[Window, int]]:
    """Packets of all files up to a time, and that time, repeatedly until the files end."""
    unopened = sorted(((first_packet_ns(path), number) for number, path in enumerate(paths)), reverse=True)
    open_sources: list[_Source] = []
    while unopened or open_sources:
        # A file is opened when the others have reached its first packet.
        reached = min((source.first_ns for source in open_sources), default=None)
        while unopened and (reached is None or unopened[-1][0] <= reached):
            source = _Source(paths[unopened.pop()[1]])
            if source.batch is not None:
                open_sources.append(source)
                reached = min(source.first_ns for source in open_sources)
            else:
                _close(source, warnings)
        if not open_sources:
            continue
        window_end_ns = min(source.last_ns for source in open_sources)
        if unopened:
            window_end_ns = min(window_end_ns, max(unopened[-1][0] - 1, reached or 0))
        window: Window = []
        for source in list(open_sources):
            assert source.batch is not None
            until = int(np.searchsorted(source.times, window_end_ns, side="right"))
            if until > source.next_row:
                window.append((source.batch, np.arange(source.next_row, until)))
                source.next_row = until
            if until == len(source.times):
                source.advance()
                if source.batch is None:
                    open_sources.remove(source)
                    _close(source, warnings)
        yield window, window_end_ns


def _close(source: _Source, warnings: list[str]) -> None:
    warnings += damage_messages(source.capture.warnings)
    source.capture.close()


def first_packet_ns(path: Path) -> int:
    """The receive time of the first packet of a file; 0 if it has none."""
    with open_capture(path, batch_packets=1, buffer_bytes=1 << 16) as capture:
        for batch in capture:
            return int(batch.ts_ns[0])
    return 0
