"""What became of every datagram: the rows of `packets` and `quarantine`, and how well each line delivered.

The one rule: what a task says of a line can be added to what the other tasks say, whatever the cut: counts, counts by
second, and a histogram of skews whose bins never change.
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

from umdf.lake.file_writer import write_file
from umdf.lake.files import DICTIONARY, FileAdd, Stamp, in_order
from umdf.lake.gather import (
    CORRUPT,
    LATE,
    MERGED,
    NEVER,
    USED,
    VERDICTS,
    Datagrams,
    Found,
    Gathered,
    Numbers,
    Refused,
    Source,
)
from umdf.lake.ledger import file_id
from umdf.lake.schemas import table
from umdf.lake.tasks import Place
from umdf.market.arrow import numbers_array
from umdf.market.events import NULL, Column
from umdf.transport.capture import PacketBatch

Where = tuple[str, Stamp, Mapping[str, Any], Place, bool]  # the last: with zstd
MOST_QUARANTINED = 10_000  # rows of a task: a schema that is too old must not fill the lake
MOST_REASONS = 5  # that are named of what found no place
MOST_CONTENT = 64 << 10
BINS_AN_OCTAVE = 8  # of the histogram of skews: within 9 %
SECOND_NS = 1_000_000_000
MOST_VALUES = 1 << 20  # that are counted by their place
_NUMBER = Column("number", "i64", "")


def _file(where: Where, name: str, rows: pa.Table) -> FileAdd | None:
    root, stamp, partition, place, packed = where
    return write_file(root, name, stamp, rows, partition, task=place.task, attempt=place.attempt, packed=packed)


def packets_file(
    where: Where, task: dict[str, Any], gathered: Gathered, ts_send: Numbers, messages: NDArray[np.int32]
) -> FileAdd | None:
    return _file(where, "packets", packets_of(task, gathered, ts_send, messages))


def packets_of(task: dict[str, Any], gathered: Gathered, ts_send: Numbers, messages: NDArray[np.int32]) -> pa.Table:
    """A row for each datagram that is this task's to account for, in the order of the table."""
    found, span = gathered.datagrams, gathered.span
    order = wire_order(found)
    if order is not None:
        found = Datagrams(*(column[order] for column in vars(found).values()))
    number, line, source = found.number, found.line, found.source
    numbered = number > 0
    at = np.where(numbered, number - span.base, 0)
    sent, count = found.ts_send, found.frames.astype(np.int32)
    if task["protocol"] == "fast":
        sent = np.where(numbered, ts_send[np.clip(at, 0, span.room - 1)], sent)
    else:
        count = np.where(numbered, messages[np.clip(at, 0, span.room - 1)], count)
    ids = np.array([file_id(source.digest) for source in gathered.sources], np.int64)
    columns = {
        "line": _coded(line, task["lines"]),
        "stream": _coded(np.zeros(len(number), np.int32), ["incremental"]),
        "seq_version": pa.array(np.full(len(number), span.epoch)),
        "sequence": numbers_array(_NUMBER, np.where(numbered, number, NULL)),
        "ts_send": numbers_array(_NUMBER, sent),
        "ts_recv": pa.array(found.ts_recv),
        "verdict": _coded(found.verdict, VERDICTS),
        "messages": pa.array(count),
        "size_bytes": pa.array(found.size),
        "file_id": pa.array(ids[source] if len(ids) else np.empty(0, np.int64)),
        "file_offset": pa.array(found.offset),
    }
    return pa.table(columns)


def wire_order(found: Datagrams) -> Numbers | None:
    """By line, number and offset; None: mostly they are so."""
    line, number, offset = found.line, found.number, found.offset
    is_next = (number[1:] > number[:-1]) | ((number[1:] == number[:-1]) & (offset[1:] >= offset[:-1]))
    is_next = (line[1:] > line[:-1]) | ((line[1:] == line[:-1]) & is_next)
    return None if is_next.all() else np.lexsort((offset, number, line))


@dataclass(frozen=True, eq=False)
class Seen:
    """Datagrams of a looping stream: their numbers come again with every loop, so nothing is merged."""

    digest: str
    line: int
    epoch: Numbers
    number: Numbers
    ts_send: Numbers
    ts_recv: Numbers
    size: NDArray[np.int32]
    offset: Numbers
    verdict: NDArray[np.uint8]

    @classmethod
    def of(cls, batch: PacketBatch, source: Source, found: Found, chosen: NDArray[np.bool_]) -> Seen:
        verdict = np.where(found.kind[chosen] == MERGED, np.uint8(USED), found.kind[chosen])
        size = (batch.end - batch.start)[chosen].astype(np.int32)
        about = found.epoch[chosen], found.number[chosen], found.ts_send[chosen], batch.ts_ns[chosen], size
        return cls(source.digest, source.line, *about, batch.offset[chosen], verdict)


