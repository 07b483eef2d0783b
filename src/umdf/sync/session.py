"""Packets of all streams → channels with their books and states.

    session = Session(survey.streams(), schema, templates)
    session.add(packets, names, rows)   # of one file; repeat for every file that reaches this time
    session.advance(now_ns)             # no older packets will come
    session.finish()
    session.channels                    # by (protocol, number)

Everything is applied in wire order: instruments first, then the arbitrated incremental stream, then snapshots for
recovery. However the packets are divided into calls, the result is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from umdf.market.families import NULL
from umdf.market.phases import SESSION_CHANGE
from umdf.market.rows import Events, Units
from umdf.sync.arbitration import ArbitrationResult, LineArbiter, StepKind
from umdf.sync.channel import Channel
from umdf.sync.gaps import Gap, GapCause
from umdf.sync.raw_units import RawUnits, concat_units
from umdf.sync.snapshots import Snapshots, find_group_phases, find_snapshots
from umdf.sync.stream_detection import CapturedPackets, DetectedStream, StreamKind
from umdf.sync.unit_codecs import FastUnits, SbeUnits, UnitCodec
from umdf.wire.fast.decode.decoder import Decoder as FastDecoder
from umdf.wire.fast.templates import TemplateSet
from umdf.wire.packet import Protocol as Speaks
from umdf.wire.sbe.decode import Decoder as SbeDecoder
from umdf.wire.sbe.schema import OtherVersions, Schema

ChannelKey = tuple[Speaks, int]
EventObserver = Callable[[ChannelKey, Events], None]  # receives the incremental events that a channel applies
ArbitrationObserver = Callable[[ChannelKey, ArbitrationResult], None]
CHANNEL_RESET = ord("R")  # of the family control
# 3 × the interval of heartbeats (4.1.1); real ones of FIX/FAST were 30 s apart.
SILENCE_S = {Speaks.SBE: 3.0, Speaks.FAST: 90.0}


@dataclass(frozen=True)
class Until:
    """A moment: everything up to a sequence, or up to a sending time."""

    sequence: int | None = None
    ts_send: int | None = None

    def includes(self, sequence: NDArray[np.int64], ts_send: NDArray[np.int64]) -> NDArray[np.bool_]:
        return sequence <= self.sequence if self.sequence is not None else ts_send <= (self.ts_send or 0)


@dataclass
class _SnapshotStream:
    """A line of a snapshot stream: what is not complete yet, and how far it was."""

    parts: list[RawUnits] = field(default_factory=list)  # not decoded yet
    floor: int = -1  # the sequence of its last snapshot


@dataclass
class _ChannelInput:
    """One channel and its pending input."""

    channel: Channel
    codec: UnitCodec
    arbiter: LineArbiter
    incremental: list[RawUnits] = field(default_factory=list)
    snapshots: dict[int, _SnapshotStream] = field(default_factory=dict)  # by stream
    instruments: list[RawUnits] = field(default_factory=list)
    epoch_start: int = 0  # when the first packet of the current epoch was received; 0 if there was none before it
    is_past: bool = False  # the requested moment has passed


class Session:
    def __init__(
        self,
        streams: list[DetectedStream],
        schema: Schema,
        templates: TemplateSet,
        until: Until | None = None,
        observer: EventObserver | None = None,
        *,
        before_events: EventObserver | None = None,
        arbitrations: ArbitrationObserver | None = None,
        silence_s: float | None = None,
    ) -> None:
        """`observer` gets events after they were applied, `before_events` before; without `silence_s`, a line may be as
        silent as its protocol allows."""
        self._before_events, self._arbitrations = before_events, arbitrations
        self.streams = {stream.name: (number, stream) for number, stream in enumerate(streams)}
        self._until, self._observer, self._templates = until, observer, templates
        self._sbe, self._versions = SbeDecoder(schema, validity=False), OtherVersions(schema)
        self._fast: FastDecoder | None = None
        self._inputs: dict[ChannelKey, _ChannelInput] = {}
        self._now_ns = 0
        for stream in streams:
            key = stream.protocol, stream.channel
            if key not in self._inputs:
                channel = Channel(stream.channel, statuses_have_rpt_seq=stream.protocol == Speaks.SBE)
                timeout_ms = int(1000 * (silence_s or SILENCE_S[stream.protocol]))
                arbiter = LineArbiter(line_timeout_ms=timeout_ms, has_versions=stream.protocol == Speaks.SBE)
                self._inputs[key] = _ChannelInput(channel, self._codec(*key), arbiter)

    def _codec(self, protocol: Speaks, channel: int) -> UnitCodec:
        if protocol == Speaks.SBE:
            return SbeUnits(self._sbe, self._versions, channel)
        self._fast = self._fast or FastDecoder(self._templates)
        return FastUnits(self._fast, self._templates, channel)

    @property
    def channels(self) -> dict[ChannelKey, Channel]:
        return {key: feed.channel for key, feed in self._inputs.items()}

    def last_seen_ns(self, key: ChannelKey) -> int:
        """When something was last received on a line of a channel's incremental stream; 0: never."""
        return self._inputs[key].arbiter.last_seen

    def notices(self) -> list[str]:
        """Warnings about the traffic, each once."""
        return self._versions.notices()

    def add(self, packets: CapturedPackets, names: list[Hashable], rows: NDArray[np.int64]) -> None:
        """Add packets of a file; `names` are the names of its flows."""
        known = [self.streams.get(name) for name in names]
        number = np.array([found[0] if found else -1 for found in known], np.int64)[packets.flow[rows]]
        for line, stream in self.streams.values():
            chosen = rows[number == line]
            if not len(chosen):
                continue
            feed, is_looping = self._inputs[stream.protocol, stream.channel], stream.kind != StreamKind.INCREMENTAL
            content = packets.buffer, packets.start[chosen], packets.end[chosen], packets.ts_ns[chosen]
            units = feed.codec.read(*content, line, is_looping=is_looping)
            if stream.kind == StreamKind.INCREMENTAL:
                feed.incremental.append(units)
            elif stream.kind == StreamKind.SNAPSHOT:
                feed.snapshots.setdefault(line, _SnapshotStream()).parts.append(units)
            else:
                feed.instruments.append(units)

    def advance(self, now_ns: int) -> None:
        """Apply everything that is in order by now."""
        self._now_ns = max(self._now_ns, now_ns)
        for key, feed in self._inputs.items():
            self._advance(key, feed, last=False)

    def finish(self) -> None:
        """Call it after the last packet."""
        for key, feed in self._inputs.items():
            self._advance(key, feed, last=True)
            feed.channel.finish()
            last_seen = feed.arbiter.last_seen
            silent_s = (self._now_ns - last_seen) / 1e9
            is_silent = last_seen and not feed.is_past and silent_s > SILENCE_S[key[0]]
            feed.channel.silent_s = silent_s if is_silent else None

    def _advance(self, key: ChannelKey, feed: _ChannelInput, *, last: bool) -> None:
        if feed.instruments:
            feed.channel.apply_instruments(feed.codec.decode(concat_units(feed.instruments)).events)
            feed.instruments.clear()
        if feed.incremental:
            units = concat_units(feed.incremental)
            order = np.argsort(units.ts_recv, kind="stable")
            feed.incremental.clear()
            self._deliver(key, feed, feed.arbiter.arbitrate(units.take(order), self._now_ns))
        if last:
            self._deliver(key, feed, feed.arbiter.finish())
        for stream in feed.snapshots.values():
            self._apply_snapshots(feed, stream, last=last)

    def _deliver(self, key: ChannelKey, feed: _ChannelInput, result: ArbitrationResult) -> None:
        """Apply the units of an arbitration in its order: between them gaps are reported and epochs start."""
        if self._arbitrations is not None:
            self._arbitrations(key, result)
        steps, is_late = list(result.steps), result.is_late
        cuts = {0, len(result.units), *(np.flatnonzero(np.diff(is_late)) + 1).tolist()}
        cuts.update(step.before_row for step in steps)
        bounds = sorted(cuts)
        for first, end in pairwise([*bounds, bounds[-1]]):
            while steps and steps[0].before_row <= first:
                step = steps.pop(0)
                if step.kind == StepKind.GAP:
                    self._open_gap(feed, Gap(step.epoch, step.first, step.last, step.ts_recv))
                # A JOIN follows the first EPOCH, with the same number.
                elif step.kind == StepKind.EPOCH and not feed.is_past:
                    feed.epoch_start = 0 if feed.channel.epoch is None else step.ts_recv
                    feed.channel.start_epoch(step.epoch, step.first, step.ts_recv)
                    for stream in feed.snapshots.values():
                        stream.floor = -1
            if first < end:
                self._apply(key, feed, result.units.take(slice(first, end)), is_late=bool(is_late[first]))

    def _open_gap(self, feed: _ChannelInput, gap: Gap) -> None:
        limit = self._until.sequence if self._until else None
        if limit is not None and gap.first <= limit < gap.last:
            gap = Gap(gap.epoch, gap.first, limit, gap.ts_recv, gap.cause)
        # By time, nobody knows whether what is missing was sent before or after the requested moment.
        if not feed.is_past and (limit is None or gap.first <= limit) and gap.epoch == feed.channel.epoch:
            feed.channel.open_gap(gap)

    def _apply(self, key: ChannelKey, feed: _ChannelInput, units: RawUnits, *, is_late: bool) -> None:
        if feed.is_past and not is_late:
            return
        decoded = feed.codec.decode(units)
        events, damaged = decoded.events, decoded.damaged
        if self._until is not None:
            included = self._until.includes(events.units.sequence, events.units.ts_send)
            if not is_late and not included.all():
                feed.is_past = True
                included[int(np.argmin(included)) :] = False
            events, damaged = _only(events, included), damaged[included]
        if damaged.any():
            for sequence in events.units.sequence[damaged].tolist() if not is_late else ():
                epoch, ts_recv = int(events.units.seq_version[0]), int(events.units.ts_recv[0])
                feed.channel.open_gap(Gap(epoch, sequence, sequence, ts_recv, GapCause.DAMAGE))
            events = _only(events, ~damaged)
        if self._before_events is not None:
            self._before_events(key, events)
        if is_late:  # later updates were applied: what resets many instruments can no longer, and stays missing
            events = _only(events, ~_resets_many(events))
            feed.channel.apply_late(events)
        else:
            feed.channel.apply(events)
        if self._observer is not None:
            self._observer(key, events)

    def _apply_snapshots(self, feed: _ChannelInput, stream: _SnapshotStream, *, last: bool) -> None:
        if not stream.parts or (feed.channel.epoch is None and not last):
            return
        units = concat_units(stream.parts)
        decoded = feed.codec.decode(units, snapshot=True)
        snapshots = find_snapshots(decoded.events)
        if feed.channel.epoch is None and snapshots.is_complete.any():
            # There is no incremental stream: the newest snapshot is as far as anything is known.
            newest = int(np.argmax(np.where(snapshots.is_complete, snapshots.last_sequence, -1)))
            feed.channel.start_epoch(int(snapshots.last_epoch[newest]), int(snapshots.last_sequence[newest]) + 1, 0)
        phases, pending_from = find_group_phases(snapshots, stream.floor)
        self._select(feed, snapshots, decoded.damaged)
        carry_from = min(snapshots.incomplete_from, pending_from)
        if len(snapshots):
            done = snapshots.header.unit < carry_from
            stream.floor = int(snapshots.last_sequence[done][-1]) if done.any() else stream.floor
        phase_units = phases.events.units.take(phases.events.rows("status").unit)
        is_current = self._is_usable(feed, phases.epoch, phases.until, phase_units)
        feed.channel.apply_snapshots(snapshots, phases.take(is_current))
        stream.parts.clear()
        if carry_from < len(units) and not last:
            stream.parts.append(units.take(np.arange(carry_from, len(units))).compacted())

    def _select(self, feed: _ChannelInput, snapshots: Snapshots, damaged: NDArray[np.bool_]) -> None:
        """Keep what can be used: undamaged, of the current epoch, and not after the requested moment."""
        header = snapshots.header.unit
        units = snapshots.events.units.take(header)
        usable = self._is_usable(feed, snapshots.last_epoch, snapshots.last_sequence, units)
        snapshots.is_complete[:] &= usable & ~damaged[header]

    def _is_usable(
        self, feed: _ChannelInput, epoch: NDArray[np.int64], sequence: NDArray[np.int64], units: Units
    ) -> NDArray[np.bool_]:
        # Before version 15, and in FIX/FAST, nothing states the epoch: what was received before its start is not of it.
        usable = np.where(epoch == NULL, units.ts_recv >= feed.epoch_start, epoch == feed.channel.epoch)
        if self._until is not None:
            usable &= self._until.includes(sequence, units.ts_send)
        return usable


def _resets_many(events: Events) -> NDArray[np.bool_]:
    """Which units have a channel reset, or the change of a group's trading session (11.3)."""
    found = np.zeros(len(events.units), np.bool_)
    control, status = events.rows("control"), events.rows("status")
    found[control.unit[control.column("kind") == CHANNEL_RESET]] = True
    is_change = (status.column("instrument_id") == NULL) & (status.column("event") == SESSION_CHANGE)
    found[status.unit[is_change]] = True
    return found


def _only(events: Events, is_included: NDArray[np.bool_]) -> Events:
    """The events of some units, with only those units."""
    if is_included.all():
        return events
    number = np.cumsum(is_included, dtype=np.uint32) - 1
    kept = events.take({name: is_included[rows.unit] for name, rows in events.families.items()})
    for rows in kept.families.values():
        rows.unit = number[rows.unit].astype(np.uint32)
    units: Units = events.units.take(is_included)
    return Events(units, kept.families)
