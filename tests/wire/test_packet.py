"""Recognition from content and the frames of FAST datagrams: right for sound packets, calm for all others."""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from umdf.wire.packet import (
    ChunkParser,
    Chunks,
    FastFraming,
    FlowProtocols,
    Protocol,
    detect_file_protocol,
    detect_flow_protocols,
    detect_protocols,
)

Sized = Callable[[int, int], int]
UNKNOWN, SBE, FAST = Protocol.UNKNOWN, Protocol.SBE, Protocol.FAST
# Reference section 6: packet header, then the framing and message headers of its two messages, 76 and 68 bytes long.
SAMPLE = (
    bytes.fromhex("37000100b168de3a00c89865f4aceb15 4c0050eb40003200 02000f00")
    + bytes(64)
    + bytes.fromhex("440050eb38003500 02000a00")
    + bytes(56)
)


def chunk(body: bytes, sequence: int = 1, chunks: int = 1, current: int = 1, length: int | None = None) -> bytes:
    return struct.pack(">IHHH", sequence, chunks, current, len(body) if length is None else length) + body


def sbe(bodies: Sequence[bytes], sequence: int = 1, sending_time: int = 0) -> bytes:
    messages = (struct.pack("<HHHHHH", 12 + len(body), 0xEB50, len(body), 50, 2, 16) + body for body in bodies)
    return struct.pack("<BBHIQ", 72, 1, 3, sequence, sending_time) + b"".join(messages)


@dataclass(frozen=True)
class Packed:
    buffer: NDArray[np.uint8]
    start: NDArray[np.int64]
    end: NDArray[np.int64]


def packed(packets: Sequence[bytes], gap: int = 3) -> Packed:
    """Packets in one buffer, with other bytes between them."""
    buffer, start, end = bytearray(), [], []
    for packet in packets:
        buffer += b"\xa5" * gap
        start.append(len(buffer))
        buffer += packet
        end.append(len(buffer))
    return Packed(np.frombuffer(bytes(buffer), np.uint8), np.array(start, np.int64), np.array(end, np.int64))


def protocols(packets: Sequence[bytes]) -> list[int]:
    batch = packed(packets)
    return detect_protocols(batch.buffer, batch.start, batch.end).tolist()


def framed(packets: Sequence[bytes]) -> Chunks:
    batch = packed(packets)
    return ChunkParser().parse(batch.buffer, batch.start, batch.end)


def rows(frames: Chunks) -> list[tuple[int, int, int, int, int, bytes]]:
    columns = (frames.packet, frames.msg_index, frames.msg_seq_num, frames.no_chunks, frames.current_chunk)
    bodies = [frames.buffer[s:e].tobytes() for s, e in zip(frames.start, frames.end, strict=True)]
    return list(zip(*(column.tolist() for column in columns), bodies, strict=True))


@st.composite
def chunks(draw: st.DrawFn, longest: int = 60) -> tuple[int, int, int, bytes]:
    no_chunks = draw(st.integers(1, 0xFFFF))
    return (
        draw(st.integers(0, 0xFFFFFFFF)),
        no_chunks,
        draw(st.integers(1, no_chunks)),
        draw(st.binary(min_size=1, max_size=longest)),
    )


FAST_DATAGRAMS = st.lists(chunks(), min_size=1, max_size=6)
SBE_PACKETS = st.builds(
    sbe,
    st.lists(st.binary(max_size=90), min_size=1, max_size=5),
    st.integers(0, 0xFFFFFFFF),
    st.integers(0, (1 << 64) - 1),
)


def datagram(parts: Sequence[tuple[int, int, int, bytes]]) -> bytes:
    return b"".join(chunk(body, sequence, no_chunks, current) for sequence, no_chunks, current, body in parts)


@given(
    st.lists(st.tuples(st.just(SBE), SBE_PACKETS) | st.tuples(st.just(FAST), FAST_DATAGRAMS.map(datagram)), max_size=8)
)
def test_the_protocol_of_every_valid_packet_is_detected(packets: list[tuple[Protocol, bytes]]) -> None:
    assert protocols([packet for _, packet in packets]) == [protocol for protocol, _ in packets]


