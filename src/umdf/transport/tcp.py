"""TCP connections of one thread: a loop that feeds bytes and time to connections that know no socket.

    loop = TcpLoop()
    address = loop.listen(("127.0.0.1", 0), lambda: ReplayerConnection(...))
    loop.connect(("127.0.0.1", 30001), connection)
    loop.run(stop)          # or loop.poll(0.1) again and again

A connection has `receive`, `tick` and `take_output` (of small parts: a peer that reads slowly holds up only itself).
Connections, their unsent bytes and their rates are bounded.
"""

from __future__ import annotations

import errno
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event
from typing import Protocol

from umdf.errors import ConfigError, UmdfError

TICK_S = 0.1
READ_BYTES = 64 << 10
MAX_UNSENT_BYTES = 128 << 10  # beyond it no more is taken from the connection
MAX_STALL_S = 30.0  # without any progress of unsent bytes
CONNECT_TIMEOUT_S = 5.0
Address = tuple[str, int]


class Connection(Protocol):
    @property
    def is_closed(self) -> bool:
        """Whether the socket is closed once everything is sent."""
        ...

    @property
    def has_work(self) -> bool:
        """Whether `take_output` has more without any event."""
        ...

    def receive(self, data: bytes, now_ns: int) -> None: ...

    def tick(self, now_ns: int) -> None: ...

    def take_output(self, now_ns: int) -> bytes: ...

    def close(self, reason: str) -> None:
        """The socket is gone."""
        ...


@dataclass(frozen=True)
class TcpLimits:
    max_connections: int = 512
    max_bytes_per_s: int = 1 << 20  # received on one accepted connection: requests are short


@dataclass
class _Peer:
    socket: socket.socket
    connection: Connection
    is_accepted: bool
    is_connecting: bool
    progress_s: float  # when it last connected, or sent something
    unsent: bytearray = field(default_factory=bytearray)
    window_s: float = 0.0
    window_bytes: int = 0  # received since window_s


