"""Ports of this machine that nobody uses now: for programs that are both ends of a conversation."""

from __future__ import annotations

import socket
from contextlib import ExitStack


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Different ports that are free in UDP and in TCP. Somebody else may take them before they are used."""
    found: list[int] = []
    with ExitStack() as stack:
        while len(found) < count:
            udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            udp.bind((host, 0))
            port = udp.getsockname()[1]
            tcp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            try:
                tcp.bind((host, port))
            except OSError:
                continue
            found.append(port)
    return found
