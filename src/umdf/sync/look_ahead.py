"""Looks ahead of a requested moment: what comes after it may show that losses before it did not concern a book.

Invariant: nothing of the later units is applied. A unit counts here only if it was sent after all that are
numbered before it, and if its number came with one content: one whose number is damaged may be an earlier unit.
"""

from __future__ import annotations

import numpy as np

from umdf.book.memory_layout_kernel import VENUE_LENDING
from umdf.market.families import NULL
from umdf.market.rows import Events
from umdf.sync import update_gate_kernel as k
from umdf.sync.rpt_seq_kernel import SHORT_HISTORY
from umdf.sync.trust import BookTrust

BookKey = tuple[int, bool]  # instrument, whether it is the lending book


class LookAhead:
    """Of one epoch of a channel."""

    def __init__(self, trust: BookTrust) -> None:
        self._trust = trust
        self._seen = set[BookKey]()  # books of which a later update was seen
        self._is_over = False  # a channel reset came: RptSeq starts again
        self._newest_ns = NULL  # sending time
        self._verified: dict[int, list[tuple[BookKey, int]]] = {}  # by the unit that did: until when it was before

    def add(self, events: Events, epoch: int, sequence: int, ts_send: int) -> None:
        """Later units. The first update of a book, if it follows by RptSeq, shows that the book is right as of this
        sequence, after which this was sent."""
        rows, units = events.rows("mbo"), events.units
        newest = np.maximum.accumulate(np.append(max(ts_send, self._newest_ns), units.ts_send))
        self._newest_ns, is_usable = int(newest[-1]), (units.seq_version == epoch) & (units.ts_send >= newest[:-1])
        ids, lending, rpt_seq = (
            rows.column("instrument_id"),
            rows.column("venue") == VENUE_LENDING,
            rows.column("rpt_seq"),
        )
        end = len(ids)
        if self._is_over or not end:
            return
        if (ids == NULL).any():
            self._is_over, end = True, int(np.argmax(ids == NULL))
        for row in np.unique(ids[:end] << 1 | lending[:end], return_index=True)[1].tolist():
            book, unit = (int(ids[row]), bool(lending[row])), int(rows.unit[row])
            number = self._trust.number_of(*book)
            if number < 0 or book in self._seen:
                continue
            self._seen.add(book)
            state = self._trust.states[number]
            known, verified = int(state[k.S_RPT_SEQ]), int(state[k.S_VERIFIED])
            is_next = known > SHORT_HISTORY and rpt_seq[row] == known + 1 and state[k.S_AMBIGUOUS] <= verified
            if is_next and is_usable[unit] and not state[k.S_STALE]:
                state[k.S_VERIFIED] = max(verified, sequence)
                self._verified.setdefault(int(units.sequence[unit]), []).append((book, verified))

    def contradict(self, first: int, last: int) -> None:
        """Numbers after the moment that are missing, or came with two contents: what they showed does not count."""
        for sequence in [number for number in self._verified if first <= number <= last]:
            for book, verified in self._verified.pop(sequence):
                self._trust.states[self._trust.number_of(*book), k.S_VERIFIED] = verified
