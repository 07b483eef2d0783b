"""Records everything that a client receives, as rolling captures that `umdf stream` can follow while they grow."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from umdf.errors import CaptureError
from umdf.feed.feed_lines import FeedLine
from umdf.transport.channels_file import LineAddress
from umdf.transport.rolling_captures import Flow, Manifest, RollingFiles, close_unfinished, lock_recording
from umdf.transport.udp_receiver import ReceivedPackets

UNKNOWN_SOURCE = ("0.0.0.0", 0)  # the receiver does not request source addresses from the kernel
FLUSH_NS = 1_000_000_000


@dataclass(frozen=True)
class RecorderSettings:
    roll_bytes: int = 256 << 20
    roll_s: int = 300


class Recorder:
    """Not to be used after it has failed: the failure stays in `failure`."""

    def __init__(
        self, directory: Path, addresses: Mapping[FeedLine, LineAddress], settings: RecorderSettings | None = None
    ) -> None:
        settings = settings or RecorderSettings()
        self.directory, self.failure = directory, ""
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = lock_recording(directory)
        except OSError as error:
            raise CaptureError(f"cannot record to {directory}: {error.strerror}", "check --record") from None
        self.manifest = Manifest(directory)
        self.closed_for_others = close_unfinished(self.manifest)
        roll_ns = settings.roll_s * 1_000_000_000
        self._files: dict[Hashable, RollingFiles] = {}
        for line, where in addresses.items():
            flow = Flow(
                line.channel.protocol,
                line.channel.number,
                line.stream,
                line.line,
                UNKNOWN_SOURCE,
                (where.address, where.port),
            )
            self._files[line] = RollingFiles(self.manifest, flow, settings.roll_bytes, roll_ns)
        self._flush_due_ns = 0

    def write(self, packets: ReceivedPackets) -> None:
        for number in np.unique(packets.flow).tolist():
            files = self._files.get(packets.names[number])
            if files is not None:
                files.write(packets.take(np.flatnonzero(packets.flow == number)))

    def advance(self, now_ns: int) -> None:
        """Close files whose time is over, and write what is buffered once a second."""
        for files in self._files.values():
            files.advance(now_ns)
        if now_ns >= self._flush_due_ns:
            self._flush_due_ns = now_ns + FLUSH_NS
            for files in self._files.values():
                files.flush()

    def fail(self, reason: str) -> None:
        """Nothing more is written; what was written stays, and the next recorder closes it."""
        self.failure = reason
        os.close(self._lock)

    def close(self) -> None:
        if not self.failure:
            for files in self._files.values():
                files.close()
            self.fail("closed")
