"""Raw streams: every message before a cut or damage, the place of it, and an error for what is no stream at all."""

from __future__ import annotations

import gzip
import io
import random
import struct
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from transport.capture_builders import sample_pcap, sample_pcapng

from umdf.errors import CaptureError
from umdf.transport.raw_stream import RawStream, open_raw_stream
from umdf.wire.packet import ChunkParser, FastFraming

PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


def unit(body: bytes, sequence: int = 1, chunks: int = 1, current: int = 1) -> bytes:
    return struct.pack(">IHHH", sequence, chunks, current, len(body)) + body


UNITS = [unit(bytes([number & 0xFF]) * (number * 37 % 900 + 1), number) for number in range(1, 400)]
STREAM = b"".join(UNITS)


def units_of(stream: RawStream) -> list[bytes]:
    return [batch.payload(row) for batch in stream for row in range(len(batch))]


def read(source: bytes, **options: int) -> tuple[list[bytes], RawStream]:
    with open_raw_stream(io.BytesIO(source), FastFraming(), **options) as stream:
        return units_of(stream), stream


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("batch_packets", [1, 7, 10_000])
def test_a_compressed_file_yields_the_same_messages_as_a_plain_one(
    packing: str, batch_packets: int, tmp_path: Path
) -> None:
    path = tmp_path / "messages.bin"
    path.write_bytes(PACKINGS[packing](STREAM))
    with open_raw_stream(path, FastFraming(), batch_packets=batch_packets, buffer_bytes=1) as stream:
        found, offset = [], 0
        for batch in stream:
            assert len(batch) <= batch_packets
            assert batch.number[0] == len(found) + 1 and batch.offset[0] == offset
            assert not batch.ts_ns.any() and not batch.flow.any() and len(batch.flows) == 1
            found += [batch.payload(row) for row in range(len(batch))]
            offset = sum(map(len, found))
    assert found == UNITS and stream.warnings == []


def test_batches_of_a_raw_stream_parse_like_packets() -> None:
    with open_raw_stream(io.BytesIO(STREAM), FastFraming()) as stream:
        (batch,) = stream
    frames = ChunkParser().parse(batch.buffer, batch.start, batch.end)
    assert frames.msg_seq_num.tolist() == list(range(1, 400)) and frames.quarantine == []


def test_a_held_batch_keeps_its_bytes_and_memory_does_not_grow_with_the_file() -> None:
    longest = [unit(bytes([number]) * 65_535, number) for number in range(1, 60)]
    with open_raw_stream(io.BytesIO(b"".join(longest)), FastFraming(), buffer_bytes=100_000) as stream:
        first = next(iter(stream))
        sizes = {first.buffer.nbytes}
        for batch in stream:
            sizes.add(batch.buffer.nbytes)
        assert first.payload(0) == longest[0]
    assert max(sizes) <= 100_000


@given(st.integers(0, 300) | st.integers(0, len(STREAM)))
def test_a_stream_cut_at_any_byte_yields_every_message_before_the_cut(size: int) -> None:
    whole = sum(end <= size for end in accumulate(map(len, UNITS)))
    if size < 10:
        with pytest.raises(CaptureError):
            read(STREAM[:size])
        return
    found, stream = read(STREAM[:size])
    assert found == UNITS[:whole]
    left = size - sum(map(len, found))
    if left:
        (warning,) = stream.warnings
        assert warning.offset == size - left
        assert f"the file ends inside a message, after {left} of at least" in warning.reason
    else:
        assert stream.warnings == []


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_a_cut_compressed_file_yields_what_was_in_it(packing: str) -> None:
    noise = [unit(random.Random(number).randbytes(1_400), number) for number in range(1, 400)]
    found, stream = read(PACKINGS[packing](b"".join(noise))[:300_000])
    assert 50 < len(found) < 399 and found == noise[: len(found)]
    (warning,) = stream.warnings
    assert f"the {packing} stream is cut at its byte 300000" in str(warning)
    assert warning.offset == sum(map(len, found))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (unit(b"bad", 9, 0, 0), "NoChunks is 0"),
        (unit(b"bad", 9, 2, 3), "CurrentChunk 3 is not in 1 to 2"),
        (unit(b"bad", 9, 2, 0), "CurrentChunk 0 is not in 1 to 2"),
        (unit(b"", 9), "MsgLength is 0"),
        (bytes(100), "NoChunks is 0"),
    ],
)
def test_damage_ends_the_stream_with_its_place(bad: bytes, reason: str) -> None:
    before = UNITS[:20]
    found, stream = read(b"".join(before) + bad + STREAM, batch_packets=6)
    assert found == before
    (warning,) = stream.warnings
    assert warning.offset == sum(map(len, before))
    assert warning.reason == f"{reason}; nothing behind it is read"


NO_STREAMS = {
    "pcap": sample_pcap(),
    "pcapng": sample_pcapng(),
    "text": b"Is this a stream of messages? It is not, " * 40,
    "csv": b"1,2,3\n" * 500,
    "zeros": bytes(5_000),
    "ones": b"\xff" * 5_000,
    "XML": b'<?xml version="1.0" encoding="UTF-8"?>\n<templates/>\n' * 9,
    "a datagram header of SBE": struct.pack("<BBHIQ", 72, 1, 3, 1, 1 << 60) + bytes(50),
    "one message, then none": UNITS[0] + b"what follows is none",
    "too short for a header": UNITS[0][:9],
    "nothing": b"",
    "nothing in gzip": gzip.compress(b""),
    "a cut gzip": gzip.compress(STREAM)[:12],
}


@pytest.mark.parametrize("name", NO_STREAMS)
def test_what_is_no_stream_is_an_error_with_a_hint(name: str) -> None:
    with pytest.raises(CaptureError) as caught:
        read(NO_STREAMS[name])
    assert caught.value.hint
    assert "\n" not in str(caught.value)


@given(st.binary(min_size=200, max_size=400))
def test_random_bytes_are_no_stream_or_end_with_a_warning(data: bytes) -> None:
    try:
        found, stream = read(data)
    except CaptureError:
        return
    assert b"".join(found) == data or len(stream.warnings) == 1


def test_a_hostile_number_of_chunks_is_still_a_stream() -> None:
    hostile = [unit(b"!", 1, 65_535, 1), unit(b"?", 1, 65_535, 2)]
    assert read(b"".join(hostile))[0] == hostile


def test_a_missing_file_and_a_directory_are_errors(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="No such file or directory; check the path"):
        open_raw_stream(tmp_path / "none.bin", FastFraming())
    with pytest.raises(CaptureError, match="Is a directory"):
        open_raw_stream(tmp_path, FastFraming())


def test_a_file_that_was_given_open_stays_open(tmp_path: Path) -> None:
    for source in (io.BytesIO(STREAM), io.BufferedReader(io.BytesIO(STREAM))):  # type: ignore[type-var]
        with open_raw_stream(source, FastFraming()) as stream:
            assert units_of(stream) == UNITS
        assert not source.closed
    path = tmp_path / "messages.bin"
    path.write_bytes(STREAM)
    with open_raw_stream(path, FastFraming()) as stream:
        pass
    assert units_of(stream) == []
