"""Rolling captures of a recording: a series of files for each line of each stream, listed in a manifest when closed.

A file is named after the time of its first packet, so that names sort by time; while it grows it has the suffix
`.part`. It is listed in the manifest when it is closed, and only then. What a killed recorder left open is closed by
the next one in that directory (`close_unfinished`).
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import CaptureError
from ..units import fix_timestamp
from .capture import open_capture
from .pcap_writer import Endpoint, PcapWriter
from .recording import MANIFEST

PART_SUFFIX = ".part"
LOCK = ".recorder.lock"
FRAME_OVERHEAD_BYTES = 16 + 42  # record, Ethernet, IPv4 and UDP headers
RECORD_HEADER_BYTES = 16


class TimedPackets(Protocol):
    """What a series needs of packets: their bytes and times."""

    @property
    def buffer(self) -> NDArray[np.uint8]: ...
    @property
    def start(self) -> NDArray[np.int64]: ...
    @property
    def end(self) -> NDArray[np.int64]: ...
    @property
    def ts_ns(self) -> NDArray[np.int64]: ...


@dataclass(frozen=True)
class ManifestEntry:
    """A line of the manifest."""

    file: str
    protocol: str
    channel: int
    stream: str
    line: str
    closed: bool
    first_ns: int
    last_ns: int
    packets: int
    bytes: int


@dataclass
class Totals:
    files: int = 0
    packets: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Flow:
    """The content, source and destination of one series of rolling files."""

    protocol: str
    channel: int
    stream: str
    line: str
    source: Endpoint
    dest: Endpoint


@dataclass
class Manifest:
    """The list of closed files; several threads may add to it."""

    directory: Path
    totals: Totals = field(default_factory=Totals)
    _lock: Lock = field(default_factory=Lock)

    def add(self, entry: ManifestEntry) -> None:
        with self._lock, (self.directory / MANIFEST).open("a") as file:
            file.write(json.dumps(asdict(entry)) + "\n")
            self.totals.files += 1
            self.totals.packets += entry.packets
            self.totals.bytes += entry.bytes


class RollingFiles:
    """The rolling files of one flow: a sink."""

    def __init__(self, manifest: Manifest, flow: Flow, roll_bytes: int, roll_ns: int) -> None:
        self._manifest, self.flow, self._roll_bytes, self._roll_ns = manifest, flow, roll_bytes, roll_ns
        self._writer: PcapWriter | None = None
        self._path = Path()
        self._first_ns = self._last_ns = self._packets = self._bytes = 0

    def write(self, packets: TimedPackets) -> None:
        """Write packets in order of time. Files roll between packets."""
        start, end, ts_ns, first = packets.start, packets.end, packets.ts_ns, 0
        while first < len(start):
            if self._writer is None:
                self._open(int(ts_ns[first]))
            assert self._writer is not None
            size = np.cumsum(end[first:] - start[first:] + FRAME_OVERHEAD_BYTES)
            fits = np.searchsorted(size, self._roll_bytes - self._bytes, "right")
            in_window = np.searchsorted(ts_ns[first:], self._first_ns + self._roll_ns, "left")
            count = min(int(fits), int(in_window))
            if count == 0 and self._packets == 0:
                count = 1  # a file has at least one packet
            if count:
                last = first + count
                self._writer.write_batch(
                    packets.buffer, start[first:last], end[first:last], ts_ns[first:last], *self._endpoints
                )
                self._packets, self._bytes = self._packets + count, self._bytes + int(size[count - 1])
                self._last_ns, first = int(ts_ns[last - 1]), last
            if first < len(start):
                self.close()

    def advance(self, now_ns: int) -> None:
        """Close the file of a quiet stream when its time is over."""
        if self._writer is not None and now_ns - self._first_ns >= self._roll_ns:
            self.close()

    def flush(self) -> None:
        """Write what is buffered: a process that is killed loses only what came after."""
        if self._writer is not None:
            self._writer.flush()

    @property
    def _endpoints(self) -> tuple[Endpoint, Endpoint]:
        return self.flow.source, self.flow.dest

    def _open(self, first_ns: int) -> None:
        flow, timestamp = self.flow, fix_timestamp(first_ns, 9).replace(":", "")
        name = f"{timestamp}-{flow.protocol}-{flow.channel:03}-{flow.stream}-{flow.line}.pcap"
        self._path = self._manifest.directory / name
        self._writer = PcapWriter(self._path.with_name(name + PART_SUFFIX))
        self._first_ns, self._last_ns, self._packets, self._bytes = first_ns, first_ns, 0, 24

    def close(self) -> None:
        if self._writer is None:
            return
        self._writer.close()
        self._writer = None
        part_path = self._path.with_name(self._path.name + PART_SUFFIX)
        try:
            part_path.rename(self._path)
        except OSError as error:
            hint = "check that no other process writes there"
            raise CaptureError(f"cannot rename {self._path}: {error.strerror}", hint) from None
        flow = self.flow
        identity = (self._path.name, flow.protocol, flow.channel, flow.stream, flow.line, True)
        self._manifest.add(ManifestEntry(*identity, self._first_ns, self._last_ns, self._packets, self._bytes))


def lock_recording(directory: Path) -> int:
    """Claim a directory for this process, as long as the returned file is open."""
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise CaptureError(f"{directory} is being recorded by another process", "use another directory") from None
    return descriptor


def close_unfinished(manifest: Manifest) -> list[Path]:
    """Close and list the files that a killed recorder left open; returns them. Call it with the directory locked."""
    closed = []
    for part in sorted(manifest.directory.glob(f"*.pcap{PART_SUFFIX}")):
        if not part.stat().st_size:  # it was killed before anything was written
            part.unlink()
            continue
        path = part.with_name(part.name.removesuffix(PART_SUFFIX))
        first_ns = last_ns = packets = end = 0
        with open_capture(part) as capture:
            for batch in capture:
                first_ns, last_ns = first_ns or int(batch.ts_ns[0]), int(batch.ts_ns[-1])
                packets, end = packets + len(batch), int(batch.offset[-1])
        if not packets:
            part.unlink()
            continue
        with part.open("r+b") as file:  # without a record that was not written completely
            file.seek(end)
            included = struct.unpack("<8xI4x", file.read(RECORD_HEADER_BYTES))[0]
            size = end + RECORD_HEADER_BYTES + included
            file.truncate(size)
        part.rename(path)
        _, protocol, channel, stream, line = path.name.removesuffix(".pcap").rsplit("-", 4)
        identity = path.name, protocol, int(channel), stream, line, True
        manifest.add(ManifestEntry(*identity, first_ns, last_ns, packets, size))
        closed.append(path)
    return closed
