"""Lines A and B of a channel, its snapshots and its instruments, with the faults of real networks, from a seed."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from sync.small_exchange import INCREMENTAL, INSTRUMENTS, MS, SNAPSHOT, SentPacket

LINE_A, LINE_B, SNAPSHOTS, DEFINITIONS = range(4)  # flows
HEADER = struct.Struct("<BBHI")  # channel, reserved, sequence version, sequence number; then the sending time
BLOCK_LENGTH_AT = 20  # of the first message: behind the packet header and messageLength, encodingType


class Arrival(NamedTuple):
    ts: int
    flow: int
    content: bytes


@dataclass(frozen=True)
class Faults:
    """Shares of packets, unless stated otherwise. Nothing happens to packets that are sent from `quiet_from` on."""

    loss: tuple[float, float] = (0.0, 0.0)  # on line A, on line B
    common_loss: float = 0.0  # on both lines
    bursts: int = 0  # spans of up to 25 packets that are lost on both lines
    line_bursts: int = 0  # on one line
    duplicates: float = 0.0
    near_reordering: float = 0.0  # up to 6 ms
    far_reordering: float = 0.0  # up to 600 ms
    line_b_delay_ms: int = 0
    foreign_versions: float = 0.0
    huge_numbers: float = 0.0
    other_channels: float = 0.0
    torn: float = 0.0
    damaged_messages: float = 0.0
    line_b_restarts: bool = False  # its numbering, alone
    line_b_dies: bool = False
    joins_late: bool = False
    snapshot_loss: float = 0.0
    definition_loss: float = 0.0


def random_faults(random: Random) -> Faults:
    """A few faults together: each alone is found by other tests."""

    def share(most: float) -> float:
        return random.choice((0.0, 0.0, most / 5, most))

    return Faults(
        loss=(share(0.3), share(0.3)),
        common_loss=share(0.1),
        bursts=random.choice((0, 0, 1, 3)),
        line_bursts=random.choice((0, 0, 2)),
        duplicates=share(0.1),
        near_reordering=share(0.2),
        far_reordering=share(0.05),
        line_b_delay_ms=random.choice((0, 0, 5, 15, 40, 500)),
        foreign_versions=share(0.02),
        huge_numbers=share(0.02),
        other_channels=share(0.02),
        torn=share(0.05),
        damaged_messages=share(0.03),
        line_b_restarts=random.random() < 0.15,
        line_b_dies=random.random() < 0.15,
        joins_late=random.random() < 0.25,
        snapshot_loss=share(0.2),
        definition_loss=share(0.2),
    )


Numbering = dict[tuple[int, int], tuple[int, int]]  # epoch and sequence of a line → those of the exchange


def arrivals(
    sent: list[SentPacket], faults: Faults, random: Random, quiet_from: int, renumbered: Numbering
) -> list[Arrival]:
    """What a client receives, in order of time. `renumbered` takes what a line numbers alone."""
    incremental = [packet for packet in sent if packet.stream == INCREMENTAL]
    lost = _lost_on_both(incremental, faults, random)
    found = []
    for line in (LINE_A, LINE_B):
        found += _line(incremental, line, lost, faults, random, quiet_from, renumbered)
    for stream, flow, loss in (
        (SNAPSHOT, SNAPSHOTS, faults.snapshot_loss),
        (INSTRUMENTS, DEFINITIONS, faults.definition_loss),
    ):
        for packet in sent:
            if packet.stream == stream and (packet.ts >= quiet_from or random.random() >= loss):
                jitter = 0 if packet.ts >= quiet_from else random.randint(0, 3) * MS // 4
                found.append(Arrival(packet.ts + jitter, flow, packet.content))
    if faults.joins_late:
        joined = random.choice(incremental[: max(1, len(incremental) // 2)]).ts
        found = [arrival for arrival in found if arrival.ts >= min(joined, quiet_from)]
    return sorted(found, key=lambda arrival: arrival.ts)


def _lost_on_both(sent: list[SentPacket], faults: Faults, random: Random) -> set[int]:
    lost = {number for number in range(len(sent)) if random.random() < faults.common_loss}
    for _ in range(faults.bursts):
        first = random.randrange(len(sent))
        lost.update(range(first, first + random.randint(2, 25)))
    return lost


def _line(
    sent: list[SentPacket],
    line: int,
    lost: set[int],
    faults: Faults,
    random: Random,
    quiet_from: int,
    renumbered: Numbering,
) -> list[Arrival]:
    lost = set(lost)
    for _ in range(faults.line_bursts):
        first = random.randrange(len(sent))
        lost.update(range(first, first + random.randint(2, 40)))
    change_at, restart = random.randrange(len(sent)), random.choice([packet for packet in sent if packet.sequence])
    offset = restart.sequence - 1
    delay, found = faults.line_b_delay_ms * MS if line == LINE_B else 0, []
    for number, packet in enumerate(sent):
        ts = packet.ts + delay + random.randint(0, MS)
        if packet.ts >= quiet_from:
            found.append(Arrival(ts, line, packet.content))
            continue
        if number in lost or random.random() < faults.loss[line]:
            continue
        if line == LINE_B and faults.line_b_dies and number >= change_at:
            continue
        if random.random() < faults.near_reordering:
            ts += random.randint(1, 6) * MS
        if random.random() < faults.far_reordering:
            ts += random.randint(20, 600) * MS
        content = packet.content
        is_renumbered = packet.epoch == restart.epoch and packet.sequence > offset
        if line == LINE_B and faults.line_b_restarts and is_renumbered:
            epoch, sequence = packet.epoch + 1, packet.sequence - offset
            renumbered[epoch, sequence] = packet.epoch, packet.sequence
            renumbered[epoch, sequence - 1] = packet.epoch, packet.sequence - 1
            content = _with_header(content, version=epoch, sequence=sequence)
        for damage in DAMAGES:
            if random.random() < getattr(faults, damage):
                content = DAMAGES[damage](content, random)
        found.append(Arrival(ts, line, content))
        if random.random() < faults.duplicates:
            found.append(Arrival(ts + random.randint(0, 60) * MS, line, content))
    return found


def _with_header(
    content: bytes, *, channel: int | None = None, version: int | None = None, sequence: int | None = None
) -> bytes:
    values = zip(HEADER.unpack_from(content), (channel, None, version, sequence), strict=True)
    return HEADER.pack(*(old if new is None else new for old, new in values)) + content[HEADER.size :]


def _damage_message(content: bytes, random: Random) -> bytes:
    """Its block is longer than the message: the framing is right, the content is not."""
    return content[:BLOCK_LENGTH_AT] + struct.pack("<H", 60_000) + content[BLOCK_LENGTH_AT + 2 :]


DAMAGES: dict[str, Callable[[bytes, Random], bytes]] = {
    "foreign_versions": lambda content, random: _with_header(content, version=random.randint(1, 65_000)),
    "huge_numbers": lambda content, random: _with_header(content, sequence=random.randint(10**6, 4 * 10**9)),
    "other_channels": lambda content, random: _with_header(content, channel=random.randint(80, 90)),
    "torn": lambda content, random: content[: -random.randint(1, 11)],  # within its last message
    "damaged_messages": _damage_message,
}
