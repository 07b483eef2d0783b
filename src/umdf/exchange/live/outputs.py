"""Where an exchange publishes: captures on disk, and whatever else is given (UDP), for each line of each stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from umdf.errors import ConfigError
from umdf.exchange.bulk.settings import SECOND_NS
from umdf.exchange.live.settings import ExchangeSettings
from umdf.exchange.network.faulty_lines import FaultyLines, StreamName
from umdf.exchange.publish.channel_settings import FAST, STREAMS, ChannelSettings
from umdf.exchange.publish.sinks import Sink, TeeSink, UdpSink
from umdf.transport.channels_file import ChannelAddresses, LineAddress
from umdf.transport.rolling_captures import Flow, Manifest, RollingFiles
from umdf.transport.udp_sender import UdpDestination, UdpSender

# Channel, stream, line; None: it takes nothing of that line.
OpenLine = Callable[[ChannelAddresses, str, LineAddress], Sink | None]
SOURCE = "127.0.0.1"
SOURCE_PORT_OFFSET = 20_000
ROLL_BYTES, ROLL_S = 256 << 20, 3_600


class Captures:
    """Rolling capture files with a manifest, in a directory that has none yet."""

    def __init__(self, directory: Path, roll_bytes: int = ROLL_BYTES, roll_s: int = ROLL_S) -> None:
        if directory.exists() and any(directory.iterdir()):
            raise ConfigError(f"{directory} is not empty", "use a new directory, or delete it first")
        self.manifest, self._roll = Manifest(directory), (roll_bytes, roll_s * SECOND_NS)

    def open_line(self, channel: ChannelAddresses, stream: str, line: LineAddress) -> Sink:
        self.manifest.directory.mkdir(
            parents=True, exist_ok=True
        )  # not before: an exchange that cannot start leaves none
        dest = line.address, line.port
        source = SOURCE, max(line.port - SOURCE_PORT_OFFSET, 1)
        flow = Flow(channel.protocol, channel.number, stream, line.line, source, dest)
        return RollingFiles(self.manifest, flow, *self._roll)


def udp_lines(ttl: int) -> OpenLine:
    """Opens a socket for each line."""

    def open_line(channel: ChannelAddresses, stream: str, line: LineAddress) -> Sink:
        return UdpSink(UdpSender(UdpDestination(line.address, line.port, line.interface, ttl)))

    return open_line


def sinks_of(
    settings: ExchangeSettings, openers: Sequence[OpenLine], behind_faults: Sequence[OpenLine] = ()
) -> Callable[[ChannelSettings], Mapping[str, Sink]]:
    """How the exchange opens the sinks of a channel: one of each kind, for each line of each stream. `behind_faults`
    are those of a network with faults, if the exchange has any."""
    faults = settings.faults
    behind = behind_faults if faults is not None else ()
    direct = [*(behind_faults if faults is None else ()), *openers]
    addresses = {(channel.number, channel.protocol): channel for channel in settings.addresses}

    def open_sinks(channel: ChannelSettings) -> Mapping[str, Sink]:
        of_channel = addresses[channel.channel, channel.protocol]

        def tee(stream: str, lines: Sequence[LineAddress], own: Sequence[OpenLine]) -> TeeSink:
            opened = (opener(of_channel, stream, line) for line in lines for opener in own)
            return TeeSink([sink for sink in opened if sink is not None])

        def stream_sink(stream: str, lines: Sequence[LineAddress]) -> Sink:
            if faults is None or not behind:
                return tee(stream, lines, direct)
            own = [settings.seed, 3, channel.channel, int(channel.protocol == FAST), STREAMS.index(stream)]
            name = StreamName(channel.protocol, stream, settings.start_ns)
            received = {line.line: tee(stream, [line], behind) for line in lines}
            faulty = FaultyLines(received, np.random.default_rng(own), faults, stream=name)
            return TeeSink([tee(stream, lines, direct), faulty])

        return {stream: stream_sink(stream, lines) for stream, lines in of_channel.streams.items()}

    return open_sinks
