"""Datagrams of all streams → channels with their books and states.

    session = Session(survey.streams(), schema, templates)
    session.add(packets, names)         # of one file; again for every file that reaches this far
    session.advance(now_ns)             # nothing older than this will come
    session.finish()
    session.channels                    # by (protocol, number)

Everything is done in the order of the wire: instruments first, then what both lines make of the incremental stream,
then what the snapshots can heal.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from umdf.market.fast_events import FastEvents
from umdf.market.rows import Events, Units
from umdf.market.sbe_events import SbeEvents
from umdf.sync.channel import Channel
from umdf.sync.lines import FOREVER, Gap, Lines
from umdf.sync.pieces import Pieces, joined, no_pieces
from umdf.sync.snapshots import find_snapshots
from umdf.sync.streams import Datagrams, Role, Stream, message_type, peek_templates
from umdf.wire.fast.decode import Decoder as FastDecoder
from umdf.wire.fast.templates import TemplateSet
from umdf.wire.packet import Framer
from umdf.wire.packet import Protocol as Speaks
from umdf.wire.reassembly import Limits, Messages, Reassembler
from umdf.wire.sbe.decode import Decoder as SbeDecoder
from umdf.wire.sbe.headers import read_headers
from umdf.wire.sbe.schema import OtherVersions, Schema

Key = tuple[Speaks, int]
Until = Callable[[Units], NDArray[np.bool_]]  # which units still count
Watch = Callable[[Key, Events], None]  # sees what is applied to a channel from its incremental stream
SEQUENCE_RESET = "4"


@dataclass
class _Feed:
    """One channel and what waits for it."""

    channel: Channel
    lines: Lines = field(default_factory=Lines)
    incremental: list[Pieces] = field(default_factory=list)
    snapshots: dict[int, list[Pieces]] = field(default_factory=dict)  # by stream: what is not yet decoded
    instruments: list[Pieces] = field(default_factory=list)
    mapper: SbeEvents | FastEvents | None = None


class Session:
    def __init__(
        self,
        streams: list[Stream],
        schema: Schema,
        templates: TemplateSet,
        until: Until | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.streams = {stream.name: (number, stream) for number, stream in enumerate(streams)}
        self._templates, self._until, self._watch = templates, until, watch
        self._feeds: dict[Key, _Feed] = {}
        for stream in streams:
            self._feeds.setdefault((stream.speaks, stream.channel), _Feed(Channel(stream.channel)))
        self._sbe, self._versions = SbeDecoder(schema, validity=False), OtherVersions(schema)
        self._fast: FastDecoder | None = None
        self._framer = Framer()
        # Loops of snapshots and instruments begin again and again (4.2.6).
        self._reassembler = Reassembler(Limits(wait_ms=60_000, restart_distance=4))
        self._resets = [n for n, template in templates.by_id.items() if message_type(template) == SEQUENCE_RESET]
        self._epochs: dict[int, int] = {}  # of FAST streams: when their numbering began (ts_send of the reset)

    @property
    def channels(self) -> dict[Key, Channel]:
        return {key: feed.channel for key, feed in self._feeds.items()}

    def notices(self) -> list[str]:
        """What to say once about the traffic."""
        return self._versions.notices()

    def add(self, packets: Datagrams, names: list[Hashable], rows: NDArray[np.int64]) -> None:
        """Some packets of a file; `names` are those of its flows."""
        known = [self.streams.get(name) for name in names]
        number = np.array([found[0] if found else -1 for found in known], np.int64)[packets.flow[rows]]
        for stream_number, stream in self.streams.values():
            chosen = rows[number == stream_number]
            if len(chosen):
                feed = self._feeds[stream.speaks, stream.channel]
                read = self._sbe_pieces if stream.speaks == Speaks.SBE else self._fast_pieces
                self._put(feed, stream.role, stream_number, read(packets, chosen, stream_number, stream.role))

    def _put(self, feed: _Feed, role: Role, stream_number: int, pieces: Pieces) -> None:
        if role == Role.INCREMENTAL:
            feed.incremental.append(pieces)
        elif role == Role.SNAPSHOT:
            feed.snapshots.setdefault(stream_number, []).append(pieces)
        else:
            feed.instruments.append(pieces)

    def _sbe_pieces(self, packets: Datagrams, rows: NDArray[np.int64], line: int, role: Role) -> Pieces:
        start, end = packets.start[rows], packets.end[rows]
        headers = read_headers(packets.buffer, start, end)
        return Pieces(
            packets.buffer,
            start,
            end,
            headers.sequence.astype(np.int64),
            headers.seq_version.astype(np.int64),
            packets.ts_ns[rows],
            np.zeros(len(rows), np.uint16),
            np.full(len(rows), line, np.uint16),
        )

    def _fast_pieces(self, packets: Datagrams, rows: NDArray[np.int64], line: int, role: Role) -> Pieces:
        frames = self._framer.frames(packets.buffer, packets.start[rows], packets.end[rows])
        key, ts_ns = np.full(len(rows), line, np.uint16), packets.ts_ns[rows]
        taken = self._reassembler.take(frames, key, ts_ns)
        parts = [self._messages(found, ts_ns, line) for found in taken[:2] if len(found)]
        if not parts:
            return no_pieces()
        order = np.argsort(np.concatenate([found.order for found in taken[:2]]), kind="stable")
        whole = joined(parts).at(order)
        if role == Role.INCREMENTAL:
            return self._with_epochs(whole, line)
        return whole

    def _messages(self, messages: Messages, ts_ns: NDArray[np.int64], line: int) -> Pieces:
        count = len(messages)
        numbers = messages.msg_seq_num.astype(np.int64), np.zeros(count, np.int64), ts_ns[messages.packet]
        lines = np.full(count, line, np.uint16)
        return Pieces(messages.buffer, messages.start, messages.end, *numbers, messages.msg_index, lines)

    def _with_epochs(self, pieces: Pieces, line: int) -> Pieces:
        """FAST does not say to which numbering a message belongs: the sending time of the last reset of its line
        (SequenceReset) does. The reset itself stands in none."""
        resets = np.flatnonzero(np.isin(peek_templates(pieces), self._resets))
        epoch = np.full(len(pieces), self._epochs.get(line, 0), np.int64)
        if not len(resets):
            pieces.epoch[:] = epoch
            return pieces
        for row in resets.tolist():
            sent = self._fast_events(pieces.at(np.array([row]))).units.ts_send
            self._epochs[line] = int(sent[0])
            epoch[row:] = self._epochs[line]
        pieces.epoch[:] = epoch
        return pieces.at(np.setdiff1d(np.arange(len(pieces)), resets))

    def advance(self, now_ns: int) -> None:
        """Apply what is in order by now."""
        for key, feed in self._feeds.items():
            self._advance(key, feed, now_ns, last=False)

    def finish(self) -> None:
        """No more will come."""
        for key, feed in self._feeds.items():
            self._advance(key, feed, FOREVER, last=True)
            feed.channel.finish()

    def _advance(self, key: Key, feed: _Feed, now_ns: int, last: bool) -> None:
        if feed.instruments:
            feed.channel.instruments(self._events(key, feed, joined(feed.instruments)))
            feed.instruments.clear()
        new = joined(feed.incremental) if feed.incremental else no_pieces()
        feed.incremental.clear()
        # Binary heartbeats have the number 0 and use none up.
        new = new.at(new.sequence > 0) if key[0] == Speaks.SBE else new
        merged = feed.lines.finish() if last and not len(new) else feed.lines.take(new, now_ns)
        bounds = [0, *merged.before, len(merged.pieces)]
        for gap, (first, end) in zip([None, *merged.gaps], pairwise(bounds), strict=True):
            if first < end:  # behind a gap there is always something
                self._apply(key, feed, gap, self._events(key, feed, merged.pieces.at(np.arange(first, end))))
        for parts in feed.snapshots.values():
            self._snapshots(key, feed, parts, last)

    def _apply(self, key: Key, feed: _Feed, gap: Gap | None, events: Events) -> None:
        """What follows a gap, or nothing that is missing."""
        if gap is not None and self._counts(gap, events.units):
            feed.channel.gap(gap)
        counted = self._counted(events)
        feed.channel.incremental(counted)
        if self._watch is not None:
            self._watch(key, counted)

    def _counts(self, gap: Gap, units: Units) -> bool:
        """Whether a gap is from before the moment that was asked for: by its first number, or by what follows it."""
        if self._until is None:
            return True
        behind = units.at(slice(0, 1))
        behind.sequence = np.array([gap.first])
        return bool(self._until(behind)[0])

    def _snapshots(self, key: Key, feed: _Feed, parts: list[Pieces], last: bool) -> None:
        if not parts:
            return
        pieces = joined(parts)
        found = find_snapshots(self._events(key, feed, pieces, snapshot=True))
        if self._until is not None:
            sent = found.events.units.at(found.header.unit)
            sent.sequence = found.last_sequence
            found.complete[:] &= self._until(sent)
        if self._until is None or found.complete.any():
            feed.channel.snapshots(found)
        parts.clear()
        if found.open_from < len(pieces) and not last:
            parts.append(pieces.at(np.arange(found.open_from, len(pieces))).packed())

    def _counted(self, events: Events) -> Events:
        """Without what comes after the moment that was asked for."""
        if self._until is None:
            return events
        keep = self._until(events.units)
        if keep.all():
            return events
        counted = events.at({name: keep[rows.unit] for name, rows in events.families.items()})
        last = int(np.flatnonzero(keep).max(initial=-1))
        return Events(events.units.at(slice(last + 1)), counted.families)

    def _events(self, key: Key, feed: _Feed, pieces: Pieces, snapshot: bool = False) -> Events:
        if key[0] == Speaks.FAST:
            return self._fast_events(pieces, feed)
        batch = self._sbe.decode(pieces.buffer, pieces.start, pieces.end)
        self._versions.add(batch.other_versions)
        if feed.mapper is None:
            feed.mapper = SbeEvents(self._sbe.layout)
        assert isinstance(feed.mapper, SbeEvents)
        return feed.mapper.events(batch, pieces.ts_recv, snapshot=snapshot)

    def _fast_events(self, pieces: Pieces, feed: _Feed | None = None) -> Events:
        if self._fast is None:
            self._fast = FastDecoder(self._templates)
        batch = self._fast.decode(pieces.buffer, pieces.start, pieces.end)
        mapper = feed.mapper if feed and feed.mapper else FastEvents(self._fast.layout)
        assert isinstance(mapper, FastEvents)
        if feed:
            feed.mapper = mapper
        events = mapper.events(batch, pieces.msg_index, pieces.ts_recv, channel_id=feed and feed.channel.number)
        events.units.seq_version[:] = pieces.epoch
        return events
