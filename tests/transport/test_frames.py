"""Every link type, IP version and header on the way to the UDP payload."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from transport.capture_builders import (
    EIGHT_BYTE_HEADER,
    FRAMES,
    PAYLOAD,
    V4,
    V4_FLOW,
    V6,
    ethernet,
    ipv4,
    ipv6,
    pcap,
    pcap_header,
    pcap_record,
    read_bytes,
    udp,
)

from umdf.transport.capture import OVERFLOW_FLOW, Counts, Flow


@pytest.mark.parametrize("case", FRAMES.values(), ids=FRAMES.keys())
def test_the_payload_is_found_behind_any_headers(case: tuple[int, bytes, Flow], tmp_path: Path) -> None:
    link, frame, flow = case
    rows, capture = read_bytes(tmp_path, pcap([frame], link=link))
    assert [(row.flow, row.payload) for row in rows] == [(flow, PAYLOAD)]
    assert capture.warnings == []


FIRST_FRAGMENT = 44, b"\0" + struct.pack(">H", 1) + bytes(4)  # offset 0, more to come
LAST_FRAGMENT = 44, b"\0" + struct.pack(">H", 8) + bytes(4)
SKIPPED = {
    "ARP": ("not_ip", ethernet(bytes(28), kind=0x0806)),
    "802.3 with a length": ("not_ip", ethernet(bytes(60), kind=60)),
    "a tag that ends the frame": ("malformed", ethernet(b"", kind=0x8100)),
    "TCP": ("not_udp", ethernet(ipv4(udp(), protocol=6))),
    "ICMPv6": ("not_udp", ethernet(ipv6(udp(), protocol=58))),
    "ICMPv6 behind options": ("not_udp", ethernet(ipv6(udp(), protocol=58, extensions=[(0, EIGHT_BYTE_HEADER)]))),
    "the first IPv4 fragment": ("fragments", ethernet(ipv4(udp(), fragment=0x2000))),
    "a middle IPv4 fragment": ("fragments", ethernet(ipv4(udp(), fragment=0x2001))),
    "the last IPv4 fragment": ("fragments", ethernet(ipv4(udp(), fragment=0x1000))),
    "the first IPv6 fragment": ("fragments", ethernet(ipv6(udp(), extensions=[FIRST_FRAGMENT]))),
    "the last IPv6 fragment": ("fragments", ethernet(ipv6(udp(), extensions=[(0, EIGHT_BYTE_HEADER), LAST_FRAGMENT]))),
    "an empty record": ("malformed", b""),
    "half an Ethernet header": ("malformed", bytes(13)),
    "nothing behind Ethernet": ("malformed", bytes(12) + b"\x08\x00"),
    "IP of version 5": ("malformed", ethernet(b"\x55" + V4[1:], kind=0x0800)),
    "an IPv4 header of 16 bytes": ("malformed", ethernet(b"\x44" + V4[1:])),
    "half an IPv4 header": ("malformed", ethernet(V4[:19])),
    "an IPv4 length below its header's": ("malformed", ethernet(ipv4(udp(), total=19))),
    "half an IPv6 header": ("malformed", ethernet(V6[:39])),
    "IPv6 options past the end": ("malformed", ethernet(ipv6(udp(), extensions=[(0, b"\xff" + bytes(6))]))),
    "half a UDP header": ("malformed", ethernet(V4[:27])),
    "a UDP length of 7": ("malformed", ethernet(ipv4(udp(length=7)))),
    "a UDP length past the packet": ("malformed", ethernet(ipv4(udp(length=9 + len(PAYLOAD))) + b"trailer")),
}


@pytest.mark.parametrize("case", SKIPPED.values(), ids=SKIPPED.keys())
def test_what_is_no_whole_udp_datagram_is_counted_and_skipped(case: tuple[str, bytes], tmp_path: Path) -> None:
    outcome, frame = case
    rows, capture = read_bytes(tmp_path, pcap([frame, ethernet(V4)]))
    assert [(row.number, row.payload) for row in rows] == [(2, PAYLOAD)]
    nothing = dict.fromkeys(Counts.__dataclass_fields__, 0)
    assert capture.counts == Counts(**nothing | {"records": 2, "udp": 1, outcome: 1})
    assert capture.warnings == []


@pytest.mark.parametrize("captured", [len(PAYLOAD) - 1, 1, 0])
def test_a_payload_cut_by_the_snap_length_is_delivered_as_far_as_captured(captured: int, tmp_path: Path) -> None:
    frame = ethernet(V4)
    cut = frame[: len(frame) - len(PAYLOAD) + captured]
    rows, capture = read_bytes(tmp_path, pcap_header() + pcap_record(cut, original=len(frame)))
    assert [row.payload for row in rows] == [PAYLOAD[:captured]]
    assert (capture.counts.udp, capture.counts.truncated) == (1, 1)


def test_an_unsupported_link_type_is_one_warning_with_its_offset(tmp_path: Path) -> None:
    rows, capture = read_bytes(tmp_path, pcap([bytes(60)] * 3, link=127))
    assert rows == [] and capture.counts.unknown_link == 3
    (warning,) = capture.warnings
    assert (warning.offset, warning.reason) == (24, "unsupported link type 127; 3 packets skipped")


def test_flows_are_distinguished_by_each_address_and_port(tmp_path: Path) -> None:
    frames = [
        ethernet(packet)
        for packet in (
            ipv4(udp()),
            ipv4(udp(), source="10.0.0.2"),
            ipv4(udp(), dest="224.0.20.8"),
            ipv4(udp(source_port=1)),
            ipv4(udp(dest_port=1)),
            ipv6(udp()),
            ipv6(udp(), source="2001:db8:1::1"),
            ipv6(udp(), dest="ff0e::8"),
            ipv6(udp(), source="::10.0.0.1", dest="::224.0.20.7"),
        )
    ]
    rows, capture = read_bytes(tmp_path, pcap(frames + frames))
    assert len(capture.flows) == 1 + len(frames) == 1 + len(set(capture.flows[1:]))
    assert [row.flow for row in rows] == capture.flows[1:] * 2
    assert capture.flows[1:3] == [V4_FLOW, V4_FLOW._replace(source="10.0.0.2")]
    assert capture.flows[4] == V4_FLOW._replace(source_port=1)


def test_flows_beyond_what_the_column_can_number_share_one_row(tmp_path: Path) -> None:
    ports = [(source, dest) for dest in range(3) for source in range(30_000)]
    data = pcap([ethernet(ipv4(udp(b"", source, dest))) for source, dest in ports])
    rows, capture = read_bytes(tmp_path, data)
    found = [(row.flow.source_port, row.flow.dest_port) for row in rows]
    told = [place for place, row in enumerate(rows) if row.flow != OVERFLOW_FLOW]
    assert len(capture.flows) == 65_536
    assert len(told) == 65_535 and told[-1] >= 65_534
    assert all(found[place] == ports[place] for place in told)


@pytest.mark.parametrize("case", FRAMES.values(), ids=FRAMES.keys())
def test_a_frame_cut_at_any_byte_is_malformed_or_has_a_part_of_its_payload(
    case: tuple[int, bytes, Flow], tmp_path: Path
) -> None:
    link, frame, _ = case
    rows, capture = read_bytes(tmp_path, pcap([frame[:size] for size in range(len(frame))], link=link))
    whole_from = frame.index(PAYLOAD) + len(PAYLOAD)
    payloads = [PAYLOAD[:size] for size in range(len(PAYLOAD))] + [PAYLOAD] * (len(frame) - whole_from)
    assert [row.payload for row in rows] == payloads
    assert (capture.counts.truncated, capture.counts.malformed) == (len(PAYLOAD), whole_from - len(PAYLOAD))
