"""Packets of one span of numbers, from all lines that have any: each number once, and every datagram accounted for.

The one rule: what comes out depends on the packets alone, not on files, their order or where they are cut. A number
that came twice is taken once; it came when its first copy came. Copies have the same bytes, so only those of the copy
that is read first are kept; should they turn out to be damaged, `without` says so and the next copy is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from umdf.lake.copies import FALSE_NUMBER, Copies, first_copies
from umdf.lake.refusals import Refused, refused_of
from umdf.lake.survey import split_of
from umdf.market.events import NULL
from umdf.sync.lines import WAIT_MS
from umdf.sync.pieces import Pieces, no_pieces
from umdf.transport.capture import PacketBatch, open_capture

Numbers = NDArray[np.int64]
NEVER = np.iinfo(np.int64).max
BATCH_PACKETS = 1 << 15
CHUNK_BYTES = 8 << 20
OVERLAP = 256  # numbers before and behind a span that are looked at with it

# What became of a datagram.
USED, DUPLICATE, LATE, HEARTBEAT, RESET, CORRUPT, UNKNOWN, MERGED = range(8)
VERDICTS = ("used", "duplicate", "late", "heartbeat", "reset", "corrupt", "unknown")
Damaged = frozenset[tuple[str, int, int]]  # digest, offset and number of copies that cannot be used


@dataclass(frozen=True)
class Source:
    """A split, of which one flow is wanted: a line of the channel."""

    line: int  # place among the channel's lines
    digest: str
    path: str
    flow: tuple[str, int]
    split: dict[str, Any]
    own_rest: bool = False  # what has no number is this task's to account for
    rest_from: int = 0  # together with this number
    is_fresh: bool = True  # the lake does not have the file yet
    epochs: tuple[tuple[int, int], ...] = ()  # FAST: from this ts_recv on, this numbering
    refused: tuple[tuple[int, int, int], ...] = ()  # offset, number and date of what fits nothing around it

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Source:
        pairs = {name: tuple(tuple(each) for each in said[name]) for name in ("epochs", "refused")}
        return cls(**{**said, "flow": tuple(said["flow"]), **pairs})

    def refusals(self, offset: Numbers) -> tuple[NDArray[np.bool_], Numbers]:
        """Which datagrams at these offsets are refused, and the date of each of them; the others have none."""
        refused, date = np.zeros(len(offset), np.bool_), np.full(len(offset), NULL)
        if self.refused:
            table = np.array(sorted(self.refused), np.int64)
            at = np.minimum(np.searchsorted(table[:, 0], offset), len(table) - 1)
            refused = table[at, 0] == offset
            date[refused] = table[at[refused], 2]
        return refused, date


@dataclass(frozen=True)
class Span:
    epoch: int
    first: int
    last: int
    overlap: int = 0  # numbers before and behind it that are looked at, too

    @property
    def base(self) -> int:
        return self.first - self.overlap

    @property
    def room(self) -> int:
        return self.last - self.first + 1 + 2 * self.overlap


@dataclass(frozen=True, eq=False)
class Found:
    """What a reader makes of some datagrams of one flow. Columns have a row for each datagram, or for each frame."""

    pieces: Pieces  # what can be decoded; `line` is not yet known
    piece_row: Numbers  # the datagram that completed it
    number: Numbers  # of the datagram: that of its first frame; 0 where it has none
    epoch: Numbers
    ts_send: Numbers
    kind: NDArray[np.uint8]  # MERGED where lines decide, else the verdict
    frames: NDArray[np.int32]  # how many messages, as far as can be told without decoding
    frame_row: Numbers
    frame_number: Numbers
    frame_key: Numbers  # tells chunks of one number apart
    reasons: dict[int, str] = field(default_factory=dict)  # of datagrams that are corrupt or unknown
    elsewhere: NDArray[np.bool_] | None = None  # datagrams of another date


class Reader(Protocol):
    """Of one wire."""

    def read(self, batch: PacketBatch, source: Source) -> Found: ...


@dataclass
class Datagrams:
    """Every datagram that is this span's to account for."""

    line: NDArray[np.uint8]
    number: Numbers
    ts_send: Numbers
    ts_recv: Numbers
    size: NDArray[np.int32]
    source: NDArray[np.int32]
    offset: Numbers
    frames: NDArray[np.int32]
    verdict: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.number)


