"""pcap and pcapng, plain and compressed: every way to write down the same packets reads the same."""

from __future__ import annotations

import gzip
import os
import shutil
import struct
import subprocess
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from transport.capture_builders import (
    PAYLOAD,
    SECOND,
    block,
    enhanced,
    ethernet,
    interface,
    ipv4,
    old_packet,
    option,
    pcap,
    pcap_header,
    pcap_record,
    read,
    read_bytes,
    rows_of,
    sample_frames,
    sample_pcap,
    sample_pcapng,
    section,
    simple,
    udp,
)

from umdf.errors import CaptureError
from umdf.transport.capture import Counts, open_capture

FRAME = ethernet(ipv4(udp()))


@pytest.mark.parametrize("nanoseconds", [False, True], ids=["µs", "ns"])
@pytest.mark.parametrize("order", ["<", ">"], ids=["little-endian", "big-endian"])
def test_pcap_of_both_byte_orders_and_units_is_read(order: str, nanoseconds: bool, tmp_path: Path) -> None:
    rows, capture = read_bytes(tmp_path, pcap([FRAME, FRAME, FRAME], order, nanoseconds))
    unit = 1 if nanoseconds else 1000
    size = 16 + len(FRAME)
    assert [row.ts_ns for row in rows] == [SECOND * 10**9 + place * unit for place in range(3)]
    assert [row.offset for row in rows] == [24, 24 + size, 24 + 2 * size]
    assert [row.number for row in rows] == [1, 2, 3]
    assert capture.format == f"pcap {'ns' if nanoseconds else 'µs'} {'little' if order == '<' else 'big'}-endian"


def test_the_last_second_that_pcap_can_hold_is_after_1970(tmp_path: Path) -> None:
    rows, _ = read_bytes(tmp_path, pcap_header() + pcap_record(FRAME, 999_999_999, second=0xFFFFFFFF))
    assert rows[0].ts_ns == 0xFFFFFFFF * 10**9 + 999_999_999


@pytest.mark.parametrize("order", ["<", ">"], ids=["little-endian", "big-endian"])
def test_every_packet_block_of_pcapng_is_read(order: str, tmp_path: Path) -> None:
    ticks = SECOND * 10**6 + 7
    packets = [enhanced(FRAME, ticks, order), simple(FRAME, order), old_packet(FRAME, ticks + 1, order)]
    path = tmp_path / "capture"
    path.write_bytes(section(order) + interface(order=order) + b"".join(packets))
    with open_capture(path) as capture:
        assert capture.format == f"pcapng {'little' if order == '<' else 'big'}-endian"
        rows = rows_of(capture)
    assert [row.ts_ns for row in rows] == [ticks * 1000, 0, (ticks + 1) * 1000]
    assert [row.payload for row in rows] == [PAYLOAD] * 3
    assert capture.warnings == []


def test_other_blocks_are_passed_over_and_not_numbered(tmp_path: Path) -> None:
    others = b"".join(block(kind, bytes(kind % 40)) for kind in (4, 5, 9, 10, 0xBAD, 0x40000BAD, 0x80001234))
    rows, capture = read_bytes(tmp_path, section() + others + interface() + others + enhanced(FRAME) + others)
    assert [row.number for row in rows] == [1]
    assert capture.warnings == []


def test_a_section_has_its_own_byte_order_and_interfaces(tmp_path: Path) -> None:
    first = section() + interface(link=101, options=option(9, b"\x00")) + enhanced(ipv4(udp()), 5)
    second = section(">") + interface(order=">") + enhanced(FRAME, 5, ">")
    third = section() + interface(options=option(9, b"\x03")) + enhanced(FRAME, 5)
    rows, capture = read_bytes(tmp_path, first + second + third)
    assert [row.ts_ns for row in rows] == [5 * 10**9, 5000, 5 * 10**6]
    assert capture.counts.udp == 3 and capture.warnings == []


def test_a_packet_of_an_undescribed_interface_is_counted_and_a_warning(tmp_path: Path) -> None:
    data = section() + enhanced(FRAME) + interface() + enhanced(FRAME) + enhanced(FRAME, interface=1) + simple(FRAME)
    rows, capture = read_bytes(tmp_path, data)
    assert [row.number for row in rows] == [2, 4]
    assert capture.counts.unknown_link == 2
    (warning,) = capture.warnings
    assert (warning.offset, warning.reason) == (28, "the packet's interface is not described; 2 packets skipped")


