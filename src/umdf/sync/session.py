"""Packets of all streams → channels with their books and states.

    session = Session(survey.streams(), schema, templates)
    session.add(packets, names, rows)   # of one file; repeat for every file that reaches this time
    session.advance(now_ns)             # no older packets will come
    session.finish()
    session.channels                    # by (protocol, number)

Everything is applied in wire order: instruments first, then the arbitrated incremental stream, then snapshots for
recovery.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from umdf.market.fast.events import FastEventMapper
from umdf.market.rows import Events, Units
from umdf.market.sbe.events import SbeEventMapper
from umdf.sync.arbitration import FOREVER, Gap, LineArbiter
from umdf.sync.channel import Channel
from umdf.sync.raw_units import RawUnits, concat_units, empty_units
from umdf.sync.snapshots import find_snapshots
from umdf.sync.stream_detection import CapturedPackets, DetectedStream, StreamKind, message_type, peek_templates
from umdf.wire.fast.decode.decoder import Decoder as FastDecoder
from umdf.wire.fast.templates import TemplateSet
from umdf.wire.packet import ChunkParser
from umdf.wire.packet import Protocol as Speaks
from umdf.wire.reassembly import Limits, Messages, Reassembler
from umdf.wire.sbe.decode import Decoder as SbeDecoder
from umdf.wire.sbe.headers import read_packet_headers
from umdf.wire.sbe.schema import OtherVersions, Schema

ChannelKey = tuple[Speaks, int]
UnitFilter = Callable[[Units], NDArray[np.bool_]]  # which units are included
EventObserver = Callable[[ChannelKey, Events], None]  # receives the incremental events that a channel applies
SEQUENCE_RESET = "4"


@dataclass
class _ChannelInput:
    """One channel and its pending input."""

    channel: Channel
    arbiter: LineArbiter = field(default_factory=LineArbiter)
    incremental: list[RawUnits] = field(default_factory=list)
    snapshots: dict[int, list[RawUnits]] = field(default_factory=dict)  # by stream: not decoded yet
    instruments: list[RawUnits] = field(default_factory=list)
    mapper: SbeEventMapper | FastEventMapper | None = None


class Session:
    def __init__(
        self,
        streams: list[DetectedStream],
        schema: Schema,
        templates: TemplateSet,
        unit_filter: UnitFilter | None = None,
        observer: EventObserver | None = None,
    ) -> None:
        self.streams = {stream.name: (number, stream) for number, stream in enumerate(streams)}
        self._templates, self._unit_filter, self._observer = templates, unit_filter, observer
        self._inputs: dict[ChannelKey, _ChannelInput] = {}
        for stream in streams:
            self._inputs.setdefault((stream.protocol, stream.channel), _ChannelInput(Channel(stream.channel)))
        self._sbe, self._versions = SbeDecoder(schema, validity=False), OtherVersions(schema)
        self._fast: FastDecoder | None = None
        self._framer = ChunkParser()
        # The snapshot and instrument streams restart with every loop (4.2.6).
        self._reassembler = Reassembler(Limits(wait_ms=60_000, restart_distance=4))
        self._resets = [n for n, template in templates.by_id.items() if message_type(template) == SEQUENCE_RESET]
        self._epochs: dict[int, int] = {}  # of FAST streams: start of the epoch (ts_send of the reset)

    @property
    def channels(self) -> dict[ChannelKey, Channel]:
        return {key: feed.channel for key, feed in self._inputs.items()}

    def notices(self) -> list[str]:
        """Warnings about the traffic, each once."""
        return self._versions.notices()

    def add(self, packets: CapturedPackets, names: list[Hashable], rows: NDArray[np.int64]) -> None:
        """Add packets of a file; `names` are the names of its flows."""
        known = [self.streams.get(name) for name in names]
        number = np.array([found[0] if found else -1 for found in known], np.int64)[packets.flow[rows]]
        for stream_number, stream in self.streams.values():
            chosen = rows[number == stream_number]
            if len(chosen):
                feed = self._inputs[stream.protocol, stream.channel]
                read = self._sbe_units if stream.protocol == Speaks.SBE else self._fast_units
                self._queue(feed, stream.kind, stream_number, read(packets, chosen, stream_number, stream.kind))

    def _queue(self, feed: _ChannelInput, role: StreamKind, stream_number: int, units: RawUnits) -> None:
        if role == StreamKind.INCREMENTAL:
            feed.incremental.append(units)
        elif role == StreamKind.SNAPSHOT:
            feed.snapshots.setdefault(stream_number, []).append(units)
        else:
            feed.instruments.append(units)

    def _sbe_units(self, packets: CapturedPackets, rows: NDArray[np.int64], line: int, role: StreamKind) -> RawUnits:
        start, end = packets.start[rows], packets.end[rows]
        headers = read_packet_headers(packets.buffer, start, end)
        return RawUnits(
            packets.buffer,
            start,
            end,
            headers.sequence.astype(np.int64),
            headers.seq_version.astype(np.int64),
            packets.ts_ns[rows],
            np.zeros(len(rows), np.uint16),
            np.full(len(rows), line, np.uint16),
        )

    def _fast_units(self, packets: CapturedPackets, rows: NDArray[np.int64], line: int, role: StreamKind) -> RawUnits:
        frames = self._framer.parse(packets.buffer, packets.start[rows], packets.end[rows])
        key, ts_ns = np.full(len(rows), line, np.uint16), packets.ts_ns[rows]
        reassembled = self._reassembler.add(frames, key, ts_ns)
        parts = [self._messages(found, ts_ns, line) for found in reassembled[:2] if len(found)]
        if not parts:
            return empty_units()
        order = np.argsort(np.concatenate([found.order for found in reassembled[:2]]), kind="stable")
        units = concat_units(parts).take(order)
        if role == StreamKind.INCREMENTAL:
            return self._with_epochs(units, line)
        return units

    def _messages(self, messages: Messages, ts_ns: NDArray[np.int64], line: int) -> RawUnits:
        count = len(messages)
        numbers = messages.msg_seq_num.astype(np.int64), np.zeros(count, np.int64), ts_ns[messages.packet]
        lines = np.full(count, line, np.uint16)
        return RawUnits(messages.buffer, messages.start, messages.end, *numbers, messages.msg_index, lines)

    def _with_epochs(self, units: RawUnits, line: int) -> RawUnits:
        """FAST messages do not state their epoch: it is the send time of the last reset (SequenceReset) of their line.
        The reset itself belongs to none."""
        resets = np.flatnonzero(np.isin(peek_templates(units), self._resets))
        epoch = np.full(len(units), self._epochs.get(line, 0), np.int64)
        if not len(resets):
            units.epoch[:] = epoch
            return units
        for row in resets.tolist():
            sent = self._fast_events(units.take(np.array([row]))).units.ts_send
            self._epochs[line] = int(sent[0])
            epoch[row:] = self._epochs[line]
        units.epoch[:] = epoch
        return units.take(np.setdiff1d(np.arange(len(units)), resets))

    def advance(self, now_ns: int) -> None:
        """Apply everything that is in order by now."""
        for key, feed in self._inputs.items():
            self._advance(key, feed, now_ns, last=False)

    def finish(self) -> None:
        """Call it after the last packet."""
        for key, feed in self._inputs.items():
            self._advance(key, feed, FOREVER, last=True)
            feed.channel.finish()

    def _advance(self, key: ChannelKey, feed: _ChannelInput, now_ns: int, last: bool) -> None:
        if feed.instruments:
            feed.channel.apply_instruments(self._events(key, feed, concat_units(feed.instruments)))
            feed.instruments.clear()
        new = concat_units(feed.incremental) if feed.incremental else empty_units()
        feed.incremental.clear()
        # Binary heartbeats have sequence 0 and do not use one up.
        new = new.take(new.sequence > 0) if key[0] == Speaks.SBE else new
        merged = feed.arbiter.finish() if last and not len(new) else feed.arbiter.arbitrate(new, now_ns)
        bounds = [0, *merged.gap_rows, len(merged.units)]
        for gap, (first, end) in zip([None, *merged.gaps], pairwise(bounds), strict=True):
            if first < end:  # after a gap there is always a unit
                self._apply(key, feed, gap, self._events(key, feed, merged.units.take(np.arange(first, end))))
        for parts in feed.snapshots.values():
            self._apply_snapshots(key, feed, parts, last)

    def _apply(self, key: ChannelKey, feed: _ChannelInput, gap: Gap | None, events: Events) -> None:
        """Apply events, after the gap before them, if there is one."""
        if gap is not None and self._is_gap_included(gap, events.units):
            feed.channel.apply_gap(gap)
        counted = self._included_events(events)
        feed.channel.apply_incremental(counted)
        if self._observer is not None:
            self._observer(key, counted)

    def _is_gap_included(self, gap: Gap, units: Units) -> bool:
        """Whether a gap is before the requested time: by its first sequence, or by the unit after it."""
        if self._unit_filter is None:
            return True
        behind = units.take(slice(0, 1))
        behind.sequence = np.array([gap.first])
        return bool(self._unit_filter(behind)[0])

    def _apply_snapshots(self, key: ChannelKey, feed: _ChannelInput, parts: list[RawUnits], last: bool) -> None:
        if not parts:
            return
        units = concat_units(parts)
        snapshots = find_snapshots(self._events(key, feed, units, snapshot=True))
        if self._unit_filter is not None:
            sent = snapshots.events.units.take(snapshots.header.unit)
            sent.sequence = snapshots.last_sequence
            snapshots.is_complete[:] &= self._unit_filter(sent)
        if self._unit_filter is None or snapshots.is_complete.any():
            feed.channel.apply_snapshots(snapshots)
        parts.clear()
        if snapshots.incomplete_from < len(units) and not last:
            parts.append(units.take(np.arange(snapshots.incomplete_from, len(units))).compacted())

    def _included_events(self, events: Events) -> Events:
        """Without events after the requested time."""
        if self._unit_filter is None:
            return events
        keep = self._unit_filter(events.units)
        if keep.all():
            return events
        counted = events.take({name: keep[rows.unit] for name, rows in events.families.items()})
        last = int(np.flatnonzero(keep).max(initial=-1))
        return Events(events.units.take(slice(last + 1)), counted.families)

    def _events(self, key: ChannelKey, feed: _ChannelInput, units: RawUnits, snapshot: bool = False) -> Events:
        if key[0] == Speaks.FAST:
            return self._fast_events(units, feed)
        batch = self._sbe.decode(units.buffer, units.start, units.end)
        self._versions.add(batch.other_versions)
        if feed.mapper is None:
            feed.mapper = SbeEventMapper(self._sbe.layout)
        assert isinstance(feed.mapper, SbeEventMapper)
        return feed.mapper.events(batch, units.ts_recv, snapshot=snapshot)

    def _fast_events(self, units: RawUnits, feed: _ChannelInput | None = None) -> Events:
        if self._fast is None:
            self._fast = FastDecoder(self._templates)
        batch = self._fast.decode(units.buffer, units.start, units.end)
        mapper = feed.mapper if feed and feed.mapper else FastEventMapper(self._fast.layout)
        assert isinstance(mapper, FastEventMapper)
        if feed:
            feed.mapper = mapper
        events = mapper.events(batch, units.msg_index, units.ts_recv, channel_id=feed and feed.channel.number)
        events.units.seq_version[:] = units.epoch
        return events
