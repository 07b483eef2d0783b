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

from bisect import bisect_left
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from umdf.market.families import NULL
from umdf.market.rows import Events, no_units
from umdf.sync.arbitration.arbiter import ArbitrationResult, LineArbiter, Step, StepKind
from umdf.sync.arrivals import Arrival, PendingUnits, in_order, released
from umdf.sync.channel import Channel
from umdf.sync.decoded_units import apply_in_order, apply_late
from umdf.sync.definitions.list_loops import ListLoops
from umdf.sync.gaps import Gap
from umdf.sync.raw_units import UnitKind
from umdf.sync.snapshot_stream import (
    EarlySnapshots,
    Mark,
    Received,
    ReceivedDefinitions,
    ReceivedList,
    ReceivedPhases,
    ReceivedSnapshot,
    SnapshotHeader,
    SnapshotStream,
    join_definitions,
)
from umdf.sync.snapshots import GroupPhases, Snapshots
from umdf.sync.stream_detection import CapturedPackets, DetectedStream, StreamKind
from umdf.sync.unit_codecs import DecodedUnits, FastUnits, SbeUnits, UnitCodec
from umdf.sync.until import Until
from umdf.wire.fast.decode.decoder import Decoder as FastDecoder
from umdf.wire.fast.templates import TemplateSet
from umdf.wire.packet import Protocol as Speaks
from umdf.wire.sbe.decode import Decoder as SbeDecoder
from umdf.wire.sbe.schema import OtherVersions, Schema

ChannelKey = tuple[Speaks, int]
EventObserver = Callable[[ChannelKey, Events], None]  # receives the incremental events that a channel applies
ArbitrationObserver = Callable[[ChannelKey, ArbitrationResult], None]
NOT_RECEIVED = -1
# 3 × the interval of heartbeats (4.1.1); real ones of FIX/FAST were 30 s apart.
SILENCE_S = {Speaks.SBE: 3.0, Speaks.FAST: 90.0}


@dataclass(frozen=True, eq=False)
class _Delivery:
    """The units of an arbitration, decoded."""

    result: ArbitrationResult
    events: Events
    damaged: NDArray[np.bool_]


