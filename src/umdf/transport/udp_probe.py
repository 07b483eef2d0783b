"""Probes of this machine's UDP sockets, for `umdf doctor`.

Everything stays on the loopback interface, with a time to live of 0: nothing leaves the machine.
"""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"
PROBE_GROUP = "239.255.82.66"  # administratively scoped (RFC 2365), not used by the exchange


def granted_receive_buffer_bytes(requested_bytes: int) -> int:
    """How much of a requested receive buffer the kernel grants; it silently limits it to net.core.rmem_max."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, requested_bytes)
        # Linux doubles the size for its own bookkeeping, and reports the double (socket(7)).
        return probe.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2


def multicast_error(wait_s: float = 1.0) -> str:
    """Why a packet sent to a multicast group on the loopback interface does not come back; empty if it does."""
    interface = socket.inet_aton(LOOPBACK)
    try:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        ):
            receiver.bind((PROBE_GROUP, 0))
            receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(PROBE_GROUP) + interface)
            receiver.settimeout(wait_s)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 0)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            sender.sendto(b"umdf", (PROBE_GROUP, receiver.getsockname()[1]))
            receiver.recv(16)
    except TimeoutError:
        return f"no packet came back within {wait_s:g} s"
    except OSError as error:
        return error.strerror or str(error)
    return ""
