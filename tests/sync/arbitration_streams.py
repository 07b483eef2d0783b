"""Seeded streams of two lines with every fault that arbitration has to survive, and how to feed them."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
from sync.arbitration_lines import DATA, HEARTBEAT, RECOVERED, RESET, Unit
from sync.arbitration_reference import ReferenceArbiter

from umdf.sync.arbitration.arbiter import ArbitrationCounts, ArbitrationResult, LineArbiter, QuarantineReason, StepKind
from umdf.sync.raw_units import RawUnits

MS = 1_000_000
COUNT_NAMES = tuple(ArbitrationCounts.__dataclass_fields__)


@dataclass
class Sender:
    """One line's site: what it numbers, and how its packets arrive."""

    line: int
    epoch: int  # sequence version
    name: str  # of the numbering: equal on both lines unless one restarted alone
    number: int
    loss: float
    jitter_ns: int
    arrivals: list[Unit] = field(default_factory=list)
    is_dead: bool = False


@dataclass
class Stream:
    units: list[Unit]
    misnumbered: set[tuple[int, bytes]]  # numbers that damage gave to contents, close to the right one
    versions: dict[str, int]  # of numberings


def make_stream(seed: int, has_versions: bool, count: int = 400) -> Stream:
    random = Random(seed)
    keys_known = random.random() < 0.8
    start = random.choice([1, 1, 2, 70, 900, 5_000, 100_000])
    requests, requested = list[Unit](), random.choice([0, 0.1])
    damage, repeat = random.choice([0, 0.01, 0.05]), random.choice([0, 0.03])
    senders = [
        Sender(line, 300, "a", start, random.choice([0, 0.02, 0.2]), random.choice([0, 1, 4, 30]) * MS)
        for line in (0, 1)
    ]
    senders[1].is_dead = random.random() < 0.2
    stream, now, restarts = Stream([], set(), {"a": 300}), 0, 0

    def send(sender: Sender, kind: int) -> None:
        if sender.is_dead or random.random() < sender.loss:
            return
        content = f"{sender.name}:{sender.number}:{kind}:{now if kind == HEARTBEAT else ''}".encode()
        key = zlib.crc32(content) + 1 if keys_known else 0
        epoch = sender.epoch if has_versions else 0
        sequence, following = (sender.number, 0) if kind == DATA else (0, sender.number)
        if random.random() < damage and kind != RESET:
            wrong = random.choice(["number", "small"] + ["epoch"] * has_versions)
            if wrong == "epoch":
                epoch = random.randrange(1 << 10, 1 << 16)
            number = random.randrange(1 << 24, 1 << 32) if wrong == "number" else sender.number
            number = max(1, number + random.randint(-50, 50)) if wrong == "small" else number
            sequence, following = (number, 0) if kind == DATA else (0, number)
            if wrong == "small":
                stream.misnumbered.add((number, content))
        for _ in range(1 + (random.random() < repeat)):
            received = now + random.randint(0, sender.jitter_ns)
            unit = Unit(sender.line, kind, epoch, sequence, following, received, key, content)
            sender.arrivals.append(unit)
        if kind == DATA and random.random() < requested:
            late = unit._replace(line=2, kind=RECOVERED, ts_recv=now + random.randint(20, 2_000) * MS)
            requests.append(late)

    def restart(sender: Sender, name: str, is_reset_lost: bool) -> None:
        sender.name, sender.epoch, sender.number = name, stream.versions.setdefault(name, 301 + restarts), 1
        if not has_versions and not is_reset_lost:
            send(sender, RESET)

    for _ in range(count):
        now += random.choice([0, 0, MS // 10, MS, MS, 5 * MS, 25 * MS] + [40_000 * MS] * (random.random() < 0.02))
        what = random.random()
        if what < 0.01:
            restarts += 1
            alone, is_reset_lost = random.random() < 0.5, random.random() < 0.4
            chosen = [random.choice(senders)] if alone else senders
            for sender in chosen:
                restart(sender, f"n{restarts}", is_reset_lost)
                now += random.choice([0, MS])
        elif what < 0.013:
            random.choice(senders).is_dead ^= True
        elif what < 0.018:
            skipped = random.choice([30, 999, 1_500, 3_000])
            for sender in senders:
                sender.number += skipped
        elif what < 0.1 and has_versions:
            for sender in senders:
                send(sender, HEARTBEAT)
        else:
            is_lost = random.random() < 0.02
            for sender in senders:
                if not is_lost:
                    send(sender, DATA)
                sender.number += 1
    found = [*requests, *(unit for sender in senders for unit in sender.arrivals)]
    stream.units = sorted(found, key=lambda unit: unit.ts_recv)
    return stream


def raw_units(units: list[Unit]) -> RawUnits:
    ends = np.cumsum([0, *(len(unit.content) for unit in units)]).astype(np.int64)
    columns = {
        name: np.array([getattr(unit, name) for unit in units], np.int64)
        for name in ("sequence", "epoch", "ts_recv", "next_sequence", "content_key")
    }
    return RawUnits(
        buffer=np.frombuffer(b"".join(unit.content for unit in units), np.uint8),
        start=ends[:-1].copy(),
        end=ends[1:].copy(),
        msg_index=np.zeros(len(units), np.uint16),
        kind=np.array([unit.kind for unit in units], np.uint8),
        line=np.array([unit.line for unit in units], np.uint16),
        **columns,
    )


@dataclass
class Outcome:
    """Everything that an arbiter said: kernel and reference must say the same."""

    events: list[tuple[Any, ...]] = field(default_factory=list)
    quarantined: list[tuple[Any, ...]] = field(default_factory=list)
    counts: dict[tuple[int, str], int] = field(default_factory=dict)
    release_times: list[int] = field(default_factory=list)  # of units and steps: of the kernel alone

    def add(self, result: ArbitrationResult) -> None:
        found, steps = result.units, list(result.steps)
        assert [step.before_row for step in steps] == sorted(step.before_row for step in steps)
        for row in range(len(found) + 1):
            while steps and steps[0].before_row == row:
                step = steps.pop(0)
                self.release_times.append(step.release_ns)
                self.events.append(("step", StepKind(step.kind).name, step.epoch, step.first, step.last, step.ts_recv))
            if row < len(found):
                self.release_times.append(int(result.release_ns[row]))
                content = found.buffer[found.start[row] : found.end[row]].tobytes()
                values = found.epoch, found.sequence, found.line, found.ts_recv, result.is_late
                self.events.append(("unit", *(column[row].item() for column in values), content))
        for unit in result.quarantined:
            reason = QuarantineReason(unit.reason).name
            self.quarantined.append((unit.line, unit.sequence, unit.epoch, unit.ts_recv, reason))
        for line, counts in result.line_counts.items():
            for name in COUNT_NAMES:
                if getattr(counts, name):
                    self.counts[line, name] = self.counts.get((line, name), 0) + getattr(counts, name)
        for name in COUNT_NAMES:
            of_lines = sum(getattr(counts, name) for counts in result.line_counts.values())
            assert of_lines == getattr(result.counts, name)


def settings_of(random: Random, has_versions: bool) -> dict[str, Any]:
    return {
        "has_versions": has_versions,
        "max_held_bytes": random.choice([16 << 20, 3_000]),
        "max_aside_bytes": random.choice([4 << 20, 2_000]),
        "max_open_gaps": random.choice([65_536, 3]),
    }


def run_kernel(units: list[Unit], size: int, settings: dict[str, Any], save_at: int | None = None) -> Outcome:
    arbiter, outcome = LineArbiter(**settings), Outcome()
    for first in range(0, len(units), size):
        part = units[first : first + size]
        outcome.add(arbiter.arbitrate(raw_units(part), part[-1].ts_recv))
        if save_at is not None and first <= save_at < first + size:
            arbiter = LineArbiter.from_state(arbiter.to_state())
    outcome.add(arbiter.finish())
    return outcome


def run_reference(units: list[Unit], settings: dict[str, Any]) -> Outcome:
    reference = ReferenceArbiter(wait_ns=20 * MS, timeout_ns=30_000 * MS, **settings)
    for unit in units:
        reference.add(unit)
    reference.finish()
    quarantined = [event[1:] for event in reference.events if event[0] == "quarantined"]
    events = [event for event in reference.events if event[0] != "quarantined"]
    return Outcome(events, quarantined, dict(reference.counts))
