"""Reads a partition of the DataFrame source: packets of a span or of looping streams → Arrow batches of one family.

The steps are those of an ingest (gather, decode, map), without writing anything in between. Invariant: the rows are
those of the lake's table of that name, without the flags that its books add to unverified rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.lake.commit.ledger import file_id
from umdf.lake.hashing import LogicalHash
from umdf.lake.plan.segments import LINES, date_of
from umdf.lake.source.decompression import decompress_tasks, temporary_decompression
from umdf.lake.source.filters import PushedFilters
from umdf.lake.source.symbols import SymbolTable
from umdf.lake.tasks.channel_task import drop_later_copies
from umdf.lake.tasks.decode_task import decode_ranges, packet_end, packet_location
from umdf.lake.tasks.flow_packets import SplitSource
from umdf.lake.tasks.gather import OVERLAP, GatheredSpan, PacketLocations, Span, gather_span
from umdf.lake.tasks.looping_stream_task import SNAPSHOT, LoopingStream
from umdf.lake.tasks.packet_accounts import looping_packet_rows, packet_rows
from umdf.lake.tasks.protocols import PROTOCOLS
from umdf.lake.tasks.unchanged_definitions import DefinitionFilter
from umdf.market.arrow import record_batch
from umdf.market.calendar import local_dates
from umdf.market.families import NULL
from umdf.market.rows import Events

SPAN, SPAN_PACKETS, INSTRUMENT_LOOP, SNAPSHOT_LOOP, LOOP_PACKETS = (
    "span",
    "span packets",
    "listed",
    "snapshots",
    "loop packets",
)
# The lake dates these by their send time, the others by the date of their sequence.
FAMILIES_BY_SEND_DATE = frozenset({"mbo", "trades", "statistics"})
Task = dict[str, Any]
ReadSources = frozenset[tuple[str, int]]  # digest and line of what was read before


@dataclass(frozen=True)
class Scan:
    """Which rows and columns to read."""

    family: str
    schema: pa.Schema  # the requested columns, in order
    filters: PushedFilters = field(default_factory=PushedFilters)


@dataclass(frozen=True)
class PartitionTask:
    """One partition."""

    kind: str
    tasks: list[Task]  # of one channel-day
    compressed_digests: frozenset[str] = frozenset()  # digests of files that are compressed
    symbols: SymbolTable | None = None
    already_read: ReadSources = frozenset()  # their rows are omitted
    previous_tasks: list[Task] = field(default_factory=list)  # the same for looping streams: their previous tasks


def source_identity(source: Task) -> tuple[str, int]:
    return source["digest"], source["line"]


def read_partition(task: PartitionTask, scan: Scan) -> Iterator[pa.RecordBatch]:
    with temporary_decompression(task.compressed_digests) as decompress:
        tasks, previous_tasks = (decompress_tasks(some, decompress) for some in (task.tasks, task.previous_tasks))
        plain_task = replace(task, tasks=tasks, previous_tasks=previous_tasks)
        for batch in READERS[plain_task.kind](plain_task, scan.family):
            rows = _project(batch, plain_task, scan)
            if rows.num_rows:
                yield rows


def _project(batch: pa.RecordBatch, work: PartitionTask, scan: Scan) -> pa.RecordBatch:
    """Add joined columns, and drop rows and columns that were not requested."""
    task, count = work.tasks[0], batch.num_rows
    joined = {
        "trading_date": lambda: pa.repeat(pa.scalar(date_of(task["trading_date"]), pa.date32()), count),
        "channel_id": lambda: pa.repeat(pa.scalar(task["channel_id"], pa.int16()), count),
        "symbol": lambda: _symbol_column(batch, work.symbols),
    }
    names = set(batch.schema.names)
    arrays = [batch.column(name) if name in names else joined[name]() for name in scan.schema.names]
    arrays = [
        array.cast(each.type) if array.type != each.type else array
        for array, each in zip(arrays, scan.schema, strict=True)
    ]
    return scan.filters.apply(pa.RecordBatch.from_arrays(arrays, schema=scan.schema))


def _symbol_column(batch: pa.RecordBatch, symbols: SymbolTable | None) -> pa.Array:
    if symbols is None:
        return pa.nulls(batch.num_rows, pa.utf8())
    return symbols.lookup(batch.column("instrument_id").fill_null(NULL).to_numpy())


# Spans of an incremental stream


@dataclass
class _DecodedSpan:
    """A decoded span from some of its sources; units whose copies are all damaged are missing."""

    gathered: GatheredSpan
    events: list[Events]
    ts_send: NDArray[np.int64]
    messages: NDArray[np.int32]


def _decode_span(task: Task, families: Sequence[str] = (), only: ReadSources | None = None) -> _DecodedSpan:
    """Decode from all sources, or only from those that were read before."""
    sources = [
        SplitSource.from_json(source) for source in task["sources"] if only is None or source_identity(source) in only
    ]
    first, last = task["span"]
    span = Span(task["epoch"], first, last, OVERLAP)
    known = [Span(*each) for each in task["known"]]
    damaged: PacketLocations = frozenset()
    while True:
        gathered = gather_span(sources, span, _create_protocol(task), known, damaged)
        decoded_span, corrupt = _decode_gathered(task, gathered, families)
        if not corrupt:
            return decoded_span
        damaged |= corrupt  # retry with another line's copies, if there are any


def _decode_gathered(
    task: Task, gathered: GatheredSpan, families: Sequence[str]
) -> tuple[_DecodedSpan, PacketLocations]:
    span, units, protocol = gathered.span, gathered.units, _create_protocol(task)
    decoded_span = _DecodedSpan(gathered, [], np.full(span.size, NULL), np.zeros(span.size, np.int32))
    corrupt: set[tuple[str, int, int]] = set()
    first, last = np.searchsorted(units.sequence, [span.first, span.last + 1]).tolist()
    for low, high, keep in decode_ranges(first, last, packet_end(gathered, last)):
        decoded = protocol.decode(units.take(np.arange(low, high)))
        at = units.sequence[low:high] - span.base
        decoded_span.ts_send[at], decoded_span.messages[at] = decoded.events.units.ts_send, decoded.messages
        if keep:
            wanted = {name: rows for name, rows in decoded.events.families.items() if name in families}
            decoded_span.events.append(Events(decoded.events.units, wanted))
        if low >= first:
            corrupt |= {packet_location(gathered, low + row) for row in decoded.corrupt}
    return decoded_span, frozenset(corrupt)


def _create_protocol(task: Task) -> Any:
    return PROTOCOLS[task["protocol"]](task["channel_id"], task["trading_date"])


def _read_span(work: PartitionTask, family: str) -> Iterator[pa.RecordBatch]:
    [task] = work.tasks
    already_read = None
    if work.already_read:
        before = _decode_span(task, only=work.already_read).gathered
        already_read = np.unique(before.units.sequence)
    for events in _decode_span(task, [family]).events:
        rows, units = events.rows(family), events.units
        if not len(rows):
            continue
        new = np.ones(len(units), np.bool_)
        if family in FAMILIES_BY_SEND_DATE:
            new = local_dates(units.ts_send) == task["trading_date"]
        if already_read is not None:
            new &= ~np.isin(units.sequence, already_read)
        yield record_batch(events if new.all() else events.take({family: new[rows.unit]}), family)


def _read_span_packets(work: PartitionTask, family: str) -> Iterator[pa.RecordBatch]:
    [task] = work.tasks
    decoded_span = _decode_span(task)
    yield from _only_new_packets(
        packet_rows(task, decoded_span.gathered, decoded_span.ts_send, decoded_span.messages), work
    )


def _only_new_packets(packets: pa.Table, work: PartitionTask) -> list[pa.RecordBatch]:
    """A packet is in one file: it is returned when that file is read."""
    new, lines = np.ones(len(packets), np.bool_), packets.column("line").cast(pa.utf8()).to_numpy()
    for digest, line in work.already_read:
        new &= (packets.column("file_id").to_numpy() != file_id(digest)) | (lines != LINES[line])
    return packets.filter(pa.array(new)).combine_chunks().to_batches()


# Loops


def _read_loop_packets(work: PartitionTask, family: str) -> Iterator[pa.RecordBatch]:
    for task in work.tasks:
        stream = LoopingStream(task)
        for _ in stream.snapshots() if task["stream"] == SNAPSHOT else stream.definitions():
            pass
        if stream.packets:
            yield from _only_new_packets(looping_packet_rows(task, stream.packets), work)


def _read_loops(work: PartitionTask, family: str) -> Iterator[pa.RecordBatch]:
    rows = _loop_rows(work.tasks, family)
    if rows is None:
        return
    if work.previous_tasks:
        previous_rows = _loop_rows(work.previous_tasks, family)
        if previous_rows is not None:
            hasher = LogicalHash({"ts_recv"})
            rows = rows.filter(pa.array(~np.isin(hasher.row_hashes(rows), hasher.row_hashes(previous_rows))))
    yield rows


def _loop_rows(tasks: Sequence[Task], family: str) -> pa.RecordBatch | None:
    """All rows of a day's looping streams, without duplicates on other lines."""
    repeats, parts = DefinitionFilter(), []
    for task in tasks:
        stream = LoopingStream(task)
        for events in stream.snapshots() if task["stream"] == SNAPSHOT else stream.definitions():
            kept = repeats.changed_definitions(events) if task["stream"] != SNAPSHOT else events
            if len(kept.rows(family)):
                parts.append(record_batch(kept, family))
    if not parts:
        return None
    batch = pa.concat_batches(parts)
    return drop_later_copies(batch) if family == SNAPSHOT else batch


READERS = {
    SPAN: _read_span,
    SPAN_PACKETS: _read_span_packets,
    INSTRUMENT_LOOP: _read_loops,
    SNAPSHOT_LOOP: _read_loops,
    LOOP_PACKETS: _read_loop_packets,
}
