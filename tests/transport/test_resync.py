"""Behind damage a file is read on, at the next plausible record; what lies between is reported to the byte."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from transport.capture_builders import (
    SECOND,
    Row,
    enhanced,
    ethernet,
    interface,
    ipv4,
    ipv6,
    pcap,
    pcap_header,
    pcap_record,
    read,
    read_bytes,
    section,
    udp,
)

from umdf.transport import capture_reader
from umdf.transport.capture import split_capture
from umdf.transport.damage import damage_messages

KINDS = ("pcap < ns", "pcap < µs", "pcap > ns", "pcap > µs", "pcapng <", "pcapng >")
PACKETS = 30


class Sample(NamedTuple):
    data: bytes
    starts: list[int]  # of the records, and the end

    @property
    def step(self) -> int:
        return 4 if self.data[:4] == section()[:4] else 1


def sample(kind: str, rng: random.Random, packets: int = PACKETS) -> Sample:
    """Frames of different lengths with many zeros, as the exchange sends them; each says its number."""
    frames = []
    for number in range(packets):
        zeros = bytes(rng.choice((0, 0, 0, rng.randrange(256))) for _ in range(rng.randrange(120)))
        content = udp(struct.pack("<I", number) + zeros)
        frames.append(ethernet(ipv4(content)) if number % 4 else ethernet(ipv6(content), tags=(0x8100,)))
    order = kind.split()[1]
    if kind.startswith("pcapng"):
        head = section(order) + interface(order=order)
        records = [enhanced(frame, SECOND * 10**6 + place, order) for place, frame in enumerate(frames)]
    else:
        head = pcap_header(order, kind.endswith("ns"))
        records = [pcap_record(frame, place, order) for place, frame in enumerate(frames)]
    starts = [len(head)]
    for record in records:
        starts.append(starts[-1] + len(record))
    return Sample(head + b"".join(records), starts)


Hurt = tuple[bytes, int, int]  # the file, and what of the original is no longer what it was


def _flipped(good: Sample, rng: random.Random) -> Hurt:
    at, bad = rng.randrange(good.starts[0], len(good.data)), bytearray(good.data)
    bad[at] ^= 1 << rng.randrange(8)
    return bytes(bad), at, at + 1


def _overwritten(good: Sample, rng: random.Random, filling: Callable[[int], bytes]) -> Hurt:
    at = rng.randrange(good.starts[0], len(good.data))
    end = min(at + rng.randrange(1, 500), len(good.data))
    return good.data[:at] + filling(end - at) + good.data[end:], at, end


def _header(good: Sample, rng: random.Random) -> Hurt:
    at = rng.choice(good.starts[:-1])
    return good.data[:at] + rng.randbytes(16) + good.data[at + 16 :], at, at + 16


def _length(good: Sample, rng: random.Random) -> Hurt:
    at = rng.choice(good.starts[:-1]) + (4 if good.step == 4 else 8) + rng.randrange(4)
    return good.data[:at] + bytes([good.data[at] ^ 1 << rng.randrange(8)]) + good.data[at + 1 :], at, at + 1


def _shifted(good: Sample, rng: random.Random, *, by: int) -> Hurt:
    at = rng.randrange(good.starts[0], len(good.data))
    size = rng.randrange(0, 500, good.step)
    if by < 0:
        return good.data[:at] + good.data[at + size :], at, at + size
    return good.data[:at] + rng.randbytes(size) + good.data[at:], at, at


DAMAGES: dict[str, Callable[[Sample, random.Random], Hurt]] = {
    "a bit": _flipped,
    "random bytes": lambda good, rng: _overwritten(good, rng, rng.randbytes),
    "zeros": lambda good, rng: _overwritten(good, rng, bytes),
    "a record's header": _header,
    "a record's length": _length,
    "bytes that are missing": lambda good, rng: _shifted(good, rng, by=-1),
    "bytes that are too many": lambda good, rng: _shifted(good, rng, by=1),
}


def contents(rows: list[Row]) -> set[tuple[int, bytes]]:
    return {(row.ts_ns, row.payload) for row in rows}


@pytest.fixture(name="place", scope="module")
def _place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("resync")


@given(kind=st.sampled_from(KINDS), damage=st.sampled_from(sorted(DAMAGES)), seed=st.integers(0, 1 << 32))
def test_all_records_around_damage_are_read_and_every_byte_is_accounted_for(
    kind: str, damage: str, seed: int, place: Path
) -> None:
    rng = random.Random(seed)
    good = sample(kind, rng)
    data, hurt_from, hurt_to = DAMAGES[damage](good, rng)
    want, _ = read_bytes(place, good.data)
    rows, capture = read_bytes(place, data, buffer_bytes=rng.choice((64, 700, 1 << 20)))
    assert capture.read_bytes + capture.unread_bytes == len(data)
    spans = list(zip(want, pairwise(good.starts), strict=True))
    before = [row for row, (_, end) in spans if end <= hurt_from]
    behind = [row for row, (start, _) in spans if start >= hurt_to]
    assert rows[: len(before)] == before
    # Where bytes are missing, a record whose length still counts them takes the next one for its own end.
    assert len(contents(behind) - contents(rows)) <= (2 if damage == "bytes that are missing" else 0)

    path = place / "capture"
    parts, read_by_splits, unread, warnings = [], 0, 0, []
    for split in split_capture(path, rng.choice((1, 400))):
        found, part = read(split, buffer_bytes=rng.choice((64, 700)))
        parts += found
        read_by_splits, unread = read_by_splits + part.read_bytes, unread + part.unread_bytes
        warnings += part.warnings
    header = 24 if good.step == 1 else 0
    assert parts == rows and warnings == capture.warnings
    assert (read_by_splits + header, unread) == (capture.read_bytes, capture.unread_bytes)


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_damage_in_a_compressed_file_is_reported_as_in_a_plain_one(
    pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    data, _, _ = _header(sample("pcap < ns", random.Random(1)), random.Random(1))
    plain, expected = read_bytes(tmp_path, data)
    rows, capture = read_bytes(tmp_path, pack(data))
    assert rows == plain and capture.warnings == expected.warnings and len(rows) == PACKETS - 1


@pytest.mark.parametrize(("pack", "unread"), [(gzip.compress, "7,000 bytes"), (zstandard.compress, "at least 0 bytes")])
def test_a_compressed_file_says_how_much_of_it_is_unread(
    pack: Callable[[bytes], bytes], unread: str, tmp_path: Path
) -> None:
    """zstd is read in pieces, and does not say where in one it was when it met the damage."""
    rows, capture = read_bytes(tmp_path, pack(sample("pcap < ns", random.Random(2)).data) + b"garbage" * 1000)
    assert len(rows) == PACKETS
    (warning,) = capture.warnings
    assert f"{unread} of the compressed file unread" in warning.reason


def test_a_record_with_a_time_of_its_own_is_damaged_and_a_jump_of_time_is_not(tmp_path: Path) -> None:
    frame, month = ethernet(ipv4(udp())), 30 * 86_400
    later = SECOND + 3 * month
    seconds = [*range(SECOND, SECOND + 3), SECOND + month, *range(SECOND + 3, SECOND + 7), later, later + 1]
    data = pcap_header() + b"".join(pcap_record(frame, 0, second=second) for second in seconds)
    rows, capture = read_bytes(tmp_path, data)
    assert [row.ts_ns // 10**9 for row in rows] == [second for second in seconds if second != SECOND + month]
    (warning,) = capture.warnings
    assert warning.unread_bytes == 16 + len(frame) and "time" in warning.reason


@pytest.mark.parametrize(("fraction", "original"), [(0, 1), (5, 60), (5, 1 << 20), (2_000_000_000, 64)])
def test_a_file_that_is_odd_throughout_is_read(fraction: int, original: int, tmp_path: Path) -> None:
    """No length on the wire, one without Ethernet's checksum, one beyond the snap length, fractions that are none."""
    frame = ethernet(ipv4(udp()))
    record = struct.pack("<IIII", SECOND, fraction, len(frame), original) + frame
    assert len(frame) == 64
    rows, capture = read_bytes(tmp_path, pcap_header() + record * 6)
    assert len(rows) >= 5 and capture.unread_bytes <= len(record)  # nobody vouches for the last one


