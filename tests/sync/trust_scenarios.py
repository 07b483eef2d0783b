"""What can happen to a recorded day on its way to a client, by name: one list for every protocol, generation and book
type, and for all that decide about trust.

    packets = SCENARIOS["loss of a trade"].apply(channel, Random(1))    # None: this channel has nothing of the kind
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from random import Random

from sync.recorded_days import (
    INSTRUMENT_LINE,
    LINE_A,
    LINE_B,
    MS,
    PLAIN,
    RESET,
    RESTART,
    SNAPSHOT_LINE,
    RecordedChannel,
    Sent,
)

LINES = (LINE_A, LINE_B)
BURST, SECOND = 40, 1_000 * MS
SBE_HEADER, FAST_HEADER = struct.Struct("<BBHI"), struct.Struct(">IHHH")
MESSAGES_AT, TEMPLATE_AT, EPOCH_AT, HEADER_TEMPLATE = 16, 6, 12 + 32, 30  # of a Binary packet with snapshots
ORDER_TEMPLATE, ACTION_AT = 50, 12 + 9
Packets = list[Sent]
Fault = Callable[[RecordedChannel, Random], Packets | None]


@dataclass(frozen=True)
class Scenario:
    """`heals`: after it, and a few snapshot loops, everything is known again. `points`: of the list of issue 20."""

    fault: Fault
    day: str = PLAIN
    heals: bool = True
    protocols: tuple[str, ...] = ("sbe", "fast")

    def apply(self, channel: RecordedChannel, random: Random) -> Packets | None:
        if channel.settings.protocol not in self.protocols:
            return None
        packets = self.fault(channel, random)
        return None if packets is None else sorted(packets, key=lambda packet: packet.ts)


def without(channel: RecordedChannel, lost: Iterable[int], lines: Iterable[str] = LINES) -> Packets:
    """Packets are lost that have one of these sequences."""
    numbers, of = set(lost), set(lines)
    return [
        packet
        for packet in channel.packets()
        if packet.flow not in of or not numbers & set(range(packet.first, packet.last + 1)) or not packet.last
    ]


def some(channel: RecordedChannel, random: Random, count: int = 1, low: float = 0.3, high: float = 0.75) -> list[int]:
    return sorted(random.sample(range(int(low * channel.last), int(high * channel.last)), count))


def about(topic: str, *, count: int = 1, resent: int = 0, low: float = 0.0, high: float = 0.75) -> Fault:
    """Loss of some messages about something, and of as many that follow."""

    def fault(channel: RecordedChannel, random: Random) -> Packets | None:
        found = [each for each, topics in channel.topics.items()
                 if topic in topics and low * channel.last < each < high * channel.last]  # fmt: skip
        if not found:
            return None
        chosen = random.sample(found, min(count, len(found)))
        return without(channel, {each + more for each in chosen for more in range(resent + 1)})

    return fault


def late(topic: str, by_ns: int = 400 * MS, count: int = 3) -> Fault:
    """Packets about something come on both lines after their gap was reported, and after what followed them."""

    def fault(channel: RecordedChannel, random: Random) -> Packets | None:
        found = sorted(number for number, topics in channel.topics.items() if topic in topics)
        if not found:
            return None
        chosen = set(random.sample(found, min(count, len(found))))
        return [
            replace(packet, ts=packet.ts + by_ns)
            if packet.flow in LINES and packet.first and chosen & set(range(packet.first, packet.last + 1))
            else packet
            for packet in channel.packets()
        ]

    return fault


def loss(count: int, burst: int = 1, low: float = 0.3, high: float = 0.75, lines: Iterable[str] = LINES) -> Fault:
    def fault(channel: RecordedChannel, random: Random) -> Packets:
        first = some(channel, random, count, low, high)
        return without(channel, {number + more for number in first for more in range(burst)}, lines)

    return fault


def loss_at_end(count: int) -> Fault:
    """Before a silence: the heartbeats that follow are received."""

    def fault(channel: RecordedChannel, random: Random) -> Packets:
        last = max(number for number, topics in channel.topics.items() if topics != {"control"})
        return without(channel, range(last - count + 1, last + 1))

    return fault


def damaged(change: Callable[[Sent, Random, bool], bytes], lines: tuple[str, ...], count: int = 3) -> Fault:
    def fault(channel: RecordedChannel, random: Random) -> Packets:
        chosen = set(some(channel, random, count))
        return [
            replace(packet, content=change(packet, random, channel.is_fast))
            if packet.flow in lines and packet.first and chosen & set(range(packet.first, packet.last + 1))
            else packet
            for packet in channel.packets()
        ]

    return fault


def _with_number(packet: Sent, number: int, is_fast: bool) -> bytes:
    number = number & 0xFFFF_FFFF
    if is_fast:
        _, *rest = FAST_HEADER.unpack_from(packet.content)
        return FAST_HEADER.pack(number, *rest) + packet.content[FAST_HEADER.size :]
    *before, _ = SBE_HEADER.unpack_from(packet.content)
    return SBE_HEADER.pack(*before, number) + packet.content[SBE_HEADER.size :]


def foreign_version(packet: Sent, _: Random, is_fast: bool) -> bytes:
    channel, reserved, version, number = SBE_HEADER.unpack_from(packet.content)
    return SBE_HEADER.pack(channel, reserved, version ^ 0x4000, number) + packet.content[SBE_HEADER.size :]


def huge_number(packet: Sent, _: Random, is_fast: bool) -> bytes:
    return _with_number(packet, 4_000_000_000 + 100_000 * packet.first, is_fast)  # no two are near each other


def torn(packet: Sent, random: Random, _: bool) -> bytes:
    return packet.content[: -random.randint(1, 11)]


def late_join(*, snapshots: float | None = 0.0) -> Fault:
    """Snapshots from this share of the remaining time on; None: none."""

    def fault(channel: RecordedChannel, random: Random) -> Packets:
        first = some(channel, random)[0]
        packets = channel.packets()
        start = next(packet.ts for packet in packets if packet.flow == LINE_A and packet.last >= first)
        end = packets[-1].ts
        since = end + 1 if snapshots is None else start + int(snapshots * (end - start))
        kept = [packet for packet in packets if packet.ts >= start or packet.flow == INSTRUMENT_LINE]
        return [packet for packet in kept if packet.flow != SNAPSHOT_LINE or packet.ts >= since]

    return fault


def join_with_an_older_snapshot(channel: RecordedChannel, random: Random) -> Packets:
    """The snapshot loop that was received before the first incremental is not of its moment."""
    first = some(channel, random, low=0.4)[0]
    packets = channel.packets()
    start = next(packet.ts for packet in packets if packet.flow == LINE_A and packet.last >= first)
    return [packet for packet in packets if packet.flow not in LINES or packet.ts >= start]


def without_snapshots(fault: Fault) -> Fault:
    def both(channel: RecordedChannel, random: Random) -> Packets | None:
        packets = fault(channel, random)
        return packets and [packet for packet in packets if packet.flow != SNAPSHOT_LINE]

    return both


def torn_loops(fault: Fault) -> Fault:
    def both(channel: RecordedChannel, random: Random) -> Packets | None:
        packets = fault(channel, random)
        return packets and [p for p in packets if p.flow != SNAPSHOT_LINE or random.random() > 0.2]

    return both


def late_snapshots(fault: Fault, by_ns: int) -> Fault:
    """What the snapshot stream knows is out of date when it is received: phases have changed, or the numbering."""

    def both(channel: RecordedChannel, random: Random) -> Packets | None:
        packets = fault(channel, random)
        return packets and [replace(p, ts=p.ts + by_ns) if p.flow == SNAPSHOT_LINE else p for p in packets]

    return both


def in_chunks(channel: RecordedChannel, random: Random, most_ns: int) -> Packets:
    """Messages are sent as two chunks, of which the second is overtaken."""
    found = []
    for packet in channel.packets():
        number, chunks, _, size = FAST_HEADER.unpack_from(packet.content)
        body = packet.content[FAST_HEADER.size :]
        if packet.flow not in LINES or chunks != 1 or size != len(body) or size < 2 or random.random() > 0.2:
            found.append(packet)
            continue
        parts = (1, body[: size // 2]), (2, body[size // 2 :])
        for chunk, part in parts:
            content = FAST_HEADER.pack(number, 2, chunk, len(part)) + part
            ts = packet.ts + (random.randrange(1, most_ns) if chunk == 2 else 0)
            found.append(replace(packet, ts=ts, content=content))
    return found


def overtaken_chunks(most_ns: int) -> Fault:
    return lambda channel, random: in_chunks(channel, random, most_ns)


def unknown_actions(channel: RecordedChannel, random: Random) -> Packets:
    """Both lines have an update action (279) that nobody knows."""
    chosen, found = set(some(channel, random, 30)), []
    for packet in channel.packets():
        content, at = bytearray(packet.content), MESSAGES_AT
        while packet.flow in LINES and packet.first in chosen and at + ACTION_AT < len(content):
            length, template = (struct.unpack_from("<H", content, at + place)[0] for place in (0, TEMPLATE_AT))
            if template == ORDER_TEMPLATE:
                content[at + ACTION_AT] = 7
            at += max(length, 1)
        found.append(replace(packet, content=bytes(content)))
    return found


def older_epoch(channel: RecordedChannel, random: Random) -> Packets:
    """Snapshots that state another sequence version."""
    if channel.settings.generation == "position":  # before version 15 they state none
        return loss(8)(channel, random) or []
    found = []
    for packet in loss(8)(channel, random) or []:
        content, at = bytearray(packet.content), MESSAGES_AT
        while packet.flow == SNAPSHOT_LINE and at + 12 <= len(content):
            length, template = (struct.unpack_from("<H", content, at + place)[0] for place in (0, TEMPLATE_AT))
            if template == HEADER_TEMPLATE:
                struct.pack_into("<H", content, at + EPOCH_AT, 272)
            at += max(length, 1)
        found.append(replace(packet, content=bytes(content)))
    return found


def duplicates(channel: RecordedChannel, random: Random) -> Packets:
    packets = channel.packets()
    again = [packet for packet in packets if packet.flow in LINES and random.random() < 0.2]
    return packets + [replace(each, ts=each.ts + random.choice((1_000, MS, 100 * MS, 2 * SECOND))) for each in again]


def reordered(share: float, most_ns: int) -> Fault:
    def fault(channel: RecordedChannel, random: Random) -> Packets:
        return [
            replace(packet, ts=packet.ts + random.randrange(1, most_ns))
            if packet.flow in LINES and random.random() < share
            else packet
            for packet in channel.packets()
        ]

    return fault


def snapshots_go_on(channel: RecordedChannel, random: Random) -> Packets:
    """Nothing more comes on the incremental stream, and the other streams know more."""
    last = some(channel, random, low=0.5, high=0.8)[0]
    packets = channel.packets()
    end = next(packet.ts for packet in packets if packet.flow == LINE_A and packet.last >= last)
    return [packet for packet in packets if packet.flow not in LINES or packet.ts <= end]


def slow_line_b(delay_ns: int) -> Fault:
    """What line A loses arrives later than the wait for it."""

    def fault(channel: RecordedChannel, random: Random) -> Packets:
        packets = without(channel, some(channel, random, 20, 0.05, 0.95), LINE_A)
        return [replace(p, ts=p.ts + delay_ns) if p.flow == LINE_B else p for p in packets]

    return fault


def line_b_only(channel: RecordedChannel, random: Random) -> Packets:
    return [packet for packet in without(channel, some(channel, random, 10), LINE_B) if packet.flow != LINE_A]


def line_a_restarts_alone(channel: RecordedChannel, random: Random) -> Packets:
    """Its numbering; Binary states it in another sequence version."""
    first, found = some(channel, random)[0], []
    for packet in channel.packets():
        content = packet.content
        if packet.flow == LINE_A and packet.first >= first:
            header = SBE_HEADER.unpack_from(content)
            new = SBE_HEADER.pack(header[0], header[1], header[2] + 1, packet.first - first + 1)
            content = new + content[SBE_HEADER.size :]
        found.append(replace(packet, content=content))
    return found


def no_instrument_stream(channel: RecordedChannel, random: Random) -> Packets:
    return [packet for packet in loss(3)(channel, random) or [] if packet.flow != INSTRUMENT_LINE]


def untouched(channel: RecordedChannel, _: Random) -> Packets:
    return channel.packets()


def lost_reset(*, is_on_both: bool) -> Fault:
    """The SequenceReset and the first message after it."""

    def fault(channel: RecordedChannel, _: Random) -> Packets:
        packets = channel.packets()
        line = [packet for packet in packets if packet.flow == LINE_A]
        new = next(at for at, packet in enumerate(line) if packet.numbering)
        resets = {packet.content for packet in line[new - channel.is_fast : new + 1]}
        lines = LINES if is_on_both else (LINE_A,)
        return [packet for packet in packets if packet.flow not in lines or packet.content not in resets]

    return fault


def one_line(fault: Fault) -> Fault:
    def only(channel: RecordedChannel, random: Random) -> Packets | None:
        packets = fault(channel, random)
        return packets and [packet for packet in packets if packet.flow != LINE_B]

    return only


BINARY, FIX_FAST, BOTH_LINES = ("sbe",), ("fast",), (LINE_A, LINE_B)
SCENARIOS = {
    "nothing": Scenario(untouched),
    "loss of one packet": Scenario(loss(1)),
    "loss of a burst": Scenario(loss(1, BURST)),
    "many losses": Scenario(loss(12, low=0.1)),
    "many losses on one line": Scenario(loss(30, 2, low=0.1, lines=(LINE_A,))),
    "loss of a trade": Scenario(about("trades", count=2)),
    "loss of an Empty Book": Scenario(about("empty book")),
    "loss of an Empty Book and what was sent again": Scenario(about("empty book", resent=12)),
    "loss of group phases": Scenario(about("status of many", count=3)),
    "loss of statuses": Scenario(about("status", count=3)),
    "loss of definitions": Scenario(about("definition", count=2)),
    "loss of statistics": Scenario(about("statistics", count=4)),
    "loss at the start": Scenario(loss(1, 12, 0.0, 0.01)),
    "loss before a silence": Scenario(loss_at_end(1), heals=False),
    "loss of much before a silence": Scenario(loss_at_end(25), heals=False),
    "end of the incremental stream while snapshots go on": Scenario(snapshots_go_on, heals=False),
    "loss without snapshots": Scenario(without_snapshots(loss(3)), heals=False),
    "loss, and snapshots with holes": Scenario(torn_loops(loss(6)), heals=False),
    "loss, and snapshots that are late": Scenario(late_snapshots(loss(8), 2 * SECOND), heals=False),
    "loss of group phases, and snapshots that are late": Scenario(
        late_snapshots(about("status of many", count=3), SECOND), heals=False
    ),
    "unknown update actions": Scenario(unknown_actions, protocols=BINARY),
    "chunks that are overtaken": Scenario(overtaken_chunks(10 * MS), protocols=FIX_FAST),
    "chunks that are overtaken by far": Scenario(overtaken_chunks(300 * MS), protocols=FIX_FAST),
    "foreign version on one line": Scenario(damaged(foreign_version, (LINE_A,)), protocols=BINARY),
    "foreign version on both lines": Scenario(damaged(foreign_version, BOTH_LINES), heals=False, protocols=BINARY),
    "huge number on one line": Scenario(damaged(huge_number, (LINE_A,))),
    "huge number on both lines": Scenario(damaged(huge_number, BOTH_LINES)),
    "torn packets on one line": Scenario(damaged(torn, (LINE_A,), 8)),
    "torn packets on both lines": Scenario(damaged(torn, BOTH_LINES)),
    "duplicates": Scenario(duplicates),
    "packets that overtake each other": Scenario(reordered(0.3, 5 * MS)),
    "packets that overtake each other by far": Scenario(reordered(0.1, 300 * MS)),
    "line B is 15 ms late": Scenario(slow_line_b(15 * MS)),
    "line B is 500 ms late": Scenario(slow_line_b(500 * MS)),
    "line B only": Scenario(line_b_only),
    "line A restarts alone": Scenario(line_a_restarts_alone, protocols=BINARY),
    "late group phases": Scenario(late("status of many")),
    "late Empty Book": Scenario(late("empty book")),
    "late definitions": Scenario(late("definition")),
    "late trades": Scenario(late("trades")),
    "late channel reset": Scenario(late("mbo of many"), RESET),
    "late join": Scenario(late_join()),
    "late join, late snapshots": Scenario(late_join(snapshots=0.7), heals=False),
    "late join without snapshots": Scenario(late_join(snapshots=None), heals=False),
    "join with an older snapshot": Scenario(join_with_an_older_snapshot),
    "snapshots of an older epoch": Scenario(older_epoch, heals=False, protocols=BINARY),
    "no instrument stream": Scenario(no_instrument_stream, heals=False),
    "channel reset": Scenario(untouched, RESET),
    "loss of a channel reset": Scenario(about("mbo of many"), RESET),
    "loss of a channel reset and what follows": Scenario(about("mbo of many", resent=100), RESET, heals=False),
    "new numbering": Scenario(untouched, RESTART),
    "new numbering, and late snapshots of the old one": Scenario(
        late_snapshots(untouched, 2 * SECOND), RESTART, heals=False
    ),
    "new numbering, whose reset is lost on one line": Scenario(lost_reset(is_on_both=False), RESTART),
    "new numbering, whose reset is lost": Scenario(lost_reset(is_on_both=True), RESTART, heals=False),
    "new numbering of the only line, whose reset is lost": Scenario(
        one_line(lost_reset(is_on_both=True)), RESTART, heals=False
    ),
}