def test_the_sample_packet_of_the_reference_is_sbe() -> None:
    assert protocols([SAMPLE, SAMPLE[:92]]) == [SBE, SBE]


def test_datagrams_of_every_size_are_recognised() -> None:
    sizes = [1, 2, 1410, 1420, 1462, 1463, 8962, 65_497]
    assert protocols([chunk(bytes(size)) for size in sizes]) == [FAST] * len(sizes)
    assert protocols([sbe([bytes(size)]) for size in sizes if size < 65_000]) == [SBE] * (len(sizes) - 1)


@pytest.mark.parametrize(
    ("what", "packet"),
    {
        "nothing": b"",
        "a packet header alone": sbe([]),
        "a packet header with half a framing header": sbe([b"body"])[:19],
        "another encoding": sbe([b"body"]).replace(b"\x50\xeb", b"\x51\xeb"),
        "a messageLength below its own header": sbe([]) + struct.pack("<HH", 11, 0xEB50) + bytes(30),
        "a technical header alone": chunk(b"", length=5),
        "an empty message": chunk(b""),
        "no chunks": chunk(b"body", chunks=0, current=0),
        "chunk zero": chunk(b"body", chunks=2, current=0),
        "a chunk behind the last": chunk(b"body", chunks=2, current=3),
        "a length past the end": chunk(b"body", length=5),
        "trailing bytes": chunk(b"body") + b"\0",
        "zeros": bytes(64),
        "text": b"GET / HTTP/1.1\r\nHost: example\r\n\r\n",
    }.items(),
)
def test_a_packet_of_neither_protocol_is_unknown(what: str, packet: bytes) -> None:
    assert protocols([packet]) == [UNKNOWN], what


def test_an_sbe_packet_that_the_snap_length_cut_is_still_sbe() -> None:
    assert protocols([sbe([bytes(80), bytes(50)])[:size] for size in (20, 30, 60, 110, 125)]) == [SBE] * 5


def test_a_valid_fast_packet_that_starts_like_a_damaged_sbe_one_is_fast() -> None:
    body = bytearray(60)
    body[6:10] = struct.pack("<HH", 40, 0xEB50)  # where the first framing header would be
    assert protocols([chunk(bytes(body))]) == [FAST]


def test_the_protocol_of_a_flow_is_that_of_most_of_its_packets() -> None:
    protocol = np.array([SBE, SBE, UNKNOWN, FAST, UNKNOWN, UNKNOWN, FAST, FAST, SBE], np.uint8)
    flow = np.array([1, 1, 1, 1, 1, 3, 4, 4, 4], np.uint16)
    assert detect_flow_protocols(protocol, flow).tolist() == [UNKNOWN, SBE, UNKNOWN, UNKNOWN, FAST]


def test_the_protocol_of_a_flow_is_counted_over_all_batches() -> None:
    flows = FlowProtocols()
    assert flows.add(np.array([FAST, FAST], np.uint8), np.array([2, 2], np.uint16)).tolist() == [0, 0, FAST]
    assert flows.add(np.array([UNKNOWN, SBE], np.uint8), np.array([2, 5], np.uint16)).tolist() == [
        0,
        0,
        FAST,
        0,
        0,
        SBE,
    ]
    assert flows.add(np.array([], np.uint8), np.array([], np.uint16)).tolist() == [0, 0, FAST, 0, 0, SBE]


def test_the_protocol_of_a_file_is_detected_from_its_first_packets_only() -> None:
    batches = iter([packed([sbe([b"x"])] * 6 + [b"?"]), packed([chunk(b"y")] * 50), packed([chunk(b"z")])])
    assert detect_file_protocol(batches, 10) == (SBE, 6, 3, 1)
    assert len(list(batches)) == 1
    assert detect_file_protocol([packed([chunk(b"y")] * 3 + [sbe([b"x"])])]) == (FAST, 1, 3, 0)
    assert detect_file_protocol([packed([b"?", b""])]) == (UNKNOWN, 0, 0, 2)
    assert detect_file_protocol([]).protocol is UNKNOWN


