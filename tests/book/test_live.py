"""A packet at a time, straight into the books, is the same as decoding, mapping and applying a batch."""

from __future__ import annotations

import struct
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from umdf.book.engine import Books
from umdf.book.live import PacketApplier
from umdf.market.sbe.events import SbeEventMapper
from umdf.wire.sbe.decode import Decoder
from umdf.wire.sbe.loader import load

SCHEMA = load()
DECODER = Decoder(SCHEMA)
LAYOUT = DECODER.layout
MAPPER = SbeEventMapper(LAYOUT)
NULL = -(1 << 63)
VERSIONS = {16: {}, 15: {50: 64}, 10: {50: 64, 51: 44}, 8: {50: 64, 51: 44}}  # shorter blocks than today's


def order(random: Random, instrument: int, rpt_seq: int, version: int) -> bytes:
    """Order_MBO_50."""
    position = random.randint(0, 4) if version < 15 else 0
    return struct.pack(
        "<QBBBxqqIIQQIQq",
        instrument, random.choice((0, 128, 128, 16, 32)), random.choice((0, 0, 0, 1, 1, 2, 9)), random.choice(b"0011z"),
        random.choice((NULL, *range(100_000, 100_400, 100), 1 << 60)), random.choice((100, 200, 300, -1)), position,
        random.choice((0, 8, 114)), random.choice((0, 1_700_000_000_000_000_000)), random.randint(1, 40), rpt_seq, 5,
        random.choice((NULL, 100, 200)),
    )  # fmt: skip


def delete(random: Random, instrument: int, rpt_seq: int, version: int) -> bytes:
    """DeleteOrder_MBO_51."""
    position = random.randint(0, 4) if version < 15 else 0
    return struct.pack(
        "<QBxBxIqQQIq",
        instrument, random.choice((0, 128)), random.choice(b"0011"), position, 100, random.randint(1, 40), 5, rpt_seq,
        random.choice((NULL, 100_000, 100_100)),
    )  # fmt: skip


def mass_delete(random: Random, instrument: int, rpt_seq: int, version: int) -> bytes:
    return struct.pack(
        "<QBBBxIQI",
        instrument,
        128,
        random.choice((3, 4, 4, 7)),
        random.choice(b"01"),
        random.randint(0, 3),
        5,
        rpt_seq,
    )


MAKERS = {50: order, 51: delete, 52: mass_delete}
SHARES = {50: 40, 51: 20, 52: 2, 53: 4, 55: 3, 3: 3, 56: 2, 9: 1, 11: 0.3, 71: 0.2, 12: 0.3, 199: 0.5, 300: 0.5}


def message(random: Random, template: int, version: int, counters: dict[int, int]) -> bytes:
    instrument = random.randint(1, 3)
    if template not in LAYOUT.roots:
        body = random.randbytes(20)
    elif template in MAKERS:
        counters[instrument] = counters.get(instrument, 0) + random.choices((1, 0, 2), (30, 1, 1))[0]
        body = MAKERS[template](random, instrument, counters[instrument], version)
    else:
        body = bytearray(LAYOUT.message_of(LAYOUT.roots[template]).block_length)
        if len(body) >= 8:
            body[:8] = struct.pack("<Q", instrument)
        if template == 53:
            counters[instrument] = counters.get(instrument, 0) + 1
            body[52:56] = struct.pack("<I", counters[instrument])
    block = VERSIONS[version].get(template, len(body))
    body = bytes(body)[:block] + random.choice((b"", b"", bytes(3)))
    return struct.pack("<HHHHHH", 12 + len(body), 0xEB50, block, template, SCHEMA.id, version) + body


def packets(seed: int, version: int, damage: float) -> list[bytes]:
    random, made = Random(seed), []
    counters: dict[int, int] = {}
    for sequence in range(random.randint(1, 25)):
        content = bytearray(struct.pack("<BBHIQ", 72, 0, 1, sequence + 1, 5))
        for _ in range(random.randint(0, 6)):
            template = random.choices(list(SHARES), list(SHARES.values()))[0]
            content += message(random, template, version, counters)
        if random.random() < damage:
            content[random.randrange(len(content))] = random.randrange(256)
        if random.random() < damage / 2:
            del content[random.randrange(len(content)) :]
        made.append(bytes(content))
    return made


def by_batch(books: Books, packet: bytes) -> list[int]:
    buffer = np.frombuffer(packet, np.uint8)
    MAPPER.reset()
    events = MAPPER.events(DECODER.decode(buffer, np.array([0]), np.array([len(buffer)])))
    return books.apply(events.rows("mbo")).codes.tolist()


@given(
    seed=st.integers(0, 2**32), version=st.sampled_from(list(VERSIONS)), damage=st.sampled_from([0.0, 0.0, 0.3, 0.9])
)
def test_a_packet_has_the_same_effect_live_and_in_a_batch(seed: int, version: int, damage: float) -> None:
    alive, batch = Books(orders=1, levels=1, books=1), Books()
    live, room = PacketApplier(alive, LAYOUT), np.zeros(2048, np.uint8)
    for packet in packets(seed, version, damage):
        room[: len(packet)] = np.frombuffer(packet, np.uint8)
        rows = live.apply(room.ctypes.data, len(packet))
        wanted = by_batch(batch, packet)
        if rows is None:
            assert by_batch(alive, packet) == wanted
        else:
            assert live.outcomes(rows).tolist() == wanted
        assert alive.rows_applied == batch.rows_applied
    assert alive.instruments() == batch.instruments()
    for instrument, lending in batch.instruments():
        ours, theirs = alive.book(instrument, lending=lending), batch.book(instrument, lending=lending)
        assert ours is not None and theirs is not None
        assert ours.entries.tolist() == theirs.entries.tolist() and ours.rpt_seq == theirs.rpt_seq
        assert ours.stale == theirs.stale


def test_hot_templates_are_read_in_their_shape() -> None:
    shapes = PacketApplier(Books(), LAYOUT)._shapes
    assert [int(shapes[template, 0]) for template in (50, 51, 53, 55, 56, 3, 9, 11)] == [1] * 8
    assert int(shapes[71, 0]) == 3 and int(shapes[12, 0]) == 0