def loop_packets_file(where: Where, task: dict[str, Any], seen: list[Seen]) -> FileAdd | None:
    return _file(where, "packets", loop_packets_of(task, seen)) if seen else None


def loop_packets_of(task: dict[str, Any], seen: list[Seen]) -> pa.Table:
    names = ("epoch", "number", "ts_send", "ts_recv", "size", "offset", "verdict")
    epoch, number, sent, received, size, offset, verdict = (
        np.concatenate([getattr(part, name) for part in seen]) for name in names
    )
    ids = np.concatenate([np.full(len(part.number), file_id(part.digest)) for part in seen])
    numbered = number > 0
    columns = {
        "line": _coded(np.full(len(number), seen[0].line), task["lines"]),
        "stream": _coded(np.zeros(len(number), np.int32), [task["role"]]),
        "seq_version": pa.array(epoch),
        "sequence": numbers_array(_NUMBER, np.where(numbered, number, NULL)),
        "ts_send": numbers_array(_NUMBER, sent),
        "ts_recv": pa.array(received),
        "verdict": _coded(verdict, VERDICTS),
        "messages": pa.nulls(len(number), pa.int32()),
        "size_bytes": pa.array(size),
        "file_id": pa.array(ids),
        "file_offset": pa.array(offset),
    }
    order = np.lexsort((offset, number, epoch))
    return pa.table(columns).take(pa.array(order))


def loop_quality(seen: list[Seen], messages: int) -> dict[str, Any]:
    """As `quality_of`, of the one line of a looping stream."""
    ts_recv = np.concatenate([part.ts_recv for part in seen]) if seen else np.empty(0, np.int64)
    nothing = {"seen": 0, "duplicates": 0, "late": 0, "skews": [], "skew_max_ns": 0, "first": None, "last": None}
    return nothing | {
        "packets": len(ts_recv),
        "messages": messages,
        "size_bytes": sum(int(part.size.sum()) for part in seen),
        "corrupt": sum(int((part.verdict == CORRUPT).sum()) for part in seen),
        "first_arrivals": len(ts_recv),
        "seconds": _counted(ts_recv // SECOND_NS),
        "ts_first": int(ts_recv.min()) if len(ts_recv) else None,
        "ts_last": int(ts_recv.max()) if len(ts_recv) else None,
    }


def _coded(codes: NDArray[Any], words: Any) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(list(words), pa.utf8())).cast(
        DICTIONARY
    )


def quarantine_file(
    where: Where, task: dict[str, Any], sources: Sequence[Source], epoch: int | None, refused: list[Refused]
) -> FileAdd | None:
    if not refused:
        return None
    refused = sorted(refused, key=lambda row: (sources[row.source].digest, *row[1:]))
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
            "content": row.content[:MOST_CONTENT],
        }
        for row in refused[:MOST_QUARANTINED]
    ]
    if dropped := refused[MOST_QUARANTINED:]:
        where_next = {"file_id": file_id(sources[dropped[0].source].digest), "file_offset": dropped[0].offset}
        size = sum(len(row.content) for row in dropped)
        rows.append(where_next | {"seq_version": epoch, "reason": _reasons(dropped), "size_bytes": size})
    known = table("quarantine")
    return _file(where, "quarantine", in_order(pa.Table.from_pylist(rows, known.file_schema), known))


def not_kept(refused: Sequence[Refused]) -> int:
    """How many of these find no place in the table."""
    return max(len(refused) - MOST_QUARANTINED, 0)


def _reasons(dropped: Sequence[Refused]) -> str:
    """Of what found no place: how many, and why."""
    counted = Counter(row.reason for row in dropped).most_common()
    said = "; ".join(f"{count:,} × {reason}" for reason, count in counted[:MOST_REASONS])
    rest = sum(count for _, count in counted[MOST_REASONS:])
    return f"{len(dropped):,} more are not kept here: {said}" + (f"; {rest:,} × other reasons" if rest else "")