@pytest.mark.parametrize(("original", "snaplen", "left"), [(0, 0, 0), (500, 0, 0), (500, len(FRAME) - 3, 3)])
def test_a_simple_packet_is_as_long_as_its_block_and_snap_length_say(
    original: int, snaplen: int, left: int, tmp_path: Path
) -> None:
    rows, capture = read_bytes(tmp_path, section() + interface(snaplen=snaplen) + simple(FRAME, original=original))
    assert rows[0].payload == PAYLOAD[: len(PAYLOAD) - left]
    assert capture.counts.truncated == (left > 0)


@pytest.mark.parametrize("order", ["<", ">"])
@given(
    resolution=st.integers(0, 27) | st.integers(128, 255),
    seconds=st.fractions(0, 4 * 10**9),
    offset=st.integers(-(10**9), 10**9),
)
def test_times_of_every_resolution_and_offset_are_exact(
    order: str, resolution: int, seconds: Fraction, offset: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    per_second = 2 ** (resolution & 127) if resolution & 128 else 10**resolution
    ticks = min(int(seconds * per_second), 2**64 - 1)
    options = option(2, b"eth0", order) + option(9, bytes([resolution]), order)
    options += option(14, struct.pack(order + "q", offset), order) + option(0, b"", order)
    data = section(order) + interface(options=options, order=order) + enhanced(FRAME, ticks, order)
    rows, _ = read_bytes(tmp_path_factory.getbasetemp(), data)
    assert rows[0].ts_ns == ticks * 10**9 // per_second + offset * 10**9


SAMPLES = {"pcap": sample_pcap(), "pcapng": sample_pcapng()}


@pytest.fixture(params=SAMPLES, name="sample")
def _sample(request: pytest.FixtureRequest) -> bytes:
    return SAMPLES[request.param]


def zstd(data: bytes, **options: Any) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(data)


COMPRESSIONS = {
    "gzip": lambda data: gzip.compress(data),
    "gzip in three members": lambda data: b"".join(map(gzip.compress, (data[:5], data[5:999], data[999:]))),
    "gzip with padding": lambda data: gzip.compress(data[:99]) + bytes(3) + gzip.compress(data[99:]) + bytes(999),
    "zstd": lambda data: zstd(data),
    "zstd with a checksum": lambda data: zstd(data, write_checksum=True),
    "zstd without a content size": lambda data: zstd(data, write_content_size=False),
    "zstd in three frames": lambda data: b"".join(map(zstd, (data[:5], data[5:999], data[999:]))),
    "zstd with skippable frames": lambda data: b"".join(
        struct.pack("<II", 0x184D2A50, 5) + b"12345" + zstd(part) for part in (data[:700], data[700:], b"")
    ),
}


@pytest.mark.parametrize("compress", COMPRESSIONS.values(), ids=COMPRESSIONS.keys())
def test_a_compressed_file_reads_like_the_plain_one_whatever_its_name(compress, sample: bytes, tmp_path: Path) -> None:
    plain, _ = read_bytes(tmp_path, sample)
    for buffer_bytes in (64, 1 << 20):
        rows, capture = read_bytes(tmp_path, compress(sample), buffer_bytes=buffer_bytes)
        assert rows == plain
        assert capture.warnings == []
        assert capture.format.endswith((", gzip", ", zstd"))


def test_what_a_batch_holds_does_not_depend_on_chunks_and_batch_sizes(sample: bytes, tmp_path: Path) -> None:
    whole, capture = read_bytes(tmp_path, sample)
    assert len(whole) > 20
    for buffer_bytes in (64, 100, 1000):
        for batch_packets in (1, 3, 10_000):
            rows, other = read_bytes(tmp_path, sample, buffer_bytes=buffer_bytes, batch_packets=batch_packets)
            assert rows == whole
            assert other.counts == capture.counts


def test_a_batch_holds_at_most_as_many_packets_as_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(pcap([FRAME] * 25))
    with open_capture(path, batch_packets=10) as capture:
        assert [len(batch) for batch in capture] == [10, 10, 5]


def test_a_record_larger_than_the_chunk_is_read_whole(tmp_path: Path) -> None:
    big = ethernet(ipv4(udp(bytes(60_000))))
    for data in (pcap([FRAME, big, FRAME]), section() + interface() + simple(FRAME) + enhanced(big) + simple(FRAME)):
        rows, capture = read_bytes(tmp_path, data, buffer_bytes=256)
        assert [len(row.payload) for row in rows] == [len(PAYLOAD), 60_000, len(PAYLOAD)]
        assert capture.warnings == []


def test_a_pcap_may_announce_longer_records_than_usual(tmp_path: Path) -> None:
    long = FRAME + bytes(1 << 20)
    rows, capture = read_bytes(tmp_path, pcap_header(snaplen=2 << 20) + pcap_record(long) + pcap_record(FRAME))
    assert len(rows) == 2 and capture.warnings == []
    rows, capture = read_bytes(tmp_path, pcap_header() + pcap_record(FRAME) + pcap_record(long))
    assert len(rows) == 1 and len(capture.warnings) == 1


def test_a_batch_that_is_kept_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(sample_pcap(2000))
    rows, _ = read(path)
    with open_capture(path, buffer_bytes=4096, batch_packets=7) as capture:
        kept = list(capture)
    payloads = [batch.payload(row) for batch in kept for row in range(len(batch))]
    assert len({batch.buffer.ctypes.data for batch in kept}) > 20
    assert payloads == [row.payload for row in rows]
    assert [int(number) for batch in kept for number in batch.number] == [row.number for row in rows]


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(sample_pcap(20_000))
    buffers, columns, packets = set(), set(), 0
    with open_capture(path, buffer_bytes=4096, batch_packets=50) as capture:
        for batch in capture:
            buffers.add(batch.buffer.ctypes.data)
            columns.add(batch.start.ctypes.data)
            packets += len(batch)
    assert packets == 16_000 and path.stat().st_size > 400 * 4096
    assert len(buffers) <= 3 and len(columns) <= 3


def test_a_capture_without_packets_is_fine(tmp_path: Path) -> None:
    for data in (pcap([]), section(), section() + interface(), gzip.compress(pcap([])), zstd(section())):
        rows, capture = read_bytes(tmp_path, data)
        assert rows == [] and capture.warnings == []
        assert capture.counts == Counts(0, 0, 0, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("order", ["<", ">"])
def test_more_interfaces_than_the_table_holds_do_no_harm(order: str, tmp_path: Path) -> None:
    data = section(order) + interface(order=order) * 5000 + enhanced(FRAME, 1, order, 4095)
    rows, capture = read_bytes(tmp_path, data + enhanced(FRAME, 1, order, 4096) + enhanced(FRAME, 1, order, 0xFFFFFFFF))
    assert [row.number for row in rows] == [1]
    assert capture.counts.unknown_link == 2


def test_a_pipe_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    data = gzip.compress(pcap(sample_frames(100)))
    writer = threading.Thread(target=pipe.write_bytes, args=(data,))
    writer.start()
    rows, capture = read(pipe)
    writer.join()
    assert len(rows) == 80 and capture.warnings == []


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed (apt-get install tshark)")
def test_wireshark_finds_the_same_datagrams(sample: bytes, tmp_path: Path) -> None:
    rows, _ = read_bytes(tmp_path, sample)
    fields = ("frame.number", "frame.time_epoch", "udp.srcport", "udp.dstport", "udp.length")
    command = ["tshark", "-r", str(tmp_path / "capture"), "-Y", "udp && !icmp", "-T", "fields"]
    command += [word for field in fields for word in ("-e", field)]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    assert len(told) == len(rows) > 30
    for line, row in zip(told, rows, strict=True):
        number, time, source_port, dest_port, length = line.split("\t")
        flow = row.flow
        assert (int(number), int(source_port), int(dest_port)) == (row.number, flow.source_port, flow.dest_port)
        assert int(length) == 8 + len(row.payload)
        assert (Fraction(time) if time else 0) * 10**9 == row.ts_ns


NOT_CAPTURES = {
    "nothing": b"",
    "text": b"# not a capture\n",
    "two letters": b"hi",
    "compressed nothing": gzip.compress(b""),
    "compressed text": zstd(b"hello world"),
    "zeros": bytes(100),
    "a modified pcap": struct.pack("<IHHiIII", 0xA1B2CD34, 2, 4, 0, 0, 65535, 1),
}


@pytest.mark.parametrize("data", NOT_CAPTURES.values(), ids=NOT_CAPTURES.keys())
def test_what_is_no_capture_is_refused_with_a_hint(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "capture.pcap"
    path.write_bytes(data)
    with pytest.raises(CaptureError) as refusal:
        open_capture(path)
    assert str(path) in refusal.value.reason and refusal.value.hint


def test_a_file_that_cannot_be_opened_is_refused_with_a_hint(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.pcap", tmp_path):
        with pytest.raises(CaptureError) as refusal:
            open_capture(path)
        assert str(path) in refusal.value.reason and refusal.value.hint
