"""A Unix socket on which an operator controls a running exchange: one JSON object a line, one line in reply.

Only the user who runs the exchange can open it (mode 0600). The server has no thread: `wait` answers what has arrived
until a time, so the loop of the exchange sleeps in it.
"""

from __future__ import annotations

import os
import selectors
import socket
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from umdf.errors import ConfigError

MAX_LINE_BYTES = 1 << 20
MAX_CLIENTS = 32
MAX_PATH_BYTES = 107  # of a Unix socket (unix(7))
READ_BYTES = 1 << 16
OWNER_ONLY = 0o177  # umask: mode 0600

Answer = Callable[[bytes], bytes]


@dataclass
class _Client:
    socket: socket.socket
    received: bytearray = field(default_factory=bytearray)


class ControlServer:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._selector = selectors.DefaultSelector()
        self._listener = _listen(path)
        self._identity = _identity(path)
        self._selector.register(self._listener, selectors.EVENT_READ)

    def wait(self, seconds: float, answer: Answer) -> None:
        """Answer requests until `seconds` have passed."""
        end_s = time.monotonic() + seconds
        while True:
            for key, _ in self._selector.select(max(end_s - time.monotonic(), 0)):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._read(key.data, answer)
            if time.monotonic() >= end_s:
                return

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            self._selector.unregister(sock)
            sock.close()
        self._selector.close()
        if _identity(self.path) == self._identity:  # not one that another exchange has put there
            self.path.unlink(missing_ok=True)

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        if len(self._selector.get_map()) > MAX_CLIENTS:
            sock.close()
            return
        sock.setblocking(False)
        self._selector.register(sock, selectors.EVENT_READ, _Client(sock))

    def _read(self, client: _Client, answer: Answer) -> None:
        try:
            data = client.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        client.received += data
        is_too_long = len(client.received) > MAX_LINE_BYTES and b"\n" not in client.received
        if not data or is_too_long:
            self._drop(client)
            return
        *lines, rest = bytes(client.received).split(b"\n")
        client.received = bytearray(rest)
        for line in lines:
            try:
                client.socket.sendall(answer(line) + b"\n")
            except OSError:  # it does not read, or is gone
                self._drop(client)
                return

    def _drop(self, client: _Client) -> None:
        self._selector.unregister(client.socket)
        client.socket.close()


def request(path: Path, line: bytes, timeout_s: float = 30.0) -> bytes:
    """Send one request to a running exchange; its reply."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(timeout_s)
        try:
            sock.connect(str(path))
            sock.sendall(line + b"\n")
            reply = bytearray()
            while not reply.endswith(b"\n"):
                data = sock.recv(READ_BYTES)
                if not data:
                    raise ConfigError(f"the exchange at {path} closed the connection", "see its output")
                reply += data
        except TimeoutError:
            raise ConfigError(f"no answer from {path} within {timeout_s:g} s", "is the exchange stopped?") from None
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            hint = "start it with `umdf exchange run`, or name its socket with --control"
            raise ConfigError(f"no exchange is listening at {path}: {reason}", hint) from None
    return bytes(reply[:-1])


def _listen(path: Path) -> socket.socket:
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise ConfigError(f"the path of the control socket is too long: {path}", f"at most {MAX_PATH_BYTES} bytes")
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(OWNER_ONLY)
    try:
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot create the control socket {path}: {error.strerror}", "use another path") from None
    finally:
        os.umask(before)
    listener.listen()
    listener.setblocking(False)
    return listener


def _remove_stale(path: Path) -> None:
    """Remove the socket that an exchange which is gone has left; refuse anything else."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ConfigError(f"{path} exists and is not a socket", "use another path for the control socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError as error:
            raise ConfigError(f"cannot use {path}: {error.strerror}", "use another path") from None
    raise ConfigError(f"another exchange is running at {path}", "stop it, or use another path for the control socket")


def _identity(path: Path) -> tuple[int, int]:
    try:
        found = path.lstat()
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino
