"""Trust in what a channel shows: one word and, unless it is `healthy`, the reason."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from umdf.book.engine import Books
from umdf.book.memory_layout_kernel import VENUE_LENDING
from umdf.book.outcomes import Outcomes, Stale
from umdf.book.state_kernel import book_number
from umdf.buffers import buffer_address
from umdf.market.families import MBO, NULL
from umdf.market.rows import ConstantColumns, MemoryColumns, Rows
from umdf.sync import update_gate_kernel as k
from umdf.sync.gaps import Gap

Numbers = NDArray[np.int64]
_GATED = map(MBO.column, ("instrument_id", "venue", "action", "side", "flags", "rpt_seq"))  # in the kernel's order
_GATED_COLUMNS = {column.name: (column.dtype, column.null if column.nullable else 0) for column in _GATED}


class TrustLevel(StrEnum):
    HEALTHY = "healthy"  # right
    UNVERIFIED = "unverified"  # something was lost that may have affected it
    STALE = "stale"  # something that affected it is missing


@dataclass(frozen=True)
class Trust:
    level: TrustLevel
    reason: str | None = None

    @property
    def is_healthy(self) -> bool:
        return self.level == TrustLevel.HEALTHY


HEALTHY = Trust(TrustLevel.HEALTHY)


def unverified(reason: str) -> Trust:
    return Trust(TrustLevel.UNVERIFIED, reason)


class BookTrust:
    """The trust of every book of a channel. Rows are numbered as the books are."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self.states = _new_states(books.arenas.book_capacity)
        self.created: list[int] = []  # instruments that have a book since `Channel` last read it
        self.is_incomplete = False  # whether trades of instruments without a book may be missing
        self.empty_until = k.UNVERIFIED_FROM_START  # books that do not exist are empty as of this sequence
        self._arguments, self._absent = np.zeros(k.GATE_ARGUMENTS, np.int64), ConstantColumns()
        self._address = buffer_address(self._arguments)

    def gate(self, rows: Rows, sequence: Numbers, gap_before: Numbers) -> NDArray[np.uint8]:
        """The decision on each row of the family mbo: APPLY, WAIT, OLD or EMPTIED."""
        count, arguments = len(rows), self._arguments
        decisions = np.zeros(count, np.uint8)
        held = [np.ascontiguousarray(values) for values in (sequence, gap_before)]
        columns = rows.columns
        addresses = columns.addresses(_GATED_COLUMNS, self._absent) if type(columns) is MemoryColumns else None
        if addresses is None:
            arrays = [np.ascontiguousarray(rows.column(name)) for name in _GATED_COLUMNS]
            addresses, held = [*map(buffer_address, arrays)], held + arrays
        self._grow()
        of_held = buffer_address(held[0]), buffer_address(held[1])
        arguments[:] = [self._books.arenas.address, count, 0, buffer_address(self.states), *of_held, *addresses,
                        buffer_address(decisions)]  # fmt: skip
        while (row := k.gate_updates(self._address)) < count:
            is_lending = bool(rows.column("venue")[row] == VENUE_LENDING)
            self.number_of(int(rows.column("instrument_id")[row]), is_lending, create=True)
            arguments[k.FIRST], arguments[k.STATES] = row, buffer_address(self.states)
        return decisions

    def number_of(self, instrument_id: int, lending: bool, *, create: bool = False) -> int:
        """The number of a book; -1 if there is none."""
        number = book_number(self._books.arenas.address, instrument_id, int(lending))
        is_new = number < 0 and create
        if is_new:
            number = self._books.ensure(instrument_id, lending=lending)
            self.created.append(instrument_id)
        self._grow()
        if is_new:  # what was sent before the last channel reset is not of it
            self.states[number, [k.S_VERIFIED, k.S_APPLIED]] = self.empty_until
            self.states[number, k.S_INCOMPLETE] = int(self.is_incomplete)
        return number

    def all_states(self) -> Numbers:
        """A row for every book that there is memory for, for kernels."""
        self._grow()
        return self.states

    def shown_number(self, instrument_id: int) -> int:
        """The number of the book to show of an instrument; -1 if it has none."""
        return self.number_of(instrument_id, self._books.shows_lending(instrument_id))

    def shown_books(self) -> tuple[Numbers, Numbers]:
        """The instruments that have a book, and the number of the one to show of each."""
        self._grow()
        headers = self._books.arenas.headers
        numbers = np.flatnonzero(headers["alive"] != 0)
        ids, is_lending = headers["instrument_id"][numbers], headers["lending"][numbers] != 0
        is_shown = ~is_lending
        for at in np.flatnonzero(is_lending).tolist():
            if self._books.shows_lending(int(ids[at])):
                is_shown[ids == ids[at]] = False
                is_shown[at] = True
        return ids[is_shown], numbers[is_shown]

    def _grow(self) -> None:
        """A row for every book that there is memory for: kernels use the rows by the numbers of books, unchecked."""
        missing = self._books.arenas.book_capacity - len(self.states)
        if missing > 0:
            self.states = np.concatenate([self.states, _new_states(missing)])

    def set_depth(self, instrument_id: int, depth: int) -> None:
        """264 determines the book type (9.1)."""
        self.number_of(instrument_id, lending=False, create=True)
        self._books.set_depth(instrument_id, depth)

    def set_depths(self, headers: Rows) -> None:
        """As headers of snapshots have them."""
        depth = headers.column("depth")
        for row in np.flatnonzero(depth != np.iinfo(np.int32).min).tolist():
            self.set_depth(int(headers.column("instrument_id")[row]), int(depth[row]))

    def has_stale(self) -> bool:
        return bool(self.states[:, k.S_STALE].any())

    def forget(self, instrument_id: int, lending: bool) -> None:
        """The instrument is deleted, and its book's number may be given to another."""
        number = self.number_of(instrument_id, lending)
        if number >= 0:
            self.states[number] = _new_states(1)[0]

    def mark_impossible(self, rows: Rows, sequence: Numbers, outcomes: Outcomes) -> Numbers:
        """The books of rows that were impossible are stale; returns the first such row of each."""
        failed = outcomes.failed
        first_rows: dict[int, int] = {}
        for row in failed.tolist():
            instrument_id = int(rows.column("instrument_id")[row])
            if instrument_id == NULL:
                continue
            number = self.number_of(instrument_id, bool(rows.column("venue")[row] == VENUE_LENDING))
            if number not in first_rows:
                first_rows[number] = row
                header, state = self._books.arenas.headers[number], self.states[number]
                state[k.S_STALE], state[k.S_INCOMPLETE] = outcomes.codes[row], 1
                state[k.S_RECEIVED], state[k.S_EXPECTED] = header["stale_received"], header["stale_expected"]
                state[k.S_APPLIED] = sequence[row] - 1  # a snapshot from there on can replace the book
        return np.array(sorted(first_rows.values()), np.int64)

    def mark_stale(self, instrument_ids: set[int], sequence: int, reason: int, *, is_for_all: bool) -> None:
        """These instruments, and all books that were changed at this sequence or later, are stale."""
        for instrument_id in instrument_ids:
            self.number_of(instrument_id, lending=False, create=True)
        self._grow()
        headers = self._books.arenas.headers
        states = self.states[: len(headers)]
        is_named = np.isin(headers["instrument_id"], np.array(sorted(instrument_ids), np.int64))
        chosen = (states[:, k.S_APPLIED] >= sequence) | ((headers["alive"] != 0) & (is_named | is_for_all))
        states[chosen, k.S_STALE], states[chosen, k.S_INCOMPLETE] = reason, 1
        states[chosen, k.S_APPLIED] = np.maximum(states[chosen, k.S_APPLIED], sequence)

    def is_known(self, number: int, rpt_seq: int) -> bool:
        """Whether a book is not stale, and its last update is this one."""
        state = self.states[number]
        return not state[k.S_STALE] and state[k.S_APPLIED] > k.UNVERIFIED_FROM_START and state[k.S_RPT_SEQ] == rpt_seq

    def examine(
        self, ids: Numbers, lending: NDArray[np.bool_], sequence: Numbers, latest_gap: int
    ) -> NDArray[np.uint8]:
        """Which snapshots their books need: NEEDED, NOT_NEEDED or TOO_OLD."""
        self._grow()
        found = np.empty(len(ids), np.uint8)
        columns = [np.ascontiguousarray(values, np.int64) for values in (ids, lending, sequence)]
        books, states = self._books.arenas.address, buffer_address(self.states)
        addresses = map(buffer_address, (*columns, found))
        k.examine_snapshots(books, states, len(ids), latest_gap, self.empty_until, *addresses)
        return found

    def set_recovered(self, number: int, rpt_seq: int, sequence: int) -> None:
        """A snapshot of this sequence has replaced the book."""
        state = self.states[number]
        if state[k.S_RPT_SEQ] != rpt_seq:
            state[k.S_INCOMPLETE] = 1
        state[k.S_RPT_SEQ], state[k.S_STALE] = rpt_seq, 0
        state[k.S_VERIFIED], state[k.S_APPLIED] = max(int(state[k.S_VERIFIED]), sequence), sequence

    def retry(self, number: int) -> None:
        """Missing updates have arrived: what waits may follow now."""
        if self.states[number, k.S_STALE] == k.RPT_SEQ_GAP:
            self.states[number, k.S_STALE] = 0

    def trust_of(self, number: int, gap: Gap | None) -> Trust:
        """`gap`: the first one after the sequence up to which the book is verified."""
        _, stale, _, _, _, received, expected, _ = self.states[number].tolist()
        if stale:
            return Trust(TrustLevel.STALE, str(Stale(stale, 0, received, expected)))
        return HEALTHY if gap is None else unverified(gap.reason)


def _new_states(count: int) -> Numbers:
    states = np.zeros((count, k.STATE_WORDS), np.int64)
    states[:, [k.S_VERIFIED, k.S_APPLIED, k.S_AMBIGUOUS]] = k.UNVERIFIED_FROM_START
    return states


NEW_STATE = _new_states(1)[0]  # of a book that does not exist
