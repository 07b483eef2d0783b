"""What a partition of the DataFrame source does: packets of a span, or of loops, become Arrow batches of one family.

It takes the steps of an ingest (gather, decode, map), with nothing written in between. The one rule: rows are those
that the lake's table of that name would have, before its books say which of them are in doubt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.lake.accounts import loop_packets_of, packets_of
from umdf.lake.channel_task import first_copies
from umdf.lake.decode_task import behind, copy_at, stretches
from umdf.lake.gather import OVERLAP, Damaged, Gathered, Source, Span, gather
from umdf.lake.hashing import LogicalHash
from umdf.lake.ledger import file_id
from umdf.lake.loop_task import SNAPSHOT, LoopStream
from umdf.lake.repeats import Repeats
from umdf.lake.segments import LINES, date_of
from umdf.lake.source_filters import Conditions
from umdf.lake.source_symbols import Symbols
from umdf.lake.source_unpack import plain_tasks, unpacking
from umdf.lake.wires import WIRES
from umdf.market.arrow import record_batch
from umdf.market.calendar import local_dates
from umdf.market.events import NULL
from umdf.market.rows import Events

SPAN, SPAN_PACKETS, LISTED, SNAPSHOTS, LOOP_PACKETS = "span", "span packets", "listed", "snapshots", "loop packets"
# The lake takes these by the date on which they were sent, the others by the date of their numbers.
BY_DATE = frozenset({"mbo", "trades", "statistics"})
Task = dict[str, Any]
Told = frozenset[tuple[str, int]]  # digest and line: what was read before


@dataclass(frozen=True)
class Wanted:
    """What is read."""

    family: str
    schema: pa.Schema  # the columns that are wanted, in their order
    conditions: Conditions = field(default_factory=Conditions)


@dataclass(frozen=True)
class Work:
    """One partition."""

    kind: str
    tasks: list[Task]  # of one channel-day
    packed: frozenset[str] = frozenset()  # digests of files that are compressed
    symbols: Symbols | None = None
    told: Told = frozenset()  # what these gave is left out
    told_tasks: list[Task] = field(default_factory=list)  # the same for loops: the tasks that were


def identity(source: Task) -> tuple[str, int]:
    return source["digest"], source["line"]


def batches(work: Work, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    with unpacking(work.packed) as plain_source:
        tasks, told_tasks = (plain_tasks(some, plain_source) for some in (work.tasks, work.told_tasks))
        plain = replace(work, tasks=tasks, told_tasks=told_tasks)
        for batch in READERS[plain.kind](plain, wanted.family):
            made = _shown(batch, plain, wanted)
            if made.num_rows:
                yield made


def _shown(batch: pa.RecordBatch, work: Work, wanted: Wanted) -> pa.RecordBatch:
    """With what is joined, without rows and columns that nobody asked for."""
    task, count = work.tasks[0], batch.num_rows
    joined = {
        "trading_date": lambda: pa.repeat(pa.scalar(date_of(task["trading_date"]), pa.date32()), count),
        "channel_id": lambda: pa.repeat(pa.scalar(task["channel_id"], pa.int16()), count),
        "symbol": lambda: _symbols(batch, work.symbols),
    }
    names = set(batch.schema.names)
    arrays = [batch.column(name) if name in names else joined[name]() for name in wanted.schema.names]
    arrays = [
        array.cast(each.type) if array.type != each.type else array
        for array, each in zip(arrays, wanted.schema, strict=True)
    ]
    return wanted.conditions.rows(pa.RecordBatch.from_arrays(arrays, schema=wanted.schema))


def _symbols(batch: pa.RecordBatch, symbols: Symbols | None) -> pa.Array:
    if symbols is None:
        return pa.nulls(batch.num_rows, pa.utf8())
    return symbols.of_rows(batch.column("instrument_id").fill_null(NULL).to_numpy())


# Spans of an incremental stream


@dataclass
class _Span:
    """A span from some of its sources, decoded; numbers whose only copies are damaged are missing."""

    gathered: Gathered
    events: list[Events]
    ts_send: NDArray[np.int64]
    messages: NDArray[np.int32]


def _decoded(task: Task, families: Sequence[str] = (), only: Told | None = None) -> _Span:
    """From all its sources, or only from those that were told before."""
    sources = [Source.from_json(said) for said in task["sources"] if only is None or identity(said) in only]
    first, last = task["span"]
    span = Span(task["epoch"], first, last, OVERLAP)
    known = [Span(*each) for each in task["known"]]
    damaged: Damaged = frozenset()
    while True:
        gathered = gather(sources, span, _wire(task), known, damaged)
        made, corrupt = _decode(task, gathered, families)
        if not corrupt:
            return made
        damaged |= corrupt  # the same numbers from another line, if there is one


def _decode(task: Task, gathered: Gathered, families: Sequence[str]) -> tuple[_Span, Damaged]:
    span, pieces, wire = gathered.span, gathered.pieces, _wire(task)
    made = _Span(gathered, [], np.full(span.room, NULL), np.zeros(span.room, np.int32))
    corrupt: set[tuple[str, int, int]] = set()
    first, last = np.searchsorted(pieces.sequence, [span.first, span.last + 1]).tolist()
    for low, high, keep in stretches(first, last, behind(gathered, last)):
        decoded = wire.decode(pieces.at(np.arange(low, high)))
        at = pieces.sequence[low:high] - span.base
        made.ts_send[at], made.messages[at] = decoded.events.units.ts_send, decoded.messages
        if keep:
            wanted = {name: rows for name, rows in decoded.events.families.items() if name in families}
            made.events.append(Events(decoded.events.units, wanted))
        if low >= first:
            corrupt |= {copy_at(gathered, low + row) for row in decoded.corrupt}
    return made, frozenset(corrupt)


def _wire(task: Task) -> Any:
    return WIRES[task["protocol"]](task["channel_id"], task["trading_date"])


def _span(work: Work, family: str) -> Iterator[pa.RecordBatch]:
    [task] = work.tasks
    told = None
    if work.told:
        before = _decoded(task, only=work.told).gathered
        told = np.unique(before.pieces.sequence)
    for events in _decoded(task, [family]).events:
        rows, units = events.rows(family), events.units
        if not len(rows):
            continue
        new = np.ones(len(units), np.bool_)
        if family in BY_DATE:
            new = local_dates(units.ts_send) == task["trading_date"]
        if told is not None:
            new &= ~np.isin(units.sequence, told)
        yield record_batch(events if new.all() else events.at({family: new[rows.unit]}), family)


def _span_packets(work: Work, family: str) -> Iterator[pa.RecordBatch]:
    [task] = work.tasks
    made = _decoded(task)
    yield from _of_new_files(packets_of(task, made.gathered, made.ts_send, made.messages), work)


def _of_new_files(packets: pa.Table, work: Work) -> list[pa.RecordBatch]:
    """A datagram is in one file: it is told when that file is."""
    new, lines = np.ones(len(packets), np.bool_), packets.column("line").cast(pa.utf8()).to_numpy()
    for digest, line in work.told:
        new &= (packets.column("file_id").to_numpy() != file_id(digest)) | (lines != LINES[line])
    return packets.filter(pa.array(new)).combine_chunks().to_batches()


# Loops


def _loop_packets(work: Work, family: str) -> Iterator[pa.RecordBatch]:
    for task in work.tasks:
        stream = LoopStream(task)
        for _ in stream.snapshots() if task["role"] == SNAPSHOT else stream.definitions():
            pass
        if stream.seen:
            yield from _of_new_files(loop_packets_of(task, stream.seen), work)


def _loops(work: Work, family: str) -> Iterator[pa.RecordBatch]:
    made = _looped(work.tasks, family)
    if made is None:
        return
    if work.told_tasks:
        told = _looped(work.told_tasks, family)
        if told is not None:
            words = LogicalHash({"ts_recv"})
            made = made.filter(pa.array(~np.isin(words.of_rows(made), words.of_rows(told))))
    yield made


def _looped(tasks: Sequence[Task], family: str) -> pa.RecordBatch | None:
    """All rows of a day's loops, copies on other lines left out."""
    repeats, parts = Repeats(), []
    for task in tasks:
        stream = LoopStream(task)
        for events in stream.snapshots() if task["role"] == SNAPSHOT else stream.definitions():
            kept = repeats.new_definitions(events) if task["role"] != SNAPSHOT else events
            if len(kept.rows(family)):
                parts.append(record_batch(kept, family))
    if not parts:
        return None
    whole = pa.concat_batches(parts)
    return first_copies(whole) if family == SNAPSHOT else whole


READERS = {
    SPAN: _span,
    SPAN_PACKETS: _span_packets,
    LISTED: _loops,
    SNAPSHOTS: _loops,
    LOOP_PACKETS: _loop_packets,
}
