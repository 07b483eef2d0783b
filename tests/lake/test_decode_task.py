"""A span of a channel: each number once, nothing lost at a cut, and every packet accounted for."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from lake.captures import day, files_of

from umdf.cli.replay import replay
from umdf.lake.hashing import logical_hash
from umdf.lake.plan.planner import Planner
from umdf.lake.plan.segments import assign_streams, days_of
from umdf.lake.runtime.spark_tasks import TaskAttempt
from umdf.lake.tasks import decode_task, survey
from umdf.lake.tasks.flow_packets import DISPOSITIONS, SplitSource
from umdf.lake.tasks.gather import Span, gather_span
from umdf.lake.tasks.protocols import SbeProtocol
from umdf.lake.tasks.staging import BUCKETS, StagedFile, read_staged
from umdf.market.arrow import record_batch
from umdf.market.calendar import local_date
from umdf.market.rows import Events
from umdf.transport.pcap_writer import PcapWriter
from umdf.wire.fast.loader import load as load_templates
from umdf.wire.sbe.loader import load as load_schema

FAMILIES = ("mbo", "trades", "statistics", "execution_summary", "status", "price_band", "imbalance", "news")
NOON = 1_794_574_800 * 10**9
MS = 1_000_000
GROUP = ("224.0.20.72", 20_001)


@pytest.fixture(scope="module")
def tmp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("days")


def staged_of(captured: Path, work: Path, span_sequences: int, split_bytes: int) -> tuple[list[StagedFile], list[Any]]:
    """Of the incremental streams, in the order of the spans."""
    files = files_of(captured)
    given = {"known": [], "decompressed": "", "split_bytes": split_bytes}
    surveys = [survey.run({"path": str(path)} | given, TaskAttempt(0, 0)) for path in files]
    places = assign_streams(surveys, {})
    planner = Planner(surveys, places, {found["digest"]: found["path"] for found in surveys}, span_sequences)
    [(channel, date)] = {key for found in surveys for key in days_of(found, places)}
    planned = planner.plan_day((channel, date))
    common = {"root": str(work), "stamp": [1, 1], "directory": str(work / "staged"), "tables": []}
    made = [decode_task.run(common | task, TaskAttempt(n, 0)) for n, task in enumerate(planned.decode_tasks)]
    return [StagedFile.from_json(said) for manifest in made for said in manifest["staged"]], made


@pytest.mark.parametrize("protocol", ["sbe", "fast"])
@pytest.mark.parametrize(("span_sequences", "split_bytes"), [(1 << 18, 1 << 25), (333, 50_000)])
def test_staged_events_are_those_of_the_channel_wherever_it_is_cut(
    tmp: Path, tmp_path: Path, protocol: str, span_sequences: int, split_bytes: int
) -> None:
    captured = day(tmp, protocol=protocol, loss=0.01, seed=3)
    expected: dict[str, list[pa.RecordBatch]] = defaultdict(list)

    def watch(_: Any, events: Events) -> None:
        for family in FAMILIES:
            if family in events.families:
                expected[family].append(record_batch(events, family))

    replayed = replay(files_of(captured), load_schema(), load_templates(), watch=watch)
    staged, made = staged_of(captured, tmp_path, span_sequences, split_bytes)
    for family in FAMILIES:
        found = record_batch(read_staged(staged, family, range(BUCKETS + 1)), family)
        assert logical_hash([found]) == logical_hash(expected[family]), family
    [channel] = replayed.session.channels.values()
    missing = {
        n for manifest in made for first, last, *_ in manifest["missing"]["runs"] for n in range(first, last + 1)
    }
    assert missing == {n for gap in channel.gaps.opened for n in range(gap.first, gap.last + 1)} != set()


def packet(number: int, channel: int = 72, version: int = 3) -> bytes:
    return struct.pack("<BBHIQ", channel, 0, version, number, NOON)


def line(path: Path, packets: Sequence[tuple[bytes, float]]) -> SplitSource:
    """A capture with these packets at these milliseconds."""
    data = b"".join(content for content, _ in packets)
    end = np.cumsum([len(content) for content, _ in packets])
    start = end - [len(content) for content, _ in packets]
    times = np.array([NOON + int(ms * MS) for _, ms in packets], np.int64)
    with PcapWriter(path) as writer:
        writer.write_batch(np.frombuffer(data, np.uint8), start, end, times, ("10.0.0.1", 1), GROUP)
    found = survey.run({"path": str(path), "known": [], "decompressed": "", "split_bytes": 1 << 25}, TaskAttempt(0, 0))
    [split] = found["splits"]
    refused = tuple((offset, number, date) for _, offset, number, date in split["refused"])
    about = {name: split[name] for name in ("offset", "end", "number", "header")}
    source = SplitSource(
        "AB".index(path.stem), f"blake2b-256:{path.stem * 64}", str(path), GROUP, about, owns_unnumbered=True
    )
    return replace(source, refused=refused)


def test_every_datagram_has_its_verdict(tmp_path: Path) -> None:
    a = [(packet(1), 0), (packet(2), 1), (packet(3), 2), (packet(5), 3), (packet(5), 4), (packet(6), 30)]
    b = [(packet(1), 0.5), (packet(3), 1.5), (packet(0), 1.6), (b"short", 1.7), (packet(9, channel=9), 1.8),
         (packet(5_000), 1.9), (packet(4), 29), (packet(6), 31), (packet(10**9), 32),
         (packet(10**9 + 1), 33)]  # fmt: skip
    sources = [line(tmp_path / "A", a), line(tmp_path / "B", b)]
    span, protocol = Span(3, 1, 6, overlap=10), SbeProtocol(72, local_date(NOON))
    found = gather_span(sources, span, protocol, [Span(3, 1, 6)])
    dispositions = [DISPOSITIONS[code] for code in found.packets.disposition]
    assert dispositions[:6] == ["used", "used", "duplicate", "used", "duplicate", "used"]
    assert dispositions[6:12] == ["duplicate", "used", "heartbeat", "corrupt", "corrupt", "corrupt"]
    assert dispositions[12:] == ["late", "duplicate", "unknown", "unknown"]
    assert found.units.sequence.tolist() == [1, 2, 3, 4, 5, 6]
    assert ((found.units.ts_recv - NOON) / MS).tolist() == [0, 1, 1.5, 29, 3, 30]
    assert {line: len(numbers) for line, numbers in found.repeated.items()} == {0: 1, 1: 0}
    assert [row.reason for row in found.quarantined] == [
        "the packet header needs 16 bytes, the packet has 5",
        "a packet of channel 9 among those of channel 72",
        "its header does not fit the packets around it",
        "its number is far from all others",
        "its number is far from all others",
    ]
    again = gather_span(
        sources, span, protocol, [Span(3, 1, 6)], frozenset({(sources[0].digest, int(found.unit_offset[0]), 1)})
    )
    assert (
        DISPOSITIONS[again.packets.disposition[0]] == "corrupt" and DISPOSITIONS[again.packets.disposition[6]] == "used"
    )
    assert again.units.sequence.tolist() == [1, 2, 3, 4, 5, 6] and again.units.ts_recv[0] == NOON + MS // 2


def test_a_span_sees_only_its_own_numbers(tmp_path: Path) -> None:
    sources = [line(tmp_path / "A", [(packet(n), n) for n in range(1, 40)])]
    protocol, known = SbeProtocol(72, local_date(NOON)), [Span(3, 1, 39)]
    for first, last in ((1, 13), (14, 26), (27, 39)):
        found = gather_span(sources, Span(3, first, last, overlap=5), protocol, known)
        assert found.packets.number.tolist() == list(range(first, last + 1))
        low, high = max(first - 5, 1), min(last + 5, 39)
        assert found.units.sequence.tolist() == list(range(low, high + 1))
    assert len(gather_span(sources, Span(4, 1, 39), protocol, known).units) == 0
