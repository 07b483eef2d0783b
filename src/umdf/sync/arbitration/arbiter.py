"""Arbitrates identical lines into one ordered stream without duplicates; what no line delivered is a gap.

    arbiter = LineArbiter()
    result = arbiter.arbitrate(units, now_ns)     # units of all lines, in order of arrival
    result.units, result.is_late, result.steps

Invariants: a number is delivered at most once per epoch, and in order, except late units of gaps that were reported
and second copies with other content, both marked `is_late`. The result does not depend on how the units are divided
among calls. Memory is bounded. The rules:

- Missing units become a gap after a waiting time (13.7: 20 ms) since a unit or heartbeat beyond them came, so that the
  slower line can still deliver them; until then the units after them are held. A gap stays open: units of it that come
  later, on any line, are delivered at once.
- A unit whose epoch or number is not near where a line is expected is a candidate, and delivered only if a second
  one confirms it; otherwise it is quarantined.
- The channel is in one epoch. A line that moves to another one (a new sequence version; FAST: a SequenceReset, or
  numbers near 1 again) is set aside until no other live line continues in the channel's epoch.
- A number that comes with two contents is reported as a gap, and both are delivered; a line that contradicts the others
  in eight units in a row is set aside until it agrees with them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import buffer_address
from umdf.sync.arbitration import arbitration_kernel as k
from umdf.sync.arbitration import state_kernel as layout
from umdf.sync.raw_units import RawUnits, empty_units

WAIT_MS, LINE_TIMEOUT_MS = 20, 30_000  # 13.7
FOREVER = layout.FOREVER
COUNTS = slice(layout.OUT_COUNT, layout.TOTALS + layout.COUNT_KINDS)  # what Python reads after a call


class StepKind(IntEnum):
    """What happened between two units."""

    EPOCH = 0  # an epoch starts, with this number
    JOIN = 1  # the first epoch starts above 1: what was before is unknown, but not lost
    GAP = 2  # these numbers were not received, or one came with two contents
    GAP_FILLED = 3  # all numbers of this gap came later


@dataclass(frozen=True)
class Step:
    before_row: int  # of the delivered units
    kind: StepKind
    epoch: int
    first: int
    last: int
    ts_recv: int  # of a gap, when the first unit after it came
    release_row: int  # as in `ArbitrationResult`
    release_ns: int


class QuarantineReason(IntEnum):
    """Why a unit was not delivered (the numbers are those of `lines_kernel`)."""

    CONTINUED = 0  # its line continued where it was before
    UNCONFIRMED = 1  # the next unit was elsewhere again
    NO_ROOM = 2
    ENDED = 3  # nothing came after it
    TOO_MANY_LINES = 4


@dataclass(frozen=True)
class QuarantinedUnit:
    line: int
    sequence: int
    epoch: int
    ts_recv: int
    reason: QuarantineReason


@dataclass(frozen=True)
class ArbitrationCounts:
    """Units of one call."""

    duplicates: int = 0
    late: int = 0  # of a gap that was reported: delivered if it is still open, otherwise dropped
    quarantined: int = 0
    set_aside: int = 0
    conflicts: int = 0  # with other content than the same number had before


@dataclass(frozen=True, eq=False, slots=True)
class ArbitrationResult:
    units: RawUnits  # in order of delivery; `epoch` is the channel's
    is_late: NDArray[np.bool_]
    # What released each: a unit of this call, or -1 if a waiting time ended; and when.
    release_row: NDArray[np.int64]
    release_ns: NDArray[np.int64]
    steps: list[Step]
    quarantined: list[QuarantinedUnit]
    counts: ArbitrationCounts
    line_counts: dict[int, ArbitrationCounts]  # of lines with any


@dataclass(frozen=True)
class ArbitrationSettings:
    wait_ms: int = WAIT_MS
    line_timeout_ms: int = LINE_TIMEOUT_MS  # a line is alive so long after its last unit
    has_versions: bool = True  # units state their epoch (Binary); otherwise it is counted by SequenceResets (FAST)
    max_held_bytes: int = 16 << 20  # of units that wait for missing ones; beyond it they are given up early
    max_aside_bytes: int = 4 << 20  # of lines in another epoch; beyond it the oldest are dropped
    max_open_gaps: int = 65_536  # beyond it the oldest expire


@dataclass(frozen=True, eq=False)
class ArbiterState:
    """Everything an arbiter knows, to be stored."""

    settings: ArbitrationSettings
    header: NDArray[np.int64]
    ring: NDArray[np.int64]
    gaps: NDArray[np.int64]
    order: NDArray[np.int64]
    held: NDArray[np.int64]
    aside: NDArray[np.int64]
    stored_bytes: NDArray[np.uint8]


NO_COUNTS = ArbitrationCounts()
NO_STATE, NO_BYTES = np.zeros(0, np.int64), np.zeros(0, np.uint8)
Delivered = tuple[RawUnits, NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]  # as in `ArbitrationResult`
NOTHING_DELIVERED: Delivered = (empty_units(), np.zeros(0, np.bool_), NO_STATE, NO_STATE)


class LineArbiter:
    """Arbitrates the lines of one channel. Units kept between calls are copied."""

    def __init__(self, settings: ArbitrationSettings | None = None, **values: Any) -> None:
        self.settings = settings or ArbitrationSettings(**values)
        self._w = _new_state(self.settings)
        self._o = NO_STATE
        self._out_capacity = 0
        self._stored = NO_BYTES

    @property
    def waiting_count(self) -> int:
        """How many units wait for missing ones."""
        return int(self._w[layout.HELD + layout.S_ALIVE])

    @property
    def words(self) -> NDArray[np.int64]:
        """The state, for kernels that look at it between two calls."""
        return self._w

    @property
    def last_seen(self) -> int:
        """When something was last received on a line in the channel's epoch, a heartbeat too; 0: never."""
        lines = self._w[layout.LINES : layout.HEADER_WORDS].reshape(-1, layout.LINE_WORDS)[: self._w[layout.LINE_COUNT]]
        return int(lines[lines[:, layout.L_EPOCH] == self._w[layout.EPOCH], layout.L_SEEN].max(initial=0))

    def arbitrate(self, units: RawUnits, now_ns: int) -> ArbitrationResult:
        """What can be delivered now. No later unit may have a receive time before `now_ns`; FOREVER: none will come."""
        self._reserve_output(len(units))
        self._w[layout.BUFFER], self._w[layout.BUFFER_SIZE] = buffer_address(units.buffer), len(units.buffer)
        columns = (units.start, units.end, units.sequence, units.epoch, units.ts_recv, units.msg_index, units.line)
        columns += (units.kind, units.next_sequence, units.content_key)
        try:
            k.arbitrate(now_ns, *columns, self._w, self._o)
        except TypeError:  # a column is not contiguous, or cannot be written to: nothing was called
            columns = tuple(np.array(column) for column in columns)
            k.arbitrate(now_ns, *columns, self._w, self._o)
        return self._result(units.buffer)

    def finish(self) -> ArbitrationResult:
        """No more units will come: everything missing is a gap."""
        return self.arbitrate(empty_units(), FOREVER)

    def to_state(self) -> ArbiterState:
        layout.remove_dead(0, self._w)
        w = self._w
        header = w[: layout.HEADER_WORDS].copy()
        header[[layout.BUFFER, layout.STORED_BYTES]] = 0
        parts = (w[first : first + size].copy() for first, size in _regions_in_use(w).values())
        stored_bytes = self._stored[: w[layout.STORED_USED]].copy()
        return ArbiterState(self.settings, header, *parts, stored_bytes=stored_bytes)

    @classmethod
    def from_state(cls, state: ArbiterState) -> LineArbiter:
        arbiter = cls(state.settings)
        arbiter._w[: layout.HEADER_WORDS] = state.header
        for name, (first, size) in _regions_in_use(arbiter._w).items():
            arbiter._w[first : first + size] = getattr(state, name)
        arbiter._stored = state.stored_bytes.copy()
        arbiter._w[layout.STORED_BYTES] = arbiter._stored.ctypes.data
        return arbiter

    def _reserve_output(self, units: int) -> None:
        w = self._w
        rows = units + int(w[layout.HELD + layout.S_ALIVE] + w[layout.ASIDE + layout.S_ALIVE])
        if rows > self._out_capacity or not self._out_capacity:
            capacity = max(64, 2 * rows)
            steps = 4 * capacity + layout.MAX_REVEALS + 16  # a unit may fill a gap, contradict, and end an epoch
            quarantined = capacity + layout.MAX_LINES
            w[layout.OUT_CAPACITY], w[layout.STEPS] = capacity, layout.OUT_COLUMNS * capacity
            w[layout.QUARANTINE] = w[layout.STEPS] + layout.STEP_WORDS * steps
            self._o = np.empty(int(w[layout.QUARANTINE]) + layout.QUARANTINE_WORDS * quarantined, np.int64)
            self._out_capacity = capacity

    def _result(self, buffer: NDArray[np.uint8]) -> ArbitrationResult:
        w, o = self._w, self._o
        words = w[COUNTS].tolist()
        read = layout.OUT_COUNT
        rows, step_count = words[0], words[layout.STEP_COUNT - read]
        quarantine_count, are_stored = words[layout.QUARANTINE_COUNT - read], words[layout.STORED_COUNT - read]
        if are_stored:
            capacity = self._out_capacity
            size = o[layout.O_END * capacity :][:rows] - o[layout.O_START * capacity :][:rows]
            buffer = np.empty(int(size.sum()), np.uint8)
            layout.gather_output(buffer.ctypes.data, w, o)
        if words[layout.HELD + layout.S_ALIVE - read] or words[layout.ASIDE + layout.S_ALIVE - read]:
            self._keep_bytes()
        elif words[layout.STORED_USED - read]:
            w[layout.STORED_USED] = 0
        delivered = self._delivered(buffer, rows) if rows else NOTHING_DELIVERED
        steps, quarantined, counts, line_counts = [], [], NO_COUNTS, {}
        if step_count:
            found = o[w[layout.STEPS] :][: layout.STEP_WORDS * step_count].reshape(-1, layout.STEP_WORDS).tolist()
            steps = [Step(row, StepKind(kind), *rest) for row, kind, *rest in found]
        if quarantine_count:
            found = o[w[layout.QUARANTINE] :][: layout.QUARANTINE_WORDS * quarantine_count]
            rows_found = found.reshape(-1, layout.QUARANTINE_WORDS).tolist()
            quarantined = [QuarantinedUnit(*rest, reason=QuarantineReason(reason)) for *rest, reason in rows_found]
        totals = words[layout.TOTALS - read :]
        if any(totals):
            counts, line_counts = ArbitrationCounts(*totals), self._line_counts()
        return ArbitrationResult(*delivered, steps, quarantined, counts, line_counts)

    def _delivered(self, buffer: NDArray[np.uint8], rows: int) -> Delivered:
        table = self._o[: layout.OUT_COLUMNS * self._out_capacity].reshape(layout.OUT_COLUMNS, -1)
        start, end, sequence, epoch, ts_recv, msg_index, line, content_key, is_late, row, ns, _ = table[:, :rows].copy()
        indices = msg_index.astype(np.uint16), line.astype(np.uint16)
        others = np.zeros(rows, np.uint8), np.zeros(rows, np.int64), content_key
        units = RawUnits(buffer, start, end, sequence, epoch, ts_recv, *indices, *others)
        return units, is_late.astype(np.bool_), row, ns

    def _line_counts(self) -> dict[int, ArbitrationCounts]:
        lines = self._w[layout.LINES : layout.HEADER_WORDS].reshape(-1, layout.LINE_WORDS)
        found = lines[: self._w[layout.LINE_COUNT]].tolist()
        counts = {line[layout.L_ID]: line[layout.L_COUNTS :] for line in found}
        return {line: ArbitrationCounts(*values) for line, values in counts.items() if any(values)}

    def _keep_bytes(self) -> None:
        """Copy the bytes of units that are kept out of the buffer of this call."""
        w = self._w
        new = layout.count_new_bytes(0, w)
        if new + w[layout.STORED_USED] > len(self._stored):
            alive = int(w[layout.HELD + layout.S_BYTES] + w[layout.ASIDE + layout.S_BYTES])
            moved = np.empty(2 * alive, np.uint8)  # so that copying all is rare
            layout.keep_bytes(moved.ctypes.data, w)
            self._stored = moved
        elif new:
            layout.keep_bytes(self._stored.ctypes.data, w)


