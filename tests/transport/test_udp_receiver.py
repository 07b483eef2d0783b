"""Real sockets on the loopback interface: everything arrives, and what has no room is counted."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from feed.free_ports import free_udp_ports

from umdf.errors import ConfigError
from umdf.transport import udp_receiver_kernel as k
from umdf.transport.channels_file import LineAddress
from umdf.transport.udp_receiver import ReceivedPackets, ReceiverSettings, UdpReceiver

LOOPBACK = "127.0.0.1"
DEADLINE_S = 20.0


@pytest.fixture
def sender() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        yield found


def received(receiver: UdpReceiver, count: int) -> list[tuple[object, bytes, int]]:
    """Name, payload and time of this many datagrams; of fewer at the deadline."""
    result: list[tuple[object, bytes, int]] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(result) < count and time.monotonic() < deadline:
        for batch in receiver.take(0.2):
            result += rows_of(batch)
    return result


def rows_of(batch: ReceivedPackets) -> list[tuple[object, bytes, int]]:
    return [
        (batch.names[flow], batch.buffer[start:end].tobytes(), ts_ns)
        for flow, start, end, ts_ns in zip(
            batch.flow.tolist(), batch.start.tolist(), batch.end.tolist(), batch.ts_ns.tolist(), strict=True
        )
    ]


def test_datagrams_of_two_lines_arrive_in_order_with_the_time_of_the_kernel(sender: socket.socket) -> None:
    ports = free_udp_ports(2)
    with UdpReceiver() as receiver:
        for line, port in zip("AB", ports, strict=True):
            receiver.join(line, LineAddress(line, LOOPBACK, port))
        before = time.time_ns()
        sent = {line: [bytes([line_number]) * (1 + 13 * n % 1400) for n in range(300)]
                for line_number, line in enumerate("AB")}  # fmt: skip
        for n in range(300):
            for line, port in zip("AB", ports, strict=True):
                sender.sendto(sent[line][n], (LOOPBACK, port))
        found = received(receiver, 600)
        assert {line: [payload for name, payload, _ in found if name == line] for line in "AB"} == sent
        assert all(before - 10**9 < ts_ns <= time.time_ns() + 10**9 for _, _, ts_ns in found)
        counts = receiver.counts()
        assert [(counts[line].packets, counts[line].lost) for line in "AB"] == [(300, 0)] * 2
        assert counts["A"].bytes == sum(map(len, sent["A"]))


def test_a_line_can_be_left_and_joined_again(sender: socket.socket) -> None:
    (port,) = free_udp_ports(1)
    address = LineAddress("A", LOOPBACK, port)
    with UdpReceiver() as receiver:
        receiver.join("A", address)
        sender.sendto(b"one", (LOOPBACK, port))
        assert [payload for _, payload, _ in received(receiver, 1)] == [b"one"]
        receiver.leave("A")
        sender.sendto(b"two", (LOOPBACK, port))
        receiver.join("A", address)
        sender.sendto(b"three", (LOOPBACK, port))
        assert [payload for _, payload, _ in received(receiver, 1)] == [b"three"]
        assert receiver.counts()["A"].packets == 2


def test_a_line_can_be_left_while_nobody_takes_packets(sender: socket.socket) -> None:
    (port,) = free_udp_ports(1)
    with UdpReceiver(ReceiverSettings(max_waiting=1)) as receiver:
        receiver.join("A", LineAddress("A", LOOPBACK, port))
        for _ in range(3):  # one batch waits, and the thread has no room for another
            sender.sendto(b"x", (LOOPBACK, port))
            time.sleep(0.05)
        leaving = threading.Thread(target=receiver.leave, args=("A",), daemon=True)
        leaving.start()
        leaving.join(DEADLINE_S)
        assert not leaving.is_alive()
        assert len(received(receiver, 1)) >= 1


def test_what_a_socket_has_no_room_for_is_counted(sender: socket.socket) -> None:
    (port,) = free_udp_ports(1)
    settings = ReceiverSettings(buffer_bytes=8 << 10, max_waiting=1, batch_rows=64)
    with UdpReceiver(settings) as receiver:
        receiver.join("A", LineAddress("A", LOOPBACK, port))
        for _ in range(2000):  # nobody takes them: one batch waits, and the buffer of the socket is full
            sender.sendto(bytes(500), (LOOPBACK, port))
        found, sent, deadline = 0, 2000, time.monotonic() + DEADLINE_S
        counts = receiver.counts()["A"]
        while counts.packets + counts.lost < sent and time.monotonic() < deadline:
            if not (batches := receiver.take(0.05)):
                sender.sendto(b"last", (LOOPBACK, port))  # the kernel reports losses with the next datagram
                sent += 1
            found += sum(map(len, batches))
            counts = receiver.counts()["A"]
        found += sum(map(len, receiver.take(0.2)))
        assert counts.lost > 0 and counts.packets + counts.lost == sent and found == counts.packets


def test_a_granted_buffer_that_is_smaller_than_asked_is_reported() -> None:
    (port,) = free_udp_ports(1)
    with UdpReceiver() as receiver:
        assert receiver.notices() == []
        receiver.join("A", LineAddress("A", LOOPBACK, port))
        receiver._granted[0] = 208 << 10  # what a machine grants depends on its limits
        assert receiver.notices() == [
            "receive buffers are 208 KiB instead of 4096 KiB: bursts may be lost; "
            "allow more with `sysctl -w net.core.rmem_max=4194304`"
        ]


def test_a_datagram_longer_than_any_frame_is_cut_and_counted(sender: socket.socket) -> None:
    (port,) = free_udp_ports(1)
    with UdpReceiver() as receiver:
        receiver.join("A", LineAddress("A", LOOPBACK, port))
        sender.sendto(bytes(60_000), (LOOPBACK, port))
        ((_, payload, _),) = received(receiver, 1)
        assert (len(payload), receiver.truncated) == (2048, 1)


def test_a_multicast_group_is_joined_on_its_interface(sender: socket.socket) -> None:
    (port,) = free_udp_ports(1)
    group = "239.255.82.67"
    with UdpReceiver() as receiver:
        receiver.join("A", LineAddress("A", group, port, LOOPBACK))
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(LOOPBACK))
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 0)
        sender.sendto(b"multicast", (group, port))
        sender.sendto(b"unicast", (LOOPBACK, port))  # not to the group
        assert [payload for _, payload, _ in received(receiver, 1)] == [b"multicast"]


@pytest.mark.parametrize(
    ("address", "interface", "reason"),
    [
        (
            "192.0.2.1",
            LOOPBACK,
            r"cannot receive A at 192\.0\.2\.1:\d+: Cannot assign requested address; check the addr",
        ),
        ("239.255.82.67", "192.0.2.1", r"cannot receive A at 239\.255\.82\.67:\d+ on interface 192\.0\.2\.1: "),
    ],
)
def test_an_address_that_cannot_be_received_is_an_error(address: str, interface: str, reason: str) -> None:
    (port,) = free_udp_ports(1)
    with UdpReceiver() as receiver, pytest.raises(ConfigError, match=reason):
        receiver.join("A", LineAddress("A", address, port, interface))


def test_the_callers_thread_receives_and_the_receivers_own_stands_in(sender: socket.socket) -> None:
    first_port, second_port = free_udp_ports(2)
    with UdpReceiver() as receiver:
        receiver.join("A", LineAddress("A", LOOPBACK, first_port))
        sender.sendto(b"by the thread", (LOOPBACK, first_port))
        deadline = time.monotonic() + DEADLINE_S
        while receiver.counts()["A"].packets < 1 and time.monotonic() < deadline:
            time.sleep(0.001)
        receiver.receive_here(k.receive, 0)
        receiver.join("B", LineAddress("B", LOOPBACK, second_port))  # in this thread, from now on
        sender.sendto(b"while it waits", (LOOPBACK, first_port))
        receiver.receive_here(k.receive, 1_000)
        found = [row for batch in receiver.take_received() for row in rows_of(batch)]
        sender.sendto(b"while it is busy", (LOOPBACK, second_port))
        while not receiver.is_collected and time.monotonic() < deadline:
            time.sleep(0.001)
        receiver.leave("A")
        sender.sendto(b"when it is back", (LOOPBACK, second_port))
        while len(found) < 4 and time.monotonic() < deadline:
            receiver.receive_here(k.receive, 100)
            found += [row for batch in receiver.take_received() for row in rows_of(batch)]
        assert [(name, payload) for name, payload, _ in found] == [
            ("A", b"by the thread"), ("A", b"while it waits"), ("B", b"while it is busy"), ("B", b"when it is back"),
        ]  # fmt: skip
        assert receiver.received_here == 0 and receiver.counts()["B"].packets == 2


def test_an_error_of_the_thread_is_raised_where_the_caller_receives(monkeypatch: pytest.MonkeyPatch) -> None:
    with UdpReceiver() as receiver:
        receiver.receive_here(k.receive, 0)
        monkeypatch.setattr(receiver, "_must_stand_in", lambda: 1 // 0)
        deadline = time.monotonic() + DEADLINE_S
        with pytest.raises(ZeroDivisionError):
            while time.monotonic() < deadline:
                receiver.take_received()
