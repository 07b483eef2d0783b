"""The sender of datagrams: what is sent while nobody listens costs a later listener nothing."""

from __future__ import annotations

import socket

import numpy as np
import pytest

from umdf.transport.free_ports import free_ports
from umdf.transport.udp_sender import UdpDestination, UdpSender


@pytest.mark.parametrize("uses_batches", [True, False])
def test_who_begins_to_listen_receives_the_first_datagram(*, uses_batches: bool) -> None:
    (port,) = free_ports(1)
    sender = UdpSender(UdpDestination("127.0.0.1", port), uses_batches)
    buffer = np.frombuffer(b"first", np.uint8)
    start, end = np.array([0]), np.array([5])
    sender.send(buffer, start, end)  # the port is closed: ICMP says so, after the call
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", port))
        listener.settimeout(5)
        assert sender.send(buffer, start, end) == 1
        assert listener.recv(100) == b"first"
    sender.close()


def test_free_ports_are_different() -> None:
    assert len(set(free_ports(20))) == 20
