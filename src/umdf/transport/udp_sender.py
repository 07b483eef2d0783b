"""Sends UDP datagrams: many in one call of the operating system where it can (sendmmsg), else one by one.

Unicast, or multicast with an interface and a TTL. By default nothing leaves this machine: loopback, TTL 0.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address

import numpy as np
from numpy.typing import NDArray

from umdf.errors import ConfigError
from umdf.transport import udp_sender_kernel as u

LOOPBACK = "127.0.0.1"
SEND_BUFFER_BYTES = 4 << 20
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class UdpDestination:
    """Where datagrams go; the interface and the TTL matter for multicast."""

    address: str
    port: int
    interface: str = LOOPBACK
    ttl: int = 0

    def __post_init__(self) -> None:
        for name in (self.address, self.interface):
            try:
                IPv4Address(name)
            except AddressValueError:
                raise ConfigError(f"not an IPv4 address: {name}", "use four numbers, such as 127.0.0.1") from None
        if not 1 <= self.port <= 65_535:
            raise ConfigError(f"port out of range: {self.port}", "use 1 to 65535")
        if not 0 <= self.ttl <= 255:
            raise ConfigError(f"multicast TTL out of range: {self.ttl}", "use 0 to 255; 0 stays on this machine")


class UdpSender:
    """A socket that sends to one destination. Datagrams that the system does not take are counted in `dropped`."""

    def __init__(self, destination: UdpDestination, uses_batches: bool = sys.platform == "linux") -> None:
        self.destination, self.sent, self.dropped = destination, 0, 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._send: Callable[[NDArray[np.uint8], Numbers, Numbers], int] = self._send_each
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            if IPv4Address(destination.address).is_multicast:
                interface = socket.inet_aton(destination.interface)
                self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)
                self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, destination.ttl)
                self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            self._socket.connect((destination.address, destination.port))
        except OSError as error:
            self._socket.close()
            hint = "check the interface with `ip address`"
            raise ConfigError(
                f"cannot send to {destination.address}:{destination.port}: {error.strerror}", hint
            ) from None
        if uses_batches:
            self._messages = np.zeros((u.BATCH, u.MESSAGE_BYTES // 8), np.int64)
            self._vectors = np.zeros((u.BATCH, 2), np.int64)
            self._table = np.zeros(u.ARGUMENT_COUNT, np.int64)
            self._table[u.U_SOCKET] = self._socket.fileno()
            self._table[u.U_MESSAGES], self._table[u.U_VECTORS] = self._messages.ctypes.data, self._vectors.ctypes.data
            u.prepare(self._table.ctypes.data)
            self._send = self._send_batches

    def send(self, buffer: NDArray[np.uint8], start: Numbers, end: Numbers) -> int:
        """Send a datagram for each range of a buffer; how many were taken."""
        # While nobody listened, ICMP has left an error, which would cost the first datagram to somebody who does now.
        self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        taken = self._send(buffer, start, end)
        self.sent += taken
        self.dropped += len(start) - taken
        return taken

    def _send_batches(self, buffer: NDArray[np.uint8], start: Numbers, end: Numbers) -> int:
        start, end = np.ascontiguousarray(start, np.int64), np.ascontiguousarray(end, np.int64)
        table = self._table
        table[u.U_BUFFER], table[u.U_START], table[u.U_END] = buffer.ctypes.data, start.ctypes.data, end.ctypes.data
        table[u.U_ROWS] = len(start)
        return int(u.send_datagrams(table.ctypes.data))

    def _send_each(self, buffer: NDArray[np.uint8], start: Numbers, end: Numbers) -> int:
        taken, view = 0, memoryview(buffer.data)
        for first, last in zip(start.tolist(), end.tolist(), strict=True):
            try:
                self._socket.send(view[first:last])
                taken += 1
            except OSError:  # nobody listens at the port, or the system's buffer is full: UDP loses it
                continue
        return taken

    def close(self) -> None:
        self._socket.close()
