"""A bulk capture in one protocol: records of the journal → events → messages → packets, stream by stream.

The incremental stream is published on every line, the looping streams on the first one only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.bulk import memory_layout_kernel as k
from umdf.exchange.bulk.listing import Listing
from umdf.exchange.bulk.publish import unit_builder_kernel as w
from umdf.exchange.bulk.publish.capture_files import Flow, Manifest, RollingFiles
from umdf.exchange.bulk.publish.events import EventBuilder
from umdf.exchange.bulk.publish.lossy_lines import LossyLines
from umdf.exchange.bulk.publish.unit_builder import Records, UnitBatch, UnitBuilder
from umdf.exchange.bulk.settings import SECOND_NS, BulkSettings
from umdf.exchange.bulk.truth import Truth
from umdf.market.rows import Events

INCREMENTAL, SNAPSHOTS, INSTRUMENTS = "incremental", "snapshot", "instruments"
STREAMS = (INCREMENTAL, SNAPSHOTS, INSTRUMENTS)
LOOPING_STREAMS = (SNAPSHOTS, INSTRUMENTS)
SEND_DELAY_NS = 5_000  # from the engine to the network
LOOP_DELAY_NS = 200_000  # a snapshot is sent after the packet that it refers to (Binary 9.2.28), on all lines
LOOP_PACKET_NS, LOOP_PAUSE_NS = 20_000, 2_000_000  # between the packets of a looping stream, and between its batches
PENDING_HEARTBEATS_NS = 10 * SECOND_NS  # heartbeats of looping streams are written together: after so much silence
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class JournalBatch:
    """Records of one stream. A loop of a looping stream may have several batches."""

    stream: str
    records: Records
    ts_ns: int
    starts_loop: bool = False
    snapshot_count: int = 0  # snapshots in the loop


@dataclass(frozen=True)
class Packets:
    buffer: NDArray[np.uint8]
    start: Numbers
    end: Numbers
    ts_ns: Numbers
    first_sequence: Numbers  # of the first message (FAST) or of the packet (Binary), 0 where it has none
    last_sequence: Numbers


class Publisher(ABC):
    """What both protocols have in common."""

    protocol: str
    rpt_seq: int  # column of a record
    seq_versions: dict[str, int]  # sequence version of each stream
    loop_heartbeat_ns: int  # silence of a looping stream before a heartbeat
    format_versions: dict[str, Any]  # of schema or templates

    def __init__(self, settings: BulkSettings, listing: Listing, manifest: Manifest, truth: Truth) -> None:
        self.settings, self.listing = settings, listing
        self._event_builder = EventBuilder(settings, listing, self.rpt_seq)
        self._next_sequence: dict[str, int] = dict.fromkeys(STREAMS, 1)
        self._last_sequence: dict[str, int] = dict.fromkeys(STREAMS, 0)
        self._loop_end_ns: dict[str, int] = dict.fromkeys(LOOPING_STREAMS, 0)
        self._is_in_loop: dict[str, bool] = dict.fromkeys(LOOPING_STREAMS, False)
        self._now_ns = 0
        self._lines: dict[str, LossyLines] = {stream: self._open_lines(stream, manifest, truth) for stream in STREAMS}
        self._unit_builders: dict[str, UnitBuilder] = {stream: self._unit_builder(stream) for stream in STREAMS}
        self.counts: Counter[tuple[str, str]] = Counter()

    def _open_lines(self, stream: str, manifest: Manifest, truth: Truth) -> LossyLines:
        settings = self.settings
        lines = settings.lines if stream == INCREMENTAL else settings.lines[:1]
        files = [
            RollingFiles(manifest, self.flow(stream, line), settings.roll_bytes, settings.roll_s * SECOND_NS)
            for line in lines
        ]
        seed = [settings.seed, 2, self.protocol == "fast", STREAMS.index(stream)]
        return LossyLines(
            self.protocol, files, truth, settings.loss, np.random.default_rng([int(part) for part in seed])
        )

    def flow(self, stream: str, line: str) -> Flow:
        """The multicast group and port of a stream on a line: each has its own."""
        protocol_index, line_index, stream_index = int(self.protocol == "fast"), "AB".index(line), STREAMS.index(stream)
        dest = (
            f"224.0.{20 + 10 * protocol_index + line_index}.{self.settings.channel}",
            20_001 + 1_000 * protocol_index + 100 * line_index + stream_index,
        )
        source = f"10.{protocol_index}.{line_index}.1", 40_001 + stream_index
        return Flow(self.protocol, self.settings.channel, stream, line, source, dest)

    @property
    def flows(self) -> list[Flow]:
        return [files.flow for lines in self._lines.values() for files in lines.files]

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

    def publish(self, batch: JournalBatch) -> None:
        self._now_ns = batch.ts_ns
        for stream in LOOPING_STREAMS:
            if self._loop_end_ns[stream] == 0:
                self._loop_end_ns[stream] = batch.ts_ns
            starts = batch.stream == stream and batch.starts_loop
            if starts or self.settings.real_time or batch.ts_ns - self._loop_end_ns[stream] > PENDING_HEARTBEATS_NS:
                self._send_loop_heartbeats(stream)
        if batch.starts_loop:
            self._start_loop(batch)
        self._publish_batch(batch)

    def _publish_batch(self, batch: JournalBatch) -> None:
        ts_ns = None if batch.stream == INCREMENTAL else self._loop_times
        self._publish_records(batch, ts_ns)
        if batch.stream != INCREMENTAL and batch.records[-1, k.KIND] == k.SEQUENCE_RESET:
            self._is_in_loop[batch.stream], self._next_sequence[batch.stream] = False, 1

    def _publish_records(self, batch: JournalBatch, loop_times: Callable[[str, int], Numbers] | None) -> None:
        """Encode and write records; `loop_times` has the sending times of units if not their own times matter."""
        stream = batch.stream
        self._fill_sizes(batch)
        units, next_sequence = self._unit_builders[stream].build(batch.records, self._next_sequence[stream])
        self._fill_sequences(units, batch)
        self._next_sequence[stream], self._last_sequence[stream] = next_sequence, next_sequence - 1
        ts_ns = loop_times(stream, len(units.sequence)) if loop_times else units.ts_ns + SEND_DELAY_NS
        events = self._event_builder.events(units, self.seq_versions[stream], ts_ns)
        for family, rows in events.families.items():
            self.counts[stream, family] += len(rows)
        self._write(batch, self._to_packets(self._encode(events), units, ts_ns, loop_times is None))

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
            reset = _control_records(k.SEQUENCE_RESET, batch.ts_ns)
            self._publish_records(JournalBatch(stream, reset, batch.ts_ns), self._loop_times)
        self._is_in_loop[stream], self._next_sequence[stream] = True, 1

    def _send_loop_heartbeats(self, stream: str) -> None:
        """Send the heartbeats of a looping stream that is between two loops (Binary 9.2.2, FIX/FAST 4.2.7)."""
        interval, last_ns = self.loop_heartbeat_ns, self._loop_end_ns[stream]
        count = (self._now_ns - last_ns) // interval
        if count > 0 and not self._is_in_loop[stream]:
            times = last_ns + interval * np.arange(1, count + 1)
            self._loop_end_ns[stream] = int(times[-1])
            self._publish_records(JournalBatch(stream, _control_records(k.HEARTBEAT, times), self._now_ns), None)

    def _write(self, batch: JournalBatch, packets: Packets) -> None:
        stream = batch.stream
        sequences = (packets.first_sequence, packets.last_sequence) if stream == INCREMENTAL else (None, None)
        self._lines[stream].write(packets.buffer, packets.start, packets.end, packets.ts_ns, *sequences)
        for lines in self._lines.values():
            lines.close_if_due(batch.ts_ns)

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
        return [(stream, 1, self._last_sequence[stream], self._lines[stream].packets) for stream in STREAMS]

    def close(self) -> None:
        for stream in LOOPING_STREAMS:
            self._send_loop_heartbeats(stream)
        for lines in self._lines.values():
            lines.close()


def _control_records(kind: int, times: Any) -> Records:
    """Records of a kind that concerns no instrument."""
    records = np.full((np.size(times), k.RECORD_COLUMNS), k.NULL, np.int64)
    records[:, k.KIND], records[:, k.SIDE], records[:, k.FLAGS], records[:, k.TS] = kind, k.NO_SIDE, 0, times
    return records


def kernel_limits(**values: int) -> dict[int, int]:
    return {getattr(w, f"L_{name.upper()}"): value for name, value in values.items()}
