"""The files of a bulk capture: rolling files for each protocol, channel, stream and line, as a recorder writes them.

A file is named after the time of its first packet, so that names sort by time; while it grows it has the suffix
`.part`. It is listed in the manifest when it is closed, and only then.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock

import numpy as np

from umdf.errors import CaptureError
from umdf.exchange.publish.sinks import Packets
from umdf.transport.pcap_writer import Endpoint, PcapWriter
from umdf.units import fix_timestamp

MANIFEST = "manifest.jsonl"
PART_SUFFIX = ".part"
FRAME_OVERHEAD_BYTES = 16 + 42  # record, Ethernet, IPv4 and UDP headers


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

    def write(self, packets: Packets) -> None:
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