def _new_state(settings: ArbitrationSettings) -> NDArray[np.int64]:
    """A state without any line. Memory that is never used costs nothing: the system provides it when it is touched."""
    held, aside = (2 * (size // layout.ROW_OVERHEAD_BYTES + 1) for size in _limits(settings))
    sizes = {
        layout.RING: 2 * layout.REMEMBERED,
        layout.GAPS: 2 * layout.GAP_WORDS * settings.max_open_gaps,
        layout.ORDER: held,
        layout.SCRATCH: max(held, aside),
        layout.HELD + layout.S_ROWS: held * layout.ROW_WORDS,
        layout.ASIDE + layout.S_ROWS: aside * layout.ROW_WORDS,
    }
    w = np.zeros(layout.HEADER_WORDS + sum(sizes.values()), np.int64)
    first = layout.HEADER_WORDS
    for region, size in sizes.items():
        w[region] = first
        first += size
    w[layout.WAIT_NS], w[layout.TIMEOUT_NS] = settings.wait_ms * 1_000_000, settings.line_timeout_ms * 1_000_000
    w[layout.IS_VERSIONED], w[layout.GAP_LIMIT] = settings.has_versions, settings.max_open_gaps
    for store, capacity, limit in zip((layout.HELD, layout.ASIDE), (held, aside), _limits(settings), strict=True):
        w[store + layout.S_CAPACITY], w[store + layout.S_LIMIT] = capacity, limit
    w[layout.EPOCH] = w[layout.NEWEST] = layout.NONE
    w[layout.CLOCK] = np.iinfo(np.int64).min
    return w


def _limits(settings: ArbitrationSettings) -> tuple[int, int]:
    return settings.max_held_bytes, settings.max_aside_bytes


def _regions_in_use(w: NDArray[np.int64]) -> dict[str, tuple[int, int]]:
    """Where the parts of a state are, beside its header, and how many words of each are in use."""
    return {
        "ring": (int(w[layout.RING]), 2 * layout.REMEMBERED),
        "gaps": (int(w[layout.GAPS]), layout.GAP_WORDS * int(w[layout.GAP_TAIL])),
        "order": (int(w[layout.ORDER]), int(w[layout.ORDER_TAIL])),
        "held": (int(w[layout.HELD]), layout.ROW_WORDS * int(w[layout.HELD + layout.S_COUNT])),
        "aside": (int(w[layout.ASIDE]), layout.ROW_WORDS * int(w[layout.ASIDE + layout.S_COUNT])),
    }
