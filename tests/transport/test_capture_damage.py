"""Damaged, cut, random and hostile files: every byte is read or told, and nothing is an exception."""

from __future__ import annotations

import ctypes
import gzip
import mmap
import multiprocessing
import random
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from transport.capture_builders import (
    FRAMES,
    Row,
    block,
    enhanced,
    ethernet,
    interface,
    ipv4,
    pcap,
    pcap_header,
    pcap_record,
    read_bytes,
    sample_pcap,
    sample_pcapng,
    section,
    simple,
    udp,
)

from umdf.errors import CaptureError
from umdf.transport.capture_kernel import MAX_BLOCK_BYTES
from umdf.transport.capture_reader import CaptureReader
from umdf.transport.compression import MAX_OUTPUT_BYTES

FRAME = ethernet(ipv4(udp()))
SAMPLES = {"pcap": sample_pcap(), "pcapng": sample_pcapng()}
zstd = zstandard.ZstdCompressor(write_checksum=True).compress
PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "zstd": zstd,
    "zstd in frames": lambda data: zstd(data[:900]) + zstd(data[900:]),
}


Sized = Callable[[int, int], int]  # the fixture: sizes of `make test` and of `make soak`


@pytest.fixture(params=SAMPLES, name="sample", scope="module")
def _sample(request: pytest.FixtureRequest) -> bytes:
    return SAMPLES[request.param]


@pytest.fixture(name="place", scope="module")
def _place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damage")


def boundaries(sample: bytes) -> list[int]:
    """Every offset at which a record or block of the sample starts, and its end; found without the code under test."""
    at, found = (24, [24]) if sample[:4] == pcap_header()[:4] else (0, [])
    order = "<"
    while at < len(sample):
        if found[:1] == [24]:
            at += 16 + struct.unpack_from("<I", sample, at + 8)[0]
        else:
            if sample[at : at + 4] == b"\x0a\x0d\x0d\x0a":
                order = "<" if sample[at + 8] == 0x4D else ">"
            at += struct.unpack_from(order + "I", sample, at + 4)[0]
        found.append(at)
    return found


def test_a_cut_at_any_byte_yields_the_records_before_it_and_one_warning(
    sample: bytes, place: Path, sized: Sized
) -> None:
    whole, _ = read_bytes(place, sample)
    whole_at = boundaries(sample)
    for cut in range(random.randrange(1, 4), len(sample), sized(3, 1)):
        rows, capture = read_bytes(place, sample[:cut])
        begun = max((offset for offset in whole_at if offset <= cut), default=0)
        assert rows == [row for row in whole if row.offset < begun]
        assert [warning.offset for warning in capture.warnings] == ([] if cut in whole_at else [begun])


@pytest.mark.parametrize("packing", ["gzip", "zstd", "zstd in frames"])
def test_a_compressed_file_cut_at_any_byte_yields_a_prefix_and_one_warning(
    packing: str, sample: bytes, place: Path, sized: Sized
) -> None:
    whole, _ = read_bytes(place, sample)
    packed = PACKINGS[packing](sample)
    frame_end = len(zstd(sample[:900])) if packing == "zstd in frames" else 0
    best = 0
    for cut in range(4, len(packed), sized(2, 1)):
        rows, capture = read_bytes(place, packed[:cut])
        assert rows == whole[: len(rows)]
        assert len(rows) >= best
        best = len(rows)
        (warning,) = capture.warnings
        assert cut == frame_end or f"cut at its byte {cut}" in warning.reason
    assert best > 10


def flip(data: bytes, rng: random.Random, flips: int) -> bytes:
    mutated = bytearray(data)
    for _ in range(flips):
        mutated[rng.randrange(len(mutated))] ^= 1 << rng.randrange(8)
    return bytes(mutated)


def read_safely(place: Path, data: bytes) -> tuple[list[Row], int]:
    """Any bytes: every record is counted once, and every byte is a part of one or told."""
    try:
        rows, capture = read_bytes(place, data)
    except CaptureError:
        return [], 0
    counts = capture.counts
    skipped = counts.not_ip + counts.not_udp + counts.fragments + counts.malformed + counts.unknown_link
    assert counts.records == counts.udp + skipped + counts.wrong_checksum
    assert counts.udp == len(rows)
    if data[:4] in (pcap_header()[:4], pcap_header(">")[:4], section()[:4]):
        assert capture.read_bytes + capture.unread_bytes == len(data)
    assert [row.number for row in rows] == sorted({row.number for row in rows})
    return rows, len(capture.warnings)