_NO_ROWS = np.empty(0, np.int64)
_NONE = [tuple(np.empty(0, kind) for kind in "u1 i8 i8 i8 i4 i4 i8 i4 u1".split())]


@dataclass
class Gathered:
    span: Span
    sources: Sequence[Source]
    pieces: Pieces  # by number, those of the overlap too; `ts_recv` of the first copy, `line` of the copy at hand
    piece_source: NDArray[np.int32]
    piece_offset: Numbers
    arrival: dict[int, Numbers]  # by line: when each number of the span, overlap included, first came; NEVER
    again: dict[int, Numbers]  # by line: numbers of the span (without overlap) that came again on that line
    datagrams: Datagrams
    refused: list[Refused]

    @property
    def own(self) -> slice:
        return slice(self.span.overlap, self.span.room - self.span.overlap)

    def until(self, last: int) -> Gathered:
        """The same, of a span that ends sooner."""
        span = Span(self.span.epoch, self.span.first, last, self.span.overlap)
        rest_from = np.array([source.rest_from for source in self.sources], np.int64)
        found, pieces = self.datagrams, self.pieces.sequence < span.base + span.room
        is_rest = (found.number < self.span.first) | (found.number > self.span.last)
        mine = np.where(is_rest, rest_from[found.source] <= last, found.number <= last)
        refused = [row for row in self.refused if (row.number or int(rest_from[row.source])) <= last]
        return Gathered(
            span,
            self.sources,
            self.pieces.at(pieces),
            self.piece_source[pieces],
            self.piece_offset[pieces],
            {line: times[: span.room] for line, times in self.arrival.items()},
            {line: numbers[numbers <= last] for line, numbers in self.again.items()},
            Datagrams(*(column[mine] for column in vars(found).values())),
            refused,
        )

    def first_arrival(self) -> tuple[Numbers, NDArray[np.int8]]:
        """When each number of the span came first, and on which line (-1: on none)."""
        return self._first_arrival

    @cached_property
    def _first_arrival(self) -> tuple[Numbers, NDArray[np.int8]]:
        first, line = np.full(self.span.room, NEVER), np.full(self.span.room, -1, np.int8)
        for number, times in sorted(self.arrival.items()):
            sooner = times < first
            first[sooner], line[sooner] = times[sooner], number
        return first, line


def gather(
    sources: Sequence[Source], span: Span, reader: Reader, known: Sequence[Span], without: Damaged = frozenset()
) -> Gathered:
    """`known` are all spans of the channel: a number in none of them is damage."""

    def read(without: Damaged, false: Damaged = frozenset(), doubtful: frozenset[int] = frozenset()) -> _Work:
        work = _Work(span, sources, known, without, false, doubtful)
        for number, source in enumerate(sources):
            for batch in datagrams_of(source):
                work.take(number, batch, reader.read(batch, source))
        return work

    work = read(without)
    if work.copies.doubtful:
        false = read(without, doubtful=frozenset(work.copies.doubtful)).copies.false()
        work = read(without | false, false)
    return work.end()


def datagrams_of(source: Source) -> Iterator[PacketBatch]:
    """The datagrams of the source's flow, batch by batch."""
    split = split_of(source.split, source.path)
    with open_capture(split, batch_packets=BATCH_PACKETS, chunk_bytes=CHUNK_BYTES, corrupt=True) as capture:
        for batch in capture:
            wanted = [number for number, flow in enumerate(batch.flows) if (flow.dest, flow.dest_port) == source.flow]
            mine = batch.flow == wanted[0] if len(wanted) == 1 else np.isin(batch.flow, wanted)
            if mine.all():
                yield batch
            elif mine.any():
                yield batch.at(np.flatnonzero(mine))


