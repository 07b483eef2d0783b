"""Ports of the loopback interface that nobody has, below those that the kernel gives to sockets that send."""

from __future__ import annotations

import random
import socket

from umdf.transport.channels_file import LOOPBACK

FIRST, LAST = 12_000, 32_000


def free_udp_ports(count: int) -> list[int]:
    found: list[int] = []
    for port in random.sample(range(FIRST, LAST), LAST - FIRST):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
            try:
                own.bind((LOOPBACK, port))
            except OSError:
                continue
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no free ports")
