"""Gathers the units of one span of sequences from all lines: each unit once, and every packet accounted for.

Invariant: the result depends only on the packets, not on the files, their order or their boundaries. A unit that was
received twice is used once, with the receive time of its first copy. Duplicates have the same bytes, so only the copy
that is read first is kept; if that turns out to be damaged, it is `excluded` and the next copy is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.lake.recording.capture_clock import FirstArrivals
from umdf.lake.recording.contradictions import Comparison, ContentComparer
from umdf.lake.recording.repeated_packets import content_hashes
from umdf.lake.tasks.duplicates import (
    WRONG_SEQUENCE,
    DuplicateTracker,
    PacketLocation,
    UnitCopy,
    first_arrivals_by_key,
    refused_copies,
    unit_copies,
)
from umdf.lake.tasks.flow_packets import (
    CORRUPT,
    DUPLICATE,
    LATE,
    PENDING,
    UNKNOWN,
    USED,
    FlowPackets,
    Numbers,
    PacketReader,
    SplitSource,
    read_packets,
)
from umdf.lake.tasks.quarantine import QuarantineEntry, quarantine_entries
from umdf.sync.arbitration.arbiter import WAIT_MS
from umdf.sync.raw_units import RawUnits, empty_units
from umdf.transport.capture import PacketBatch

NEVER = np.iinfo(np.int64).max
FAR_SEQUENCE = "its number is far from all others"
LONE_RESTART = "its line restarted the numbering alone"
OVERLAP = 256  # sequences before and after a span that are read with it

PacketLocations = frozenset[PacketLocation]  # of unusable copies
_NOTHING_REFUSED: Mapping[PacketLocation, str] = {}


@dataclass(frozen=True)
class Span:
    epoch: int
    first: int
    last: int
    overlap: int = 0  # sequences before and after it that are read too

    @property
    def base(self) -> int:
        return self.first - self.overlap

    @property
    def size(self) -> int:
        return self.last - self.first + 1 + 2 * self.overlap


@dataclass
class PacketRecords:
    """Every packet that this span accounts for."""

    line: NDArray[np.uint8]
    number: Numbers
    ts_send: Numbers
    ts_recv: Numbers
    size: NDArray[np.int32]
    source: NDArray[np.int32]
    offset: Numbers
    message_counts: NDArray[np.int32]
    disposition: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.number)


_NO_ROWS = np.empty(0, np.int64)
_NO_RECORDS = [tuple(np.empty(0, kind) for kind in "u1 i8 i8 i8 i4 i4 i8 i4 u1".split())]


@dataclass
class GatheredSpan:
    span: Span
    sources: Sequence[SplitSource]
    units: RawUnits  # by sequence, including the overlap; `ts_recv` of the first copy, `line` of the copy used
    unit_source: NDArray[np.int32]
    unit_offset: Numbers
    arrival: dict[int, Numbers]  # by line: first receive time of each sequence, including the overlap; NEVER if missing
    repeated: dict[int, Numbers]  # by line: sequences of the span (without overlap) that it delivered again
    packets: PacketRecords
    quarantined: list[QuarantineEntry]
    is_clock_off: NDArray[np.bool_] | None  # by sequence, including the overlap; None: all clocks can be right
    comparisons: list[Comparison] = field(default_factory=list)

    @property
    def own(self) -> slice:
        return slice(self.span.overlap, self.span.size - self.span.overlap)

    def cut_at(self, last: int) -> GatheredSpan:
        """The same, for a span that ends earlier."""
        span = Span(self.span.epoch, self.span.first, last, self.span.overlap)
        unnumbered_from = np.array([source.unnumbered_from for source in self.sources], np.int64)
        packets, is_unit_kept = self.packets, self.units.sequence < span.base + span.size
        is_unnumbered = (packets.number < self.span.first) | (packets.number > self.span.last)
        is_packet_kept = np.where(is_unnumbered, unnumbered_from[packets.source] <= last, packets.number <= last)
        quarantined = [row for row in self.quarantined if (row.number or int(unnumbered_from[row.source])) <= last]
        return GatheredSpan(
            span,
            self.sources,
            self.units.take(is_unit_kept),
            self.unit_source[is_unit_kept],
            self.unit_offset[is_unit_kept],
            {line: times[: span.size] for line, times in self.arrival.items()},
            {line: numbers[numbers <= last] for line, numbers in self.repeated.items()},
            PacketRecords(*(column[is_packet_kept] for column in vars(packets).values())),
            quarantined,
            None if self.is_clock_off is None else self.is_clock_off[: span.size],
            self.comparisons,
        )

    def first_arrival(self) -> tuple[Numbers, NDArray[np.int8]]:
        """First receive time of each sequence of the span, and its line (-1: none)."""
        return self._first_arrival

    @cached_property
    def _first_arrival(self) -> tuple[Numbers, NDArray[np.int8]]:
        first, line = np.full(self.span.size, NEVER), np.full(self.span.size, -1, np.int8)
        for number, times in sorted(self.arrival.items()):
            sooner = times < first
            first[sooner], line[sooner] = times[sooner], number
        return first, line


def gather_span(
    sources: Sequence[SplitSource],
    span: Span,
    reader: PacketReader,
    known_spans: Sequence[Span],
    excluded: PacketLocations = frozenset(),
) -> GatheredSpan:
    """`known_spans` are all spans of the channel: a sequence outside them is damage."""

    def read(refused: Mapping[PacketLocation, str], doubtful: frozenset[int] = frozenset()) -> _Gatherer:
        gatherer = _Gatherer(span, sources, known_spans, reader, excluded, refused, doubtful)
        for number, source in enumerate(sources):
            for batch in read_packets(source):
                gatherer.add(number, batch, reader.read(batch, source))
        return gatherer

    gatherer = read(_NOTHING_REFUSED)
    comparisons = gatherer.contents.comparisons()
    doubtful = gatherer.duplicates.conflicting | gatherer.contents.contradicted
    if doubtful:
        again = read(_NOTHING_REFUSED, frozenset(doubtful))
        refused: dict[PacketLocation, str] = dict.fromkeys(again.duplicates.misnumbered(), WRONG_SEQUENCE)
        gatherer = read(refused | refused_copies(again.copies, refused))
    gathered = gatherer.finish()
    gathered.comparisons = comparisons
    return gathered


class _Gatherer:
    def __init__(
        self,
        span: Span,
        sources: Sequence[SplitSource],
        known_spans: Sequence[Span],
        reader: PacketReader,
        excluded: PacketLocations,
        refused: Mapping[PacketLocation, str],
        doubtful: frozenset[int],
    ) -> None:
        """`excluded` and `refused` are not used; only the latter get a reason here. All copies of the `doubtful`
        sequences are recorded."""
        self.span, self.sources, self.known_spans, self._reader = span, sources, known_spans, reader
        self._refused, self._unusable = refused, excluded | frozenset(refused)
        self._doubtful = np.array(sorted(doubtful), np.int64)
        self.copies: list[UnitCopy] = []
        self.duplicates = DuplicateTracker(span.base, span.size, doubtful)
        files = [(source.digest, source.line) for source in sources]
        self.contents = ContentComparer(span.base, span.size, range(span.first, span.last + 1), files)
        self._is_present = np.zeros(span.size, np.bool_)
        self._first_arrivals = FirstArrivals(span.size) if any(source.is_clock_off for source in sources) else None
        self._arrival: dict[int, Numbers] = {}
        self._repeated: dict[int, list[Numbers]] = {}
        self._parts: list[tuple[RawUnits, NDArray[np.int32], Numbers]] = []
        self._columns: list[tuple[Any, ...]] = []
        # Per message or chunk: row of its packet (-1: another span's), key, receive time, line.
        self._messages: list[tuple[Numbers, Numbers, Numbers, NDArray[np.uint8]]] = []
        self._is_keyed_by_sequence = True  # no message has several chunks so far
        self._count = 0
        self._quarantined: list[QuarantineEntry] = []

    def add(self, number: int, batch: PacketBatch, packets: FlowPackets) -> None:
        source, span = self.sources[number], self.span
        kind, packet_row, units = packets.kind.copy(), packets.unit_packet_row, packets.units
        is_usable = (units.epoch == span.epoch) & (units.sequence >= span.base)
        is_usable &= units.sequence < span.base + span.size
        if packets.is_other_date is not None:
            is_usable &= ~packets.is_other_date[packet_row]
        damaged = self._damaged_units(source, batch.offset, packets)
        if len(damaged):
            is_usable[damaged] = False
            kind[packet_row[damaged]] = CORRUPT
            for unit in damaged.tolist() if self._refused else ():
                row = int(packet_row[unit])
                location = source.digest, int(batch.offset[row]), int(units.sequence[unit])
                if location in self._refused:
                    packets.reasons[row] = self._refused[location]
        chosen = np.flatnonzero(is_usable)
        at = packet_row[chosen]
        self.duplicates.add(source.digest, batch.offset[at], units.sequence[chosen], packets.ts_send[at])
        content = content_hashes(units.buffer, units.start[chosen], units.end[chosen], np.zeros(len(chosen), np.int64))
        self.contents.add(number, units.sequence[chosen], content)
        if len(self._doubtful):
            is_doubtful = np.isin(units.sequence[chosen], self._doubtful)
            self.copies += unit_copies(self._reader, source, batch, packets, chosen[is_doubtful], content[is_doubtful])
        self._keep_units(number, source, batch.offset, units, chosen, packet_row)
        self._account_packets(number, batch, packets, kind)

    def _damaged_units(self, source: SplitSource, offset: Numbers, packets: FlowPackets) -> Numbers:
        """Units that cannot be used."""
        excluded_here = {(at, number) for digest, at, number in self._unusable if digest == source.digest}
        suspects = (
            np.flatnonzero(np.isin(offset[packets.unit_packet_row], [at for at, _ in excluded_here]))
            if excluded_here
            else _NO_ROWS
        )
        candidates = zip(
            offset[packets.unit_packet_row[suspects]].tolist(), packets.units.sequence[suspects].tolist(), strict=True
        )
        return suspects[[each in excluded_here for each in candidates]] if len(suspects) else suspects

    def _keep_units(
        self, number: int, source: SplitSource, offset: Numbers, units: RawUnits, chosen: Numbers, packet_row: Numbers
    ) -> None:
        if not len(chosen):
            return
        at = units.sequence[chosen] - self.span.base
        arrival = self._arrival.setdefault(source.line, np.full(self.span.size, NEVER))
        if self._first_arrivals is not None:
            self._first_arrivals.add(at, units.ts_recv[chosen], source.is_clock_off)
        is_repeated = np.zeros(len(at), np.bool_)
        if (at[1:] <= at[:-1]).any():
            order = np.argsort(at, kind="stable")
            chosen, at = chosen[order], at[order]
            is_repeated[1:] = at[1:] == at[:-1]
        own = (at >= self.span.overlap) & (at < self.span.size - self.span.overlap)
        known_arrival = arrival[at]
        repeated = at[own & (is_repeated | (known_arrival != NEVER))] + self.span.base
        self._repeated.setdefault(source.line, []).append(repeated)
        if is_repeated.any():
            np.minimum.at(arrival, at, units.ts_recv[chosen])
        else:
            arrival[at] = np.minimum(known_arrival, units.ts_recv[chosen])
        new = ~is_repeated & ~self._is_present[at]
        self._is_present[at[new]] = True
        rows = chosen[new]
        if len(rows):
            kept_units = units.take(rows).compacted()
            kept_units.line[:] = source.line
            origin = np.full(len(rows), number, np.int32), offset[packet_row[rows]]
            self._parts.append((kept_units, *origin))

    def _account_packets(self, number: int, batch: PacketBatch, packets: FlowPackets, kind: NDArray[np.uint8]) -> None:
        source, span = self.sources[number], self.span
        numbered = packets.number > 0
        is_own = (
            numbered & (packets.epoch == span.epoch) & (packets.number >= span.first) & (packets.number <= span.last)
        )
        if source.owns_unnumbered:
            is_far = numbered & ~_is_within(packets, self.known_spans)
            kind[is_far] = UNKNOWN
            packets.reasons.update(dict.fromkeys(np.flatnonzero(is_far).tolist(), FAR_SEQUENCE))
            is_lone = is_far & ~np.isin(packets.epoch, [span.epoch for span in self.known_spans])
            packets.reasons.update(dict.fromkeys(np.flatnonzero(is_lone).tolist(), LONE_RESTART))
            is_own |= ~numbered | is_far
        if packets.is_other_date is not None:
            is_own &= ~packets.is_other_date
        is_quarantined = (kind == CORRUPT) | (kind == UNKNOWN)
        self._quarantined += quarantine_entries(number, batch, packets, is_own & is_quarantined)
        count = int(np.count_nonzero(is_own))
        record_row = np.cumsum(is_own) + (self._count - 1)
        if count < len(is_own):
            record_row[~is_own] = -1
        self._count += count
        size = (batch.end - batch.start).astype(np.int32)
        columns = packets.number, packets.ts_send, batch.ts_ns, size, batch.offset, packets.message_counts, kind
        numbers, sent, ts_recv, size, offset, chunks, kinds = (
            column.copy() if count == len(is_own) else column[is_own] for column in columns
        )
        lines, sources = np.full(count, source.line, np.uint8), np.full(count, number, np.int32)
        self._columns.append((lines, numbers, sent, ts_recv, size, sources, offset, chunks, kinds))
        # A message in a packet of another span, or in a damaged one, may still be the first copy of its sequence.
        message_row = record_row[packets.message_packet_row]
        is_in_span = (packets.message_sequence >= span.base) & (packets.message_sequence < span.base + span.size)
        is_in_span &= packets.epoch[packets.message_packet_row] == span.epoch
        if packets.is_other_date is not None:
            is_in_span &= ~packets.is_other_date[packets.message_packet_row]
        is_in_span &= ~is_quarantined[packets.message_packet_row]
        key, ts = packets.message_key, batch.ts_ns[packets.message_packet_row]
        self._is_keyed_by_sequence &= key is packets.message_sequence
        if not is_in_span.all():
            message_row, key, ts = message_row[is_in_span], key[is_in_span], ts[is_in_span]
        self._messages.append((message_row, key, ts, np.full(len(ts), source.line, np.uint8)))

    def finish(self) -> GatheredSpan:
        units, source, offset = _concat_units(self._parts)
        if (units.sequence[1:] < units.sequence[:-1]).any():
            order = np.argsort(units.sequence, kind="stable")
            units, source, offset = units.take(order), source[order], offset[order]
        packets = PacketRecords(*(np.concatenate(column) for column in zip(*self._columns or _NO_RECORDS, strict=True)))
        gathered = GatheredSpan(
            self.span,
            self.sources,
            units,
            source,
            offset,
            self._arrival,
            {line: np.concatenate(numbers) for line, numbers in self._repeated.items()},
            packets,
            self._quarantined,
            self._first_arrivals and self._first_arrivals.is_off,
        )
        first, _ = gathered.first_arrival()
        gathered.units.ts_recv[:] = first[gathered.units.sequence - self.span.base]
        self._set_dispositions(packets, first)
        return gathered

    def _set_dispositions(self, packets: PacketRecords, first: Numbers) -> None:
        """The first copy of a unit is used, the others are duplicates."""
        if not self._messages:
            return
        row, key, ts_recv, line = (np.concatenate(column) for column in zip(*self._messages, strict=True))
        used = row[
            self.duplicates.first_arrivals(key, ts_recv, line)
            if self._is_keyed_by_sequence
            else first_arrivals_by_key(key, ts_recv, line)
        ]
        is_pending = packets.disposition == PENDING
        packets.disposition[is_pending] = DUPLICATE
        used = used[used >= 0]
        used = used[is_pending[used]]
        packets.disposition[used] = USED
        # It arrived after the waiting time for a gap (13.7): a live client would have given it up.
        following = np.minimum.accumulate(np.append(first[1:], NEVER)[::-1])[::-1]
        limit = np.where(following == NEVER, NEVER, following + np.where(following == NEVER, 0, WAIT_MS * 1_000_000))
        late = packets.ts_recv[used] > limit[packets.number[used] - self.span.base]
        packets.disposition[used[late]] = LATE


def _is_within(packets: FlowPackets, spans: Sequence[Span]) -> NDArray[np.bool_]:
    inside = np.zeros(len(packets.number), np.bool_)
    for span in spans:
        inside |= (packets.epoch == span.epoch) & (packets.number >= span.first) & (packets.number <= span.last)
    return inside


def _concat_units(
    parts: list[tuple[RawUnits, NDArray[np.int32], Numbers]],
) -> tuple[RawUnits, NDArray[np.int32], Numbers]:
    """Concatenate parts."""
    if not parts:
        return empty_units(), np.empty(0, np.int32), np.empty(0, np.int64)
    shift = np.cumsum([0, *(len(part.buffer) for part, _, _ in parts[:-1])])
    columns = {
        name: np.concatenate([getattr(part, name) for part, _, _ in parts])
        for name in ("buffer", *(column.name for column in fields(RawUnits)[3:]))
    }
    for name in ("start", "end"):
        shifted = [getattr(part[0], name) + at for part, at in zip(parts, shift, strict=True)]
        columns[name] = np.concatenate(shifted)
    source, offset = np.concatenate([part[1] for part in parts]), np.concatenate([part[2] for part in parts])
    parts.clear()
    return RawUnits(**columns), source, offset