@pytest.mark.parametrize("packing", PACKINGS)
def test_flipped_bits_never_do_harm(packing: str, sample: bytes, place: Path, sized: Sized) -> None:
    rng = random.Random(20261115)
    packed = PACKINGS[packing](sample)
    warned = 0
    for flips in range(sized(200, 20_000)):
        warned += read_safely(place, flip(packed, rng, 1 + flips % 4))[1] > 0
    assert warned > 20  # the rest hit payloads, addresses and times


@given(data=st.binary(max_size=400), start=st.sampled_from(["<pcap", ">pcap", "<pcapng", ">pcapng", "gzip", "zstd"]))
def test_random_bytes_behind_a_good_start_never_do_harm(data: bytes, start: str, place: Path) -> None:
    starts = {
        "<pcap": pcap_header(),
        ">pcap": pcap_header(">"),
        "<pcapng": section() + interface(),
        ">pcapng": section(">") + interface(order=">"),
        "gzip": gzip.compress(pcap_header()),
        "zstd": zstd(pcap_header()),
    }
    read_safely(place, starts[start] + data)


@given(
    kind=st.sampled_from([1, 2, 3, 6, 0x0A0D0D0A]),
    order=st.sampled_from("<>"),
    body=st.binary(min_size=4, max_size=200),
)
def test_well_framed_blocks_of_random_content_never_do_harm(kind: int, order: str, body: bytes, place: Path) -> None:
    data = section(order) + interface(order=order) + block(kind, body, order) + enhanced(FRAME, 0, order)
    read_safely(place, data)


@given(frames=st.lists(st.binary(max_size=120), max_size=20), link=st.sampled_from([0, 1, 12, 101, 108, 113, 228, 276]))
def test_random_frames_never_do_harm(frames: list[bytes], link: int, place: Path) -> None:
    rows, _ = read_safely(place, pcap(frames, link=link))
    assert all(row.payload in frames[row.number - 1] for row in rows)


def guarded(capacity: int) -> np.ndarray:
    """Memory behind which there is a page that must not be touched."""
    capacity += -capacity % mmap.PAGESIZE
    region = mmap.mmap(-1, capacity + mmap.PAGESIZE)
    memory = np.frombuffer(region, np.uint8)
    no_access = 0
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(memory.ctypes.data + capacity), mmap.PAGESIZE, no_access) == 0
    return memory[:capacity]


def read_before_guard(place: Path, files: list[bytes]) -> None:
    """Every chunk ends where the guard begins; one byte read too far ends the process."""
    memory = guarded(3 * MAX_BLOCK_BYTES)
    CaptureReader._allocate_buffer = lambda walk, size: memory[len(memory) - size :]  # type: ignore[method-assign]
    for data in files:
        try:
            read_bytes(place, data, buffer_bytes=len(data))
        except CaptureError:
            pass


def test_no_byte_behind_the_chunk_is_read(place: Path, sized: Sized) -> None:
    rng = random.Random(8)
    files = []
    for link, frame, _ in FRAMES.values():
        files += [pcap([frame, frame[:size]], link=link) for size in range(len(frame))]
    for sample in SAMPLES.values():
        files += [sample[:cut] for cut in range(100, len(sample), 5)]
        for _ in range(sized(200, 50_000)):
            files.append(flip(sample[: rng.randrange(100, len(sample))], rng, rng.randrange(1, 9)))
    child = multiprocessing.get_context("fork").Process(target=read_before_guard, args=(place, files))
    child.start()
    child.join()
    assert child.exitcode == 0


GOOD = section() + interface() + simple(FRAME)
DAMAGE = {
    "an insane record length": (pcap([FRAME]) + struct.pack("<IIII", 1, 2, 0xFFFFFFF0, 60), "claims 4294967280 bytes"),
    "a record length just too large": (pcap([FRAME]) + struct.pack("<IIII", 1, 2, 262_145, 60), "claims 262145 bytes"),
    "zeros, as a crash leaves them": (pcap([FRAME]) + bytes(1000), "zeros instead of a record"),
    "an insane block length": (GOOD + struct.pack("<III", 6, 1 << 31, 0), "claims 2147483648 bytes"),
    "an unaligned block": (GOOD + struct.pack("<IIIII", 6, 33, 0, 0, 0) + bytes(40), "not a multiple of 4"),
    "a block too short for anything": (GOOD + struct.pack("<III", 99, 8, 8), "too few"),
    "a block of no length": (GOOD + struct.pack("<III", 99, 0, 0), "too few"),
    "a block too short for its type": (GOOD + block(6, bytes(16)), "too few"),
    "two lengths that differ": (GOOD + struct.pack("<IIII", 99, 16, 0, 20) + bytes(9), "differ, the second one is 20"),
    "a section without a byte order": (
        GOOD + struct.pack("<IIII", 0x0A0D0D0A, 28, 7, 0) + bytes(12),
        "byte-order magic",
    ),
    "a section of version 2": (GOOD + block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 2, 0, -1)), "version 2"),
}


