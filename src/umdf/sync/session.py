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
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from umdf.market.fast.events import FastEventMapper
from umdf.market.rows import Events, Units
from umdf.market.sbe.events import SbeEventMapper
from umdf.sync.arbitration import FOREVER, ArbitrationResult, Gap, LineArbiter, StepKind
from umdf.sync.channel import Channel
from umdf.sync.raw_units import (
    RawUnits,
    UnitKind,
    concat_units,
    content_keys,
    data_units,
    empty_units,
    heartbeat_numbers,
)
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
    arbiter: LineArbiter
    gaps: list[Gap] = field(default_factory=list)  # reported, not applied yet
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
            arbiter = LineArbiter(has_versions=stream.protocol == Speaks.SBE)
            self._inputs.setdefault((stream.protocol, stream.channel), _ChannelInput(Channel(stream.channel), arbiter))
        self._sbe, self._versions = SbeDecoder(schema, validity=False), OtherVersions(schema)
        self._fast: FastDecoder | None = None
        self._framer = ChunkParser()
        # The snapshot and instrument streams restart with every loop (4.2.6).
        self._reassembler = Reassembler(Limits(wait_ms=60_000, restart_distance=4))
        self._resets = [n for n, template in templates.by_id.items() if message_type(template) == SEQUENCE_RESET]

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
        sequence = headers.sequence.astype(np.int64)
        # A heartbeat has sequence 0 and announces the next one.
        kind = np.where(sequence > 0, np.uint8(UnitKind.DATA), np.uint8(UnitKind.HEARTBEAT))
        next_sequence = np.where(sequence > 0, 0, heartbeat_numbers(packets.buffer, start, end))
        units = RawUnits(
            packets.buffer,
            start,
            end,
            sequence,
            headers.seq_version.astype(np.int64),
            packets.ts_ns[rows],
            np.zeros(len(rows), np.uint16),
            np.full(len(rows), line, np.uint16),
            kind,
            next_sequence,
            headers.sending_time.view(np.int64),
        )
        return units.take((sequence > 0) | (next_sequence > 0)) if role == StreamKind.INCREMENTAL else units

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
            return self._with_kinds(units)
        return units

    def _messages(self, messages: Messages, ts_ns: NDArray[np.int64], line: int) -> RawUnits:
        count = len(messages)
        numbers = messages.msg_seq_num.astype(np.int64), np.zeros(count, np.int64), ts_ns[messages.packet]
        lines = np.full(count, line, np.uint16)
        return data_units(messages.buffer, messages.start, messages.end, *numbers, messages.msg_index, lines)

    def _with_kinds(self, units: RawUnits) -> RawUnits:
        """Mark the SequenceResets: the numbers after them start with 1 (36 is always 1)."""
        is_reset = np.isin(peek_templates(units), self._resets)
        kind = np.where(is_reset, np.uint8(UnitKind.RESET), np.uint8(UnitKind.DATA))
        keys = content_keys(units.buffer, units.start, units.end)
        return replace(units, kind=kind, next_sequence=is_reset.astype(np.int64), content_key=keys)

    def advance(self, now_ns: int) -> None:
        """Apply everything that is in order by now."""
        for key, feed in self._inputs.items():
            self._advance(key, feed, now_ns, last=False)

    def finish(self) -> None:
        """Call it after the last packet."""
        for key, feed in self._inputs.items():
            self._advance(key, feed, FOREVER, last=True)
            for gap in feed.gaps if self._unit_filter is None else []:  # no unit came after them
                feed.channel.apply_gap(gap)
            feed.channel.finish()

    def _advance(self, key: ChannelKey, feed: _ChannelInput, now_ns: int, last: bool) -> None:
        if feed.instruments:
            feed.channel.apply_instruments(self._events(key, feed, concat_units(feed.instruments)))
            feed.instruments.clear()
        new = concat_units(feed.incremental) if feed.incremental else empty_units()
        feed.incremental.clear()
        new = new.take(np.argsort(new.ts_recv, kind="stable"))
        self._apply_arbitrated(key, feed, feed.arbiter.arbitrate(new, FOREVER if last else now_ns))
        for parts in feed.snapshots.values():
            self._apply_snapshots(key, feed, parts, last)

    def _apply_arbitrated(self, key: ChannelKey, feed: _ChannelInput, result: ArbitrationResult) -> None:
        """Apply gaps and the units after them. Late units cannot be applied: snapshots recover what they changed."""
        first, steps = 0, [step for step in result.steps if step.kind == StepKind.GAP]
        for row, gap in [
            *zip((step.before_row for step in steps), result.gaps, strict=True),
            (len(result.units), None),
        ]:
            in_order = first + np.flatnonzero(~result.is_late[first:row])
            if len(in_order):
                self._apply(key, feed, self._events(key, feed, result.units.take(in_order)))
            feed.gaps += [gap] if gap else []
            first = row

    def _apply(self, key: ChannelKey, feed: _ChannelInput, events: Events) -> None:
        """Apply events, after the gaps before them."""
        for gap in feed.gaps:
            if self._is_gap_included(gap, events.units):
                feed.channel.apply_gap(gap)
        feed.gaps.clear()
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