def test_a_length_that_reaches_just_to_a_later_record_swallows_none(tmp_path: Path) -> None:
    frame = ethernet(ipv4(udp(bytes(64 - 42 - 16))))
    data = bytearray(pcap([frame] * 20))
    data[24 + 3 * 64 + 8] += 128  # two records on
    rows, capture = read_bytes(tmp_path, bytes(data))
    assert len(frame) + 16 == 64 and [row.ts_ns % 100 for row in rows] == [*range(3), *range(4, 20)]
    assert capture.unread_bytes == 64


def test_garbage_in_the_place_of_the_first_records_is_no_measure_for_the_others(tmp_path: Path) -> None:
    frame = ethernet(ipv4(udp()))
    data = pcap_header() + bytes(3) + b"\x01" + bytes(44) + b"".join(pcap_record(frame, place) for place in range(9))
    rows, capture = read_bytes(tmp_path, data)
    assert len(rows) == 9 and capture.unread_bytes + capture.read_bytes == len(data)


def test_a_capture_inside_a_payload_is_not_read_as_the_file_goes_on(tmp_path: Path) -> None:
    """What an older capture has left on the disk is of another time."""
    frame = ethernet(ipv4(udp()))
    stale = b"".join(pcap_record(frame, place, second=SECOND - 40 * 86_400) for place in range(5))
    data = pcap([frame] * 3) + b"\xff" * 40 + stale
    rows, capture = read_bytes(tmp_path, data)
    assert len(rows) == 3 and capture.unread_bytes == 40 + len(stale)


