"""The lines that a client receives: which stream of which channel each carries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from umdf.sync.stream_detection import DetectedStream, StreamKind
from umdf.transport.channels_file import ChannelAddresses, LineAddress
from umdf.wire.packet import Protocol

PROTOCOLS = {"sbe": Protocol.SBE, "fast": Protocol.FAST}
STREAMS = {
    "incremental": StreamKind.INCREMENTAL,
    "snapshot": StreamKind.SNAPSHOT,
    "instruments": StreamKind.INSTRUMENTS,
}
RECOVERED_LINE = "R"  # what a recovery source returns is one more line


class ChannelKey(NamedTuple):
    """A channel of the exchange: the same number may be published in both protocols."""

    protocol: str
    number: int

    def __str__(self) -> str:
        return f"{self.number} ({self.protocol})"


@dataclass(frozen=True)
class FeedLine:
    """One line of one stream; received packets are named by it."""

    channel: ChannelKey
    stream: str
    line: str

    def __str__(self) -> str:
        return f"{self.channel.protocol} {self.channel.number} {self.stream} {self.line}"

    @property
    def kind(self) -> StreamKind:
        return STREAMS[self.stream]


def channel_key(channel: ChannelAddresses) -> ChannelKey:
    return ChannelKey(channel.protocol, channel.number)


def feed_lines(channel: ChannelAddresses) -> dict[FeedLine, LineAddress]:
    """The lines of a channel, and where each is received."""
    key = channel_key(channel)
    return {FeedLine(key, stream, address.line): address for stream, address in channel.lines()}


def session_streams(channel: ChannelAddresses) -> list[DetectedStream]:
    """The lines as a session knows them, with one for what a recovery source returns."""
    lines = [*feed_lines(channel), FeedLine(channel_key(channel), "incremental", RECOVERED_LINE)]
    protocol = PROTOCOLS[channel.protocol]
    return [
        DetectedStream(line, protocol, line.kind, channel.number, 0, is_recovered=line.line == RECOVERED_LINE)
        for line in lines
    ]
