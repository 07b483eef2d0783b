"""Early books of FIX/FAST channels, of every kind of book, over the faults of networks: nothing but earlier."""

from __future__ import annotations

import ctypes
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from exchange.channel_client import TEMPLATES, rows_of
from feed.early_twins import Twins, numbers
from sync.recorded_days import (
    FLOWS,
    INSTRUMENT_LINE,
    LINE_A,
    LINE_B,
    RESET,
    RESTART,
    SNAPSHOT_LINE,
    RecordedChannel,
    Sent,
    record_day,
)
from sync.recorded_days import restarted as with_truth_of

from umdf.book.engine import MBO_COLUMNS
from umdf.buffers import buffer_address
from umdf.feed.channel_feed import ChannelFeed
from umdf.feed.early_books import MAX_ENTRIES, StopReason
from umdf.feed.feed_lines import ChannelKey, FeedLine
from umdf.market.fast import live_rows_kernel as k
from umdf.market.fast.events import FastEventMapper
from umdf.market.fast.live_rows import LiveRows
from umdf.sync.stream_detection import peek_templates
from umdf.transport.channels_file import LOOPBACK, ChannelAddresses, LineAddress
from umdf.transport.udp_receiver import ReceivedPackets
from umdf.wire.fast.decode.decoder import Decoder
from umdf.wire.packet import ChunkParser

HEADER = struct.Struct(">IHHH")  # MsgSeqNum, NoChunks, CurrentChunk, MsgLength
KINDS = ("fast", "fast-position", "fast-mbp", "fast-mbp-position", "fast-tob")
LINES = {LINE_A: ("incremental", "A"), LINE_B: ("incremental", "B"), SNAPSHOT_LINE: ("snapshot", "A"),
         INSTRUMENT_LINE: ("instruments", "A")}  # fmt: skip
Damage = Callable[[bytes, random.Random], list[bytes]]
Days = dict[str, RecordedChannel]


@pytest.fixture(scope="module")
def days() -> Days:
    """With a channel reset."""
    return record_day(RESET)


@dataclass
class RecordedDay:
    """A recorded channel as a day of `Twins`."""

    recorded: RecordedChannel
    numbering: int = -2  # of the truth, from the second call on

    def __post_init__(self) -> None:
        number, self.instrument_ids = self.recorded.settings.channel, self.recorded.ids
        ports = iter(range(40_000, 40_004))
        lines = {"snapshot": "A", "instruments": "A", "incremental": "AB"}
        streams = {
            stream: tuple(LineAddress(line, LOOPBACK, next(ports)) for line in names) for stream, names in lines.items()
        }
        self.channels = [ChannelAddresses(number, "fast", streams, self.recorded.settings.book_type.lower())]

    def true_books(self) -> RecordedTruth:
        self.numbering += 1
        return RecordedTruth(self.recorded, max(0, self.numbering))


@dataclass
class RecordedTruth:
    recorded: RecordedChannel
    numbering: int
    sequence: int = 0

    def advance(self, sequence: int) -> set[int]:
        if not self.recorded.is_end_of_packet(sequence, self.numbering):
            return set()
        self.sequence = sequence
        return set(self.recorded.ids)

    def orders(self, number: int) -> Any:
        view = self.recorded.truth(number, self.sequence, self.numbering)
        return () if view is None else view.book


def shown(feed: ChannelFeed, number: int) -> Any:
    book = feed.channel.book(number)
    return () if book is None else tuple(rows_of(book))


# Faults.


def chunked(content: bytes, choose: random.Random) -> list[bytes]:
    """Its first message in two chunks, each in a packet of its own; what follows it in a third."""
    sequence, count, _, size = HEADER.unpack_from(content)
    end = HEADER.size + size
    if count != 1 or size < 2 or end > len(content):
        return [content]
    cut = choose.randrange(1, size)
    parts = content[HEADER.size : HEADER.size + cut], content[HEADER.size + cut : end]
    chunks = [HEADER.pack(sequence, 2, number, len(part)) + part for number, part in enumerate(parts, 1)]
    return [*chunks, *([content[end:]] if end < len(content) else [])]


def half_chunked(content: bytes, choose: random.Random) -> list[bytes]:
    """One of the chunks is lost."""
    found = chunked(content, choose)
    del found[choose.randrange(len(found))]
    return found


def cut(content: bytes, choose: random.Random) -> list[bytes]:
    return [content[: choose.randrange(len(content))]]


def damaged(content: bytes, choose: random.Random) -> list[bytes]:
    found = bytearray(content)
    found[choose.randrange(HEADER.size, len(found))] ^= 1 << choose.randrange(8)
    return [bytes(found)]


def renumbered(content: bytes, choose: random.Random) -> list[bytes]:
    """Its first message has another number: a near one, or a far one."""
    sequence, *others = HEADER.unpack_from(content)
    other = choose.choice((sequence ^ 1, sequence + 1, max(1, sequence - 3), sequence + 100_000, 1))
    return [HEADER.pack(other, *others) + content[HEADER.size :]]


HARMLESS: tuple[Damage, ...] = (chunked, half_chunked, cut)  # what is believed is right
ALL_DAMAGES: tuple[Damage, ...] = (*HARMLESS, damaged, renumbered)