def test_interfaces_of_a_damaged_section_are_not_those_of_the_one_before(tmp_path: Path) -> None:
    frame = ethernet(ipv4(udp()))
    packets = b"".join(enhanced(frame, place) for place in range(4))
    second = bytearray(section() + interface(link=101) + packets)
    second[8] ^= 1  # its byte order
    rows, capture = read_bytes(tmp_path, section() + interface() + packets + bytes(second))
    assert len(rows) == 4 and capture.counts.malformed + capture.counts.not_udp + capture.counts.unknown_link == 4
    assert capture.unread_bytes == len(section())


def test_packets_of_a_damaged_interface_are_counted_and_those_of_others_read(tmp_path: Path) -> None:
    frame = ethernet(ipv4(udp()))
    damaged = bytearray(interface(link=101))
    damaged[4] ^= 1
    packets = b"".join(enhanced(frame, place, interface=place % 2) for place in range(6))
    rows, capture = read_bytes(tmp_path, section() + bytes(damaged) + interface() + packets)
    assert len(rows) == 3 and capture.counts.unknown_link == 3
    assert capture.unread_bytes == len(damaged)


def test_a_file_that_is_damaged_everywhere_is_given_up_and_all_of_it_is_accounted_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_reader, "MOST_DAMAGED", 20)
    good = b"".join(pcap_record(ethernet(ipv4(udp())), place) for place in range(4))
    data = pcap_header() + (good + b"\xff" * 50) * 40
    rows, capture = read_bytes(tmp_path, data, buffer_bytes=1000)
    assert len(capture.warnings) == 21 and "the rest of the file is not read" in capture.warnings[-1].reason
    assert len(rows) == 21 * 4
    assert capture.read_bytes + capture.unread_bytes == len(data)
    sentences = damage_messages(capture.warnings)
    assert len(sentences) == 11 and sentences[-1].endswith(f"{capture.unread_bytes:,} bytes of the file unread in all")


@pytest.mark.parametrize("kind", ["headers", "tags", "blocks"])
def test_hostile_bytes_are_not_read_again_and_again(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work is bounded by the file: chunks are filled a few times for each of its bytes, whatever those claim."""
    frame = ethernet(ipv4(udp()))
    header = struct.pack("<IIII", SECOND, 0, 60_000, 60_000)
    data = {
        "headers": pcap([frame] * 3) + b"\xff" * 16 + (header + b"\x08\x00\x45") * 50_000,
        "tags": pcap([frame] * 3) + b"\xff" * 16 + (header + b"\x81\x00" * 10) * 30_000,
        "blocks": section() + interface() + enhanced(frame) + struct.pack("<III", 6, 15 << 20, 0) * 80_000,
    }[kind]
    filled = 0
    fill = capture_reader.CaptureReader._fill

    def counted(walk: capture_reader.CaptureReader, chunk: object, carried: int) -> None:
        nonlocal filled
        fill(walk, chunk, carried)  # type: ignore[arg-type]
        filled += walk.filled_bytes

    monkeypatch.setattr(capture_reader.CaptureReader, "_fill", counted)
    _, capture = read_bytes(tmp_path, data, buffer_bytes=1 << 16)
    assert capture.read_bytes + capture.unread_bytes == len(data)
    assert filled <= 5 * len(data)