def quality_of(gathered: Gathered, messages: NDArray[np.int32], lines: list[str]) -> dict[str, Any]:
    """By line, what can be added up over all tasks of a channel-day."""
    found, own = gathered.datagrams, gathered.own
    first, winner = gathered.first_arrival()
    first, winner, said = first[own], winner[own], {}
    for number, name in enumerate(lines):
        mine = _rows_of(found.line, number)
        packets = len(found.line[mine])
        if number not in gathered.arrival and not packets:
            continue
        arrival = gathered.arrival.get(number)
        arrival = np.full(len(first), NEVER) if arrival is None else arrival[own]
        seen = arrival != NEVER
        behind = (arrival - first)[seen & (arrival > first)]
        numbers = np.flatnonzero(seen) + gathered.span.first
        ts_recv = found.ts_recv[mine]
        verdicts = np.bincount(found.verdict[mine], minlength=len(VERDICTS))
        said[name] = {
            "packets": packets,
            "messages": int((messages[own] * seen).sum()),
            "size_bytes": int(found.size[mine].sum()),
            "seen": int(seen.sum()),
            "duplicates": len(gathered.again.get(number, ())),
            "late": int(verdicts[LATE]),
            "corrupt": int(verdicts[CORRUPT]),
            "first_arrivals": int((winner == number).sum()),
            "skews": _counted(_bins(behind)),
            "skew_max_ns": int(behind.max(initial=0)),
            "seconds": _counted(ts_recv // SECOND_NS),
            "first": int(numbers[0]) if len(numbers) else None,
            "last": int(numbers[-1]) if len(numbers) else None,
            "ts_first": int(ts_recv.min()) if len(ts_recv) else None,
            "ts_last": int(ts_recv.max()) if len(ts_recv) else None,
        }
    return said


def _rows_of(line: NDArray[np.uint8], number: int) -> slice | NDArray[np.bool_]:
    """Which datagrams are of a line: mostly neighbours."""
    if (line[1:] >= line[:-1]).all():
        return slice(*np.searchsorted(line, [number, number + 1]).tolist())
    return line == number


def _counted(values: Numbers) -> list[tuple[int, int]]:
    """Each value and how often it is there, in their order."""
    low = int(values.min(initial=NEVER))
    if len(values) and int(values.max()) - low < MOST_VALUES:  # nearly always: nothing is compared
        counts = np.bincount(values - low)
        some = np.flatnonzero(counts)
        return list(zip((some + low).tolist(), counts[some].tolist(), strict=True))
    some, counts = np.unique(values, return_counts=True)
    return list(zip(some.tolist(), counts.tolist(), strict=True))


def _bins(values: Numbers) -> Numbers:
    return np.ceil(np.log2(np.maximum(values, 1)) * BINS_AN_OCTAVE).astype(np.int64)


def _quantile(skews: Counter[int], share: float) -> int | None:
    """The upper edge of the bin in which it lies."""
    total, reached = sum(skews.values()), 0
    for bin_, count in sorted(skews.items()):
        reached += count
        if reached >= math.ceil(share * total):
            return math.floor(2 ** (bin_ / BINS_AN_OCTAVE))
    return None


_ADDED = ("packets", "messages", "size_bytes", "duplicates", "late", "corrupt", "first_arrivals", "seen")


def added_up(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """What some tasks said of a line, as one of them would have said it."""
    every = list(parts)
    skews, seconds = Counter[int](), Counter[int]()
    for part in every:
        skews.update(dict(part["skews"]))
        seconds.update(dict(part["seconds"]))
    return {name: sum(part[name] for part in every) for name in _ADDED} | {
        "skews": sorted(skews.items()),
        "seconds": sorted(seconds.items()),
        "skew_max_ns": max(part["skew_max_ns"] for part in every),
        **{name: _least(every, name, min) for name in ("first", "ts_first")},
        **{name: _least(every, name, max) for name in ("last", "ts_last")},
    }


def quality_row(said: dict[str, Any], numbers: int) -> dict[str, Any]:
    """The row of one line; `numbers` is how many there were on all lines together."""
    skews = Counter(dict(said["skews"]))
    return {name: said[name] for name in _ADDED if name != "seen"} | {
        "lost": max(numbers - said["seen"], 0),
        "skew_p50_ns": _quantile(skews, 0.5),
        "skew_p99_ns": _quantile(skews, 0.99),
        "skew_max_ns": said["skew_max_ns"] if skews else None,
        "peak_packets_1s": max((count for _, count in said["seconds"]), default=None),
        "first_sequence": said["first"],
        "last_sequence": said["last"],
        "ts_first": said["ts_first"],
        "ts_last": said["ts_last"],
    }


def _least(parts: list[dict[str, Any]], name: str, which: Any) -> int | None:
    return which((part[name] for part in parts if part[name] is not None), default=None)
