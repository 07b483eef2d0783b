"""Captures as if they came live: which lines they have, and their packets in order of time, at any speed.

lines = captured_lines(paths, templates)       # (group, port) → FeedLine
for packets in replayed_packets(paths, lines): # in order of receive time
    pacer.wait_until(packets.ts_ns[0])
    client.receive(packets)                    # or a sender of UDP
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np

from umdf.errors import CaptureError
from umdf.feed.feed_lines import PROTOCOLS, STREAMS, ChannelKey, FeedLine
from umdf.sync.stream_detection import DetectedStream, StreamSurvey
from umdf.transport.capture import PacketBatch, open_capture
from umdf.transport.capture_merge import Window, merged_windows
from umdf.transport.channels_file import LINES, LOOPBACK, ChannelAddresses, LineAddress
from umdf.transport.udp_receiver import ReceivedPackets
from umdf.transport.udp_sender import UdpDestination, UdpSender
from umdf.wire.fast.templates import TemplateSet

Group = tuple[str, int]  # address and port
PROTOCOL_NAMES = {protocol: name for name, protocol in PROTOCOLS.items()}
STREAM_NAMES = {kind: name for name, kind in STREAMS.items()}


def captured_lines(paths: Sequence[Path], templates: TemplateSet) -> dict[Group, FeedLine]:
    """The lines of captures, from their content; lines of a stream are named in order of their addresses."""
    survey = StreamSurvey(templates)
    for path in paths:
        with open_capture(path) as capture:
            for batch in capture:
                survey.add(batch, _groups(batch))
    lines: dict[Group, FeedLine] = {}
    streams: defaultdict[tuple[ChannelKey, str], list[DetectedStream]] = defaultdict(list)
    for stream in survey.streams():
        # FAST packets do not state their channel: without definitions that do, it is a number of our own.
        key = ChannelKey(PROTOCOL_NAMES[stream.protocol], abs(stream.channel))
        streams[key, STREAM_NAMES[stream.kind]].append(stream)
    for (channel, name), found in streams.items():
        if len(found) > len(LINES):
            raise CaptureError(
                f"channel {channel} has {len(found)} {name} streams", "pass captures of one day and site"
            )
        for line, stream in zip(LINES, sorted(found, key=lambda each: str(each.name)), strict=False):
            assert isinstance(stream.name, tuple)
            lines[stream.name] = FeedLine(channel, name, line)
    return lines


def loopback_channels(lines: Mapping[Group, FeedLine], first_port: int) -> list[ChannelAddresses]:
    """A channels file for captures: each line has a port of its own on the loopback interface."""
    channels: defaultdict[ChannelKey, defaultdict[str, list[LineAddress]]] = defaultdict(lambda: defaultdict(list))
    for port, line in enumerate(sorted(lines.values(), key=str), first_port):
        channels[line.channel][line.stream].append(LineAddress(line.line, LOOPBACK, port))
    return [
        ChannelAddresses(key.number, key.protocol, {name: tuple(found) for name, found in streams.items()})
        for key, streams in sorted(channels.items())
    ]


def replayed_packets(
    paths: Sequence[Path], lines: Mapping[Group, FeedLine], warnings: list[str], max_rows: int = 4096
) -> Iterator[ReceivedPackets]:
    """The packets of these lines, in order of receive time over all files."""
    names: list[Hashable] = list(dict.fromkeys(lines.values()))
    numbers = {group: names.index(line) for group, line in lines.items()}
    for window, _ in merged_windows(paths, warnings):
        packets = _merged(window, numbers, names)
        for first in range(0, len(packets), max_rows):
            yield packets.take(slice(first, first + max_rows))


def _merged(window: Window, numbers: Mapping[Group, int], names: list[Hashable]) -> ReceivedPackets:
    buffers, columns, shift = [], [], 0
    for batch, rows in window:
        flow = np.array([numbers.get((each.dest, each.dest_port), -1) for each in batch.flows], np.int64)
        rows = rows[flow[batch.flow[rows]] >= 0]
        columns.append((batch.start[rows] + shift, batch.end[rows] + shift, batch.ts_ns[rows], flow[batch.flow[rows]]))
        buffers.append(batch.buffer)
        shift += len(batch.buffer)
    start, end, ts_ns, flow = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    order = np.argsort(ts_ns, kind="stable")
    buffer = np.concatenate(buffers) if len(buffers) > 1 else buffers[0]
    return ReceivedPackets(buffer, start[order], end[order], ts_ns[order], flow[order].astype(np.uint16), names)


def _groups(batch: PacketBatch) -> list[Hashable]:
    return [(flow.dest, flow.dest_port) for flow in batch.flows]


class Pacer:
    """When each packet is due: at the pace of their times, `speed` times as fast; 0: at once."""

    def __init__(self, speed: float, now_ns: Callable[[], int], sleep_s: Callable[[float], None]) -> None:
        self._speed, self._now_ns, self._sleep_s = speed, now_ns, sleep_s
        self._start_ns = self._first_ns = 0

    def due_rows(self, packets: ReceivedPackets) -> Iterator[slice]:
        """Runs of packets, each when it is due; a packet is never early."""
        if not self._speed:
            yield slice(0, len(packets))
            return
        if not self._start_ns and len(packets):
            self._start_ns, self._first_ns = self._now_ns(), int(packets.ts_ns[0])
        due_ns = self._start_ns + ((packets.ts_ns - self._first_ns) / self._speed).astype(np.int64)
        first = 0
        while first < len(packets):
            now_ns = self._now_ns()
            until = first + int(np.searchsorted(due_ns[first:], now_ns, side="right"))
            if until == first:
                self._sleep_s((int(due_ns[first]) - now_ns) / 1e9)
                continue
            yield slice(first, until)
            first = until


def paced_packets(packets: Iterator[ReceivedPackets], pacer: Pacer) -> Iterator[ReceivedPackets]:
    for batch in packets:
        for rows in pacer.due_rows(batch):
            yield batch.take(rows)


class UdpReplay:
    """Sends packets to the addresses of their lines: unicast, or multicast that does not leave this machine."""

    def __init__(self, lines: Mapping[FeedLine, LineAddress]) -> None:
        self._senders: dict[Hashable, UdpSender] = {
            line: UdpSender(UdpDestination(where.address, where.port, where.interface)) for line, where in lines.items()
        }

    def __enter__(self) -> UdpReplay:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for sender in self._senders.values():
            sender.close()

    @property
    def packets(self) -> int:
        return sum(sender.sent + sender.dropped for sender in self._senders.values())

    def send(self, packets: ReceivedPackets) -> None:
        """Each line in its order; those without an address are left out. Where nobody listens, packets are lost."""
        for number in np.unique(packets.flow).tolist():
            sender = self._senders.get(packets.names[number])
            if sender is not None:
                rows = packets.flow == number
                sender.send(packets.buffer, packets.start[rows], packets.end[rows])
