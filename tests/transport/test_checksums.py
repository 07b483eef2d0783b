"""UDP checksums: a wrong one tells of damage, unless nobody has ever filled them in."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from transport.capture_builders import (
    ethernet,
    ipv4,
    ipv6,
    pcap,
    pcap_header,
    pcap_record,
    read,
    read_bytes,
    rows_of,
    udp,
)

from umdf.transport.capture import open_capture, split_capture
from umdf.transport.pcap_writer import PcapWriter


def folded(data: bytes) -> int:
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def frame(payload: bytes, version: int = 4, checksum: str = "right") -> bytes:
    """With the checksum as RFC 768 and RFC 8200 have it, and as a network card would find it."""
    plain = udp(payload)
    packet = ipv4(plain) if version == 4 else ipv6(plain)
    addresses = packet[12:20] if version == 4 else packet[8:40]
    pseudo = addresses + struct.pack(">HH", 17, len(plain))
    value = {
        "right": (~folded(pseudo + plain) & 0xFFFF) or 0xFFFF,
        "wrong": (~folded(pseudo + plain) & 0xFFFF) ^ 0x0101,
        "unfinished": folded(pseudo),
        "none": 0,
    }[checksum]
    at = len(packet) - len(plain) + 6
    return ethernet(packet[:at] + struct.pack(">H", value) + packet[at + 2 :])


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("size", [*range(20), 1399, 1400])
def test_only_a_wrong_checksum_leaves_a_datagram_out(version: int, size: int, tmp_path: Path) -> None:
    payload = bytes(place * 7 & 0xFF for place in range(size))
    kinds = ["right", "none", "unfinished", "wrong", "right"]
    rows, capture = read_bytes(tmp_path, pcap([frame(payload, version, kind) for kind in kinds]))
    assert [row.number for row in rows] == [1, 2, 3, 5]
    assert (capture.counts.udp, capture.counts.wrong_checksum) == (4, 1)
    (warning,) = capture.warnings
    assert warning.offset == 24 + 3 * (16 + len(frame(payload, version))) and "checksum" in warning.reason
    assert warning.unread_bytes == 0


@pytest.mark.parametrize("version", [4, 6])
def test_any_flipped_bit_of_a_datagram_is_found(version: int, tmp_path: Path) -> None:
    good = frame(b"ABCDEFGH" * 3, version)
    start = 14 + (20 if version == 4 else 40)
    checksum_at = start + 6
    flipped = []
    for bit in range(8 * start, 8 * len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        if bit // 8 not in (start + 4, start + 5) and any(bad[checksum_at : checksum_at + 2]):
            flipped.append(bytes(bad))
    rows, capture = read_bytes(tmp_path, pcap([good, *flipped, good, good, good]))
    assert [row.number for row in rows] == [1, len(flipped) + 2, len(flipped) + 3, len(flipped) + 4]
    assert capture.counts.wrong_checksum == len(flipped)


@pytest.mark.parametrize("kind", ["wrong", "unfinished"])
def test_where_all_are_wrong_nobody_has_filled_them_in(kind: str, tmp_path: Path) -> None:
    rows, capture = read_bytes(tmp_path, pcap([frame(bytes([number]), 4, kind) for number in range(200)]))
    assert len(rows) == 200 and capture.counts.wrong_checksum == 0 and capture.warnings == []


def test_one_that_is_right_by_chance_among_many_makes_no_difference(tmp_path: Path) -> None:
    frames = [frame(bytes([number]), 4, "wrong") for number in range(200)] + [frame(b"by chance")]
    rows, _ = read_bytes(tmp_path, pcap(frames))
    assert len(rows) == 201


def test_a_datagram_that_is_cut_cannot_be_checked(tmp_path: Path) -> None:
    good, bad = frame(b"A" * 50), frame(b"B" * 50, 4, "wrong")
    data = pcap_header(snaplen=60) + pcap_record(good[:60], 0, original=len(good))
    rows, capture = read_bytes(tmp_path, data + pcap_record(bad[:60], 1, original=len(bad)))
    assert len(rows) == 2 == capture.counts.truncated


def test_rejected_packets_are_marked_on_request(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(pcap([frame(b"one"), frame(b"two", 4, "wrong"), frame(b"three")]))
    with open_capture(path, corrupt=True) as capture:
        (batch,) = capture
    assert batch.corrupt is not None and batch.corrupt.tolist() == [False, True, False]
    assert batch.take(np.array([1])).corrupt is not None
    assert capture.counts.wrong_checksum == 1 and capture.warnings == []


def test_splits_leave_out_what_the_whole_file_does(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    kinds = ["right" if number % 3 else "wrong" for number in range(30)]
    path.write_bytes(pcap([frame(bytes([number]) * number, 4, kind) for number, kind in enumerate(kinds)]))
    whole, _ = read(path)
    assert len(whole) == 20
    parts = [row for split in split_capture(path, 400) for row in read(split)[0]]
    assert parts == whole


def test_what_we_write_is_right(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    with PcapWriter(path) as writer:
        for size in range(300):
            writer.write(10**18 + size, bytes([size & 0xFF]) * size, ("10.0.0.1", 1), ("224.0.0.1", 2))
            writer.write(10**18 + size, bytes([size & 0xFF]) * size, ("::1", 1), ("ff02::1", 2))
    with open_capture(path) as capture:
        assert len(rows_of(capture)) == 600
    assert capture.counts.wrong_checksum == 0 and capture.has_checksums
