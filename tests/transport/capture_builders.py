"""Captures built byte by byte, without any of the code under test, and a reader that turns batches into plain rows."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

from umdf.transport.capture import Capture, Flow, Split, open_capture

PAYLOAD = b"what the exchange says"
SECOND = 1_700_000_000


def udp(payload: bytes = PAYLOAD, source_port: int = 1000, dest_port: int = 2000, length: int | None = None) -> bytes:
    return struct.pack(">HHHH", source_port, dest_port, 8 + len(payload) if length is None else length, 0) + payload


def ipv4(
    content: bytes,
    source: str = "10.0.0.1",
    dest: str = "224.0.20.7",
    options: bytes = b"",
    fragment: int = 0x4000,
    protocol: int = 17,
    total: int | None = None,
) -> bytes:
    header = 20 + len(options)
    total = header + len(content) if total is None else total
    fixed = struct.pack(">BBHHHBBH", 0x40 | header // 4, 0, total, 0, fragment, 64, protocol, 0)
    return fixed + ip_address(source).packed + ip_address(dest).packed + options + content


def ipv6(
    content: bytes,
    source: str = "2001:db8::1",
    dest: str = "ff0e::7",
    extensions: Sequence[tuple[int, bytes]] = (),
    protocol: int = 17,
    length: int | None = None,
) -> bytes:
    """`extensions` are (type, content behind the type's own next-header byte)."""
    kinds = [kind for kind, _ in extensions] + [protocol]
    chain = b"".join(bytes([after]) + body for after, (_, body) in zip(kinds[1:], extensions, strict=True))
    length = len(chain) + len(content) if length is None else length
    fixed = struct.pack(">IHBB", 6 << 28, length, kinds[0], 64)
    return fixed + ip_address(source).packed + ip_address(dest).packed + chain + content


def ethernet(packet: bytes, kind: int | None = None, tags: Sequence[int] = ()) -> bytes:
    kind = _kind(packet) if kind is None else kind
    stack = b"".join(struct.pack(">HH", tag, 5) for tag in tags)
    return bytes(12) + stack + struct.pack(">H", kind) + packet


def sll(packet: bytes) -> bytes:
    return bytes(14) + struct.pack(">H", _kind(packet)) + packet


def sll2(packet: bytes) -> bytes:
    return struct.pack(">H", _kind(packet)) + bytes(18) + packet


def _kind(packet: bytes) -> int:
    return 0x0800 if packet[0] >> 4 == 4 else 0x86DD


V4, V6 = ipv4(udp()), ipv6(udp())
V4_FLOW, V6_FLOW = Flow("10.0.0.1", 1000, "224.0.20.7", 2000), Flow("2001:db8::1", 1000, "ff0e::7", 2000)
EIGHT_BYTE_HEADER = b"\x00" + bytes(6)  # a header of eight bytes, behind its first
SIXTEEN_BYTE_HEADER = b"\x01" + bytes(14)

# Ways to carry PAYLOAD: link type, frame, flow
FRAMES = {
    "ethernet": (1, ethernet(V4), V4_FLOW),
    "ethernet, link type with bits about checksums": (0x2400_0001, ethernet(V4) + b"\xfc" * 4, V4_FLOW),
    "ethernet IPv6": (1, ethernet(V6), V6_FLOW),
    "ethernet with a trailer": (1, ethernet(V4) + bytes(18), V4_FLOW),
    "802.1Q": (1, ethernet(V4, tags=(0x8100,)), V4_FLOW),
    "802.1ad": (1, ethernet(V4, tags=(0x88A8, 0x8100)), V4_FLOW),
    "QinQ of every age": (1, ethernet(V6, tags=(0x9100, 0x9200, 0x9300, 0x8100, 0x8100)), V6_FLOW),
    "Linux cooked": (113, sll(V4), V4_FLOW),
    "Linux cooked IPv6": (113, sll(V6), V6_FLOW),
    "Linux cooked v2": (276, sll2(V4), V4_FLOW),
    "Linux cooked v2 IPv6": (276, sll2(V6), V6_FLOW),
    "raw": (101, V4, V4_FLOW),
    "raw IPv6": (101, V6, V6_FLOW),
    "raw 12": (12, V4, V4_FLOW),
    "raw 14": (14, V6, V6_FLOW),
    "raw only IPv4": (228, V4, V4_FLOW),
    "raw only IPv6": (229, V6, V6_FLOW),
    "loopback, little-endian": (0, b"\x02\0\0\0" + V4, V4_FLOW),
    "loopback, big-endian": (0, b"\0\0\0\x02" + V4, V4_FLOW),
    "loopback IPv6 of macOS": (0, b"\x1e\0\0\0" + V6, V6_FLOW),
    "loopback IPv6 of FreeBSD": (0, b"\x1c\0\0\0" + V6, V6_FLOW),
    "OpenBSD loopback": (108, b"\0\0\0\x18" + V6, V6_FLOW),
    "IPv4 with options": (1, ethernet(ipv4(udp(), options=bytes(40))), V4_FLOW),
    "IPv4 without a total length": (1, ethernet(ipv4(udp(), total=0)) + bytes(9), V4_FLOW),
    "IPv6 without a length": (1, ethernet(ipv6(udp(), length=0)) + bytes(9), V6_FLOW),
    "IPv6 hop-by-hop": (1, ethernet(ipv6(udp(), extensions=[(0, EIGHT_BYTE_HEADER)])), V6_FLOW),
    "IPv6 routing, destination": (
        1,
        ethernet(ipv6(udp(), extensions=[(43, SIXTEEN_BYTE_HEADER), (60, EIGHT_BYTE_HEADER)])),
        V6_FLOW,
    ),
    "IPv6 mobility, authentication": (
        1,
        ethernet(ipv6(udp(), extensions=[(135, EIGHT_BYTE_HEADER), (51, b"\x04" + bytes(22))])),
        V6_FLOW,
    ),
    "IPv6 atomic fragment": (1, ethernet(ipv6(udp(), extensions=[(44, bytes(7))])), V6_FLOW),
}


def pcap_header(order: str = "<", nanoseconds: bool = True, link: int = 1, snaplen: int = 65_535) -> bytes:
    return struct.pack(order + "IHHiIII", 0xA1B23C4D if nanoseconds else 0xA1B2C3D4, 2, 4, 0, 0, snaplen, link)


def pcap_record(frame: bytes, fraction: int = 0, order: str = "<", second: int = SECOND, original: int = 0) -> bytes:
    return struct.pack(order + "IIII", second, fraction, len(frame), original or len(frame)) + frame


def pcap(frames: Sequence[bytes], order: str = "<", nanoseconds: bool = True, link: int = 1) -> bytes:
    records = (pcap_record(frame, place, order) for place, frame in enumerate(frames))
    return pcap_header(order, nanoseconds, link) + b"".join(records)


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    body += bytes(-len(body) % 4)
    length = struct.pack(order + "I", 12 + len(body))
    return struct.pack(order + "I", kind) + length + body + length


def section(order: str = "<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def option(code: int, value: bytes, order: str = "<") -> bytes:
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def interface(link: int = 1, options: bytes = b"", order: str = "<", snaplen: int = 0) -> bytes:
    return block(1, struct.pack(order + "HHI", link, 0, snaplen) + options, order)


def enhanced(frame: bytes, ticks: int = 0, order: str = "<", interface: int = 0) -> bytes:
    head = struct.pack(order + "IIIII", interface, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame))
    return block(6, head + frame + bytes(-len(frame) % 4) + option(1, b"a comment", order), order)


def old_packet(frame: bytes, ticks: int = 0, order: str = "<", interface: int = 0) -> bytes:
    head = struct.pack(order + "HHIIII", interface, 0, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame))
    return block(2, head + frame, order)


