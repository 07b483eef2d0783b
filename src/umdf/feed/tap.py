"""The tap of a client: each received packet, its messages, and the books before and after it.

    client = FeedClient(channels, tap=records.append)     # or umdf.Live(channels, tap=records.append)

A tapped client applies packets one by one, in the order in which it is given them, and makes one record for each of
every stream; and one without a packet where time alone did something: a gap was opened, later packets stopped waiting.

Invariant: a book in `after` is the `before` of the next record that has it, so the records are the whole history of all
books.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from umdf.book.views import Book
from umdf.feed.channel_feed import ChannelFeed
from umdf.feed.events import FeedEvent
from umdf.feed.feed_lines import FeedLine
from umdf.market.families import NULL
from umdf.market.rows import Events
from umdf.transport.udp_receiver import ReceivedPackets
from umdf.wire.fast.decode.decoder import Decoder as FastDecoder
from umdf.wire.fast.templates import TemplateSet
from umdf.wire.fast.view import rows as fast_rows
from umdf.wire.packet import ChunkParser
from umdf.wire.reassembly import Limits, Reassembler
from umdf.wire.sbe.decode import Decoder as SbeDecoder
from umdf.wire.sbe.schema import Schema
from umdf.wire.sbe.view import fix_fields, with_packet_header
from umdf.wire.sbe.view import rows as sbe_rows

CHUNK_LIMITS = Limits(restart_distance=4)  # snapshot and instrument streams begin again with every loop (4.2.6)


@dataclass(frozen=True)
class TapMessage:
    """A message as it was sent; one of several chunks is in the packet that completes it."""

    sequence: int  # of the packet (Binary) or of the message (FAST)
    template_id: int
    name: str
    fields: dict[str, Any]  # as `umdf decode --format json` prints them
    fix: Callable[[], Iterator[tuple[int, str]]]  # the same as FIX: tags and values


@dataclass(frozen=True, eq=False)
class TapRecord:
    """One packet and what it did. Binary heartbeats and packets of other streams may do nothing."""

    feed: ChannelFeed
    line: FeedLine | None  # None: no packet, but time has passed
    ts_ns: int  # when it was received, or what time it was
    data: bytes  # the payload of the datagram
    messages: tuple[TapMessage, ...]
    applied: tuple[Events, ...]  # units of the incremental stream: this one, or also those that had waited for it
    events: tuple[FeedEvent, ...]  # gaps, epochs, changes of state and trust
    before: dict[int, Book | None]  # by instrument: those that were named or changed; None: there is no book
    after: dict[int, Book | None]


TapObserver = Callable[[TapRecord], None]


class Tap:
    """The tap of one channel. `record` and `record_time` are called after the channel has advanced."""

    def __init__(self, feed: ChannelFeed, schema: Schema, templates: TemplateSet, observer: TapObserver) -> None:
        self._feed, self._observer = feed, observer
        self._reader: _MessageReader = _SbeMessages(schema) if feed.key.protocol == "sbe" else _FastMessages(templates)
        self._books: dict[int, Book | None] = {}  # as they were after the last record
        self._seen = (0, 0)  # books recovered by snapshots, and epochs, by then

    def record(self, packets: ReceivedPackets, row: int, events: list[FeedEvent], applied: list[Events]) -> None:
        line, data = packets.names[packets.flow[row]], packets.buffer[packets.start[row] : packets.end[row]].tobytes()
        assert isinstance(line, FeedLine)
        ts_ns = int(packets.ts_ns[row])
        self._record(line, ts_ns, data, tuple(self._reader.read(line, ts_ns, data)), events, applied)

    def record_time(self, now_ns: int, events: list[FeedEvent], applied: list[Events]) -> None:
        """What was due by now, if anything was."""
        if events or applied or self._has_more_changes():
            self._record(None, now_ns, b"", (), events, applied)

    def _record(
        self,
        line: FeedLine | None,
        ts_ns: int,
        data: bytes,
        messages: tuple[TapMessage, ...],
        events: list[FeedEvent],
        applied: list[Events],
    ) -> None:
        before, after = self._compare_books(applied)
        self._observer(TapRecord(self._feed, line, ts_ns, data, messages, tuple(applied), tuple(events), before, after))

    def _has_more_changes(self) -> bool:
        return self._seen != (self._feed.channel.recovered, self._feed.totals.epochs)

    def _compare_books(self, applied: list[Events]) -> tuple[dict[int, Book | None], dict[int, Book | None]]:
        """The books that the applied rows name. Snapshots, resets, new epochs and definitions may change any."""
        channel, known = self._feed.channel, self._books
        named = {number for events in applied for number in events.rows("mbo").column("instrument_id").tolist()}
        is_any = self._has_more_changes() or NULL in named or any(len(each.rows("definition")) for each in applied)
        self._seen = channel.recovered, self._feed.totals.epochs
        numbers = named - {NULL}
        if is_any:
            numbers |= {*known, *channel.instrument_ids()}
        now = {number: channel.book(number) for number in sorted(numbers)}
        now = {number: book for number, book in now.items() if number in named or _differ(known.get(number), book)}
        before = {number: known.get(number) for number in now}
        known |= now
        return before, now


def _differ(one: Book | None, other: Book | None) -> bool:
    if one is None or other is None:
        return one is not other
    return one.rpt_seq != other.rpt_seq or one.entries.tobytes() != other.entries.tobytes()


class _MessageReader(Protocol):
    def read(self, line: FeedLine, ts_ns: int, data: bytes) -> Iterator[TapMessage]: ...


class _SbeMessages:
    def __init__(self, schema: Schema) -> None:
        self._decoder = SbeDecoder(schema)

    def read(self, line: FeedLine, ts_ns: int, data: bytes) -> Iterator[TapMessage]:
        batch = self._decoder.decode(np.frombuffer(data, np.uint8), np.zeros(1, np.int64), np.array([len(data)]))
        for row in sbe_rows(batch, dates=True):
            message, sequence = batch.layout.message_of(row.node), int(batch.sequence[0])
            fix = partial(_sbe_fix, message, row.fields, sequence, int(batch.sending_time[0]))
            yield TapMessage(sequence, message.template_id, message.name, row.fields, fix)


def _sbe_fix(message: Any, fields: Mapping[str, Any], sequence: int, ts_send: int) -> Iterator[tuple[int, str]]:
    return with_packet_header(fix_fields(message, dict(fields)), sequence, ts_send)


class _FastMessages:
    def __init__(self, templates: TemplateSet) -> None:
        self._decoder, self._chunk_parser = FastDecoder(templates), ChunkParser()
        self._reassemblers: dict[FeedLine, Reassembler] = {}

    def read(self, line: FeedLine, ts_ns: int, data: bytes) -> Iterator[TapMessage]:
        buffer, zero = np.frombuffer(data, np.uint8), np.zeros(1, np.int64)
        chunks = self._chunk_parser.parse(buffer, zero, np.array([len(data)]))
        reassembler = self._reassemblers.setdefault(line, Reassembler(CHUNK_LIMITS))
        whole, of_chunks, _ = reassembler.add(chunks, np.zeros(1, np.uint16), np.array([ts_ns]))
        found: list[tuple[int, TapMessage]] = []
        for messages in (whole, of_chunks):
            if not len(messages):
                continue
            for row in fast_rows(self._decoder.decode(messages.buffer, messages.start, messages.end)):
                sequence, template = int(messages.msg_seq_num[row.number]), row.template
                message = TapMessage(sequence, template.id or 0, template.name, row.fields, row.fix)
                found.append((int(messages.order[row.number]), message))
        return (message for _, message in sorted(found, key=lambda each: each[0]))
