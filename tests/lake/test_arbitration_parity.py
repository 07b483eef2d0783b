"""The lake and the arbitration of live lines decide the same about the same packets: which epochs there are, which
sequences are used, and which are gaps.

The lake judges captures in parallel spans and in any order (umdf.lake.tasks.gather), the arbiter one packet after the
other (umdf.sync.arbitration): two implementations of the same rules, compared on random streams of two lines.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
import pytest

from umdf.lake.plan.planner import Planner
from umdf.lake.plan.segments import StreamLine
from umdf.lake.runtime.spark_tasks import TaskAttempt
from umdf.lake.tasks import survey
from umdf.lake.tasks.flow_packets import SplitSource
from umdf.lake.tasks.gather import OVERLAP, Span, gather_span
from umdf.lake.tasks.protocols import SbeProtocol
from umdf.sync.arbitration.arbiter import LineArbiter, StepKind
from umdf.sync.raw_units import content_keys, data_units
from umdf.transport.pcap_writer import PcapWriter

CHANNEL, NOON_NS, MS = 72, 1_794_574_800 * 10**9, 10**6
GROUPS = [("224.0.20.72", 20_001), ("224.0.20.73", 20_001)]
LINES = {group: StreamLine("sbe", "incremental", CHANNEL, line) for line, group in enumerate(GROUPS)}
# After the packet header: a message of a template that this schema does not have, with 8 bytes of content.
MESSAGE = struct.Struct("<HHHHHHq")
Decisions = tuple[list[int], set[tuple[int, int]], set[tuple[int, int]]]  # epochs; epoch and number of used and missing


@dataclass
class Line:
    epoch: int = 7
    offset: int = 0  # of its numbers, from those of the exchange
    packets: list[tuple[int, int, int, bytes]] = field(default_factory=list)  # ts_recv, epoch, number, payload


def payload(epoch: int, number: int, sent: int, content: int) -> bytes:
    header = struct.pack("<BBHIQ", CHANNEL, 0, epoch, number, sent)
    return header + MESSAGE.pack(MESSAGE.size, 0xEB50, 8, 9_999, 2, 0, content)


def make_lines(seed: int, count: int = 600) -> list[Line]:
    """Losses on one line and on both, repeats, small delays, restarts of both lines or of one, other contents."""
    random = Random(seed)
    lines = [Line(), Line()]
    losses = [random.choice([0, 0.02, 0.2]) for _ in lines]
    jitter, contradiction = random.choice([0, 1, 4]) * MS, random.choice([0, 0, 0.01])
    start, now = random.choice([1, 1, 5_000]), NOON_NS
    for line in lines:
        line.offset = 1 - start
    restarts = {random.randrange(150, count - 150): random.choice(["both", "alone"])} if random.random() < 0.7 else {}
    for number in range(1, count + 1):
        now += random.choice([MS, 5 * MS, 15 * MS])  # a restart is seen as one that the other line lacks after a second
        if kind := restarts.get(number):
            for line in lines if kind == "both" else [random.choice(lines)]:
                line.epoch, line.offset = 8, number - 1
            now += 2_000 * MS
        is_lost = random.random() < 0.02
        for line, loss in zip(lines, losses, strict=True):
            if is_lost or random.random() < loss:
                continue
            content = number if random.random() >= contradiction else -number
            sent = payload(line.epoch, number - line.offset, now, content)
            for _ in range(1 + (random.random() < 0.02)):
                received = now + 50_000 + random.randint(0, jitter)
                line.packets.append((received, line.epoch, number - line.offset, sent))
    for line in lines:
        line.packets.sort(key=lambda packet: packet[0])
    return lines


def decide_live(lines: list[Line]) -> Decisions:
    packets = sorted(
        (ts, at, number, epoch, content) for at, line in enumerate(lines) for ts, epoch, number, content in line.packets
    )
    ends = np.cumsum([0, *(len(each[4]) for each in packets)])
    buffer = np.frombuffer(b"".join(each[4] for each in packets), np.uint8)
    ts, line, number, epoch = (np.array([each[at] for each in packets], np.int64) for at in range(4))
    columns = number, epoch, ts, np.zeros(len(packets), np.uint16), line.astype(np.uint16)
    units = data_units(buffer, ends[:-1].copy(), ends[1:].copy(), *columns)
    units.content_key[:] = content_keys(buffer, units.start, units.end)
    arbiter = LineArbiter()
    epochs, used, missing = [], set[tuple[int, int]](), set[tuple[int, int]]()
    for result in (arbiter.arbitrate(units, int(ts[-1])), arbiter.finish()):
        late = {(int(e), int(n)) for e, n in zip(result.units.epoch, result.units.sequence, strict=True)}
        used |= late
        for step in result.steps:
            if step.kind == StepKind.EPOCH:
                epochs.append(step.epoch)
            elif step.kind == StepKind.GAP:
                missing |= {(step.epoch, each) for each in range(step.first, step.last + 1)}
    contents: dict[tuple[int, int], set[bytes]] = {}
    for _, _, each_number, each_epoch, content in packets:
        contents.setdefault((each_epoch, each_number), set()).add(content)
    contradicted = {key for key, some in contents.items() if len(some) > 1}
    missing -= used - contradicted  # filled
    return epochs, used - missing, missing


def decide_in_lake(lines: list[Line], directory: Path, span_sequences: int) -> Decisions:
    surveys = []
    for at, (line, group) in enumerate(zip(lines, GROUPS, strict=True)):
        path = directory / f"{at}.pcap"
        end = np.cumsum([len(packet[3]) for packet in line.packets])
        start, ts = np.concatenate([[0], end[:-1]]), np.array([packet[0] for packet in line.packets], np.int64)
        with PcapWriter(path) as writer:
            buffer = np.frombuffer(b"".join(packet[3] for packet in line.packets), np.uint8)
            writer.write_batch(buffer, start, end, ts, ("10.0.0.1", 1), group)
        task = {"path": str(path), "known": [], "decompressed": "", "split_bytes": 8_000}
        surveys.append(survey.run(task, TaskAttempt(0, 0)))
    planner = Planner(surveys, LINES, {each["digest"]: each["path"] for each in surveys}, span_sequences)
    [date] = {segment[3] for each in surveys for split in each["splits"] for segment in split["segments"]}
    day = planner.plan_day((CHANNEL, date))
    used = set[tuple[int, int]]()
    for task in day.decode_tasks:
        (low, high), known = task["span"], [Span(*each) for each in task["known"]]
        span = Span(task["epoch"], low, high, OVERLAP)
        sources = [SplitSource.from_json(source) for source in task["sources"]]
        gathered = gather_span(sources, span, SbeProtocol(CHANNEL, date), known)
        numbers = gathered.units.sequence
        used |= {(span.epoch, int(each)) for each in numbers[(numbers >= span.first) & (numbers <= span.last)]}
    every = {(epoch, each) for epoch, first, last in day.epochs for each in range(first, last + 1)}
    return [epoch for epoch, _, _ in day.epochs], used, every - used


def since_joined(decisions: Decisions, first: int) -> Decisions:
    """Without what came before the arbiter believed in a position: only of captures the beginning is known later."""
    epochs, used, missing = decisions
    some = [
        {(epoch, number) for epoch, number in each if epoch > epochs[0] or number >= first} for each in (used, missing)
    ]
    return epochs, some[0], some[1]


@pytest.mark.parametrize("seed", [*range(20), *(pytest.param(n, marks=pytest.mark.full_size) for n in range(20, 300))])
def test_the_lake_decides_as_the_arbitration_of_live_lines(seed: int, tmp_path: Path) -> None:
    lines = make_lines(seed)
    expected = decide_live(lines)
    epochs, used, _ = expected
    first = min(number for epoch, number in used if epoch == epochs[0])
    found = decide_in_lake(lines, tmp_path, 100 if seed % 2 else 1 << 18)
    assert since_joined(found, first) == since_joined(expected, first)
