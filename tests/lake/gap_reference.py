"""What became of each gap of a staged day, worked out in the slow and obvious way: one book after the other, with sets.

It knows neither the engine nor the state between runs; it reads the events themselves.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from lake.staged_day import Day

from umdf.market.families import NULL
from umdf.market.rows import Events, Rows

Place = tuple[int, int]  # rank of the epoch, sequence
CLEAR, NEITHER, DELETE, LENDING = ord("R"), ord("N"), ord("D"), ord("L")
FEW_UPDATES = 32  # an Empty Book may have been lost with as many


def lines_of(day: Day) -> list[dict[str, Any]]:
    """What happened to books, in the order of the stream."""
    found = []
    versions = [epoch["seq_version"] for epoch in day.epochs]

    def line(events: Events, rows: Rows, row: int, kind: str) -> dict[str, Any]:
        unit = rows.unit[row]
        sequence, rank = int(events.units.sequence[unit]), versions.index(int(events.units.seq_version[unit]))
        order = rank, sequence, 0, int(rows.msg_index[row]), int(rows.entry_index[row])
        about = {"order": order, "kind": kind, "sequence": sequence, "ts": int(events.units.ts_send[unit])}
        return about | {"id": int(rows.column("instrument_id")[row]), "rpt_seq": NULL}

    for events in day.incremental:
        mbo, definitions = events.rows("mbo"), events.rows("definition")
        for row in range(len(mbo)):
            empties = mbo.column("action")[row] == CLEAR and mbo.column("side")[row] == NEITHER
            whole = mbo.column("instrument_id")[row] == NULL
            kind = "reset" if whole else "empty" if empties else "row"
            assert mbo.column("venue")[row] != LENDING
            found.append(line(events, mbo, row, kind) | {"rpt_seq": int(mbo.column("rpt_seq")[row])})
        for row in np.flatnonzero(definitions.column("action") == DELETE).tolist():
            found.append(line(events, definitions, row, "delete"))
    for every in day.snapshots:
        for row in np.flatnonzero(every.is_complete).tolist():
            last, version = int(every.last_sequence[row]), int(every.last_epoch[row])
            rank, sent = 0 if version == NULL else versions.index(version), every.events.units.ts_send
            about = {"id": int(every.instrument_id[row]), "rpt_seq": int(every.header.column("last_rpt_seq")[row])}
            about |= {"kind": "snapshot", "sequence": last, "ts": int(sent[every.header.unit[row]])}
            found.append(about | {"order": (rank, last, 1, len(found), 0)})
    return sorted(found, key=lambda line: line["order"])


class Reference:
    """One book, as if somebody kept it by hand."""

    def __init__(self, day: Day) -> None:
        self.versions = [epoch["seq_version"] for epoch in day.epochs]
        self.begun, self.last = ([epoch[name] for epoch in day.epochs] for name in ("ts_recv", "last"))
        self.gaps = [[(gap.first, gap.last) for gap in day.gaps if gap.epoch == one] for one in self.versions]
        self.affected, self.recovered = set[Place](), dict[Place, int]()
        self.unanswered = set[Place]()
        self._new_book(0)

    def _new_book(self, rank: int) -> None:
        self.rank, self.rpt_seq, self.is_seen, self.is_stale = rank, 0, False, False
        self.is_deleted, self.is_ambiguous, self.passed = False, False, 0
        self.unverified, self.stale_for = set[Place](), set[Place]()

    def _recover(self, gaps: set[Place], ts: int) -> None:
        for gap in gaps:
            self.recovered[gap] = max(ts, self.recovered.get(gap, ts))

    def _to_come(self) -> set[Place]:
        return {(self.rank, first) for first, _ in self.gaps[self.rank][self.passed :]}

    def finish(self, rank: int) -> set[Place]:
        """Go on to an epoch; what was unanswered in the one that is over."""
        while self.rank < rank:
            over = (self.unverified | self._to_come() if self.is_seen else set()) | self.stale_for
            self._recover(over, self.begun[self.rank + 1])
            self._new_book(self.rank + 1)
        return (self.unverified | self._to_come() if self.is_seen else set()) | self.stale_for

    def take(self, line: dict[str, Any]) -> None:
        self.finish(line["order"][0])
        own, number = self.gaps[self.rank], line["sequence"]
        if line["kind"] == "snapshot":
            self._snapshot(line, [gap for gap in own[self.passed :] if gap[1] <= number])
            return
        if line["kind"] in ("reset", "delete") and not self.is_seen:
            return
        while self.passed < len(own) and own[self.passed][1] < number:
            self.unverified.add((self.rank, own[self.passed][0]))
            self.passed += 1
        rpt_seq, known = line["rpt_seq"], self.rpt_seq
        if line["kind"] != "row":
            self._recover((self.unverified if self.is_seen else set()) | self.stale_for, line["ts"])
            self.unverified, self.stale_for, self.rpt_seq, self.is_stale = set(), set(), NULL, False
            self.is_ambiguous = False
        elif rpt_seq != NULL and (rpt_seq > known or self.unverified):
            follows = rpt_seq in (1, known + 1) or not self.unverified if known == NULL else rpt_seq == known + 1
            is_proof = not (self.unverified and (self.is_ambiguous or 0 < known <= FEW_UPDATES))
            if not follows:
                self.affected |= self.unverified
                self.stale_for |= self.unverified
                self.is_stale = True
            elif self.is_seen and is_proof:
                self._recover(self.unverified, line["ts"])
            self.is_ambiguous, self.rpt_seq = follows and not is_proof, rpt_seq
            self.unverified = self.unverified if self.is_ambiguous else set()
        self.is_seen = line["kind"] != "delete"

    def _snapshot(self, line: dict[str, Any], covered: list[Place]) -> None:
        said, known, number = line["rpt_seq"], self.rpt_seq, line["sequence"]
        new = self.unverified | {(self.rank, first) for first, _ in covered}
        is_unknown = not self.is_seen and known == 0
        same = (said == known or (is_unknown and said == NULL)) and not self.is_stale
        if not (same and not (known == NULL and new)):
            older = NULL not in (known, said) and said < known and not new and not self.is_stale and not is_unknown
            if number > self.last[self.rank] or older:
                return
        missed = said > max(known, 0)
        if missed:
            halves = [gap for gap in self.gaps[self.rank] if gap[0] <= number < gap[1]]
            self.affected |= new | {(self.rank, first) for first, _ in halves}
        if missed or self.is_seen:
            self._recover(new, line["ts"])
        self._recover(self.stale_for, line["ts"])
        self.unverified, self.stale_for, self.passed = set(), set(), self.passed + len(covered)
        self.is_ambiguous = False
        if not same or (known == NULL and new):
            self.rpt_seq, self.is_seen, self.is_stale = said if said != NULL or same else known, True, False


def reference_gaps(day: Day) -> dict[Place, tuple[list[int], int, int | None]]:
    """Of each gap the instruments that it affected, how many have no answer, and when the last one had one."""
    lines = lines_of(day)
    ids = {line["id"] for line in lines if line["kind"] in ("row", "empty", "snapshot")}
    affected, recovered, still = defaultdict[Place, list[int]](list), dict[Place, int](), defaultdict[Place, int](int)
    for number in sorted(ids):
        book = Reference(day)
        for line in lines:
            if line["id"] == number or line["kind"] == "reset":
                book.take(line)
        for gap in book.finish(len(book.versions) - 1):
            still[gap] += 1
        for gap in book.affected:
            affected[gap].append(number)
        for gap, ts in book.recovered.items():
            recovered[gap] = max(ts, recovered.get(gap, ts))
    return {gap: (affected[gap], still[gap], recovered.get(gap)) for gap in {*affected, *recovered, *still}}