class _Work:
    def __init__(
        self,
        span: Span,
        sources: Sequence[Source],
        known: Sequence[Span],
        without: Damaged,
        false: Damaged,
        doubtful: frozenset[int],
    ) -> None:
        self.span, self.sources, self.known, self.without, self.false = span, sources, known, without, false
        self.copies = Copies(span.base, span.room, doubtful)
        self._have = np.zeros(span.room, np.bool_)
        self._arrival: dict[int, Numbers] = {}
        self._again: dict[int, list[Numbers]] = {}
        self._parts: list[tuple[Pieces, NDArray[np.int32], Numbers]] = []
        self._columns: list[tuple[Any, ...]] = []
        # Of frames: the datagram (-1: another span's), number and chunk, when it came, the line.
        self._frames: list[tuple[Numbers, Numbers, Numbers, NDArray[np.uint8]]] = []
        self._by_number = True  # a frame is a number, no chunk of one
        self._count = 0
        self._refused: list[Refused] = []

    def take(self, number: int, batch: PacketBatch, found: Found) -> None:
        source, span = self.sources[number], self.span
        kind, piece_row, pieces = found.kind.copy(), found.piece_row, found.pieces
        fine = (pieces.epoch == span.epoch) & (pieces.sequence >= span.base)
        fine &= pieces.sequence < span.base + span.room
        if found.elsewhere is not None:
            fine &= ~found.elsewhere[piece_row]
        damaged = self._damaged(source, batch.offset, found)
        if len(damaged):
            fine[damaged] = False
            kind[piece_row[damaged]] = CORRUPT
            for row in piece_row[damaged].tolist() if self.false else ():
                if (source.digest, int(batch.offset[row]), int(found.number[row])) in self.false:
                    found.reasons[row] = FALSE_NUMBER
        chosen = np.flatnonzero(fine)
        at = piece_row[chosen]
        self.copies.take(source.digest, batch.offset[at], pieces.sequence[chosen], found.ts_send[at])
        self._keep(number, source, batch.offset, pieces, chosen, piece_row)
        self._account(number, batch, found, kind)

    def _damaged(self, source: Source, offset: Numbers, found: Found) -> Numbers:
        """Pieces that cannot be used."""
        mine = {(at, number) for digest, at, number in self.without if digest == source.digest}
        suspects = np.flatnonzero(np.isin(offset[found.piece_row], [at for at, _ in mine])) if mine else _NO_ROWS
        said = zip(offset[found.piece_row[suspects]].tolist(), found.pieces.sequence[suspects].tolist(), strict=True)
        return suspects[[each in mine for each in said]] if len(suspects) else suspects

    def _keep(
        self, number: int, source: Source, offset: Numbers, pieces: Pieces, chosen: Numbers, piece_row: Numbers
    ) -> None:
        if not len(chosen):
            return
        at = pieces.sequence[chosen] - self.span.base
        arrival = self._arrival.setdefault(source.line, np.full(self.span.room, NEVER))
        again = np.zeros(len(at), np.bool_)
        if (at[1:] <= at[:-1]).any():
            order = np.argsort(at, kind="stable")
            chosen, at = chosen[order], at[order]
            again[1:] = at[1:] == at[:-1]
        own = (at >= self.span.overlap) & (at < self.span.room - self.span.overlap)
        before = arrival[at]
        repeated = at[own & (again | (before != NEVER))] + self.span.base
        self._again.setdefault(source.line, []).append(repeated)
        if again.any():
            np.minimum.at(arrival, at, pieces.ts_recv[chosen])
        else:
            arrival[at] = np.minimum(before, pieces.ts_recv[chosen])
        new = ~again & ~self._have[at]
        self._have[at[new]] = True
        rows = chosen[new]
        if len(rows):
            kept = pieces.at(rows).packed()
            kept.line[:] = source.line
            where = np.full(len(rows), number, np.int32), offset[piece_row[rows]]
            self._parts.append((kept, *where))

    def _account(self, number: int, batch: PacketBatch, found: Found, kind: NDArray[np.uint8]) -> None:
        source, span = self.sources[number], self.span
        numbered = found.number > 0
        mine = numbered & (found.epoch == span.epoch) & (found.number >= span.first) & (found.number <= span.last)
        if source.own_rest:
            strange = numbered & ~_within(found, self.known)
            kind[strange] = UNKNOWN
            found.reasons.update(dict.fromkeys(np.flatnonzero(strange).tolist(), "its number is far from all others"))
            mine |= ~numbered | strange
        if found.elsewhere is not None:
            mine &= ~found.elsewhere
        refused = (kind == CORRUPT) | (kind == UNKNOWN)
        self._refused += refused_of(number, batch, found, mine & refused)
        count = int(np.count_nonzero(mine))
        place = np.cumsum(mine) + (self._count - 1)
        if count < len(mine):
            place[~mine] = -1
        self._count += count
        size = (batch.end - batch.start).astype(np.int32)
        columns = found.number, found.ts_send, batch.ts_ns, size, batch.offset, found.frames, kind
        numbers, sent, came, size, offset, frames, kinds = (
            column.copy() if count == len(mine) else column[mine] for column in columns
        )
        lines, sources = np.full(count, source.line, np.uint8), np.full(count, number, np.int32)
        self._columns.append((lines, numbers, sent, came, size, sources, offset, frames, kinds))
        # A frame of a datagram that is another span's, or damaged, still may be the first copy of its number.
        frame = place[found.frame_row]
        ours = (found.frame_number >= span.base) & (found.frame_number < span.base + span.room)
        ours &= found.epoch[found.frame_row] == span.epoch
        if found.elsewhere is not None:
            ours &= ~found.elsewhere[found.frame_row]
        ours &= ~refused[found.frame_row]
        key, ts = found.frame_key, batch.ts_ns[found.frame_row]
        self._by_number &= key is found.frame_number
        if not ours.all():
            frame, key, ts = frame[ours], key[ours], ts[ours]
        self._frames.append((frame, key, ts, np.full(len(ts), source.line, np.uint8)))

    def end(self) -> Gathered:
        pieces, source, offset = _joined(self._parts)
        if (pieces.sequence[1:] < pieces.sequence[:-1]).any():
            order = np.argsort(pieces.sequence, kind="stable")
            pieces, source, offset = pieces.at(order), source[order], offset[order]
        datagrams = Datagrams(*(np.concatenate(column) for column in zip(*self._columns or _NONE, strict=True)))
        gathered = Gathered(
            self.span,
            self.sources,
            pieces,
            source,
            offset,
            self._arrival,
            {line: np.concatenate(numbers) for line, numbers in self._again.items()},
            datagrams,
            self._refused,
        )
        first, _ = gathered.first_arrival()
        gathered.pieces.ts_recv[:] = first[gathered.pieces.sequence - self.span.base]
        self._judge(datagrams, first)
        return gathered

    def _judge(self, datagrams: Datagrams, first: Numbers) -> None:
        """The first copy of a number is used, every other one is a duplicate."""
        if not self._frames:
            return
        row, key, came, line = (np.concatenate(column) for column in zip(*self._frames, strict=True))
        used = row[self.copies.first(key, came, line) if self._by_number else first_copies(key, came, line)]
        open_verdict = datagrams.verdict == MERGED
        datagrams.verdict[open_verdict] = DUPLICATE
        used = used[used >= 0]
        used = used[open_verdict[used]]
        datagrams.verdict[used] = USED
        # It came after the wait for a hole was over (13.7): a live client would have given it up.
        following = np.minimum.accumulate(np.append(first[1:], NEVER)[::-1])[::-1]
        limit = np.where(following == NEVER, NEVER, following + np.where(following == NEVER, 0, WAIT_MS * 1_000_000))
        late = datagrams.ts_recv[used] > limit[datagrams.number[used] - self.span.base]
        datagrams.verdict[used[late]] = LATE


def _within(found: Found, spans: Sequence[Span]) -> NDArray[np.bool_]:
    inside = np.zeros(len(found.number), np.bool_)
    for span in spans:
        inside |= (found.epoch == span.epoch) & (found.number >= span.first) & (found.number <= span.last)
    return inside


def _joined(parts: list[tuple[Pieces, NDArray[np.int32], Numbers]]) -> tuple[Pieces, NDArray[np.int32], Numbers]:
    """Packed parts as one."""
    if not parts:
        return no_pieces(), np.empty(0, np.int32), np.empty(0, np.int64)
    shift = np.cumsum([0, *(len(part.buffer) for part, _, _ in parts[:-1])])
    columns = {
        name: np.concatenate([getattr(part, name) for part, _, _ in parts])
        for name in ("buffer", "sequence", "epoch", "ts_recv", "msg_index", "line")
    }
    for name in ("start", "end"):
        places = [getattr(part[0], name) + at for part, at in zip(parts, shift, strict=True)]
        columns[name] = np.concatenate(places)
    source, offset = np.concatenate([part[1] for part in parts]), np.concatenate([part[2] for part in parts])
    parts.clear()
    return Pieces(**columns), source, offset
