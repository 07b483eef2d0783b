"""Packets of every kind, and damage to thousands of them at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from wire.sbe.packet_builders import NESTED, SCHEMA, concatenate_packets, versions_of
from wire.sbe.reference_codec import encode_message, encode_packet, frame
from wire.sbe.strategies import sample_values

from umdf.wire.sbe.schema import Schema

Packets = tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]
TELLING = np.array([0, 1, 2, 7, 11, 12, 13, 127, 128, 255], np.uint8)  # bytes that lengths and counts stumble over


def corpus(schema: Schema) -> list[bytes]:
    """Sound packets: every message in every version, alone and among others; and some that are unknown."""
    versions = versions_of(schema)
    made = {
        (message.template_id, version): encode_message(schema, message, sample_values(message, version), version)
        for message in schema.messages.values()
        for version in versions
    }
    packets = [
        encode_packet([message], (number % 256, 1, number, number)) for number, message in enumerate(made.values())
    ]
    today = [message for (_, version), message in made.items() if version == schema.version]
    strange = [frame(b"abc", 3, 999), frame(b"abc", 3, 1, 99), frame(b"abc", 3, 1, schema.id, 16, 0x5BE0)]
    packets += [
        encode_packet([first, *strange[i % 3 : i % 3 + 1], second]) for i, first in enumerate(today) for second in today
    ]
    for message in schema.messages.values():
        if message.groups or message.data:
            whole = sample_values(message, schema.version)
            more = whole | {group.name: whole[group.name] * 20 for group in message.groups}
            many = encode_message(schema, message, more, schema.version)
            packets += [encode_packet([many, *today[:5], many]), encode_packet([many])] * 40
    return [*packets, encode_packet([])]


CORPUS = {SCHEMA.id: corpus(SCHEMA), NESTED.id: corpus(NESTED)}


def mutated(schema: Schema, count: int, random: np.random.Generator) -> Packets:
    """So many packets of the corpus, each with some damage: bits, telling bytes, cuts, noise, a shifted start."""
    packets = CORPUS[schema.id]
    buffer, start, end = concatenate_packets([packets[i] for i in random.integers(0, len(packets), count).tolist()])
    buffer, size = buffer.copy(), end - start
    kind = random.integers(0, 8, count)

    def places(chosen: NDArray[np.int64]) -> NDArray[np.int64]:
        return start[chosen] + (random.random(len(chosen)) * size[chosen]).astype(np.int64)

    for _ in range(2):
        flipped = np.flatnonzero((kind & 1) != 0)
        buffer[places(flipped)] ^= np.uint8(1) << random.integers(0, 8, len(flipped), np.uint8)
        told = np.flatnonzero((kind & 2) != 0)
        buffer[places(told)] = random.choice(TELLING, len(told))
    # Where it hurts: the first message's header, its length alone, the groups and texts at the end.
    headers = np.flatnonzero((random.random(count) < 0.2) & (size > 28))
    buffer[start[headers] + 16 + random.integers(0, 12, len(headers))] = random.choice(TELLING, len(headers))
    shorter = np.flatnonzero((random.random(count) < 0.2) & (size > 28))
    buffer[start[shorter] + 16] -= random.integers(0, 60, len(shorter), np.uint8)
    tails = np.flatnonzero(((kind & 4) != 0) & (size > 60))
    buffer[end[tails] - random.integers(1, 40, len(tails))] = random.choice(TELLING, len(tails))
    noisy = np.flatnonzero(random.random(count) < 0.03)
    for packet in noisy.tolist():
        buffer[start[packet] : end[packet]] = random.integers(0, 256, size[packet], np.uint8)
    cut = np.flatnonzero(random.random(count) < 0.2)
    end[cut] = places(cut)
    shifted = np.flatnonzero(random.random(count) < 0.02)
    start[shifted] = np.minimum(start[shifted] + random.integers(1, 20, len(shifted)), end[shifted])
    return buffer, start, end


def as_bytes(packets: Packets, chosen: NDArray[np.int64]) -> list[bytes]:
    buffer, start, end = packets
    return [buffer[start[i] : end[i]].tobytes() for i in chosen.tolist()]
