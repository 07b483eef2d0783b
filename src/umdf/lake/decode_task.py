"""Step 1 of an ingest, incremental streams: a span of a channel's numbers, from all its lines, becomes staged events.

A task also says what was missing, how well each line delivered, and what became of every datagram (`packets`) and of
what could not be used (`quarantine`). Some packets before the span are decoded with it and dropped again, so that what
crosses the cut (an aggressor and its trades) is whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.lake import loop_task
from umdf.lake.accounts import not_kept, packets_file, quality_of, quarantine_file
from umdf.lake.files import Stamp
from umdf.lake.gather import NEVER, OVERLAP, Gathered, Numbers, Source, Span, gather
from umdf.lake.refusals import Refused
from umdf.lake.staging import StagedWriter, writer_of
from umdf.lake.tasks import Place
from umdf.lake.wires import WIRES, Wire
from umdf.market.events import LAST, NULL

DECODED_AT_ONCE = 1 << 14  # packets
# How a part of a day is cut behind an event: its last span may turn out to be empty, or must not.
MAY_WAIT, AT_AN_EVENT = "may wait", "at an event"
ROLE = "incremental"
Copy = tuple[str, int, int]  # digest, offset and number


def run(task: dict[str, Any], place: Place) -> dict[str, Any]:
    """A task of step 1: of an incremental stream, or of a looping one."""
    return _run_span(task, place) if task["role"] == ROLE else loop_task.run(task, place)


def _run_span(task: dict[str, Any], place: Place) -> dict[str, Any]:
    """{"root", "stamp", "directory", "channel_id", "protocol", "trading_date", "epoch", "span", "known", "lines",
    "sources", "tables"} → manifest."""
    first_number, last_number = task["span"]
    span = Span(task["epoch"], first_number, last_number, OVERLAP)
    known = [Span(epoch, first, last) for epoch, first, last in task["known"]]
    sources = [Source.from_json(said) for said in task["sources"]]
    done = _Span(task, place)
    damaged: dict[Copy, Refused] = {}
    while True:
        gathered = gather(sources, span, _wire(task), known, frozenset(damaged))
        if task.get("cut"):
            gathered = gathered.until(_event_end(_wire(task), gathered, task["cut"]))
        corrupt = done.decode(gathered)
        if not corrupt:
            return done.manifest(gathered, damaged)
        damaged |= corrupt  # the same numbers from another line, if there is one


def _wire(task: dict[str, Any]) -> Wire:
    return WIRES[task["protocol"]](task["channel_id"], task["trading_date"])


class _Span:
    def __init__(self, task: dict[str, Any], place: Place) -> None:
        self.task, self.place = task, place
        self.staged: StagedWriter
        self.ts_send: Numbers
        self.messages: NDArray[np.int32]
        self.unknown: list[Refused] = []
        self.notices: list[str] = []

    def decode(self, gathered: Gathered) -> dict[Copy, Refused]:
        """Stage the events of the span; what is damaged instead."""
        self.staged = writer_of(self.task, "span")
        span = gathered.span
        self.ts_send, self.messages = np.full(span.room, NULL), np.zeros(span.room, np.int32)
        self.unknown = []
        damaged: dict[Copy, Refused] = {}
        wire, pieces = _wire(self.task), gathered.pieces
        first, last = np.searchsorted(pieces.sequence, [span.first, span.last + 1]).tolist()
        for low, high, keep in stretches(first, last, behind(gathered, last)):
            decoded = wire.decode(pieces.at(slice(low, high)))
            at = pieces.sequence[low:high] - span.base
            self.ts_send[at], self.messages[at] = decoded.events.units.ts_send, decoded.messages
            if low >= first:
                for row, reason in decoded.corrupt.items():
                    damaged[copy_at(gathered, low + row)] = _content(gathered, low + row, reason)
            if not keep:
                continue
            self.staged.add(decoded.events)
            for row, reason in decoded.unknown.items():
                self.unknown.append(_content(gathered, low + row, reason))
        self.notices = wire.notices()
        return damaged

    def manifest(self, gathered: Gathered, damaged: dict[Copy, Refused]) -> dict[str, Any]:
        task, span = self.task, gathered.span
        partition = {
            "trading_date": pa.scalar(task["trading_date"], pa.date32()).as_py(),
            "channel_id": task["channel_id"],
        }
        where = (task["root"], Stamp(*task["stamp"]), partition, self.place, task.get("packed", True))
        files, refused = {}, list[Refused]()
        if "packets" in task["tables"]:
            files["packets"] = packets_file(where, task, gathered, self.ts_send, self.messages)
        if "quarantine" in task["tables"]:
            own = (row for row in damaged.values() if row.number <= span.last)
            refused = [*gathered.refused, *self.unknown, *own]
            files["quarantine"] = quarantine_file(where, task, gathered.sources, gathered.span.epoch, refused)
        first, _ = gathered.first_arrival()
        staged = self.staged.close()
        return {
            "channel_id": task["channel_id"],
            "protocol": task["protocol"],
            "role": ROLE,
            "trading_date": task["trading_date"],
            "epoch": span.epoch,
            "span": [span.first, span.last],
            "staged": [each.to_json() for each in staged],
            "files": {name: [made.to_json()] for name, made in files.items() if made},
            "missing": _missing(first[gathered.own], span.first, self.ts_send[gathered.own]),
            "ts_last": int(first[gathered.own][-1]) if span.last >= span.first else None,
            "ts_sent": _last_sent(self.ts_send[gathered.own]),
            "quality": quality_of(gathered, self.messages, task["lines"]),
            "messages": int(self.messages[gathered.own].sum()),
            "not_kept": not_kept(refused),
            "notices": self.notices,
        }


def _event_end(wire: Wire, gathered: Gathered, how: str) -> int:
    """The last number of the span that ends an event, so that no event is cut in two. Without any, what is there waits
    for more, if it may; unless it is so much that no event can be meant."""
    pieces, span = gathered.pieces, gathered.span
    low, high = np.searchsorted(pieces.sequence, [span.first, span.last + 1]).tolist()
    low = max(low, high - DECODED_AT_ONCE)
    events = wire.decode(pieces.at(np.arange(low, high))).events
    last_row, ends = np.full(high - low, -1), np.zeros(high - low, np.bool_)
    for rows in events.families.values():
        place = rows.msg_index.astype(np.int64) << 16 | rows.entry_index
        order = np.argsort(place, kind="stable")
        unit, place, flags = rows.unit[order], place[order], rows.column("flags")[order]
        newest = np.full(high - low, -1)
        newest[unit] = place  # of several the last one stays
        is_end = np.zeros(high - low, np.bool_)
        is_end[unit] = flags & LAST != 0
        ahead = newest > last_row
        last_row[ahead], ends[ahead] = newest[ahead], is_end[ahead]
    found = np.flatnonzero(ends)
    if not len(found):
        return span.first - 1 if how == MAY_WAIT and high - low < DECODED_AT_ONCE else span.last
    return int(pieces.sequence[low + found[-1]])


def behind(gathered: Gathered, last: int) -> int:
    """The end of the pieces from `last` on that are of the same datagram as the one before: it is told as a whole."""
    source, offset = gathered.piece_source, gathered.piece_offset
    end = last
    while last > 0 and end < len(offset) and (source[end], offset[end]) == (source[last - 1], offset[last - 1]):
        end += 1
    return end


def stretches(first: int, last: int, end: int) -> list[tuple[int, int, bool]]:
    """Stretches of pieces; those before the span, and those behind it, are decoded, but not kept."""
    before, after = [(0, first, False)] if first else [], [(last, end, False)] if last < end else []
    starts = range(first, last, DECODED_AT_ONCE)
    return [*before, *((low, min(low + DECODED_AT_ONCE, last), True) for low in starts), *after]


def copy_at(gathered: Gathered, row: int) -> Copy:
    source = gathered.sources[int(gathered.piece_source[row])]
    return source.digest, int(gathered.piece_offset[row]), int(gathered.pieces.sequence[row])


def _content(gathered: Gathered, row: int, reason: str) -> Refused:
    pieces = gathered.pieces
    content = pieces.buffer[pieces.start[row] : pieces.end[row]].tobytes()
    at = int(gathered.piece_source[row]), int(gathered.piece_offset[row]), int(pieces.ts_recv[row])
    return Refused(*at, int(pieces.sequence[row]), reason, content)


def _last_sent(ts_send: Numbers) -> int | None:
    """When the last number that is there was sent."""
    there = np.flatnonzero(ts_send != NULL)
    return int(ts_send[there[-1]]) if len(there) else None


def _missing(first: Numbers, base: int, ts_send: Numbers) -> dict[str, Any]:
    """Runs of numbers that no line had, what followed each and when what was before it was sent; the span's own first
    number, for the span before."""
    lost = first == NEVER
    edges = np.flatnonzero(np.diff(np.concatenate([[False], lost, [False]]).astype(np.int8)))
    runs = [(int(low), int(high)) for low, high in edges.reshape(-1, 2)]
    there = np.flatnonzero(~lost)

    def moment(at: int) -> tuple[int, int] | None:
        return (int(first[at]), int(ts_send[at])) if at < len(first) else None

    return {
        "runs": [
            [base + low, base + high - 1, moment(high), int(ts_send[low - 1]) if low else None] for low, high in runs
        ],
        "begins": [base + int(there[0]), moment(int(there[0]))] if len(there) else None,
    }
