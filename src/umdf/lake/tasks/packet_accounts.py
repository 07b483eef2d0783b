"""Accounts for every packet: the rows of `packets` and `quarantine`, and the quality of each line.

Invariant: the counts of a task for a line can be added to those of other tasks, however the day is divided: counts,
counts per second, and a histogram of skews with fixed bins.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.lake.commit.ledger import file_id
from umdf.lake.parquet.data_files import TEXT_DICTIONARY, FileAdd, FileStamp, sort_rows
from umdf.lake.parquet.file_writer import write_file
from umdf.lake.recording.capture_clock import largest_offset
from umdf.lake.recording.loop_losses import Loop, join_loops
from umdf.lake.runtime.spark_tasks import TaskAttempt
from umdf.lake.schemas import table
from umdf.lake.tasks.flow_packets import CORRUPT, DISPOSITIONS, LATE, PENDING, USED, FlowPackets, Numbers, SplitSource
from umdf.lake.tasks.gather import NEVER, GatheredSpan, PacketRecords, QuarantineEntry
from umdf.market.arrow import numbers_array
from umdf.market.families import NULL, Column
from umdf.transport.capture import PacketBatch

FileTarget = tuple[str, FileStamp, Mapping[str, Any], TaskAttempt, bool]  # the last: compress with zstd
MAX_QUARANTINE_ROWS = 10_000  # rows per task: an outdated schema must not fill the lake
MAX_LISTED_REASONS = 5  # reasons that are named for rows beyond the limit
MAX_CONTENT_BYTES = 64 << 10
BINS_PER_OCTAVE = 8  # of the histogram of skews: 9 % precision
SECOND_NS = 1_000_000_000
MAX_COUNTED_RANGE = 1 << 20  # largest range of values for which an array of counters is used
_I64_COLUMN = Column("number", "i64", "")


def _write_file(target: FileTarget, name: str, rows: pa.Table) -> FileAdd | None:
    root, stamp, partition, attempt, is_compressed = target
    return write_file(
        root, name, stamp, rows, partition, task=attempt.task, attempt=attempt.attempt, compressed=is_compressed
    )


def write_packets(
    target: FileTarget, task: dict[str, Any], gathered: GatheredSpan, ts_send: Numbers, messages: NDArray[np.int32]
) -> FileAdd | None:
    return _write_file(target, "packets", packet_rows(task, gathered, ts_send, messages))


def packet_rows(
    task: dict[str, Any], gathered: GatheredSpan, ts_send: Numbers, messages: NDArray[np.int32]
) -> pa.Table:
    """One row per packet that this task accounts for, in the order of the table."""
    packets, span = gathered.packets, gathered.span
    order = wire_order(packets)
    if order is not None:
        packets = PacketRecords(*(column[order] for column in vars(packets).values()))
    number, line, source = packets.number, packets.line, packets.source
    numbered = number > 0
    at = np.where(numbered, number - span.base, 0)
    sent, count = packets.ts_send, packets.message_counts.astype(np.int32)
    if task["protocol"] == "fast":
        sent = np.where(numbered, ts_send[np.clip(at, 0, span.size - 1)], sent)
    else:
        count = np.where(numbered, messages[np.clip(at, 0, span.size - 1)], count)
    ids = np.array([file_id(source.digest) for source in gathered.sources], np.int64)
    columns = {
        "line": _dictionary_array(line, task["lines"]),
        "stream": _dictionary_array(np.zeros(len(number), np.int32), ["incremental"]),
        "seq_version": pa.array(np.full(len(number), span.epoch)),
        "sequence": numbers_array(_I64_COLUMN, np.where(numbered, number, NULL)),
        "ts_send": numbers_array(_I64_COLUMN, sent),
        "ts_recv": pa.array(packets.ts_recv),
        "disposition": _dictionary_array(packets.disposition, DISPOSITIONS),
        "messages": pa.array(count),
        "size_bytes": pa.array(packets.size),
        "file_id": pa.array(ids[source] if len(ids) else np.empty(0, np.int64)),
        "file_offset": pa.array(packets.offset),
    }
    return pa.table(columns)


def wire_order(packets: PacketRecords) -> Numbers | None:
    """Order by line, sequence and offset; None if they are in order, as usual."""
    line, number, offset = packets.line, packets.number, packets.offset
    is_next = (number[1:] > number[:-1]) | ((number[1:] == number[:-1]) & (offset[1:] >= offset[:-1]))
    is_next = (line[1:] > line[:-1]) | ((line[1:] == line[:-1]) & is_next)
    return None if is_next.all() else np.lexsort((offset, number, line))


@dataclass(frozen=True, eq=False)
class LoopingPackets:
    """Packets of a looping stream: sequences repeat with every loop, so there is no arbitration."""

    digest: str
    line: int
    epoch: Numbers
    number: Numbers
    ts_send: Numbers
    ts_recv: Numbers
    size: NDArray[np.int32]
    offset: Numbers
    disposition: NDArray[np.uint8]

    @classmethod
    def from_batch(
        cls, batch: PacketBatch, source: SplitSource, packets: FlowPackets, is_selected: NDArray[np.bool_]
    ) -> LoopingPackets:
        disposition = np.where(packets.kind[is_selected] == PENDING, np.uint8(USED), packets.kind[is_selected])
        size = (batch.end - batch.start)[is_selected].astype(np.int32)
        columns = (
            packets.epoch[is_selected],
            packets.number[is_selected],
            packets.ts_send[is_selected],
            batch.ts_ns[is_selected],
            size,
        )
        return cls(source.digest, source.line, *columns, batch.offset[is_selected], disposition)


def write_looping_packets(target: FileTarget, task: dict[str, Any], parts: list[LoopingPackets]) -> FileAdd | None:
    return _write_file(target, "packets", looping_packet_rows(task, parts)) if parts else None


def looping_packet_rows(task: dict[str, Any], parts: list[LoopingPackets]) -> pa.Table:
    names = ("epoch", "number", "ts_send", "ts_recv", "size", "offset", "disposition")
    epoch, number, sent, received, size, offset, disposition = (
        np.concatenate([getattr(part, name) for part in parts]) for name in names
    )
    ids = np.concatenate([np.full(len(part.number), file_id(part.digest)) for part in parts])
    numbered = number > 0
    columns = {
        "line": _dictionary_array(np.full(len(number), parts[0].line), task["lines"]),
        "stream": _dictionary_array(np.zeros(len(number), np.int32), [task["stream"]]),
        "seq_version": pa.array(epoch),
        "sequence": numbers_array(_I64_COLUMN, np.where(numbered, number, NULL)),
        "ts_send": numbers_array(_I64_COLUMN, sent),
        "ts_recv": pa.array(received),
        "disposition": _dictionary_array(disposition, DISPOSITIONS),
        "messages": pa.nulls(len(number), pa.int32()),
        "size_bytes": pa.array(size),
        "file_id": pa.array(ids),
        "file_offset": pa.array(offset),
    }
    order = np.lexsort((offset, number, epoch))
    return pa.table(columns).take(pa.array(order))


def looping_quality(parts: list[LoopingPackets], messages: int) -> dict[str, Any]:
    """As `line_quality`, for the single line of a looping stream."""
    ts_recv = np.concatenate([part.ts_recv for part in parts]) if parts else np.empty(0, np.int64)
    nothing = {"seen": 0, "duplicates": 0, "late": 0, "skews": [], "skew_max_ns": 0, "first": None, "last": None}
    return nothing | {
        "packets": len(ts_recv),
        "messages": messages,
        "size_bytes": sum(int(part.size.sum()) for part in parts),
        "corrupt": sum(int((part.disposition == CORRUPT).sum()) for part in parts),
        "first_arrivals": len(ts_recv),
        "seconds": _value_counts(ts_recv // SECOND_NS),
        "ts_first": int(ts_recv.min()) if len(ts_recv) else None,
        "ts_last": int(ts_recv.max()) if len(ts_recv) else None,
    }


def _dictionary_array(codes: NDArray[Any], values: Any) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(list(values), pa.utf8())).cast(
        TEXT_DICTIONARY
    )


def write_quarantine(
    target: FileTarget,
    task: dict[str, Any],
    sources: Sequence[SplitSource],
    epoch: int | None,
    entries: list[QuarantineEntry],
) -> FileAdd | None:
    if not entries:
        return None
    entries = sorted(entries, key=lambda row: (sources[row.source].digest, *row[1:]))
    rows: list[dict[str, Any]] = [
        {
            "line": task["lines"][sources[row.source].line],
            "ts_recv": row.ts_recv,
            "seq_version": epoch,
            "sequence": row.number or None,
            "file_id": file_id(sources[row.source].digest),
            "file_offset": row.offset,
            "reason": row.reason,
            "template": None,
            "size_bytes": len(row.content),
            "content": row.content[:MAX_CONTENT_BYTES],
        }
        for row in entries[:MAX_QUARANTINE_ROWS]
    ]
    if overflow := entries[MAX_QUARANTINE_ROWS:]:
        overflow_location = {"file_id": file_id(sources[overflow[0].source].digest), "file_offset": overflow[0].offset}
        size = sum(len(row.content) for row in overflow)
        rows.append(
            overflow_location | {"seq_version": epoch, "reason": _overflow_reason(overflow), "size_bytes": size}
        )
    known = table("quarantine")
    return _write_file(target, "quarantine", sort_rows(pa.Table.from_pylist(rows, known.file_schema), known))


def overflow_count(entries: Sequence[QuarantineEntry]) -> int:
    """How many of these exceed the limit of the table."""
    return max(len(entries) - MAX_QUARANTINE_ROWS, 0)


def _overflow_reason(overflow: Sequence[QuarantineEntry]) -> str:
    """The reason text of the row that counts entries beyond the limit."""
    counted = Counter(row.reason for row in overflow).most_common()
    listed = "; ".join(f"{count:,} × {reason}" for reason, count in counted[:MAX_LISTED_REASONS])
    other_count = sum(count for _, count in counted[MAX_LISTED_REASONS:])
    return f"{len(overflow):,} more are not kept here: {listed}" + (
        f"; {other_count:,} × other reasons" if other_count else ""
    )


def line_quality(gathered: GatheredSpan, messages: NDArray[np.int32], lines: list[str]) -> dict[str, Any]:
    """Counts by line, which can be summed over all tasks of a channel-day."""
    records, own = gathered.packets, gathered.own
    first, winner = gathered.first_arrival()
    first, winner, by_line = first[own], winner[own], {}
    for number, name in enumerate(lines):
        rows = _line_rows(records.line, number)
        packets = len(records.line[rows])
        if number not in gathered.arrival and not packets:
            continue
        arrival = gathered.arrival.get(number)
        arrival = np.full(len(first), NEVER) if arrival is None else arrival[own]
        seen = arrival != NEVER
        skews_ns = (arrival - first)[seen & (arrival > first)]
        numbers = np.flatnonzero(seen) + gathered.span.first
        ts_recv = records.ts_recv[rows]
        dispositions = np.bincount(records.disposition[rows], minlength=len(DISPOSITIONS))
        by_line[name] = {
            "packets": packets,
            "messages": int((messages[own] * seen).sum()),
            "size_bytes": int(records.size[rows].sum()),
            "seen": int(seen.sum()),
            "duplicates": len(gathered.repeated.get(number, ())),
            "late": int(dispositions[LATE]),
            "corrupt": int(dispositions[CORRUPT]),
            "first_arrivals": int((winner == number).sum()),
            "skews": _value_counts(_bins(skews_ns)),
            "skew_max_ns": int(skews_ns.max(initial=0)),
            "seconds": _value_counts(ts_recv // SECOND_NS),
            "first": int(numbers[0]) if len(numbers) else None,
            "last": int(numbers[-1]) if len(numbers) else None,
            "ts_first": int(ts_recv.min()) if len(ts_recv) else None,
            "ts_last": int(ts_recv.max()) if len(ts_recv) else None,
            "clock_offset_ns": line_clock_offset(gathered.sources, number),
        }
    return by_line


def line_clock_offset(sources: Iterable[SplitSource], line: int) -> int | None:
    return largest_offset(source.clock_offset_ns for source in sources if source.line == line)


def _line_rows(line: NDArray[np.uint8], number: int) -> slice | NDArray[np.bool_]:
    """The packets of a line: mostly a contiguous range."""
    if (line[1:] >= line[:-1]).all():
        return slice(*np.searchsorted(line, [number, number + 1]).tolist())
    return line == number


def _value_counts(values: Numbers) -> list[tuple[int, int]]:
    """Each value and its count, sorted by value."""
    low = int(values.min(initial=NEVER))
    if len(values) and int(values.max()) - low < MAX_COUNTED_RANGE:  # nearly always: no sorting needed
        counts = np.bincount(values - low)
        some = np.flatnonzero(counts)
        return list(zip((some + low).tolist(), counts[some].tolist(), strict=True))
    some, counts = np.unique(values, return_counts=True)
    return list(zip(some.tolist(), counts.tolist(), strict=True))


def _bins(values: Numbers) -> Numbers:
    return np.ceil(np.log2(np.maximum(values, 1)) * BINS_PER_OCTAVE).astype(np.int64)


def _quantile(skews: Counter[int], share: float) -> int | None:
    """The upper edge of the bin that contains the quantile."""
    total, reached = sum(skews.values()), 0
    for bin_, count in sorted(skews.items()):
        reached += count
        if reached >= math.ceil(share * total):
            return math.floor(2 ** (bin_ / BINS_PER_OCTAVE))
    return None


_SUMMED_FIELDS = ("packets", "messages", "size_bytes", "duplicates", "late", "corrupt", "first_arrivals", "seen")


def sum_quality(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The sum of several tasks' counts for a line."""
    qualities = list(parts)
    skews, seconds = Counter[int](), Counter[int]()
    for part in qualities:
        skews.update(dict(part["skews"]))
        seconds.update(dict(part["seconds"]))
    return {name: sum(part[name] for part in qualities) for name in _SUMMED_FIELDS} | {
        "skews": sorted(skews.items()),
        "seconds": sorted(seconds.items()),
        "skew_max_ns": max(part["skew_max_ns"] for part in qualities),
        "clock_offset_ns": largest_offset(part.get("clock_offset_ns") for part in qualities),
        "incomplete_snapshots": sum(part.get("incomplete_snapshots", 0) for part in qualities),
        "loops": [
            loop.to_json()
            for loop in join_loops(Loop.from_json(each) for part in qualities for each in part.get("loops", ()))
        ],
        **{name: _extreme(qualities, name, min) for name in ("first", "ts_first")},
        **{name: _extreme(qualities, name, max) for name in ("last", "ts_last")},
    }


def quality_row(quality: dict[str, Any], numbers: int) -> dict[str, Any]:
    """The row of one line; `numbers` is the number of units on all lines together."""
    skews = Counter(dict(quality["skews"]))
    return {name: quality[name] for name in _SUMMED_FIELDS if name != "seen"} | {
        "lost": max(numbers - quality["seen"], 0),
        "skew_p50_ns": _quantile(skews, 0.5),
        "skew_p99_ns": _quantile(skews, 0.99),
        "skew_max_ns": quality["skew_max_ns"] if skews else None,
        "peak_packets_1s": max((count for _, count in quality["seconds"]), default=None),
        "first_sequence": quality["first"],
        "last_sequence": quality["last"],
        "ts_first": quality["ts_first"],
        "ts_last": quality["ts_last"],
        "clock_offset_ns": quality["clock_offset_ns"],
    }


def _extreme(parts: list[dict[str, Any]], name: str, pick: Any) -> int | None:
    return pick((part[name] for part in parts if part[name] is not None), default=None)