@given(st.lists(FAST_DATAGRAMS, max_size=6))
def test_every_chunk_of_a_valid_packet_is_a_row(datagrams: list[list[tuple[int, int, int, bytes]]]) -> None:
    frames = framed([datagram(parts) for parts in datagrams])
    expected = [(packet, index, *part) for packet, parts in enumerate(datagrams) for index, part in enumerate(parts)]
    assert rows(frames) == expected
    assert frames.quarantine == []
    assert frames.packets == len(datagrams) and frames.multi_chunk_rows == sum(row[3] > 1 for row in expected)


GOOD, AFTER = chunk(b"good", 5), chunk(b"after", 7)
DAMAGE = {
    "an empty datagram": (b"", [], (0, 0, None, "needs 10 bytes, the packet has 0", 0)),
    "a cut header": (GOOD[:9], [], (0, 0, None, "needs 10 bytes, the packet has 9", 9)),
    "a cut message": (GOOD[:-1], [], (0, 0, 5, "MsgLength 4 exceeds the packet: 3 bytes left", 13)),
    "a second one cut": (GOOD + AFTER[:-2], [b"good"], (1, 14, 7, "MsgLength 5 exceeds the packet: 3 bytes left", 13)),
    "trailing bytes": (GOOD + b"\0" * 4, [b"good"], (1, 14, None, "4 trailing bytes", 4)),
    "padding longer than a header": (GOOD + bytes(33), [b"good"], (1, 14, 0, "NoChunks is 0", 33)),
    "no chunks": (GOOD + chunk(b"bad", 6, 0, 0) + AFTER, [b"good", b"after"], (1, 14, 6, "NoChunks is 0", 13)),
    "chunk zero": (chunk(b"bad", 6, 2, 0) + AFTER, [b"after"], (0, 0, 6, "CurrentChunk 0 is not in 1 to 2", 13)),
    "a chunk too many": (chunk(b"bad", 6, 2, 3), [], (0, 0, 6, "CurrentChunk 3 is not in 1 to 2", 13)),
    "an empty message": (GOOD + chunk(b"", 6) + AFTER, [b"good", b"after"], (1, 14, 6, "MsgLength is 0", 10)),
    "an empty message at the end": (GOOD + chunk(b"", 6), [b"good"], (1, 14, 6, "MsgLength is 0", 10)),
    # The length of a bad header is believed only if the rest is a chain.
    "a bad header before what is no chain": (
        GOOD + chunk(b"bad", 6, 0, 0) + AFTER + b"!",
        [b"good"],
        (1, 14, 6, "NoChunks is 0", 29),
    ),
    "a datagram that none can be": (chunk(b"x") * 6000, [], (0, 0, None, "66000 bytes is longer than 65545", 66_000)),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_quarantined_with_its_offset_and_valid_chunks_are_kept(name: str) -> None:
    packet, bodies, (index, offset, sequence, reason, skipped) = DAMAGE[name]
    frames = framed([AFTER, packet, GOOD])
    assert [row[5] for row in rows(frames)] == [b"after", *bodies, b"good"]
    assert [row[1] for row in rows(frames) if row[0] == 1] == [i for i in range(len(bodies) + 1) if i != index][
        : len(bodies)
    ]
    (entry,) = frames.quarantine
    assert (entry.packet, entry.msg_index, entry.offset) == (1, index, offset)
    assert (entry.msg_seq_num, entry.skipped_bytes) == (sequence, skipped)
    assert reason in entry.reason


def test_buffers_grow_with_chunks_and_quarantine_rows() -> None:
    crowded = chunk(b"x", 9, 2, 1) * 5_000
    broken = [crowded + b"!"] * 3 + [b""] * 900 + [crowded]
    framer, batch = ChunkParser(), packed(broken)
    first = framer.parse(batch.buffer, batch.start, batch.end)
    again = framer.parse(batch.buffer, batch.start, batch.end)
    assert len(first) == first.multi_chunk_rows == 20_000 and len(first.quarantine) == 903
    assert rows(first) == rows(again) and first.quarantine == again.quarantine
    assert first.msg_index.reshape(4, 5_000).tolist() == [list(range(5_000))] * 4
    assert framer.parse(batch.buffer, batch.start[:0], batch.end[:0]).quarantine == []


def test_chunks_still_in_use_are_not_overwritten() -> None:
    framer, held = ChunkParser(), []
    for number in range(12):
        batch = packed([chunk(bytes([number]), number)] * 5)
        held.append(framer.parse(batch.buffer, batch.start, batch.end))
    assert [rows(frames)[4][2] for frames in held] == list(range(12))


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (0, 41), (5, 4)])
def test_a_packet_outside_the_buffer_is_refused(start: int, end: int) -> None:
    buffer, starts, ends = np.zeros(40, np.uint8), np.array([0, start]), np.array([20, end])
    with pytest.raises(ValueError, match="outside the buffer"):
        detect_protocols(buffer, starts, ends)
    with pytest.raises(ValueError, match="outside the buffer"):
        ChunkParser().parse(buffer, starts, ends)


