"""What is written can be read, by this package and by Wireshark."""

from __future__ import annotations

import io
import random
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transport.capture_builders import SECOND, read

from umdf.errors import CaptureError, EncodeError
from umdf.transport.capture import Flow, open_capture
from umdf.transport.pcap_writer import MAX_PAYLOAD_BYTES, PcapWriter

V4 = Flow("10.0.0.1", 1000, "239.255.7.9", 2000)
V6 = Flow("2001:db8::1", 1000, "ff0e::1:7", 65_535)
FLOWS = [V4, V6, V4._replace(dest="10.0.0.2", source_port=0), V6._replace(dest="2001:db8::2")]
NOW = SECOND * 10**9


def frames_of(data: bytes) -> list[bytes]:
    frames, at = [], 24
    while at < len(data):
        size = int.from_bytes(data[at + 8 : at + 12], "little")
        frames.append(data[at + 16 : at + 16 + size])
        at += 16 + size
    return frames


def checksum(data: bytes) -> int:
    """RFC 1071 as it is written; 0 for data that holds its own correct checksum."""
    data += bytes(len(data) % 2)
    total = sum(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def udp_checksum(frame: bytes) -> int:
    if frame[12:14] == b"\x08\x00":
        return checksum(frame[26:34] + b"\0\x11" + frame[38:40] + frame[34:])
    return checksum(frame[22:54] + b"\0\0" + frame[58:60] + b"\0\0\0\x11" + frame[54:])


def test_a_packet_is_written_byte_for_byte_as_the_standards_say() -> None:
    file = io.BytesIO()
    with PcapWriter(file) as writer:
        writer.write(NOW + 5, b"abc", ("10.0.0.1", 1000), ("239.255.7.9", 2000))
    data = file.getvalue()
    assert data[:24].hex() == "4d3cb2a1020004000000000000000000" + "0000040001000000"
    assert data[24:40] == b"".join(value.to_bytes(4, "little") for value in (SECOND, 5, 45, 45))
    ethernet = "01005e7f0709" + "02000a000001" + "0800"
    ipv4 = "4500001f000040004011" + "39c5" + "0a000001" + "efff0709"
    udp = "03e807d0000b" + "2eb4" + "616263"
    assert data[40:].hex() == ethernet + ipv4 + udp
    assert checksum(bytes.fromhex(ipv4)) == 0


@given(
    packets=st.lists(
        st.tuples(st.binary(max_size=70), st.integers(0, 2**32 * 10**9 - 1), st.integers(0, len(FLOWS) - 1)),
        min_size=1,
        max_size=20,
    )
)
def test_packets_of_many_flows_read_back_with_correct_checksums(
    packets: list[tuple[bytes, int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "written"
    packets = sorted(packets, key=lambda packet: packet[1])  # a single one from another time would be taken for damage
    ends = np.cumsum([len(payload) for payload, _, _ in packets])
    starts = ends - [len(payload) for payload, _, _ in packets]
    with PcapWriter(path) as writer:
        buffer = b"".join(payload for payload, _, _ in packets)
        writer.write_flows(buffer, starts, ends, [ts for _, ts, _ in packets], [flow for *_, flow in packets], FLOWS)
    rows, capture = read(path)
    assert [(row.payload, row.ts_ns, row.flow) for row in rows] == [(p, ts, FLOWS[flow]) for p, ts, flow in packets]
    assert capture.warnings == []
    for frame in frames_of(path.read_bytes()):
        assert udp_checksum(frame) == 0
        assert frame[12:14] == b"\x86\xdd" or checksum(frame[14:34]) == 0


def test_single_packets_and_a_batch_write_the_same_file(tmp_path: Path) -> None:
    rng = random.Random(1)
    payloads = [rng.randbytes(rng.randrange(1400)) for _ in range(3000)]  # more than the writer buffers
    with PcapWriter(tmp_path / "single") as writer:
        for number, payload in enumerate(payloads):
            writer.write(NOW + number, payload, ("10.0.0.1", 1), ("224.0.0.1", 2))
    ends = np.cumsum([len(payload) for payload in payloads])
    starts = np.concatenate([[0], ends[:-1]])
    times = NOW + np.arange(len(payloads))
    with PcapWriter(tmp_path / "batch") as writer:
        writer.write_batch(b"".join(payloads), starts, ends, times, ("10.0.0.1", 1), ("224.0.0.1", 2))
    assert (tmp_path / "single").read_bytes() == (tmp_path / "batch").read_bytes()
    assert [row.payload for row in read(tmp_path / "batch")[0]] == payloads


def test_a_capture_can_be_copied_batch_by_batch(tmp_path: Path) -> None:
    with PcapWriter(tmp_path / "first") as writer:
        for number in range(100):
            flow = FLOWS[number % 4]
            writer.write(NOW + number, bytes(number), flow[:2], flow[2:])
    with open_capture(tmp_path / "first", batch_packets=7) as capture, PcapWriter(tmp_path / "second") as writer:
        for batch in capture:
            writer.write_flows(batch.buffer, batch.start, batch.end, batch.ts_ns, batch.flow, batch.flows)
    assert (tmp_path / "second").read_bytes() == (tmp_path / "first").read_bytes()


def test_a_checksum_that_comes_out_as_zero_is_sent_as_ones() -> None:
    sums = []
    for payload in (b"\0\0", None):
        file = io.BytesIO()
        with PcapWriter(file) as writer:
            writer.write(0, payload or sums[0], V4[:2], V4[2:])  # its own checksum makes all words sum up to 0xFFFF
        sums.append(frames_of(file.getvalue())[0][40:42])
    assert sums[0] not in (b"\0\0", b"\xff\xff") and sums[1] == b"\xff\xff"


def test_the_snap_length_cuts_frames_and_keeps_their_length(tmp_path: Path) -> None:
    for snaplen in (10, 50):
        with PcapWriter(tmp_path / "cut", snaplen=snaplen) as writer:
            writer.write(NOW, b"0123456789", V4[:2], V4[2:])
            writer.write(NOW, b"01", V4[:2], V4[2:])
        data = (tmp_path / "cut").read_bytes()
        assert [len(frame) for frame in frames_of(data)] == [snaplen, min(snaplen, 44)]
        assert int.from_bytes(data[36:40], "little") == 52
    rows, capture = read(tmp_path / "cut")
    assert [row.payload for row in rows] == [b"01234567", b"01"] and capture.counts.truncated == 1


@pytest.mark.parametrize("snaplen", [0, -1, 1 << 32])
def test_a_snap_length_that_makes_no_sense_is_refused(snaplen: int) -> None:
    with pytest.raises(EncodeError):
        PcapWriter(io.BytesIO(), snaplen=snaplen)


def test_nothing_is_written_after_the_end() -> None:
    file = io.BytesIO()
    writer = PcapWriter(file)
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.write(NOW, b"abc", V4[:2], V4[2:])
    assert len(file.getvalue()) == 24


def test_the_longest_payload_fits(tmp_path: Path) -> None:
    with PcapWriter(tmp_path / "long") as writer:
        for flow in (V4, V6):
            writer.write(NOW, bytes(MAX_PAYLOAD_BYTES), flow[:2], flow[2:])
    assert [len(row.payload) for row in read(tmp_path / "long")[0]] == [MAX_PAYLOAD_BYTES] * 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"start": [-1]},
        {"end": [11]},
        {"start": [5], "end": [4]},
        {"ts_ns": [-1]},
        {"ts_ns": [2**32 * 10**9]},
        {"ts_ns": [1, 2]},
        {"flow": [1]},
        {"flow": [65_536]},
        {"flow": [-1]},
        {"flows": []},
        {"buffer": np.zeros(10, np.int16)},
        {"buffer": np.zeros(20, np.uint8)[::2]},
        {"buffer": bytes(70_000), "end": [MAX_PAYLOAD_BYTES + 1]},
        {"flows": [V4._replace(dest="ff0e::1")]},
        {"flows": [V4._replace(dest="somewhere")]},
        {"flows": [V4._replace(dest_port=65_536)]},
    ],
    ids=str,
)
def test_what_cannot_be_written_is_refused_before_anything_is(wrong: dict, tmp_path: Path) -> None:
    good = {"buffer": bytes(10), "start": [0], "end": [10], "ts_ns": [NOW], "flow": [0], "flows": [V4]}
    with PcapWriter(tmp_path / "refused") as writer:
        with pytest.raises(EncodeError):
            writer.write_flows(**good | wrong)
        writer.write_flows(**good)
    assert len(read(tmp_path / "refused")[0]) == 1


def test_a_file_that_cannot_be_written_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(CaptureError) as refusal:
        PcapWriter(tmp_path / "no" / "where.pcap")
    assert refusal.value.hint


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full to play a full disk")
def test_a_full_disk_raises_an_error_with_a_hint() -> None:
    with pytest.raises(CaptureError) as refusal, PcapWriter("/dev/full") as writer:
        writer.write(NOW, b"abc", V4[:2], V4[2:])
    assert refusal.value.hint


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed (apt-get install tshark)")
def test_wireshark_reads_the_same_packets_and_finds_their_checksums_good(tmp_path: Path) -> None:
    path = tmp_path / "written.pcap"
    with PcapWriter(path) as writer:
        for number in range(200):
            flow = FLOWS[number % 4]
            writer.write(NOW + number * 1_000_000_007, bytes(range(number)), flow[:2], flow[2:])
    fields = ["frame.number", "frame.time_epoch", "udp.length", "ip.checksum.status", "udp.checksum.status"]
    fields += ["eth.dst", "ip.dst", "ipv6.dst", "udp.dstport"]
    command = ["tshark", "-r", str(path), "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]
    command += ["-T", "fields", *(word for field in fields for word in ("-e", field))]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    told = [line.split("\t") for line in output.splitlines()]
    rows, _ = read(path)
    assert len(told) == len(rows) == 200
    for (number, time, length, ip_status, udp_status, mac, v4, v6, port), row in zip(told, rows, strict=True):
        assert int(number) == row.number
        assert time == f"{row.ts_ns // 10**9}.{row.ts_ns % 10**9:09}"
        assert int(length) == 8 + len(row.payload)
        assert ip_status == ("" if v6 else "1") and udp_status == "1"
        assert (v4 or v6, int(port)) == row.flow[2:]
        assert mac == {V4.dest: "01:00:5e:7f:07:09", V6.dest: "33:33:00:01:00:07"}.get(row.flow.dest, mac)
