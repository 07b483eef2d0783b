"""Sends packets to the addresses of their lines: unicast, or multicast that does not leave this machine."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from ..errors import ConfigError
from .channels_file import LineAddress
from .udp_receiver import ReceivedPackets

BUFFER_BYTES = 4 << 20


class ReplaySender:
    def __init__(self, lines: Mapping[Any, LineAddress], ttl: int = 0) -> None:
        """`ttl`: how many networks multicast may cross; 0 stays on this machine."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
        self._targets = {name: (line.address, line.port) for name, line in lines.items()}
        interfaces = {line.interface for line in lines.values() if line.is_multicast}
        if len(interfaces) > 1:
            raise ConfigError(f"multicast lines are on {len(interfaces)} interfaces", "use one for a replay")
        for interface in interfaces:
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(interface))
        self.packets = 0

    def __enter__(self) -> ReplaySender:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def send(self, packets: ReceivedPackets) -> None:
        """Send packets in their order; those of lines without an address are left out."""
        targets = [self._targets.get(name) for name in packets.names]
        data, send = packets.buffer.data, self._socket.sendto
        flows = packets.flow.tolist()
        try:
            for flow, start, end in zip(flows, packets.start.tolist(), packets.end.tolist(), strict=True):
                target = targets[flow]
                if target is not None:
                    send(data[start:end], target)
                    self.packets += 1
        except OSError as error:
            raise ConfigError(
                f"cannot send to {target}: {error.strerror}", "check the addresses in --channels"
            ) from None

    def close(self) -> None:
        self._socket.close()
