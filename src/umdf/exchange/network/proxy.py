"""A network with faults between any exchange and any client: it receives every line, and sends it on with faults.

    with FaultyProxy(channels, replayers, faults, settings) as proxy:
        format_channels(proxy.channels, proxy.replayers)    # the channels file of the client
        proxy.run(stop)

Lines stay lines: a packet that an exchange has not sent on line B does not come on it. Connections to a replayer are
relayed. Nothing is sent beyond this machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.network.faults import Faults
from umdf.exchange.network.faulty_lines import CommonLoss, FaultyLines, StreamName
from umdf.exchange.network.faulty_replayer import FaultyReplayer
from umdf.exchange.publish.channel_settings import FAST
from umdf.exchange.publish.sinks import Packets, UdpSink
from umdf.transport.channels_file import LOOPBACK, ChannelAddresses, LineAddress, ReplayerAddresses
from umdf.transport.tcp import Address, Connection, TcpLoop
from umdf.transport.udp_receiver import ReceivedPackets, UdpReceiver
from umdf.transport.udp_sender import UdpDestination, UdpSender

POLL_S = 0.005
MAX_RELAYED_BYTES = 16 << 20  # that wait for a peer which does not read
SEQUENCE_AT = {FAST: (0, ">u4")}  # in the technical header; Binary:
SBE_SEQUENCE_AT = 4, "<u4"
LineName = tuple[int, str, str, str]  # channel, protocol, stream, line


@dataclass(frozen=True)
class ProxySettings:
    first_port: int = 25_001  # of the lines and replayers that the client gets
    seed: int = 1


class FaultyProxy:
    def __init__(
        self,
        channels: Sequence[ChannelAddresses],
        replayers: Mapping[str, ReplayerAddresses],
        faults: Faults,
        settings: ProxySettings | None = None,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._faults, self._now_ns, settings = faults, now_ns, settings or ProxySettings()
        self._seed, self._start_ns, port = settings.seed, now_ns(), settings.first_port
        self._receiver, self._loop, self._relayed = UdpReceiver(), TcpLoop(clock_ns=now_ns), 0
        self._lines: dict[LineName, FaultyLines] = {}
        self.channels: list[ChannelAddresses] = []
        self.replayers: dict[str, ReplayerAddresses] = {}
        try:
            for channel in channels:
                streams: dict[str, tuple[LineAddress, ...]] = {}
                for stream, lines in channel.streams.items():
                    common = CommonLoss(self._random(channel.number, len(self._lines)), faults)
                    streams[stream] = tuple(
                        self._open_line(channel, stream, line, port + at, common) for at, line in enumerate(lines)
                    )
                    port += len(lines)
                self.channels.append(replace(channel, streams=streams))
            for name, replayer in replayers.items():
                found = [self._relay_to(address, port + at) for at, address in enumerate(replayer.addresses)]
                self.replayers[name] = replace(replayer, addresses=tuple(found))
                port += len(found)
        except BaseException:
            self.close()
            raise

    def _random(self, *parts: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, *parts])

    def _open_line(
        self, channel: ChannelAddresses, stream: str, line: LineAddress, port: int, common: CommonLoss
    ) -> LineAddress:
        key = channel.number, channel.protocol, stream, line.line
        sink = UdpSink(UdpSender(UdpDestination(LOOPBACK, port)))
        name = StreamName(channel.protocol, stream, self._start_ns)
        random = self._random(channel.number, 1_000 + len(self._lines))
        self._lines[key] = FaultyLines({line.line: sink}, random, self._faults, stream=name, common=common)
        self._receiver.join(key, line)
        return LineAddress(line.line, LOOPBACK, port)

    def _relay_to(self, replayer: Address, port: int) -> Address:
        def relay() -> Connection:
            client, server = _Relay(), _Relay()
            client.other, server.other = server, client
            self._relayed += 1
            self._loop.connect(replayer, server)
            return FaultyReplayer(client, self._random(0, self._relayed), self._faults, self._start_ns)

        return self._loop.listen((LOOPBACK, port), relay)

    def __enter__(self) -> FaultyProxy:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def packets(self) -> int:
        """Received so far."""
        return sum(counts.packets for counts in self._receiver.counts().values())

    def run(self, stop: Event, seconds: float | None = None) -> None:
        until_ns = None if seconds is None else self._now_ns() + round(seconds * 1e9)
        while not stop.is_set() and (until_ns is None or self._now_ns() < until_ns):
            self.poll(POLL_S)

    def poll(self, timeout_s: float) -> None:
        """Pass on what has come by now."""
        for packets in self._receiver.take(timeout_s):
            for number in np.unique(packets.flow).tolist():
                name = packets.names[number]
                assert isinstance(name, tuple)
                self._lines[name].write(_packets_of(packets.take(packets.flow == number), name[1]))
        now_ns = self._now_ns()
        for line in self._lines.values():
            line.advance(now_ns)
        self._loop.poll(0)

    def close(self) -> None:
        self._receiver.close()
        for line in self._lines.values():
            line.close()
        self._loop.close()


def _packets_of(packets: ReceivedPackets, protocol: str) -> Packets:
    sequence = _sequences(packets, *SEQUENCE_AT.get(protocol, SBE_SEQUENCE_AT))
    return Packets(packets.buffer, packets.start, packets.end, packets.ts_ns, sequence, sequence)


def _sequences(packets: ReceivedPackets, at: int, kind: str) -> NDArray[np.int64]:
    """The number in the header of each packet; 0 if it is too short to have one."""
    has_header = packets.end - packets.start >= at + 4
    where = np.where(has_header, packets.start + at, 0)[:, None] + np.arange(4)
    if len(packets.buffer) < 4:
        return np.zeros(len(packets), np.int64)
    numbers = np.ascontiguousarray(packets.buffer[where]).view(kind)[:, 0].astype(np.int64)
    return np.where(has_header, numbers, 0)


class _Relay:
    """One end of a relayed connection: what it receives, the other end sends."""

    other: _Relay

    def __init__(self) -> None:
        self._output, self.is_closed, self.has_work = bytearray(), False, False

    def receive(self, data: bytes, now_ns: int) -> None:
        self.other._output += data
        if len(self.other._output) > MAX_RELAYED_BYTES:
            self.close("the other end does not read")

    def tick(self, now_ns: int) -> None:
        pass

    def take_output(self, now_ns: int) -> bytes:
        data = bytes(self._output)
        self._output.clear()
        return data

    def close(self, reason: str) -> None:
        self.is_closed = self.other.is_closed = True