def simple(frame: bytes, order: str = "<", original: int = 0) -> bytes:
    return block(3, struct.pack(order + "I", original or len(frame)) + frame, order)


def sample_frames(count: int) -> list[bytes]:
    """Frames of different lengths and flows, some of them no UDP."""
    frames = []
    for number in range(count):
        content = udp(bytes([number & 0xFF]) * (number * 7 % 61), dest_port=2000 + number % 3)
        if number % 5 == 4:
            frames.append(ethernet(ipv4(content, protocol=6)))
        elif number % 7 == 3:
            frames.append(ethernet(ipv6(content), tags=(0x8100,)))
        else:
            frames.append(ethernet(ipv4(content)))
    return frames


def sample_pcap(count: int = 40) -> bytes:
    return pcap(sample_frames(count))


def sample_pcapng(count: int = 40) -> bytes:
    """Two sections of different byte order, with several interfaces and blocks of every type."""
    nanoseconds = option(9, b"\x09")
    first = section() + interface() + interface(options=nanoseconds) + block(4, bytes(4))
    second = section(">") + interface(order=">")
    frames = sample_frames(count)
    half = count // 2
    for number, frame in enumerate(frames[:half]):
        unit = 10 ** (6 if number % 2 else 9)
        first += enhanced(frame, SECOND * unit + number, interface=1 - number % 2)
        if number == 3:
            first += interface(link=101) + block(5, bytes(12)) + enhanced(ipv4(udp()), 1, interface=2)
    for number, frame in enumerate(frames[half:]):
        second += (simple(frame, ">"), old_packet(frame, number, ">"), enhanced(frame, number, ">"))[number % 3]
    return first + second


class Row(NamedTuple):
    number: int
    offset: int
    ts_ns: int
    flow: Flow
    payload: bytes


def rows_of(capture: Capture) -> list[Row]:
    rows = []
    for batch in capture:
        for row in range(len(batch)):
            flow = batch.flows[batch.flow[row]]
            place = int(batch.number[row]), int(batch.offset[row]), int(batch.ts_ns[row])
            rows.append(Row(*place, flow, batch.payload(row)))
    return rows


def read(source: str | os.PathLike[str] | Split, **options: Any) -> tuple[list[Row], Capture]:
    with open_capture(source, **options) as capture:
        return rows_of(capture), capture


def read_bytes(directory: Path, data: bytes, **options: int) -> tuple[list[Row], Capture]:
    path = directory / "capture"
    path.write_bytes(data)
    return read(path, **options)
