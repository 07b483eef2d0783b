"""Chunks in any order and any number of times become exactly the messages; memory stays within its limits."""

from __future__ import annotations

import pickle
import random
import struct
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umdf.errors import ConfigError
from umdf.lake.tasks.protocols import INCREMENTAL_LIMITS, LOOPING_LIMITS
from umdf.wire import reassembly
from umdf.wire.packet import ChunkParser
from umdf.wire.reassembly import DroppedMessage, Limits, ReassembledMessages, Reassembler

Sized = Callable[[int, int], int]


class Part(NamedTuple):
    """One chunk in a datagram of its own."""

    body: bytes
    sequence: int = 1
    chunks: int = 1
    current: int = 1
    key: int = 0
    ts_ns: int = 0


def take(reassembler: Reassembler, parts: Sequence[Part], times: bool = False) -> ReassembledMessages:
    datagrams = [struct.pack(">IHHH", p.sequence, p.chunks, p.current, len(p.body)) + p.body for p in parts]
    end = np.cumsum([len(datagram) for datagram in datagrams], dtype=np.int64)
    start = end - np.array([len(datagram) for datagram in datagrams], np.int64)
    frames = ChunkParser().parse(np.frombuffer(b"".join(datagrams), np.uint8), start, end)
    key = np.array([part.key for part in parts], np.uint16)
    return reassembler.add(frames, key, np.array([p.ts_ns for p in parts], np.int64) if times else None)


def messages(taken: ReassembledMessages) -> list[tuple[int, bytes]]:
    """Sequence and bytes, in order of arrival."""
    found = []
    for group in (taken.single_chunk, taken.multi_chunk):
        for row in range(len(group)):
            body = group.buffer[group.start[row] : group.end[row]].tobytes()
            found.append((int(group.order[row]), int(group.msg_seq_num[row]), body))
    return [(sequence, body) for _, sequence, body in sorted(found)]


def split(body: bytes, cuts: Iterable[int], sequence: int, key: int = 0) -> list[Part]:
    """A message, cut at these places."""
    places = [0, *sorted(set(cuts)), len(body)]
    pieces = [body[a:b] for a, b in pairwise(places)]
    return [Part(piece, sequence, len(pieces), number, key) for number, piece in enumerate(pieces, 1)]


