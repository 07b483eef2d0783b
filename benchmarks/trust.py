"""The trust core (`sync`): a packet from its bytes to its book and trust, gaps and snapshots on a whole market, memory.

Processor time of this thread, without the files.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Result, fastest
from umdf.cli.replay import expand_captures
from umdf.exchange.bulk.capture import write_capture
from umdf.exchange.bulk.settings import BulkSettings
from umdf.market.families import FAMILIES, NEW, NULL
from umdf.market.rows import Events, Rows, Units
from umdf.sync.channel import Channel
from umdf.sync.gaps import Gap
from umdf.sync.session import Session
from umdf.sync.snapshots import find_snapshots
from umdf.sync.stream_detection import CapturedPackets, StreamSurvey
from umdf.transport.capture import open_capture
from umdf.wire.fast.loader import load as load_templates
from umdf.wire.sbe.loader import load as load_schema

MESSAGES, INSTRUMENTS, WARM_UP = 60_000, 500, 1_000
TARGET_US = {("sbe", 1): 60, ("fast", 1): 150, ("sbe", 100): 5, ("fast", 100): 5}
BOOKS, ROWS = 18_000, 10_000_000
TARGET_GAP_MS, TARGET_SNAPSHOTS_MS, TARGET_MB = 2, 20, 200


@dataclass(frozen=True)
class _File:
    packets: CapturedPackets
    names: list[Hashable]
    is_incremental: bool


def run() -> Iterator[Result]:
    for protocol in ("sbe", "fast"):
        with tempfile.TemporaryDirectory() as directory:
            write_capture(BulkSettings(MESSAGES, INSTRUMENTS, protocol, lines="A"), Path(directory))
            survey, files = _read(Path(directory))
            for size in (1, 100):
                spent_us = min(_packet_us(survey, files, size) for _ in range(2))
                name = f"trust, {protocol}, packets in batches of {size}"
                yield Result(name, "arbitration, events, books", spent_us, "µs a packet", TARGET_US[protocol, size])
    channel = _market()
    spent = fastest({"gap": lambda: channel.open_gap(Gap(1, channel.sequence + 1, channel.sequence + 1, 0))})
    yield Result("gap on 18,000 books", "every book is unverified", 1e3 * spent["gap"], "ms", TARGET_GAP_MS)
    yield Result("18,000 snapshots, none needed", "healthy books", _snapshots_ms(), "ms", TARGET_SNAPSHOTS_MS)
    yield Result("memory after 10 M rows", "18,000 books", _megabytes(), "MB", TARGET_MB)


def _read(directory: Path) -> tuple[StreamSurvey, list[_File]]:
    survey, files = StreamSurvey(load_templates()), []
    for path in expand_captures([directory / "capture"]):
        with open_capture(path) as capture:
            for batch in capture:
                names: list[Hashable] = [(flow.dest, flow.dest_port) for flow in batch.flows]
                survey.add(batch, names)
                files.append(_File(batch, names, "incremental" in path.name))
    return survey, files


def _packet_us(survey: StreamSurvey, files: list[_File], size: int) -> float:
    session = Session(survey.streams(), load_schema(), load_templates())
    count = first_count = 0
    first_s = 0.0
    for file in files:
        packets = file.packets
        if not file.is_incremental:
            continue
        for first in range(0, len(packets.start), size):
            if not first_s and count >= WARM_UP:
                first_s, first_count = time.thread_time(), count
            rows = np.arange(first, min(first + size, len(packets.start)))
            session.add(packets, file.names, rows)
            session.advance(int(packets.ts_ns[rows[-1]]))
            count += len(rows)
    return 1e6 * (time.thread_time() - first_s) / (count - first_count)


def _units(first: int, count: int) -> Units:
    numbers = first + np.arange(count)
    return Units(np.full(count, 72, np.int16), np.ones(count, np.int64), numbers, 1_000 * numbers, 1_000 * numbers)


def _rows(family: str, columns: dict[str, NDArray[np.int64]]) -> Rows:
    kind, count = FAMILIES[family], len(next(iter(columns.values())))
    typed = {name: values.astype(kind.column(name).dtype) for name, values in columns.items()}
    zeros = np.zeros(count, np.uint16)
    return Rows(kind, np.arange(count, dtype=np.uint32), zeros, zeros, typed)


def _updates(first: int, instruments: NDArray[np.int64], rpt_seq: NDArray[np.int64], *, delete: bool = False) -> Events:
    """An order of each instrument, a packet each, or its deletion."""
    count = len(instruments)
    constants = {"action": ord("C" if delete else "A"), "side": ord("B"), "update_action": 2 if delete else NEW,
                 "size": 100, "price": 10**9, "flags": 128}  # fmt: skip
    columns = {name: np.full(count, value) for name, value in constants.items()}
    columns |= {"instrument_id": instruments, "rpt_seq": rpt_seq, "order_id": instruments}
    return Events(_units(first, count), {"mbo": _rows("mbo", columns)})


def _market() -> Channel:
    """A channel with a healthy book for each instrument."""
    channel, instruments = Channel(72), np.arange(1, BOOKS + 1)
    channel.start_epoch(1, 1, 0)
    channel.apply(_updates(1, instruments, np.ones(BOOKS, np.int64)))
    return channel


def _snapshots_ms() -> float:
    channel, count, instruments = _market(), BOOKS, np.arange(1, BOOKS + 1)
    header = {"instrument_id": instruments, "last_sequence": np.full(count, BOOKS), "last_rpt_seq": np.ones(count)}
    header |= {name: np.zeros(count) for name in ("total_bids", "total_offers", "total_stats")}
    header["last_seq_version"] = np.full(count, NULL)
    events = Events(_units(1, count), {"snapshot": _rows("snapshot", header)})
    best_s = 1e9
    for _ in range(5):
        snapshots = find_snapshots(events)
        start_s = time.thread_time()
        channel.apply_snapshots(snapshots)
        best_s = min(best_s, time.thread_time() - start_s)
    assert channel.recovered == 0
    return 1e3 * best_s


def _megabytes() -> float:
    """Held by a channel that has had so many rows: the growth of this process since the books were there."""
    channel, instruments = _market(), np.arange(1, BOOKS + 1)
    before = _resident_bytes()
    for step in range(ROWS // BOOKS):  # the order of each book is deleted, and entered again
        rpt_seq = np.full(BOOKS, step + 2)
        channel.apply(_updates(channel.sequence + 1, instruments, rpt_seq, delete=step % 2 == 0))
    assert channel.book_trust(1).is_healthy
    return (_resident_bytes() - before) / 2**20


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