@given(st.binary(max_size=200) | FAST_DATAGRAMS.map(datagram), st.data())
def test_every_byte_of_any_packet_is_in_a_chunk_or_in_quarantine(packet: bytes, data: st.DataObject) -> None:
    mutated = bytearray(packet)
    for _ in range(data.draw(st.integers(0, 3)) if packet else 0):
        mutated[data.draw(st.integers(0, len(packet) - 1))] = data.draw(st.integers(0, 255))
    frames = framed([bytes(mutated)])
    framed_bytes = sum(10 + len(row[5]) for row in rows(frames))
    assert framed_bytes + sum(entry.skipped_bytes for entry in frames.quarantine) == len(packet)
    (protocol,) = protocols([bytes(mutated)])
    assert (protocol == FAST) == (not frames.quarantine) or protocol == SBE


@given(st.lists(chunks(), min_size=1, max_size=20), st.integers(1, 7))
def test_a_raw_stream_is_parsed_into_headers_and_messages(parts: list[tuple[int, int, int, bytes]], most: int) -> None:
    units = [datagram([part]) for part in parts]
    stream, found, position = np.frombuffer(b"".join(units), np.uint8), [], 0
    while position < len(stream):
        cut = FastFraming().parse_units(stream, position, most)
        assert 0 < len(cut.start) <= most and cut.reason == ""
        found += [stream[s:e].tobytes() for s, e in zip(cut.start, cut.end, strict=True)]
        position = cut.position
    assert found == units


def read_before_guard(packets: list[bytes]) -> None:
    """Every packet ends where memory ends; one byte read too far ends the process."""
    size = 1 << 18
    memory = np.frombuffer(mmap.mmap(-1, size + mmap.PAGESIZE), np.uint8)
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(memory.ctypes.data + size), mmap.PAGESIZE, 0) == 0
    framer, stream = ChunkParser(), FastFraming()
    for packet in packets:
        buffer = memory[size - len(packet) : size]
        buffer[:] = np.frombuffer(packet, np.uint8)
        start, end = np.array([0]), np.array([len(packet)])
        detect_protocols(buffer, start, end)
        framer.parse(buffer, start, end)
        stream.matches(buffer)
        stream.parse_units(buffer, 0, 100)


def test_no_byte_behind_a_packet_is_read(sized: Sized) -> None:
    rng, packets = random.Random(4), []
    for sample in (SAMPLE, sbe([b"abc", b"", b"d"]), GOOD + AFTER * 3, chunk(b"part", 1, 9, 4) + GOOD):
        packets += [sample[:size] for size in range(len(sample))]
        for _ in range(sized(500, 50_000)):
            mutated = bytearray(sample[: rng.randrange(len(sample)) + 1])
            mutated[rng.randrange(len(mutated))] = rng.choice((0, 1, 0x7F, 0xFF, rng.randrange(256)))
            packets.append(bytes(mutated))
    packets += [rng.randbytes(rng.randrange(60)) for _ in range(sized(500, 50_000))]
    child = multiprocessing.get_context("fork").Process(target=read_before_guard, args=(packets,))
    child.start()
    child.join()
    assert child.exitcode == 0
