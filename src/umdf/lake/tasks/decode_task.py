"""Step 1 of an ingest, incremental streams: a span of a channel's sequences, from all lines, becomes staged events.

A task also returns the missing sequences and the quality of each line, and writes the disposition of every packet
(`packets`) and everything unusable (`quarantine`). Some packets before the span are decoded too and then dropped, so
that events across the boundary (an aggressor and its trades) are complete.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.lake.parquet.data_files import FileStamp
from umdf.lake.recording.capture_clock import flag_untrusted_times
from umdf.lake.runtime.spark_tasks import TaskAttempt
from umdf.lake.tasks import looping_stream_task
from umdf.lake.tasks.duplicates import PacketLocation
from umdf.lake.tasks.flow_packets import Numbers, SplitSource
from umdf.lake.tasks.gather import NEVER, OVERLAP, GatheredSpan, Span, gather_span
from umdf.lake.tasks.packet_accounts import line_quality, overflow_count, write_packets, write_quarantine
from umdf.lake.tasks.protocols import PROTOCOLS, FeedProtocol
from umdf.lake.tasks.quarantine import QuarantineEntry
from umdf.lake.tasks.staging import StagedWriter, staged_writer
from umdf.market.families import LAST, NULL

DECODE_BATCH_UNITS = 1 << 14  # packets
# A part of a day ends after an event: whether its last span may turn out to be empty.
CUT_MAY_BE_EMPTY, CUT_NEVER_EMPTY = "may be empty", "never empty"
INCREMENTAL = "incremental"


def run(task: dict[str, Any], attempt: TaskAttempt) -> dict[str, Any]:
    """A task of step 1, for an incremental or a looping stream."""
    return _run_span(task, attempt) if task["stream"] == INCREMENTAL else looping_stream_task.run(task, attempt)


def _run_span(task: dict[str, Any], attempt: TaskAttempt) -> dict[str, Any]:
    """{"root", "stamp", "directory", "channel_id", "protocol", "trading_date", "epoch", "span", "known", "lines",
    "sources", "tables"} → result."""
    first_number, last_number = task["span"]
    span = Span(task["epoch"], first_number, last_number, OVERLAP)
    known = [Span(epoch, first, last) for epoch, first, last in task["known"]]
    sources = [SplitSource.from_json(source) for source in task["sources"]]
    decoder = _SpanDecoder(task, attempt)
    damaged: dict[PacketLocation, QuarantineEntry] = {}
    while True:
        gathered = gather_span(sources, span, _protocol_of(task), known, frozenset(damaged))
        if task.get("cut"):
            gathered = gathered.cut_at(_event_end(_protocol_of(task), gathered, task["cut"]))
        corrupt = decoder.decode(gathered)
        if not corrupt:
            return decoder.result(gathered, damaged)
        damaged |= corrupt  # retry with another line's copies, if there are any


def _protocol_of(task: dict[str, Any]) -> FeedProtocol:
    return PROTOCOLS[task["protocol"]](task["channel_id"], task["trading_date"])


class _SpanDecoder:
    def __init__(self, task: dict[str, Any], attempt: TaskAttempt) -> None:
        self.task, self.attempt = task, attempt
        self.staged: StagedWriter
        self.ts_send: Numbers
        self.messages: NDArray[np.int32]
        self.unknown_messages: list[QuarantineEntry] = []
        self.notices: list[str] = []

    def decode(self, gathered: GatheredSpan) -> dict[PacketLocation, QuarantineEntry]:
        """Stage the events of the span; if units are damaged, return those instead."""
        self.staged = staged_writer(self.task, "span")
        span = gathered.span
        self.ts_send, self.messages = np.full(span.size, NULL), np.zeros(span.size, np.int32)
        self.unknown_messages = []
        damaged: dict[PacketLocation, QuarantineEntry] = {}
        protocol, units = _protocol_of(self.task), gathered.units
        first, last = np.searchsorted(units.sequence, [span.first, span.last + 1]).tolist()
        for low, high, keep in decode_ranges(first, last, packet_end(gathered, last)):
            decoded = protocol.decode(units.take(slice(low, high)))
            at = units.sequence[low:high] - span.base
            self.ts_send[at], self.messages[at] = decoded.events.units.ts_send, decoded.messages
            if gathered.is_clock_off is not None:
                flag_untrusted_times(decoded.events, gathered.is_clock_off[at])
            if low >= first:
                for row, reason in decoded.corrupt.items():
                    damaged[packet_location(gathered, low + row)] = _quarantine_entry(gathered, low + row, reason)
            if not keep:
                continue
            self.staged.add(decoded.events)
            for row, reason in decoded.unknown.items():
                self.unknown_messages.append(_quarantine_entry(gathered, low + row, reason))
        self.notices = protocol.notices()
        return damaged

    def result(self, gathered: GatheredSpan, damaged: dict[PacketLocation, QuarantineEntry]) -> dict[str, Any]:
        task, span = self.task, gathered.span
        partition = {
            "trading_date": pa.scalar(task["trading_date"], pa.date32()).as_py(),
            "channel_id": task["channel_id"],
        }
        target = (task["root"], FileStamp(*task["stamp"]), partition, self.attempt, task.get("is_compressed", True))
        files, quarantined = {}, list[QuarantineEntry]()
        if "packets" in task["tables"]:
            files["packets"] = write_packets(target, task, gathered, self.ts_send, self.messages)
        if "quarantine" in task["tables"]:
            own = (row for row in damaged.values() if row.number <= span.last)
            quarantined = [*gathered.quarantined, *self.unknown_messages, *own]
            files["quarantine"] = write_quarantine(target, task, gathered.sources, gathered.span.epoch, quarantined)
        first, _ = gathered.first_arrival()
        arrived = first[gathered.own][first[gathered.own] != NEVER]
        staged = self.staged.close()
        return {
            "channel_id": task["channel_id"],
            "protocol": task["protocol"],
            "stream": INCREMENTAL,
            "trading_date": task["trading_date"],
            "epoch": span.epoch,
            "span": [span.first, span.last],
            "staged": [each.to_json() for each in staged],
            "files": {name: [added.to_json()] for name, added in files.items() if added},
            "missing": _missing_runs(first[gathered.own], span.first, self.ts_send[gathered.own]),
            "ts_last": int(arrived[-1]) if len(arrived) else None,
            "ts_sent": _last_ts_send(self.ts_send[gathered.own]),
            "quality": line_quality(gathered, self.messages, task["lines"]),
            "comparisons": gathered.comparisons,
            "messages": int(self.messages[gathered.own].sum()),
            "not_stored": overflow_count(quarantined),
            "notices": self.notices,
        }


def _event_end(protocol: FeedProtocol, gathered: GatheredSpan, cut: str) -> int:
    """The last sequence of the span that ends an event, so that no event is split. If none does, the span waits for
    more data, if it may be empty and is not too long for one event."""
    units, span = gathered.units, gathered.span
    low, high = np.searchsorted(units.sequence, [span.first, span.last + 1]).tolist()
    low = max(low, high - DECODE_BATCH_UNITS)
    events = protocol.decode(units.take(np.arange(low, high))).events
    last_row, ends = np.full(high - low, -1), np.zeros(high - low, np.bool_)
    for rows in events.families.values():
        row_key = rows.msg_index.astype(np.int64) << 16 | rows.entry_index
        order = np.argsort(row_key, kind="stable")
        unit, row_key, flags = rows.unit[order], row_key[order], rows.column("flags")[order]
        newest = np.full(high - low, -1)
        newest[unit] = row_key  # the last one wins
        is_end = np.zeros(high - low, np.bool_)
        is_end[unit] = flags & LAST != 0
        ahead = newest > last_row
        last_row[ahead], ends[ahead] = newest[ahead], is_end[ahead]
    found = np.flatnonzero(ends)
    if not len(found):
        return span.first - 1 if cut == CUT_MAY_BE_EMPTY and high - low < DECODE_BATCH_UNITS else span.last
    return int(units.sequence[low + found[-1]])


def packet_end(gathered: GatheredSpan, row: int) -> int:
    """The end of the units from `row` on that belong to the same packet as the one before: a packet is never split."""
    source, offset = gathered.unit_source, gathered.unit_offset
    end = row
    while row > 0 and end < len(offset) and (source[end], offset[end]) == (source[row - 1], offset[row - 1]):
        end += 1
    return end


def decode_ranges(first: int, last: int, end: int) -> list[tuple[int, int, bool]]:
    """Ranges of units, and whether to keep them: those before and after the span are decoded only for context."""
    before, after = [(0, first, False)] if first else [], [(last, end, False)] if last < end else []
    starts = range(first, last, DECODE_BATCH_UNITS)
    return [*before, *((low, min(low + DECODE_BATCH_UNITS, last), True) for low in starts), *after]


def packet_location(gathered: GatheredSpan, row: int) -> PacketLocation:
    source = gathered.sources[int(gathered.unit_source[row])]
    return source.digest, int(gathered.unit_offset[row]), int(gathered.units.sequence[row])


def _quarantine_entry(gathered: GatheredSpan, row: int, reason: str) -> QuarantineEntry:
    units = gathered.units
    content = units.buffer[units.start[row] : units.end[row]].tobytes()
    location = int(gathered.unit_source[row]), int(gathered.unit_offset[row]), int(units.ts_recv[row])
    return QuarantineEntry(*location, int(units.sequence[row]), reason, content)


def _last_ts_send(ts_send: Numbers) -> int | None:
    """When the last unit that is present was sent."""
    present = np.flatnonzero(ts_send != NULL)
    return int(ts_send[present[-1]]) if len(present) else None


def _missing_runs(first: Numbers, base: int, ts_send: Numbers) -> dict[str, Any]:
    """Runs of missing sequences, the unit after each and the send time of the one before; and the span's first unit,
    for the span before."""
    is_missing = first == NEVER
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_missing, [False]]).astype(np.int8)))
    runs = [(int(low), int(high)) for low, high in edges.reshape(-1, 2)]
    present = np.flatnonzero(~is_missing)

    def moment(at: int) -> tuple[int, int] | None:
        return (int(first[at]), int(ts_send[at])) if at < len(first) else None

    return {
        "runs": [
            [base + low, base + high - 1, moment(high), int(ts_send[low - 1]) if low else None] for low, high in runs
        ],
        "begins": [base + int(present[0]), moment(int(present[0]))] if len(present) else None,
    }
