"""A published channel in one protocol: records of the journal → events → messages → packets → sinks, stream by stream.

It numbers what it publishes for itself: sequences of its streams, RptSeq of its instruments.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.instruments.listing import Listing
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.publish import unit_builder_kernel as w
from umdf.exchange.publish.channel_settings import (
    FAST,
    INCREMENTAL,
    LOOPING_STREAMS,
    MBO,
    POSITION,
    SNAPSHOTS,
    STREAMS,
    TOB,
    ChannelSettings,
)
from umdf.exchange.publish.control_records import control_records, resent_records, silences
from umdf.exchange.publish.events import EventBuilder
from umdf.exchange.publish.member_filter import MemberFilter, without_firms
from umdf.exchange.publish.news import BULK_NEWS, NewsItem
from umdf.exchange.publish.positions import merge_matched, restate_implied
from umdf.exchange.publish.price_levels import DerivedRecords, PriceLevels
from umdf.exchange.publish.rpt_seq import RptSeqCounter
from umdf.exchange.publish.sinks import Numbers, Packets, Sink
from umdf.exchange.publish.unit_builder import Records, UnitBatch, UnitBuilder
from umdf.exchange.truth.book_history import BookHistory
from umdf.market.rows import Events

SEND_DELAY_NS = 5_000  # from the engine to the network
MAX_SEQ_VERSION = 65_535
LOOP_DELAY_NS = 200_000  # a snapshot is sent after the packet that it refers to (Binary 9.2.28), on all lines
LOOP_PACKET_NS, LOOP_PAUSE_NS = 20_000, 2_000_000  # between the packets of a looping stream, and between its batches


@dataclass(frozen=True)
class JournalBatch:
    """Records of one stream. A loop of a looping stream may have several batches."""

    stream: str
    records: Records
    ts_ns: int
    starts_loop: bool = False
    snapshot_count: int = 0  # snapshots in the loop


class Publisher(ABC):
    """What both protocols have in common."""

    protocol: str
    counted: tuple[int, ...]  # kinds of records that it counts in RptSeq
    format_versions: dict[str, Any]  # of schema or templates

    def __init__(
        self,
        settings: ChannelSettings,
        listing: Listing,
        sinks: Mapping[str, Sink],
        history: BookHistory | None = None,
        news: Sequence[NewsItem] = BULK_NEWS,
    ) -> None:
        self.settings, self.listing, self._sinks, self._history = settings, listing, sinks, history
        self.seq_versions = dict(settings.seq_versions)  # of each stream
        self.epoch = 0  # of the incremental stream: numberings before this one
        self._event_builder = EventBuilder(settings, listing, news)
        self._members = MemberFilter(settings, listing, news)
        self._levels: PriceLevels | None = None
        if settings.book_type != MBO:
            self._levels = PriceLevels(listing.capacity, settings.depth or 1, is_overlay=settings.book_type == TOB)
        self._rpt_seq = RptSeqCounter(self.counted, listing.capacity)
        self._next_sequence: dict[str, int] = dict.fromkeys(STREAMS, 1)
        self._last_sequence: dict[str, int] = dict.fromkeys(STREAMS, 0)
        self._sent_ns = -1  # of the newest record of the incremental stream; below 0 before the start
        self._loop_end_ns: dict[str, int] = dict.fromkeys(LOOPING_STREAMS, 0)
        self._is_in_loop: dict[str, bool] = dict.fromkeys(LOOPING_STREAMS, False)
        self._now_ns = 0
        self._unit_builders: dict[str, UnitBuilder] = {stream: self._unit_builder(stream) for stream in STREAMS}
        self.counts: Counter[tuple[str, str]] = Counter()
        self._packet_counts: Counter[str] = Counter()

    @abstractmethod
    def _unit_builder(self, stream: str) -> UnitBuilder: ...

    @abstractmethod
    def _encode(self, events: Events) -> Any:
        """The encoded units: an object with buffer, and start and end of each unit."""

    @abstractmethod
    def _to_packets(self, encoded: Any, units: UnitBatch, ts_ns: Numbers, is_paced: bool) -> Packets:
        """Packets of the units: as full as possible, or (`is_paced`) of what is sent at about the same time."""

    @abstractmethod
    def _fill_sizes(self, batch: JournalBatch) -> None:
        """Set the sizes that only this protocol knows, before units are built."""

    @property
    def is_member(self) -> NDArray[np.bool_]:
        """Which instruments of the listing the channel carries."""
        return self._members.is_member

    def member_phases(self, phases: Records) -> Records:
        """The phases of the groups that have members."""
        return self._members.of(phases).records

    def set_trading_date(self, trading_date: int) -> None:
        """Set the date of what is published from now on: days since 1970."""
        self._event_builder.trading_date = trading_date

    def publish(self, batch: JournalBatch) -> None:
        """Publish records of the exchange, and the heartbeats that are due by the time of the batch."""
        self._now_ns = batch.ts_ns
        if self._sent_ns < 0:
            self._sent_ns = batch.ts_ns
        for stream in LOOPING_STREAMS:
            self._send_loop_heartbeats(stream)
        if batch.stream == INCREMENTAL:
            self._publish_incremental(batch)
        else:
            self._publish_loop(batch)
        for sink in self._sinks.values():  # also without packets: a network may hold earlier ones
            sink.advance(batch.ts_ns)

    def _publish_incremental(self, batch: JournalBatch) -> None:
        records = without_firms(batch.records, self.listing)
        if self.settings.generation == POSITION:
            records = restate_implied(records)
        batch = replace(batch, records=records)
        chosen = self._members.of(batch.records)
        derived = self._derive(chosen.records)
        source = chosen.source[derived.source]
        is_sent = self._unit_builders[INCREMENTAL].has_family[derived.records[:, k.KIND]]
        records, sent_ns = derived.records, derived.records[is_sent, k.TS]
        times, before = silences(sent_ns, self._sent_ns, batch.ts_ns, self.settings.heartbeat_ns)
        if len(times):
            rows = np.append(np.flatnonzero(is_sent), len(records))[before]
            records = np.insert(records, rows, control_records(k.HEARTBEAT, times), axis=0)
            source = np.insert(source, rows, -1)
        self._sent_ns = max([self._sent_ns, *sent_ns[-1:].tolist(), *times[-1:].tolist()])
        sequence = np.full(len(records), -1)
        if len(sent_ns) or len(times):
            sequence = self._publish_records(JournalBatch(INCREMENTAL, records, batch.ts_ns), None)
        if self._history is not None:
            identity = self.protocol, self.settings.channel, self.epoch
            self._history.add(*identity, batch.records, source, sequence)

    def _derive(self, records: Records) -> DerivedRecords:
        """The records as the books of the channel need them."""
        if self._levels is not None:
            return self._levels.derive(records)
        if self.settings.generation == POSITION:
            return merge_matched(records)
        return DerivedRecords(records, np.arange(len(records)))

    def _publish_loop(self, batch: JournalBatch) -> None:
        if batch.starts_loop:
            self._start_loop(batch)
        if self._levels is not None and batch.stream == SNAPSHOTS:
            batch = replace(batch, records=self._levels.snapshots(batch.records))
        batch = replace(batch, records=without_firms(batch.records, self.listing))
        self._publish_records(batch, self._loop_times)
        if batch.records[-1, k.KIND] == k.SEQUENCE_RESET:
            self._is_in_loop[batch.stream], self._next_sequence[batch.stream] = False, 1

    def _publish_records(self, batch: JournalBatch, loop_times: Callable[[str, int], Numbers] | None) -> Numbers:
        """Encode and write records; `loop_times` has the sending times of units if not their own times matter. Returns
        the sequence in which each record was sent, -1 if it was not."""
        self._fill_sizes(batch)
        return self._publish_numbered(batch, self._rpt_seq.number(batch.records), loop_times)

    def _publish_numbered(
        self, batch: JournalBatch, rpt_seq: Numbers, loop_times: Callable[[str, int], Numbers] | None
    ) -> Numbers:
        stream = batch.stream
        units, next_sequence = self._unit_builders[stream].build(batch.records, rpt_seq, self._next_sequence[stream])
        self._fill_sequences(units, batch)
        self._next_sequence[stream], self._last_sequence[stream] = next_sequence, next_sequence - 1
        ts_ns = loop_times(stream, len(units.sequence)) if loop_times else units.ts_ns + SEND_DELAY_NS
        events = self._event_builder.events(units, self.seq_versions[stream], ts_ns)
        for family, rows in events.families.items():
            self.counts[stream, family] += len(rows)
        self._write(batch, self._to_packets(self._encode(events), units, ts_ns, loop_times is None))
        return sequence_of_records(units.sequence, units.record_unit)

    def reset_channel(self, snapshots: Records, ts_ns: int) -> None:
        """Reset the channel, then send its books, statistics and states again (4.2.9): snapshots of its members."""
        self.publish(JournalBatch(INCREMENTAL, resent_records(snapshots, ts_ns), ts_ns))

    def reset_sequences(self, ts_ns: int) -> None:
        """Number the incremental stream from 1 again, at the start of a week or after a failover: FIX/FAST by a
        SequenceReset (4.2.8), Binary by the next sequence version, whose first packet has one."""
        reset = JournalBatch(INCREMENTAL, control_records(k.SEQUENCE_RESET, ts_ns), ts_ns)
        if self.protocol == FAST:
            self._publish_records(reset, None)
        self._next_sequence[INCREMENTAL], self.epoch = 1, self.epoch + 1
        if self.protocol != FAST:
            self.seq_versions[INCREMENTAL] = self.seq_versions[INCREMENTAL] % MAX_SEQ_VERSION + 1
            self._publish_records(reset, None)
        self._sent_ns = ts_ns

    def resume(self, ts_ns: int) -> None:
        """The platform comes up again: while it was down, nothing was sent, heartbeats neither."""
        for stream in LOOPING_STREAMS:
            if self._loop_end_ns[stream]:
                self._loop_end_ns[stream] = ts_ns

    def _loop_times(self, stream: str, count: int) -> Numbers:
        """Sending times of a looping stream: at its own pace, also while the market is silent."""
        first = max(self._now_ns + LOOP_DELAY_NS, self._loop_end_ns[stream] + LOOP_PAUSE_NS)
        times = first + LOOP_PACKET_NS * np.arange(count)
        self._loop_end_ns[stream] = first + LOOP_PACKET_NS * count
        return times

    def _start_loop(self, batch: JournalBatch) -> None:
        """Number from 1 again; where heartbeats have used up numbers, a SequenceReset says so (FIX/FAST 4.2.8)."""
        stream = batch.stream
        if self._next_sequence[stream] != 1:
            reset = control_records(k.SEQUENCE_RESET, batch.ts_ns)
            self._publish_records(JournalBatch(stream, reset, batch.ts_ns), self._loop_times)
        self._is_in_loop[stream], self._next_sequence[stream] = True, 1

    def _send_loop_heartbeats(self, stream: str) -> None:
        """Send the heartbeats of a looping stream that is between two loops (Binary 9.2.2, FIX/FAST 4.2.7)."""
        interval, last_ns = self.settings.heartbeat_ns, self._loop_end_ns[stream]
        count = (self._now_ns - last_ns) // interval
        if last_ns and count > 0 and not self._is_in_loop[stream]:  # before its first loop a stream is not active
            times = last_ns + interval * np.arange(1, count + 1)
            self._loop_end_ns[stream] = int(times[-1])
            self._publish_records(JournalBatch(stream, control_records(k.HEARTBEAT, times), self._now_ns), None)

    def _write(self, batch: JournalBatch, packets: Packets) -> None:
        self._packet_counts[batch.stream] += len(packets)
        self._sinks[batch.stream].write(packets)

    def _fill_sequences(self, units: UnitBatch, batch: JournalBatch) -> None:
        """Set the last sequence of snapshot headers, and the next sequence of heartbeats."""
        headers, control = units.families.get("snapshot"), units.families.get("control")
        if headers is not None:
            headers[k.ID][:] = self._next_sequence[INCREMENTAL] - 1
            headers[k.CODE][:] = self.seq_versions[INCREMENTAL] or k.NULL
            headers[k.AUX][:] = batch.snapshot_count
        if control is not None:
            previous = np.maximum.accumulate(np.append(self._next_sequence[batch.stream] - 1, units.sequence))[1:]
            control[k.ID][:] = previous[control.unit] + 1

    def sequences(self) -> list[tuple[str, int, int, int]]:
        """Stream, first sequence, last sequence, packets."""
        return [(stream, 1, self._last_sequence[stream], self._packet_counts[stream]) for stream in STREAMS]

    def close(self) -> None:
        for stream in LOOPING_STREAMS:
            self._send_loop_heartbeats(stream)
        for sink in self._sinks.values():
            sink.close()


def sequence_of_records(sequence: Numbers, record_unit: Numbers) -> Numbers:
    """The sequence of each record, -1 if it was not sent."""
    return np.where(record_unit >= 0, np.append(sequence, -1)[record_unit], -1)


def kernel_limits(**values: int) -> dict[int, int]:
    return {getattr(w, f"L_{name.upper()}"): value for name, value in values.items()}