@dataclass
class _ChannelInput:
    """One channel and its pending input."""

    channel: Channel
    codec: UnitCodec
    arbiter: LineArbiter
    incremental: list[PendingUnits] = field(default_factory=list)
    instruments: list[PendingUnits] = field(default_factory=list)
    lists: ListLoops = field(default_factory=ListLoops)
    snapshots: dict[int, SnapshotStream] = field(default_factory=dict)  # by stream
    early: EarlySnapshots = field(default_factory=EarlySnapshots)
    epoch_start: Arrival = (0, 0)  # of the current epoch, if it is not the first one
    sent_from: int = NULL  # FIX/FAST: units that were sent earlier are of the epoch before
    recovered_lines: set[int] = field(default_factory=set)
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
        arbitrations: ArbitrationObserver | None = None,
        silence_s: float | None = None,
        may_follow_failover: bool = False,
    ) -> None:
        """`observer` gets events after they were applied; without `silence_s`, a line may be as silent as its protocol
        allows; `may_follow_failover`: see `Channel`."""
        self._arbitrations = arbitrations
        self.streams = {stream.name: (number, stream) for number, stream in enumerate(streams)}
        self._until, self._observer, self._templates = until, observer and self._completing_cancels(observer), templates
        self._sbe, self._versions = SbeDecoder(schema, validity=False), OtherVersions(schema)
        self._fast: FastDecoder | None = None
        self._inputs: dict[ChannelKey, _ChannelInput] = {}
        self._now_ns = self._packets = 0
        for stream in streams:
            key = stream.protocol, stream.channel
            if key not in self._inputs:
                of_protocol = {"statuses_have_rpt_seq": stream.protocol == Speaks.SBE}
                channel = Channel(stream.channel, may_follow_failover=may_follow_failover, **of_protocol)
                if observer is not None:
                    channel.note_cancels()
                timeout_ms = int(1000 * (silence_s or SILENCE_S[stream.protocol]))
                arbiter = LineArbiter(line_timeout_ms=timeout_ms, has_versions=stream.protocol == Speaks.SBE)
                self._inputs[key] = _ChannelInput(channel, self._codec(*key), arbiter)
            if stream.is_recovered:
                self._inputs[key].recovered_lines.add(self.streams[stream.name][0])

    def _completing_cancels(self, observer: EventObserver) -> EventObserver:
        def observe(key: ChannelKey, events: Events) -> None:
            self._inputs[key].channel.complete_cancels(events)
            observer(key, events)

        return observe

    def _codec(self, protocol: Speaks, channel: int) -> UnitCodec:
        if protocol == Speaks.SBE:
            return SbeUnits(self._sbe, self._versions, channel)
        self._fast = self._fast or FastDecoder(self._templates)
        return FastUnits(self._fast, self._templates, channel)

    @property
    def channels(self) -> dict[ChannelKey, Channel]:
        return {key: feed.channel for key, feed in self._inputs.items()}

    def restart_numbering(self, key: ChannelKey) -> None:
        """FIX/FAST: what is received does not continue the numbering. It has begun again, and the SequenceReset that
        said so was lost (4.2.8): an epoch starts with what comes next."""
        self._inputs[key].arbiter = LineArbiter(self._inputs[key].arbiter.settings)

    def arbiter(self, key: ChannelKey) -> LineArbiter:
        """Of a channel's incremental stream."""
        return self._inputs[key].arbiter

    def sent_from(self, key: ChannelKey) -> int:
        """FIX/FAST: when the channel's epoch began, by sending time; what was sent before is of another one."""
        return self._inputs[key].sent_from

    def dropped(self, key: ChannelKey) -> int:
        """Packets, or parts of them, that are not of this channel or cannot be framed."""
        return self._inputs[key].codec.dropped

    def dropped_snapshots(self, key: ChannelKey) -> int:
        """Snapshots that had to wait and for which there was no room: as good as lost."""
        feed = self._inputs[key]
        streams = feed.snapshots.values()
        return feed.channel.dropped_snapshots + feed.early.dropped + sum(stream.dropped for stream in streams)

    def notices(self) -> list[str]:
        """Warnings about the traffic, each once."""
        return self._versions.notices()

    def add(self, packets: CapturedPackets, names: list[Hashable], rows: NDArray[np.int64]) -> None:
        """Add packets of a file; `names` are the names of its flows."""
        flow = packets.flow[rows]
        flows = np.unique(flow).tolist() if len(flow) > 1 else flow.tolist()
        lines: dict[tuple[int, DetectedStream], list[int]] = {}
        for each in flows:
            if names[each] in self.streams:
                lines.setdefault(self.streams[names[each]], []).append(each)
        for (line, stream), own in sorted(lines.items(), key=lambda item: item[0][0]):
            places = np.arange(len(rows)) if len(flows) == 1 else np.flatnonzero(np.isin(flow, own))
            chosen = rows if len(flows) == 1 else rows[places]
            feed, is_looping = self._inputs[stream.protocol, stream.channel], stream.kind != StreamKind.INCREMENTAL
            content = packets.buffer, packets.start[chosen], packets.end[chosen], packets.ts_ns[chosen]
            units, packet = feed.codec.read(*content, line, is_looping=is_looping)
            numbers = (self._packets + places[packet]).tolist()
            arrivals = list(zip(units.ts_recv.tolist(), numbers, strict=True))
            if stream.kind == StreamKind.SNAPSHOT:
                feed.snapshots.setdefault(line, SnapshotStream()).add(units, arrivals)
            elif len(units):
                if stream.is_recovered:
                    units.kind[units.kind == UnitKind.DATA] = UnitKind.RECOVERED
                pending = feed.instruments if is_looping else feed.incremental
                pending.append(PendingUnits(units, arrivals))
        self._packets += len(rows)

    def advance(self, now_ns: int) -> None:
        """Apply everything that is in order by now."""
        self._now_ns = max(self._now_ns, now_ns)
        for key, feed in self._inputs.items():
            self._advance(key, feed, last=False)

    def finish(self) -> None:
        """Call it after the last packet."""
        for key, feed in self._inputs.items():
            self._advance(key, feed, last=True)
            if feed.channel.epoch is None and (newest := feed.early.newest()) is not None:
                # There is no incremental stream: nothing is known after the newest snapshot.
                feed.channel.start_epoch(newest.epoch, newest.sequence + 1, 0)
                self._receive(feed, [(found, None) for found in feed.early.take()])
            feed.channel.finish()
            silent_s = (self._now_ns - (last_seen := feed.arbiter.last_seen)) / 1e9
            is_silent = last_seen and not feed.is_past and silent_s > SILENCE_S[key[0]]
            feed.channel.silent_s = silent_s if is_silent else None

    def _advance(self, key: ChannelKey, feed: _ChannelInput, *, last: bool) -> None:
        received = self._read_snapshots(feed)
        units, arrivals = in_order(feed.incremental)
        feed.incremental.clear()
        self._deliver(key, feed, feed.arbiter.arbitrate(units, self._now_ns), arrivals, received)
        if last:
            self._deliver(key, feed, feed.arbiter.finish(), [], [])

    def _read_snapshots(self, feed: _ChannelInput) -> list[Received]:
        return [found for stream in feed.snapshots.values() for found in stream.read(feed.codec)]

    def _read_definitions(self, feed: _ChannelInput, incremental: Events) -> list[Received]:
        """Definitions of the instrument stream that change something, a unit each, and complete lists."""
        if not feed.instruments:
            return []
        units, arrivals = in_order(feed.instruments)
        feed.instruments.clear()
        decoded = feed.codec.decode(units)
        lists, events = feed.lists.read(units, decoded), decoded.events
        rows, instruments = events.rows("definition"), feed.channel.state.instruments
        instruments.update_list_totals(rows)
        is_changed = instruments.differing(rows)
        may_change = {*incremental.rows("definition").column("instrument_id").tolist()}
        may_change.update(*(set(instruments.ids()) - found.instrument_ids for _, found in lists))
        is_changed |= np.isin(rows.column("instrument_id"), list(may_change))
        changed = np.unique(rows.unit[is_changed]).tolist()
        definitions = [ReceivedDefinitions(arrivals[unit], events, [unit]) for unit in changed]
        return [*definitions, *(ReceivedList(arrivals[unit], found) for unit, found in lists)]

    def _deliver(
        self,
        key: ChannelKey,
        feed: _ChannelInput,
        result: ArbitrationResult,
        arrivals: list[Arrival],
        received: list[Received],
    ) -> None:
        """Apply the units of an arbitration in its order. Between them gaps are reported, epochs start, and what other
        streams have brought is applied: all in order of arrival, so that it does not matter how it came in calls."""
        if self._arbitrations is not None:
            self._arbitrations(key, result)
        decoded = feed.codec.decode(result.units) if len(result.units) else _NOTHING
        received = [*self._read_definitions(feed, decoded.events), *received]
        marks: list[Mark] = [
            (step.before_row, released(step.release_row, step.release_ns, arrivals), step) for step in result.steps
        ]
        if received:
            releases = zip(result.release_row.tolist(), result.release_ns.tolist(), strict=True)
            times = [released(row, ns, arrivals) for row, ns in releases]
            marks += [(bisect_left(times, found.at), found.at, found) for found in received]
            marks.sort(key=lambda mark: mark[:2])
        row, waiting = 0, list[Mark]()
        delivery = _Delivery(result, decoded.events, decoded.damaged)
        for mark in join_definitions(marks):
            before, at, found = mark
            if isinstance(found, ReceivedPhases | ReceivedSnapshot):
                if feed.channel.epoch is None:
                    feed.early.add(found)
                else:
                    waiting.append(mark)
                continue
            self._apply_rows(key, feed, delivery, row, before, waiting)
            row, waiting = before, []
            if isinstance(found, Step):
                self._apply_step(feed, found, at, result)
            elif isinstance(found, ReceivedDefinitions):
                feed.channel.apply_instruments(found.events.of_units(np.array(found.units)))
            elif isinstance(found, ReceivedList):
                if not feed.is_past:
                    feed.channel.apply_list(found.instruments)
            else:
                feed.channel.forget_snapshots()
        self._apply_rows(key, feed, delivery, row, len(result.units), waiting)
        feed.early.limit()

    def _apply_step(self, feed: _ChannelInput, step: Step, at: Arrival, result: ArbitrationResult) -> None:
        if step.kind == StepKind.GAP:
            row = step.before_row
            if step.first > feed.channel.sequence or feed.channel.gaps.is_missing(step.first):
                self._open_gap(feed, Gap(step.epoch, step.first, step.last, step.ts_recv))
            elif not (row < len(result.units) and result.units.sequence[row] == step.first and result.is_late[row]):
                feed.channel.contradict(step.first, None, step.ts_recv)
        # A JOIN follows the first EPOCH, with the same number.
        elif step.kind == StepKind.EPOCH and not feed.is_past:
            if feed.channel.epoch is not None:
                feed.epoch_start = at
                if feed.codec.states_no_epoch:
                    feed.sent_from = feed.channel.ts_send
            feed.channel.start_epoch(step.epoch, step.first, step.ts_recv)
            self._receive(feed, [(found, None) for found in feed.early.take()])

    def _apply_rows(
        self, key: ChannelKey, feed: _ChannelInput, delivery: _Delivery, first: int, end: int, others: list[Mark]
    ) -> None:
        """Apply units, and what came between them on snapshot streams."""
        is_late, sequence = delivery.result.is_late, delivery.result.units.sequence
        cuts = {first, end}
        if is_late[first:end].any():
            cuts.update((first + 1 + np.flatnonzero(np.diff(is_late[first:end]))).tolist())
            cuts.update(before for before, _, _ in others if first < before < end and is_late[before])
        bounds, others = sorted(cuts), others[::-1]
        for start, stop in pairwise([*bounds, end]):
            received: list[tuple[Received, int | None]] = []
            while others and (others[-1][0] < stop or start == stop):
                before, _, found = others.pop()
                if not isinstance(found, Step):
                    received.append((found, None if before <= start else int(sequence[before - 1])))
            self._receive(feed, received)
            if start < stop:
                self._apply(key, feed, delivery, np.arange(start, stop))

    def _open_gap(self, feed: _ChannelInput, gap: Gap) -> None:
        limit = self._until.sequence if self._until else None
        if limit is not None and gap.first <= limit < gap.last:
            gap = Gap(gap.epoch, gap.first, limit, gap.ts_recv, gap.cause)
        # By time, nobody knows whether what is missing was sent before or after the requested moment.
        if not feed.is_past and (limit is None or gap.first <= limit) and gap.epoch == feed.channel.epoch:
            feed.channel.open_gap(gap)
        elif feed.is_past:
            feed.channel.ahead.contradict(gap.first, gap.last)

    def _apply(self, key: ChannelKey, feed: _ChannelInput, delivery: _Delivery, rows: NDArray[np.int64]) -> None:
        is_late = bool(delivery.result.is_late[rows[0]])
        damaged = delivery.damaged[rows]
        if feed.codec.states_no_epoch:
            damaged = damaged | _is_of_another_epoch(feed, delivery, rows)
        events, later = delivery.events.of_units(rows), None
        if feed.is_past and not is_late:
            return look_ahead(feed.channel, events.of_units(~damaged))
        if self._until is not None:
            included = self._until.includes(events.units.sequence, events.units.ts_send)
            if not is_late and not included.all():
                feed.is_past = True
                included[int(np.argmin(included)) :] = False
                feed.channel.use_all_snapshots()
                later = events.of_units(~included & ~damaged)
            events, damaged = events.of_units(included), damaged[included]
        applied = (apply_late if is_late else apply_in_order)(feed.channel, events, damaged)
        if later is not None:
            look_ahead(feed.channel, later)
        if self._observer is not None:
            self._observer(key, applied)

    def _receive(self, feed: _ChannelInput, received: list[tuple[Received, int | None]]) -> None:
        """Pass on what came on snapshot streams, each with the sequence at which the incremental stream was then (None:
        where it is now)."""
        together: dict[int, tuple[Snapshots, NDArray[np.int64]]] = {}
        for found, sequence in received:
            if isinstance(found, ReceivedSnapshot) and self._is_usable(feed, found.header):
                some = found.snapshots
                turns = together.setdefault(id(some), (some, np.full(len(some), NOT_RECEIVED)))[1]
                turns[found.row] = feed.channel.sequence if sequence is None else sequence
            elif isinstance(found, ReceivedPhases) and self._is_usable(feed, found.behind):
                self._receive_snapshots(feed, together)
                together, before = {}, found.before
                after = before.sequence if before is not None and self._is_usable(feed, before) else -1
                feed.channel.apply_phases(GroupPhases(found.events, after, found.behind.sequence), sequence)
        self._receive_snapshots(feed, together)

    def _receive_snapshots(self, feed: _ChannelInput, together: dict[int, tuple[Snapshots, NDArray[np.int64]]]) -> None:
        for snapshots, received in together.values():
            feed.channel.apply_snapshots(snapshots.only(received != NOT_RECEIVED), received)

    def _is_usable(self, feed: _ChannelInput, header: SnapshotHeader) -> bool:
        """Whether a snapshot is of the current epoch, and not after the requested moment."""
        # Before version 15, and in FIX/FAST, nothing states the epoch: what was received before its start is not of it.
        is_current = header.at > feed.epoch_start if header.epoch == NULL else header.epoch == feed.channel.epoch
        return is_current and (self._until is None or self._until.includes_one(header.sequence, header.ts_send))


def look_ahead(channel: Channel, events: Events) -> None:
    """Units after the requested moment, which are not applied."""
    channel.ahead.add(events, channel.epoch or 0, channel.sequence, channel.ts_send)


_NOTHING = DecodedUnits(Events(no_units(), {}), np.zeros(0, np.bool_))


def _is_of_another_epoch(feed: _ChannelInput, delivery: _Delivery, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which units are of another epoch than the channel's, by their sending times (FIX/FAST): those sent before it
    began; and what a replayer returns that was sent after everything that was received."""
    sent = delivery.events.units.ts_send[rows]
    found = (sent < feed.sent_from) & (sent != NULL)
    if feed.recovered_lines and feed.codec.states_no_epoch and feed.channel.ts_send != NULL:
        is_recovered = np.isin(delivery.result.units.line[rows], list(feed.recovered_lines))
        found |= is_recovered & (sent > feed.channel.ts_send)
    return found