class TcpLoop:
    def __init__(self, limits: TcpLimits | None = None, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._limits, self._clock_ns = limits or TcpLimits(), clock_ns
        self._selector = selectors.DefaultSelector()
        self._listeners: list[socket.socket] = []
        self._peers: dict[socket.socket, _Peer] = {}
        self._next_tick_s = 0.0
        self._wake_end, self._woken_end = socket.socketpair()
        for end in (self._wake_end, self._woken_end):
            end.setblocking(False)
        self._selector.register(self._woken_end, selectors.EVENT_READ)
        self.refused = 0  # connections beyond the limit

    @property
    def connection_count(self) -> int:
        return len(self._peers)

    def listen(self, address: Address, factory: Callable[[], Connection]) -> Address:
        """Accept connections; the address with the port that was chosen for port 0."""
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(64)
        except OSError as error:
            listener.close()
            raise ConfigError(
                f"cannot listen on {address[0]}:{address[1]}: {error.strerror}", "use another port"
            ) from error
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, factory)
        self._listeners.append(listener)
        host, port = listener.getsockname()[:2]
        return host, port

    def connect(self, address: Address, connection: Connection) -> None:
        """Start to connect. A failure closes the connection, with the reason."""
        outgoing = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        outgoing.setblocking(False)
        try:
            code = outgoing.connect_ex(address)
            failure = None if code in (0, errno.EINPROGRESS) else errno.errorcode.get(code, str(code))
        except OSError as error:  # a host name that is not known
            failure = error.strerror or str(error)
        if failure is not None:
            outgoing.close()
            connection.close(f"cannot connect to {address[0]}:{address[1]}: {failure}")
            return
        self._add(outgoing, connection, is_accepted=False)

    def _add(self, own: socket.socket, connection: Connection, *, is_accepted: bool) -> None:
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._peers[own] = _Peer(own, connection, is_accepted, not is_accepted, time.monotonic())
        self._selector.register(own, selectors.EVENT_READ | selectors.EVENT_WRITE)

    def wake(self) -> None:
        """End the wait of `poll`: a connection has something to send. From any thread."""
        with suppress(BlockingIOError):  # enough is waiting there to wake it
            self._wake_end.send(b"\0")

    def run(self, stop: Event) -> None:
        while not stop.is_set():
            self.poll(TICK_S)

    def poll(self, timeout_s: float) -> None:
        """Send what is to be sent, wait for one round of events, and handle them."""
        for peer in list(self._peers.values()):
            self._send(peer)
        has_work = any(peer.connection.has_work and not peer.unsent for peer in self._peers.values())
        for key, events in self._selector.select(0 if has_work else timeout_s):
            if key.fileobj is self._woken_end:
                self._woken_end.recv(4_096)
            elif key.data is not None:
                self._accept(key.fileobj, key.data)  # type: ignore[arg-type]
            elif peer := self._peers.get(key.fileobj):  # type: ignore[call-overload]
                self._on_events(peer, events)
        now_s = time.monotonic()
        if now_s >= self._next_tick_s:
            self._next_tick_s = now_s + TICK_S
            for peer in list(self._peers.values()):
                self._tick(peer, now_s)
        for peer in list(self._peers.values()):
            self._send(peer)

    def _accept(self, listener: socket.socket, factory: Callable[[], Connection]) -> None:
        try:
            accepted, _ = listener.accept()
        except OSError:  # gone again, or no descriptor is left
            return
        if len(self._peers) >= self._limits.max_connections:
            self.refused += 1
            accepted.close()
            return
        accepted.setblocking(False)
        self._add(accepted, factory(), is_accepted=True)

    def _on_events(self, peer: _Peer, events: int) -> None:
        if peer.is_connecting:
            if code := peer.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._remove(peer, f"cannot connect: {errno.errorcode.get(code, code)}")
                return
            peer.is_connecting = not events & selectors.EVENT_WRITE
        if events & selectors.EVENT_READ:
            self._read(peer)

    def _read(self, peer: _Peer) -> None:
        now_s = time.monotonic()
        if now_s - peer.window_s >= 1.0:
            peer.window_s, peer.window_bytes = now_s, 0
        try:
            data = peer.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._remove(peer, error.strerror or "connection lost")
            return
        if not data:
            self._remove(peer, "closed by the peer")
            return
        peer.window_bytes += len(data)
        if peer.is_accepted and peer.window_bytes > self._limits.max_bytes_per_s:
            self._remove(peer, f"more than {self._limits.max_bytes_per_s} bytes in a second")
            return
        peer.connection.receive(data, self._clock_ns())

    def _tick(self, peer: _Peer, now_s: float) -> None:
        if peer.is_connecting:
            if now_s - peer.progress_s > CONNECT_TIMEOUT_S:
                self._remove(peer, f"no connection within {CONNECT_TIMEOUT_S:.0f} s")
            return
        peer.connection.tick(self._clock_ns())
        if peer.unsent and now_s - peer.progress_s > MAX_STALL_S:
            self._remove(peer, f"the peer reads nothing for {MAX_STALL_S:.0f} s")

    def _send(self, peer: _Peer) -> None:
        if peer.is_connecting or peer.socket not in self._peers:
            return
        if len(peer.unsent) < MAX_UNSENT_BYTES and (data := peer.connection.take_output(self._clock_ns())):
            if not peer.unsent:
                peer.progress_s = time.monotonic()
            peer.unsent += data
        if peer.unsent:
            try:
                sent = peer.socket.send(peer.unsent)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self._remove(peer, error.strerror or "connection lost")
                return
            if sent:
                del peer.unsent[:sent]
                peer.progress_s = time.monotonic()
        if peer.connection.is_closed and not peer.unsent:
            self._remove(peer, "")
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.unsent else 0)
        if self._selector.get_key(peer.socket).events != wanted:
            self._selector.modify(peer.socket, wanted)

    def _remove(self, peer: _Peer, reason: str) -> None:
        self._selector.unregister(peer.socket)
        del self._peers[peer.socket]
        peer.socket.close()
        peer.connection.close(reason)

    def close(self) -> None:
        """Close everything."""
        for peer in list(self._peers.values()):
            self._remove(peer, "the server stops")
        for listener in self._listeners:
            self._selector.unregister(listener)
            listener.close()
        self._listeners.clear()
        self._selector.close()
        self._wake_end.close()
        self._woken_end.close()


def parse_address(text: str) -> Address:
    """host:port."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 <= int(port) <= 65_535:
        raise UmdfError(f"not an address: {text}", "use host:port")
    return host, int(port)
