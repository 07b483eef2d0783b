"""The rules of arbitration in plain Python, one unit at a time: what the kernel is compared with.

Slow and obvious: dictionaries and lists, every question answered by looking at everything. Its result is a list of
events: ("unit", …), ("step", …) and ("quarantined", …), in order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from sync.arbitration_lines import (
    DATA,
    IN_A_ROW,
    LATE_NS,
    MAX_REVEALS,
    NEAR,
    RECOVERED,
    REMEMBERED,
    RESET,
    RESTART_DISTANCE,
    Held,
    Line,
    Unit,
)


def is_near(one: int, other: int) -> bool:
    return abs(one - other) <= NEAR


def is_same(one: Unit, other: Unit) -> bool:
    return one.epoch == other.epoch and one.number == other.number and not differ(one.content_key, other.content_key)


def differ(one: int, other: int) -> bool:
    return one != 0 and other != 0 and one != other


@dataclass(eq=False)
class ReferenceArbiter:
    wait_ns: int
    timeout_ns: int
    has_versions: bool
    max_held_bytes: int = 16 << 20
    max_aside_bytes: int = 4 << 20
    max_open_gaps: int = 65_536
    events: list[tuple[Any, ...]] = field(default_factory=list)
    counts: Counter[tuple[int, str]] = field(default_factory=Counter)
    lines: dict[int, Line] = field(default_factory=dict)
    clock: int = -(2**63)
    epoch: int | None = None
    expected: int = 0
    first: int = 0
    expired: int = 0
    newest: int = -1
    past: dict[int, int] = field(default_factory=dict)
    delivered: dict[int, int] = field(default_factory=dict)  # content keys
    contradicted: set[int] = field(default_factory=set)
    gaps: list[tuple[set[int], int, int]] = field(default_factory=list)  # what is missing; first, last as reported
    held: dict[int, Held] = field(default_factory=dict)
    reveals: list[tuple[int, int]] = field(default_factory=list)
    aside: list[tuple[int | None, Unit]] = field(default_factory=list)  # None: a candidate

    # Time

    def add(self, unit: Unit) -> None:
        unit = unit if self.has_versions else unit._replace(epoch=0)
        self.clock = max(self.clock, unit.ts_recv)
        self.report_holes(self.clock)
        line = self.lines.setdefault(unit.line, Line())
        if unit.kind == RECOVERED:
            self.fill_requested(unit._replace(kind=DATA))
            return
        line.seen = self.clock
        ahead = unit.number - line.position
        is_soon = line.before and self.clock - line.restarted_at <= LATE_NS and unit.kind == DATA
        if not self.has_versions and is_soon and ahead > RESTART_DISTANCE and abs(unit.number - line.before) < ahead:
            self.counts[unit.line, "late"] += 1  # of the numbering before
            return
        if unit.kind == RESET:
            self.add_reset(unit, line)
            return
        if self.is_far_copy(unit, line):
            self.counts[unit.line, "duplicates"] += 1
            return
        epoch = self.plausible_epoch(unit, line)
        if epoch is not None:
            self.quarantine(line, "CONTINUED")
            self.accept(unit, epoch)
            return
        confirmed = [other for key, other in self.aside if key is None and self.confirms(unit, other)]
        if not confirmed:
            self.quarantine(line, "UNCONFIRMED")
            self.keep_aside(None, unit)
            return
        if self.epoch is None:
            self.start(unit.epoch, min(other.first for other in (*confirmed, unit)))
        for other in confirmed:
            if self.lines[other.line].candidate is other:
                self.forget_candidate(self.lines[other.line])
                self.accept(other, self.confirmed_epoch(other))
        self.quarantine(line, "UNCONFIRMED")
        self.accept(unit, self.confirmed_epoch(unit))

    def is_far_copy(self, unit: Unit, line: Line) -> bool:
        is_current = line.epoch in (None, self.epoch) and (not self.has_versions or unit.epoch == self.epoch)
        is_copy = unit.kind == DATA and unit.content_key not in (0, None)
        is_copy = is_copy and self.delivered.get(unit.number, 0) == unit.content_key
        is_at_line = line.epoch is not None and is_near(unit.number, line.position)
        is_far = not is_at_line and not is_near(unit.number, self.expected - 1)
        return self.epoch is not None and is_current and is_copy and is_far

    def fill_requested(self, unit: Unit) -> None:
        is_current = not self.has_versions or unit.epoch == self.epoch
        if is_current and any(unit.number in missing for missing, _, _ in self.gaps):
            self.apply(unit)
        else:
            self.counts[unit.line, "duplicates"] += 1

    def finish(self) -> None:
        waiting = [unit for key, unit in self.aside if key is None]
        if is_sole := self.epoch is None and len(waiting) == 1:
            self.start(waiting[0].epoch, waiting[0].first)
        for unit in [] if self.epoch is None else waiting:
            if is_sole or any(unit.line != other.line and is_same(unit, other) for other in waiting):
                self.forget_candidate(self.lines[unit.line])
                self.accept(unit, self.confirmed_epoch(unit))
        self.report_holes(None)
        for line in self.lines.values():
            self.quarantine(line, "ENDED")
        self.aside.clear()

    # Lines

    def plausible_epoch(self, unit: Unit, line: Line) -> int | None:
        near_channel = self.epoch is not None and is_near(unit.number, self.expected - 1)
        if self.has_versions:
            if near_channel and unit.epoch == self.epoch:
                return unit.epoch
            return unit.epoch if self.is_near_line(unit.epoch, unit.number) else None
        if line.epoch is not None and is_near(unit.number, line.position):
            number = unit.number
            restarts = number <= NEAR and number <= line.position - RESTART_DISTANCE and line.epoch == self.epoch
            if not (restarts and differ(self.delivered.get(number, 0), unit.content_key)):
                return line.epoch
        elif near_channel:
            return self.epoch
        own = -1 if line.epoch is None else line.epoch
        return self.newest if self.newest > own and self.is_near_line(self.newest, unit.number) else None

    def is_near_line(self, epoch: int, number: int) -> bool:
        return any(line.epoch == epoch and is_near(number, line.position) for line in self.lines.values())

    def confirms(self, unit: Unit, other: Unit) -> bool:
        is_copy = is_same(unit, other) and (unit.line == other.line or self.epoch is not None)
        missing = set[int]().union(*(gap[0] for gap in self.gaps))
        if not self.has_versions and {unit.number, other.number} <= missing and unit.number != other.number + 1:
            return False
        return not is_copy and unit.epoch == other.epoch and is_near(unit.number, other.number)

    def confirmed_epoch(self, unit: Unit) -> int:
        assert self.epoch is not None
        if self.has_versions:
            return unit.epoch
        line = self.lines[unit.line]
        if line.epoch is not None and unit.number > line.position:
            return line.epoch
        if line.epoch is None:
            if is_near(unit.number, self.expected - 1) or any(unit.number in missing for missing, _, _ in self.gaps):
                return self.epoch
            if unit.number >= self.expected and not self.is_continued_by_others(line):
                return self.epoch
        return self.restarted_epoch(line, unit.number)

    def restarted_epoch(self, line: Line, number: int) -> int:
        own = -1 if line.epoch is None else line.epoch
        if not (self.newest > own and self.is_near_line(self.newest, number)):
            self.newest += 1
        return self.newest

    def is_continued_by_others(self, own: Line) -> bool:
        others = (line for line in self.lines.values() if line is not own and not line.is_misaligned)
        return any(line.epoch == self.epoch and self.clock - line.seen <= self.timeout_ns for line in others)

    def add_reset(self, unit: Unit, line: Line) -> None:
        is_repeated = unit.content_key != 0 and unit.content_key == line.reset_key
        line.reset_key = line.reset_key if self.has_versions else unit.content_key
        if self.has_versions or is_repeated:
            self.counts[unit.line, "duplicates"] += 1
            return
        epoch = 0 if self.epoch is None else self.restarted_epoch(line, unit.number)
        if self.epoch is None:
            self.start(0, unit.first)
        self.quarantine(line, "CONTINUED")
        self.accept(unit, epoch)

    def accept(self, unit: Unit, epoch: int) -> None:
        line = self.lines[unit.line]
        if line.epoch == epoch == self.epoch and line.is_misaligned and not self.is_continued_by_others(line):
            line.is_misaligned, line.conflicts = False, 0
            if not self.has_versions:
                epoch = self.restarted_epoch(line, unit.number)
        if line.epoch != epoch:
            if line.epoch is not None:
                line.before, line.restarted_at = line.position, self.clock
            line.epoch, line.first, line.conflicts, line.agreements, line.is_misaligned = epoch, 1, 0, 0, False
        line.position = unit.number
        if unit.kind == RESET:
            line.first = unit.number + 1
        if epoch != self.epoch:
            if self.is_continued_by_others(line):
                if unit.kind != RESET:
                    self.counts[unit.line, "set_aside"] += 1
                    self.keep_aside(epoch, unit)
                return
            self.switch(epoch, line.first)
        if not line.is_misaligned:
            self.apply(unit)
            return
        held = self.held.get(unit.number)
        known = held.unit.content_key if held else self.delivered.get(unit.number, 0)
        if unit.kind != DATA or known == 0 or unit.content_key == 0 or known != unit.content_key:
            line.agreements = 0 if unit.kind == DATA and differ(known, unit.content_key) else line.agreements
            self.counts[unit.line, "set_aside"] += 1
            return
        line.agreements += 1
        self.counts[unit.line, "duplicates"] += 1
        if line.agreements == IN_A_ROW:
            line.is_misaligned, line.conflicts = False, 0

    def quarantine(self, line: Line, reason: str) -> None:
        if (unit := line.candidate) is not None:
            self.forget_candidate(line)
            self.report_quarantined(unit, reason)

    def report_quarantined(self, unit: Unit, reason: str) -> None:
        self.events.append(("quarantined", unit.line, unit.number, unit.epoch, unit.ts_recv, reason))
        self.counts[unit.line, "quarantined"] += 1

    def forget_candidate(self, line: Line) -> None:
        self.aside = [entry for entry in self.aside if entry[0] is not None or entry[1] is not line.candidate]
        line.candidate = None

    def keep_aside(self, epoch: int | None, unit: Unit) -> None:
        while self.aside and sum(other.cost for _, other in self.aside) + unit.cost > self.max_aside_bytes:
            if self.aside[0][0] is None:
                self.quarantine(self.lines[self.aside[0][1].line], "NO_ROOM")
            else:
                self.aside.pop(0)
        if unit.cost <= self.max_aside_bytes:
            self.aside.append((epoch, unit))
            if epoch is None:
                self.lines[unit.line].candidate = unit
        elif epoch is None:
            self.report_quarantined(unit, "NO_ROOM")

    # The channel

    def step(self, kind: str, first: int, last: int, ts: int) -> None:
        self.events.append(("step", kind, self.epoch, first, last, ts))

    def start(self, epoch: int, first: int) -> None:
        self.epoch, self.expected, self.first, self.newest = epoch, first, first, 0
        self.step("EPOCH", first, first, self.clock)
        if first > 1:
            self.step("JOIN", first, first, self.clock)

    def switch(self, epoch: int, first: int) -> None:
        self.report_holes(None)
        assert self.epoch is not None
        self.past[self.epoch] = self.expected
        self.epoch, self.expired = epoch, 0
        self.expected = self.first = self.past.get(epoch, first)
        for known in (self.gaps, self.delivered, self.contradicted):
            known.clear()
        self.step("EPOCH", self.first, self.first, self.clock)
        for line in self.lines.values():
            line.conflicts, line.agreements, line.is_misaligned = 0, 0, False
        for key, unit in [entry for entry in self.aside if entry[0] == epoch]:
            self.aside.remove((key, unit))
            self.apply(unit)

    def deliver(self, unit: Unit, is_late: bool) -> None:
        self.events.append(("unit", self.epoch, unit.number, unit.line, unit.ts_recv, is_late, unit.content))
        if unit.number > self.expected - REMEMBERED:
            self.delivered.setdefault(unit.number, unit.content_key)
            self.delivered.pop(unit.number - REMEMBERED, None)

    def apply(self, unit: Unit) -> None:
        line, number = self.lines[unit.line], unit.number
        if unit.kind != DATA:
            if number >= self.expected and all(number > known for known, _ in self.reveals):
                since = self.clock
                if len(self.reveals) == MAX_REVEALS:
                    since = self.reveals.pop()[1]
                self.reveals.append((number, since))
        elif number >= self.expected and number in self.held:
            held = self.held[number]
            if self.agrees(line, held.unit.content_key, unit):
                self.counts[unit.line, "duplicates"] += 1
            else:
                self.counts[unit.line, "conflicts"] += 1
                if not held.is_contradicted:
                    held.is_contradicted = True
                    held.copy = unit if self.held_bytes() + unit.cost <= self.max_held_bytes else None
        elif number >= self.expected:
            while number > self.expected and self.held_bytes() + unit.cost > self.max_held_bytes:
                self.report_hole(number - 1)
            self.held[number] = Held(unit, self.clock)
            self.deliver_held()
        elif any(number in missing for missing, _, _ in self.gaps):
            self.counts[unit.line, "late"] += 1
            self.deliver(unit, True)
            self.fill(number, unit.ts_recv)
        elif number in self.delivered:
            if self.agrees(line, self.delivered[number], unit):
                self.counts[unit.line, "duplicates"] += 1
            else:
                self.counts[unit.line, "conflicts"] += 1
                self.report_conflict(unit)
        else:
            is_late = number < self.first or number <= self.expired
            self.counts[unit.line, "late" if is_late else "duplicates"] += 1

    def agrees(self, line: Line, known: int, unit: Unit) -> bool:
        if differ(known, unit.content_key):
            line.conflicts += 1
            if line.conflicts >= IN_A_ROW:
                line.is_misaligned, line.agreements = True, 0
            return False
        if known != 0 and unit.content_key != 0:
            line.conflicts = 0
        return True

    def report_conflict(self, unit: Unit) -> None:
        if unit.number not in self.contradicted:
            self.contradicted.add(unit.number)
            self.step("GAP", unit.number, unit.number, unit.ts_recv)
            self.deliver(unit, True)

    # Holes and gaps

    def held_bytes(self) -> int:
        copies = [held.copy for held in self.held.values() if held.copy]
        return sum(unit.cost for unit in (*copies, *(held.unit for held in self.held.values())))

    def deliver_held(self) -> None:
        while (held := self.held.pop(self.expected, None)) is not None:
            self.deliver(held.unit, False)
            if held.copy is not None:
                self.report_conflict(held.copy)
            elif held.is_contradicted:
                self.contradicted.add(held.unit.number)
                self.step("GAP", held.unit.number, held.unit.number, held.unit.ts_recv)
            self.expected += 1
        self.reveals = [reveal for reveal in self.reveals if reveal[0] >= self.expected]

    def hole_since(self) -> int | None:
        since = [held.arrival for held in self.held.values()] + [ts for _, ts in self.reveals]
        return min(since, default=None)

    def report_holes(self, now: int | None) -> None:
        while (since := self.hole_since()) is not None and (now is None or since + self.wait_ns < now):
            self.report_hole(None)

    def report_hole(self, limit: int | None) -> None:
        since = self.hole_since()
        ends = [] if limit is None else [limit]
        ends += [min(self.held) - 1] if self.held else []
        if since is not None and all(held.arrival > since for held in self.held.values()):
            ends.append(self.reveals[0][0])
        first, last = self.expected, min(ends)
        self.step("GAP", first, last, self.clock if since is None else min(since, self.clock))
        self.gaps.append((set(range(first, last + 1)), first, last))
        self.expire()
        self.expected = last + 1
        self.deliver_held()

    def fill(self, number: int, ts: int) -> None:
        missing, first, last = next(gap for gap in self.gaps if number in gap[0])
        missing.remove(number)
        self.expire()
        if not missing and first > self.expired:
            self.step("GAP_FILLED", first, last, ts)

    def expire(self) -> None:
        """If there are too many intervals of missing numbers, the oldest expires."""
        missing = sorted(number for gap in self.gaps for number in gap[0])
        firsts = [gap[1] for gap in self.gaps]
        starts = [n for at, n in enumerate(missing) if at == 0 or missing[at - 1] != n - 1 or n in firsts]
        if len(starts) > self.max_open_gaps:
            expired = [number for number in missing if number < starts[1]]
            self.expired = max(expired)
            for gap in self.gaps:
                gap[0].difference_update(expired)
        self.gaps[:] = [gap for gap in self.gaps if gap[0]]
