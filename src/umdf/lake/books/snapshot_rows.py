"""The complete snapshots of some instruments, for the books task: one entry each, with the rows of its book."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.errors import UmdfError
from umdf.lake.books.instrument_rows import LENDING, Epochs, StagedFamily, StreamPosition, is_between
from umdf.lake.tasks.damaged_headers import MAX_OVERTAKING
from umdf.lake.tasks.staging import as_events
from umdf.market.families import LAST, MBO, NULL
from umdf.market.rows import Events, Rows, empty_rows, take_ranges

CLEAR, NEITHER = ord("R"), ord("N")
UNKNOWN_EPOCH = -1
HEADER_COLUMNS = "book epoch last_sequence last_rpt_seq depth seq_version sequence ts_send ts_recv".split()
INT32_COLUMNS = ("book", "epoch", "depth")


@dataclass(frozen=True, eq=False)
class BookSnapshots:
    """Sorted by book, epoch and sequence, then by arrival. `rows` has the books' content."""

    book: NDArray[np.int32]
    epoch: NDArray[np.int32]  # of the incremental stream; UNKNOWN_EPOCH: not captured
    last_sequence: NDArray[np.int64]
    last_rpt_seq: NDArray[np.int64]
    depth: NDArray[np.int32]
    seq_version: NDArray[np.int64]  # of the snapshot stream
    sequence: NDArray[np.int64]
    ts_send: NDArray[np.int64]
    ts_recv: NDArray[np.int64]
    rows: Rows
    offsets: NDArray[np.int32]  # of each snapshot in `rows`

    def __len__(self) -> int:
        return len(self.book)

    @property
    def key(self) -> NDArray[np.uint64]:
        """Behind everything of the last sequence that each holds."""
        return (self.last_sequence.astype(np.uint64) << np.uint64(32)) | np.uint64(0xFFFFFFFF)

    def between(self, after: StreamPosition, until: StreamPosition) -> BookSnapshots:
        """The snapshots between two positions of the stream."""
        return self._take(np.flatnonzero(is_between(self.epoch, self.key, after, until)))

    def _take(self, chosen: NDArray[np.int64]) -> BookSnapshots:
        if len(chosen) == len(self):
            return self
        offsets, rows = take_ranges(self.offsets, chosen)
        picked = {name: getattr(self, name)[chosen] for name in HEADER_COLUMNS}
        return BookSnapshots(**picked, rows=self.rows.take(rows), offsets=offsets)

    def in_span(self, day_span: DaySpan) -> BookSnapshots:
        return self._take(np.flatnonzero(day_span.contains_positions(self.epoch, self.last_sequence, self.ts_recv)))

    def rows_of(self, chosen: NDArray[np.int64]) -> tuple[Rows, NDArray[np.int32]]:
        """The books of some snapshots, concatenated, and where each ends; only its last row has the flag LAST."""
        offsets, rows = take_ranges(self.offsets, chosen)
        rows_taken = self.rows.take(rows)
        flags = rows_taken.column("flags") & ~LAST
        flags[offsets[1:] - 1] |= LAST
        rows_taken.columns["flags"] = flags
        return rows_taken, offsets


def arrange_snapshots(
    headers: pa.RecordBatch | None,
    book_rows: pa.RecordBatch | None,
    ids: NDArray[np.int64],
    epochs: Epochs,
    starts: EpochStarts,
) -> BookSnapshots:
    """From staged rows of the families snapshot and mbo, in order of time."""
    if headers is None or book_rows is None:
        none: dict[str, Any] = {
            name: np.empty(0, np.int32 if name in INT32_COLUMNS else np.int64) for name in HEADER_COLUMNS
        }
        return BookSnapshots(**none, rows=empty_rows(MBO), offsets=np.zeros(1, np.int32))
    events = as_events(headers, "snapshot")
    header_rows, units = events.rows("snapshot"), events.units
    rows = as_events(book_rows, "mbo").rows("mbo")
    rows = rows.take(np.argsort(np.searchsorted(ids, rows.column("instrument_id")), kind="stable"))
    begins = np.flatnonzero((rows.column("action") == CLEAR) & (rows.column("side") == NEITHER))
    order = np.argsort(header_rows.column("instrument_id"), kind="stable")
    head_ids, begin_ids = header_rows.column("instrument_id")[order], rows.column("instrument_id")[begins]
    if not np.array_equal(head_ids, begin_ids):
        raise UmdfError("snapshot headers and rows do not match", "this is a bug, please report it")
    book = 2 * np.searchsorted(ids, head_ids).astype(np.int32) + (rows.column("venue")[begins] == LENDING)
    version, ts_recv = header_rows.column("last_seq_version")[order], units.ts_recv[order]
    last = header_rows.column("last_sequence")[order]
    epoch = epoch_ranks(version, last, ts_recv, epochs.versions, starts)
    by = np.lexsort((last, epoch, book))
    order = order[by]
    offsets, places = _permute_ranges(begins, np.append(begins[1:], len(rows)), by)
    return BookSnapshots(
        book[by],
        epoch[by],
        last[by],
        header_rows.column("last_rpt_seq")[order],
        header_rows.column("depth")[order],
        units.seq_version[order],
        units.sequence[order],
        units.ts_send[order],
        units.ts_recv[order],
        rows.take(places),
        offsets,
    )