def faulty(sent: list[Sent], damages: tuple[Damage, ...], choose: random.Random, loss: float = 0.03) -> list[Sent]:
    """Incremental packets are lost, come twice or late, or are damaged; in order of time."""
    found = list[Sent]()
    for packet in sent:
        if packet.flow not in (LINE_A, LINE_B):
            found.append(packet)
        elif choose.random() >= loss:
            content = [packet.content]
            if choose.random() < 0.04:
                content = choose.choice(damages)(packet.content, choose)
            if choose.random() < 0.03:
                content *= 2
            delay = choose.choice((100_000, 3_000_000, 40_000_000)) if choose.random() < 0.03 else 0
            found += [replace(packet, content=part, ts=packet.ts + delay) for part in content]
    return sorted(found, key=lambda packet: packet.ts)


def received(sent: list[Sent], channel: int) -> ReceivedPackets:
    ends = np.cumsum([len(packet.content) for packet in sent])
    buffer = np.frombuffer(b"".join(packet.content for packet in sent), np.uint8)
    flow = np.array([FLOWS.index(packet.flow) for packet in sent], np.uint16)
    names: list[Any] = [FeedLine(ChannelKey("fast", channel), *LINES[flow]) for flow in FLOWS]
    ts_ns = np.array([packet.ts for packet in sent])
    return ReceivedPackets(buffer, np.concatenate([[0], ends[:-1]]), ends, ts_ns, flow, names)


def follow(recorded: RecordedChannel, sent: list[Sent], *, most: int, is_truth_known: bool = True) -> Twins:
    twins = Twins(RecordedDay(recorded), is_truth_known=is_truth_known, shown=shown)
    packets, pieces, first = received(sent, recorded.settings.channel), numbers(most, 60), 0
    while first < len(packets):
        size = next(pieces)
        twins.receive(packets.take(slice(first, first + size)), numbers(most + first, most))
        first += size
    twins.finish()
    return twins


@pytest.mark.parametrize(("kind", "most"), [*((kind, 6) for kind in KINDS), ("fast", 40)])
def test_books_of_every_kind_are_early_and_those_of_the_exchange(days: Days, kind: str, most: int) -> None:
    recorded, choose = days[kind], random.Random(kind)
    twins = follow(recorded, faulty(recorded.packets(), HARMLESS, choose), most=most)
    assert twins.early.units > 80 and twins.compared > 20, (twins.early.units, twins.compared)
    assert StopReason.NOT_NEXT in twins.stops and StopReason.NOT_PLAIN in twins.stops


@pytest.mark.parametrize("seed", range(3))
def test_damage_changes_nothing_but_that_the_session_is_needed(days: Days, seed: int) -> None:
    recorded, choose = days["fast"], random.Random(seed)
    sent = faulty(recorded.packets(), ALL_DAMAGES, choose, loss=0.01)
    twins = follow(recorded, sent, most=10, is_truth_known=False)
    assert twins.early.units > 80 and {StopReason.NOT_NEXT, StopReason.NOT_PLAIN} <= twins.stops


@pytest.mark.parametrize("loss", [None, 0.05])
def test_a_new_numbering_starts_with_new_books(loss: float | None) -> None:
    """A SequenceReset on both lines, in time or not."""
    recorded = with_truth_of(record_day()["fast"], record_day(RESTART)["fast"])
    sent = recorded.packets() if loss is None else faulty(recorded.packets(), (chunked,), random.Random(1), loss)
    twins = follow(recorded, sent, most=8)
    assert twins.feed.totals.epochs == 2 and twins.early.units > 80 and twins.compared > 20
    assert loss is not None or StopReason.OTHER_EPOCH in twins.stops


def words(address: np.int64, count: int) -> list[int]:
    return list((ctypes.c_int64 * count).from_address(int(address)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_alone_has_the_rows_that_it_has_in_a_batch(days: Days, kind: str) -> None:
    decoder, live = Decoder(TEMPLATES, generated=()), LiveRows(TEMPLATES, MAX_ENTRIES)
    mapper, tables = FastEventMapper(decoder.layout), dict(live.tables())
    packets = received([packet for packet in days[kind].sent if packet.flow == LINE_A], 1)
    messages = ChunkParser().parse(packets.buffer, packets.start, packets.end)
    batch = decoder.decode(packets.buffer, messages.start, messages.end)
    events = mapper.events(batch, np.full(len(messages), 7, np.uint16))
    book, compared, left = events.rows("mbo"), 0, set[int]()
    first = np.searchsorted(book.unit, np.arange(len(messages) + 1))
    for message, template in enumerate(peek_templates(messages).tolist()):
        if template not in tables:
            continue
        span = int(messages.start[message]), int(messages.end[message])
        rows = k.read_message(tables[template], buffer_address(packets.buffer), *span, 7)
        if rows < 0:
            left.add(message)
            assert rows == k.NOT_PLAIN
            continue
        own = slice(first[message], first[message + 1])
        assert rows == own.stop - own.start
        columns, table = live.columns[template], live._tables[template]
        for name in MBO_COLUMNS:
            assert np.array_equal(columns[name][:rows], book.column(name)[own]), name
        places = (book.wire_order[own] & 0xFFFF_FFFF).tolist()
        assert words(table[k.PLACES], rows) == places
        assert words(table[k.SEQUENCE], 1) == [int(events.units.sequence[message])]
        assert words(table[k.SENT], 1) == [int(events.units.ts_send[message])]
        compared += rows
    not_plain = {*events.rows("status").unit.tolist(), *events.rows("control").unit.tolist()}
    is_standalone = {message for message in not_plain if int(peek_templates(messages)[message]) not in tables}
    assert compared > 100 and left == not_plain - is_standalone
