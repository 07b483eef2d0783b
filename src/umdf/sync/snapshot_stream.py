"""One line of a snapshot stream: which snapshots and phases of groups it has, and when each was complete.

    stream.add(units, arrivals)
    received = stream.read(codec)

Invariants: parts of two loops are never taken for one snapshot. The phases of groups in a packet that was overtaken by
later ones are not used: a phase is as of a sequence between those of the snapshots around it only if the order is that
of sending. The result does not depend on how the packets are divided among calls. Memory is bounded by bytes: what
there is no room for is as good as lost, and the next loop has it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from umdf.market.families import NULL
from umdf.market.rows import Events
from umdf.sync.arbitration.arbiter import Step
from umdf.sync.arrivals import Arrival
from umdf.sync.definitions.list_loops import InstrumentList
from umdf.sync.raw_units import RawUnits, concat_units
from umdf.sync.snapshots import Snapshots, find_snapshots
from umdf.sync.unit_codecs import UnitCodec

MAX_PAUSE_NS = 250_000_000  # between two packets of one snapshot
MAX_EARLY_BYTES = 128 << 20  # of snapshots before the first unit of the incremental stream
MAX_UNFINISHED_BYTES = 16 << 20  # of packets with a snapshot that is not complete
OVERTAKEN_UNITS = 64  # so many units before one are compared with it: a damaged time does no harm for long


@dataclass(frozen=True)
class SnapshotHeader:
    """What the header of a snapshot states: its sequence and epoch."""

    at: Arrival
    sequence: int
    epoch: int  # NULL if it is not stated
    ts_send: int


@dataclass(frozen=True, eq=False)
class ReceivedPhases:
    """Phases of groups (family status), between two snapshots of the stream."""

    at: Arrival
    events: Events
    before: SnapshotHeader | None
    behind: SnapshotHeader


@dataclass(frozen=True, eq=False)
class ReceivedSnapshot:
    """A row of some snapshots, when its last part was there."""

    at: Arrival
    header: SnapshotHeader
    snapshots: Snapshots
    row: int


@dataclass(frozen=True)
class NumberingRestart:
    """The sequences of the snapshots have gone back: those before are of another epoch, which FAST does not state."""

    at: Arrival


@dataclass(frozen=True, eq=False)
class ReceivedDefinitions:
    """Units of the instrument stream, when the first was there."""

    at: Arrival
    events: Events  # of their batch
    units: list[int]


@dataclass(frozen=True, eq=False)
class ReceivedList:
    """A loop of the instrument stream, when its last part was there."""

    at: Arrival
    instruments: InstrumentList


Received = ReceivedPhases | ReceivedSnapshot | NumberingRestart | ReceivedDefinitions | ReceivedList
Mark = tuple[int, Arrival, Step | Received]  # the row before which it comes, and when it came


def join_definitions(marks: list[Mark]) -> list[Mark]:
    """With definitions that come one after the other, and between the same two rows, as one mark."""
    joined: list[Mark] = []
    for mark in marks:
        (before, _, last), found = joined[-1] if joined else (-1, None, None), mark[2]
        if isinstance(last, ReceivedDefinitions) and isinstance(found, ReceivedDefinitions) and before == mark[0]:
            last.units.extend(found.units)
        else:
            joined.append(mark)
    return joined


BookKey = tuple[int, bool]  # instrument, whether it is the lending book


@dataclass
class EarlySnapshots:
    """What came before the first unit of the incremental stream: the last snapshot of each book, the last phases."""

    max_bytes: int = MAX_EARLY_BYTES
    dropped: int = 0  # snapshots, because there was no room
    _nbytes: int = 0
    _snapshots: dict[BookKey, ReceivedSnapshot] = field(default_factory=dict)  # the one that came last, last
    _sizes: dict[BookKey, int] = field(default_factory=dict)  # in bytes, of those that are not a part of their batch
    _phases: deque[ReceivedPhases] = field(default_factory=lambda: deque(maxlen=1 << 12))

    def add(self, found: ReceivedPhases | ReceivedSnapshot) -> None:
        if isinstance(found, ReceivedPhases):
            self._phases.append(found)
        else:
            some, row = found.snapshots, found.row
            book = int(some.instrument_id[row]), bool(some.is_lending[row])
            self._remove(book)
            self._snapshots[book] = found

    def _remove(self, book: BookKey) -> None:
        if self._snapshots.pop(book, None) is not None:
            self._nbytes -= self._sizes.pop(book, 0)

    def limit(self) -> None:
        """Copy snapshots out of their batches, and drop the oldest if there is no room."""
        batches: dict[int, list[BookKey]] = {}
        for book in self._snapshots.keys() - self._sizes.keys():
            batches.setdefault(id(self._snapshots[book].snapshots), []).append(book)
        for books in batches.values():
            batch = self._snapshots[books[0]].snapshots
            is_chosen = np.zeros(len(batch), np.bool_)
            is_chosen[[self._snapshots[book].row for book in books]] = True
            own, place = batch.only(is_chosen).compacted(), np.cumsum(is_chosen) - 1
            for book in books:
                found = self._snapshots[book]
                self._snapshots[book] = replace(found, snapshots=own, row=int(place[found.row]))
                self._sizes[book] = own.events.nbytes // len(books)
                self._nbytes += self._sizes[book]
        while self._nbytes > self.max_bytes:
            self._remove(next(iter(self._snapshots)))
            self.dropped += 1

    def newest(self) -> SnapshotHeader | None:
        headers = (found.header for found in self._snapshots.values())
        return max(headers, key=lambda header: header.sequence, default=None)

    def take(self) -> list[ReceivedPhases | ReceivedSnapshot]:
        """All of them, in order of arrival."""
        found = sorted((*self._snapshots.values(), *self._phases), key=lambda some: some.at)
        self._snapshots.clear()
        self._sizes.clear()
        self._phases.clear()
        self._nbytes = 0
        return found


@dataclass
class SnapshotStream:
    max_bytes: int = MAX_UNFINISHED_BYTES
    dropped: int = 0  # snapshots that grew larger than that before they were complete
    _units: list[RawUnits] = field(default_factory=list)  # not read, or of a snapshot that is not complete
    _arrivals: list[Arrival] = field(default_factory=list)
    _known: int = 0  # the first so many units were read before
    _times: list[int] = field(default_factory=list)  # sending times of the last units
    _is_overtaken: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    _header: SnapshotHeader | None = None  # the last one

    def add(self, units: RawUnits, arrivals: Sequence[Arrival]) -> None:
        self._units.append(units)
        self._arrivals += arrivals

    def read(self, codec: UnitCodec) -> list[Received]:
        """What has become complete since the last call, in order."""
        if len(self._arrivals) == self._known:
            return []
        units, arrivals = concat_units(self._units), self._arrivals
        decoded = codec.decode(units, snapshot=True)
        self._note_times(decoded.events.units.ts_send)
        snapshots = find_snapshots(decoded.events)
        headers = _headers_of(snapshots, arrivals)
        complete = snapshots.is_complete & ~decoded.damaged[snapshots.header.unit]
        complete &= snapshots.complete_unit >= self._known
        found: list[Received] = [
            ReceivedSnapshot(arrivals[snapshots.complete_unit[row]], headers[row], snapshots, row)
            for row in np.flatnonzero(complete).tolist()
            if _is_of_one_loop(units.sequence, decoded.events.units.ts_send, snapshots, row)
        ]
        between, pending_from = self._read_phases(snapshots, headers, decoded.damaged)
        self._keep(units, min(snapshots.incomplete_from, pending_from))
        return sorted([*between, *found], key=lambda some: some.at)

    def _note_times(self, ts_send: NDArray[np.int64]) -> None:
        """Find out which of the new units were overtaken by later ones."""
        new = ts_send[self._known :]
        earlier = np.concatenate([np.full(OVERTAKEN_UNITS, NULL), self._times, new]).astype(np.int64)
        windows = np.lib.stride_tricks.sliding_window_view(earlier, OVERTAKEN_UNITS)
        newest = windows.max(axis=1)[len(self._times) : len(self._times) + len(new)]
        self._is_overtaken = np.concatenate([self._is_overtaken, new < newest])
        self._times = earlier[-OVERTAKEN_UNITS:].tolist()

    def _read_phases(
        self, snapshots: Snapshots, headers: list[SnapshotHeader], damaged: NDArray[np.bool_]
    ) -> tuple[list[Received], int]:
        """The phases in front of new headers, and the first unit with one that no header follows yet."""
        events, header, is_overtaken = snapshots.events, snapshots.header, self._is_overtaken
        rows = events.rows("status")
        usable = np.flatnonzero(~is_overtaken[header.unit])
        is_group = (rows.column("instrument_id") == NULL) & ~is_overtaken[rows.unit]
        behind = np.searchsorted(header.wire_order[usable], rows.wire_order, side="right")
        followed = set(behind[is_group].tolist())
        found: list[Received] = []
        for at, row in enumerate(usable.tolist()):
            current, unit = headers[row], header.unit[row]
            if unit < self._known:
                continue
            if damaged[unit]:
                self._header = None
                continue
            before, self._header = self._header, current
            if before is not None and current.epoch == NULL and current.sequence < before.sequence:
                found.append(NumberingRestart(current.at))
                before = None
            if at in followed:
                phases = events.take({"status": is_group & (behind == at)}).compacted()
                found.append(ReceivedPhases(current.at, phases, before, current))
        pending = rows.unit[is_group & (behind == len(usable))]
        return found, int(pending.min()) if len(pending) else len(events.units)

    def _keep(self, units: RawUnits, first: int) -> None:
        if int((units.end[first:] - units.start[first:]).sum()) > self.max_bytes:
            first = len(units)
            self.dropped += 1
        kept = np.arange(first, len(units))
        self._units = [units.take(kept).compacted()] if len(kept) else []
        self._arrivals, self._is_overtaken = self._arrivals[first:], self._is_overtaken[first:]
        self._known = len(kept)


def _is_of_one_loop(numbers: NDArray[np.int64], ts_send: NDArray[np.int64], snapshots: Snapshots, row: int) -> bool:
    """Whether the parts of a snapshot have consecutive numbers and were sent together: the number of a packet is the
    same in every loop."""
    first, last = int(snapshots.header.unit[row]), int(snapshots.complete_unit[row])
    if first == last:
        return True
    order = np.argsort(numbers[first : last + 1], kind="stable")
    steps, pauses = np.diff(numbers[first : last + 1][order]), np.diff(ts_send[first : last + 1][order])
    return bool((steps == 1).all() and (pauses >= 0).all() and (pauses <= MAX_PAUSE_NS).all())


def _headers_of(snapshots: Snapshots, arrivals: list[Arrival]) -> list[SnapshotHeader]:
    units = snapshots.header.unit
    columns = snapshots.last_sequence, snapshots.last_epoch, snapshots.events.units.ts_send[units]
    values = zip(units.tolist(), *(column.tolist() for column in columns), strict=True)
    return [SnapshotHeader(arrivals[unit], *rest) for unit, *rest in values]