def epoch_ranks(
    version: NDArray[np.int64],
    last_sequence: NDArray[np.int64],
    ts_recv: NDArray[np.int64],
    versions: Sequence[int],
    starts: EpochStarts,
) -> NDArray[np.int32]:
    """The incremental epoch of each snapshot. FAST does not state it, nor does Binary before version 15: there the time
    decides, and a snapshot that was received before the first epoch but holds more than was sent by then is of an
    earlier one."""
    times, firsts = np.array(starts.ts_recv, np.int64), starts.first_sequence
    at_time = np.searchsorted(times, ts_recv, side="right") - 1 if len(times) else 0 * ts_recv
    known = {value: rank for rank, value in enumerate(versions)}
    by_version = np.array([known.get(value, UNKNOWN_EPOCH) for value in version.tolist()], np.int64)
    by_time = np.maximum(at_time, 0) if versions else UNKNOWN_EPOCH  # unknown, if no update was captured
    if firsts and versions:
        newest = firsts[0] + MAX_OVERTAKING if firsts[0] > 1 else 0  # the last sequence at that time, of a join
        by_time = np.where((at_time < 0) & (last_sequence > newest), UNKNOWN_EPOCH, by_time)
    return np.where(version == NULL, by_time, by_version).astype(np.int32)


@dataclass(frozen=True)
class EpochStarts:
    """When the first packet of each epoch was received, and its sequence."""

    ts_recv: Sequence[int] = ()
    first_sequence: Sequence[int] = ()


@dataclass(frozen=True)
class DaySpan:
    """The part of a day that a run processes: after one position and up to another, either of which may be open.

    A position is epoch (as a rank), sequence and ts_recv. The time decides for snapshots of an unknown epoch."""

    since: Sequence[int] | None = None
    until: Sequence[int] | None = None
    versions: Sequence[int] = ()
    begun: Sequence[int] = ()
    firsts: Sequence[int] = ()

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> DaySpan:
        return cls(**fields)

    def contains(self, headers: Events) -> NDArray[np.bool_]:
        """Which snapshots are in this part."""
        rows, units = headers.rows("snapshot"), headers.units
        return self.contains_positions(self.ranks(headers), rows.column("last_sequence"), units.ts_recv[rows.unit])

    def ranks(self, headers: Events) -> NDArray[np.int32]:
        """The incremental epochs of snapshots."""
        rows, starts = headers.rows("snapshot"), EpochStarts(self.begun, self.firsts)
        version, last = rows.column("last_seq_version"), rows.column("last_sequence")
        return epoch_ranks(version, last, headers.units.ts_recv[rows.unit], self.versions, starts)

    def contains_positions(
        self, rank: NDArray[np.int32], last: NDArray[np.int64], ts_recv: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        inside = np.ones(len(rank), np.bool_)
        has_position = (rank >= 0) & (last != NULL)
        if self.since is not None:
            inside &= ~np.where(has_position, are_before(rank, last, ts_recv, self.since), ts_recv <= self.since[2])
        if self.until is not None:
            inside &= np.where(has_position, are_before(rank, last, ts_recv, self.until), ts_recv <= self.until[2])
        return inside


def are_before(
    rank: NDArray[np.int32], last: NDArray[np.int64], ts_recv: NDArray[np.int64], position: Sequence[int]
) -> NDArray[np.bool_]:
    """Which snapshots belong to the part of the day that ends at this position. After a silence, snapshots still name
    the sequence before it: of those of the last sequence, only the ones that had come by then belong to the part."""
    position_rank, number, ts_number = position
    is_last = (last == number) & (ts_recv <= ts_number)
    return (rank < position_rank) | ((rank == position_rank) & ((last < number) | is_last))


def _permute_ranges(
    starts: NDArray[np.int64], ends: NDArray[np.int64], by: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    size = (ends - starts)[by]
    offsets = np.zeros(len(size) + 1, np.int32)
    np.cumsum(size, out=offsets[1:])
    return offsets, np.arange(int(offsets[-1])) + np.repeat(starts[by] - offsets[:-1], size)


def read_snapshots(
    headers: StagedFamily,
    books: StagedFamily,
    first: int,
    last: int,
    ids: NDArray[np.int64],
    epochs: Epochs,
    starts: EpochStarts,
) -> BookSnapshots:
    """The snapshots of the instruments from `first` to `last`."""
    no_limit = 1 << 62
    head = next(headers.row_batches(first, last, no_limit), None)
    rows = next(books.row_batches(first, last, no_limit), None)
    header_batch, book_batch = (None if some is None else some.to_batch() for some in (head, rows))
    return arrange_snapshots(header_batch, book_batch, ids, epochs, starts)