@pytest.mark.parametrize("case", DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_at_the_end_is_one_warning_at_its_offset_with_all_that_is_unread(
    case: tuple[bytes, str], tmp_path: Path
) -> None:
    data, reason = case
    rows, capture = read_bytes(tmp_path, data)
    assert [row.number for row in rows] == [1]
    (warning,) = capture.warnings
    good = pcap([FRAME]) if data.startswith(pcap_header()) else GOOD
    assert (warning.offset, warning.unread_bytes) == (len(good), len(data) - len(good))
    assert reason in warning.reason
    told = str(warning)
    assert f"{tmp_path / 'capture'}: at offset {len(good)}: " in told
    assert f"{warning.unread_bytes:,} bytes unread, up to offset {len(data)}" in told


def gzip_stored(parts: list[bytes]) -> bytes:
    """A gzip stream of stored blocks (RFC 1951 section 3.2.4), not ended."""
    blocks = (b"\0" + struct.pack("<HH", len(part), len(part) ^ 0xFFFF) + part for part in parts)
    return b"\x1f\x8b\x08" + bytes(7) + b"".join(blocks)


def zstd_raw(parts: list[bytes]) -> bytes:
    """A zstd frame of raw blocks (RFC 8878 section 3.1.1.2), not ended; 0x58: a window of 2 MiB."""
    blocks = (struct.pack("<I", len(part) << 3)[:3] + part for part in parts)
    return b"\x28\xb5\x2f\xfd\x00\x58" + b"".join(blocks)


@pytest.mark.parametrize("packing", [gzip_stored, zstd_raw])
@pytest.mark.parametrize("buffer_bytes", [1000, 4 << 20])
def test_a_corrupted_stream_yields_all_that_comes_before_the_corrupted_block(
    packing: Callable[[list[bytes]], bytes], buffer_bytes: int, place: Path
) -> None:
    sample = sample_pcap(20_000)
    whole, _ = read_bytes(place, sample)
    parts = [sample[at : at + 60_000] for at in range(0, len(sample), 60_000)]
    assert len(sample) > 3 * MAX_OUTPUT_BYTES
    good = packing(parts)
    rows, capture = read_bytes(
        place, good + b"\x07" + bytes(5000), buffer_bytes=buffer_bytes
    )  # 7: a reserved block type
    # The byte that a decompressor was about to hand out when it met the damage may be lost, and so its record.
    assert len(whole) - len(rows) <= 1 and rows == whole[: len(rows)]
    (warning,) = capture.warnings
    assert "damaged" in warning.reason and len(sample) - 200 < warning.offset <= len(sample)


@pytest.mark.parametrize(("packing", "tail"), [("gzip", b"garbage"), ("gzip", b"\x1f"), ("zstd", b"garbage behind")])
def test_trailing_bytes_behind_a_compressed_stream_are_a_warning(packing: str, tail: bytes, tmp_path: Path) -> None:
    sample = SAMPLES["pcap"]
    whole, _ = read_bytes(tmp_path, sample)
    rows, capture = read_bytes(tmp_path, PACKINGS[packing](sample) + tail)
    assert rows == whole
    (warning,) = capture.warnings
    assert warning.offset == len(sample) and packing in warning.reason


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_a_wrong_checksum_is_a_warning_and_loses_no_packet(packing: str, tmp_path: Path) -> None:
    sample = sample_pcap(30_000)
    whole, _ = read_bytes(tmp_path, sample)
    packed = bytearray(PACKINGS[packing](sample))
    packed[-5 if packing == "gzip" else -1] ^= 1
    rows, capture = read_bytes(tmp_path, bytes(packed))
    assert len(rows) >= len(whole) - 1 and rows == whole[: len(rows)]
    (warning,) = capture.warnings
    assert packing in warning.reason


def test_a_decompression_bomb_is_bounded_in_memory(tmp_path: Path) -> None:
    """64 MiB of empty records in a few kilobytes."""
    bomb = pcap([FRAME]) + pcap_record(b"") * (4 << 20)
    for packed in (gzip.compress(bomb), zstd(bomb)):
        rows, capture = read_bytes(tmp_path, packed, buffer_bytes=1 << 16)
        assert len(rows) == 1
        assert capture.counts.malformed == 4 << 20