@st.composite
def cut_messages(draw: st.DrawFn) -> list[list[Part]]:
    found = []
    for number in range(draw(st.integers(1, 8))):
        body = draw(st.binary(min_size=1, max_size=40))
        cuts = draw(st.sets(st.integers(1, len(body) - 1), max_size=6)) if len(body) > 1 else set()
        found.append(split(body, cuts, 100 + number // 2, number % 2))
    return found


@given(cut_messages(), st.randoms(use_true_random=False), st.integers(1, 9))
def test_any_split_in_any_order_with_duplicates_is_exactly_the_messages(
    cut: list[list[Part]], rng: random.Random, batch: int
) -> None:
    several = [parts for parts in cut if len(parts) > 1]
    arriving = [part for parts in cut for part in parts]
    arriving += [part for parts in several for part in parts if rng.random() < 0.5]
    rng.shuffle(arriving)
    reassembler, found = Reassembler(), []
    for first in range(0, len(arriving), batch):
        taken = take(reassembler, arriving[first : first + batch])
        found += messages(taken)
        assert taken.dropped == []
    whole = [(parts[0].sequence, b"".join(part.body for part in parts)) for parts in cut]
    assert sorted(found) == sorted(whole)
    assert reassembler.completed == len(several) and reassembler.finish() == []
    assert reassembler.duplicates == len(arriving) - sum(map(len, cut))


def test_messages_of_one_chunk_are_not_copied() -> None:
    taken = take(Reassembler(), [Part(b"one", 1), Part(b"two", 2)])
    assert messages(taken) == [(1, b"one"), (2, b"two")]
    assert len(taken.multi_chunk) == 0 and taken.single_chunk.start.tolist() == [10, 23]


def test_each_message_has_the_row_of_the_chunk_that_completed_it() -> None:
    a, b = split(b"abcdef", [2, 4], 7), split(b"gh", [1], 8)
    taken = take(Reassembler(), [a[2], Part(b"direct", 6), b[1], a[0], b[0], a[1], Part(b"last", 9)])
    assert messages(taken) == [(6, b"direct"), (8, b"gh"), (7, b"abcdef"), (9, b"last")]
    assert taken.single_chunk.order.tolist() == taken.single_chunk.packet.tolist() == [1, 6]
    assert taken.multi_chunk.order.tolist() == taken.multi_chunk.packet.tolist() == [4, 5]


def test_a_chunk_that_a_datagram_of_five_messages_overtakes_is_waited_for() -> None:
    """Only looping streams begin anew without a reset: there the same distance is a new loop."""
    first, second = split(b"abcdef", [3], 1)
    parts = [first, *(Part(b"x", number) for number in range(2, 7)), second]
    assert (1, b"abcdef") in messages(take(Reassembler(INCREMENTAL_LIMITS), parts))
    assert (1, b"abcdef") not in messages(take(Reassembler(LOOPING_LIMITS), parts))


def test_keys_are_not_mixed() -> None:
    a, b = split(b"abcd", [2], 7, key=3), split(b"wxyz", [2], 7, key=65_535)
    reassembler = Reassembler()
    assert messages(take(reassembler, [a[0], b[1]])) == []
    assert messages(take(reassembler, [b[0], a[1]])) == [(7, b"wxyz"), (7, b"abcd")]


def test_duplicate_chunks_of_a_completed_message_do_not_open_it_again() -> None:
    parts = split(b"abcdef", [2, 4], 7)
    reassembler = Reassembler()
    assert len(messages(take(reassembler, parts))) == 1
    assert messages(take(reassembler, [parts[0], parts[2]])) == []
    assert reassembler.open_messages == 0 and reassembler.duplicates == 2


def test_the_next_loop_with_the_same_numbers_is_a_message_of_its_own() -> None:
    reassembler = Reassembler()
    first, second = split(b"old1old2", [4], 7), split(b"new1new2", [4], 7)
    assert messages(take(reassembler, [*first, *second])) == [(7, b"old1old2"), (7, b"new1new2")]


def test_a_chunk_with_other_content_starts_a_new_message() -> None:
    reassembler = Reassembler()
    old, new = split(b"old1old2old3", [4, 8], 7), split(b"new1new2new3", [4, 8], 7)
    taken = take(reassembler, [old[0], old[1], new[0], new[1], new[2]])
    assert messages(taken) == [(7, b"new1new2new3")]
    assert taken.dropped == [DroppedMessage(0, 7, 2, 3, reassembly.CONTRADICTED)]


def test_a_message_with_the_same_sequence_and_other_no_chunks_is_dropped_when_one_completes() -> None:
    reassembler = Reassembler()
    taken = take(reassembler, [Part(b"x", 7, 3, 1), *split(b"abcd", [2], 7)])
    assert messages(taken) == [(7, b"abcd")]
    assert taken.dropped == [DroppedMessage(0, 7, 1, 3, reassembly.CONFLICTING_NO_CHUNKS)]
    assert reassembler.open_messages == 0


def test_chunks_of_two_loops_are_never_mixed() -> None:
    """Loop after loop loses chunks; nothing that comes out was never sent."""
    rng = random.Random(6)
    reassembler, sent, found = Reassembler(Limits(restart_distance=3)), set(), []
    for loop in range(300):
        parts = []
        for sequence in range(1, 9):
            body = f"{loop:8}".encode() * 3
            sent.add((sequence, body))
            parts += split(body, [8, 16], sequence)
        found += messages(take(reassembler, [part for part in parts if rng.random() < 0.7]))
    assert len(found) > 300 and set(found) <= sent
    assert reassembler.dropped_by_reason[reassembly.EPOCH_CHANGED] > 300


def test_a_message_is_dropped_after_wait_chunks_of_its_key() -> None:
    limits = Limits(wait_chunks=10)
    for between, whole in ((9, True), (10, False)):
        for batch in (1, 3, 100):
            parts = split(b"abcd", [2], 50)
            others = [Part(b"x", 51 + number) for number in range(between)]
            elsewhere = [Part(b"y", 1, key=1)] * 30
            arriving = [parts[0], *others, *elsewhere, parts[1]]
            reassembler, found, drops = Reassembler(limits), [], []
            for first in range(0, len(arriving), batch):
                taken = take(reassembler, arriving[first : first + batch])
                found += messages(taken)
                drops += taken.dropped
            assert ((50, b"abcd") in found) is whole, (between, batch)
            assert drops == ([] if whole else [DroppedMessage(0, 50, 1, 2, reassembly.TIMED_OUT)])


def test_a_message_is_dropped_after_wait_ms() -> None:
    for ms, whole in ((100, True), (101, False)):
        parts = split(b"abcd", [2], 50)
        late = parts[1]._replace(ts_ns=10**9 + ms * 1_000_000)
        reassembler = Reassembler(Limits(wait_ms=100))
        taken = take(reassembler, [parts[0]._replace(ts_ns=10**9), late], times=True)
        assert messages(taken) == ([(50, b"abcd")] if whole else [])
    assert take(reassembler, [Part(b"x", 60, ts_ns=3 * 10**9)], times=True).dropped == [
        DroppedMessage(0, 50, 1, 2, reassembly.TIMED_OUT)
    ]
    assert reassembler.open_messages == 0 and reassembler.held_bytes == 0


def test_the_message_longest_without_a_chunk_is_evicted_first() -> None:
    reassembler = Reassembler(Limits(open_messages=2))
    first, second, third = (split(b"abcdef", [2, 4], sequence) for sequence in (1, 2, 3))
    taken = take(reassembler, [first[0], second[0], first[1], third[0], Part(b"z", 4, 3, 1, key=9)])
    assert taken.dropped == [DroppedMessage(0, 2, 1, 3, reassembly.TOO_MANY_OPEN)]
    assert messages(take(reassembler, [first[2], third[1], third[2]])) == [(1, b"abcdef"), (3, b"abcdef")]


def test_messages_open_at_the_end_are_reported_as_dropped() -> None:
    reassembler = Reassembler()
    take(reassembler, split(b"abcdef", [2, 4], 7)[1:])
    assert reassembler.finish() == [DroppedMessage(0, 7, 2, 3, reassembly.STREAM_ENDED)]
    assert reassembler.dropped_by_reason == {reassembly.STREAM_ENDED: 1} and reassembler.held_bytes == 0


def test_a_message_larger_than_the_memory_is_dropped() -> None:
    reassembler = Reassembler(Limits(memory_bytes=50_000))
    taken = take(reassembler, [Part(bytes(1_400), 7, 65_535, number) for number in range(1, 41)])
    assert [drop.reason for drop in taken.dropped] == [reassembly.OUT_OF_MEMORY]
    assert reassembler.held_bytes <= 50_000


def test_the_largest_number_of_chunks_makes_a_message() -> None:
    reassembler = Reassembler(Limits(memory_bytes=1 << 25, wait_chunks=1))
    parts = [Part(bytes([number & 0xFF]), 7, 65_535, number) for number in range(65_535, 0, -1)]
    found = messages(take(reassembler, parts))
    assert found == [(7, b"".join(part.body for part in reversed(parts)))]


HOSTILE: dict[str, Callable[[random.Random], Part]] = {
    "65,535 chunks announced, one sent": lambda rng: Part(b"!", rng.randrange(1 << 32), 65_535, 1),
    "tiny chunks of one message": lambda rng: Part(b"!", 7, 65_535, rng.randrange(1, 65_536)),
    "from every key": lambda rng: Part(b"!", 1, 2, 1, rng.randrange(65_536)),
    "messages completed and never seen again": lambda rng: Part(
        b"!", rng.randrange(9), 2, rng.choice((1, 2)), rng.randrange(9)
    ),
    "large chunks": lambda rng: Part(bytes(20_000), rng.randrange(100), 65_535, rng.randrange(1, 65_536)),
    "contradictions": lambda rng: Part(rng.randbytes(2), rng.randrange(5), 3, rng.randrange(1, 3)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_memory_stays_within_its_limit_on_a_hostile_stream(name: str, sized: Sized) -> None:
    rng, limits = random.Random(3), Limits(memory_bytes=1 << 20, open_messages=200, wait_chunks=1 << 30)
    reassembler, dropped = Reassembler(limits), 0
    take(reassembler, [Part(b"!", 1, 2, 1, key=65_535)])  # the table of keys at its largest
    tracemalloc.start()
    try:
        for _ in range(sized(12, 400)):
            dropped += len(take(reassembler, [HOSTILE[name](rng) for _ in range(1_000)]).dropped)
            assert reassembler.held_bytes <= limits.memory_bytes
            assert tracemalloc.get_traced_memory()[0] <= limits.memory_bytes + (64 << 10)
    finally:
        tracemalloc.stop()
    dropped += len(reassembler.finish())
    assert dropped == sum(reassembler.dropped_by_reason.values()) and reassembler.held_bytes == 0


def test_an_open_message_survives_pickling() -> None:
    parts = split(b"abcdef", [2, 4], 7)
    reassembler = Reassembler()
    take(reassembler, [*split(b"done", [2], 6), *parts[:2]])
    stored = pickle.loads(pickle.dumps(reassembler))
    assert messages(take(stored, [*split(b"done", [2], 6), parts[2]])) == [(7, b"abcdef")]


def test_a_limit_that_cannot_be_kept_is_refused() -> None:
    with pytest.raises(ConfigError, match="invalid open_messages: 0"):
        Limits(open_messages=0)
